//! Objects with immutable fields, which lynqgate deletes and creates again where their form says `onImmutable: Recreate`.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::admission::forms::{refused, taken};
use crate::cluster::wait;
use crate::operator;
use crate::tenants::{Fleet, SOON, condition, deployment};

const TENANTS: usize = 4;
const DRY: [&str; 1] = ["--dry-run=server"];

/// Each tenant has a Deployment, a StatefulSet and a ConfigMap; another version has other values in immutable fields of the first two.
fn form(fleet: &Fleet, version: u32, on_immutable: &str, data: &str) -> Value {
    let labels = json!({"app": format!("{{{{ .uid }}}}-v{version}")});
    let mut app = deployment("web:1", version - 1);
    app["spec"]["selector"]["matchLabels"] = labels.clone();
    app["spec"]["template"]["metadata"]["labels"] = labels;
    let labels = json!({"db": "{{ .uid }}"});
    let pods = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "db", "image": "db:1"}]}});
    let storage = json!({"requests": {"storage": format!("{version}Gi")}});
    let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": storage}});
    let db = json!({
        "replicas": 1, "serviceName": "db", "selector": {"matchLabels": labels}, "template": pods, "volumeClaimTemplates": [claim],
    });
    let resource = |id: &str, spec: Value| json!({"id": id, "nameTemplate": format!("{{{{ .uid }}}}-{id}"), "onImmutable": on_immutable, "spec": spec});
    let mut db = resource(
        "db",
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": db}),
    );
    // The cluster has no volumes, so that its pods wait for one.
    db["waitForReady"] = json!(false);
    let mut map = resource(
        "conf",
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": data}}),
    );
    map["conflictPolicy"] = json!("Force");
    let mut form = fleet.form("web:1", json!(1), 0);
    form["spec"]["deployments"] = json!([resource("app", app)]);
    form["spec"]["statefulSets"] = json!([db]);
    form["spec"]["configMaps"] = json!([map]);
    form
}

async fn uids(fleet: &Fleet, kind: &str) -> Result<BTreeMap<String, String>> {
    let all = fleet.versions(&[kind]).await?.into_iter();
    Ok(all.map(|[_, name, uid, _]| (name, uid)).collect())
}

async fn recreated_events(fleet: &Fleet, node: &str) -> Result<Vec<String>> {
    let events = fleet.events(node).await?.into_iter();
    let recreated = events.filter(|(reason, _)| reason == "ResourceRecreated");
    Ok(recreated.map(|(_, text)| text).collect())
}

/// One tenant after the other: while one's Deployment is gone or starts, those of the others run.
async fn complete_one_by_one(fleet: &Fleet) -> Result<()> {
    let mut most = 0;
    wait::until("the rollout is complete", SOON, async || {
        let apps = fleet.list("Deployment").await?;
        let runs = |app: &&Value| {
            app["status"]["observedGeneration"] == app["metadata"]["generation"]
                && app["status"]["availableReplicas"] == 1
        };
        most = most.max(TENANTS - apps.iter().filter(runs).count());
        let form = fleet.get("LynqForm", "web").await?;
        let status = &form["status"];
        ensure!(
            status["observedGeneration"] == form["metadata"]["generation"]
                && status["rollout"]["phase"] == "Complete"
                && status["rollout"]["slots"] == 0,
            "{status}"
        );
        Ok(())
    })
    .await?;
    ensure!(most == 1, "{most} tenants were down at a time");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_with_immutable_fields_are_recreated_tenant_by_tenant_where_the_form_says_so()
-> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "recreated", TENANTS).await?;
    fleet.apply(&form(&fleet, 1, "Refuse", "a")).await?;
    fleet.complete(TENANTS, SOON).await?;
    let apps = uids(&fleet, "Deployment").await?;
    let sets = uids(&fleet, "StatefulSet").await?;
    let set_pods = async || -> Result<BTreeMap<String, String>> {
        let mut pods = uids(&fleet, "Pod").await?;
        pods.retain(|name, _| name.ends_with("-db-0"));
        ensure!(pods.len() == TENANTS, "{pods:?}");
        Ok(pods)
    };
    let pods = wait::until("the StatefulSets have their pods", SOON, set_pods).await?;

    let unasked = form(&fleet, 2, "Refuse", "a");
    for why in [
        "resource 'app' (Deployment, row t0): spec.selector: ",
        "resource 'db' (StatefulSet, row t0): spec.volumeClaimTemplates: field is immutable",
    ] {
        refused(cluster, &unasked, why, &DRY).await?;
    }
    let mut one = form(&fleet, 1, "Refuse", "a");
    one["spec"]["statefulSets"] = unasked["spec"]["statefulSets"].clone();
    let way_out = "; or set onImmutable: Recreate on the resource: lynqgate then deletes the StatefulSet and creates it again";
    refused(cluster, &one, way_out, &DRY).await?;
    let mut claim = form(&fleet, 1, "Recreate", "a");
    claim["spec"]["manifests"] = json!([{
        "id": "data", "nameTemplate": "{{ .uid }}-data", "onImmutable": "Recreate",
        "spec": {"apiVersion": "v1", "kind": "PersistentVolumeClaim"},
    }]);
    let why = "resource 'data' (PersistentVolumeClaim): onImmutable: Recreate would delete the data in it. ";
    refused(cluster, &claim, why, &DRY).await?;

    let warning = "up to 4 nodes: lynqgate deletes the StatefulSet of resource 'db' and creates it again when the node is released \
                   (onImmutable: Recreate); its pods stay: spec.volumeClaimTemplates: field is immutable";
    taken(cluster, &form(&fleet, 2, "Recreate", "a"), warning, &[]).await?;
    complete_one_by_one(&fleet).await?;
    for (kind, before) in [("Deployment", apps), ("StatefulSet", sets)] {
        let after = uids(&fleet, kind).await?;
        ensure!(after.keys().eq(before.keys()), "{after:?}");
        let mut uids = after.values();
        ensure!(
            !uids.any(|uid| before.values().any(|old| old == uid)),
            "{kind}: {before:?}, {after:?}"
        );
    }
    let set = fleet.get("StatefulSet", "t0-db").await?;
    let size = &set["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"];
    ensure!(size == "2Gi", "{size}");
    wait::until(
        "the new StatefulSet has adopted its pod",
        SOON,
        async || {
            let pod = fleet.get("Pod", "t0-db-0").await?;
            let owner = &pod["metadata"]["ownerReferences"][0]["uid"];
            ensure!(*owner == set["metadata"]["uid"], "{owner}");
            Ok(())
        },
    )
    .await?;
    ensure!(set_pods().await? == pods, "pods of StatefulSets went");
    let said = "Deployment/{namespace}/t0-app is deleted and created again (onImmutable: Recreate), and its pods go meanwhile: \
                spec.selector: field is immutable";
    fleet.event("t0-web", "ResourceRecreated", said).await?;
    let told = recreated_events(&fleet, "t0-web").await?;
    ensure!(told.len() == 2, "{told:#?}");

    drift_of_a_settled_node_recreates_nothing(&fleet).await?;
    fleet.retire().await
}

/// Somebody makes a field immutable, with another value in it. The next release recreates the object.
async fn drift_of_a_settled_node_recreates_nothing(fleet: &Fleet) -> Result<()> {
    let maps = uids(fleet, "ConfigMap").await?;
    let drift = json!({"immutable": true, "data": {"a": "drift"}});
    fleet.merge("ConfigMap", "t0-conf", &drift).await?;
    wait::until("the node says that it cannot mend it", SOON, async || {
        let node = fleet.get("LynqNode", "t0-web").await?;
        let ready = condition(&node, "Ready").context("Ready")?;
        let said = ready["message"].as_str().unwrap_or_default();
        let command = format!("kubectl delete configmap t0-conf -n {}", fleet.namespace);
        let is_told = said.contains("field is immutable") && said.contains(&command);
        ensure!(is_told, "{ready}");
        Ok(())
    })
    .await?;
    // What changes at the object has it tried once more.
    let touch = json!({"metadata": {"labels": {"touched": "yes"}}});
    fleet.merge("ConfigMap", "t0-conf", &touch).await?;
    ensure!(uids(fleet, "ConfigMap").await? == maps, "it was recreated");

    fleet.apply(&form(fleet, 2, "Recreate", "b")).await?;
    fleet.complete(TENANTS, SOON).await?;
    let after = uids(fleet, "ConfigMap").await?;
    let changed = maps.keys().filter(|name| maps[*name] != after[*name]);
    let changed: Vec<&str> = changed.map(String::as_str).collect();
    ensure!(changed == ["t0-conf"], "{changed:?}");
    let map = fleet.get("ConfigMap", "t0-conf").await?;
    ensure!(
        map["data"]["a"] == "b" && map["immutable"].is_null(),
        "{map}"
    );
    Ok(())
}
