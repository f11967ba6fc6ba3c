//! The output of `lynqgate explain statefulset`: the pods, the partition, and the next step or why there is none.

use std::fmt;

use serde::Serialize;

use crate::api::names;
use crate::decide::partition::HELD;
use crate::decide::partition::walk::{Effect, Pod, Reason, Set, Step};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    pub namespace: String,
    pub name: String,
    /// lynqgate moves the partition.
    pub gated: bool,
    /// None: no pod is released yet, or the update strategy is OnDelete.
    pub partition: Option<i64>,
    pub replicas: i64,
    pub updated: usize,
    pub reason: &'static str,
    pub message: String,
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
            replicas: set.replicas,
            updated: pods.iter().filter(|pod| pod.updated).count(),
            reason: step.reason.code(),
            message: message(set, step, waits),
            pods,
            fault: None,
            leaderless: false,
        }
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
            let partition = match self.partition {
                Some(partition) => format!("partition {partition}"),
                None => "no pod is released yet".to_owned(),
            };
            writeln!(
                f,
                "{} of {} pods are updated ({partition}):",
                self.updated, self.replicas
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
    use super::*;

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
}
