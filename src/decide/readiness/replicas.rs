//! Workloads that are scaled to zero: a state and no failure, reached when no pod is left. The conditions, and what is
//! counted of updated pods, say nothing then.

use crate::decide::readiness::Readiness;
use crate::decide::readiness::Reason;
use crate::decide::readiness::object::Object;

/// None if the workload should have pods.
pub(super) fn none_wanted(object: &Object<'_>) -> Option<Readiness> {
    if object.replicas() > 0 {
        return None;
    }
    Some(match object.status_count("replicas") {
        0 => Readiness::Ready,
        pods => Readiness::Waiting(Reason::SurplusPods {
            name: object.name(),
            pods,
            wanted: 0,
        }),
    })
}
