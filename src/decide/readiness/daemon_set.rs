//! DaemonSet: settled when every Kubernetes node that should run its pod runs a new and available one. It
//! must not take a DaemonSet for broken because no Kubernetes node matches its selector.

use crate::decide::readiness::Readiness;
use crate::decide::readiness::Reason;
use crate::decide::readiness::object::Object;

pub(super) fn rule(object: &Object<'_>) -> Readiness {
    if let Some(reason) = object.unobserved() {
        return Readiness::Waiting(reason);
    }
    let name = object.name();
    // The one number that the controller always writes, also when it is 0.
    let Some(wanted) = object.count("/status/desiredNumberScheduled") else {
        return Readiness::Waiting(Reason::StatusMissing {
            name,
            field: "status.desiredNumberScheduled",
        });
    };
    let updated = object.status_count("updatedNumberScheduled");
    let available = object.status_count("numberAvailable");
    let on_delete = object.text("/spec/updateStrategy/type") == Some("OnDelete");
    Readiness::Waiting(match (updated, available) {
        _ if wanted == 0 => return Readiness::Ready,
        (updated, _) if updated < wanted && on_delete => Reason::AwaitsPodDeletion {
            name,
            updated,
            wanted,
        },
        (updated, _) if updated < wanted => Reason::PodsOutdated {
            name,
            updated,
            wanted,
        },
        (_, available) if available < wanted => Reason::PodsNotAvailable {
            name,
            available,
            wanted,
        },
        (updated, available) if updated.max(available) > wanted => Reason::SurplusPods {
            name,
            pods: updated.max(available),
            wanted,
        },
        _ => return Readiness::Ready,
    })
}
