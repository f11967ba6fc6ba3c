//! Why a held node waits. Feeds the node's condition, the form's message, events, metrics and `explain`.

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its turn has come: the release is on its way.
    Releasing,
    WindowFull {
        window: usize,
        by: Names,
    },
    HubWindowFull {
        window: usize,
        by: Names,
    },
    BudgetSpent {
        failed: Names,
        allowed: usize,
    },
    /// The form's newest templates have not reached its nodes yet.
    NotRendered,
    Paused,
    DeletionsHeld,
}

impl Reason {
    /// One word for conditions and metric labels.
    pub fn code(&self) -> &'static str {
        match self {
            Reason::Releasing => "Releasing",
            Reason::WindowFull { .. } => "WindowFull",
            Reason::HubWindowFull { .. } => "HubWindowFull",
            Reason::BudgetSpent { .. } => "BudgetSpent",
            Reason::NotRendered => "NotRendered",
            Reason::Paused => "Paused",
            Reason::DeletionsHeld => "DeletionsHeld",
        }
    }

    /// What the node's own condition says: nothing that changes while the reason stays, else the status writes of one
    /// rollout would grow with the square of the fleet.
    pub fn summary(&self) -> &'static str {
        match self {
            Reason::Releasing => "its turn has come; the release is on its way",
            Reason::WindowFull { .. } => {
                "waits for a slot: as many nodes of its form are non-ready as maxSkew allows"
            }
            Reason::HubWindowFull { .. } => {
                "waits for a slot: as many nodes of its hub are non-ready as the hub's maxSkew allows"
            }
            Reason::BudgetSpent { .. } => {
                "the rollout is halted: released nodes failed; correct the form, and they are repaired first"
            }
            Reason::NotRendered => {
                "the form's newest templates have not been rendered for every row yet; if it stays so, see the form's condition Valid and the hub's conditions"
            }
            Reason::Paused => {
                "the rollout is paused; set paused: false on the form, or force this node"
            }
            Reason::DeletionsHeld => {
                "new nodes wait while deletions of the hub are held; see the hub's condition DeletionsHeld"
            }
        }
    }
}

/// The whole story, for the form's status and for `explain`.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::WindowFull { window, by } => {
                write!(f, "the window of {window} is full: {} not ready", by)
            }
            Reason::HubWindowFull { window, by } => {
                write!(f, "the hub's window of {window} is full: {} not ready", by)
            }
            Reason::BudgetSpent { failed, allowed } => write!(
                f,
                "halted: {} did not become ready in time (maxFailures {allowed}); correct the form, and they are repaired first",
                failed
            ),
            Reason::Releasing | Reason::NotRendered | Reason::Paused | Reason::DeletionsHeld => {
                f.write_str(self.summary())
            }
        }
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
