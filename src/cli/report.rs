//! `lynqgate report`: writes what somebody needs who helps from afar into one YAML file. It reads no Secret, and what it may not read
//! it lists in the file.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::api::names;
use crate::cli::connection::{AnyError, Connected, Connection, run};
use crate::cli::output::{print, tell};
use crate::cluster::clock;
use crate::cluster::inventory;
use crate::cluster::lease::lease_key;
use crate::decide::child::{Kind, ObjectKey};
use crate::decide::report::{self, Nodes};
use crate::decide::rollout::history;
use crate::decide::shared::fields::text_at;

/// The last lines of each container's log.
const LOG_LINES: i64 = 500;

const WARNING: &str = "It contains no values of Secrets, but the names of your tenants, and values of their rows in other manifests. \
                       Read it before you send it to anybody.";

#[derive(clap::Args)]
pub struct Arguments {
    /// File for the report; - for standard output. Default: lynqgate-report-NAMESPACE-TIME.yaml in the current directory.
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, thiserror::Error)]
#[error("{path}: {reason}")]
struct Unwritten {
    path: String,
    reason: std::io::Error,
}

pub fn report(arguments: &Arguments) -> Result<(), AnyError> {
    run(write(arguments))
}

async fn write(arguments: &Arguments) -> Result<(), AnyError> {
    let cluster = arguments.connection.connect().await?;
    let now = clock::now();
    let mut bundle = Bundle::new(&cluster, now);
    bundle.read_namespace().await;
    bundle.read_installation().await;
    let (text, unread) = (bundle.text()?, bundle.unread.len());
    let path = match &arguments.file {
        Some(path) => path.clone(),
        None => report::file_name(&cluster.namespace, now).into(),
    };
    if unread > 0 {
        tell(format_args!(
            "{unread} parts could not be read; the report lists them under `unread`"
        ));
    }
    if path.to_str() == Some("-") {
        print(text)?;
        tell(format_args!("This is the report. {WARNING}"));
        return Ok(());
    }
    store(&path, &text)?;
    let (path, size) = (path.display(), report::size(text.len()));
    Ok(print(format_args!("{path}: {size}. {WARNING}\n"))?)
}

/// For nobody but the user to read.
fn store(path: &Path, text: &str) -> Result<(), Unwritten> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|reason| Unwritten {
        path: path.display().to_string(),
        reason,
    })
}

/// What is in the file.
struct Bundle<'a> {
    cluster: &'a Connected,
    /// The first document.
    summary: Value,
    documents: Vec<Value>,
    /// What could not be read, and why.
    unread: Vec<Value>,
}

impl<'a> Bundle<'a> {
    fn new(cluster: &'a Connected, now: Timestamp) -> Self {
        Bundle {
            cluster,
            summary: json!({
                "kind": "LynqgateReport", "time": now, "lynqgate": env!("CARGO_PKG_VERSION"),
                "namespace": cluster.namespace, "operatorNamespace": cluster.operator_namespace,
            }),
            documents: vec![],
            unread: vec![],
        }
    }

    fn text(&mut self) -> Result<String, AnyError> {
        self.summary["unread"] = self.unread.clone().into();
        let mut text = format!("# A report of lynqgate. {WARNING}\n");
        for document in [&self.summary].into_iter().chain(&self.documents) {
            text += "---\n";
            text += &serde_saphyr::to_string(document)?;
        }
        Ok(text)
    }

    fn miss(&mut self, what: impl Display, error: impl Display) {
        let unread = json!({"what": what.to_string(), "error": error.to_string()});
        self.unread.push(unread);
    }

    /// The objects of a kind in a namespace that these parameters select, as far as they can be read.
    async fn list(&mut self, kind: &Kind, namespace: &str, params: ListParams) -> Vec<Value> {
        let mut all = vec![];
        let objects = &self.cluster.objects;
        let listed = objects.list_selected(kind, namespace, params, |mut object| {
            // The API server leaves that out of the items of many lists.
            object["apiVersion"] = kind.api_version.as_str().into();
            object["kind"] = kind.kind.as_str().into();
            all.push(object);
        });
        if let Err(error) = listed.await {
            self.miss(
                format_args!("{}s of namespace {namespace}", kind.kind),
                error,
            );
        }
        all
    }

    async fn read_namespace(&mut self) {
        let cluster = self.cluster;
        let namespace = &cluster.namespace;
        match inventory::version(&cluster.objects).await {
            Ok(version) => self.summary["apiServer"] = version.into(),
            Err(error) => self.miss("version of the API server", error),
        }
        let own = |kind: &str| ObjectKey::own(kind, "", "").kind;
        for kind in ["LynqHub", "LynqForm"] {
            let missed = self.unread.len();
            let of_kind = own(kind);
            let all = self.list(&of_kind, namespace, ListParams::default());
            let all = all.await;
            if kind == "LynqHub" && all.is_empty() && self.unread.len() == missed {
                tell(format_args!(
                    "no LynqHub was found in namespace {namespace:?}; give another with -n"
                ));
            }
            self.documents.extend(all.into_iter().map(report::cleaned));
        }
        let of_forms = ListParams::default().labels(names::LABEL_FORM_UID);
        let revisions = history::key("", "").kind;
        let revisions = self.list(&revisions, namespace, of_forms).await;
        let revisions: Vec<Value> = revisions.iter().map(report::revision).collect();
        let revisions = json!({"kind": "Revisions", "items": revisions});
        self.documents.push(revisions);

        let of_nodes = own("LynqNode");
        let mut nodes = Nodes::default();
        let listed = (cluster.objects).list(&of_nodes, namespace, |node| nodes.add(node));
        if let Err(error) = listed.await {
            self.miss(format_args!("LynqNodes of namespace {namespace}"), error);
        }
        self.summary["lynqNodes"] = nodes.counts();
        self.documents.extend(nodes.worst());

        let about = format!(
            "involvedObject.apiVersion={}/{}",
            names::GROUP,
            names::VERSION
        );
        let about = ListParams::default().fields(&about);
        let events = self.list(&Kind::new("v1", "Event"), namespace, about).await;
        let items = report::events(&events);
        let events = json!({"kind": "Events", "all": events.len(), "items": items});
        self.documents.push(events);
    }

    async fn read_installation(&mut self) {
        let cluster = self.cluster;
        let namespace = &cluster.operator_namespace;
        let leases = lease_key("", 0).kind;
        let leases = self.list(&leases, namespace, ListParams::default()).await;
        let is_own =
            |lease: &Value| text_at(lease, "/metadata/name").starts_with(names::LEADER_LEASE);
        let leases = leases.into_iter().filter(is_own);
        self.documents.extend(leases.map(report::cleaned));

        for (kind, name) in [
            (
                "MutatingWebhookConfiguration",
                names::MUTATING_CONFIGURATION,
            ),
            (
                "ValidatingWebhookConfiguration",
                names::VALIDATING_CONFIGURATION,
            ),
            ("ValidatingAdmissionPolicy", names::FENCE),
            ("ValidatingAdmissionPolicyBinding", names::FENCE),
        ] {
            let key = ObjectKey {
                kind: Kind::new("admissionregistration.k8s.io/v1", kind).into(),
                namespace: "".into(),
                name: name.to_owned(),
            };
            match cluster.objects.get(&key).await {
                Ok(object) => self.documents.push(report::cleaned(object)),
                Err(error) => self.miss(&key, error),
            }
        }

        let of_operator = ListParams::default().labels(names::OPERATOR_SELECTOR);
        let (deployment, pod) = (Kind::new("apps/v1", "Deployment"), Kind::new("v1", "Pod"));
        let deployments = self.list(&deployment, namespace, of_operator.clone());
        let deployments = deployments.await;
        let pods = self.list(&pod, namespace, of_operator).await;
        for pod in &pods {
            self.read_logs(pod).await;
        }
        let workloads = deployments.into_iter().chain(pods);
        let workloads = workloads.map(report::cleaned_workload);
        self.documents.extend(workloads);
    }

    async fn read_logs(&mut self, pod: &Value) {
        let cluster = self.cluster;
        let (namespace, pod_name) = (
            cluster.operator_namespace.as_str(),
            text_at(pod, "/metadata/name"),
        );
        let containers = pod["spec"]["containers"].as_array();
        for container in containers.into_iter().flatten() {
            let name = text_at(container, "/name");
            let log = inventory::log(&cluster.objects, namespace, pod_name, name, LOG_LINES);
            match log.await {
                Ok(text) => {
                    let lines: Vec<&str> = text.lines().collect();
                    let log =
                        json!({"kind": "Log", "pod": pod_name, "container": name, "lines": lines});
                    self.documents.push(log);
                }
                Err(error) => {
                    let command = format!(
                        "kubectl logs -n {namespace} {pod_name} -c {name} --tail={LOG_LINES}"
                    );
                    self.miss(
                        format_args!("log of container {name} of Pod {namespace}/{pod_name}"),
                        format_args!("{error}. Add it with: {command}"),
                    );
                }
            }
        }
    }
}
