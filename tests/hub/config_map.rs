//! Rows from a ConfigMap, where there is no database.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::cluster::wait;
use crate::hub::{fleet, until_maps};
use crate::operator;
use crate::tenants::{Fleet, SOON};

/// The rows, under this key of the ConfigMap.
async fn write(fleet: &Fleet, key: &str, text: &str) -> Result<()> {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "rows", "namespace": fleet.namespace},
        "data": {key: text},
    });
    fleet.apply(&map).await?;
    Ok(())
}

fn from(key: &str) -> Value {
    json!({"source": {"type": "configMap", "configMap": {"name": "rows", "key": key}}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_a_config_map_are_as_good_as_a_tables() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = fleet(cluster, 2).await?;
    // The same rows from another place are no change.
    let first = "id,active,url,plan,image\nt0,1,https://t0.example.com/,pro,\nt1,1,https://t1.example.com/,pro,\n";
    write(&fleet, "rows.csv", first).await?;
    let before = fleet.get("LynqNode", "t0-web").await?;
    fleet
        .change("LynqHub", "tenants", &from("rows.csv"))
        .await?;
    wait::until("the hub's change is known", SOON, async || {
        let hub = fleet.get("LynqHub", "tenants").await?;
        let ready = crate::tenants::condition(&hub, "Ready")
            .cloned()
            .unwrap_or_default();
        ensure!(
            ready["observedGeneration"] == hub["metadata"]["generation"],
            "{ready}"
        );
        Ok(())
    })
    .await?;
    let read = ("Ready", "True", "DatabaseConnected");
    let hub = ("LynqHub", "tenants");
    fleet
        .says(hub, read, "the rows of the ConfigMap were read")
        .await?;
    let after = fleet.get("LynqNode", "t0-web").await?;
    ensure!(
        before["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"],
        "{after}"
    );

    let more = format!("{first}t2,yes,https://t2.example.com/,\"free, for now\",\nt3,0,,,\n");
    write(&fleet, "rows.csv", &more).await?;
    until_maps(
        &fleet,
        &[
            ("t0-app", "pro"),
            ("t1-app", "pro"),
            ("t2-app", "free, for now"),
        ],
    )
    .await?;

    // As people write it: white space does not count, and what is neither active nor inactive decides nothing.
    let spelled = more
        .replace("t0,1,", "t0, 1,")
        .replace("t1,1,", "t1,Y,")
        .replace("t2,yes,", "t2,on,")
        .replace("t3,0,", "t3,T,");
    ensure!(spelled != more, "{more}");
    let nodes = fleet.versions(&["LynqNode"]).await?;
    write(&fleet, "rows.csv", &spelled).await?;
    let skipped = ("RowsSkipped", "True", "UnusableRows");
    let said = "Rows \"t1\", \"t2\", \"t3\": column \"active\" has a value that is neither active nor inactive, so its nodes stay as \
                they are; write 1 or 0, or list the value in the hub's activeValues or inactiveValues";
    fleet.says(hub, skipped, said).await?;
    ensure!(
        fleet.versions(&["LynqNode"]).await? == nodes,
        "a node changed"
    );
    // The hub's own words: the rows are what they were before.
    let words = json!({"activeValues": ["1", "y ", "ON"], "inactiveValues": ["t"]});
    fleet.change("LynqHub", "tenants", &words).await?;
    let usable = ("RowsSkipped", "False", "AllRowsUsable");
    fleet.says(hub, usable, "").await?;
    fleet.complete(3, SOON).await?;
    let words = json!({"activeValues": null, "inactiveValues": null});
    fleet.change("LynqHub", "tenants", &words).await?;
    fleet.says(hub, skipped, said).await?;

    // What cannot be read changes nothing, and is told.
    write(&fleet, "rows.csv", "id,active,url,plan,image\nt0,1,x\n").await?;
    let said = format!(
        "ConfigMap \"rows\" in namespace {}, named by spec.source.configMap: line 2 of the rows cannot be read: it has not as \
         many values as the first line has names",
        fleet.namespace
    );
    fleet.hub_condition("Ready", "False", &said).await?;
    fleet
        .change("LynqHub", "tenants", &from("tenants.yaml"))
        .await?;
    let said = "has no key \"tenants.yaml\"; its keys are [\"rows.csv\"]; add it, or correct key";
    fleet.hub_condition("Ready", "False", said).await?;
    ensure!(fleet.list("LynqNode").await?.len() == 3, "a node is gone");

    let rows = "- {id: t0, active: true, url: x, plan: pro, image: null}\n- {id: t1, active: 1, url: x, plan: big, image: null}\n";
    write(&fleet, "tenants.yaml", rows).await?;
    fleet.hub_condition("Ready", "True", "").await?;
    until_maps(&fleet, &[("t0-app", "pro"), ("t1-app", "big")]).await?;
    fleet.retire().await
}
