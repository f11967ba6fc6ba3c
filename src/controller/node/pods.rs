//! Why the pods of a workload do not run, read from the pods themselves: the workload's own status does not say it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::Selector;
use serde::Deserialize;
use tokio::sync::Semaphore;

use crate::cluster::objects::ApiError;
use crate::controller::World;
use crate::controller::node::{Key, Look};
use crate::decide::child::{Child, Kind, ObjectKey};
use crate::decide::node::NodeDigest;
use crate::decide::readiness::{Reason, obstacle};

/// How long pods may take to start before they are looked at. Nothing tells when they change, so that they are looked at
/// again after twice as long, and so on: who waits longer has to read something that is still true.
const FIRST_AFTER: Duration = Duration::from_secs(5);
const EVERY_MAX: Duration = Duration::from_secs(1800);
/// As a rule the workload changes when its pods do.
const NEWS_AFTER: Duration = Duration::from_secs(10);

/// A whole fleet may be down.
static LOOKS: Semaphore = Semaphore::const_new(4);
const BUSY_RETRY: Duration = Duration::from_secs(10);

/// The obstacle is one of the first pods' as a rule, or of all.
const PODS_MAX: u32 = 50;

/// What is remembered of the pods of a workload that waits for them.
pub struct Memory {
    /// What keeps them from running.
    pub obstacle: Option<String>,
    /// The workload's resourceVersion when it was seen last.
    version: String,
    wait: Duration,
    again_at: Instant,
}

impl Look<'_> {
    /// Looks at the pods of those workloads that wait for theirs; returns when to look again, at once where something is news.
    pub async fn look_at_pods(
        &mut self,
        node: &NodeDigest,
        keys: &[Key],
        children: &[Option<Arc<Child>>],
    ) -> Option<Timestamp> {
        let mut next: Option<Instant> = None;
        let mut news = false;
        for ((facts, key), child) in node.facts.iter().zip(keys).zip(children) {
            let Some(resource) = self.memory.resources.get_mut(&facts.id) else {
                continue;
            };
            let waits = |child: &&Arc<Child>| {
                let reason = child.readiness.reason();
                facts.wait_for_ready && reason.is_some_and(Reason::is_of_pods)
            };
            let (Some(child), Ok(key)) = (child.as_ref().filter(waits), key) else {
                resource.pods = None;
                continue;
            };
            let now = Instant::now();
            let memory = resource.pods.get_or_insert_with(|| Memory {
                obstacle: None,
                version: child.resource_version.clone(),
                wait: FIRST_AFTER,
                again_at: now + FIRST_AFTER,
            });
            if memory.version != child.resource_version {
                memory.version.clone_from(&child.resource_version);
                memory.again_at = memory.again_at.min(now + NEWS_AFTER);
            }
            if memory.again_at <= now {
                match LOOKS.try_acquire() {
                    Err(_) => memory.again_at = now + BUSY_RETRY,
                    Ok(_permit) => {
                        memory.again_at = now + BUSY_RETRY;
                        let found = match obstacle(self.world, key).await {
                            Ok(found) => found,
                            // It is a help to read; who may not see pods does without.
                            Err(ApiError::Refused(_) | ApiError::NotFound(_)) => None,
                            Err(error) => {
                                tracing::debug!(node = %self.key, %error, "its pods cannot be read");
                                next = next.into_iter().chain([memory.again_at]).min();
                                continue;
                            }
                        };
                        memory.wait = EVERY_MAX.min(memory.wait * 2);
                        memory.again_at = now + memory.wait;
                        news |= memory.obstacle != found;
                        memory.obstacle = found;
                    }
                }
            }
            next = next.into_iter().chain([memory.again_at]).min();
        }
        let wait = match news {
            true => Duration::ZERO,
            false => next?.saturating_duration_since(Instant::now()),
        };
        let wait = SignedDuration::try_from(wait).ok()?;
        Timestamp::now().checked_add(wait).ok()
    }
}

async fn obstacle(world: &World, key: &ObjectKey) -> Result<Option<String>, ApiError> {
    let workload = world.objects.get(key).await?;
    let selector = LabelSelector::deserialize(&workload["spec"]["selector"]);
    let selector = selector.ok().and_then(|s| Selector::try_from(s).ok());
    // An empty one selects all pods of the namespace.
    let Some(selector) = selector.filter(|selector| !selector.selects_all()) else {
        return Ok(None);
    };
    let pods = Kind {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
    };
    let pods = world
        .objects
        .some(&pods, &key.namespace, &selector.to_string(), PODS_MAX)
        .await?;
    Ok(obstacle::of(&pods))
}
