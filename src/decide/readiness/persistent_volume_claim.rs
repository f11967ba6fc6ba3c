//! PersistentVolumeClaim: ready when bound, or when it may only be waiting for its first consumer. A pod must not wait for a
//! claim that waits for the pod.
//!
//! The StorageClass says whether it binds at once or for the first consumer; the claim does not. It shows it indirectly: with
//! immediate binding the volume controller writes the provisioner's name onto the claim (for a first consumer only after a
//! Kubernetes node was selected), and a claim with a volume's name or without a class is never delayed. A pending claim with none
//! of these signs counts as ready: otherwise lynqgate would never apply the objects that depend on it. The price is that an
//! unused claim whose class does not exist also counts as ready.

use crate::decide::readiness::Readiness;
use crate::decide::readiness::Reason;
use crate::decide::readiness::object::Object;

const SELECTED_NODE: &str = "/metadata/annotations/volume.kubernetes.io~1selected-node";
const PROVISIONER: &str = "/metadata/annotations/volume.kubernetes.io~1storage-provisioner";
const PROVISIONER_BETA: &str =
    "/metadata/annotations/volume.beta.kubernetes.io~1storage-provisioner";
const CLASS_BETA: &str = "/metadata/annotations/volume.beta.kubernetes.io~1storage-class";

pub(super) fn rule(object: &Object<'_>) -> Readiness {
    let name = object.name();
    match object.text("/status/phase") {
        Some("Bound") => Readiness::Ready,
        Some("Lost") => {
            let volume = object.text("/spec/volumeName").unwrap_or("").to_owned();
            Readiness::Failed(Reason::ClaimLost { name, volume })
        }
        Some("Pending") if may_await_consumer(object) => Readiness::Ready,
        Some(phase) => {
            let detail = detail(object);
            Readiness::Waiting(Reason::ClaimUnbound {
                name,
                phase: phase.to_owned(),
                detail,
            })
        }
        None => Readiness::Waiting(Reason::StatusMissing {
            name,
            field: "status.phase",
        }),
    }
}

fn may_await_consumer(object: &Object<'_>) -> bool {
    let named = |pointer| object.text(pointer).is_some_and(|text| !text.is_empty());
    let has_class = named(CLASS_BETA) || named("/spec/storageClassName");
    has_class
        && !named("/spec/volumeName")
        && !named(SELECTED_NODE)
        && !named(PROVISIONER)
        && !named(PROVISIONER_BETA)
}

fn detail(object: &Object<'_>) -> String {
    let volume = object
        .text("/spec/volumeName")
        .filter(|volume| !volume.is_empty());
    let provisioner = object
        .text(PROVISIONER)
        .or_else(|| object.text(PROVISIONER_BETA));
    match (volume, provisioner) {
        (Some(volume), _) => format!("waits for volume {volume}"),
        (None, Some(provisioner)) => format!("{provisioner} is to provision its volume"),
        (None, None) if object.has(SELECTED_NODE) => "its volume is to be provisioned".to_owned(),
        (None, None) => "no volume matches and it names no storage class".to_owned(),
    }
}
