//! What `lynqgate explain statefulset` prints, and `lynqgate status` sums up: the pods, the partition, and the next step or why there
//! is none.

use std::fmt;

use serde::Serialize;

use crate::api::names;
use crate::decide::partition::HELD;
use crate::decide::partition::walk::{Effect, Pod, Reason, Set, Step};
use crate::decide::rollout::overview::Verdict;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    pub namespace: String,
    pub name: String,
    /// lynqgate moves the partition.
    pub gated: bool,
    /// None: no pod is released yet, or the update strategy is OnDelete.
    pub partition: Option<i64>,
    /// The same as a text.
    #[serde(skip)]
    pub released: String,
    pub replicas: i64,
    pub updated: usize,
    pub reason: &'static str,
    pub message: String,
    /// For `status`.
    #[serde(skip)]
    pub verdict: Verdict,
    pub pods: Vec<PodSeen>,
    /// A known fault of the cluster's Kubernetes version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// No operator is running.
    pub leaderless: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSeen {
    pub name: String,
    pub updated: bool,
    pub ready: bool,
}

impl Explanation {
    /// Names what keeps the updated pod from running that the next one waits for. `form`: the LynqForm that the StatefulSet is from.
    pub fn with_obstacle(self, obstacle: &str, form: Option<&str>) -> Self {
        let (name, namespace) = (&self.name, &self.namespace);
        let next = match form {
            Some(form) => {
                format!("correct lynqform {form}, or take its change back (lynqgate undo {form})")
            }
            None => format!(
                "correct the pod template (kubectl apply), or take its change back (kubectl rollout undo statefulset/{name} -n {namespace})"
            ),
        };
        Explanation {
            message: format!("the next pod waits: {obstacle}; {next}"),
            ..self
        }
    }

    /// `waits`: why the loop has delayed this step, which one read of the objects cannot show.
    pub fn of(
        namespace: &str,
        (set, pods): (&Set, &[Pod]),
        step: &Step,
        waits: Option<&str>,
    ) -> Self {
        let seen = |pod: &Pod| PodSeen {
            name: pod.name.clone(),
            updated: pod.revision == set.update_revision,
            ready: pod.is_ready(),
        };
        let mut sorted: Vec<&Pod> = pods.iter().collect();
        sorted.sort_by_key(|pod| pod.index);
        let pods: Vec<PodSeen> = sorted.into_iter().map(seen).collect();
        Explanation {
            namespace: namespace.to_owned(),
            name: set.name.clone(),
            gated: set.gated,
            partition: set.partition.filter(|partition| *partition != HELD),
            released: released(set.partition),
            replicas: set.replicas,
            updated: pods.iter().filter(|pod| pod.updated).count(),
            reason: step.reason.code(),
            message: message(set, step, waits),
            verdict: verdict(set, &pods, step, waits),
            pods,
            fault: None,
            leaderless: false,
        }
    }
}

fn released(partition: Option<i64>) -> String {
    match partition {
        None => "update strategy OnDelete".to_owned(),
        Some(HELD) => "no pod is released yet".to_owned(),
        Some(partition) => format!("partition {partition}"),
    }
}

/// An update has no deadline: it progresses while an updated pod is not ready.
fn verdict(set: &Set, pods: &[PodSeen], step: &Step, waits: Option<&str>) -> Verdict {
    let is_over = match set.partition {
        Some(_) => set.observed && set.current_revision == set.update_revision,
        // The revisions in its status do not say so then.
        None => pods.iter().all(|pod| pod.updated),
    };
    let ready = pods.iter().filter(|pod| pod.ready).count();
    let all_ready = i64::try_from(ready) == Ok(set.replicas);
    match &step.reason {
        Reason::Done if is_over && all_ready => Verdict::Complete,
        Reason::Done if is_over => Verdict::Degraded,
        // lynqgate leaves it alone, and its controller goes no further.
        Reason::Done if step.effect.is_none() && set.partition != Some(0) => Verdict::Paused,
        Reason::Paused { .. } => Verdict::Paused,
        Reason::BadInterval { .. } | Reason::Node(_) => Verdict::Halted,
        // A pod may be away for a moment. The loop writes down what lasts.
        reason @ Reason::Broken { .. } if waits == Some(&*reason.to_string()) => Verdict::Halted,
        _ => Verdict::Progressing,
    }
}

fn message(set: &Set, step: &Step, waits: Option<&str>) -> String {
    match (&step.effect, &step.reason) {
        _ if !set.gated => format!(
            "lynqgate leaves its partition alone; the label {}=true changes that",
            names::PARTITION_GATE
        ),
        _ if set.partition.is_none() => {
            "its update strategy is OnDelete: a pod is updated when somebody deletes it".to_owned()
        }
        (Some(Effect::Lower { .. }), _) if let Some(waits) = waits => {
            format!("the next pod waits: {waits}")
        }
        (Some(Effect::Lower { to, .. }), _) => format!("lynqgate lowers its partition to {to} now"),
        (Some(Effect::DeletePod { name, .. }), _) => format!(
            "lynqgate deletes pod {name} now: it is not ready, and its StatefulSet replaces no pod before it is"
        ),
        (None, Reason::Done) => "no update waits".to_owned(),
        (None, reason) => format!("the next pod waits: {reason}"),
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "StatefulSet {}/{}: {}",
            self.namespace, self.name, self.message
        )?;
        if !self.pods.is_empty() {
            writeln!(
                f,
                "{} of {} pods are updated ({}):",
                self.updated, self.replicas, self.released
            )?;
        }
        for pod in &self.pods {
            let updated = if pod.updated {
                "updated"
            } else {
                "not updated"
            };
            let ready = if pod.ready { "ready" } else { "not ready" };
            writeln!(f, "  {}: {updated}, {ready}", pod.name)?;
        }
        if self.leaderless {
            writeln!(
                f,
                "No operator leads, so that nothing moves until one runs."
            )?;
        }
        self.fault
            .iter()
            .try_for_each(|fault| writeln!(f, "{fault}"))
    }
}

/// Versions of Kubernetes that do not keep to a partition.
pub fn faulty(version: &str) -> Option<String> {
    let mut numbers = version.trim_start_matches('v').split(['.', '-', '+']);
    let mut number = || numbers.next()?.parse::<u32>().ok();
    let is_faulty = (number()?, number()?) == (1, 35) && number()? <= 3;
    is_faulty.then(|| {
        format!(
            "Kubernetes {version} has a fault in the updates of StatefulSets (kubernetes#137409), so that their partition may not hold: \
             upgrade to 1.35.4 or later"
        )
    })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::decide::partition::walk::{self, Around};

    #[test]
    fn faulty_versions_are_named() {
        for (version, is) in [
            ("v1.35.0", true),
            ("v1.35.3+k3s1", true),
            ("v1.35.4", false),
            ("v1.34.9", false),
            ("v1.36.0-alpha.1", false),
            ("?", false),
        ] {
            assert_eq!(faulty(version).is_some(), is, "{version}");
        }
    }

    /// A set of three pods, in the middle of an update.
    fn set() -> Set {
        Set::of(&json!({
            "metadata": {"name": "db", "generation": 2, "labels": {names::PARTITION_GATE: names::TRUE}},
            "spec": {"replicas": 3, "updateStrategy": {"rollingUpdate": {"partition": 2}}},
            "status": {"observedGeneration": 2, "updateRevision": "db-new", "currentRevision": "db-old"},
        }))
    }

    /// A letter for each pod, from the lowest: (o)ld, old and (b)roken, (u)pdated, updated and not ready (x).
    fn pods(letters: &str) -> Vec<Pod> {
        let pod = |(index, letter): (usize, char)| {
            let revision = match letter {
                'o' | 'b' => "db-old",
                _ => "db-new",
            };
            Pod {
                index: i64::try_from(index).unwrap(),
                name: format!("db-{index}"),
                uid: String::new(),
                revision: revision.to_owned(),
                ready_since: "ou".contains(letter).then_some(Timestamp::UNIX_EPOCH),
                terminating: false,
            }
        };
        letters.chars().enumerate().map(pod).collect()
    }

    #[test]
    fn the_obstacle_of_a_pod_is_told_with_the_way_back() {
        let (set, pods) = (set(), pods("oox"));
        let step = walk::step(&set, &pods, &Around::default(), Timestamp::MAX);
        let told = |form| {
            let told = Explanation::of("tenants", (&set, &pods), &step, None);
            told.with_obstacle("pod db-2: no room", form).message
        };
        assert_eq!(
            told(None),
            "the next pod waits: pod db-2: no room; correct the pod template (kubectl apply), or take its change back (kubectl rollout undo \
             statefulset/db -n tenants)"
        );
        assert_eq!(
            told(Some("web")),
            "the next pod waits: pod db-2: no room; correct lynqform web, or take its change back (lynqgate undo web)"
        );
    }

    fn is_over(set: &mut Set) {
        set.partition = Some(0);
        set.current_revision.clone_from(&set.update_revision);
    }

    /// What the set is, its pods, what its loop wrote down, and what follows.
    type Case<'a> = (fn(&mut Set), &'a str, Option<&'a str>, Verdict);

    #[test]
    fn verdicts() {
        let broken = Reason::Broken {
            pod: "db-0".to_owned(),
        };
        let lasts = broken.to_string();
        let cases: &[(&str, Case)] = &[
            ("an update", (|_| {}, "oou", None, Verdict::Progressing)),
            ("a pod starts", (|_| {}, "oox", None, Verdict::Progressing)),
            ("no update", (is_over, "uuu", None, Verdict::Complete)),
            ("a broken pod", (is_over, "uxu", None, Verdict::Degraded)),
            ("a missing pod", (is_over, "uu", None, Verdict::Degraded)),
            ("a pod is away", (|_| {}, "bou", None, Verdict::Progressing)),
            (
                "a pod is away for long",
                (|_| {}, "bou", Some(lasts.as_str()), Verdict::Halted),
            ),
            (
                "somebody paused it",
                (
                    |set| set.paused_by = Some("admin".to_owned()),
                    "oou",
                    None,
                    Verdict::Paused,
                ),
            ),
            (
                "an interval that is no duration",
                (
                    |set| set.interval = Err("soon".to_owned()),
                    "oou",
                    None,
                    Verdict::Halted,
                ),
            ),
            (
                "no gate, and a partition",
                (|set| set.gated = false, "oou", None, Verdict::Paused),
            ),
            (
                "no gate, and no partition",
                (
                    |set| {
                        set.gated = false;
                        set.partition = Some(0);
                    },
                    "oox",
                    None,
                    Verdict::Progressing,
                ),
            ),
            (
                "OnDelete",
                (|set| set.partition = None, "oou", None, Verdict::Paused),
            ),
            (
                "OnDelete, and all were deleted",
                (|set| set.partition = None, "uuu", None, Verdict::Complete),
            ),
        ];
        for (name, (change, letters, waits, verdict)) in cases {
            let mut set = set();
            change(&mut set);
            let pods = pods(letters);
            let step = walk::step(&set, &pods, &Around::default(), Timestamp::MAX);
            let told = Explanation::of("tenants", (&set, &pods), &step, *waits);
            assert_eq!(told.verdict, *verdict, "{name}: {}", told.message);
        }
    }
}
