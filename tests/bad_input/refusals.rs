//! What others refuse to the operator's own writes, again and again: one node, one form, one object at a time. Whatever it
//! is, it is told, and nothing else waits for it.

use anyhow::{Result, ensure};
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::bad_input::{config_map, fleet, form};
use crate::cluster::wait;
use crate::obstacles::{
    fail, forbid, forbid_ledger, lift, matching, until_refused, until_status_refused,
};
use crate::operator;
use crate::tenants::{Fleet, SOON, condition};

/// `web` with another value, one at a time.
fn changed(fleet: &Fleet, paused: bool) -> Value {
    let map = config_map("app", "{{ .uid }}-app", "changed");
    let rollout = json!({"maxSkew": 1, "paused": paused});
    form(
        fleet,
        "web",
        &json!({"configMaps": [map], "rollout": rollout}),
    )
}

/// Every write of the object is refused: neither goes it live, nor can its slot be given up by writing to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_is_refused_lets_the_others_go() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = fleet(cluster, 3).await?;
    fleet.apply(&changed(&fleet, true)).await?;
    let all_held = |rollout: &Value| rollout["heldNodes"] == 3;
    fleet.rollout("all wait", SOON, all_held).await?;
    let nodes = matching(&fleet, "operator.lynq.sh", "lynqnodes", "UPDATE");
    let words = "t0 is in its quiet hours";
    forbid(
        cluster,
        &fleet,
        &nodes,
        "object.metadata.name != 't0-web'",
        words,
    )
    .await?;
    let trial = ["label", "lynqnode", "t0-web", "probe=1"];
    until_refused(cluster, &fleet, &trial).await?;

    fleet.apply(&changed(&fleet, false)).await?;
    let many = |rollout: &Value| rollout["readyUpdatedNodes"] == 2;
    fleet
        .rollout("the others are through", 2 * SOON, many)
        .await?;
    let said = "the API server rejected the release of t0-web: ";
    wait::until("it says who is refused, and why", SOON, async || {
        let form = fleet.get("LynqForm", "web").await?;
        let held = condition(&form, "Held").cloned().unwrap_or_default();
        let message = held["message"].as_str().unwrap_or_default();
        ensure!(held["reason"] == "ReleaseRefused", "{held}");
        ensure!(
            message.starts_with(said) && message.contains(words),
            "{held}"
        );
        let node = fleet.get("LynqNode", "t0-web").await?;
        let held = condition(&node, "Held").cloned().unwrap_or_default();
        ensure!(held["reason"] == "ReleaseRefused", "{held}");
        Ok(())
    })
    .await?;

    lift(cluster, &fleet).await?;
    fleet.complete(3, 2 * SOON).await?;
    fleet.retire().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_cannot_be_written_lets_the_others_go() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = fleet(cluster, 3).await?;
    let nodes = matching(&fleet, "operator.lynq.sh", "lynqnodes", "UPDATE");
    fail(cluster, &fleet, &nodes, "object.metadata.name == 't0-web'").await?;
    let trial = ["label", "lynqnode", "t0-web", "probe=1"];
    until_refused(cluster, &fleet, &trial).await?;

    fleet.apply(&changed(&fleet, false)).await?;
    let other = json!({"configMaps": [config_map("other", "{{ .uid }}-other", "x")], "rollout": {"maxSkew": 1}});
    fleet.apply(&form(&fleet, "other", &other)).await?;
    let said = "the newest content is not written to t0-web: if that lasts, see the hub's conditions; 2/3 updated, 0 not ready yet, 0 held";
    wait::until(
        "all but that node has what it should have",
        SOON,
        async || {
            let other = fleet.get("LynqForm", "other").await?;
            ensure!(
                other["status"]["rollout"]["phase"] == "Complete",
                "{}",
                other["status"]
            );
            let web = fleet.get("LynqForm", "web").await?;
            let message = web["status"]["rollout"]["message"]
                .as_str()
                .unwrap_or_default();
            ensure!(message == said, "{message}");
            let hub = fleet.get("LynqHub", "tenants").await?;
            let failed = condition(&hub, "WriteFailed").cloned().unwrap_or_default();
            let message = failed["message"].as_str().unwrap_or_default();
            ensure!(
                failed["status"] == "True" && message.contains("t0-web"),
                "{failed}"
            );
            Ok(())
        },
    )
    .await?;

    lift(cluster, &fleet).await?;
    fleet.complete(3, 2 * SOON).await?;
    fleet.retire().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_that_is_refused_stops_no_release() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = fleet(cluster, 3).await?;
    let other = |value: &str| {
        let map = config_map("other", "{{ .uid }}-other", value);
        form(
            &fleet,
            "other",
            &json!({"configMaps": [map], "rollout": {"maxSkew": 1}}),
        )
    };
    fleet.apply(&other("x")).await?;
    wait::until("it is there", SOON, async || {
        fleet.get("ConfigMap", "t2-other").await
    })
    .await?;
    let statuses = matching(&fleet, "operator.lynq.sh", "lynqforms/status", "UPDATE");
    let words = "no news today";
    forbid(
        cluster,
        &fleet,
        &statuses,
        "object.metadata.name != 'other'",
        words,
    )
    .await?;
    until_status_refused(
        cluster,
        &fleet,
        ["lynqform", "other"],
        "{\"status\":{\"totalNodes\":99}}",
    )
    .await?;

    fleet.apply(&other("y")).await?;
    fleet.apply(&changed(&fleet, false)).await?;
    fleet.complete(3, SOON).await?;
    wait::until("the other form is through as well", SOON, async || {
        for row in 0..3 {
            let map = fleet.get("ConfigMap", &format!("t{row}-other")).await?;
            ensure!(map["data"]["plan"] == "y", "t{row}: {}", map["data"]);
        }
        let events = fleet.events("other").await?;
        let refused =
            |(reason, note): &(String, String)| reason == "StatusRefused" && note.contains(words);
        ensure!(events.iter().any(refused), "{events:?}");
        Ok(())
    })
    .await?;
    lift(cluster, &fleet).await?;
    fleet.retire().await
}

/// Without its ledger nothing of a hub goes live through a window; whoever looks at the hub is told, and can force it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledger_that_cannot_be_written_is_told() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = fleet(cluster, 2).await?;
    let words = "the books are closed";
    forbid_ledger(cluster, &fleet, words).await?;
    fleet.apply(&changed(&fleet, false)).await?;
    wait::until("the hub says so", SOON, async || {
        let events = fleet.events("tenants").await?;
        let told = |(reason, note): &(String, String)| {
            reason == "ReleasesInterrupted"
                && note.starts_with("no slot can be taken")
                && note.contains(words)
        };
        ensure!(events.iter().any(told), "{events:?}");
        Ok(())
    })
    .await?;
    for row in 0..2 {
        let map = fleet.get("ConfigMap", &format!("t{row}-app")).await?;
        ensure!(map["data"]["plan"] != "changed", "t{row} went live");
    }
    let force = json!({"metadata": {"annotations": {"lynq.sh/force-rollout": "true"}}});
    fleet.merge("LynqForm", "web", &force).await?;
    fleet.complete(2, 2 * SOON).await?;
    lift(cluster, &fleet).await?;
    fleet.retire().await
}

/// Not a refusal, but an internal error for each deletion.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_cannot_be_deleted_stops_no_rollout() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = fleet(cluster, 3).await?;
    let old = config_map("old", "{{ .uid }}-old", "x");
    let new = config_map("app", "{{ .uid }}-app", "changed");
    let with = |maps: Value| {
        form(
            &fleet,
            "web",
            &json!({"configMaps": maps, "rollout": {"maxSkew": 1}}),
        )
    };
    fleet.apply(&with(json!([old, new]))).await?;
    fleet.complete(3, SOON).await?;
    wait::until("it is there", SOON, async || {
        fleet.get("ConfigMap", "t2-old").await
    })
    .await?;
    let maps = matching(&fleet, "", "configmaps", "DELETE");
    fail(
        cluster,
        &fleet,
        &maps,
        "oldObject.metadata.name == 't0-old'",
    )
    .await?;
    let trial = ["delete", "configmap", "t0-old"];
    until_refused(cluster, &fleet, &trial).await?;

    fleet.apply(&with(json!([new]))).await?;
    fleet.complete(3, 2 * SOON).await?;
    let said = "ConfigMap t0-old cannot be taken down: Internal error occurred: failed calling webhook \"nobody.example.com\"";
    wait::until("the node says what is left", SOON, async || {
        let node = fleet.get("LynqNode", "t0-web").await?;
        let degraded = condition(&node, "Degraded").cloned().unwrap_or_default();
        let message = degraded["message"].as_str().unwrap_or_default();
        ensure!(
            degraded["reason"] == "DeletionFailed" && message.starts_with(said),
            "{degraded}"
        );
        Ok(())
    })
    .await?;
    lift(cluster, &fleet).await?;
    wait::until("it goes in the end", 2 * SOON, async || {
        ensure!(
            fleet.get("ConfigMap", "t0-old").await.is_err(),
            "it is still there"
        );
        Ok(())
    })
    .await?;
    fleet.retire().await
}

/// A Job that somebody deletes each time before it is done: a resource that is missing is made, but not without end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_deleted_again_and_again_is_made_again_at_pauses() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = fleet(cluster, 1).await?;
    let pods = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "job", "image": "broken"}]}});
    let mut job = json!({
        "id": "job", "nameTemplate": "{{ .uid }}-job", "creationPolicy": "Once",
        "spec": {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": pods}},
    });
    job["labelsTemplate"] = json!({"app": "job"});
    fleet
        .apply(&form(&fleet, "once", &json!({ "jobs": [job] })))
        .await?;
    let said = "LynqNode has 1 failed resources: Job t0-job: it is deleted each time before it has completed, by its ttlSecondsAfterFinished \
                after a failure, or by somebody else; lynqgate runs it again with a backoff of up to 1 minute";
    wait::until("the node says so", SOON, async || {
        let _ = fleet
            .api("Job")
            .delete("t0-job", &DeleteParams::background())
            .await;
        let node = fleet.get("LynqNode", "t0-once").await?;
        let degraded = condition(&node, "Degraded").cloned().unwrap_or_default();
        let message = degraded["message"].as_str().unwrap_or_default();
        ensure!(message.starts_with(said), "{}", node["status"]);
        Ok(())
    })
    .await?;
    fleet.retire().await
}
