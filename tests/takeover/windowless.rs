//! A takeover where nothing makes nodes wait for each other.

use anyhow::{Context, Result, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::cluster::wait;
use crate::operator::Operator;
use crate::takeover::{ROWS, cluster_of_lynq, fleet_of_lynq, form, migrate, released, substance};
use crate::tenants::{Fleet, SOON, condition};

/// Lynq's default: whatever is healthy and stays as it is waits for nothing, and what would change is tried all the same, since
/// nothing else tells which objects the release is to delete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_window_it_is_tried_as_well_and_what_goes_is_deleted() -> Result<()> {
    let cluster = cluster_of_lynq().await?;
    let same = fleet_of_lynq(&cluster, "same", |_| "web:1").await?;
    let pruned = fleet_of_lynq(&cluster, "pruned", |_| "web:1").await?;
    let forced = fleet_of_lynq(&cluster, "forced", |_| "web:1").await?;
    let forced_one_by_one = fleet_of_lynq(&cluster, "forced-one-by-one", |_| "web:1").await?;
    let windowless = |fleet: &Fleet| {
        let mut form = form(fleet, "web:1");
        form["spec"]["rollout"]["maxSkew"] = json!(0);
        form
    };
    same.apply(&windowless(&same)).await?;
    let force = json!({"lynq.sh/force-rollout": "true"});
    for fleet in [&pruned, &forced, &forced_one_by_one] {
        let mut form = windowless(fleet);
        form["spec"]["configMaps"] = json!([]);
        if fleet.namespace != pruned.namespace {
            form["spec"]["rollout"]["maxSkew"] = json!(1);
        }
        if fleet.namespace == forced.namespace {
            form["metadata"]["annotations"] = force.clone();
        }
        fleet.apply(&form).await?;
    }
    for name in forced_one_by_one.names("LynqNode").await? {
        let force = Patch::Merge(json!({"metadata": {"annotations": force}}));
        let nodes = forced_one_by_one.api("LynqNode");
        nodes.patch(&name, &PatchParams::default(), &force).await?;
    }
    let before = substance(&same).await?;
    let told = migrate(&cluster, "").await?.expect_success()?;
    let namespace = &pruned.namespace;
    let goes = format!(
        "t0-web (at once, as no window applies): ConfigMap/{namespace}/t0-settings is deleted: the form does not name it"
    );
    ensure!(told.contains(&goes), "{told}");

    let operator = Operator::start(&cluster, "operator", &[]).await?;
    for fleet in [&same, &pruned, &forced, &forced_one_by_one] {
        wait::until("every node is live", SOON, async || {
            for node in fleet.list("LynqNode").await? {
                let annotations = &node["metadata"]["annotations"];
                ensure!(annotations["lynq.sh/extra"].is_null(), "{annotations}");
                let rolled = condition(&node, "Rolled").context("Rolled")?;
                ensure!(rolled["status"] == "True", "{rolled}");
            }
            Ok(())
        })
        .await?;
    }
    released(&operator, &same, &[("taken_over", ROWS)]).await?;
    released(&operator, &pruned, &[("ungated", ROWS)]).await?;
    for fleet in [&forced, &forced_one_by_one] {
        released(&operator, fleet, &[("forced", ROWS)]).await?;
    }
    let after = substance(&same).await?;
    ensure!(after == before, "{before:?} became {after:?}");
    for fleet in [&pruned, &forced, &forced_one_by_one] {
        wait::until("what no form names any more is gone", SOON, async || {
            let names = fleet.names("ConfigMap").await?;
            let left = names.iter().find(|name| name.ends_with("-settings"));
            ensure!(left.is_none(), "{names:?}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}
