//! The release loop: carries out the planner's plan for one hub, and writes the statuses that follow from it.

pub mod confirm;
mod looks;
mod refused;
mod report;
mod requests;
mod revisions;
pub mod snapshot;
mod under_way;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join4;
use serde_json::{Value, json};

use crate::api::conditions;
use crate::api::events::EventReason;
use crate::api::hub::Slot;
use crate::cluster::catalog::{Form, Hub};
use crate::cluster::clock::{self, Instant};
use crate::cluster::events::About;
use crate::cluster::nodes::{HubKey, NodesOfHub};
use crate::cluster::objects::ApiError;
use crate::cluster::process;
use crate::controller::rollout::refused::Refused;
use crate::controller::rollout::snapshot::View;
use crate::controller::rollout::under_way::UnderWay;
use crate::controller::{Rendered, Said, World, panic_text};
use crate::decide::child::NodeKey;
use crate::decide::child::ObjectKey;
use crate::decide::node::digest::NodeDigest;
use crate::decide::node::plan::status::Hold;
use crate::decide::rollout::reason::Reason;
use crate::decide::rollout::{self, Confirmation, Freed, Live, Plan, Release, Snapshot, Way};
use crate::decide::shared::backoff::Backoff;

/// What the loop remembers of a hub between two passes.
#[derive(Default)]
pub struct RolloutMemory {
    written: report::Written,
    /// Every node has been looked at by this process.
    surveyed: bool,
    interrupted: Option<refused::Interrupted>,
    under_way: UnderWay,
    /// The nodes with slots, by uid.
    watched: BTreeMap<String, looks::Watched>,
    /// Since when nodes with slots are gone, by uid.
    missing: BTreeMap<String, looks::Moment>,
    /// Nodes whose last release did not go through.
    refused: BTreeMap<String, Refused>,
    views: snapshot::Views,
    /// Events do not make a pass due before this.
    rests_until: Option<Instant>,
}

/// How long the release loop of a hub with so many nodes rests after a pass; the next one handles all changes that
/// arrive meanwhile. The rest grows with the square of the nodes: 8 ms for 1,000, 800 ms for 10,000. So small fleets hardly wait,
/// and the loop does not plan a large fleet again for each node that the hub writes. The time that a pass took would be the wrong
/// measure: on a busy processor most of it belongs to others. Where somebody waits for a pass, there is
/// [no rest](World::hurry) before it.
fn rest_after(nodes: usize) -> Duration {
    const OF_THOUSAND: Duration = Duration::from_millis(8);
    const LONGEST: Duration = Duration::from_secs(2);
    let thousands = nodes as f64 / 1_000.0;
    OF_THOUSAND.mul_f64(thousands.powi(2)).min(LONGEST)
}

/// Below this number of nodes, a pass computes on its own worker: a plan takes about a millisecond. On a busy machine, a rollout of 1,000
/// nodes was slower when each pass handed its worker's other tasks to another thread (docs/BENCHMARKS.md, "A rollout").
const LARGE_HUB: usize = 2_000;

fn compute_over<T>(nodes: usize, work: impl FnOnce() -> T) -> T {
    match nodes < LARGE_HUB {
        true => work(),
        false => process::compute(work),
    }
}

/// Requests of one sort that a hub's release loop may have under way.
const REQUESTS_MAX: usize = 16;

/// By namespace and name of the form.
type RenderedForms = BTreeMap<(String, String), Rendered>;

pub async fn reconcile(world: Arc<World>, key: HubKey) -> Option<Duration> {
    let hurries = world.hurried.lock().remove(&key);
    if !world.leads(&key) {
        // Another replica may take the hub over once nothing of it is under way here.
        let memory = world.rollout_memory.lock().remove(&key);
        if let Some(mut memory) = memory {
            memory.under_way.end().await;
        }
        world.forget_rollout(&key);
        return None;
    }
    let memory = world.rollout_memory.lock().remove(&key).unwrap_or_default();
    let rest = memory.rests_until.map(|until| until - clock::instant());
    if let Some(rest) = rest.filter(|rest| !rest.is_zero() && !hurries) {
        world.rollout_memory.lock().insert(key, memory);
        return Some(rest);
    }
    let mut reconciler = RolloutReconciler {
        world: &world,
        key: key.clone(),
        memory,
    };
    let mut written = std::mem::take(&mut reconciler.memory.written);
    let looked = reconciler.go(&mut written).await;
    reconciler.memory.written = written;
    let failed = |error: &ApiError| !matches!(error, ApiError::Conflict(_) | ApiError::NotFound(_));
    let good = !looked.as_ref().is_err_and(failed);
    world.metrics.reconciled("lynqform", good);
    let again = match looked {
        Ok(again) => again,
        Err(ApiError::NotFound(_)) if world.hubs.get(&key.0, &key.1).is_none() => None,
        Err(ApiError::Conflict(_)) => Some(Backoff::CONFLICT.first),
        Err(error) => Some(reconciler.interrupted(&error)),
    };
    let memory = reconciler.memory;
    if world.hubs.get(&key.0, &key.1).is_none() {
        world.recordings.forget(&key);
        return again;
    }
    world.rollout_memory.lock().insert(key, memory);
    again
}

/// A pass of a hub's release loop panicked. Its memory is lost, as with a restart; nothing of the hub is released while it rests.
pub async fn panicked(world: Arc<World>, key: HubKey, rest: Duration) {
    world.metrics.panicked("lynqform");
    let why = panic_text(rest);
    tracing::error!(hub = ?key, "the release loop panicked: {why}");
    if let Some(hub) = world.hubs.get(&key.0, &key.1) {
        let about = About::new("LynqHub", &hub.namespace, &hub.name, &hub.uid);
        let text = format!("nothing of this hub is released: {why}");
        world
            .events
            .tell(&about, EventReason::ReleasesInterrupted, text);
    }
}

/// One pass: what was seen, and what the planner made of it.
struct Pass<'a> {
    said: &'a Arc<Said>,
    snapshot: &'a Snapshot,
    plan: &'a Plan,
    hub: &'a Hub,
    forms: &'a [Arc<Form>],
}

impl Pass<'_> {
    fn frees_slots_of(&self, form: &Form) -> bool {
        let stays = |slot: &Slot| {
            let mut left = self.plan.ledger.iter().flatten();
            left.any(|new| new.uid == slot.uid)
        };
        let mut slots = self.snapshot.slots.iter();
        slots.any(|slot| slot.form == form.name && !stays(slot))
    }
}

struct RolloutReconciler<'a> {
    world: &'a Arc<World>,
    key: HubKey,
    memory: RolloutMemory,
}

impl RolloutReconciler<'_> {
    /// One pass. It does not wait for the replies to its releases and live reads: each of them makes another pass due.
    async fn go(&mut self, written: &mut report::Written) -> Result<Option<Duration>, ApiError> {
        let mut confirmed = self.settle();
        confirmed.extend(self.world.confirmed.take(&self.key));
        // First what was said, then what is decided on: whatever changes between the two is noticed.
        let said = Arc::new(self.world.said(&self.key));
        let hub = self.world.hubs.get(&self.key.0, &self.key.1);
        // Without the hub's spec its window is not known, so nothing is released.
        let releases = |hub: &Arc<Hub>| !hub.deleting && hub.spec.is_ok();
        let lost = |hub: &Arc<Hub>| releases(hub) && hub.status.rollout.is_none();
        let listed = match hub.as_ref().is_some_and(lost) {
            true => {
                self.memory.under_way.end().await;
                Some(self.read_nodes().await?)
            }
            false => None,
        };
        let nodes = (self.world.nodes).with_hub(&self.key, |nodes| nodes.len());
        let (mut snapshot, forms) =
            compute_over(nodes, || self.snapshot(hub.as_deref(), confirmed));
        if let Some(listed) = listed {
            snapshot
                .nodes
                .retain(|_, node| listed.contains_key(&node.uid));
            // A list of the watch's own, older than this one, has ended meanwhile: it goes for what it does not have.
            let there: BTreeSet<&String> = snapshot.nodes.values().map(|n| &n.uid).collect();
            let is_hidden =
                |(uid, hub): (&String, &String)| *hub == self.key.1 && !there.contains(uid);
            if listed.iter().any(is_hidden) {
                return Ok(Some(Backoff::RELEASE.first));
            }
        }
        self.forget_refused(&snapshot);
        let recording = self.world.recordings.keep(&self.key, snapshot);
        let (snapshot, now) = (&recording.snapshot, recording.now);
        let plan = compute_over(nodes, || self.world.decisions.releases(snapshot, now));
        let plan = self.remember_plan(plan);
        self.memory.rests_until = Some(clock::instant() + rest_after(snapshot.nodes.len()));
        if plan.ledger.is_none() && plan.confirm.is_empty() {
            self.memory.interrupted = None;
        }
        for name in &plan.outrun {
            self.world
                .node_queue
                .add(NodeKey::new(self.key.0.as_str(), name.as_str()));
        }
        let Some(hub) = hub.filter(releases) else {
            return Ok(self.write_forms(&forms, &plan, written).await);
        };
        let pass = Pass {
            said: &said,
            snapshot,
            plan: &plan,
            hub: &hub,
            forms: &forms,
        };
        let again = self.carry_out(&pass, written).await?;
        let wake = plan
            .wake_at
            .map(|at| Duration::try_from(at.duration_since(clock::now())).unwrap_or_default());
        Ok(again.into_iter().chain(wake).min())
    }

    /// First the ledger, then the releases that stand in it, and the statuses beside those: a busy rollout must not look as if it
    /// stood still. Returns when to come back, for a status that was written a moment ago or refused.
    async fn carry_out(
        &mut self,
        pass: &Pass<'_>,
        written: &mut report::Written,
    ) -> Result<Option<Duration>, ApiError> {
        let backs_off = self.backs_off();
        let mut interrupted = None;
        let mut freed: &[Freed] = &[];
        if let Some(slots) = &pass.plan.ledger
            && backs_off.is_none()
        {
            match self.write_ledger(pass.snapshot, slots).await {
                Ok(()) => {
                    self.memory.interrupted = None;
                    self.note_settled(pass.snapshot, slots);
                    freed = &pass.plan.freed;
                }
                Err(ApiError::Conflict(_)) => {
                    // Somebody else has written it. Nothing was released: somebody may wait for the next pass.
                    self.world.metrics.ledger_conflict();
                    let key = ObjectKey::own("LynqHub", &self.key.0, &self.key.1);
                    self.world.hubs.learn(&self.world.objects.get(&key).await?);
                    self.memory.rests_until = None;
                    return Ok(Some(Duration::ZERO));
                }
                Err(error) => interrupted = Some(error),
            }
        }
        let has_ledger = interrupted.is_none() && backs_off.is_none();
        // While the ledger cannot be written, they would free nothing.
        if has_ledger {
            self.read(&pass.plan.confirm);
        }
        let may_go = |release: &&Release| has_ledger || release.way != Way::Slot;
        let releases = pass.plan.releases.iter().filter(may_go);
        self.release(releases, pass.said);
        // What a failed write was to free has its slot still: its form is not what the plan makes of it.
        let may_tell = |form: &&Arc<Form>| has_ledger || !pass.frees_slots_of(form);
        let told: Vec<Arc<Form>> = pass.forms.iter().filter(may_tell).cloned().collect();
        self.world
            .metrics
            .hub_window(&self.key, pass.plan.hub_window);
        let ((), behind, (), again) = join4(
            self.give_up(&pass.plan.give_up),
            self.read_behind(&pass.plan.behind),
            self.say_freed(freed),
            self.write_statuses(pass, &told, written),
        )
        .await;
        match interrupted {
            Some(error) => Err(error),
            None => Ok([again, behind, backs_off].into_iter().flatten().min()),
        }
    }

    /// Without a ledger nothing but the nodes tells what is in flight, and what the watch has shown of them may be old. Whose
    /// one is its spec says; the label anybody may change. Returns the uids of all there are, and their hubs.
    async fn read_nodes(&self) -> Result<BTreeMap<String, String>, ApiError> {
        let world = self.world;
        let asked = world.nodes.asked();
        let kind = ObjectKey::own("LynqNode", "", "").kind;
        let mut listed = BTreeMap::new();
        let learn = |node: Value| {
            let node = world.nodes.learn_new(&node, asked);
            listed.insert(node.uid.clone(), node.hub.clone());
        };
        world.objects.list(&kind, &self.key.0, learn).await?;
        Ok(listed)
    }

    /// The forms, their nodes, and what they were rendered to, are of one moment: no sync begins or ends meanwhile.
    fn seen(&mut self, hub: Option<&Hub>) -> (Snapshot, Vec<Arc<Form>>, RenderedForms) {
        let world = self.world;
        let all_rendered = world.rendered.lock();
        let of_form = |form: &Arc<Form>| {
            let key = (form.namespace.clone(), form.name.clone());
            Some((key.clone(), all_rendered.get(&key)?.clone()))
        };
        let forms = world.forms_of(&self.key);
        let rendered = forms.iter().filter_map(of_form).collect();
        let named = |name: &str| world.forms.get(&self.key.0, name);
        let seen = snapshot::SnapshotInputs {
            hub,
            forms: &forms,
            named: &named,
            rendered: &rendered,
        };
        let views = &mut self.memory.views;
        let of_nodes = |nodes: NodesOfHub| snapshot::of(&seen, nodes, views);
        let snapshot = world.nodes.with_hub(&self.key, of_nodes);
        (snapshot, forms, rendered)
    }

    fn snapshot(
        &mut self,
        hub: Option<&Hub>,
        confirmed: BTreeSet<Confirmation>,
    ) -> (Snapshot, Vec<Arc<Form>>) {
        let (snapshot, forms, rendered) = self.seen(hub);
        let mut snapshot = Snapshot {
            confirmed,
            unlooked: self.unlooked(),
            deletions_held: self.deletions_held(hub),
            sent: self.memory.under_way.sent.clone(),
            refused: self.refused(),
            ledger_refused: self.ledger_refused(),
            maintained: self.world.maintained_of(&self.key),
            ..snapshot
        };
        for before in &forms {
            let known = rendered.get(&(self.key.0.clone(), before.name.clone()));
            // Until its first sync only what was told before says how many nodes there should be, and only a node itself which
            // version of the form it has: whoever told may have seen older ones.
            if known.is_none_or(|known| known.desired.is_none())
                && let Some(form) = snapshot.forms.get_mut(&before.name)
            {
                let is_older = |node: &&Arc<NodeDigest>| {
                    node.form == before.name && node.written_from != Some(before.generation)
                };
                let nodes = self.memory.views.nodes().iter();
                let nodes = nodes.map(|view| &view.digest);
                for node in nodes.clone().filter(is_older) {
                    if let Some(node) = snapshot.nodes.get_mut(&node.key.name) {
                        node.unrendered = true;
                    }
                }
                let is_there = |n: &&Arc<NodeDigest>| n.form == before.name && !n.deleting;
                let there = nodes.filter(is_there).count();
                let there = i32::try_from(there).unwrap_or(i32::MAX);
                form.unwritten_before = before.status.unwritten_or_gone(there);
                form.outdated |= form.unwritten_before > 0;
            }
        }
        let unchanged = self.world.unchanged.lock();
        let views = self.memory.views.nodes().iter();
        for View { digest: node, .. } in views.filter(|view| view.is_unknown) {
            let found = unchanged.get(&node.key);
            let found = found.filter(|(desired, _)| *desired == node.desired);
            if let Some(planned) = snapshot.nodes.get_mut(&node.key.name) {
                let unchanged = found.map(|(_, unchanged)| *unchanged);
                // A change takes its turn by whether the node is ready, which only a status tells that speaks of it.
                planned.unchanged = unchanged.filter(|same| *same || planned.seen);
            }
        }
        drop(unchanged);
        self.believe_looks(&mut snapshot);
        (snapshot, forms)
    }

    /// What the last sync found; after a restart, until there was one, what the one before it found.
    fn deletions_held(&self, hub: Option<&Hub>) -> bool {
        let held = self.world.deletions_held.lock();
        held.get(&self.key).copied().unwrap_or_else(|| {
            hub.is_some_and(|hub| conditions::is_true(&hub.status.conditions, "DeletionsHeld"))
        })
    }

    /// Compare-and-swap of the slots, and of nothing else.
    async fn write_ledger(&self, snapshot: &Snapshot, slots: &[Slot]) -> Result<(), ApiError> {
        let patch = json!({"metadata": {"resourceVersion": snapshot.resource_version}, "status": {"rollout": {"slots": slots}}});
        let written = self
            .world
            .objects
            .merge_status(&ObjectKey::own("LynqHub", &self.key.0, &self.key.1), &patch)
            .await?;
        self.world.hubs.learn(&written);
        // A definition without the field answers 200 and drops it; without slots nothing may be released.
        let stored = written["status"]["rollout"]["slots"].clone();
        let stored: Vec<Slot> = serde_json::from_value(stored).unwrap_or_default();
        if stored != slots {
            let text = "the API server did not store the ledger: see /readyz, and install lynqgate's CustomResourceDefinitions";
            return Err(ApiError::Refused(text.to_owned()));
        }
        Ok(())
    }

    /// How long the nodes took whose slots were freed.
    fn note_settled(&self, snapshot: &Snapshot, slots: &[Slot]) {
        let freed = snapshot
            .slots
            .iter()
            .filter(|old| !slots.iter().any(|slot| slot.uid == old.uid));
        for slot in freed {
            let node = snapshot.nodes.get(&slot.node);
            // Its slot may have been given up.
            let settled = |n: &&rollout::Node| {
                n.uid == slot.uid && matches!(&n.live, Live::Hash(live) if *live == slot.hash)
            };
            let node = node.filter(settled);
            if let Some((start, settled)) = node.and_then(|n| n.start.zip(n.settled_since))
                && self.world.forms.get(&self.key.0, &slot.form).is_some()
            {
                let took = settled.duration_since(start);
                (self.world.metrics).settled(&self.key, &slot.form, took);
            }
        }
    }

    /// The node loop shows in the nodes' statuses why they wait.
    fn remember_plan(&self, plan: Plan) -> Arc<Plan> {
        let plan = Arc::new(plan);
        let mut plans = self.world.plans.lock();
        let before = match plan.waiting.is_empty() {
            true => plans.remove(&self.key),
            false => plans.insert(self.key.clone(), plan.clone()),
        };
        drop(plans);
        let before = before.unwrap_or_default();
        // Both are in the order of names, and most nodes of a form wait for the same.
        let mut before = before.waiting.iter().peekable();
        let mut last: Option<(&Reason, &Reason, bool)> = None;
        for (name, reason) in &plan.waiting {
            while before.next_if(|(other, _)| *other < name).is_some() {}
            let before = before.next_if(|(other, _)| *other == name);
            let is_news = before.is_none_or(|(_, before)| {
                let known = last.filter(|known| (known.0, known.1) == (before, reason));
                let is_news =
                    known.map_or_else(|| Hold::of(before) != Hold::of(reason), |known| known.2);
                last = Some((before, reason, is_news));
                is_news
            });
            if is_news && **reason != Reason::Releasing {
                self.world
                    .node_queue
                    .add_last(NodeKey::new(self.key.0.as_str(), name.clone()));
            }
        }
        plan
    }
}

impl World {
    /// Why the node is held, if the release planner has said so.
    pub fn hold_of(&self, node: &NodeDigest) -> Option<Hold> {
        let plan = self.plans.lock().get(&node.hub_key())?.clone();
        let reason = plan.waiting.get(&node.key.name)?;
        Some(Hold::of(reason))
    }

    /// Whether the form's nodes wait for those that fill a window, as of the last pass.
    pub fn awaits_room(&self, hub: &HubKey, form: &str) -> bool {
        let plans = self.plans.lock();
        let form = plans.get(hub).and_then(|plan| plan.forms.get(form));
        form.and_then(|form| form.blocked.as_ref())
            .is_some_and(Reason::awaits_room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_after_a_pass_has_its_limits() {
        for (nodes, rests) in [
            (0, 0),
            (20, 0),
            (1_000, 8),
            (3_000, 72),
            (10_000, 800),
            (50_000, 2_000),
        ] {
            assert_eq!(rest_after(nodes).as_millis(), rests, "{nodes} nodes");
        }
    }
}
