//! Job: ready when it is complete, failed when its controller has given up. It must not take one
//! succeeded pod for a complete Job.

use crate::decide::readiness::Readiness;
use crate::decide::readiness::Reason;
use crate::decide::readiness::object::Condition;
use crate::decide::readiness::object::Object;

pub(super) fn rule(object: &Object<'_>) -> Readiness {
    let name = object.name();
    if is_complete(object) {
        return Readiness::Ready;
    }
    if let Some(condition) = object.condition("Failed").filter(Condition::is_true) {
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

pub(super) fn is_complete(object: &Object<'_>) -> bool {
    let complete = object.condition("Complete");
    complete.is_some_and(|condition| condition.is_true())
}
