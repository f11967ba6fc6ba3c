//! What others do to the operator's own writes, again and again: to a release, and to an object that it made.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::bad_input::{config_map, fleet, form};
use crate::cluster::wait;
use crate::operator;
use crate::tenants::{Fleet, SOON, condition};

/// A policy that lets no content of `t0-web` go live, nor any node have the label `probe`.
fn guard(fleet: &Fleet) -> Value {
    let api = "admissionregistration.k8s.io/v1";
    let live = "annotations['lynq.sh/live-hash']";
    let name = &fleet.namespace;
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": api, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": {
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
                "resourceRules": [{
                    "apiGroups": ["operator.lynq.sh"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["lynqnodes"],
                }],
            },
            "validations": [{
                "expression": format!("object.metadata.name != 't0-web' || object.metadata.{live} == oldObject.metadata.{live}"),
                "message": "t0 is in its quiet hours",
            }, {
                "expression": "!('probe' in object.metadata.labels)", "message": "it applies",
            }],
        }},
        {"apiVersion": api, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name}, "spec": {
            "policyName": name, "validationActions": ["Deny"],
        }},
    ]})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_is_refused_lets_the_others_go() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = fleet(cluster, 3).await?;
    let kubectl =
        async |arguments: &[&str], input: Option<&str>| cluster.kubectl(arguments, input).await;
    let policy = guard(&fleet).to_string();
    kubectl(&["apply", "-f", "-"], Some(&policy))
        .await?
        .expect_success()?;
    let namespace = fleet.namespace.as_str();
    wait::until("the policy applies", SOON, async || {
        let probe = [
            "label",
            "lynqnode",
            "t0-web",
            "probe=1",
            "--dry-run=server",
            "-n",
            namespace,
        ];
        let answer = kubectl(&probe, None).await?;
        ensure!(!answer.success, "{}", answer.stdout);
        Ok(())
    })
    .await?;

    let changed = json!({
        "configMaps": [config_map("app", "{{ .uid }}-app", "changed")], "rollout": {"maxSkew": 1},
    });
    fleet.apply(&form(&fleet, "web", &changed)).await?;
    let said = "the API server did not take the release of t0-web: ";
    wait::until("the others are through", SOON, async || {
        let form = fleet.get("LynqForm", "web").await?;
        let rollout = &form["status"]["rollout"];
        ensure!(rollout["readyUpdatedNodes"] == 2, "{rollout}");
        let held = condition(&form, "Held").cloned().unwrap_or_default();
        let message = held["message"].as_str().unwrap_or_default();
        ensure!(held["reason"] == "ReleaseRefused", "{held}");
        ensure!(message.starts_with(said), "{held}");
        ensure!(message.contains("t0 is in its quiet hours"), "{held}");
        let node = fleet.get("LynqNode", "t0-web").await?;
        let held = condition(&node, "Held").cloned().unwrap_or_default();
        ensure!(held["reason"] == "ReleaseRefused", "{held}");
        Ok(())
    })
    .await?;

    for kind in [
        "validatingadmissionpolicybinding",
        "validatingadmissionpolicy",
    ] {
        kubectl(&["delete", kind, namespace], None)
            .await?
            .expect_success()?;
    }
    fleet.complete(3, 2 * SOON).await?;
    fleet.retire().await
}

/// A Job that its controller deletes as soon as it is done: a resource that is missing is made, but not without end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_deleted_again_and_again_is_made_again_at_pauses() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = fleet(cluster, 1).await?;
    let mut job = json!({
        "id": "job", "nameTemplate": "{{ .uid }}-job", "creationPolicy": "Once",
        "spec": {
            "apiVersion": "batch/v1", "kind": "Job",
            "spec": {
                "ttlSecondsAfterFinished": 0,
                "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "job", "image": "x"}]}},
            },
        },
    });
    job["labelsTemplate"] = json!({"app": "job"});
    fleet
        .apply(&form(&fleet, "once", &json!({ "jobs": [job] })))
        .await?;
    let said = "Job t0-job: somebody else deletes it, or writes over it, each time that it was applied; it is applied again at \
                growing pauses of up to a minute.";
    wait::until("the node says so", SOON, async || {
        let node = fleet.get("LynqNode", "t0-once").await?;
        let degraded = condition(&node, "Degraded").cloned().unwrap_or_default();
        let message = degraded["message"].as_str().unwrap_or_default();
        ensure!(message.starts_with(said), "{}", node["status"]);
        Ok(())
    })
    .await?;
    fleet.retire().await
}
