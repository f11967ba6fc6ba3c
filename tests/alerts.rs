//! The alerts of the component `monitoring`, by Prometheus' own engine, on the operator's own metrics while each fault is there.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::io::AsyncWriteExt;

use crate::cluster::{Cluster, Options, wait};
use crate::operator::{Operator, root};
use crate::tenants::{Fleet, SOON};

const RULES: &str = "../../kustomize/components/monitoring/alerts.yaml";

/// The alerts that fire if these metrics stay as they are for so long, each with its labels.
pub async fn fired(metrics: &str, after: &str) -> Result<Vec<String>> {
    let (_, metrics) = metrics.split_once("\r\n\r\n").context("a body")?;
    let mut engine = tokio::process::Command::new("go")
        .args(["run", ".", RULES, after])
        .current_dir(root().join("tests/alerts"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut input = engine.stdin.take().context("its input")?;
    input.write_all(metrics.as_bytes()).await?;
    drop(input);
    let done = engine.wait_with_output().await?;
    ensure!(done.status.success(), "the engine failed");
    let all = String::from_utf8(done.stdout)?;
    Ok(all.lines().map(str::to_owned).collect())
}

/// Until the operator serves metrics on which exactly these alerts fire.
async fn fire(operator: &Operator, after: &str, wanted: &[&str]) -> Result<()> {
    wait::until(&format!("{wanted:?} fire"), 3 * SOON, async || {
        let fired = fired(&operator.metrics().await?, after).await?;
        let names: Vec<&str> = fired
            .iter()
            .filter_map(|alert| alert.split('{').next())
            .collect();
        ensure!(names == wanted, "{fired:?}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it builds Prometheus' engine: make prove"]
async fn each_fires_while_its_fault_is_there() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let operator = Operator::start(&cluster, "operator", &[]).await?;
    let fleet = Fleet::new(&cluster, "alerts", 8).await?;
    fleet.apply(&fleet.form("web:1", json!(1), 0)).await?;
    fleet.complete(8, SOON).await?;
    fire(&operator, "10m", &[]).await?;
    // Nothing was read again for a quarter of an hour.
    fire(&operator, "20m", &["LynqDatabaseStale"]).await?;
    // Of a hub whose database has never answered: nothing listens at this port.
    let mut unread = fleet.hub();
    unread["metadata"]["name"] = json!("unread");
    unread["spec"]["source"][fleet.database.product.source()]["port"] = json!(1);
    fleet.apply(&unread).await?;
    fire(&operator, "20m", &["LynqDatabaseStale"; 2]).await?;
    fire(&operator, "5m", &[]).await?;

    fleet
        .apply(&fleet.form("web:2-broken", json!(1), 0))
        .await?;
    fire(&operator, "5m", &["LynqRolloutHalted"]).await?;
    fleet.apply(&fleet.form("web:3", json!(1), 0)).await?;
    fleet.complete(8, 2 * SOON).await?;
    fire(&operator, "5m", &[]).await?;

    fleet
        .database
        .execute("DELETE FROM tenants WHERE id <> 't0'")
        .await?;
    fire(&operator, "5m", &["LynqDeletionsHeld"]).await?;
    fleet.insert(1..8).await?;
    fire(&operator, "5m", &[]).await?;

    // One that waits for the lease of another does not lead.
    let elected = |name| Operator::start(&cluster, name, &["--leader-elect"]);
    drop(operator);
    let leader = elected("leader").await?;
    let other = elected("other").await?;
    fire(&leader, "5m", &[]).await?;
    fire(&other, "5m", &["LynqNoLeader"]).await?;
    Ok(())
}

/// What cannot be brought about by users without a bug or an attack, on metrics that are written by hand.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it builds Prometheus' engine: make prove"]
async fn those_on_the_operator_fire_by_their_metrics() -> Result<()> {
    let fine = "lynqgate_shards_led 1\n";
    for (metric, alert) in [
        (
            "lynqgate_rollout_waiting_nodes{form=\"web\",namespace=\"a\",reason=\"BrokenBefore\"} 3",
            "LynqRolloutStuck{form=\"web\", namespace=\"a\", reason=\"BrokenBefore\"}",
        ),
        ("lynqgate_gate_bypasses_total 1", "LynqPastTheGate{}"),
        (
            "lynqgate_certificate_expiry_timestamp_seconds 5",
            "LynqCertificateExpiring{}",
        ),
        (
            "lynqgate_admission_decisions_total{outcome=\"busy\",webhook=\"mutate\"} 1",
            "LynqGateErrors{outcome=\"busy\", webhook=\"mutate\"}",
        ),
        (
            "lynqgate_panics_total{controller=\"lynqhub\"} 1",
            "LynqPanic{controller=\"lynqhub\"}",
        ),
    ] {
        let metrics = format!("\r\n\r\n{fine}{metric}\n# EOF\n");
        let fired = fired(&metrics, "14m").await?;
        let expected: &[&str] = if alert.starts_with("LynqRolloutStuck") {
            &[]
        } else {
            &[alert]
        };
        ensure!(fired == expected, "{metric}: {fired:?}");
    }
    let stuck =
        "lynqgate_rollout_waiting_nodes{form=\"web\",namespace=\"a\",reason=\"BrokenBefore\"} 3";
    let metrics = format!("\r\n\r\n{fine}{stuck}\n# EOF\n");
    let fired = fired(&metrics, "16m").await?;
    ensure!(
        fired.len() == 1 && fired[0].starts_with("LynqRolloutStuck"),
        "{fired:?}"
    );
    Ok(())
}
