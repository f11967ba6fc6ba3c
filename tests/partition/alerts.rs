//! The rule file for Prometheus, on the operator's own metrics.

use anyhow::{Result, ensure};

use crate::cluster::wait;
use crate::operator;
use crate::partition::{edit, fleet, settled, stateful_set};
use crate::tenants::SOON;

/// By Prometheus' own engine, on the metrics of a StatefulSet that waits for a broken pod, and of one that is updated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "two minutes, and it builds Prometheus' engine: make prove"]
async fn they_fire_for_the_stateful_set_that_waits_and_for_no_other() -> Result<()> {
    let (cluster, operator) = operator::shared().await?;
    let (good, bad) = (fleet(cluster).await?, fleet(cluster).await?);
    for fleet in [&good, &bad] {
        fleet.apply(&stateful_set(fleet, 2, "db:1")).await?;
        settled(fleet, 2).await?;
    }
    edit(&good, "db:2").await?;
    edit(&bad, "db:2-broken").await?;
    let stuck = format!(
        "lynqgate_statefulset_stuck{{namespace=\"{}\",statefulset=\"db\",reason=\"NotAvailable\"}} 1\n",
        bad.namespace
    );
    let metrics = wait::until("the gauge", 6 * SOON, async || {
        let metrics = operator.metrics().await?;
        ensure!(metrics.contains(&stuck), "{metrics}");
        Ok(metrics)
    })
    .await?;
    settled(&good, 2).await?;
    let fired = async |after: &str| -> Result<Vec<String>> {
        let all = crate::alerts::fired(&metrics, after).await?.into_iter();
        let ours = |line: &String| {
            let is_here = |fleet: &&crate::tenants::Fleet| line.contains(&fleet.namespace);
            line.starts_with("StatefulSet") && [&good, &bad].iter().any(is_here)
        };
        Ok(all.filter(ours).collect())
    };
    let labels = format!("namespace=\"{}\"", bad.namespace);
    let stuck =
        format!("StatefulSetUpdateStuck{{{labels}, reason=\"NotAvailable\", statefulset=\"db\"}}");
    let stopped = format!("StatefulSetUpdateStopped{{{labels}, statefulset=\"db\"}}");
    for (after, expected) in [
        ("4m", vec![]),
        ("6m", vec![stuck.clone()]),
        ("12m", vec![stopped, stuck]),
    ] {
        let fired = fired(after).await?;
        ensure!(fired == expected, "after {after}: {fired:?}");
    }
    edit(&bad, "db:2").await?;
    settled(&bad, 2).await
}
