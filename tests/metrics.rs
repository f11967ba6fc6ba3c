//! The metrics: over TLS for whom, with whose certificate, and under Lynq's names.

mod dashboard;

use std::time::Duration;

use anyhow::{Result, ensure};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio_rustls::TlsConnector;

use crate::admission::tls::{Client, answer};
use crate::cluster::{Cluster, Options, wait};
use crate::offline;
use crate::operating;
use crate::operator::{self, Operator, get};
use crate::tenants::{Fleet, SOON};
use crate::words::CANARY;

async fn scrape(client: &Client, token: Option<&str>) -> Result<(u16, String)> {
    fetch(client, "/metrics", token).await
}

async fn fetch(client: &Client, path: &str, token: Option<&str>) -> Result<(u16, String)> {
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n"));
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{}\r\n",
        token.unwrap_or_default()
    );
    let mut stream = client.connect().await?;
    stream.write_all(head.as_bytes()).await?;
    stream.flush().await?;
    answer(&mut stream).await
}

async fn kubectl(cluster: &Cluster, arguments: &str) -> Result<String> {
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let said = cluster.kubectl(&arguments, None).await?.expect_success()?;
    Ok(said.trim().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_who_may_get_the_metrics_gets_them() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let operator = Operator::start(&cluster, "operator", &["--metrics-secure"]).await?;
    operator.ready().await?;
    for command in [
        "create namespace monitoring",
        "create serviceaccount prometheus -n monitoring",
        "create serviceaccount stranger",
    ] {
        kubectl(&cluster, command).await?;
    }
    operating::run(&cluster, &operating::commands("let a scraper in")?).await?;
    let prometheus = kubectl(&cluster, "create token prometheus -n monitoring").await?;
    let stranger = kubectl(&cluster, "create token stranger").await?;
    let client = Client::new(cluster.admin().await?, operator.metrics_port).await?;
    let mut audit = cluster.audit().await?;
    for _ in 0..3 {
        let (status, text) = scrape(&client, Some(&prometheus)).await?;
        ensure!(
            status == 200 && text.contains("lynqgate_gate_bypasses"),
            "{status}: {text}"
        );
    }
    let asked = audit
        .read()
        .await?
        .iter()
        .filter(|request| request.resource == "tokenreviews")
        .count();
    ensure!(
        asked == 1,
        "the API server was asked {asked} times about one token"
    );
    let may_not = "system:serviceaccount:default:stranger may not get /metrics; bind it to the ClusterRole lynq-metrics-reader";
    for (token, expected, said) in [
        (None, 401, "send the token of a service account"),
        (
            Some("nobody's"),
            401,
            "the API server does not know this token",
        ),
        (Some(stranger.as_str()), 403, may_not),
    ] {
        let (status, text) = scrape(&client, token).await?;
        ensure!(
            (status, text.contains(said)) == (expected, true),
            "{status}: {text}"
        );
    }
    let plain = get(operator.metrics_port, "/metrics")
        .await
        .unwrap_or_default();
    ensure!(!plain.contains("lynqgate_"), "in plain: {plain}");
    let log = std::fs::read_to_string(operator.process.log())?;
    ensure!(!log.contains(&prometheus), "the token stands in the log");

    let (status, text) = fetch(&client, "/debug/state", Some(&prometheus)).await?;
    let may_not =
        "prometheus may not get /debug/state; bind it to the ClusterRole lynq-state-reader";
    ensure!(status == 403 && text.ends_with(may_not), "{status}: {text}");
    operating::run(
        &cluster,
        &operating::commands("let support read the state")?,
    )
    .await?;
    let support = kubectl(&cluster, "create token lynq-support -n lynq-system").await?;
    a_halfway_rollout_is_replayed(&cluster, async |path| {
        fetch(&client, path, Some(&support)).await
    })
    .await
}

/// One tenant of three is broken by a change, and the others wait for it.
async fn a_halfway_rollout_is_replayed(
    cluster: &Cluster,
    state: impl AsyncFn(&str) -> Result<(u16, String)>,
) -> Result<()> {
    let secret = format!("UPDATE tenants SET plan = '{CANARY}'");
    let fleet = Fleet::new_with(cluster, "halfway", 3, &secret).await?;
    let form = |image: &str| {
        let mut form = fleet.form(image, json!(1), 0);
        let data = json!({"data": {"plan": "{{ .plan | b64enc }}", "text": "{{ .plan }}"}});
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "stringData": data["data"]});
        form["spec"]["secrets"] =
            json!([{"id": "plan", "nameTemplate": "{{ .uid }}-plan", "spec": secret}]);
        form
    };
    fleet.apply(&form("web:1")).await?;
    fleet.complete(3, SOON).await?;
    fleet.apply(&form("web:2-broken")).await?;
    fleet
        .rollout("two wait", SOON, |r| {
            r["heldNodes"] == 2 && r["updatedNodes"] == 1
        })
        .await?;
    let path = format!("/debug/state?hub={}/tenants", fleet.namespace);
    let (status, text) = state(&path).await?;
    ensure!(status == 200, "{status}: {text}");
    ensure!(
        !text.contains(CANARY) && !text.contains(&fleet.database.password),
        "{text}"
    );
    let said = offline::succeeded(&offline::lynqgate(&["replay", "-"], &text)?)?.to_owned();
    let first = said.lines().next().unwrap_or_default();
    ensure!(first.ends_with(": the same plan"), "{said}");
    for node in ["t1-web", "t2-web"] {
        let waits =
            format!("  {node} waits: WindowFull: the window of 1 is full; not ready: t0-web");
        ensure!(said.contains(&waits), "{said}");
    }
    for (query, expected, said) in [
        (
            "?hub=tenants",
            400,
            "/debug/state?hub=NAMESPACE/NAME asks for one hub",
        ),
        (
            "?hub=no/where",
            404,
            "no pass of LynqHub no/where is recorded",
        ),
    ] {
        let (status, text) = state(&format!("/debug/state{query}")).await?;
        ensure!(
            status == expected && text.contains(said),
            "{status}: {text}"
        );
    }
    fleet.retire().await?;
    wait::until("nothing is kept of a hub that is gone", SOON, async || {
        let (status, text) = state(&path).await?;
        ensure!(status == 404, "{status}: {text}");
        Ok(())
    })
    .await
}

/// Lynq's arguments, with a certificate of cert-manager's that is renewed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_in_files_is_served_and_read_anew() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let directory = tempfile::tempdir()?;
    let renew = || -> Result<CertificateDer<'static>> {
        let identity = rcgen::generate_simple_self_signed(["metrics.local".to_owned()])?;
        std::fs::write(
            directory.path().join("key.pem"),
            identity.signing_key.serialize_pem(),
        )?;
        std::fs::write(directory.path().join("cert.pem"), identity.cert.pem())?;
        Ok(CertificateDer::from_pem_slice(
            identity.cert.pem().as_bytes(),
        )?)
    };
    let first = renew()?;
    let path = format!("--metrics-cert-path={}", directory.path().display());
    let operator = Operator::start(
        &cluster,
        "operator",
        &[
            "--metrics-secure=true",
            &path,
            "--metrics-cert-name=cert.pem",
            "--metrics-cert-key=key.pem",
            "--enable-http2=false",
            "--webhook-cert-path=/tmp/k8s-webhook-server/serving-certs",
        ],
    )
    .await?;
    operator.ready().await?;
    let serves = async |certificate: &CertificateDer<'static>| -> Result<()> {
        let config = crate::admission::tls::trusting([certificate.clone()])?;
        let tcp = tokio::net::TcpStream::connect(("127.0.0.1", operator.metrics_port)).await?;
        let name = ServerName::try_from("metrics.local")?;
        TlsConnector::from(config).connect(name, tcp).await?;
        Ok(())
    };
    serves(&first).await?;
    let second = renew()?;
    wait::until(
        "the renewed one is served",
        Duration::from_secs(10),
        async || serves(&second).await,
    )
    .await?;
    ensure!(serves(&first).await.is_err(), "the old one is served still");
    let log = std::fs::read_to_string(operator.process.log())?;
    let said = "--webhook-cert-path, -name and -key are not used";
    ensure!(log.contains(said), "no {said:?} in the log");
    Ok(())
}

/// As Lynq's dashboards and alerts read them; of what is gone nothing stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lynqs_metrics_have_their_names() -> Result<()> {
    let (cluster, operator) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "dashboards", 2).await?;
    fleet.apply(&fleet.form("web:1", json!(1), 0)).await?;
    fleet.complete(2, SOON).await?;
    let namespace = fleet.namespace.clone();
    let series = [
        format!("hub_desired{{hub=\"tenants\",namespace=\"{namespace}\"}} 2"),
        format!("hub_ready{{hub=\"tenants\",namespace=\"{namespace}\"}} 2"),
        format!("hub_failed{{hub=\"tenants\",namespace=\"{namespace}\"}} 0"),
        format!("lynqform_rollout_updating_nodes{{form=\"web\",namespace=\"{namespace}\"}} 0"),
        format!("lynqform_rollout_phase{{form=\"web\",namespace=\"{namespace}\"}} 3"),
        format!("lynqform_rollout_progress{{form=\"web\",namespace=\"{namespace}\"}} 100"),
        format!("lynqnode_resources_ready{{lynqnode=\"t0-web\",namespace=\"{namespace}\"}} 1"),
        format!("lynqnode_resources_desired{{lynqnode=\"t1-web\",namespace=\"{namespace}\"}} 1"),
        format!("lynqnode_resources_failed{{lynqnode=\"t1-web\",namespace=\"{namespace}\"}} 0"),
        format!("lynqnode_resources_conflicted{{lynqnode=\"t1-web\",namespace=\"{namespace}\"}} 0"),
        format!(
            "lynqnode_condition_status{{lynqnode=\"t0-web\",namespace=\"{namespace}\",type=\"Ready\"}} 1"
        ),
    ];
    wait::until("they are served", SOON, async || {
        let text = operator.metrics().await?;
        for line in &series {
            ensure!(text.lines().any(|found| found == line), "no {line}");
        }
        let looks = "lynqnode_reconcile_duration_seconds_count{result=\"success\"}";
        ensure!(text.contains(looks), "no {looks}");
        Ok(())
    })
    .await?;
    // Somebody else's object.
    let owner = fleet.get("ConfigMap", "kube-root-ca.crt").await?;
    let theirs = json!({"metadata": {"ownerReferences": [{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "kube-root-ca.crt", "uid": owner["metadata"]["uid"], "controller": true,
    }]}});
    fleet.merge("Deployment", "t0-app", &theirs).await?;
    let degraded =
        format!("lynqnode_degraded_status{{lynqnode=\"t0-web\",namespace=\"{namespace}\",reason=");
    let conflicted = format!(
        "lynqnode_resources_conflicted{{lynqnode=\"t0-web\",namespace=\"{namespace}\"}} 1\n"
    );
    wait::until("it is degraded", SOON, async || {
        let text = operator.metrics().await?;
        for begins in [&degraded, &conflicted] {
            ensure!(text.contains(begins.as_str()), "no {begins}");
        }
        Ok(())
    })
    .await?;
    let text = operator.metrics().await?;
    for begins in [
        format!(
            "lynqnode_conflicts_total{{lynqnode=\"t0-web\",namespace=\"{namespace}\",resource_kind=\"Deployment\",conflict_policy=\"Stuck\"}} "
        ),
        "apply_attempts_total{kind=\"Deployment\",result=\"success\",conflict_policy=\"Stuck\"} "
            .to_owned(),
        "workqueue_depth{name=\"lynqnode\"} ".to_owned(),
        "controller_runtime_reconcile_total{controller=\"lynqhub\",result=\"success\"} ".to_owned(),
    ] {
        let found = text.lines().any(|line| line.starts_with(&begins));
        ensure!(found, "no {begins}");
    }
    fleet
        .merge(
            "Deployment",
            "t0-app",
            &json!({"metadata": {"ownerReferences": null}}),
        )
        .await?;
    fleet.retire().await?;
    let gone = Default::default();
    fleet.api("LynqForm").delete("web", &gone).await?;
    wait::until("nothing stays", SOON, async || {
        let text = operator.metrics().await?;
        let left = text.lines().find(|line| line.contains(&namespace));
        ensure!(left.is_none(), "{left:?}");
        Ok(())
    })
    .await
}
