//! Rows come, change and go, and so do forms, hubs and nodes.

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use kube::api::{DeleteParams, Patch, PatchParams, PropagationPolicy};
use serde_json::{Value, json};

use crate::cluster::{Cluster, wait};
use crate::hub::{fleet, form, map, until_maps, with};
use crate::operator;
use crate::tenants::{SOON, condition};
use crate::words::all;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_follow_rows_forms_and_hubs() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    all(vec![
        ("rows", rows_come_change_and_go(cluster).boxed_local()),
        (
            "form",
            a_deleted_form_takes_its_nodes_along(cluster).boxed_local(),
        ),
        (
            "hub",
            a_deleted_hub_takes_its_nodes_along(cluster).boxed_local(),
        ),
        ("going", a_hub_that_cannot_go_is_told(cluster).boxed_local()),
        (
            "seed",
            a_hub_made_anew_keeps_its_random_values(cluster).boxed_local(),
        ),
        ("node", a_deleted_node_comes_back(cluster).boxed_local()),
        (
            "edit",
            an_edit_by_hand_stays_until_the_next_rendering(cluster).boxed_local(),
        ),
        (
            "retain",
            a_retained_object_outlives_its_node(cluster).boxed_local(),
        ),
        (
            "policy",
            a_change_of_the_deletion_policy_reaches_everything(cluster).boxed_local(),
        ),
        (
            "elsewhere",
            objects_in_other_namespaces_go_too(cluster).boxed_local(),
        ),
    ])
    .await
}

async fn rows_come_change_and_go(cluster: &Cluster) -> Result<()> {
    let fleet = fleet(cluster, 3).await?;
    let status = fleet.get("LynqHub", "tenants").await?["status"].clone();
    ensure!(
        status["desired"] == 3 && status["referencingTemplates"] == 1,
        "{status}"
    );
    until_maps(
        &fleet,
        &[("t0-app", "pro"), ("t1-app", "pro"), ("t2-app", "pro")],
    )
    .await?;

    let before = fleet.versions(&["LynqNode", "ConfigMap"]).await?;
    fleet.insert(3..4).await?;
    fleet.complete(4, SOON).await?;
    let now = fleet.versions(&["LynqNode", "ConfigMap"]).await?;
    ensure!(
        before.is_subset(&now) && now.len() == before.len() + 2,
        "a row comes: {now:?}"
    );

    // Held while the form is paused, and released after.
    let mut paused = form(&fleet, "web", &[map("app", "-app")]);
    paused["spec"]["rollout"]["paused"] = json!(true);
    fleet.apply(&paused).await?;
    fleet
        .database
        .execute("UPDATE tenants SET plan = 'free' WHERE id = 't1'")
        .await?;
    let held = ("Held", "True", "Paused");
    let said = "the rollout is paused; set paused: false on the form, or force this node";
    fleet.says(("LynqNode", "t1-web"), held, said).await?;
    let changed: Vec<_> = fleet
        .versions(&["LynqNode", "ConfigMap"])
        .await?
        .difference(&now)
        .map(|[kind, name, ..]| format!("{kind} {name}"))
        .collect();
    ensure!(
        changed == ["LynqNode t1-web"],
        "one row changes: {changed:?}"
    );
    fleet
        .apply(&form(&fleet, "web", &[map("app", "-app")]))
        .await?;
    until_maps(
        &fleet,
        &[
            ("t0-app", "pro"),
            ("t1-app", "free"),
            ("t2-app", "pro"),
            ("t3-app", "pro"),
        ],
    )
    .await?;

    fleet
        .database
        .execute("UPDATE tenants SET active = '0' WHERE id = 't0'")
        .await?;
    fleet
        .database
        .execute("DELETE FROM tenants WHERE id = 't2'")
        .await?;
    fleet.until_names("LynqNode", &["t1-web", "t3-web"]).await?;
    until_maps(&fleet, &[("t1-app", "free"), ("t3-app", "pro")]).await?;
    for row in ["t0", "t2"] {
        let said = format!("Deleted LynqNode '{row}-web': row \"{row}\" is inactive or gone");
        fleet.event("tenants", "NodeDeleted", &said).await?;
    }
    fleet.retire().await
}

async fn a_deleted_form_takes_its_nodes_along(cluster: &Cluster) -> Result<()> {
    let fleet = fleet(cluster, 3).await?;
    fleet
        .apply(&form(&fleet, "api", &[map("api", "-api")]))
        .await?;
    fleet
        .until_names(
            "LynqNode",
            &["t0-api", "t0-web", "t1-api", "t1-web", "t2-api", "t2-web"],
        )
        .await?;
    fleet
        .api("LynqForm")
        .delete("api", &DeleteParams::default())
        .await?;
    fleet
        .until_names("LynqNode", &["t0-web", "t1-web", "t2-web"])
        .await?;
    until_maps(
        &fleet,
        &[("t0-app", "pro"), ("t1-app", "pro"), ("t2-app", "pro")],
    )
    .await?;
    let said = "Deleted LynqNode 't1-api': form \"api\" is gone";
    fleet.event("tenants", "NodeDeleted", said).await?;
    fleet.retire().await
}

/// In the foreground they go before it does: what keeps them is that its deletion is refused, until their count is confirmed.
async fn a_deleted_hub_takes_its_nodes_along(cluster: &Cluster) -> Result<()> {
    let fleet = fleet(cluster, 7).await?;
    let before = fleet.versions(&["LynqNode", "ConfigMap"]).await?;
    let hubs = fleet.api("LynqHub");
    for confirmed in [json!(null), json!("6")] {
        let annotation =
            json!({"metadata": {"annotations": {"lynq.sh/confirm-hub-deletion": confirmed}}});
        fleet.merge("LynqHub", "tenants", &annotation).await?;
        let refused = hubs.delete("tenants", &DeleteParams::foreground()).await;
        let refused = refused.err().context("the nodes would go")?.to_string();
        let says = match confirmed.as_str() {
            Some(count) => format!(" lynq.sh/confirm-hub-deletion says {count:?}."),
            None => String::new(),
        };
        let said = format!(
            "LynqHub {0}/tenants: its 7 nodes and their objects would be deleted with it: t0-web, t1-web, t2-web and 4 more.{says} To delete \
             them, run `kubectl annotate --overwrite lynqhub tenants -n {0} lynq.sh/confirm-hub-deletion=7`, and delete the \
             hub again",
            fleet.namespace
        );
        ensure!(refused.contains(&said), "{refused}");
    }
    ensure!(
        fleet.versions(&["LynqNode", "ConfigMap"]).await? == before,
        "nothing is deleted"
    );
    let foreground = DeleteParams::foreground();
    fleet.delete_hub("tenants", &foreground).await?;
    fleet.until_names("LynqNode", &[]).await?;
    until_maps(&fleet, &[]).await?;
    let missing =
        "there is no LynqHub \"tenants\" in namespace {namespace}; create it, or delete this form";
    let web = ("LynqForm", "web");
    let invalid = ("Valid", "False", "HubNotFound");
    fleet.says(web, invalid, missing).await?;
    fleet.apply(&fleet.hub()).await?;
    fleet.complete(7, SOON).await?;
    // Its nodes may also stay without it.
    let orphan = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    hubs.delete("tenants", &orphan).await?;
    let waits = ("RolloutComplete", "False", "InProgress");
    fleet.says(web, waits, missing).await?;
    fleet.apply(&fleet.hub()).await?;
    fleet.complete(7, SOON).await?;
    fleet.retire().await
}

/// Nothing is released any more, and who waits says what for.
async fn a_hub_that_cannot_go_is_told(cluster: &Cluster) -> Result<()> {
    let fleet = fleet(cluster, 2).await?;
    let hubs = fleet.api("LynqHub");
    let kept_by = |finalizers: Value| Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    let params = PatchParams::default();
    let keep = kept_by(json!(["example.com/keep"]));
    hubs.patch("tenants", &params, &keep).await?;
    fleet.retire().await?;
    let mut maps = fleet.get("LynqNode", "t1-web").await?["spec"]["configMaps"].clone();
    maps[0]["spec"]["data"]["plan"] = json!("by hand");
    fleet
        .change("LynqNode", "t1-web", &json!({"configMaps": maps}))
        .await?;
    let said = "LynqHub \"tenants\" is being deleted: nothing of this form is rendered or released any more, and its nodes go with the hub. If it does not go, see its finalizers (kubectl describe lynqhub tenants)";
    fleet
        .says(("LynqForm", "web"), ("Valid", "False", "HubGoing"), said)
        .await?;
    wait::until("the node says what it waits for", SOON, async || {
        let node = fleet.get("LynqNode", "t1-web").await?;
        let held = condition(&node, "Held").context("Held")?;
        ensure!(held["reason"] == "NotRendered", "{held}");
        Ok(())
    })
    .await?;
    until_maps(&fleet, &[("t0-app", "pro"), ("t1-app", "pro")]).await?;
    hubs.patch("tenants", &params, &kept_by(json!(null)))
        .await?;
    fleet.until_names("LynqNode", &[]).await
}

/// The Secret that they come from outlives the hub, also one that an earlier version had tied to it.
async fn a_hub_made_anew_keeps_its_random_values(cluster: &Cluster) -> Result<()> {
    let fleet = fleet(cluster, 1).await?;
    let metadata = |name: &str| json!({"name": name, "namespace": fleet.namespace});
    let mut before =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("before")});
    before = fleet.apply(&before).await?;
    let mut seed = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": metadata("second-lynq-seed"), "immutable": true,
        "stringData": {"seed": "0123456789abcdef0123456789abcdef"},
    });
    let other = fleet.get("LynqHub", "tenants").await?;
    seed["metadata"]["ownerReferences"] = json!([
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "before", "uid": before["metadata"]["uid"]},
        {"apiVersion": other["apiVersion"], "kind": "LynqHub", "name": "tenants", "uid": other["metadata"]["uid"]},
    ]);
    fleet.apply(&seed).await?;
    let stored = fleet.get("Secret", "second-lynq-seed").await?;
    let mut second = fleet.hub();
    second["metadata"]["name"] = json!("second");
    fleet.apply(&second).await?;
    wait::until("the Secret is no hub's", SOON, async || {
        let kept = fleet.get("Secret", "second-lynq-seed").await?;
        let metadata = &kept["metadata"];
        let owners = metadata["ownerReferences"].as_array();
        let uids = owners.into_iter().flatten().map(|owner| &owner["uid"]);
        ensure!(uids.eq([&before["metadata"]["uid"]]), "{metadata}");
        ensure!(metadata["labels"]["lynq.sh/hub"] == "second", "{metadata}");
        ensure!(kept["data"] == stored["data"], "another seed");
        Ok(())
    })
    .await?;

    let mut random = map("app", "-app");
    random["spec"]["data"]["password"] = json!("{{ randAlphaNum 20 }}");
    let form = form(&fleet, "web", &[random]);
    fleet.apply(&form).await?;
    let password = async || -> Result<Value> {
        let map = fleet.get("ConfigMap", "t0-app").await?;
        let password = map["data"]["password"].clone();
        ensure!(password.is_string(), "{map}");
        Ok(password)
    };
    let drawn = wait::until("there is a password", SOON, &password).await?;
    fleet.retire().await?;
    fleet.until_names("LynqNode", &[]).await?;
    until_maps(&fleet, &[]).await?;
    fleet.apply(&fleet.hub()).await?;
    let again = wait::until("there is a password again", SOON, &password).await?;
    ensure!(drawn == again, "{drawn} became {again}");
    fleet.retire().await
}

async fn a_deleted_node_comes_back(cluster: &Cluster) -> Result<()> {
    let fleet = fleet(cluster, 2).await?;
    let uid = fleet.get("LynqNode", "t1-web").await?["metadata"]["uid"].clone();
    fleet
        .api("LynqNode")
        .delete("t1-web", &DeleteParams::default())
        .await?;
    wait::until("another node of that name", SOON, async || {
        let node = fleet.get("LynqNode", "t1-web").await?;
        ensure!(node["metadata"]["uid"] != uid, "the old one");
        Ok(())
    })
    .await?;
    fleet.complete(2, SOON).await?;
    until_maps(&fleet, &[("t0-app", "pro"), ("t1-app", "pro")]).await?;
    fleet.retire().await
}

async fn an_edit_by_hand_stays_until_the_next_rendering(cluster: &Cluster) -> Result<()> {
    let fleet = fleet(cluster, 2).await?;
    let mut maps = fleet.get("LynqNode", "t1-web").await?["spec"]["configMaps"].clone();
    maps[0]["spec"]["data"]["plan"] = json!("by hand");
    fleet
        .change("LynqNode", "t1-web", &json!({"configMaps": maps}))
        .await?;
    until_maps(&fleet, &[("t0-app", "pro"), ("t1-app", "by hand")]).await?;
    // A sync that has nothing to do with the node leaves the edit alone.
    fleet.insert(2..3).await?;
    fleet.complete(3, SOON).await?;
    until_maps(
        &fleet,
        &[("t0-app", "pro"), ("t1-app", "by hand"), ("t2-app", "pro")],
    )
    .await?;
    fleet
        .database
        .execute("UPDATE tenants SET plan = 'free' WHERE id = 't1'")
        .await?;
    until_maps(
        &fleet,
        &[("t0-app", "pro"), ("t1-app", "free"), ("t2-app", "pro")],
    )
    .await?;
    fleet.retire().await
}

/// It is marked as an orphan while it is nobody's, and its node's again when the row comes back.
async fn a_retained_object_outlives_its_node(cluster: &Cluster) -> Result<()> {
    let fleet = fleet(cluster, 1).await?;
    let kept = with(map("kept", "-kept"), "deletionPolicy", "Retain");
    let maps = [map("app", "-app"), kept];
    fleet.apply(&form(&fleet, "web", &maps)).await?;
    fleet.insert(1..2).await?;
    let both = [
        ("t0-app", "pro"),
        ("t0-kept", "pro"),
        ("t1-app", "pro"),
        ("t1-kept", "pro"),
    ];
    until_maps(&fleet, &both).await?;
    let uid = fleet.get("ConfigMap", "t1-kept").await?["metadata"]["uid"].clone();

    fleet
        .database
        .execute("UPDATE tenants SET active = '0' WHERE id = 't1'")
        .await?;
    fleet.until_names("LynqNode", &["t0-web"]).await?;
    let orphan = fleet.get("ConfigMap", "t1-kept").await?;
    let labels = &orphan["metadata"]["labels"];
    ensure!(
        labels["lynq.sh/orphaned"] == "true" && labels["lynq.sh/node"].is_null(),
        "{labels}"
    );
    let annotations = &orphan["metadata"]["annotations"];
    ensure!(
        annotations["lynq.sh/orphaned-reason"] == "LynqNodeDeleted"
            && annotations["lynq.sh/orphaned-at"].is_string(),
        "{annotations}"
    );
    until_maps(&fleet, &[("t0-app", "pro"), ("t0-kept", "pro")]).await?;

    fleet
        .database
        .execute("UPDATE tenants SET active = '1' WHERE id = 't1'")
        .await?;
    until_maps(&fleet, &both).await?;
    fleet.complete(2, SOON).await?;
    let adopted = fleet.get("ConfigMap", "t1-kept").await?;
    let metadata = &adopted["metadata"];
    ensure!(
        metadata["uid"] == uid
            && metadata["labels"]["lynq.sh/orphaned"].is_null()
            && metadata["labels"]["lynq.sh/node"] == "t1-web"
            && metadata["annotations"]["lynq.sh/orphaned-reason"].is_null(),
        "{metadata}"
    );

    // Removed from the form, it stays as well, for another reason.
    fleet
        .apply(&form(&fleet, "web", &[map("app", "-app")]))
        .await?;
    until_maps(&fleet, &[("t0-app", "pro"), ("t1-app", "pro")]).await?;
    let orphan = fleet.get("ConfigMap", "t0-kept").await?;
    let annotations = &orphan["metadata"]["annotations"];
    ensure!(
        annotations["lynq.sh/orphaned-reason"] == "RemovedFromTemplate",
        "{annotations}"
    );
    fleet.retire().await
}

/// Where no owner reference reaches, the finalizer does.
async fn objects_in_other_namespaces_go_too(cluster: &Cluster) -> Result<()> {
    let fleet = fleet(cluster, 2).await?;
    let other = crate::tenants::Fleet {
        namespace: cluster.namespace("elsewhere").await?,
        client: fleet.client.clone(),
        database: fleet.database.clone(),
    };
    let away = with(map("away", "-away"), "targetNamespace", &other.namespace);
    fleet
        .apply(&form(&fleet, "web", &[map("app", "-app"), away]))
        .await?;
    until_maps(&other, &[("t0-away", "pro"), ("t1-away", "pro")]).await?;
    fleet.complete(2, SOON).await?;
    fleet
        .database
        .execute("DELETE FROM tenants WHERE id = 't1'")
        .await?;
    until_maps(&other, &[("t0-away", "pro")]).await?;
    fleet.until_names("LynqNode", &["t0-web"]).await?;
    fleet
        .apply(&form(&fleet, "web", &[map("app", "-app")]))
        .await?;
    until_maps(&other, &[]).await?;
    fleet.retire().await
}

/// Whatever the strategy, and also what is made once and left alone: Retain saves it, and Delete lets it go again.
async fn a_change_of_the_deletion_policy_reaches_everything(cluster: &Cluster) -> Result<()> {
    let fleet = fleet(cluster, 2).await?;
    let maps = |policy: &str| {
        [
            with(map("merged", "-merged"), "patchStrategy", "merge"),
            with(map("once", "-once"), "creationPolicy", "Once"),
            with(map("plain", "-plain"), "patchStrategy", "apply"),
        ]
        .map(|map| with(map, "deletionPolicy", policy))
    };
    let of = |uid: &str| ["merged", "once", "plain"].map(|name| format!("{uid}-{name}"));
    let until_tied = async |policy: &str, owners: usize| {
        for name in [of("t0"), of("t1")].concat() {
            let what = format!("{name} says {policy} and has {owners} owner references");
            wait::until(&what, SOON, async || {
                let metadata = fleet.get("ConfigMap", &name).await?["metadata"].clone();
                let references = metadata["ownerReferences"].as_array();
                ensure!(
                    metadata["annotations"]["lynq.sh/deletion-policy"] == policy
                        && references.map_or(0, Vec::len) == owners,
                    "{metadata}"
                );
                Ok(())
            })
            .await?;
        }
        anyhow::Ok(())
    };
    fleet.apply(&form(&fleet, "web", &maps("Delete"))).await?;
    until_tied("Delete", 1).await?;
    // Merged with what was there, and merged again: a merge patch takes nothing away.
    let data = async |name: &str| {
        let map = fleet.get("ConfigMap", name).await?;
        anyhow::Ok((map["metadata"]["uid"].clone(), map["data"].clone()))
    };
    let theirs = json!({"data": {"plan": "theirs"}});
    fleet.merge("ConfigMap", "t0-once", &theirs).await?;
    let before = data("t0-once").await?;
    fleet.apply(&form(&fleet, "web", &maps("Retain"))).await?;
    until_tied("Retain", 0).await?;
    fleet.complete(2, SOON).await?;
    ensure!(data("t0-once").await? == before, "only its metadata");

    let t0 = |active: u8| format!("UPDATE tenants SET active = '{active}' WHERE id = 't0'");
    fleet.database.execute(&t0(0)).await?;
    fleet.until_names("LynqNode", &["t1-web"]).await?;
    fleet.complete(1, SOON).await?;
    for name in of("t0") {
        let metadata = fleet.get("ConfigMap", &name).await?["metadata"].clone();
        ensure!(
            metadata["labels"]["lynq.sh/orphaned"] == "true"
                && metadata["deletionTimestamp"].is_null(),
            "{metadata}"
        );
    }
    fleet.database.execute(&t0(1)).await?;
    until_tied("Retain", 0).await?;
    fleet.complete(2, SOON).await?;
    ensure!(data("t0-once").await? == before, "it was made already");
    for name in of("t0") {
        let metadata = fleet.get("ConfigMap", &name).await?["metadata"].clone();
        let orphaned = ["orphaned-at", "orphaned-reason"]
            .map(|mark| metadata["annotations"][format!("lynq.sh/{mark}")].is_string());
        ensure!(
            metadata["labels"]["lynq.sh/orphaned"].is_null() && orphaned == [false; 2],
            "its node's again: {metadata}"
        );
    }
    let once = fleet.get("ConfigMap", "t0-once").await?;
    let made = &once["metadata"]["annotations"]["lynq.sh/created-once"];
    ensure!(made == "true", "{once}");

    fleet.apply(&form(&fleet, "web", &maps("Delete"))).await?;
    until_tied("Delete", 1).await?;
    fleet.database.execute(&t0(0)).await?;
    let mut left = vec!["kube-root-ca.crt".to_owned()];
    left.extend(of("t1"));
    let left: Vec<&str> = left.iter().map(String::as_str).collect();
    fleet.until_names("ConfigMap", &left).await?;
    fleet.retire().await
}
