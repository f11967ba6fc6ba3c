//! The programs of the control plane: where they are and with which flags they run. Starts nothing itself, except
//! the script that builds them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::Record;
use super::credentials::Credentials;

const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster");

/// The first address of [`SERVICES`]: that of the service `kubernetes`.
pub const SERVICE_ADDRESS: &str = "10.96.0.1";
/// As wide as the API server allows; the default has room for 254 services only.
const SERVICES: &str = "10.96.0.0/12";
const PODS: &str = "10.128.0.0/9";

/// A program of the control plane, by the name that the tests use to kill, freeze or restart it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Component {
    Etcd,
    Apiserver,
    ControllerManager,
    Scheduler,
    Kwok,
}

impl Component {
    pub const ALL: [Component; 5] = [
        Component::Etcd,
        Component::Apiserver,
        Component::ControllerManager,
        Component::Scheduler,
        Component::Kwok,
    ];

    /// The name of the program's file.
    pub fn program(self) -> &'static str {
        match self {
            Component::Etcd => "etcd",
            Component::Apiserver => "kube-apiserver",
            Component::ControllerManager => "kube-controller-manager",
            Component::Scheduler => "kube-scheduler",
            Component::Kwok => "kwok",
        }
    }

    /// The user and the group of a component that is a client of the API server.
    pub fn user(self) -> Option<(&'static str, Option<&'static str>)> {
        match self {
            Component::Etcd | Component::Apiserver => None,
            Component::ControllerManager => Some(("system:kube-controller-manager", None)),
            Component::Scheduler => Some(("system:kube-scheduler", None)),
            Component::Kwok => Some(("kwok", Some("system:masters"))),
        }
    }
}

/// Builds what is not built yet and returns the directory of the programs. The first time takes minutes; the script
/// tells on standard error what it does.
pub fn build() -> Result<PathBuf> {
    let script = Path::new(HERE).join("build");
    let output = Command::new(&script)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("running {}", script.display()))?;
    if !output.status.success() {
        bail!(
            "{} failed ({}); what it said is above",
            script.display(),
            output.status
        );
    }
    let output = String::from_utf8(output.stdout)?;
    let directory = output
        .lines()
        .last()
        .context("the build script printed no directory")?;
    Ok(PathBuf::from(directory))
}

/// Where one cluster keeps its things.
pub struct Layout<'a> {
    pub directory: &'a Path,
    pub credentials: &'a Credentials,
    pub etcd_port: u16,
    pub apiserver_port: u16,
    pub record: Record,
}

impl Layout<'_> {
    pub fn etcd_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.etcd_port)
    }

    pub fn server_url(&self) -> String {
        format!("https://127.0.0.1:{}", self.apiserver_port)
    }

    fn audit_policy(&self) -> PathBuf {
        Path::new(HERE).join(match self.record {
            Record::Everything => "audit-policy.yaml",
            Record::Bodies => "../audit/audit-policy.yaml",
            Record::OperatorAlone => "audit-policy-operator.yaml",
        })
    }

    pub fn audit_log(&self) -> PathBuf {
        self.directory.join("audit.log")
    }

    /// The flags of a component; `kubeconfig` is that of its own user, where it has one.
    pub fn flags(&self, component: Component, kubeconfig: Option<&Path>) -> Vec<OsString> {
        let mut flags = Flags(Vec::new());
        match component {
            Component::Etcd => self.etcd(&mut flags),
            Component::Apiserver => self.apiserver(&mut flags),
            Component::ControllerManager => self.controller_manager(&mut flags),
            Component::Scheduler => flags
                .set("--leader-elect", "false")
                .set("--secure-port", "0"),
            Component::Kwok => self.kwok(&mut flags),
        };
        if let Some(kubeconfig) = kubeconfig {
            flags.path("--kubeconfig", kubeconfig);
        }
        flags.0
    }

    fn etcd<'f>(&self, flags: &'f mut Flags) -> &'f mut Flags {
        flags
            .path("--data-dir", &self.directory.join("etcd"))
            .set("--listen-client-urls", self.etcd_url())
            .set("--advertise-client-urls", self.etcd_url())
            // There are no peers, but a peer port is always opened.
            .set("--listen-peer-urls", "http://127.0.0.1:0")
            .set("--unsafe-no-fsync", "true")
            // Nothing is compacted: an auditor can read every revision.
            .set("--quota-backend-bytes", (8u64 << 30).to_string())
    }

    fn apiserver<'f>(&self, flags: &'f mut Flags) -> &'f mut Flags {
        let file = |name| self.credentials.file(name);
        if self.record != Record::OperatorAlone {
            flags.set("--storage-media-type", "application/json");
        }
        flags
            .set("--etcd-servers", self.etcd_url())
            .set("--etcd-compaction-interval", "0")
            .set("--bind-address", "127.0.0.1")
            .set("--secure-port", self.apiserver_port.to_string())
            // A loopback address is no valid endpoint of the service `kubernetes`.
            .set("--endpoint-reconciler-type", "none")
            .path("--tls-cert-file", &file("apiserver.crt"))
            .path("--tls-private-key-file", &file("apiserver.key"))
            .path("--client-ca-file", &file("ca.crt"))
            .set("--authorization-mode", "Node,RBAC")
            .set("--allow-privileged", "true")
            .set("--service-cluster-ip-range", SERVICES)
            .set(
                "--service-account-issuer",
                "https://kubernetes.default.svc.cluster.local",
            )
            .path(
                "--service-account-signing-key-file",
                &file("service-account.key"),
            )
            .path("--service-account-key-file", &file("service-account.pub"))
            .path("--audit-policy-file", &self.audit_policy())
            .path("--audit-log-path", &self.audit_log())
            .set("--audit-log-mode", "batch")
            .set("--audit-log-batch-max-size", "100")
            .set("--audit-log-batch-max-wait", "50ms")
            // What does not fit into the buffer would be missing from the log.
            .set("--audit-log-batch-buffer-size", "100000")
            // One file: a reader follows it from its beginning (MB).
            .set("--audit-log-maxsize", "100000")
    }

    fn controller_manager<'f>(&self, flags: &'f mut Flags) -> &'f mut Flags {
        flags
            .set("--leader-elect", "false")
            .set("--secure-port", "0")
            .set("--use-service-account-credentials", "true")
            .path(
                "--service-account-private-key-file",
                &self.credentials.file("service-account.key"),
            )
            .path("--root-ca-file", &self.credentials.file("ca.crt"))
            // A heartbeat that comes late would make it mark every pod not ready, for good.
            .set("--node-monitor-grace-period", "600s")
            .set("--kube-api-qps", "500")
            .set("--kube-api-burst", "1000")
    }

    fn kwok<'f>(&self, flags: &'f mut Flags) -> &'f mut Flags {
        flags
            .path("--config", &Path::new(HERE).join("stages.yaml"))
            .set("--manage-all-nodes", "true")
            .set("--node-lease-duration-seconds", "40")
            .set("--cidr", PODS)
    }
}

struct Flags(Vec<OsString>);

impl Flags {
    fn set(&mut self, name: &str, value: impl AsRef<str>) -> &mut Flags {
        self.0.push(format!("{name}={}", value.as_ref()).into());
        self
    }

    fn path(&mut self, name: &str, value: &Path) -> &mut Flags {
        let mut flag = OsString::from(format!("{name}="));
        flag.push(value);
        self.0.push(flag);
        self
    }
}
