//! Finds what keeps a workload's pods from running, if the workload itself says only that they do not. The text stays the same
//! while the cause does, because each change writes a status: a kubelet alternates between two reasons for one image, and counts
//! restarts and seconds.

use jiff::Timestamp;
use serde_json::Value;

use crate::decide::readiness::object::Object;

/// The labels that distinguish the pods of one revision of a workload.
const REVISIONS: [&str; 2] = ["pod-template-hash", "controller-revision-hash"];

/// The obstacle of a pod that its controller will not replace, or else of the newest pod of the newest revision that has one.
pub fn of(workload: &Value, pods: &[Value]) -> Option<String> {
    let pods = living(pods);
    let left = left_broken(&Object::new(workload), &pods);
    left.or_else(|| newest(&pods).find_map(|pod| Some(of_pod(pod, &in_the_way(pod)?))))
}

/// Whether the workload's own status says why its pods are rejected.
pub fn tells_refusals(workload: &Value) -> bool {
    workload["kind"] == "Deployment"
}

/// Why the API server rejects the workload's pods, from its events; None if a pod was created since.
pub fn refused(events: &[Value], pods: &[Value]) -> Option<String> {
    let time = |value: &Value| value.as_str()?.parse::<Timestamp>().ok();
    let told_at = |event: &Value| {
        let times = [
            &event["series"]["lastObservedTime"],
            &event["lastTimestamp"],
            &event["eventTime"],
        ];
        times.into_iter().find_map(time)
    };
    let refusals = events
        .iter()
        .filter(|event| event["reason"] == "FailedCreate");
    let refusals = refusals.filter_map(|event| Some((told_at(event)?, event["message"].as_str()?)));
    let (at, message) = refusals.max()?;
    let created = pods
        .iter()
        .map(|pod| time(&pod["metadata"]["creationTimestamp"]));
    (Some(at) >= created.max().flatten()).then(|| message.to_owned())
}

/// The newest pod that is not ready, and how far its start is: for when no obstacle is known.
pub fn not_started(pods: &[Value]) -> Option<String> {
    let pods = living(pods);
    let is_ready = |pod: &Object| pod.condition("Ready").is_some_and(|ready| ready.is_true());
    let pod = newest(&pods).find(|pod| !is_ready(pod))?;
    let of = |list: &str, stage: &dyn Fn(&Object) -> Option<String>| {
        let mut containers = pod.list(list).iter().map(Object::new);
        containers.find_map(|container| stage(&container))
    };
    let name = |container: &Object| container.text("/name").unwrap_or_default().to_owned();
    let init = |container: &Object| {
        let runs = container.has("/state/running") && !container.flag("/ready");
        runs.then(|| format!("its init container {} still runs", name(container)))
    };
    let main = |container: &Object| {
        let name = name(container);
        match (
            container.flag("/ready"),
            container.text("/state/waiting/reason"),
        ) {
            (true, _) => None,
            (_, Some(reason)) => Some(format!("container {name} has not started ({reason})")),
            (_, None) if !container.has("/state/running") => None,
            (_, None) => Some(format!(
                "container {name} runs, and its readinessProbe has not passed"
            )),
        }
    };
    let stage = of("/status/initContainerStatuses", &init);
    let stage = stage.or_else(|| of("/status/containerStatuses", &main));
    let phase = || format!("it is {}", pod.text("/status/phase").unwrap_or("not ready"));
    let namespace = pod.text("/metadata/namespace").unwrap_or_default();
    let next = format!("see kubectl describe pod {} -n {namespace}", pod.name());
    Some(of_pod(
        pod,
        &format!("{}; {next}", stage.unwrap_or_else(phase)),
    ))
}

fn of_pod(pod: &Object, said: &str) -> String {
    format!("pod {}: {said}", pod.name())
}

/// The pods that have not ended, newest first. Ended pods are kept only for their logs.
fn living(pods: &[Value]) -> Vec<Object<'_>> {
    let is_over = |pod: &Object| {
        let phase = pod.text("/status/phase").unwrap_or_default();
        pod.has("/metadata/deletionTimestamp") || ["Succeeded", "Failed"].contains(&phase)
    };
    let pods = pods.iter().map(Object::new).filter(|pod| !is_over(pod));
    let mut pods: Vec<Object> = pods.collect();
    pods.sort_by(|a, b| age(b).cmp(&age(a)));
    pods
}

/// The pods of the newest revision.
fn newest<'a, 'b>(pods: &'b [Object<'a>]) -> impl Iterator<Item = &'b Object<'a>> {
    let revision =
        |pod: &Object| REVISIONS.map(|label| pod.value()["metadata"]["labels"][label].clone());
    let newest = pods.first().map(revision);
    pods.iter().filter(move |pod| Some(revision(pod)) == newest)
}

/// Also sorts by name, so that pods of the same age keep their order.
fn age<'a>(pod: &Object<'a>) -> (Option<&'a str>, Option<&'a str>) {
    let created = pod.text("/metadata/creationTimestamp");
    (created, pod.text("/metadata/name"))
}

/// An ordered StatefulSet waits until each pod is ready, also one of the previous revision. If that revision was broken, the pod
/// never becomes ready, and the rollout that would correct it never starts.
fn left_broken(workload: &Object, pods: &[Object]) -> Option<String> {
    let ordered = workload.text("/spec/podManagementPolicy") != Some("Parallel");
    let on_delete = workload.text("/spec/updateStrategy/type") == Some("OnDelete");
    let partition = workload.count("/spec/updateStrategy/rollingUpdate/partition");
    let held_back = partition > Some(workload.count("/spec/ordinals/start").unwrap_or(0));
    let is_set = workload.kind() == Some("StatefulSet") && ordered && !on_delete && !held_back;
    if !is_set || workload.unobserved().is_some() {
        return None;
    }
    let newest = workload.text("/status/updateRevision")?;
    let left = pods.iter().filter_map(|pod| {
        let revision = pod.text("/metadata/labels/controller-revision-hash")?;
        let ready = pod.condition("Ready").is_some_and(|ready| ready.is_true());
        let why = (revision != newest && !ready).then(|| of_containers(pod))??;
        Some((pod.name(), why, pod.text("/metadata/namespace")?))
    });
    // The controller waits for the first pod in the order.
    let (name, why, namespace) = left.min_by_key(|(name, ..)| (name.len(), name.clone()))?;
    Some(format!(
        "pod {name} still runs what was before ({why}), and the StatefulSet controller does not replace a pod that is not \
         ready: delete it (kubectl delete pod {name} -n {namespace})"
    ))
}

fn of_containers(pod: &Object) -> Option<String> {
    let containers = ["/status/initContainerStatuses", "/status/containerStatuses"];
    containers
        .into_iter()
        .flat_map(|pointer| pod.list(pointer))
        .find_map(|container| of_container(&Object::new(container)))
}

fn in_the_way(pod: &Object) -> Option<String> {
    of_containers(pod).or_else(|| {
        let condition = pod.condition("PodScheduled")?;
        let message = condition.message();
        (!condition.is_true() && !message.is_empty())
            .then(|| format!("no Kubernetes node takes it: {}", uncounted(&message)))
    })
}

/// A scheduler's message (`0/9 nodes are available: 2 Insufficient cpu, 7 node(s) had untolerated taint. preemption: ...`)
/// without its numbers.
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
        // The container is starting.
        ("PodInitializing" | "ContainerCreating", _) => None,
        ("CrashLoopBackOff", _) => {
            ended(container, &["/lastState/terminated", "/state/terminated"]).and_then(of)
        }
        // A container that exited with 0 is no obstacle, even if the pod still waits for it.
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

    fn said(pods: &[Value]) -> Option<String> {
        of(&Value::Null, pods)
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
            // The restart may be the one that succeeds.
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
                Some("no Kubernetes node takes it: 0/3 nodes are available"),
            ),
            (
                json!({"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/9 nodes are available: 2 node(s) had \
                    untolerated taint, 7 Insufficient cpu. preemption: 0/9 nodes are available: 9 No victims found."}]}),
                Some(
                    "no Kubernetes node takes it: Insufficient cpu, node(s) had untolerated taint",
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
            let told = told.map(|told| format!("pod a: {told}"));
            assert_eq!(said(&[pod("a", 0, status.clone())]), told, "{status}");
        }
    }

    #[test]
    fn the_newest_pod_speaks_whatever_the_order() {
        let old = pod("a", 1, waiting("CreateContainerConfigError", "old"));
        let new = pod("b", 2, waiting("CreateContainerConfigError", "new"));
        let mut gone = pod("c", 3, waiting("CreateContainerConfigError", "gone"));
        gone["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:00Z");
        let fine = pod("d", 4, json!({}));
        let told = Some("pod b: container web: CreateContainerConfigError: new".to_owned());
        let mut pods = [old, new, gone, fine];
        assert_eq!(said(&pods), told);
        pods.reverse();
        assert_eq!(said(&pods), told);
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
        assert_eq!(said(&[old.clone(), new]), None);
        assert!(said(&[old]).is_some());
        let ended = json!({"terminated": {"exitCode": 0, "reason": "Completed"}});
        let done = json!({"containerStatuses": [{"name": "a", "ready": false, "state": ended}]});
        assert_eq!(said(&[pod("a", 1, done)]), None);
        for phase in ["Failed", "Succeeded"] {
            let mut over = broken();
            over["phase"] = json!(phase);
            assert_eq!(said(&[pod("a", 1, over)]), None, "{phase}");
        }
    }

    fn set(changes: Value) -> Value {
        let mut set = json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db", "generation": 3},
            "spec": {"replicas": 3}, "status": {"observedGeneration": 3, "updateRevision": "db-new"},
        });
        json_patch::merge(&mut set, &changes);
        set
    }

    fn of_set(name: &str, revision: &str, status: Value) -> Value {
        let mut pod = pod(name, 0, status);
        pod["metadata"]["namespace"] = json!("t-acme");
        pod["metadata"]["labels"] = json!({"controller-revision-hash": revision});
        pod
    }

    #[test]
    fn a_broken_pod_of_the_version_before_is_to_be_deleted() {
        let broken = || waiting("ImagePullBackOff", "");
        let left = |name, why| {
            Some(format!(
                "pod {name} still runs what was before (container web: {why}), and the StatefulSet controller does not replace a \
                 pod that is not ready: delete it (kubectl delete pod {name} -n t-acme)"
            ))
        };
        let unpulled = "its image web:2 cannot be pulled";
        let usual = || Some(format!("pod db-2: container web: {unpulled}"));
        let partition =
            |from: u32| json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": from}}}});
        let old = || vec![of_set("db-2", "db-old", broken())];
        let ended = json!({"terminated": {"exitCode": 1, "reason": "Error"}});
        let crashing = json!({"containerStatuses": [{
            "name": "web", "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": ended,
        }]});
        let unset = waiting("CreateContainerConfigError", "no such key");
        let mut ready = broken();
        ready["conditions"] = json!([{"type": "Ready", "status": "True"}]);
        let unplaced = json!({"conditions": [{"type": "PodScheduled", "status": "False", "message": "no room"}]});
        let mut gone = of_set("db-2", "db-old", broken());
        gone["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:00Z");
        let ten = of_set("db-10", "db-old", broken());
        let cases = [
            ("an image", json!({}), old(), left("db-2", unpulled)),
            (
                "a crash",
                json!({}),
                vec![of_set("db-2", "db-old", crashing)],
                left("db-2", "it ends with exit code 1 (Error)"),
            ),
            (
                "its configuration",
                json!({}),
                vec![of_set("db-2", "db-old", unset)],
                left("db-2", "CreateContainerConfigError: no such key"),
            ),
            (
                "the first",
                json!({}),
                vec![ten, old().remove(0)],
                left("db-2", unpulled),
            ),
            (
                "in the order that is the default",
                json!({"spec": {"podManagementPolicy": "OrderedReady"}}),
                old(),
                left("db-2", unpulled),
            ),
            (
                "no order",
                json!({"spec": {"podManagementPolicy": "Parallel"}}),
                old(),
                usual(),
            ),
            (
                "OnDelete",
                json!({"spec": {"updateStrategy": {"type": "OnDelete"}}}),
                old(),
                usual(),
            ),
            ("no partition", partition(0), old(), left("db-2", unpulled)),
            ("a partition", partition(3), old(), usual()),
            (
                "not seen yet",
                json!({"metadata": {"generation": 4}}),
                old(),
                usual(),
            ),
            ("another kind", json!({"kind": "DaemonSet"}), old(), usual()),
            (
                "no revision",
                json!({"status": {"updateRevision": null}}),
                old(),
                usual(),
            ),
            (
                "the newest",
                json!({}),
                vec![of_set("db-2", "db-new", broken())],
                usual(),
            ),
            (
                "ready",
                json!({}),
                vec![of_set("db-2", "db-old", ready)],
                usual(),
            ),
            ("on its way out", json!({}), vec![gone], None),
            (
                "no room for it",
                json!({}),
                vec![of_set("db-2", "db-old", unplaced)],
                Some("pod db-2: no Kubernetes node takes it: no room".to_owned()),
            ),
        ];
        for (name, changes, pods, told) in cases {
            assert_eq!(of(&set(changes), &pods), told, "{name}");
        }
    }

    #[test]
    fn a_refused_pod_is_told_until_one_is_made() {
        let event = |at: &str, reason: &str, message: &str| json!({"reason": reason, "message": message, "lastTimestamp": at});
        let events = [
            event("2026-01-01T00:00:10Z", "FailedCreate", "older"),
            event("2026-01-01T00:00:20Z", "FailedCreate", "exceeded quota"),
            event("2026-01-01T00:00:30Z", "SuccessfulCreate", "made"),
            json!({"reason": "FailedCreate", "message": "without a time"}),
        ];
        let told = |pods: &[Value]| refused(&events, pods);
        let said = Some("exceeded quota".to_owned());
        assert_eq!(told(&[]), said);
        assert_eq!(told(&[pod("a", 19, json!({}))]), said);
        assert_eq!(
            told(&[pod("a", 5, json!({})), pod("b", 21, json!({}))]),
            None
        );
        assert_eq!(refused(&[], &[]), None);
    }

    #[test]
    fn how_far_a_late_pod_is_is_told() {
        let containers = |state: Value| json!({"phase": "Pending", "containerStatuses": [{"name": "web", "state": state}]});
        let init = json!({"initContainerStatuses": [
            {"name": "first", "ready": true, "state": {"terminated": {"exitCode": 0}}},
            {"name": "migrate", "state": {"running": {}}},
        ]});
        for (status, told) in [
            (
                containers(json!({"waiting": {"reason": "ContainerCreating"}})),
                "container web has not started (ContainerCreating)",
            ),
            (
                containers(json!({"running": {}})),
                "container web runs, and its readinessProbe has not passed",
            ),
            (init, "its init container migrate still runs"),
            (json!({"phase": "Pending"}), "it is Pending"),
        ] {
            let mut late = pod("a", 0, status.clone());
            late["metadata"]["namespace"] = json!("t-acme");
            let expected = format!("pod a: {told}; see kubectl describe pod a -n t-acme");
            assert_eq!(not_started(&[late]), Some(expected), "{status}");
        }
        let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        assert_eq!(not_started(&[pod("a", 0, ready)]), None);
    }
}
