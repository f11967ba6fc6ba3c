//! What the API server cannot do for one node, again and again: that node says what, its other objects are applied, and its
//! hub's other forms roll out, also after a restart.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::bad_input::{config_map, fleet, form};
use crate::cluster::{Cluster, Options, etcd, wait};
use crate::operator::Operator;
use crate::tenants::SOON;

/// A group whose API nobody serves.
fn dead_api() -> Value {
    json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1.dead.example.com"},
        "spec": {
            "group": "dead.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "insecureSkipTLSVerify": true, "service": {"name": "nobody", "namespace": "default"},
        },
    })
}

/// Nobody may delete a ConfigMap with the label `keep`.
fn keepers() -> Value {
    let api = "admissionregistration.k8s.io/v1";
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": api, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "keepers"}, "spec": {
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["configmaps"],
            }]},
            "validations": [{
                "expression": "!has(oldObject.metadata.labels) || !('keep' in oldObject.metadata.labels)",
                "message": "this one is kept",
            }],
        }},
        {"apiVersion": api, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "keepers"}, "spec": {
            "policyName": "keepers", "validationActions": ["Deny"],
        }},
    ]})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_fails_for_one_node_again_and_again_keeps_no_other_waiting() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let operator = Operator::start(&cluster, "operator", &[]).await?;
    let fleet = fleet(&cluster, 2).await?;

    cluster.apply(&dead_api().to_string()).await?;
    let widget = json!({
        "id": "widget", "nameTemplate": "{{ .uid }}-widget",
        "spec": {"apiVersion": "dead.example.com/v1", "kind": "Widget"},
    });
    let dead = json!({
        "configMaps": [config_map("beside", "{{ .uid }}-beside", "x")], "manifests": [widget],
    });
    let dead = form(&fleet, "dead", &dead);
    let refused = fleet.apply(&dead).await.err().context("it was let in")?;
    let said = "whether you may do what this form makes lynqgate do is not known: ";
    ensure!(format!("{refused:#}").contains(said), "{refused:#}");
    etcd::store(&cluster, &dead).await?;
    let said = "LynqNode has 1 failed resources: Widget t0-widget: the API server does not say whether it has kind Widget in dead.example.com/v1: ";
    wait::until("the node says which kind", SOON, async || {
        let node = fleet.get("LynqNode", "t0-dead").await?;
        let degraded = crate::tenants::condition(&node, "Degraded");
        let message = degraded.map_or("", |c| c["message"].as_str().unwrap_or_default());
        ensure!(message.starts_with(said), "{}", node["status"]);
        fleet.get("ConfigMap", "t0-beside").await?;
        Ok(())
    })
    .await?;

    let mut kept = config_map("kept", "{{ .uid }}-kept", "x");
    kept["labelsTemplate"] = json!({"keep": "yes"});
    let with = json!({
        "configMaps": [config_map("other", "{{ .uid }}-other", "x"), kept], "rollout": {"maxSkew": 1},
    });
    fleet.apply(&form(&fleet, "keep", &with)).await?;
    let names = ["t0-kept", "t1-kept"];
    wait::until("it is there", SOON, async || {
        for name in names {
            fleet.get("ConfigMap", name).await?;
        }
        Ok(())
    })
    .await?;
    cluster.apply(&keepers().to_string()).await?;
    wait::until("the policy applies", SOON, async || {
        let arguments = [
            "delete",
            "configmap",
            "t1-kept",
            "--dry-run=server",
            "-n",
            &fleet.namespace,
        ];
        let answer = cluster.kubectl(&arguments, None).await?;
        ensure!(!answer.success, "{}", answer.stdout);
        Ok(())
    })
    .await?;
    let without = json!({
        "configMaps": [config_map("other", "{{ .uid }}-other", "x")], "rollout": {"maxSkew": 1},
    });
    fleet.apply(&form(&fleet, "keep", &without)).await?;
    let refused = "ConfigMap t0-kept cannot be taken down: configmaps \"t0-kept\" is forbidden: ValidatingAdmissionPolicy \
                   'keepers' with binding 'keepers' denied request: this one is kept; it is tried again";
    let degraded = ("Degraded", "True", "DeletionFailed");
    fleet
        .says(("LynqNode", "t0-keep"), degraded, refused)
        .await?;
    fleet.event("t0-keep", "DeletionFailed", refused).await?;
    wait::until("the rollout goes on all the same", SOON, async || {
        let form = fleet.get("LynqForm", "keep").await?;
        let rollout = &form["status"]["rollout"];
        ensure!(rollout["phase"] == "Complete", "{rollout}");
        Ok(())
    })
    .await?;

    operator.process.kill()?;
    operator.process.start()?;
    operator.ready().await?;
    let changed = json!({
        "configMaps": [config_map("app", "{{ .uid }}-app", "changed")], "rollout": {"maxSkew": 1},
    });
    fleet.apply(&form(&fleet, "web", &changed)).await?;
    fleet.complete(2, 2 * SOON).await?;

    let arguments = ["delete", "validatingadmissionpolicybinding", "keepers"];
    cluster.kubectl(&arguments, None).await?.expect_success()?;
    for name in names {
        wait::until("what is left over goes in the end", 2 * SOON, async || {
            let found = fleet.get("ConfigMap", name).await;
            ensure!(found.is_err(), "it is still there");
            Ok(())
        })
        .await?;
    }
    fleet.retire().await
}
