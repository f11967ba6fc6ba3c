//! One pass over the pods of a Kubernetes node: list, evict what `decide::maintenance::drain` names, and say how far it is.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use kube::api::ListParams;

use crate::api::events::EventReason;
use crate::cluster::clock;
use crate::cluster::evictions::{Evicted, evict};
use crate::cluster::objects::ApiError;
use crate::controller::maintenance::{Failed, Maintenance};
use crate::decide::child::Kind;
use crate::decide::maintenance::drain::{
    Budget, EvictionOutcome, Plan, Pod, Progress, Stage, plan, progress,
};
use crate::decide::maintenance::{KubernetesNode, Lease, NodeChange, NodeWrite, Status};

impl Maintenance {
    /// Returns when the next pass is due; None once the Kubernetes node is drained.
    pub(super) async fn drain(
        &self,
        node: &mut KubernetesNode,
        lease: &mut Option<Lease>,
        until: Timestamp,
    ) -> Result<Option<SignedDuration>, Failed> {
        let pods = self.pods_on(&node.name).await?;
        let plan = plan(pods, self.settings.allowed, node.unreachable, clock::now());
        self.note_tenants(&node.name, lease, &plan.evict).await?;
        let lease = lease.as_ref();
        self.still_held(&node.name, lease, until).await?;
        let outcomes = self.evict_all(&plan, until).await;
        let progress = progress(&plan, &outcomes);
        self.tell_progress(node, lease, until, &progress).await?;
        Ok(progress.again)
    }

    pub(super) async fn pods_on(&self, name: &str) -> Result<Vec<Pod>, ApiError> {
        let mut pods = vec![];
        let on_node = ListParams::default().fields(&format!("spec.nodeName={name}"));
        let each = |object| pods.push(Pod::of(&object));
        let objects = &self.world.objects;
        objects
            .list_selected(&Kind::new("v1", "Pod"), "", on_node, each)
            .await?;
        Ok(pods)
    }

    async fn evict_all(&self, plan: &Plan, until: Timestamp) -> Vec<(Pod, EvictionOutcome)> {
        let mut budgets = BTreeMap::new();
        let mut outcomes = vec![];
        for pod in &plan.evict {
            // A process that was stopped for long must not go on with what it decided before.
            let evicted = match clock::now() < until {
                true => evict(&self.world.objects, pod).await,
                false => Evicted::Again,
            };
            self.metrics.evicted(&evicted);
            let outcome = match evicted {
                Evicted::Accepted => EvictionOutcome::Evicted,
                Evicted::Gone => EvictionOutcome::Gone,
                Evicted::Budget => {
                    EvictionOutcome::Refused(self.budget_of(pod, &mut budgets).await)
                }
                Evicted::Terminating => EvictionOutcome::Terminating,
                Evicted::Again => EvictionOutcome::Again,
                Evicted::Failed(why) => EvictionOutcome::Failed(why),
            };
            outcomes.push((pod.clone(), outcome));
        }
        outcomes
    }

    /// The budget that refuses the eviction of the pod, if it can be read: it is a help to people only.
    async fn budget_of(
        &self,
        pod: &Pod,
        known: &mut BTreeMap<String, Vec<Budget>>,
    ) -> Option<Budget> {
        if !known.contains_key(&pod.namespace) {
            let mut budgets = vec![];
            let budget = Kind::new("policy/v1", "PodDisruptionBudget");
            let each = |object| budgets.push(Budget::of(&object));
            let listed = self.world.objects.list(&budget, &pod.namespace, each).await;
            if let Err(error) = listed {
                tracing::debug!(namespace = pod.namespace, %error, "its PodDisruptionBudgets cannot be read");
            }
            known.insert(pod.namespace.clone(), budgets);
        }
        let mut budgets = known.get(&pod.namespace)?.iter();
        budgets.find(|budget| budget.selects(pod)).cloned()
    }

    async fn tell_progress(
        &self,
        node: &mut KubernetesNode,
        lease: Option<&Lease>,
        until: Timestamp,
        progress: &Progress,
    ) -> Result<(), Failed> {
        if let Some(why) = &progress.blocked {
            self.say(&node.name, EventReason::EvictionBlocked, why.clone());
        }
        self.metrics.blocked(&node.name, progress.blocked.is_some());
        if progress.stage == Stage::Drained {
            self.say(&node.name, EventReason::Drained, progress.text.clone());
        }
        let holder = self.settings.policy.holder.as_str();
        let told = node.told(Some(Status::Active), Some(&progress.text), Some(holder));
        let Some(patch) = told else {
            return Ok(());
        };
        let write = NodeWrite {
            change: NodeChange::Status,
            status: Status::Active,
            until,
        };
        self.write(node, lease, &write, &patch).await
    }
}
