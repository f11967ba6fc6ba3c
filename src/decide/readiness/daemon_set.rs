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
    // Only the Kubernetes nodes that should run the pod are counted, so neither can exceed `wanted`.
    if updated < wanted {
        let on_delete = object.text("/spec/updateStrategy/type") == Some("OnDelete");
        return Readiness::Waiting(match on_delete {
            true => Reason::AwaitsPodDeletion {
                name,
                updated,
                wanted,
            },
            false => Reason::PodsOutdated {
                name,
                updated,
                wanted,
            },
        });
    }
    if available < wanted {
        return Readiness::Waiting(Reason::PodsNotAvailable {
            name,
            available,
            wanted,
        });
    }
    Readiness::Ready
}
