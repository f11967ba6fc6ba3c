//! The next step of a partition: from one look at a StatefulSet and its pods to what to do now, and why not more.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::api::names;
use crate::api::policy::delay;
use crate::decide::child::managers::written_at;
use crate::decide::partition::{HELD, annotation, is_gated, partition};

/// How long a pod must be ready before the next one is updated (or minReadySeconds, if longer).
const SETTLES_WITHIN: SignedDuration = SignedDuration::from_secs(5);
/// How often to check: a pod that changes without its StatefulSet, or a probed object, causes no event.
const LOOK_EVERY: SignedDuration = SignedDuration::from_secs(5);
/// The shortest wait, so that the loop is not busy.
const LOOK_SOON: SignedDuration = SignedDuration::from_millis(500);

/// One read of the StatefulSet.
#[derive(Clone, Debug, PartialEq)]
pub struct Set {
    pub name: String,
    pub gated: bool,
    pub deleting: bool,
    /// Its controller has seen this generation.
    pub observed: bool,
    pub replicas: i64,
    pub start: i64,
    /// None for OnDelete, which updates a pod only when it is deleted.
    pub partition: Option<i64>,
    /// Its controller replaces no pod while another is not ready (podManagementPolicy: OrderedReady).
    pub ordered: bool,
    pub update_revision: String,
    /// The last revision that all pods had; a deleted pod below the partition is recreated with it.
    pub current_revision: String,
    pub settles_within: SignedDuration,
    pub paused_by: Option<String>,
    /// By its own annotation.
    pub forced: bool,
    /// The pause between two steps; an error with the annotation's text if that is not a duration.
    pub interval: Result<Option<SignedDuration>, String>,
    pub stepped_at: Option<Timestamp>,
}

impl Set {
    pub fn of(object: &Value) -> Self {
        let spec = &object["spec"];
        let number = |value: &Value| value.as_i64();
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let min_ready = number(&spec["minReadySeconds"]).unwrap_or(0);
        let interval = annotation(object, names::PARTITION_STEP_INTERVAL);
        let generation = number(&object["metadata"]["generation"]);
        let status = &object["status"];
        Set {
            name: text(&object["metadata"]["name"]).unwrap_or_default(),
            gated: is_gated(object),
            deleting: object["metadata"]["deletionTimestamp"].is_string(),
            observed: generation.is_none() || number(&status["observedGeneration"]) >= generation,
            replicas: number(&spec["replicas"]).unwrap_or(1),
            start: number(&spec["ordinals"]["start"]).unwrap_or(0),
            partition: partition(object),
            ordered: spec["podManagementPolicy"] != "Parallel",
            update_revision: text(&status["updateRevision"]).unwrap_or_default(),
            current_revision: text(&status["currentRevision"]).unwrap_or_default(),
            settles_within: SETTLES_WITHIN.max(SignedDuration::from_secs(min_ready)),
            paused_by: annotation(object, names::PARTITION_PAUSED).map(str::to_owned),
            forced: annotation(object, names::FORCE_ROLLOUT) == Some(names::TRUE),
            interval: match interval {
                None => Ok(None),
                Some(text) if is_delay(text) => Ok(Some(delay(text))),
                Some(text) => Err(text.to_owned()),
            },
            stepped_at: written_at(object, names::PARTITION_MANAGER),
        }
    }

    fn pod(&self, index: i64) -> String {
        format!("{}-{}", self.name, self.start + index)
    }

    /// Whether nothing waits for the partition or the controller.
    pub fn is_done(&self) -> bool {
        let is_current = self.current_revision == self.update_revision;
        let over = |partition| partition == 0 && self.observed && is_current;
        !self.gated || self.deleting || self.partition.is_none_or(over)
    }
}

fn is_delay(text: &str) -> bool {
    let number = text.strip_suffix(['s', 'm', 'h']);
    number.is_some_and(|n| (1..=5).contains(&n.len()) && n.bytes().all(|b| b.is_ascii_digit()))
}

/// One read of a pod of the StatefulSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Its ordinal less `spec.ordinals.start`.
    pub index: i64,
    pub name: String,
    pub uid: String,
    pub revision: String,
    pub ready_since: Option<Timestamp>,
    pub terminating: bool,
}

impl Pod {
    pub fn is_ready(&self) -> bool {
        self.ready_since.is_some() && !self.terminating
    }

    /// None for a pod that is not the StatefulSet's, or whose index is at or above `replicas`.
    pub fn of(object: &Value, set: &Set, set_uid: &str) -> Option<Self> {
        let metadata = &object["metadata"];
        let owners = metadata["ownerReferences"].as_array()?;
        owners
            .iter()
            .find(|owner| owner["controller"] == true && owner["uid"] == set_uid)?;
        let name = metadata["name"].as_str()?;
        let ordinal: i64 = name
            .strip_prefix(&set.name)?
            .strip_prefix('-')?
            .parse()
            .ok()?;
        let index = ordinal - set.start;
        let conditions = object["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten();
        let ready = conditions
            .filter(|condition| condition["type"] == "Ready" && condition["status"] == "True")
            .find_map(|condition| condition["lastTransitionTime"].as_str()?.parse().ok());
        (0..set.replicas).contains(&index).then(|| Pod {
            index,
            name: name.to_owned(),
            uid: metadata["uid"].as_str().unwrap_or_default().to_owned(),
            revision: metadata["labels"]["controller-revision-hash"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            ready_since: ready,
            terminating: metadata["deletionTimestamp"].is_string(),
        })
    }
}

/// What else affects the step, besides the StatefulSet and its pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Around {
    /// The owning node's rollout is forced, by an annotation of the node, its form or its hub.
    pub forced: bool,
    /// Why the state of the owning node allows no step.
    pub node: Option<String>,
    /// Why the probed object is not ready.
    pub probe: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Conditional on the resourceVersion that was read.
    Lower { from: i64, to: i64 },
    /// Its controller waits for this broken pod, which only its update would repair. Conditional on the uid.
    DeletePod { name: String, uid: String },
}

/// Why there is no further step now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No update waits.
    Done,
    Stepping,
    Unobserved,
    Paused {
        by: String,
    },
    BadInterval {
        text: String,
    },
    /// The pod is above the partition and still being updated.
    Updating {
        pod: String,
    },
    /// Updated, and not ready, or not for long enough.
    NotAvailable {
        pod: String,
    },
    /// Below the partition, and not the next one to be updated.
    Broken {
        pod: String,
    },
    Interval {
        until: Timestamp,
    },
    Node(String),
    Probe(String),
}

impl Reason {
    /// The word for metrics.
    pub fn code(&self) -> &'static str {
        match self {
            Reason::Done => "Done",
            Reason::Stepping => "Stepping",
            Reason::Unobserved => "Unobserved",
            Reason::Paused { .. } => "Paused",
            Reason::BadInterval { .. } => "BadInterval",
            Reason::Updating { .. } => "Updating",
            Reason::NotAvailable { .. } => "NotAvailable",
            Reason::Broken { .. } => "Broken",
            Reason::Interval { .. } => "Interval",
            Reason::Node(_) => "NodeFailed",
            Reason::Probe(_) => "ProbeNotMet",
        }
    }

    /// Whether no user asked for this wait.
    pub fn is_trouble(&self) -> bool {
        !matches!(
            self,
            Reason::Done | Reason::Stepping | Reason::Paused { .. } | Reason::Interval { .. }
        )
    }
}

/// Describes the step; None if it changes no running pod.
pub fn told(set: &Set, pods: &[Pod], from: i64, to: i64) -> Option<String> {
    let is_old =
        |pod: &&Pod| (to..from).contains(&pod.index) && pod.revision != set.update_revision;
    let mut old: Vec<&Pod> = pods.iter().filter(is_old).collect();
    old.sort_by_key(|pod| pod.index);
    let from = if from == HELD {
        "none".to_owned()
    } else {
        from.to_string()
    };
    match old.as_slice() {
        [] => None,
        [pod] => Some(format!(
            "pod {} is updated now (partition {from} to {to})",
            pod.name
        )),
        [first, .., last] => Some(format!(
            "pods {} to {} are updated now (partition {from} to {to})",
            first.name, last.name
        )),
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Done => f.write_str("nothing waits"),
            Reason::Stepping => f.write_str("the next pod is released now"),
            Reason::Unobserved => {
                f.write_str("the StatefulSet controller has not reported on its last change yet")
            }
            Reason::Paused { by } => write!(
                f,
                "{by} raised its partition; to continue, remove the annotation {}, or lower the partition as {by}",
                names::PARTITION_PAUSED
            ),
            Reason::BadInterval { text } => write!(
                f,
                "its annotation {} is {text:?}; write a number with s, m or h, such as 5m",
                names::PARTITION_STEP_INTERVAL
            ),
            Reason::Updating { pod } => write!(f, "pod {pod} is being updated"),
            Reason::NotAvailable { pod } => write!(
                f,
                "pod {pod} is updated and not ready, or not for long enough; if it stays so, correct the pod template"
            ),
            Reason::Broken { pod } => write!(
                f,
                "pod {pod} is not ready, and not the next to be updated; repair or delete it, or release all pods with the annotation {}=true",
                names::FORCE_ROLLOUT
            ),
            Reason::Interval { until } => write!(
                f,
                "the next step is at {until:.0}, by its annotation {}",
                names::PARTITION_STEP_INTERVAL
            ),
            Reason::Node(why) => f.write_str(why),
            Reason::Probe(why) => write!(
                f,
                "{why}; repair that, or remove the annotation {}",
                names::PARTITION_PROBE
            ),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub effect: Option<Effect>,
    pub reason: Reason,
    /// When to check again without an event.
    pub look_again: Option<SignedDuration>,
}

impl Step {
    fn done() -> Self {
        Step {
            effect: None,
            reason: Reason::Done,
            look_again: None,
        }
    }

    fn wait(reason: Reason, again: SignedDuration) -> Self {
        Step {
            effect: None,
            reason,
            look_again: Some(again.max(LOOK_SOON)),
        }
    }

    fn lower(from: i64, to: i64) -> Self {
        let reason = if to == 0 {
            Reason::Done
        } else {
            Reason::Stepping
        };
        Step {
            effect: Some(Effect::Lower { from, to }),
            reason,
            look_again: Some(LOOK_SOON),
        }
    }
}

/// Goes through the rules in order; the first that matches decides.
pub fn step(set: &Set, pods: &[Pod], around: &Around, now: Timestamp) -> Step {
    let Some(partition) = set.partition.filter(|_| !set.is_done()) else {
        return Step::done();
    };
    if partition > 0 && (set.forced || around.forced) {
        return Step::lower(partition, 0);
    }
    if let Some(by) = &set.paused_by {
        return Step::wait(Reason::Paused { by: by.clone() }, LOOK_EVERY);
    }
    if !set.observed {
        return Step::wait(Reason::Unobserved, LOOK_EVERY);
    }
    let released = partition.min(set.replicas);
    // No pod is ready, so a step can break nothing, and may repair pods that were never ready or have failed.
    if partition > 0 && !pods.iter().any(Pod::is_ready) {
        return Step::lower(partition, 0);
    }
    for index in (released..set.replicas).rev() {
        let pod = || set.pod(index);
        let Some(found) = pods.iter().find(|pod| pod.index == index) else {
            return Step::wait(Reason::Updating { pod: pod() }, LOOK_EVERY)
                .mend(set, pods, released);
        };
        if found.revision != set.update_revision {
            return Step::wait(Reason::Updating { pod: pod() }, LOOK_EVERY)
                .mend(set, pods, released);
        }
        let settled_at = found
            .ready_since
            .filter(|_| !found.terminating)
            .map(|since| since + set.settles_within);
        match settled_at {
            Some(at) if at <= now => {}
            Some(at) => {
                return Step::wait(Reason::NotAvailable { pod: pod() }, at.duration_since(now));
            }
            None => return Step::wait(Reason::NotAvailable { pod: pod() }, LOOK_EVERY),
        }
    }
    let below = |index: i64| pods.iter().find(move |pod| pod.index == index);
    let is_updated =
        |index: &i64| below(*index).is_some_and(|pod| pod.revision == set.update_revision);
    let next = (0..released).rev().find(|index| !is_updated(index));
    let is_ready = |index: i64| below(index).is_some_and(Pod::is_ready);
    let target = next.map(|next| lowest_target(set, next, &below)..=next);
    let is_target = |index: &i64| target.as_ref().is_some_and(|target| target.contains(index));
    let mut broken = (0..released).filter(|index| !is_target(index) && !is_ready(*index));
    // Name an existing pod first: a missing one may be waiting for it.
    if let Some(index) = broken
        .clone()
        .find(|i| below(*i).is_some())
        .or(broken.next())
    {
        return Step::wait(
            Reason::Broken {
                pod: set.pod(index),
            },
            LOOK_EVERY,
        );
    }
    let Some(next) = target.map(|target| *target.start()) else {
        // All pods are updated, so the partition has no effect any more.
        return match partition {
            0 => Step::wait(Reason::Unobserved, LOOK_EVERY),
            _ => Step::lower(partition, 0),
        };
    };
    let since = set.stepped_at.filter(|_| partition != HELD);
    let until = match &set.interval {
        Err(text) => return Step::wait(Reason::BadInterval { text: text.clone() }, LOOK_EVERY),
        Ok(interval) => interval.and_then(|interval| Some(since? + interval)),
    };
    if let Some(until) = until.filter(|until| *until > now) {
        return Step::wait(Reason::Interval { until }, until.duration_since(now));
    }
    // A pod that is broken, or of a revision that was replaced, may be the cause, and its update the cure.
    let of_current = |pod: &Pod| pod.is_ready() && pod.revision == set.current_revision;
    if below(next).is_some_and(of_current) {
        if let Some(why) = &around.node {
            return Step::wait(Reason::Node(why.clone()), LOOK_EVERY);
        }
        if let Some(why) = &around.probe {
            return Step::wait(Reason::Probe(why.clone()), LOOK_EVERY);
        }
    }
    Step::lower(partition, next)
}

/// The index of the next pod. If that pod does not exist, its controller may be waiting for the next existing pod below: then
/// that pod's, if it is broken and its revision was replaced before all pods had it.
fn lowest_target<'a>(set: &Set, next: i64, below: &impl Fn(i64) -> Option<&'a Pod>) -> i64 {
    let known = [&set.current_revision, &set.update_revision];
    let is_left = |pod: &&Pod| !pod.is_ready() && !known.contains(&&pod.revision);
    let first = (0..=next).rev().find_map(below);
    first.filter(is_left).map_or(next, |pod| pod.index)
}

impl Step {
    /// The StatefulSet controller replaces no pod in order while one is broken, not even the broken one; see "Forced rollback" in
    /// the documentation of StatefulSets. As that page advises, deletes a broken pod that is released and not updated; one at a
    /// time, and none while an updated pod is not ready.
    fn mend(mut self, set: &Set, pods: &[Pod], released: i64) -> Self {
        let all = || pods.iter().filter(|pod| pod.index >= released);
        let is_old = |pod: &&Pod| pod.revision != set.update_revision;
        let waits = all().any(|pod| pod.terminating || !is_old(&pod) && !pod.is_ready());
        let broken = all().filter(is_old).filter(|pod| !pod.is_ready());
        let broken = broken.max_by_key(|pod| pod.index);
        if let Some(pod) = broken.filter(|_| set.ordered && !waits) {
            self.effect = Some(Effect::DeletePod {
                name: pod.name.clone(),
                uid: pod.uid.clone(),
            });
            self.look_again = Some(LOOK_SOON);
        }
        self
    }
}

#[cfg(test)]
mod tests;
