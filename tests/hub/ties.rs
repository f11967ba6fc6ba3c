//! What ties an object to its node is lost, or was never there: who may write it then.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Options, wait};
use crate::hub::{fleet, form, map, until_maps, with};
use crate::proxy::Proxy;
use crate::tenants::{Fleet, SOON};

const CONFLICT: (&str, &str, &str) = ("Conflicted", "True", "ResourceConflict");
const STRATEGIES: [&str; 3] = ["apply", "merge", "replace"];

async fn owner(fleet: &Fleet, name: &str) -> Result<Value> {
    Ok(fleet.get("ConfigMap", name).await?["metadata"]["ownerReferences"][0]["name"].clone())
}

/// By our label the watch knows it, and no more than that.
pub async fn a_label_makes_no_owner(cluster: &Cluster) -> Result<()> {
    let fleet = fleet(cluster, 1).await?;
    for strategy in STRATEGIES {
        let existing = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("t0-{strategy}"), "labels": {"lynq.sh/managed": "true"}},
            "data": {"theirs": "1"},
        });
        fleet.apply(&existing).await?;
    }
    let before = fleet.versions(&["ConfigMap"]).await?;
    let maps = STRATEGIES.map(|strategy| {
        let map = map(strategy, &format!("-{strategy}"));
        with(map, "patchStrategy", strategy)
    });
    fleet.apply(&form(&fleet, "old", &maps)).await?;
    let said = STRATEGIES.map(|strategy| {
        format!("ConfigMap t0-{strategy}: it was there before and is nobody's; conflictPolicy: Force takes it over")
    });
    for (strategy, said) in STRATEGIES.into_iter().zip(&said) {
        let event = format!("Resource {strategy:?}, {said}");
        fleet.event("t0-old", "ResourceConflict", &event).await?;
    }
    let node = ("LynqNode", "t0-old");
    fleet.says(node, CONFLICT, &said.join("; ")).await?;
    ensure!(
        fleet.versions(&["ConfigMap"]).await? == before,
        "they are left alone"
    );
    let force = maps.map(|map| with(map, "conflictPolicy", "Force"));
    fleet.apply(&form(&fleet, "old", &force)).await?;
    let taken = STRATEGIES.map(|strategy| (format!("t0-{strategy}"), "pro"));
    let mut taken: Vec<(&str, &str)> = taken.iter().map(|(name, plan)| (&**name, *plan)).collect();
    taken.insert(0, ("t0-app", "pro"));
    until_maps(&fleet, &taken).await?;
    for (name, _) in &taken[1..] {
        ensure!(owner(&fleet, name).await? == "t0-old", "{name}");
    }
    fleet.retire().await
}

/// Whatever the strategy is: what the node has made, and still says so, is tied to it again.
pub async fn a_lost_tie_is_mended(cluster: &Cluster) -> Result<()> {
    let fleet = fleet(cluster, 1).await?;
    let ignoring = |strategy| {
        let mut map = map(&format!("i-{strategy}"), &format!("-i-{strategy}"));
        map["patchStrategy"] = json!(strategy);
        map["ignoreFields"] = json!(["$.data.free"]);
        map
    };
    let mut maps = vec![with(map("once", "-once"), "creationPolicy", "Once")];
    maps.push(with(map("kept", "-kept"), "deletionPolicy", "Retain"));
    for strategy in STRATEGIES {
        maps.push(ignoring(strategy));
        let map = map(strategy, &format!("-{strategy}"));
        maps.push(with(map, "patchStrategy", strategy));
    }
    fleet.apply(&form(&fleet, "web", &maps)).await?;
    fleet.complete(1, SOON).await?;
    let all = fleet.names("ConfigMap").await?;
    let all: Vec<&String> = all.iter().filter(|name| name.starts_with("t0-")).collect();
    ensure!(all.len() == maps.len(), "{all:?}");
    let untied = json!({"metadata": {
        "ownerReferences": null, "labels": {"lynq.sh/node": null, "lynq.sh/node-namespace": null},
    }});
    for name in &all {
        fleet.merge("ConfigMap", name, &untied).await?;
    }
    for name in &all {
        wait::until(&format!("{name} is tied again"), SOON, async || {
            let object = fleet.get("ConfigMap", name).await?;
            let metadata = &object["metadata"];
            let tied = match name.as_str() {
                "t0-kept" => &metadata["labels"]["lynq.sh/node"],
                _ => &metadata["ownerReferences"][0]["name"],
            };
            ensure!(tied == "t0-web", "{metadata}");
            Ok(())
        })
        .await?;
    }
    let mended = ("Conflicted", "False", "NoConflict");
    fleet.says(("LynqNode", "t0-web"), mended, "").await?;
    // Nor is anything left behind that only Retain is to keep.
    fleet
        .database
        .execute("DELETE FROM tenants WHERE id = 't0'")
        .await?;
    fleet.until_names("LynqNode", &[]).await?;
    let left = fleet.names("ConfigMap").await?;
    let left: Vec<&String> = left.iter().filter(|name| name.starts_with("t0-")).collect();
    ensure!(left == ["t0-kept"], "{left:?}");
    fleet.retire().await
}

/// What is remembered of an object says nothing of another of its name that somebody has made since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_that_is_not_seen_yet_is_left_alone() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let (proxy, _operator) = Proxy::before_operator(&cluster, &[]).await?;
    let fleet = fleet(&cluster, 1).await?;
    let of_form = |plan: &str| {
        let maps = ["apply", "merge"].map(|strategy| {
            let mut map = map(strategy, &format!("-{strategy}"));
            map["patchStrategy"] = json!(strategy);
            map["spec"]["data"]["plan"] = json!(plan);
            map
        });
        let again = with(map("again", "-again"), "patchStrategy", "merge");
        let mut all = maps.to_vec();
        all.push(again);
        all[2]["spec"]["data"]["plan"] = json!(plan);
        form(&fleet, "web", &all)
    };
    fleet.apply(&of_form("small")).await?;
    fleet.complete(1, SOON).await?;
    proxy.silence("configmaps");
    for name in ["t0-apply", "t0-merge", "t0-again"] {
        let delete = ["delete", "configmap", "-n", &fleet.namespace, name];
        cluster.kubectl(&delete, None).await?.expect_success()?;
        if name == "t0-again" {
            continue;
        }
        let theirs = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"theirs": "1"},
        });
        fleet.apply(&theirs).await?;
    }
    let theirs = async || -> Result<Vec<Value>> {
        let all = ["t0-apply", "t0-merge"];
        let mut found = vec![];
        for name in all {
            found.push(fleet.get("ConfigMap", name).await?);
        }
        Ok(found)
    };
    let before = theirs().await?;
    fleet.apply(&of_form("large")).await?;
    let said = ["apply", "merge"].map(|strategy| {
        format!("ConfigMap t0-{strategy}: it was there before and is nobody's; conflictPolicy: Force takes it over")
    });
    let node = ("LynqNode", "t0-web");
    fleet.says(node, CONFLICT, &said.join("; ")).await?;
    ensure!(theirs().await? == before, "they are left alone");
    wait::until("what is gone is made anew", SOON, async || {
        let made = fleet.get("ConfigMap", "t0-again").await?;
        ensure!(made["data"]["plan"] == "large", "{made}");
        Ok(())
    })
    .await?;
    proxy.heal();
    fleet.says(node, CONFLICT, &said.join("; ")).await?;
    ensure!(theirs().await? == before, "they are left alone");
    Ok(())
}
