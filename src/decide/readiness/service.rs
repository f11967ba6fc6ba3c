//! Service: ready on existence, and of type LoadBalancer once it has an address. It must not look for
//! endpoints: a Service may stand before its pods.

use crate::decide::readiness::Readiness;
use crate::decide::readiness::Reason;
use crate::decide::readiness::object::Object;

pub(super) fn rule(object: &Object<'_>) -> Readiness {
    let needs_address = object.text("/spec/type") == Some("LoadBalancer");
    if needs_address && object.list("/status/loadBalancer/ingress").is_empty() {
        return Readiness::Waiting(Reason::LoadBalancerPending {
            name: object.name(),
        });
    }
    Readiness::Ready
}
