//! Where revisions come from: etcd itself, a watch of the API server, or its audit logs. They read; they judge nothing.

pub mod etcd;
pub mod log;
pub mod watch;

use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::core::Input;

/// Revisions, in their order, on their way to the judge.
pub type Sink = mpsc::Sender<Input>;

#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("cannot read {path}: {reason}; give the path of a file that can be read")]
    File { path: String, reason: String },
    #[error("{path} is no PEM file with a certificate: {reason}")]
    Certificate { path: String, reason: String },
    #[error("{endpoint} is no address of etcd: {reason}; give one such as https://127.0.0.1:2379")]
    Endpoint { endpoint: String, reason: String },
    #[error("etcd at {endpoint}: {reason}; check the address and --cacert, --cert and --key")]
    Etcd { endpoint: String, reason: String },
    #[error("no access to the API server: {0}; check --kubeconfig")]
    Kubeconfig(String),
    #[error("cannot list {kind}s: {reason}; the user needs get, list and watch on them")]
    List { kind: &'static str, reason: String },
    #[error("the audit is over")]
    Closed,
}

async fn send(sink: &Sink, input: Input) -> Result<(), SourceError> {
    sink.send(input).await.map_err(|_| SourceError::Closed)
}

/// The newest time that stands on an object: what a revision from the past says about when it was written.
fn written_at(object: &Value) -> Option<Timestamp> {
    let metadata = &object["metadata"];
    let managers = metadata["managedFields"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|entry| &entry["time"]);
    let stamps = metadata["annotations"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(_, value)| value);
    let own = [
        &metadata["creationTimestamp"],
        &metadata["deletionTimestamp"],
    ];
    managers
        .chain(stamps)
        .chain(own)
        .filter_map(Value::as_str)
        .filter(|text| text.len() >= 20 && text.ends_with('Z'))
        .filter_map(|text| text.parse().ok())
        .max()
}
