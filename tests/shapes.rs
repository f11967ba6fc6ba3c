//! Fields that leave a form leave the object: after a change of shape an object is what a new one would be.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use kube::api::{Patch, PatchParams};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::cluster::{Cluster, wait};
use crate::operator;
use crate::tenants::{Fleet, SOON, condition};

#[derive(Deserialize)]
struct Change {
    name: String,
    kind: String,
    /// The fields stand beside the spec, not in it.
    #[serde(default)]
    object: bool,
    from: Value,
    to: Value,
}

impl Change {
    fn manifest(&self, fields: &Value) -> Value {
        let labels = json!({"app": self.name});
        let selector = json!({"matchLabels": labels});
        let fields = fields.as_object().expect("fields").clone();
        if self.object {
            let mut manifest = json!({"apiVersion": "v1", "kind": self.kind});
            manifest.as_object_mut().expect("an object").extend(fields);
            return manifest;
        }
        let mut fields = fields;
        let mut container = json!({"name": "app", "image": "web:1"});
        merge(&mut container, fields.remove("app"));
        let mut pod = json!({"containers": [container]});
        merge(&mut pod, fields.remove("pod"));
        let template = json!({"metadata": {"labels": labels}, "spec": pod});
        let (api_version, mut spec) = match self.kind.as_str() {
            "Deployment" => (
                "apps/v1",
                json!({"replicas": 0, "selector": selector, "template": template}),
            ),
            "StatefulSet" => (
                "apps/v1",
                json!({"replicas": 0, "serviceName": "a", "selector": selector, "template": template}),
            ),
            "DaemonSet" => {
                let mut template = template;
                template["spec"]["nodeSelector"] = json!({"no": "node"});
                (
                    "apps/v1",
                    json!({"selector": selector, "template": template}),
                )
            }
            "CronJob" => {
                let mut template = template;
                template["spec"]["restartPolicy"] = json!("Never");
                (
                    "batch/v1",
                    json!({"jobTemplate": {"spec": {"template": template}}}),
                )
            }
            "PodDisruptionBudget" => ("policy/v1", json!({"selector": selector})),
            "HorizontalPodAutoscaler" => {
                let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "none"});
                (
                    "autoscaling/v2",
                    json!({"scaleTargetRef": target, "maxReplicas": 3}),
                )
            }
            "Ingress" | "NetworkPolicy" => ("networking.k8s.io/v1", json!({})),
            _ => ("v1", json!({})),
        };
        merge(&mut spec, Some(fields.into()));
        json!({"apiVersion": api_version, "kind": self.kind, "spec": spec})
    }
}

fn merge(object: &mut Value, more: Option<Value>) {
    if let (Some(object), Some(Value::Object(more))) = (object.as_object_mut(), more) {
        object.extend(more);
    }
}

/// Without what is each object's own, and without what others write.
fn comparable(mut object: Value) -> Value {
    let texts = |texts: &Value| {
        let mut texts: Map<String, Value> = texts.as_object().cloned().unwrap_or_default();
        let others = [
            "lynq.sh/",
            "kubectl.kubernetes.io/",
            "deployment.kubernetes.io/",
            "deprecated.daemonset",
        ];
        texts.retain(|name, _| !others.iter().any(|of| name.starts_with(of)));
        texts
    };
    let metadata = &object["metadata"];
    object["metadata"] = json!({"labels": texts(&metadata["labels"]), "annotations": texts(&metadata["annotations"])});
    let fields = object.as_object_mut().expect("an object");
    fields.remove("status");
    if object["kind"] == "Service"
        && let Some(spec) = object["spec"].as_object_mut()
    {
        spec.retain(|name, _| {
            !["clusterIP", "clusterIPs", "healthCheckNodePort"].contains(&name.as_str())
        });
        for port in spec
            .get_mut("ports")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            port.as_object_mut().expect("a port").remove("nodePort");
        }
    }
    object
}

fn without_nulls(value: &mut Value) {
    if let Value::Object(fields) = value {
        fields.retain(|_, value| !value.is_null());
        fields.values_mut().for_each(without_nulls);
    }
}

/// What the API server would make of it now, under a name that no object has.
async fn fresh(fleet: &Fleet, mut manifest: Value) -> Result<Value> {
    without_nulls(&mut manifest);
    manifest["metadata"]["name"] = json!("fresh");
    let kind = manifest["kind"].as_str().context("a kind")?.to_owned();
    let params = PatchParams {
        dry_run: true,
        ..PatchParams::apply("fresh")
    };
    let made = fleet
        .api(&kind)
        .patch("fresh", &params, &Patch::Apply(&manifest))
        .await;
    Ok(serde_json::to_value(
        made.with_context(|| manifest.to_string())?,
    )?)
}

fn resource(id: &str, policy: &str, spec: Value) -> Value {
    json!({"id": id, "nameTemplate": id, "conflictPolicy": policy, "waitForReady": false, "spec": spec})
}

fn form(fleet: &Fleet, resources: &[Value]) -> Value {
    let mut form = fleet.form("web:1", json!(0), 0);
    form["spec"]["deployments"] = json!([]);
    form["spec"]["manifests"] = json!(resources);
    form
}

/// Each object twice: made by lynqgate, and taken over from kubectl and from another manager. One change of the form; then each of
/// them is, field by field, what the same manifest makes anew. None was written more than once for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_that_leave_a_form_leave_the_object() -> Result<()> {
    let changes: Vec<Change> = serde_saphyr::from_str(&std::fs::read_to_string(
        operator::root().join("tests/shapes/changes.yaml"),
    )?)?;
    ensure!(changes.len() >= 30, "{} changes", changes.len());
    let (cluster, _) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "shapes", 1).await?;
    there_before(cluster, &fleet, &changes).await?;
    let shared = |data: Value, policy: &str| {
        resource(
            "shared",
            policy,
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data}),
        )
    };
    let all = |to: bool, shared: Value| {
        let resources = changes.iter().flat_map(|change| {
            let manifest = change.manifest(if to { &change.to } else { &change.from });
            let name = &change.name;
            [
                resource(name, "Stuck", manifest.clone()),
                resource(&format!("{name}-taken"), "Force", taken(manifest)),
            ]
        });
        form(&fleet, &resources.chain([shared]).collect::<Vec<_>>())
    };
    fleet
        .apply(&all(false, shared(json!({"a": "1", "b": "2"}), "Stuck")))
        .await?;
    fleet.complete(1, SOON).await?;
    let theirs = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"b": "2"}});
    let params = PatchParams::apply("gitops");
    fleet
        .api("ConfigMap")
        .patch("shared", &params, &Patch::Apply(&theirs))
        .await?;
    let mut generations = BTreeMap::new();
    for change in &changes {
        let object = fleet.get(&change.kind, &change.name).await?;
        generations.insert(&change.name, object["metadata"]["generation"].as_i64());
    }

    fleet
        .apply(&all(true, shared(json!({"a": "1"}), "Stuck")))
        .await?;
    let says = "ConfigMap shared: the form no longer has data.b, but the field manager \"gitops\" owns it too, so that it would stay. \
                Set conflictPolicy: Force to remove it, or add it to ignoreFields to leave it to that manager";
    let conflict = ("Conflicted", "True", "ResourceConflict");
    if let Err(error) = fleet.says(("LynqNode", "t0-web"), conflict, says).await {
        bail!("{error:#}\n{:#?}", fleet.events("t0-web").await?);
    }
    let mut wrong = vec![];
    for change in &changes {
        let expected = comparable(fresh(&fleet, change.manifest(&change.to)).await?);
        for name in [change.name.clone(), format!("{}-taken", change.name)] {
            let object = fleet.get(&change.kind, &name).await?;
            let generation = object["metadata"]["generation"].as_i64();
            let before = generations[&change.name];
            // The partition of a StatefulSet moves afterwards.
            let moves = change.kind == "StatefulSet" && generation > before;
            if name == change.name && generation != before.map(|before| before + 1) && !moves {
                wrong.push(format!(
                    "{name}: generation {generation:?} after {before:?}"
                ));
            }
            let object = comparable(object);
            if object != expected {
                let mut differences = vec![];
                differ("", &object, &expected, &mut differences);
                wrong.push(format!("{name}: {}", differences.join("; ")));
            }
        }
    }
    let node = fleet.get("LynqNode", "t0-web").await?;
    ensure!(
        wrong.is_empty(),
        "{}\n{:#?}",
        wrong.join("\n"),
        node["status"]["conditions"]
    );

    fleet
        .apply(&all(true, shared(json!({"a": "1"}), "Force")))
        .await?;
    fleet.complete(1, SOON).await?;
    let map = fleet.get("ConfigMap", "shared").await?;
    ensure!(map["data"] == json!({"a": "1"}), "{map}");
    keys_of_a_secret(&fleet).await?;
    fleet.retire().await
}

/// A port of the nodes is there once.
fn taken(mut manifest: Value) -> Value {
    if let Some(port) = manifest.pointer_mut("/spec/ports/0/nodePort") {
        *port = json!(30182);
    }
    manifest
}

/// What is there already, as two tools write it that know of no server-side apply.
async fn there_before(cluster: &Cluster, fleet: &Fleet, changes: &[Change]) -> Result<()> {
    let (mut applied, mut created) = (vec![], vec![]);
    for (i, change) in changes.iter().enumerate() {
        let mut object = taken(change.manifest(&change.from));
        object["metadata"]["name"] = json!(format!("{}-taken", change.name));
        if i % 2 == 0 {
            applied.push(object)
        } else {
            created.push(object)
        }
    }
    let namespace = format!("--namespace={}", fleet.namespace);
    for (verb, manager, items) in [
        ("apply", "kubectl-client-side-apply", applied),
        ("create", "helm", created),
    ] {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
        let manager = format!("--field-manager={manager}");
        let arguments = [verb, &namespace, &manager, "--filename=-"];
        cluster
            .kubectl(&arguments, Some(&list))
            .await?
            .expect_success()?;
    }
    Ok(())
}

/// What is written as `stringData` is seen as `data`: what others change, and what they take away.
async fn keys_of_a_secret(fleet: &Fleet) -> Result<()> {
    let is_back = async |name: &str| {
        wait::until(&format!("{name} is as the form says"), SOON, async || {
            let secret = fleet.get("Secret", name).await?;
            let expected = json!({"username": "YQ==", "password": "Yg=="});
            ensure!(secret["data"] == expected, "{}", secret["data"]);
            Ok(())
        })
        .await
    };
    fleet
        .merge(
            "Secret",
            "secret-taken",
            &json!({"data": {"password": "aGFja2Vk"}}),
        )
        .await?;
    fleet
        .merge("Secret", "secret", &json!({"data": {"password": null}}))
        .await?;
    is_back("secret-taken").await?;
    is_back("secret").await?;
    let rotated = json!({"apiVersion": "v1", "kind": "Secret", "data": {"password": "bmV3"}});
    let params = PatchParams::apply("rotator").force();
    fleet
        .api("Secret")
        .patch("secret", &params, &Patch::Apply(&rotated))
        .await?;
    wait::until(
        "the key that a rotator took is a conflict",
        SOON,
        async || {
            let node = fleet.get("LynqNode", "t0-web").await?;
            let said = condition(&node, "Conflicted").context("no condition")?;
            let message = said["message"].as_str().unwrap_or_default();
            ensure!(
                message.contains("rotator") && message.contains(".data.password"),
                "{said}"
            );
            ensure!(
                fleet.get("Secret", "secret").await?["data"]["password"] == "bmV3",
                "written over"
            );
            Ok(())
        },
    )
    .await
}

fn differ(path: &str, one: &Value, other: &Value, differences: &mut Vec<String>) {
    match (one, other) {
        (Value::Object(of_one), Value::Object(of_other)) => {
            let names: std::collections::BTreeSet<&String> =
                of_one.keys().chain(of_other.keys()).collect();
            for name in names {
                differ(
                    &format!("{path}.{name}"),
                    &one[name],
                    &other[name],
                    differences,
                );
            }
        }
        (Value::Array(of_one), Value::Array(of_other)) if of_one.len() == of_other.len() => {
            for (i, (one, other)) in of_one.iter().zip(of_other).enumerate() {
                differ(&format!("{path}[{i}]"), one, other, differences);
            }
        }
        _ if one == other => {}
        _ => differences.push(format!("{path} is {one}, not {other}")),
    }
}
