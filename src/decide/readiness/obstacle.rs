//! What keeps the pods of a workload from running, of which the workload itself only says that they do not. Told in words
//! that stay the same while that does: a kubelet alternates between two reasons for one image, and counts restarts and
//! seconds, and each change of a message is a write of a status.

use serde_json::Value;

use crate::decide::readiness::object::Object;

/// Of the newest pod that says one.
pub fn of(pods: &[Value]) -> Option<String> {
    let mut pods: Vec<Object> = pods
        .iter()
        .map(Object::new)
        .filter(|pod| !pod.has("/metadata/deletionTimestamp"))
        .collect();
    pods.sort_by(|a, b| age(b).cmp(&age(a)));
    pods.iter().find_map(in_the_way)
}

/// Two of one age are told in the same order each time.
fn age<'a>(pod: &Object<'a>) -> (Option<&'a str>, Option<&'a str>) {
    let created = pod.text("/metadata/creationTimestamp");
    (created, pod.text("/metadata/name"))
}

fn in_the_way(pod: &Object) -> Option<String> {
    let containers = ["/status/initContainerStatuses", "/status/containerStatuses"];
    let told = containers
        .into_iter()
        .flat_map(|pointer| pod.list(pointer))
        .find_map(|container| of_container(&Object::new(container)));
    told.or_else(|| {
        let condition = pod.condition("PodScheduled")?;
        let message = condition.message();
        (!condition.is_true() && !message.is_empty())
            .then(|| format!("no Kubernetes node takes its pod: {message}"))
    })
}

fn of_container(container: &Object) -> Option<String> {
    let text = |pointer| container.text(pointer).unwrap_or_default();
    let (name, image) = (text("/name"), text("/image"));
    let of = |said: String| Some(format!("container {name}: {said}"));
    match (
        text("/state/waiting/reason"),
        text("/state/waiting/message"),
    ) {
        ("ErrImagePull" | "ImagePullBackOff" | "ErrImageNeverPull" | "RegistryUnavailable", _) => {
            of(format!("its image {image} cannot be pulled"))
        }
        ("InvalidImageName", _) => of(format!("{image} is no name of an image")),
        // They are on their way.
        ("PodInitializing" | "ContainerCreating", _) => None,
        // Between two tries it runs, or has ended.
        ("" | "CrashLoopBackOff", _) if !container.flag("/ready") => {
            let ended = ["/lastState/terminated", "/state/terminated"];
            let ended = Object::new(ended.into_iter().find_map(|at| container.get(at))?);
            let code = ended.get("/exitCode").unwrap_or(&Value::Null);
            let reason = ended.text("/reason").unwrap_or("without a reason");
            of(format!(
                "it ends with exit code {code} ({reason}) and is started again"
            ))
        }
        ("", _) => None,
        (reason, "") => of(reason.to_owned()),
        (reason, message) => of(format!("{reason}: {message}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, created: i64, status: Value) -> Value {
        let created = format!("2026-01-01T00:00:{created:02}Z");
        json!({"metadata": {"name": name, "creationTimestamp": created}, "status": status})
    }

    fn waiting(reason: &str, message: &str) -> Value {
        json!({"containerStatuses": [
            {"name": "proxy", "ready": true, "state": {"running": {}}},
            {"name": "web", "image": "web:2", "ready": false, "state": {"waiting": {"reason": reason, "message": message}}},
        ]})
    }

    #[test]
    fn each_obstacle_is_told_with_what_is_wrong() {
        let unpulled = Some("container web: its image web:2 cannot be pulled");
        let ended = json!({"terminated": {"exitCode": 1, "reason": "Error"}});
        let crashed = Some("container web: it ends with exit code 1 (Error) and is started again");
        let crashing = |state: Value| json!({"containerStatuses": [{"name": "web", "ready": false, "state": state, "lastState": ended}]});
        let cases = [
            (waiting("ErrImagePull", "not found"), unpulled),
            (waiting("ImagePullBackOff", "Back-off pulling"), unpulled),
            (
                waiting("InvalidImageName", ""),
                Some("container web: web:2 is no name of an image"),
            ),
            (
                waiting("CreateContainerConfigError", "secret \"db\" not found"),
                Some("container web: CreateContainerConfigError: secret \"db\" not found"),
            ),
            (waiting("ContainerCreating", ""), None),
            (waiting("CrashLoopBackOff", "back-off 20s"), None),
            (
                crashing(
                    json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 20s"}}),
                ),
                crashed,
            ),
            (crashing(json!({"running": {}})), crashed),
            (crashing(ended.clone()), crashed),
            (
                json!({"containerStatuses": [{"name": "web", "ready": false, "state": ended}]}),
                crashed,
            ),
            (
                json!({"containerStatuses": [{"name": "web", "ready": true, "state": {"running": {}}, "lastState": ended}]}),
                None,
            ),
            (
                json!({"initContainerStatuses": [{"name": "migrate", "ready": false, "state": ended}]}),
                Some("container migrate: it ends with exit code 1 (Error) and is started again"),
            ),
            (
                json!({"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}]}),
                Some("no Kubernetes node takes its pod: 0/3 nodes are available"),
            ),
            (
                json!({"conditions": [{"type": "PodScheduled", "status": "True"}]}),
                None,
            ),
            (json!(null), None),
            (json!({"containerStatuses": "none"}), None),
        ];
        for (status, told) in cases {
            assert_eq!(
                of(&[pod("a", 0, status.clone())]).as_deref(),
                told,
                "{status}"
            );
        }
    }

    #[test]
    fn the_newest_pod_speaks_whatever_the_order() {
        let old = pod("a", 1, waiting("CreateContainerConfigError", "old"));
        let new = pod("b", 2, waiting("CreateContainerConfigError", "new"));
        let mut gone = pod("c", 3, waiting("CreateContainerConfigError", "gone"));
        gone["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:00Z");
        let fine = pod("d", 4, json!({}));
        let told = Some("container web: CreateContainerConfigError: new".to_owned());
        let mut pods = [old, new, gone, fine];
        assert_eq!(of(&pods), told);
        pods.reverse();
        assert_eq!(of(&pods), told);
    }
}
