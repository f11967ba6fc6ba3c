//! Whose an object is: two nodes that want the same, objects that were there before, and objects that were given away.

use anyhow::{Result, ensure};
use futures::FutureExt;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::cluster::{Cluster, wait};
use crate::hub::{fleet, form, map, until_maps, with};
use crate::operator;
use crate::tenants::{Fleet, SOON};
use crate::words::all;

const CONFLICT: (&str, &str, &str) = ("Conflicted", "True", "ResourceConflict");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_has_one_owner() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    all(vec![
        ("two nodes", two_nodes_of_one_object(cluster).boxed_local()),
        ("nobody's", nobodys(cluster).boxed_local()),
        (
            "another controller's",
            another_controllers(cluster).boxed_local(),
        ),
        (
            "a field",
            a_field_that_somebody_takes(cluster).boxed_local(),
        ),
        (
            "given away",
            given_away_before_the_deletion(cluster).boxed_local(),
        ),
    ])
    .await
}

/// Its fields, without what another write would change.
async fn owner(fleet: &Fleet, name: &str) -> Result<Value> {
    Ok(fleet.get("ConfigMap", name).await?["metadata"]["ownerReferences"][0]["name"].clone())
}

/// The second is Conflicted and writes nothing; it takes over when the first is gone.
async fn two_nodes_of_one_object(cluster: &Cluster) -> Result<()> {
    let fleet = fleet(cluster, 1).await?;
    for policy in ["Stuck", "Force"] {
        let again = with(map("again", "-app"), "nameTemplate", "t0-app");
        let again = with(again, "conflictPolicy", policy);
        let name = policy.to_lowercase();
        fleet.apply(&form(&fleet, &name, &[again])).await?;
        let said = "ConfigMap t0-app: it belongs to lynqnode {namespace}/t0-web; give one of them another name";
        fleet
            .says(("LynqNode", &format!("t0-{name}")), CONFLICT, said)
            .await?;
        let event = format!("Resource \"again\", {said}");
        fleet
            .event(&format!("t0-{name}"), "ResourceConflict", &event)
            .await?;
    }
    let before = fleet.versions(&["ConfigMap", "LynqNode"]).await?;
    // A while in which a ping-pong would show: three syncs, and retries after 2 s.
    for row in 1..3 {
        fleet.insert(row..row + 1).await?;
        fleet.complete(row + 1, SOON).await?;
    }
    ensure!(
        before.is_subset(&fleet.versions(&["ConfigMap", "LynqNode"]).await?),
        "nobody writes"
    );
    ensure!(
        owner(&fleet, "t0-app").await? == "t0-web",
        "the first keeps it"
    );
    fleet.retire().await
}

async fn nobodys(cluster: &Cluster) -> Result<()> {
    let fleet = fleet(cluster, 1).await?;
    let existing = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "t0-old"}, "data": {"plan": "theirs", "more": "too"},
    });
    fleet.apply(&existing).await?;
    let before = fleet.versions(&["ConfigMap"]).await?;
    fleet
        .apply(&form(&fleet, "old", &[map("old", "-old")]))
        .await?;
    let node = ("LynqNode", "t0-old");
    let said = "ConfigMap t0-old: it was there before and is nobody's; conflictPolicy: Force takes it over";
    fleet.says(node, CONFLICT, said).await?;
    let event = format!("Resource \"old\", {said}");
    fleet.event("t0-old", "ResourceConflict", &event).await?;
    ensure!(
        fleet.versions(&["ConfigMap"]).await? == before,
        "it is left alone"
    );
    // Removed from the form, it is left alone as well.
    fleet
        .apply(&form(&fleet, "old", &[map("other", "-other")]))
        .await?;
    until_maps(&fleet, &[("t0-app", "pro"), ("t0-other", "pro")]).await?;
    ensure!(
        before.is_subset(&fleet.versions(&["ConfigMap"]).await?),
        "it was never ours to delete"
    );

    let force = with(map("old", "-old"), "conflictPolicy", "Force");
    fleet.apply(&form(&fleet, "old", &[force])).await?;
    until_maps(&fleet, &[("t0-app", "pro"), ("t0-old", "pro")]).await?;
    fleet
        .says(node, ("Conflicted", "False", "NoConflict"), "")
        .await?;
    let taken = fleet.get("ConfigMap", "t0-old").await?;
    ensure!(
        taken["data"]["more"] == "too",
        "fields of others stay: {}",
        taken["data"]
    );
    ensure!(owner(&fleet, "t0-old").await? == "t0-old", "its node's");
    fleet.retire().await
}

/// Not even Force takes it.
async fn another_controllers(cluster: &Cluster) -> Result<()> {
    let fleet = fleet(cluster, 1).await?;
    let owner = fleet.get("ConfigMap", "t0-app").await?["metadata"]["uid"].clone();
    let existing = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "t0-theirs", "ownerReferences": [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": "t0-app", "uid": owner, "controller": true},
        ]},
        "data": {"plan": "theirs"},
    });
    fleet.apply(&existing).await?;
    let before = fleet.versions(&["ConfigMap"]).await?;
    let force = with(map("x", "-theirs"), "conflictPolicy", "Force");
    fleet.apply(&form(&fleet, "theirs", &[force])).await?;
    let said = "ConfigMap t0-theirs: it belongs to ConfigMap t0-app; give one of them another name";
    fleet
        .says(("LynqNode", "t0-theirs"), CONFLICT, said)
        .await?;
    fleet
        .api("LynqForm")
        .delete("theirs", &DeleteParams::default())
        .await?;
    fleet.until_names("LynqNode", &["t0-web"]).await?;
    ensure!(
        fleet.versions(&["ConfigMap"]).await? == before,
        "it was never ours"
    );
    fleet.retire().await
}

/// Stuck says so and leaves it; Force takes it back.
async fn a_field_that_somebody_takes(cluster: &Cluster) -> Result<()> {
    let fleet = fleet(cluster, 1).await?;
    let theirs = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "t0-app"}, "data": {"plan": "theirs"},
    });
    fleet.apply(&theirs).await?;
    let said = "ConfigMap t0-app: Apply failed with 1 conflict: conflict with \"user\": .data.plan; conflictPolicy: Force takes the fields over, and ignoreFields leaves them to others";
    let node = ("LynqNode", "t0-web");
    fleet.says(node, CONFLICT, said).await?;
    fleet
        .event(
            "t0-web",
            "ResourceConflict",
            &format!("Resource \"app\", {said}"),
        )
        .await?;
    until_maps(&fleet, &[("t0-app", "theirs")]).await?;
    let force = with(map("app", "-app"), "conflictPolicy", "Force");
    fleet.apply(&form(&fleet, "web", &[force])).await?;
    until_maps(&fleet, &[("t0-app", "pro")]).await?;
    fleet
        .says(node, ("Conflicted", "False", "NoConflict"), "")
        .await?;
    fleet.apply(&theirs).await?;
    until_maps(&fleet, &[("t0-app", "pro")]).await?;
    fleet.retire().await
}

/// What was taken away from us while its node was on its way out is not ours to delete any more.
async fn given_away_before_the_deletion(cluster: &Cluster) -> Result<()> {
    let fleet = fleet(cluster, 2).await?;
    let mut top = map("top", "-top");
    top["dependIds"] = json!(["base"]);
    fleet
        .apply(&form(&fleet, "web", &[map("base", "-base"), top]))
        .await?;
    let all = [
        ("t0-base", "pro"),
        ("t0-top", "pro"),
        ("t1-base", "pro"),
        ("t1-top", "pro"),
    ];
    until_maps(&fleet, &all).await?;

    // What depends on nothing goes last: here, not before the test lets it.
    fleet
        .merge(
            "ConfigMap",
            "t1-top",
            &json!({"metadata": {"finalizers": ["example.com/test"]}}),
        )
        .await?;
    fleet
        .database
        .execute("DELETE FROM tenants WHERE id = 't1'")
        .await?;
    wait::until("the deletion has begun", SOON, async || {
        let top = fleet.get("ConfigMap", "t1-top").await?;
        ensure!(
            top["metadata"]["deletionTimestamp"].is_string(),
            "{}",
            top["metadata"]
        );
        Ok(())
    })
    .await?;
    let theirs =
        json!({"metadata": {"ownerReferences": null, "labels": {"lynq.sh/managed": null}}});
    fleet.merge("ConfigMap", "t1-base", &theirs).await?;
    fleet
        .merge(
            "ConfigMap",
            "t1-top",
            &json!({"metadata": {"finalizers": null}}),
        )
        .await?;
    fleet.until_names("LynqNode", &["t0-web"]).await?;
    let base = fleet.get("ConfigMap", "t1-base").await?;
    ensure!(
        base["metadata"]["deletionTimestamp"].is_null(),
        "{}",
        base["metadata"]
    );
    fleet.retire().await
}
