//! What a store has seen go: the reply to an earlier write, read after the event of the deletion, must not bring an object
//! back. It knows nothing of objects that never were in a store.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use crate::decide::version;

/// Longer than any request takes.
const KEPT: Duration = Duration::from_secs(300);

#[derive(Default)]
pub struct Gone {
    /// By uid; the version in which the object left the store's sight, where it may come into it again.
    objects: BTreeMap<String, Option<String>>,
    since: VecDeque<(Instant, String)>,
}

impl Gone {
    /// The object is deleted: no other will ever have its uid.
    pub fn deleted(&mut self, uid: &str) {
        self.note(uid, None);
    }

    /// The object is out of the watch's selector, or deleted.
    pub fn left(&mut self, uid: &str, version: &str) {
        self.note(uid, Some(version.to_owned()));
    }

    /// A watch names it again: it was missing only in a list that was older than it.
    pub fn back(&mut self, uid: &str) {
        self.objects.remove(uid);
    }

    fn note(&mut self, uid: &str, version: Option<String>) {
        let now = Instant::now();
        while let Some((_, old)) = self.since.pop_front_if(|(at, _)| now - *at > KEPT) {
            self.objects.remove(&old);
        }
        if self.objects.insert(uid.to_owned(), version).is_none() {
            self.since.push_back((now, uid.to_owned()));
        }
    }

    /// Whether this version of the object is from before it went.
    pub fn has(&self, uid: &str, version: &str) -> bool {
        let gone = self.objects.get(uid);
        gone.is_some_and(|left| {
            left.as_ref()
                .is_none_or(|left| !version::is_newer(version, left))
        })
    }
}
