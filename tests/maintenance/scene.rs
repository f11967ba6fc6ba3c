//! A control plane with the component node-maintenance installed, and what the scenes ask of it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Options, wait};
use crate::operator::{self, Operator};

/// For what takes a few seconds on a busy machine.
pub const SOON: Duration = Duration::from_secs(30);
const ANNOTATION: &str = "lifecycle.metal3.io/maintenance";
pub const OVERLAY: &str = "tests/maintenance/overlay";

pub struct Scene {
    pub cluster: Cluster,
}

/// What a test wants to know of a Kubernetes node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub status: String,
    pub progress: String,
    pub asks: bool,
    pub cordoned: bool,
}

impl Scene {
    pub async fn start() -> Result<Scene> {
        let options = Options {
            kubernetes_nodes: 1,
            ..Options::default()
        };
        let cluster = Cluster::start(options).await?;
        operator::install_overlay(&cluster, OVERLAY).await?;
        Ok(Scene { cluster })
    }

    pub async fn operator(&self, name: &str, flags: &[&str]) -> Result<Operator> {
        let flags = [&["--node-maintenance"], flags].concat();
        Operator::start(&self.cluster, name, &flags).await
    }

    /// A Kubernetes node that only pods of its pool come to.
    pub async fn node(&self, name: &str, pool: &str) -> Result<()> {
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": name,
                "annotations": {"kwok.x-k8s.io/node": "fake"},
                "labels": {"pool": pool, "kubernetes.io/hostname": name, "kubernetes.io/os": "linux"},
            },
        });
        self.cluster.apply(&node.to_string()).await?;
        wait::until("the Kubernetes node takes pods", SOON, async || {
            let node = self.get(&["node", name]).await?;
            ensure!(node["spec"]["taints"].is_null(), "{}", node["spec"]);
            ensure!(node["status"]["phase"] == "Running", "{}", node["status"]);
            Ok(())
        })
        .await
    }

    pub async fn get(&self, what: &[&str]) -> Result<Value> {
        let arguments = [&["get", "-o", "json"], what].concat();
        let text = self.kubectl(&arguments).await?;
        Ok(serde_json::from_str(&text)?)
    }

    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.cluster
            .kubectl(arguments, None)
            .await?
            .expect_success()
    }

    pub async fn seen(&self, name: &str) -> Result<Seen> {
        let node = self.get(&["node", name]).await?;
        let annotations = &node["metadata"]["annotations"];
        let text = |name: &str| annotations[name].as_str().unwrap_or_default().to_owned();
        Ok(Seen {
            status: text("lifecycle.metal3.io/maintenance-status"),
            progress: text("lynq.sh/maintenance-progress"),
            asks: annotations[ANNOTATION].is_string(),
            cordoned: node["spec"]["unschedulable"] == true,
        })
    }

    pub async fn lease(&self, name: &str) -> Result<Value> {
        self.get(&["lease", "-n", "lynq-system", name]).await
    }

    pub async fn ask(&self, name: &str, seconds: &str) -> Result<()> {
        let annotation = format!("{ANNOTATION}={seconds}");
        self.kubectl(&["annotate", "node", name, &annotation])
            .await?;
        Ok(())
    }

    /// Nothing is stored of it.
    pub async fn try_to_ask(&self, name: &str, seconds: &str) -> Result<()> {
        let annotation = format!("{ANNOTATION}={seconds}");
        self.kubectl(&["annotate", "--dry-run=server", "node", name, &annotation])
            .await?;
        Ok(())
    }

    /// `lynqgate drain`: exit status, output, errors.
    pub async fn drain(&self, arguments: &[&str]) -> Result<(Option<i32>, String, String)> {
        let kubeconfig = self.cluster.admin_kubeconfig();
        let done = tokio::process::Command::new(operator::program("lynqgate")?)
            .arg("drain")
            .args(arguments)
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .output()
            .await?;
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Ok((done.status.code(), text(&done.stdout), text(&done.stderr)))
    }

    pub async fn ask_no_more(&self, name: &str) -> Result<()> {
        let annotation = format!("{ANNOTATION}-");
        self.kubectl(&["annotate", "node", name, &annotation])
            .await?;
        Ok(())
    }

    /// Until the status is this, and the progress contains this.
    pub async fn until(&self, name: &str, status: &str, progress: &str) -> Result<Seen> {
        let what = format!("{name} is {status}: {progress}");
        wait::until(&what, SOON, async || {
            let seen = self.seen(name).await?;
            ensure!(
                seen.status == status && seen.progress.contains(progress),
                "{seen:?}"
            );
            Ok(seen)
        })
        .await
    }

    /// Names of the pods on a Kubernetes node.
    pub async fn pods_on(&self, name: &str) -> Result<Vec<String>> {
        let selector = format!("--field-selector=spec.nodeName={name}");
        let pods = self.get(&["pods", "-A", &selector]).await?;
        let pods = pods["items"].as_array().context("a list")?;
        let ready = pods
            .iter()
            .filter(|pod| pod["status"]["phase"] == "Running");
        let name = |pod: &Value| {
            pod["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        Ok(ready.map(name).collect())
    }

    pub async fn until_pods(&self, name: &str, count: usize) -> Result<()> {
        let what = format!("{count} pods run on {name}");
        wait::until(&what, SOON, async || {
            let pods = self.pods_on(name).await?;
            ensure!(pods.len() == count, "{} pods: {pods:?}", pods.len());
            Ok(())
        })
        .await
    }

    /// Until an event of this reason about the Kubernetes node contains this text.
    pub async fn event(&self, name: &str, reason: &str, text: &str) -> Result<()> {
        let selector = format!("--field-selector=involvedObject.name={name},reason={reason}");
        let what = format!("an event {reason} about {name}: {text}");
        wait::until(&what, SOON, async || {
            let events = self.get(&["events", "-n", "default", &selector]).await?;
            let events = events["items"].as_array().context("a list")?;
            let says = |event: &Value| event["message"].as_str().is_some_and(|m| m.contains(text));
            ensure!(events.iter().any(says), "{events:#?}");
            Ok(())
        })
        .await
    }
}

/// A workload whose pods go to a pool.
pub fn workload(kind: &str, name: &str, pool: &str, replicas: u32, pod: Value) -> Value {
    let labels = json!({"app": name});
    let mut pod_spec = json!({
        "nodeSelector": {"pool": pool},
        "containers": [{"name": "main", "image": "registry.example.com/web:1"}],
        "terminationGracePeriodSeconds": 1,
    });
    json_patch::merge(&mut pod_spec, &pod);
    let mut spec = json!({
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod_spec},
    });
    if kind != "DaemonSet" {
        spec["replicas"] = replicas.into();
    }
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}
