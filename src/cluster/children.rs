//! The objects that belong to LynqNodes, as digests: one watch for each kind that any node's content names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::api::names;
use crate::cluster::gone::Gone;
use crate::cluster::objects::Served;
use crate::cluster::vital::{self, RwLock};
use crate::cluster::watch::{Change, NoList, Which, follow};
use crate::decide::child::{Child, Kind, NodeKey, ObjectKey, key_of};
use crate::decide::version;

/// Cheap to clone; all clones are one store.
#[derive(Clone)]
pub struct Children {
    inner: Arc<RwLock<Inner>>,
    /// Told of every node whose objects changed.
    touched: Arc<dyn Fn(NodeKey) + Send + Sync>,
}

#[derive(Default)]
struct Inner {
    children: BTreeMap<ObjectKey, Arc<Child>>,
    by_node: BTreeMap<NodeKey, BTreeSet<ObjectKey>>,
    kinds: BTreeMap<Kind, Watched>,
    gone: Gone,
    /// Jobs that had completed when they went, until their node is looked at: it may not have seen them so.
    ended: BTreeMap<NodeKey, Vec<(ObjectKey, Arc<Child>)>>,
    owned: Shared,
}

/// Texts that many objects have, once.
#[derive(Default)]
struct Shared {
    texts: BTreeSet<Arc<str>>,
    /// How many were in use when they were counted last.
    used: usize,
}

impl Shared {
    fn one(&mut self, text: Arc<str>) -> Arc<str> {
        if let Some(known) = self.texts.get(&text) {
            return known.clone();
        }
        if self.texts.len() > 2 * self.used + 64 {
            self.texts.retain(|text| Arc::strong_count(text) > 1);
            self.used = self.texts.len();
        }
        self.texts.insert(text.clone());
        text
    }
}

#[derive(Default)]
struct Watched {
    listed: bool,
    refused: Option<NoList>,
    /// While the watch lists anew: what it has not named yet.
    unseen: Option<BTreeSet<ObjectKey>>,
    lists: u64,
    /// Nodes that wait for the first list.
    waiting: BTreeSet<NodeKey>,
}

/// When a request was sent: after so many complete lists of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked(u64);

/// Whether every object of a kind is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listing {
    Complete,
    /// The node is told when that changes.
    Pending,
    /// The same, but the API server has refused the list.
    Refused(NoList),
}

impl Children {
    pub fn new(touched: impl Fn(NodeKey) + Send + Sync + 'static) -> Self {
        Children {
            inner: Arc::default(),
            touched: Arc::new(touched),
        }
    }

    /// Starts a watch of the kind, if there is none.
    pub fn listing(
        &self,
        kind: &Kind,
        served: &Served,
        client: &kube::Client,
        node: &NodeKey,
    ) -> Listing {
        self.watch(kind, served, client);
        let mut inner = self.inner.write();
        let watched = inner.watched(kind);
        if watched.listed {
            return Listing::Complete;
        }
        watched.waiting.insert(node.clone());
        watched
            .refused
            .clone()
            .map_or(Listing::Pending, Listing::Refused)
    }

    /// Starts a watch of the kind, if there is none.
    pub fn watch(&self, kind: &Kind, served: &Served, client: &kube::Client) {
        let mut inner = self.inner.write();
        if inner.kinds.contains_key(kind) {
            return;
        }
        inner.kinds.insert(kind.clone(), Watched::default());
        let (store, kind, resource, client) = (
            self.clone(),
            kind.clone(),
            served.resource.clone(),
            client.clone(),
        );
        vital::spawn(async move {
            let selector = format!("{}={}", names::LABEL_MANAGED, names::TRUE);
            follow(client, resource, Which::Labelled(&selector), |change| {
                store.change(&kind, change)
            })
            .await;
        });
    }

    /// The node is gone, and waits for nothing.
    pub fn forget_node(&self, node: &NodeKey) {
        let mut inner = self.inner.write();
        inner.ended.remove(node);
        for watched in inner.kinds.values_mut() {
            watched.waiting.remove(node);
        }
    }

    pub fn get(&self, key: &ObjectKey) -> Option<Arc<Child>> {
        self.inner.read().children.get(key).cloned()
    }

    /// Every known object of the node.
    pub fn of_node(&self, node: &NodeKey) -> BTreeMap<ObjectKey, Arc<Child>> {
        let inner = self.inner.read();
        let keys = inner.by_node.get(node).into_iter().flatten();
        keys.filter_map(|key| Some((key.clone(), inner.children.get(key)?.clone())))
            .collect()
    }

    /// When the partition of one of the node's StatefulSets last moved.
    pub fn stepped_at(&self, node: &NodeKey) -> Option<Timestamp> {
        let inner = self.inner.read();
        let keys = inner.by_node.get(node).into_iter().flatten();
        keys.filter_map(|key| inner.children.get(key)?.stepped_at)
            .max()
    }

    /// Jobs of the node that had completed when they went, since this was asked last.
    pub fn take_ended(&self, node: &NodeKey) -> Vec<(ObjectKey, Arc<Child>)> {
        self.inner.write().ended.remove(node).unwrap_or_default()
    }

    /// To be asked before a request whose reply is learnt.
    pub fn asked(&self, kind: &Kind) -> Asked {
        let inner = self.inner.read();
        Asked(inner.kinds.get(kind).map_or(0, |watched| watched.lists))
    }

    /// Takes an object that a write or a live read returned. One that is gone since stays gone.
    pub fn learn(&self, object: &Value, asked: Asked) -> Arc<Child> {
        self.inner.write().learn(object, asked)
    }

    /// The object was found to be gone.
    pub fn forget(&self, key: &ObjectKey) {
        let mut inner = self.inner.write();
        inner.remove(key, None);
    }

    fn change(&self, kind: &Kind, change: Change) {
        let touched = self.inner.write().change(kind, change);
        for node in touched {
            (self.touched)(node);
        }
    }
}

impl Inner {
    fn learn(&mut self, object: &Value, asked: Asked) -> Arc<Child> {
        let child = Child::of(object);
        if self.gone.has(&child.uid, &child.resource_version) {
            return Arc::new(child);
        }
        let key = key_of(object);
        let known = self
            .children
            .get(&key)
            .is_some_and(|known| known.uid == child.uid);
        if !known && let Some(watched) = self.kinds.get_mut(&key.kind) {
            // It was made and deleted between the last watch and a list that does not have it: no event will say so. If it
            // is there all the same, the watch that follows the list names it.
            if watched.lists != asked.0 {
                return Arc::new(child);
            }
            if let Some(unseen) = &mut watched.unseen {
                unseen.insert(key);
            }
        }
        self.put(object).0
    }

    fn change(&mut self, kind: &Kind, change: Change) -> BTreeSet<NodeKey> {
        match change {
            Change::Restarted => {
                let known = self
                    .children
                    .keys()
                    .filter(|key| key.kind == *kind)
                    .cloned()
                    .collect();
                self.watched(kind).unseen = Some(known);
                BTreeSet::new()
            }
            Change::Applied(object) => {
                if let Some(unseen) = &mut self.watched(kind).unseen {
                    unseen.remove(&key_of(&object));
                }
                let uid = object["metadata"]["uid"].as_str();
                self.gone.back(uid.unwrap_or_default());
                self.put(&object).1
            }
            Change::Deleted(object) => {
                let key = key_of(&object);
                // An object of the same name made since is another one.
                let same = self
                    .children
                    .get(&key)
                    .is_some_and(|child| object["metadata"]["uid"] == child.uid.as_str());
                if same {
                    self.remove(&key, object["metadata"]["resourceVersion"].as_str())
                } else {
                    BTreeSet::new()
                }
            }
            Change::Refused(why) => {
                let watched = self.watched(kind);
                let news = watched.refused.as_ref() != Some(&why);
                watched.refused = Some(why);
                if news {
                    watched.waiting.clone()
                } else {
                    BTreeSet::new()
                }
            }
            Change::Listed => {
                let watched = self.watched(kind);
                watched.listed = true;
                watched.lists += 1;
                watched.refused = None;
                let mut touched = std::mem::take(&mut watched.waiting);
                for key in watched.unseen.take().unwrap_or_default() {
                    touched.extend(self.remove(&key, None));
                }
                touched
            }
        }
    }

    fn watched(&mut self, kind: &Kind) -> &mut Watched {
        self.kinds.entry(kind.clone()).or_default()
    }

    /// Returns the digest that holds now, and the nodes for which something changed.
    fn put(&mut self, object: &Value) -> (Arc<Child>, BTreeSet<NodeKey>) {
        let key = key_of(object);
        let mut child = Child::of(object);
        if let Some(old) = self.children.get(&key)
            && old.uid == child.uid
            && version::is_newer(&old.resource_version, &child.resource_version)
        {
            return (old.clone(), BTreeSet::new());
        }
        child.owned = self.owned.one(child.owned);
        let child = Arc::new(child);
        let old = self.children.insert(key.clone(), child.clone());
        // Heartbeats in a status, and the echo of our own writes, are no news.
        let news = old.as_ref().is_none_or(|old| {
            Child {
                resource_version: String::new(),
                ..(**old).clone()
            } != Child {
                resource_version: String::new(),
                ..(*child).clone()
            }
        });
        let mut touched: BTreeSet<NodeKey> = BTreeSet::new();
        if let Some(node) = old
            .as_ref()
            .and_then(|old| old.node())
            .filter(|node| Some(*node) != child.node())
        {
            self.unlist(node, &key);
            touched.insert(node.clone());
        }
        if let Some(node) = child.node() {
            self.by_node.entry(node.clone()).or_default().insert(key);
            if news {
                touched.insert(node.clone());
            }
        }
        (child, touched)
    }

    /// `version` is that in which it went, as far as that is known.
    fn remove(&mut self, key: &ObjectKey, version: Option<&str>) -> BTreeSet<NodeKey> {
        let Some(old) = self.children.remove(key) else {
            return BTreeSet::new();
        };
        let version = version.unwrap_or(&old.resource_version);
        self.gone.left(&old.uid, version);
        let Some(node) = old.node().cloned() else {
            return BTreeSet::new();
        };
        self.unlist(&node, key);
        if old.completed {
            let ended = self.ended.entry(node.clone()).or_default();
            ended.push((key.clone(), old));
        }
        BTreeSet::from([node])
    }

    fn unlist(&mut self, node: &NodeKey, key: &ObjectKey) {
        if let Some(keys) = self.by_node.get_mut(node) {
            keys.remove(key);
            if keys.is_empty() {
                self.by_node.remove(node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_late_reply_does_not_bring_back_what_is_gone_and_what_comes_back_is_learnt() {
        let mut inner = Inner::default();
        let kind = Kind {
            api_version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
        };
        let object = |version: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "shop", "name": "web", "uid": "a", "resourceVersion": version}});
        let key = key_of(&object("1"));
        inner.change(&kind, Change::Applied(object("1")));
        inner.change(&kind, Change::Deleted(object("3")));
        inner.learn(&object("2"), Asked(0));
        assert!(!inner.children.contains_key(&key), "a late reply");
        // It was left behind without our label, and is taken over once more.
        inner.learn(&object("4"), Asked(0));
        assert!(inner.children.contains_key(&key), "adopted");
    }

    #[test]
    fn what_many_objects_have_is_kept_once_and_for_as_long_as_one_has_it() {
        let mut shared = Shared::default();
        let first = shared.one("a".into());
        assert!(Arc::ptr_eq(&first, &shared.one("a".into())));
        for i in 0..1000 {
            shared.one(i.to_string().into());
        }
        assert!(shared.texts.len() < 100, "{}", shared.texts.len());
        assert!(Arc::ptr_eq(&first, &shared.one("a".into())));
    }

    #[test]
    fn what_a_list_does_not_have_is_not_learnt_from_an_older_reply() {
        let kind = Kind {
            api_version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
        };
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "shop", "name": "web", "uid": "a", "resourceVersion": "5"}});
        let key = key_of(&object);
        let there = |inner: &Inner| inner.children.contains_key(&key);
        let mut inner = Inner::default();
        inner.change(&kind, Change::Restarted);
        inner.learn(&object, Asked(0));
        assert!(there(&inner), "for as long as the list is not complete");
        inner.change(&kind, Change::Listed);
        assert!(!there(&inner), "the list is newer");
        inner.learn(&object, Asked(0));
        assert!(!there(&inner), "the reply is older than the list");
        inner.change(&kind, Change::Applied(object.clone()));
        assert!(there(&inner), "the list was older");

        let mut inner = Inner::default();
        inner.change(&kind, Change::Listed);
        inner.learn(&object, Asked(1));
        assert!(there(&inner), "made since the list");
        inner.change(&kind, Change::Restarted);
        inner.change(&kind, Change::Applied(object.clone()));
        inner.learn(&object, Asked(1));
        inner.change(&kind, Change::Listed);
        assert!(there(&inner), "the list has it");
    }
}
