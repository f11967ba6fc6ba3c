//! The window under changes that break what they reach, and under changes of its own width.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Options, wait};
use crate::operator::{self, Operator};
use crate::proxy::Proxy;
use crate::proxy::rules::{Action, Rule};
use crate::tenants::{Fleet, SOON, condition};
use crate::witness::Witness;

const LONG: Duration = Duration::from_secs(180);

/// A fleet that is done with its first image. It is made without a window: that is another test's.
async fn fleet(cluster: &Cluster, prefix: &str, nodes: usize) -> Result<Fleet> {
    let fleet = Fleet::new(cluster, prefix, nodes).await?;
    fleet.apply(&fleet.form("web:1", json!(0), 0)).await?;
    fleet.complete(nodes, SOON).await?;
    Ok(fleet)
}

/// The generations of the Deployments: 1 is untouched, and each change of the content is one more.
async fn generations(fleet: &Fleet) -> Result<BTreeMap<String, i64>> {
    let deployments = fleet.list("Deployment").await?;
    let generation = |deployment: &Value| {
        let metadata = &deployment["metadata"];
        let name = metadata["name"].as_str()?.to_owned();
        Some((name, metadata["generation"].as_i64()?))
    };
    let all = deployments.iter().map(generation);
    all.collect::<Option<_>>().context("a Deployment has both")
}

async fn touched(fleet: &Fleet) -> Result<Vec<String>> {
    let generations = generations(fleet).await?.into_iter();
    let touched = generations.filter(|(_, generation)| *generation > 1);
    Ok(touched.map(|(name, _)| name).collect())
}

/// An event on the form says it.
async fn told(fleet: &Fleet, reason: &str, said: &str) -> Result<()> {
    told_of(fleet, "web", reason, said).await
}

async fn told_of(fleet: &Fleet, object: &str, reason: &str, said: &str) -> Result<()> {
    wait::until(&format!("an event {reason}"), SOON, async || {
        let events = fleet.events(object).await?;
        let found = events
            .iter()
            .any(|(word, message)| word == reason && message.contains(said));
        ensure!(found, "no {said:?} in {events:#?}");
        Ok(())
    })
    .await
}

/// What a metric of the rollout says of the fleet's form.
async fn counted(
    operator: &Operator,
    fleet: &Fleet,
    name: &str,
    labels: &str,
    value: usize,
) -> Result<()> {
    let namespace = &fleet.namespace;
    let line = format!(
        "lynqgate_rollout_{name}{{namespace=\"{namespace}\",form=\"web\"{labels}}} {value}"
    );
    wait::until(&line, SOON, async || {
        let metrics = operator.metrics().await?;
        let of_fleet = metrics.lines().filter(|line| line.contains(namespace));
        let told: Vec<&str> = of_fleet.collect();
        ensure!(told.contains(&line.as_str()), "{told:#?}");
        Ok(())
    })
    .await
}

/// Nothing but three `kubectl apply`: a good form, a bad one, the corrected one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_never_ready_change_stops_after_the_window_and_the_corrected_one_heals_it_first()
-> Result<()> {
    let (cluster, operator) = operator::shared().await?;
    let fleet = fleet(cluster, "never", 8).await?;
    let witness = Witness::start(cluster.admin().await?, &fleet.namespace).await?;
    fleet
        .apply(&fleet.form("web:2-broken", json!(3), 0))
        .await?;
    // Up to the deadline of its nodes, a minute later, and past it.
    let rollout = fleet
        .rollout("the rollout has failed", LONG, |rollout| {
            rollout["phase"] == "Failed" && rollout["failedNodes"] == 3
        })
        .await?;
    ensure!(
        rollout["updatedNodes"] == 3 && rollout["heldNodes"] == 5,
        "{rollout}"
    );
    // Those that were written first.
    let broken = touched(&fleet).await?;
    ensure!(broken.len() == 3, "{:?}", generations(&fleet).await?);
    let nodes: Vec<String> = broken.iter().map(|app| app.replace("app", "web")).collect();
    let throttled = "LynqForm 'web': 5 node updates throttled (maxSkew=3, currently updating=3)";
    told_of(&fleet, "tenants", "RolloutThrottled", throttled).await?;
    let form = fleet.get("LynqForm", "web").await?;
    let held = condition(&form, "Held").context("Held")?;
    for message in [&rollout["message"], &held["message"]] {
        let text = message.as_str().unwrap_or_default();
        for said in [
            &format!("not ready in time: {} (", nodes.join(", ")),
            "take its change back (lynqgate undo web): the failed nodes get that first",
        ] {
            ensure!(text.contains(said), "no {said:?} in {text:?}");
        }
    }
    told(&fleet, "WindowFull", "the window of 3 is full").await?;
    told(
        &fleet,
        "RolloutFailed",
        "halted (maxFailures 1): not ready in time: ",
    )
    .await?;
    told(&fleet, "RolloutHalted", "not ready in time: ").await?;
    for (name, value) in [
        ("held_nodes", 5),
        ("in_flight_nodes", 3),
        ("non_ready_nodes", 3),
        ("window_nodes", 3),
        ("forced_nodes", 0),
        ("halts_total", 1),
    ] {
        counted(operator, &fleet, name, "", value).await?;
    }
    let of_reason = ",reason=\"RolloutFailed\"";
    counted(operator, &fleet, "waiting_nodes", of_reason, 5).await?;

    fleet.apply(&fleet.form("web:3", json!(3), 0)).await?;
    fleet.complete(8, LONG).await?;
    told(&fleet, "RolloutComplete", "all 8 nodes").await?;
    counted(operator, &fleet, "held_nodes", "", 0).await?;
    // Three of the bad content, which never settled, and all of the good one.
    counted(operator, &fleet, "hold_seconds_count", "", 3 + 8).await?;
    counted(operator, &fleet, "settle_seconds_count", "", 8).await?;
    let seen = witness.end();
    ensure!(
        seen.peak <= 3,
        "{} Deployments were not rolled out at once",
        seen.peak
    );
    let mut starts = Vec::new();
    for node in fleet.list("LynqNode").await? {
        let metadata = &node["metadata"];
        let start = &metadata["annotations"]["lynq.sh/rollout-update-start-time"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        starts.push((text(start), text(&metadata["name"])));
    }
    starts.sort();
    let mut first: Vec<&str> = starts[..3].iter().map(|(_, name)| name.as_str()).collect();
    first.sort();
    ensure!(first == nodes, "{starts:?}");
    // The bad content reached no other.
    for (name, generation) in generations(&fleet).await? {
        let expected = if broken.contains(&name) { 3 } else { 2 };
        ensure!(
            generation == expected,
            "{name} changed {} times",
            generation - 1
        );
    }
    fleet.retire().await
}

/// Each of them reaches those that the first one broke, and nobody else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_bad_edits_break_no_more_than_one() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = fleet(cluster, "bad-edits", 30).await?;
    let witness = Witness::start(cluster.admin().await?, &fleet.namespace).await?;
    let began = Instant::now();
    let mut broken = Vec::new();
    for edit in 0..3_i64 {
        let image = format!("web:{}-broken", edit + 2);
        fleet.apply(&fleet.form(&image, json!(10), 0)).await?;
        fleet
            .rollout("ten have the edit", SOON, |rollout| {
                rollout["updatedNodes"] == 10 && rollout["updatingNodes"] == 10
            })
            .await?;
        wait::until("it is applied to ten", SOON, async || {
            let generations = generations(&fleet).await?;
            let edited = generations.values().filter(|g| **g == edit + 2).count();
            ensure!(edited == 10, "{generations:?}");
            Ok(())
        })
        .await?;
        let now = touched(&fleet).await?;
        ensure!(now.len() == 10, "edit {edit} broke {now:?}");
        ensure!(edit == 0 || now == broken, "first {broken:?}, then {now:?}");
        broken = now;
    }
    let within = began.elapsed();
    println!("three bad edits in {:.1} s", within.as_secs_f64());
    ensure!(within < Duration::from_secs(60), "{within:?}");
    fleet.apply(&fleet.form("web:9", json!(10), 0)).await?;
    fleet.complete(30, LONG).await?;
    let seen = witness.end();
    ensure!(
        seen.peak == 10,
        "{} Deployments were not rolled out at once",
        seen.peak
    );
    fleet.retire().await
}

/// What a node did while nobody looked, nobody knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_begins_the_watch_of_a_node_anew() -> Result<()> {
    const WATCHED: Duration = Duration::from_secs(8);
    let cluster = Cluster::start(Options::default()).await?;
    let operator = Operator::start(&cluster, "operator", &[]).await?;
    let fleet = fleet(&cluster, "watched", 2).await?;
    let mut form = fleet.form("web:2", json!(1), 0);
    form["spec"]["rollout"]["minReadySeconds"] = json!(WATCHED.as_secs());
    fleet.apply(&form).await?;
    let watched = |rollout: &Value| rollout["readyUpdatedNodes"] == 1 && rollout["heldNodes"] == 1;
    fleet.rollout("the first is watched", SOON, watched).await?;
    operator.process.kill()?;
    // It would be over by now.
    tokio::time::sleep(WATCHED).await;
    let restarted = Instant::now();
    operator.process.start()?;
    operator.ready().await?;
    let both = |rollout: &Value| rollout["heldNodes"] == 0;
    fleet.rollout("the second goes", SOON, both).await?;
    let after = restarted.elapsed();
    ensure!(after >= WATCHED, "{after:?} after the restart");
    fleet.complete(2, SOON).await?;
    Ok(())
}

/// Lowered, raised, taken away and put back, each in the middle of a rollout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_window_that_changes_in_the_middle_holds_and_completes() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    const NODES: usize = 20;
    let fleet = fleet(cluster, "width", NODES).await?;
    let form = |image: &str, width: u32| fleet.form(image, json!(width), 1);
    let updated = async |at_least: i64| {
        let what = format!("{at_least} nodes are updated");
        let enough = |rollout: &Value| rollout["updatedNodes"].as_i64() >= Some(at_least);
        fleet.rollout(&what, SOON, enough).await
    };
    let whole = Witness::start(cluster.admin().await?, &fleet.namespace).await?;
    fleet.apply(&form("web:2", 6)).await?;
    updated(3).await?;
    fleet.apply(&form("web:2", 2)).await?;
    fleet
        .rollout("what is too much is through", SOON, |rollout| {
            rollout["slots"].as_i64() <= Some(2)
        })
        .await?;
    let lowered = Witness::start(cluster.admin().await?, &fleet.namespace).await?;
    let at = updated(0).await?["updatedNodes"].as_i64();
    updated(at.context("updatedNodes")? + 2).await?;
    let peak = lowered.end().peak;
    ensure!(peak <= 2, "{peak} at once after maxSkew was lowered to 2");
    fleet.apply(&form("web:2", 8)).await?;
    fleet.complete(NODES, LONG).await?;
    let seen = whole.end();
    ensure!(
        seen.peak <= 8,
        "{} at once, and maxSkew was 8 at most",
        seen.peak
    );
    ensure!(
        seen.rolled_out == NODES,
        "{} were rolled out",
        seen.rolled_out
    );

    let slow = |width: u32| fleet.form("web:3", json!(width), 5);
    fleet.apply(&slow(2)).await?;
    updated(1).await?;
    fleet.apply(&slow(0)).await?;
    fleet
        .rollout("nobody waits without a window", SOON, |rollout| {
            rollout["heldNodes"] == 0
        })
        .await?;
    wait::until("all have it", SOON, async || {
        let generations = generations(&fleet).await?;
        let changed = generations.values().filter(|g| **g == 3).count();
        ensure!(changed == NODES, "{generations:?}");
        Ok(())
    })
    .await?;
    // Back while all of them are in flight. No more than the window get the next change, be it one of those that are in
    // flight still: it heals what is not ready without waiting for the others.
    let back = Witness::start(cluster.admin().await?, &fleet.namespace).await?;
    fleet.apply(&form("web:3.1", 3)).await?;
    fleet
        .rollout("all are rendered", SOON, |rollout| {
            rollout["unwrittenNodes"] == 0
        })
        .await?;
    fleet.complete(NODES, LONG).await?;
    let seen = back.end();
    ensure!(
        seen.peak > 3 && seen.peak_of_changed <= 3,
        "{} were in flight, and {} of them were changed after maxSkew was put back to 3",
        seen.peak,
        seen.peak_of_changed
    );
    let again = Witness::start(cluster.admin().await?, &fleet.namespace).await?;
    fleet.apply(&form("web:4", 3)).await?;
    updated(1).await?;
    // Taken away and put back, and nobody has gone meanwhile: a pause is more than a window.
    for (width, paused) in [(0, true), (3, true), (3, false)] {
        let mut form = form("web:4", width);
        form["spec"]["rollout"]["paused"] = json!(paused);
        fleet.apply(&form).await?;
        updated(1).await?;
    }
    fleet.complete(NODES, LONG).await?;
    let seen = again.end();
    ensure!(
        seen.peak <= 3,
        "{} at once after maxSkew was put back to 3",
        seen.peak
    );
    ensure!(
        seen.rolled_out == NODES,
        "{} were rolled out",
        seen.rolled_out
    );

    fleet.apply(&form("web:5", 8)).await?;
    // Also at once, when the status still speaks of what was before.
    let until = ["wait", "lynqform/web", "--for=condition=RolloutComplete"];
    let within = ["--timeout=120s", "-n", &fleet.namespace];
    let wait = [until.as_slice(), &within].concat();
    cluster.kubectl(&wait, None).await?.expect_success()?;
    for deployment in fleet.list("Deployment").await? {
        let image = deployment.pointer("/spec/template/spec/containers/0/image");
        ensure!(image == Some(&json!("web:5")), "{deployment}");
    }
    fleet.retire().await
}

/// What somebody on call tries first: to delete what is broken. Nobody else gets the bad change for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_deletes_what_is_broken_breaks_nobody_else() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = fleet(cluster, "deleted", 6).await?;
    fleet
        .apply(&fleet.form("web:2-broken", json!(2), 0))
        .await?;
    let full = |rollout: &Value| rollout["updatedNodes"] == 2 && rollout["heldNodes"] == 4;
    fleet.rollout("the window is full", SOON, full).await?;
    for _ in 0..3 {
        for name in ["t0-web", "t1-web"] {
            let uid = fleet.get("LynqNode", name).await?["metadata"]["uid"].clone();
            let nodes = fleet.api("LynqNode");
            nodes.delete(name, &DeleteParams::background()).await?;
            wait::until("it is made anew and goes", SOON, async || {
                let node = fleet.get("LynqNode", name).await?;
                let hash = |name: &str| node["metadata"]["annotations"][name].clone();
                let is_live = hash("lynq.sh/live-hash") == hash("lynq.sh/desired-hash");
                ensure!(node["metadata"]["uid"] != uid && is_live, "{node}");
                Ok(())
            })
            .await?;
        }
        let mut broken = vec![];
        for deployment in fleet.list("Deployment").await? {
            let image = &deployment["spec"]["template"]["spec"]["containers"][0]["image"];
            if image != "web:1" {
                broken.push(deployment["metadata"]["name"].clone());
            }
        }
        broken.sort_by_key(Value::to_string);
        let nobody_else = broken
            .iter()
            .all(|name| name == "t0-app" || name == "t1-app");
        ensure!(nobody_else, "{broken:?}");
    }
    fleet.apply(&fleet.form("web:3", json!(2), 0)).await?;
    fleet.complete(6, SOON).await?;
    fleet.retire().await
}

/// The tenants of one database shard have a window of their own, beside the form's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_change_breaks_one_tenant_of_each_shard() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let shards = "UPDATE tenants SET plan = CASE WHEN id < 't3' THEN 'a' ELSE 'b' END";
    let fleet = Fleet::new_with(cluster, "shards", 6, shards).await?;
    let form = |image: &str, variable: &str| {
        let mut form = fleet.form(image, json!(6), 0);
        form["spec"]["rollout"]["domains"] = json!([{"variable": variable, "maxSkew": 1}]);
        form
    };
    fleet.apply(&form("web:1", "plan")).await?;
    fleet.complete(6, LONG).await?;
    let witness = Witness::start(cluster.admin().await?, &fleet.namespace).await?;
    fleet.apply(&form("web:2-broken", "plan")).await?;
    let two = |rollout: &Value| rollout["updatedNodes"] == 2 && rollout["heldNodes"] == 4;
    fleet.rollout("one of each shard goes", SOON, two).await?;
    let said = "for nodes with plan \"a\" is full; not ready: t";
    told(&fleet, "DomainFull", said).await?;

    let refused = fleet.apply(&form("web:3", "plam")).await;
    let why = refused.err().map(|error| format!("{error:#}"));
    let why = why.context("a variable that no row has is taken")?;
    for said in [
        "rollout.domains: the row has no plam",
        "did you mean \"plan\"?",
    ] {
        ensure!(why.contains(said), "{why}");
    }
    let broken = touched(&fleet).await?;
    let of_first = broken.iter().filter(|app| app.as_str() < "t3").count();
    ensure!(broken.len() == 2 && of_first == 1, "{broken:?}");

    fleet.apply(&form("web:3", "plan")).await?;
    fleet.complete(6, LONG).await?;
    let peak = witness.end().peak;
    ensure!(peak <= 2, "{peak} Deployments were not rolled out at once");
    fleet.retire().await
}

/// The API server answers one release late. Until then the other slot serves all other nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_reply_to_a_release_keeps_no_other_node_waiting() -> Result<()> {
    const NODES: usize = 4;
    const LATE: Duration = Duration::from_secs(8);
    let cluster = Cluster::start(Options::default()).await?;
    let (proxy, _operator) = Proxy::before_operator(&cluster, &[]).await?;
    let fleet = fleet(&cluster, "late", NODES).await?;
    let late = Rule::new(Action::Delay(LATE)).body("lynq.sh/release");
    let late = late.verbs(&["patch"]).resources(&["lynqnodes"]).times(1);
    proxy.set_rules(vec![late]);
    fleet.apply(&fleet.form("web:2", json!(2), 0)).await?;
    let others = |rollout: &Value| rollout["readyUpdatedNodes"] == NODES - 1;
    fleet.rollout("the others are ready", LATE, others).await?;
    fleet.complete(NODES, SOON).await?;
    Ok(())
}
