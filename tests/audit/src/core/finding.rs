//! What was found: violations of a rule, with evidence, and notes on what is legal but worth knowing. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

/// The rules, one for each way to break a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// One more node was released than the window of its form or hub has room for.
    Window,
    /// A slot was reserved that the window has no room for.
    Reserve,
    /// A slot was freed while its node was released and not settled since.
    EarlyFree,
    /// Content went live without a slot that names it, without force, and without leave to pass ungated.
    Exact,
    /// The operator let content pass ungated although a window applies.
    Ungated,
    /// Something was released while paused.
    Paused,
    /// A node is marked held and is not, or the other way round.
    Held,
    /// An object was given content that was never live on its node.
    Premature,
    /// Content went live and did not reach the object.
    Lost,
    /// More nodes were deleted at once than the hub's guard lets go.
    Deletions,
    /// The partition of a StatefulSet was lowered while another pod than the next one was not ready, or for more than one pod.
    Partition,
    /// The fleet did not converge.
    Convergence,
    /// A node is held and nothing says why.
    Reason,
    /// A form says that its rollout is complete, and it is not.
    Complete,
}

impl Rule {
    pub fn name(self) -> &'static str {
        match self {
            Rule::Window => "window",
            Rule::Reserve => "reserve",
            Rule::EarlyFree => "early-free",
            Rule::Exact => "exact",
            Rule::Ungated => "ungated",
            Rule::Paused => "paused",
            Rule::Held => "held",
            Rule::Premature => "premature",
            Rule::Lost => "lost",
            Rule::Deletions => "deletions",
            Rule::Partition => "partition",
            Rule::Convergence => "convergence",
            Rule::Reason => "reason",
            Rule::Complete => "complete",
        }
    }
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    pub rule: Rule,
    pub revision: u64,
    pub at: Timestamp,
    pub object: String,
    pub what: String,
    pub evidence: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Note {
    pub what: &'static str,
    pub count: u64,
    /// The first one.
    pub example: String,
}

/// Findings that are kept with their evidence; the rest is counted.
const KEPT_MAX: usize = 200;

#[derive(Default)]
pub struct Findings {
    pub kept: Vec<Finding>,
    pub counts: BTreeMap<Rule, u64>,
    pub notes: BTreeMap<&'static str, Note>,
}

impl Findings {
    pub fn add(&mut self, finding: Finding) {
        *self.counts.entry(finding.rule).or_default() += 1;
        if self.kept.len() < KEPT_MAX {
            self.kept.push(finding);
        }
    }

    pub fn note(&mut self, what: &'static str, example: impl FnOnce() -> String) {
        let note = self.notes.entry(what).or_insert_with(|| Note {
            what,
            count: 0,
            example: example(),
        });
        note.count += 1;
    }
}
