//! Maintenance of a Kubernetes node under a Lease, as a pure state machine: from what was just read, and the time, to what is
//! written next. It must not read a clock, and it keeps no state: all of it is on the Kubernetes node and on the Lease.
//!
//! docs/MAINTENANCE.md has the table of the rules, with the case of each.

pub mod drain;
pub mod follow;
pub mod lease;
pub mod node;

use std::collections::BTreeSet;
use std::fmt;

use jiff::{SignedDuration, Timestamp};

use crate::api::events::EventReason;

pub use lease::{Lease, LeaseWrite, Times};
pub use node::{KubernetesNode, Request, Status};

/// A Lease lasts this much longer than its maintenance, so that lynqgate still holds it while it ends the maintenance.
pub const PADDING: SignedDuration = SignedDuration::from_secs(30);
/// The pause between two passes over the pods of a Kubernetes node that is drained.
pub const DRAIN_AGAIN: SignedDuration = SignedDuration::from_secs(5);
/// The longest pause before lynqgate checks again what a maintenance waits for.
pub const WAIT_AGAIN: SignedDuration = SignedDuration::from_secs(30);

/// The limits and names from the flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// `holderIdentity` of the Leases.
    pub holder: String,
    /// Kubernetes nodes in maintenance at a time.
    pub nodes_max: usize,
}

/// One read of everything that a step depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// None: the Kubernetes node does not exist.
    pub node: Option<KubernetesNode>,
    pub lease: Option<Lease>,
    /// The other Kubernetes nodes in maintenance. Read only if [`begins`] is true.
    pub others: Vec<String>,
    /// Forms with a full window and pods on the Kubernetes node. Read only if [`begins`] is true.
    pub full_windows: Vec<String>,
}

/// What to do, in this order. An effect that fails ends the step; the next one reads everything again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// By resourceVersion, or as a creation.
    Lease(LeaseWrite),
    /// By uid and resourceVersion, right after the Lease was read again and found as this step left it.
    Node(NodeWrite),
    /// Writes only the two annotations for people, which needs no Lease.
    Tell(Option<Status>),
    /// One pass over the pods, as long as the Lease is valid.
    Drain { until: Timestamp },
}

/// A merge patch of the Kubernetes node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeWrite {
    pub change: NodeChange,
    pub status: Status,
    /// The end of the Lease, after which the write must not be sent.
    pub until: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeChange {
    /// Only the status.
    Status,
    Cordon,
    Uncordon,
    /// Removes the request, because its window is over.
    TakeRequestOff,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub effects: Vec<Effect>,
    /// When to step again. None: when the Kubernetes node changes.
    pub again: Option<Timestamp>,
    pub reason: Reason,
}

/// Why the step does what it does: for the annotation, the events and `lynqgate drain`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    NotAsked,
    Gone,
    /// The annotation's value is no number of seconds.
    Unreadable(String),
    HeldByAnother {
        holder: String,
        until: Timestamp,
    },
    /// The Lease belongs to a deleted Kubernetes node of this name; the garbage collector deletes it.
    FormersLease,
    TooMany {
        others: Vec<String>,
        nodes_max: usize,
    },
    FullWindow {
        forms: Vec<String>,
    },
    /// A Lease was written by this rule.
    Began(Status),
    /// Records in the Lease that the Kubernetes node became schedulable, before it is cordoned.
    Remembering,
    Cordoning,
    Active {
        until: Timestamp,
    },
    WindowOver,
    Uncordoning,
    Releasing,
    /// The Lease ran out before the maintenance was ended.
    Lost,
}

/// Whether the next step may begin a maintenance, which is subject to the limits.
pub fn begins(policy: &Policy, observed: &Observed) -> bool {
    let asked = |node: &KubernetesNode| matches!(node.request, Request::Window(_));
    observed.node.as_ref().is_some_and(asked)
        && !matches!(&observed.lease, Some(lease) if lease.is_open(&policy.holder))
}

/// Answers every observation. Once its effects are carried out, the next step is another one; until then, it is the same.
pub fn step(policy: &Policy, observed: &Observed, now: Timestamp) -> Step {
    let Some(node) = observed.node.as_ref().filter(|node| !node.deleting) else {
        return rest(Reason::Gone);
    };
    let machine = Machine {
        policy,
        observed,
        node,
        now,
    };
    match &node.request {
        Request::Unreadable(value) => rest(Reason::Unreadable(value.clone())),
        Request::Window(seconds) => machine.requested(*seconds),
        Request::None => machine.not_requested(),
    }
}

fn rest(reason: Reason) -> Step {
    Step {
        effects: vec![],
        again: None,
        reason,
    }
}

struct Machine<'a> {
    policy: &'a Policy,
    observed: &'a Observed,
    node: &'a KubernetesNode,
    now: Timestamp,
}

impl Machine<'_> {
    fn requested(&self, seconds: i32) -> Step {
        let lease = self.observed.lease.as_ref();
        if let Some(why) = self.obstacle(lease) {
            return self.waiting(why);
        }
        let (write, rule) = self.renewal(lease, seconds);
        let times = match (&write, lease) {
            (Some(write), _) => write.times,
            (None, Some(lease)) => lease.times(),
            (None, None) => Times::from(self.now, seconds),
        };
        let until = times.end();
        if self.now + PADDING > until {
            return self.now(self.take_request_off(lease), Reason::WindowOver);
        }
        if let (Some(write), Some(status)) = (write, rule) {
            let said = self.node_write(NodeChange::Status, status, until);
            return self.now(vec![Effect::Lease(write), said], Reason::Began(status));
        }
        let Some(lease) = lease else {
            return rest(Reason::NotAsked);
        };
        if !self.node.unschedulable && !lease.was_schedulable {
            let write = lease.remembering(self.node);
            return self.now(vec![Effect::Lease(write)], Reason::Remembering);
        }
        if !self.node.unschedulable || !self.node.says(Status::Active) {
            let cordon = self.node_write(NodeChange::Cordon, Status::Active, until);
            return self.now(vec![cordon], Reason::Cordoning);
        }
        Step {
            effects: vec![Effect::Drain { until }],
            again: Some(until - PADDING + SignedDuration::from_millis(1)),
            reason: Reason::Active {
                until: until - PADDING,
            },
        }
    }

    /// Why the maintenance cannot begin, or go on.
    fn obstacle(&self, lease: Option<&Lease>) -> Option<Reason> {
        if let Some(lease) = lease {
            if let Some(until) = lease.held_by_another_until(&self.policy.holder, self.now) {
                let holder = lease.holder.clone();
                return Some(Reason::HeldByAnother { holder, until });
            }
            if lease.is_of_former(self.node) {
                return Some(Reason::FormersLease);
            }
        }
        if !begins(self.policy, self.observed) {
            return None;
        }
        let others = &self.observed.others;
        if others.len() >= self.policy.nodes_max {
            return Some(Reason::TooMany {
                others: others.clone(),
                nodes_max: self.policy.nodes_max,
            });
        }
        let forms = self.observed.full_windows.clone();
        (!forms.is_empty()).then_some(Reason::FullWindow { forms })
    }

    /// The Lease after the rules, and the last rule that applied. None if no rule applied.
    fn renewal(&self, lease: Option<&Lease>, seconds: i32) -> (Option<LeaseWrite>, Option<Status>) {
        let fresh = Times::from(self.now, seconds);
        let Some(lease) = lease else {
            let write = Lease::creation(&self.policy.holder, self.node, fresh);
            return (Some(write), Some(Status::Created));
        };
        let mut write = lease.renewal(&self.policy.holder, self.node);
        let mut rule = None;
        if lease.holder != self.policy.holder {
            write.transitions += 1;
            write.tenants = Some(BTreeSet::new());
            (write.times, rule) = (fresh, Some(Status::Acquired));
        } else if lease.duration_seconds == 0 {
            write.transitions += 1;
            write.tenants = Some(BTreeSet::new());
            (write.times, rule) = (fresh, Some(Status::New));
        } else if lease.duration_seconds != fresh.duration_seconds {
            write.times.duration_seconds = fresh.duration_seconds;
            write.times.renewed = self.now;
            rule = Some(Status::Updated);
        } else if self.now > lease.times().end() {
            (write.times, rule) = (fresh, Some(Status::Stale));
        }
        if self.node.says(Status::Ended) {
            (write.times, rule) = (fresh, Some(Status::Recreated));
        }
        (rule.map(|_| write), rule)
    }

    /// Removes the request first. The rules for a Kubernetes node without a request then end the maintenance.
    fn take_request_off(&self, lease: Option<&Lease>) -> Vec<Effect> {
        // An interval that was shortened into the past ends the maintenance under the Lease as it is. If that has run out,
        // only the request is taken off now; the Lease is renewed before the Kubernetes node is uncordoned.
        let until = lease.map_or(self.now, |lease| lease.times().end());
        let until = until.max(self.now + PADDING);
        vec![self.node_write(NodeChange::TakeRequestOff, Status::Ended, until)]
    }

    fn not_requested(&self) -> Step {
        let (node, holder) = (self.node, &self.policy.holder);
        let open = |lease: &&Lease| lease.is_open(holder) && !lease.is_of_former(node);
        let Some(lease) = self.observed.lease.as_ref().filter(open) else {
            // The request that waited was withdrawn.
            let effects = match node.says(Status::Waiting) {
                true => vec![Effect::Tell(None)],
                false => vec![],
            };
            return Step {
                effects,
                ..rest(Reason::NotAsked)
            };
        };
        let until = lease.times().end();
        if self.now >= until {
            let write = lease.revived(self.now);
            return self.now(vec![Effect::Lease(write)], Reason::Lost);
        }
        if node.unschedulable && lease.was_schedulable {
            let uncordon = self.node_write(NodeChange::Uncordon, Status::Ended, until);
            return self.now(vec![uncordon], Reason::Uncordoning);
        }
        if !node.says(Status::Ended) {
            let said = self.node_write(NodeChange::Status, Status::Ended, until);
            return self.now(vec![said], Reason::Uncordoning);
        }
        self.now(
            vec![Effect::Lease(lease.reset(self.now))],
            Reason::Releasing,
        )
    }

    fn waiting(&self, reason: Reason) -> Step {
        let soon = self.now + WAIT_AGAIN;
        let again = match &reason {
            Reason::HeldByAnother { until, .. } => soon.min(*until),
            Reason::FormersLease => self.now + DRAIN_AGAIN,
            _ => soon,
        };
        // The holder may be another lynqgate, which writes the progress itself.
        let told_by = self.node.told_by.as_ref();
        let holder_tells =
            matches!(&reason, Reason::HeldByAnother { holder, .. } if Some(holder) == told_by);
        let effects = match holder_tells {
            true => vec![],
            false => vec![Effect::Tell(Some(Status::Waiting))],
        };
        Step {
            effects,
            again: Some(again),
            reason,
        }
    }

    fn node_write(&self, change: NodeChange, status: Status, until: Timestamp) -> Effect {
        Effect::Node(NodeWrite {
            change,
            status,
            until,
        })
    }

    /// Steps again at once, as after every write.
    fn now(&self, effects: Vec<Effect>, reason: Reason) -> Step {
        Step {
            effects,
            again: Some(self.now),
            reason,
        }
    }
}

impl Reason {
    /// The event for this reason, if it has one.
    pub fn event(&self) -> Option<EventReason> {
        Some(match self {
            Reason::HeldByAnother { .. }
            | Reason::FormersLease
            | Reason::TooMany { .. }
            | Reason::FullWindow { .. } => EventReason::MaintenanceWaiting,
            Reason::Began(_) => EventReason::MaintenanceBegan,
            Reason::Active { .. } => EventReason::MaintenanceActive,
            Reason::Releasing => EventReason::MaintenanceEnded,
            Reason::Lost => EventReason::MaintenanceLeaseLost,
            Reason::Unreadable(_) => EventReason::MaintenanceFailed,
            Reason::NotAsked
            | Reason::Gone
            | Reason::Remembering
            | Reason::Cordoning
            | Reason::WindowOver
            | Reason::Uncordoning => return None,
        })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::NotAsked => write!(f, "nobody asks for maintenance"),
            Reason::Gone => write!(f, "the Kubernetes node is deleted"),
            Reason::Unreadable(value) => write!(
                f,
                "the annotation's value {value:?} is no number of seconds. Give a whole number from 1 to 999999999"
            ),
            Reason::HeldByAnother { holder, until } => {
                write!(f, "{holder} holds the Lease until {}", seconds(*until))
            }
            Reason::FormersLease => write!(
                f,
                "the Lease belongs to a deleted Kubernetes node of this name, and is deleted with it"
            ),
            Reason::TooMany { others, nodes_max } => write!(
                f,
                "{} of {nodes_max} Kubernetes nodes are in maintenance: {} (--max-nodes-in-maintenance {nodes_max})",
                others.len(),
                named(others)
            ),
            Reason::FullWindow { forms } => write!(
                f,
                "pods on this Kubernetes node belong to forms whose window is full: {}",
                named(forms)
            ),
            Reason::Began(status) => write!(f, "lynqgate holds the Lease ({status})"),
            Reason::Remembering | Reason::Cordoning => write!(f, "cordoned"),
            Reason::Active { until } => write!(f, "in maintenance until {}", seconds(*until)),
            Reason::WindowOver => write!(f, "the time of the maintenance is over"),
            Reason::Uncordoning | Reason::Releasing => write!(f, "the maintenance has ended"),
            Reason::Lost => write!(
                f,
                "the Lease ran out before the maintenance was ended. lynqgate takes it again and ends the maintenance"
            ),
        }
    }
}

/// Lists up to 3 names.
pub fn named(all: &[String]) -> String {
    const NAMED_MAX: usize = 3;
    let mut text = all[..all.len().min(NAMED_MAX)].join(", ");
    if all.len() > NAMED_MAX {
        text.push_str(&format!(" and {} more", all.len() - NAMED_MAX));
    }
    text
}

fn seconds(at: Timestamp) -> impl fmt::Display {
    at.strftime("%Y-%m-%dT%H:%M:%SZ")
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
