//! Which nodes spend the failure budget of their form, and until when each has to be ready.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use crate::api::form::Phase;
use crate::api::hub::Slot;
use crate::decide::rollout::index::{Index, Named};
use crate::decide::rollout::{Flight, Form, Node, Snapshot, order};

/// The nodes that spend the failure budget.
#[derive(Clone, Debug, Default)]
pub struct Failed {
    pub names: Vec<String>,
    /// How many of them run the newest content. The others still run what failed, because the hub has not written a correction to them
    /// yet.
    current: usize,
    /// Slots past their deadlines: of these nodes, of the repairs, and of what was forgiven.
    pub late_slots: usize,
    /// Those of them that spend no budget.
    pub uncounted: Uncounted,
    /// What broke while it had no slot any more.
    pub adrift: Adrift,
    /// How many of them halt the rollout.
    pub allowed: usize,
    /// When this is to be looked at again.
    pub next_at: Option<Timestamp>,
    /// When the first node in flight would fail.
    pub deadline: Option<Timestamp>,
}

/// Nodes that run the newest content without a slot, and are not ready.
#[derive(Clone, Copy, Debug, Default)]
pub struct Adrift {
    pub all: usize,
    /// Those that were not ready for longer than a node in flight may be.
    pub late: usize,
}

/// Slots past their deadlines that are no failures.
#[derive(Clone, Copy, Debug, Default)]
pub struct Uncounted {
    /// Their nodes were not ready before their releases.
    pub repairs: usize,
    pub deleting: usize,
    /// Somebody resumed the rollout since.
    pub forgiven: usize,
}

impl Uncounted {
    fn add(&mut self, slot: &Slot, node: &Node) {
        let why = match () {
            () if node.deleting => &mut self.deleting,
            () if slot.repair => &mut self.repairs,
            () => &mut self.forgiven,
        };
        *why += 1;
    }
}

impl Failed {
    /// Why what is past its deadline is no failure: how many for each reason that applies.
    pub fn why_uncounted(&self) -> String {
        let Uncounted {
            repairs,
            deleting,
            forgiven,
        } = self.uncounted;
        let reasons = [
            (repairs, "not ready before this change"),
            (deleting, "being deleted"),
            (forgiven, "forgiven by lynq.sh/resume"),
            (
                self.adrift.late,
                "live without a slot (no window applied, or it was free again)",
            ),
        ];
        let said = reasons.iter().filter(|(count, _)| *count > 0);
        let said = said.map(|(count, why)| format!("{count} {why}"));
        Vec::from_iter(said).join(", ")
    }

    /// What is past its deadline.
    pub fn late(&self) -> usize {
        self.late_slots + self.adrift.late
    }

    pub fn spent(&self) -> bool {
        self.names.len() >= self.allowed
    }

    /// Whether the newest content has failed.
    pub fn is_of_newest(&self) -> bool {
        self.current >= self.allowed
    }

    /// Why the first of them is not ready, or counts as failed all the same.
    pub fn why(&self, form: &Form, snapshot: &Snapshot) -> Option<String> {
        order::why(form, snapshot.nodes.get(self.names.first()?)?)
    }

    /// What has no end wakes nobody.
    fn wake_if(&mut self, at: Timestamp, now: Timestamp) {
        if at > now && at < Timestamp::MAX {
            self.wake(at);
        }
    }

    fn wake(&mut self, at: Timestamp) {
        self.next_at = Some(self.next_at.map_or(at, |other| other.min(at)));
    }
}

/// A failure is a slot that is no repair, whose node is live on the slot's hash, not held, and not settled at its
/// deadline: new content takes a node out of the count, and editing maxSkew does not. Once the rollout is halted, what gets
/// ready later counts for as long as it is watched: else what comes and goes would end the halt each time that it comes. Being
/// halted takes nothing out of the count, so that it cannot end because it began.
pub fn failed_nodes(
    form_name: &str,
    form: &Form,
    snapshot: &Snapshot,
    (index, slot_uids): (&Index, &BTreeSet<&str>),
    now: Timestamp,
) -> Failed {
    let total = index.nodes_of(form_name).len();
    let allowed = form
        .policy
        .max_failures
        .map_or(1, |skew| skew.of(total).max(1));
    let mut failed = Failed {
        allowed,
        ..Failed::default()
    };
    for slot in snapshot.slots.iter().filter(|slot| slot.form == form_name) {
        let Some(deadline) = deadline(form, slot, snapshot) else {
            continue;
        };
        if deadline > now {
            failed.wake(deadline);
            if may_fail(form, slot, &snapshot.nodes[&slot.node], now) {
                failed.deadline = failed.deadline.into_iter().chain([deadline]).min();
            }
            continue;
        }
        // Nobody here has seen whether it is still so.
        if snapshot.unlooked.contains(slot.node.as_str()) && !is_halted(form) {
            continue;
        }
        if let Some(until) = excused_until(form, &slot.node, snapshot, deadline) {
            failed.wake_if(until, now);
            if until > now {
                continue;
            }
        }
        let node = &snapshot.nodes[&slot.node];
        let is_late = node.non_ready() || node.deleting;
        failed.late_slots += usize::from(is_late);
        // What cannot go for a finalizer's sake says nothing of the content.
        if may_fail(form, slot, node, now) && !node.deleting {
            failed.names.push(slot.node.clone());
            failed.current += usize::from(!form.unwritten.contains(slot.node.as_str()));
            // Written ahead of its time, by a clock that is before ours.
            if let Some(at) = form.resumed_at.filter(|at| *at > now) {
                failed.wake(at);
            }
        } else if is_late {
            failed.uncounted.add(slot, node);
        }
    }
    for Named {
        name,
        node,
        held,
        non_ready,
        ..
    } in index.nodes_of(form_name).iter().copied()
    {
        if held || !non_ready || slot_uids.contains(node.uid.as_str()) {
            continue;
        }
        failed.adrift.all += 1;
        let since = node.start.max(node.unready_since);
        let late_at = since.and_then(|since| since.checked_add(limit(form)).ok());
        let excused = |at| Some(at).max(excused_until(form, name, snapshot, at));
        match late_at.and_then(excused) {
            Some(at) if at > now => failed.wake_if(at, now),
            Some(_) => failed.adrift.late += usize::from(!snapshot.unlooked.contains(&**name)),
            None => {}
        }
    }
    failed
}

/// Until when the slot's node has to be ready; None where it is, and where the slot is not for what is live. What was ready, and
/// breaks while it is still watched, has as long once more; but not for longer than it would be watched. In a rollout that is
/// halted nothing has: there it is past its deadline also when it got ready after that.
fn deadline(form: &Form, slot: &Slot, snapshot: &Snapshot) -> Option<Timestamp> {
    let node = snapshot.nodes.get(&slot.node)?;
    // A slot that is for other content, and was not used, is still the one by which what is live went.
    let by_slot = |flight: &Flight| flight.is_live && !flight.landed;
    let is_of_slot = node.desired == slot.hash || node.flight.as_ref().is_some_and(by_slot);
    let in_flight = node.uid == slot.uid && !node.held() && is_of_slot;
    let first = due(form, node.went()?).filter(|_| in_flight)?;
    let soak = SignedDuration::from_secs(form.policy.min_ready_seconds.into());
    let watched = node.watched_since.map_or(first, |since| since.max(first));
    let last = watched.checked_add(soak).ok()?;
    let halted = is_halted(form);
    match (node.settled_since, node.broke_at) {
        (Some(since), _) if !node.deleting => (halted && since > first).then_some(first),
        // Ready until it was told to go: not late before its watch would have ended.
        (Some(_), None) if !halted => Some(last),
        (_, Some(broke)) if !halted => {
            let seen = node.same_since.unwrap_or(broke);
            let again = broke.max(seen).checked_add(limit(form)).ok()?;
            Some(again.min(last).max(first))
        }
        _ => Some(first),
    }
}

/// A node whose pods are evicted for maintenance is late for that reason, and not for its content: until the maintenance is over,
/// and then for as long as a node may take to become ready. What was late before the maintenance began is no less late for it.
fn excused_until(
    form: &Form,
    node: &str,
    snapshot: &Snapshot,
    deadline: Timestamp,
) -> Option<Timestamp> {
    let maintained = snapshot.maintained.get(node)?;
    let after = |ended: Timestamp| ended.checked_add(limit(form)).unwrap_or(Timestamp::MAX);
    let until = maintained.ended.map_or(Timestamp::MAX, after);
    (deadline > maintained.began).then_some(until)
}

fn limit(form: &Form) -> SignedDuration {
    SignedDuration::from_secs(form.policy.progress_deadline_seconds.into())
}

/// When it was to be ready at first.
fn due(form: &Form, start: Timestamp) -> Option<Timestamp> {
    start.checked_add(limit(form)).ok()
}

/// As it was last told.
fn is_halted(form: &Form) -> bool {
    let before = form.previous.as_ref();
    before.is_some_and(|before| before.phase == Phase::Failed)
}

/// A repair never counts as a failure, nor does what somebody has forgiven: whatever was to be ready by then.
fn may_fail(form: &Form, slot: &Slot, node: &Node, now: Timestamp) -> bool {
    let due = node.start.and_then(|start| due(form, start));
    let forgiven = |at| at <= now && due.is_some_and(|due| due <= at);
    !slot.repair && !form.resumed_at.is_some_and(forgiven)
}
