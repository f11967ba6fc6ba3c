//! The shell of the maintenance of Kubernetes nodes: it reads the Kubernetes node and its Lease before every step, and carries
//! out what `decide::maintenance` answers. It must not decide, and it remembers nothing but what it said last.

mod draining;
pub mod metrics;
mod tenants;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use kube::api::ApiResource;
use serde_json::Value;

use crate::api::events::EventReason;
use crate::cluster::clock;
use crate::cluster::events::About;
use crate::cluster::objects::ApiError;
use crate::cluster::queue::Queue;
use crate::cluster::vital::{self, Mutex};
use crate::cluster::watch::{Change, Which, follow};
use crate::controller::{Workers, World, panic_text};
use crate::decide::child::{Kind, ObjectKey, Scope};
use crate::decide::maintenance::drain::Allowed;
use crate::decide::maintenance::lease::API_VERSION;
use crate::decide::maintenance::{
    Effect, KubernetesNode, Lease, NodeWrite, Observed, Policy, Request, Status, Step, begins, step,
};
use crate::decide::shared::backoff::Backoff;
use metrics::Metrics;

/// One at a time: two that begin together would each find the other's place free.
const WORKERS: usize = 1;
/// A step leads to rest in fewer; who writes in between has it started again.
const STEPS_MAX: usize = 8;

/// What the flags say.
#[derive(Clone, Debug)]
pub struct Settings {
    pub policy: Policy,
    pub allowed: Allowed,
}

/// The loop of all Kubernetes nodes.
pub struct Maintenance {
    world: Arc<World>,
    settings: Settings,
    metrics: Metrics,
    queue: Queue<String>,
    /// Every Kubernetes node, as the watch told last.
    nodes: Mutex<BTreeMap<String, KubernetesNode>>,
    memory: Mutex<BTreeMap<String, MaintenanceMemory>>,
}

/// Of one Kubernetes node. Lost, an event is written once more.
#[derive(Default)]
struct MaintenanceMemory {
    said: BTreeMap<EventReason, String>,
    failures: u32,
    /// Whose the pods there are.
    known: tenants::TenantsByController,
}

/// Why a step was not carried out.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("{0}")]
    Api(#[from] ApiError),
    /// It is decided again.
    #[error("the Lease changed, or ran out, before the Kubernetes node was written")]
    LeaseMoved,
}

/// Once this process leads a shard: the loops of the leader, and that of maintenance where it is turned on.
pub async fn lead_with(world: Arc<World>, workers: Workers, maintenance: Option<Arc<Maintenance>>) {
    world.wait_to_lead().await;
    match maintenance {
        Some(maintenance) => {
            maintenance.recall().await;
            tokio::join!(world.lead(workers), maintenance.run());
        }
        None => world.lead(workers).await,
    }
}

/// Whether somebody asks for its maintenance, or a status of a maintenance is still on it.
fn concerns(node: &KubernetesNode) -> bool {
    node.request != Request::None || node.status.is_some()
}

impl Maintenance {
    pub fn new(world: Arc<World>, settings: Settings, metrics: Metrics) -> Arc<Self> {
        Arc::new(Maintenance {
            world,
            settings,
            metrics,
            queue: Queue::default(),
            nodes: Mutex::default(),
            memory: Mutex::default(),
        })
    }

    /// Runs until the process ends.
    pub async fn run(self: Arc<Self>) {
        self.world.hubs.wait_listed().await;
        self.world.forms.wait_listed().await;
        self.world.nodes.wait_listed().await;
        let (of_watch, of_work, of_panics) = (self.clone(), self.clone(), self.clone());
        let objects = self.world.objects.clone();
        let of_kind = (ApiResource::erase::<Node>(&()), Scope::Cluster);
        vital::spawn(follow(objects, of_kind, Which::All, move |change| {
            of_watch.changed(change);
        }));
        let queue = self.queue.clone();
        let work = move |name: String| {
            let this = of_work.clone();
            async move { this.reconcile(&name).await }
        };
        let panicked = move |name: String, rest| {
            let this = of_panics.clone();
            async move { this.say(&name, EventReason::MaintenanceFailed, panic_text(rest)) }
        };
        queue.run(WORKERS, work, panicked).await;
    }

    fn changed(&self, change: Change) {
        match change {
            Change::Applied(object) => {
                let node = KubernetesNode::of(&object).digest();
                let name = node.name.clone();
                let before = self.nodes.lock().insert(name.clone(), node.clone());
                // Somebody may remove the request and the status in one write.
                let concerned = before.as_ref().is_some_and(concerns);
                if before.as_ref() != Some(&node) && (concerns(&node) || concerned) {
                    self.queue.add(name);
                }
            }
            Change::Deleted(object) => {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                self.nodes.lock().remove(name);
                self.queue.add(name.to_owned());
            }
            // What a new list does not name is read, and found to be gone, when it is its turn.
            Change::Restarted | Change::Listed | Change::Refused(_) => {}
        }
        self.metrics.count(self.nodes.lock().values());
    }

    /// Looks again at Kubernetes nodes whose Leases are open although nobody asks for their maintenance. The request that creates
    /// a Lease may arrive after the user has taken the maintenance back.
    fn wake_forgotten(&self, open: &[String]) {
        let nodes = self.nodes.lock();
        let concerned = |name: &&String| nodes.get(*name).is_some_and(concerns);
        let forgotten = open.iter().filter(|name| !concerned(name));
        forgotten.for_each(|name| self.queue.add(name.clone()));
    }

    /// A place is free.
    fn wake_waiting(&self) {
        let nodes = self.nodes.lock();
        let waiting = nodes.values().filter(|node| node.says(Status::Waiting));
        waiting.for_each(|node| self.queue.add(node.name.clone()));
    }

    async fn reconcile(&self, name: &str) -> Option<Duration> {
        for _ in 0..STEPS_MAX {
            match self.look(name).await {
                Ok(Some(again)) if again <= clock::now() => continue,
                Ok(again) => {
                    self.memory(name, |memory| memory.failures = 0);
                    let wait = |at: Timestamp| at.duration_since(clock::now()).unsigned_abs();
                    return again.map(wait);
                }
                Err(Failed::LeaseMoved | Failed::Api(ApiError::Conflict(_))) => break,
                Err(error) => return Some(self.failed(name, &error)),
            }
        }
        Some(Backoff::CONFLICT.first)
    }

    fn failed(&self, name: &str, error: &Failed) -> Duration {
        tracing::warn!(kubernetes_node = name, %error, "a step of the maintenance failed");
        if matches!(
            error,
            Failed::Api(ApiError::Refused(_) | ApiError::Invalid { .. })
        ) {
            let note = format!("{error}. lynqgate tries again");
            self.say(name, EventReason::MaintenanceFailed, note);
        }
        let failures = self.memory(name, |memory| {
            memory.failures += 1;
            memory.failures
        });
        Backoff::MAINTENANCE.after(failures)
    }

    /// One step: observe, decide, act. Returns when the next one is due.
    async fn look(&self, name: &str) -> Result<Option<Timestamp>, Failed> {
        let observed = self.observe(name).await?;
        let step = step(&self.settings.policy, &observed, clock::now());
        let again = self.act(&observed, &step).await?;
        if observed.node.is_none() {
            self.memory.lock().remove(name);
            self.world.end_maintained(name);
            self.wake_waiting();
            return Ok(None);
        }
        // A Lease that is reset frees a place.
        if let Some(reason) = step.reason.event() {
            self.say(name, reason, step.reason.to_string());
            if reason == EventReason::MaintenanceEnded {
                self.memory(name, |memory| *memory = MaintenanceMemory::default());
                self.world.end_maintained(name);
                self.wake_waiting();
            }
        }
        Ok(again)
    }

    async fn observe(&self, name: &str) -> Result<Observed, ApiError> {
        // The Lease first: its version then stands for a Kubernetes node that is no older. The other way round, a replica could
        // reset a Lease that another one has renewed since, for a request that it has not seen.
        let lease = found(self.world.objects.get(&self.lease_key(name)).await)?;
        let node = found(self.world.objects.get(&node_key(name)).await)?;
        let mut observed = Observed {
            node: node.map(|object| KubernetesNode::of(&object)),
            lease: lease.map(|object| Lease::of(&object)),
            ..Observed::default()
        };
        if begins(&self.settings.policy, &observed) {
            observed.others = self.others(name).await?;
            self.wake_forgotten(&observed.others);
            if observed.others.len() < self.settings.policy.nodes_max {
                observed.full_windows = self.full_windows(name).await?;
            }
        }
        Ok(observed)
    }

    /// The other Kubernetes nodes whose Leases are open.
    async fn others(&self, name: &str) -> Result<Vec<String>, ApiError> {
        let mut others = vec![];
        let holder = &self.settings.policy.holder;
        let key = self.lease_key(name);
        let each = |object: Value| {
            let other = object["metadata"]["name"].as_str().unwrap_or_default();
            if other != name && Lease::of(&object).is_open(holder) {
                others.push(other.to_owned());
            }
        };
        self.world
            .objects
            .list(&key.kind, &key.namespace, each)
            .await?;
        Ok(others)
    }

    async fn act(&self, observed: &Observed, step: &Step) -> Result<Option<Timestamp>, Failed> {
        let Some(node) = &observed.node else {
            return Ok(step.again);
        };
        let (mut node, mut lease) = (node.clone(), observed.lease.clone());
        let mut again = step.again;
        for effect in &step.effects {
            match effect {
                Effect::Lease(write) => {
                    let key = self.lease_key(&node.name);
                    let object = write.object(&key.namespace, &key.name);
                    let written = match write.over {
                        None => self.world.objects.create(&key, &object).await?,
                        Some(_) => self.world.objects.merge(&key, &object).await?,
                    };
                    lease = Some(Lease::of(&written));
                }
                Effect::Node(write) => {
                    let holder = &self.settings.policy.holder;
                    let patch = node.patch(write, &step.reason.to_string(), holder);
                    self.write(&mut node, lease.as_ref(), write, &patch).await?;
                }
                Effect::Tell(status) => {
                    let why = status.map(|_| step.reason.to_string());
                    if let Some(patch) = node.told(*status, why.as_deref(), None) {
                        self.world
                            .objects
                            .merge(&node_key(&node.name), &patch)
                            .await?;
                    }
                }
                Effect::Drain { until } => {
                    let next = self.drain(&mut node, &mut lease, *until).await?;
                    let next = next.map(|wait: SignedDuration| clock::now() + wait);
                    again = next.into_iter().chain(step.again).min();
                }
            }
        }
        Ok(again)
    }

    /// Writes the Kubernetes node, if the Lease is still the one that was decided on.
    async fn write(
        &self,
        node: &mut KubernetesNode,
        lease: Option<&Lease>,
        write: &NodeWrite,
        patch: &Value,
    ) -> Result<(), Failed> {
        let left = self.still_held(&node.name, lease, write.until).await?;
        let key = node_key(&node.name);
        let written = tokio::time::timeout(left, self.world.objects.merge(&key, patch)).await;
        *node = KubernetesNode::of(&written.map_err(|_| Failed::LeaseMoved)??);
        Ok(())
    }

    /// How long the Lease lasts; an error if it is not as it was decided on.
    async fn still_held(
        &self,
        name: &str,
        lease: Option<&Lease>,
        until: Timestamp,
    ) -> Result<Duration, Failed> {
        let read = found(self.world.objects.get(&self.lease_key(name)).await)?;
        let version = read.map(|object| Lease::of(&object).resource_version);
        let same = version == lease.map(|lease| lease.resource_version.clone());
        let now = clock::now();
        match same && now < until {
            true => Ok(until.duration_since(now).unsigned_abs()),
            false => Err(Failed::LeaseMoved),
        }
    }

    fn lease_key(&self, name: &str) -> ObjectKey {
        ObjectKey {
            kind: Kind::new(API_VERSION, "Lease").into(),
            namespace: self.world.namespace.clone().into(),
            name: name.to_owned(),
        }
    }

    fn memory<T>(&self, name: &str, change: impl FnOnce(&mut MaintenanceMemory) -> T) -> T {
        change(self.memory.lock().entry(name.to_owned()).or_default())
    }

    /// An event, unless it was the last of its reason.
    fn say(&self, name: &str, reason: EventReason, note: String) {
        let uid = self.nodes.lock().get(name).map(|node| node.uid.clone());
        let said = self.memory(name, |memory| memory.said.insert(reason, note.clone()));
        if let Some(uid) = uid
            && said.as_ref() != Some(&note)
        {
            tracing::info!(kubernetes_node = name, reason = reason.as_str(), "{note}");
            let about = About {
                key: node_key(name),
                uid,
            };
            self.world.events.tell(&about, reason, note);
        }
    }
}

fn node_key(name: &str) -> ObjectKey {
    ObjectKey {
        kind: Kind::new("v1", "Node").into(),
        namespace: "".into(),
        name: name.to_owned(),
    }
}

fn found(read: Result<Value, ApiError>) -> Result<Option<Value>, ApiError> {
    match read {
        Ok(object) => Ok(Some(object)),
        Err(ApiError::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}
