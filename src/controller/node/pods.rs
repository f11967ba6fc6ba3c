//! Why the pods of a workload do not run, read from the pods themselves: the workload's own status does not say it.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::ListParams;
use kube::core::Selector;
use serde::Deserialize;
use tokio::sync::Semaphore;

use crate::cluster::clock::{self, Instant};
use crate::cluster::objects::ApiError;
use crate::controller::World;
use crate::controller::node::{Key, NodeReconciler};
use crate::decide::child::{Child, ObjectKey};
use crate::decide::node::digest::NodeDigest;
use crate::decide::readiness::{Reason, obstacle};
use crate::decide::shared::backoff::Backoff;

/// How long pods may take to start before they are looked at. Nothing tells when they change, so that they are looked at again
/// after as long as was waited so far: who waits longer has to read something that is still true.
const FIRST_AFTER: Duration = Duration::from_secs(2);
const EVERY_MAX: Duration = Duration::from_secs(1800);
/// In the first minute somebody waits for the cause of what was just released.
const SOON: Duration = Duration::from_secs(60);
const SOON_EVERY_MAX: Duration = Duration::from_secs(10);
/// For so long it is no news that a pod has not started.
const STARTS_WITHIN: Duration = Duration::from_secs(20);
/// As a rule the workload changes when its pods do.
const NEWS_AFTER: Duration = Duration::from_secs(10);

/// How many workloads' pods are read at a time: few, because a whole fleet may be down. A field of the `World` holds it, because
/// the simulation runs several processes in one.
pub struct PodLooks(Semaphore);

impl Default for PodLooks {
    fn default() -> Self {
        PodLooks(Semaphore::new(4))
    }
}

/// The obstacle is one of the first pods' as a rule, or of all.
const PODS_MAX: u32 = 50;

/// What is remembered of the pods of a workload that waits for them.
pub struct PodsMemory {
    /// What keeps them from running.
    pub obstacle: Option<String>,
    /// The workload's resourceVersion when it was seen last.
    version: String,
    since: Instant,
    again_at: Instant,
}

impl PodsMemory {
    fn new(workload: &Child) -> Self {
        let now = clock::instant();
        PodsMemory {
            obstacle: None,
            version: workload.resource_version.clone(),
            since: now,
            again_at: now + FIRST_AFTER,
        }
    }

    /// Looks, if it is time for that; whether something else is to be said.
    async fn look(&mut self, world: &World, key: &ObjectKey, workload: &Child) -> bool {
        let now = clock::instant();
        if self.version != workload.resource_version {
            self.version.clone_from(&workload.resource_version);
            self.again_at = self.again_at.min(now + NEWS_AFTER);
        }
        if self.again_at > now {
            return false;
        }
        self.again_at = now + Backoff::UNASKED.first;
        let Ok(_permit) = world.pod_looks.0.try_acquire() else {
            return false;
        };
        let waited = now - self.since;
        let found = match obstacle(world, key, waited >= STARTS_WITHIN).await {
            Ok(found) => found,
            // It is a help to read; who may not see pods does without.
            Err(ApiError::Refused(_) | ApiError::Invalid { .. } | ApiError::NotFound(_)) => None,
            Err(error) => {
                tracing::debug!(object = %key, %error, "its pods cannot be read");
                return false;
            }
        };
        let most = match found {
            None if waited < SOON => SOON_EVERY_MAX,
            _ => EVERY_MAX,
        };
        self.again_at = now + waited.min(most);
        let is_news = self.obstacle != found;
        self.obstacle = found;
        is_news
    }
}

impl NodeReconciler<'_> {
    /// Looks at the pods of those workloads that wait for theirs; returns when to look again, at once where something is news.
    pub async fn look_at_pods(
        &mut self,
        node: &NodeDigest,
        keys: &[Key],
        children: &[Option<Arc<Child>>],
    ) -> Option<Timestamp> {
        let (mut next, mut news): (Option<Instant>, bool) = (None, false);
        for ((facts, key), child) in node.facts.iter().zip(keys).zip(children) {
            let resource = self.memory.resource_mut(&facts.id);
            let waits = |child: &&Arc<Child>| {
                let reason = child.readiness.reason();
                facts.wait_for_ready && reason.is_some_and(Reason::is_of_pods)
            };
            let (Some(child), Ok(key)) = (child.as_ref().filter(waits), key) else {
                resource.pods = None;
                continue;
            };
            let memory = resource
                .pods
                .get_or_insert_with(|| Box::new(PodsMemory::new(child)));
            news |= memory.look(self.world, key, child).await;
            next = next.into_iter().chain([memory.again_at]).min();
        }
        let wait = match news {
            true => Duration::ZERO,
            false => next?.saturating_duration_since(clock::instant()),
        };
        let wait = SignedDuration::try_from(wait).ok()?;
        clock::now().checked_add(wait).ok()
    }
}

/// `late`: that a pod has not started is worth saying.
async fn obstacle(world: &World, key: &ObjectKey, late: bool) -> Result<Option<String>, ApiError> {
    let workload = world.objects.get(key).await?;
    let selector = LabelSelector::deserialize(&workload["spec"]["selector"]);
    let selector = selector.ok().and_then(|s| Selector::try_from(s).ok());
    // An empty one selects all pods of the namespace.
    let Some(selector) = selector.filter(|selector| !selector.selects_all()) else {
        return Ok(None);
    };
    // As the API server's cache has them.
    let params = ListParams::default().labels(&selector.to_string());
    let params = params.limit(PODS_MAX).match_any();
    let pods = world
        .objects
        .selected("Pod", &key.namespace, params)
        .await?;
    let found = obstacle::of(&workload, &pods);
    if found.is_some() {
        return Ok(found);
    }
    let refused = match obstacle::tells_refusals(&workload) {
        true => Vec::new(),
        // Their controllers say only in events that they may not make a pod.
        false => {
            let uid = workload["metadata"]["uid"].as_str().unwrap_or_default();
            let params = ListParams::default().fields(&format!("involvedObject.uid={uid}"));
            let params = params.limit(PODS_MAX);
            let events = world.objects.selected("Event", &key.namespace, params);
            match events.await {
                Err(ApiError::Refused(_)) => Vec::new(),
                events => events?,
            }
        }
    };
    let refused = obstacle::refused(&refused, &pods);
    Ok(refused.or_else(|| late.then(|| obstacle::not_started(&pods))?))
}
