//! The shards that this process leads: what it works on, and how a shard comes and goes. Without shards there is one, of everything.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::Notify;

use crate::cluster::catalog::{Catalog, Shared};
use crate::cluster::lease::Leader;
use crate::cluster::nodes::HubKey;
use crate::cluster::queue::Queue;
use crate::cluster::vital::RwLock;
use crate::controller::World;
use crate::decide::child::{NodeKey, ObjectKey};
use crate::decide::operator::shards::shard_of;
use crate::decide::shared::backoff::Backoff;

#[derive(Default)]
pub struct Shards {
    assigned: RwLock<Assignment>,
    /// Shards whose work is to begin.
    pub queue: Queue<usize>,
    /// The first shard was taken.
    first: Notify,
}

#[derive(Default)]
struct Assignment {
    /// Into how many shards the work is divided.
    count: usize,
    /// The leases that this process holds, but for those that it is about to hand over.
    held: BTreeSet<usize>,
    /// What it works on: the held shards whose hubs and forms were read.
    led: BTreeSet<usize>,
}

impl Assignment {
    fn shard_of(&self, (namespace, name): &HubKey) -> usize {
        shard_of(namespace, name, self.count)
    }
}

impl Leader for World {
    fn take(&self, shard: usize) {
        self.shards.assigned.write().held.insert(shard);
        self.shards.queue.add(shard);
        self.shards.first.notify_one();
    }

    fn leave(&self, shard: usize) {
        let mut assigned = self.shards.assigned.write();
        assigned.held.remove(&shard);
        assigned.led.remove(&shard);
        drop(assigned);
        self.add_all_of(shard);
    }

    fn has_left(&self, shard: usize) -> bool {
        let assigned = self.shards.assigned.read();
        let is_of = |key: &HubKey| assigned.shard_of(key) == shard;
        let has = |node: &NodeKey| {
            self.nodes
                .get(node)
                .is_some_and(|node| is_of(&node.hub_key()))
        };
        !(self.hub_queue.is_busy_with(is_of)
            || self.rollout_queue.is_busy_with(is_of)
            || self.partition_queue.is_busy_with(is_of)
            || self.node_queue.is_busy_with(has))
    }
}

/// Begins the work on a shard that this process has taken.
pub async fn begin(world: Arc<World>, shard: usize) -> Option<Duration> {
    world.read_definitions().await;
    let mut assigned = world.shards.assigned.write();
    if !assigned.held.contains(&shard) {
        return None;
    }
    assigned.led.insert(shard);
    let count = assigned.count;
    drop(assigned);
    let nodes = world.add_all_of(shard);
    tracing::info!(shard, shards = count, nodes, "leading");
    None
}

impl World {
    /// Divides the work into so many shards.
    pub fn divide(&self, shards: usize) {
        self.shards.assigned.write().count = shards;
    }

    /// Until this process leads something.
    pub async fn wait_to_lead(&self) {
        self.shards.first.notified().await;
    }

    /// Whether this process works on the hub, or on the StatefulSet.
    pub fn leads(&self, key: &HubKey) -> bool {
        let assigned = self.shards.assigned.read();
        assigned.led.contains(&assigned.shard_of(key))
    }

    /// This process leads nothing any more.
    pub fn leave_all(&self) {
        let mut assigned = self.shards.assigned.write();
        assigned.held.clear();
        assigned.led.clear();
    }

    /// How many shards this process leads.
    pub fn shards_led(&self) -> usize {
        self.shards.assigned.read().led.len()
    }

    /// Has all loops look at what is of the shard, or forget it; returns how many nodes that are.
    fn add_all_of(&self, shard: usize) -> usize {
        let assigned = self.shards.assigned.read();
        let is_of = |key: &HubKey| assigned.shard_of(key) == shard;
        let of_forms = self.forms.all().into_iter();
        let of_forms = of_forms.map(|form| (form.namespace.clone(), form.hub_id.clone()));
        let of_hubs = self.hubs.all().into_iter();
        let hubs = of_hubs.map(|hub| (hub.namespace.clone(), hub.name.clone()));
        for hub in hubs.chain(of_forms).filter(is_of) {
            self.hub_queue.add(hub.clone());
            self.rollout_queue.add(hub);
        }
        let sets: Vec<HubKey> = self.partitions.lock().keys().cloned().collect();
        for set in sets.into_iter().filter(is_of) {
            self.partition_queue.add(set);
        }
        let mut nodes = self.nodes.all();
        nodes.retain(|node| is_of(&node.hub_key()));
        // Nodes that were released and are not ready hold the slots that the others wait for.
        nodes.sort_by_cached_key(|node| !node.is_broken());
        for node in &nodes {
            self.node_queue.add(node.key.clone());
        }
        nodes.len()
    }

    /// What this replica heard of hubs and forms while another led may be as old as a watch can be silent; what goes without a
    /// slot goes by what they say.
    async fn read_definitions(&self) {
        let hubs = self.read("LynqHub", &self.hubs);
        let (hubs, forms) = join(hubs, self.read("LynqForm", &self.forms)).await;
        for hub in hubs {
            self.hub_changed(Some(&hub), None);
        }
        for form in forms {
            self.form_changed(Some(&form), None);
        }
    }

    /// Returns those that are gone.
    async fn read<Spec, Status>(
        &self,
        kind: &str,
        catalog: &Catalog<Spec, Status>,
    ) -> Vec<Shared<Spec, Status>>
    where
        Spec: DeserializeOwned,
        Status: DeserializeOwned + Default,
    {
        let of = ObjectKey::own(kind, "", "").kind;
        loop {
            let (known, mut listed) = (catalog.all(), BTreeSet::new());
            let asked = catalog.asked();
            let learn = |object: Value| {
                listed.insert(catalog.learn_new(&object, asked).uid.clone());
            };
            match self.objects.list_watched(&of, learn).await {
                Ok(()) => return catalog.without(&known, &listed),
                Err(error) => {
                    tracing::warn!(kind, %error, "not leading yet: the list failed, and is tried again");
                    tokio::time::sleep(Backoff::HUB.first).await;
                }
            }
        }
    }
}
