//! One operator: a Kubernetes node is drained and released, a second one waits, and a stranger's Lease is respected.

use anyhow::{Result, ensure};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::cluster::wait;
use crate::maintenance::scene::{SOON, Scene, workload};

/// 26 pods under a budget, 2 with an emptyDir, 1 without a controller, 1 of a DaemonSet.
async fn fill(scene: &Scene) -> Result<()> {
    let empty_dir = json!({"volumes": [{"name": "scratch", "emptyDir": {}}]});
    let bare = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare"},
        "spec": {"nodeName": "k8s-1", "containers": [{"name": "main", "image": "registry.example.com/web:1"}]},
    });
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
        "spec": {"minAvailable": 20, "selector": {"matchLabels": {"app": "web"}}},
    });
    for object in [
        workload("Deployment", "web", "full", 26, json!({})),
        workload("Deployment", "scratch", "full", 2, empty_dir),
        workload("DaemonSet", "agent", "full", 0, json!({})),
        bare,
        budget,
    ] {
        scene.cluster.apply(&object.to_string()).await?;
    }
    scene.until_pods("k8s-1", 30).await?;
    wait::until("the budget knows its pods", SOON, async || {
        let budget = scene.get(&["pdb", "web"]).await?;
        ensure!(
            budget["status"]["disruptionsAllowed"] == 6,
            "{}",
            budget["status"]
        );
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kubernetes_node_is_drained_and_released_while_another_waits() -> Result<()> {
    let scene = Scene::start().await?;
    scene.node("k8s-1", "full").await?;
    scene.node("k8s-2", "empty").await?;
    fill(&scene).await?;
    let operator = scene
        .operator("operator", &["--drain-emptydir-pods"])
        .await?;

    for bad in ["2h", "0", "-1", ""] {
        wait::until("the policy refuses it", SOON, async || {
            let asked = scene.try_to_ask("k8s-1", bad).await;
            let refused = asked
                .err()
                .map(|error| error.to_string())
                .unwrap_or_default();
            ensure!(
                refused.contains("not a number of seconds"),
                "{bad:?}: {refused}"
            );
            Ok(())
        })
        .await?;
    }
    scene.ask("k8s-1", "3600").await?;

    // The budget lets 6 go; those that replace them find no place.
    let blocked = "PodDisruptionBudget default/web: 20 healthy of 20 needed (disruptionsAllowed 0)";
    let seen = scene.until("k8s-1", "active", blocked).await?;
    ensure!(seen.cordoned, "{seen:?}");
    scene.event("k8s-1", "EvictionBlocked", blocked).await?;
    let no_controller = "default/bare: it has no controller";
    scene
        .event("k8s-1", "EvictionBlocked", no_controller)
        .await?;
    scene.until_pods("k8s-1", 22).await?;
    let lease = scene.lease("k8s-1").await?;
    let spec = &lease["spec"];
    ensure!(spec["holderIdentity"] == "machine-remediation", "{lease}");
    ensure!(
        spec["leaseDurationSeconds"] == 3630 && spec["leaseTransitions"] == 1,
        "{lease}"
    );

    // Another asks meanwhile, which a person had cordoned.
    scene.kubectl(&["cordon", "k8s-2"]).await?;
    scene.ask("k8s-2", "2").await?;
    let text = "1 of 1 Kubernetes nodes are in maintenance: k8s-1 (--max-nodes-in-maintenance 1)";
    scene.until("k8s-2", "waiting", text).await?;
    scene.event("k8s-2", "MaintenanceWaiting", text).await?;
    scene.lease("k8s-2").await.expect_err("it has no Lease yet");

    // Room elsewhere, and somebody deletes the pod that nobody makes again.
    scene.node("k8s-3", "full").await?;
    scene.kubectl(&["delete", "pod", "bare"]).await?;
    scene
        .until(
            "k8s-1",
            "active",
            "drained: not evicted: 1 pod of DaemonSets, or static",
        )
        .await?;
    scene.event("k8s-1", "Drained", "drained").await?;
    scene.until_pods("k8s-1", 1).await?;
    scene.until_pods("k8s-3", 29).await?;
    let metrics = operator.metrics().await?;
    for line in [
        "lynqgate_maintenance_nodes{stage=\"active\"} 1\n",
        "lynqgate_maintenance_nodes{stage=\"waiting\"} 1\n",
        "lynqgate_maintenance_blocked_nodes 0\n",
        "lynqgate_maintenance_evictions_total{result=\"accepted\"} 28\n",
    ] {
        ensure!(metrics.contains(line), "no {line} in\n{metrics}");
    }
    scene.ask_no_more("k8s-1").await?;
    let seen = scene.until("k8s-1", "ended", "").await?;
    ensure!(!seen.cordoned, "{seen:?}");
    wait::until("the Lease is reset", SOON, async || {
        let lease = scene.lease("k8s-1").await?;
        ensure!(lease["spec"]["leaseDurationSeconds"].is_null(), "{lease}");
        Ok(())
    })
    .await?;

    // The next one's turn. Its window ends by itself, and what was cordoned before stays cordoned.
    let seen = scene.until("k8s-2", "ended", "").await?;
    ensure!(seen.cordoned && !seen.asks, "{seen:?}");
    strangers_lease_is_respected(&scene).await?;
    the_command_follows(&scene).await?;

    scene.kubectl(&["delete", "node", "k8s-1"]).await?;
    wait::until(
        "the Lease goes with its Kubernetes node",
        SOON,
        async || {
            let lease = scene.lease("k8s-1").await;
            ensure!(lease.is_err(), "{lease:?}");
            Ok(())
        },
    )
    .await
}

/// It is not touched until it has run out.
async fn strangers_lease_is_respected(scene: &Scene) -> Result<()> {
    scene.node("k8s-4", "empty").await?;
    let now = Timestamp::now();
    let time = now.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "k8s-4", "namespace": "lynq-system"},
        "spec": {"holderIdentity": "stranger", "leaseDurationSeconds": 7, "acquireTime": time, "renewTime": time, "leaseTransitions": 5},
    });
    scene.cluster.apply(&lease.to_string()).await?;
    let version = scene.lease("k8s-4").await?["metadata"]["resourceVersion"].clone();
    scene.ask("k8s-4", "600").await?;
    let seen = scene
        .until("k8s-4", "waiting", "stranger holds the Lease until")
        .await?;
    ensure!(!seen.cordoned, "{seen:?}");
    let ends = now + SignedDuration::from_secs(7);
    wait::until("lynqgate holds the Lease", SOON, async || {
        let lease = scene.lease("k8s-4").await?;
        let untouched = lease["metadata"]["resourceVersion"] == version;
        if !untouched && Timestamp::now() < ends {
            return Ok(Err(anyhow::anyhow!(
                "it was written before its end: {lease}"
            )));
        }
        ensure!(!untouched, "it is still the stranger's");
        let spec = &lease["spec"];
        let good = spec["holderIdentity"] == "machine-remediation" && spec["leaseTransitions"] == 6;
        let owned = lease["metadata"]["ownerReferences"][0]["name"] == "k8s-4";
        ensure!(good && owned, "{lease}");
        Ok(Ok(()))
    })
    .await??;
    scene.until("k8s-4", "active", "").await?;
    scene.ask_no_more("k8s-4").await?;
    scene.until("k8s-4", "ended", "").await?;
    Ok(())
}

/// k8s-3 has pods under a budget that blocks; k8s-1 has room for them.
async fn the_command_follows(scene: &Scene) -> Result<()> {
    let (code, _, errors) = scene.drain(&["k8s-9", "--for=2h"]).await?;
    let none = "lynqgate: there is no Kubernetes node \"k8s-9\"\n";
    ensure!(
        (code, errors.as_str()) == (Some(1), none),
        "{code:?} {errors}"
    );
    let (code, _, errors) = scene.drain(&["k8s-3", "--end"]).await?;
    ensure!(
        code == Some(1) && errors.contains("nobody has asked"),
        "{code:?} {errors}"
    );

    scene.kubectl(&["cordon", "k8s-1"]).await?;
    let (code, said, errors) = scene.drain(&["k8s-3", "--for=2h", "--timeout=8s"]).await?;
    let unfinished = "Kubernetes node k8s-3 is not drained after 8 s; its maintenance continues";
    ensure!(
        code == Some(3) && errors.contains(unfinished),
        "{code:?} {errors}"
    );
    ensure!(said.contains("active: blocked: "), "{said}");
    scene.kubectl(&["uncordon", "k8s-1"]).await?;
    let (code, said, errors) = scene.drain(&["k8s-3", "--for=2h"]).await?;
    let end = "Kubernetes node k8s-3 is drained. End its maintenance before its time: lynqgate drain k8s-3 --end\n";
    ensure!(
        code == Some(0) && said.ends_with(end),
        "{code:?} {said} {errors}"
    );
    let (code, said, errors) = scene.drain(&["k8s-3", "--end"]).await?;
    let end = "The maintenance of Kubernetes node k8s-3 has ended. It takes pods again\n";
    ensure!(
        code == Some(0) && said.ends_with(end),
        "{code:?} {said} {errors}"
    );

    // Somebody takes off all that says so, in one write.
    scene.drain(&["k8s-3", "--for=2h"]).await?;
    let marks = [
        "lifecycle.metal3.io/maintenance-",
        "lifecycle.metal3.io/maintenance-status-",
        "lynq.sh/maintenance-progress-",
        "lynq.sh/maintenance-holder-",
    ];
    let annotate = [&["annotate", "node", "k8s-3"], &marks[..]].concat();
    scene.kubectl(&annotate).await?;
    let seen = scene.until("k8s-3", "ended", "").await?;
    ensure!(!seen.cordoned, "{seen:?}");
    Ok(())
}

/// The request that creates a Lease may arrive after the user has taken the maintenance back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_nobody_asks_for_any_more_keeps_no_place() -> Result<()> {
    let scene = Scene::start().await?;
    scene.node("k8s-1", "one").await?;
    scene.node("k8s-2", "two").await?;
    let _operator = scene.operator("operator", &[]).await?;
    let now = format!("{:.6}", Timestamp::now());
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "k8s-1", "namespace": "lynq-system"},
        "spec": {"holderIdentity": "machine-remediation", "leaseDurationSeconds": 3600, "acquireTime": now, "renewTime": now},
    });
    scene.cluster.apply(&lease.to_string()).await?;
    scene.ask("k8s-2", "600").await?;
    scene.until("k8s-2", "active", "drained").await?;
    let lease = scene.lease("k8s-1").await?;
    ensure!(lease["spec"]["leaseDurationSeconds"].is_null(), "{lease}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_no_maintenance_is_installed_the_command_says_so() -> Result<()> {
    let cluster = crate::cluster::shared().await?;
    let done = tokio::process::Command::new(crate::operator::program("lynqgate")?)
        .args(["drain", "fake-0", "--for=2h"])
        .arg(format!(
            "--kubeconfig={}",
            cluster.admin_kubeconfig().display()
        ))
        .output()
        .await?;
    let errors = String::from_utf8_lossy(&done.stderr);
    let off = "there is no ValidatingAdmissionPolicy lynqgate-node-maintenance";
    ensure!(
        done.status.code() == Some(1) && errors.contains(off),
        "{errors}"
    );
    Ok(())
}
