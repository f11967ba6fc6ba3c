//! The main path: rows become nodes, nodes become objects, and a change goes through the window.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Result, ensure};
use futures::StreamExt;
use kube::ResourceExt;
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Options, wait};
use crate::operator::{self, Operator};
use crate::tenants::{Fleet, SOON, condition};
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
    let witness = Witness::start(cluster.admin().await?, &fleet.namespace).await?;
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
    let witness = Witness::start(cluster.admin().await?, &fleet.namespace).await?;
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

/// What one object was, at its revision.
struct Told {
    revision: u64,
    name: String,
    /// Of a form: complete; of a node: held.
    is: bool,
}

/// Everything that becomes of the kind's objects from now on.
async fn follow(fleet: &Fleet, kind: &str, is: fn(&Value) -> bool) -> Arc<Mutex<Vec<Told>>> {
    let told = Arc::new(Mutex::new(vec![]));
    let (store, api) = (told.clone(), fleet.api(kind));
    let (listed, wait) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        let mut listed = Some(listed);
        let mut events = watcher(api, watcher::Config::default()).boxed();
        while let Some(event) = events.next().await {
            match event.expect("the watch") {
                Event::InitApply(object) | Event::Apply(object) => {
                    let revision = object.resource_version().expect("a version");
                    store.lock().expect("the lock").push(Told {
                        revision: revision.parse().expect("a number"),
                        name: object.name_any(),
                        is: is(&serde_json::to_value(object).expect("JSON")),
                    });
                }
                Event::InitDone => drop(listed.take().map(|listed| listed.send(()))),
                Event::Init | Event::Delete(_) => {}
            }
        }
    });
    wait.await.expect("the first list");
    told
}

/// The form has no new generation then that would tell.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_status_says_complete_while_rows_that_changed_wait() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let _operator = Operator::start(&cluster, "operator", &[]).await?;
    let fleet = Fleet::new(&cluster, "rows-change", 8).await?;
    fleet
        .apply(&fleet.form("web:{{ .plan }}", json!(2), 0))
        .await?;
    fleet.complete(8, SOON).await?;
    let is_complete =
        |form: &Value| condition(form, "RolloutComplete").is_some_and(|c| c["status"] == "True");
    let is_held = |node: &Value| {
        let hash = |name: &str| node["metadata"]["annotations"][name].clone();
        hash("lynq.sh/desired-hash") != hash("lynq.sh/live-hash")
    };
    let forms = follow(&fleet, "LynqForm", is_complete).await;
    let nodes = follow(&fleet, "LynqNode", is_held).await;
    for plan in ["free", "team"] {
        let change = format!("UPDATE tenants SET plan = '{plan}'");
        fleet.database.execute(&change).await?;
        wait::until("every node has it", SOON, async || {
            let all = fleet.list("Deployment").await?;
            let image = format!("web:{plan}");
            let has_it = |d: &Value| {
                d["spec"]["template"]["spec"]["containers"][0]["image"] == image.as_str()
            };
            ensure!(all.iter().all(has_it), "not yet");
            Ok(())
        })
        .await?;
        fleet.complete(8, SOON).await?;
    }
    let take = |told: &Mutex<Vec<Told>>| std::mem::take(&mut *told.lock().expect("the lock"));
    let forms = take(&forms).into_iter().map(|told| (told, true));
    let nodes = take(&nodes).into_iter().map(|told| (told, false));
    let mut all: Vec<(Told, bool)> = forms.chain(nodes).collect();
    all.sort_by_key(|(told, _)| told.revision);
    let (mut complete, mut held, mut held_most) = (false, BTreeSet::new(), 0);
    for (told, of_form) in all {
        match (of_form, told.is) {
            (true, is) => complete = is,
            (false, true) => drop(held.insert(told.name)),
            (false, false) => drop(held.remove(&told.name)),
        }
        held_most = held_most.max(held.len());
        ensure!(
            !complete || held.is_empty(),
            "complete at revision {}, while these are held: {held:?}",
            told.revision
        );
    }
    ensure!(held_most > 0, "nothing was held");
    Ok(())
}
