//! The partition loop: looks at a StatefulSet whose update waits, lets `decide::partition` decide on the next step, and takes it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::{ApiResource, ListParams};
use kube::core::Selector;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::events::EventReason;
use crate::api::names;
use crate::cluster::client::REQUEST_TIMEOUT;
use crate::cluster::clock;
use crate::cluster::events::About;
use crate::cluster::objects::{ApiError, Objects, timed};
use crate::cluster::vital;
use crate::cluster::watch::{self, Change, Which};
use crate::controller::rollout::snapshot::is_forced;
use crate::controller::{World, panic_text};
use crate::decide::child::{Kind, ObjectKey, Owner, Scope, owner};
use crate::decide::node::plan::recreate::Dependents;
use crate::decide::partition;
use crate::decide::partition::explain::faulty;
use crate::decide::partition::probe::OfWhole;
use crate::decide::partition::walk::{self, Around, Effect, Pod, Reason, Set, Step};
use crate::decide::readiness::Readiness;
use crate::decide::shared::backoff::Backoff;

/// Namespace and name.
pub type SetKey = (String, String);

/// A wait that lasts so long is told on the StatefulSet, where its owner looks.
const TOLD_AFTER: SignedDuration = SignedDuration::from_secs(10);
/// So long without a step for one reason, and a person should look.
const STUCK_AFTER: SignedDuration = SignedDuration::from_mins(2);

/// What is remembered of a StatefulSet, and counted. Losing it (a restart) tells of a wait a little later.
#[derive(Clone, Debug, Default)]
pub struct PartitionMemory {
    pub replicas: i64,
    pub current_replicas: i64,
    pub updated_replicas: i64,
    pub last_step: Option<Timestamp>,
    /// Steps that another writer was faster than, or that the API server did not take.
    pub retries: u64,
    failures: u32,
    /// Why it waits, and since when.
    waits: Option<(Reason, Timestamp)>,
    told_stuck: bool,
}

impl PartitionMemory {
    fn count(&mut self, object: &Value) {
        let count = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
        self.replicas = count("/status/replicas");
        self.current_replicas = count("/status/currentReplicas");
        self.updated_replicas = count("/status/updatedReplicas");
        // Another manager that writes the partition owns it until the next step.
        self.last_step = Set::of(object).stepped_at.or(self.last_step);
    }

    /// Why it has waited for so long that a person should look.
    pub fn stuck(&self, now: Timestamp) -> Option<&Reason> {
        let (reason, since) = self.waits.as_ref()?;
        (reason.is_trouble() && now.duration_since(*since) >= STUCK_AFTER).then_some(reason)
    }

    /// Since when this is why it waits.
    fn waits_since(&mut self, reason: &Reason, now: Timestamp) -> Timestamp {
        match &self.waits {
            Some((known, since)) if known == reason => *since,
            _ => {
                self.waits = Some((reason.clone(), now));
                self.told_stuck = false;
                now
            }
        }
    }
}

/// Every StatefulSet with the gate's label is seen; those that wait for nothing cost no more than that.
pub fn follow(world: &Arc<World>) {
    let (world, objects) = (world.clone(), world.objects.clone());
    vital::spawn(async move {
        let version = timed(REQUEST_TIMEOUT, objects.client.apiserver_version()).await;
        if let Some(fault) = version
            .ok()
            .and_then(|version| faulty(&version.git_version))
        {
            tracing::warn!("{fault}");
        }
        let selector = format!("{}={}", names::PARTITION_GATE, names::TRUE);
        let mut unseen: Option<BTreeSet<SetKey>> = None;
        let on_change = |change| match change {
            Change::Restarted => unseen = Some(world.partitions.lock().keys().cloned().collect()),
            Change::Applied(object) => {
                let key = key_of(&object);
                if let Some(unseen) = &mut unseen {
                    unseen.remove(&key);
                }
                let mut partitions = world.partitions.lock();
                partitions.entry(key.clone()).or_default().count(&object);
                if !Set::of(&object).is_done() || waits_of(&object).is_some() {
                    world.partition_queue.add(key);
                }
            }
            Change::Deleted(object) => drop(world.partitions.lock().remove(&key_of(&object))),
            Change::Listed => {
                for key in unseen.take().unwrap_or_default() {
                    world.partitions.lock().remove(&key);
                }
            }
            Change::Refused(why) => tracing::warn!(
                why = why.why,
                "StatefulSets cannot be listed; their partitions stay"
            ),
        };
        let of_kind = (ApiResource::erase::<StatefulSet>(&()), Scope::Namespaced);
        watch::follow(objects, of_kind, Which::Labelled(&selector), on_change).await;
    });
}

fn key_of(object: &Value) -> SetKey {
    let text = |field: &str| {
        object["metadata"][field]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    (text("namespace"), text("name"))
}

/// What the loop last said on the StatefulSet of why it waits.
pub fn waits_of(object: &Value) -> Option<&str> {
    object["metadata"]["annotations"][names::PARTITION_WAITS].as_str()
}

pub async fn reconcile(world: Arc<World>, key: SetKey) -> Option<Duration> {
    if !world.leads(&key) {
        return None;
    }
    match look(&world, &key).await {
        Ok(again) => {
            if let Some(memory) = world.partitions.lock().get_mut(&key) {
                memory.failures = 0;
            }
            again.and_then(|again| Duration::try_from(again).ok())
        }
        Err(ApiError::NotFound(_)) => None,
        Err(error) => {
            let mut partitions = world.partitions.lock();
            let memory = partitions.get_mut(&key)?;
            (memory.retries, memory.failures) = (memory.retries + 1, memory.failures + 1);
            if matches!(error, ApiError::Conflict(_)) {
                return Some(Backoff::CONFLICT.first);
            }
            tracing::warn!(statefulset = %partition::key(&key.0, &key.1), %error, "its partition could not be checked; trying again");
            Some(Backoff::PARTITION.after(memory.failures))
        }
    }
}

/// The partition stays as it is, until the key is tried again.
pub async fn panicked(world: Arc<World>, key: SetKey, rest: Duration) {
    world.metrics.panicked("statefulset");
    tracing::error!(statefulset = %partition::key(&key.0, &key.1), "its partition does not move: {}", panic_text(rest));
}

/// What a StatefulSet's next step depends on.
pub struct ObservedSet {
    pub object: Value,
    pub set: Set,
    pub pods: Vec<Pod>,
}

impl ObservedSet {
    pub async fn at(objects: &Objects, key: &ObjectKey) -> Result<Self, ApiError> {
        let object = objects.get(key).await?;
        let set = Set::of(&object);
        let pods = match set.is_done() {
            true => vec![],
            false => pods(objects, key, &object, &set).await?,
        };
        Ok(ObservedSet { object, set, pods })
    }

    /// With its pods also where its update is over, which the loop need not look at.
    pub async fn whole(objects: &Objects, key: &ObjectKey) -> Result<Self, ApiError> {
        let mut observed = Self::at(objects, key).await?;
        if observed.set.is_done() {
            observed.pods = pods(objects, key, &observed.object, &observed.set).await?;
        }
        Ok(observed)
    }

    /// Why the object that the StatefulSet names is not ready.
    pub async fn unmet_probe(&self, objects: &Objects) -> Option<String> {
        let probe = match OfWhole::of(&self.object)? {
            Ok(probe) => probe,
            Err(why) => return Some(why),
        };
        match objects.get(&probe.key).await {
            Ok(object) => probe.unmet(&object),
            Err(error) => Some(format!("{} cannot be read: {error}", probe.key)),
        }
    }
}

/// As they are now, not as a cache has them.
async fn pods(
    objects: &Objects,
    key: &ObjectKey,
    object: &Value,
    set: &Set,
) -> Result<Vec<Pod>, ApiError> {
    let selector = LabelSelector::deserialize(&object["spec"]["selector"]);
    let selector = selector.ok().and_then(|s| Selector::try_from(s).ok());
    let Some(selector) = selector.filter(|selector| !selector.selects_all()) else {
        return Ok(vec![]);
    };
    let params = ListParams::default().labels(&selector.to_string());
    let found = objects.selected("Pod", &key.namespace, params).await?;
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
    Ok(found
        .iter()
        .filter_map(|pod| Pod::of(pod, set, uid))
        .collect())
}

/// Returns when to look again, events aside.
async fn look(world: &World, set_key: &SetKey) -> Result<Option<SignedDuration>, ApiError> {
    let key = partition::key(&set_key.0, &set_key.1);
    let mut observed = ObservedSet::at(&world.objects, &key).await?;
    if observed.set.stepped_at.is_none() {
        let partitions = world.partitions.lock();
        observed.set.stepped_at = partitions.get(set_key).and_then(|memory| memory.last_step);
    }
    let mut around = around(world, &key, &observed.object);
    let now = clock::now();
    let decide = |around: &Around| {
        world
            .decisions
            .step(&observed.set, &observed.pods, around, now)
    };
    let mut step = decide(&around);
    // It is asked last, and only where nothing else is in the way.
    if matches!(step.effect, Some(Effect::Lower { .. })) {
        around.probe = observed.unmet_probe(&world.objects).await;
        step = decide(&around);
    }
    act(world, &key, &observed, &step).await?;
    tell(world, set_key, &observed, &step, now).await?;
    Ok(step.look_again)
}

fn around(world: &World, key: &ObjectKey, object: &Value) -> Around {
    let Owner::Node { key: node_key, .. } = owner(object) else {
        return Around::default();
    };
    let Some(node) = world.nodes.get(&node_key) else {
        return Around::default();
    };
    let namespace = &node.key.namespace;
    let form = world.forms.get(namespace, &node.form);
    let hub = world.hubs.get(namespace, &node.hub);
    let failed = world
        .children
        .of_node(&node_key)
        .into_iter()
        .find_map(|(other, child)| match &*child.readiness {
            Readiness::Failed(reason) if other != *key => {
                Some(format!("{other} of the same lynqnode has failed: {reason}"))
            }
            _ => None,
        });
    Around {
        forced: node.forced
            || form.is_some_and(|form| is_forced(&form.annotations))
            || hub.is_some_and(|hub| is_forced(&hub.annotations)),
        node: failed,
        probe: None,
    }
}

async fn act(
    world: &World,
    key: &ObjectKey,
    observed: &ObservedSet,
    step: &Step,
) -> Result<(), ApiError> {
    let metadata = &observed.object["metadata"];
    let uid = metadata["uid"].as_str().unwrap_or_default();
    let about = About {
        key: key.clone(),
        uid: uid.to_owned(),
    };
    match &step.effect {
        None => {}
        Some(Effect::Lower { from, to }) => {
            let patch = json!({
                "metadata": {
                    "uid": uid,
                    "resourceVersion": metadata["resourceVersion"],
                    "annotations": {names::PARTITION_WAITS: null},
                },
                "spec": {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": to}}},
            });
            world
                .objects
                .merge_as(names::PARTITION_MANAGER, key, &patch)
                .await?;
            if let Some(note) = walk::told(&observed.set, &observed.pods, *from, *to) {
                tracing::info!(statefulset = %key, "{note}");
                world
                    .events
                    .tell(&about, EventReason::PartitionLowered, note);
            }
        }
        Some(Effect::DeletePod { name, uid }) => {
            let pod = ObjectKey {
                kind: Kind::new("v1", "Pod").into(),
                namespace: key.namespace.clone(),
                name: name.clone(),
            };
            world
                .objects
                .delete(&pod, uid, None, Dependents::Go)
                .await?;
            let note = format!(
                "pod {name} is deleted: it is not ready, and its StatefulSet replaces no pod before it is"
            );
            tracing::info!(statefulset = %key, pod = name, "{note}");
            world
                .events
                .tell(&about, EventReason::BrokenPodDeleted, note);
        }
    }
    Ok(())
}

/// What lasts is told on the object itself, from where the node's status has it.
async fn tell(
    world: &World,
    set_key: &SetKey,
    observed: &ObservedSet,
    step: &Step,
    now: Timestamp,
) -> Result<(), ApiError> {
    let key = partition::key(&set_key.0, &set_key.1);
    let text = {
        let mut partitions = world.partitions.lock();
        let Some(memory) = partitions.get_mut(set_key) else {
            return Ok(());
        };
        let since = memory.waits_since(&step.reason, now);
        let lasts = now.duration_since(since) >= TOLD_AFTER;
        if memory.stuck(now).is_some() && !std::mem::replace(&mut memory.told_stuck, true) {
            let uid = observed.object["metadata"]["uid"]
                .as_str()
                .unwrap_or_default();
            let about = About {
                key: key.clone(),
                uid: uid.to_owned(),
            };
            let note = format!("no further pod is updated: {}", step.reason);
            world.events.tell(&about, EventReason::PartitionStuck, note);
        }
        match step.reason {
            Reason::Done => None,
            _ if lasts => Some(step.reason.to_string()),
            _ => return Ok(()),
        }
    };
    if step.effect.is_some() || waits_of(&observed.object) == text.as_deref() {
        return Ok(());
    }
    let patch = json!({"metadata": {
        "uid": observed.object["metadata"]["uid"],
        "resourceVersion": observed.object["metadata"]["resourceVersion"],
        "annotations": {names::PARTITION_WAITS: text},
    }});
    // Not as the step's manager: when that wrote last is when the last step was.
    world
        .objects
        .merge_as(names::STATUS_MANAGER, &key, &patch)
        .await?;
    Ok(())
}
