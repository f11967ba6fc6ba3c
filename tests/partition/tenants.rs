//! Many tenants with a StatefulSet each: the window of their form, and one pod in each of them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::cluster::{Cluster, wait};
use crate::maintenance::scene::Scene;
use crate::operator;
use crate::partition::images;
use crate::tenants::{Fleet, SOON, condition};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_window_of_tenants_breaks_one_pod_each() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    breaks_a_window(cluster, 12, (3, 12), async || Ok(())).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a minute of most of the machine: make prove"]
async fn a_window_of_fifty_tenants_breaks_one_pod_each_beside_a_maintenance() -> Result<()> {
    let scene = Scene::start().await?;
    let _operator = scene.operator("operator", &[]).await?;
    scene.node("k8s-9", "more").await?;
    // The pods that it evicts come back while the bad revision is on its way.
    let maintenance = async || {
        scene.ask("fake-0", "3600").await?;
        wait::until("fake-0 is cordoned", SOON, async || {
            let seen = scene.seen("fake-0").await?;
            ensure!(seen.cordoned, "{seen:?}");
            Ok(())
        })
        .await
    };
    breaks_a_window(&scene.cluster, 50, (5, 5), maintenance).await?;
    scene.until("fake-0", "active", "drained").await?;
    scene.ask_no_more("fake-0").await?;
    scene.until("fake-0", "ended", "").await?;
    Ok(())
}

/// A bad revision breaks one pod of each of as many tenants as the window is wide, and stays there until it is corrected. The windows are of
/// the change and of its correction.
async fn breaks_a_window(
    cluster: &Cluster,
    tenants: usize,
    (window, corrected): (usize, usize),
    before: impl AsyncFnOnce() -> Result<()>,
) -> Result<()> {
    let fleet = Fleet::new(cluster, "pods", tenants).await?;
    let form = |image: &str, window: Value| {
        let labels = json!({"db": "{{ .uid }}"});
        let containers = json!([{"name": "db", "image": image}]);
        let template = json!({"metadata": {"labels": labels}, "spec": {"containers": containers}});
        let spec = json!({"replicas": 2, "serviceName": "db", "selector": {"matchLabels": labels}, "template": template});
        let mut form = fleet.form(image, window, 0);
        form["spec"]["rollout"]["creation"] = json!("Immediate");
        form["spec"]["deployments"] = json!([]);
        form["spec"]["statefulSets"] = json!([{
            "id": "db", "nameTemplate": "{{ .uid }}-db", "spec": {"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": spec},
        }]);
        form
    };
    fleet.apply(&form("db:1", json!(window))).await?;
    fleet.complete(tenants, 3 * SOON).await?;

    before().await?;
    fleet.apply(&form("db:2-broken", json!(window))).await?;
    let broken = async || -> Result<usize> {
        let images = images(&fleet).await?;
        let broken = images.iter().filter(|image| *image == "db:2-broken");
        Ok(broken.count())
    };
    wait::until("the window is full", SOON, async || {
        let broken = broken().await?;
        ensure!(broken == window, "{broken} pods are broken");
        Ok(())
    })
    .await?;
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(15) {
        let broken = broken().await?;
        ensure!(broken <= window, "{broken} pods are broken");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let last = broken().await?;
    ensure!(last == window, "{last} pods are broken");
    let node = fleet.list("LynqNode").await?.into_iter().find_map(|node| {
        let message = condition(&node, "Ready")?["message"].as_str()?.to_owned();
        message.starts_with("StatefulSet").then_some(message)
    });
    let node = node.context("a node that is not ready")?;
    ensure!(
        node.contains("-db: 1/2 updated, one pod after the other"),
        "{node}"
    );

    fleet.apply(&form("db:3", json!(corrected))).await?;
    fleet.complete(tenants, 10 * SOON).await?;
    let all = images(&fleet).await?;
    ensure!(all == vec!["db:3"; 2 * tenants], "{all:?}");
    fleet.retire().await
}
