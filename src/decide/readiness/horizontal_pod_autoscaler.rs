//! HorizontalPodAutoscaler: ready when it can scale its target. It must not require metrics (ScalingActive), which a target with
//! 0 replicas does not have.

use serde_json::Value;

use crate::decide::readiness::Readiness;
use crate::decide::readiness::object::Condition;
use crate::decide::readiness::object::Object;

const CONDITION: &str = "AbleToScale";

/// autoscaling/v1 has no `status.conditions`: the API server shows them there as JSON.
const CONDITIONS_OF_V1: &str = "/metadata/annotations/autoscaling.alpha.kubernetes.io~1conditions";

pub(super) fn rule(object: &Object<'_>) -> Readiness {
    let reason = object.unobserved_if_reported().or_else(|| {
        let annotation = object
            .text(CONDITIONS_OF_V1)
            .and_then(|text| serde_json::from_str::<Vec<Value>>(text).ok());
        let of_v1 = annotation
            .iter()
            .flatten()
            .map(Condition::new)
            .find(|condition| condition.kind() == CONDITION);
        match of_v1 {
            Some(condition) => object.condition_not_true(&condition),
            None => object.not_true(CONDITION),
        }
    });
    reason.map_or(Readiness::Ready, Readiness::Waiting)
}
