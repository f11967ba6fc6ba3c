//! The pods of a Kubernetes node that is drained, as `kubectl drain` sees them: which are evicted now, which stay, and what the
//! rest waits for. It must not evict, and nothing here ever deletes by force.

use std::collections::BTreeMap;
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::decide::child::{Kind, ObjectKey};
use crate::decide::maintenance::{DRAIN_AGAIN, WAIT_AGAIN, named};

const MIRROR: &str = "kubernetes.io/config.mirror";
/// On a Kubernetes node that does not report, a pod that should have ended so long ago is not waited for.
const OVERDUE: SignedDuration = SignedDuration::from_secs(60);

/// Which pods may be evicted although something of them is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// Those whose emptyDir volumes go with them.
    pub empty_dir: bool,
    /// Those that nobody makes again.
    pub unmanaged: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub labels: BTreeMap<String, String>,
    pub controller: Option<ObjectKey>,
    priority: i64,
    is_mirror: bool,
    has_empty_dir: bool,
    /// Its containers have ended, and none is started again.
    is_finished: bool,
    /// When its time to end is over, if it is being deleted.
    ends_at: Option<Timestamp>,
}

impl Pod {
    pub fn of(object: &Value) -> Self {
        let (metadata, spec) = (&object["metadata"], &object["spec"]);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let labels = metadata["labels"].as_object().into_iter().flatten();
        Pod {
            namespace: text(&metadata["namespace"]),
            name: text(&metadata["name"]),
            uid: text(&metadata["uid"]),
            labels: labels
                .map(|(name, value)| (name.clone(), text(value)))
                .collect(),
            controller: controller_of(metadata),
            priority: spec["priority"].as_i64().unwrap_or_default(),
            is_mirror: metadata["annotations"][MIRROR].is_string(),
            has_empty_dir: items(&spec["volumes"])
                .iter()
                .any(|volume| volume["emptyDir"].is_object()),
            is_finished: ["Succeeded", "Failed"]
                .iter()
                .any(|phase| object["status"]["phase"] == *phase),
            ends_at: metadata["deletionTimestamp"]
                .as_str()
                .and_then(|at| at.parse().ok()),
        }
    }

    fn stays(&self) -> bool {
        let of_daemon_set = |key: &ObjectKey| key.kind.kind == "DaemonSet";
        self.is_mirror || self.controller.as_ref().is_some_and(of_daemon_set) && !self.is_finished
    }

    fn kept(&self, allowed: Allowed) -> Option<Kept> {
        match self {
            _ if self.is_finished => None,
            Pod {
                controller: None, ..
            } if !allowed.unmanaged => Some(Kept::Unmanaged),
            Pod {
                has_empty_dir: true,
                ..
            } if !allowed.empty_dir => Some(Kept::EmptyDir),
            _ => None,
        }
    }
}

/// The controller that an object's metadata name.
pub fn controller_of(metadata: &Value) -> Option<ObjectKey> {
    let mut owners = metadata["ownerReferences"].as_array()?.iter();
    let owner = owners.find(|owner| owner["controller"] == true)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Some(ObjectKey {
        kind: Kind {
            api_version: text(&owner["apiVersion"]).into(),
            kind: text(&owner["kind"]).into(),
        },
        namespace: text(&metadata["namespace"]),
        name: text(&owner["name"]),
    })
}

impl fmt::Display for Pod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Why a pod is not evicted without a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kept {
    EmptyDir,
    Unmanaged,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// To evict now, in this order: the lowest priority first.
    pub evict: Vec<Pod>,
    /// Evicted or deleted, and not gone yet.
    pub leaving: Vec<Pod>,
    pub kept: Vec<(Pod, Kept)>,
    /// Of DaemonSets, and mirror pods.
    pub staying: usize,
    /// On a Kubernetes node that does not report, and long past their time to end.
    pub overdue: usize,
}

pub fn plan(pods: Vec<Pod>, allowed: Allowed, unreachable: bool, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    for pod in pods {
        match (pod.ends_at, pod.kept(allowed)) {
            _ if pod.stays() => plan.staying += 1,
            (Some(ends_at), _) if unreachable && now > ends_at + OVERDUE => plan.overdue += 1,
            (Some(_), _) => plan.leaving.push(pod),
            (None, Some(why)) => plan.kept.push((pod, why)),
            (None, None) => plan.evict.push(pod),
        }
    }
    let order = |pod: &Pod| (pod.priority, pod.namespace.clone(), pod.name.clone());
    plan.evict.sort_by_cached_key(order);
    plan
}

/// A PodDisruptionBudget, as its status tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    pub namespace: String,
    pub name: String,
    current_healthy: i64,
    desired_healthy: i64,
    disruptions_allowed: i64,
    selector: Value,
}

impl Budget {
    pub fn of(object: &Value) -> Self {
        let (metadata, status) = (&object["metadata"], &object["status"]);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Budget {
            namespace: text(&metadata["namespace"]),
            name: text(&metadata["name"]),
            current_healthy: status["currentHealthy"].as_i64().unwrap_or_default(),
            desired_healthy: status["desiredHealthy"].as_i64().unwrap_or_default(),
            disruptions_allowed: status["disruptionsAllowed"].as_i64().unwrap_or_default(),
            selector: object["spec"]["selector"].clone(),
        }
    }

    /// As policy/v1 selects: an empty selector selects all pods of the namespace, none selects none.
    pub fn selects(&self, pod: &Pod) -> bool {
        let labels = self.selector["matchLabels"]
            .as_object()
            .into_iter()
            .flatten();
        let has = |name: &str, value: &Value| {
            pod.labels
                .get(name)
                .is_some_and(|own| *value == own.as_str())
        };
        let holds = |term: &Value| {
            let name = term["key"].as_str().unwrap_or_default();
            let mut values = term["values"].as_array().into_iter().flatten();
            match term["operator"].as_str() {
                Some("In") => values.any(|value| has(name, value)),
                Some("NotIn") => !values.any(|value| has(name, value)),
                Some("Exists") => pod.labels.contains_key(name),
                Some("DoesNotExist") => !pod.labels.contains_key(name),
                _ => false,
            }
        };
        let terms = self.selector["matchExpressions"]
            .as_array()
            .into_iter()
            .flatten();
        self.selector.is_object()
            && self.namespace == pod.namespace
            && labels.into_iter().all(|(name, value)| has(name, value))
            && terms.into_iter().all(holds)
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "PodDisruptionBudget {}/{}: {} healthy of {} needed (disruptionsAllowed {})",
            self.namespace,
            self.name,
            self.current_healthy,
            self.desired_healthy,
            self.disruptions_allowed
        )
    }
}

/// What the API server made of an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Evicted,
    /// The pod is not there any more, or another one of its name is.
    Gone,
    /// A budget refuses it now.
    Refused(Option<Budget>),
    /// Its namespace is deleted, and deletes it.
    Terminating,
    /// Not evicted now, and nothing is wrong with that.
    Again,
    Failed(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    Draining,
    /// Something keeps pods from being evicted.
    Blocked,
    Drained,
}

impl Stage {
    pub fn as_str(self) -> &'static str {
        match self {
            Stage::Draining => "draining",
            Stage::Blocked => "blocked",
            Stage::Drained => "drained",
        }
    }

    /// Of a progress annotation: its first word, up to a colon.
    pub fn of(progress: &str) -> Option<Self> {
        let word = progress.split(':').next()?;
        let all = [Stage::Draining, Stage::Blocked, Stage::Drained];
        all.into_iter().find(|stage| stage.as_str() == word)
    }
}

/// How far the drain is, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    pub stage: Stage,
    /// The stage, and after a colon the details, which change with every pod.
    pub text: String,
    /// What blocks; for an event.
    pub blocked: Option<String>,
    /// The pods are listed again after this. None: the Kubernetes node is drained.
    pub again: Option<SignedDuration>,
}

pub fn progress(plan: &Plan, outcomes: &[(Pod, Outcome)]) -> Progress {
    let left = |outcome: &Outcome| *outcome != Outcome::Gone;
    let waits = plan.leaving.len() + outcomes.iter().filter(|(_, o)| left(o)).count();
    let blocked = blocked(plan, outcomes);
    let still = waits + plan.kept.len();
    let stage = match (&blocked, still) {
        (_, 0) => Stage::Drained,
        (None, _) => Stage::Draining,
        (Some(_), _) => Stage::Blocked,
    };
    let left = (still > 0).then(|| format!("{} left", pods(still)));
    let staying = format!(
        "not evicted: {} of DaemonSets, or static",
        pods(plan.staying)
    );
    let staying = (plan.staying > 0).then_some(staying);
    let overdue = format!(
        "not waiting for {}: the Kubernetes node does not report",
        pods(plan.overdue)
    );
    let overdue = (plan.overdue > 0).then_some(overdue);
    let details = [left, blocked.clone(), staying, overdue];
    let details: Vec<String> = details.into_iter().flatten().collect();
    let text = match details.is_empty() {
        true => stage.as_str().to_owned(),
        false => format!("{}: {}", stage.as_str(), details.join("; ")),
    };
    let again = match (waits, plan.kept.len()) {
        (0, 0) => None,
        // Only a person moves these on.
        (0, _) => Some(WAIT_AGAIN),
        _ => Some(DRAIN_AGAIN),
    };
    Progress {
        stage,
        text,
        blocked,
        again,
    }
}

fn pods(count: usize) -> String {
    match count {
        1 => "1 pod".to_owned(),
        count => format!("{count} pods"),
    }
}

/// The first of each kind, with how many more there are.
fn blocked(plan: &Plan, outcomes: &[(Pod, Outcome)]) -> Option<String> {
    let mut causes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (pod, outcome) in outcomes {
        let cause = match outcome {
            Outcome::Refused(Some(budget)) => budget.to_string(),
            Outcome::Refused(None) => "a PodDisruptionBudget refuses the eviction".to_owned(),
            Outcome::Failed(why) => why.clone(),
            Outcome::Evicted | Outcome::Gone | Outcome::Terminating | Outcome::Again => continue,
        };
        causes.entry(cause).or_default().push(pod.to_string());
    }
    for (pod, why) in &plan.kept {
        let cause = match why {
            Kept::EmptyDir => {
                "it has an emptyDir volume. Delete it, or start lynqgate with --drain-emptydir-pods"
            }
            Kept::Unmanaged => {
                "it has no controller. Delete it, or start lynqgate with --drain-unmanaged-pods"
            }
        };
        causes
            .entry(cause.to_owned())
            .or_default()
            .push(pod.to_string());
    }
    let each = causes
        .iter()
        .map(|(cause, pods)| format!("{}: {cause}", named(pods)));
    let each: Vec<String> = each.collect();
    (!each.is_empty()).then(|| each.join("; "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    /// A pod of a ReplicaSet, changed by a merge patch.
    fn pod(name: &str, patch: Value) -> Pod {
        let mut object = json!({
            "metadata": {
                "namespace": "shop", "name": name, "uid": name, "labels": {"app": "web"},
                "ownerReferences": [{"kind": "ReplicaSet", "name": "web-1", "controller": true}],
            },
            "spec": {"priority": 0},
            "status": {"phase": "Running"},
        });
        json_patch::merge(&mut object, &patch);
        Pod::of(&object)
    }

    fn owned_by(kind: &str) -> Value {
        json!({"metadata": {"ownerReferences": [{"kind": kind, "name": "x", "controller": true}]}})
    }

    fn told(plan: &Plan) -> String {
        let names = |pods: &[Pod]| {
            pods.iter()
                .map(|pod| pod.name.clone())
                .collect::<Vec<_>>()
                .join(" ")
        };
        let kept: Vec<String> = plan
            .kept
            .iter()
            .map(|(pod, why)| format!("{} {why:?}", pod.name))
            .collect();
        format!(
            "evict [{}] leaving [{}] kept [{}] staying {} overdue {}",
            names(&plan.evict),
            names(&plan.leaving),
            kept.join(", "),
            plan.staying,
            plan.overdue
        )
    }

    #[test]
    fn each_pod_is_evicted_or_has_a_reason_not_to_be() {
        const NONE: Allowed = Allowed {
            empty_dir: false,
            unmanaged: false,
        };
        const ALL: Allowed = Allowed {
            empty_dir: true,
            unmanaged: true,
        };
        let empty_dir = json!({"spec": {"volumes": [{"name": "a", "configMap": {}}, {"name": "b", "emptyDir": {}}]}});
        let unmanaged = json!({"metadata": {"ownerReferences": null}});
        let not_controlled =
            json!({"metadata": {"ownerReferences": [{"kind": "Thing", "name": "x"}]}});
        let mirror = json!({"metadata": {"annotations": {MIRROR: "hash"}, "ownerReferences": [{"kind": "Node", "controller": true}]}});
        let ends = |at: &str| json!({"metadata": {"deletionTimestamp": at}});
        let finished = |patch: &Value| {
            let mut patch = patch.clone();
            patch["status"] = json!({"phase": "Succeeded"});
            patch
        };
        for (name, pods, allowed, unreachable, expected) in [
            (
                "a plain pod",
                vec![json!({})],
                NONE,
                false,
                "evict [0] leaving [] kept [] staying 0 overdue 0",
            ),
            (
                "of a DaemonSet",
                vec![owned_by("DaemonSet")],
                ALL,
                false,
                "evict [] leaving [] kept [] staying 1 overdue 0",
            ),
            (
                "a finished one of a DaemonSet",
                vec![finished(&owned_by("DaemonSet"))],
                NONE,
                false,
                "evict [0] leaving [] kept [] staying 0 overdue 0",
            ),
            (
                "a mirror pod",
                vec![mirror],
                ALL,
                false,
                "evict [] leaving [] kept [] staying 1 overdue 0",
            ),
            (
                "with an emptyDir",
                vec![empty_dir.clone()],
                NONE,
                false,
                "evict [] leaving [] kept [0 EmptyDir] staying 0 overdue 0",
            ),
            (
                "with an emptyDir, allowed",
                vec![empty_dir.clone()],
                ALL,
                false,
                "evict [0] leaving [] kept [] staying 0 overdue 0",
            ),
            (
                "with an emptyDir, finished",
                vec![finished(&empty_dir)],
                NONE,
                false,
                "evict [0] leaving [] kept [] staying 0 overdue 0",
            ),
            (
                "without a controller",
                vec![unmanaged.clone()],
                NONE,
                false,
                "evict [] leaving [] kept [0 Unmanaged] staying 0 overdue 0",
            ),
            (
                "with an owner that is no controller",
                vec![not_controlled],
                NONE,
                false,
                "evict [] leaving [] kept [0 Unmanaged] staying 0 overdue 0",
            ),
            (
                "without a controller, allowed",
                vec![unmanaged.clone()],
                ALL,
                false,
                "evict [0] leaving [] kept [] staying 0 overdue 0",
            ),
            (
                "without a controller, finished",
                vec![finished(&unmanaged)],
                NONE,
                false,
                "evict [0] leaving [] kept [] staying 0 overdue 0",
            ),
            (
                "without a controller, leaving",
                vec![ends("2026-01-01T00:00:30Z")],
                NONE,
                false,
                "evict [] leaving [0] kept [] staying 0 overdue 0",
            ),
            (
                "overdue, where the kubelet reports",
                vec![ends("2025-12-31T23:00:00Z")],
                NONE,
                false,
                "evict [] leaving [0] kept [] staying 0 overdue 0",
            ),
            (
                "overdue, where it does not",
                vec![ends("2025-12-31T23:58:59Z")],
                NONE,
                true,
                "evict [] leaving [] kept [] staying 0 overdue 1",
            ),
            (
                "nearly overdue",
                vec![ends("2025-12-31T23:59:00Z")],
                NONE,
                true,
                "evict [] leaving [0] kept [] staying 0 overdue 0",
            ),
            (
                "by priority",
                vec![
                    json!({"spec": {"priority": 2_000_000_000}}),
                    json!({"spec": {"priority": -5}}),
                    json!({}),
                    json!({"metadata": {"namespace": "a"}}),
                ],
                NONE,
                false,
                "evict [1 3 2 0] leaving [] kept [] staying 0 overdue 0",
            ),
        ] {
            let pods = pods
                .into_iter()
                .enumerate()
                .map(|(i, patch)| pod(&i.to_string(), patch));
            let plan = plan(pods.collect(), allowed, unreachable, now());
            assert_eq!(told(&plan), expected, "{name}");
        }
    }

    fn budget(selector: Value) -> Budget {
        Budget::of(&json!({
            "metadata": {"namespace": "shop", "name": "web"},
            "spec": {"selector": selector},
            "status": {"currentHealthy": 2, "desiredHealthy": 2, "disruptionsAllowed": 0},
        }))
    }

    #[test]
    fn a_budget_selects_as_the_api_server_does() {
        for (selector, selects) in [
            (json!(null), false),
            (json!({}), true),
            (json!({"matchLabels": {"app": "web"}}), true),
            (json!({"matchLabels": {"app": "web", "tier": "x"}}), false),
            (
                json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["db", "web"]}]}),
                true,
            ),
            (
                json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}),
                false,
            ),
            (
                json!({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["x"]}]}),
                true,
            ),
            (
                json!({"matchExpressions": [{"key": "app", "operator": "Exists"}, {"key": "tier", "operator": "DoesNotExist"}]}),
                true,
            ),
            (
                json!({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]}),
                false,
            ),
        ] {
            assert_eq!(
                budget(selector.clone()).selects(&pod("a", json!({}))),
                selects,
                "{selector}"
            );
        }
        let elsewhere = pod("a", json!({"metadata": {"namespace": "other"}}));
        assert!(!budget(json!({})).selects(&elsewhere));
    }

    #[test]
    fn the_progress_names_what_blocks() {
        let refused = || Outcome::Refused(Some(budget(json!({}))));
        let unmanaged = pod("bare", json!({"metadata": {"ownerReferences": null}}));
        let nothing = Plan::default();
        let keeps = Plan {
            kept: vec![(unmanaged, Kept::Unmanaged)],
            staying: 2,
            ..Plan::default()
        };
        let leaving = Plan {
            leaving: vec![pod("going", json!({}))],
            ..Plan::default()
        };
        let overdue = Plan {
            overdue: 1,
            ..Plan::default()
        };
        let outcomes = |all: &[Outcome]| {
            let named = (0..)
                .zip(all)
                .map(|(i, outcome)| (pod(&format!("web-{i}"), json!({})), outcome.clone()));
            named.collect::<Vec<_>>()
        };
        let budget_says =
            "PodDisruptionBudget shop/web: 2 healthy of 2 needed (disruptionsAllowed 0)";
        for (name, plan, done, stage, text, again) in [
            ("nothing left", &nothing, vec![], Stage::Drained, "drained".to_owned(), None),
            ("gone meanwhile", &nothing, vec![Outcome::Gone], Stage::Drained, "drained".to_owned(), None),
            ("evicted", &leaving, vec![Outcome::Evicted], Stage::Draining, "draining: 2 pods left".to_owned(), Some(5)),
            ("a terminating namespace", &nothing, vec![Outcome::Terminating], Stage::Draining, "draining: 1 pod left".to_owned(), Some(5)),
            (
                "a budget",
                &nothing,
                vec![refused(), refused(), refused(), refused(), Outcome::Evicted],
                Stage::Blocked,
                format!("blocked: 5 pods left; shop/web-0, shop/web-1, shop/web-2 and 1 more: {budget_says}"),
                Some(5),
            ),
            (
                "no flag",
                &keeps,
                vec![],
                Stage::Blocked,
                "blocked: 1 pod left; shop/bare: it has no controller. Delete it, or start lynqgate with --drain-unmanaged-pods; \
                 not evicted: 2 pods of DaemonSets, or static"
                    .to_owned(),
                Some(30),
            ),
            (
                "unreachable",
                &overdue,
                vec![],
                Stage::Drained,
                "drained: not waiting for 1 pod: the Kubernetes node does not report".to_owned(),
                None,
            ),
        ] {
            let progress = progress(plan, &outcomes(&done));
            let found = (progress.stage, progress.text, progress.again.map(|again| again.as_secs()));
            assert_eq!(Stage::of(&found.1), Some(stage), "{name}");
            assert_eq!(found, (stage, text, again), "{name}");
        }
    }
}
