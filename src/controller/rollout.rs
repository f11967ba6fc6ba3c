//! The release loop: carries out the planner's plan for one hub, and writes the statuses that follow from it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::api::conditions::{self, ConditionState};
use crate::api::form::{FormStatus, Phase};
use crate::api::names;
use crate::cluster::catalog::{Form, Hub};
use crate::cluster::events::About;
use crate::cluster::nodes::HubKey;
use crate::cluster::objects::ApiError;
use crate::controller::{World, node, own_key};
use crate::decide::child::NodeKey;
use crate::decide::node::NodeDigest;
use crate::decide::rollout::status::FormState;
use crate::decide::rollout::{self, Confirm, Confirmation, Plan, Release, Snapshot};

/// What the loop remembers of a hub between two passes.
#[derive(Default)]
pub struct Memory {
    form_written: BTreeMap<String, Instant>,
    hub_written: Option<Instant>,
}

/// Passes of one look; each sees what the one before it wrote.
const PASSES_MAX: usize = 20;
/// Requests that one pass may have under way.
const REQUESTS_MAX: usize = 16;
/// A form's status is written at once when its phase changes, its counts at most this often.
const FORM_STATUS_EVERY: Duration = Duration::from_millis(500);
const HUB_STATUS_EVERY: Duration = Duration::from_secs(1);
/// A workload that looked ready and was not: its own event comes sooner, as a rule.
const UNCONFIRMED_RETRY: Duration = Duration::from_secs(1);

pub async fn reconcile(world: Arc<World>, key: HubKey) -> Option<Duration> {
    let memory = world
        .rollout_memory
        .lock()
        .expect("the rollouts' memory")
        .remove(&key)
        .unwrap_or_default();
    let mut look = Look {
        world: &world,
        key: key.clone(),
        memory,
    };
    let again = match look.go().await {
        Ok(again) => again,
        Err(ApiError::NotFound(_)) => None,
        Err(ApiError::Conflict(_)) => Some(Duration::from_millis(100)),
        Err(error) => {
            tracing::warn!(hub = ?key, %error, "the release loop was interrupted; trying again");
            Some(Duration::from_secs(1))
        }
    };
    let memory = look.memory;
    world
        .rollout_memory
        .lock()
        .expect("the rollouts' memory")
        .insert(key, memory);
    again
}

struct Look<'a> {
    world: &'a World,
    key: HubKey,
    memory: Memory,
}

impl Look<'_> {
    async fn go(&mut self) -> Result<Option<Duration>, ApiError> {
        let mut confirmed = BTreeSet::new();
        let mut unconfirmed = false;
        for _ in 0..PASSES_MAX {
            let hub = self.world.hubs.get(&self.key.0, &self.key.1);
            let nodes = self.world.nodes.of_hub(&self.key);
            let snapshot = self.snapshot(hub.as_deref(), &nodes, std::mem::take(&mut confirmed));
            let plan = rollout::plan(&snapshot, Timestamp::now());
            self.remember_holds(&nodes, &plan);
            // Without the hub's spec its window is not known, so nothing is released.
            let Some(hub) = hub.filter(|hub| !hub.deleting && hub.spec.is_ok()) else {
                return self.write_forms(&plan).await;
            };
            if let Some(slots) = &plan.ledger {
                match self.write_ledger(&snapshot, slots).await {
                    Ok(()) => {}
                    Err(ApiError::Conflict(_)) => {
                        self.world.metrics.ledger_conflict();
                        let object = self
                            .world
                            .objects
                            .get(&own_key("LynqHub", &self.key.0, &self.key.1))
                            .await?;
                        self.world.hubs.learn(&object);
                        continue;
                    }
                    Err(error) => return Err(error),
                }
            }
            let released = self.release(&plan.releases).await;
            (confirmed, unconfirmed) = self.confirm(&plan.confirm).await;
            if released == 0 && confirmed.is_empty() {
                let again = self.write_statuses(&hub, &nodes, &plan).await?;
                let wake = plan.wake_at.map(|at| {
                    Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default()
                });
                let retry = (unconfirmed || !plan.releases.is_empty()).then_some(UNCONFIRMED_RETRY);
                return Ok([again, wake, retry].into_iter().flatten().min());
            }
        }
        Ok(Some(if unconfirmed {
            UNCONFIRMED_RETRY
        } else {
            Duration::ZERO
        }))
    }

    fn snapshot(
        &self,
        hub: Option<&Hub>,
        nodes: &[Arc<NodeDigest>],
        confirmed: BTreeSet<Confirmation>,
    ) -> Snapshot {
        let rendered = self
            .world
            .rendered
            .lock()
            .expect("the rendered forms' lock");
        // A form whose spec cannot be read has no window that is known: its nodes are not released.
        let form_view = |form: &Arc<Form>| {
            let policy = form.spec.as_ref().ok()?.rollout.clone().unwrap_or_default();
            let known = rendered.get(&(form.namespace.clone(), form.name.clone()));
            let rendered_generation = known
                .map(|r| r.generation)
                .or(form.status.observed_generation)
                .unwrap_or_default();
            let outdated = match known {
                // Not yet looked at by this process.
                None => rendered_generation != form.generation,
                Some(known) => !known
                    .spec
                    .as_ref()
                    .zip(form.spec.as_ref().ok())
                    .is_some_and(|(rendered, newest)| newest.renders_like(rendered)),
            };
            Some((
                form.name.clone(),
                rollout::Form {
                    policy,
                    rendered_generation,
                    outdated,
                    previous: form.status.rollout.clone(),
                },
            ))
        };
        Snapshot {
            resource_version: hub
                .map(|hub| hub.resource_version.clone())
                .unwrap_or_default(),
            slots: hub
                .and_then(|hub| hub.status.rollout.clone())
                .map(|r| r.slots)
                .unwrap_or_default(),
            hub_skew: hub
                .and_then(|hub| hub.spec.as_ref().ok()?.rollout.as_ref())
                .map(|r| r.max_skew)
                .unwrap_or_default(),
            forms: self
                .world
                .forms_of(&self.key)
                .iter()
                .filter_map(form_view)
                .collect(),
            nodes: nodes
                .iter()
                .map(|node| (node.key.name.clone(), node.for_rollout()))
                .collect(),
            confirmed,
            deletions_held: self.deletions_held(hub),
        }
    }

    /// What the last sync found; after a restart, until there was one, what the one before it found.
    fn deletions_held(&self, hub: Option<&Hub>) -> bool {
        let held = self
            .world
            .deletions_held
            .lock()
            .expect("the deletions' lock");
        held.get(&self.key).copied().unwrap_or_else(|| {
            hub.is_some_and(|hub| conditions::is_true(&hub.status.conditions, "DeletionsHeld"))
        })
    }

    /// Compare-and-swap of the slots, and of nothing else.
    async fn write_ledger(
        &self,
        snapshot: &Snapshot,
        slots: &[crate::api::hub::Slot],
    ) -> Result<(), ApiError> {
        let patch = json!({"metadata": {"resourceVersion": snapshot.resource_version}, "status": {"rollout": {"slots": slots}}});
        let written = self
            .world
            .objects
            .merge_status(&own_key("LynqHub", &self.key.0, &self.key.1), &patch)
            .await?;
        self.world.hubs.learn(&written);
        Ok(())
    }

    /// Sends the releases; returns how many went live.
    async fn release(&self, releases: &[Release]) -> usize {
        let mut live = 0;
        for some in releases.chunks(REQUESTS_MAX) {
            let sent: Vec<_> = some
                .iter()
                .map(|release| self.release_one(release))
                .collect();
            live += join_all(sent)
                .await
                .into_iter()
                .filter(|live| *live)
                .count();
        }
        live
    }

    async fn release_one(&self, release: &Release) -> bool {
        let key = own_key("LynqNode", &self.key.0, &release.node);
        let (marker, value) = match release.gated {
            true => (
                names::RELEASE,
                format!("{}/{}", release.hash, release.resource_version),
            ),
            false => (names::UNGATED, release.hash.clone()),
        };
        let patch = json!({"metadata": {"resourceVersion": release.resource_version, "annotations": {marker: value}}});
        match self.world.objects.merge(&key, &patch).await {
            Ok(object) => {
                let node = self.world.nodes.learn(&object);
                // It counts only if the reply shows it: a gate that is not there answers 200 as well.
                let live = matches!(&node.live, rollout::Live::Hash(hash) if *hash == release.hash);
                if live {
                    self.world.metrics.released(&node.form, release.gated);
                    tracing::info!(node = %node.key, hash = release.hash, gated = release.gated, "released");
                    self.world.node_queue.add(node.key.clone());
                } else {
                    tracing::error!(node = %node.key, "the release was accepted but nothing went live: is the mutating webhook installed?");
                }
                live
            }
            Err(ApiError::Conflict(_)) => {
                // It changed since; with what it is now the next pass decides anew.
                if let Ok(object) = self.world.objects.get(&key).await {
                    self.world.nodes.learn(&object);
                }
                false
            }
            Err(error) => {
                tracing::warn!(node = release.node, %error, "the release did not go through; it is tried again");
                false
            }
        }
    }

    /// Live reads for the slots that look free; also whether some of them are not.
    async fn confirm(&self, confirm: &[Confirm]) -> (BTreeSet<Confirmation>, bool) {
        let (mut confirmed, mut unconfirmed) = (BTreeSet::new(), false);
        for some in confirm.chunks(REQUESTS_MAX) {
            let asked: Vec<_> = some.iter().map(|one| self.confirm_one(one)).collect();
            for answer in join_all(asked).await {
                unconfirmed |= answer.is_none();
                confirmed.extend(answer);
            }
        }
        (confirmed, unconfirmed)
    }

    async fn confirm_one(&self, confirm: &Confirm) -> Option<Confirmation> {
        match confirm {
            Confirm::Gone { node, uid } => match self
                .world
                .objects
                .get(&own_key("LynqNode", &self.key.0, node))
                .await
            {
                Err(ApiError::NotFound(_)) => Some(Confirmation::Gone { uid: uid.clone() }),
                Ok(object) if object["metadata"]["uid"] != uid.as_str() => {
                    Some(Confirmation::Gone { uid: uid.clone() })
                }
                Ok(object) => {
                    self.world.nodes.learn(&object);
                    None
                }
                Err(_) => None,
            },
            Confirm::Ready {
                node,
                uid,
                resource_version,
            } => {
                let key = NodeKey {
                    namespace: self.key.0.clone(),
                    name: node.clone(),
                };
                let digest = self
                    .world
                    .nodes
                    .get(&key)
                    .filter(|n| n.uid == *uid && n.resource_version == *resource_version)?;
                let ready = node::confirm_ready(self.world, &digest)
                    .await
                    .unwrap_or(false);
                ready.then(|| Confirmation::Ready {
                    uid: uid.clone(),
                    resource_version: resource_version.clone(),
                })
            }
        }
    }

    /// The node loop shows the reasons in the nodes' statuses.
    fn remember_holds(&self, nodes: &[Arc<NodeDigest>], plan: &Plan) {
        let mut holds = self.world.holds.lock().expect("the holds' lock");
        for node in nodes {
            let new = plan
                .waiting
                .get(&node.key.name)
                .filter(|r| **r != rollout::reason::Reason::Releasing)
                .map(|r| (r.code(), r.summary()));
            let old = match new {
                Some(new) => holds.insert(node.key.clone(), new),
                None => holds.remove(&node.key),
            };
            if old != new && new.is_some() {
                self.world.node_queue.add(node.key.clone());
            }
        }
    }

    async fn write_statuses(
        &mut self,
        hub: &Hub,
        nodes: &[Arc<NodeDigest>],
        plan: &Plan,
    ) -> Result<Option<Duration>, ApiError> {
        let forms = self.write_forms(plan).await?;
        let ready = nodes.iter().filter(|node| node.is_ready()).count() as i32;
        let failed = nodes.len() as i32 - ready;
        if (hub.status.ready, hub.status.failed) == (Some(ready), Some(failed)) {
            return Ok(forms);
        }
        if let Some(wait) = too_soon(self.memory.hub_written, HUB_STATUS_EVERY) {
            return Ok(Some(forms.map_or(wait, |other| other.min(wait))));
        }
        let patch = json!({"status": {"ready": ready, "failed": failed}});
        let written = self
            .world
            .objects
            .merge_status(&own_key("LynqHub", &self.key.0, &self.key.1), &patch)
            .await?;
        self.world.hubs.learn(&written);
        self.memory.hub_written = Some(Instant::now());
        Ok(forms)
    }

    /// Writes the statuses of the forms; returns when to come back for one that was written a moment ago.
    async fn write_forms(&mut self, plan: &Plan) -> Result<Option<Duration>, ApiError> {
        let mut again: Option<Duration> = None;
        for form in self.world.forms_of(&self.key) {
            let error = self.invalid(&form);
            let status = form_status(&form, plan.forms.get(&form.name), error, Timestamp::now());
            if status == form.status {
                continue;
            }
            let phase = |status: &FormStatus| status.rollout.as_ref().map(|r| r.phase);
            let urgent = phase(&status) != phase(&form.status)
                || valid(&status) != valid(&form.status)
                || form.status.observed_generation != status.observed_generation;
            if !urgent
                && let Some(wait) = too_soon(
                    self.memory.form_written.get(&form.name).copied(),
                    FORM_STATUS_EVERY,
                )
            {
                again = Some(again.map_or(wait, |other| other.min(wait)));
                continue;
            }
            let mut patch = json!({"status": status});
            if let Some(Value::Object(rollout)) = patch.pointer_mut("/status/rollout") {
                for field in ["startTime", "completionTime", "message"] {
                    rollout.entry(field).or_insert(Value::Null);
                }
            }
            let written = self
                .world
                .objects
                .merge_status(&own_key("LynqForm", &form.namespace, &form.name), &patch)
                .await?;
            self.world.forms.learn(&written);
            self.memory
                .form_written
                .insert(form.name.clone(), Instant::now());
            self.announce(&form, &status);
        }
        Ok(again)
    }

    /// Why the form cannot be rendered, if it cannot.
    fn invalid(&self, form: &Form) -> Option<(&'static str, String)> {
        let (namespace, name) = &self.key;
        if let Err(error) = &form.spec {
            return Some(("ValidationFailed", error.clone()));
        }
        let Some(hub) = self.world.hubs.get(namespace, name) else {
            return Some((
                "HubNotFound",
                format!(
                    "there is no LynqHub {name:?} in namespace {namespace}; create it, or delete this form"
                ),
            ));
        };
        if let Err(error) = &hub.spec {
            return Some(("HubInvalid", format!("LynqHub {name:?}: {error}")));
        }
        let rendered = self
            .world
            .rendered
            .lock()
            .expect("the rendered forms' lock");
        let error = rendered
            .get(&(form.namespace.clone(), form.name.clone()))?
            .error
            .clone()?;
        Some((
            "ValidationFailed",
            format!("{error}. Until this is corrected, the form's nodes stay as they are"),
        ))
    }

    /// Events for what a person wants to know: a rollout that ends, halts, or a form that is not valid.
    fn announce(&self, form: &Form, status: &FormStatus) {
        let about = About::new("LynqForm", &form.namespace, &form.name, &form.uid);
        let phase = |status: &FormStatus| status.rollout.as_ref().map(|r| r.phase);
        let message = status
            .rollout
            .as_ref()
            .map(|r| r.message.clone())
            .unwrap_or_default();
        if phase(status) != phase(&form.status) {
            match phase(status) {
                Some(Phase::Failed) => self.world.events.warning(&about, "RolloutHalted", message),
                Some(Phase::Complete) => {
                    self.world.events.normal(&about, "RolloutComplete", message)
                }
                Some(Phase::InProgress) => {
                    self.world.events.normal(&about, "RolloutStarted", message)
                }
                Some(Phase::Idle) | None => {}
            }
        }
        if valid(status) != valid(&form.status)
            && let Some(condition) = status.conditions.iter().find(|c| c.type_ == "Valid")
        {
            match condition.status.as_str() {
                "True" => {
                    self.world
                        .events
                        .normal(&about, &condition.reason, "All validations passed")
                }
                _ => {
                    self.world
                        .events
                        .warning(&about, &condition.reason, condition.message.clone())
                }
            }
        }
    }
}

/// Whether the form is valid, and why not.
fn valid(status: &FormStatus) -> Option<(&str, &str)> {
    let condition = status.conditions.iter().find(|c| c.type_ == "Valid");
    condition.map(|c| (c.status.as_str(), c.message.as_str()))
}

/// `state` is absent for a form whose spec cannot be read: its counts stay as they were.
fn form_status(
    form: &Form,
    state: Option<&FormState>,
    error: Option<(&'static str, String)>,
    now: Timestamp,
) -> FormStatus {
    let mut status = form.status.clone();
    let (mut states, mut generation) = (vec![], form.generation);
    if let Some(state) = state {
        generation = state.rollout.target_generation;
        status.observed_generation = Some(generation);
        status.total_nodes = Some(state.total_nodes);
        status.ready_nodes = Some(state.ready_nodes);
        let windowed = form.spec.as_ref().is_ok_and(|spec| spec.rollout.is_some())
            || state.rollout.slots > 0
            || state.rollout.held_nodes > 0;
        status.rollout = windowed.then(|| state.rollout.clone());
        states.clone_from(&state.conditions);
    }
    let valid = match error {
        None => ConditionState::new("Valid", true, "ValidationPassed", "All validations passed"),
        Some((reason, message)) => ConditionState::new("Valid", false, reason, message),
    };
    states.push(valid);
    conditions::merge(&mut status.conditions, &states, Some(generation), now);
    status
}

/// How long to wait, where the last write is younger than `every`.
fn too_soon(last: Option<Instant>, every: Duration) -> Option<Duration> {
    let since = last?.elapsed();
    (since < every).then(|| every - since)
}
