//! What the release loop sees, as `controller::rollout::snapshot` makes it, and the planner's plan for it, with the planted
//! bugs that are wrapped round them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lynqgate::api::hub::Slot;
use lynqgate::api::policy::Skew;
use lynqgate::decide::node::NodeDigest;
use lynqgate::decide::rollout::reason::Reason;
use lynqgate::decide::rollout::{self, Confirmation, Live, Plan, Release, Snapshot, Way};
use lynqgate::decide::version;
use lynqgate_plants::Plant;

use crate::operator::Process;
use crate::operator::release_loop::refused::{LASTING, NOT_SENT};
use crate::world::World;

pub fn snapshot(world: &World, process: &Process, confirmed: BTreeSet<Confirmation>) -> Snapshot {
    let hub = process.hub.as_deref();
    let forms = process.forms.values().map(|form| {
        let mut policy = form.spec.rollout.clone().unwrap_or_default();
        if world.planted(Plant::WindowPlusOne) {
            policy.max_skew = match policy.max_skew {
                Skew::Count(n) if n > 0 => Skew::Count(n + 1),
                other => other,
            };
        }
        if world.planted(Plant::IgnorePause) {
            policy.paused = false;
        }
        let known = process.rendered.get(&form.name);
        let rendered_generation = known
            .map(|r| r.generation)
            .or(form.status.observed_generation)
            .unwrap_or_default();
        let ordered = !policy.order.is_empty();
        let outdated = match known {
            None => {
                let of_form = |node: &&Arc<NodeDigest>| node.form == form.name && !node.deleting;
                let waits = || process.nodes.values().filter(of_form).any(|n| n.held());
                rendered_generation != form.generation || (ordered && waits())
            }
            Some(known) => {
                let written = known.spec.as_ref();
                (known.writing && ordered)
                    || !written.is_some_and(|written| form.spec.renders_like(written))
            }
        };
        let of_form = |node: &&Arc<NodeDigest>| node.form == form.name;
        let of_form = process.nodes.values().filter(of_form);
        let desired = known.and_then(|known| known.desired.as_ref());
        let refused = known.map(|known| known.unwritten.clone());
        let refused = refused.unwrap_or_default();
        let lack = desired.map(|desired| desired.lack(of_form.map(AsRef::as_ref), &refused));
        let lack = lack.unwrap_or_default();
        let mut unwritten = lack.unwritten;
        if world.planted(Plant::LateWriteUnseen) {
            unwritten.retain(|name| refused.contains(name));
        }
        if desired.is_none() {
            unwritten = refused;
        }
        let absent = lack.absent.into_iter();
        let absent = absent
            .filter(|_| !world.planted(Plant::AbsentUnseen))
            .map(|(name, group)| (name, policy.group_of(&BTreeMap::new(), group)))
            .collect();
        let of_form = |node: &&Arc<NodeDigest>| node.form == form.name && !node.deleting;
        let there = process.nodes.values().filter(of_form).count() as i32;
        let unwritten_before = match desired {
            Some(_) => 0,
            None => form.status.unwritten_or_gone(there),
        };
        let previous = form.status.rollout.clone();
        let (forced, resumed_at) = (form.forced, form.resumed_at);
        (
            form.name.clone(),
            rollout::Form {
                policy,
                rendered_generation,
                same_since: known.map_or(rendered_generation, |r| r.same_since),
                unwritten,
                unwritten_before,
                absent,
                outdated: outdated || unwritten_before > 0,
                forced,
                resumed_at,
                previous,
            },
        )
    });
    let forms: BTreeMap<String, rollout::Form> = forms.collect();
    let node_view = |(name, node): (&String, &Arc<NodeDigest>)| {
        (
            name.clone(),
            for_rollout(world, node, forms.get(&node.form)),
        )
    };
    let refused = process.release.refused.iter().map(|(name, failed)| {
        let refusal = rollout::Refusal {
            hash: failed.hash.clone(),
            why: failed.why.to_owned(),
            until: failed.retry_at.map(|at| process.now(at)),
            lasting: failed.times >= LASTING,
            at: process.now(failed.at),
        };
        (name.clone(), refusal)
    });
    let mut nodes: BTreeMap<String, rollout::Node> = process.nodes.iter().map(node_view).collect();
    for (name, node) in &process.nodes {
        let known = process.rendered.get(&node.form);
        let is_unsynced = known.is_none_or(|known| known.desired.is_none());
        let form = process.forms.get(&node.form);
        if is_unsynced
            && form.is_some_and(|form| node.written_from != Some(form.generation))
            && let Some(planned) = nodes.get_mut(name)
        {
            planned.unrendered = true;
        }
        if node.live != Live::Unknown || node.rendered_hash.is_none() {
            continue;
        }
        let found = process.unchanged.get(name);
        let found = found.filter(|(desired, _)| *desired == node.desired);
        let unchanged = found.map(|(_, unchanged)| *unchanged);
        if let Some(planned) = nodes.get_mut(name) {
            planned.unchanged = match world.planted(Plant::TakeOverUnseen) {
                true => Some(true),
                false => unchanged.filter(|same| *same || planned.seen),
            };
        }
    }
    Snapshot {
        resource_version: hub
            .map(|hub| hub.resource_version.clone())
            .unwrap_or_default(),
        slots: hub.map(|hub| hub.slots.clone()).unwrap_or_default(),
        hub_skew: hub.map(|hub| hub.skew).unwrap_or_default(),
        nodes,
        forms,
        confirmed,
        deletions_held: process
            .deletions_held
            .unwrap_or_else(|| hub.is_some_and(|hub| hub.deletions_held.is_some())),
        forced: hub.is_some_and(|hub| hub.forced),
        refused: refused.collect(),
        ledger_refused: None,
        ledger_lost: hub.is_some_and(|hub| !hub.has_ledger)
            && !world.planted(Plant::TakeLostForEmpty),
        missing: BTreeMap::new(),
        unlooked: BTreeSet::new(),
        maintained: BTreeMap::new(),
    }
}

fn for_rollout(world: &World, digest: &NodeDigest, form: Option<&rollout::Form>) -> rollout::Node {
    let mut node = digest.for_rollout(form.map(|form| &form.policy));
    if world.planted(Plant::OldStatus) && node.settled_since.is_none() && node.live != Live::None {
        let rolled = digest
            .status
            .conditions
            .iter()
            .find(|c| c.type_ == "Rolled" && c.status == "True");
        node.settled_since = rolled.map(|c| c.last_transition_time);
    }
    if world.planted(Plant::CountCurrent) && node.held() && node.live != Live::None {
        node.settled_since = node.settled_since.or(node.start);
    }
    node
}

/// The planner's plan, with the planted bugs that are wrapped round it.
pub fn plan(world: &World, p: usize, snapshot: &Snapshot, now: jiff::Timestamp) -> Plan {
    if world.settings.mutant.is_none() {
        return rollout::plan(snapshot, now);
    }
    let forget = world.planted(Plant::ForgetLedger) && world.processes[p].forgetful;
    let mut changed = snapshot.clone();
    if forget || world.planted(Plant::IgnoreSlots) {
        changed.slots.clear();
    }
    if world.planted(Plant::FreeNotNewer) {
        changed
            .slots
            .iter_mut()
            .for_each(|slot| slot.resource_version = "0".to_owned());
    }
    if world.planted(Plant::FreeUnheld) {
        for slot in &snapshot.slots {
            if let Some(node) = changed
                .nodes
                .get_mut(&slot.node)
                .filter(|node| !node.held())
            {
                node.settled_since = node.settled_since.or(node.start);
            }
        }
    }
    if world.planted(Plant::SlotGoesBack) {
        for slot in &mut changed.slots {
            if let Some(node) = snapshot.nodes.get(&slot.node)
                && node.uid == slot.uid
                && version::is_newer(&slot.resource_version, &node.resource_version)
            {
                slot.resource_version = node.resource_version.clone();
            }
        }
    }
    let mut plan = rollout::plan(&changed, now);
    let old = |uid: &str| snapshot.slots.iter().find(|slot| slot.uid == uid);
    if world.planted(Plant::FreeNotNewer) {
        let untouched = plan
            .ledger
            .iter_mut()
            .flatten()
            .filter(|s| s.resource_version == "0");
        for slot in untouched {
            slot.resource_version = old(&slot.uid)
                .map(|slot| slot.resource_version.clone())
                .unwrap_or_default();
        }
    }
    if world.planted(Plant::SlotGoesBack) {
        let released = |slot: &&mut Slot| plan.releases.iter().any(|r| r.node == slot.node);
        for slot in plan
            .ledger
            .iter_mut()
            .flatten()
            .filter(|slot| !released(slot))
        {
            if let Some(old) = old(&slot.uid) {
                *slot = old.clone();
            }
        }
    }
    if world.planted(Plant::IgnoreSlots)
        && let Some(ledger) = &mut plan.ledger
    {
        let more: Vec<Slot> = snapshot
            .slots
            .iter()
            .filter(|slot| !ledger.iter().any(|new| new.uid == slot.uid))
            .cloned()
            .collect();
        ledger.extend(more);
    }
    if world.planted(Plant::RepairByRewriting) {
        for slot in plan.ledger.iter_mut().flatten() {
            if let Some(node) = snapshot
                .nodes
                .get(&slot.node)
                .filter(|_| old(&slot.uid).is_some_and(|old| old.hash != slot.hash))
            {
                slot.repair = node.non_ready();
            }
        }
    }
    if world.planted(Plant::ReleaseOnRead) && plan.ledger.as_ref() == Some(&snapshot.slots) {
        plan.ledger = None;
    }
    if world.planted(Plant::RepairUncounted) {
        repair_uncounted(snapshot, &mut plan);
    }
    if world.planted(Plant::BrokenNeedsRoom) {
        let is_full = |slot: &Slot| {
            let form = snapshot.forms.get(&slot.form);
            let others = snapshot
                .slots
                .iter()
                .filter(|other| other.form == slot.form);
            let window = form.map(|form| form.policy.max_skew);
            matches!(window, Some(Skew::Count(n)) if n > 0 && others.count() > n as usize)
        };
        let has_slot = |r: &Release| snapshot.slots.iter().find(|slot| slot.node == r.node);
        plan.releases.retain(|r| !has_slot(r).is_some_and(is_full));
    }
    if world.planted(Plant::GiveUpUnmoved) {
        let unused = std::mem::take(&mut plan.give_up);
        let is_unused = |slot: &Slot| unused.iter().any(|unused| unused.node == slot.node);
        free(snapshot, &mut plan, is_unused);
    }
    if world.planted(Plant::LostReplyIsFailure) {
        let refused = &world.processes[p].release.refused;
        free(snapshot, &mut plan, |slot| {
            let failed = refused.get(&slot.node);
            failed.is_some_and(|failed| failed.why == NOT_SENT && failed.hash == slot.hash)
        });
    }
    if world.planted(Plant::NoReason) {
        plan.waiting
            .retain(|_, reason| reason.code() != "WindowFull");
    }
    plan
}

/// Takes these slots out of the ledger, unless their nodes are released right now.
fn free(snapshot: &Snapshot, plan: &mut Plan, which: impl Fn(&Slot) -> bool) {
    let slots = plan.ledger.as_ref().unwrap_or(&snapshot.slots);
    let released = |slot: &Slot| plan.releases.iter().any(|r| r.node == slot.node);
    let kept: Vec<Slot> = slots
        .iter()
        .filter(|slot| !which(slot) || released(slot))
        .cloned()
        .collect();
    if kept.len() < slots.len() {
        plan.ledger = Some(kept);
    }
}

/// Lets go whatever is not ready and waits for a full window.
fn repair_uncounted(snapshot: &Snapshot, plan: &mut Plan) {
    for (name, node) in snapshot.nodes.iter().filter(|(_, node)| node.non_ready()) {
        let full = ["WindowFull", "Soaking", "ReadinessUnknown", "BrokenBefore"];
        let waiting = plan.waiting.get(name);
        if !waiting.is_some_and(|reason| full.contains(&reason.code())) {
            continue;
        }
        let ledger = plan.ledger.get_or_insert_with(|| snapshot.slots.clone());
        if ledger.iter().any(|slot| slot.uid == node.uid) {
            continue;
        }
        ledger.push(Slot {
            node: name.clone(),
            uid: node.uid.clone(),
            form: node.form.clone(),
            hash: node.desired.clone(),
            resource_version: node.resource_version.clone(),
            repair: true,
            presumed: false,
            min_ready_seconds: 0,
        });
        plan.releases.push(Release {
            node: name.clone(),
            hash: node.desired.clone(),
            resource_version: node.resource_version.clone(),
            way: Way::Slot,
            repair: true,
            watched: false,
        });
        plan.waiting.insert(name.clone(), Reason::Releasing);
    }
}

/// The change from one ledger to another, made to a third.
pub fn same_change(from: &[Slot], to: &[Slot], third: &[Slot]) -> Vec<Slot> {
    let has = |slots: &[Slot], slot: &Slot| slots.iter().any(|other| other.uid == slot.uid);
    let new: Vec<Slot> = to
        .iter()
        .filter(|slot| !from.contains(slot))
        .cloned()
        .collect();
    let freed = |slot: &Slot| has(from, slot) && !has(to, slot);
    let left = third.iter().filter(|slot| !freed(slot) && !has(&new, slot));
    left.chain(&new).cloned().collect()
}
