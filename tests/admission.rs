//! The gate as users and other webhooks meet it: every write goes through the real API server. What the gate decides
//! in each case is tested beside it; here is only what needs a server.

mod bodies;
mod connections;
mod edits;
pub mod forms;
mod markers;
mod other_webhooks;
mod schema;
mod sizes;
pub mod tls;
mod trials;
mod upgrades;

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Map, Value, json};

use crate::cluster::{Cluster, wait};
use crate::operator;
use crate::tenants::{Fleet, SOON, condition};

const DESIRED: &str = "lynq.sh/desired-hash";
const LIVE: &str = "lynq.sh/live-hash";
const RELEASE: &str = "lynq.sh/release";
const UNGATED: &str = "lynq.sh/ungated";
const FORCE: &str = "lynq.sh/force-rollout";
const START: &str = "lynq.sh/rollout-update-start-time";
const HELD_SINCE: &str = "lynq.sh/held-since";
const HELD_BY: &str = "lynq.sh/held-by";

/// The annotations that the gate owns.
const STATE: [&str; 7] = [DESIRED, LIVE, START, HELD_SINCE, HELD_BY, RELEASE, UNGATED];

/// One tenant, rolled out with image `web:1` on a form that releases nothing more: what is written next stays held.
async fn paused_fleet(prefix: &str) -> Result<(&'static Cluster, Fleet)> {
    let (cluster, _) = operator::shared().await?;
    let fleet = Fleet::new(cluster, prefix, 1).await?;
    fleet.apply(&form(&fleet, 1, false)).await?;
    fleet.complete(1, SOON).await?;
    fleet.apply(&form(&fleet, 1, true)).await?;
    fleet
        .rollout("the pause is seen", SOON, |r| r["phase"] == "Complete")
        .await?;
    Ok((cluster, fleet))
}

/// The form with image `web:<version>`.
fn form(fleet: &Fleet, version: u32, paused: bool) -> Value {
    let image = format!("registry.example.com/web:{version}");
    let mut form = fleet.form(&image, json!(1), 0);
    form["spec"]["rollout"]["paused"] = json!(paused);
    form
}

/// Nodes of no form in a namespace of their own: what they hold stays held until the test lets it go.
struct Nodes {
    cluster: &'static Cluster,
    namespace: String,
    admin: Api<DynamicObject>,
    /// The same with the operator's own credentials.
    operator: Api<DynamicObject>,
}

impl Nodes {
    async fn new(prefix: &str) -> Result<Nodes> {
        let (cluster, _) = operator::shared().await?;
        let namespace = cluster.namespace(prefix).await?;
        let gvk = kube::core::GroupVersionKind::gvk("operator.lynq.sh", "v1", "LynqNode");
        let resource = kube::core::ApiResource::from_gvk(&gvk);
        let api = |client| Api::namespaced_with(client, &namespace, &resource);
        let operator = cluster.client_for(&operator::identity()).await?;
        Ok(Nodes {
            admin: api(cluster.admin().await?),
            operator: api(operator),
            cluster,
            namespace,
        })
    }

    async fn get(&self, name: &str) -> Result<Value> {
        Ok(serde_json::to_value(self.admin.get(name).await?)?)
    }

    /// A new node, held since its creation.
    async fn create(&self, name: &str, content: Value) -> Result<Value, kube::Error> {
        create(&self.admin, &self.node(name, content)).await
    }

    /// A new node whose content is live.
    async fn create_live(&self, name: &str, content: Value) -> Result<Value> {
        let mut node = self.node(name, content);
        node["metadata"]["annotations"] = json!({FORCE: "true"});
        create(&self.admin, &node).await?;
        let live = merge(&self.admin, name, &annotate(FORCE, Value::Null)).await?;
        anyhow::ensure!(!is_held(&live), "{live}");
        Ok(live)
    }

    /// `spec` is merged over that of a node of no form.
    fn node(&self, name: &str, spec: Value) -> Value {
        let mut node = json!({
            "apiVersion": "operator.lynq.sh/v1", "kind": "LynqNode",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"uid": name, "templateRef": "no-form"},
        });
        let fields = spec.as_object().cloned().unwrap_or_default();
        node["spec"].as_object_mut().expect("a spec").extend(fields);
        node
    }

    /// The node once the operator has done with it, so that its version does not move any more.
    async fn settled(&self, name: &str) -> Result<Value> {
        wait::until("the node's status is current", SOON, async || {
            let node = self.get(name).await?;
            let live = Some(annotation(&node, LIVE)).filter(|live| live.starts_with("1:"));
            // A node that says that it is held says the same of a newer generation later.
            let held = condition(&node, "Held").is_some_and(|c| c["status"] == "True");
            let current = (held
                || node["status"]["observedGeneration"] == node["metadata"]["generation"])
                && node["status"]["observedHash"].as_str() == live
                && !node["metadata"]["finalizers"].is_null();
            let ready = live.is_none()
                || condition(&node, "Progressing").is_some_and(|c| c["status"] == "False");
            anyhow::ensure!(current && ready, "{}", node["status"]);
            Ok(node)
        })
        .await
    }
}

/// Content of one ConfigMap.
fn config_map(data: Value) -> Value {
    let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data});
    json!({"configMaps": [{"id": "settings", "nameTemplate": "settings", "spec": manifest}]})
}

async fn create(api: &Api<DynamicObject>, object: &Value) -> Result<Value, kube::Error> {
    let object = serde_json::from_value(object.clone()).expect("an object");
    let created = api.create(&PostParams::default(), &object).await?;
    Ok(serde_json::to_value(created).expect("JSON"))
}

async fn merge(api: &Api<DynamicObject>, name: &str, patch: &Value) -> Result<Value, kube::Error> {
    let merged = api
        .patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    Ok(serde_json::to_value(merged).expect("JSON"))
}

/// The code and the message of a refusal.
fn refusal(result: Result<Value, kube::Error>) -> Result<(u16, String)> {
    match result {
        Err(kube::Error::Api(status)) => Ok((status.code, status.message)),
        Err(error) => Err(error.into()),
        Ok(object) => anyhow::bail!("it was accepted: {object}"),
    }
}

/// A patch of one annotation.
fn annotate(name: &str, value: impl Into<Value>) -> Value {
    json!({"metadata": {"annotations": {name: value.into()}}})
}

fn annotation<'a>(object: &'a Value, name: &str) -> &'a str {
    object["metadata"]["annotations"][name]
        .as_str()
        .unwrap_or_default()
}

/// The gate's own part of a node: its annotations and what it released.
fn state(object: &Value) -> (BTreeMap<&'static str, String>, Value) {
    let present = |name| {
        Some((
            name,
            object["metadata"]["annotations"][name].as_str()?.to_owned(),
        ))
    };
    let annotations = STATE.into_iter().filter_map(present).collect();
    (annotations, object["spec"]["released"].clone())
}

fn is_held(object: &Value) -> bool {
    annotation(object, DESIRED) != annotation(object, LIVE)
}

/// The marker by which the operator releases what the node holds.
fn release_marker(object: &Value) -> String {
    let version = object["metadata"]["resourceVersion"]
        .as_str()
        .unwrap_or_default();
    format!("{}/{version}", annotation(object, DESIRED))
}

/// Everything of a child that only a write of it changes.
async fn child(fleet: &Fleet, kind: &str, name: &str) -> Result<(Value, Value)> {
    let object = fleet.get(kind, name).await?;
    Ok((
        object["metadata"]["uid"].clone(),
        object["metadata"]["resourceVersion"].clone(),
    ))
}

/// Waits for the node to be held, or not to be.
async fn until_held(fleet: &Fleet, node: &str, held: bool) -> Result<Value> {
    wait::until(&format!("held is {held}"), SOON, async || {
        let object = fleet.get("LynqNode", node).await?;
        anyhow::ensure!(is_held(&object) == held, "{}", object["metadata"]);
        Ok(object)
    })
    .await
}

/// The object without what the server keeps for itself, as a client would send it that knows nothing of it.
fn bare(object: &Value) -> Result<Value> {
    let mut object = object.clone();
    let root = object.as_object_mut().context("an object")?;
    root.remove("status");
    let metadata = root["metadata"].as_object_mut().context("metadata")?;
    let kept = [
        "name",
        "namespace",
        "resourceVersion",
        "labels",
        "annotations",
    ];
    *metadata = metadata
        .iter()
        .filter(|(name, _)| kept.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect::<Map<_, _>>();
    Ok(object)
}
