//! The reasons of an operator that runs as it should: what users, their rows, their pods and their policies do to it.

use anyhow::{Context, Result, ensure};
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::shot::{View, shows};
use crate::cluster::{Cluster, etcd, wait};
use crate::obstacles::{
    forbid, forbid_ledger, lift, matching, until_refused, until_status_refused,
};
use crate::tenants::{Fleet, SOON, condition};

/// A fleet that is done; its form has one Deployment a tenant.
async fn fleet(cluster: &Cluster, rows: usize) -> Result<Fleet> {
    let fleet = Fleet::new(cluster, "reason", rows).await?;
    fleet.apply(&form(&fleet, "web:1", json!({}))).await?;
    fleet.complete(rows, SOON).await?;
    Ok(fleet)
}

/// maxSkew 1 and a long deadline, unless the rollout says otherwise.
fn form(fleet: &Fleet, image: &str, rollout: Value) -> Value {
    let mut form = fleet.form(image, json!(1), 0);
    form["spec"]["rollout"]["progressDeadlineSeconds"] = json!(3600);
    for (field, value) in rollout.as_object().expect("an object") {
        form["spec"]["rollout"][field] = value.clone();
    }
    form
}

fn waits<'a>(node: &'a str, code: &'a str) -> View<'a> {
    View {
        form: Some(code),
        node: (node, code),
    }
}

/// The node's own condition does not change with who fills the window.
fn waits_for_a_slot<'a>(node: &'a str, code: &'a str) -> View<'a> {
    View {
        form: Some(code),
        node: (node, "WindowFull"),
    }
}

/// Changes the hub, and waits until a sync has gone by that.
async fn change_hub(fleet: &Fleet, spec: &Value) -> Result<()> {
    fleet.change("LynqHub", "tenants", spec).await?;
    wait::until("the hub's change is known", SOON, async || {
        let hub = fleet.get("LynqHub", "tenants").await?;
        let ready = condition(&hub, "Ready").context("no condition Ready")?;
        let generation = &hub["metadata"]["generation"];
        ensure!(ready["observedGeneration"] == *generation, "{ready}");
        Ok(())
    })
    .await
}

/// A change that never becomes ready, and one node that waits behind another.
async fn behind_a_broken_one(cluster: &Cluster, code: &str, rollout: Value) -> Result<()> {
    let fleet = fleet(cluster, 2).await?;
    fleet.apply(&form(&fleet, "web:2-broken", rollout)).await?;
    shows(cluster, &fleet, code, waits("t1-web", code)).await?;
    fleet.retire().await
}

pub async fn window_full(cluster: &Cluster) -> Result<()> {
    behind_a_broken_one(cluster, "WindowFull", json!({})).await
}

pub async fn rollout_failed(cluster: &Cluster) -> Result<()> {
    let soon = json!({"progressDeadlineSeconds": 60});
    behind_a_broken_one(cluster, "RolloutFailed", soon).await
}

pub async fn hub_window_full(cluster: &Cluster) -> Result<()> {
    let fleet = fleet(cluster, 2).await?;
    let window = json!({"rollout": {"maxSkew": 1}});
    change_hub(&fleet, &window).await?;
    let wide = json!({"maxSkew": 2});
    fleet.apply(&form(&fleet, "web:2-broken", wide)).await?;
    let view = waits("t1-web", "HubWindowFull");
    shows(cluster, &fleet, "HubWindowFull", view).await?;
    fleet.retire().await
}

pub async fn domain_full(cluster: &Cluster) -> Result<()> {
    let domains = json!([{"variable": "plan", "maxSkew": 1}]);
    let rollout = json!({"maxSkew": 2, "domains": domains});
    behind_a_broken_one(cluster, "DomainFull", rollout).await
}

pub async fn group_not_done(cluster: &Cluster) -> Result<()> {
    let canary = "UPDATE tenants SET plan = 'canary' WHERE id = 't0'";
    let fleet = Fleet::new_with(cluster, "reason", 2, canary).await?;
    let order = json!([{"name": "canaries", "when": "{{ eq .plan \"canary\" }}"}]);
    let rollout = json!({"maxSkew": 2, "order": order});
    fleet.apply(&form(&fleet, "web:1", rollout.clone())).await?;
    fleet.complete(2, SOON).await?;
    fleet.apply(&form(&fleet, "web:2-broken", rollout)).await?;
    let view = waits("t1-web", "GroupNotDone");
    shows(cluster, &fleet, "GroupNotDone", view).await?;
    fleet.retire().await
}

pub async fn awaiting_promotion(cluster: &Cluster) -> Result<()> {
    let fleet = fleet(cluster, 2).await?;
    let order = json!([{"name": "canaries", "when": "{{ eq .uid \"t0\" }}", "pause": true}]);
    let rollout = json!({"maxSkew": 2, "order": order});
    fleet.apply(&form(&fleet, "web:2", rollout)).await?;
    let view = waits("t1-web", "AwaitingPromotion");
    shows(cluster, &fleet, "AwaitingPromotion", view).await?;
    fleet.retire().await
}

pub async fn soaking(cluster: &Cluster) -> Result<()> {
    let fleet = fleet(cluster, 2).await?;
    let long = json!({"minReadySeconds": 3600});
    fleet.apply(&form(&fleet, "web:2", long)).await?;
    let view = waits_for_a_slot("t1-web", "Soaking");
    shows(cluster, &fleet, "Soaking", view).await?;
    fleet.retire().await
}

/// Two are being watched when the form is edited again, and only one may be by now.
pub async fn slot_reserved(cluster: &Cluster) -> Result<()> {
    let fleet = fleet(cluster, 3).await?;
    let two = json!({"minReadySeconds": 3600, "maxSkew": 2});
    fleet.apply(&form(&fleet, "web:2", two)).await?;
    fleet
        .rollout("two are watched", SOON, |rollout| {
            rollout["readyUpdatedNodes"] == 2 && rollout["heldNodes"] == 1
        })
        .await?;
    let one = json!({"minReadySeconds": 3600, "maxSkew": 1});
    fleet.apply(&form(&fleet, "web:3", one)).await?;
    let view = waits("t0-web", "SlotReserved");
    shows(cluster, &fleet, "SlotReserved", view).await?;
    fleet.retire().await
}

/// A tenant that has been broken for long fills the window when another one's row changes.
pub async fn broken_before(cluster: &Cluster) -> Result<()> {
    let images = "UPDATE tenants SET image = IF(id = 't0', 'web:1-broken', 'web:1')";
    let fleet = Fleet::new_with(cluster, "reason", 2, images).await?;
    let open = json!({"maxSkew": 0});
    fleet.apply(&form(&fleet, "{{ .image }}", open)).await?;
    fleet
        .rollout("one is broken, one is not", SOON, |rollout| {
            rollout["updatingNodes"] == 1 && rollout["readyUpdatedNodes"] == 1
        })
        .await?;
    // Other templates that give the same: what broke before is not of their rollout.
    let same = form(&fleet, "{{ .image | trim }}", json!({}));
    fleet.apply(&same).await?;
    fleet
        .rollout("there is a window", SOON, |rollout| {
            rollout["wavesLeft"] == 1 && rollout["targetGeneration"] == 2
        })
        .await?;
    let change = "UPDATE tenants SET image = 'web:2' WHERE id = 't1'";
    fleet.database.execute(change).await?;
    let view = waits_for_a_slot("t1-web", "BrokenBefore");
    shows(cluster, &fleet, "BrokenBefore", view).await?;
    fleet.retire().await
}

pub async fn paused(cluster: &Cluster) -> Result<()> {
    let fleet = fleet(cluster, 1).await?;
    let paused = json!({"paused": true});
    fleet.apply(&form(&fleet, "web:2", paused)).await?;
    shows(cluster, &fleet, "Paused", waits("t0-web", "Paused")).await?;
    fleet.retire().await
}

/// What waits is older than the templates, and those cannot be read.
pub async fn not_rendered(cluster: &Cluster) -> Result<()> {
    let fleet = fleet(cluster, 1).await?;
    let paused = json!({"paused": true});
    fleet.apply(&form(&fleet, "web:2", paused.clone())).await?;
    fleet
        .rollout("it is held", SOON, |rollout| rollout["heldNodes"] == 1)
        .await?;
    etcd::store(cluster, &form(&fleet, "{{ .image", paused)).await?;
    let view = waits("t0-web", "NotRendered");
    shows(cluster, &fleet, "NotRendered", view).await?;
    fleet.retire().await
}

const FEW: &str = "maxDeletions";

pub async fn deletions_held(cluster: &Cluster) -> Result<()> {
    let fleet = fleet(cluster, 2).await?;
    let guard = json!({"guard": {FEW: 1}});
    change_hub(&fleet, &guard).await?;
    let renamed = "UPDATE tenants SET id = CONCAT('tenant-', id)";
    fleet.database.execute(renamed).await?;
    let view = waits("tenant-t0-web", "DeletionsHeld");
    shows(cluster, &fleet, "DeletionsHeld", view).await?;
    fleet.retire().await
}

pub async fn no_form(cluster: &Cluster) -> Result<()> {
    let fleet = fleet(cluster, 2).await?;
    let guard = json!({"guard": {FEW: 1}});
    change_hub(&fleet, &guard).await?;
    let paused = json!({"paused": true});
    fleet.apply(&form(&fleet, "web:2", paused)).await?;
    fleet
        .rollout("both are held", SOON, |rollout| rollout["heldNodes"] == 2)
        .await?;
    fleet
        .api("LynqForm")
        .delete("web", &DeleteParams::default())
        .await?;
    let view = View {
        form: None,
        node: ("t0-web", "NoForm"),
    };
    shows(cluster, &fleet, "NoForm", view).await?;
    fleet.retire().await
}

pub async fn release_refused(cluster: &Cluster) -> Result<()> {
    let fleet = fleet(cluster, 2).await?;
    let friday = "!has(object.metadata.annotations) || (!('probe' in object.metadata.annotations) && \
         (!('lynq.sh/release' in object.metadata.annotations) || (has(oldObject.metadata.annotations) && \
         'lynq.sh/release' in oldObject.metadata.annotations && \
         object.metadata.annotations['lynq.sh/release'] == oldObject.metadata.annotations['lynq.sh/release'])))";
    let writes = matching(&fleet, "operator.lynq.sh", "lynqnodes", "UPDATE");
    forbid(cluster, &fleet, &writes, friday, "no changes on a Friday").await?;
    until_refused(
        cluster,
        &fleet,
        &["annotate", "lynqnode", "t0-web", "probe=1"],
    )
    .await?;
    fleet.apply(&form(&fleet, "web:2", json!({}))).await?;
    let view = waits("t0-web", "ReleaseRefused");
    shows(cluster, &fleet, "ReleaseRefused", view).await?;
    // It is tried again by itself.
    lift(cluster, &fleet).await?;
    fleet.complete(2, 2 * SOON).await?;
    fleet.retire().await
}

/// Its status cannot be written, so that nobody knows whether what was released is ready.
pub async fn readiness_unknown(cluster: &Cluster) -> Result<()> {
    let fleet = fleet(cluster, 2).await?;
    let writes = matching(&fleet, "operator.lynq.sh", "lynqnodes/status", "UPDATE");
    let others = "object.metadata.name != 't0-web'";
    forbid(cluster, &fleet, &writes, others, "statuses are frozen").await?;
    let status = r#"{"status":{"readyResources":7}}"#;
    until_status_refused(cluster, &fleet, ["lynqnode", "t0-web"], status).await?;
    fleet.apply(&form(&fleet, "web:2", json!({}))).await?;
    let view = waits_for_a_slot("t1-web", "ReadinessUnknown");
    shows(cluster, &fleet, "ReadinessUnknown", view).await?;
    let node = fleet.get("LynqNode", "t0-web").await?;
    let rolled = condition(&node, "Rolled").context("Rolled")?;
    ensure!(
        rolled["status"] == "True",
        "the status is the old one: {rolled}"
    );
    lift(cluster, &fleet).await?;
    fleet.complete(2, 2 * SOON).await?;
    fleet.retire().await
}

/// Where the ledger is nothing may be written, so that nobody gets a slot.
pub async fn ledger_refused(cluster: &Cluster) -> Result<()> {
    let fleet = fleet(cluster, 2).await?;
    forbid_ledger(cluster, &fleet, "the books are closed").await?;
    fleet.apply(&form(&fleet, "web:2", json!({}))).await?;
    let view = waits("t1-web", "LedgerRefused");
    shows(cluster, &fleet, "LedgerRefused", view).await?;
    lift(cluster, &fleet).await?;
    fleet.complete(2, 2 * SOON).await?;
    fleet.retire().await
}
