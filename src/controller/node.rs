//! The node loop: brings the live content of one LynqNode into the cluster, and its state into the node's status.

mod apply;
mod report;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::api::names;
use crate::api::resource::{Resource, ResourceArrays};
use crate::api::stamp;
use crate::cluster::children::Listing;
use crate::cluster::events::About;
use crate::cluster::objects::ApiError;
use crate::controller::{World, own_key};
use crate::decide::child::{Child, NodeKey, ObjectKey, Scope};
use crate::decide::graph::State;
use crate::decide::node::{Facts, NodeDigest, live_content};
use crate::decide::node_plan::{self, Failure, FailureKind, NodePlan, Seen, StepKind};
use crate::decide::readiness::Readiness;
use crate::decide::version;

/// What the loop remembers of a node between two looks. Losing it (a restart) costs at most a repeated request.
#[derive(Default)]
pub struct Memory {
    resources: BTreeMap<String, ResourceMemory>,
    report: report::Memory,
    /// When the object was last sent through the gate once more.
    gated_again: Option<Timestamp>,
}

#[derive(Default)]
struct ResourceMemory {
    /// Hash of the resource that the rest is about.
    hash: String,
    failure: Option<Failure>,
    failures: u32,
    /// The fields that our last apply owned.
    fields_hash: Option<String>,
    waiting_since: Option<Timestamp>,
    was_ready: bool,
}

/// Rounds of one look; each applies what the one before it made possible.
const ROUNDS_MAX: usize = 50;
const RETRY_FIRST: SignedDuration = SignedDuration::from_secs(2);
const RETRY_LAST: SignedDuration = SignedDuration::from_secs(300);
/// How often an object whose state is not true is sent through the gate, which may not be installed.
const GATE_RETRY: SignedDuration = SignedDuration::from_secs(60);
/// How many requests one node may have under way.
const REQUESTS_MAX: usize = 8;

pub async fn reconcile(world: Arc<World>, key: NodeKey) -> Option<Duration> {
    let Some(node) = world.nodes.get(&key) else {
        world
            .node_memory
            .lock()
            .expect("the nodes' memory")
            .remove(&key);
        world.holds.lock().expect("the holds' lock").remove(&key);
        return None;
    };
    let memory = world
        .node_memory
        .lock()
        .expect("the nodes' memory")
        .remove(&key)
        .unwrap_or_default();
    let mut look = Look {
        world: &world,
        key: key.clone(),
        memory,
    };
    let again = match look.go(node).await {
        Ok(wake_at) => wake_at
            .map(|at| Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default()),
        Err(ApiError::NotFound(_)) => None,
        // The object changed under us; its event brings us back, and this is for the case that it has come already.
        Err(ApiError::Conflict(_)) => Some(Duration::from_millis(200)),
        Err(error) => {
            tracing::warn!(node = %key, %error, "the node could not be looked after; trying again");
            Some(Duration::from_secs(5))
        }
    };
    let memory = look.memory;
    world
        .node_memory
        .lock()
        .expect("the nodes' memory")
        .insert(key, memory);
    again
}

struct Look<'a> {
    world: &'a World,
    key: NodeKey,
    memory: Memory,
}

impl Look<'_> {
    /// Returns when to look again, events aside.
    async fn go(&mut self, mut node: Arc<NodeDigest>) -> Result<Option<Timestamp>, ApiError> {
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
        let gate_at = self.gate_again(&mut node).await?;
        for _ in 0..ROUNDS_MAX {
            let Some(keys) = self.keys(&node).await? else {
                return Ok(None);
            };
            let now = Timestamp::now();
            let children: Vec<Option<Arc<Child>>> = keys
                .iter()
                .map(|key| self.world.children.get(key.as_ref().ok()?))
                .collect();
            self.remember(&node, &children, now);
            let hold = self.hold(&node, now);
            let seen: Vec<Seen> = node
                .facts
                .iter()
                .enumerate()
                .map(|(i, facts)| self.seen(facts, &keys[i], children[i].as_deref()))
                .collect();
            let others = self
                .world
                .children
                .of_node(&self.key)
                .into_iter()
                .filter(|(key, _)| !keys.iter().any(|known| known.as_ref() == Ok(key)));
            let others = others.map(|(key, child)| (key, (*child).clone())).collect();
            let plan = node_plan::plan(&node, &seen, &others, now);
            if plan.apply.is_empty() && plan.take_down.is_empty() {
                let status = node_plan::status::of_node(&node, &seen, &plan, hold, now);
                drop(seen);
                self.note_failures(&node, &plan, now);
                let wake_at = plan.wake_at;
                let due = self.report(&node, status, now).await?;
                return Ok([wake_at, due, gate_at].into_iter().flatten().min());
            }
            let apply: Vec<(usize, ObjectKey, Option<Arc<Child>>)> = plan
                .apply
                .iter()
                .filter_map(|i| Some((*i, keys[*i].clone().ok()?, children[*i].clone())))
                .collect();
            drop(seen);
            self.apply(&node, apply).await?;
            for (key, how) in plan.take_down {
                let why = names::REMOVED_FROM_TEMPLATE;
                apply::take_down(self.world, &key, &others[&key], how, why).await?;
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
        if !node.past_gate {
            self.memory.gated_again = None;
            return Ok(None);
        }
        let now = Timestamp::now();
        let due = self
            .memory
            .gated_again
            .and_then(|at| at.checked_add(GATE_RETRY).ok());
        if let Some(due) = due.filter(|due| *due > now) {
            return Ok(Some(due));
        }
        self.memory.gated_again = Some(now);
        self.world.metrics.bypassed();
        let text = "its content was written past lynqgate's admission webhook; nothing of that is applied, and it is held \
                    for a release like any other change. See that the webhook configurations are as installed";
        let about = About::new("LynqNode", &node.key.namespace, &node.key.name, &node.uid);
        tracing::warn!(node = %node.key, text);
        self.world
            .events
            .warning(&about, "PastTheGate", text.to_owned());
        let patch = json!({"metadata": {"resourceVersion": node.resource_version, "annotations": {names::GATED_AGAIN: node.resource_version}}});
        *node = self
            .world
            .nodes
            .learn(&self.world.objects.merge(&self.own(), &patch).await?);
        Ok(now.checked_add(GATE_RETRY).ok())
    }

    fn own(&self) -> ObjectKey {
        own_key("LynqNode", &self.key.namespace, &self.key.name)
    }

    /// The objects of the live content, or why there can be none. None in all while some kind's objects are not all
    /// known: then nothing may be concluded from an object's absence.
    async fn keys(&self, node: &NodeDigest) -> Result<Option<Vec<Key>>, ApiError> {
        let World {
            objects, children, ..
        } = self.world;
        let mut keys = vec![];
        for facts in node.facts.iter() {
            let kind = &facts.kind;
            if let Some(error) = &facts.render_error {
                keys.push(Err(error.clone()));
                continue;
            }
            let Some(served) = objects.served(kind).await? else {
                keys.push(Err(node_plan::missing_kind(kind)));
                continue;
            };
            keys.push(
                match children.listing(kind, &served, &objects.client, &self.key) {
                    Listing::Complete => Ok(key_in(facts, served.scope)),
                    Listing::Pending => return Ok(None),
                    Listing::Refused(why) => Err(node_plan::unlistable_kind(kind, &why)),
                },
            );
        }
        Ok(Some(keys))
    }

    /// An event also for what failed without a request: a kind that is not there, an object that is somebody else's.
    fn note_failures(&mut self, node: &NodeDigest, plan: &NodePlan, now: Timestamp) {
        for (facts, outcome) in node.facts.iter().zip(&plan.outcomes) {
            let failed = outcome.state == State::ApplyFailed && outcome.step == StepKind::Go;
            let memory = self.memory.resources.entry(facts.id.clone()).or_default();
            let known = memory.failure.as_ref().map(|failure| &failure.message);
            // The hub speaks of what does not render.
            if !failed || facts.render_error.is_some() || known == Some(&outcome.message) {
                continue;
            }
            let failure = Failure {
                kind: match outcome.conflict {
                    true => FailureKind::Conflict,
                    false => FailureKind::Refused,
                },
                message: outcome.message.clone(),
                retry_at: now,
            };
            fail(memory, self.world, node, facts, failure);
        }
    }

    fn remember(&mut self, node: &NodeDigest, children: &[Option<Arc<Child>>], now: Timestamp) {
        self.memory
            .resources
            .retain(|id, _| node.facts.iter().any(|facts| facts.id == *id));
        for (facts, child) in node.facts.iter().zip(children) {
            let memory = self.memory.resources.entry(facts.id.clone()).or_default();
            if memory.hash != facts.hash {
                *memory = ResourceMemory {
                    hash: facts.hash.clone(),
                    ..ResourceMemory::default()
                };
            }
            let Some(child) = child else { continue };
            if child.applied_hash.as_ref() != Some(&facts.hash) {
                continue;
            }
            // First sight after a restart: what is there is what we start from.
            if memory.fields_hash.is_none() {
                memory.fields_hash.clone_from(&child.fields_hash);
            }
            if child.readiness == Readiness::Ready {
                memory.waiting_since = None;
                memory.was_ready = true;
            } else if memory.waiting_since.is_none() && !memory.was_ready {
                memory.waiting_since =
                    Some(node.start.as_deref().and_then(stamp::parse).unwrap_or(now));
            }
        }
    }

    fn seen<'b>(&'b self, facts: &'b Facts, key: &'b Key, child: Option<&'b Child>) -> Seen<'b> {
        let memory = self.memory.resources.get(&facts.id);
        Seen {
            facts,
            unavailable: key.as_ref().err().map(String::as_str),
            child,
            failure: memory.and_then(|memory| memory.failure.as_ref()),
            drifted: memory.is_some_and(|memory| {
                memory.fields_hash.is_some()
                    && child.is_some_and(|child| child.fields_hash != memory.fields_hash)
            }),
            waiting_since: memory.and_then(|memory| memory.waiting_since),
        }
    }

    /// Applies these resources side by side. A failure is remembered with the resource; it never stops the others.
    async fn apply(
        &mut self,
        node: &NodeDigest,
        resources: Vec<(usize, ObjectKey, Option<Arc<Child>>)>,
    ) -> Result<(), ApiError> {
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
                && let Some((i, key, child)) = left.next()
            {
                let resource = all[i];
                running.push(async move {
                    let result = apply::apply(world, node, resource, &key, child).await;
                    (i, result)
                });
            }
            let Some((i, result)) = running.next().await else {
                break;
            };
            let facts = &node.facts[i];
            let memory = &mut self.memory.resources;
            let memory = memory.entry(facts.id.clone()).or_default();
            note(memory, world, node, facts, result);
        }
        Ok(())
    }

    /// The live content of this very digest, from memory or from the API server.
    async fn content(&self, node: &NodeDigest) -> Result<Arc<ResourceArrays>, ApiError> {
        if let Some(content) = &node.content {
            return Ok(content.clone());
        }
        let object = self.world.objects.get(&self.own()).await?;
        let content = live_content(&object, &node.live)
            .filter(|_| object["metadata"]["uid"] == node.uid.as_str());
        content
            .map(Arc::new)
            .ok_or_else(|| ApiError::Conflict("the live content has changed".to_owned()))
    }

    /// Takes the node's objects down, and lets the node go when none is left.
    async fn delete(&mut self, node: &NodeDigest) -> Result<Option<Timestamp>, ApiError> {
        let Some(keys) = self.keys(node).await? else {
            return Ok(None);
        };
        let of = |facts: &Facts| {
            node.facts
                .iter()
                .position(|f| f.id == facts.id)
                .and_then(|i| keys[i].clone().ok())
        };
        loop {
            let children = self
                .world
                .children
                .of_node(&self.key)
                .into_iter()
                .map(|(key, child)| (key, (*child).clone()))
                .collect();
            let deletion = node_plan::plan_deletion(node, &children, of);
            for (key, how) in &deletion.take_down {
                let why = names::NODE_DELETED;
                apply::take_down(self.world, key, &children[key], *how, why).await?;
            }
            if !deletion.pending {
                break;
            }
            // What has finalizers of its own goes later; its event brings us back.
            if deletion.take_down.is_empty() {
                return Ok(Timestamp::now()
                    .checked_add(SignedDuration::from_secs(30))
                    .ok());
            }
        }
        if node.has_finalizer {
            let object = self.world.objects.get(&self.own()).await?;
            let position = object["metadata"]["finalizers"]
                .as_array()
                .and_then(|all| all.iter().position(|f| f == names::NODE_FINALIZER));
            if let Some(position) =
                position.filter(|_| object["metadata"]["uid"] == node.uid.as_str())
            {
                let path = format!("/metadata/finalizers/{position}");
                let patch = json!([{"op": "test", "path": path, "value": names::NODE_FINALIZER}, {"op": "remove", "path": path}]);
                let patch = serde_json::from_value(patch).expect("a JSON patch");
                self.world.objects.json_patch(&self.own(), patch).await?;
            }
        }
        Ok(None)
    }
}

/// The object of a resource, or why there can be none.
type Key = Result<ObjectKey, String>;

fn key_in(facts: &Facts, scope: Scope) -> ObjectKey {
    let namespace = if scope == Scope::Cluster {
        String::new()
    } else {
        facts.namespace.clone()
    };
    ObjectKey {
        kind: facts.kind.clone(),
        namespace,
        name: facts.name.clone(),
    }
}

fn note(
    memory: &mut ResourceMemory,
    world: &World,
    node: &NodeDigest,
    facts: &Facts,
    result: Result<Value, ApiError>,
) {
    let now = Timestamp::now();
    let error = match result {
        Ok(object) => {
            let child = world.children.learn(&object);
            memory.fields_hash.clone_from(&child.fields_hash);
            memory.failure = None;
            memory.failures = 0;
            memory.was_ready = false;
            memory.waiting_since = Some(now);
            return;
        }
        Err(error) => error,
    };
    let wait = RETRY_LAST.min(RETRY_FIRST * 2_i32.saturating_pow(memory.failures.min(10)));
    memory.failures += 1;
    let kind = if matches!(error, ApiError::Conflict(_)) {
        FailureKind::Conflict
    } else {
        FailureKind::Refused
    };
    let failure = Failure {
        kind,
        message: error.to_string(),
        retry_at: now.checked_add(wait).unwrap_or(now),
    };
    fail(memory, world, node, facts, failure);
}

/// Remembers the failure; one event for each new way to fail, not for each attempt.
fn fail(
    memory: &mut ResourceMemory,
    world: &World,
    node: &NodeDigest,
    facts: &Facts,
    failure: Failure,
) {
    if memory.failure.as_ref().map(|f| &f.message) != Some(&failure.message) {
        let reason = match failure.kind {
            FailureKind::Conflict => "ResourceConflict",
            FailureKind::Refused => "ApplyFailed",
        };
        let about = About::new("LynqNode", &node.key.namespace, &node.key.name, &node.uid);
        let object = node_plan::status::named(facts);
        let text = format!("Resource {:?}, {object}: {}", facts.id, failure.message);
        tracing::warn!(node = %node.key, reason, text);
        world.events.warning(&about, reason, text);
    }
    memory.failure = Some(failure);
}

/// Whether the node's workloads are ready by a live read, with the content that is live now. What was read is learnt.
pub async fn confirm_ready(world: &World, node: &NodeDigest) -> Result<bool, ApiError> {
    for facts in node
        .facts
        .iter()
        .filter(|facts| is_workload(facts) && facts.render_error.is_none())
    {
        let Some(served) = world.objects.served(&facts.kind).await? else {
            return Ok(false);
        };
        let key = key_in(facts, served.scope);
        let object = match world.objects.get(&key).await {
            Ok(object) => object,
            Err(ApiError::NotFound(_)) => return Ok(false),
            Err(error) => return Err(error),
        };
        let known = world
            .children
            .get(&key)
            .map(|child| child.resource_version.clone());
        let child = world.children.learn(&object);
        if known.is_some_and(|known| version::is_newer(&child.resource_version, &known)) {
            world.node_queue.add(node.key.clone());
        }
        let current = child.applied_hash.as_ref() == Some(&facts.hash) || facts.once;
        let ready = !facts.wait_for_ready || child.readiness == Readiness::Ready;
        if !(current && ready) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Kinds whose readiness can come and go; the others are there or not.
fn is_workload(facts: &Facts) -> bool {
    let built_in = [
        "v1",
        "networking.k8s.io/v1",
        "policy/v1",
        "rbac.authorization.k8s.io/v1",
        "autoscaling/v2",
    ];
    facts.kind.kind == "Pod"
        || !(built_in.contains(&facts.kind.api_version.as_str()) || facts.kind.kind == "CronJob")
}
