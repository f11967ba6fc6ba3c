//! The live read before a slot is freed: what a watch has shown may be old.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::stream::{self, StreamExt};

use crate::cluster::clock;
use crate::cluster::objects::ApiError;
use crate::controller::World;
use crate::controller::node::takeover::{place, place_of};
use crate::controller::node::{REQUESTS_MAX, key_in, min_delay};
use crate::decide::child::{Child, ObjectKey};
use crate::decide::node::digest::{Facts, NodeDigest, contents};
use crate::decide::node::plan::ownership::is_ours;
use crate::decide::node::plan::record::Record;
use crate::decide::node::plan::{untold_delay, untold_until};
use crate::decide::node::takeover::recorded;
use crate::decide::readiness::Readiness;
use crate::decide::rollout::Live;
use crate::decide::shared::version;

/// Whether the node's workloads are ready by a live read, with the content that is live now. What was read is learnt.
pub async fn confirm_ready(world: &World, node: &NodeDigest) -> Result<bool, ApiError> {
    if node.live == Live::Unknown {
        return unknown_is_ready(world, node).await;
    }
    let workloads = node.facts.iter();
    let workloads = workloads.filter(|facts| is_workload(facts) && facts.render_error.is_none());
    let reads: Vec<_> = workloads
        .map(|facts| is_ready(world, node, facts))
        .collect();
    let mut reads = stream::iter(reads).buffer_unordered(REQUESTS_MAX);
    while let Some(ready) = reads.next().await {
        if !ready? {
            return Ok(false);
        }
    }
    Ok(true)
}

async fn is_ready(world: &World, node: &NodeDigest, facts: &Facts) -> Result<bool, ApiError> {
    let Some(served) = world.objects.served(&facts.kind).await? else {
        return Ok(false);
    };
    let child = read_child(world, node, &key_in(facts, served.scope)).await?;
    let Some(child) = child.filter(|child| !child.deleting) else {
        return Ok(Record::of(&node.status).has_run(facts));
    };
    let current = child.applied_hash.as_ref() == Some(&facts.hash) || facts.once;
    let told = match &*child.readiness {
        readiness @ Readiness::Unknown(_) => {
            let min_delay = min_delay(world, node);
            let delay = untold_delay(facts, min_delay, served.has_status, Some(readiness));
            untold_until(&child, delay).is_none_or(|until| until <= clock::now())
        }
        Readiness::Ready => true,
        Readiness::Waiting(_) | Readiness::Failed(_) => false,
    };
    Ok(current && (told || !facts.wait_for_ready))
}

/// Whether all is ready that may be what runs: what the node's contents or its status name, or the watch has shown. A cache
/// that is new or late may have nothing of it.
async fn unknown_is_ready(world: &World, node: &NodeDigest) -> Result<bool, ApiError> {
    let own = ObjectKey::own("LynqNode", &node.key.namespace, &node.key.name);
    let object = world.objects.get(&own).await?;
    let children = world.children.of_node(&node.key);
    let mut keys: BTreeSet<ObjectKey> = children.keys().cloned().collect();
    for content in contents(&object) {
        for resource in content.iter() {
            keys.extend(place(&world.objects, resource, node, |_, _| {}).await?.ok());
        }
    }
    for recorded in recorded(&NodeDigest::of(&object, None).status) {
        for api_version in &recorded.api_versions {
            keys.extend(place_of(&world.objects, &recorded, api_version).await?);
        }
    }
    for key in &keys {
        let unready = |child: &Child| {
            is_ours(child, node)
                && !matches!(*child.readiness, Readiness::Ready | Readiness::Unknown(_))
        };
        let child = read_child(world, node, key).await?;
        if child.is_some_and(|child| unready(&child)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// None where the object is not there. What is newer than what was known is worth a look.
async fn read_child(
    world: &World,
    node: &NodeDigest,
    key: &ObjectKey,
) -> Result<Option<Arc<Child>>, ApiError> {
    let asked = world.children.asked(&key.kind);
    let object = match world.objects.get(key).await {
        Ok(object) => object,
        Err(ApiError::NotFound(_)) => return Ok(None),
        Err(error) => return Err(error),
    };
    let known = world.children.get(key);
    let child = world.children.learn(&object, asked);
    if known
        .is_some_and(|known| version::is_newer(&child.resource_version, &known.resource_version))
    {
        world.node_queue.add(node.key.clone());
    }
    Ok(Some(child))
}

/// Kinds whose readiness can come and go; the others are there or not.
fn is_workload(facts: &Facts) -> bool {
    let built_in = [
        "v1",
        "networking.k8s.io/v1",
        "policy/v1",
        "rbac.authorization.k8s.io/v1",
        "autoscaling/v2",
    ];
    facts.kind.kind == "Pod"
        || !(built_in.contains(&facts.kind.api_version.as_str()) || facts.kind.kind == "CronJob")
}
