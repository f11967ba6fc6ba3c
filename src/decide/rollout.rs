//! The release planner: which held nodes go next, which slots of the ledger are taken and freed, and why the rest waits.
//!
//! One pass looks at one hub with its forms and nodes. The rule, for a window of W nodes, with S the nodes that have a
//! slot and R the non-ready ones: a held node n may go iff `|S \ {n}| < W` and (n is in R, or `|S ∪ R ∪ {n}| <= W`).
//! The second half keeps the fleet's health; its first arm lets a fix reach what is broken already, which costs nothing.
//!
//! Safety rests on the ledger, not on who is leader or how old a cache is: a release carries the resourceVersion that
//! its slot names, and is sent only after the planner's own successful compare-and-swap of the ledger wrote that slot.

pub mod explain;
pub mod failure;
pub mod formless;
pub mod history;
pub mod index;
pub mod not_reached;
pub mod order;
pub mod overview;
mod pace;
pub mod reason;
pub mod replay;
mod slots;
mod snapshot;
mod stalled;
pub mod status;
pub mod steer;
mod window;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Not;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;

use crate::api::hub::Slot;
use crate::api::names;
use crate::api::policy::{Creation, Rollout, Skew};
use crate::decide::gate::marker::ReleaseMarker;
use formless::Formless;
use index::{Index, Named};
use order::{Candidate, Turns, candidates};
use reason::{Names, Reason};
use slots::{Ledger, free_at, uids};
pub use snapshot::{
    Confirmation, Flight, Form, Live, Maintained, NamedNode, Node, Nodes, RefusedRelease, Snapshot,
};
use window::Windows;

/// One node to let go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Release {
    pub node: String,
    pub hash: String,
    pub resource_version: String,
    pub way: Way,
    /// As its slot says.
    #[serde(skip_serializing_if = "Not::not")]
    pub repair: bool,
    /// Its slot will be kept for some time after the node is ready.
    #[serde(skip_serializing_if = "Not::not")]
    pub watched: bool,
}

impl Release {
    /// The annotation that asks the gate for it.
    pub fn marker(&self) -> (&'static str, String) {
        match self.way {
            Way::Slot => {
                let marker = ReleaseMarker {
                    hash: self.hash.clone(),
                    resource_version: self.resource_version.clone(),
                    repair: self.repair,
                    watched: self.watched,
                };
                (names::RELEASE, marker.to_string())
            }
            Way::Ungated | Way::Forced | Way::TakenOver => {
                let marker = format!("{}/{}", self.hash, self.resource_version);
                (names::UNGATED, marker)
            }
        }
    }
}

/// What lets a node go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// A slot of the ledger.
    Slot,
    /// No window applies to it.
    Ungated,
    /// Its form or hub is forced.
    Forced,
    /// It changes nothing: what Lynq left is as it should be.
    TakenOver,
}

impl Way {
    pub const ALL: [Way; 4] = [Way::Slot, Way::Ungated, Way::Forced, Way::TakenOver];

    /// The label of metrics and events.
    pub fn code(self) -> &'static str {
        match self {
            Way::Slot => "slot",
            Way::Ungated => "ungated",
            Way::Forced => "forced",
            Way::TakenOver => "taken_over",
        }
    }
}

/// A node that was watched until its slot was freed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Freed {
    pub node: String,
    pub uid: String,
    /// The version that its release carried.
    pub release: String,
}

/// A node whose slot was not used and is to be given up. Its version must move first, so that no late release can use the
/// slot; once it has, the slot is freed like any other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GiveUp {
    pub node: String,
    pub resource_version: String,
}

/// A slot that looks free; a live read must confirm it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
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

/// What to do: write the ledger (if there is one to write; on a conflict stop and plan again); then send the releases, begin the
/// live reads, and write the statuses. Plan again when there is a reply, at `wake_at`, or when something changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The ledger to write by compare-and-swap on the snapshot's resourceVersion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger: Option<Vec<Slot>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub releases: Vec<Release>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub confirm: Vec<Confirm>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub give_up: Vec<GiveUp>,
    /// Nodes whose watched slots this ledger does not have any more, once it is written: their statuses are to say so.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub freed: Vec<Freed>,
    /// Nodes in flight that are settled since a time to come: a clock was ahead, and their statuses are to be written anew.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outrun: Vec<String>,
    /// Nodes that are to be read: somebody has seen a newer version of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub behind: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub waiting: BTreeMap<Arc<str>, Arc<Reason>>,
    /// Nodes that were not ready by their deadlines.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub failed: BTreeSet<String>,
    pub forms: BTreeMap<String, status::FormState>,
    /// The hub's window over all of its forms; None where there is none, and while the hub is forced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hub_window: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake_at: Option<Timestamp>,
}

pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    if snapshot.ledger_lost {
        return plan_anew(snapshot, now);
    }
    let index = Index::new(snapshot);
    let slot_uids = uids(&snapshot.slots);
    let failed = snapshot.forms.iter().map(|(name, form)| {
        let failed = failure::failed_nodes(name, form, snapshot, (&index, &slot_uids), now);
        (name.as_str(), failed)
    });
    let failed: BTreeMap<&str, failure::Failed> = failed.collect();
    let halted = failed.iter().filter(|(_, failed)| failed.spent());
    let halted = halted.map(|(name, failed)| {
        let reason = Reason::RolloutFailed {
            form: (*name).to_owned(),
            failed: Names::of(&failed.names),
            why: failed.why(&snapshot.forms[*name], snapshot),
            allowed: failed.allowed,
        };
        (*name, reason)
    });
    let mut pass = Pass {
        snapshot,
        now,
        halted: halted.collect(),
        failed,
        unlooked: Names::of(&snapshot.unlooked),
        ledger_refused: snapshot.ledger_refused.as_deref().map(Arc::from),
        full: BTreeMap::new(),
        waiting: vec![None; snapshot.nodes.len()],
        last: Arc::new(Reason::Releasing),
        plan: Plan::default(),
    };
    let kept = pass.free_slots();
    let mut windows = Windows::new(snapshot, &index, &kept, now);
    pass.wake(window::silent_at(snapshot, &kept, now));
    let candidates = candidates(snapshot, &index);
    let turns = Turns::new(snapshot, &index, &uids(&kept));
    let slots = pass.release(&candidates, &turns, Ledger::new(kept.clone()), &mut windows);
    let by_slot = |release: &Release| release.way == Way::Slot;
    if slots != snapshot.slots || pass.plan.releases.iter().any(by_slot) {
        pass.plan.ledger = Some(slots.clone());
    }
    pass.give_up(&slots);
    pass.note_freed();
    pass.note_formless(&index);
    pass.plan.hub_window = windows.hub_width().filter(|_| !snapshot.forced);
    let fleet = status::Fleet::of(&index, &slots, &pass.failed);
    let mut reasons: Vec<Vec<(&str, &Reason)>> = vec![vec![]; snapshot.forms.len()];
    for Candidate {
        named, form_place, ..
    } in candidates
    {
        let reason = pass.waiting[named.place].as_deref();
        reasons[form_place].extend(reason.map(|reason| (&**named.name, reason)));
    }
    let states = snapshot.forms.iter().zip(&reasons);
    let states = states.map(|((name, form), reasons)| {
        let seen = status::FormStatusInputs {
            snapshot,
            index: &index,
            slots: &slots,
            failed: &pass.failed[name.as_str()],
            fleet: &fleet,
            reasons,
            window: windows.width(name),
            hub_window: windows.hub_width(),
        };
        (name.clone(), status::of_form(name, form, &seen, now))
    });
    let states: BTreeMap<String, status::FormState> = states.collect();
    for state in states.values() {
        pass.wake(state.wake_at);
    }
    pass.plan.forms = states;
    let failed = pass.failed.values().flat_map(|failed| &failed.names);
    pass.plan.failed = failed.cloned().collect();
    let waiting = snapshot.nodes.keys().zip(pass.waiting);
    let waiting = waiting.filter_map(|(name, reason)| Some((name.clone(), reason?)));
    pass.plan.waiting = waiting.collect();
    pass.plan
}

/// The forms whose own window, or whose hub's, has no place for one more node that is not ready.
pub fn full_windows(snapshot: &Snapshot, now: Timestamp) -> BTreeSet<String> {
    let index = Index::new(snapshot);
    let full = Windows::new(snapshot, &index, &snapshot.slots, now).full();
    let forced = |name: &String| snapshot.forms.get(name).is_none_or(|form| form.forced);
    let in_force = full
        .into_iter()
        .filter(|name| !snapshot.forced && !forced(name));
    in_force.collect()
}

/// A hub without a ledger is new, or has lost it. It gets one before anything is built on it, with what the nodes tell of their
/// slots. Whose slot was freed has none now, whatever became of it since.
fn plan_anew(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let slot = |(name, node): (&Arc<str>, &Node)| {
        let flight = node.flight.as_ref()?;
        let form = snapshot.forms.get(&*node.form);
        let slot = Slot {
            node: name.to_string(),
            uid: node.uid.clone(),
            form: node.form.to_string(),
            hash: flight.hash.clone(),
            resource_version: flight.release.clone(),
            repair: flight.repair,
            presumed: true,
            min_ready_seconds: form.map_or(0, |form| form.policy.min_ready_seconds),
        };
        (flight.is_live && !flight.landed).then_some(slot)
    };
    let found = Snapshot {
        slots: snapshot.nodes.iter().filter_map(slot).collect(),
        ledger_lost: false,
        ..snapshot.clone()
    };
    let mut plan = plan(&found, now);
    plan.ledger.get_or_insert(found.slots);
    plan
}

struct Pass<'a> {
    snapshot: &'a Snapshot,
    now: Timestamp,
    /// By form.
    failed: BTreeMap<&'a str, failure::Failed>,
    /// Why the forms wait whose failure budget is spent.
    halted: BTreeMap<&'a str, Reason>,
    unlooked: Names,
    /// Why the ledger is refused, shared by all who wait for that.
    ledger_refused: Option<Arc<str>>,
    /// Who is kept by a full window, and by what fills it, whatever is told; in forms with an order.
    full: BTreeMap<&'a str, Reason>,
    /// By the places of the nodes.
    waiting: Vec<Option<Arc<Reason>>>,
    /// What was noted last: most nodes of a form wait for the same.
    last: Arc<Reason>,
    plan: Plan,
}

impl<'a> Pass<'a> {
    fn wake(&mut self, at: Option<Timestamp>) {
        self.plan.wake_at = [self.plan.wake_at, at].into_iter().flatten().min();
    }

    fn note(&mut self, named: Named, reason: Reason) {
        if *self.last != reason {
            self.last = Arc::new(reason);
        }
        self.waiting[named.place] = Some(self.last.clone());
    }

    /// Releases what may go; returns the ledger as it must be before that.
    fn release(
        &mut self,
        candidates: &[Candidate<'a>],
        turns: &Turns,
        mut ledger: Ledger,
        windows: &mut Windows<'a>,
    ) -> Vec<Slot> {
        for candidate in candidates {
            let reason = self.release_one(*candidate, Some(turns), &mut ledger, windows);
            self.note(candidate.named, reason);
        }
        let stuck = turns.stuck(&self.full);
        for candidate in candidates.iter().filter(|_| !stuck.is_empty()) {
            let named = candidate.named;
            let waiting = &self.waiting[named.place];
            let waits = matches!(waiting.as_deref(), Some(Reason::GroupNotDone { .. }));
            if waits && named.non_ready && stuck.contains(&*named.node.form) {
                let reason = self.release_one(*candidate, None, &mut ledger, windows);
                self.note(named, reason);
            }
        }
        ledger.into_slots()
    }

    /// Releases it, or not; returns why it waits. Without `turns` the order of its form does not stop it.
    fn release_one(
        &mut self,
        Candidate { named, form, .. }: Candidate<'a>,
        turns: Option<&Turns>,
        slots: &mut Ledger,
        windows: &mut Windows<'a>,
    ) -> Reason {
        let snapshot = self.snapshot;
        let Named { name, node, .. } = named;
        let way = if snapshot.forced || form.forced {
            Way::Forced
        } else if node.unchanged == Some(true) {
            Way::TakenOver
        } else if windows.apply_to(node, &form.policy) {
            Way::Slot
        } else {
            Way::Ungated
        };
        let has_slot = slots.slot_of(node).is_some();
        let mut stopped = self.stopped(named, form, way);
        let ledger_refused = self.ledger_refused.clone().filter(|_| way == Way::Slot);
        let ledger = || {
            let why = ledger_refused.clone()?;
            Some(Reason::LedgerRefused { why })
        };
        let refusal = snapshot.refused.get(&**name);
        let refusal = refusal.filter(|refusal| refusal.hash == node.desired);
        let refused = |refusal: &RefusedRelease| Reason::ReleaseRefused {
            node: name.to_string(),
            why: refusal.why.clone(),
        };
        let turn = || turns.filter(|_| way == Way::Slot)?.stop(node, has_slot);
        stopped = stopped.or_else(turn);
        // What halts or pauses its form comes first: no confirmed deletion ends that.
        let first = |reason: &Reason| {
            reason.needs_somebody() || matches!(reason, Reason::NotRendered { .. })
        };
        if snapshot.deletions_held && node.is_new() && !stopped.as_ref().is_some_and(first) {
            stopped = Some(Reason::DeletionsHeld {
                node: name.to_string(),
                goes: node.unwanted,
            });
        }
        if way == Way::Slot
            && stopped.is_none()
            && let Err(full) = windows.admit(node, &form.policy)
        {
            let lasting = refusal.filter(|refusal| refusal.still_tells(self.now));
            self.wake(lasting.and_then(RefusedRelease::told_until));
            if !form.policy.order.is_empty() {
                self.full.insert(name, full.clone());
            }
            stopped = lasting.map(refused).or_else(ledger).or(Some(full));
        }
        if let Some(reason) = stopped {
            return reason;
        }
        // A conflict is no refusal, as long as the next try or the one after it goes through.
        let told = refusal.filter(|refusal| refusal.until.is_some() || refusal.lasting);
        let refused = told.map(refused);
        if let Some(until) = put_off(snapshot, name, node, self.now)
            && let Some(reason) = refused
        {
            self.wake(Some(until));
            return reason;
        }
        if snapshot.is_sent(name, node) {
            return refused.or_else(ledger).unwrap_or(Reason::Releasing);
        }
        // Somebody has seen a newer version of it: a release from this one would fail, and the slot, written back to
        // it, could be freed on what the node was before the release that the newer one names.
        if way == Way::Slot && slots.is_ahead_of(node) {
            self.plan.behind.push(name.to_string());
            return Reason::Releasing;
        }
        let slot = slots.slot_of(node);
        self.plan.releases.push(Release {
            repair: way == Way::Slot && slot.map_or(node.non_ready(), |slot| slot.repair),
            watched: form.policy.min_ready_seconds > 0,
            node: name.to_string(),
            hash: node.desired.clone(),
            resource_version: node.resource_version.clone(),
            way,
        });
        if way == Way::Slot {
            windows.take(name, node);
            slots.take(name, node, form.policy.min_ready_seconds);
        }
        refused.or_else(ledger).unwrap_or(Reason::Releasing)
    }

    /// Nobody releases a node whose form the hub does not have, or whose form cannot be read.
    fn note_formless(&mut self, index: &Index) {
        let snapshot = self.snapshot;
        let forms = index.forms();
        for form in forms.filter(|form| !snapshot.forms.contains_key(*form)) {
            // What came or went while the snapshot was made the next pass sees.
            let why = snapshot.formless.get(form).cloned();
            let reason = Reason::NoForm {
                form: form.to_owned(),
                why: why.unwrap_or(Formless::Deleted),
            };
            for named in index.nodes_of(form).iter().filter(|named| named.held) {
                self.note(*named, reason.clone());
            }
        }
    }

    /// What stops a node whatever the window says.
    fn stopped(&self, named: Named, form: &Form, way: Way) -> Option<Reason> {
        let (name, node) = (named.name, named.node);
        let of = || node.form.to_string();
        // The policy is the newest form's. Applied to content of an older one, it would let go what was held on
        // purpose, or what the newest form has just corrected; and a part of the nodes would go before the others are
        // known to wait, whatever the order says.
        if form.outdated || named.unwritten || node.unrendered {
            return Some(match self.snapshot.deletions_held && node.unwanted {
                true => Reason::DeletionsHeld {
                    node: name.to_string(),
                    goes: true,
                },
                false => Reason::NotRendered { form: of() },
            });
        }
        // Whatever lets it go: until that is known, nobody knows which objects the node has.
        let unknown = node.unchanged.is_none().then(|| {
            let node = name.to_string();
            Reason::LiveContentUnknown { node }
        });
        if way == Way::Forced {
            return unknown;
        }
        if form.policy.paused {
            return Some(Reason::Paused { form: of() });
        }
        if way == Way::Slot && !self.snapshot.unlooked.is_empty() {
            return Some(Reason::Starting {
                unlooked: self.unlooked.clone(),
            });
        }
        if unknown.is_some() {
            return unknown;
        }
        // Repairs go on: they cost nothing, and they are what ends the halt. And the budget is that of the window.
        let may_halt = way == Way::Slot && !node.non_ready();
        let halted = self.halted.get(&*node.form);
        halted.filter(|_| may_halt).cloned()
    }
}

/// Until when a release of this content is not tried again, since the last one was refused.
fn put_off(snapshot: &Snapshot, name: &str, node: &Node, now: Timestamp) -> Option<Timestamp> {
    let refusal = snapshot.refused.get(name)?;
    let same = refusal.hash == node.desired;
    refusal.until.filter(|until| same && *until > now)
}

/// Whether content of this form may go live without a slot, decided when it is written: no window applies to it.
pub fn is_ungated(policy: &Rollout, hub_skew: Skew, creation: bool) -> bool {
    let unlimited = |skew: Skew| skew == Skew::Count(0);
    let free = (unlimited(policy.max_skew) && unlimited(hub_skew))
        || (creation && policy.creation == Creation::Immediate);
    free && !policy.paused && policy.order.is_empty() && policy.domains.is_empty()
}

#[cfg(test)]
mod tests;
