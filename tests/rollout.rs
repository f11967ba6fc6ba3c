//! The main path: rows become nodes, nodes become objects, and a change goes through the window.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use crate::operator;
use crate::tenants::{Fleet, SOON};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_become_ready_objects() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "first", 5).await?;
    fleet
        .apply(&fleet.form("registry.example.com/web:1", json!(2), 0))
        .await?;
    fleet.complete(5, SOON).await?;
    let deployments = fleet.list("Deployment").await?;
    assert_eq!(deployments.len(), 5);
    fleet
        .apply(&fleet.form("registry.example.com/web:2", json!(2), 0))
        .await?;
    fleet.complete(5, SOON).await?;
    for deployment in fleet.list("Deployment").await? {
        assert_eq!(
            deployment["spec"]["template"]["spec"]["containers"][0]["image"],
            "registry.example.com/web:2"
        );
    }
    Ok(())
}
