//! Deployment: settled when the newest ReplicaSet has all its pods, all are available, and no old pod is
//! left. It must not trust the Progressing condition without the counts, nor the counts without it.
//!
//! After a rollback to a template that still has its ReplicaSet, and while scaling, the controller keeps
//! the old `NewReplicaSetAvailable` although pods are missing; and before it has compared anything, the
//! counts of an older rollout look complete.

use crate::decide::readiness::Readiness;
use crate::decide::readiness::Reason;
use crate::decide::readiness::object::Condition;
use crate::decide::readiness::object::Object;
use crate::decide::readiness::replicas::none_wanted;
use crate::decide::readiness::rolling::Availability;
use crate::decide::readiness::rolling::bounds;

/// The value of `progressDeadlineSeconds` that means "none". The API server fills in 600 where it is absent.
const NO_DEADLINE_SECONDS: u32 = i32::MAX as u32;

pub(super) fn rule(object: &Object<'_>) -> Readiness {
    if let Some(reason) = object.unobserved() {
        return Readiness::Waiting(reason);
    }
    if let Some(readiness) = none_wanted(object) {
        return readiness;
    }
    if object.flag("/spec/paused") {
        return Readiness::Waiting(Reason::Paused {
            name: object.name(),
        });
    }
    let deadline_seconds = object
        .count("/spec/progressDeadlineSeconds")
        .filter(|s| *s != NO_DEADLINE_SECONDS);
    let Some(deadline_seconds) = deadline_seconds else {
        // The controller then writes no Progressing condition, so only the counts remain.
        return replica_failure(object)
            .or_else(|| pods_missing(object))
            .map_or(Readiness::Ready, Readiness::Waiting);
    };
    let progressing = object.condition("Progressing");
    if let Some(condition) = &progressing
        && condition.reason() == "ProgressDeadlineExceeded"
    {
        return Readiness::Failed(Reason::ProgressDeadlineExceeded {
            name: object.name(),
            deadline_seconds,
            message: condition.message(),
            availability: availability(object),
            cause: object
                .condition("ReplicaFailure")
                .filter(Condition::is_true)
                .map(|failure| failure.message()),
        });
    }
    replica_failure(object)
        .or_else(|| stopped(object, progressing.as_ref()))
        .or_else(|| pods_missing(object))
        .or_else(|| unconfirmed(object, progressing.as_ref()))
        .map_or(Readiness::Ready, Readiness::Waiting)
}

/// The API server rejects pods: quota, admission, a missing service account.
fn replica_failure(object: &Object<'_>) -> Option<Reason> {
    let condition = object
        .condition("ReplicaFailure")
        .filter(Condition::is_true)?;
    Some(Reason::ReplicaFailure {
        name: object.name(),
        availability: availability(object),
        message: condition.message(),
    })
}

/// Progressing is False before the deadline: the API server rejected the new ReplicaSet itself.
fn stopped(object: &Object<'_>, progressing: Option<&Condition<'_>>) -> Option<Reason> {
    let condition = progressing.filter(|condition| condition.status() == "False")?;
    Some(Reason::NotProgressing {
        name: object.name(),
        reason: condition.reason().to_owned(),
        message: condition.message(),
    })
}

fn pods_missing(object: &Object<'_>) -> Option<Reason> {
    let name = object.name();
    let replicas = object.replicas();
    let updated = object.status_count("updatedReplicas");
    let pods = object.status_count("replicas");
    let old = pods.saturating_sub(updated);
    let availability = availability(object);
    if updated > replicas {
        return Some(Reason::SurplusPods {
            name,
            pods: updated,
            wanted: replicas,
        });
    }
    if updated < replicas {
        let max_surge = bounds(strategy(object), replicas).max_surge;
        return Some(Reason::UpdatingPods {
            name,
            updated,
            max_surge,
            availability,
        });
    }
    if old > 0 {
        return Some(Reason::OldPodsLeft {
            name,
            old,
            pods,
            unavailable: pods.saturating_sub(availability.available),
            availability,
        });
    }
    (availability.available < replicas).then_some(Reason::BelowReplicas { name, availability })
}

/// The counts are complete, and the controller has not said so yet.
fn unconfirmed(object: &Object<'_>, progressing: Option<&Condition<'_>>) -> Option<Reason> {
    let reason = progressing.map_or("", |condition| condition.reason());
    (reason != "NewReplicaSetAvailable").then(|| Reason::RolloutNotConfirmed {
        name: object.name(),
        progressing: reason.to_owned(),
    })
}

fn availability(object: &Object<'_>) -> Availability {
    let replicas = object.replicas();
    Availability {
        available: object.status_count("availableReplicas"),
        replicas,
        may_be_missing: bounds(strategy(object), replicas).max_unavailable,
    }
}

fn strategy<'a>(object: &Object<'a>) -> &'a serde_json::Value {
    object
        .get("/spec/strategy")
        .unwrap_or(&serde_json::Value::Null)
}
