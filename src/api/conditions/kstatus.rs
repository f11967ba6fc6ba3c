//! What kubectl, Flux and Argo CD read of objects of any kind: the conditions Ready, Reconciling and Stalled. They follow from the
//! other conditions, which say more, so that the two never differ.
//!
//! The rules are those of kstatus (sigs.k8s.io/cli-utils, pkg/kstatus): an object is in progress while `observedGeneration` is not
//! its generation, or while Reconciling is True; it failed where Stalled is True; it is current once Ready is True. Reconciling and
//! Stalled are there only while they are True.

use jiff::Timestamp;

use crate::api::conditions::{Condition, ConditionReason, find};
use crate::api::stamp;

/// How an object stands, and the condition that says why.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Standing<'a> {
    /// It is what its spec asks for.
    Current,
    /// The operator is at work on it, or waits for something that comes by itself.
    InProgress(&'a Condition),
    /// It needs somebody.
    Failed(&'a Condition),
}

const READY: &str = "Ready";
const RECONCILING: &str = "Reconciling";
const STALLED: &str = "Stalled";
/// Of a form whose last change was taken back; it is there only while it is True.
pub const REVERTED: &str = "Reverted";

/// Whether a condition only repeats what another one says.
pub fn is_summary(type_: &str) -> bool {
    [RECONCILING, STALLED].contains(&type_)
}

pub fn of_hub(conditions: &[Condition]) -> Standing<'_> {
    let invalid = |ready: &&Condition| ready.reason == *ConditionReason::InvalidSpec.as_str();
    let not_ready = find_as(conditions, READY, "False");
    let failed = (not_ready.filter(invalid))
        .or_else(|| find_as(conditions, "DeletionsHeld", "True"))
        .or_else(|| find_as(conditions, "CreationsHeld", "True"));
    let goes_on = || not_ready.or_else(|| find_as(conditions, "WriteFailed", "True"));
    standing(failed, goes_on)
}

pub fn of_form(conditions: &[Condition]) -> Standing<'_> {
    let stops = |told: &&Condition| {
        let stops = [ConditionReason::Failed, ConditionReason::Stalled];
        stops.iter().any(|reason| told.reason == *reason.as_str())
    };
    let incomplete = find_as(conditions, "RolloutComplete", "False");
    let failed = find_as(conditions, "Valid", "False")
        .or_else(|| incomplete.filter(stops))
        .or_else(|| find_as(conditions, REVERTED, "True"));
    standing(failed, || incomplete)
}

pub fn of_node(conditions: &[Condition]) -> Standing<'_> {
    let failed = find_as(conditions, "Degraded", "True");
    standing(failed, || {
        let held = find_as(conditions, "Held", "True");
        held.or_else(|| find_as(conditions, READY, "False"))
    })
}

fn find_as<'a>(conditions: &'a [Condition], type_: &str, status: &str) -> Option<&'a Condition> {
    find(conditions, type_).filter(|told| told.status == *status)
}

fn standing<'a>(
    failed: Option<&'a Condition>,
    goes_on: impl FnOnce() -> Option<&'a Condition>,
) -> Standing<'a> {
    match failed {
        Some(failed) => Standing::Failed(failed),
        None => goes_on().map_or(Standing::Current, Standing::InProgress),
    }
}

/// Brings Reconciling and Stalled to what the other conditions say.
pub fn summarize(
    conditions: &mut Vec<Condition>,
    of: impl Fn(&[Condition]) -> Standing<'_>,
    now: Timestamp,
) {
    let summary = match of(conditions) {
        Standing::Current => None,
        Standing::InProgress(why) => Some((RECONCILING, why.clone())),
        Standing::Failed(why) => Some((STALLED, why.clone())),
    };
    let told = summary.map(|(type_, why)| Condition {
        type_: type_.into(),
        status: "True".into(),
        last_transition_time: since(conditions, type_, "True", now),
        ..why
    });
    conditions.retain(|c| !is_summary(&c.type_));
    conditions.extend(told);
}

/// The same of a form, which has no other condition Ready.
pub fn summarize_form(conditions: &mut Vec<Condition>, now: Timestamp) {
    let (why, status) = match of_form(conditions) {
        Standing::Current => (find(conditions, "RolloutComplete"), "True"),
        Standing::InProgress(why) | Standing::Failed(why) => (Some(why), "False"),
    };
    if let Some(why) = why.cloned() {
        let ready = Condition {
            type_: READY.into(),
            status: status.into(),
            last_transition_time: since(conditions, READY, status, now),
            ..why
        };
        match conditions.iter_mut().find(|c| c.type_ == READY) {
            Some(old) => *old = ready,
            None => conditions.push(ready),
        }
    }
    summarize(conditions, of_form, now);
}

fn since(conditions: &[Condition], type_: &str, status: &str, now: Timestamp) -> Timestamp {
    let before = find_as(conditions, type_, status);
    stamp::millis(before.map_or(now, |before| before.last_transition_time.min(now)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(type_: &str, status: bool, reason: &str) -> Condition {
        Condition {
            type_: type_.into(),
            status: if status { "True" } else { "False" }.into(),
            observed_generation: Some(3),
            last_transition_time: Timestamp::UNIX_EPOCH,
            reason: reason.into(),
            message: format!("{type_} is {status}").as_str().into(),
        }
    }

    type Case<'a> = (
        &'a str,
        fn(&[Condition]) -> Standing<'_>,
        &'a [(&'a str, bool, &'a str)],
        &'a str,
    );

    #[test]
    fn what_other_conditions_say_decides() {
        let cases: &[Case] = &[
            ("a hub", of_hub, &[("Ready", true, "DatabaseConnected")], ""),
            (
                "a database that may come back",
                of_hub,
                &[("Ready", false, "DatabaseConnectionFailed")],
                "Reconciling DatabaseConnectionFailed",
            ),
            (
                "a hub that nobody can read",
                of_hub,
                &[("Ready", false, "InvalidSpec")],
                "Stalled InvalidSpec",
            ),
            (
                "deletions that wait for a person",
                of_hub,
                &[
                    ("Ready", true, "DatabaseConnected"),
                    ("DeletionsHeld", true, "TooManyDeletions"),
                ],
                "Stalled TooManyDeletions",
            ),
            (
                "a rollout",
                of_form,
                &[
                    ("Valid", true, "V"),
                    ("RolloutComplete", false, "InProgress"),
                ],
                "Reconciling InProgress",
            ),
            (
                "a halted rollout",
                of_form,
                &[("Valid", true, "V"), ("RolloutComplete", false, "Failed")],
                "Stalled Failed",
            ),
            (
                "a form that goes back to what it was before a change that failed",
                of_form,
                &[
                    ("Valid", true, "V"),
                    ("RolloutComplete", false, "InProgress"),
                    ("Reverted", true, "Reverted"),
                ],
                "Stalled Reverted",
            ),
            (
                "a form that is back",
                of_form,
                &[
                    ("Valid", true, "V"),
                    ("RolloutComplete", true, "Complete"),
                    ("Reverted", true, "Reverted"),
                ],
                "Stalled Reverted",
            ),
            (
                "a form that cannot even go back",
                of_form,
                &[
                    ("Valid", true, "V"),
                    ("RolloutComplete", false, "Failed"),
                    ("Reverted", true, "Reverted"),
                ],
                "Stalled Failed",
            ),
            (
                "a form that does not render",
                of_form,
                &[
                    ("Valid", false, "ValidationFailed"),
                    ("RolloutComplete", false, "InProgress"),
                ],
                "Stalled ValidationFailed",
            ),
            (
                "a node",
                of_node,
                &[("Ready", true, "R"), ("Held", false, "NotHeld")],
                "",
            ),
            (
                "a held node whose live content is ready",
                of_node,
                &[("Ready", true, "R"), ("Held", true, "WindowFull")],
                "Reconciling WindowFull",
            ),
            (
                "a held node that is broken",
                of_node,
                &[
                    ("Ready", false, "ResourcesFailed"),
                    ("Held", true, "WindowFull"),
                    ("Degraded", true, "ResourceFailures"),
                ],
                "Stalled ResourceFailures",
            ),
        ];
        for (name, of, told, expected) in cases {
            let told = told.iter();
            let mut all: Vec<Condition> = told
                .map(|(t, status, reason)| condition(t, *status, reason))
                .collect();
            // What was said before does not stay.
            all.push(condition("Stalled", true, "Before"));
            summarize(&mut all, of, Timestamp::UNIX_EPOCH);
            let summary = all.iter().filter(|c| is_summary(&c.type_));
            let summary: Vec<String> = summary
                .map(|c| format!("{} {}", c.type_.as_str(), c.reason.as_str()))
                .collect();
            assert_eq!(summary.join(", "), *expected, "{name}");
        }
    }

    #[test]
    fn the_transition_is_of_the_summary() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let mut all = vec![];
        let steps = [
            (10, "InProgress", ("False", 10), Some(("Reconciling", 10))),
            (20, "Stalled", ("False", 10), Some(("Stalled", 20))),
            (30, "Failed", ("False", 10), Some(("Stalled", 20))),
            (40, "Complete", ("True", 40), None),
        ];
        for (second, reason, (ready, since), summary) in steps {
            all.retain(|c: &Condition| c.type_ != *"RolloutComplete");
            all.push(condition("RolloutComplete", reason == "Complete", reason));
            summarize_form(&mut all, at(second));
            let told = find(&all, "Ready").unwrap();
            assert_eq!(
                (told.status.as_str(), told.last_transition_time),
                (ready, at(since))
            );
            let told = all.iter().find(|c| is_summary(&c.type_));
            let told = told.map(|c| (c.type_.as_str(), c.last_transition_time));
            assert_eq!(
                told,
                summary.map(|(type_, since)| (type_, at(since))),
                "{reason}"
            );
        }
    }
}
