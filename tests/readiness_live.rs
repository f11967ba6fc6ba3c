//! Readiness as real controllers and users bring it about: a quota that is too small, and custom resources that say it in
//! their own way, late, or not at all.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::cluster::{Cluster, wait};
use crate::operator;
use crate::tenants::{Fleet, SOON, condition, deployment};

/// The published walkthrough: five pods of 50Mi do not fit into 200Mi, and with maxUnavailable 0 the update stands still.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_that_is_too_small_is_named_with_the_numbers() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "quota", 1).await?;
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": {"name": "mem-cpu-demo", "namespace": fleet.namespace},
        "spec": {"hard": {"requests.memory": "200Mi"}},
    });
    fleet.apply(&quota).await?;
    let mut form = fleet.form("web:1", json!(1), 0);
    let spec = &mut form["spec"]["deployments"][0]["spec"]["spec"];
    spec["replicas"] = json!(5);
    spec["strategy"] = json!({"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}});
    let container = &mut spec["template"]["spec"]["containers"][0];
    container["resources"] = json!({"requests": {"memory": "50Mi"}});
    fleet.apply(&form).await?;
    let said = wait::until("the node names the quota", SOON, async || {
        let node = fleet.get("LynqNode", "t0-web").await?;
        let ready = condition(&node, "Ready").context("Ready")?;
        let message = ready["message"].as_str().unwrap_or_default().to_owned();
        ensure!(
            message.contains("4 of 5 wanted pods available"),
            "{message}"
        );
        Ok(message)
    })
    .await?;
    let pods = said
        .strip_prefix("Deployment t0-app: 4 of 5 wanted pods available; pods \"t0-app-")
        .with_context(|| said.clone())?;
    ensure!(
        pods.contains("is forbidden: exceeded quota: mem-cpu-demo, requested: requests.memory=50Mi, used: requests.memory=200Mi, limited: requests.memory=200Mi"),
        "{said}"
    );
    // What it asks for: a larger quota, and nothing else.
    let patch = json!({"spec": {"hard": {"requests.memory": "300Mi"}}});
    fleet.merge("ResourceQuota", "mem-cpu-demo", &patch).await?;
    fleet.complete(1, Duration::from_secs(120)).await?;
    fleet.retire().await
}

/// The Deployment itself only counts its pods.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_keeps_the_pods_from_running_is_said_as_long_as_it_does() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "unpulled", 1).await?;
    fleet
        .apply(&fleet.form("web:1-broken", json!(1), 0))
        .await?;
    let says = async |what: &str| {
        wait::until(what, SOON, async || {
            let node = fleet.get("LynqNode", "t0-web").await?;
            let ready = condition(&node, "Ready").context("Ready")?;
            let message = ready["message"].as_str().unwrap_or_default();
            ensure!(message.ends_with(what), "{message}");
            Ok(message.to_owned())
        })
        .await
    };
    let said = says(": container app: its image web:1-broken cannot be pulled").await?;
    let pod = "Deployment t0-app: 0 of 1 wanted pods available; pod t0-app-";
    ensure!(said.starts_with(pod), "{said}");
    fleet.apply(&fleet.form("web:1", json!(1), 0)).await?;
    says("all resources are ready").await?;
    fleet.complete(1, SOON).await?;
    fleet.retire().await
}

/// Its controller waits for a pod that will never be ready, and so does the correction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_keeps_a_corrected_stateful_set_from_its_correction_is_said() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "left", 1).await?;
    let form = |image: &str| {
        let containers = json!([{"name": "app", "image": image}]);
        let template =
            json!({"metadata": {"labels": {"app": "db"}}, "spec": {"containers": containers}});
        let selector = json!({"matchLabels": {"app": "db"}});
        let spec =
            json!({"replicas": 1, "serviceName": "db", "selector": selector, "template": template});
        let mut form = fleet.form(image, json!(1), 0);
        form["spec"]["deployments"] = json!([]);
        form["spec"]["statefulSets"] = json!([{
            "id": "db", "nameTemplate": "{{ .uid }}-db", "partitionGate": false,
            "spec": {"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": spec},
        }]);
        form
    };
    let says = async |what: &str| {
        wait::until(what, SOON, async || {
            let node = fleet.get("LynqNode", "t0-web").await?;
            let ready = condition(&node, "Ready").context("Ready")?;
            let message = ready["message"].as_str().unwrap_or_default();
            ensure!(message.contains(what), "{message}");
            Ok(())
        })
        .await
    };
    fleet.apply(&form("db:1-broken")).await?;
    says("container app: its image db:1-broken cannot be pulled").await?;
    fleet.apply(&form("db:1")).await?;
    let delete = format!("kubectl delete pod t0-db-0 -n {}", fleet.namespace);
    says(&format!(
        "pod t0-db-0 still runs what was before (container app: its image db:1-broken cannot be pulled), and the StatefulSet \
         controller does not replace a pod that is not ready: delete it ({delete})"
    ))
    .await?;
    cluster.shell(&delete).await?.expect_success()?;
    says("all resources are ready").await?;
    fleet.complete(1, SOON).await?;
    fleet.retire().await
}

const GADGETS: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.readiness.example.com}
spec:
  group: readiness.example.com
  names: {kind: Gadget, plural: gadgets, singular: gadget, listKind: GadgetList}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gizmos.readiness.example.com}
spec:
  group: readiness.example.com
  names: {kind: Gizmo, plural: gizmos, singular: gizmo, listKind: GizmoList}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: gadgets}
rules:
- {apiGroups: [readiness.example.com], resources: [gadgets, gizmos], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: gadgets}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: gadgets}
subjects:
- {kind: ServiceAccount, name: lynq-controller-manager, namespace: lynq-system}
"#;

async fn install(cluster: &Cluster) -> Result<()> {
    cluster
        .kubectl(&["apply", "-f", "-"], Some(GADGETS))
        .await?
        .expect_success()?;
    let words = [
        "wait",
        "--for=condition=Established",
        "--timeout=30s",
        "crd/gadgets.readiness.example.com",
        "crd/gizmos.readiness.example.com",
    ];
    cluster.kubectl(&words, None).await?.expect_success()?;
    Ok(())
}

/// A form whose tenants are one object of this kind, with these fields of the resource, and a Deployment after it.
fn form(fleet: &Fleet, name: &str, kind: &str, fields: Value) -> Value {
    let mut first = json!({
        "id": "it", "nameTemplate": format!("{{{{ .uid }}}}-{name}"),
        "spec": {"apiVersion": "readiness.example.com/v1", "kind": kind, "spec": {"size": 1}},
    });
    let fields = fields.as_object().cloned().unwrap_or_default();
    first.as_object_mut().expect("an object").extend(fields);
    let after = json!({
        "id": "after", "nameTemplate": format!("{{{{ .uid }}}}-{name}"), "dependIds": ["it"],
        "spec": deployment("web:1", 0),
    });
    json!({
        "apiVersion": "operator.lynq.sh/v1", "kind": "LynqForm",
        "metadata": {"name": name, "namespace": fleet.namespace},
        "spec": {"hubId": "tenants", "rollout": {"maxSkew": 1}, "manifests": [first], "deployments": [after]},
    })
}

async fn set_status(fleet: &Fleet, name: &str, status: Value) -> Result<()> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(
        "readiness.example.com",
        "v1",
        "Gadget",
    ));
    let gadgets: Api<DynamicObject> =
        Api::namespaced_with(fleet.client.clone(), &fleet.namespace, &kind);
    let patch = Patch::Merge(json!({"status": status}));
    gadgets
        .patch_status(name, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

/// Until the node's Ready is that, in these words; returns when.
async fn until_ready(
    fleet: &Fleet,
    node: &str,
    status: &str,
    said: &str,
) -> Result<jiff::Timestamp> {
    wait::until(&format!("{node} says {said:?}"), SOON, async || {
        let node = fleet.get("LynqNode", node).await?;
        let ready = condition(&node, "Ready").context("Ready")?;
        let message = ready["message"].as_str().unwrap_or_default();
        ensure!(
            ready["status"] == status && message.contains(said),
            "{ready}"
        );
        Ok(ready["lastTransitionTime"]
            .as_str()
            .context("a time")?
            .parse()?)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn custom_resources_are_ready_when_they_say_so_or_late() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    install(cluster).await?;
    let fleet = Fleet::new(cluster, "gadgets", 1).await?;
    let online = "object.status.cluster.status == 'ONLINE'";
    let probe = |probe: Value| json!({"readyProbe": probe});
    for (name, kind, fields) in [
        ("cel", "Gadget", probe(json!({"cel": online}))),
        (
            "path",
            "Gadget",
            probe(json!({"jsonPath": ".status.cluster.status", "expectedValue": "ONLINE"})),
        ),
        // A status may yet appear.
        ("late", "Gadget", json!({"minDelay": "5s"})),
        ("silent", "Gadget", json!({})),
        // None ever will.
        ("never", "Gizmo", json!({})),
    ] {
        fleet.apply(&form(&fleet, name, kind, fields)).await?;
    }
    let not_yet = format!("Gadget t0-cel: {online} has no answer yet");
    until_ready(&fleet, "t0-cel", "False", &not_yet).await?;
    let not_yet = "Gadget t0-path: .status.cluster.status is not there yet; \"ONLINE\" is expected (readyProbe)";
    until_ready(&fleet, "t0-path", "False", not_yet).await?;
    let waits = "Gadget t0-silent: no field of it shows whether it is ready; it counts as ready 300 s after its apply";
    until_ready(&fleet, "t0-silent", "False", waits).await?;
    until_ready(
        &fleet,
        "t0-never",
        "True",
        "ReadinessUnknown: nothing reports on Gizmo t0-never",
    )
    .await?;
    let at = until_ready(
        &fleet,
        "t0-late",
        "True",
        "ReadinessUnknown: nothing reports on Gadget t0-late",
    )
    .await?;
    let node = fleet.get("LynqNode", "t0-late").await?;
    let start = &node["metadata"]["annotations"]["lynq.sh/rollout-update-start-time"];
    let start: jiff::Timestamp = start.as_str().context("a start time")?.parse()?;
    // The API server keeps the time of an apply in whole seconds.
    ensure!(
        at.duration_since(start).as_millis() >= 4000,
        "{start} to {at}"
    );

    for name in ["cel", "path"] {
        let deployment = fleet.get("Deployment", &format!("t0-{name}")).await;
        ensure!(
            deployment.is_err(),
            "what depends on it was applied before it was ready"
        );
        set_status(
            &fleet,
            &format!("t0-{name}"),
            json!({"cluster": {"status": "PENDING"}}),
        )
        .await?;
    }
    until_ready(&fleet, "t0-cel", "False", &format!("{online} is false")).await?;
    until_ready(
        &fleet,
        "t0-path",
        "False",
        ".status.cluster.status is \"PENDING\"",
    )
    .await?;
    for name in ["cel", "path"] {
        set_status(
            &fleet,
            &format!("t0-{name}"),
            json!({"cluster": {"status": "ONLINE"}}),
        )
        .await?;
        until_ready(
            &fleet,
            &format!("t0-{name}"),
            "True",
            "all resources are ready",
        )
        .await?;
    }
    // Of new content its status says nothing, until it is written once more.
    let mut larger = form(&fleet, "cel", "Gadget", probe(json!({"cel": online})));
    larger["spec"]["manifests"][0]["spec"]["spec"]["size"] = json!(2);
    fleet.apply(&larger).await?;
    let old = "Gadget t0-cel: its status says of no generation that it is ready, and was not written since the apply; it \
               counts as ready 10 s after its apply";
    until_ready(&fleet, "t0-cel", "False", old).await?;
    until_ready(&fleet, "t0-cel", "True", "all resources are ready").await?;

    let conditions = json!([{"type": "Ready", "status": "True"}]);
    set_status(&fleet, "t0-silent", json!({"conditions": conditions})).await?;
    until_ready(&fleet, "t0-silent", "True", "all resources are ready").await?;

    let node = fleet.get("LynqNode", "t0-silent").await?;
    let generation = node["metadata"]["generation"].clone();
    // A delay of the form's for what has none of its own: no change of any content.
    let mut form = form(&fleet, "silent", "Gadget", json!({}));
    form["spec"]["rollout"]["minDelay"] = json!("1s");
    fleet.apply(&form).await?;
    set_status(&fleet, "t0-silent", json!({"conditions": null})).await?;
    until_ready(
        &fleet,
        "t0-silent",
        "True",
        "ReadinessUnknown: nothing reports on Gadget t0-silent",
    )
    .await?;
    let node = fleet.get("LynqNode", "t0-silent").await?;
    ensure!(
        node["metadata"]["generation"] == generation,
        "{}",
        node["metadata"]
    );
    fleet.retire().await
}
