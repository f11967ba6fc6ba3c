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
use crate::decide::rollout::{Confirm, Confirmation};

/// A live read that is older than this frees no slot; it is made again. It is longer than the
/// [longest rest](crate::controller::rollout::rest_after) of a release loop.
const VALID_FOR: Duration = Duration::from_secs(4);

/// What live reads confirmed, and when each began, for the next passes of the hubs' release loops.
#[derive(Default)]
pub struct Confirmed(Mutex<BTreeMap<HubKey, Vec<(Instant, Confirmation)>>>);

impl Confirmed {
    pub fn add(&self, hub: &HubKey, read: Instant, confirmation: Confirmation) {
        let mut confirmed = self.0.lock();
        let of_hub = confirmed.entry(hub.clone()).or_default();
        of_hub.push((read, confirmation));
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

/// The live read for a slot that looks free; returns whether it is.
pub async fn confirm(world: &World, hub: &HubKey, confirm: &Confirm) -> bool {
    let read = clock::instant();
    let confirmation = confirmation(world, hub, confirm).await;
    let is_free = confirmation.is_some();
    if let Some(confirmation) = confirmation {
        world.confirmed.add(hub, read, confirmation);
    }
    is_free
}

async fn confirmation(world: &World, hub: &HubKey, confirm: &Confirm) -> Option<Confirmation> {
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
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_recent_read_of_the_same_hub_frees_a_slot() {
        let hub = |name: &str| ("t".to_owned(), name.to_owned());
        let ready = |version: &str| Confirmation::Ready {
            uid: "u".to_owned(),
            resource_version: version.to_owned(),
        };
        let confirmed = Confirmed::default();
        confirmed.add(&hub("a"), clock::instant(), ready("1"));
        tokio::time::advance(VALID_FOR).await;
        confirmed.add(&hub("a"), clock::instant(), ready("2"));
        confirmed.add(&hub("b"), clock::instant(), ready("3"));
        let taken = |name: &str| Vec::from_iter(confirmed.take(&hub(name)));
        assert_eq!(taken("a"), [ready("1"), ready("2")]);
        assert!(taken("a").is_empty(), "taken");
        tokio::time::advance(VALID_FOR + Duration::from_millis(1)).await;
        assert!(taken("b").is_empty(), "too old");
    }
}
