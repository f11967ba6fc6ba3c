//! Where the maintenance of a Kubernetes node meets a rollout.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use crate::cluster::wait;
use crate::maintenance::scene::{SOON, Scene};
use crate::tenants::Fleet;

/// All of the fleet's pods are there.
const NODE: &str = "fake-0";

async fn said_of_the_node(fleet: &Fleet) -> Result<String> {
    Ok(fleet.get("LynqNode", "t0-web").await?["status"].to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_window_keeps_maintenance_waiting_and_maintenance_is_no_failure() -> Result<()> {
    let scene = Scene::start().await?;
    let operator = scene.operator("operator", &[]).await?;
    let fleet = Fleet::new(&scene.cluster, "fleet", 3).await?;
    fleet.apply(&fleet.form("web:1", json!(1), 0)).await?;
    fleet.complete(3, SOON).await?;

    // A bad image fills the window of 1.
    fleet.apply(&fleet.form("broken:2", json!(1), 0)).await?;
    fleet
        .rollout("one is broken", SOON, |rollout| {
            rollout["updatingNodes"] == 1
        })
        .await?;
    scene.ask(NODE, "600").await?;
    let full = format!(
        "pods on this Kubernetes node belong to forms whose window is full: {}/web",
        fleet.namespace
    );
    let seen = scene.until(NODE, "waiting", &full).await?;
    ensure!(!seen.cordoned, "{seen:?}");
    scene.ask_no_more(NODE).await?;

    // Three in flight in a window of 5: there is room, and the maintenance evicts them first.
    fleet.apply(&fleet.form("web:3", json!(1), 0)).await?;
    fleet.complete(3, SOON).await?;
    let slow = fleet.form("web:4", json!(5), 20);
    fleet.apply(&slow).await?;
    fleet
        .rollout("all are in flight", SOON, |rollout| {
            rollout["updatingNodes"] == 3
        })
        .await?;
    scene.ask(NODE, "600").await?;
    scene.until(NODE, "active", "").await?;
    wait::until("the LynqNode says why it is not ready", SOON, async || {
        let said = said_of_the_node(&fleet).await?;
        ensure!(
            said.contains("Kubernetes node fake-0 is in maintenance"),
            "{said}"
        );
        Ok(())
    })
    .await?;
    let lease = scene.lease(NODE).await?;
    let tenants = lease["metadata"]["annotations"]["lynq.sh/evicted-tenants"].as_str();
    let named = |i: usize| format!("{}/t{i}-web", fleet.namespace);
    let all = [0, 1, 2].map(named).join(",");
    ensure!(tenants == Some(all.as_str()), "{lease}");

    // Another process knows it, too.
    operator.process.kill()?;
    operator.process.start()?;
    operator.ready().await?;
    fleet
        .rollout(
            "the rollout goes on, and says why it takes long",
            SOON,
            |rollout| {
                let message = rollout["message"].as_str().unwrap_or_default();
                rollout["phase"] == "InProgress"
                    && message.contains("Kubernetes node fake-0 is in maintenance")
            },
        )
        .await?;

    // On another Kubernetes node the pods become ready.
    scene.node("k8s-9", "more").await?;
    fleet.complete(3, SOON).await?;
    scene.ask_no_more(NODE).await?;
    scene.until(NODE, "ended", "").await?;

    // A Kubernetes node that is deleted is in maintenance no longer, while its tenants' new pods still start.
    scene.ask("k8s-9", "600").await?;
    let in_maintenance = async |is: bool, within: Duration| {
        let what = format!("the LynqNode names the maintenance of k8s-9: {is}");
        wait::until(&what, within, async || {
            let said = said_of_the_node(&fleet).await?;
            let named = said.contains("Kubernetes node k8s-9 is in maintenance");
            ensure!(
                named == is && said.contains("\"readyResources\":0"),
                "{said}"
            );
            Ok(())
        })
        .await
    };
    in_maintenance(true, SOON).await?;
    scene.kubectl(&["delete", "node", "k8s-9"]).await?;
    in_maintenance(false, Duration::from_secs(10)).await
}
