//! The recipes of docs/OPERATING.md that move objects from node to node: no object is made anew by them.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{commands, run};
use crate::admission::forms::taken;
use crate::cluster::wait;
use crate::operator;
use crate::tenants::{Fleet, SOON, deployment};

const ROWS: usize = 8;

/// A Deployment and a volume of each tenant.
fn form(fleet: &Fleet, (name, hub): (&str, &str), policy: &str) -> Value {
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    let resource = |id: &str, spec: Value| json!({"id": id, "nameTemplate": format!("{{{{ .uid }}}}-{id}"), "deletionPolicy": policy, "waitForReady": false, "spec": spec});
    json!({
        "apiVersion": "operator.lynq.sh/v1", "kind": "LynqForm", "metadata": {"name": name, "namespace": fleet.namespace},
        "spec": {"hubId": hub, "rollout": {"maxSkew": 3}, "manifests": [
            resource("app", deployment("web:1", 0)), resource("data", claim),
        ]},
    })
}

/// Of each object: uid and spec, and the node that owns it.
type Owned = BTreeMap<String, (String, Value, String)>;

async fn owned(fleet: &Fleet) -> Result<Owned> {
    let mut all = Owned::new();
    for kind in ["Deployment", "PersistentVolumeClaim"] {
        for object in fleet.list(kind).await? {
            let metadata = &object["metadata"];
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            ensure!(metadata["deletionTimestamp"].is_null(), "{object}");
            let owner = match metadata["labels"]["lynq.sh/node"].as_str() {
                Some(node) => node.to_owned(),
                None => text(&metadata["ownerReferences"][0]["name"]),
            };
            all.insert(
                format!("{kind} {}", text(&metadata["name"])),
                (text(&metadata["uid"]), object["spec"].clone(), owner),
            );
        }
    }
    Ok(all)
}

/// Until the objects of a row are those of this node, and are the same objects.
async fn taken_over(
    fleet: &Fleet,
    before: &Owned,
    node_of: impl Fn(usize) -> String,
) -> Result<()> {
    wait::until("the new nodes own the same objects", SOON, async || {
        let now = owned(fleet).await?;
        ensure!(now.len() == before.len(), "{now:?}");
        for (name, (uid, spec, owner)) in &now {
            let (uid_before, spec_before, _) = &before[name];
            ensure!(
                (uid, spec) == (uid_before, spec_before),
                "{name} is another one: {:?} {:?}",
                now[name],
                before[name]
            );
            let row = name
                .split_once(" t")
                .and_then(|(_, rest)| rest.split_once('-'));
            let row: usize = row.context("a row's number")?.0.parse()?;
            ensure!(*owner == node_of(row), "{name}: {owner}");
        }
        Ok(())
    })
    .await
}

/// A command of the page with what is the fleet's own.
fn of_fleet(fleet: &Fleet, name: &str, more: (&str, &str)) -> Result<String> {
    let of_page = commands(name)?;
    let namespace = format!("NAMESPACE={} ", fleet.namespace);
    let lines = of_page
        .replace("NAMESPACE=tenants ", &namespace)
        .replace(more.0, more.1);
    ensure!(
        lines.contains(&namespace) && of_page.contains(more.0),
        "{of_page}"
    );
    Ok(lines)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_form_is_renamed_and_its_objects_stay() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "renaming", ROWS).await?;
    fleet
        .apply(&form(&fleet, ("web", "tenants"), "Delete"))
        .await?;
    fleet.complete(ROWS, SOON).await?;
    let before = owned(&fleet).await?;
    ensure!(before.len() == 2 * ROWS, "{before:?}");

    // Who forgets the old form is warned at once.
    let new = form(&fleet, ("shop", "tenants"), "Delete");
    let has = format!(
        "Warning: cannot be applied now: resource 'app' (Deployment, row t0): lynqnode {}/t0-web of form web has it, and keeps it: the new \
         node reports a conflict and waits. ",
        fleet.namespace
    );
    taken(cluster, &new, &has, &["--dry-run=server"]).await?;

    // The status of a form without a window names no phase.
    let mut retained = form(&fleet, ("web", "tenants"), "Retain");
    let spec = retained["spec"].as_object_mut().context("a spec")?;
    spec.remove("rollout").context("a window")?;
    fleet.apply(&retained).await?;
    let file = tempfile::NamedTempFile::with_suffix(".json")?;
    std::fs::write(file.path(), new.to_string())?;
    let file = format!("FILE={}\n", file.path().display());
    run(
        cluster,
        &of_fleet(&fleet, "rename a form", ("FILE=shop.yaml\n", &file))?,
    )
    .await?;
    taken_over(&fleet, &before, |row| format!("t{row}-shop")).await?;
    let left = fleet.names("LynqNode").await?;
    ensure!(left.iter().all(|name| name.ends_with("-shop")), "{left:?}");
    done(&fleet, "shop", ROWS).await?;
    fleet.retire().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenants_move_between_hubs_and_their_objects_stay() -> Result<()> {
    const MOVED: usize = 6;
    let (cluster, _) = operator::shared().await?;
    let table = "CREATE TABLE others LIKE tenants";
    let fleet = Fleet::new_with(cluster, "moving", ROWS, table).await?;
    fleet
        .apply(&form(&fleet, ("web", "tenants"), "Delete"))
        .await?;
    fleet.complete(ROWS, SOON).await?;
    let before = owned(&fleet).await?;

    fleet
        .apply(&form(&fleet, ("web", "tenants"), "Retain"))
        .await?;
    fleet.complete(ROWS, SOON).await?;
    let mut hub = fleet.hub();
    hub["metadata"]["name"] = json!("others");
    hub["spec"]["source"][fleet.database.product.source()]["table"] = json!("others");
    fleet.apply(&hub).await?;
    fleet
        .apply(&form(&fleet, ("shop", "others"), "Delete"))
        .await?;
    let rows = format!("FROM tenants WHERE id < 't{MOVED}'");
    for statement in [
        format!("INSERT INTO others SELECT * {rows}"),
        format!("DELETE {rows}"),
    ] {
        fleet.database.execute(&statement).await?;
    }
    let of_page = of_fleet(
        &fleet,
        "move tenants between hubs",
        ("COUNT=6\n", "COUNT=6\n"),
    )?;
    run(cluster, &of_page).await?;
    taken_over(&fleet, &before, |row| match row < MOVED {
        true => format!("t{row}-shop"),
        false => format!("t{row}-web"),
    })
    .await?;
    done(&fleet, "shop", MOVED).await?;
    fleet.retire().await
}

async fn done(fleet: &Fleet, form: &str, nodes: usize) -> Result<()> {
    wait::until("the new form is complete", SOON, async || {
        let form = fleet.get("LynqForm", form).await?;
        let rollout = &form["status"]["rollout"];
        ensure!(
            rollout["phase"] == "Complete" && rollout["totalNodes"] == nodes,
            "{rollout}"
        );
        Ok(())
    })
    .await
}
