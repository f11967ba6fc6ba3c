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

/// Flags that allow evictions although data or the pod itself is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// Pods with emptyDir volumes, whose data is lost.
    pub empty_dir: bool,
    /// Pods without a controller, which are not recreated.
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
    /// Its containers have ended and will not restart.
    is_finished: bool,
    /// The end of its grace period, if it is being deleted.
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

/// The controller in an object's owner references.
pub fn controller_of(metadata: &Value) -> Option<ObjectKey> {
    let mut owners = metadata["ownerReferences"].as_array()?.iter();
    let owner = owners.find(|owner| owner["controller"] == true)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Some(ObjectKey {
        kind: Kind {
            api_version: text(&owner["apiVersion"]),
            kind: text(&owner["kind"]),
        }
        .into(),
        namespace: text(&metadata["namespace"]).into(),
        name: text(&owner["name"]),
    })
}

impl fmt::Display for Pod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Why an eviction needs a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kept {
    EmptyDir,
    Unmanaged,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// To evict now, in this order: the lowest priority first.
    pub evict: Vec<Pod>,
    /// Pods that are evicted or deleted but not gone yet.
    pub leaving: Vec<Pod>,
    pub kept: Vec<(Pod, Kept)>,
    /// The number of pods of DaemonSets and mirror pods.
    pub staying: usize,
    /// The number of pods for which the drain no longer waits: the Kubernetes node does not report, and their grace period is
    /// long over.
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

/// A PodDisruptionBudget with its status.
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

/// The result of an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvictionOutcome {
    Evicted,
    /// The pod no longer exists, or another pod has its name.
    Gone,
    /// A budget does not allow it now.
    Refused(Option<Budget>),
    /// The pod's namespace is being deleted, which deletes the pod too.
    Terminating,
    /// Not evicted; a retry may succeed.
    Again,
    Failed(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    Draining,
    /// Some pods cannot be evicted.
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

/// The progress of the drain, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    pub stage: Stage,
    /// The stage, and after a colon the details, which change with every pod.
    pub text: String,
    /// What blocks the drain, for an event.
    pub blocked: Option<String>,
    /// The pods are listed again after this. None: the Kubernetes node is drained.
    pub again: Option<SignedDuration>,
}

pub fn progress(plan: &Plan, outcomes: &[(Pod, EvictionOutcome)]) -> Progress {
    let left = |outcome: &EvictionOutcome| *outcome != EvictionOutcome::Gone;
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
        // Only a user can unblock these.
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

/// Up to 3 pods for each cause, and how many more there are.
fn blocked(plan: &Plan, outcomes: &[(Pod, EvictionOutcome)]) -> Option<String> {
    let mut causes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (pod, outcome) in outcomes {
        let cause = match outcome {
            EvictionOutcome::Refused(Some(budget)) => budget.to_string(),
            EvictionOutcome::Refused(None) => {
                "a PodDisruptionBudget refuses the eviction".to_owned()
            }
            EvictionOutcome::Failed(why) => why.clone(),
            EvictionOutcome::Evicted
            | EvictionOutcome::Gone
            | EvictionOutcome::Terminating
            | EvictionOutcome::Again => continue,
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
mod tests;
