//! Job: ready when it is complete, failed when its controller has given up. It must not take one
//! succeeded pod for a complete Job.

use crate::decide::readiness::Readiness;
use crate::decide::readiness::Reason;
use crate::decide::readiness::object::Condition;
use crate::decide::readiness::object::Object;

pub(super) fn rule(object: &Object<'_>) -> Readiness {
    let holds = |kind: &str| object.condition(kind).filter(Condition::is_true);
    let name = object.name();
    if holds("Complete").is_some() {
        return Readiness::Ready;
    }
    if let Some(condition) = holds("Failed") {
        return Readiness::Failed(Reason::JobFailed {
            name,
            reason: condition.reason().to_owned(),
            message: condition.message(),
        });
    }
    if object.flag("/spec/suspend") {
        return Readiness::Waiting(Reason::JobSuspended { name });
    }
    Readiness::Waiting(Reason::JobUnfinished {
        name,
        succeeded: object.status_count("succeeded"),
        completions: object.count("/spec/completions"),
        active: object.status_count("active"),
        failed: object.status_count("failed"),
    })
}
