//! The loops of the leader: each observes, lets `decide` decide, and acts without a choice left.

pub mod decisions;
pub mod hub;
pub mod installation;
pub mod maintenance;
pub mod metrics;
pub mod node;
pub mod partition;
pub mod recordings;
pub mod rollout;
pub mod shards;
pub mod trial;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::CustomResourceExt;
use kube::api::ApiResource;
use tokio::sync::{Notify, Semaphore};

use crate::api::form::{FormSpec, FormStatus, LynqForm};
use crate::api::hub::{HubSpec, HubStatus, LynqHub};
use crate::api::node::LynqNode;
use crate::api::resource::ConflictPolicy;
use crate::cluster::cache::Changed;
use crate::cluster::catalog::{Catalog, Form, Hub};
use crate::cluster::children::Children;
use crate::cluster::events::Events;
use crate::cluster::namespaces::Namespaces;
use crate::cluster::nodes::{HubKey, Nodes};
use crate::cluster::objects::Objects;
use crate::cluster::queue::Queue;
use crate::cluster::vital::{self, Mutex};
use crate::cluster::watch::{Change, Which, follow};
use crate::controller::decisions::Decisions;
use crate::controller::node::pods::PodLooks;
use crate::controller::rollout::confirm::Confirmed;
use crate::controller::rollout::snapshot::is_forced;
use crate::decide::child::{Kind, NodeKey, Scope};
use crate::decide::hub::desired::Desired;
use crate::decide::node::digest::NodeDigest;
use crate::decide::rollout::{Maintained, Plan};
use metrics::Metrics;
use recordings::Recordings;

/// The kinds that Lynq's arrays are for.
pub const BUILT_IN: [(&str, &str); 15] = [
    ("v1", "ServiceAccount"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "DaemonSet"),
    ("v1", "Service"),
    ("networking.k8s.io/v1", "Ingress"),
    ("v1", "ConfigMap"),
    ("v1", "Secret"),
    ("v1", "PersistentVolumeClaim"),
    ("batch/v1", "Job"),
    ("batch/v1", "CronJob"),
    ("policy/v1", "PodDisruptionBudget"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("autoscaling/v2", "HorizontalPodAutoscaler"),
    ("v1", "Namespace"),
];

/// How many databases may be read at a time: many may hang, and those that do not are read all the same.
const DATABASES_MAX: usize = 100;

/// How many release loops may run at a time, each of one hub. They mostly wait for the API server.
const RELEASE_LOOPS_MAX: usize = 16;

/// How long a node is held before its status says so.
const HELD_SHOWN_AFTER: Duration = Duration::from_millis(500);

/// How many hubs render and write nodes at a time, and how many nodes are reconciled.
#[derive(Clone, Copy, Debug)]
pub struct Workers {
    pub hubs: usize,
    pub nodes: usize,
}

/// How often a node met what is somebody else's, by kind and policy.
pub type Conflicts = BTreeMap<(String, ConflictPolicy), u64>;

/// That a node was looked at.
pub struct Looked {
    /// Why that was in vain, where it was a few times.
    pub in_vain: Option<String>,
    /// Since when it is, or is not.
    pub since: Timestamp,
}

/// What the loops share.
pub struct World {
    /// The operator's own.
    pub namespace: String,
    pub objects: Objects,
    pub decisions: Arc<dyn Decisions>,
    pub events: Events,
    pub metrics: Metrics,
    pub nodes: Nodes,
    pub children: Children,
    pub namespaces: Namespaces,
    pub hubs: Catalog<HubSpec, HubStatus>,
    pub forms: Catalog<FormSpec, FormStatus>,
    pub node_queue: Queue<NodeKey>,
    pub pod_looks: PodLooks,
    pub hub_queue: Queue<HubKey>,
    pub databases: hub::Databases,
    pub rollout_queue: Queue<HubKey>,
    pub partition_queue: Queue<partition::SetKey>,
    /// The StatefulSets whose partition lynqgate moves.
    pub partitions: Mutex<BTreeMap<partition::SetKey, partition::PartitionMemory>>,
    /// The release loop has been at the statuses of some hub's forms.
    pub forms_told: Notify,
    /// The newest plan of each hub in which a node waits: why it does is shown in its status.
    pub plans: Mutex<BTreeMap<HubKey, Arc<Plan>>>,
    /// What each form was rendered to last, and why it cannot be rendered at all.
    pub rendered: Mutex<BTreeMap<(String, String), Rendered>>,
    /// Whether the deletions of a hub are held back, once one of its syncs has looked.
    pub deletions_held: Mutex<BTreeMap<HubKey, bool>>,
    /// Nodes that this process has looked at, or tried to. The statuses of all others are those of another process, and may be
    /// old.
    pub looked: Mutex<BTreeMap<NodeKey, Looked>>,
    /// Those of them that were looked at in vain.
    pub in_vain: Mutex<BTreeSet<NodeKey>>,
    /// Of nodes of which it is not known what runs: the hash of their desired content, and whether its release would change nothing.
    pub unchanged: Mutex<BTreeMap<NodeKey, (String, bool)>>,
    pub conflicts: Mutex<BTreeMap<NodeKey, Conflicts>>,
    /// Nodes whose pods were evicted for the maintenance of a Kubernetes node.
    pub maintained: Mutex<BTreeMap<NodeKey, Maintained>>,
    node_memory: Mutex<BTreeMap<NodeKey, Box<node::NodeMemory>>>,
    hub_memory: Mutex<BTreeMap<HubKey, hub::HubMemory>>,
    rollout_memory: Mutex<BTreeMap<HubKey, rollout::RolloutMemory>>,
    /// The hubs whose release loops do not rest before their next passes.
    hurried: Mutex<BTreeSet<HubKey>>,
    confirmed: Confirmed,
    pub recordings: Recordings,
    pub shards: shards::Shards,
}

/// Uids and generations of a hub and its forms, and whether they are forced.
#[derive(PartialEq)]
pub struct Said(Vec<(String, i64, bool)>);

/// What the hub loop made of a form.
#[derive(Clone, Debug, Default)]
pub struct Rendered {
    pub generation: i64,
    /// The oldest generation that is known to render the same: what came since changes no more than the policy.
    pub same_since: i64,
    /// What the desired nodes were rendered from.
    pub spec: Option<Arc<FormSpec>>,
    /// Of the hub's spec whose rows they were rendered from ([`sync::rows_hash`](crate::decide::hub::sync::rows_hash)).
    pub rows_hash: Option<String>,
    /// The nodes that its rows ask for, since its first sync. Those that do not hold it yet are not released.
    pub desired: Option<Arc<Desired>>,
    /// They are being written: what does not hold it yet is no reason for another sync.
    pub writing: bool,
    /// Nodes that could not be written from it, and will not be by trying again.
    pub unwritten: BTreeSet<Arc<str>>,
    pub error: Option<String>,
}

impl Rendered {
    /// Until this process has rendered the form, as its status tells of the one before.
    fn told(status: &FormStatus) -> Self {
        let generation = status.observed_generation.unwrap_or_default();
        Rendered {
            generation,
            same_since: generation,
            ..Rendered::default()
        }
    }

    fn is_behind(&self, node: &NodeDigest) -> bool {
        // What cannot be rendered no sync can mend.
        let mends = !self.writing && self.error.is_none();
        let desired = self.desired.as_ref().filter(|_| mends);
        desired.is_some_and(|desired| desired.is_behind(node))
            && !self.unwritten.contains(&node.key.name)
    }
}

/// What people read where a reconcile panicked. The panic's own text may quote a row, so it is in the pod's log only.
fn panic_text(rest: Duration) -> String {
    format!(
        "lynqgate panicked, which is a bug. It tries again in {} s. Report the panic in lynqgate's log",
        rest.as_secs()
    )
}

/// Ends what release loops have under way when the loops themselves are dropped: another replica may lead then.
struct EndsRequests(Arc<World>);

impl Drop for EndsRequests {
    fn drop(&mut self) {
        self.0.leave_all();
        self.0.rollout_memory.lock().clear();
    }
}

impl World {
    pub fn new(
        decisions: Arc<dyn Decisions>,
        namespace: &str,
        objects: Objects,
        events: Events,
        metrics: Metrics,
        databases: hub::Databases,
    ) -> Arc<Self> {
        let node_queue: Queue<NodeKey> = Queue::default();
        let touched = node_queue.clone();
        Arc::new(World {
            namespace: namespace.to_owned(),
            objects,
            decisions,
            events,
            metrics,
            nodes: Nodes::default(),
            children: Children::new(move |node| touched.add(node)),
            namespaces: Namespaces::default(),
            hubs: Catalog::default(),
            forms: Catalog::default(),
            node_queue,
            pod_looks: PodLooks::default(),
            hub_queue: Queue::default(),
            databases,
            rollout_queue: Queue::default(),
            partition_queue: Queue::default(),
            partitions: Mutex::default(),
            forms_told: Notify::new(),
            plans: Mutex::default(),
            rendered: Mutex::default(),
            deletions_held: Mutex::default(),
            looked: Mutex::default(),
            in_vain: Mutex::default(),
            unchanged: Mutex::default(),
            conflicts: Mutex::default(),
            maintained: Mutex::default(),
            node_memory: Mutex::default(),
            hub_memory: Mutex::default(),
            rollout_memory: Mutex::default(),
            hurried: Mutex::default(),
            confirmed: Confirmed::default(),
            recordings: Recordings::default(),
            shards: shards::Shards::default(),
        })
    }

    /// Runs every loop until the process ends, for the shards that it leads.
    pub async fn lead(self: Arc<Self>, workers: Workers) {
        self.watch();
        self.watch_built_in_kinds().await;
        self.hubs.wait_listed().await;
        self.forms.wait_listed().await;
        self.nodes.wait_listed().await;
        self.recordings.begin();
        let turns = Arc::new(Semaphore::new(workers.hubs));
        let _requests = EndsRequests(self.clone());
        let of = || self.clone();
        let (shards, hubs, rollouts, nodes) = (of(), of(), of(), of());
        let (hubs_rest, rollouts_rest, nodes_rest) = (of(), of(), of());
        let (partitions, partitions_rest) = (of(), of());
        tokio::join!(
            self.shards.queue.clone().run(
                1,
                move |shard| shards::begin(shards.clone(), shard),
                |_, _| async { vital::end("a shard could not be taken over") },
            ),
            self.hub_queue.clone().run(
                DATABASES_MAX,
                move |key| hub::reconcile(hubs.clone(), turns.clone(), key),
                move |key, rest| hub::panicked(hubs_rest.clone(), key, rest),
            ),
            self.rollout_queue.clone().run(
                RELEASE_LOOPS_MAX,
                move |key| rollout::reconcile(rollouts.clone(), key),
                move |key, rest| rollout::panicked(rollouts_rest.clone(), key, rest),
            ),
            self.node_queue.clone().run(
                workers.nodes,
                move |key| node::reconcile(nodes.clone(), key),
                move |key, rest| node::panicked(nodes_rest.clone(), key, rest),
            ),
            self.partition_queue.clone().run(
                workers.nodes,
                move |key| partition::reconcile(partitions.clone(), key),
                move |key, rest| partition::panicked(partitions_rest.clone(), key, rest),
            ),
        );
    }

    /// Objects of these kinds are found though no content names their kind any more. Other kinds are watched once some
    /// content names them; so are cluster-scoped ones where some namespaces are watched only, for no Role allows that.
    async fn watch_built_in_kinds(&self) {
        for (api_version, kind) in BUILT_IN {
            let kind = Kind {
                api_version: api_version.into(),
                kind: kind.into(),
            };
            let is_all = self.objects.watched().is_all();
            match self.objects.served(&kind).await {
                Ok(Some(served)) if served.scope == Scope::Cluster && !is_all => {}
                Ok(Some(served)) => self.children.watch(&kind, &served, &self.objects),
                Ok(None) => tracing::warn!(%kind, "the cluster does not serve this kind"),
                Err(error) => {
                    tracing::warn!(%kind, %error, "the kind could not be looked up; it is watched once a node names it")
                }
            }
        }
    }

    fn watch(self: &Arc<Self>) {
        let world = self.clone();
        self.follow(LynqNode::api_resource(), Scope::Namespaced, move |change| {
            for changed in world.nodes.change(change) {
                world.node_changed(&changed);
            }
        });
        partition::follow(self);
        // No Role allows a watch of namespaces. Those that are watched exist: a RoleBinding is in each.
        if !self.objects.watched().is_all() {
            return;
        }
        let world = self.clone();
        let resource = ApiResource::erase::<Namespace>(&());
        self.follow(resource, Scope::Cluster, move |change| {
            for node in world.namespaces.change(change) {
                world.node_queue.add(node);
            }
        });
    }

    /// Every replica follows forms and hubs: the webhook's warnings name their windows.
    pub fn follow_definitions(self: &Arc<Self>) {
        let world = self.clone();
        self.follow(LynqHub::api_resource(), Scope::Namespaced, move |change| {
            for Changed { before, now } in world.hubs.change(change) {
                world.hub_changed(before.as_deref(), now.as_deref());
            }
        });
        let world = self.clone();
        self.follow(LynqForm::api_resource(), Scope::Namespaced, move |change| {
            for Changed { before, now } in world.forms.change(change) {
                world.form_changed(before.as_deref(), now.as_deref());
            }
        });
    }

    fn follow(
        &self,
        resource: ApiResource,
        scope: Scope,
        on_change: impl FnMut(Change) + Send + 'static,
    ) {
        let objects = self.objects.clone();
        vital::spawn(follow(objects, (resource, scope), Which::All, on_change));
    }

    /// A node's event concerns its own loop and its hub's releases; a node that is gone may have to be made again.
    pub fn node_changed(&self, changed: &Changed<NodeDigest>) {
        let node = changed.node();
        let hub = node.hub_key();
        self.look_at(node);
        if changed.now.is_some() && self.is_behind(node) {
            self.hub_queue.add(hub.clone());
        }
        if changed.now.is_none() {
            self.hub_queue.add(hub.clone());
            // The form may be another hub's by now, which waits for the name.
            let form = self.forms.get(&node.key.namespace, &node.form);
            let heir = form.map(|form| (form.namespace.clone(), form.hub_id.clone()));
            heir.into_iter().for_each(|heir| self.hub_queue.add(heir));
        }
        self.rollout_queue.add(hub);
    }

    /// A form's change holds all of its nodes at once; those on their way must not wait behind what is only to be shown. And who is
    /// released in a moment shows nothing before: a status that is written meanwhile is a conflict for the release.
    pub fn look_at(&self, node: &NodeDigest) {
        let is_shown = node.held() && self.looked.lock().contains_key(&node.key);
        match is_shown {
            true => (self.node_queue).add_last_after(node.key.clone(), HELD_SHOWN_AFTER),
            false => self.node_queue.add(node.key.clone()),
        }
    }

    /// Whether a node of the hub [is behind](Self::is_behind).
    fn has_behind(&self, hub: &HubKey) -> bool {
        let forms = self.forms_of(hub);
        let forms = forms.iter().filter(|form| form.spec.is_ok());
        let rendered = self.rendered.lock();
        let of_form = |form: &'_ Arc<Form>| {
            let key = (form.namespace.clone(), form.name.clone());
            Some((form.name.clone(), rendered.get(&key)?))
        };
        let forms: BTreeMap<String, &Rendered> = forms.filter_map(of_form).collect();
        self.nodes.with_hub(hub, |mut nodes| {
            nodes.any(|node| {
                let form = forms.get(&node.form).filter(|_| !node.deleting);
                form.is_some_and(|form| form.is_behind(node))
            })
        })
    }

    /// Whether the node holds something else than was rendered for it: a write that was late, or a copy of an older time.
    fn is_behind(&self, node: &NodeDigest) -> bool {
        let form = self.forms.get(&node.key.namespace, &node.form);
        let renders =
            |form: Arc<Form>| form.spec.is_ok() && form.hub_id == node.hub && !form.deleting;
        if node.deleting || !form.is_some_and(renders) {
            return false;
        }
        let form = (node.key.namespace.to_string(), node.form.clone());
        let rendered = self.rendered.lock();
        let form = rendered.get(&form);
        form.is_some_and(|form| form.is_behind(node))
    }

    /// Nothing is kept of a hub whose rows another replica reads.
    fn forget_rows(&self, key: &HubKey) {
        self.hub_memory.lock().remove(key);
        self.deletions_held.lock().remove(key);
        let mut rendered = self.rendered.lock();
        for form in self.forms_of(key) {
            rendered.remove(&(form.namespace.clone(), form.name.clone()));
        }
        self.databases.forget(key);
    }

    /// The next pass of the hub's release loop comes at once, without a rest before it, because somebody waits for it.
    fn hurry(&self, hub: &HubKey) {
        self.hurried.lock().insert(hub.clone());
        self.rollout_queue.add(hub.clone());
    }

    /// Nothing is kept of a hub whose nodes another replica releases.
    fn forget_rollout(&self, key: &HubKey) {
        self.rollout_memory.lock().remove(key);
        self.confirmed.take(key);
        self.plans.lock().remove(key);
        self.recordings.forget(key);
        self.metrics.forget_hub(key);
        for form in self.forms_of(key) {
            self.metrics.forget(&form.namespace, &form.name);
        }
    }

    /// Nothing is kept of a node that is gone, or that another replica looks after.
    fn forget_node(&self, key: &NodeKey) {
        self.node_memory.lock().remove(key);
        self.looked.lock().remove(key);
        self.in_vain.lock().remove(key);
        self.unchanged.lock().remove(key);
        self.conflicts.lock().remove(key);
        self.maintained.lock().remove(key);
        self.namespaces.forget_node(key);
        self.children.forget_node(key);
    }

    fn form_changed(&self, before: Option<&Form>, now: Option<&Form>) {
        let stays = |gone: &&Form| now.is_some_and(|now| now.uid == gone.uid);
        if let Some(gone) = before.filter(|gone| !stays(gone)) {
            let key = (gone.namespace.clone(), gone.name.clone());
            let mut rendered = self.rendered.lock();
            rendered.remove(&key);
        }
        if let (Some(gone), None) = (before, now) {
            self.metrics.forget(&gone.namespace, &gone.name);
        }
        for form in [before, now].into_iter().flatten() {
            let hub = (form.namespace.clone(), form.hub_id.clone());
            let same = matches!((before, now), (Some(a), Some(b)) if a.uid == b.uid && a.generation == b.generation && a.annotations == b.annotations);
            match same {
                true => self.rollout_queue.add(hub),
                false => {
                    self.hurry(&hub);
                    self.hub_queue.add(hub);
                }
            }
        }
    }

    fn hub_changed(&self, before: Option<&Hub>, now: Option<&Hub>) {
        let Some(hub) = now.or(before) else { return };
        let key = (hub.namespace.clone(), hub.name.clone());
        let unchanged = |a: &Hub, b: &Hub| {
            a.uid == b.uid
                && a.generation == b.generation
                && a.annotations == b.annotations
                && a.deleting == b.deleting
        };
        if now.is_none() {
            self.metrics.forget_hub(&key);
            self.databases.forget(&key);
        }
        if !matches!((before, now), (Some(a), Some(b)) if unchanged(a, b)) {
            self.hurry(&key);
            self.hub_queue.add(key);
        } else if before.map(|h| &h.status.rollout) != now.map(|h| &h.status.rollout) {
            self.rollout_queue.add(key);
        }
    }

    /// What the hub and its forms say now. What was decided holds for as long as they say the same.
    pub fn said(&self, hub: &HubKey) -> Said {
        let of_hub = self.hubs.get(&hub.0, &hub.1);
        let of_hub =
            of_hub.map(|hub| (hub.uid.clone(), hub.generation, is_forced(&hub.annotations)));
        let forms = self.forms_of(hub).into_iter();
        let of_forms = forms.map(|form| {
            (
                form.uid.clone(),
                form.generation,
                is_forced(&form.annotations),
            )
        });
        Said(of_hub.into_iter().chain(of_forms).collect())
    }

    /// Whether they say what was decided on, and this process still works on them.
    pub fn still_says(&self, hub: &HubKey, decided_on: &Said) -> bool {
        self.leads(hub) && self.decisions.still_says(decided_on, &self.said(hub))
    }

    /// The forms that name this hub, by name.
    pub fn forms_of(&self, hub: &HubKey) -> Vec<Arc<Form>> {
        self.forms
            .in_namespace(&hub.0)
            .into_iter()
            .filter(|form| form.hub_id == hub.1 && !form.deleting)
            .collect()
    }
}
