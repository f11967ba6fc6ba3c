//! Whose an object is: two nodes that want the same, objects that were there before, and objects that were given away.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::cluster::{Cluster, wait};
use crate::hub::{fleet, form, map, ties, until_maps, with};
use crate::operator;
use crate::tenants::{Fleet, SOON, condition};
use crate::words::all;

const CONFLICT: (&str, &str, &str) = ("Conflicted", "True", "ResourceConflict");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_has_one_owner() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    all(vec![
        ("two nodes", two_nodes_of_one_object(cluster).boxed_local()),
        ("nobody's", nobodys(cluster).boxed_local()),
        (
            "a label",
            ties::a_label_makes_no_owner(cluster).boxed_local(),
        ),
        (
            "a lost tie",
            ties::a_lost_tie_is_mended(cluster).boxed_local(),
        ),
        (
            "another controller's",
            another_controllers(cluster).boxed_local(),
        ),
        (
            "a field",
            a_field_that_somebody_takes(cluster).boxed_local(),
        ),
        ("copies", copies_of_objects(cluster).boxed_local()),
        (
            "another version",
            an_object_in_another_version(cluster).boxed_local(),
        ),
        (
            "mended",
            a_mended_failure_is_over_at_once(cluster).boxed_local(),
        ),
        (
            "a long name",
            a_name_that_is_too_long_for_a_label(cluster).boxed_local(),
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
    let says = async |said: &str| {
        let what = format!("the node says that it waits for {said}");
        wait::until(&what, SOON, async || {
            let node = fleet.get("LynqNode", "t1-web").await?;
            let ready = condition(&node, "Ready").context("Ready")?;
            let message = ready["message"].as_str().unwrap_or_default();
            let going = ready["reason"] == "Deleting" && message.contains(said);
            ensure!(going, "{ready}");
            Ok(())
        })
        .await
    };
    let top = format!(
        "ConfigMap/{}/t1-top (finalizers: example.com/test)",
        fleet.namespace
    );
    says(&top).await?;
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

/// What has our labels and owner reference, and was not applied by us, is nobody's to prune; what is deleted is said.
async fn copies_of_objects(cluster: &Cluster) -> Result<()> {
    let fleet = fleet(cluster, 2).await?;
    let elsewhere = Fleet {
        namespace: cluster.namespace("elsewhere").await?,
        client: fleet.client.clone(),
        database: fleet.database.clone(),
    };
    let mut copy = fleet.get("ConfigMap", "t0-app").await?;
    let metadata = copy["metadata"].as_object_mut().expect("metadata");
    metadata.retain(|field, _| {
        ["labels", "annotations", "ownerReferences", "managedFields"].contains(&field.as_str())
    });
    metadata.insert("name".into(), "t0-copy".into());
    let copy = serde_json::from_value(copy)?;
    fleet
        .api("ConfigMap")
        .create(&Default::default(), &copy)
        .await?;
    let precious = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "precious", "labels": {
            "lynq.sh/managed": "true", "lynq.sh/node": "t0-web", "lynq.sh/node-namespace": fleet.namespace,
        }},
        "data": {"plan": "theirs"},
    });
    elsewhere.apply(&precious).await?;

    let away = with(
        map("away", "-away"),
        "targetNamespace",
        &elsewhere.namespace,
    );
    let maps = [map("app", "-app"), map("old", "-old"), away];
    fleet.apply(&form(&fleet, "web", &maps)).await?;
    fleet.complete(2, SOON).await?;
    fleet
        .apply(&form(&fleet, "web", &[map("app", "-app")]))
        .await?;
    let kept = [("t0-app", "pro"), ("t0-copy", "pro"), ("t1-app", "pro")];
    until_maps(&fleet, &kept).await?;
    until_maps(&elsewhere, &[("precious", "theirs")]).await?;
    let said = "ConfigMap/{namespace}/t0-old is deleted: the live content names it no more";
    fleet
        .event("t0-web", "OrphanedResourceDeleted", said)
        .await?;

    fleet
        .database
        .execute("DELETE FROM tenants WHERE id = 't0'")
        .await?;
    fleet.until_names("LynqNode", &["t1-web"]).await?;
    let said = "ConfigMap/{namespace}/t0-app is deleted: the lynqnode is deleted";
    fleet.event("t0-web", "ResourceDeleted", said).await?;
    let precious = elsewhere.get("ConfigMap", "precious").await?;
    ensure!(
        precious["metadata"]["deletionTimestamp"].is_null(),
        "{precious}"
    );
    fleet.retire().await
}

/// The operator watches autoscaling/v2, and sees there what a form makes as autoscaling/v1.
async fn an_object_in_another_version(cluster: &Cluster) -> Result<()> {
    let fleet = fleet(cluster, 1).await?;
    let scaler = json!({
        "id": "scaler", "nameTemplate": "{{ .uid }}-scaler", "waitForReady": false,
        "spec": {"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "spec": {
            "maxReplicas": 2, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"},
        }},
    });
    let uid = async || {
        let words = ["get", "hpa", "-n", &fleet.namespace, "t0-scaler", "-o"];
        let words = [&words[..], &["jsonpath={.metadata.uid}"]].concat();
        cluster.kubectl(&words, None).await?.expect_success()
    };
    let mut form = form(&fleet, "web", &[map("app", "-app")]);
    form["spec"]["horizontalPodAutoscalers"] = json!([scaler]);
    fleet.apply(&form).await?;
    fleet.complete(1, SOON).await?;
    let before = uid().await?;
    form["spec"]["configMaps"][0]["spec"]["data"]["plan"] = json!("another");
    fleet.apply(&form).await?;
    until_maps(&fleet, &[("t0-app", "another")]).await?;
    fleet.complete(1, SOON).await?;
    ensure!(uid().await? == before, "it is the same object");
    fleet.retire().await
}

/// A conflict that somebody takes back, and a namespace that is made, are not waited for until the next try is due.
async fn a_mended_failure_is_over_at_once(cluster: &Cluster) -> Result<()> {
    let fleet = fleet(cluster, 1).await?;
    let mut audit = cluster.audit().await?;
    let late = format!("{}-late", fleet.namespace);
    let away = with(map("away", "-away"), "targetNamespace", &late);
    fleet.apply(&form(&fleet, "away", &[away])).await?;
    let value = |value: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "t0-app"}, "data": {"plan": value},
        })
    };
    fleet.apply(&value("theirs")).await?;
    // Tries after 2, 4, 8 and 16 s: the next one is half a minute away.
    let user = operator::identity().username();
    let mut tries = [0, 0];
    wait::until("both were tried five times", SOON, async || {
        for event in audit.read().await? {
            let patch = event.user == user && event.verb == "patch";
            let place = [&fleet.namespace, &late]
                .into_iter()
                .position(|namespace| *namespace == event.namespace);
            if let Some(place) = place
                && patch
                && event.resource == "configmaps"
                && matches!(event.code, 404 | 409)
            {
                tries[place] += 1;
            }
        }
        ensure!(tries.iter().all(|tries| *tries >= 5), "{tries:?}");
        Ok(())
    })
    .await?;
    let mended = std::time::Instant::now();
    fleet.apply(&value("pro")).await?;
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": late}}).to_string();
    cluster
        .kubectl(&["apply", "-f", "-"], Some(&namespace))
        .await?
        .expect_success()?;
    for node in ["t0-away", "t0-web"] {
        let ready = ("Ready", "True", "Reconciled");
        fleet
            .says(("LynqNode", node), ready, "all resources are ready")
            .await?;
    }
    ensure!(
        mended.elapsed() < Duration::from_secs(20),
        "{:?}",
        mended.elapsed()
    );
    fleet.retire().await
}

async fn a_name_that_is_too_long_for_a_label(cluster: &Cluster) -> Result<()> {
    let fleet = fleet(cluster, 1).await?;
    let name = "w".repeat(61);
    let kept = with(map("kept", "-kept"), "deletionPolicy", "Retain");
    let mut long = form(&fleet, &name, &[map("beside", "-beside"), kept]);
    let refused = fleet.apply(&long).await.err().context("it was let in")?;
    ensure!(
        format!("{refused:#}").contains("shorten the name of the form or the uid"),
        "{refused:#}"
    );
    long["metadata"]["annotations"] = json!({"lynq.sh/allow-render-errors": "true"});
    fleet.apply(&long).await?;
    let said = "LynqNode has 1 failed resources: ConfigMap t0-kept: the name of its lynqnode has 64 characters; an object in another namespace, of the whole \
                cluster or with deletionPolicy: Retain carries that name in the label lynq.sh/node, which takes 63; shorten \
                the name of the form or the uid";
    fleet
        .says(
            ("LynqNode", &format!("t0-{name}")),
            ("Degraded", "True", "ResourceFailures"),
            said,
        )
        .await?;
    until_maps(&fleet, &[("t0-app", "pro"), ("t0-beside", "pro")]).await?;
    fleet.retire().await
}
