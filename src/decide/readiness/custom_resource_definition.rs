//! CustomResourceDefinition: ready when its API is served (Established). It must not count accepted names
//! alone: objects of the kind are refused until then.

use crate::decide::readiness::Readiness;
use crate::decide::readiness::object::Object;

pub(super) fn rule(object: &Object<'_>) -> Readiness {
    let reason = object.unobserved_if_reported().or_else(|| {
        let not_established = object.not_true("Established")?;
        // A clash of names is the cause that Established itself does not name.
        let clash = object
            .condition("NamesAccepted")
            .and_then(|names| object.condition_not_true(&names));
        Some(clash.unwrap_or(not_established))
    });
    reason.map_or(Readiness::Ready, Readiness::Waiting)
}
