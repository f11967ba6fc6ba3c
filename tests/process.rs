//! The operator as a process: it ends in order, hands over, and stops leading when it must.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Options, wait};
use crate::operator::{Operator, get};
use crate::tenants::{Fleet, SOON};

const LEASE: [&str; 4] = [
    "get",
    "lease",
    "f2130106.lynq.sh",
    "--namespace=lynq-system",
];

async fn holder(cluster: &Cluster) -> Result<String> {
    let text = cluster
        .kubectl(&[&LEASE[..], &["--output=json"]].concat(), None)
        .await?
        .expect_success()?;
    let lease: Value = serde_json::from_str(&text)?;
    Ok(lease["spec"]["holderIdentity"]
        .as_str()
        .context("no holder")?
        .to_owned())
}

/// Two replicas, one leads. SIGTERM gives the lease up, so that the other leads at once and goes on with the work; a
/// leader that loses the lease to somebody else ends itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_hand_over_and_a_leader_without_lease_ends() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let first = Operator::start(&cluster, "first", &["--leader-elect"]).await?;
    let leader = wait::until("the first leads", SOON, async || holder(&cluster).await).await?;
    let second = Operator::start(&cluster, "second", &["--leader-elect"]).await?;
    assert_eq!(
        holder(&cluster).await?,
        leader,
        "the second replica is ready without leading"
    );

    let status = first.process.terminate(SOON).await?;
    assert!(status.success(), "SIGTERM ends it in order: {status}");
    let started = Instant::now();
    wait::until("the second leads", SOON, async || {
        let now = holder(&cluster).await?;
        anyhow::ensure!(!now.is_empty() && now != leader, "{now:?}");
        Ok(())
    })
    .await?;
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "a lease that was given up need not run out"
    );
    let fleet = Fleet::new(&cluster, "handover", 3).await?;
    fleet
        .apply(&fleet.form("registry.example.com/web:1", json!(1), 0))
        .await?;
    fleet.complete(3, SOON).await?;

    let thief = json!({"spec": {"holderIdentity": "somebody else", "leaseDurationSeconds": 3600}})
        .to_string();
    cluster
        .kubectl(
            &[
                "patch",
                "lease",
                "f2130106.lynq.sh",
                "--namespace=lynq-system",
                "--type=merge",
                "--patch",
                &thief,
            ],
            None,
        )
        .await?
        .expect_success()?;
    let status = second.process.ended(SOON).await?;
    assert!(
        !status.success() && second.process.log_contains("lost the leader election"),
        "{}",
        second.process.log_tail()
    );
    Ok(())
}

/// Liveness, readiness and metrics, as probes and Prometheus ask for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_and_metrics_answer() -> Result<()> {
    let (cluster, operator) = crate::operator::shared().await?;
    let fleet = Fleet::new(cluster, "metrics", 1).await?;
    fleet
        .apply(&fleet.form("registry.example.com/web:1", json!(1), 0))
        .await?;
    fleet.complete(1, SOON).await?;
    for path in ["/healthz", "/readyz"] {
        let answer = get(operator.health_port, path).await?;
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok"),
            "{path}: {answer}"
        );
    }
    let metrics = operator.metrics().await?;
    let problems = crate::lynq::metrics(&metrics);
    assert!(problems.is_empty(), "docs/LYNQ.md: {problems:#?}");
    for name in [
        "lynqgate_admission_decisions",
        "lynqgate_released",
        "apply_attempts",
        "lynqgate_hub_syncs",
    ] {
        assert!(
            metrics.contains(&format!("# TYPE {name} ")),
            "{name} is missing in\n{metrics}"
        );
    }
    Ok(())
}
