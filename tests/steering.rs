//! What users may set of a rollout, each seen to its end on the real control plane.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Options, wait};
use crate::operator::{self, Operator};
use crate::policy;
use crate::proxy::Proxy;
use crate::proxy::rules::{Action, Rule};
use crate::tenants::{Fleet, SOON, condition};
use crate::witness::Witness;

/// Deployments in one form, with this policy.
fn form(fleet: &Fleet, image: &str, rollout: &Value) -> Value {
    let mut form = fleet.form(image, json!(2), 0);
    for (field, value) in rollout.as_object().expect("an object") {
        form["spec"]["rollout"][field] = value.clone();
    }
    form
}

async fn fleet(cluster: &Cluster, rows: usize, rollout: &Value) -> Result<Fleet> {
    let fleet = Fleet::new(cluster, "steering", rows).await?;
    fleet.apply(&form(&fleet, "web:1", rollout)).await?;
    fleet.complete(rows, SOON).await?;
    Ok(fleet)
}

/// Resources that change their places are no other content: neither the gate nor the fence has anything against it, and
/// what else changes with them reaches the nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resources_may_change_their_places() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "places", 3).await?;
    let map = |id: &str| {
        json!({
            "id": id, "nameTemplate": format!("{{{{ .uid }}}}-{id}"),
            "spec": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"x": "y"}},
        })
    };
    let form = |maps: [&str; 2], when: &str| {
        json!({
            "apiVersion": "operator.lynq.sh/v1", "kind": "LynqForm",
            "metadata": {"name": "web", "namespace": fleet.namespace},
            "spec": {
                "hubId": "tenants", "configMaps": maps.map(map),
                "rollout": {"maxSkew": 1, "order": [{"name": "first", "when": when}]},
            },
        })
    };
    fleet
        .apply(&form(["a", "b"], "{{ eq .uid \"t0\" }}"))
        .await?;
    fleet.complete(3, SOON).await?;
    let maps = async || -> Result<Vec<Value>> {
        let maps = fleet.list("ConfigMap").await?.into_iter();
        Ok(maps
            .map(|map| map["metadata"]["resourceVersion"].clone())
            .collect())
    };
    let before = maps().await?;
    fleet
        .apply(&form(["b", "a"], "{{ eq .uid \"t1\" }}"))
        .await?;
    fleet.complete(3, SOON).await?;
    let group = async |node: &str| -> Result<Value> {
        let node = fleet.get("LynqNode", node).await?;
        Ok(node["metadata"]["annotations"]["lynq.sh/rollout-group"].clone())
    };
    ensure!(group("t1-web").await? == "0", "t1 is in no group");
    ensure!(group("t0-web").await?.is_null(), "t0 is still in the group");
    ensure!(maps().await? == before, "an object was written");
    fleet.retire().await
}

/// Also where only releases count: those that are under way are found on the nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_ledger_lets_no_more_nodes_go() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let released = json!({"skewCounts": "Released"});
    let fleet = fleet(cluster, 6, &released).await?;
    let witness = Witness::start(cluster.admin().await?, &fleet.namespace).await?;
    fleet
        .apply(&form(&fleet, "web:2-broken", &released))
        .await?;
    let two = |rollout: &Value| rollout["updatingNodes"] == 2 && rollout["slots"] == 2;
    fleet.rollout("two are broken", SOON, two).await?;
    fleet.lose_ledger().await?;
    wait::until("the ledger is there again", SOON, async || {
        let hub = fleet.get("LynqHub", "tenants").await?;
        let slots = hub["status"]["rollout"]["slots"].as_array().map(Vec::len);
        ensure!(slots == Some(2), "{}", hub["status"]);
        Ok(())
    })
    .await?;
    fleet.apply(&form(&fleet, "web:3", &released)).await?;
    fleet.complete(6, 2 * SOON).await?;
    let seen = witness.end();
    ensure!(seen.peak <= 2, "{} at once", seen.peak);
    fleet.retire().await
}

/// Who broke after it was rolled out has no slot that could be lost, and a correction reaches no more of them at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_ledger_makes_no_slots_for_what_broke_since() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "crowd", 6).await?;
    let form = |image: &str| {
        let mut form = form(&fleet, image, &json!({}));
        form["spec"]["configMaps"] = json!([{
            "id": "map", "nameTemplate": "{{ .uid }}-map",
            "spec": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"plan": "ours"}},
        }]);
        form
    };
    fleet.apply(&form("web:1")).await?;
    fleet.complete(6, SOON).await?;
    for i in 0..5 {
        let theirs = json!({"data": {"plan": "theirs"}});
        let name = format!("t{i}-map");
        fleet.merge("ConfigMap", &name, &theirs).await?;
    }
    let form_status =
        async |what: &str, good: &dyn Fn(&Value) -> bool| fleet.rollout(what, SOON, good).await;
    wait::until("five are not ready", SOON, async || {
        let form = fleet.get("LynqForm", "web").await?;
        ensure!(form["status"]["readyNodes"] == 1, "{}", form["status"]);
        Ok(())
    })
    .await?;
    let witness = Witness::start(cluster.admin().await?, &fleet.namespace).await?;
    fleet.lose_ledger().await?;
    fleet.apply(&form("web:2-broken")).await?;
    form_status("two are broken", &|r| {
        r["updatedNodes"] == 2 && r["slots"] == 2
    })
    .await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    form_status("and no more", &|r| {
        r["updatedNodes"] == 2 && r["heldNodes"] == 4
    })
    .await?;
    let seen = witness.end();
    ensure!(seen.peak <= 2, "{} at once", seen.peak);
    fleet.retire().await
}

/// While nodes are watched for a while, a lost ledger keeps the slots of those, and makes none for others that blinked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_ledger_keeps_who_is_watched_and_nobody_else() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "watched", 6).await?;
    let form = |image: &str, seconds: u32| {
        let mut form = form(&fleet, image, &json!({"minReadySeconds": seconds}));
        form["spec"]["configMaps"] = json!([{
            "id": "map", "nameTemplate": "{{ .uid }}-map",
            "spec": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"plan": "ours"}},
        }]);
        form
    };
    let ready = async |wanted: i64| {
        wait::until(&format!("{wanted} are ready"), SOON, async || {
            let form = fleet.get("LynqForm", "web").await?;
            ensure!(form["status"]["readyNodes"] == wanted, "{}", form["status"]);
            Ok(())
        })
        .await
    };
    let set = async |nodes: &[usize], plan: &str| -> Result<()> {
        for i in nodes {
            let name = format!("t{i}-map");
            let map = json!({"data": {"plan": plan}});
            fleet.merge("ConfigMap", &name, &map).await?;
        }
        Ok(())
    };
    let slots = async || -> Result<Vec<String>> {
        let hub = fleet.get("LynqHub", "tenants").await?;
        let slots = hub["status"]["rollout"]["slots"].as_array().cloned();
        let slots = slots.with_context(|| hub["status"].to_string())?;
        let name = |slot: &Value| slot["node"].as_str().unwrap_or_default().to_owned();
        Ok(slots.iter().map(name).collect())
    };
    fleet.apply(&form("web:1", 2)).await?;
    fleet.complete(6, 2 * SOON).await?;
    // They blink within the time, which is longer by now.
    fleet.apply(&form("web:1", 30)).await?;
    fleet.complete(6, SOON).await?;
    set(&[0, 1, 2, 3, 4, 5], "theirs").await?;
    ready(0).await?;
    set(&[0, 1, 2, 3, 4, 5], "ours").await?;
    ready(6).await?;
    fleet.lose_ledger().await?;
    wait::until("the ledger is there again", SOON, async || {
        ensure!(slots().await?.is_empty(), "{:?}", slots().await?);
        Ok(())
    })
    .await?;

    fleet.apply(&form("web:2", 600)).await?;
    let two = |rollout: &Value| rollout["readyUpdatedNodes"] == 2 && rollout["heldNodes"] == 4;
    fleet.rollout("two are watched", SOON, two).await?;
    let watched = slots().await?;
    let number = |name: &String| name.trim_matches(|c: char| !c.is_numeric()).parse().ok();
    set(&Vec::from_iter(watched.iter().filter_map(number)), "theirs").await?;
    ready(4).await?;
    fleet.lose_ledger().await?;
    wait::until("the ledger is there again", SOON, async || {
        ensure!(slots().await? == watched, "{:?}", slots().await?);
        Ok(())
    })
    .await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let held = |rollout: &Value| rollout["updatedNodes"] == 2 && rollout["heldNodes"] == 4;
    fleet.rollout("nobody else goes", SOON, held).await?;
    fleet.retire().await
}

/// The next leader knows that something is missing, also while it cannot read the rows, and does not know what.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_could_not_be_written_is_not_forgotten() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let operator = Operator::start(&cluster, "operator", &[]).await?;
    let fleet = fleet(&cluster, 2, &json!({})).await?;
    let finalizers = |all: Value| json!({"metadata": {"finalizers": all}});
    let kept = json!(["lynqnode.operator.lynq.sh/finalizer", "example.com/keep"]);
    fleet.merge("LynqNode", "t1-web", &finalizers(kept)).await?;
    let delete = kube::api::DeleteParams::default();
    fleet.api("LynqNode").delete("t1-web", &delete).await?;
    let missing = |rollout: &Value| rollout["unwrittenNodes"] == 1;
    fleet.rollout("one is missing", SOON, missing).await?;
    let going = async || {
        let node = fleet.get("LynqNode", "t1-web").await?;
        let ready = condition(&node, "Ready").context("Ready")?;
        let told = (&ready["reason"], &node["status"]["readyResources"]);
        ensure!(told == (&json!("Deleting"), &json!(0)), "{node}");
        Ok(())
    };
    wait::until("the node says that it is going", SOON, going).await?;

    operator.process.kill()?;
    let rename = |from: &str, to: &str| format!("RENAME TABLE {from} TO {to}");
    fleet.database.execute(&rename("tenants", "away")).await?;
    operator.process.start()?;
    operator.ready().await?;
    for _ in 0..50 {
        let form = fleet.get("LynqForm", "web").await?;
        let complete = condition(&form, "RolloutComplete").context("RolloutComplete")?;
        let rollout = &form["status"]["rollout"];
        ensure!(complete["status"] == "False" && missing(rollout), "{form}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    fleet.database.execute(&rename("away", "tenants")).await?;
    fleet
        .merge("LynqNode", "t1-web", &finalizers(json!(null)))
        .await?;
    fleet.complete(2, 2 * SOON).await?;

    // Nor is what somebody deletes while the rows cannot be read, with or without a new leader.
    fleet.database.execute(&rename("tenants", "away")).await?;
    fleet.api("LynqNode").delete("t1-web", &delete).await?;
    let missing = |rollout: &Value| rollout["unwrittenNodes"] == 1;
    let told = |rollout: &Value| {
        let said = rollout["message"].as_str().unwrap_or_default();
        rollout["phase"] == "InProgress"
            && said.starts_with("1/1 updated and ready; not created yet: t1-web;")
    };
    fleet.rollout("one is deleted", SOON, told).await?;
    operator.process.kill()?;
    operator.process.start()?;
    operator.ready().await?;
    for _ in 0..50 {
        let form = fleet.get("LynqForm", "web").await?;
        let rollout = &form["status"]["rollout"];
        ensure!(
            missing(rollout) && rollout["phase"] == "InProgress",
            "{form}"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    fleet.database.execute(&rename("away", "tenants")).await?;
    fleet.complete(2, 2 * SOON).await?;

    // What is held was made of other columns than the hub maps now.
    let held = |paused: bool| form(&fleet, "web:2", &json!({"paused": paused}));
    fleet.apply(&held(true)).await?;
    let waits = |rollout: &Value| rollout["heldNodes"] == 2;
    fleet.rollout("both are held", SOON, waits).await?;
    fleet.database.execute(&rename("tenants", "away")).await?;
    let mut hub = fleet.hub();
    hub["spec"]["extraValueMappings"]["more"] = json!("id");
    fleet.apply(&hub).await?;
    operator.process.kill()?;
    operator.process.start()?;
    operator.ready().await?;
    fleet.apply(&held(false)).await?;
    for _ in 0..50 {
        let form = fleet.get("LynqForm", "web").await?;
        ensure!(waits(&form["status"]["rollout"]), "{form}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let held = "have not reached every node yet";
    let told = policy::explain(&cluster, &fleet, &["node", "t0-web"]).await?;
    ensure!(
        told.contains("NotRendered") && told.contains(held),
        "{told}"
    );
    fleet.database.execute(&rename("away", "tenants")).await?;
    fleet.complete(2, 2 * SOON).await?;

    // Where only the policy has changed since, the newest content is written; also where a row is skipped from then on.
    let policy = |width: u32, paused: bool| {
        form(
            &fleet,
            "web:3",
            &json!({"maxSkew": width, "paused": paused}),
        )
    };
    fleet.apply(&policy(1, true)).await?;
    fleet.rollout("both are held again", SOON, waits).await?;
    let edited = fleet.apply(&policy(2, true)).await?;
    let generation = &edited["metadata"]["generation"];
    let synced = |rollout: &Value| rollout["targetGeneration"] == *generation;
    fleet.rollout("the policy is known", SOON, synced).await?;
    let twice = "INSERT INTO tenants SELECT * FROM tenants WHERE id = 't1'";
    fleet.database.execute(twice).await?;
    let said = "Row \"t1\": 2 active rows have this uid (case and surrounding white space aside); leave one of them active";
    fleet.event("tenants", "RowsSkipped", said).await?;
    operator.process.kill()?;
    operator.process.start()?;
    operator.ready().await?;
    for _ in 0..40 {
        let form = fleet.get("LynqForm", "web").await?;
        let unwritten = &form["status"]["rollout"]["unwrittenNodes"];
        ensure!(unwritten.is_null() || *unwritten == 0, "{form}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    fleet.apply(&policy(2, false)).await?;
    fleet.complete(2, 2 * SOON).await?;
    Ok(())
}

/// An order holds also for a change that comes with the rows, whose nodes are written one after the other; and a condition
/// that fails stops everybody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_canaries_go_first_whatever_changes() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let made = "UPDATE tenants SET image = 'web:1', plan = IF(id = 't9', 'canary', 'pro')";
    let fleet = Fleet::new_with(cluster, "canaries", 40, made).await?;
    let ordered = |when: &str| {
        let order = json!([{"name": "canaries", "when": when}]);
        form(
            &fleet,
            "{{ .image }}",
            &json!({"maxSkew": 10, "order": order}),
        )
    };
    fleet.apply(&ordered("{{ eq .plan \"canary\" }}")).await?;
    fleet.complete(40, 2 * SOON).await?;
    let broken = "UPDATE tenants SET image = 'web:2-broken'";
    fleet.database.execute(broken).await?;
    let one = |r: &Value| r["updatedNodes"] == 1 && r["heldNodes"] == 39;
    fleet.rollout("the canary is broken", SOON, one).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    fleet.rollout("and nobody else", SOON, one).await?;
    let canary = fleet.get("Deployment", "t9-app").await?;
    ensure!(canary["metadata"]["generation"] == 2, "{canary}");

    let good = "UPDATE tenants SET image = 'web:3'";
    fleet.database.execute(good).await?;
    fleet.complete(40, 2 * SOON).await?;
    fleet.retire().await
}

/// The tenants are not gone for longer than it takes; also in the middle of a change that breaks what it reaches.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_form_that_moves_to_another_hub_takes_its_nodes_along() -> Result<()> {
    let (cluster, operator) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "moving", 3).await?;
    let mut other = fleet.hub();
    other["metadata"]["name"] = json!("other");
    let mut hubs = [fleet.hub(), other];
    for hub in &mut hubs {
        // Nothing here may wait for that.
        hub["spec"]["source"]["syncInterval"] = json!("10m");
        fleet.apply(hub).await?;
    }
    fleet.apply(&form(&fleet, "web:1", &json!({}))).await?;
    fleet.complete(3, SOON).await?;
    fleet
        .apply(&form(&fleet, "web:2-broken", &json!({"maxSkew": 1})))
        .await?;
    let broken = |r: &Value| r["updatingNodes"] == 1 && r["heldNodes"] == 2;
    fleet.rollout("one is broken", SOON, broken).await?;
    let mut form = form(&fleet, "web:3", &json!({"maxSkew": 1}));
    let delete = kube::api::DeleteParams::default();
    fleet.api("LynqForm").delete("web", &delete).await?;
    form["spec"]["hubId"] = json!("other");
    wait::until("the form is made anew", SOON, async || {
        fleet.apply(&form).await.map(drop)
    })
    .await?;
    wait::until("its nodes are the other hub's", SOON, async || {
        let nodes = fleet.list("LynqNode").await?;
        let of_other = |node: &Value| node["spec"]["hubId"] == "other";
        ensure!(nodes.len() == 3 && nodes.iter().all(of_other), "{nodes:?}");
        Ok(())
    })
    .await?;
    fleet.complete(3, SOON).await?;
    // The one hub's word that it waits for nobody any more is none on the other's.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let metrics = operator.metrics().await?;
    let of_form = format!("{{namespace=\"{}\",form=\"web\"", fleet.namespace);
    for name in ["lynqgate_released_total", "lynqgate_rollout_window_nodes"] {
        let told = metrics.contains(&format!("{name}{of_form}"));
        ensure!(told, "{name} of the form is gone");
    }
    fleet.retire().await
}

/// Who is watched fills the window, and the rollout is complete only after the last one was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_watched_for_a_while() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let soak = json!({"minReadySeconds": 4});
    let fleet = fleet(cluster, 4, &json!({})).await?;
    let witness = Witness::start(cluster.admin().await?, &fleet.namespace).await?;
    fleet.apply(&form(&fleet, "web:2", &soak)).await?;
    wait::until("the last two are watched", SOON, async || {
        let form = fleet.get("LynqForm", "web").await?;
        let rollout = &form["status"]["rollout"];
        let said = "4/4 updated and ready; watched for rollout.minReadySeconds: ";
        let message = rollout["message"].as_str().unwrap_or_default();
        let watched = message.strip_prefix(said).unwrap_or_default();
        ensure!(
            watched.split(", ").count() == 2 && rollout["phase"] == "InProgress",
            "{rollout}"
        );
        let complete = condition(&form, "RolloutComplete").context("RolloutComplete")?;
        ensure!(complete["status"] == "False", "{complete}");
        Ok(())
    })
    .await?;
    fleet.complete(4, SOON).await?;
    let seen = witness.end();
    ensure!(seen.peak <= 2, "{} at once", seen.peak);
    let took = seen.duration();
    ensure!(
        took >= Duration::from_secs(4),
        "the second two were not kept waiting: {took:?}"
    );
    fleet.retire().await
}

/// New rows go at once, changes do not; and what has failed may be forgiven.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_nodes_may_go_at_once_and_failures_be_forgiven() -> Result<()> {
    let (cluster, operator) = operator::shared().await?;
    let immediate = json!({"creation": "Immediate"});
    let fleet = fleet(cluster, 4, &immediate).await?;
    let breaks = "UPDATE tenants SET image = IF(id = 't0', 'web:2-broken', 'web:2')";
    fleet.database.execute(breaks).await?;
    fleet
        .apply(&form(&fleet, "{{ .image }}", &immediate))
        .await?;
    let failed = |rollout: &Value| rollout["phase"] == "Failed" && rollout["failedNodes"] == 1;
    let halted = fleet.rollout("one has failed", 2 * SOON, failed).await?;
    ensure!(halted["updatingNodes"] == 1, "{halted}");
    fleet.insert(4..9).await?;
    fleet
        .database
        .execute("UPDATE tenants SET image = 'web:2' WHERE image IS NULL")
        .await?;
    wait::until("the new ones are there", SOON, async || {
        let deployments = fleet.list("Deployment").await?;
        ensure!(deployments.len() == 9, "{}", deployments.len());
        Ok(())
    })
    .await?;
    let metrics = operator.metrics().await?;
    let ungated = format!(
        "lynqgate_released_total{{namespace=\"{}\",form=\"web\",cause=\"ungated\"}}",
        fleet.namespace
    );
    ensure!(metrics.contains(&ungated), "no {ungated}");

    let now = jiff::Timestamp::now().to_string();
    let resume = json!({"metadata": {"annotations": {"lynq.sh/resume": now}}});
    fleet.merge("LynqForm", "web", &resume).await?;
    let rest = |rollout: &Value| rollout["heldNodes"] == 0 && rollout["readyUpdatedNodes"] == 8;
    fleet.rollout("the others go on", SOON, rest).await?;
    fleet.retire().await
}

/// Where no window applies, nothing but a pause stops what is on its way; it must do so at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_stops_what_goes_without_a_window() -> Result<()> {
    const ROWS: usize = 300;
    let (cluster, _) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "brake", ROWS).await?;
    let form = |plan: &str, paused: bool| {
        json!({
            "apiVersion": "operator.lynq.sh/v1", "kind": "LynqForm",
            "metadata": {"name": "web", "namespace": fleet.namespace},
            "spec": {"hubId": "tenants", "rollout": {"paused": paused}, "configMaps": [{
                "id": "app", "nameTemplate": "{{ .uid }}-app",
                "spec": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"plan": plan}},
            }]},
        })
    };
    let changed = async || -> Result<usize> {
        let maps = fleet.list("ConfigMap").await?;
        Ok(maps
            .iter()
            .filter(|map| map["data"]["plan"] == "two")
            .count())
    };
    fleet.apply(&form("one", false)).await?;
    fleet.complete(ROWS, SOON).await?;
    fleet.apply(&form("two", false)).await?;
    wait::until("the first are changed", SOON, async || {
        ensure!(changed().await? > 0, "none");
        Ok(())
    })
    .await?;
    fleet.apply(&form("two", true)).await?;
    wait::until("the others wait", SOON, async || {
        let form = fleet.get("LynqForm", "web").await?;
        let held = condition(&form, "Held").cloned().unwrap_or_default();
        ensure!(held["reason"] == "Paused", "{}", form["status"]);
        Ok(())
    })
    .await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let stopped = changed().await?;
    ensure!(stopped < ROWS * 2 / 3, "{stopped} of {ROWS} went on");
    tokio::time::sleep(Duration::from_secs(3)).await;
    let later = changed().await?;
    ensure!(later == stopped, "{later} instead of {stopped}");
    fleet.apply(&form("two", false)).await?;
    fleet.complete(ROWS, SOON).await?;
    fleet.retire().await
}

/// A window that is set while a sync is on its way holds for what the sync has not written yet: here the first one of a
/// process, which reads a Secret between the hub and its nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_window_that_is_set_during_a_sync_holds() -> Result<()> {
    const BEFORE: usize = 2;
    const ROWS: usize = 10;
    let cluster = Cluster::start(Options::default()).await?;
    let (proxy, operator) = Proxy::before_operator(&cluster, &[]).await?;
    let fleet = Fleet::new(&cluster, "during", BEFORE).await?;
    fleet.apply(&fleet.form("web:1", json!(0), 20)).await?;
    fleet.complete(BEFORE, SOON).await?;
    operator.process.kill()?;
    fleet.insert(BEFORE..ROWS).await?;

    let (sender, mut reads) = tokio::sync::mpsc::unbounded_channel();
    proxy.show(Arc::new(move |resource: &str, object: &mut Value| {
        if resource == "secrets" && object["metadata"]["name"] == "database" {
            let _ = sender.send(());
        }
    }));
    let slow = Rule::new(Action::Delay(Duration::from_secs(5)));
    proxy.set_rules(vec![slow.verbs(&["get"]).resources(&["secrets"])]);
    operator.process.start()?;
    let read = tokio::time::timeout(SOON, reads.recv()).await?;
    read.context("the password is read")?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut hub = fleet.hub();
    hub["spec"]["rollout"] = json!({"maxSkew": 1});
    fleet.apply(&hub).await?;
    let before = fleet.list("LynqNode").await?.len();
    ensure!(before == BEFORE, "{before} nodes are there already");
    let live = wait::until("all nodes are there, and one goes", SOON, async || {
        let nodes = fleet.list("LynqNode").await?;
        let annotation = |node: &Value, name: &str| node["metadata"]["annotations"][name].clone();
        let is_live = |node: &&Value| {
            annotation(node, "lynq.sh/live-hash") == annotation(node, "lynq.sh/desired-hash")
        };
        let live = nodes.iter().filter(is_live).count();
        ensure!(
            nodes.len() == ROWS && live > BEFORE,
            "{live} of {}",
            nodes.len()
        );
        Ok(live)
    })
    .await?;
    ensure!(live == BEFORE + 1, "{live} are live");
    Ok(())
}
