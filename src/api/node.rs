//! LynqNode: one form rendered for one row.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::conditions::Condition;
use crate::api::resource::ResourceArrays;

/// The resources of one row, fully rendered. Made and changed by the operator; a changed node is held until it is released.
#[derive(Clone, Debug, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "operator.lynq.sh",
    version = "v1",
    kind = "LynqNode",
    namespaced,
    status = "NodeStatus",
    shortname = "lnode",
    category = "lynq",
    printcolumn(json_path = ".spec.uid", name = "UID", type_ = "string"),
    printcolumn(json_path = ".spec.templateRef", name = "Form", type_ = "string"),
    printcolumn(
        json_path = ".status.readyResources",
        name = "Ready",
        type_ = "integer"
    ),
    printcolumn(
        json_path = ".status.desiredResources",
        name = "Desired",
        type_ = "integer"
    ),
    printcolumn(
        json_path = ".status.skippedResources",
        name = "Skipped",
        type_ = "integer"
    ),
    printcolumn(
        json_path = ".status.conditions[?(@.type==\"Conflicted\")].status",
        name = "Conflicted",
        type_ = "string"
    ),
    printcolumn(
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        name = "Conditions",
        type_ = "string"
    ),
    printcolumn(
        json_path = ".status.conditions[?(@.type==\"Held\")].status",
        name = "Held",
        type_ = "string"
    ),
    printcolumn(
        json_path = ".status.conditions[?(@.type==\"Held\")].reason",
        name = "Reason",
        type_ = "string"
    ),
    printcolumn(
        json_path = ".metadata.annotations.lynq\\.sh/force-rollout",
        name = "Forced",
        type_ = "string",
        priority = 1
    ),
    printcolumn(
        json_path = ".status.conditions[?(@.type==\"Edited\")].status",
        name = "Edited",
        type_ = "string",
        priority = 1
    ),
    printcolumn(
        json_path = ".metadata.annotations.lynq\\.sh/held-since",
        name = "Since",
        type_ = "date"
    ),
    printcolumn(
        json_path = ".metadata.creationTimestamp",
        name = "Age",
        type_ = "date"
    )
)]
#[serde(rename_all = "camelCase")]
// Not at the field: its own rule is not asked when the field goes.
#[schemars(extend("x-kubernetes-validations" = [{"rule": "!has(oldSelf.hubId) || (has(self.hubId) && self.hubId == oldSelf.hubId)", "message": "hubId is immutable: it decides whose ledger this node counts in"}]))]
pub struct NodeSpec {
    /// The row's uid. Immutable.
    #[schemars(extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "uid is immutable: it decides whose node this is"}]))]
    pub uid: String,
    /// Name of the LynqForm. Immutable.
    #[schemars(extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "templateRef is immutable: it decides whose window this node counts in"}]))]
    pub template_ref: String,
    /// Name of the LynqHub. Once set it is immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hub_id: Option<String>,
    /// The live content, there only while the node is held: what runs now, until the content beside it is released.
    /// Owned by the operator's webhook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "released")]
    pub released: Option<Value>,
    #[serde(flatten)]
    pub content: ResourceArrays,
}

fn released(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "x-kubernetes-map-type": "atomic",
    })
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// Generation of the node that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Hash of the live content that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_hash: Option<String>,
    /// The lynq.sh/rollout-update-start-time that this status speaks of: a content that was live before, and is so
    /// again, is not taken for settled because of what was seen then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_start_time: Option<String>,
    /// The version that the newest release carried when the node was last seen rolled out, whatever was live then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub landed_release: Option<String>,
    /// Resources of the live content that are ready.
    #[serde(default)]
    pub ready_resources: i32,
    /// Resources of the live content.
    #[serde(default)]
    pub desired_resources: i32,
    /// Resources that failed.
    #[serde(default)]
    pub failed_resources: i32,
    /// Resources whose object, or a field of it, is somebody else's.
    #[serde(default)]
    pub conflicted_resources: i32,
    /// Resources that were skipped because one that they depend on failed.
    #[serde(default)]
    pub skipped_resources: i32,
    /// Ids of the skipped resources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped_resource_ids: Vec<String>,
    /// Objects that were applied and are not gone, each as `Kind/namespace/name@id`, sorted. Nothing else is ever deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub applied_resources: Vec<String>,
    /// Their kinds, each as `apiVersion Kind`, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub applied_kinds: Vec<String>,
    /// Jobs of the live content that completed, each as `id@hash`, sorted. A Job that completed for its present content is not
    /// run again when its object is gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub completed_jobs: Vec<String>,
    /// Hash of the sets of fields that the last applies owned: tells, after a restart, whether somebody has taken one over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_fields_hash: Option<String>,
    /// The version of this object at which a slot of the ledger was given up: the write moved it, so that no late release can
    /// use the slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot_given_up: Option<String>,
    /// The version that the last release carried whose slot was freed, where the node was watched for minReadySeconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freed_release: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
