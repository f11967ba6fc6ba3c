//! Several replicas divide the work: each leads a shard of the hubs, takes over what a replica that died has led, and hands a
//! shard over to one that has fewer.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lynqgate::decide::operator::shards::shard_of;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Options, wait};
use crate::operator::Operator;
use crate::tenants::{Fleet, SOON};

const SHARDS: usize = 3;
const DIVIDED: [&str; 2] = ["--leader-elect", "--shards=3"];
/// A lease ends 15 s after its last renewal; the others look every 2 s.
const TAKEN_OVER: Duration = Duration::from_secs(20);

/// The process that leads each shard, by its id.
async fn leaders(cluster: &Cluster) -> Result<BTreeMap<usize, u32>> {
    let list = ["get", "leases", "--namespace=lynq-system", "--output=json"];
    let text = cluster.kubectl(&list, None).await?.expect_success()?;
    let leases: Value = serde_json::from_str(&text)?;
    let mut leaders = BTreeMap::new();
    for lease in leases["items"].as_array().context("items")? {
        let name = lease["metadata"]["name"].as_str().context("name")?;
        let Some(shard) = name.strip_prefix("f2130106.lynq.sh") else {
            continue;
        };
        let shard = shard.strip_prefix('-').unwrap_or("0").parse()?;
        let holder = lease["spec"]["holderIdentity"].as_str();
        if let Some((_, process)) = holder.and_then(|holder| holder.rsplit_once('_')) {
            leaders.insert(shard, process.parse()?);
        }
    }
    Ok(leaders)
}

async fn led_by_each_of(cluster: &Cluster, operators: &[&Operator]) -> Result<()> {
    wait::until("each replica leads a shard", SOON, async || {
        let mut leaders: Vec<u32> = leaders(cluster).await?.into_values().collect();
        let all = operators.iter().map(|o| o.process.id().context("it runs"));
        let mut all: Vec<u32> = all.collect::<Result<_>>()?;
        leaders.sort_unstable();
        all.sort_unstable();
        ensure!(leaders == all, "{leaders:?}, of {all:?}");
        Ok(())
    })
    .await
}

async fn change(fleet: &Fleet, version: &str) -> Result<()> {
    let image = format!("registry.example.com/web:{version}");
    fleet.apply(&fleet.form(&image, json!(1), 0)).await?;
    fleet.complete(2, SOON).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_replicas_divide_the_hubs_take_over_and_hand_over() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let first = Operator::start(&cluster, "first", &DIVIDED).await?;
    wait::until("a single replica leads all", SOON, async || {
        let leaders = leaders(&cluster).await?;
        ensure!(leaders.len() == SHARDS, "{leaders:?}");
        Ok(())
    })
    .await?;
    // It asked for nothing; the others do.
    let second = Operator::start(&cluster, "second", &DIVIDED).await?;
    let third = Operator::start(&cluster, "third", &DIVIDED).await?;
    led_by_each_of(&cluster, &[&first, &second, &third]).await?;
    assert!(first.process.log_contains("handed the shard over"));

    let mut fleets: BTreeMap<usize, Fleet> = BTreeMap::new();
    while fleets.len() < SHARDS {
        let fleet = Fleet::new(&cluster, "sharded", 2).await?;
        let shard = shard_of(&fleet.namespace, "tenants", SHARDS);
        fleets.entry(shard).or_insert(fleet);
    }
    for fleet in fleets.values() {
        change(fleet, "1").await?;
    }
    for operator in [&first, &second, &third] {
        let metrics = operator.metrics().await?;
        assert!(
            metrics.contains("lynqgate_hub_syncs_total{result=\"success\"} "),
            "it has work\n{metrics}"
        );
    }

    let of_second = second.process.id().context("it runs")?;
    let lost = leaders(&cluster).await?;
    let (&lost, _) = lost.iter().find(|(_, p)| **p == of_second).context("its")?;
    second.process.kill()?;
    let killed = Instant::now();
    wait::until("another leads the shard", SOON, async || {
        let leader = leaders(&cluster).await?[&lost];
        ensure!(leader != of_second, "{leader} still");
        Ok(())
    })
    .await?;
    let took = killed.elapsed();
    assert!(took < TAKEN_OVER, "taken over after {took:?}");
    change(&fleets[&lost], "2").await?;

    // The webhooks are registered under the address of the replica that started last.
    let fourth = Operator::start(&cluster, "fourth", &DIVIDED).await?;
    led_by_each_of(&cluster, &[&first, &third, &fourth]).await?;
    for fleet in fleets.values() {
        change(fleet, "3").await?;
    }
    Ok(())
}

/// Flags that do not go together are named, with what to do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shards_need_leases_and_exclude_node_maintenance() -> Result<()> {
    let program = crate::operator::program("lynqgate")?;
    for (flags, text) in [
        (vec!["--shards=3"], "needs --leader-elect"),
        (
            vec!["--shards=3", "--leader-elect", "--node-maintenance"],
            "exclude each other",
        ),
        (vec!["--shards=0", "--leader-elect"], "from 1 to 64"),
    ] {
        let mut command = tokio::process::Command::new(&program);
        let output = command.arg("run").args(&flags).output().await?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && said.contains(text),
            "{flags:?}: {said}"
        );
    }
    Ok(())
}
