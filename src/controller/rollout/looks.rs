//! What this process has looked at itself: the statuses of all other nodes are those of another one, and may be old. And for how
//! long, by a clock that does not jump: the times in statuses are the wall clock's, which may be set while a node is watched.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::cluster::clock::{self, Instant};
use crate::controller::rollout::RolloutReconciler;
use crate::decide::child::NodeKey;
use crate::decide::node::digest::NodeDigest;
use crate::decide::rollout::{Node, Snapshot};

/// Times that are closer are the same: reading two clocks takes a while.
const SAME: SignedDuration = SignedDuration::from_secs(1);

type Now = (Timestamp, Instant);

/// A moment, told by the wall clock as it goes now.
pub struct Moment {
    at: Timestamp,
    /// How long ago it was when this was made.
    age: SignedDuration,
    made: Instant,
}

impl Moment {
    fn new(at: Timestamp, now: Now) -> Self {
        Moment {
            at,
            age: now.0.duration_since(at),
            made: now.1,
        }
    }

    /// Stays the same for as long as the wall clock is not set.
    fn told(&mut self, now: Now) -> Timestamp {
        let passed = SignedDuration::try_from(now.1 - self.made).unwrap_or(SignedDuration::MAX);
        let age = self.age.saturating_add(passed);
        let at = now.0.checked_sub(age).unwrap_or(self.at);
        if at.duration_since(self.at).abs() >= SAME {
            self.at = at;
        }
        self.at
    }
}

/// A node in flight, since it is as it is.
pub struct Watched {
    start: Option<Timestamp>,
    settled_since: Option<Timestamp>,
    /// Since it was first seen with that start; and with that start, settled since then or not.
    since: Moment,
    same_since: Moment,
    went: Option<Moment>,
}

impl Watched {
    fn new(node: &Node, before: Option<Watched>, now: Now) -> Self {
        let is_now = || Moment::new(now.0, now);
        let before = before.filter(|before| before.start == node.start);
        let mut watched = before.unwrap_or_else(|| Watched {
            start: node.start,
            settled_since: node.settled_since,
            since: is_now(),
            same_since: is_now(),
            went: node.start.map(|start| Moment::new(start, now)),
        });
        if watched.settled_since != node.settled_since {
            (watched.settled_since, watched.same_since) = (node.settled_since, is_now());
        }
        watched
    }
}

impl RolloutReconciler<'_> {
    /// A node that was looked at in vain is not ready; and what one in flight was before the first look nobody has seen.
    pub fn believe_looks(&mut self, snapshot: &mut Snapshot) {
        let in_vain = self.world.in_vain.lock().clone();
        let of_hub = in_vain.iter().filter(|key| *key.namespace == *self.key.0);
        let looked = self.world.looked.lock();
        for key in of_hub {
            if let Some(looked) = looked.get(key)
                && let Some(why) = &looked.in_vain
                && let Some(node) = snapshot.nodes.get_mut(&key.name)
            {
                // Its status may say so only later, or never.
                if node.settled_since.is_some() {
                    (node.unready_since, node.broke_at) = (Some(looked.since), Some(looked.since));
                }
                (node.settled_since, node.ready, node.why) = (None, false, Some(why.clone()));
                node.unchanged.get_or_insert(false);
            }
        }
        let now = (clock::now(), clock::instant());
        let mut before = std::mem::take(&mut self.memory.watched);
        let mut missing = std::mem::take(&mut self.memory.missing);
        for slot in &snapshot.slots {
            let key = NodeKey::new(self.key.0.as_str(), slot.node.as_str());
            let node = snapshot.nodes.get_mut(&slot.node);
            let Some(node) = node.filter(|node| node.uid == slot.uid) else {
                let since = missing.remove(&slot.uid);
                let mut since = since.unwrap_or_else(|| Moment::new(now.0, now));
                snapshot.missing.insert(slot.uid.clone(), since.told(now));
                self.memory.missing.insert(slot.uid.clone(), since);
                continue;
            };
            let mut watched = Watched::new(node, before.remove(&node.uid), now);
            node.went_at = watched.went.as_mut().map(|went| went.told(now));
            node.stepped_at = self.world.children.stepped_at(&key);
            node.watched_since = Some(watched.since.told(now));
            node.same_since = Some(watched.same_since.told(now));
            if looked.contains_key(&key) {
                self.memory.watched.insert(node.uid.clone(), watched);
            }
        }
    }

    /// Nodes without a first look of this process; none any more once there were none.
    pub fn unlooked(&mut self) -> BTreeSet<Arc<str>> {
        if self.memory.surveyed {
            return BTreeSet::new();
        }
        let looked = self.world.looked.lock();
        let unlooked = |node: &&Arc<NodeDigest>| !node.deleting && !looked.contains_key(&node.key);
        let nodes = self.memory.views.nodes().iter().map(|view| &view.digest);
        let unlooked = nodes.filter(unlooked);
        let unlooked: BTreeSet<Arc<str>> = unlooked.map(|node| node.key.name.clone()).collect();
        self.memory.surveyed = unlooked.is_empty();
        unlooked
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Seconds of the wall clock, and of the one that does not jump.
    fn at(base: Instant, wall: i64, steady: u64) -> Now {
        let wall = Timestamp::from_second(wall).unwrap();
        (wall, base + Duration::from_secs(steady))
    }

    #[test]
    fn a_moment_goes_with_the_wall_clock() {
        let base = clock::instant();
        let mut went = Moment::new(Timestamp::from_second(1_000).unwrap(), at(base, 1_010, 0));
        for (case, now, told) in [
            ("as time goes by", at(base, 1_070, 60), 1_000),
            ("an hour ahead", at(base, 4_680, 70), 4_600),
            ("as time goes by there", at(base, 4_690, 80), 4_600),
            ("and back", at(base, 1_100, 90), 1_000),
            ("before it was", at(base, 500, 100), 390),
        ] {
            assert_eq!(went.told(now).as_second(), told, "{case}");
        }
    }
}
