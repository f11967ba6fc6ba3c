//! The metrics of the maintenance of Kubernetes nodes. None is labelled by a Kubernetes node.

use std::collections::BTreeSet;
use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::cluster::evictions::Evicted;
use crate::cluster::vital::Mutex;
use crate::decide::maintenance::{KubernetesNode, Status};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfStage {
    stage: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfResult {
    result: &'static str,
}

/// Cheap to clone; all clones count together.
#[derive(Clone, Default)]
pub struct Metrics {
    nodes: Family<OfStage, Gauge>,
    blocked: Gauge,
    blocked_nodes: Arc<Mutex<BTreeSet<String>>>,
    evictions: Family<OfResult, Counter>,
}

impl Metrics {
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "lynqgate_maintenance_nodes",
            "Kubernetes nodes by the stage of their maintenance: waiting, or active",
            self.nodes.clone(),
        );
        registry.register(
            "lynqgate_maintenance_blocked_nodes",
            "Kubernetes nodes whose drain is blocked: by a PodDisruptionBudget, by pods that need a flag, or by an error",
            self.blocked.clone(),
        );
        registry.register(
            "lynqgate_maintenance_evictions",
            "Evictions that were asked for, by what the API server made of them",
            self.evictions.clone(),
        );
    }

    pub(super) fn count<'a>(&self, nodes: impl Iterator<Item = &'a KubernetesNode>) {
        let (mut waiting, mut active, mut named) = (0, 0, BTreeSet::new());
        for node in nodes {
            waiting += i64::from(node.says(Status::Waiting));
            active += i64::from(node.says(Status::Active));
            named.extend(node.says(Status::Active).then_some(&node.name));
        }
        for (stage, count) in [("waiting", waiting), ("active", active)] {
            self.nodes.get_or_create(&OfStage { stage }).set(count);
        }
        let mut blocked = self.blocked_nodes.lock();
        blocked.retain(|name| named.contains(name));
        self.blocked.set(blocked.len() as i64);
    }

    pub(super) fn blocked(&self, name: &str, is_blocked: bool) {
        let mut blocked = self.blocked_nodes.lock();
        match is_blocked {
            true => blocked.insert(name.to_owned()),
            false => blocked.remove(name),
        };
        self.blocked.set(blocked.len() as i64);
    }

    pub(super) fn evicted(&self, evicted: &Evicted) {
        let result = match evicted {
            Evicted::Accepted => "accepted",
            Evicted::Gone => "gone",
            Evicted::Budget => "budget",
            Evicted::Terminating => "terminating",
            Evicted::Again => "again",
            Evicted::Failed(_) => "failed",
        };
        self.evictions.get_or_create(&OfResult { result }).inc();
    }
}
