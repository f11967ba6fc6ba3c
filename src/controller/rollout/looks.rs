//! What this process has looked at itself: the statuses of all other nodes are those of another one, and may be old.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use crate::controller::rollout::Look;
use crate::decide::child::NodeKey;
use crate::decide::node::NodeDigest;
use crate::decide::rollout::Snapshot;

impl Look<'_> {
    /// A node that was looked at in vain is not ready; and what one in flight was before the first look nobody has seen.
    pub fn believe_looks(&self, snapshot: &mut Snapshot, nodes: &[Arc<NodeDigest>]) {
        let mut looked = self.world.looked.lock().expect("the looks' lock");
        for node in nodes {
            if let Some(looked) = looked.get(&node.key)
                && let Some(why) = &looked.in_vain
                && let Some(node) = snapshot.nodes.get_mut(&node.key.name)
            {
                // Its status may say so only later, or never.
                if node.settled_since.is_some() {
                    node.broke_at = Some(looked.since);
                }
                (node.settled_since, node.ready, node.why) = (None, false, Some(why.clone()));
                node.unchanged.get_or_insert(false);
            }
        }
        let now = Timestamp::now();
        for slot in &snapshot.slots {
            let key = NodeKey {
                namespace: self.key.0.clone(),
                name: slot.node.clone(),
            };
            let first = looked.get_mut(&key).map_or(now, |looked| looked.first_at());
            if let Some(node) = snapshot.nodes.get_mut(&slot.node) {
                node.watched_since = Some(first);
            }
        }
    }

    /// Nodes without a first look of this process; none any more once there were none.
    pub fn unlooked(&mut self, nodes: &[Arc<NodeDigest>]) -> BTreeSet<String> {
        if self.memory.surveyed {
            return BTreeSet::new();
        }
        let looked = self.world.looked.lock().expect("the looks' lock");
        let unlooked = |node: &&Arc<NodeDigest>| !node.deleting && !looked.contains_key(&node.key);
        let unlooked = nodes.iter().filter(unlooked);
        let unlooked: BTreeSet<String> = unlooked.map(|node| node.key.name.clone()).collect();
        self.memory.surveyed = unlooked.is_empty();
        unlooked
    }
}
