//! The release planner: which held nodes go next, which slots of the ledger are taken and freed, and why the rest waits.
//!
//! One pass looks at one hub with its forms and nodes. The rule, for a window of W nodes, with S the nodes that have a
//! slot and R the non-ready ones: a held node n may go iff `|S \ {n}| < W` and (n is in R, or `|S ∪ R ∪ {n}| <= W`).
//! The second half keeps the fleet's health; its first arm lets a fix reach what is broken already, which costs nothing.
//!
//! Safety rests on the ledger, not on who is leader or how old a cache is: a release carries the resourceVersion that
//! its slot names, and is sent only after the planner's own successful compare-and-swap of the ledger wrote that slot.

pub mod reason;
pub mod status;
mod window;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use crate::api::form::FormRolloutStatus;
use crate::api::hub::Slot;
use crate::api::policy::{Creation, Rollout, Skew};
use crate::decide::version;
use reason::{Names, Reason};
use window::Windows;

/// Everything that one pass looks at.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The hub's resourceVersion: the ledger below is that version's.
    pub resource_version: String,
    pub slots: Vec<Slot>,
    /// The hub's own window over all of its forms.
    pub hub_skew: Skew,
    pub forms: BTreeMap<String, Form>,
    /// By node name.
    pub nodes: BTreeMap<String, Node>,
    /// What live reads confirmed since the last pass: slots that may be freed.
    pub confirmed: BTreeSet<Confirmation>,
    /// The hub's deletions are held back, so nothing new is made live either.
    pub deletions_held: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Form {
    pub policy: Rollout,
    /// The generation that every row's node has been rendered from.
    pub rendered_generation: i64,
    /// The form's templates are newer than what its nodes were last written from: what is held is not what is wanted.
    pub outdated: bool,
    /// The status as it was last written, for its times.
    pub previous: Option<FormRolloutStatus>,
}

/// What is known of a node's live content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Live {
    None,
    Unknown,
    Hash(String),
}

#[derive(Clone, Debug)]
pub struct Node {
    pub uid: String,
    pub resource_version: String,
    pub form: String,
    pub desired: String,
    pub live: Live,
    /// When the live content last changed.
    pub start: Option<Timestamp>,
    /// Since when every resource of the live content is ready; None while it is not so.
    pub settled_since: Option<Timestamp>,
    pub deleting: bool,
}

impl Node {
    pub fn held(&self) -> bool {
        !matches!(&self.live, Live::Hash(hash) if *hash == self.desired)
    }

    /// Has live content that is not settled.
    pub fn non_ready(&self) -> bool {
        self.live != Live::None && self.settled_since.is_none() && !self.deleting
    }
}

/// A live read that supports freeing a slot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confirmation {
    /// No node of this uid exists.
    Gone { uid: String },
    /// The workloads of the node were ready at or after this version of it.
    Ready {
        uid: String,
        resource_version: String,
    },
}

/// One node to let go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    pub node: String,
    pub hash: String,
    pub resource_version: String,
    /// Through a slot of the ledger, or because no window applies.
    pub gated: bool,
}

/// A slot that looks free; a live read must confirm it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Confirm {
    Gone {
        node: String,
        uid: String,
    },
    Ready {
        node: String,
        uid: String,
        resource_version: String,
    },
}

/// What to do, in this order: write the ledger (if there is one to write; on a conflict stop and plan again), send the
/// releases, make the live reads, write the statuses, and look again at `wake_at` or when something changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The ledger to write by compare-and-swap on the snapshot's resourceVersion.
    pub ledger: Option<Vec<Slot>>,
    pub releases: Vec<Release>,
    pub confirm: Vec<Confirm>,
    pub waiting: BTreeMap<String, Reason>,
    pub forms: BTreeMap<String, status::FormState>,
    pub wake_at: Option<Timestamp>,
}

pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let failed = snapshot.forms.iter().map(|(name, form)| {
        (
            name.as_str(),
            status::failed_nodes(name, form, snapshot, now),
        )
    });
    let mut pass = Pass {
        snapshot,
        now,
        failed: failed.collect(),
        plan: Plan::default(),
    };
    let kept = pass.free_slots();
    let slots = pass.release(kept);
    if slots != snapshot.slots || pass.plan.releases.iter().any(|release| release.gated) {
        pass.plan.ledger = Some(slots.clone());
    }
    for (name, form) in &snapshot.forms {
        let state = status::of_form(
            name,
            form,
            snapshot,
            &slots,
            &pass.failed[name.as_str()],
            &pass.plan.waiting,
            now,
        );
        pass.wake(state.wake_at);
        pass.plan.forms.insert(name.clone(), state);
    }
    pass.plan
}

struct Pass<'a> {
    snapshot: &'a Snapshot,
    now: Timestamp,
    /// By form.
    failed: BTreeMap<&'a str, status::Failed>,
    plan: Plan,
}

impl Pass<'_> {
    fn wake(&mut self, at: Option<Timestamp>) {
        self.plan.wake_at = [self.plan.wake_at, at].into_iter().flatten().min();
    }

    /// The slots that stay. One goes only when its node is gone, or is settled as seen *after* the version that the
    /// slot names (before it, the node may be settled on what the release is about to replace), and a live read agrees.
    fn free_slots(&mut self) -> Vec<Slot> {
        let mut kept = vec![];
        for slot in &self.snapshot.slots {
            let node = self
                .snapshot
                .nodes
                .get(&slot.node)
                .filter(|node| node.uid == slot.uid);
            let confirmation = match node {
                None => Confirmation::Gone {
                    uid: slot.uid.clone(),
                },
                Some(node) => {
                    let free_at = self.free_at(slot, node);
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

    /// When the node has settled and soaked; None while that cannot be told.
    fn free_at(&self, slot: &Slot, node: &Node) -> Option<Timestamp> {
        let settled_since = node.settled_since?;
        if node.deleting || !version::is_newer(&node.resource_version, &slot.resource_version) {
            return None;
        }
        let soak = self
            .snapshot
            .forms
            .get(&slot.form)
            .map_or(0, |form| form.policy.min_ready_seconds);
        let from = node
            .start
            .map_or(settled_since, |start| start.max(settled_since));
        from.checked_add(SignedDuration::from_secs(soak.into()))
            .ok()
    }

    /// Releases what may go; returns the ledger as it must stand before that.
    fn release(&mut self, mut slots: Vec<Slot>) -> Vec<Slot> {
        let snapshot = self.snapshot;
        let mut windows = Windows::new(snapshot, &slots);
        for name in candidates(snapshot) {
            let node = &snapshot.nodes[name];
            let form = &snapshot.forms[&node.form];
            let gated = windows.apply_to(node, &form.policy);
            let verdict = self
                .stopped(node, form)
                .map_or_else(|| if gated { windows.admit(node) } else { Ok(()) }, Err);
            if let Err(reason) = verdict {
                self.plan.waiting.insert(name.to_owned(), reason);
                continue;
            }
            self.plan.releases.push(Release {
                node: name.to_owned(),
                hash: node.desired.clone(),
                resource_version: node.resource_version.clone(),
                gated,
            });
            self.plan.waiting.insert(name.to_owned(), Reason::Releasing);
            if gated {
                windows.take(name, node);
                take_slot(&mut slots, name, node);
            }
        }
        slots.sort();
        slots
    }

    /// What stops a node whatever the window says.
    fn stopped(&self, node: &Node, form: &Form) -> Option<Reason> {
        // The policy is the newest form's. Applied to content of an older one, it would let go what was held on
        // purpose, or what the newest form has just corrected; and a part of the nodes would go before the others are
        // known to wait, whatever the order says.
        if form.outdated {
            return Some(Reason::NotRendered);
        }
        if form.policy.paused {
            return Some(Reason::Paused);
        }
        if self.snapshot.deletions_held && node.live == Live::None {
            return Some(Reason::DeletionsHeld);
        }
        let failed = &self.failed[node.form.as_str()];
        // Repairs go on: they cost nothing, and they are what ends the halt.
        let halted = failed.spent() && !node.non_ready();
        halted.then(|| Reason::BudgetSpent {
            failed: Names::of(&failed.names),
            allowed: failed.allowed,
        })
    }
}

/// The held nodes: non-ready ones first, for a fix must reach them before anything else, then by name.
fn candidates(snapshot: &Snapshot) -> Vec<&str> {
    let known = |node: &Node| snapshot.forms.contains_key(&node.form);
    let mut held: Vec<(&str, &Node)> = snapshot
        .nodes
        .iter()
        .filter(|(_, node)| node.held() && !node.deleting && known(node))
        .map(|(name, node)| (name.as_str(), node))
        .collect();
    held.sort_by_cached_key(|(name, node)| (!node.non_ready(), natural(name)));
    held.into_iter().map(|(name, _)| name).collect()
}

/// Puts the release's numbers into the node's slot. A slot that is there keeps its place and what it was taken for.
fn take_slot(slots: &mut Vec<Slot>, name: &str, node: &Node) {
    if let Some(slot) = slots.iter_mut().find(|slot| slot.uid == node.uid) {
        slot.hash.clone_from(&node.desired);
        slot.resource_version.clone_from(&node.resource_version);
        return;
    }
    slots.push(Slot {
        node: name.to_owned(),
        uid: node.uid.clone(),
        form: node.form.clone(),
        hash: node.desired.clone(),
        resource_version: node.resource_version.clone(),
        repair: node.non_ready(),
    });
}

/// Whether content of this form may go live without a slot, decided when it is written: no window applies to it.
pub fn is_ungated(policy: &Rollout, hub_skew: Skew, creation: bool) -> bool {
    let unlimited = |skew: Skew| skew == Skew::Count(0);
    let free = (unlimited(policy.max_skew) && unlimited(hub_skew))
        || (creation && policy.creation == Creation::Immediate);
    free && !policy.paused
}

/// A key by which `web-9` comes before `web-10`: texts with their numbers as numbers.
fn natural(name: &str) -> Vec<(String, u64)> {
    let mut parts = vec![(String::new(), 0u64)];
    let mut in_number = false;
    for c in name.chars() {
        if let Some(digit) = c.to_digit(10) {
            let last = parts.last_mut().expect("never empty");
            last.1 = last.1.saturating_mul(10).saturating_add(digit.into());
            in_number = true;
        } else {
            if in_number {
                parts.push((String::new(), 0));
                in_number = false;
            }
            parts.last_mut().expect("never empty").0.push(c);
        }
    }
    parts
}

#[cfg(test)]
mod tests;
