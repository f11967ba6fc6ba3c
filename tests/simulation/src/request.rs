//! What a process asks of the API server, as data: so that a request can be lost, answered late, or arrive after the
//! process that sent it is gone.

use std::sync::Arc;

use lynqgate::api::form::FormStatus;
use lynqgate::api::hub::Slot;
use lynqgate::api::node::NodeStatus;
use serde_json::Value;

use crate::cluster::{Form, Hub, Node, Workload};

#[derive(Clone, Debug)]
pub enum Request {
    ReadHub,
    ListNodes,
    ReadNode {
        name: String,
    },
    ReadChild {
        name: String,
    },
    Ledger {
        resource_version: Option<String>,
        slots: Vec<Slot>,
    },
    HubCounts {
        counts: (i32, i32),
    },
    DeletionsHeld {
        held: Option<u64>,
    },
    SpendConfirmation,
    /// A merge patch of the marker alone.
    Release {
        name: String,
        resource_version: Option<String>,
        marker: (&'static str, String),
    },
    /// That the slot of a watched node is free.
    Freed {
        name: String,
        release: String,
    },
    GiveUp {
        name: String,
        resource_version: String,
    },
    ApplyNode {
        name: String,
        object: Value,
    },
    /// `allowed` is how many one sync may delete without anybody's word.
    DeleteNode {
        name: String,
        uid: String,
    },
    RemoveFinalizer {
        name: String,
        uid: String,
    },
    NodeStatus {
        name: String,
        status: Box<NodeStatus>,
    },
    FormStatus {
        name: String,
        resource_version: String,
        status: FormStatus,
    },
    ApplyChild {
        node: String,
        node_uid: String,
        image: String,
        applied_hash: String,
    },
    /// That it is the operator's to watch.
    LabelChild {
        node: String,
        resource_version: String,
    },
    /// Any write through the gate makes the node's state true.
    GateAgain {
        name: String,
        resource_version: String,
    },
    DeleteChild {
        node: String,
        uid: String,
    },
}

#[derive(Clone, Debug)]
pub enum Reply {
    Done,
    Node(Arc<Node>),
    Nodes(Vec<Arc<Node>>),
    Hub(Arc<Hub>),
    Form(Arc<Form>),
    Child(Arc<Workload>),
}

impl Request {
    pub fn is_read(&self) -> bool {
        matches!(
            self,
            Request::ReadHub
                | Request::ListNodes
                | Request::ReadNode { .. }
                | Request::ReadChild { .. }
        )
    }

    /// For the trace.
    pub fn shown(&self) -> String {
        match self {
            Request::ReadHub => "read the hub".to_owned(),
            Request::ListNodes => "list the nodes".to_owned(),
            Request::ReadNode { name } => format!("read {name}"),
            Request::ReadChild { name } => format!("read the workload of {name}"),
            Request::Ledger {
                resource_version,
                slots,
            } => {
                let slots: Vec<String> = slots
                    .iter()
                    .map(|s| {
                        format!(
                            "{}@{}{}",
                            s.node,
                            s.resource_version,
                            if s.repair { " repair" } else { "" }
                        )
                    })
                    .collect();
                format!(
                    "ledger on hub {}: [{}]",
                    resource_version.as_deref().unwrap_or("any"),
                    slots.join(", ")
                )
            }
            Request::HubCounts { counts } => {
                format!("hub status: {} ready, {} not", counts.0, counts.1)
            }
            Request::DeletionsHeld { held } => format!("hub status: deletions held: {held:?}"),
            Request::SpendConfirmation => "spend the confirmation of deletions".to_owned(),
            Request::Release { name, marker, .. } => format!(
                "{} {name} as {}",
                if marker.0.ends_with("release") {
                    "release"
                } else {
                    "ungate"
                },
                marker.1
            ),
            Request::Freed { name, release } => {
                format!("say that the slot of {name} is free, released at {release}")
            }
            Request::GiveUp {
                name,
                resource_version,
            } => format!("give up the slot of {name} at {resource_version}"),
            Request::ApplyNode { name, object } => format!(
                "apply {name}: {}",
                object["spec"]["deployments"][0]["spec"]["image"]
            ),
            Request::DeleteNode { name, .. } => format!("delete {name}"),
            Request::RemoveFinalizer { name, .. } => format!("let {name} go"),
            Request::NodeStatus { name, status } => {
                let on = |type_: &str| {
                    status
                        .conditions
                        .iter()
                        .any(|c| c.type_ == type_ && c.status == "True")
                };
                format!(
                    "status of {name}: rolled {}, held {}, of {}",
                    on("Rolled"),
                    on("Held"),
                    status.observed_hash.as_deref().unwrap_or("nothing")
                )
            }
            Request::FormStatus { name, status, .. } => {
                let phase = status
                    .rollout
                    .as_ref()
                    .map(|r| format!("{:?}: {}", r.phase, r.message));
                format!("status of form {name}: {}", phase.unwrap_or_default())
            }
            Request::ApplyChild { node, image, .. } => {
                format!("apply the workload of {node}: {image}")
            }
            Request::LabelChild { node, .. } => format!("label the workload of {node}"),
            Request::GateAgain { name, .. } => format!("send {name} through the gate again"),
            Request::DeleteChild { node, .. } => format!("delete the workload of {node}"),
        }
    }
}
