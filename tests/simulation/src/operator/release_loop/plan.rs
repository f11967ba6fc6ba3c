//! What the release loop sees, as `controller::rollout::snapshot` makes it, and the planner's plan for it, with the planted
//! bugs that are wrapped round them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lynqgate::api::hub::Slot;
use lynqgate::api::policy::Skew;
use lynqgate::decide::node::NodeDigest;
use lynqgate::decide::rollout::reason::Names;
use lynqgate::decide::rollout::{self, Confirmation, Live, Plan, Snapshot};
use lynqgate_plants::Plant;

use crate::operator::Process;
use crate::operator::release_loop::refused::LASTING;
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
        unlooked: Names::default(),
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
    if world.planted(Plant::NoReason) {
        plan.waiting
            .retain(|_, reason| reason.code() != "WindowFull");
    }
    plan
}
