//! Why the pods of a workload do not run, read from the pods themselves: the workload's own status does not say it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::Selector;
use serde::Deserialize;

use crate::cluster::objects::ApiError;
use crate::controller::World;
use crate::controller::node::{Key, Look};
use crate::decide::child::{Child, Kind, ObjectKey};
use crate::decide::node::NodeDigest;
use crate::decide::readiness::{Reason, obstacle};

/// How long pods may take to start before they are looked at, for the first time and the second; later on, how often.
/// Nothing tells when they change, and who waits longer has to read something that is still true.
const LOOKS_AFTER: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(20)];
const LOOKS_EVERY: Duration = Duration::from_secs(300);

/// The obstacle is one of the first pods' as a rule, or of all.
const PODS_MAX: u32 = 50;

/// What is remembered of the pods of a workload that waits for them.
pub struct Memory {
    /// What keeps them from running.
    pub obstacle: Option<String>,
    looks: usize,
    again_at: Instant,
}

impl Look<'_> {
    /// Looks at the pods of those workloads that wait for theirs; returns when to look again.
    pub async fn look_at_pods(
        &mut self,
        node: &NodeDigest,
        keys: &[Key],
        children: &[Option<Arc<Child>>],
    ) -> Option<Timestamp> {
        let mut next: Option<Instant> = None;
        for ((facts, key), child) in node.facts.iter().zip(keys).zip(children) {
            let Some(resource) = self.memory.resources.get_mut(&facts.id) else {
                continue;
            };
            let reason = child.as_ref().and_then(|child| child.readiness.reason());
            let waits = facts.wait_for_ready && reason.is_some_and(Reason::is_of_pods);
            let Some(key) = key.as_ref().ok().filter(|_| waits) else {
                resource.pods = None;
                continue;
            };
            let memory = resource.pods.get_or_insert_with(|| Memory {
                obstacle: None,
                looks: 0,
                again_at: Instant::now() + LOOKS_AFTER[0],
            });
            if memory.again_at <= Instant::now() {
                memory.looks += 1;
                let wait = LOOKS_AFTER.get(memory.looks).unwrap_or(&LOOKS_EVERY);
                memory.again_at = Instant::now() + *wait;
                // It is a help to read; who may not see pods does without.
                memory.obstacle = obstacle(self.world, key).await.unwrap_or_else(|error| {
                    tracing::debug!(node = %self.key, %error, "its pods cannot be read");
                    None
                });
            }
            next = Some(next.map_or(memory.again_at, |next| next.min(memory.again_at)));
        }
        let wait = next?.saturating_duration_since(Instant::now());
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
