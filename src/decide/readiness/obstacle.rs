//! What keeps the pods of a workload from running, of which the workload itself only says that they do not. Told in words
//! that stay the same while that does: a kubelet alternates between two reasons for one image, and counts restarts and
//! seconds, and each change of a message is a write of a status.

use serde_json::Value;

use crate::decide::readiness::object::Object;

/// What tells the pods of one version of a workload from those of the others.
const REVISIONS: [&str; 2] = ["pod-template-hash", "controller-revision-hash"];

/// Of the newest pod that says one, among those of the newest version.
pub fn of(pods: &[Value]) -> Option<String> {
    // One that has ended is kept for its logs.
    let is_over = |pod: &Object| {
        let phase = pod.text("/status/phase").unwrap_or_default();
        pod.has("/metadata/deletionTimestamp") || ["Succeeded", "Failed"].contains(&phase)
    };
    let pods = pods.iter().map(Object::new).filter(|pod| !is_over(pod));
    let mut pods: Vec<Object> = pods.collect();
    pods.sort_by(|a, b| age(b).cmp(&age(a)));
    let revision =
        |pod: &Object| REVISIONS.map(|label| pod.value()["metadata"]["labels"][label].clone());
    let newest = revision(pods.first()?);
    let mut newest = pods.iter().filter(|pod| revision(pod) == newest);
    newest.find_map(in_the_way)
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
            .then(|| format!("no Kubernetes node takes its pod: {}", uncounted(&message)))
    })
}

/// What a scheduler says (`0/9 nodes are available: 2 Insufficient cpu, 7 node(s) had untolerated taint. preemption: ...`),
/// without how many nodes there are of each sort.
fn uncounted(message: &str) -> String {
    let Some((_, causes)) = message.split_once(" nodes are available: ") else {
        return message.to_owned();
    };
    let causes = causes.split(". ").next().unwrap_or_default();
    let counts = |c: char| c.is_ascii_digit() || c == ' ';
    let causes = causes.trim_end_matches('.').split(", ");
    let mut causes: Vec<&str> = causes
        .map(|cause| cause.trim_start_matches(counts))
        .collect();
    causes.sort();
    causes.join(", ")
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
        ("CrashLoopBackOff", _) => {
            ended(container, &["/lastState/terminated", "/state/terminated"]).and_then(of)
        }
        // What has done its work may be waited for no less.
        ("", _) if container.get("/state/terminated/exitCode") != Some(&Value::from(0)) => {
            ended(container, &["/state/terminated"]).and_then(of)
        }
        ("", _) => None,
        (reason, "") => of(reason.to_owned()),
        (reason, message) => of(format!("{reason}: {message}")),
    }
}

fn ended(container: &Object, places: &[&str]) -> Option<String> {
    let ended = Object::new(places.iter().find_map(|at| container.get(at))?);
    let code = ended.get("/exitCode").unwrap_or(&Value::Null);
    let reason = ended.text("/reason").unwrap_or("without a reason");
    Some(format!("it ends with exit code {code} ({reason})"))
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
        let crashed = Some("container web: it ends with exit code 1 (Error)");
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
            // It may have been started for the last time.
            (crashing(json!({"running": {}})), None),
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
                Some("container migrate: it ends with exit code 1 (Error)"),
            ),
            (
                json!({"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}]}),
                Some("no Kubernetes node takes its pod: 0/3 nodes are available"),
            ),
            (
                json!({"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/9 nodes are available: 2 node(s) had \
                    untolerated taint, 7 Insufficient cpu. preemption: 0/9 nodes are available: 9 No victims found."}]}),
                Some(
                    "no Kubernetes node takes its pod: Insufficient cpu, node(s) had untolerated taint",
                ),
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

    #[test]
    fn neither_older_versions_nor_what_has_ended_speaks() {
        let of_revision = |mut pod: Value, revision: &str| {
            pod["metadata"]["labels"] = json!({"pod-template-hash": revision});
            pod
        };
        let broken = || waiting("ImagePullBackOff", "");
        let old = of_revision(pod("a", 1, broken()), "1");
        let new = of_revision(pod("b", 2, json!({"phase": "Pending"})), "2");
        assert_eq!(of(&[old.clone(), new]), None);
        assert!(of(&[old]).is_some());
        let ended = json!({"terminated": {"exitCode": 0, "reason": "Completed"}});
        let done = json!({"containerStatuses": [{"name": "a", "ready": false, "state": ended}]});
        assert_eq!(of(&[pod("a", 1, done)]), None);
        for phase in ["Failed", "Succeeded"] {
            let mut over = broken();
            over["phase"] = json!(phase);
            assert_eq!(of(&[pod("a", 1, over)]), None, "{phase}");
        }
    }
}
