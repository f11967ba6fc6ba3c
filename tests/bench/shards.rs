//! Several replicas share a fleet: how the work is divided, how long it takes until the work of a replica that dies goes on, and
//! whether the windows hold meanwhile. Run by `make bench-shards`, with `N=600` for a fleet of that size.

/// The harness of the tests. The path leads out of this directory; below it the files are found as usual.
#[path = ".."]
mod harness {
    pub mod cluster;
    pub mod operator;
    pub mod tenants;
}

#[path = "../chaos/auditor.rs"]
#[allow(dead_code)]
mod auditor;
mod meter;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use harness::{cluster, operator, tenants};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use lynqgate::decide::operator::shards::shard_of;
use serde_json::{Value, json};

use auditor::Auditor;
use cluster::{Cluster, Options, wait};
use operator::Operator;
use tenants::Fleet;

const SHARDS: usize = 3;
const HUBS: usize = 6;
const WINDOW: usize = 20;
const OBJECTS: usize = 4;
const BYTES: usize = 600;
const DEADLINE: Duration = Duration::from_secs(1_800);
/// How late an operator may learn of an edit, in seconds.
const LAG: u32 = 20;

#[tokio::main]
async fn main() -> Result<()> {
    let asked = std::env::var("N").unwrap_or_default();
    let size: usize = match asked.is_empty() {
        true => 3_000,
        false => asked.parse().context("N")?,
    };
    let each = size / HUBS;
    println!(
        "{HUBS} hubs of {each} tenants, {OBJECTS} ConfigMaps a tenant, maxSkew {WINDOW}, {SHARDS} replicas\n"
    );
    let cluster = Cluster::start(Options::default()).await?;
    let auditor = Auditor::start(&cluster, LAG, true)?;
    let mut operators = vec![];
    for name in ["one", "two", "three"] {
        let shards = format!("--shards={SHARDS}");
        let flags = ["--leader-elect", shards.as_str()];
        operators.push(Operator::start(&cluster, name, &flags).await?);
    }
    let fleets = fleets(&cluster, each).await?;
    let divided = async || {
        let leaders = try_join_all((0..SHARDS).map(|shard| leader(&cluster, shard))).await?;
        let different = BTreeSet::from_iter(&leaders);
        ensure!(different.len() == SHARDS, "{leaders:?}");
        Ok(())
    };
    wait::until("each replica leads a shard", DEADLINE, divided).await?;

    println!(
        "| what | took | applied by each replica | share | CPU of each replica | peak memory |"
    );
    println!("|---|---|---|---|---|---|");
    let meters = meters(&operators).await?;
    let began = Instant::now();
    apply(&fleets, "v0").await?;
    complete(&fleets, each).await?;
    row("first sync", began, &operators, &meters).await?;

    let meters = self::meters(&operators).await?;
    let began = Instant::now();
    apply(&fleets, "v1").await?;
    complete(&fleets, each).await?;
    row("change", began, &operators, &meters).await?;

    // The webhooks are registered under the address of the replica that started last.
    apply(&fleets, "v2").await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let victim = operators[0].process.id().context("it runs")?;
    let mut lost = vec![];
    for shard in 0..SHARDS {
        if leader(&cluster, shard).await? == victim {
            lost.push(shard);
        }
    }
    let orphaned: Vec<&Fleet> = fleets
        .iter()
        .filter(|fleet| lost.contains(&shard_of(&fleet.namespace, "tenants", SHARDS)))
        .collect();
    operators[0].process.kill()?;
    // What it had sent arrives within this.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let killed = Instant::now();
    let before = try_join_all(orphaned.iter().map(|fleet| released(fleet))).await?;
    let since = || (killed.elapsed() + Duration::from_secs(1)).as_secs_f64();
    wait::until("another takes the leases", DEADLINE, async || {
        for shard in &lost {
            ensure!(leader(&cluster, *shard).await? != victim, "shard {shard}");
        }
        Ok(())
    })
    .await?;
    let taken = since();
    wait::until("another releases in its place", DEADLINE, async || {
        let now = try_join_all(orphaned.iter().map(|fleet| released(fleet))).await?;
        ensure!(
            now.iter().zip(&before).all(|(now, before)| now > before),
            "{now:?}"
        );
        Ok(())
    })
    .await?;
    println!(
        "\none replica killed: shards {lost:?} have a new leader after {taken:.1} s, and all of their hubs new releases after {:.1} s",
        since()
    );
    complete(&fleets, each).await?;
    auditor.verdict().await
}

/// So that each shard has as many.
async fn fleets(cluster: &Cluster, each: usize) -> Result<Vec<Fleet>> {
    let mut fleets: Vec<Fleet> = vec![];
    while fleets.len() < HUBS {
        let fleet = Fleet::new(cluster, "bench", 0).await?;
        let shard = |fleet: &Fleet| shard_of(&fleet.namespace, "tenants", SHARDS);
        let there = fleets
            .iter()
            .filter(|other| shard(other) == shard(&fleet))
            .count();
        if there == HUBS / SHARDS {
            continue;
        }
        fleet.insert(0..each).await?;
        let mut hub = fleet.hub();
        hub["spec"]["guard"] = json!({"maxCreations": each});
        fleet.apply(&hub).await?;
        fleets.push(fleet);
    }
    Ok(fleets)
}

/// The process that leads a shard, by its id.
async fn leader(cluster: &Cluster, shard: usize) -> Result<u32> {
    let key = lynqgate::cluster::lease::lease_key("lynq-system", shard);
    let leases: Api<Lease> = Api::namespaced(cluster.admin().await?, &key.namespace);
    let spec = leases.get(&key.name).await?.spec.context("a spec")?;
    let holder = spec.holder_identity.context("a holder")?;
    let (_, process) = holder.rsplit_once('_').context("a holder")?;
    Ok(process.parse()?)
}

async fn apply(fleets: &[Fleet], version: &str) -> Result<()> {
    let map = |number: usize| {
        json!({
            "id": format!("c{number}"), "nameTemplate": format!("{{{{ .uid }}}}-c{number}"),
            "spec": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"filler": "x".repeat(BYTES), "version": version}},
        })
    };
    let maps: Vec<Value> = (0..OBJECTS).map(map).collect();
    let form = |fleet: &Fleet| {
        json!({
            "apiVersion": "operator.lynq.sh/v1", "kind": "LynqForm",
            "metadata": {"name": "web", "namespace": fleet.namespace},
            "spec": {"hubId": "tenants", "rollout": {"maxSkew": WINDOW, "progressDeadlineSeconds": 600}, "configMaps": maps},
        })
    };
    try_join_all(
        fleets
            .iter()
            .map(async |fleet| fleet.apply(&form(fleet)).await),
    )
    .await?;
    Ok(())
}

async fn complete(fleets: &[Fleet], each: usize) -> Result<()> {
    try_join_all(fleets.iter().map(|fleet| fleet.complete(each, DEADLINE))).await?;
    Ok(())
}

/// How many nodes of the fleet have what is new.
async fn released(fleet: &Fleet) -> Result<u64> {
    let form = fleet.get("LynqForm", "web").await?;
    let updated = &form["status"]["rollout"]["updatedNodes"];
    Ok(updated.as_u64().unwrap_or_default())
}

/// What a replica has done so far.
struct Meter {
    applied: u64,
    cpu: Duration,
}

async fn meters(operators: &[Operator]) -> Result<Vec<Meter>> {
    try_join_all(operators.iter().map(async |operator| {
        let process = operator.process.id().context("the operator runs")?;
        meter::forget_peak(process)?;
        let metrics = operator.metrics().await?;
        let applied = metrics
            .lines()
            .filter(|line| line.starts_with("apply_attempts_total{"));
        let applied = applied.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
        Ok(Meter {
            applied: applied.sum(),
            cpu: meter::cpu(process)?,
        })
    }))
    .await
}

async fn row(what: &str, began: Instant, operators: &[Operator], before: &[Meter]) -> Result<()> {
    let took = began.elapsed().as_secs_f64();
    let peaks: Vec<String> = operators
        .iter()
        .map(|operator| {
            let process = operator.process.id().context("the operator runs")?;
            Ok(format!("{} MB", meter::peak_kib(process)? / 1_024))
        })
        .collect::<Result<_>>()?;
    let after = meters(operators).await?;
    let done: Vec<u64> = after
        .iter()
        .zip(before)
        .map(|(a, b)| a.applied - b.applied)
        .collect();
    let total: u64 = done.iter().sum();
    let cpu: Vec<String> = after
        .iter()
        .zip(before)
        .map(|(a, b)| format!("{:.1} s", (a.cpu - b.cpu).as_secs_f64()))
        .collect();
    let shares: Vec<String> = done
        .iter()
        .map(|done| format!("{:.1} %", 100.0 * *done as f64 / total.max(1) as f64))
        .collect();
    println!(
        "| {what} | {took:.1} s | {done:?} | {} | {} | {} |",
        shares.join(", "),
        cpu.join(", "),
        peaks.join(", ")
    );
    Ok(())
}
