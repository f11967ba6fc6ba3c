//! The partition gate of StatefulSets: a change of the pod template waits above the partition (`gate`), and lynqgate lowers the
//! partition one pod at a time (`walk`). The state is on the StatefulSet itself.
//!
//! The partition is an index, counted from `spec.ordinals.start`: pod `start + partition` and those above it are updated
//! (`newVersionedStatefulSetPod` and `updateStatefulSet` in Kubernetes' pkg/controller/statefulset).

pub mod explain;
pub mod gate;
pub mod probe;
pub mod walk;

use serde_json::Value;

use crate::api::names;
use crate::decide::child::{Kind, ObjectKey, kind_of};

/// The partition of a StatefulSet whose whole update is held: above any number of replicas. If it were `replicas`, a scale-up
/// through `/scale`, which calls no webhook, would create the new pods with the new revision.
pub const HELD: i64 = i32::MAX as i64;

const PARTITION: &str = "/spec/updateStrategy/rollingUpdate/partition";

/// Whether lynqgate moves its partition.
pub fn is_gated(stateful_set: &Value) -> bool {
    let labels = &stateful_set["metadata"]["labels"];
    match labels[names::PARTITION_GATE].as_str() {
        Some(names::TRUE) => true,
        Some(_) => false,
        None => labels[names::LABEL_MANAGED] == names::TRUE,
    }
}

/// As `is_gated`, for an object of any kind.
pub fn is_gated_set(object: &Value) -> bool {
    kind_of(object).is_stateful_set() && is_gated(object)
}

/// None for OnDelete, which updates a pod only when it is deleted.
fn partition(stateful_set: &Value) -> Option<i64> {
    let strategy = &stateful_set["spec"]["updateStrategy"]["type"];
    let rolls = strategy.is_null() || strategy == "RollingUpdate";
    let partition = || stateful_set.pointer(PARTITION).and_then(Value::as_i64);
    rolls.then(|| partition().unwrap_or(0))
}

fn annotation<'a>(stateful_set: &'a Value, name: &str) -> Option<&'a str> {
    stateful_set["metadata"]["annotations"][name].as_str()
}

/// Removes the partition from what is applied: the gate owns it.
pub fn leave_out(manifest: &mut Value) {
    let rolling = manifest.pointer_mut("/spec/updateStrategy/rollingUpdate");
    if let Some(rolling) = rolling.and_then(Value::as_object_mut) {
        rolling.remove("partition");
    }
}

/// A manager's set of fields without the partition, and without what is empty then.
pub fn without_field(fields: &Value) -> Value {
    fn take(fields: &mut Value, path: &[&str]) {
        let (Some(of_value), [name, below @ ..]) = (fields.as_object_mut(), path) else {
            return;
        };
        if let Some(field) = of_value.get_mut(*name).filter(|_| !below.is_empty()) {
            take(field, below);
            let has_more = |field: &Value| {
                field
                    .as_object()
                    .is_some_and(|all| all.keys().any(|name| name != "."))
            };
            if has_more(field) {
                return;
            }
        }
        of_value.remove(*name);
    }
    let mut fields = fields.clone();
    let path = [
        "f:spec",
        "f:updateStrategy",
        "f:rollingUpdate",
        "f:partition",
    ];
    take(&mut fields, &path);
    fields
}

pub fn key(namespace: &str, name: &str) -> ObjectKey {
    ObjectKey {
        kind: Kind::new("apps/v1", "StatefulSet").into(),
        namespace: namespace.into(),
        name: name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_partition_is_nobodys_field() {
        let fields =
            |strategy: Value| json!({"f:spec": {"f:replicas": {}, "f:updateStrategy": strategy}});
        let partition = json!({".": {}, "f:partition": {}});
        let both = json!({"f:maxUnavailable": {}, "f:partition": {}});
        for (before, after) in [
            (
                fields(json!({"f:rollingUpdate": partition})),
                json!({"f:spec": {"f:replicas": {}}}),
            ),
            (
                fields(json!({"f:rollingUpdate": partition, "f:type": {}})),
                fields(json!({"f:type": {}})),
            ),
            (
                fields(json!({"f:rollingUpdate": both})),
                fields(json!({"f:rollingUpdate": {"f:maxUnavailable": {}}})),
            ),
            (json!({"f:metadata": {}}), json!({"f:metadata": {}})),
        ] {
            assert_eq!(without_field(&before), after);
        }
    }
}
