//! StatefulSet: ready when every pod is of the newest revision, ready and available, and the controller has made that revision
//! the current one. Ready pods of an old revision do not count.
//!
//! A partition is no exception: the controller does not update pods below it, whoever set it. With `OnDelete` a pod changes only
//! when it is deleted, so the rule can require only ready pods.

use crate::api::names;
use crate::decide::partition::is_gated;
use crate::decide::readiness::Readiness;
use crate::decide::readiness::Reason;
use crate::decide::readiness::object::Object;
use crate::decide::readiness::replicas::none_wanted;

pub(super) fn rule(object: &Object<'_>) -> Readiness {
    if let Some(reason) = object.unobserved() {
        return Readiness::Waiting(reason);
    }
    if let Some(readiness) = none_wanted(object) {
        return readiness;
    }
    let on_delete = object.text("/spec/updateStrategy/type") == Some("OnDelete");
    let reason = if on_delete {
        not_ready(object)
    } else {
        not_rolled_out(object)
    };
    reason.map_or(Readiness::Ready, Readiness::Waiting)
}

fn not_ready(object: &Object<'_>) -> Option<Reason> {
    let (name, wanted) = (object.name(), object.replicas());
    let ready = object.status_count("readyReplicas");
    if ready > wanted {
        return Some(Reason::SurplusPods {
            name,
            pods: ready,
            wanted,
        });
    }
    (ready < wanted).then_some(Reason::PodsNotReady {
        name,
        ready,
        wanted,
    })
}

fn not_rolled_out(object: &Object<'_>) -> Option<Reason> {
    let (name, wanted) = (object.name(), object.replicas());
    let updated = object.status_count("updatedReplicas");
    let available = object.status_count("availableReplicas");
    let update_revision = object.text("/status/updateRevision");
    let revision_is_current =
        update_revision.is_some() && object.text("/status/currentRevision") == update_revision;

    let pods = updated.max(available);
    if pods > wanted {
        return Some(Reason::SurplusPods { name, pods, wanted });
    }
    // If there is only one revision, a missing pod is not outdated, it does not exist yet.
    if updated < wanted && !revision_is_current {
        return Some(pods_outdated(object, updated, wanted));
    }
    if let Some(reason) = not_ready(object) {
        return Some(reason);
    }
    if updated < wanted {
        return Some(pods_outdated(object, updated, wanted));
    }
    // The pods are ready, but not yet for minReadySeconds.
    if available < wanted {
        return Some(Reason::PodsNotAvailable {
            name,
            available,
            wanted,
        });
    }
    (!revision_is_current).then_some(Reason::RevisionNotCurrent { name })
}

fn pods_outdated(object: &Object<'_>, updated: u32, wanted: u32) -> Reason {
    let name = object.name();
    match object.count("/spec/updateStrategy/rollingUpdate/partition") {
        Some(1..) if is_gated(object.value()) => Reason::PodByPod {
            name,
            updated,
            wanted,
            waits: object.annotation(names::PARTITION_WAITS).map(str::to_owned),
        },
        Some(partition @ 1..) => Reason::HeldByPartition {
            name,
            updated,
            wanted,
            partition,
        },
        _ => Reason::PodsOutdated {
            name,
            updated,
            wanted,
        },
    }
}
