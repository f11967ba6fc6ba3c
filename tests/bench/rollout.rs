//! A rollout of 300 tenants through a window of 10, beside the shortest time in which that window can have done it. Run by
//! `make bench-rollout`. The figures are those of the witness, a client of its own that watches the Deployments.
//!
//! The ideal is the sum of the times from a Deployment's new generation until it is rolled out, divided by the window.
//! What is above it is what lynqgate takes from "rolled out" to the next Deployment's change.

/// The harness of the tests. The path leads out of this directory; below it the files are found as usual.
#[path = ".."]
mod harness {
    pub mod cluster;
    pub mod operator;
    pub mod tenants;
    pub mod witness;
}

use std::time::Duration;

use anyhow::{Result, ensure};
use harness::{cluster, operator, tenants, witness};
use serde_json::json;

use cluster::{Cluster, Options};
use operator::Operator;
use tenants::Fleet;
use witness::Witness;

const TENANTS: usize = 300;
const WINDOW: usize = 10;
/// How many times the ideal a rollout may take. A speed is measured and not tested: a miss is said, and is no error.
const AIM: f64 = 1.1;
/// Until a pod is ready, in seconds.
const READY_AFTER: u32 = 1;
const RUNS: usize = 3;
const DEADLINE: Duration = Duration::from_secs(600);

#[tokio::main]
async fn main() -> Result<()> {
    println!(
        "{TENANTS} tenants with a Deployment each, ready after {READY_AFTER} s, maxSkew {WINDOW}"
    );
    let cluster = Cluster::start(Options::default()).await?;
    let _operator = Operator::start(&cluster, "operator", &[]).await?;
    let fleet = Fleet::new(&cluster, "bench", TENANTS).await?;
    let form = |run: usize| {
        let image = format!("registry.example.com/web:{run}");
        fleet.form(&image, json!(WINDOW), READY_AFTER)
    };
    let mut first = form(0);
    first["spec"]["rollout"]["maxSkew"] = json!(0);
    fleet.apply(&first).await?;
    fleet.complete(TENANTS, DEADLINE).await?;
    println!("\n| run | peak | rolled out | took | ideal | took / ideal |");
    println!("|---|---|---|---|---|---|");
    let mut ratios = vec![];
    for run in 1..=RUNS {
        let witness = Witness::start(cluster.admin().await?, &fleet.namespace).await?;
        fleet.apply(&form(run)).await?;
        fleet.complete(TENANTS, DEADLINE).await?;
        let seen = witness.end();
        let (took, ideal) = (
            seen.duration().as_secs_f64(),
            seen.ideal(WINDOW).as_secs_f64(),
        );
        println!(
            "| {run} | {} | {} | {took:.1} s | {ideal:.1} s | {:.3} |",
            seen.peak,
            seen.rolled_out,
            took / ideal
        );
        ensure!(
            seen.peak <= WINDOW,
            "run {run}: {} Deployments were not rolled out at once, and the window is {WINDOW}; run lynqgate-audit beside it to see which",
            seen.peak
        );
        ensure!(
            seen.rolled_out == TENANTS,
            "not every Deployment was rolled out once"
        );
        ratios.push(took / ideal);
    }
    ratios.sort_by(f64::total_cmp);
    let median = ratios[RUNS / 2];
    let met = if median <= AIM { "met" } else { "missed" };
    println!("\nmedian: {median:.3} times the ideal; the aim of {AIM} is {met}");
    Ok(())
}
