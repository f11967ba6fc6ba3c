//! A real control plane for the tests and the demo: kube-apiserver with its controllers, in one directory, started in
//! seconds and ended whatever happens. Only the kubelet is played, by KWOK. Nothing here knows lynqgate.
//!
//! A client, like a connection to the database, ends with the runtime of the test that made it: ask for a new one in
//! each test. [`shared`] keeps no such thing, so it can serve all tests of a run.

// The tests and the demo include this module, and each uses a part of it.
#![allow(dead_code)]

pub mod access;
pub mod audit;
pub mod credentials;
pub mod database;
pub mod etcd;
pub mod ports;
pub mod process;
pub mod programs;
#[cfg(test)]
mod tests;
pub mod wait;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::OnceCell;

use audit::AuditLog;
use credentials::Credentials;
use process::{AtEnd, Process, ProcessGroup};
use programs::{Component, Layout};

/// For each step of a start. A whole start takes 3 to 6 seconds on an idle machine.
const START_DEADLINE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Fake Kubernetes nodes. Each has room for as many pods as any test makes.
    pub kubernetes_nodes: usize,
    /// Leave the directory (logs, audit log, etcd's data) when the cluster ends.
    pub keep_directory: bool,
    pub record: Record,
}

/// What the API server records of a test's requests, and how it stores objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// The audit log has every write, and every request of a service account. All objects are stored as JSON, so that an auditor
    /// can read them in etcd.
    Everything,
    /// The same, but the audit log has the bodies that the auditor needs, and only those.
    Bodies,
    /// The audit log has the requests of service accounts outside of kube-system alone, and built-in objects are stored as
    /// protobuf, the API server's default. For benchmarks of speed: what an auditor needs costs the API server time.
    OperatorAlone,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            kubernetes_nodes: 2,
            keep_directory: false,
            record: Record::Everything,
        }
    }
}

/// A running control plane. It ends with this value, and with the program.
pub struct Cluster {
    components: BTreeMap<Component, Process>,
    group: Arc<ProcessGroup>,
    programs: PathBuf,
    credentials: Credentials,
    admin: PathBuf,
    etcd_port: u16,
    apiserver_port: u16,
}

/// The control plane that all tests of one run share; each has a namespace of its own in it.
pub async fn shared() -> Result<&'static Cluster> {
    static SHARED: OnceCell<Result<Cluster, String>> = OnceCell::const_new();
    let started = SHARED
        .get_or_init(async || {
            Cluster::start(Options::default())
                .await
                .map_err(|error| format!("{error:#}"))
        })
        .await;
    started
        .as_ref()
        .map_err(|error| anyhow!("the shared control plane did not start: {error}"))
}

impl Cluster {
    pub async fn start(options: Options) -> Result<Cluster> {
        let programs = tokio::task::spawn_blocking(programs::build).await??;
        const ATTEMPTS: usize = 3;
        let mut attempt = 1;
        loop {
            let cluster = Cluster::prepare(&programs, options)?;
            let started = cluster.start_components(options.kubernetes_nodes).await;
            let port_was_taken =
                [Component::Etcd, Component::Apiserver]
                    .into_iter()
                    .any(|component| {
                        let process = cluster.component(component);
                        !process.is_running() && process.log_contains("address already in use")
                    });
            match started {
                Ok(()) => return Ok(cluster),
                Err(_) if port_was_taken && attempt < ATTEMPTS => attempt += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Everything but the start of the processes.
    fn prepare(programs: &Path, options: Options) -> Result<Cluster> {
        let at_end = if options.keep_directory {
            AtEnd::KeepDirectory
        } else {
            AtEnd::RemoveDirectory
        };
        let group = ProcessGroup::new("lynqgate-cluster-", at_end)?;
        let credentials = Credentials::create(
            &group.directory().join("credentials"),
            programs::SERVICE_ADDRESS,
        )?;
        let (etcd_port, apiserver_port) = (ports::free_port()?, ports::free_port()?);
        let layout = Layout {
            directory: group.directory(),
            credentials: &credentials,
            etcd_port,
            apiserver_port,
            record: options.record,
        };
        let mut components = BTreeMap::new();
        for component in Component::ALL {
            let kubeconfig = match component.user() {
                Some((name, group)) => {
                    Some(credentials.certificate_kubeconfig(&layout.server_url(), name, group)?)
                }
                None => None,
            };
            let mut command = Command::new(programs.join(component.program()));
            // Not the user's configuration: kwok, for one, would read it.
            command.env("HOME", group.directory());
            // At Go's default the API server spends a quarter of its time on collecting garbage, and a test has the memory.
            command.env("GOGC", "400");
            command.args(layout.flags(component, kubeconfig.as_deref()));
            components.insert(
                component,
                Process::new(&group, component.program(), command)?,
            );
        }
        let admin = credentials.certificate_kubeconfig(
            &layout.server_url(),
            "admin",
            Some("system:masters"),
        )?;
        let programs = programs.to_owned();
        Ok(Cluster {
            components,
            group,
            programs,
            credentials,
            admin,
            etcd_port,
            apiserver_port,
        })
    }

    async fn start_components(&self, kubernetes_nodes: usize) -> Result<()> {
        for component in [Component::Etcd, Component::Apiserver] {
            self.component(component).start()?;
            self.ready(component).await?;
        }
        for component in [
            Component::ControllerManager,
            Component::Scheduler,
            Component::Kwok,
        ] {
            self.component(component).start()?;
        }
        let nodes = Api::<Node>::all(self.admin().await?);
        for number in 0..kubernetes_nodes {
            let node = serde_json::from_value(json!({
                "metadata": {
                    "name": format!("fake-{number}"),
                    "annotations": { "kwok.x-k8s.io/node": "fake" },
                    "labels": { "kubernetes.io/hostname": format!("fake-{number}"), "kubernetes.io/os": "linux" },
                },
            }))?;
            nodes
                .create(&PostParams::default(), &node)
                .await
                .context("creating a fake Kubernetes node")?;
        }
        // An untainted node means that KWOK, the controller manager and the API server work together.
        wait::until(
            "the fake Kubernetes nodes take pods",
            START_DEADLINE,
            async || {
                for process in self.components.values() {
                    if let Err(ended) = process.check() {
                        return Ok(Err(ended));
                    }
                }
                let nodes = nodes.list(&ListParams::default()).await?;
                match nodes.iter().find(|node| !takes_pods(node)) {
                    Some(node) => bail!("{:?} is tainted or not ready", node.metadata.name),
                    None => Ok(Ok(())),
                }
            },
        )
        .await?
    }

    /// Waits until a component that was just started, or thawed, answers. The others have nothing to ask.
    pub async fn ready(&self, component: Component) -> Result<()> {
        let process = self.component(component);
        match component {
            Component::Etcd => {
                process
                    .ready(START_DEADLINE, async || {
                        get_ok(self.etcd_port, "/health").await
                    })
                    .await
            }
            Component::Apiserver => {
                let admin = self.admin().await?;
                let readyz = async || {
                    admin
                        .request_text(http::Request::get("/readyz").body(Vec::new())?)
                        .await?;
                    Ok(())
                };
                process.ready(START_DEADLINE, readyz).await
            }
            Component::ControllerManager | Component::Scheduler | Component::Kwok => {
                process.check()
            }
        }
    }

    /// A component's process: to kill, freeze and thaw it.
    pub fn component(&self, component: Component) -> &Process {
        &self.components[&component]
    }

    /// Kills the component if it runs, starts it again with the same flags and data, and waits until it is ready.
    pub async fn restart(&self, component: Component) -> Result<()> {
        let process = self.component(component);
        process.kill()?;
        process.start()?;
        self.ready(component).await
    }

    /// A process of the test's own, an operator say, that ends at the latest when the cluster does. Its log is
    /// `<name>.log` in the directory of the cluster.
    pub fn process(&self, name: &str, mut command: Command) -> Result<Process> {
        // The way to 127.0.0.1 goes through no proxy.
        for variable in ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"] {
            command.env_remove(variable);
        }
        Process::new(&self.group, name, command)
    }

    pub fn server_url(&self) -> String {
        format!("https://127.0.0.1:{}", self.apiserver_port)
    }

    pub fn etcd_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.etcd_port)
    }

    /// Where logs and data are.
    pub fn group(&self) -> &Arc<ProcessGroup> {
        &self.group
    }

    /// The directory of kubectl, kustomize and the components.
    pub fn programs(&self) -> &Path {
        &self.programs
    }

    /// The file that the API server logs requests into.
    pub fn audit_log(&self) -> PathBuf {
        self.group.directory().join("audit.log")
    }

    /// A reader of the requests that the API server answers from now on.
    pub async fn audit(&self) -> Result<AuditLog> {
        AuditLog::from_here(self.audit_log(), self.admin().await?).await
    }
}

fn takes_pods(node: &Node) -> bool {
    let tainted = node.spec.as_ref().is_some_and(|spec| {
        spec.taints
            .as_ref()
            .is_some_and(|taints| !taints.is_empty())
    });
    let conditions = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    !tainted
        && conditions
            .iter()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// One plain HTTP request to a local port; anything but a 200 is an error.
async fn get_ok(port: u16, path: &str) -> Result<()> {
    let mut connection = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
    connection
        .write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())
        .await?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await?;
    let status = answer.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        bail!("{path} answers {status:?}");
    }
    Ok(())
}
