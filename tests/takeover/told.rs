//! What `lynqgate migrate --dry-run` says beforehand, where a form, a hub or a node is not as Lynq's first write left it.

use anyhow::{Context, Result, ensure};
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::operator;
use crate::takeover::{
    cluster_of_lynq, definitions, fleet_of_lynq, fleet_of_rows, fleet_with, form, migrate,
};
use crate::tenants::Fleet;

fn map(id: &str, more: Value) -> Value {
    let mut map = json!({
        "id": id, "nameTemplate": format!("{{{{ .uid }}}}-{id}"),
        "spec": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"plan": "{{ .plan }}"}},
    });
    map.as_object_mut()
        .expect("an object")
        .extend(more.as_object().expect("an object").clone());
    map
}

fn add(form: &mut Value, map: Value) {
    form["spec"]["configMaps"]
        .as_array_mut()
        .expect("an array")
        .push(map);
}

async fn says(cluster: &Cluster, fleet: &Fleet, said: &[&str], unsaid: &[&str]) -> Result<()> {
    let told = migrate(cluster, &format!(" -n {}", fleet.namespace)).await?;
    let told = told.expect_success()?;
    for text in said {
        let text = text.replace("NS", &fleet.namespace);
        ensure!(told.contains(&text), "no {text:?} in\n{told}");
    }
    for text in unsaid {
        ensure!(!told.contains(text), "{text:?} in\n{told}");
    }
    Ok(())
}

/// A hub that is being deleted takes all along; and who belongs to no hub is told so.
async fn a_hub_that_goes(cluster: &Cluster) -> Result<()> {
    let fleet = fleet_of_lynq(cluster, "going", |_| "web:1").await?;
    let stray = json!({
        "apiVersion": "operator.lynq.sh/v1", "kind": "LynqNode", "metadata": {"name": "stray", "namespace": fleet.namespace},
        "spec": {"uid": "stray", "templateRef": "web"},
    });
    fleet.apply(&stray).await?;
    let program = operator::program("lynqgate")?;
    let explain = format!(
        "{} explain node stray -n {}",
        program.display(),
        fleet.namespace
    );
    let told = cluster.shell(&explain).await?.expect_success()?;
    ensure!(told.contains("it belongs to no hub"), "{told}");
    // Lynq's finalizer keeps it.
    fleet
        .api("LynqHub")
        .delete("tenants", &DeleteParams::default())
        .await?;
    let said = [
        "is being deleted: all of its nodes are deleted with it",
        "t3-web is deleted: its hub is being deleted",
    ];
    says(cluster, &fleet, &said, &["taken over"]).await
}

async fn what_does_not_render(cluster: &Cluster) -> Result<()> {
    let fleet = fleet_of_lynq(cluster, "unrendered", |_| "web:1").await?;
    let mut broken = form(&fleet, "web:1");
    broken["spec"]["configMaps"][0]["spec"]["data"]["plan"] =
        json!("{{ if eq .uid \"t0\" }}{{ fail \"no plan\" }}{{ end }}{{ .plan }}");
    fleet.apply(&broken).await?;
    says(
        cluster,
        &fleet,
        &["3 of 4 nodes", "t0-web (waits for its turn): settings: "],
        &["is deleted"],
    )
    .await
}

async fn what_the_form_drops_takes_or_pauses(cluster: &Cluster) -> Result<()> {
    let fleet = fleet_of_rows(cluster, "dropped").await?;
    let mut lynqs = form(&fleet, "web:1");
    add(&mut lynqs, map("kept", json!({"deletionPolicy": "Retain"})));
    let fleet = fleet_with(fleet, &lynqs, |_| "web:1").await?;
    let nobodys = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "t1-alien", "namespace": fleet.namespace},
        "data": {"plan": "other"},
    });
    fleet.apply(&nobodys).await?;
    let mut orphan = nobodys.clone();
    orphan["metadata"]["name"] = json!("t2-alien");
    orphan["metadata"]["labels"] = json!({"lynq.sh/orphaned": "true"});
    fleet.apply(&orphan).await?;
    let mut ours = form(&fleet, "web:1");
    add(&mut ours, map("alien", json!({"conflictPolicy": "Force"})));
    let widget = json!({"id": "w", "nameTemplate": "{{ .uid }}-w", "spec": {"apiVersion": "example.com/v1", "kind": "Widget"}});
    ours["spec"]["manifests"] = json!([widget]);
    fleet.apply(&ours).await?;
    let forced = json!({"metadata": {"annotations": {"lynq.sh/force-rollout": "true"}}});
    fleet.merge("LynqNode", "t1-web", &forced).await?;
    fleet
        .api("LynqNode")
        .delete("t3-web", &DeleteParams::default())
        .await?;
    let recorded = json!({"status": {"appliedResources": ["Widget/NS/t0-w@w".replace("NS", &fleet.namespace)]}});
    let params = kube::api::PatchParams::default();
    let patch = kube::api::Patch::Merge(&recorded);
    fleet
        .api("LynqNode")
        .patch_status("t0-web", &params, &patch)
        .await?;
    let said = [
        "t0-web (waits for its turn): ConfigMap/NS/t0-alien is created; w: the cluster has no kind Widget",
        "t1-web (at once, as lynq.sh/force-rollout=true is on it, its form or its hub): ",
        "ConfigMap/NS/t1-kept is left behind, as its deletionPolicy says",
        "ConfigMap/NS/t1-alien becomes this node's: it is nobody's, and its conflictPolicy is Force; it changes: /data/plan",
        "ConfigMap/NS/t2-alien becomes this node's: it was left behind as an orphan",
        "t3-web is already being deleted",
    ];
    says(
        cluster,
        &fleet,
        &said,
        &["kept is deleted", "may be deleted", "not this node's"],
    )
    .await?;

    ours["spec"]["rollout"]["paused"] = json!(true);
    fleet.apply(&ours).await?;
    let said = [
        "t0-web (waits until its form is not paused any more)",
        "it is paused (rollout.paused)",
    ];
    says(cluster, &fleet, &said, &[]).await?;

    // Of Lynq's definitions a form may go to another hub.
    let mut other = fleet.hub();
    other["metadata"]["name"] = json!("other");
    fleet.apply(&other).await?;
    let deleted = fleet
        .api("LynqForm")
        .delete("web", &DeleteParams::default())
        .await?;
    deleted.right().context("it goes at once")?;
    ours["spec"]["hubId"] = json!("other");
    fleet.apply(&ours).await?;
    says(
        cluster,
        &fleet,
        &["t0-web is deleted: form \"web\" belongs to hub \"other\""],
        &["web\" is gone"],
    )
    .await
}

/// Six rows go, and as many come: more than half may not go at once.
async fn what_waits_for_a_confirmation(cluster: &Cluster) -> Result<()> {
    let fleet = fleet_of_lynq(cluster, "swapped", |_| "web:1").await?;
    let mut hub = fleet.hub();
    hub["spec"]["guard"] = json!({"maxDeletions": 1});
    fleet.apply(&hub).await?;
    fleet
        .database
        .execute("UPDATE tenants SET id = CONCAT('n', id) WHERE id <> 't0'")
        .await?;
    let said = [
        "nt1-web (waits until the deletions are confirmed, see below): the node is created",
        "deletions: ",
    ];
    says(cluster, &fleet, &said, &[]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_becomes_of_what_is_not_as_lynq_wrote_it_is_said() -> Result<()> {
    let cluster = cluster_of_lynq().await?;
    definitions::install_ours(&cluster).await?;
    a_hub_that_goes(&cluster).await?;
    what_does_not_render(&cluster).await?;
    what_the_form_drops_takes_or_pauses(&cluster).await?;
    what_waits_for_a_confirmation(&cluster).await
}
