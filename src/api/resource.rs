//! One resource of a form or node (Lynq's `TResource`) and the 16 arrays that hold them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The arrays of a form's and a node's spec, in the order in which they are collected everywhere.
/// The array's name does not constrain the kind of what it holds.
pub const ARRAYS: [&str; 16] = [
    "serviceAccounts",
    "deployments",
    "statefulSets",
    "daemonSets",
    "services",
    "ingresses",
    "configMaps",
    "secrets",
    "persistentVolumeClaims",
    "jobs",
    "cronJobs",
    "podDisruptionBudgets",
    "networkPolicies",
    "horizontalPodAutoscalers",
    "namespaces",
    "manifests",
];

/// A value that cannot be a constant.
pub type DefaultOf = fn() -> Value;

/// The resource fields that have a default, with it. Content is compared with these dropped: a default
/// that the API server fills in on read must not look like a change (see `decide::shared::content`).
pub const DEFAULTS: [(&str, DefaultOf); 7] = [
    ("skipOnDependencyFailure", || Value::Bool(true)),
    ("creationPolicy", || Value::from("WhenNeeded")),
    ("deletionPolicy", || Value::from("Delete")),
    ("conflictPolicy", || Value::from("Stuck")),
    ("patchStrategy", || Value::from("apply")),
    ("waitForReady", || Value::Bool(true)),
    ("timeoutSeconds", || Value::from(300)),
];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CreationPolicy {
    #[default]
    WhenNeeded,
    Once,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    #[default]
    Delete,
    Retain,
}

#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum ConflictPolicy {
    #[default]
    Stuck,
    Force,
}

impl ConflictPolicy {
    pub fn name(self) -> &'static str {
        match self {
            ConflictPolicy::Stuck => "Stuck",
            ConflictPolicy::Force => "Force",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PatchStrategy {
    #[default]
    Apply,
    Merge,
    Replace,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnImmutable {
    #[default]
    Refuse,
    Recreate,
}

impl OnImmutable {
    fn is_default(&self) -> bool {
        *self == OnImmutable::default()
    }
}

/// How to see from an object whether it is ready: by `cel`, or by `jsonPath` and `expectedValue`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
// Rules in CEL would cost the API server too much, sixteen arrays long.
#[schemars(extend("oneOf" = [{"required": ["cel"]}, {"required": ["jsonPath", "expectedValue"]}]))]
pub struct ReadyProbe {
    /// A CEL expression over `object` that is true once it is ready, such as
    /// `object.status.cluster.status == 'ONLINE'`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub cel: Option<String>,
    /// JSONPath of a value in the object, such as `.status.cluster.status`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub json_path: Option<String>,
    /// What that value is once the object is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub expected_value: Option<String>,
}

/// A resource: a manifest with what to do about it. In a form the texts are templates, in a node they are resolved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    /// Name of the resource within the form; unique over all arrays. Other resources depend on it by this name.
    #[schemars(length(min = 1))]
    pub id: String,
    /// The whole manifest with apiVersion and kind. In a form every text in it is a template.
    #[schemars(schema_with = "preserved_object")]
    pub spec: Value,
    /// Template of the object's name. Without it `spec.metadata.name` is used.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name_template: String,
    /// Template of the namespace. Default: the namespace of the LynqNode.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub target_namespace: String,
    /// Labels to set; the values are templates.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels_template: BTreeMap<String, String>,
    /// Annotations to set; the values are templates.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations_template: BTreeMap<String, String>,
    /// Ids of the resources that must be ready (or applied, if they do not wait for readiness) before this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depend_ids: Vec<String>,
    /// Skip this resource when one that it depends on has failed (true, the default); false: apply it all the same.
    #[serde(default = "yes")]
    #[schemars(default = "yes")]
    pub skip_on_dependency_failure: bool,
    /// WhenNeeded (the default): kept as the form says. Once: created and then left alone.
    #[serde(default)]
    pub creation_policy: CreationPolicy,
    /// What happens to the object when the resource or its node goes: Delete it (the default), or Retain it as an orphan.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
    /// What happens when somebody else owns a field: Stuck (the default) reports a conflict, Force takes the field over.
    #[serde(default)]
    pub conflict_policy: ConflictPolicy,
    /// How the object is written: server-side apply (apply, the default), JSON merge patch (merge), or replace.
    #[serde(default)]
    pub patch_strategy: PatchStrategy,
    /// What happens when a change needs another value in an immutable field of the object. Refuse (the default): the form is refused.
    /// Recreate: lynqgate deletes the object and creates it again, as each node is released.
    // No default in the schema, so that the hashes of existing nodes stay.
    #[serde(default, skip_serializing_if = "OnImmutable::is_default")]
    pub on_immutable: OnImmutable,
    /// Of a StatefulSet: whether lynqgate moves its partition, so that its pods are updated one at a time, each once all others are
    /// ready. false: its pods follow each change at once, by the manifest's own partition. Default: true.
    // No default in the schema, so that the hashes of existing nodes stay.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub partition_gate: bool,
    /// Whether the node is ready only once this object is. Default: true.
    #[serde(default = "yes")]
    #[schemars(default = "yes")]
    pub wait_for_ready: bool,
    /// Seconds from the last apply that changed something until an unready object counts as failed. Default: 300; 1 to 3600.
    #[serde(default = "five_minutes")]
    #[schemars(default = "five_minutes", range(min = 1, max = 3600))]
    pub timeout_seconds: i32,
    /// JSONPath of fields that are set at creation and left to others afterwards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignore_fields: Vec<String>,
    /// What says that the object is ready, where its own conditions do not. Comes before every other rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_probe: Option<ReadyProbe>,
    /// How long after it was applied the object counts as ready where nothing tells: a number with s, m or h. Default: the
    /// minDelay of the form's rollout, or of the hub's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[0-9]{1,5}(s|m|h)$"))]
    pub min_delay: Option<String>,
    /// Set by the hub where a template led to a namespace that the form creates for the row: the id of the resource that creates
    /// it. Nothing goes there before that one is ready, nor where it failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace_from: String,
    /// Set by the hub where a template of this resource failed: why. Such a resource keeps its last applied object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub render_error: String,
}

fn yes() -> bool {
    true
}

fn is_yes(value: &bool) -> bool {
    *value
}

fn five_minutes() -> i32 {
    300
}

fn preserved_object(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "x-kubernetes-map-type": "atomic",
    })
}

/// The 16 arrays of a spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceArrays {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub service_accounts: Vec<Resource>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deployments: Vec<Resource>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stateful_sets: Vec<Resource>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub daemon_sets: Vec<Resource>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<Resource>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ingresses: Vec<Resource>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub config_maps: Vec<Resource>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<Resource>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub persistent_volume_claims: Vec<Resource>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<Resource>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cron_jobs: Vec<Resource>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pod_disruption_budgets: Vec<Resource>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub network_policies: Vec<Resource>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub horizontal_pod_autoscalers: Vec<Resource>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<Resource>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub manifests: Vec<Resource>,
}

impl ResourceArrays {
    /// Name and resources of each array, in the order of [`ARRAYS`].
    pub fn arrays(&self) -> [(&'static str, &[Resource]); 16] {
        let lists: [&[Resource]; 16] = [
            &self.service_accounts,
            &self.deployments,
            &self.stateful_sets,
            &self.daemon_sets,
            &self.services,
            &self.ingresses,
            &self.config_maps,
            &self.secrets,
            &self.persistent_volume_claims,
            &self.jobs,
            &self.cron_jobs,
            &self.pod_disruption_budgets,
            &self.network_policies,
            &self.horizontal_pod_autoscalers,
            &self.namespaces,
            &self.manifests,
        ];
        std::array::from_fn(|i| (ARRAYS[i], lists[i]))
    }

    /// Every resource, array by array.
    pub fn iter(&self) -> impl Iterator<Item = &Resource> {
        self.arrays().into_iter().flat_map(|(_, list)| list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_the_type() {
        let bare: Resource =
            serde_json::from_value(serde_json::json!({"id": "a", "spec": {}})).unwrap();
        let filled = serde_json::to_value(&bare).unwrap();
        for (field, default) in DEFAULTS {
            assert_eq!(filled[field], default(), "{field}");
        }
        assert_eq!(
            filled.as_object().unwrap().len(),
            DEFAULTS.len() + 2,
            "a field with a default is missing in the table"
        );
    }

    #[test]
    fn arrays_are_named_as_serialised() {
        let one = |id: &str| serde_json::json!([{"id": id, "spec": {}}]);
        let all: serde_json::Map<_, _> = ARRAYS
            .iter()
            .map(|name| (name.to_string(), one(name)))
            .collect();
        let arrays: ResourceArrays = serde_json::from_value(Value::Object(all)).unwrap();
        for (name, list) in arrays.arrays() {
            assert_eq!((list.len(), list[0].id.as_str()), (1, name));
        }
    }
}
