//! APIService: ready when the API server can reach what serves it (Available). It must not judge from the
//! Service behind it.

use crate::decide::readiness::Readiness;
use crate::decide::readiness::object::Object;

pub(super) fn rule(object: &Object<'_>) -> Readiness {
    object
        .not_true("Available")
        .map_or(Readiness::Ready, Readiness::Waiting)
}
