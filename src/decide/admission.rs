//! Decides which hubs and forms may be stored, worded as in Lynq if Lynq has the rule. Beyond Lynq, it checks whether the fleet
//! renders, how much a change changes, and whether its author has the rights that the operator would use for it.

pub mod form;
pub mod hub;
pub mod reach;
pub mod review;
pub mod rights;
pub mod trial;

use serde_json::Value;

use crate::api::{names, stamp};
use crate::decide::hub::rows::guard;

/// The result for a write.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// Why the write is rejected; None allows it.
    pub denied: Option<String>,
    pub warnings: Vec<String>,
}

/// A problem with a hub that its database shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// Whether the hub itself is wrong. Any other cause may disappear: a server that is down, a Secret or a table that does not
    /// exist yet.
    pub is_certain: bool,
    pub message: String,
}

impl Doubt {
    pub fn judge(self, verdict: &mut Verdict) {
        match self.is_certain {
            true => verdict.denied = Some(self.message),
            false => {
                let warning = format!("not checked in the database: {}", self.message);
                verdict.warnings.push(warning);
            }
        }
    }
}

/// Warns about annotations with an invalid value, which have no effect.
fn misspelled(object: &Value) -> Vec<String> {
    let annotation = |name: &str| object["metadata"]["annotations"][name].as_str();
    let force =
        annotation(names::FORCE_ROLLOUT).filter(|text| !["true", "false", ""].contains(text));
    let force = force.map(|text| {
        format!(
            "{}: {text:?} forces nothing; only \"true\" does",
            names::FORCE_ROLLOUT
        )
    });
    let allow = annotation(names::ALLOW_RENDER_ERRORS)
        .filter(|text| !["true", "false", ""].contains(text))
        .map(|text| {
            format!(
                "{}: {text:?} allows nothing; only \"true\" does",
                names::ALLOW_RENDER_ERRORS
            )
        });
    let resume = annotation(names::RESUME).filter(|text| stamp::parse(text).is_none());
    let resume = resume.map(|text| {
        format!(
            "{}: {text:?} is no point in time, and resumes nothing; write it like 2026-03-01T12:00:00Z",
            names::RESUME
        )
    });
    let confirmations = [
        (names::CONFIRM_DELETIONS, "deletions"),
        (names::CONFIRM_CREATIONS, "creations"),
        (names::CONFIRM_HUB_DELETION, "nodes"),
    ];
    let confirmed = confirmations.into_iter().filter_map(|(name, what)| {
        let text = annotation(name).filter(|text| guard::count(text).is_none())?;
        Some(format!(
            "{name}: {text:?} is no number of {what}, and confirms none"
        ))
    });
    [force, allow, resume]
        .into_iter()
        .flatten()
        .chain(confirmed)
        .collect()
}
