//! Databases that are away or hang: nothing is deleted, other hubs go on, and all is well soon after.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::FutureExt;

use crate::cluster::Cluster;
use crate::cluster::database::Database;
use crate::hub::{fleet, form, map, until_maps};
use crate::operator;
use crate::tenants::{Fleet, SOON};
use crate::words::all;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_ends_with_the_next_sync() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    all(vec![
        ("stopped", stopped_and_started(cluster).boxed_local()),
        (
            "hung",
            hung_databases_hold_up_no_other(cluster).boxed_local(),
        ),
    ])
    .await
}

async fn stopped_and_started(cluster: &Cluster) -> Result<()> {
    let database = Database::start().await?;
    let namespace = cluster.namespace("outage").await?;
    let fleet = Fleet {
        database: database.create("outage").await?,
        client: cluster.admin().await?,
        namespace,
    };
    fleet
        .database
        .execute("CREATE TABLE tenants (id VARCHAR(80), active VARCHAR(10), url VARCHAR(200), plan VARCHAR(40), image VARCHAR(200))")
        .await?;
    fleet.insert(0..7).await?;
    fleet.apply(&fleet.password()).await?;
    fleet.apply(&fleet.hub()).await?;
    fleet
        .apply(&form(&fleet, "web", &[map("app", "-app")]))
        .await?;
    fleet.complete(7, SOON).await?;
    let before = fleet.versions(&["LynqNode", "ConfigMap"]).await?;

    database.stop().await?;
    let said = "cannot reach the database at 127.0.0.1:{port}: nothing listens there (connection refused); check source host and port, and that the network allows it";
    let (hub, away) = (
        ("LynqHub", "tenants"),
        ("Ready", "False", "DatabaseConnectionFailed"),
    );
    fleet.says(hub, away, said).await?;
    fleet.event("tenants", "DatabaseQueryFailed", said).await?;
    ensure!(
        fleet.versions(&["LynqNode", "ConfigMap"]).await? == before,
        "nothing is written"
    );

    database.start_again().await?;
    fleet.insert(7..8).await?;
    let started = Instant::now();
    let there = ("Ready", "True", "DatabaseConnected");
    fleet
        .says(
            hub,
            there,
            "Successfully connected to database and queried node data",
        )
        .await?;
    fleet.complete(8, SOON).await?;
    let took = started.elapsed();
    ensure!(
        took < Duration::from_secs(10),
        "the interval is 1 s, it took {took:?}"
    );
    fleet.retire().await
}

/// More of them than hubs may be worked on at a time (3, by default).
async fn hung_databases_hold_up_no_other(cluster: &Cluster) -> Result<()> {
    let fleet = fleet(cluster, 1).await?;
    // Each hub's query takes as long as it may: a minute.
    fleet
        .database
        .execute("CREATE VIEW slow AS SELECT id, active + SLEEP(300) active, url, plan, image FROM tenants")
        .await?;
    for number in 0..4 {
        let mut hub = fleet.hub();
        hub["metadata"]["name"] = format!("slow-{number}").into();
        hub["spec"]["source"]["mysql"]["table"] = "slow".into();
        fleet.apply(&hub).await?;
    }
    for row in 1..4 {
        fleet.insert(row..row + 1).await?;
        fleet.complete(row + 1, Duration::from_secs(20)).await?;
    }
    until_maps(
        &fleet,
        &[
            ("t0-app", "pro"),
            ("t1-app", "pro"),
            ("t2-app", "pro"),
            ("t3-app", "pro"),
        ],
    )
    .await?;
    for number in 0..4 {
        let status = fleet.get("LynqHub", &format!("slow-{number}")).await?["status"].clone();
        ensure!(status["conditions"].is_null(), "it hangs still: {status}");
    }
    fleet.retire().await
}
