//! Ingress: ready when it has rules or an address, as in Lynq. It must not insist on the address: many
//! ingress controllers never write one.

use crate::decide::readiness::Readiness;
use crate::decide::readiness::Reason;
use crate::decide::readiness::object::Object;

pub(super) fn rule(object: &Object<'_>) -> Readiness {
    if object.list("/spec/rules").is_empty()
        && object.list("/status/loadBalancer/ingress").is_empty()
    {
        return Readiness::Waiting(Reason::IngressPending {
            name: object.name(),
        });
    }
    Readiness::Ready
}
