//! The operator as its users run it: the real program beside the real control plane, with its own service account and
//! the rights that its manifests give it.

#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::sync::OnceCell;

use crate::cluster::credentials::Identity;
use crate::cluster::ports::free_port;
use crate::cluster::process::Process;
use crate::cluster::{self, Cluster, wait};

/// One operator for all tests that do not disturb it.
pub async fn shared() -> Result<(&'static Cluster, &'static Operator)> {
    static SHARED: OnceCell<Result<Operator, String>> = OnceCell::const_new();
    let cluster = cluster::shared().await?;
    let operator = SHARED
        .get_or_init(async || {
            Operator::start(cluster, "operator", &[])
                .await
                .map_err(|e| format!("{e:#}"))
        })
        .await;
    let operator = operator
        .as_ref()
        .map_err(|e| anyhow::anyhow!("the shared operator did not start: {e}"))?;
    Ok((cluster, operator))
}

pub struct Operator {
    pub process: Process,
    pub health_port: u16,
    pub metrics_port: u16,
    pub webhook_port: u16,
}

/// What is around an operator.
pub struct Place<'a> {
    pub kubeconfig: &'a Path,
    /// Where its webhooks are found; None: at its own address.
    pub webhook_url: Option<&'a str>,
    pub environment: &'a [(&'static str, String)],
}

/// Who the operator is.
pub fn identity() -> Identity {
    Identity::service_account("lynq-system", "lynq-controller-manager")
}

/// Installs what the default overlay installs, without the Deployment and the webhook configurations: the operator runs
/// outside, and registers its webhooks by URL.
pub async fn install(cluster: &Cluster) -> Result<()> {
    install_overlay(cluster, "kustomize/overlays/default").await
}

pub async fn install_overlay(cluster: &Cluster, overlay: &str) -> Result<()> {
    let all = cluster.kustomize_build(&root().join(overlay)).await?;
    let outside = |document: &&str| {
        !["kind: Deployment\n", "WebhookConfiguration\n"]
            .iter()
            .any(|kind| document.contains(kind))
    };
    let wanted: Vec<&str> = all.split("\n---\n").filter(outside).collect();
    let wanted = wanted.join("\n---\n");
    cluster
        .kubectl(&["apply", "--server-side", "-f", "-"], Some(&wanted))
        .await?
        .expect_success()?;
    cluster
        .kubectl(
            &[
                "wait",
                "--for=condition=Established",
                "--timeout=30s",
                "crd/lynqhubs.operator.lynq.sh",
                "crd/lynqforms.operator.lynq.sh",
                "crd/lynqnodes.operator.lynq.sh",
            ],
            None,
        )
        .await?
        .expect_success()?;
    // Kubernetes' own controller fills the role of the tenants' kinds.
    let role = [
        "get",
        "clusterrole",
        "lynq-tenants-role",
        "-o",
        "jsonpath={.rules[*].resources}",
    ];
    wait::until(
        "the rights are aggregated",
        Duration::from_secs(30),
        async || {
            let kinds = cluster.kubectl(&role, None).await?.expect_success()?;
            ensure!(kinds.contains("rolebindings"), "{kinds}");
            Ok(())
        },
    )
    .await
}

/// Deletes what the overlay installs, its namespace first, and the webhook configurations that the operator registered.
pub async fn uninstall(cluster: &Cluster) -> Result<()> {
    let all = manifests(cluster).await?;
    let namespace = ["delete", "namespace", "lynq-system"];
    cluster.kubectl(&namespace, None).await?.expect_success()?;
    let delete = ["delete", "--ignore-not-found", "-f", "-"];
    cluster
        .kubectl(&delete, Some(&all))
        .await?
        .expect_success()?;
    Ok(())
}

async fn manifests(cluster: &Cluster) -> Result<String> {
    let overlay = root().join("kustomize/overlays/default");
    cluster.kustomize_build(&overlay).await
}

/// Lets the operator handle more kinds than it comes with, as a user would.
pub async fn grant(cluster: &Cluster, group: &str, resources: &[&str]) -> Result<()> {
    let subject = match identity() {
        Identity::ServiceAccount { namespace, name } => {
            json!({"kind": "ServiceAccount", "namespace": namespace, "name": name})
        }
        Identity::User { name, .. } => json!({"kind": "User", "name": name}),
    };
    let rbac = "rbac.authorization.k8s.io";
    let api = format!("{rbac}/v1");
    let right = json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": api, "kind": "ClusterRole", "metadata": {"name": group},
            "rules": [{"apiGroups": [group], "resources": resources, "verbs": ["*"]}],
        },
        {
            "apiVersion": api, "kind": "ClusterRoleBinding", "metadata": {"name": group},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": group}, "subjects": [subject],
        },
    ]});
    cluster.apply(&right.to_string()).await
}

impl Operator {
    /// Installs the manifests, starts the program and waits until it is ready.
    pub async fn start(cluster: &Cluster, name: &str, extra: &[&str]) -> Result<Operator> {
        install(cluster).await?;
        let kubeconfig = cluster.kubeconfig_for(&identity()).await?;
        Operator::start_at(cluster, name, &kubeconfig, extra).await
    }

    /// The same where the manifests are installed, by way of another kubeconfig.
    pub async fn start_at(
        cluster: &Cluster,
        name: &str,
        kubeconfig: &Path,
        extra: &[&str],
    ) -> Result<Operator> {
        let place = Place {
            kubeconfig,
            webhook_url: None,
            environment: &[],
        };
        let operator = Operator::prepare(cluster, name, &place, extra)?;
        operator.process.start()?;
        operator.ready().await?;
        Ok(operator)
    }

    /// The process, not started yet.
    pub fn prepare(
        cluster: &Cluster,
        name: &str,
        place: &Place,
        extra: &[&str],
    ) -> Result<Operator> {
        let (health_port, metrics_port, webhook_port) = (free_port()?, free_port()?, free_port()?);
        let own_url = format!("https://127.0.0.1:{webhook_port}");
        let webhook_url = place.webhook_url.unwrap_or(&own_url);
        let mut command = Command::new(program("lynqgate")?);
        command
            .args([
                "run",
                "--zap-encoder=console",
                "--zap-log-level=lynqgate=debug,info",
                "--shutdown-settle-seconds=0",
            ])
            .arg(format!("--kubeconfig={}", place.kubeconfig.display()))
            .arg(format!(
                "--health-probe-bind-address=127.0.0.1:{health_port}"
            ))
            .arg(format!("--metrics-bind-address=127.0.0.1:{metrics_port}"))
            .arg("--metrics-secure=false")
            .arg(format!("--webhook-bind-address=127.0.0.1:{webhook_port}"))
            .arg(format!("--webhook-url={webhook_url}"))
            .args(extra)
            // As in kustomize/base/deployment.yaml.
            .env("MIMALLOC_PURGE_DELAY", "0")
            .envs(place.environment.iter().cloned());
        Ok(Operator {
            process: cluster.process(name, command)?,
            health_port,
            metrics_port,
            webhook_port,
        })
    }

    pub async fn ready(&self) -> Result<()> {
        wait::until(
            "the operator is ready",
            Duration::from_secs(30),
            async || {
                self.process.check()?;
                let answer = get(self.health_port, "/readyz").await?;
                anyhow::ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
                Ok(())
            },
        )
        .await
    }

    pub async fn metrics(&self) -> Result<String> {
        get(self.metrics_port, "/metrics").await
    }

    /// What its release loops saw last.
    pub async fn state(&self) -> Result<String> {
        let answer = get(self.metrics_port, "/debug/state").await?;
        let (_, body) = answer.split_once("\r\n\r\n").context("no body")?;
        Ok(body.to_owned())
    }
}

/// One plain HTTP request, and the whole answer.
pub async fn get(port: u16, path: &str) -> Result<String> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
    stream
        .write_all(
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                .as_bytes(),
        )
        .await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A program of this workspace: beside the test's own, in the same build directory.
pub fn program(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let found = own
        .ancestors()
        .skip(1)
        .take(2)
        .map(|dir| dir.join(name))
        .find(|path| path.is_file());
    found.with_context(|| {
        format!(
            "the program {name} is not beside this one; build it first: cargo build --workspace"
        )
    })
}
