//! What Lynq's record does not tell, and its templates do, as long as they are there.

use anyhow::{Context, Result, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::cluster::{Cluster, wait};
use crate::operator::Operator;
use crate::takeover::elsewhere::{form_with_labels, of_tenant, uids};
use crate::takeover::{ROWS, cluster_of_lynq, definitions, fleet_of_lynq, fleet_of_rows};
use crate::takeover::{fleet_with, migrate, substance};
use crate::tenants::{Fleet, SOON};

/// Its definitions drop a status, and so does a restored backup.
async fn lose_record(fleet: &Fleet, i: usize) -> Result<()> {
    let lost = Patch::Merge(json!({"status": {"appliedResources": null}}));
    let nodes = fleet.api("LynqNode");
    let (name, params) = (format!("t{i}-web"), PatchParams::default());
    nodes.patch_status(&name, &params, &lost).await?;
    Ok(())
}

/// Some nodes record a namespace as a template, others nothing at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_form_drops_at_the_switch_goes_wherever_it_is() -> Result<()> {
    let cluster = cluster_of_lynq().await?;
    definitions::install_ours(&cluster).await?;
    let fleet = fleet_of_rows(&cluster, "dropped").await?;
    let mut form = form_with_labels(&cluster, &fleet).await?;
    let fleet = fleet_with(fleet, &form, |_| "web:1").await?;
    for i in 0..ROWS / 2 {
        lose_record(&fleet, i).await?;
    }
    let maps = form["spec"]["configMaps"]
        .as_array_mut()
        .context("an array")?;
    maps.retain(|map| map["id"] == "kept");
    // With a kind that no node has any more, and Lynq's record does not tell the group of.
    form["spec"]["manifests"] = json!([]);
    fleet.apply(&form).await?;
    let told = migrate(&cluster, "").await?.expect_success()?;
    for i in 0..ROWS {
        let [(_, far, far_name), (_, own, own_name), _] = of_tenant(&fleet, i);
        for goes in [
            format!("ConfigMap/{far}/{far_name} is deleted"),
            format!("ConfigMap/{own}/{own_name} is deleted"),
            format!("ConfigMap/{}/t{i}-settings is deleted", fleet.namespace),
        ] {
            ensure!(told.contains(&goes), "no {goes:?}: {told}");
        }
    }

    form["spec"]["rollout"]["paused"] = json!(true);
    fleet.apply(&form).await?;
    let operator = Operator::start(&cluster, "operator", &[]).await?;
    wait::until("it is known which objects they have", SOON, async || {
        for node in fleet.list("LynqNode").await? {
            let annotations = &node["metadata"]["annotations"];
            ensure!(annotations["lynq.sh/extra"].is_null(), "{annotations}");
        }
        Ok(())
    })
    .await?;
    // What another process has labelled.
    drop(operator);
    let _operator = Operator::start(&cluster, "another", &[]).await?;
    form["spec"]["rollout"]["paused"] = json!(false);
    fleet.apply(&form).await?;
    fleet.complete(ROWS, SOON).await?;
    wait::until("what the form does not name is gone", SOON, async || {
        for i in 0..ROWS {
            let left = uids(&fleet, i).await?;
            ensure!(left.iter().all(Option::is_none), "t{i}: {left:?}");
        }
        let names = fleet.names("ConfigMap").await?;
        let left = names.iter().find(|name| name.ends_with("-settings"));
        ensure!(left.is_none(), "{names:?}");
        Ok(())
    })
    .await
}

/// The form's namespaces are chosen by rows, and it does not say yet which it allows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_render_is_kept_and_goes_with_its_row() -> Result<()> {
    let cluster = cluster_of_lynq().await?;
    definitions::install_ours(&cluster).await?;
    let fleet = fleet_of_rows(&cluster, "unrendered").await?;
    let mut form = form_with_labels(&cluster, &fleet).await?;
    let fleet = fleet_with(fleet, &form, |_| "web:1").await?;
    // The same namespaces, without a word of theirs outside of the templates.
    form["spec"]["allowedNamespaces"] = json!([]);
    let maps = form["spec"]["configMaps"].as_array_mut();
    let mut maps = maps.context("an array")?.iter_mut();
    let own = maps.find(|map| map["id"] == "own").context("own")?;
    let namespace = format!(r#"{{{{ printf "{}-of-%s" .uid }}}}"#, fleet.namespace);
    own["targetNamespace"] = json!(namespace);
    fleet.apply(&form).await?;
    let before = uids(&fleet, 1).await?;

    let _operator = Operator::start(&cluster, "operator", &[]).await?;
    fleet
        .hub_condition("RenderFailed", "True", "allowedNamespaces")
        .await?;
    let [_, (_, own, name), _] = of_tenant(&fleet, 0);
    wait::until("it is the node's", SOON, async || {
        let map = fleet.api_in("ConfigMap", &own).get(&name).await?;
        let labels = map.metadata.labels.unwrap_or_default();
        ensure!(labels.contains_key("lynq.sh/managed"), "{labels:?}");
        for node in fleet.list("LynqNode").await? {
            ensure!(node["spec"]["released"].is_null(), "{node}");
        }
        Ok(())
    })
    .await?;
    fleet
        .database
        .execute("DELETE FROM tenants WHERE id = 't0'")
        .await?;
    fleet
        .until_names("LynqNode", &["t1-web", "t2-web", "t3-web"])
        .await?;
    wait::until("all of it goes with its row", SOON, async || {
        let left = uids(&fleet, 0).await?;
        ensure!(left.iter().all(Option::is_none), "{left:?}");
        Ok(())
    })
    .await?;
    ensure!(uids(&fleet, 1).await? == before, "another tenant's");
    Ok(())
}

async fn policy(cluster: &Cluster, fleet: &Fleet) -> Result<()> {
    let api = "admissionregistration.k8s.io/v1";
    let injection =
        r#"[JSONPatch{op: "add", path: "/spec/configMaps/0/spec/data/injected", value: "x"}]"#;
    let policy = json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": api, "kind": "MutatingAdmissionPolicy", "metadata": {"name": "inject"},
            "spec": {
                "failurePolicy": "Fail", "reinvocationPolicy": "IfNeeded",
                "matchConstraints": {
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": fleet.namespace}},
                    "resourceRules": [{
                        "apiGroups": ["operator.lynq.sh"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
                        "resources": ["lynqnodes"],
                    }],
                },
                "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": injection}}],
            },
        },
        {
            "apiVersion": api, "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": "inject"},
            "spec": {"policyName": "inject"},
        },
    ]});
    cluster.apply(&policy.to_string()).await
}

/// What is stored is not what the hub wrote, and may be what Lynq has written since: nobody can tell, and it stays as it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_changes_what_the_hub_writes_is_told() -> Result<()> {
    let cluster = cluster_of_lynq().await?;
    definitions::install_ours(&cluster).await?;
    let fleet = fleet_of_lynq(&cluster, "changed", |_| "web:1").await?;
    let before = substance(&fleet).await?;
    policy(&cluster, &fleet).await?;
    let _operator = Operator::start(&cluster, "operator", &[]).await?;
    let said = "an admission webhook or policy changes LynqNodes";
    fleet.hub_condition("WriteFailed", "True", said).await?;
    let after = substance(&fleet).await?;
    ensure!(after == before, "{before:?} became {after:?}");
    cluster
        .shell("kubectl delete mutatingadmissionpolicybindings,mutatingadmissionpolicies inject")
        .await?
        .expect_success()?;
    fleet.complete(ROWS, SOON).await?;
    Ok(())
}
