//! LynqForm: the templates of one product.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::conditions::Condition;
use crate::api::policy::Rollout;
use crate::api::resource::ResourceArrays;
use crate::api::text::Text;

/// Templates of the resources that every active row of a hub gets.
#[derive(Clone, Debug, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "operator.lynq.sh",
    version = "v1",
    kind = "LynqForm",
    namespaced,
    status = "FormStatus",
    shortname = "lform",
    category = "lynq",
    printcolumn(json_path = ".spec.hubId", name = "Hub", type_ = "string"),
    printcolumn(json_path = ".status.totalNodes", name = "Total", type_ = "integer"),
    printcolumn(json_path = ".status.readyNodes", name = "Ready", type_ = "integer"),
    printcolumn(
        json_path = ".status.rollout.phase",
        name = "Rollout",
        type_ = "string"
    ),
    printcolumn(
        json_path = ".status.rollout.updatingNodes",
        name = "Updating",
        type_ = "integer"
    ),
    printcolumn(
        json_path = ".status.rollout.heldNodes",
        name = "Held",
        type_ = "integer"
    ),
    printcolumn(
        json_path = ".status.conditions[?(@.type==\"Applied\")].status",
        name = "Applied",
        type_ = "string"
    ),
    printcolumn(
        json_path = ".status.rollout.message",
        name = "Message",
        type_ = "string",
        priority = 1
    ),
    printcolumn(
        json_path = ".metadata.creationTimestamp",
        name = "Age",
        type_ = "date"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct FormSpec {
    /// Name of the LynqHub, in the same namespace, whose rows this form is for. Immutable.
    #[schemars(extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "hubId is immutable"}]))]
    pub hub_id: String,
    /// The language of the templates: Go (text/template with sprig, as in Lynq) or Jinja.
    #[serde(default)]
    pub template_engine: TemplateEngine,
    /// How a change of this form reaches its nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,
    /// Namespaces that a template may lead to, beside those that match its own text (`team-{{ .uid }}` allows `team-*`) and those that
    /// the form itself creates for the row; * stands for any text. kube-*, default and the operator's own namespace only count where
    /// they are listed by their full names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 63)))]
    pub allowed_namespaces: Vec<String>,
    #[serde(flatten)]
    pub content: ResourceArrays,
}

impl FormSpec {
    /// Whether both render to the same nodes for every row: they differ in how these are rolled out at most.
    pub fn renders_like(&self, other: &FormSpec) -> bool {
        let order = |form: &FormSpec| form.rollout.as_ref().map(|r| r.order.clone());
        self.hub_id == other.hub_id
            && self.template_engine == other.template_engine
            && self.allowed_namespaces == other.allowed_namespaces
            && self.content == other.content
            && order(self).unwrap_or_default() == order(other).unwrap_or_default()
            && self.domain_variables().eq(other.domain_variables())
    }

    /// The variables of the rows that tell the domains of its rollout apart.
    pub fn domain_variables(&self) -> impl Iterator<Item = &str> {
        let domains = self.rollout.iter().flat_map(|rollout| &rollout.domains);
        domains.filter_map(|domain| domain.variable.as_deref())
    }
}

#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum TemplateEngine {
    #[default]
    Go,
    Jinja,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FormStatus {
    /// Generation of the form that the operator has rendered for every row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Nodes of this form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_nodes: Option<i32>,
    /// Nodes that are ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_nodes: Option<i32>,
    /// Absent where no window applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<FormRolloutStatus>,
    /// Name of the ControllerRevision that every node ran when a rollout was complete last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_revision: Option<String>,
    /// Name of the ControllerRevision that holds what is rolled out: the spec of observedGeneration without spec.rollout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_revision: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

impl FormStatus {
    /// Nodes that the newest content is not written to.
    pub fn unwritten_nodes(&self) -> i32 {
        let rollout = self.rollout.as_ref();
        rollout.map_or(0, |rollout| rollout.unwritten_nodes)
    }

    /// The same, with those that were there then and are not now.
    pub fn unwritten_or_gone(&self, there: i32) -> i32 {
        let gone = self.total_nodes.map_or(0, |total| total - there);
        self.unwritten_nodes() + gone.max(0)
    }

    /// Whether every node was written from this generation of the form.
    pub fn all_written(&self, generation: i64) -> bool {
        self.observed_generation == Some(generation) && self.unwritten_nodes() == 0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// There are no nodes.
    Idle,
    /// Nodes are held or in flight.
    InProgress,
    /// Held nodes wait for somebody: rollout.paused is set, or a group with `pause` is done and not promoted.
    Paused,
    /// As many nodes failed as maxFailures allows: nothing but repairs is released.
    Failed,
    /// Every node runs the content of the newest generation and is ready.
    Complete,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FormRolloutStatus {
    pub phase: Phase,
    /// Generation of the form that is being rolled out.
    pub target_generation: i64,
    pub total_nodes: i32,
    /// Nodes whose live content is the newest.
    pub updated_nodes: i32,
    /// Nodes with the newest content that are not ready yet.
    pub updating_nodes: i32,
    /// Nodes with the newest content that are ready.
    pub ready_updated_nodes: i32,
    /// Nodes whose newest content waits at the gate.
    pub held_nodes: i32,
    /// Nodes that were released and did not become ready before the deadline.
    pub failed_nodes: i32,
    /// Nodes that the newest content is not written to, those that are still to be made included.
    #[serde(default)]
    pub unwritten_nodes: i32,
    /// Nodes whose changes go live at once: the annotation lynq.sh/force-rollout is on them, on the form or on its hub.
    #[serde(default)]
    pub forced_nodes: i32,
    /// Slots of this form in the hub's ledger.
    pub slots: i32,
    /// How many times as many nodes as the window has became ready in this rollout, and stayed so for minReadySeconds. The
    /// window is the narrower of the form's and the hub's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waves_done: Option<i32>,
    /// How many times as many are to come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waves_left: Option<i32>,
    /// When this rollout began (RFC 3339): with the templates or rows that it brings. An edit of its policy does not begin it
    /// anew, nor does what breaks by itself after it was complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<jiff::Timestamp>,
    /// When it was complete (RFC 3339). It stays while something breaks by itself, and phase is InProgress for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<jiff::Timestamp>,
    /// Estimated completion at the current pace (RFC 3339), if the forms that share the hub's window share it evenly. Absent
    /// while the rollout does not continue by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_completion: Option<jiff::Timestamp>,
    /// How many nodes may be non-ready at a time: the narrower of the form's window and the hub's. Absent where none applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<i32>,
    /// When the first of the nodes that are on their way counts as failed, unless it is ready before (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<jiff::Timestamp>,
    /// Why held nodes wait: an entry for each reason, what stops most of the others first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<WaitingNodes>,
    /// What it waits for, in a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Held nodes that wait for the same reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitingNodes {
    /// Why they wait, as one CamelCase word for programs.
    pub reason: Text,
    /// How many nodes wait for it.
    pub count: i32,
    /// Three of them, those that are released first.
    pub nodes: Vec<String>,
    /// Why they wait, in a sentence for people.
    pub message: String,
    /// What ends the wait, or what somebody can do about it.
    pub next: String,
    /// The group of rollout.order after which the rollout pauses, where the reason is AwaitingPromotion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}
