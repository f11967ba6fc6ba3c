//! Status conditions as Kubernetes defines them, and how one replaces another.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::stamp;
use crate::api::text::Text;

pub mod kstatus;
mod reason;

pub use reason::ConditionReason;

/// One entry of `status.conditions` (metav1.Condition).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What the condition is about, in CamelCase.
    #[serde(rename = "type")]
    pub type_: Text,
    /// True, False or Unknown.
    pub status: Text,
    /// The generation of the object that the condition speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When `status` last changed (RFC 3339).
    pub last_transition_time: Timestamp,
    /// Why, as one CamelCase word for programs.
    pub reason: Text,
    /// Why, in a sentence for people.
    #[serde(default)]
    pub message: Text,
}

/// A condition as a decision states it: the transition time follows from what was there before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConditionState {
    #[serde(rename = "type")]
    pub type_: &'static str,
    pub status: bool,
    pub reason: ConditionReason,
    pub message: String,
}

impl Condition {
    /// All of its texts: many objects have the same.
    pub fn texts_mut(&mut self) -> [&mut Text; 4] {
        let Condition {
            type_,
            status,
            reason,
            message,
            ..
        } = self;
        [type_, status, reason, message]
    }
}

impl ConditionState {
    pub fn new(
        type_: &'static str,
        status: bool,
        reason: ConditionReason,
        message: impl Into<String>,
    ) -> Self {
        debug_assert!(
            reason.conditions().iter().any(|(_, place)| *place == type_),
            "{reason:?} is no reason of {type_}"
        );
        ConditionState {
            type_,
            status,
            reason,
            message: message.into(),
        }
    }
}

/// Brings `states` into `conditions`. The transition time moves only when the status does, so that a
/// change of message is not mistaken for a change of state. Conditions not named are left alone.
pub fn merge(
    conditions: &mut Vec<Condition>,
    states: &[ConditionState],
    generation: Option<i64>,
    now: Timestamp,
) {
    for state in states {
        let status = if state.status { "True" } else { "False" };
        let since = conditions
            .iter()
            .find(|c| c.type_ == state.type_ && c.status == status)
            // A clock that was ahead is no reason to wait until the others have come so far.
            .map_or(now, |c| c.last_transition_time.min(now));
        let condition = Condition {
            type_: state.type_.into(),
            status: status.into(),
            observed_generation: generation,
            last_transition_time: stamp::millis(since),
            reason: state.reason.as_str().into(),
            message: state.message.as_str().into(),
        };
        match conditions.iter_mut().find(|c| c.type_ == state.type_) {
            Some(old) => *old = condition,
            None => conditions.push(condition),
        }
    }
}

/// The condition of this type, whatever its status.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.type_ == *type_)
}

/// True when the condition is there and True.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    conditions
        .iter()
        .any(|c| c.type_ == type_ && c.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transition_is_never_in_the_future() {
        let at = |s: i64| Timestamp::from_second(s).unwrap();
        let ready = [ConditionState::new(
            "Ready",
            true,
            ConditionReason::Reconciled,
            "a",
        )];
        let mut all = vec![];
        for (now, since) in [(3600, 3600), (10, 10), (20, 10)] {
            merge(&mut all, &ready, Some(1), at(now));
            assert_eq!(all[0].last_transition_time, at(since), "at {now}");
        }
    }

    #[test]
    fn transition_time_moves_with_the_status_only() {
        let at = |s: i64| Timestamp::from_second(s).unwrap();
        let mut all = vec![];
        merge(
            &mut all,
            &[ConditionState::new(
                "Ready",
                false,
                ConditionReason::LookFailed,
                "a",
            )],
            Some(1),
            at(1),
        );
        merge(
            &mut all,
            &[ConditionState::new(
                "Ready",
                false,
                ConditionReason::Deleting,
                "b",
            )],
            Some(2),
            at(2),
        );
        assert_eq!(
            (
                all[0].last_transition_time,
                all[0].reason.as_str(),
                all[0].observed_generation
            ),
            (at(1), "Deleting", Some(2))
        );
        merge(
            &mut all,
            &[ConditionState::new(
                "Ready",
                true,
                ConditionReason::Reconciled,
                "c",
            )],
            Some(2),
            at(3),
        );
        assert_eq!((all.len(), all[0].last_transition_time), (1, at(3)));
        assert!(is_true(&all, "Ready") && !is_true(&all, "Held"));
    }
}
