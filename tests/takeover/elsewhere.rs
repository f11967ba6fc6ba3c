//! Objects that are not beside their node, or are to outlive it: Lynq tells by labels whose they are, and records the namespace of
//! some as a template.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::cluster::{Cluster, wait};
use crate::operator::{self, Operator};
use crate::takeover::{
    ROWS, cluster_of_lynq, definitions, fleet_of_rows, fleet_with, form, migrate, released,
    substance,
};
use crate::tenants::{Fleet, SOON, condition};

/// A fixed namespace, and one for each tenant by a template.
fn namespaces(fleet: &Fleet) -> [String; 2] {
    ["elsewhere", "of-{{ .uid }}"].map(|name| format!("{}-{name}", fleet.namespace))
}

/// With what they need.
pub async fn form_with_labels(cluster: &Cluster, fleet: &Fleet) -> Result<Value> {
    let [elsewhere, own] = namespaces(fleet);
    let of_tenants = (0..ROWS).map(|i| own.replace("{{ .uid }}", &format!("t{i}")));
    for name in of_tenants.chain([elsewhere.clone()]) {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        cluster.apply(&namespace.to_string()).await?;
    }
    let mut form = form(fleet, "web:1");
    for (id, field, value) in [
        ("far", "targetNamespace", elsewhere.as_str()),
        ("own", "targetNamespace", own.as_str()),
        ("kept", "deletionPolicy", "Retain"),
    ] {
        let mut map = form["spec"]["configMaps"][0].clone();
        (map["id"], map["nameTemplate"], map[field]) = (
            id.into(),
            format!("{{{{ .uid }}}}-{id}").into(),
            value.into(),
        );
        form["spec"]["configMaps"]
            .as_array_mut()
            .context("an array")?
            .push(map);
    }
    form["spec"]["allowedNamespaces"] = json!([own.replace("{{ .uid }}", "*")]);
    let rank = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 7});
    form["spec"]["manifests"] =
        json!([{"id": "rank", "nameTemplate": "{{ .uid }}-rank", "spec": rank}]);
    operator::grant(cluster, "scheduling.k8s.io", &["priorityclasses"]).await?;
    Ok(form)
}

/// Those of one tenant: kind, namespace and name.
pub fn of_tenant(fleet: &Fleet, i: usize) -> [(&'static str, String, String); 3] {
    let uid = format!("t{i}");
    let [elsewhere, own] = namespaces(fleet);
    [
        ("ConfigMap", elsewhere, format!("{uid}-far")),
        (
            "ConfigMap",
            own.replace("{{ .uid }}", &uid),
            format!("{uid}-own"),
        ),
        ("PriorityClass", String::new(), format!("{uid}-rank")),
    ]
}

/// Their uids, as far as they are there.
pub async fn uids(fleet: &Fleet, i: usize) -> Result<Vec<Option<String>>> {
    let mut found = vec![];
    for (kind, namespace, name) in of_tenant(fleet, i) {
        let object = fleet.api_in(kind, &namespace).get_opt(&name).await?;
        found.push(object.and_then(|object| object.metadata.uid));
    }
    Ok(found)
}

async fn until_gone(fleet: &Fleet, i: usize) -> Result<()> {
    let what = "what is elsewhere goes with its node, what is kept says so";
    wait::until(what, SOON, async || {
        let left = uids(fleet, i).await?;
        ensure!(left.iter().all(Option::is_none), "{left:?}");
        let nodes = fleet.names("LynqNode").await?;
        ensure!(!nodes.contains(&format!("t{i}-web")), "{nodes:?}");
        let kept = fleet.get("ConfigMap", &format!("t{i}-kept")).await?;
        let labels = &kept["metadata"]["labels"];
        ensure!(labels["lynq.sh/orphaned"] == "true", "{kept}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_elsewhere_or_stays_is_taken_over_too() -> Result<()> {
    let cluster = cluster_of_lynq().await?;
    definitions::install_ours(&cluster).await?;
    let fleet = fleet_of_rows(&cluster, "labelled").await?;
    let form = form_with_labels(&cluster, &fleet).await?;
    let fleet = fleet_with(fleet, &form, |_| "web:1").await?;
    let before = (substance(&fleet).await?, uids(&fleet, 1).await?);
    let told = migrate(&cluster, "").await?.expect_success()?;
    ensure!(told.contains("4 of 4 nodes are taken over"), "{told}");

    let operator = Operator::start(&cluster, "operator", &[]).await?;
    fleet.complete(ROWS, SOON).await?;
    released(&operator, &fleet, &[("taken_over", ROWS)]).await?;
    let after = (substance(&fleet).await?, uids(&fleet, 1).await?);
    ensure!(after == before, "{before:?} became {after:?}");

    let gone = "DELETE FROM tenants WHERE id = 't0'";
    fleet.database.execute(gone).await?;
    until_gone(&fleet, 0).await?;

    // Lynq's finalizer does not keep it.
    let delete = kube::api::DeleteParams::default();
    fleet.api("LynqHub").delete("tenants", &delete).await?;
    fleet.until_names("LynqHub", &[]).await?;
    fleet.until_names("LynqNode", &[]).await
}

/// Nothing of it ever went live through the gate: neither of one whose row is gone before a hub has rendered it, nor of one that
/// waits. Its objects go all the same, and nobody else's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_goes_before_it_is_taken_over_leaves_nothing_behind() -> Result<()> {
    let cluster = cluster_of_lynq().await?;
    definitions::install_ours(&cluster).await?;
    let fleet = fleet_of_rows(&cluster, "gone").await?;
    let mut form = form_with_labels(&cluster, &fleet).await?;
    form["spec"]["rollout"]["paused"] = json!(true);
    let fleet = fleet_with(fleet, &form, |_| "web:1").await?;
    let before = (uids(&fleet, 2).await?, uids(&fleet, 3).await?);
    // One that the node names is not its own.
    let theirs = json!({"metadata": {"labels": {"lynq.sh/node": "another", "lynq.sh/node-namespace": fleet.namespace}}});
    let (_, elsewhere, name) = &of_tenant(&fleet, 2)[0];
    let params = kube::api::PatchParams::default();
    fleet
        .api_in("ConfigMap", elsewhere)
        .patch(name, &params, &kube::api::Patch::Merge(&theirs))
        .await?;
    fleet
        .database
        .execute("DELETE FROM tenants WHERE id = 't0'")
        .await?;

    let _operator = Operator::start(&cluster, "operator", &[]).await?;
    until_gone(&fleet, 0).await?;

    let [_, (_, own, name), _] = of_tenant(&fleet, 1);
    wait::until("what waits has its labels", SOON, async || {
        let map = fleet.api_in("ConfigMap", &own).get(&name).await?;
        let labels = map.metadata.labels.unwrap_or_default();
        ensure!(labels.contains_key("lynq.sh/managed"), "{labels:?}");
        let node = fleet.get("LynqNode", "t1-web").await?;
        let held = condition(&node, "Held").context("Held")?;
        ensure!(held["reason"] == "Paused", "{held}");
        Ok(())
    })
    .await?;
    fleet
        .database
        .execute("DELETE FROM tenants WHERE id IN ('t1', 't2')")
        .await?;
    until_gone(&fleet, 1).await?;
    fleet.until_names("LynqNode", &["t3-web"]).await?;
    let left = uids(&fleet, 2).await?;
    ensure!(left == [before.0[0].clone(), None, None], "{left:?}");
    ensure!(uids(&fleet, 3).await? == before.1, "another tenant's");
    Ok(())
}
