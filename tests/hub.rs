//! What a sync does to the nodes: rows come, change and go; the guard, outages, and whose an object is.

mod config_map;
mod guard;
mod outage;
mod ownership;
mod restart;
mod rows;
mod ties;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::cluster::database::{self, Product};
use crate::cluster::{Cluster, wait};
use crate::tenants::{Fleet, SOON};

/// A fleet with a form `web` of one ConfigMap a tenant, whose value is the row's plan; all is done.
async fn fleet(cluster: &Cluster, rows: usize) -> Result<Fleet> {
    fleet_on(cluster, Product::Mariadb, rows).await
}

async fn fleet_on(cluster: &Cluster, product: Product, rows: usize) -> Result<Fleet> {
    let database = database::shared(product).await?;
    let fleet = Fleet::on(cluster, database, "hub", rows, "SELECT 1").await?;
    fleet
        .apply(&form(&fleet, "web", &[map("app", "-app")]))
        .await?;
    fleet.complete(rows, SOON).await?;
    Ok(fleet)
}

fn form(fleet: &Fleet, name: &str, maps: &[Value]) -> Value {
    json!({
        "apiVersion": "operator.lynq.sh/v1", "kind": "LynqForm",
        "metadata": {"name": name, "namespace": fleet.namespace},
        "spec": {"hubId": "tenants", "rollout": {"maxSkew": 2}, "configMaps": maps},
    })
}

/// A ConfigMap that is named after the uid.
fn map(id: &str, suffix: &str) -> Value {
    json!({
        "id": id, "nameTemplate": format!("{{{{ .uid }}}}{suffix}"),
        "spec": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"plan": "{{ .plan }}"}},
    })
}

fn with(mut map: Value, field: &str, value: &str) -> Value {
    map[field] = json!(value);
    map
}

/// Until the ConfigMaps are these, with these values; those of the test itself and of the cluster aside.
async fn until_maps(fleet: &Fleet, expected: &[(&str, &str)]) -> Result<()> {
    wait::until(&format!("the objects are {expected:?}"), SOON, async || {
        let all = fleet.list("ConfigMap").await?;
        let mut found: Vec<(&str, &str)> = all
            .iter()
            .filter(|map| map["metadata"]["labels"]["lynq.sh/managed"] == "true")
            .map(|map| {
                let text = |pointer| map.pointer(pointer).and_then(Value::as_str);
                let name = text("/metadata/name").unwrap_or_default();
                (name, text("/data/plan").unwrap_or_default())
            })
            .collect();
        found.sort();
        ensure!(found == expected, "{found:?}");
        Ok(())
    })
    .await
}
