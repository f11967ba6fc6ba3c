//! Pod: its Ready condition. It must not take Running for Ready. A pod that has completed is not ready and
//! never will be; work that ends belongs in a Job.

use crate::decide::readiness::Readiness;
use crate::decide::readiness::Reason;
use crate::decide::readiness::object::Object;

pub(super) fn rule(object: &Object<'_>) -> Readiness {
    let name = object.name();
    if let Some(reason) = object.unobserved_if_reported() {
        return Readiness::Waiting(reason);
    }
    let phase = object.text("/status/phase").unwrap_or("Pending");
    if phase == "Failed" {
        let text = |pointer| object.text(pointer).unwrap_or("").to_owned();
        return Readiness::Failed(Reason::PodFailed {
            name,
            reason: text("/status/reason"),
            message: text("/status/message"),
        });
    }
    if object.not_true("Ready").is_none() {
        return Readiness::Ready;
    }
    Readiness::Waiting(match phase {
        "Succeeded" => Reason::PodCompleted { name },
        phase => Reason::PodNotReady {
            name,
            phase: phase.to_owned(),
            cause: cause(object),
        },
    })
}

/// Why the pod does not start, if it says so: no Kubernetes node fits, or a container is waiting (mostly for its image).
fn cause(object: &Object<'_>) -> String {
    let waiting = ["/status/initContainerStatuses", "/status/containerStatuses"]
        .into_iter()
        .flat_map(|pointer| object.list(pointer))
        .map(Object::new)
        .find(|container| container.has("/state/waiting"));
    if let Some(container) = waiting {
        let text = |pointer| container.text(pointer).unwrap_or("");
        let (name, reason, message) = (
            text("/name"),
            text("/state/waiting/reason"),
            text("/state/waiting/message"),
        );
        return match message {
            "" => format!("container {name}: {reason}"),
            message => format!("container {name}: {reason}: {message}"),
        };
    }
    match object.condition("PodScheduled") {
        Some(condition) if !condition.is_true() => condition.message(),
        _ => object
            .condition("Ready")
            .map_or_else(String::new, |condition| condition.message()),
    }
}
