//! Any kind without a rule of its own, custom resources above all: by the conditions that most controllers
//! write. It must not take a status that it cannot read for ready.

use crate::decide::readiness::Readiness;
use crate::decide::readiness::Reason;
use crate::decide::readiness::object::Object;

/// The first of these conditions that exists must be True, and none may be False.
const DECISIVE: [&str; 3] = ["Ready", "Available", "Healthy"];

/// If Crossplane cannot bring the newest spec to the provider, it leaves Ready unchanged; only this condition is then False.
const SYNCED: &str = "Synced";

pub(super) fn rule(object: &Object<'_>) -> Readiness {
    if let Some(reason) = object.unobserved_if_reported() {
        return Readiness::Waiting(reason);
    }
    if object.conditions().next().is_none() {
        return Readiness::Unknown(Reason::NothingTold {
            name: object.name(),
        });
    }
    if let Some(reason) = not_ready(object) {
        return Readiness::Waiting(reason);
    }
    let told = DECISIVE.into_iter().find_map(|kind| object.condition(kind));
    let of_generation = told.is_some_and(|condition| condition.observed_generation().is_some());
    match object.may_be_old() {
        Some(reason) if !of_generation && !object.reports_generation() => {
            Readiness::Unknown(reason)
        }
        _ => Readiness::Ready,
    }
}

fn not_ready(object: &Object<'_>) -> Option<Reason> {
    if let Some(synced) = object.condition(SYNCED)
        && let Some(reason) = object.condition_not_true(&synced)
    {
        return Some(reason);
    }
    let mut decisive = DECISIVE
        .into_iter()
        .filter_map(|kind| object.condition(kind));
    match decisive.next() {
        Some(first) => object.condition_not_true(&first).or_else(|| {
            let mut denied = decisive.filter(|condition| condition.status() == "False");
            denied.find_map(|condition| object.condition_not_true(&condition))
        }),
        None => Some(Reason::NoKnownCondition {
            name: object.name(),
            found: object
                .conditions()
                .map(|condition| condition.kind().to_owned())
                .collect(),
        }),
    }
}
