//! Why a held node waits. Feeds the node's condition, the form's condition and message, events, metrics and `explain`.

mod holders;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::api::conditions::ConditionReason;
use crate::api::names;
use crate::api::policy::WINDOW_MAX;
use crate::decide::rollout::explain::next::CONFIRM;
use crate::decide::rollout::formless::Formless;
pub use holders::{Because, Holders, Names};

/// Between what holds a node and what must happen.
pub const NEXT: &str = ". Next: ";

/// Why nothing goes on, and what must happen so that it does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Advice {
    pub why: String,
    pub next: String,
}

/// For those who read no more than this.
impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{NEXT}{}", self.why, self.next)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its turn has come: the release is on its way.
    Releasing,
    /// The last try to release it did not go through.
    ReleaseRefused {
        node: String,
        why: String,
    },
    /// It, or who goes before it, gets no slot: the ledger cannot be written.
    LedgerRefused {
        why: Arc<str>,
    },
    /// It has a slot, but more slots are out than the window has by now.
    SlotReserved {
        window: usize,
        slots: usize,
        holders: Arc<Holders>,
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
    /// The window of one of its domains is full.
    DomainFull {
        /// What tells the domains apart: a label, or a variable of the rows.
        domain: String,
        value: String,
        window: usize,
        holders: Arc<Holders>,
    },
    RolloutFailed {
        form: String,
        failed: Names,
        /// Why the first of them is not ready.
        why: Option<String>,
        allowed: usize,
    },
    /// An earlier group of the order is not done.
    GroupNotDone {
        group: String,
        pending: Names,
        /// Why the first of them that is not ready is not.
        why: Option<String>,
    },
    /// An earlier group of the order is done, and somebody has to promote it.
    AwaitingPromotion {
        form: String,
        generation: i64,
        group: String,
    },
    /// The form's newest templates have not reached its nodes yet.
    NotRendered {
        form: String,
    },
    Paused {
        form: String,
    },
    /// Deletions of its hub wait, and it is one of those that are to go; or it is new, and new ones wait with them.
    DeletionsHeld {
        node: String,
        goes: bool,
    },
    /// The operator has just started, and has not checked every node yet.
    Starting {
        unlooked: Names,
    },
    /// What runs is not known: Lynq left the node, or something got past the gate. The operator checks whether its release would
    /// change anything.
    LiveContentUnknown {
        node: String,
    },
    /// The node's form is gone, another hub's, or cannot be read.
    NoForm {
        form: String,
        why: Formless,
    },
    /// No operator leads, so that nothing is released at all. Only `explain` can find that.
    NoLeader {
        /// Namespace and name of the lease that nobody renews.
        lease: String,
        since: Option<Timestamp>,
    },
}

impl Reason {
    /// One word for conditions and metric labels.
    pub fn code(&self) -> &'static str {
        self.word().as_str()
    }

    pub fn word(&self) -> ConditionReason {
        match self {
            Reason::Releasing => ConditionReason::Releasing,
            Reason::ReleaseRefused { .. } => ConditionReason::ReleaseRefused,
            Reason::LedgerRefused { .. } => ConditionReason::LedgerRefused,
            Reason::SlotReserved { .. } => ConditionReason::SlotReserved,
            Reason::WindowFull { .. } => ConditionReason::WindowFull,
            Reason::Soaking { .. } => ConditionReason::Soaking,
            Reason::ReadinessUnknown { .. } => ConditionReason::ReadinessUnknown,
            Reason::BrokenBefore { .. } => ConditionReason::BrokenBefore,
            Reason::HubWindowFull { .. } => ConditionReason::HubWindowFull,
            Reason::DomainFull { .. } => ConditionReason::DomainFull,
            Reason::RolloutFailed { .. } => ConditionReason::RolloutFailed,
            Reason::GroupNotDone { .. } => ConditionReason::GroupNotDone,
            Reason::AwaitingPromotion { .. } => ConditionReason::AwaitingPromotion,
            Reason::NotRendered { .. } => ConditionReason::NotRendered,
            Reason::Paused { .. } => ConditionReason::Paused,
            Reason::DeletionsHeld { .. } => ConditionReason::DeletionsHeld,
            Reason::Starting { .. } => ConditionReason::Starting,
            Reason::LiveContentUnknown { .. } => ConditionReason::LiveContentUnknown,
            Reason::NoForm { .. } => ConditionReason::NoForm,
            Reason::NoLeader { .. } => ConditionReason::NoLeader,
        }
    }

    /// The word in the node's own condition. Who fills the window may change with every pod, and a node's status is not
    /// written for that: else the writes of one rollout would grow with the square of the fleet.
    pub fn word_of_node(&self) -> ConditionReason {
        of_nodes(self.word())
    }

    /// A window is full of nodes that make room as soon as they are ready, as far as is known.
    pub fn awaits_room(&self) -> bool {
        matches!(
            self,
            Reason::WindowFull { .. }
                | Reason::HubWindowFull { .. }
                | Reason::DomainFull { .. }
                | Reason::Soaking { .. }
        ) && !self.is_of_broken()
    }

    /// Nothing is on its way that would make room.
    pub fn is_of_broken(&self) -> bool {
        match self {
            Reason::BrokenBefore { .. } => true,
            Reason::HubWindowFull { holders, .. } | Reason::DomainFull { holders, .. } => {
                let Holders {
                    releasing,
                    refused,
                    unknown,
                    not_ready,
                    soaking,
                    confirming,
                    broken,
                    ..
                } = holders.as_ref();
                let others = [releasing, refused, unknown, not_ready, soaking, confirming];
                !broken.is_empty() && others.into_iter().all(Names::is_empty)
            }
            _ => false,
        }
    }

    /// It lasts until somebody does something.
    pub fn needs_somebody(&self) -> bool {
        let asks = matches!(
            self,
            Reason::LedgerRefused { .. }
                | Reason::AwaitingPromotion { .. }
                | Reason::Paused { .. }
                | Reason::DeletionsHeld { .. }
                | Reason::RolloutFailed { .. }
                | Reason::NoForm { .. }
                | Reason::NoLeader { .. }
        );
        asks || self.is_of_broken()
    }

    /// What must happen, or what somebody can do, so that it goes on.
    pub fn next(&self) -> Cow<'static, str> {
        let next = match self {
            Reason::Releasing => {
                "nothing, if it is live within a minute; else the operator's log names the node"
            }
            Reason::ReleaseRefused { .. } => {
                "correct what rejects it, or wait until that allows it: lynqgate retries the release within 30 s"
            }
            Reason::LedgerRefused { .. } => {
                "correct what rejects the write, or wait until that allows it: lynqgate retries it within 30 s. To release a node that cannot \
                 wait, past its window: lynqgate release NODE"
            }
            Reason::SlotReserved { .. } => {
                "nothing: lynqgate releases the waiting nodes as slots become free; or raise rollout.maxSkew again"
            }
            Reason::WindowFull { .. } => {
                "nothing, if those nodes become ready soon (lynqgate explain node NODE); else correct the form: they get the \
                 correction first; or repair what they wait for"
            }
            Reason::Soaking { .. } => {
                "nothing, as long as they stay ready: rollout.minReadySeconds asks for that time"
            }
            Reason::ReadinessUnknown { .. } => {
                "correct what keeps the operator from reading those nodes or from writing their statuses; its log names the cause (kubectl logs \
                 -n lynq-system -l control-plane=controller-manager)"
            }
            Reason::BrokenBefore { .. } => {
                "repair what those nodes wait for (lynqgate explain node NODE), or correct the form or their rows: they get that first; or raise \
                 rollout.maxSkew, or set rollout.skewCounts: Released, which does not count such nodes"
            }
            Reason::HubWindowFull { window, .. } if *window >= WINDOW_MAX => {
                "nothing, if those nodes become ready soon (lynqgate explain node NODE); else correct their \
                 form, which may be another one: they get the correction first. The hub's ledger has room for no more slots, however large \
                 rollout.maxSkew is"
            }
            Reason::HubWindowFull { .. } => {
                "nothing, if those nodes become ready soon (lynqgate explain node NODE); else correct their \
                 form, which may be another one: they get the correction first; or raise spec.rollout.maxSkew of the hub"
            }
            Reason::DomainFull { .. } => {
                "nothing, if those nodes become ready soon (lynqgate explain node NODE); else correct the form: they get the \
                 correction first; or repair what they wait for, or raise maxSkew of that domain in rollout.domains"
            }
            Reason::RolloutFailed { form, .. } => {
                return format!(
                    "(1) correct the form, or take its change back (lynqgate undo {form}): the failed nodes get that first; or (2) repair what \
                     they wait for: the rollout continues once they stay ready; or (3) continue without them (lynqgate retry {form}), if \
                     maxSkew exceeds their number"
                )
                .into();
            }
            Reason::GroupNotDone { .. } => {
                "nothing, if those nodes become ready soon and stay so for rollout.minReadySeconds (lynqgate explain node NODE); else \
                 correct the form"
            }
            Reason::AwaitingPromotion {
                form,
                generation,
                group,
            } => {
                return format!(
                    "if the nodes of that group work as they should: lynqgate promote {form} (or kubectl annotate lynqform {form} --overwrite \
                     '{}={generation}/{group}'); if not, correct the form, or lynqgate undo {form}",
                    names::PROMOTE
                )
                .into();
            }
            Reason::NotRendered { .. } => {
                "nothing, if that ends within seconds; else see the form's condition Valid; if it is True, see the hub's conditions Ready and \
                 WriteFailed (kubectl describe lynqhub)"
            }
            Reason::Paused { form } => {
                return format!(
                    "set rollout.paused: false on the form (lynqgate resume {form}), or release one node with the annotation \
                     lynq.sh/force-rollout=true (lynqgate release NODE)"
                )
                .into();
            }
            Reason::DeletionsHeld { .. } => CONFIRM,
            Reason::Starting { .. } => {
                "nothing, if that ends within seconds; else the operator's log names the cause (kubectl logs -n lynq-system \
                 -l control-plane=controller-manager)"
            }
            Reason::LiveContentUnknown { .. } => {
                "nothing, if that ends within seconds; else run lynqgate check, and read the operator's log, which names the node"
            }
            Reason::NoForm { form, why } => return why.next(form).into(),
            Reason::NoLeader { lease, .. } => {
                return format!(
                    "find out why the operator does not run: kubectl get pods -A -l \
                     control-plane=controller-manager,app.kubernetes.io/name=lynqgate. If it runs without --leader-elect, delete Lease \
                     {lease}, which is left over"
                )
                .into();
            }
        };
        next.into()
    }

    /// The whole story, and what must happen.
    pub fn advice(&self) -> Advice {
        Advice {
            why: self.to_string(),
            next: self.next().into_owned(),
        }
    }

    /// What is told when it begins: at that moment the causes of those that fill a window are mostly that their updates have
    /// just begun.
    pub fn announcement(&self) -> Advice {
        let mut told = self.clone();
        match &mut told {
            Reason::WindowFull { holders, .. }
            | Reason::HubWindowFull { holders, .. }
            | Reason::DomainFull { holders, .. } => {
                *holders = Arc::new(Holders {
                    why: None,
                    ..Holders::clone(holders)
                });
            }
            _ => {}
        }
        told.advice()
    }

    /// What the node's own condition says: nothing that changes while its word stays.
    pub fn summary(&self) -> &'static str {
        match self {
            Reason::Releasing => "its turn has come; the release is on its way",
            Reason::ReleaseRefused { .. } => {
                "the API server rejected its release; lynqgate retries it, and the form's condition Held has the cause"
            }
            Reason::LedgerRefused { .. } => {
                "lynqgate cannot write the ledger of releases in the hub's status; it retries, and the form's condition Held has the cause"
            }
            Reason::SlotReserved { .. } => {
                "already holds a slot; waits because maxSkew was lowered and more slots are in use than it allows now"
            }
            Reason::WindowFull { .. }
            | Reason::Soaking { .. }
            | Reason::ReadinessUnknown { .. }
            | Reason::BrokenBefore { .. } => {
                "waits for a slot: as many nodes of its form are non-ready as maxSkew allows; the form's condition Held has their names"
            }
            Reason::HubWindowFull { .. } => {
                "waits for a slot: as many nodes of its hub are non-ready as the hub's maxSkew allows; the form's condition Held has their names"
            }
            Reason::DomainFull { .. } => {
                "waits for a slot: as many nodes of its domain are non-ready as rollout.domains of the form allows; the form's condition Held has their names"
            }
            Reason::RolloutFailed { .. } => {
                "the rollout is halted, because released nodes failed; the form's condition Held has their names. Correct the form: they get the \
                 correction first"
            }
            Reason::GroupNotDone { .. } => {
                "waits for an earlier group of the form's order; the form's condition Held names the group and its nodes"
            }
            Reason::AwaitingPromotion { .. } => {
                "an earlier group of the form's order is done, and the rollout pauses after it; the form's condition Held says how to promote it"
            }
            Reason::NotRendered { .. } => {
                "the form's newest templates have not reached every node yet; if that lasts, see the form's condition Valid and the hub's conditions"
            }
            Reason::Paused { .. } => {
                "the rollout is paused; set paused: false on the form, or force this node"
            }
            Reason::DeletionsHeld { goes: true, .. } => {
                "no active row requires it any more, and lynqgate holds deletions of its hub; see the hub's condition DeletionsHeld"
            }
            Reason::DeletionsHeld { goes: false, .. } => {
                "new nodes wait while lynqgate holds deletions of their hub; see the hub's condition DeletionsHeld"
            }
            Reason::Starting { .. } => {
                "the operator has just started and checks every node before it releases any; the form's condition Held names some that are left"
            }
            Reason::LiveContentUnknown { .. } => {
                "lynqgate does not know what runs, because Lynq made the node or somebody wrote it past the webhooks; it compares the objects \
                 with what the node asks for, and changes none meanwhile"
            }
            Reason::NoForm { why, .. } => why.summary(),
            Reason::NoLeader { .. } => {
                "no operator leads, so nothing is rendered, applied or released"
            }
        }
    }
}

fn of_nodes(word: ConditionReason) -> ConditionReason {
    match word {
        ConditionReason::Soaking
        | ConditionReason::ReadinessUnknown
        | ConditionReason::BrokenBefore => ConditionReason::WindowFull,
        other => other,
    }
}

/// The word in the conditions of the nodes that wait for this reason.
pub fn word_of_nodes(reason: &str) -> &str {
    ConditionReason::named(reason).map_or(reason, |word| of_nodes(word).as_str())
}

/// The word and the whole story.
impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut told = serializer.serialize_struct("Reason", 2)?;
        told.serialize_field("reason", self.code())?;
        told.serialize_field("why", &self.to_string())?;
        told.end()
    }
}

/// The whole story, for the form and for `explain`.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::ReleaseRefused { node, why } => {
                write!(f, "the API server rejected the release of {node}: {why}")
            }
            Reason::LedgerRefused { why } => write!(
                f,
                "lynqgate cannot write the ledger of releases in the hub's status: {why}"
            ),
            Reason::SlotReserved {
                window,
                slots,
                holders,
            } => write!(
                f,
                "already holds a slot; waits because maxSkew is now {window} and {slots} slots are in use; {holders}"
            ),
            Reason::WindowFull { window, holders }
            | Reason::Soaking { window, holders }
            | Reason::ReadinessUnknown { window, holders } => {
                write!(f, "the window of {window} is full; {holders}")
            }
            Reason::BrokenBefore { window, holders } => write!(
                f,
                "the window of {window} is full of nodes that were already not ready before this change: {}",
                Because(&holders.broken, holders.why.as_deref())
            ),
            Reason::HubWindowFull { window, holders } => {
                write!(f, "the hub's window of {window} is full; {holders}")
            }
            Reason::DomainFull {
                domain,
                value,
                window,
                holders,
            } => write!(
                f,
                "the window of {window} for nodes with {domain} {value:?} is full; {holders}"
            ),
            Reason::RolloutFailed {
                failed,
                why,
                allowed,
                ..
            } => write!(
                f,
                "halted (maxFailures {allowed}): not ready in time: {}",
                Because(failed, why.as_deref())
            ),
            Reason::GroupNotDone {
                group,
                pending,
                why,
            } => {
                write!(
                    f,
                    "the group {group:?} comes first and is not done: {}",
                    Because(pending, why.as_deref())
                )
            }
            Reason::Starting { unlooked } => write!(
                f,
                "the operator has just started and checks every node before it releases any; not checked yet: {unlooked}"
            ),
            Reason::LiveContentUnknown { node } => write!(
                f,
                "lynqgate does not know what {node} runs, because Lynq made it or somebody wrote it past the webhooks; it compares the \
                 objects with what the node asks for, and changes none meanwhile"
            ),
            Reason::NoForm { form, why } => {
                write!(f, "lynqgate releases no node of form {form:?}, which {why}")
            }
            Reason::NoLeader {
                lease,
                since: Some(since),
            } => write!(
                f,
                "no operator has led since {since} (lease {lease}), so nothing is rendered, applied or released"
            ),
            Reason::NoLeader { lease, since: None } => write!(
                f,
                "no operator leads (lease {lease}), so nothing is rendered, applied or released"
            ),
            Reason::AwaitingPromotion { group, .. } => write!(
                f,
                "the group {group:?} is done, and rollout.order pauses after it"
            ),
            Reason::NotRendered { form } => {
                write!(
                    f,
                    "the newest templates of form {form:?} have not reached every node yet"
                )
            }
            Reason::Paused { form } => write!(
                f,
                "the rollout of form {form:?} is paused: lynqgate releases none of its nodes, not even broken ones"
            ),
            Reason::DeletionsHeld { node, goes: true } => write!(
                f,
                "no active row requires {node} any more, and lynqgate holds deletions of its hub"
            ),
            Reason::DeletionsHeld { node, goes: false } => write!(
                f,
                "{node} is new, and lynqgate makes no new nodes live while it holds deletions of their hub"
            ),
            Reason::Releasing => f.write_str(self.summary()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_awaited_from_those_that_are_on_their_way() {
        let full_of = |holders: Holders| Reason::HubWindowFull {
            window: 1,
            holders: Arc::new(holders),
        };
        let node = || Names::of(["node"]);
        let updated = || Holders {
            not_ready: node(),
            ..Holders::default()
        };
        let broken = Holders {
            broken: node(),
            ..Holders::default()
        };
        let form = || "web".to_owned();
        let soaking = Reason::Soaking {
            window: 1,
            holders: Arc::new(updated()),
        };
        for (reason, awaits_room) in [
            (full_of(updated()), true),
            (soaking, true),
            (full_of(broken), false),
            (Reason::Paused { form: form() }, false),
            (Reason::NotRendered { form: form() }, false),
            (Reason::Releasing, false),
        ] {
            assert_eq!(reason.awaits_room(), awaits_room, "{reason}");
        }
    }
}
