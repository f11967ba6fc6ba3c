//! CustomResourceDefinition: ready when its API is served (Established). Accepted names alone are not enough: until then the API
//! server rejects objects of the kind.

use crate::decide::readiness::Readiness;
use crate::decide::readiness::object::Object;

pub(super) fn rule(object: &Object<'_>) -> Readiness {
    let reason = object.unobserved_if_reported().or_else(|| {
        let not_established = object.not_true("Established")?;
        // Established does not mention a name conflict, which can be the cause.
        let clash = object
            .condition("NamesAccepted")
            .and_then(|names| object.condition_not_true(&names));
        Some(clash.unwrap_or(not_established))
    });
    reason.map_or(Readiness::Ready, Readiness::Waiting)
}
