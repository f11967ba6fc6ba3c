//! What must not take the gate along: a panic in the reconcile of one node, and strangers who reach the port of the webhooks. One
//! operator for both, installed over the webhook configurations of the cluster's own installation.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kube::api::{Patch, PatchParams};
use lynqgate::cluster::objects::{ApiError, Objects};
use lynqgate::decide::child::ObjectKey;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use crate::admission::tls::{Client, head};
use crate::cluster::{Cluster, Options, wait};
use crate::operator::{self, Operator, root};
use crate::tenants::{Fleet, SOON, condition};

const NODES: usize = 100;
/// Its reconcile panics, in a build for tests.
const BAD: &str = "planted-panic-web";
const BAD_ROW: &str =
    "INSERT INTO tenants VALUES ('planted-panic', '1', 'https://example.com/', 'pro', NULL)";
const PATH: &str = "/validate-operator-lynq-sh-v1-lynqnode";
const JSON: &str = "Content-Type: application/json\r\n";

const CLIENTS: usize = 500;
const BODY: usize = 7 * 1024 * 1024;
const RESIDENT_KIB_MAX: u64 = 300 * 1024;

fn form(fleet: &Fleet, version: &str, max_skew: usize) -> Value {
    json!({
        "apiVersion": "operator.lynq.sh/v1", "kind": "LynqForm", "metadata": {"name": "web", "namespace": fleet.namespace},
        "spec": {"hubId": "tenants", "rollout": {"maxSkew": max_skew}, "configMaps": [{
            "id": "app", "nameTemplate": "{{ .uid }}-app",
            "spec": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"version": version}},
        }]},
    })
}

/// How many tenants run this version.
async fn running(fleet: &Fleet, version: &str) -> Result<usize> {
    let maps = fleet.list("ConfigMap").await?;
    let of_version = |map: &&Value| map["data"]["version"] == version;
    Ok(maps.iter().filter(of_version).count())
}

async fn run(fleet: &Fleet, version: &str, nodes: usize) -> Result<()> {
    let what = format!("{nodes} tenants run {version}");
    wait::until(&what, SOON, async || {
        let running = running(fleet, version).await?;
        ensure!(running == nodes, "{running} do");
        Ok(())
    })
    .await
}

/// The most that it ever had in memory, in KiB, without the pages of its file: a build for tests has many.
fn resident_most(operator: &Operator) -> Result<u64> {
    let id = operator.process.id().context("it runs")?;
    let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
    let size = |name: &str| -> Result<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let size = line.and_then(|line| line.split_whitespace().next());
        Ok(size.with_context(|| name.to_owned())?.parse()?)
    };
    Ok(size("VmHWM:")? - size("RssFile:")?)
}

/// Sends so much of a body and waits for the answer; None where the connection ended without one.
async fn send(client: &Client, body: &[u8], sent: usize) -> Option<u16> {
    let stream = client.connect().await.ok()?;
    let (mut reader, mut writer) = tokio::io::split(stream);
    let sending = async {
        let head = head(PATH, JSON, body.len());
        if writer.write_all(head.as_bytes()).await.is_ok() {
            let _ = writer.write_all(&body[..sent]).await;
            let _ = writer.flush().await;
        }
        // What was answered meanwhile is still to be read.
        std::future::pending::<()>().await;
    };
    let mut answer = Vec::new();
    tokio::select! {
        () = sending => {}
        _ = reader.read_to_end(&mut answer) => {}
    }
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1)?.parse().ok()?;
    if status == 503 {
        assert!(
            answer.to_lowercase().contains("\r\nretry-after: 1\r\n"),
            "{answer}"
        );
    }
    Some(status)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_a_panic_nor_a_crowd_of_strangers_takes_the_gate_along() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    operator::install(&cluster).await?;
    let fleet = Fleet::new_with(&cluster, "strangers", NODES - 1, BAD_ROW).await?;
    // As the overlay installs them, with the Service: the URL replaces it.
    let overlay = root().join("kustomize/overlays/default");
    let all = cluster.kustomize_build(&overlay).await?;
    let webhooks = all
        .split("\n---\n")
        .filter(|document| document.contains("WebhookConfiguration\n"));
    let webhooks = webhooks.collect::<Vec<_>>().join("\n---\n");
    ensure!(webhooks.contains("service:"), "{webhooks}");
    cluster.apply(&webhooks).await?;
    let kubeconfig = cluster.kubeconfig_for(&operator::identity()).await?;
    let operator = Operator::start_at(&cluster, "operator", &kubeconfig, &[]).await?;
    let pid = operator.process.id();

    fleet.apply(&form(&fleet, "1", 0)).await?;
    run(&fleet, "1", NODES - 1).await?;
    wait::until("the node says that it is not ready", SOON, async || {
        let node = fleet.get("LynqNode", BAD).await?;
        let ready = condition(&node, "Ready").context("Ready")?;
        let message = ready["message"].as_str().unwrap_or_default();
        ensure!(ready["status"] == "False", "{ready}");
        ensure!(message.contains("lynqgate panicked"), "{ready}");
        Ok(())
    })
    .await?;
    // It fills the window of 1, so that no other node goes.
    fleet.apply(&form(&fleet, "2", 1)).await?;
    fleet
        .rollout("the others are held", SOON, |rollout| {
            rollout["heldNodes"] == NODES - 1
        })
        .await?;
    ensure!(running(&fleet, "2").await? == 0, "the window was exceeded");

    let client = Client::new(cluster.admin().await?, operator.webhook_port).await?;
    let quiet = resident_most(&operator)?;
    // A short text for a map that takes 640 bytes once it is read.
    let review = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE","object":["#;
    let dense = format!("{review}{}0]}}}}", r#"{"":0},"#.repeat(BODY / 7 - 40));
    ensure!(dense.len() <= BODY, "{}", dense.len());
    let status = send(&client, dense.as_bytes(), dense.len()).await;
    ensure!(status == Some(413), "{status:?}");

    let body: Arc<[u8]> = [review.as_bytes(), &b"0,".repeat(BODY)].concat()[..BODY].into();
    let mut strangers = JoinSet::new();
    for number in 0..CLIENTS {
        let (client, body) = (client.clone(), body.clone());
        // Every other one stops on the way.
        let sent = if number % 2 == 0 { BODY } else { BODY / 28 };
        strangers.spawn(async move { send(&client, &body, sent).await });
    }
    fleet.apply(&form(&fleet, "2", 10)).await?;
    let mut slowest = Duration::ZERO;
    for number in 0..20 {
        let label = json!({"metadata": {"labels": {"touched": number.to_string()}}});
        let begun = Instant::now();
        let nodes = fleet.api("LynqNode");
        let patch = Patch::Merge(&label);
        nodes
            .patch("t0-web", &PatchParams::default(), &patch)
            .await?;
        slowest = slowest.max(begun.elapsed());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    run(&fleet, "2", NODES - 1).await?;
    let answers = strangers.join_all().await;
    let of = |status| answers.iter().filter(|answer| **answer == status).count();
    let most = resident_most(&operator)?;
    eprintln!(
        "resident at most {quiet} KiB before, {most} KiB after; {} answers 503, {} answers 408, {} without; an admission took {slowest:?} at most",
        of(Some(503)),
        of(Some(408)),
        of(None)
    );
    ensure!(most < RESIDENT_KIB_MAX, "{most} KiB");
    ensure!(of(Some(503)) > 0, "{answers:?}");

    operator.ready().await?;
    ensure!(operator.process.id() == pid, "another process");
    let metrics = operator.metrics().await?;
    for said in [
        "lynqgate_panics_total{controller=\"lynqhub\"} 0\n",
        "lynqgate_admission_decisions_total{webhook=\"validating\",outcome=\"busy\"}",
        "lynqgate_events_dropped_total{type=\"Warning\"} 0\n",
    ] {
        ensure!(metrics.contains(said), "no {said} in {metrics}");
    }
    ensure!(!metrics.contains("lynqgate_panics_total{controller=\"lynqnode\"} 0\n"));
    let log = &operator.process;
    for said in [
        format!("{}/{BAD}", fleet.namespace),
        "it counts as not ready: lynqgate panicked, which is a bug".to_owned(),
    ] {
        ensure!(log.log_contains(&said), "no {said} in the log");
    }
    let events = fleet.events(BAD).await?;
    let told =
        |(reason, text): &(String, String)| reason == "LookFailed" && text.contains("panicked");
    ensure!(events.iter().any(told), "{events:?}");

    // What was decided on one node is not written to another of its name.
    let objects = Objects::new(cluster.admin().await?);
    let key = ObjectKey::own("LynqNode", &fleet.namespace, BAD);
    let told = json!({"readyResources": 7, "observedHash": null});
    let other = objects.patch_status(&key, "another", &told).await;
    ensure!(matches!(other, Err(ApiError::Refused(_))), "{other:?}");
    let node = fleet.get("LynqNode", BAD).await?;
    ensure!(node["status"]["readyResources"] != 7, "{}", node["status"]);
    let uid = node["metadata"]["uid"].as_str().context("a uid")?;
    let status = objects.patch_status(&key, uid, &told).await?["status"].take();
    ensure!(status["readyResources"] == 7, "{status}");
    ensure!(status.get("observedHash").is_none(), "{status}");
    Ok(())
}
