//! A cache of watched objects. Watch events and replies to requests arrive in any order: the cache keeps the newest version of
//! each object.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch::{Receiver, Sender, channel};

use crate::cluster::clock::{self, Instant};
use crate::decide::shared::version;

/// The digest of an object that a cache stores.
pub trait Cached {
    fn uid(&self) -> &str;
    fn resource_version(&self) -> &str;
}

/// When a request was sent, as the number of complete lists before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked(u64);

/// Uid and resourceVersion.
pub fn identity(object: &Value) -> (&str, &str) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    (text("uid"), text("resourceVersion"))
}

/// An object before and after an event or a reply; either may be absent.
#[derive(Clone, Debug)]
pub struct Changed<V> {
    pub before: Option<Arc<V>>,
    pub now: Option<Arc<V>>,
}

pub struct Cache<K, V> {
    all: BTreeMap<K, Arc<V>>,
    /// During a relist: the cached keys that the list has not named yet.
    unseen: Option<BTreeSet<K>>,
    lists: u64,
    gone: Gone,
}

impl<K, V> Default for Cache<K, V> {
    fn default() -> Self {
        Cache {
            all: BTreeMap::new(),
            unseen: None,
            lists: 0,
            gone: Gone::default(),
        }
    }
}

impl<K: Ord + Clone, V: Cached> Cache<K, V> {
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&Arc<V>>
    where
        K: Borrow<Q>,
    {
        self.all.get(key)
    }

    pub fn all(&self) -> &BTreeMap<K, Arc<V>> {
        &self.all
    }

    /// Call this before a request whose reply may contain an object that the cache does not have.
    pub fn asked(&self) -> Asked {
        Asked(self.lists)
    }

    /// Takes an object from a reply unless the cache knows that it is gone. An object that is not cached is taken only with a
    /// current `asked`: after an older request, a list or an event may have shown that it is gone. If it still exists, the watch
    /// delivers it. None: not taken.
    pub fn learn(&mut self, key: K, value: Arc<V>, asked: Option<Asked>) -> Option<Changed<V>> {
        let known = self.all.get(&key);
        if known.is_none_or(|known| known.uid() != value.uid()) {
            let is_new = asked == Some(self.asked());
            if !is_new || self.gone.has(value.uid(), value.resource_version()) {
                return None;
            }
            if let Some(unseen) = &mut self.unseen {
                unseen.insert(key.clone());
            }
        }
        Some(self.put(key, value))
    }

    /// The watch starts a list: every object that it does not name before it is complete is gone.
    pub fn restarted(&mut self) {
        self.unseen = Some(self.all.keys().cloned().collect());
    }

    pub fn applied(&mut self, key: K, value: Arc<V>) -> Changed<V> {
        if let Some(unseen) = &mut self.unseen {
            unseen.remove(&key);
        }
        self.put(key, value)
    }

    /// The object was deleted in this version, or left the watch's selector in it. None: another has its name, or it is back
    /// already.
    pub fn deleted<Q: Ord + ?Sized>(
        &mut self,
        key: &Q,
        (uid, version): (&str, &str),
    ) -> Option<Arc<V>>
    where
        K: Borrow<Q>,
    {
        self.gone.note(uid, version);
        let known = self.all.get(key)?;
        let is_back = version::is_newer(known.resource_version(), version);
        (known.uid() == uid && !is_back).then(|| self.all.remove(key))?
    }

    /// The list is complete; returns what it did not have.
    pub fn listed(&mut self) -> Vec<(K, Arc<V>)> {
        self.lists += 1;
        let missing = self.unseen.take().unwrap_or_default();
        let remove = |key| self.all.remove_entry(&key);
        missing.into_iter().filter_map(remove).collect()
    }

    /// A request showed that the object is gone.
    pub fn forget<Q: Ord + ?Sized>(&mut self, key: &Q, uid: &str) -> Option<Arc<V>>
    where
        K: Borrow<Q>,
    {
        let known = self.all.get(key).filter(|known| known.uid() == uid)?;
        self.gone.note(uid, known.resource_version());
        self.all.remove(key)
    }

    fn put(&mut self, key: K, value: Arc<V>) -> Changed<V> {
        let before = self.all.get(&key).cloned();
        // This also holds for another object of that name: the older one is gone.
        let is_newer =
            |known: &Arc<V>| version::is_newer(known.resource_version(), value.resource_version());
        let now = match before.clone().filter(is_newer) {
            Some(known) => known,
            None => {
                self.all.insert(key, value.clone());
                value
            }
        };
        if let Some(replaced) = before.as_ref().filter(|known| known.uid() != now.uid()) {
            self.gone.note(replaced.uid(), now.resource_version());
        }
        let now = Some(now);
        Changed { before, now }
    }
}

/// Longer than any request takes.
const KEPT: Duration = Duration::from_secs(300);

/// Uids of objects that went, each with the version in which it did. The reply to an earlier write must not bring it back.
#[derive(Default)]
struct Gone {
    versions: BTreeMap<String, String>,
    since: VecDeque<(Instant, String)>,
}

impl Gone {
    fn note(&mut self, uid: &str, version: &str) {
        let now = clock::instant();
        while let Some((_, old)) = self.since.pop_front_if(|(at, _)| now - *at > KEPT) {
            self.versions.remove(&old);
        }
        let before = self.versions.insert(uid.to_owned(), version.to_owned());
        if before.is_none() {
            self.since.push_back((now, uid.to_owned()));
        }
    }

    fn has(&self, uid: &str, version: &str) -> bool {
        let left = self.versions.get(uid);
        left.is_some_and(|left| !version::is_newer(version, left))
    }
}

/// Whether a first list is complete. All clones are one.
#[derive(Clone)]
pub struct FirstList(Arc<Sender<bool>>, Receiver<bool>);

impl Default for FirstList {
    fn default() -> Self {
        let (sender, receiver) = channel(false);
        FirstList(Arc::new(sender), receiver)
    }
}

impl FirstList {
    pub fn complete(&self) {
        self.0.send_replace(true);
    }

    pub async fn wait(&self) {
        let mut listed = self.1.clone();
        // Waiting cannot fail: `self` holds the sender.
        let _ = listed.wait_for(|listed| *listed).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    struct Object(&'static str, &'static str);

    impl Cached for Object {
        fn uid(&self) -> &str {
            self.0
        }
        fn resource_version(&self) -> &str {
            self.1
        }
    }

    type Objects = Cache<&'static str, Object>;

    fn apply(cache: &mut Objects, uid: &'static str, version: &'static str) {
        cache.applied("web", Arc::new(Object(uid, version)));
    }

    /// The reply to a request that was sent just before it.
    fn learn(cache: &mut Objects, uid: &'static str, version: &'static str) {
        let asked = cache.asked();
        cache.learn("web", Arc::new(Object(uid, version)), Some(asked));
    }

    fn known(cache: &Objects) -> Option<(&'static str, &'static str)> {
        cache.get("web").map(|known| (known.0, known.1))
    }

    #[test]
    fn a_late_reply_does_not_bring_back_what_is_gone() {
        let mut cache = Objects::default();
        apply(&mut cache, "a", "1");
        cache.deleted(&"web", ("a", "3"));
        learn(&mut cache, "a", "2");
        assert_eq!(known(&cache), None);
        // The object had only left the selector.
        learn(&mut cache, "a", "4");
        assert_eq!(known(&cache), Some(("a", "4")));
        cache.deleted(&"web", ("a", "3"));
        assert_eq!(known(&cache), Some(("a", "4")), "an event of before");
    }

    #[test]
    fn a_late_reply_does_not_bring_back_whom_another_follows() {
        let mut cache = Objects::default();
        apply(&mut cache, "a", "1");
        apply(&mut cache, "b", "4");
        learn(&mut cache, "a", "2");
        assert_eq!(known(&cache), Some(("b", "4")));
        cache.deleted(&"web", ("b", "5"));
        learn(&mut cache, "a", "2");
        assert_eq!(known(&cache), None);
        // The watch has delivered neither.
        learn(&mut cache, "d", "9");
        learn(&mut cache, "c", "7");
        apply(&mut cache, "c", "8");
        cache.deleted(&"web", ("c", "8"));
        assert_eq!(known(&cache), Some(("d", "9")));
    }

    #[test]
    fn a_late_not_found_does_not_drop_the_next_object_of_that_name() {
        let mut cache = Objects::default();
        apply(&mut cache, "a", "1");
        apply(&mut cache, "b", "4");
        assert_eq!(cache.forget(&"web", "a"), None);
        assert_eq!(known(&cache), Some(("b", "4")));
        learn(&mut cache, "b", "5");
        assert_eq!(known(&cache), Some(("b", "5")));
    }

    #[test]
    fn what_a_list_does_not_have_is_not_learnt_from_an_older_reply() {
        let mut cache = Objects::default();
        let asked = cache.asked();
        cache.restarted();
        learn(&mut cache, "a", "5");
        assert!(known(&cache).is_some(), "while the list is not complete");
        let gone = cache.listed();
        assert_eq!(gone, [("web", Arc::new(Object("a", "5")))]);
        cache.learn("web", Arc::new(Object("a", "5")), Some(asked));
        assert_eq!(known(&cache), None, "the reply is older than the list");
        cache.learn("web", Arc::new(Object("a", "5")), None);
        assert_eq!(known(&cache), None, "nobody knows when it was asked for");
        learn(&mut cache, "a", "5");
        assert!(known(&cache).is_some(), "the list was older");
        cache.restarted();
        apply(&mut cache, "a", "5");
        cache.learn("web", Arc::new(Object("a", "6")), None);
        assert!(cache.listed().is_empty(), "the list has it");
        assert_eq!(known(&cache), Some(("a", "6")));
    }
}
