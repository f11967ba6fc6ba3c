//! Readiness, by the auditor's own reading of the Kubernetes documentation: what `kubectl rollout status` waits for. Pure.

use serde_json::Value;

use crate::kinds::Kind;

/// Whether the object runs what its spec says, completely.
pub fn is_ready(kind: Kind, object: &Value) -> bool {
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64);
    let status = |field: &str| number(&format!("/status/{field}")).unwrap_or(0);
    let is_observed = || number("/status/observedGeneration") >= number("/metadata/generation");
    match kind {
        // https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#complete-deployment
        Kind::Deployment => {
            let wanted = number("/spec/replicas").unwrap_or(1);
            is_observed()
                && !condition(object, "Progressing", "reason", "ProgressDeadlineExceeded")
                && status("updatedReplicas") == wanted
                && status("replicas") == status("updatedReplicas")
                && status("availableReplicas") >= wanted
        }
        // https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/#update-strategies
        Kind::StatefulSet => {
            let wanted = number("/spec/replicas").unwrap_or(1);
            let on_delete = object
                .pointer("/spec/updateStrategy/type")
                .and_then(Value::as_str)
                == Some("OnDelete");
            let revisions =
                object["status"]["currentRevision"] == object["status"]["updateRevision"];
            is_observed()
                && status("readyReplicas") == wanted
                && (on_delete
                    || wanted == 0
                    || (revisions && status("availableReplicas") >= wanted))
        }
        // https://kubernetes.io/docs/tasks/manage-daemon/update-daemon-set/
        Kind::DaemonSet => {
            let wanted = status("desiredNumberScheduled");
            is_observed()
                && status("updatedNumberScheduled") >= wanted
                && status("numberAvailable") >= wanted
        }
        // https://kubernetes.io/docs/concepts/workloads/controllers/job/#terminal-job-conditions
        Kind::Job => condition(object, "Complete", "status", "True"),
        Kind::ConfigMap | Kind::Service => true,
        Kind::Hub | Kind::Form | Kind::Node | Kind::Namespace | Kind::Pod => false,
    }
}

fn condition(object: &Value, type_: &str, field: &str, value: &str) -> bool {
    let conditions = object
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    conditions
        .into_iter()
        .flatten()
        .any(|c| c["type"] == type_ && c[field] == value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_deployment_is_ready_when_it_is_complete() {
        let good = json!({
            "metadata": {"generation": 2}, "spec": {"replicas": 2},
            "status": {"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2},
        });
        for (name, pointer, value, ready) in [
            ("complete", "/spec/replicas", json!(2), true),
            (
                "the controller has not seen it",
                "/status/observedGeneration",
                json!(1),
                false,
            ),
            ("an old pod is left", "/status/replicas", json!(3), false),
            (
                "not all are updated",
                "/status/updatedReplicas",
                json!(1),
                false,
            ),
            (
                "not all are available",
                "/status/availableReplicas",
                json!(1),
                false,
            ),
            ("scaled up", "/spec/replicas", json!(3), false),
        ] {
            let mut object = good.clone();
            *object.pointer_mut(pointer).expect(name) = value;
            assert_eq!(is_ready(Kind::Deployment, &object), ready, "{name}");
        }
        let empty = json!({"metadata": {"generation": 1}, "spec": {"replicas": 0}, "status": {"observedGeneration": 1}});
        assert!(is_ready(Kind::Deployment, &empty), "scaled to zero");
        assert!(
            !is_ready(
                Kind::Deployment,
                &json!({"metadata": {"generation": 1}, "spec": {}})
            ),
            "new"
        );
    }

    #[test]
    fn the_other_workloads() {
        let set = |current: &str, ready: i64| {
            json!({"metadata": {"generation": 1}, "spec": {"replicas": 2}, "status": {
                "observedGeneration": 1, "readyReplicas": ready, "availableReplicas": ready,
                "currentRevision": current, "updateRevision": "b"}})
        };
        for (name, kind, object, ready) in [
            ("set", Kind::StatefulSet, set("b", 2), true),
            ("set half-way", Kind::StatefulSet, set("a", 2), false),
            ("set not ready", Kind::StatefulSet, set("b", 1), false),
            (
                "daemons",
                Kind::DaemonSet,
                json!({"metadata": {"generation": 1}, "status": {"observedGeneration": 1,
                "desiredNumberScheduled": 1, "updatedNumberScheduled": 1, "numberAvailable": 1}}),
                true,
            ),
            (
                "daemons old",
                Kind::DaemonSet,
                json!({"metadata": {"generation": 1}, "status": {"observedGeneration": 1,
                "desiredNumberScheduled": 1, "updatedNumberScheduled": 0, "numberAvailable": 1}}),
                false,
            ),
            (
                "job",
                Kind::Job,
                json!({"status": {"conditions": [{"type": "Complete", "status": "True"}]}}),
                true,
            ),
            ("job at work", Kind::Job, json!({"status": {}}), false),
            ("config", Kind::ConfigMap, json!({}), true),
        ] {
            assert_eq!(is_ready(kind, &object), ready, "{name}");
        }
    }
}
