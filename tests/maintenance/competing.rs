//! Two operators with a name each, and one that is stopped for longer than its Lease.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::cluster::wait;
use crate::maintenance::scene::Scene;

/// The shortest window has a Lease of this and a second.
const LEASE: Duration = Duration::from_secs(31);
const FOR_LEASE: Duration = LEASE.saturating_add(Duration::from_secs(20));

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_has_one_holder_though_one_of_two_operators_stops_for_longer() -> Result<()> {
    let scene = Scene::start().await?;
    scene.node("k8s-1", "one").await?;
    let first = scene
        .operator("first", &["--maintenance-holder=first"])
        .await?;
    scene.ask("k8s-1", "2").await?;
    scene.until("k8s-1", "active", "").await?;
    first.process.freeze()?;
    let second = scene
        .operator("second", &["--maintenance-holder=second"])
        .await?;

    // The second waits for the Lease of the first, and leaves the status of the holder alone.
    let lease = wait::until("the second holds the Lease", FOR_LEASE, async || {
        let lease = scene.lease("k8s-1").await?;
        let spec = &lease["spec"];
        ensure!(spec["holderIdentity"] == "second", "{spec}");
        Ok(lease)
    })
    .await?;
    let [before, taken] = [acquired(&lease), 0];
    ensure!(
        before > taken && lease["spec"]["leaseTransitions"] == 2,
        "{lease}"
    );
    let seen = scene.seen("k8s-1").await?;
    ensure!(seen.cordoned, "{seen:?}");

    // Awake again, the first writes nothing: the second ends what it began, and uncordons what the first had cordoned.
    first.process.thaw()?;
    let mut holders = vec![];
    wait::until(
        "the second has ended the maintenance",
        FOR_LEASE,
        async || {
            let (lease, seen) = (scene.lease("k8s-1").await?, scene.seen("k8s-1").await?);
            holders.push(lease["spec"]["holderIdentity"].clone());
            let ended = lease["spec"]["leaseDurationSeconds"].is_null();
            ensure!(
                ended && seen.status == "ended" && !seen.cordoned && !seen.asks,
                "{seen:?} {lease}"
            );
            Ok(())
        },
    )
    .await?;
    ensure!(
        holders.iter().all(|holder| holder == "second"),
        "{holders:?}"
    );
    first.process.check()?;
    second.process.check()?;
    Ok(())
}

fn acquired(lease: &Value) -> i64 {
    let at: Option<jiff::Timestamp> = lease["spec"]["acquireTime"]
        .as_str()
        .and_then(|at| at.parse().ok());
    at.map_or(0, |at| at.as_second())
}
