//! Planted bugs: what the proxy does to an operator's requests makes it one that forgot a rule. Each scene is played
//! twice, with the bug and without: the auditor must condemn the first and pass the second.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::DynamicObject;
use lynqgate_plants::Plant;
use serde_json::{Value, json};

use crate::cluster::wait;
use crate::intruders::two_leaders;
use crate::proxy::rules::{Action, Rule, Target};
use crate::stage::{Content, Stage};
use crate::tenants::SOON;

/// Plays the scene; `planted` is the bug.
pub async fn play(plant: Plant, stage: &Arc<Stage>, planted: bool) -> Result<()> {
    match plant {
        Plant::LeaderWithoutFence => leader_without_fence(stage, planted).await,
        Plant::ReleaseWithoutVersion => release_without_version(stage, planted).await,
        Plant::LostReplyIsFailure => lost_reply_is_failure(stage, planted).await,
        Plant::DeleteOnEmptyRows => delete_on_empty_rows(stage, planted).await,
        other => bail!("{other} has no scene"),
    }
}

/// Rows of a scene, and the window.
pub const NODES: usize = 12;
const WINDOW: usize = 3;

/// The marker that only a release patch has.
const RELEASE: &str = "lynq.sh/release\"";

fn content(version: &str, delay: u32, paused: bool) -> Content {
    Content {
        version: version.to_owned(),
        delay,
        max_skew: json!(WINDOW),
        paused,
        ..Content::first()
    }
}

async fn apply(stage: &Stage, content: &Content) -> Result<()> {
    stage.fleet.apply(&stage.form(content)).await?;
    Ok(())
}

async fn complete(stage: &Stage) -> Result<()> {
    stage.fleet.complete(NODES, SOON).await?;
    Ok(())
}

async fn all_held(stage: &Stage, nodes: usize) -> Result<()> {
    let held = |rollout: &Value| rollout["heldNodes"] == nodes;
    stage.fleet.rollout("all are held", SOON, held).await?;
    Ok(())
}

fn without_version(of: &'static str) -> Action {
    Action::Rewrite(Arc::new(move |_: &Target, body: &mut Value| {
        let is_it = !body.pointer(of).unwrap_or(&Value::Null).is_null();
        let metadata = body["metadata"].as_object_mut();
        is_it && metadata.is_some_and(|m| m.remove("resourceVersion").is_some())
    }))
}

fn ledger_writes(action: Action) -> Rule {
    Rule::new(action)
        .verbs(&["patch"])
        .resources(&["lynqhubs"])
        .subresource("status")
        .body("\"slots\"")
}

fn releases(action: Action) -> Rule {
    Rule::new(action)
        .verbs(&["patch"])
        .resources(&["lynqnodes"])
        .body(RELEASE)
}

/// Two leaders see different nodes that are not ready, so they want different ones first; only the ledger's
/// compare-and-swap tells the slower one.
async fn leader_without_fence(stage: &Arc<Stage>, planted: bool) -> Result<()> {
    let [first, second] = &stage.replicas[..] else {
        bail!("two replicas")
    };
    // Whoever leads now, the first does afterwards: the second is shown another lease.
    second.kill()?;
    wait::until("the first replica leads", SOON, async || {
        let (holder, id) = (stage.holder().await, first.operator.process.id());
        let leads = id.is_some_and(|id| holder.ends_with(&format!("_{id}")));
        ensure!(leads, "{holder:?} leads");
        Ok(())
    })
    .await?;
    let ledger = ledger_writes(without_version("/status/rollout"));
    let mut rules = two_leaders();
    if planted {
        rules.push(ledger.clone());
        first.proxy.set_rules(vec![ledger]);
    }
    second.proxy.set_rules(rules);
    let leads = || second.operator.process.log_contains("leading");
    wait::until("the second leads, too", SOON, async || {
        ensure!(leads(), "not yet");
        Ok(())
    })
    .await?;
    let mut held = content("2", 15, true);
    apply(stage, &held).await?;
    all_held(stage, NODES).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    // Nor does it look at nodes whose objects change, and learn of them by what it writes.
    for resource in ["lynqnodes", "deployments"] {
        second.proxy.silence(resource);
    }
    // Neither learns of the other's slots but by its own writes.
    for replica in [first, second] {
        replica.proxy.silence("lynqhubs");
    }
    for row in NODES - WINDOW..NODES {
        unready(stage, row).await?;
    }
    // The first sees it at once; the second does not, however long one waits.
    tokio::time::sleep(Duration::from_secs(3)).await;
    held.paused = false;
    apply(stage, &held).await?;
    tokio::time::sleep(Duration::from_secs(10)).await;
    Ok(())
}

/// Its pods are not ready any more, and KWOK leaves them so.
async fn unready(stage: &Stage, row: usize) -> Result<()> {
    let pods = stage.fleet.api("Pod");
    let of_row = ListParams::default().labels(&format!("app=t{row}"));
    for pod in pods.list(&of_row).await? {
        let mut pod = serde_json::to_value(pod)?;
        let conditions = pod["status"]["conditions"]
            .as_array_mut()
            .context("conditions")?;
        for condition in conditions.iter_mut().filter(|c| c["type"] == "Ready") {
            condition["status"] = json!("False");
        }
        let name = pod["metadata"]["name"].as_str().context("name")?.to_owned();
        let patch = Patch::Merge(json!({"status": {"conditions": pod["status"]["conditions"]}}));
        let _: DynamicObject = pods
            .patch_status(&name, &PatchParams::default(), &patch)
            .await?;
    }
    Ok(())
}

/// A release comes half a minute late, when the same content is held a second time, and the form is paused. Without the
/// resourceVersion that it was decided on it does no harm: the gate compares the marker with the stored object.
async fn release_without_version(stage: &Arc<Stage>, planted: bool) -> Result<()> {
    let late = Duration::from_secs(40);
    let started = tokio::time::Instant::now();
    for replica in &stage.replicas {
        let mut rules = vec![releases(Action::Delay(late)).times(1)];
        if planted {
            // A rule acts alone: the late request is rewritten by the proxy of the request itself.
            rules[0].action = Action::DelayAndRewrite(
                late,
                Arc::new(|_, body| {
                    body["metadata"]
                        .as_object_mut()
                        .is_some_and(|m| m.remove("resourceVersion").is_some())
                }),
            );
        }
        replica.proxy.set_rules(rules);
    }
    apply(stage, &content("2", 0, false)).await?;
    complete(stage).await?;
    apply(stage, &content("3", 0, false)).await?;
    complete(stage).await?;
    apply(stage, &content("2", 0, true)).await?;
    all_held(stage, NODES).await?;
    tokio::time::sleep_until(started + late + Duration::from_secs(5)).await;
    Ok(())
}

/// The first releases happen but seem not to have, their nodes look as before, and other nodes come first by now.
async fn lost_reply_is_failure(stage: &Arc<Stage>, planted: bool) -> Result<()> {
    let given_up = Action::Rewrite(Arc::new(|_: &Target, body: &mut Value| {
        let slots = body["status"]["rollout"]["slots"].as_array_mut();
        let is_lost = |slot: &Value| {
            let name = slot["node"].as_str().unwrap_or_default();
            ["t0-web", "t1-web", "t2-web"].contains(&name)
        };
        slots.is_some_and(|slots| {
            let before = slots.len();
            slots.retain(|slot| !is_lost(slot));
            slots.len() < before
        })
    }));
    apply(stage, &content("2", 20, true)).await?;
    all_held(stage, NODES).await?;
    // It learns nothing of its nodes by its own reads and writes either.
    let unread = Rule::new(Action::Status(500, None))
        .verbs(&["get"])
        .resources(&["lynqnodes"]);
    let unwritten = Rule::new(Action::Status(500, None))
        .verbs(&["patch"])
        .resources(&["lynqnodes"])
        .subresource("status");
    let blind = vec![unread, unwritten];
    for replica in &stage.replicas {
        let lost = vec![releases(Action::LoseReply)];
        replica.proxy.set_rules([lost, blind.clone()].concat());
        replica.proxy.silence("lynqnodes");
    }
    apply(stage, &content("2", 20, false)).await?;
    wait::until("the first releases have happened", SOON, async || {
        for row in 0..WINDOW {
            let node = format!("t{row}-web");
            let node = stage.fleet.get("LynqNode", &node).await?;
            let hashes = &node["metadata"]["annotations"];
            let live = hashes["lynq.sh/live-hash"] == hashes["lynq.sh/desired-hash"];
            ensure!(live, "t{row}-web is held");
        }
        Ok(())
    })
    .await?;
    for replica in &stage.replicas {
        let mut rules = blind.clone();
        if planted {
            rules.push(ledger_writes(given_up.clone()));
        }
        replica.proxy.set_rules(rules);
    }
    let rows =
        (0..WINDOW).map(|i| format!("('a{i}', '1', 'https://a{i}.example.com/', 'pro', NULL)"));
    let rows = rows.collect::<Vec<_>>().join(", ");
    stage
        .fleet
        .database
        .execute(&format!("INSERT INTO tenants VALUES {rows}"))
        .await?;
    tokio::time::sleep(Duration::from_secs(15)).await;
    Ok(())
}

/// The operator is shown a hub whose guard lets everything go.
async fn delete_on_empty_rows(stage: &Arc<Stage>, planted: bool) -> Result<()> {
    if planted {
        for replica in &stage.replicas {
            replica.proxy.show(Arc::new(|resource, object| {
                if resource == "lynqhubs" && object["spec"].is_object() {
                    object["spec"]["guard"] = json!({"maxDeletions": "100%"});
                }
            }));
            replica.proxy.cut_watches();
            replica.kill()?;
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    stage.fleet.database.execute("DELETE FROM tenants").await?;
    if planted {
        let gone = async || {
            let nodes = stage.fleet.list("LynqNode").await?;
            ensure!(nodes.is_empty(), "{} nodes", nodes.len());
            Ok(())
        };
        return wait::until("every node is deleted", SOON, gone).await;
    }
    stage
        .fleet
        .hub_condition("DeletionsHeld", "True", "")
        .await?;
    Ok(())
}
