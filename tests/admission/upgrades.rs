//! Upgrades: the CustomResourceDefinition gains a default and a field, and the operator another hash. No node changes its
//! state by that, no write is refused, and no object is written.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use kube::api::{DeleteParams, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use lynqgate::api::resource::{ARRAYS, DEFAULTS};
use serde_json::{Value, json};

use super::*;
use crate::cluster::Options;
use crate::cluster::audit::AuditLog;
use crate::operator::Operator;

/// Of each kind of node three are live, and three are held.
const NODES: usize = 6;
const RENDERED: &str = "lynq.sh/rendered-hash";

/// A cluster under upgrade: nodes of a form, and nodes that a person wrote, without a default in them.
struct Upgrade {
    cluster: Cluster,
    operator: Operator,
    fleet: Fleet,
}

/// What must be the same after each step.
#[derive(Debug, PartialEq)]
struct Seen {
    /// By node: the gate's state, and every condition with the time of its last transition.
    nodes: BTreeMap<String, Value>,
    children: BTreeSet<[String; 4]>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upgrades_change_no_nodes_state() -> Result<()> {
    let upgrade = Upgrade::new().await?;
    let mut audit = upgrade.cluster.audit().await?;
    let before = upgrade.seen().await?;
    let held: Vec<bool> = upgrade.nodes().await?.iter().map(is_held).collect();
    assert_eq!(held.iter().filter(|held| **held).count(), NODES, "{held:?}");
    assert_eq!(held.len(), 2 * NODES);

    let hand = upgrade.fleet.get("LynqNode", "hand-0").await?;
    let timeout = "/spec/configMaps/0/timeoutSeconds";
    assert_eq!(hand.pointer(timeout), None, "the CRD has no defaults yet");
    upgrade
        .schema_with(|fields| {
            for (name, default) in DEFAULTS {
                fields[name]["default"] = default();
            }
        })
        .await?;
    upgrade.until_filled(timeout, Some(&json!(300))).await?;
    upgrade.touch("default").await?;
    assert_eq!(
        upgrade.seen().await?,
        before,
        "after the CRD gained defaults"
    );

    upgrade
        .schema_with(|fields| fields["shape"] = json!({"type": "string"}))
        .await?;
    upgrade
        .until_filled("/spec/configMaps/0/shape", Some(&json!("round")))
        .await?;
    upgrade.touch("field").await?;
    assert_eq!(
        upgrade.seen().await?,
        before,
        "after the CRD gained a field"
    );
    upgrade.nothing_denied_or_written(&mut audit).await?;

    upgrade.store_hashes_of_another_version().await?;
    let mut audit = upgrade.cluster.audit().await?;
    upgrade.operator.process.start()?;
    upgrade.operator.ready().await?;
    upgrade.settled().await?;
    // Whoever wrote nodes by hand has not written them again: they have the other hashes still.
    let hand = upgrade.fleet.get("LynqNode", "hand-0").await?;
    assert!(annotation(&hand, LIVE).starts_with("7:"), "{hand}");
    upgrade.touch("version").await?;
    upgrade.settled().await?;
    assert_eq!(upgrade.seen().await?, before, "after the hash changed");
    upgrade.nothing_denied_or_written(&mut audit).await?;

    // And it goes on: what is held is released when its turn comes.
    upgrade.fleet.apply(&upgrade.form("2", false)).await?;
    upgrade.fleet.complete(NODES, SOON).await?;
    upgrade.fleet.retire().await
}

impl Upgrade {
    async fn new() -> Result<Upgrade> {
        let cluster = Cluster::start(Options::default()).await?;
        let operator = Operator::start(&cluster, "operator", &[]).await?;
        let fleet = Fleet::new(&cluster, "upgrade", NODES).await?;
        let upgrade = Upgrade {
            cluster,
            operator,
            fleet,
        };
        upgrade
            .schema_with(|fields| {
                for field in fields.as_object_mut().expect("fields").values_mut() {
                    field.as_object_mut().expect("a field").remove("default");
                }
            })
            .await?;
        upgrade
            .until_filled("/spec/configMaps/0/timeoutSeconds", None)
            .await?;
        let fleet = &upgrade.fleet;
        fleet.apply(&upgrade.form("1", false)).await?;
        fleet.complete(NODES, SOON).await?;
        fleet.apply(&upgrade.form("2", true)).await?;
        let nodes = fleet.api("LynqNode");
        for i in 0..NODES {
            let name = format!("t{i}-web");
            until_held(fleet, &name, true).await?;
            if i < NODES / 2 {
                merge(&nodes, &name, &annotate(FORCE, "true")).await?;
                merge(&nodes, &name, &annotate(FORCE, Value::Null)).await?;
            }
            let by_hand = upgrade.by_hand(&format!("hand-{i}"), "1", Some("true"));
            create(&nodes, &by_hand).await?;
            merge(&nodes, &format!("hand-{i}"), &annotate(FORCE, Value::Null)).await?;
            if i >= NODES / 2 {
                let spec = &upgrade.by_hand(&format!("hand-{i}"), "2", None)["spec"];
                merge(&nodes, &format!("hand-{i}"), &json!({"spec": spec})).await?;
            }
        }
        upgrade.settled().await?;
        Ok(upgrade)
    }

    fn form(&self, version: &str, paused: bool) -> Value {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"version": version}});
        json!({
            "apiVersion": "operator.lynq.sh/v1", "kind": "LynqForm",
            "metadata": {"name": "web", "namespace": self.fleet.namespace},
            "spec": {
                "hubId": "tenants", "rollout": {"maxSkew": NODES, "paused": paused},
                "configMaps": [{"id": "app", "nameTemplate": "{{ .uid }}-app", "spec": map}],
            },
        })
    }

    /// A node of no form, with a ConfigMap of its own name.
    fn by_hand(&self, name: &str, version: &str, force: Option<&str>) -> Value {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"version": version}});
        let mut node = json!({
            "apiVersion": "operator.lynq.sh/v1", "kind": "LynqNode",
            "metadata": {"name": name, "namespace": self.fleet.namespace},
            "spec": {"uid": name, "templateRef": "no-form", "configMaps": [{"id": "app", "nameTemplate": name, "spec": map}]},
        });
        if let Some(force) = force {
            node["metadata"]["annotations"] = json!({FORCE: force});
        }
        node
    }

    async fn nodes(&self) -> Result<Vec<Value>> {
        let nodes = self.fleet.list("LynqNode").await?;
        let mine = |node: &Value| !name_of(node).starts_with("probe");
        Ok(nodes.into_iter().filter(mine).collect())
    }

    async fn seen(&self) -> Result<Seen> {
        let nodes = self.nodes().await?;
        let state = |node: &Value| {
            let conditions = node["status"]["conditions"].as_array().cloned();
            let conditions: Vec<Value> = conditions
                .unwrap_or_default()
                .iter()
                .map(|c| {
                    // What was rolled out under another hash is rolled out since it was seen under this one.
                    let since = (c["type"] != "Rolled").then_some(&c["lastTransitionTime"]);
                    json!([c["type"], c["status"], c["reason"], since])
                })
                .collect();
            let mut gate = state(node);
            if let Value::Object(arrays) = &mut gate.1 {
                // What the API server fills in on reading is no change.
                for resource in arrays
                    .values_mut()
                    .flat_map(|list| list.as_array_mut())
                    .flatten()
                {
                    let fields = resource.as_object_mut().expect("a resource");
                    fields.retain(|name, value| {
                        !DEFAULTS
                            .iter()
                            .any(|(field, default)| field == name && *value == default())
                    });
                }
            }
            json!([gate.0, gate.1, conditions])
        };
        Ok(Seen {
            nodes: nodes
                .iter()
                .map(|node| (name_of(node).to_owned(), state(node)))
                .collect(),
            children: self.fleet.versions(&["ConfigMap"]).await?,
        })
    }

    /// Until every status speaks of the live content, and the operator has done what it had to do.
    async fn settled(&self) -> Result<()> {
        wait::until("every node is looked after", SOON, async || {
            for node in self.nodes().await? {
                let status = &node["status"];
                let observed = status["observedHash"].as_str().unwrap_or_default();
                let live = annotation(&node, LIVE);
                let current =
                    observed == live || live.starts_with("7:") && observed.starts_with("1:");
                let done = ["Progressing", "Ready"]
                    .map(|type_| condition(&node, type_).map(|c| c["status"].clone()));
                let good = current
                    && done == [Some(json!("False")), Some(json!("True"))]
                    && status["observedGeneration"] == node["metadata"]["generation"]
                    && condition(&node, "Held")
                        .is_some_and(|held| (held["status"] == "True") == is_held(&node));
                ensure!(good, "{}: {status}", node["metadata"]);
            }
            Ok(())
        })
        .await
    }

    /// A label on every node, and each as it was read once more; then the operator has seen all of that.
    async fn touch(&self, value: &str) -> Result<()> {
        let nodes = self.fleet.api("LynqNode");
        for node in self.nodes().await? {
            let name = name_of(&node);
            let label = json!({"metadata": {"labels": {"touched": value}}});
            let labelled = merge(&nodes, name, &label)
                .await
                .with_context(|| name.to_owned())?;
            assert_eq!(is_held(&labelled), is_held(&node), "{name}");
            wait::until("a PUT without a conflict", SOON, async || {
                let object = nodes.get(name).await?;
                Ok(nodes.replace(name, &PostParams::default(), &object).await?)
            })
            .await?;
        }
        // Its event comes after theirs.
        let probe = format!("probe-{value}");
        let mut object = self.by_hand(&probe, "1", None);
        object["spec"]
            .as_object_mut()
            .expect("a spec")
            .remove("configMaps");
        create(&nodes, &object).await?;
        wait::until("the operator has seen it all", SOON, async || {
            let node = self.fleet.get("LynqNode", &probe).await?;
            ensure!(
                node["status"]["observedHash"] == annotation(&node, LIVE),
                "{}",
                node["status"]
            );
            Ok(())
        })
        .await?;
        nodes.delete(&probe, &DeleteParams::default()).await?;
        self.settled().await
    }

    async fn nothing_denied_or_written(&self, audit: &mut AuditLog) -> Result<()> {
        let events = audit.read().await?;
        let mine = events
            .iter()
            .filter(|event| event.namespace == self.fleet.namespace && event.is_write());
        let (mut writes, mut wrong) = (0, vec![]);
        for event in mine {
            let of_node = event.group == "operator.lynq.sh";
            let child = !of_node
                && event.user == operator::identity().username()
                && !event.resource.contains("event");
            writes += usize::from(of_node && event.succeeded());
            // A conflict of two writers is not the gate's.
            if child || of_node && !event.succeeded() && event.code != 409 {
                wrong.push(format!("{} {} {}", event.verb, event.uri, event.code));
            }
        }
        assert!(writes >= 4 * NODES, "the nodes were written: {writes}");
        assert!(wrong.is_empty(), "{wrong:#?}");
        Ok(())
    }

    /// Changes the fields of a resource in the schema of LynqNodes.
    async fn schema_with(&self, change: impl Fn(&mut Value)) -> Result<()> {
        let api = cluster_wide(
            &self.fleet,
            "apiextensions.k8s.io",
            "CustomResourceDefinition",
        );
        wait::until("the CRD is written", SOON, async || {
            let mut crd = serde_json::to_value(api.get("lynqnodes.operator.lynq.sh").await?)?;
            let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
            let schema = crd.pointer_mut(spec).context("a schema")?;
            for array in ARRAYS {
                change(&mut schema[array]["items"]["properties"]);
            }
            let crd = serde_json::from_value(crd)?;
            Ok(api
                .replace("lynqnodes.operator.lynq.sh", &PostParams::default(), &crd)
                .await?)
        })
        .await?;
        Ok(())
    }

    /// Until the API server has this in a node that is written without any default, and with a field `shape`.
    async fn until_filled(&self, pointer: &str, wanted: Option<&Value>) -> Result<()> {
        let mut node = self.by_hand("schema", "1", Some("true"));
        node["spec"]["configMaps"][0]["shape"] = json!("round");
        let params = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        wait::until("the schema is in force", SOON, async || {
            let object = serde_json::from_value(node.clone())?;
            let made =
                serde_json::to_value(self.fleet.api("LynqNode").create(&params, &object).await?)?;
            ensure!(made.pointer(pointer) == wanted, "{}", made["spec"]);
            Ok(())
        })
        .await
    }

    /// Ends the operator, and leaves every object as one with another hash algorithm would have left it.
    async fn store_hashes_of_another_version(&self) -> Result<()> {
        self.operator.process.kill()?;
        let registration = "admissionregistration.k8s.io";
        for (kind, name) in [
            (
                "MutatingWebhookConfiguration",
                "lynq-mutating-webhook-configuration",
            ),
            (
                "ValidatingWebhookConfiguration",
                "lynq-validating-webhook-configuration",
            ),
        ] {
            cluster_wide(&self.fleet, registration, kind)
                .delete(name, &DeleteParams::default())
                .await?;
        }
        let bindings = cluster_wide(
            &self.fleet,
            registration,
            "ValidatingAdmissionPolicyBinding",
        );
        let fence = bare(&serde_json::to_value(
            bindings.get("lynqgate-fence").await?,
        )?)?;
        bindings
            .delete("lynqgate-fence", &DeleteParams::default())
            .await?;
        let nodes = self.fleet.api("LynqNode");
        for node in self.nodes().await? {
            let other = |name: &str| of_another_version(annotation(&node, name));
            let hashes = [DESIRED, LIVE, RENDERED].map(|name| (name, other(name)));
            let hashes: Map<String, Value> = hashes
                .into_iter()
                .filter_map(|(name, hash)| Some((name.to_owned(), hash?.into())))
                .collect();
            let annotations = json!({"metadata": {"annotations": hashes}});
            wait::until("the fence is away", SOON, async || {
                Ok(merge(&nodes, name_of(&node), &annotations).await?)
            })
            .await?;
            let observed = node["status"]["observedHash"]
                .as_str()
                .and_then(of_another_version);
            let status = Patch::Merge(json!({"status": {"observedHash": observed}}));
            nodes
                .patch_status(name_of(&node), &PatchParams::default(), &status)
                .await?;
        }
        let mut fence = fence;
        fence["metadata"]
            .as_object_mut()
            .expect("metadata")
            .remove("resourceVersion");
        bindings
            .create(&PostParams::default(), &serde_json::from_value(fence)?)
            .await?;
        let left = nodes.list(&ListParams::default()).await?;
        ensure!(left.items.len() >= 2 * NODES, "the nodes are there");
        Ok(())
    }
}

/// Another algorithm has other digits: equal ones for equal contents.
fn of_another_version(hash: &str) -> Option<String> {
    let (digits, rest) = match hash.strip_prefix("1:")?.split_once('/') {
        Some((digits, rest)) => (digits, format!("/{rest}")),
        None => (hash.strip_prefix("1:")?, String::new()),
    };
    Some(format!(
        "7:{}{rest}",
        digits.chars().rev().collect::<String>()
    ))
}

fn name_of(node: &Value) -> &str {
    node["metadata"]["name"].as_str().unwrap_or_default()
}

fn cluster_wide(fleet: &Fleet, group: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
    Api::all_with(fleet.client.clone(), &resource)
}
