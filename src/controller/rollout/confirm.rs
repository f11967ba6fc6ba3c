//! The live reads before slots are freed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::cluster::clock::{self, Instant};
use crate::cluster::nodes::HubKey;
use crate::cluster::objects::ApiError;
use crate::cluster::vital::Mutex;
use crate::controller::World;
use crate::controller::node::confirm::confirm_ready;
use crate::decide::child::{NodeKey, ObjectKey};
use crate::decide::node::digest::NodeDigest;
use crate::decide::rollout::{Confirm, Confirmation};

/// A live read by the node loop that is older than this frees no slot: the release loop reads again.
const VALID_FOR: Duration = Duration::from_secs(2);

/// What live reads by the node loop confirmed, and when each began, for the next passes of the hubs' release loops.
#[derive(Default)]
pub struct Confirmed(Mutex<BTreeMap<HubKey, Vec<(Instant, Confirmation)>>>);

impl Confirmed {
    /// At `read`, the workloads of the node were ready with the content that it has live.
    pub fn add(&self, node: &NodeDigest, read: Instant) {
        let mut confirmed = self.0.lock();
        let of_hub = confirmed.entry(node.hub_key()).or_default();
        of_hub.push((read, Confirmation::of(node)));
    }

    /// Removes all confirmations of the hub, and returns those that are recent enough.
    pub fn take(&self, hub: &HubKey) -> BTreeSet<Confirmation> {
        let confirmed = self.0.lock().remove(hub).unwrap_or_default();
        let now = clock::instant();
        let valid = |(read, _): &(Instant, _)| now.duration_since(*read) <= VALID_FOR;
        let valid = confirmed.into_iter().filter(valid);
        valid.map(|(_, confirmation)| confirmation).collect()
    }
}

/// The live read for a slot that looks free; None if it is not, or if another replica leads by now.
pub async fn confirm(world: &World, hub: &HubKey, confirm: &Confirm) -> Option<Confirmation> {
    if !world.leads(hub) {
        return None;
    }
    let asked = world.nodes.asked();
    match confirm {
        Confirm::Gone { node, uid } => {
            let key = ObjectKey::own("LynqNode", &hub.0, node);
            let gone = Confirmation::Gone { uid: uid.clone() };
            match world.objects.get(&key).await {
                Err(ApiError::NotFound(_)) => Some(gone),
                Ok(object) if object["metadata"]["uid"] != uid.as_str() => Some(gone),
                Ok(object) => {
                    // What is another hub's by now is counted there.
                    let node = world.nodes.learn_new(&object, asked);
                    (node.hub != hub.1).then_some(gone)
                }
                Err(_) => None,
            }
        }
        Confirm::Ready {
            node,
            uid,
            resource_version,
        } => {
            let key = NodeKey::new(hub.0.as_str(), node.as_str());
            let digest = world
                .nodes
                .get(&key)
                .filter(|n| n.uid == *uid && n.resource_version == *resource_version)?;
            let ready = confirm_ready(world, &digest).await;
            let ready = ready.unwrap_or_else(|error| {
                tracing::warn!(node, %error, "whether it is ready could not be read, so that it keeps its slot; it is tried again");
                false
            });
            ready.then(|| Confirmation::of(&digest))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_recent_read_of_the_same_hub_frees_a_slot() {
        let node = |hub: &str, version: &str| {
            let metadata =
                json!({"namespace": "t", "name": "n", "uid": "u", "resourceVersion": version});
            let node = json!({"metadata": metadata, "spec": {"hubId": hub}});
            NodeDigest::of(&node, None)
        };
        let first = [node("a", "1"), node("a", "2")];
        let other = node("b", "3");
        let confirmed = Confirmed::default();
        confirmed.add(&first[0], clock::instant());
        tokio::time::advance(VALID_FOR).await;
        confirmed.add(&first[1], clock::instant());
        confirmed.add(&other, clock::instant());
        let taken = |node: &NodeDigest| Vec::from_iter(confirmed.take(&node.hub_key()));
        assert_eq!(taken(&first[0]), first.each_ref().map(Confirmation::of));
        assert!(taken(&first[0]).is_empty(), "taken");
        tokio::time::advance(VALID_FOR + Duration::from_millis(1)).await;
        assert!(taken(&other).is_empty(), "too old");
    }
}
