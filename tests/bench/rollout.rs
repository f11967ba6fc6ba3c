//! A rollout, beside the shortest time in which its window can have done it. Run by `make bench-rollout`, with `N=1000` for the larger
//! fleet. The figures are those of the witness, a client of its own that watches the Deployments.
//!
//! The ideal is the sum of the times from a Deployment's new generation until it is rolled out, divided by the window.
//! What is above it is what lynqgate takes from the apply to the first Deployment's change, and from "rolled out" to the next one's.

/// The harness of the tests. The path leads out of this directory; below it the files are found as usual.
#[path = ".."]
mod harness {
    pub mod cluster;
    pub mod operator;
    pub mod tenants;
    pub mod witness;
}

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use harness::{cluster, operator, tenants, witness};
use serde_json::json;

use cluster::{Cluster, Options, Record};
use operator::Operator;
use tenants::Fleet;
use witness::Witness;

/// Tenants, their window, and how many times the ideal a rollout may take. The benchmark prints a missed aim and does not fail.
const FLEETS: [(usize, usize, f64); 2] = [(300, 10, 1.1), (1_000, 20, 1.12)];
/// Until a pod is ready, in seconds.
const READY_AFTER: u32 = 1;
const RUNS: usize = 3;
const DEADLINE: Duration = Duration::from_secs(600);

#[tokio::main]
async fn main() -> Result<()> {
    let asked = std::env::var("N").unwrap_or_default();
    let size = match asked.as_str() {
        "" => FLEETS[0].0,
        asked => asked.parse().context("N")?,
    };
    let fleet = FLEETS.iter().find(|(tenants, ..)| *tenants == size);
    let &(tenants, window, aim) = fleet.context("N is 300 or 1000")?;
    println!(
        "{tenants} tenants with a Deployment each, ready after {READY_AFTER} s, maxSkew {window}"
    );
    let cluster = Cluster::start(Options {
        record: Record::OperatorAlone,
        ..Options::default()
    })
    .await?;
    let _operator = Operator::start(&cluster, "operator", &[]).await?;
    let fleet = Fleet::new(&cluster, "bench", tenants).await?;
    let form = |run: usize| {
        let image = format!("registry.example.com/web:{run}");
        fleet.form(&image, json!(window), READY_AFTER)
    };
    let mut first = form(0);
    first["spec"]["rollout"]["maxSkew"] = json!(0);
    fleet.apply(&first).await?;
    fleet.complete(tenants, DEADLINE).await?;
    println!("\n| run | peak | rolled out | took | ideal | took / ideal |");
    println!("|---|---|---|---|---|---|");
    let mut ratios = vec![];
    for run in 1..=RUNS {
        let witness = Witness::start(cluster.admin().await?, &fleet.namespace).await?;
        let applied = Instant::now();
        fleet.apply(&form(run)).await?;
        fleet.complete(tenants, DEADLINE).await?;
        let seen = witness.end();
        let last = seen.last.context("no Deployment was rolled out")?;
        let took = (last - applied).as_secs_f64();
        let ideal = seen.ideal(window).as_secs_f64();
        println!(
            "| {run} | {} | {} | {took:.1} s | {ideal:.1} s | {:.3} |",
            seen.peak,
            seen.rolled_out,
            took / ideal
        );
        ensure!(
            seen.peak <= window,
            "run {run}: {} Deployments were not rolled out at once, and the window is {window}; run lynqgate-audit beside it to see which",
            seen.peak
        );
        ensure!(
            seen.rolled_out == tenants,
            "not every Deployment was rolled out once"
        );
        ratios.push(took / ideal);
    }
    ratios.sort_by(f64::total_cmp);
    let median = ratios[RUNS / 2];
    let met = if median <= aim { "met" } else { "missed" };
    println!("\nmedian: {median:.3} times the ideal; the aim of {aim} is {met}");
    Ok(())
}
