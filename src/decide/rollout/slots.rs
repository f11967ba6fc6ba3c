//! The slots of the ledger, one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::api::hub::Slot;
use crate::decide::rollout::{
    Confirm, Confirmation, Freed, GiveUp, Live, Node, Pass, Snapshot, put_off,
};
use crate::decide::shared::version;

impl Pass<'_> {
    /// The slots that stay. One goes only when its node is gone, or is settled as seen *after* the version that the
    /// slot names (before it, the node may be settled on what the release is about to replace), and a live read agrees.
    pub(super) fn free_slots(&mut self) -> Vec<Slot> {
        let mut kept = vec![];
        for slot in &self.snapshot.slots {
            let node = self
                .snapshot
                .nodes
                .get(&slot.node)
                .filter(|node| node.uid == slot.uid);
            let confirmation = match node {
                None if let Some(until) = made_until(self.snapshot, slot, self.now) => {
                    self.wake(Some(until));
                    kept.push(slot.clone());
                    continue;
                }
                None => Confirmation::Gone {
                    uid: slot.uid.clone(),
                },
                // The API server's storage was restored: the numbers went back, and cannot be compared.
                Some(node)
                    if version::is_newer(
                        &slot.resource_version,
                        &self.snapshot.resource_version,
                    ) =>
                {
                    kept.push(Slot {
                        resource_version: node.resource_version.clone(),
                        ..slot.clone()
                    });
                    continue;
                }
                Some(node) => {
                    if node.settled_since.is_some_and(|at| at > self.now) {
                        self.plan.outrun.push(slot.node.clone());
                    }
                    let free_at = free_at(self.snapshot, slot, node, self.now);
                    if free_at.is_none_or(|at| at > self.now) {
                        self.wake(free_at);
                        kept.push(slot.clone());
                        continue;
                    }
                    Confirmation::Ready {
                        uid: slot.uid.clone(),
                        resource_version: node.resource_version.clone(),
                    }
                }
            };
            if self.snapshot.confirmed.contains(&confirmation) {
                kept.extend(of_successor(self.snapshot, slot, &kept));
                continue;
            }
            let node = slot.node.clone();
            self.plan.confirm.push(match confirmation {
                Confirmation::Gone { uid } => Confirm::Gone { node, uid },
                Confirmation::Ready {
                    uid,
                    resource_version,
                } => Confirm::Ready {
                    node,
                    uid,
                    resource_version,
                },
            });
            kept.push(slot.clone());
        }
        kept
    }

    /// Once a ledger is written, no newer one was there: who was let go and is not in it had its slot freed. (One that was
    /// freed by a process that ended before it could say so is found here as well.)
    pub(super) fn note_freed(&mut self) {
        let Some(slots) = &self.plan.ledger else {
            return;
        };
        let uids = uids(slots);
        let unsaid = |(name, node): (&Arc<str>, &Node)| {
            let flight = node.flight.as_ref()?;
            let is_said = flight.watched || node.live == Live::Unknown;
            let unsaid = is_said && !flight.landed;
            let has_slot = uids.contains(node.uid.as_str());
            (unsaid && !has_slot).then(|| Freed {
                node: name.to_string(),
                uid: node.uid.clone(),
                release: flight.release.clone(),
            })
        };
        self.plan.freed = self.snapshot.nodes.iter().filter_map(unsaid).collect();
    }

    /// Slots that nobody has used and nobody will: their place is somebody else's. What is not ready keeps its slot, as it
    /// fills the window anyway; unless a pause forbids it to use it. What is refused keeps it for a few tries: each node that got it instead might be refused
    /// as well, with as many writes.
    pub(super) fn give_up(&mut self, slots: &[Slot]) {
        let released = self.plan.releases.iter();
        let released: BTreeSet<&String> = released.map(|release| &release.node).collect();
        for slot in slots {
            let node = self.snapshot.nodes.get(&slot.node);
            let Some(node) = node.filter(|node| node.uid == slot.uid) else {
                continue;
            };
            let unused = node.resource_version == slot.resource_version && !node.deleting;
            let refusal = self.snapshot.refused.get(&slot.node);
            let tried_again = put_off(self.snapshot, &slot.node, node, self.now).is_some()
                && refusal.is_some_and(|refusal| !refusal.lasting);
            let form = self.snapshot.forms.get(&slot.form);
            let paused = form.is_some_and(|form| form.policy.paused);
            let keeps = node.non_ready() && !paused;
            let released = released.contains(&slot.node) || self.snapshot.is_sent(&slot.node, node);
            if unused && !released && !tried_again && !keeps {
                self.plan.give_up.push(GiveUp {
                    node: slot.node.clone(),
                    resource_version: slot.resource_version.clone(),
                });
            }
        }
    }
}

/// The slots as a pass leaves them.
pub struct Ledger {
    slots: Vec<Slot>,
    /// The place of the slot of each node, by the node's uid.
    places: BTreeMap<String, usize>,
}

impl Ledger {
    pub fn new(slots: Vec<Slot>) -> Self {
        let mut places = BTreeMap::new();
        for (place, slot) in slots.iter().enumerate() {
            places.entry(slot.uid.clone()).or_insert(place);
        }
        Ledger { slots, places }
    }

    pub fn slot_of(&self, node: &Node) -> Option<&Slot> {
        Some(&self.slots[*self.places.get(&node.uid)?])
    }

    /// Whether the node's slot names a newer version of the node than this one.
    pub fn is_ahead_of(&self, node: &Node) -> bool {
        let ahead = |slot: &Slot| version::is_newer(&slot.resource_version, &node.resource_version);
        self.slot_of(node).is_some_and(ahead)
    }

    /// Puts the release's numbers into the node's slot. A slot that is there keeps its place and what it was taken for.
    pub fn take(&mut self, name: &str, node: &Node, min_ready_seconds: i32) {
        if let Some(place) = self.places.get(&node.uid) {
            let slot = &mut self.slots[*place];
            slot.hash.clone_from(&node.desired);
            slot.resource_version.clone_from(&node.resource_version);
            slot.presumed = false;
            slot.min_ready_seconds = min_ready_seconds;
            return;
        }
        self.places.insert(node.uid.clone(), self.slots.len());
        self.slots.push(Slot {
            node: name.to_owned(),
            uid: node.uid.clone(),
            form: node.form.to_string(),
            hash: node.desired.clone(),
            resource_version: node.resource_version.clone(),
            repair: node.non_ready(),
            presumed: false,
            min_ready_seconds,
        });
    }

    /// As they are written.
    pub fn into_slots(mut self) -> Vec<Slot> {
        self.slots.sort();
        self.slots
    }
}

/// The uids of the nodes that have slots.
pub fn uids(slots: &[Slot]) -> BTreeSet<&str> {
    slots.iter().map(|slot| slot.uid.as_str()).collect()
}

/// When the slot's node has settled and soaked; None while that cannot be told.
pub fn free_at(snapshot: &Snapshot, slot: &Slot, node: &Node, now: Timestamp) -> Option<Timestamp> {
    if node.deleting || !version::is_newer(&node.resource_version, &slot.resource_version) {
        return None;
    }
    // The slot was given up: nothing of the node was live after the version that a release could still have used.
    if node.is_new() {
        return Some(Timestamp::UNIX_EPOCH);
    }
    let settled_since = node.settled_since?;
    // Nothing went by it that would have to be watched: what is refused for good keeps nobody waiting.
    if !may_have_let_go(slot, node) {
        return Some(settled_since);
    }
    let form = snapshot.forms.get(&slot.form);
    let soak = form.map_or(slot.min_ready_seconds, |form| form.policy.min_ready_seconds);
    // A start to come was stamped by a clock that was ahead.
    let start = node.went().filter(|start| *start <= now);
    let from = [
        Some(settled_since),
        start,
        node.watched_since,
        node.same_since,
    ];
    let from = from.into_iter().flatten().max()?;
    from.checked_add(SignedDuration::from_secs(soak.into()))
        .ok()
}

/// Whether what is live went by the slot that the node has now.
fn may_have_let_go(slot: &Slot, node: &Node) -> bool {
    match node.flight.as_ref().filter(|flight| flight.is_live) {
        // One that is not watched has landed as soon as it is ready, and may be watched by now all the same.
        Some(flight) => !flight.landed || flight.release == slot.resource_version,
        None => !node.held(),
    }
}

/// How long a tenant may take to be made anew: what lasts, such as a row that does not render any more, keeps nobody waiting.
const MADE_WITHIN: SignedDuration = SignedDuration::from_secs(60);

/// Until when the slot of a node that is gone stays, as the rows ask for the node: until it is made anew, and what is wanted of it
/// is written, its tenant is as little ready as it was.
pub fn made_until(snapshot: &Snapshot, slot: &Slot, now: Timestamp) -> Option<Timestamp> {
    let form = snapshot.forms.get(&slot.form)?;
    let is_being_written = || form.outdated || form.unwritten.contains(slot.node.as_str());
    let waits = form.absent.contains_key(slot.node.as_str())
        || (successor(snapshot, slot).is_some() && is_being_written());
    let since = snapshot.missing.get(&slot.uid).copied().unwrap_or(now);
    let until = since.checked_add(MADE_WITHIN).ok()?;
    (waits && until > now).then_some(until)
}

/// A node that was deleted in flight, and that the hub has made anew, goes next: else each deletion of what is broken would break
/// one more tenant. `kept`: the slots that stay.
pub fn of_successor(snapshot: &Snapshot, slot: &Slot, kept: &[Slot]) -> Option<Slot> {
    let node = successor(snapshot, slot)?;
    let has_slot = |slots: &[Slot]| slots.iter().any(|slot| slot.uid == node.uid);
    let succeeds = !has_slot(&snapshot.slots) && !has_slot(kept);
    succeeds.then(|| Slot {
        uid: node.uid.clone(),
        hash: node.desired.clone(),
        resource_version: node.resource_version.clone(),
        ..slot.clone()
    })
}

fn successor<'a>(snapshot: &'a Snapshot, slot: &Slot) -> Option<&'a Node> {
    let node = snapshot.nodes.get(&slot.node)?;
    let succeeds = node.uid != slot.uid && *node.form == *slot.form;
    (succeeds && node.is_new() && !node.deleting).then_some(node)
}
