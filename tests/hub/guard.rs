//! The guard: many nodes at once go, or are made, only when somebody says how many.

use anyhow::{Result, ensure};
use futures::FutureExt;
use kube::api::DeleteParams;
use serde_json::json;

use crate::cluster::database::Product;
use crate::cluster::{Cluster, wait};
use crate::hub::{fleet, fleet_on, form, map, until_maps};
use crate::operator;
use crate::tenants::{Fleet, SOON, condition};
use crate::words::all;

const HUB: (&str, &str) = ("LynqHub", "tenants");
const HELD: (&str, &str, &str) = ("DeletionsHeld", "True", "TooManyDeletions");
const NOT_HELD: (&str, &str, &str) = ("DeletionsHeld", "False", "NothingHeld");
const NODES: [&str; 7] = [
    "t0-web", "t1-web", "t2-web", "t3-web", "t4-web", "t5-web", "t6-web",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_nodes_go_only_when_the_count_is_confirmed() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    all(vec![
        (
            "all rows gone from MariaDB",
            all_rows_gone(cluster, Product::Mariadb).boxed_local(),
        ),
        (
            "all rows gone from PostgreSQL",
            all_rows_gone(cluster, Product::Postgresql).boxed_local(),
        ),
        (
            "half of the rows gone from MariaDB",
            half_of_the_rows_gone(cluster, Product::Mariadb).boxed_local(),
        ),
        (
            "half of the rows gone from PostgreSQL",
            half_of_the_rows_gone(cluster, Product::Postgresql).boxed_local(),
        ),
        (
            "MariaDB's table swapped",
            table_swapped(cluster, Product::Mariadb).boxed_local(),
        ),
        (
            "PostgreSQL's table swapped",
            table_swapped(cluster, Product::Postgresql).boxed_local(),
        ),
        (
            "a row without uid",
            a_row_without_uid(cluster).boxed_local(),
        ),
        ("form gone", form_gone(cluster).boxed_local()),
        (
            "form changed while deletions are held",
            form_changed_while_deletions_are_held(cluster).boxed_local(),
        ),
        ("own limit", own_limit(cluster).boxed_local()),
        (
            "a join without a condition",
            a_join_without_a_condition(cluster).boxed_local(),
        ),
    ])
    .await
}

const DELETIONS: &str = "lynq.sh/confirm-deletions";
const CREATIONS: &str = "lynq.sh/confirm-creations";

async fn confirm(fleet: &Fleet, count: &str) -> Result<()> {
    annotate(fleet, DELETIONS, count).await
}

async fn annotate(fleet: &Fleet, annotation: &str, count: &str) -> Result<()> {
    let annotation = json!({"metadata": {"annotations": {annotation: count}}});
    fleet.merge("LynqHub", "tenants", &annotation).await
}

/// The annotation lets one sync delete, or make.
async fn until_spent(fleet: &Fleet) -> Result<()> {
    wait::until("the confirmation is spent", SOON, async || {
        let hub = fleet.get("LynqHub", "tenants").await?;
        let all = &hub["metadata"]["annotations"];
        let left = [DELETIONS, CREATIONS].map(|annotation| &all[annotation]);
        ensure!(left.iter().all(|left| left.is_null()), "{left:?}");
        Ok(())
    })
    .await
}

async fn all_rows_gone(cluster: &Cluster, product: Product) -> Result<()> {
    let fleet = fleet_on(cluster, product, 7).await?;
    let before = fleet.versions(&["LynqNode", "ConfigMap"]).await?;
    fleet.database.execute("DELETE FROM tenants").await?;
    let said = "7 of 7 nodes have no active row any more: t0-web, t1-web, t2-web and 4 more; lynqgate deletes none of them, because that is more than half. Correct the rows; or, to \
                delete these nodes and their objects, annotate the hub with lynq.sh/confirm-deletions=\"7\"";
    fleet.says(HUB, HELD, said).await?;
    fleet.event("tenants", "DeletionsHeld", said).await?;
    ensure!(
        fleet.versions(&["LynqNode", "ConfigMap"]).await? == before,
        "nothing is deleted"
    );

    // What is new waits as well: a changed id scheme must not double the fleet.
    fleet.insert(7..9).await?;
    let waits = ("Held", "True", "DeletionsHeld");
    let why = "new nodes wait while lynqgate holds deletions of their hub; see the hub's condition DeletionsHeld";
    for node in ["t7-web", "t8-web"] {
        fleet.says(("LynqNode", node), waits, why).await?;
    }
    // Nor does it count beside what runs.
    fleet.says(HUB, HELD, said).await?;
    let old = NODES.map(|node| (node.replace("-web", "-app"), "pro"));
    let old: Vec<(&str, &str)> = old
        .iter()
        .map(|(name, plan)| (name.as_str(), *plan))
        .collect();
    until_maps(&fleet, &old).await?;

    // A query that fails in between decides nothing.
    fleet
        .database
        .execute("ALTER TABLE tenants RENAME TO renters")
        .await?;
    let missing = "there is no table or view {q}tenants{q}; create it, or correct the name (for a query, create a view and give its name)";
    fleet
        .says(HUB, ("Ready", "False", "SourceInvalid"), missing)
        .await?;
    let hub = fleet.get("LynqHub", "tenants").await?;
    ensure!(
        condition(&hub, "DeletionsHeld").is_some_and(|held| held["message"] == said)
            && hub["status"]["desired"] == 2,
        "{}",
        hub["status"]
    );
    until_maps(&fleet, &old).await?;
    fleet
        .database
        .execute("ALTER TABLE renters RENAME TO tenants")
        .await?;

    confirm(&fleet, "6").await?;
    let few = said.replace(
        "more than half.",
        "more than half and lynq.sh/confirm-deletions confirms 6.",
    );
    fleet.says(HUB, HELD, &few).await?;
    confirm(&fleet, "seven").await?;
    let word = said.replace(
        "more than half.",
        "more than half and lynq.sh/confirm-deletions is not a number.",
    );
    fleet.says(HUB, HELD, &word).await?;
    until_maps(&fleet, &old).await?;

    confirm(&fleet, "7").await?;
    fleet.until_names("LynqNode", &["t7-web", "t8-web"]).await?;
    until_spent(&fleet).await?;
    fleet.says(HUB, NOT_HELD, "").await?;
    fleet.complete(2, SOON).await?;
    until_maps(&fleet, &[("t7-app", "pro"), ("t8-app", "pro")]).await?;
    fleet.retire().await
}

/// The rows come back before anybody confirmed: nothing has happened.
async fn half_of_the_rows_gone(cluster: &Cluster, product: Product) -> Result<()> {
    let fleet = fleet_on(cluster, product, 11).await?;
    let before = fleet.versions(&["LynqNode", "ConfigMap"]).await?;
    fleet
        .database
        .execute("UPDATE tenants SET active = 'no' WHERE id < 't5'")
        .await?;
    let said = "6 of 11 nodes have no active row any more: t0-web, t1-web, t10-web and 3 more; lynqgate deletes none of them, because that is more than half. Correct the rows; or, \
                to delete these nodes and their objects, annotate the hub with lynq.sh/confirm-deletions=\"6\"";
    fleet.says(HUB, HELD, said).await?;
    fleet
        .database
        .execute("UPDATE tenants SET active = '1'")
        .await?;
    fleet.says(HUB, NOT_HELD, "").await?;
    ensure!(
        fleet.versions(&["LynqNode", "ConfigMap"]).await? == before,
        "nothing is written"
    );
    // Half of them is not more than half.
    fleet
        .database
        .execute("DELETE FROM tenants WHERE id IN ('t0', 't1', 't2', 't3', 't4')")
        .await?;
    fleet
        .until_names(
            "LynqNode",
            &["t10-web", "t5-web", "t6-web", "t7-web", "t8-web", "t9-web"],
        )
        .await?;
    fleet.retire().await
}

/// For one with the same columns and other tenants, and back.
async fn table_swapped(cluster: &Cluster, product: Product) -> Result<()> {
    let fleet = fleet_on(cluster, product, 7).await?;
    let before = fleet.versions(&["LynqNode", "ConfigMap"]).await?;
    for statement in [
        "CREATE TABLE others AS SELECT CONCAT('other-', id) id, active, url, plan, image FROM tenants",
        "ALTER TABLE tenants RENAME TO renters",
        "ALTER TABLE others RENAME TO tenants",
    ] {
        fleet.database.execute(statement).await?;
    }
    let said = "7 of 7 nodes have no active row any more: t0-web, t1-web, t2-web and 4 more; lynqgate deletes none of them, because that is more than half. Correct the rows; or, to \
                delete these nodes and their objects, annotate the hub with lynq.sh/confirm-deletions=\"7\"";
    fleet.says(HUB, HELD, said).await?;
    // As many new nodes as old ones are there by now, and none of the old ones goes for it.
    let waits = ("Held", "True", "DeletionsHeld");
    let why = "new nodes wait while lynqgate holds deletions of their hub; see the hub's condition DeletionsHeld";
    for number in 0..7 {
        let node = format!("other-t{number}-web");
        fleet.says(("LynqNode", &node), waits, why).await?;
    }
    let waiting = fleet.versions(&["LynqNode"]).await?;
    fleet
        .database
        .execute("UPDATE tenants SET plan = 'basic'")
        .await?;
    wait::until("the rows are read again", SOON, async || {
        ensure!(fleet.versions(&["LynqNode"]).await? != waiting, "not yet");
        Ok(())
    })
    .await?;
    fleet.says(HUB, HELD, said).await?;
    for statement in [
        "ALTER TABLE tenants RENAME TO others",
        "ALTER TABLE renters RENAME TO tenants",
    ] {
        fleet.database.execute(statement).await?;
    }
    fleet.says(HUB, NOT_HELD, "").await?;
    let after = fleet.versions(&["LynqNode", "ConfigMap"]).await?;
    ensure!(
        before.is_subset(&after),
        "of the old nodes nothing is written"
    );
    fleet.retire().await
}

/// It may be the row of any node that is about to go.
async fn a_row_without_uid(cluster: &Cluster) -> Result<()> {
    let fleet = fleet(cluster, 3).await?;
    fleet
        .database
        .execute("UPDATE tenants SET id = NULL WHERE id = 't1'")
        .await?;
    let said = "1 of 3 nodes has no active row any more: t1-web; lynqgate deletes none of them, because 1 active row has no usable uid and may be theirs. \
                Correct the rows; or, to delete these nodes and their objects, annotate the hub with lynq.sh/confirm-deletions=\"1\"";
    fleet.says(HUB, HELD, said).await?;
    fleet
        .database
        .execute("UPDATE tenants SET id = 't1' WHERE id IS NULL")
        .await?;
    fleet.says(HUB, NOT_HELD, "").await?;
    fleet
        .until_names("LynqNode", &["t0-web", "t1-web", "t2-web"])
        .await?;
    fleet.retire().await
}

async fn form_gone(cluster: &Cluster) -> Result<()> {
    let fleet = fleet(cluster, 7).await?;
    // Half of the nodes, and no more, are the form's.
    let other = form(&fleet, "api", &[map("api", "-api")]);
    fleet.apply(&other).await?;
    let of_other = NODES.map(|node| node.replace("-web", "-api"));
    let of_other = of_other.each_ref().map(String::as_str);
    let maps = (0..7).flat_map(|n| [format!("t{n}-api"), format!("t{n}-app")]);
    let maps: Vec<String> = maps.collect();
    let maps: Vec<(&str, &str)> = maps.iter().map(|map| (map.as_str(), "pro")).collect();
    until_maps(&fleet, &maps).await?;
    fleet
        .api("LynqForm")
        .delete("web", &DeleteParams::default())
        .await?;
    let said = "7 of 14 nodes have no form (web) any more: t0-web, t1-web, t2-web and 4 more; lynqgate deletes none of them, because more than 5 nodes of a deleted form need a \
                confirmation. Apply the form again; or, to delete these nodes and their objects, annotate the hub with \
                lynq.sh/confirm-deletions=\"7\"";
    fleet.says(HUB, HELD, said).await?;
    until_maps(&fleet, &maps).await?;
    confirm(&fleet, "7").await?;
    fleet.until_names("LynqNode", &of_other).await?;
    until_spent(&fleet).await?;
    fleet.retire().await
}

/// What is to go runs on as it is, and the form does not call that complete.
async fn form_changed_while_deletions_are_held(cluster: &Cluster) -> Result<()> {
    let fleet = fleet(cluster, 9).await?;
    let before = fleet.versions(&["LynqNode", "ConfigMap"]).await?;
    fleet
        .database
        .execute("DELETE FROM tenants WHERE id < 't6'")
        .await?;
    let said = "6 of 9 nodes have no active row any more: t0-web, t1-web, t2-web and 3 more; lynqgate deletes none of them, because that is more than half. Correct the rows; or, to \
                delete these nodes and their objects, annotate the hub with lynq.sh/confirm-deletions=\"6\"";
    fleet.says(HUB, HELD, said).await?;
    let mut changed = map("app", "-app");
    changed["spec"]["data"]["plan"] = json!("new-{{ .plan }}");
    fleet.apply(&form(&fleet, "web", &[changed])).await?;
    let not_complete = ("RolloutComplete", "False", "InProgress");
    let behind = "the newest content is not written to t0-web, t1-web, t2-web, t3-web, t4-web and 1 more: if that lasts, see the hub's conditions; 3/9 updated, 0 not ready yet, 0 held";
    fleet
        .says(("LynqForm", "web"), not_complete, behind)
        .await?;
    let after = fleet.versions(&["LynqNode", "ConfigMap"]).await?;
    let touched: Vec<&String> = before
        .difference(&after)
        .map(|[_, name, ..]| name)
        .collect();
    let of_staying = ["t6", "t7", "t8"];
    ensure!(
        touched
            .iter()
            .all(|name| of_staying.iter().any(|t| name.starts_with(t))),
        "{touched:?}"
    );
    confirm(&fleet, "6").await?;
    fleet.complete(3, SOON).await?;
    fleet.retire().await
}

async fn own_limit(cluster: &Cluster) -> Result<()> {
    let fleet = fleet(cluster, 3).await?;
    fleet
        .change("LynqHub", "tenants", &json!({"guard": {"maxDeletions": 1}}))
        .await?;
    fleet
        .database
        .execute("DELETE FROM tenants WHERE id = 't0'")
        .await?;
    fleet.until_names("LynqNode", &["t1-web", "t2-web"]).await?;
    fleet.database.execute("DELETE FROM tenants").await?;
    let said = "2 of 2 nodes have no active row any more: t1-web, t2-web; lynqgate deletes none of them, because spec.guard.maxDeletions allows 1 at a time. \
                Correct the rows; or, to delete these nodes and their objects, annotate the hub with lynq.sh/confirm-deletions=\"2\"";
    fleet.says(HUB, HELD, said).await?;
    fleet
        .change(
            "LynqHub",
            "tenants",
            &json!({"guard": {"maxDeletions": "100%"}}),
        )
        .await?;
    fleet.until_names("LynqNode", &[]).await?;
    fleet.retire().await
}

/// Of a million rows nothing is kept; of as many as can be kept nothing is made before their count is confirmed. What is there changes as
/// ever.
async fn a_join_without_a_condition(cluster: &Cluster) -> Result<()> {
    let fleet = fleet(cluster, 2).await?;
    for (view, each) in [("million", 499_999), ("few", 75)] {
        let statement = format!(
            "CREATE VIEW {view} AS SELECT id, active, url, 'big' plan, image FROM tenants UNION ALL \
             SELECT CONCAT(id, '-', seq), active, url, plan, image FROM tenants, seq_1_to_{each}"
        );
        fleet.database.execute(&statement).await?;
    }
    let before = fleet.versions(&["LynqNode", "ConfigMap"]).await?;
    // Who applies it is told beforehand.
    let mut hub = fleet.hub();
    hub["spec"]["source"]["mysql"]["table"] = json!("few");
    let try_it = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "--dry-run=server",
        "-f",
        "-",
    ];
    let tried = cluster.kubectl(&try_it, Some(&hub.to_string())).await?;
    for said in [
        "with the rows that it reads now, this hub, of 2 tenants, creates 150 (t0-1, t0-10, t0-11 and 147 more), changes 2 (t0, t1)",
        "150 new nodes wait: a sync of a hub with 2 nodes creates at most 100 (spec.guard.maxCreations).",
    ] {
        ensure!(
            tried.success && tried.stderr.contains(said),
            "{}",
            tried.stderr
        );
    }
    let unmapped = json!({"spec": {"extraValueMappings": {"plan": null}}}).to_string();
    let namespace = fleet.namespace.as_str();
    let patch = [
        "patch",
        "lynqhub",
        "tenants",
        "-n",
        namespace,
        "--type=merge",
        "--dry-run=server",
        "-p",
        &unmapped,
    ];
    let tried = cluster.kubectl(&patch, None).await?;
    let said = "of form web, it does not render for 2 of 2 rows: row t0: resource 'app': ";
    ensure!(
        tried.success && tried.stderr.contains(said),
        "{}",
        tried.stderr
    );
    // Read when the hub changes, and not every second.
    let reads = |table: &str| json!({"source": {"syncInterval": "0s", "mysql": {"table": table}}});
    fleet
        .change("LynqHub", "tenants", &reads("million"))
        .await?;
    let said = "too many rows: more than 100000 are active or undecided. Nothing was changed. Correct \
                the table, or read a view that has fewer rows";
    let failed = ("Ready", "False", "SourceInvalid");
    fleet.says(HUB, failed, said).await?;
    ensure!(
        fleet.versions(&["LynqNode", "ConfigMap"]).await? == before,
        "nothing is written"
    );

    let guard = json!({"guard": {"maxCreations": 5}});
    fleet.change("LynqHub", "tenants", &guard).await?;
    fleet.change("LynqHub", "tenants", &reads("few")).await?;
    let held = ("CreationsHeld", "True", "TooManyCreations");
    let said = "150 new nodes wait: spec.guard.maxCreations allows 5 at a time. Correct the rows; or, to create these nodes, annotate the hub \
                with lynq.sh/confirm-creations=\"150\"";
    fleet.says(HUB, held, said).await?;
    fleet.event("tenants", "CreationsHeld", said).await?;
    until_maps(&fleet, &[("t0-app", "big"), ("t1-app", "big")]).await?;
    let not_complete = ("RolloutComplete", "False", "InProgress");
    let missing = "the newest content is not written to t0-1-web, t0-10-web, t0-11-web, t0-12-web, t0-13-web and 145 more: if that lasts, see the hub's conditions; 2/2 updated, 0 not ready yet, 0 held";
    fleet
        .says(("LynqForm", "web"), not_complete, missing)
        .await?;
    annotate(&fleet, CREATIONS, "149").await?;
    let other = said.replace(
        "at a time.",
        "at a time and lynq.sh/confirm-creations confirms 149.",
    );
    fleet.says(HUB, held, &other).await?;
    fleet.until_names("LynqNode", &["t0-web", "t1-web"]).await?;

    let fewer = "CREATE OR REPLACE VIEW few AS SELECT id, active, url, 'big' plan, image FROM tenants UNION ALL \
                 SELECT CONCAT(id, '-', seq), active, url, plan, image FROM tenants, seq_1_to_3";
    fleet.database.execute(fewer).await?;
    annotate(&fleet, CREATIONS, "6").await?;
    let made = [
        "t0-1-web", "t0-2-web", "t0-3-web", "t0-web", "t1-1-web", "t1-2-web", "t1-3-web", "t1-web",
    ];
    fleet.until_names("LynqNode", &made).await?;
    until_spent(&fleet).await?;
    fleet
        .says(HUB, ("CreationsHeld", "False", "NothingHeld"), "")
        .await?;
    fleet.complete(8, SOON).await?;
    fleet.retire().await
}
