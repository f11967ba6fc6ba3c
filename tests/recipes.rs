//! docs/RECIPES.md: its recipes, and some of their steps in the wrong order. What docs/OPERATING.md has is tested with that page.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::admission::forms::{apply, refused, taken};
use crate::cluster::{Cluster, Options, wait};
use crate::operating::{commands_of, run, uninstall_and_leave_the_tenants};
use crate::operator::{self, Operator};
use crate::tenants::{Fleet, SOON};

const HUB: (&str, &str) = ("LynqHub", "tenants");
/// As the page says, and by the field manager of what the fleet applies.
const DRY: [&str; 4] = [
    "--server-side",
    "--force-conflicts",
    "--field-manager=user",
    "--dry-run=server",
];
/// What must not change while a tenant runs on.
const RUNS: [&str; 3] = ["Deployment", "Pod", "ConfigMap"];

/// Commands of the page, with what is the test's own.
fn of_page(name: &str, own: &[(&str, &str)]) -> Result<String> {
    let mut lines = commands_of("docs/RECIPES.md", name)?;
    for (text, own) in own {
        ensure!(lines.contains(*text), "no {text:?} in {lines}");
        lines = lines.replace(*text, own);
    }
    Ok(lines)
}

/// A Deployment of each tenant, and a password that lynqgate generates. Both are named after this variable.
fn form(fleet: &Fleet, id: &str, deletion: &str, creation: &str) -> Result<Value> {
    let mut form = fleet.form("web:1", json!(3), 0);
    form["spec"]["deployments"][0]["deletionPolicy"] = json!(deletion);
    form["spec"]["configMaps"] = json!([{
        "id": "password", "nameTemplate": "{{ .uid }}-password", "deletionPolicy": deletion, "creationPolicy": creation,
        "spec": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"password": "{{ randAlphaNum 20 }}"}},
    }]);
    Ok(serde_json::from_str(&form.to_string().replace(".uid", id))?)
}

/// Of each object its uid, and what a ConfigMap has in it.
type Objects = BTreeMap<String, Value>;

async fn objects(fleet: &Fleet, kinds: &[&str]) -> Result<Objects> {
    let mut found = Objects::new();
    for kind in kinds {
        for object in fleet.list(kind).await? {
            let metadata = &object["metadata"];
            let name = metadata["name"].as_str().context("a name")?;
            let kept = json!([metadata["uid"], object["data"]]);
            found.insert(format!("{kind} {name}"), kept);
        }
    }
    Ok(found)
}

async fn stay(fleet: &Fleet, kinds: &[&str], before: &Objects) -> Result<()> {
    let after = objects(fleet, kinds).await?;
    ensure!(after == *before, "{before:#?} became {after:#?}");
    Ok(())
}

/// Until the rows are read as the hub says now.
async fn hub_is_read(cluster: &Cluster, fleet: &Fleet) -> Result<()> {
    let wait = [
        "wait",
        "--for=condition=Ready",
        "lynqhub/tenants",
        "-n",
        &fleet.namespace,
        "--timeout=60s",
    ];
    cluster.kubectl(&wait, None).await?.expect_success()?;
    Ok(())
}

/// A StatefulSet of each tenant, with a volume of this size.
fn stateful(fleet: &Fleet, size: &str, on_immutable: &str) -> Value {
    let labels = json!({"db": "{{ .uid }}"});
    let pods = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "db", "image": "db:1"}]}});
    let claim = json!({"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": fleet.namespace, "resources": {"requests": {"storage": size}},
    }});
    let spec = json!({
        "replicas": 1, "serviceName": "db", "selector": {"matchLabels": labels}, "template": pods, "volumeClaimTemplates": [claim],
    });
    let mut form = fleet.form("web:1", json!(1), 0);
    form["spec"]["deployments"] = json!([]);
    form["spec"]["statefulSets"] = json!([{
        "id": "db", "nameTemplate": "{{ .uid }}-db", "onImmutable": on_immutable,
        "spec": {"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": spec},
    }]);
    form
}

/// Volumes for the claims of the fleet, of a class that lets them grow.
async fn volumes(cluster: &Cluster, fleet: &Fleet, count: usize) -> Result<()> {
    let class = &fleet.namespace;
    let volume = |number: usize| {
        json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": format!("{class}-{number}")},
            "spec": {
                "storageClassName": class, "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                "hostPath": {"path": "/nowhere"},
            },
        })
    };
    let mut all = vec![json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": class},
        "provisioner": "kubernetes.io/no-provisioner", "allowVolumeExpansion": true,
    })];
    all.extend((0..count).map(volume));
    let all = json!({"apiVersion": "v1", "kind": "List", "items": all});
    cluster.apply(&all.to_string()).await
}

/// What a storage driver does: each volume becomes as large as its claim asks for.
async fn grow(fleet: &Fleet, count: usize) -> Result<()> {
    wait::until("all volumes have grown", SOON, async || {
        let mut grown = 0;
        for claim in fleet.list("PersistentVolumeClaim").await? {
            if claim["spec"]["resources"]["requests"]["storage"] != "2Gi" {
                continue;
            }
            let name = claim["metadata"]["name"].as_str().context("a name")?;
            let size = json!({"status": {"capacity": {"storage": "2Gi"}}});
            let (claims, params) = (fleet.api("PersistentVolumeClaim"), PatchParams::default());
            let size = Patch::Merge(&size);
            claims.patch_status(name, &params, &size).await?;
            grown += 1;
        }
        ensure!(grown == count, "{grown} of {count}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_volumes_of_a_stateful_set_are_resized() -> Result<()> {
    const ROWS: usize = 3;
    let (cluster, _) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "resized", ROWS).await?;
    volumes(cluster, &fleet, ROWS).await?;
    fleet.apply(&stateful(&fleet, "1Gi", "Refuse")).await?;
    fleet.complete(ROWS, SOON).await?;
    let kept = ["Pod", "PersistentVolumeClaim"];
    let before = objects(&fleet, &kept).await?;
    ensure!(before.len() == 2 * ROWS, "{before:?}");
    let sets = objects(&fleet, &["StatefulSet"]).await?;

    let namespace = format!("NAMESPACE={} ", fleet.namespace);
    let own = [
        ("NAMESPACE=tenants ", namespace.as_str()),
        ("SIZE=20Gi", "SIZE=2Gi"),
    ];
    let lines = of_page("resize the volumes", &own)?;
    let (typed, grown) = tokio::join!(run(cluster, &lines), grow(&fleet, ROWS));
    typed?;
    grown?;

    let why = "resource 'db' (StatefulSet, row t0): spec.volumeClaimTemplates: field is immutable";
    refused(cluster, &stateful(&fleet, "2Gi", "Refuse"), why, &DRY).await?;
    let larger = stateful(&fleet, "2Gi", "Recreate");
    let warning = "up to 3 nodes: lynqgate deletes the StatefulSet of resource 'db' and creates it again when the node is released \
                   (onImmutable: Recreate); its pods stay: spec.volumeClaimTemplates: field is immutable";
    taken(cluster, &larger, warning, &DRY).await?;
    fleet.apply(&larger).await?;
    fleet.complete(ROWS, SOON).await?;
    stay(&fleet, &kept, &before).await?;
    let recreated = objects(&fleet, &["StatefulSet"]).await?;
    for (name, set) in &sets {
        let is_another = recreated.get(name).is_some_and(|now| now != set);
        ensure!(is_another, "{name}: {recreated:?}");
    }
    for set in fleet.list("StatefulSet").await? {
        let size =
            &set["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"];
        ensure!(size == "2Gi", "{size}");
    }
    fleet.retire().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_column_is_added_and_taken_back() -> Result<()> {
    const ROWS: usize = 3;
    let (cluster, _) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "column", ROWS).await?;
    let settings = |data: Value| {
        let mut form = fleet.form("web:1", json!(2), 0);
        form["spec"]["configMaps"] = json!([{
            "id": "settings", "nameTemplate": "{{ .uid }}-settings",
            "spec": {"apiVersion": "v1", "kind": "ConfigMap", "data": data},
        }]);
        form
    };
    let without = settings(json!({"plan": "{{ .plan }}"}));
    let with = settings(json!({"plan": "{{ .plan }}", "region": "{{ .region | default \"eu\" }}"}));
    let mut mapped = fleet.hub();
    mapped["spec"]["extraValueMappings"]["region"] = json!("region");
    fleet.apply(&without).await?;
    fleet.complete(ROWS, SOON).await?;

    // The hub before the table, and the form before the hub.
    let why = "`tenants` has no column \"region\"; add it, or correct the hub's value mappings";
    refused(cluster, &mapped, why, &DRY).await?;
    let why = "the hub's extraValueMappings have no such variable";
    refused(cluster, &with, why, &DRY).await?;

    let all = ["LynqNode", "Deployment", "ConfigMap"];
    let before = fleet.versions(&all).await?;
    for statement in [
        "ALTER TABLE tenants ADD region VARCHAR(40)",
        "UPDATE tenants SET region = 'us' WHERE id = 't0'",
    ] {
        fleet.database.execute(statement).await?;
    }
    let (is_taken, said) = apply(cluster, &mapped, &DRY).await?;
    let is_unread = said.contains("the rows as they were could not be read");
    ensure!(
        is_taken && (!said.contains("changes") || is_unread),
        "no form uses the mapping: {said}"
    );
    fleet.apply(&mapped).await?;
    hub_is_read(cluster, &fleet).await?;
    ensure!(
        fleet.versions(&all).await? == before,
        "a mapping that no form uses changes nothing"
    );
    fleet.apply(&with).await?;
    fleet.complete(ROWS, SOON).await?;
    for (name, region) in [("t0-settings", "us"), ("t1-settings", "eu")] {
        let settings = fleet.get("ConfigMap", name).await?;
        ensure!(settings["data"]["region"] == region, "{settings}");
    }

    // Back: the table before the hub, and the hub before the form.
    let before = fleet.versions(&all).await?;
    let drop = "ALTER TABLE tenants DROP COLUMN region";
    fleet.database.execute(drop).await?;
    let invalid = ("Ready", "False", "SourceInvalid");
    let gone =
        "{q}tenants{q} has no column \"region\"; add it, or correct the hub's value mappings";
    fleet.says(HUB, invalid, gone).await?;
    ensure!(
        fleet.versions(&all).await? == before,
        "without its column nothing changes"
    );
    let unrendered =
        "of form web, it does not render for 3 of 3 rows: row t0: resource 'settings': ";
    taken(cluster, &fleet.hub(), unrendered, &DRY).await?;
    fleet.apply(&without).await?;
    fleet.apply(&fleet.hub()).await?;
    fleet.complete(ROWS, SOON).await?;
    let settings = fleet.get("ConfigMap", "t0-settings").await?;
    ensure!(settings["data"]["region"].is_null(), "{settings}");
    fleet.retire().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_table_of_a_hub_is_changed_and_no_tenant_is_lost() -> Result<()> {
    const ROWS: usize = 3;
    let (cluster, _) = operator::shared().await?;
    let renters = "CREATE TABLE renters AS SELECT * FROM tenants WHERE id <> 't2'";
    let fleet = Fleet::new_with(cluster, "table", ROWS, renters).await?;
    let first = form(&fleet, ".uid", "Delete", "WhenNeeded")?;
    fleet.apply(&first).await?;
    fleet.complete(ROWS, SOON).await?;
    let before = objects(&fleet, &RUNS).await?;

    let mut hub = fleet.hub();
    let source = fleet.database.product.source();
    hub["spec"]["source"][source]["table"] = json!("renters");
    let unguarded = hub.clone();
    hub["spec"]["guard"] = json!({"maxDeletions": 0});
    let rows = "with the rows that it reads now, this hub, of 3 tenants, deletes 1 (t2)";
    taken(cluster, &hub, rows, &DRY).await?;
    fleet.apply(&hub).await?;
    let held = "1 of 3 nodes has no active row any more: t2-web; lynqgate deletes none of them, because spec.guard.maxDeletions allows 0 at a time";
    fleet.hub_condition("DeletionsHeld", "True", held).await?;
    stay(&fleet, &RUNS, &before).await?;

    let missing = "INSERT INTO renters SELECT * FROM tenants WHERE id = 't2'";
    fleet.database.execute(missing).await?;
    fleet.hub_condition("DeletionsHeld", "False", "").await?;
    fleet.apply(&unguarded).await?;
    hub_is_read(cluster, &fleet).await?;
    fleet.complete(ROWS, SOON).await?;
    stay(&fleet, &RUNS, &before).await?;
    fleet.retire().await
}

const OLD: [&str; 6] = ["t0-web", "t1-web", "t2-web", "t3-web", "t4-web", "t5-web"];
const NEW: [&str; 6] = [
    "ct0-web", "ct1-web", "ct2-web", "ct3-web", "ct4-web", "ct5-web",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_uid_column_of_a_hub_is_changed_and_no_tenant_is_lost() -> Result<()> {
    const ROWS: usize = 6;
    let (cluster, _) = operator::shared().await?;
    let number = "ALTER TABLE tenants ADD number VARCHAR(90) AS (CONCAT('c', id))";
    let fleet = Fleet::new_with(cluster, "uids", ROWS, number).await?;
    let first = form(&fleet, ".uid", "Delete", "WhenNeeded")?;
    fleet.apply(&first).await?;
    fleet.complete(ROWS, SOON).await?;
    let before = objects(&fleet, &RUNS).await?;

    let mut hub = fleet.hub();
    hub["spec"]["extraValueMappings"]["oldId"] = json!("id");
    fleet.apply(&hub).await?;
    hub_is_read(cluster, &fleet).await?;
    let retained = form(&fleet, ".oldId", "Retain", "Once")?;
    fleet.apply(&retained).await?;
    fleet.complete(ROWS, SOON).await?;
    stay(&fleet, &RUNS, &before).await?;

    let mut unguarded = hub.clone();
    unguarded["spec"]["valueMappings"]["uid"] = json!("number");
    let mut by_number = unguarded.clone();
    by_number["spec"]["guard"] = json!({"maxDeletions": 0});
    let rows = "with the rows that it reads now, this hub, of 6 tenants, deletes 6 (t0, t1, t2 and 3 more), creates 6 (ct0, ct1, ct2 and 3 more)";
    taken(cluster, &by_number, rows, &DRY).await?;
    let held = async || -> Result<()> {
        fleet.apply(&by_number).await?;
        let waits = ("Held", "True", "DeletionsHeld");
        let why = "new nodes wait while lynqgate holds deletions of their hub; see the hub's condition DeletionsHeld";
        for node in NEW {
            fleet.says(("LynqNode", node), waits, why).await?;
        }
        let held = "6 of 6 nodes have no active row any more: t0-web, t1-web, t2-web and 3 more; lynqgate deletes none of them, because spec.guard.maxDeletions allows 0 at a time";
        fleet.hub_condition("DeletionsHeld", "True", held).await?;
        stay(&fleet, &RUNS, &before).await
    };
    held().await?;
    // Back, before anybody has confirmed.
    fleet.apply(&hub).await?;
    fleet.until_names("LynqNode", &OLD).await?;
    stay(&fleet, &RUNS, &before).await?;

    held().await?;
    let confirmed = json!({"metadata": {"annotations": {"lynq.sh/confirm-deletions": "6"}}});
    fleet.merge(HUB.0, HUB.1, &confirmed).await?;
    fleet.until_names("LynqNode", &NEW).await?;
    fleet.complete(ROWS, SOON).await?;
    stay(&fleet, &RUNS, &before).await?;
    let app = fleet.get("Deployment", "t0-app").await?;
    let node = &app["metadata"]["labels"]["lynq.sh/node"];
    ensure!(node == "ct0-web", "{app}");

    fleet.apply(&unguarded).await?;
    let last = form(&fleet, ".oldId", "Delete", "Once")?;
    fleet.apply(&last).await?;
    fleet.complete(ROWS, SOON).await?;
    stay(&fleet, &RUNS, &before).await?;
    fleet.retire().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lynqgate_is_uninstalled_and_installed_again_and_no_tenant_is_touched() -> Result<()> {
    const ROWS: usize = 3;
    let cluster = Cluster::start(Options::default()).await?;
    let operator = Operator::start(&cluster, "operator", &[]).await?;
    let fleet = Fleet::new(&cluster, "reinstalled", ROWS).await?;
    let first = form(&fleet, ".uid", "Delete", "WhenNeeded")?;
    fleet.apply(&first).await?;
    fleet.complete(ROWS, SOON).await?;
    let before = objects(&fleet, &RUNS).await?;
    let retained = form(&fleet, ".uid", "Retain", "WhenNeeded")?;
    fleet.apply(&retained).await?;
    fleet.complete(ROWS, SOON).await?;
    let file = tempfile::NamedTempFile::with_suffix(".yaml")?;
    let path = file.path().display().to_string();
    let own = [("lynqgate-saved.yaml", path.as_str())];
    run(&cluster, &of_page("save the hubs and forms", &own)?).await?;

    operator.process.kill()?;
    uninstall_and_leave_the_tenants(&cluster).await?;
    operator::uninstall(&cluster).await?;
    stay(&fleet, &RUNS, &before).await?;

    let _again = Operator::start(&cluster, "again", &[]).await?;
    let create = of_page("create the hubs and forms again", &own)?;
    run(&cluster, &create).await?;
    fleet.complete(ROWS, SOON).await?;
    stay(&fleet, &RUNS, &before).await?;

    fleet.apply(&first).await?;
    fleet.complete(ROWS, SOON).await?;
    stay(&fleet, &RUNS, &before).await?;
    for deployment in fleet.list("Deployment").await? {
        let owner = &deployment["metadata"]["ownerReferences"][0]["kind"];
        ensure!(owner == "LynqNode", "{deployment}");
    }
    Ok(())
}
