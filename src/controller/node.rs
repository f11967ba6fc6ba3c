//! The node loop: brings the live content of one LynqNode into the cluster, and its state into the node's status.

pub mod apply;
pub mod confirm;
mod delete;
mod departing;
mod kinds;
mod left_over;
mod memory;
mod news;
pub mod pods;
mod recreate;
mod report;
pub mod takeover;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::api::events::EventReason;
use crate::api::names;
use crate::api::policy::delay;
use crate::api::resource::{Resource, ResourceArrays};
use crate::cluster::clock;
use crate::cluster::events::About;
use crate::cluster::objects::ApiError;
use crate::controller::node::apply::Target;
use crate::controller::node::kinds::Kinds;
pub use crate::controller::node::memory::NodeMemory;
use crate::controller::node::memory::{GateTry, ResourceMemory};
use crate::controller::{Looked, World, panic_text};
use crate::decide::child::{Child, NodeKey, ObjectKey, Scope, fields_hash};
use crate::decide::node::digest::{Facts, NodeDigest, live_content};
use crate::decide::node::plan::applies::Applies;
use crate::decide::node::plan::record::{self, Record};
use crate::decide::node::plan::{self, ObservedResource, Premise, Rest, untold_delay};
use crate::decide::readiness::Readiness;
use crate::decide::rollout::Live;
use crate::decide::shared::backoff::Backoff;

/// Rounds of one reconciliation; each applies what the one before it made possible.
const ROUNDS_MAX: usize = 50;
/// How often an object whose state is not true is sent through the gate, which may not answer, or not be installed.
const GATE_EVERY: SignedDuration = SignedDuration::from_secs(10);
/// After so many looks in vain it is no accident any more: it is told, and what can be done is done.
const LASTING: u32 = 3;
/// So many conflicts in a row are none: something else answers with that code.
const CONFLICTS_MAX: u32 = 10;
/// How many requests one node may have under way.
const REQUESTS_MAX: usize = 8;

pub async fn reconcile(world: Arc<World>, key: NodeKey) -> Option<Duration> {
    let node = world.nodes.get(&key);
    let Some(node) = node.filter(|node| world.leads(&node.hub_key())) else {
        world.forget_node(&key);
        return None;
    };
    let memory = world
        .node_memory
        .lock()
        .remove(&key)
        .filter(|memory| memory.uid == node.uid)
        .unwrap_or_else(|| {
            Box::new(NodeMemory {
                uid: node.uid.clone(),
                ..NodeMemory::default()
            })
        });
    let mut reconciler = NodeReconciler {
        world: &world,
        key: key.clone(),
        memory,
    };
    let began = clock::instant();
    let looked = reconciler.go(node).await;
    let failed = || {
        let node = world.nodes.get(&key);
        node.is_some_and(|node| node.status.failed_resources > 0)
    };
    let result = match &looked {
        Err(_) => "error",
        Ok(_) if failed() => "partial_failure",
        Ok(_) => "success",
    };
    world.metrics.looked(result, began.elapsed());
    let again = match looked {
        Ok(wake_at) => wake_at
            .map(|at| Duration::try_from(at.duration_since(clock::now())).unwrap_or_default()),
        Err(ApiError::NotFound(_)) if world.nodes.get(&key).is_none() => None,
        // The object changed under us; its event brings us back, and this is for the case that it has come already.
        Err(ApiError::Conflict(_)) if reconciler.memory.conflicts < CONFLICTS_MAX => {
            reconciler.memory.conflicts += 1;
            Some(Backoff::CONFLICT.first)
        }
        Err(error) => {
            tracing::warn!(node = %key, %error, "the node could not be reconciled; trying again");
            reconciler.note_failed(&error.to_string()).await;
            Some(Backoff::NODE.after(reconciler.memory.failures))
        }
    };
    let memory = reconciler.memory;
    world.node_memory.lock().insert(key, memory);
    again
}

/// The reconcile of a node panicked. Its memory is lost, as with a restart. From here on, until a reconcile goes through, the node
/// counts as not ready, so that it takes a place in the window.
pub async fn panicked(world: Arc<World>, key: NodeKey, rest: Duration) {
    let reconciler = NodeReconciler {
        world: &world,
        key: key.clone(),
        memory: Box::default(),
    };
    let text = format!(
        "lynqgate cannot reconcile it, and it counts as not ready: {}",
        panic_text(rest)
    );
    world.metrics.panicked("lynqnode");
    tracing::error!(node = %key, "{text}");
    if let Some(node) = world.nodes.get(&key) {
        reconciler.note_in_vain(&node, text, true).await;
    }
}

struct NodeReconciler<'a> {
    world: &'a World,
    key: NodeKey,
    memory: Box<NodeMemory>,
}

impl NodeReconciler<'_> {
    /// Returns when to look again, events aside.
    async fn go(&mut self, mut node: Arc<NodeDigest>) -> Result<Option<Timestamp>, ApiError> {
        // The hub completes what Lynq recorded.
        if node.is_not_taken_over() {
            self.memory.record = None;
        }
        if node.deleting {
            return self.delete(&node).await;
        }
        if !node.has_finalizer {
            let patch = json!({"metadata": {"resourceVersion": node.resource_version, "finalizers": [names::NODE_FINALIZER]}});
            node = self
                .world
                .nodes
                .learn(&self.world.objects.merge(&self.own(), &patch).await?);
        }
        self.note_forced(&node);
        let gate_at = self.gate_again(&mut node).await?;
        self.take_over(&node).await?;
        if node.bears_lynqs_row {
            node = self.world.nodes.get(&self.key).unwrap_or(node);
        }
        self.converge(&node, gate_at).await
    }

    /// Writes what the live content asks for, round by round, for what one round makes ready lets the next one go on; then says
    /// so. Returns when to look again.
    async fn converge(
        &mut self,
        node: &NodeDigest,
        gate_at: Option<Timestamp>,
    ) -> Result<Option<Timestamp>, ApiError> {
        for _ in 0..ROUNDS_MAX {
            let record = self.record(node);
            let lasting = self.memory.failures >= LASTING;
            let Some(kinds) = Kinds::of(self.world, node, &record, lasting).await? else {
                return Ok(None);
            };
            let keys = plan::distinct(node.facts.iter().map(|facts| kinds.key(facts)));
            let now = clock::now();
            let children: Vec<Option<Arc<Child>>> = keys
                .iter()
                .map(|key| self.world.children.get(key.as_ref().ok()?))
                .collect();
            self.remember(node, &children, now);
            let hold = self.hold(node, now);
            self.memory.maintained = self.world.in_maintenance(&self.key);
            let min_delay = min_delay(self.world, node);
            let seen: Vec<ObservedResource> = node
                .facts
                .iter()
                .enumerate()
                .map(|(i, facts)| {
                    let child = children[i].as_deref();
                    let readiness = child.map(|child| &*child.readiness);
                    let has_status = kinds.has_status(&facts.kind);
                    let untold = untold_delay(facts, min_delay, has_status, readiness);
                    self.seen(node, facts, &keys[i], child, untold)
                })
                .collect();
            let rest = Rest {
                record,
                others: self.others(&keys),
                unlisted: kinds.unlisted,
            };
            let mut plan = self.world.decisions.node(node, &seen, &rest, now);
            let left_at = self.put_off_left_over(&mut plan);
            if plan.apply.is_empty() && plan.take_down.is_empty() {
                let status = plan::status::of_node(node, &seen, &plan, hold, now);
                drop(seen);
                self.memory.record = Some(plan.record.clone());
                self.note_outcomes(node, &plan, now);
                let wake_at = plan.wake_at;
                let due = self.report(node, status, now).await?;
                self.forget_told_record();
                self.note_looked(node, None);
                if kinds.unknown {
                    // The next look goes the same way.
                    let again = now.checked_add(Backoff::UNASKED.first).ok();
                    return Ok(again.into_iter().chain(due).min());
                }
                (self.memory.failures, self.memory.conflicts) = (0, 0);
                let pods_at = self.look_at_pods(node, &keys, &children).await;
                let times = [wake_at, due, gate_at, left_at, pods_at];
                return Ok(times.into_iter().flatten().min());
            }
            let apply: Vec<Apply> = plan
                .apply
                .iter()
                .filter_map(|i| {
                    let key = keys[*i].clone().ok()?;
                    Some(Apply {
                        index: *i,
                        recorded: plan.record.names(&key),
                        key,
                        child: children[*i].clone(),
                        premise: seen[*i].premise.clone(),
                    })
                })
                .collect();
            drop(seen);
            self.memory.record = Some(plan.record);
            self.apply(node, apply).await?;
            for (key, how) in plan.take_down {
                let child = &rest.others[&key];
                self.take_down(node, (&key, child), how, names::REMOVED_FROM_TEMPLATE)
                    .await?;
            }
        }
        Err(ApiError::Unavailable(format!(
            "not done after {ROUNDS_MAX} rounds"
        )))
    }

    /// What was written past the gate is not applied. Any write through the gate makes the object's state true, and holds
    /// it; returns when to try that once more.
    async fn gate_again(
        &mut self,
        node: &mut Arc<NodeDigest>,
    ) -> Result<Option<Timestamp>, ApiError> {
        let was_known = std::mem::replace(&mut self.memory.known, node.live != Live::Unknown);
        if !node.past_gate {
            self.memory.gated_again = None;
            // The gate does not forget what is live.
            if was_known && node.live == Live::Unknown {
                self.tell_bypass(node);
            }
            return Ok(None);
        }
        let now = clock::now();
        let tried = self.memory.gated_again.as_ref();
        let tried = tried.filter(|tried| tried.generation == node.generation);
        let due = tried.map(|tried| tried.again_at);
        // A clock that went back must not put it off for long.
        if let Some(due) = due.filter(|due| *due > now && due.duration_since(now) <= GATE_EVERY) {
            return Ok(Some(due));
        }
        if tried.is_none() {
            self.tell_bypass(node);
        }
        let patch = json!({"metadata": {"resourceVersion": node.resource_version, "annotations": {names::GATED_AGAIN: node.resource_version}}});
        let written = self.world.objects.merge(&self.own(), &patch).await;
        let wait = match &written {
            Err(ApiError::Conflict(_)) => SignedDuration::ZERO,
            _ => GATE_EVERY,
        };
        let again_at = now.checked_add(wait).unwrap_or(now);
        self.memory.gated_again = Some(GateTry {
            generation: node.generation,
            again_at,
        });
        *node = self.world.nodes.learn(&written?);
        Ok(Some(again_at))
    }

    fn tell_bypass(&self, node: &NodeDigest) {
        self.world.metrics.bypassed();
        let text = format!(
            "somebody wrote its content past lynqgate's webhooks; lynqgate holds that content like any other change. To keep it from going \
             live: kubectl annotate lynqnode {} {}={}. Then check the webhooks and the CustomResourceDefinitions: lynqgate check",
            node.key.name,
            names::DISCARD_EDIT,
            names::TRUE
        );
        let about = About::new("LynqNode", &node.key.namespace, &node.key.name, &node.uid);
        tracing::warn!(node = %node.key, text);
        self.world
            .events
            .tell(&about, EventReason::PastTheGate, text);
    }

    /// The release loop may wait for the last first look.
    fn note_looked(&self, node: &NodeDigest, in_vain: Option<String>) {
        let mut looked = self.world.looked.lock();
        let before = looked.get(&self.key);
        let is_news = before.is_none_or(|before| before.in_vain != in_vain);
        let same = before.filter(|before| before.in_vain.is_some() == in_vain.is_some());
        let seen = Looked {
            since: same.map_or_else(clock::now, |before| before.since),
            in_vain,
        };
        match &seen.in_vain {
            Some(_) => self.world.in_vain.lock().insert(self.key.clone()),
            None => self.world.in_vain.lock().remove(&self.key),
        };
        looked.insert(self.key.clone(), seen);
        if is_news {
            let hub = node.hub_key();
            self.world.rollout_queue.add(hub);
        }
    }

    /// A look that fails again and again must not keep its whole hub waiting: the node counts as not ready, and says why.
    async fn note_failed(&mut self, why: &str) {
        self.memory.failures = self.memory.failures.saturating_add(1);
        let Some(node) = self.world.nodes.get(&self.key) else {
            return;
        };
        if self.memory.failures < LASTING {
            return;
        }
        let text = format!(
            "lynqgate cannot reconcile it: {why}. It counts as not ready until you correct that; lynqgate retries within 30 s"
        );
        let is_news = self.memory.failures == LASTING;
        self.note_in_vain(&node, text, is_news).await;
    }

    /// From here on the node counts as not ready; its status follows.
    async fn note_in_vain(&self, node: &NodeDigest, text: String, is_news: bool) {
        self.note_looked(node, Some(text.clone()));
        if is_news {
            let about = About::new("LynqNode", &node.key.namespace, &node.key.name, &node.uid);
            self.world
                .events
                .tell(&about, EventReason::LookFailed, text.clone());
        }
        let status = plan::status::in_vain(node, &text, clock::now());
        if *node.status != status {
            // It may be the very thing that fails.
            let told = json!({"conditions": status.conditions});
            if let Ok(written) = self.write_status(node, &told).await {
                self.world.nodes.learn(&written);
            }
        }
    }

    fn own(&self) -> ObjectKey {
        ObjectKey::own("LynqNode", &self.key.namespace, &self.key.name)
    }

    /// What was applied for the node: by what was done since the start, else by its status.
    fn record(&mut self, node: &NodeDigest) -> Record {
        let record = &mut self.memory.record;
        let record = record.get_or_insert_with(|| Record::of(&node.status));
        for (key, child) in self.world.children.take_ended(&self.key) {
            let mut all = node.facts.iter();
            if let Some(facts) = all.find(|facts| record::key_of(facts) == key) {
                record.note(node, facts, &child);
            }
        }
        record.clone()
    }

    /// What the status says is not remembered beside it: nodes are many.
    fn forget_told_record(&mut self) {
        let told = self.world.nodes.get(&self.key);
        let told = told.map(|node| Record::of(&node.status));
        self.memory
            .record
            .take_if(|record| told.as_ref() == Some(record));
    }

    /// What says that it is the node's own, and is not in the live content.
    fn others(&self, keys: &[Key]) -> BTreeMap<ObjectKey, Child> {
        let named = |key: &ObjectKey| keys.iter().flatten().any(|known| known.is_same(key));
        let all = self.world.children.of_node(&self.key).into_iter();
        all.filter(|(key, _)| !named(key))
            .map(|(key, child)| (key, (*child).clone()))
            .collect()
    }

    fn remember(&mut self, node: &NodeDigest, children: &[Option<Arc<Child>>], now: Timestamp) {
        self.memory
            .resources
            .retain(|memory| node.facts.iter().any(|facts| facts.id == memory.id));
        let first = !std::mem::replace(&mut self.memory.looked, true);
        let untouched = first && plan::is_untouched(node, children);
        let was_ready = first && node.was_rolled_out();
        for (facts, child) in node.facts.iter().zip(children) {
            let memory = self.memory.resource_mut(&facts.id);
            if memory.hash != facts.hash {
                *memory = ResourceMemory {
                    id: facts.id.clone(),
                    hash: facts.hash.clone(),
                    was_ready,
                    ..ResourceMemory::default()
                };
            }
            let Some(child) = child else { continue };
            if child.applied_hash.as_ref() != Some(&facts.hash) {
                continue;
            }
            // Also where it is the same: one text for all is enough.
            if untouched || memory.fields_hash.as_ref() == Some(&child.fields_hash) {
                memory.fields_hash = Some(child.fields_hash.clone());
            }
            if *child.readiness == Readiness::Ready {
                memory.waiting_since = None;
                memory.was_ready = true;
            } else if !memory.was_ready {
                // Each step of a partition has as long again.
                let since = memory.waiting_since.or(child.applied_at).unwrap_or(now);
                memory.waiting_since = Some(since).max(child.stepped_at);
            }
        }
    }

    fn seen<'b>(
        &'b self,
        node: &NodeDigest,
        facts: &'b Facts,
        key: &'b Key,
        child: Option<&'b Child>,
        untold: SignedDuration,
    ) -> ObservedResource<'b> {
        let memory = self.memory.resource(&facts.id);
        // Its own is there as long as the node is.
        let is_other = facts.namespace != self.key.namespace;
        let wait = || self.world.namespaces.wait(&facts.namespace, &self.key);
        let namespace = is_other.then(wait).flatten();
        ObservedResource {
            facts,
            unavailable: key.as_ref().err().map(String::as_str),
            child,
            obstacle: (self.memory.maintained.as_deref())
                .or_else(|| memory?.pods.as_ref()?.obstacle.as_deref()),
            failure: memory.and_then(|memory| memory.failure.as_deref()),
            premise: Premise::of(node, child, namespace),
            fields_hash: memory.and_then(|memory| memory.fields_hash.as_deref()),
            applies: memory.map_or(Applies::default(), |memory| memory.applies),
            waiting_since: memory.and_then(|memory| memory.waiting_since),
            untold,
        }
    }

    /// Applies these resources side by side. A failure is remembered with the resource; it never stops the others.
    async fn apply(&mut self, node: &NodeDigest, resources: Vec<Apply>) -> Result<(), ApiError> {
        if resources.is_empty() {
            return Ok(());
        }
        let content = self.content(node).await?;
        let world = self.world;
        let all: Vec<&Resource> = content.iter().collect();
        let mut left = resources.into_iter();
        let mut running = FuturesUnordered::new();
        loop {
            while running.len() < REQUESTS_MAX
                && let Some(next) = left.next()
            {
                let resource = all[next.index];
                let asked = world.children.asked(&next.key.kind);
                running.push(async move {
                    let child = next.child.as_deref();
                    let target = Target {
                        resource,
                        key: &next.key,
                        child,
                        watched: true,
                        recorded: next.recorded,
                    };
                    let result = apply::apply(world, node, &target).await;
                    // What is known of it may be newer than the reply; what we own is what our own write left.
                    let written = result.map(|object| {
                        let object = object?;
                        world.children.learn(&object, asked);
                        Some(fields_hash(&object))
                    });
                    (next, written)
                });
            }
            let Some((done, result)) = running.next().await else {
                break;
            };
            let facts = &node.facts[done.index];
            // Before anything else may go wrong: what is not in the record is never deleted.
            if matches!(result, Ok(Some(_))) {
                let record = self.memory.record.get_or_insert_default();
                record.add(facts);
                self.memory.applied.insert(facts.id.clone());
            }
            let memory = self.memory.resource_mut(&facts.id);
            news::note(memory, world, node, facts, done.premise, result);
        }
        Ok(())
    }

    /// The live content of this very digest, from memory or from the API server.
    async fn content(&self, node: &NodeDigest) -> Result<ResourceArrays, ApiError> {
        if let Some(content) = node.kept_content() {
            return Ok(content);
        }
        let object = self.world.objects.get(&self.own()).await?;
        let content = live_content(&object, &node.live)
            .filter(|_| object["metadata"]["uid"] == node.uid.as_str());
        content.ok_or_else(|| ApiError::Conflict("the live content has changed".to_owned()))
    }
}

/// A resource that is to be applied now.
struct Apply {
    index: usize,
    key: ObjectKey,
    child: Option<Arc<Child>>,
    /// The node's record names it.
    recorded: bool,
    premise: Premise,
}

/// The minDelay of the node's form, or of its hub.
fn min_delay(world: &World, node: &NodeDigest) -> Option<SignedDuration> {
    let namespace = &node.key.namespace;
    let form = world.forms.get(namespace, &node.form);
    let of_form =
        form.and_then(|form| form.spec.as_ref().ok()?.rollout.as_ref()?.min_delay.clone());
    let text = of_form.or_else(|| {
        let hub = world.hubs.get(namespace, &node.hub)?;
        hub.spec.as_ref().ok()?.rollout.as_ref()?.min_delay.clone()
    });
    text.as_deref().map(delay)
}

/// The object of a resource, or why there can be none.
type Key = Result<ObjectKey, String>;

fn key_in(facts: &Facts, scope: Scope) -> ObjectKey {
    ObjectKey {
        kind: facts.kind.clone(),
        namespace: match scope {
            Scope::Cluster => "".into(),
            Scope::Namespaced => facts.namespace.clone(),
        },
        name: facts.name.clone(),
    }
}

#[cfg(test)]
mod tests;
