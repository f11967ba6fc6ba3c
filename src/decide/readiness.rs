//! Decides from an object's own fields whether it is ready. One file per kind below; no rule may read another object or a clock.
//!
//! Unknown is not ready. The objects are `serde_json::Value`s as the API server sends them: a field that is missing or of the
//! wrong type counts as absent and never panics.

mod any_other;
mod api_service;
mod custom_resource_definition;
mod daemon_set;
mod deployment;
mod existence;
mod horizontal_pod_autoscaler;
mod ingress;
mod job;
mod namespace;
mod object;
pub mod obstacle;
mod persistent_volume_claim;
mod pod;
pub mod probe;
mod reason;
mod replicas;
pub mod rolling;
mod service;
mod stateful_set;

use serde_json::Value;

use object::Object;
pub use probe::Probe;
pub use reason::Reason;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Readiness {
    /// The object provides what it promises, for its newest generation.
    Ready,
    /// Not ready, and its controller is (or may still be) working on it.
    Waiting(Reason),
    /// Its controller has given up, or says that it cannot succeed.
    Failed(Reason),
    /// The object does not say.
    Unknown(Reason),
}

impl Readiness {
    /// Why it is not ready, or not known to be.
    pub fn reason(&self) -> Option<&Reason> {
        match self {
            Readiness::Ready => None,
            Readiness::Waiting(reason) | Readiness::Failed(reason) | Readiness::Unknown(reason) => {
                Some(reason)
            }
        }
    }
}

/// Whether the object is a Job that has completed, whatever becomes of the object afterwards.
pub fn is_completed_job(object: &Value) -> bool {
    let object = Object::new(object);
    (object.group(), object.kind()) == (Some("batch"), Some("Job")) && job::is_complete(&object)
}

/// The readiness of one live object.
pub fn readiness(object: &Value) -> Readiness {
    let object = Object::new(object);
    let (Some(group), Some(kind)) = (object.group(), object.kind()) else {
        return Readiness::Waiting(Reason::Unidentified {
            name: object.name(),
        });
    };
    // Whatever its status says, it will soon be gone.
    if object.has("/metadata/deletionTimestamp") {
        return Readiness::Waiting(Reason::Terminating {
            name: object.name(),
        });
    }
    probe::rule(&object).unwrap_or_else(|| rule_of(group, kind).unwrap_or(any_other::rule)(&object))
}

type Rule = fn(&Object<'_>) -> Readiness;

fn rule_of(group: &str, kind: &str) -> Option<Rule> {
    Some(match (group, kind) {
        ("", "Namespace") => namespace::rule,
        ("", "PersistentVolumeClaim") => persistent_volume_claim::rule,
        ("", "Pod") => pod::rule,
        ("", "Service") => service::rule,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => custom_resource_definition::rule,
        ("apiregistration.k8s.io", "APIService") => api_service::rule,
        ("apps", "DaemonSet") => daemon_set::rule,
        ("apps", "Deployment") => deployment::rule,
        ("apps", "StatefulSet") => stateful_set::rule,
        ("autoscaling", "HorizontalPodAutoscaler") => horizontal_pod_autoscaler::rule,
        ("batch", "Job") => job::rule,
        ("networking.k8s.io", "Ingress") => ingress::rule,
        identity if existence::KINDS.contains(&identity) => existence::rule,
        _ => return None,
    })
}
