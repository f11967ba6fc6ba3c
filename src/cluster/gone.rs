//! What a store has seen go: the reply to an earlier write, read after the event of the deletion, must not bring an object
//! back. It knows nothing of objects that never were in a store.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::cluster::clock::{self, Instant};
use crate::decide::version;

/// Longer than any request takes.
const KEPT: Duration = Duration::from_secs(300);

#[derive(Default)]
pub struct Gone {
    objects: BTreeMap<String, How>,
    since: VecDeque<(Instant, String)>,
}

/// How the object of a uid went.
#[derive(Debug)]
enum How {
    Deleted,
    /// A list did not have it, which may have been older than it.
    Missed,
    /// In this version it left the store's sight, and may come into it again.
    Left(String),
}

impl Gone {
    /// The object is deleted: no other will ever have its uid.
    pub fn deleted(&mut self, uid: &str) {
        self.note(uid, How::Deleted);
    }

    pub fn missed(&mut self, uid: &str) {
        self.note(uid, How::Missed);
    }

    /// It was read from the API server after the newest list.
    pub fn found(&mut self, uid: &str) {
        if matches!(self.objects.get(uid), Some(How::Missed)) {
            self.objects.remove(uid);
        }
    }

    /// The object is out of the watch's selector, or deleted.
    pub fn left(&mut self, uid: &str, version: &str) {
        self.note(uid, How::Left(version.to_owned()));
    }

    /// A watch names it again: it was missing only in a list that was older than it.
    pub fn back(&mut self, uid: &str) {
        self.objects.remove(uid);
    }

    fn note(&mut self, uid: &str, how: How) {
        let now = clock::instant();
        while let Some((_, old)) = self.since.pop_front_if(|(at, _)| now - *at > KEPT) {
            self.objects.remove(&old);
        }
        if self.objects.insert(uid.to_owned(), how).is_none() {
            self.since.push_back((now, uid.to_owned()));
        }
    }

    /// Whether this version of the object is from before it went.
    pub fn has(&self, uid: &str, version: &str) -> bool {
        match self.objects.get(uid) {
            None => false,
            Some(How::Deleted | How::Missed) => true,
            Some(How::Left(left)) => !version::is_newer(version, left),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_a_list_missed_can_be_found() {
        let mut gone = Gone::default();
        gone.deleted("deleted");
        gone.missed("missed");
        gone.left("left", "9");
        for uid in ["deleted", "missed", "left"] {
            assert!(gone.has(uid, "9"), "{uid}");
            gone.found(uid);
        }
        let has = ["deleted", "missed", "left"].map(|uid| gone.has(uid, "9"));
        assert_eq!(has, [true, false, true]);
    }
}
