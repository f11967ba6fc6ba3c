//! What maintenance reads of a Kubernetes node, and the patches of it. It does not decide which patch to send.

use std::fmt;

use serde_json::{Value, json};

use crate::api::names;
use crate::decide::maintenance::{NodeChange, NodeWrite};

/// The most digits of a maintenance's seconds: 31 years, to which the padding can still be added.
const DIGITS_MAX: usize = 9;

/// The annotation that requests maintenance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Request {
    #[default]
    None,
    /// Seconds, at least 1.
    Window(i32),
    Unreadable(String),
}

impl Request {
    pub fn of(value: Option<&str>) -> Self {
        let Some(value) = value else {
            return Request::None;
        };
        let digits = value.bytes().all(|byte| byte.is_ascii_digit());
        let fits = digits && !value.starts_with('0') && value.len() <= DIGITS_MAX;
        match value.parse() {
            Ok(seconds) if fits => Request::Window(seconds),
            _ => Request::Unreadable(value.chars().take(40).collect()),
        }
    }
}

/// The values of the status annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    Waiting,
    Created,
    Acquired,
    New,
    Updated,
    Stale,
    Recreated,
    Active,
    Ended,
}

impl Status {
    pub const ALL: [Status; 9] = [
        Status::Waiting,
        Status::Created,
        Status::Acquired,
        Status::New,
        Status::Updated,
        Status::Stale,
        Status::Recreated,
        Status::Active,
        Status::Ended,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Status::Waiting => "waiting",
            Status::Created => "new, create",
            Status::Acquired => "new, acquired",
            Status::New => "new",
            Status::Updated => "updated",
            Status::Stale => "new, stale",
            Status::Recreated => "new, recreate",
            Status::Active => "active",
            Status::Ended => "ended",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubernetesNode {
    pub name: String,
    pub uid: String,
    pub resource_version: String,
    pub request: Request,
    /// The status annotation.
    pub status: Option<String>,
    /// The progress annotation, for people.
    pub progress: Option<String>,
    /// The Lease's holder that wrote the status and the progress.
    pub told_by: Option<String>,
    pub unschedulable: bool,
    /// The kubelet does not report, so no pod there will end.
    pub unreachable: bool,
    pub deleting: bool,
}

impl KubernetesNode {
    pub fn of(object: &Value) -> Self {
        let metadata = &object["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let annotation = |name: &str| metadata["annotations"][name].as_str();
        let mut conditions = object["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten();
        let ready = conditions.find(|condition| condition["type"] == "Ready");
        KubernetesNode {
            name: text(&metadata["name"]),
            uid: text(&metadata["uid"]),
            resource_version: text(&metadata["resourceVersion"]),
            request: Request::of(annotation(names::MAINTENANCE)),
            status: annotation(names::MAINTENANCE_STATUS).map(str::to_owned),
            progress: annotation(names::MAINTENANCE_PROGRESS).map(str::to_owned),
            told_by: annotation(names::MAINTENANCE_HOLDER).map(str::to_owned),
            unschedulable: object["spec"]["unschedulable"] == true,
            unreachable: ready.is_some_and(|ready| ready["status"] == "Unknown"),
            deleting: metadata["deletionTimestamp"].is_string(),
        }
    }

    pub fn says(&self, status: Status) -> bool {
        self.status.as_deref() == Some(status.as_str())
    }

    /// The same but for what changes all the time and means nothing here.
    pub fn digest(&self) -> Self {
        KubernetesNode {
            resource_version: String::new(),
            ..self.clone()
        }
    }

    /// The patch of the annotations for people; None if nothing changes. `told_by`: None for a writer that does not hold the
    /// Lease.
    pub fn told(
        &self,
        status: Option<Status>,
        progress: Option<&str>,
        told_by: Option<&str>,
    ) -> Option<Value> {
        let status = status.map(Status::as_str);
        let same = self.status.as_deref() == status
            && self.progress.as_deref() == progress
            && self.told_by.as_deref() == told_by;
        (!same).then(|| self.annotated(status, progress, told_by))
    }

    pub fn patch(&self, write: &NodeWrite, progress: &str, told_by: &str) -> Value {
        let mut patch = self.annotated(Some(write.status.as_str()), Some(progress), Some(told_by));
        match write.change {
            NodeChange::Status => {}
            NodeChange::Cordon => patch["spec"] = json!({"unschedulable": true}),
            NodeChange::Uncordon => patch["spec"] = json!({"unschedulable": null}),
            NodeChange::TakeRequestOff => {
                patch["metadata"]["annotations"][names::MAINTENANCE] = Value::Null;
            }
        }
        patch
    }

    /// Conditional on the uid and resourceVersion that were read.
    fn annotated(
        &self,
        status: Option<&str>,
        progress: Option<&str>,
        told_by: Option<&str>,
    ) -> Value {
        let annotations = json!({
            names::MAINTENANCE_STATUS: status,
            names::MAINTENANCE_PROGRESS: progress,
            names::MAINTENANCE_HOLDER: told_by,
        });
        json!({"metadata": {
            "uid": self.uid,
            "resourceVersion": self.resource_version,
            "annotations": annotations,
        }})
    }
}
