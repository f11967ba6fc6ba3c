//! Decides what a write to a StatefulSet does to its pods. A pure function of the stored object, the new one and the writer. It
//! changes nothing in its own result, so the validating webhook can check the result by the same function.

use std::cmp::Ordering;

use json_patch::PatchOperation;
use serde_json::{Map, Value, json};

use crate::api::names;
use crate::decide::child::{Owner, owner};
use crate::decide::partition::{HELD, PARTITION, annotation, is_gated, partition};

/// A write: the stored and the new object, the user and the field manager.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// The stored object; None for a creation.
    pub old: Option<&'a Value>,
    pub new: &'a Value,
    pub user: &'a str,
    pub manager: &'a str,
    /// The operator's own user name.
    pub operator: &'a str,
}

impl Write<'_> {
    fn is_operator(&self) -> bool {
        self.user == self.operator
    }

    /// Whether the partition loop wrote it. The operator's other writes do not concern the partition.
    fn is_step(&self) -> bool {
        self.is_operator() && self.manager == names::PARTITION_MANAGER
    }
}

/// The gate's decision; `code` is the audit annotation and the metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionOutcome {
    /// Not gated, or nothing changed that affects the pods.
    Unchanged,
    /// The partition holds the change back.
    Held,
    /// A step of the partition loop.
    Step,
    /// A user raised the partition.
    Paused,
    /// The user lowered it again: the loop continues.
    Resumed,
    Forced,
    /// lynqgate no longer moves its partition.
    OptedOut,
}

impl PartitionOutcome {
    pub fn code(self) -> &'static str {
        match self {
            PartitionOutcome::Unchanged => "unchanged",
            PartitionOutcome::Held => "held",
            PartitionOutcome::Step => "step",
            PartitionOutcome::Paused => "paused",
            PartitionOutcome::Resumed => "resumed",
            PartitionOutcome::Forced => "forced",
            PartitionOutcome::OptedOut => "opted_out",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    pub outcome: PartitionOutcome,
    /// Patches the new object into the decided state. Empty if it already is.
    pub patch: Vec<PatchOperation>,
    /// For the user who wrote.
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "statefulset {name}: another webhook changed its partition, its label {label} or its annotation {annotation} after lynqgate's; \
     that webhook must leave them alone, or have reinvocationPolicy: IfNeeded",
    label = names::PARTITION_GATE,
    annotation = names::PARTITION_PAUSED
)]
pub struct Tampered {
    name: String,
}

pub fn decide(write: &Write<'_>) -> Decision {
    let mut object = write.new.clone();
    let mut warnings = vec![];
    let outcome = judge(write, &mut object, &mut warnings);
    if write.is_operator() {
        warnings.clear();
    }
    Decision {
        outcome,
        patch: json_patch::diff(write.new, &object).0,
        warnings,
    }
}

/// The validating webhook: rejects an object that differs from the mutating webhook's result.
pub fn check(write: &Write<'_>) -> Result<(), Tampered> {
    match decide(write).patch.is_empty() {
        true => Ok(()),
        false => Err(Tampered {
            name: name(write.new).to_owned(),
        }),
    }
}

fn judge(write: &Write<'_>, object: &mut Value, warnings: &mut Vec<String>) -> PartitionOutcome {
    let was_gated = write.old.is_some_and(is_gated);
    if !is_gated(object) {
        if !was_gated {
            return PartitionOutcome::Unchanged;
        }
        if may_opt_out(write) {
            return opt_out(write, object, warnings);
        }
        keep_label(write, object, warnings);
    }
    put(
        object,
        "labels",
        names::PARTITION_GATE,
        Some(json!(names::TRUE)),
    );
    let Some(wanted) = partition(object) else {
        // An apply that changes only the type would leave it there, and the API server would reject that.
        if let Some(strategy) = object["spec"]["updateStrategy"].as_object_mut() {
            strategy.remove("rollingUpdate");
        }
        return PartitionOutcome::Unchanged;
    };
    if annotation(object, names::FORCE_ROLLOUT) == Some(names::TRUE) {
        set_partition(object, 0);
        put(object, "annotations", names::PARTITION_PAUSED, None);
        return PartitionOutcome::Forced;
    }
    let stored = write.old.and_then(partition);
    let (Some(old), Some(stored)) = (write.old, stored) else {
        // A created StatefulSet may adopt the pods of an earlier one, or pods of many revisions that no controller updated.
        if wanted != 0 && wanted != HELD {
            warnings.push(named(object, wanted));
        }
        set_partition(object, HELD);
        return PartitionOutcome::Held;
    };
    if makes_revision(old, object) {
        if wanted != stored && wanted != HELD {
            warnings.push(named(object, wanted));
        }
        warnings.push(match annotation(object, names::PARTITION_PAUSED) {
            None => format!(
                "held: lynqgate updates the pods of statefulset {} one at a time; `lynqgate explain statefulset {0}` shows why it waits",
                name(object)
            ),
            Some(by) => format!(
                "held: {by} paused the updates of statefulset {}; to continue, remove the annotation {}",
                name(object),
                names::PARTITION_PAUSED
            ),
        });
        set_partition(object, HELD);
        return PartitionOutcome::Held;
    }
    if write.is_step() {
        return PartitionOutcome::Step;
    }
    if write.is_operator() {
        set_partition(object, stored);
        return PartitionOutcome::Unchanged;
    }
    // A partition that a user set before the gate was enabled pauses the updates in the same way.
    let before = if was_gated { stored } else { 0 };
    match wanted.cmp(&before) {
        Ordering::Equal => PartitionOutcome::Unchanged,
        Ordering::Greater => pause(write, object, warnings),
        // Only the loop lowers it: a manifest that names a partition is applied again and again.
        Ordering::Less => {
            set_partition(object, stored);
            match annotation(old, names::PARTITION_PAUSED) {
                Some(by) => resume(write, by, object, warnings),
                None => {
                    warnings.push(named(object, wanted));
                    PartitionOutcome::Unchanged
                }
            }
        }
    }
}

/// Keeps the gate's label even if the write omits it.
fn keep_label(write: &Write<'_>, object: &mut Value, warnings: &mut Vec<String>) {
    let text = format!(
        "statefulset {}: lynqgate keeps its label {}: to have it leave the partition alone, {}",
        name(object),
        names::PARTITION_GATE,
        match is_managed(write.old) {
            true => "set partitionGate: false in the form".to_owned(),
            false => format!(
                "set the label to \"false\": {}=false",
                names::PARTITION_GATE
            ),
        }
    );
    warnings.push(text);
    let old = write.old.unwrap_or(&Value::Null);
    let managed = &old["metadata"]["labels"][names::LABEL_MANAGED];
    if !managed.is_null() {
        put(
            object,
            "labels",
            names::LABEL_MANAGED,
            Some(managed.clone()),
        );
    }
}

fn pause(write: &Write<'_>, object: &mut Value, warnings: &mut Vec<String>) -> PartitionOutcome {
    let by = Some(json!(write.user));
    put(object, "annotations", names::PARTITION_PAUSED, by);
    warnings.push(format!(
        "paused: lynqgate updates no more pods of statefulset {} until you lower its partition again, or its annotation {} is removed",
        name(object),
        names::PARTITION_PAUSED
    ));
    PartitionOutcome::Paused
}

/// Only the user who paused the updates can resume them by lowering the partition.
fn resume(
    write: &Write<'_>,
    by: &str,
    object: &mut Value,
    warnings: &mut Vec<String>,
) -> PartitionOutcome {
    if by != write.user {
        warnings.push(format!(
            "statefulset {}: its update stays paused, since {by} paused it; to continue, remove the annotation {}",
            name(object),
            names::PARTITION_PAUSED
        ));
        put(
            object,
            "annotations",
            names::PARTITION_PAUSED,
            Some(json!(by)),
        );
        return PartitionOutcome::Unchanged;
    }
    put(object, "annotations", names::PARTITION_PAUSED, None);
    warnings.push(format!(
        "resumed: lynqgate updates the pods of statefulset {} one at a time",
        name(object)
    ));
    PartitionOutcome::Resumed
}

fn named(object: &Value, partition: i64) -> String {
    format!(
        "statefulset {}: lynqgate sets the partition, and ignores partition: {partition}. To pause, annotate {}=NAME; to update all pods at once, \
         annotate {}=true; to do without the gate, label {}=false",
        name(object),
        names::PARTITION_PAUSED,
        names::FORCE_ROLLOUT,
        names::PARTITION_GATE
    )
}

/// A team may opt its own StatefulSet out by setting the label to "false". For an object of a LynqNode, only the form decides.
fn may_opt_out(write: &Write<'_>) -> bool {
    let says_so = write.new["metadata"]["labels"][names::PARTITION_GATE] == "false";
    write.is_operator() || (says_so && !is_managed(write.old))
}

/// Releases the pods that wait: no loop would lower the partition any more.
fn opt_out(write: &Write<'_>, object: &mut Value, warnings: &mut Vec<String>) -> PartitionOutcome {
    let stored = write.old.and_then(partition);
    if partition(object) == stored && stored.is_some_and(|stored| stored != 0) {
        set_partition(object, 0);
        warnings.push(format!(
            "statefulset {}: lynqgate no longer moves its partition; Kubernetes updates the pods that waited",
            name(object)
        ));
    }
    for state in [names::PARTITION_PAUSED, names::PARTITION_WAITS] {
        put(object, "annotations", state, None);
    }
    PartitionOutcome::OptedOut
}

fn is_managed(object: Option<&Value>) -> bool {
    object.is_some_and(|object| {
        object["metadata"]["labels"][names::LABEL_MANAGED] == names::TRUE
            || matches!(owner(object), Owner::Node { .. })
    })
}

/// Fields of a StatefulSet's spec that do not affect its pods. Every other field counts as part of the revision, including those
/// that a newer Kubernetes adds.
const OUTSIDE_REVISION: [&str; 6] = [
    "replicas",
    "updateStrategy",
    "minReadySeconds",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "ordinals",
];

fn makes_revision(old: &Value, new: &Value) -> bool {
    let empty = Map::new();
    let spec = |object: &Value| {
        object["spec"]
            .as_object()
            .cloned()
            .unwrap_or_else(|| empty.clone())
    };
    let (mut old, mut new) = (spec(old), spec(new));
    for field in OUTSIDE_REVISION {
        old.remove(field);
        new.remove(field);
    }
    old != new
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn set_partition(object: &mut Value, partition: i64) {
    if object
        .pointer(PARTITION)
        .and_then(Value::as_i64)
        .unwrap_or(0)
        == partition
    {
        return;
    }
    let strategy = &mut object["spec"]["updateStrategy"];
    if strategy["rollingUpdate"].is_null() {
        strategy["rollingUpdate"] = json!({});
    }
    strategy["rollingUpdate"]["partition"] = json!(partition);
}

fn put(object: &mut Value, map: &str, name: &str, value: Option<Value>) {
    let metadata = &mut object["metadata"];
    match value {
        Some(value) => metadata[map][name] = value,
        None => {
            if let Some(Value::Object(all)) = metadata.get_mut(map) {
                all.remove(name);
            }
        }
    }
}

#[cfg(test)]
mod tests;
