//! Where the maintenance of Kubernetes nodes meets the fleet: which LynqNodes have pods there, whose windows are full, and who is
//! late because of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cluster::clock;
use crate::cluster::nodes::{HubKey, NodesOfHub};
use crate::cluster::objects::ApiError;
use crate::controller::World;
use crate::controller::maintenance::{Failed, Maintenance};
use crate::controller::rollout::snapshot::{self, Views};
use crate::decide::child::{NodeKey, ObjectKey, Owner, owner};
use crate::decide::maintenance::Lease;
use crate::decide::maintenance::drain::{Pod, controller_of};
use crate::decide::rollout::{Maintained, full_windows};
use crate::decide::shared::backoff::Backoff;

/// Controllers between a pod and the object that a LynqNode has: a ReplicaSet's Deployment, or an operator's custom resource.
const DEPTH_MAX: usize = 4;

/// Whose the controllers are that were asked about; None: of no LynqNode.
pub type TenantsByController = BTreeMap<ObjectKey, Option<NodeKey>>;

impl Maintenance {
    /// The LynqNodes that these pods belong to.
    pub(super) async fn tenants_of(
        &self,
        name: &str,
        pods: &[Pod],
    ) -> Result<BTreeSet<NodeKey>, ApiError> {
        let mut known = self.memory(name, |memory| std::mem::take(&mut memory.known));
        let mut tenants = BTreeSet::new();
        for controller in pods.iter().filter_map(|pod| pod.controller.as_ref()) {
            let tenant = match known.get(controller) {
                Some(tenant) => tenant.clone(),
                None => {
                    let tenant = self.tenant_of(controller).await?;
                    known.insert(controller.clone(), tenant.clone());
                    tenant
                }
            };
            tenants.extend(tenant);
        }
        self.memory(name, |memory| memory.known = known);
        Ok(tenants)
    }

    /// By way of the controllers above it. One that cannot be read, or is gone, is nobody's.
    async fn tenant_of(&self, controller: &ObjectKey) -> Result<Option<NodeKey>, ApiError> {
        let mut key = controller.clone();
        for _ in 0..DEPTH_MAX {
            if key.kind == ObjectKey::own("LynqNode", "", "").kind {
                let (namespace, name) = (key.namespace, key.name);
                return Ok(Some(NodeKey::new(namespace, name)));
            }
            let metadata = match self.world.objects.metadata_of(&key).await {
                Ok(metadata) => metadata,
                Err(ApiError::NotFound(_) | ApiError::Refused(_)) => return Ok(None),
                Err(error) => return Err(error),
            };
            match owner(&json!({ "metadata": metadata })) {
                Owner::Node { key, .. } => return Ok(Some(key)),
                Owner::Nobody => return Ok(None),
                Owner::Other(_) => match controller_of(&metadata) {
                    Some(above) => key = above,
                    None => return Ok(None),
                },
            }
        }
        Ok(None)
    }

    /// The forms that have pods on the Kubernetes node, and no place in a window.
    pub(super) async fn full_windows(&self, name: &str) -> Result<Vec<String>, ApiError> {
        let pods = self.pods_on(name).await?;
        let tenants = self.tenants_of(name, &pods).await?;
        let mut forms: BTreeMap<HubKey, BTreeSet<String>> = BTreeMap::new();
        for node in tenants.iter().filter_map(|key| self.world.nodes.get(key)) {
            let hub = node.hub_key();
            forms.entry(hub).or_default().insert(node.form.clone());
        }
        let mut full = vec![];
        for (hub, forms) in forms {
            let in_the_way = self.world.full_windows(&hub);
            let both = in_the_way.intersection(&forms);
            full.extend(both.map(|form| format!("{}/{form}", hub.0)));
        }
        Ok(full)
    }

    /// Notes on the Lease whose pods are evicted, before they are: another process must know it, too.
    pub(super) async fn note_tenants(
        &self,
        name: &str,
        lease: &mut Option<Lease>,
        pods: &[Pod],
    ) -> Result<(), Failed> {
        let tenants = self.tenants_of(name, pods).await?;
        let named = tenants.iter().map(ToString::to_string).collect();
        let write = lease.as_ref().and_then(|lease| lease.with_tenants(&named));
        if let Some(write) = write {
            let key = self.lease_key(name);
            let object = write.object(&key.namespace, &key.name);
            *lease = Some(Lease::of(&self.world.objects.merge(&key, &object).await?));
        }
        if let Some(lease) = lease {
            self.world.remember_maintained(name, lease, None);
        }
        Ok(())
    }

    /// What the Leases tell of the maintenance that another process did: before any rollout goes on.
    pub async fn recall(&self) {
        let holder = &self.settings.policy.holder;
        let key = self.lease_key("");
        loop {
            let mut leases = vec![];
            let each = |object: Value| {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                leases.push((name.to_owned(), Lease::of(&object)));
            };
            match self
                .world
                .objects
                .list(&key.kind, &key.namespace, each)
                .await
            {
                Ok(()) => {
                    let ours = leases.iter().filter(|(_, lease)| lease.holder == *holder);
                    for (name, lease) in ours {
                        let ended = (!lease.is_open(holder)).then(|| lease.times().renewed);
                        self.world.remember_maintained(name, lease, ended);
                        if ended.is_none() {
                            self.queue.add(name.clone());
                        }
                    }
                    return;
                }
                // Without the rights of the component no maintenance was done here, and none begins; the fleet goes on.
                Err(error @ ApiError::Refused(_)) => {
                    tracing::error!(%error, "no maintenance of Kubernetes nodes: install kustomize/components/node-maintenance");
                    return;
                }
                Err(error) => {
                    tracing::warn!(%error, "not leading yet: the Leases of Kubernetes nodes cannot be read");
                    tokio::time::sleep(Backoff::HUB.first).await;
                }
            }
        }
    }
}

impl World {
    fn full_windows(&self, hub: &HubKey) -> BTreeSet<String> {
        let forms = self.forms_of(hub);
        let rendered = self.rendered.lock().clone();
        let of_hub = self.hubs.get(&hub.0, &hub.1);
        let seen = snapshot::SnapshotInputs {
            hub: of_hub.as_deref(),
            forms: &forms,
            named: &|name: &str| self.forms.get(&hub.0, name),
            rendered: &rendered,
        };
        let of_nodes = |nodes: NodesOfHub| snapshot::of(&seen, nodes, &mut Views::default());
        full_windows(&self.nodes.with_hub(hub, of_nodes), clock::now())
    }

    fn remember_maintained(&self, name: &str, lease: &Lease, ended: Option<Timestamp>) {
        let of = Maintained {
            kubernetes_node: name.to_owned(),
            began: lease.times().acquired,
            ended,
        };
        for tenant in &lease.tenants {
            let Some((namespace, node)) = tenant.split_once('/') else {
                continue;
            };
            let key = NodeKey::new(namespace, node);
            let before = self.maintained.lock().insert(key.clone(), of.clone());
            if before.as_ref() != Some(&of) {
                self.maintenance_changed(&key);
            }
        }
    }

    /// The maintenance of this Kubernetes node is over.
    pub(super) fn end_maintained(&self, name: &str) {
        let mut changed = vec![];
        for (key, of) in self.maintained.lock().iter_mut() {
            if of.kubernetes_node == name && of.ended.is_none() {
                of.ended = Some(clock::now());
                changed.push(key.clone());
            }
        }
        changed.iter().for_each(|key| self.maintenance_changed(key));
    }

    fn maintenance_changed(&self, key: &NodeKey) {
        self.node_queue.add(key.clone());
        if let Some(node) = self.nodes.get(key) {
            self.rollout_queue.add(node.hub_key());
        }
    }

    /// Of the nodes of a hub, by name.
    pub fn maintained_of(&self, hub: &HubKey) -> BTreeMap<Arc<str>, Maintained> {
        let maintained = self.maintained.lock();
        let of_namespace = maintained
            .iter()
            .filter(|(key, _)| *key.namespace == *hub.0);
        of_namespace
            .map(|(key, of)| (key.name.clone(), of.clone()))
            .collect()
    }

    /// What is told of a LynqNode that is not ready meanwhile.
    pub fn in_maintenance(&self, key: &NodeKey) -> Option<String> {
        let maintained = self.maintained.lock();
        let of = maintained.get(key).filter(|of| of.ended.is_none())?;
        Some(format!(
            "Kubernetes node {} is in maintenance",
            of.kubernetes_node
        ))
    }
}
