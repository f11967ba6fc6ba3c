//! A cluster that Lynq ran: its objects as it leaves them, and lynqgate put in its place.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Options, wait};
use crate::operator::{self, Operator};
use crate::tenants::{Fleet, SOON, deployment};

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

/// What Lynq writes on an object that is to go with its node.
fn of_lynq(fleet: &Fleet, name: &str, node: &Value, mut object: Value) -> Value {
    object["metadata"] = json!({
        "name": name, "namespace": fleet.namespace,
        "annotations": {
            "lynq.sh/deletion-policy": "Delete", "lynq.sh/applied-hash": "0011223344556677",
            "lynq.sh/apply-start-time": "2026-03-01T12:00:00.123456789Z",
        },
        "ownerReferences": [{
            "apiVersion": "operator.lynq.sh/v1", "kind": "LynqNode", "controller": true, "blockOwnerDeletion": true,
            "name": node["metadata"]["name"], "uid": node["metadata"]["uid"],
        }],
    });
    object
}

async fn apply_as_lynq(fleet: &Fleet, object: &Value) -> Result<Value> {
    let kind = object["kind"].as_str().context("kind")?;
    let name = object["metadata"]["name"].as_str().context("name")?;
    let params = PatchParams::apply("lynq-operator").force();
    let (objects, patch) = (fleet.api(kind), Patch::Apply(object));
    let applied = objects.patch(name, &params, &patch).await?;
    Ok(serde_json::to_value(applied)?)
}

/// A node with its objects. Lynq renders names when it writes the node, and specs when it applies them.
async fn leave(fleet: &Fleet, form: &Value, i: usize, image: &str) -> Result<()> {
    let mut arrays = json!({"deployments": form["spec"]["deployments"], "configMaps": form["spec"]["configMaps"]});
    arrays["deployments"][0]["nameTemplate"] = json!(format!("t{i}-app"));
    arrays["configMaps"][0]["nameTemplate"] = json!(format!("t{i}-settings"));
    let mut spec = json!({"uid": format!("t{i}"), "templateRef": "web"});
    for (array, list) in arrays.as_object().context("arrays")? {
        spec[array] = list.clone();
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
    let settings = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"plan": "pro"}});
    let rendered = deployment(image, 0)
        .to_string()
        .replace("{{ .uid }}", &format!("t{i}"));
    let app = serde_json::from_str(&rendered)?;
    for object in [
        of_lynq(fleet, &format!("t{i}-app"), &node, app),
        of_lynq(fleet, &format!("t{i}-settings"), &node, settings),
    ] {
        apply_as_lynq(fleet, &object).await?;
    }
    let namespace = &fleet.namespace;
    let status = json!({"status": {
        "observedGeneration": 1, "readyResources": 2, "desiredResources": 2, "failedResources": 0,
        "appliedResources": [format!("Deployment/{namespace}/t{i}-app@app"), format!("ConfigMap/{namespace}/t{i}-settings@settings")],
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

/// Without an operator, and with the definitions that are there before one is.
async fn cluster_of_lynq() -> Result<Cluster> {
    let cluster = Cluster::start(Options::default()).await?;
    let definitions = operator::root().join("manifests");
    for plural in ["lynqhubs", "lynqforms", "lynqnodes"] {
        let file = definitions.join(format!("crd-{plural}.yaml"));
        let file = file.to_str().context("a path")?;
        let apply = ["apply", "--server-side", "-f", file];
        cluster.kubectl(&apply, None).await?.expect_success()?;
    }
    Ok(cluster)
}

/// Everything as Lynq leaves it, with these images, and running.
async fn fleet_of_lynq(
    cluster: &Cluster,
    name: &str,
    image: impl Fn(usize) -> &'static str,
) -> Result<Fleet> {
    let fleet = wait::until("the definitions are served", SOON, async || {
        Fleet::new(cluster, name, ROWS).await
    })
    .await?;
    let form_of_lynq = form(&fleet, "web:1");
    fleet.apply(&form_of_lynq).await?;
    for i in 0..ROWS {
        leave(&fleet, &form_of_lynq, i, image(i)).await?;
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_lynq_left_is_taken_over_without_a_change_and_without_the_window() -> Result<()> {
    let cluster = cluster_of_lynq().await?;
    // Lynq had not come to the last one yet.
    let image = |i| if i == ROWS - 1 { "web:0" } else { "web:1" };
    let fleet = fleet_of_lynq(&cluster, "lynq", image).await?;
    let before = substance(&fleet).await?;

    let operator = Operator::start(&cluster, "operator", &[]).await?;
    fleet.complete(ROWS, SOON).await?;
    released(&operator, &fleet, &[("taken_over", ROWS - 1), ("slot", 1)]).await?;
    let after = substance(&fleet).await?;
    let last = format!("t{}-app", ROWS - 1);
    for (name, was) in before.iter().filter(|(name, _)| !name.contains(&last)) {
        let is = after.get(name);
        ensure!(is == Some(was), "{name} was {was}, and is {is:?}");
    }
    for i in 0..ROWS {
        let node = fleet.get("LynqNode", &format!("t{i}-web")).await?;
        let annotations = &node["metadata"]["annotations"];
        for left in ["extra", "hostOrUrl", "activate", "rollout-update-start"] {
            ensure!(annotations[format!("lynq.sh/{left}")].is_null(), "{node}");
        }
    }

    // From here on it is a fleet like any other: changes, drift and rows that go.
    fleet.apply(&form(&fleet, "web:2")).await?;
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
    .await
}
