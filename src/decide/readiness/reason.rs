//! Why an object is not ready: one variant for each way to wait or to fail. It decides nothing; it turns a rule's result into a
//! metric label ([`Reason::code`]) and a sentence for the engineer on call.

use crate::decide::readiness::rolling::Availability;

/// `name` is the object's own name; its kind and namespace stand where the reason is shown.
///
/// thiserror writes the sentences; waiting is no error, and nothing returns a reason as one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Reason {
    // Any kind
    #[error("{name}: no apiVersion or no kind, so nothing is known about it")]
    Unidentified { name: String },
    #[error("{name}: being deleted; it is applied again once it is gone")]
    Terminating { name: String },
    /// `observed` is `None` while the controller has never reported.
    #[error("{name}: generation {generation} is not yet seen by its controller, {}", last_seen(.observed))]
    NotObserved {
        name: String,
        generation: i64,
        observed: Option<i64>,
    },
    #[error("{name}: {field} is not reported yet")]
    StatusMissing { name: String, field: &'static str },
    #[error("{name}: condition {condition} is not reported yet")]
    ConditionMissing { name: String, condition: String },
    #[error(
        "{name}: condition {condition} still speaks of generation {observed}, not of {generation}"
    )]
    ConditionOutdated {
        name: String,
        condition: String,
        generation: i64,
        observed: i64,
    },
    #[error("{name}: condition {condition} is {}{}", if_empty(.status, "without a status"), because(.reason, .message))]
    ConditionNotTrue {
        name: String,
        condition: String,
        status: String,
        reason: String,
        message: String,
    },
    #[error("{name}: none of its conditions ({}) is Ready, Available or Healthy; if existence is enough, set waitForReady: false", .found.join(", "))]
    NoKnownCondition { name: String, found: Vec<String> },
    /// With `Readiness::Unknown`.
    #[error("{name}: no field of it shows whether it is ready")]
    NothingTold { name: String },
    /// With `Readiness::Unknown`.
    #[error(
        "{name}: its status says of no generation that it is ready, and was not written since the apply"
    )]
    StatusMayBeOld { name: String },
    #[error("{name}: {message} (readyProbe)")]
    ProbeUnmet { name: String, message: String },
    #[error(
        "{name}: its annotation lynq.sh/ready-probe cannot be read: {message}; it is lynqgate's, take your own out"
    )]
    ProbeUnreadable { name: String, message: String },

    // Deployment
    #[error("{name}: paused; set spec.paused to false to go on")]
    Paused { name: String },
    /// With `Readiness::Failed`. `cause` is the message of ReplicaFailure, if there is one.
    #[error("{name}: no progress for {deadline_seconds} s (progressDeadlineSeconds){}; {availability}{}", because("", .message), after("; ", .cause.as_deref().unwrap_or("")))]
    ProgressDeadlineExceeded {
        name: String,
        deadline_seconds: u32,
        message: String,
        availability: Availability,
        cause: Option<String>,
    },
    #[error("{name}: {availability}; {}", if_empty(trimmed(.message), "pods are refused without a reason"))]
    ReplicaFailure {
        name: String,
        availability: Availability,
        message: String,
    },
    #[error("{name}: its rollout cannot start{}", because(.reason, .message))]
    NotProgressing {
        name: String,
        reason: String,
        message: String,
    },
    #[error("{name}: {updated} of {} pods updated (maxSurge {max_surge}); {availability}{}", .availability.replicas, standstill(.max_surge, .availability))]
    UpdatingPods {
        name: String,
        updated: u32,
        max_surge: u32,
        availability: Availability,
    },
    #[error("{name}: {}{availability}", old_pods(*.old, *.pods, *.unavailable))]
    OldPodsLeft {
        name: String,
        old: u32,
        /// Old and new pods together.
        pods: u32,
        unavailable: u32,
        availability: Availability,
    },
    #[error("{name}: {availability}")]
    BelowReplicas {
        name: String,
        availability: Availability,
    },
    /// `progressing` is the reason of the Progressing condition, empty without one.
    #[error("{name}: all pods are updated and available, but its controller has not confirmed it (Progressing: {})", if_empty(.progressing, "not reported"))]
    RolloutNotConfirmed { name: String, progressing: String },

    // StatefulSet, DaemonSet
    #[error("{name}: {pods} pods where {wanted} are wanted")]
    SurplusPods {
        name: String,
        pods: u32,
        wanted: u32,
    },
    #[error("{name}: {updated}/{wanted} updated")]
    PodsOutdated {
        name: String,
        updated: u32,
        wanted: u32,
    },
    #[error(
        "{name}: {updated}/{wanted} updated; partition {partition} holds back the pods of lower ordinals"
    )]
    HeldByPartition {
        name: String,
        updated: u32,
        wanted: u32,
        partition: u32,
    },
    #[error(
        "{name}: {updated}/{wanted} updated, one pod after the other{}",
        waits.as_ref().map_or(String::new(), |waits| format!("; the next one waits: {waits}"))
    )]
    PodByPod {
        name: String,
        updated: u32,
        wanted: u32,
        waits: Option<String>,
    },
    #[error(
        "{name}: {updated}/{wanted} updated; with the update strategy OnDelete the others change when they are deleted"
    )]
    AwaitsPodDeletion {
        name: String,
        updated: u32,
        wanted: u32,
    },
    #[error("{name}: {ready}/{wanted} ready")]
    PodsNotReady {
        name: String,
        ready: u32,
        wanted: u32,
    },
    #[error("{name}: {available}/{wanted} available")]
    PodsNotAvailable {
        name: String,
        available: u32,
        wanted: u32,
    },
    #[error(
        "{name}: all pods are updated and available, but its controller has not made their revision the current one"
    )]
    RevisionNotCurrent { name: String },

    // Job
    #[error("{name}: suspended; set spec.suspend to false to go on")]
    JobSuspended { name: String },
    #[error("{name}: {succeeded}{} succeeded, {active} active, {failed} failed", .completions.map_or(String::new(), |n| format!("/{n}")))]
    JobUnfinished {
        name: String,
        succeeded: u32,
        completions: Option<u32>,
        active: u32,
        failed: u32,
    },
    /// With `Readiness::Failed`.
    #[error("{name}: failed{}; delete it to run it again", because(.reason, .message))]
    JobFailed {
        name: String,
        reason: String,
        message: String,
    },

    // Pod
    #[error("{name}: {phase}, not ready{}", after("; ", .cause))]
    PodNotReady {
        name: String,
        phase: String,
        cause: String,
    },
    #[error("{name}: completed, and will not become ready; use a Job for work that ends")]
    PodCompleted { name: String },
    /// With `Readiness::Failed`.
    #[error("{name}: failed{}; delete it to have it created again", because(.reason, .message))]
    PodFailed {
        name: String,
        reason: String,
        message: String,
    },

    // The rest
    #[error("{name}: its load balancer has no address yet")]
    LoadBalancerPending { name: String },
    #[error("{name}: neither rules nor an address yet")]
    IngressPending { name: String },
    #[error("{name}: {phase}, not Active")]
    NamespaceNotActive { name: String, phase: String },
    #[error("{name}: {phase}, not Bound: {detail}")]
    ClaimUnbound {
        name: String,
        phase: String,
        detail: String,
    },
    /// With `Readiness::Failed`.
    #[error(
        "{name}: its volume {volume} is gone; restore it, or delete the claim to get a new one"
    )]
    ClaimLost { name: String, volume: String },
}

impl Reason {
    /// Whether it waits for pods, whose own statuses may say more.
    pub fn is_of_pods(&self) -> bool {
        match self {
            Self::ProgressDeadlineExceeded { cause, .. } => cause.is_none(),
            Self::UpdatingPods { .. }
            | Self::OldPodsLeft { .. }
            | Self::BelowReplicas { .. }
            | Self::PodsOutdated { .. }
            | Self::PodByPod { .. }
            | Self::PodsNotReady { .. }
            | Self::PodsNotAvailable { .. }
            | Self::JobUnfinished { .. } => true,
            _ => false,
        }
    }

    /// The label of metrics and conditions: part of the interface.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unidentified { .. } => "Unidentified",
            Self::Terminating { .. } => "Terminating",
            Self::NotObserved { .. } => "NotObserved",
            Self::StatusMissing { .. } => "StatusMissing",
            Self::ConditionMissing { .. } => "ConditionMissing",
            Self::ConditionOutdated { .. } => "ConditionOutdated",
            Self::ConditionNotTrue { .. } => "ConditionNotTrue",
            Self::NoKnownCondition { .. } => "NoKnownCondition",
            Self::NothingTold { .. } => "NothingTold",
            Self::StatusMayBeOld { .. } => "StatusMayBeOld",
            Self::ProbeUnmet { .. } => "ProbeUnmet",
            Self::ProbeUnreadable { .. } => "ProbeUnreadable",
            Self::Paused { .. } => "Paused",
            Self::ProgressDeadlineExceeded { .. } => "ProgressDeadlineExceeded",
            Self::ReplicaFailure { .. } => "ReplicaFailure",
            Self::NotProgressing { .. } => "NotProgressing",
            Self::UpdatingPods { .. } => "UpdatingPods",
            Self::OldPodsLeft { .. } => "OldPodsLeft",
            Self::BelowReplicas { .. } => "BelowReplicas",
            Self::RolloutNotConfirmed { .. } => "RolloutNotConfirmed",
            Self::SurplusPods { .. } => "SurplusPods",
            Self::PodsOutdated { .. } => "PodsOutdated",
            Self::PodByPod { .. } => "PodByPod",
            Self::HeldByPartition { .. } => "HeldByPartition",
            Self::AwaitsPodDeletion { .. } => "AwaitsPodDeletion",
            Self::PodsNotReady { .. } => "PodsNotReady",
            Self::PodsNotAvailable { .. } => "PodsNotAvailable",
            Self::RevisionNotCurrent { .. } => "RevisionNotCurrent",
            Self::JobSuspended { .. } => "JobSuspended",
            Self::JobUnfinished { .. } => "JobUnfinished",
            Self::JobFailed { .. } => "JobFailed",
            Self::PodNotReady { .. } => "PodNotReady",
            Self::PodCompleted { .. } => "PodCompleted",
            Self::PodFailed { .. } => "PodFailed",
            Self::LoadBalancerPending { .. } => "LoadBalancerPending",
            Self::IngressPending { .. } => "IngressPending",
            Self::NamespaceNotActive { .. } => "NamespaceNotActive",
            Self::ClaimUnbound { .. } => "ClaimUnbound",
            Self::ClaimLost { .. } => "ClaimLost",
        }
    }
}

/// A message of the API server as a part of a sentence: kubelets end some with ". ".
fn trimmed(message: &str) -> &str {
    message.trim_matches(['.', ' ', '\n'])
}

fn after(separator: &str, message: &str) -> String {
    match trimmed(message) {
        "" => String::new(),
        message => format!("{separator}{message}"),
    }
}

fn because(reason: &str, message: &str) -> String {
    let reason = if reason.is_empty() {
        String::new()
    } else {
        format!(" ({reason})")
    };
    reason + &after(": ", message)
}

/// The status does not say which pods are not available. It is usually the new ones, otherwise the controller would stop the old
/// ones.
fn old_pods(old: u32, pods: u32, unavailable: u32) -> String {
    let (kept, them) = match old {
        1 => ("old pod runs on", "it"),
        _ => ("old pods run on", "them"),
    };
    match unavailable {
        0 => format!("all pods are updated; {old} {kept}; "),
        n => {
            let are = if n == 1 { "is" } else { "are" };
            format!(
                "{n} of {pods} pods, old and new, {are} not available, so {old} {kept}; with {them}, "
            )
        }
    }
}

fn if_empty<'a>(text: &'a str, instead: &'a str) -> &'a str {
    if text.is_empty() { instead } else { text }
}

fn last_seen(observed: &Option<i64>) -> String {
    observed.map_or("which has not reported at all".to_owned(), |generation| {
        format!("which last saw {generation}")
    })
}

/// Why a rollout stops although old pods are left. `Recreate`, the only strategy without any surge or unavailable pods, stops
/// them anyway.
fn standstill(max_surge: &u32, availability: &Availability) -> &'static str {
    let is_rolling = *max_surge > 0 || availability.may_be_missing > 0;
    if is_rolling && !availability.is_met() {
        ", so the controller stops no old pod yet"
    } else {
        ""
    }
}
