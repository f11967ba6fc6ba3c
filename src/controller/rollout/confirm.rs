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

/// The live reads by the node loop, for the next passes of the hubs' release loops.
#[derive(Default)]
pub struct Confirmed(Mutex<BTreeMap<HubKey, ByUid>>);

/// By the nodes' uids: when the read began, and what it confirmed; None while it is under way.
type ByUid = BTreeMap<String, Option<(Instant, Confirmation)>>;

/// A live read by the node loop. When it is dropped, a pass of the hub's release loop is due.
pub struct Reading<'a> {
    world: &'a World,
    hub: HubKey,
    uid: String,
    began: Instant,
}

impl<'a> Reading<'a> {
    pub fn begin(world: &'a World, node: &NodeDigest) -> Self {
        let (hub, uid) = (node.hub_key(), node.uid.clone());
        world.confirmed.begin(&hub, &uid);
        let began = clock::instant();
        Reading {
            world,
            hub,
            uid,
            began,
        }
    }

    /// The workloads of the node were ready with the content that it has live.
    pub fn confirms(self, node: &NodeDigest) {
        self.world.confirmed.add(&self.hub, node, self.began);
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.world.confirmed.end(&self.hub, &self.uid);
        self.world.rollout_queue.add(self.hub.clone());
    }
}

impl Confirmed {
    fn begin(&self, hub: &HubKey, uid: &str) {
        let mut confirmed = self.0.lock();
        let of_hub = confirmed.entry(hub.clone()).or_default();
        of_hub.insert(uid.to_owned(), None);
    }

    fn add(&self, hub: &HubKey, node: &NodeDigest, began: Instant) {
        let mut confirmed = self.0.lock();
        let of_hub = confirmed.entry(hub.clone()).or_default();
        let read = (began, Confirmation::of(node));
        of_hub.insert(node.uid.clone(), Some(read));
    }

    fn end(&self, hub: &HubKey, uid: &str) {
        let mut confirmed = self.0.lock();
        let of_hub = confirmed.get_mut(hub);
        if let Some(of_hub) = of_hub.filter(|of_hub| of_hub.get(uid) == Some(&None)) {
            of_hub.remove(uid);
        }
    }

    /// Whether the next pass has what the node loop reads for this slot, so that this pass need not read it too.
    pub fn awaits(&self, hub: &HubKey, slot: &Confirm) -> bool {
        let Confirm::Ready { uid, .. } = slot else {
            return false;
        };
        let confirmed = self.0.lock();
        confirmed
            .get(hub)
            .is_some_and(|of_hub| of_hub.contains_key(uid))
    }

    /// Takes all confirmations of the hub, and returns those that are recent enough.
    pub fn take(&self, hub: &HubKey) -> BTreeSet<Confirmation> {
        let mut confirmed = self.0.lock();
        let of_hub = confirmed.remove(hub).unwrap_or_default();
        let (read, under_way): (ByUid, ByUid) =
            of_hub.into_iter().partition(|(_, read)| read.is_some());
        if !under_way.is_empty() {
            confirmed.insert(hub.clone(), under_way);
        }
        let now = clock::instant();
        let valid = |(began, _): &(Instant, _)| now.duration_since(*began) <= VALID_FOR;
        let valid = read.into_values().flatten().filter(valid);
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

    fn node(uid: &str, hub: &str) -> NodeDigest {
        let metadata = json!({"namespace": "t", "name": "n", "uid": uid, "resourceVersion": "1"});
        NodeDigest::of(&json!({"metadata": metadata, "spec": {"hubId": hub}}), None)
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_recent_read_of_the_same_hub_frees_a_slot() {
        let first = [node("u", "a"), node("v", "a")];
        let other = node("w", "b");
        let confirmed = Confirmed::default();
        let add = |node: &NodeDigest| confirmed.add(&node.hub_key(), node, clock::instant());
        let taken = |node: &NodeDigest| Vec::from_iter(confirmed.take(&node.hub_key()));
        add(&first[0]);
        tokio::time::advance(VALID_FOR).await;
        add(&first[1]);
        add(&other);
        assert_eq!(taken(&first[0]), first.each_ref().map(Confirmation::of));
        assert!(taken(&first[0]).is_empty(), "taken");
        tokio::time::advance(VALID_FOR + Duration::from_millis(1)).await;
        assert!(taken(&other).is_empty(), "too old");
    }

    #[test]
    fn a_slot_is_left_to_the_node_loop_until_a_pass_has_taken_what_it_read() {
        let node = node("u", "a");
        let hub = node.hub_key();
        let ready = |uid: &str| Confirm::Ready {
            node: "n".to_owned(),
            uid: uid.to_owned(),
            resource_version: "1".to_owned(),
        };
        let confirmed = Confirmed::default();
        let awaits = |uid: &str| confirmed.awaits(&hub, &ready(uid));
        assert!(!awaits("u"), "nothing reads");
        confirmed.begin(&hub, "u");
        assert!(confirmed.take(&hub).is_empty(), "not read yet");
        assert!(awaits("u"), "it reads");
        assert!(!awaits("v"), "another node");
        confirmed.add(&hub, &node, clock::instant());
        confirmed.end(&hub, "u");
        assert!(awaits("u"), "read, not taken");
        assert_eq!(confirmed.take(&hub).len(), 1);
        assert!(!awaits("u"), "taken");
        confirmed.begin(&hub, "u");
        confirmed.end(&hub, "u");
        assert!(!awaits("u"), "not ready");
    }
}
