//! Namespace: ready while Active, whatever is inside.

use crate::decide::readiness::Readiness;
use crate::decide::readiness::Reason;
use crate::decide::readiness::object::Object;

pub(super) fn rule(object: &Object<'_>) -> Readiness {
    let name = object.name();
    match object.text("/status/phase") {
        Some("Active") => Readiness::Ready,
        Some(phase) => Readiness::Waiting(Reason::NamespaceNotActive {
            name,
            phase: phase.to_owned(),
        }),
        None => Readiness::Waiting(Reason::StatusMissing {
            name,
            field: "status.phase",
        }),
    }
}
