//! A cluster that Lynq ran: its objects as it leaves them, and lynqgate put in its place.

mod back;
mod definitions;
mod elsewhere;
mod record;
mod told;
mod windowless;
mod writes;

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::auditor::Auditor;
use crate::cluster::access::Outcome;
use crate::cluster::{Cluster, Options, wait};
use crate::idle::until_synced;
use crate::operating::commands_of;
use crate::operator::{self, Operator};
use crate::tenants::{Fleet, SOON, condition};

const ROWS: usize = 4;

/// The form as its user wrote it for Lynq.
fn form(fleet: &Fleet, image: &str) -> Value {
    let mut form = fleet.form(image, json!(1), 0);
    form["spec"]["configMaps"] = json!([{
        "id": "settings", "nameTemplate": "{{ .uid }}-settings",
        "spec": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"plan": "{{ .plan }}"}},
    }]);
    form
}

/// The same with what is made once, and has had another form since then.
fn form_with_once(fleet: &Fleet, image: &str) -> Value {
    let mut form = form(fleet, image);
    let maps = form["spec"]["configMaps"].as_array_mut();
    maps.expect("an array").push(json!({
        "id": "first", "nameTemplate": "{{ .uid }}-first", "creationPolicy": "Once",
        "spec": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"plan": "{{ .plan }}", "added": "later"}},
    }));
    form
}

/// What Lynq writes for a resource: with an owner reference what goes with its node, also where the garbage collector does
/// not heed it; with labels what is elsewhere or stays.
fn of_lynq(fleet: &Fleet, node: &Value, rendered: Value) -> Value {
    let mut object = rendered["spec"].clone();
    let (own, elsewhere) = (&fleet.namespace, rendered["targetNamespace"].as_str());
    let policy = rendered["deletionPolicy"].as_str().unwrap_or("Delete");
    object["metadata"] = json!({
        "name": rendered["nameTemplate"], "namespace": elsewhere.unwrap_or(own),
        "annotations": {
            "lynq.sh/deletion-policy": policy, "lynq.sh/applied-hash": "0011223344556677",
            "lynq.sh/apply-start-time": "2026-03-01T12:00:00.123456789Z",
        },
    });
    if rendered["creationPolicy"] == "Once" {
        object["metadata"]["annotations"]["lynq.sh/created-once"] = json!("true");
        object["data"] = json!({"plan": "free"});
    }
    if object["kind"] == "PriorityClass" {
        object["metadata"]["namespace"] = Value::Null;
    }
    if elsewhere.is_some() || policy == "Retain" {
        object["metadata"]["labels"] =
            json!({"lynq.sh/node": node["metadata"]["name"], "lynq.sh/node-namespace": own});
    } else {
        object["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "operator.lynq.sh/v1", "kind": "LynqNode", "controller": true, "blockOwnerDeletion": true,
            "name": node["metadata"]["name"], "uid": node["metadata"]["uid"],
        }]);
    }
    object
}

async fn apply_as_lynq(fleet: &Fleet, object: &Value) -> Result<()> {
    let text = |at: &str| object.pointer(at).and_then(Value::as_str).context("text");
    let params = PatchParams::apply("lynq-operator").force();
    let objects = fleet.api_in(text("/kind")?, text("/metadata/namespace").unwrap_or(""));
    let (name, patch) = (text("/metadata/name")?, Patch::Apply(object));
    objects.patch(name, &params, &patch).await?;
    Ok(())
}

/// A node with its objects. Lynq renders names when it writes the node, and specs when it applies them.
async fn leave(fleet: &Fleet, form: &Value, i: usize, image: &str) -> Result<()> {
    let rendered = |resource: &Value| -> Result<Value> {
        let text = resource.to_string().replace("{{ .uid }}", &format!("t{i}"));
        let text = text.replace("{{ .plan }}", "pro").replace("web:1", image);
        Ok(serde_json::from_str(&text)?)
    };
    let mut spec = json!({"uid": format!("t{i}"), "templateRef": "web"});
    let mut resources = vec![];
    for array in ["deployments", "configMaps", "manifests"] {
        spec[array] = form["spec"][array].clone();
        if spec[array].is_null() {
            spec[array] = json!([]);
        }
        for resource in spec[array].as_array_mut().context("an array")? {
            let rendered = rendered(resource)?;
            resource["nameTemplate"] = rendered["nameTemplate"].clone();
            resources.push((resource.clone(), rendered));
        }
    }
    let hub = fleet.get("LynqHub", "tenants").await?;
    let name = format!("t{i}-web");
    let node = fleet
        .apply(&json!({
            "apiVersion": "operator.lynq.sh/v1", "kind": "LynqNode",
            "metadata": {
                "name": name, "namespace": fleet.namespace,
                "labels": {"lynq.sh/hub": "tenants", "lynq.sh/uid": format!("t{i}")},
                "annotations": {
                    "lynq.sh/hubId": "tenants", "lynq.sh/template-generation": "1", "lynq.sh/activate": "1",
                    "lynq.sh/extra": r#"{"plan":"pro"}"#, "lynq.sh/hostOrUrl": "",
                    "lynq.sh/rollout-update-start": "2026-03-01T13:00:00+01:00",
                },
                "finalizers": ["lynqnode.operator.lynq.sh/finalizer"],
                "ownerReferences": [{
                    "apiVersion": "operator.lynq.sh/v1", "kind": "LynqHub", "controller": true, "blockOwnerDeletion": true,
                    "name": "tenants", "uid": hub["metadata"]["uid"],
                }],
            },
            "spec": spec,
        }))
        .await?;
    let mut applied = vec![];
    for (resource, rendered) in resources {
        let id = rendered["id"].as_str().context("an id")?.to_owned();
        let object = of_lynq(fleet, &node, rendered);
        apply_as_lynq(fleet, &object).await?;
        let text = |at: &str| {
            object
                .pointer(at)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        // What has no namespace is recorded with its node's; and a template of one as it is.
        let elsewhere = resource["targetNamespace"].as_str();
        let namespace = elsewhere.unwrap_or(&fleet.namespace);
        let (kind, name) = (text("/kind"), text("/metadata/name"));
        applied.push(format!("{kind}/{namespace}/{name}@{id}"));
    }
    let status = json!({"status": {
        "observedGeneration": 1, "readyResources": applied.len(), "desiredResources": applied.len(), "failedResources": 0,
        "appliedResources": applied, "lastFullReconcileAt": "2026-03-01T12:00:01Z",
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "Reconciled", "message": "Successfully reconciled all resources",
            "lastTransitionTime": "2026-03-01T12:00:01Z",
        }],
    }});
    let params = PatchParams::default();
    let nodes = fleet.api("LynqNode");
    nodes
        .patch_status(&name, &params, &Patch::Merge(&status))
        .await?;
    Ok(())
}

/// What must not change of each object: its uid, and what it says. (The API server counts a Deployment's annotations as a
/// generation, too; its pods know nothing of them.)
async fn substance(fleet: &Fleet) -> Result<BTreeMap<String, Value>> {
    let mut found = BTreeMap::new();
    for kind in ["Deployment", "ConfigMap", "Pod"] {
        for object in fleet.list(kind).await? {
            let metadata = &object["metadata"];
            let name = metadata["name"].as_str().unwrap_or_default();
            let kept = json!([metadata["uid"], object["spec"], object["data"]]);
            found.insert(format!("{kind} {name}"), kept);
        }
    }
    Ok(found)
}

/// Says beforehand what will become of the whole cluster.
async fn migrate(cluster: &Cluster, more: &str) -> Result<Outcome> {
    let programs = operator::program("lynqgate")?;
    let programs = programs.parent().context("a directory")?.display();
    let commands = commands_of("docs/LYNQ.md", "beforehand")?;
    let commands = format!("PATH={programs}:$PATH\n{}{more}", commands.trim_end());
    cluster.shell(&commands).await
}

async fn versions(fleet: &Fleet) -> Result<BTreeMap<String, Value>> {
    let mut found = BTreeMap::new();
    for kind in [
        "LynqHub",
        "LynqForm",
        "LynqNode",
        "Deployment",
        "ConfigMap",
        "Secret",
    ] {
        for object in fleet.list(kind).await? {
            let metadata = &object["metadata"];
            let name = metadata["name"].as_str().unwrap_or_default();
            found.insert(
                format!("{kind} {name}"),
                metadata["resourceVersion"].clone(),
            );
        }
    }
    Ok(found)
}

/// Without an operator, and with Lynq's definitions.
async fn cluster_of_lynq() -> Result<Cluster> {
    let cluster = Cluster::start(Options::default()).await?;
    definitions::install(&cluster).await?;
    Ok(cluster)
}

async fn fleet_of_rows(cluster: &Cluster, name: &str) -> Result<Fleet> {
    wait::until("the definitions are served", SOON, async || {
        Fleet::new(cluster, name, ROWS).await
    })
    .await
}

/// Everything as Lynq leaves it, with these images, and running.
async fn fleet_of_lynq(
    cluster: &Cluster,
    name: &str,
    image: impl Fn(usize) -> &'static str,
) -> Result<Fleet> {
    let fleet = fleet_of_rows(cluster, name).await?;
    let form_of_lynq = form(&fleet, "web:1");
    fleet_with(fleet, &form_of_lynq, image).await
}

/// The same of a form with more in it.
async fn fleet_with(
    fleet: Fleet,
    form_of_lynq: &Value,
    image: impl Fn(usize) -> &'static str,
) -> Result<Fleet> {
    let finalizer = json!({"metadata": {"finalizers": ["lynq.sh/hub-finalizer"]}});
    fleet.merge("LynqHub", "tenants", &finalizer).await?;
    fleet.apply(form_of_lynq).await?;
    for i in 0..ROWS {
        leave(&fleet, form_of_lynq, i, image(i)).await?;
    }
    wait::until("all of them run", SOON, async || {
        for one in fleet.list("Deployment").await? {
            ensure!(one["status"]["availableReplicas"] == 1, "{}", one["status"]);
        }
        let pods = fleet.list("Pod").await?.len();
        ensure!(pods == ROWS, "{pods} pods");
        Ok(())
    })
    .await?;
    Ok(fleet)
}

/// What let the nodes go.
async fn released(operator: &Operator, fleet: &Fleet, causes: &[(&str, usize)]) -> Result<()> {
    let metrics = operator.metrics().await?;
    let namespace = &fleet.namespace;
    let of_fleet = format!("lynqgate_released_total{{namespace=\"{namespace}\",");
    let mut told: Vec<&str> = metrics
        .lines()
        .filter(|line| line.starts_with(&of_fleet))
        .collect();
    let line = |(cause, nodes): &(&str, usize)| {
        format!("{of_fleet}form=\"web\",cause=\"{cause}\"}} {nodes}")
    };
    let mut expected: Vec<String> = causes.iter().map(line).collect();
    told.sort();
    expected.sort();
    ensure!(told == expected, "{told:?} instead of {expected:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_takeover_would_change_takes_its_turn() -> Result<()> {
    let cluster = cluster_of_lynq().await?;
    definitions::install_ours(&cluster).await?;
    let pruned = fleet_of_lynq(&cluster, "pruned", |_| "web:1").await?;
    let edited = fleet_of_lynq(&cluster, "edited", |_| "web:1").await?;
    // What the form does not name any more goes with the release.
    let mut form_pruned = form(&pruned, "web:1");
    form_pruned["spec"]["configMaps"] = json!([]);
    pruned.apply(&form_pruned).await?;
    let mut form_edited = form(&edited, "web:1");
    form_edited["spec"]["deployments"][0]["conflictPolicy"] = json!("Force");
    form_edited["spec"]["rollout"]["paused"] = json!(true);
    edited.apply(&form_edited).await?;
    let operator = Operator::start(&cluster, "operator", &[]).await?;

    wait::until("it is known that nothing would change", SOON, async || {
        for node in edited.list("LynqNode").await? {
            let annotations = &node["metadata"]["annotations"];
            ensure!(annotations["lynq.sh/extra"].is_null(), "{annotations}");
        }
        Ok(())
    })
    .await?;
    let told = migrate(&cluster, &format!(" -n {}", edited.namespace)).await?;
    let told = told.expect_success()?;
    let waits = "4 of 4 nodes are taken over as they are\n    it is paused (rollout.paused)";
    ensure!(told.contains(waits), "what waits is told still: {told}");
    // Somebody changes what runs before the release.
    for i in 0..ROWS {
        let image = json!([{"name": "app", "image": "web:by-hand"}]);
        let by_hand = json!({"spec": {"template": {"spec": {"containers": image}}}});
        let (name, params) = (format!("t{i}-app"), PatchParams::default());
        let deployments = edited.api("Deployment");
        deployments
            .patch(&name, &params, &Patch::Strategic(&by_hand))
            .await?;
    }
    form_edited["spec"]["rollout"]["paused"] = json!(false);
    edited.apply(&form_edited).await?;
    for fleet in [&pruned, &edited] {
        fleet.complete(ROWS, SOON).await?;
        released(&operator, fleet, &[("slot", ROWS)]).await?;
    }
    Ok(())
}

/// Lynq's nodes hold templates. Until a hub has rendered them, nothing lets them go: not even force, of the form or of
/// the nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_hub_has_rendered_yet_stays_as_it_is() -> Result<()> {
    let cluster = cluster_of_lynq().await?;
    let fleet = fleet_of_lynq(&cluster, "raw", |_| "web:1").await?;
    let before = substance(&fleet).await?;
    let mut forced = form(&fleet, "web:2");
    forced["metadata"]["annotations"] = json!({"lynq.sh/force-rollout": "true"});
    fleet.apply(&forced).await?;
    let rename = |from: &str, to: &str| format!("RENAME TABLE {from} TO {to}");
    fleet.database.execute(&rename("tenants", "away")).await?;
    let told = migrate(&cluster, "").await?;
    ensure!(
        !told.success && told.stdout.contains("cannot be checked: "),
        "{told:?}"
    );

    let _operator = Operator::start(&cluster, "operator", &[]).await?;
    for name in fleet.names("LynqNode").await? {
        let force = json!({"metadata": {"annotations": {"lynq.sh/force-rollout": "true"}}});
        let (nodes, params) = (fleet.api("LynqNode"), PatchParams::default());
        nodes.patch(&name, &params, &Patch::Merge(&force)).await?;
    }
    wait::until("every node says what it waits for", SOON, async || {
        for node in fleet.list("LynqNode").await? {
            let held = condition(&node, "Held").context("Held")?;
            ensure!(held["reason"] == "NotRendered", "{held}");
        }
        Ok(())
    })
    .await?;
    let after = substance(&fleet).await?;
    ensure!(after == before, "{before:?} became {after:?}");

    fleet.database.execute(&rename("away", "tenants")).await?;
    fleet.complete(ROWS, SOON).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_lynq_left_is_taken_over_without_a_change_and_without_the_window() -> Result<()> {
    let cluster = cluster_of_lynq().await?;
    // Lynq had not come to the last one yet.
    let image = |i| if i == ROWS - 1 { "web:0" } else { "web:1" };
    let fleet = fleet_of_rows(&cluster, "lynq").await?;
    let form_of_lynq = form_with_once(&fleet, "web:1");
    let fleet = fleet_with(fleet, &form_of_lynq, image).await?;
    let before = substance(&fleet).await?;
    let whole_before = writes::objects(&fleet).await?;
    let versions_before = versions(&fleet).await?;
    let told = migrate(&cluster, "").await?.expect_success()?;
    let namespace = &fleet.namespace;
    let expected = format!(
        "lynqhub {namespace}/tenants\n  form web: 3 of 4 nodes are taken over as they are\n    t3-web (waits for its turn): \
         Deployment/{namespace}/t3-app changes: /spec/template/spec/containers/0/image\n"
    );
    ensure!(told == expected, "{told}");
    let told = migrate(&cluster, " -o json").await?.expect_success()?;
    let told: Value = serde_json::from_str(&told)?;
    let nodes = &told[0]["forms"]["web"];
    ensure!(nodes["t0-web"]["outcome"] == "takenOver", "{told}");
    ensure!(nodes["t3-web"]["outcome"] == "changes", "{told}");
    let after = versions(&fleet).await?;
    ensure!(
        after == versions_before,
        "{versions_before:?} became {after:?}"
    );

    let witness = Auditor::start(&["etcd", "--endpoint", &cluster.etcd_url()]).await?;
    let mut audit = cluster.audit().await?;
    let operator = Operator::start(&cluster, "operator", &[]).await?;
    fleet.complete(ROWS, SOON).await?;
    released(&operator, &fleet, &[("taken_over", ROWS - 1), ("slot", 1)]).await?;
    let after = substance(&fleet).await?;
    let last = format!("t{}-app", ROWS - 1);
    for (name, was) in before.iter().filter(|(name, _)| !name.contains(&last)) {
        let is = after.get(name);
        ensure!(is == Some(was), "{name} was {was}, and is {is:?}");
    }
    // A label, and what the release applies; what was made once is not applied.
    let written = writes::count(&fleet, &audit.read().await?);
    let expected: BTreeMap<String, Vec<String>> = whole_before
        .keys()
        .filter(|name| !name.ends_with("kube-root-ca.crt"))
        .map(|name| {
            let writes = if name.ends_with("-first") { 1 } else { 2 };
            (name.clone(), vec!["patch".to_owned(); writes])
        })
        .collect();
    ensure!(written == expected, "{written:#?}");
    let whole = writes::objects(&fleet).await?;
    let is_lynqs = |name: &str| !name.ends_with("kube-root-ca.crt") && !name.ends_with(&last);
    writes::ensure_bookkeeping_alone(&whole_before, &whole, is_lynqs)?;
    until_synced(&operator, 3).await?;
    let later = writes::count(&fleet, &audit.read().await?);
    ensure!(later.is_empty(), "{later:#?}");
    for i in 0..ROWS {
        let node = fleet.get("LynqNode", &format!("t{i}-web")).await?;
        let annotations = &node["metadata"]["annotations"];
        for left in ["extra", "hostOrUrl", "activate", "rollout-update-start"] {
            ensure!(annotations[format!("lynq.sh/{left}")].is_null(), "{node}");
        }
    }

    // From here on it is a fleet like any other: changes, drift and rows that go.
    fleet.apply(&form_with_once(&fleet, "web:2")).await?;
    fleet.complete(ROWS, SOON).await?;
    fleet
        .database
        .execute("DELETE FROM tenants WHERE id = 't0'")
        .await?;
    wait::until(
        "the objects of the tenant that went are gone",
        SOON,
        async || {
            let left = substance(&fleet).await?;
            let mut of_it = left.keys().filter(|name| name.contains(" t0-"));
            ensure!(of_it.next().is_none(), "{:?}", left.keys());
            Ok(())
        },
    )
    .await?;
    let report = witness.end().await?;
    ensure!(report.status == 0, "{:#}", report.json);
    let windows = report.json["windows"].as_array().context("windows")?;
    let taken_over = windows.iter().map(|window| &window["takenOver"]);
    // The form's window, and the hub's.
    ensure!(taken_over.eq([ROWS - 1, ROWS - 1]), "{:#}", report.json);
    Ok(())
}
