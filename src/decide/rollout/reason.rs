//! Why a held node waits. Feeds the node's condition, the form's condition and message, events, metrics and `explain`.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

use crate::api::names;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its turn has come: the release is on its way.
    Releasing,
    /// The last try to release it did not go through.
    ReleaseRefused {
        why: String,
    },
    /// It has a slot, but more slots are out than the window has by now.
    SlotReserved {
        window: usize,
        slots: usize,
    },
    /// Nodes in flight are not ready.
    WindowFull {
        window: usize,
        holders: Arc<Holders>,
    },
    /// All nodes in flight are ready, but not for long enough.
    Soaking {
        window: usize,
        holders: Arc<Holders>,
    },
    /// The readiness of nodes in flight is not known.
    ReadinessUnknown {
        window: usize,
        holders: Arc<Holders>,
    },
    /// Nothing is in flight: what fills the window was not ready before.
    BrokenBefore {
        window: usize,
        holders: Arc<Holders>,
    },
    HubWindowFull {
        window: usize,
        holders: Arc<Holders>,
    },
    BudgetSpent {
        failed: Names,
        allowed: usize,
    },
    /// An earlier group of the order is not done.
    GroupNotDone {
        group: String,
        pending: Names,
    },
    /// The form's newest templates have not reached its nodes yet.
    NotRendered,
    Paused,
    DeletionsHeld,
    /// The operator has just started, and has not looked at every node yet.
    Starting {
        unlooked: usize,
    },
    /// The node's form is gone, or cannot be read.
    NoForm {
        form: String,
    },
    /// No operator leads, so that nothing is released at all. Only `explain` can find that.
    NoLeader {
        since: Option<Timestamp>,
    },
}

impl Reason {
    /// One word for conditions and metric labels.
    pub fn code(&self) -> &'static str {
        match self {
            Reason::Releasing => "Releasing",
            Reason::ReleaseRefused { .. } => "ReleaseRefused",
            Reason::SlotReserved { .. } => "SlotReserved",
            Reason::WindowFull { .. } => "WindowFull",
            Reason::Soaking { .. } => "Soaking",
            Reason::ReadinessUnknown { .. } => "ReadinessUnknown",
            Reason::BrokenBefore { .. } => "BrokenBefore",
            Reason::HubWindowFull { .. } => "HubWindowFull",
            Reason::BudgetSpent { .. } => "BudgetSpent",
            Reason::GroupNotDone { .. } => "GroupNotDone",
            Reason::NotRendered => "NotRendered",
            Reason::Paused => "Paused",
            Reason::DeletionsHeld => "DeletionsHeld",
            Reason::Starting { .. } => "Starting",
            Reason::NoForm { .. } => "NoForm",
            Reason::NoLeader { .. } => "NoLeader",
        }
    }

    /// The word in the node's own condition. Who fills the window may change with every pod, and a node's status is not
    /// written for that: else the writes of one rollout would grow with the square of the fleet.
    pub fn code_of_node(&self) -> &'static str {
        match self {
            Reason::Soaking { .. }
            | Reason::ReadinessUnknown { .. }
            | Reason::BrokenBefore { .. } => "WindowFull",
            other => other.code(),
        }
    }

    /// What must happen, or what somebody can do, so that it goes on.
    pub fn next(&self) -> &'static str {
        match self {
            Reason::Releasing => "nothing is to be done",
            Reason::ReleaseRefused { .. } => {
                "mend the cause; the release is tried again, at the latest after 30 s"
            }
            Reason::SlotReserved { .. } => "slots must become free, or maxSkew be raised again",
            Reason::WindowFull { .. } => {
                "one of those nodes must become ready: kubectl describe lynqnode tells why it is not"
            }
            Reason::Soaking { .. } => "nothing is to be done, as long as they stay ready",
            Reason::ReadinessUnknown { .. } => {
                "the operator must report on those nodes: see its log, and kubectl describe lynqnode"
            }
            Reason::BrokenBefore { .. } => {
                "repair those nodes, deactivate their rows, raise maxSkew, or set skewCounts: Released"
            }
            Reason::HubWindowFull { .. } => {
                "one of those nodes, of whatever form, must become ready, or the hub's maxSkew be raised"
            }
            Reason::BudgetSpent { .. } => {
                "correct the form: the failed nodes get it first. Or go on all the same with the annotation lynq.sh/resume on the form"
            }
            Reason::GroupNotDone { .. } => {
                "the nodes of the earlier group must run the newest content and be ready"
            }
            Reason::NotRendered => {
                "the hub must render the form for every row: see the form's condition Valid, and the hub's conditions"
            }
            Reason::Paused => {
                "set rollout.paused: false on the form, or let one node go with the annotation lynq.sh/force-rollout=true"
            }
            Reason::DeletionsHeld => {
                "confirm the hub's deletions, or mend its rows: see its condition DeletionsHeld"
            }
            Reason::Starting { .. } => "nothing is to be done",
            Reason::NoForm { .. } => "bring the form back or correct it, or delete the node",
            Reason::NoLeader { .. } => "start the operator: kubectl -n lynq-system get pods",
        }
    }

    /// What the node's own condition says: nothing that changes while its word stays.
    pub fn summary(&self) -> &'static str {
        match self {
            Reason::Releasing => "its turn has come; the release is on its way",
            Reason::ReleaseRefused { .. } => {
                "the API server did not take its release; it is tried again, and the form's condition Held has the cause"
            }
            Reason::SlotReserved { .. } => {
                "it has a slot, but maxSkew was lowered below the slots that are out; it waits until some of them are free"
            }
            Reason::WindowFull { .. }
            | Reason::Soaking { .. }
            | Reason::ReadinessUnknown { .. }
            | Reason::BrokenBefore { .. } => {
                "waits for a slot: as many nodes of its form are non-ready as maxSkew allows; the form's condition Held has their names"
            }
            Reason::HubWindowFull { .. } => {
                "waits for a slot: as many nodes of its hub are non-ready as the hub's maxSkew allows"
            }
            Reason::BudgetSpent { .. } => {
                "the rollout is halted: released nodes failed; correct the form, and they are repaired first"
            }
            Reason::GroupNotDone { .. } => {
                "its turn has not come: an earlier group of the form's order is not done"
            }
            Reason::NotRendered => {
                "the form's newest templates are not rendered for every row yet; if that lasts, see the form's condition Valid and the hub's conditions"
            }
            Reason::Paused => {
                "the rollout is paused; set paused: false on the form, or force this node"
            }
            Reason::DeletionsHeld => {
                "new nodes wait while deletions of the hub are held; see the hub's condition DeletionsHeld"
            }
            Reason::Starting { .. } => {
                "the operator has just started, and looks at every node before it releases any"
            }
            Reason::NoForm { .. } => {
                "its form is gone or cannot be read, so that nobody releases it; bring the form back or correct it, or delete this node"
            }
            Reason::NoLeader { .. } => "no operator leads, so that nothing is released",
        }
    }
}

/// The whole story, for the form and for `explain`.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::ReleaseRefused { why } => {
                write!(
                    f,
                    "the API server did not take the release: {why}; it is tried again"
                )
            }
            Reason::SlotReserved { window, slots } => write!(
                f,
                "{slots} slots are out for a window of {window} by now; it goes on when enough of them are free, or maxSkew is raised"
            ),
            Reason::WindowFull { window, holders }
            | Reason::Soaking { window, holders }
            | Reason::ReadinessUnknown { window, holders } => {
                write!(f, "the window of {window} is full: {holders}")
            }
            Reason::BrokenBefore { window, holders } => write!(
                f,
                "the window of {window} is full of nodes that were not ready before this change: {}; repair them, deactivate \
                 their rows, raise maxSkew, or set skewCounts: Released",
                holders.broken
            ),
            Reason::HubWindowFull { window, holders } => {
                write!(f, "the hub's window of {window} is full: {holders}")
            }
            Reason::BudgetSpent { failed, allowed } => write!(
                f,
                "halted: {failed} did not become ready in time (maxFailures {allowed}); correct the form, and they are repaired \
                 first. To go on all the same, annotate the form with {}=<the time now>",
                names::RESUME
            ),
            Reason::GroupNotDone { group, pending } => {
                write!(
                    f,
                    "the group {group:?} comes first, and is not done: {pending}"
                )
            }
            Reason::Starting { unlooked } => write!(
                f,
                "the operator has just started; it looks at every node before it releases any, {unlooked} are left"
            ),
            Reason::NoForm { form } => {
                write!(
                    f,
                    "its form {form:?} is gone or cannot be read, so that nobody releases it"
                )
            }
            Reason::NoLeader { since: Some(since) } => {
                write!(
                    f,
                    "no operator has led since {since}, so that nothing is released"
                )
            }
            Reason::Releasing
            | Reason::NotRendered
            | Reason::Paused
            | Reason::DeletionsHeld
            | Reason::NoLeader { since: None } => f.write_str(self.summary()),
        }
    }
}

/// Who fills a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holders {
    pub unknown: Names,
    pub not_ready: Names,
    pub soaking: Names,
    /// When the first of those has soaked.
    pub soaked_at: Option<Timestamp>,
    /// Not ready before this change.
    pub broken: Names,
}

impl fmt::Display for Holders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = vec![];
        if !self.not_ready.is_empty() {
            parts.push(format!("{} not ready", self.not_ready));
        }
        if !self.unknown.is_empty() {
            parts.push(format!("{} of unknown readiness", self.unknown));
        }
        if let Some(at) = self.soaked_at.filter(|_| !self.soaking.is_empty()) {
            let until = at.strftime("%H:%M:%S");
            parts.push(format!(
                "{} ready, and watched until {until} UTC at least",
                self.soaking
            ));
        }
        if !self.broken.is_empty() {
            parts.push(format!(
                "{} not ready since before this change",
                self.broken
            ));
        }
        f.write_str(&parts.join("; "))
    }
}

/// A few names, and how many more there are: a reason is kept for every node that waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    pub shown: Vec<String>,
    pub more: usize,
}

impl Names {
    const SHOWN_MAX: usize = 5;

    pub fn of<'a>(names: impl IntoIterator<Item = &'a String>) -> Self {
        let mut names = names.into_iter();
        let shown = names.by_ref().take(Self::SHOWN_MAX).cloned().collect();
        Names {
            shown,
            more: names.count(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.shown.is_empty()
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown.join(", "))?;
        if self.more > 0 {
            write!(f, " and {} more", self.more)?;
        }
        Ok(())
    }
}
