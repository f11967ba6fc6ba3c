//! What a takeover writes to the objects that Lynq left: how often, and what of them is another then.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use serde_json::{Map, Value, json};

use crate::cluster::audit::AuditEvent;
use crate::operator::{Operator, identity};
use crate::takeover::{ROWS, cluster_of_lynq, fleet_of_rows, fleet_with, form, migrate, released};
use crate::tenants::{Fleet, SOON};

/// The kinds of these tests' objects, and what the API server calls them.
const KINDS: [(&str, &str); 2] = [("Deployment", "deployments"), ("ConfigMap", "configmaps")];

/// Whole objects, under the names that [`count`] has for them.
pub async fn objects(fleet: &Fleet) -> Result<BTreeMap<String, Value>> {
    let mut found = BTreeMap::new();
    for (kind, resource) in KINDS {
        for object in fleet.list(kind).await? {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            found.insert(format!("{resource} {name}"), object.clone());
        }
    }
    Ok(found)
}

/// How often the operator wrote each, dry runs and refusals aside.
pub fn count(fleet: &Fleet, events: &[AuditEvent]) -> BTreeMap<String, Vec<String>> {
    let user = identity().username();
    let mut writes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let own = events.iter().filter(|event| {
        let is_child = KINDS
            .iter()
            .any(|(_, resource)| event.resource == *resource);
        let is_own = event.user == user && event.namespace == fleet.namespace;
        is_own && is_child && event.is_write() && event.succeeded()
    });
    for event in own {
        let name = format!("{} {}", event.resource, event.name);
        writes.entry(name).or_default().push(event.verb.clone());
    }
    writes
}

/// All but `lynq.sh/*` metadata is as it was, in every object that `concerns`.
pub fn ensure_bookkeeping_alone(
    before: &BTreeMap<String, Value>,
    after: &BTreeMap<String, Value>,
    concerns: impl Fn(&str) -> bool,
) -> Result<()> {
    for (name, was) in before.iter().filter(|(name, _)| concerns(name)) {
        let is = after.get(name).cloned().unwrap_or_default();
        let (was_rest, is_rest) = (without_bookkeeping(was), without_bookkeeping(&is));
        ensure!(
            was_rest == is_rest,
            "{name} was {was_rest:#}, and is {is_rest:#}"
        );
        // To the API server the annotations of a Deployment are a part of what it is to be.
        let moved = i64::from(name.starts_with("deployments "));
        let generation = |object: &Value| object["metadata"]["generation"].as_i64().unwrap_or(0);
        let (first, now) = (generation(was), generation(&is));
        ensure!(
            now == first + moved,
            "{name}: generation {first} became {now}"
        );
        let changes = json!([own(was, &is, "labels"), own(was, &is, "annotations")]);
        let made_once = name.ends_with("-first");
        let annotations = match made_once {
            true => json!([]),
            false => json!(["lynq.sh/applied-hash", "lynq.sh/apply-start-time"]),
        };
        ensure!(
            changes == json!([["lynq.sh/managed"], annotations]),
            "{name}: {changes}"
        );
    }
    Ok(())
}

/// The names under `lynq.sh/` whose values differ.
fn own(was: &Value, is: &Value, what: &str) -> Vec<String> {
    let entries = |object: &Value| -> Map<String, Value> {
        object["metadata"][what]
            .as_object()
            .cloned()
            .unwrap_or_default()
    };
    let (was, is) = (entries(was), entries(is));
    let names = was
        .keys()
        .chain(is.keys().filter(|name| !was.contains_key(*name)));
    let changed = names.filter(|name| was.get(*name) != is.get(*name));
    let mut changed: Vec<String> = changed.cloned().collect();
    changed.sort();
    changed
}

/// Without what is lynqgate's, and what the API server and the controllers make of any write.
fn without_bookkeeping(object: &Value) -> Value {
    let mut object = object.clone();
    object["status"] = Value::Null;
    for counted in ["generation", "resourceVersion", "managedFields"] {
        object["metadata"][counted] = Value::Null;
    }
    for kept in ["labels", "annotations"] {
        let mut entries = object["metadata"][kept]
            .as_object()
            .cloned()
            .unwrap_or_default();
        entries.retain(|name, _| !name.starts_with("lynq.sh/"));
        object["metadata"][kept] = json!(entries);
    }
    object
}

/// What a controller wrote on the object is no difference, and is not taken away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_to_be_replaced_is_taken_over_as_it_is() -> Result<()> {
    let cluster = cluster_of_lynq().await?;
    let fleet = fleet_of_rows(&cluster, "replaced").await?;
    let mut form = form(&fleet, "web:1");
    for array in ["deployments", "configMaps"] {
        form["spec"][array][0]["patchStrategy"] = json!("replace");
    }
    let fleet = fleet_with(fleet, &form, |_| "web:1").await?;
    let before = objects(&fleet).await?;
    let told = migrate(&cluster, "").await?.expect_success()?;
    let all = format!("{ROWS} of {ROWS} nodes are taken over as they are");
    ensure!(told.contains(&all), "{told}");
    let operator = Operator::start(&cluster, "operator", &[]).await?;
    fleet.complete(ROWS, SOON).await?;
    released(&operator, &fleet, &[("taken_over", ROWS)]).await?;
    let after = objects(&fleet).await?;
    ensure_bookkeeping_alone(&before, &after, |name| !name.ends_with("kube-root-ca.crt"))
}
