//! The live reads before slots are freed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::join_all;

use crate::cluster::clock::{self, Instant};
use crate::cluster::nodes::HubKey;
use crate::cluster::objects::ApiError;
use crate::cluster::vital::Mutex;
use crate::controller::node::confirm::confirm_ready;
use crate::controller::rollout::{REQUESTS_MAX, RolloutReconciler};
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
        let ready = Confirmation::Ready {
            uid: node.uid.clone(),
            resource_version: node.resource_version.clone(),
        };
        let mut confirmed = self.0.lock();
        let of_hub = confirmed.entry(node.hub_key()).or_default();
        of_hub.push((read, ready));
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

impl RolloutReconciler<'_> {
    /// Live reads for the slots that look free; also whether some of them are not.
    pub async fn confirm(&self, confirm: &[Confirm]) -> (BTreeSet<Confirmation>, bool) {
        let (mut confirmed, mut unconfirmed) = (BTreeSet::new(), false);
        for some in confirm.chunks(REQUESTS_MAX) {
            let asked: Vec<_> = some.iter().map(|one| self.confirm_one(one)).collect();
            for answer in join_all(asked).await {
                unconfirmed |= answer.is_none();
                confirmed.extend(answer);
            }
        }
        (confirmed, unconfirmed)
    }

    async fn confirm_one(&self, confirm: &Confirm) -> Option<Confirmation> {
        let asked = self.world.nodes.asked();
        match confirm {
            Confirm::Gone { node, uid } => match self
                .world
                .objects
                .get(&ObjectKey::own("LynqNode", &self.key.0, node))
                .await
            {
                Err(ApiError::NotFound(_)) => Some(Confirmation::Gone { uid: uid.clone() }),
                Ok(object) if object["metadata"]["uid"] != uid.as_str() => {
                    Some(Confirmation::Gone { uid: uid.clone() })
                }
                Ok(object) => {
                    // What is another hub's by now is counted there.
                    let node = self.world.nodes.learn_new(&object, asked);
                    (node.hub != self.key.1).then(|| Confirmation::Gone { uid: uid.clone() })
                }
                Err(_) => None,
            },
            Confirm::Ready {
                node,
                uid,
                resource_version,
            } => {
                let key = NodeKey::new(self.key.0.as_str(), node.as_str());
                let digest = self
                    .world
                    .nodes
                    .get(&key)
                    .filter(|n| n.uid == *uid && n.resource_version == *resource_version)?;
                let ready = confirm_ready(self.world, &digest).await;
                let ready = ready.unwrap_or_else(|error| {
                    tracing::warn!(node, %error, "whether it is ready could not be read, so that it keeps its slot; it is tried again");
                    false
                });
                ready.then(|| Confirmation::Ready {
                    uid: uid.clone(),
                    resource_version: resource_version.clone(),
                })
            }
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
        let confirmed = Confirmed::default();
        confirmed.add(&node("a", "1"), clock::instant());
        tokio::time::advance(VALID_FOR).await;
        confirmed.add(&node("a", "2"), clock::instant());
        confirmed.add(&node("b", "3"), clock::instant());
        let versions = |hub: &str| {
            let taken = confirmed.take(&node(hub, "").hub_key()).into_iter();
            let version = |one| match one {
                Confirmation::Ready {
                    resource_version, ..
                } => resource_version,
                Confirmation::Gone { uid } => uid,
            };
            taken.map(version).collect::<Vec<_>>()
        };
        assert_eq!(versions("a"), ["1", "2"]);
        assert!(versions("a").is_empty(), "taken");
        tokio::time::advance(VALID_FOR + Duration::from_millis(1)).await;
        assert!(versions("b").is_empty(), "too old");
    }
}
