//! What only etcd itself can be asked for: to forget the past, and to be full. By its JSON gateway.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::cluster::Cluster;

/// Revisions that a compaction leaves: an auditor that follows closely has read what is older.
const LEFT: u64 = 300;

/// Forgets all but the newest revisions.
pub async fn compact(cluster: &Cluster) -> Result<()> {
    let found = ask(cluster, "kv/range", json!({"key": "AA=="})).await?;
    let newest = found["header"]["revision"]
        .as_str()
        .context("no revision")?;
    let revision = newest.parse::<u64>()?.saturating_sub(LEFT).max(1);
    ask(
        cluster,
        "kv/compaction",
        json!({"revision": revision, "physical": true}),
    )
    .await?;
    Ok(())
}

/// A full disk, as far as its clients can tell.
pub async fn set_full(cluster: &Cluster, full: bool) -> Result<()> {
    let action = if full { "ACTIVATE" } else { "DEACTIVATE" };
    let request = json!({"action": action, "alarm": "NOSPACE"});
    ask(cluster, "maintenance/alarm", request).await?;
    Ok(())
}

async fn ask(cluster: &Cluster, what: &str, request: Value) -> Result<Value> {
    let url = cluster.etcd_url();
    let address = url.trim_start_matches("http://");
    let mut connection = tokio::net::TcpStream::connect(address).await?;
    let body = request.to_string();
    let head = format!(
        "POST /v3/{what} HTTP/1.0\r\nHost: {address}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    connection.write_all((head + &body).as_bytes()).await?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
    let line = head.lines().next().unwrap_or_default();
    ensure!(
        line.contains(" 200 "),
        "etcd answers {what} with {line}: {body}"
    );
    Ok(serde_json::from_str(body)?)
}
