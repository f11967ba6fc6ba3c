//! The main path: rows become nodes, nodes become objects, and a change goes through the window.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use crate::cluster::{Cluster, Options, wait};
use crate::operator::{self, Operator};
use crate::tenants::{Fleet, SOON};
use crate::witness::Witness;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_become_ready_objects_and_follow_the_form() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "first", 5).await?;
    fleet
        .apply(&fleet.form("registry.example.com/web:1", json!(2), 0))
        .await?;
    fleet.complete(5, SOON).await?;
    assert_eq!(fleet.list("Deployment").await?.len(), 5);
    fleet
        .apply(&fleet.form("registry.example.com/web:2", json!(2), 0))
        .await?;
    fleet.complete(5, SOON).await?;
    for deployment in fleet.list("Deployment").await? {
        assert_eq!(
            deployment["spec"]["template"]["spec"]["containers"][0]["image"],
            "registry.example.com/web:2"
        );
    }
    Ok(())
}

/// Never more than maxSkew Deployments are not rolled out, and all of the window is used. How long that takes tells
/// `make bench-rollout`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn window_holds_in_a_rollout_of_60() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "window", 60).await?;
    fleet
        .apply(&fleet.form("registry.example.com/web:1", json!(0), 1))
        .await?;
    fleet.complete(60, SOON).await?;
    let witness = Witness::start(cluster.admin().await?, &fleet.namespace).await;
    fleet
        .apply(&fleet.form("registry.example.com/web:2", json!(5), 1))
        .await?;
    fleet.complete(60, Duration::from_secs(180)).await?;
    let seen = witness.end();
    let (took, ideal) = (seen.duration().as_secs_f64(), seen.ideal(5).as_secs_f64());
    println!(
        "60 nodes, maxSkew 5: peak {}, {took:.1} s, {:.2} times the ideal {ideal:.1} s",
        seen.peak,
        took / ideal
    );
    assert_eq!(seen.rolled_out, 60);
    assert_eq!(seen.peak, 5, "Deployments that were not rolled out at once");
    Ok(())
}

/// `kill -9` in the middle, and a new process: it takes up the ledger, and the window holds throughout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_operator_completes_the_rollout() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let operator = Operator::start(&cluster, "operator", &[]).await?;
    let fleet = Fleet::new(&cluster, "killed", 20).await?;
    fleet
        .apply(&fleet.form("registry.example.com/web:1", json!(0), 0))
        .await?;
    fleet.complete(20, SOON).await?;
    let witness = Witness::start(cluster.admin().await?, &fleet.namespace).await;
    for round in 2..5 {
        fleet
            .apply(&fleet.form(&format!("registry.example.com/web:{round}"), json!(3), 1))
            .await?;
        fleet
            .rollout("some are updated", SOON, |r| {
                r["updatedNodes"].as_i64() >= Some(3) && r["heldNodes"].as_i64() > Some(0)
            })
            .await?;
        operator.process.kill()?;
        operator.process.ended(SOON).await?;
        operator.process.start()?;
        operator.ready().await?;
    }
    fleet.complete(20, Duration::from_secs(120)).await?;
    let seen = witness.end();
    assert!(
        seen.peak <= 3,
        "{} Deployments were not rolled out at once",
        seen.peak
    );
    assert!(
        seen.rolled_out >= 20,
        "the witness saw {} roll out",
        seen.rolled_out
    );
    for deployment in fleet.list("Deployment").await? {
        assert_eq!(
            deployment["spec"]["template"]["spec"]["containers"][0]["image"],
            "registry.example.com/web:4"
        );
    }
    wait::until("the ledger is empty", SOON, async || {
        let hub = fleet.get("LynqHub", "tenants").await?;
        anyhow::ensure!(
            hub["status"]["rollout"]["slots"] == json!([]),
            "{}",
            hub["status"]
        );
        Ok(())
    })
    .await
}

/// One edit takes the change back and lifts the pause: the loop must not let go what is still held from before the edit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_taken_back_by_the_edit_that_unpauses_touches_nothing() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "back", 20).await?;
    let good = fleet.form("registry.example.com/web:1", json!(5), 0);
    let mut paused = fleet.form("registry.example.com/web:2", json!(5), 0);
    paused["spec"]["rollout"]["paused"] = json!(true);
    fleet.apply(&good).await?;
    fleet.complete(20, SOON).await?;
    for _ in 0..3 {
        fleet.apply(&paused).await?;
        fleet
            .rollout("all are held", SOON, |r| r["heldNodes"] == 20)
            .await?;
        fleet.apply(&good).await?;
        fleet.complete(20, SOON).await?;
    }
    for deployment in fleet.list("Deployment").await? {
        assert_eq!(
            deployment["metadata"]["generation"], 1,
            "{}",
            deployment["metadata"]["name"]
        );
    }
    Ok(())
}
