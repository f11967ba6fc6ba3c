//! What was wanted once, and is not any more, is not released: whatever part of the fleet has it by then.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Options, wait};
use crate::operator::Operator;
use crate::proxy::Proxy;
use crate::proxy::rules::{Action, Rule};
use crate::tenants::{Fleet, SOON, condition};

const ROWS: usize = 12;
/// So many nodes are written at once, and the rest late.
const WRITTEN: usize = 4;
const LATE: Duration = Duration::from_secs(6);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_wants_any_more_is_not_released() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let (proxy, operator) = Proxy::before_operator(&cluster, &[]).await?;
    let fleet = Fleet::new(&cluster, "back", ROWS).await?;
    fleet
        .apply(&form(&fleet, "registry.example.com/{{ .plan }}:1"))
        .await?;
    fleet.complete(ROWS, SOON).await?;

    the_form_is_taken_back(&fleet, &proxy).await?;
    the_mapping_is_taken_back(&fleet, &proxy).await?;
    the_mapping_is_taken_back_and_nobody_remembers(&fleet, &proxy, &operator).await?;
    an_old_write_comes_late(&fleet).await?;
    what_the_nodes_are_written_from_is_told_late(&fleet, &proxy).await?;
    a_deletion_fails(&fleet, &proxy).await?;
    a_slot_cannot_be_freed(&fleet, &proxy).await
}

fn form(fleet: &Fleet, image: &str) -> Value {
    fleet.form(image, json!(3), 0)
}

/// The same, but nothing of it goes: what is held when it is taken back was never released.
fn paused(fleet: &Fleet, version: u32) -> Value {
    let image = format!("registry.example.com/{{{{ .plan }}}}:{version}");
    let mut form = form(fleet, &image);
    form["spec"]["rollout"]["paused"] = json!(true);
    form
}

/// Writes of nodes with this text take their time, but for the first few.
fn slow(proxy: &Proxy, text: &'static str) {
    let mut late = Rule::new(Action::Delay(LATE)).body(text);
    late.skip = WRITTEN;
    proxy.set_rules(vec![late.verbs(&["patch"]).resources(&["lynqnodes"])]);
}

async fn until_held(fleet: &Fleet, nodes: usize) -> Result<()> {
    wait::until("the first nodes are held", SOON, async || {
        let all = fleet.list("LynqNode").await?;
        let held = all
            .iter()
            .filter(|node| !node["spec"]["released"].is_null());
        let held = held.count();
        ensure!(held == nodes, "{held}");
        Ok(())
    })
    .await
}

/// As often as they were made, or changed by a release.
async fn generations(fleet: &Fleet) -> Result<Vec<i64>> {
    let all = fleet.list("Deployment").await?;
    let generation = |object: &Value| object["metadata"]["generation"].as_i64();
    all.iter()
        .map(|object| generation(object).context("generation"))
        .collect()
}

/// A part of the nodes has the new content when the form says the old one again.
async fn the_form_is_taken_back(fleet: &Fleet, proxy: &Proxy) -> Result<()> {
    slow(proxy, "registry.example.com/pro:2");
    fleet.apply(&paused(fleet, 2)).await?;
    until_held(fleet, WRITTEN).await?;
    go_on(fleet).await?;
    nothing_goes(fleet, proxy).await
}

async fn nothing_goes(fleet: &Fleet, proxy: &Proxy) -> Result<()> {
    tokio::time::sleep(LATE / 2).await;
    proxy.heal();
    fleet.complete(ROWS, SOON).await?;
    let all = generations(fleet).await?;
    ensure!(all == [1; ROWS], "{all:?}");
    Ok(())
}

/// The same for the hub.
async fn the_mapping_is_taken_back(fleet: &Fleet, proxy: &Proxy) -> Result<()> {
    the_mapping_is_written(fleet, proxy).await?;
    fleet.apply(&fleet.hub()).await?;
    go_on(fleet).await?;
    nothing_goes(fleet, proxy).await
}

/// To a part of the nodes, while the form is paused.
async fn the_mapping_is_written(fleet: &Fleet, proxy: &Proxy) -> Result<()> {
    slow(proxy, "registry.example.com/t");
    fleet.apply(&paused(fleet, 1)).await?;
    fleet.apply(&other_mapping(fleet)).await?;
    until_held(fleet, WRITTEN).await
}

/// The form as it was, and not paused.
async fn go_on(fleet: &Fleet) -> Result<()> {
    let form = form(fleet, "registry.example.com/{{ .plan }}:1");
    fleet.apply(&form).await?;
    Ok(())
}

fn other_mapping(fleet: &Fleet) -> Value {
    let mut hub = fleet.hub();
    hub["spec"]["extraValueMappings"]["plan"] = json!("id");
    hub
}

/// Whoever writes the nodes ends on the way, and the next one cannot read the rows.
async fn the_mapping_is_taken_back_and_nobody_remembers(
    fleet: &Fleet,
    proxy: &Proxy,
    operator: &Operator,
) -> Result<()> {
    the_mapping_is_written(fleet, proxy).await?;
    let rename = |from: &str, to: &str| format!("RENAME TABLE {from} TO {to}");
    fleet.database.execute(&rename("tenants", "away")).await?;
    fleet.apply(&fleet.hub()).await?;
    operator.process.kill()?;
    tokio::time::sleep(LATE).await;
    proxy.heal();
    operator.process.start()?;
    operator.ready().await?;
    fleet
        .rollout("the held nodes are told", SOON, |rollout| {
            rollout["heldNodes"].as_u64() >= Some(WRITTEN as u64)
        })
        .await?;
    go_on(fleet).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let form = fleet.get("LynqForm", "web").await?;
    let held = condition(&form, "Held").context("Held")?;
    ensure!(held["reason"] == "NotRendered", "{held}");
    let all = generations(fleet).await?;
    ensure!(all == [1; ROWS], "{all:?}");
    fleet.database.execute(&rename("away", "tenants")).await?;
    fleet.complete(ROWS, SOON).await?;
    let all = generations(fleet).await?;
    ensure!(all == [1; ROWS], "{all:?}");
    Ok(())
}

/// As by a hub loop that was frozen when it wrote, or from a backup.
async fn an_old_write_comes_late(fleet: &Fleet) -> Result<()> {
    let old = fleet.get("LynqNode", "t0-web").await?;
    fleet
        .apply(&form(fleet, "registry.example.com/{{ .plan }}:3"))
        .await?;
    fleet.complete(ROWS, SOON).await?;
    let annotation = |name: &str| old["metadata"]["annotations"][name].clone();
    let names = ["lynq.sh/rendered-hash", "lynq.sh/template-generation"];
    let annotations = names.map(|name| (name.to_owned(), annotation(name)));
    let late = json!({
        "metadata": {"annotations": serde_json::Map::from_iter(annotations)},
        "spec": {"deployments": old["spec"]["deployments"]},
    });
    fleet.merge("LynqNode", "t0-web", &late).await?;
    let restored = async || {
        let node = fleet.get("LynqNode", "t0-web").await?;
        let image = "/spec/deployments/0/spec/spec/template/spec/containers/0/image";
        let found = node.pointer(image).context("image")?;
        ensure!(
            found == "registry.example.com/pro:3" && node["spec"]["released"].is_null(),
            "{node}"
        );
        Ok(())
    };
    wait::until("the hub writes it anew", SOON, restored).await?;
    fleet.complete(ROWS, SOON).await?;
    let all = generations(fleet).await?;
    ensure!(all == [2; ROWS], "{all:?}");
    Ok(())
}

/// The status cannot be written when a sync is through; the one that tells the next process what the nodes have.
async fn what_the_nodes_are_written_from_is_told_late(fleet: &Fleet, proxy: &Proxy) -> Result<()> {
    let unavailable = Rule::new(Action::Status(503, None)).body("skippedRows");
    proxy.set_rules(vec![unavailable.verbs(&["patch"]).resources(&["lynqhubs"])]);
    let rows_hash = async || -> Result<Value> {
        let hub = fleet.get("LynqHub", "tenants").await?;
        Ok(hub["status"]["rowsHash"].clone())
    };
    let mut hub = other_mapping(fleet);
    hub["spec"]["source"]["syncInterval"] = json!("10m");
    fleet.apply(&hub).await?;
    wait::until("the old one is taken away", SOON, async || {
        let told = rows_hash().await?;
        ensure!(told.is_null(), "{told}");
        Ok(())
    })
    .await?;
    fleet.complete(ROWS, SOON).await?;
    ensure!(rows_hash().await?.is_null());
    proxy.heal();
    wait::until("the new one is told", SOON, async || {
        ensure!(rows_hash().await?.is_string());
        Ok(())
    })
    .await
}

/// A node is to go, cannot be deleted, and waits with what the form said before.
async fn a_deletion_fails(fleet: &Fleet, proxy: &Proxy) -> Result<()> {
    let mut paused = form(fleet, "registry.example.com/{{ .plan }}:4");
    paused["spec"]["rollout"]["paused"] = json!(true);
    fleet.apply(&paused).await?;
    until_held(fleet, ROWS).await?;
    let unavailable = Rule::new(Action::Status(503, None)).verbs(&["delete"]);
    proxy.set_rules(vec![unavailable.resources(&["lynqnodes"])]);
    let gone = "DELETE FROM tenants WHERE id = 't0'";
    fleet.database.execute(gone).await?;
    let form = form(fleet, "registry.example.com/{{ .plan }}:5");
    fleet.apply(&form).await?;
    let others = |rollout: &Value| rollout["readyUpdatedNodes"] == ROWS - 1;
    fleet
        .rollout("the others are updated", SOON, others)
        .await?;
    for _ in 0..20 {
        let rollout = &fleet.get("LynqForm", "web").await?["status"]["rollout"];
        let node = fleet.get("LynqNode", "t0-web").await?;
        ensure!(
            !node["spec"]["released"].is_null() && rollout["phase"] == "InProgress",
            "{rollout}, {node}"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    proxy.heal();
    fleet.complete(ROWS - 1, SOON).await?;
    Ok(())
}

/// Its form is not complete, and once it is, that is told once.
async fn a_slot_cannot_be_freed(fleet: &Fleet, proxy: &Proxy) -> Result<()> {
    const NODES: usize = ROWS - 1;
    let told = async |reason: &str| -> Result<u64> {
        let all = fleet.list("Event").await?;
        let of_form = all.iter().filter(|event| {
            event["reason"] == reason && event["involvedObject"]["kind"] == "LynqForm"
        });
        // Those of late are counted on the first of them.
        let times = |event: &Value| event["series"]["count"].as_u64().unwrap_or(1);
        Ok(of_form.map(times).sum())
    };
    let all = ["RolloutStarted", "RolloutComplete"];
    // What is told late is told by then.
    let late = Duration::from_secs(3);
    tokio::time::sleep(late).await;
    let before = [told(all[0]).await?, told(all[1]).await?];
    fleet
        .apply(&form(fleet, "registry.example.com/{{ .plan }}:6"))
        .await?;
    let updated = |rollout: &Value| rollout["updatedNodes"] == NODES;
    fleet.rollout("all are updated", SOON, updated).await?;
    let unavailable = Rule::new(Action::Status(503, None)).body("slots");
    proxy.set_rules(vec![unavailable.verbs(&["patch"]).resources(&["lynqhubs"])]);
    for _ in 0..50 {
        let hub = fleet.get("LynqHub", "tenants").await?;
        let rollout = &fleet.get("LynqForm", "web").await?["status"]["rollout"];
        let slots = &hub["status"]["rollout"]["slots"];
        ensure!(
            rollout["phase"] == "InProgress" || *slots == json!([]),
            "{rollout}, {slots}"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    proxy.heal();
    fleet.complete(NODES, SOON).await?;
    tokio::time::sleep(late).await;
    let after = [told(all[0]).await?, told(all[1]).await?];
    ensure!(
        after == before.map(|times| times + 1),
        "{before:?}, {after:?}"
    );
    Ok(())
}
