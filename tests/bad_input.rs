//! Every kind of bad input on the running operator: the message that each gets stands here literally, the rest goes on,
//! and nothing is deleted.

mod database;
mod forms;
mod lasting;
mod objects;
mod refusals;
mod rows;
mod unreadable;

use anyhow::Result;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::cluster::database::{Product, shared};
use crate::tenants::{Fleet, SOON};
use crate::words::CANARY;

/// A fleet with a form `web` of one ConfigMap a tenant, which has a secret of the row in it; all is done.
async fn fleet(cluster: &Cluster, rows: usize) -> Result<Fleet> {
    fleet_on(cluster, Product::Mariadb, rows).await
}

async fn fleet_on(cluster: &Cluster, product: Product, rows: usize) -> Result<Fleet> {
    let secret = format!("UPDATE tenants SET plan = '{CANARY}'");
    let database = shared(product).await?;
    let fleet = Fleet::on(cluster, database, "bad", rows, &secret).await?;
    fleet.apply(&form(&fleet, "web", &config_maps())).await?;
    fleet.complete(rows, SOON).await?;
    Ok(fleet)
}

fn form(fleet: &Fleet, name: &str, spec: &Value) -> Value {
    let mut form = json!({
        "apiVersion": "operator.lynq.sh/v1", "kind": "LynqForm",
        "metadata": {"name": name, "namespace": fleet.namespace},
        "spec": {"hubId": "tenants", "rollout": {"maxSkew": 0}},
    });
    let fields = spec.as_object().expect("an object").clone();
    form["spec"]
        .as_object_mut()
        .expect("an object")
        .extend(fields);
    form
}

fn config_maps() -> Value {
    json!({"configMaps": [config_map("app", "{{ .uid }}-app", "{{ .plan }}")]})
}

fn config_map(id: &str, name: &str, value: &str) -> Value {
    json!({
        "id": id, "nameTemplate": name,
        "spec": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"plan": value}},
    })
}
