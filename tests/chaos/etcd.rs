//! An etcd that forgets the past, and one that is full.

use anyhow::{Context, Result};
use serde_json::json;

use crate::cluster::Cluster;
use crate::cluster::etcd::ask;

/// Revisions that a compaction leaves: an auditor that follows closely has read what is older.
const LEFT: u64 = 300;

/// Forgets all but the newest revisions.
pub async fn compact(cluster: &Cluster) -> Result<()> {
    let found = ask(cluster, "kv/range", &json!({"key": "AA=="})).await?;
    let newest = found["header"]["revision"]
        .as_str()
        .context("no revision")?;
    let revision = newest.parse::<u64>()?.saturating_sub(LEFT).max(1);
    ask(
        cluster,
        "kv/compaction",
        &json!({"revision": revision, "physical": true}),
    )
    .await?;
    Ok(())
}

/// A full disk, as far as its clients can tell.
pub async fn set_full(cluster: &Cluster, full: bool) -> Result<()> {
    let action = if full { "ACTIVATE" } else { "DEACTIVATE" };
    let request = json!({"action": action, "alarm": "NOSPACE"});
    ask(cluster, "maintenance/alarm", &request).await?;
    Ok(())
}
