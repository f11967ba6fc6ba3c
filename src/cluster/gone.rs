//! Uids of objects that a store has seen go: the reply to an earlier write, read after the event of the deletion, must not
//! bring one back. It knows nothing of objects that never were in a store.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// Longer than any request takes.
const KEPT: Duration = Duration::from_secs(300);

#[derive(Default)]
pub struct Gone {
    uids: BTreeSet<String>,
    since: VecDeque<(Instant, String)>,
}

impl Gone {
    pub fn note(&mut self, uid: &str) {
        let now = Instant::now();
        while let Some((_, old)) = self.since.pop_front_if(|(at, _)| now - *at > KEPT) {
            self.uids.remove(&old);
        }
        if self.uids.insert(uid.to_owned()) {
            self.since.push_back((now, uid.to_owned()));
        }
    }

    pub fn has(&self, uid: &str) -> bool {
        self.uids.contains(uid)
    }
}
