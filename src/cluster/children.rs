//! The objects that belong to LynqNodes, as digests: one watch for each kind that any node's content names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::api::names;
use crate::cluster::cache::{Asked, Cache, Cached, Changed, identity};
use crate::cluster::objects::{Objects, Served};
use crate::cluster::shared::Shared;
use crate::cluster::vital::{self, RwLock};
use crate::cluster::watch::{Change, NoList, Which, follow};
use crate::decide::child::{Child, Kind, NodeKey, ObjectKey, Owner, key_of};
use crate::decide::readiness::Readiness;

/// Clones are cheap and share one cache.
#[derive(Clone)]
pub struct Children {
    inner: Arc<RwLock<Inner>>,
    /// Called with every node whose objects changed.
    touched: Arc<dyn Fn(NodeKey) + Send + Sync>,
}

#[derive(Default)]
struct Inner {
    children: BTreeMap<Kind, Cache<Arc<ObjectKey>, Child>>,
    by_node: BTreeMap<NodeKey, BTreeSet<Arc<ObjectKey>>>,
    kinds: BTreeMap<Kind, Watched>,
    /// Jobs that were deleted after they had completed: kept until their node is reconciled, which may not have seen them
    /// completed.
    ended: BTreeMap<NodeKey, Vec<(ObjectKey, Arc<Child>)>>,
    texts: Shared<str>,
    shared_kinds: Shared<Kind>,
    owners: Shared<Owner>,
    readiness: Shared<Readiness>,
}

#[derive(Default)]
struct Watched {
    listed: bool,
    refused: Option<NoList>,
    /// Nodes that wait for the first list.
    waiting: BTreeSet<NodeKey>,
}

impl Cached for Child {
    fn uid(&self) -> &str {
        &self.uid
    }

    fn resource_version(&self) -> &str {
        &self.resource_version
    }
}

/// Whether the cache has every object of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listing {
    Complete,
    /// The node is queued when that changes.
    Pending,
    /// As `Pending`; the API server has refused the list.
    Refused(NoList),
}

impl Children {
    pub fn new(touched: impl Fn(NodeKey) + Send + Sync + 'static) -> Self {
        Children {
            inner: Arc::default(),
            touched: Arc::new(touched),
        }
    }

    /// Starts a watch of the kind if none runs.
    pub fn listing(
        &self,
        kind: &Kind,
        served: &Served,
        objects: &Objects,
        node: &NodeKey,
    ) -> Listing {
        self.watch(kind, served, objects);
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

    /// Starts a watch of the kind if none runs.
    pub fn watch(&self, kind: &Kind, served: &Served, objects: &Objects) {
        let mut inner = self.inner.write();
        if inner.kinds.contains_key(kind) {
            return;
        }
        inner.kinds.insert(kind.clone(), Watched::default());
        let (store, kind, objects) = (self.clone(), kind.clone(), objects.clone());
        let of_kind = (served.resource.clone(), served.scope);
        vital::spawn(async move {
            let selector = format!("{}={}", names::LABEL_MANAGED, names::TRUE);
            follow(objects, of_kind, Which::Labelled(&selector), |change| {
                store.change(&kind, change)
            })
            .await;
        });
    }

    /// The node is deleted and no longer waits for any list.
    pub fn forget_node(&self, node: &NodeKey) {
        let mut inner = self.inner.write();
        inner.ended.remove(node);
        for watched in inner.kinds.values_mut() {
            watched.waiting.remove(node);
        }
    }

    pub fn get(&self, key: &ObjectKey) -> Option<Arc<Child>> {
        self.inner.read().get(key).cloned()
    }

    /// Every known object of the node.
    pub fn of_node(&self, node: &NodeKey) -> BTreeMap<ObjectKey, Arc<Child>> {
        let inner = self.inner.read();
        let keys = inner.by_node.get(node).into_iter().flatten();
        keys.filter_map(|key| Some(((**key).clone(), inner.get(key)?.clone())))
            .collect()
    }

    /// When the partition of one of the node's StatefulSets last moved.
    pub fn stepped_at(&self, node: &NodeKey) -> Option<Timestamp> {
        let inner = self.inner.read();
        let keys = inner.by_node.get(node).into_iter().flatten();
        keys.filter_map(|key| inner.get(key)?.stepped_at).max()
    }

    /// Jobs of the node that were deleted after they had completed, since the previous call.
    pub fn take_ended(&self, node: &NodeKey) -> Vec<(ObjectKey, Arc<Child>)> {
        self.inner.write().ended.remove(node).unwrap_or_default()
    }

    /// Call this before a request whose reply you pass to `learn`.
    pub fn asked(&self, kind: &Kind) -> Asked {
        let inner = self.inner.read();
        inner
            .children
            .get(kind)
            .map(Cache::asked)
            .unwrap_or_default()
    }

    /// Takes an object from the reply to a write or a live read, unless the object is gone since.
    pub fn learn(&self, object: &Value, asked: Asked) -> Arc<Child> {
        self.inner.write().learn(object, asked)
    }

    /// A request showed that the object of this uid is gone or no longer ours. The reply may be late: another object of that name
    /// stays.
    pub fn forget(&self, key: &ObjectKey, uid: &str) {
        let mut inner = self.inner.write();
        if let Some(known) = inner.of_kind(&key.kind).forget(key, uid) {
            inner.removed(key, known);
        }
    }

    fn change(&self, kind: &Kind, change: Change) {
        let touched = self.inner.write().change(kind, change);
        for node in touched {
            (self.touched)(node);
        }
    }
}

impl Inner {
    fn get(&self, key: &ObjectKey) -> Option<&Arc<Child>> {
        self.children.get(&key.kind)?.get(key)
    }

    fn of_kind(&mut self, kind: &Kind) -> &mut Cache<Arc<ObjectKey>, Child> {
        self.children.entry(kind.clone()).or_default()
    }

    fn watched(&mut self, kind: &Kind) -> &mut Watched {
        self.kinds.entry(kind.clone()).or_default()
    }

    fn child(&mut self, object: &Value) -> Arc<Child> {
        let mut child = Child::of(object);
        self.owners.share(&mut child.owner);
        self.readiness.share(&mut child.readiness);
        // All objects of a form have the same.
        self.texts.share(&mut child.fields_hash);
        self.texts.share(&mut child.applied_fields_hash);
        self.texts.share(&mut child.owned);
        Arc::new(child)
    }

    fn key(&mut self, object: &Value) -> Arc<ObjectKey> {
        let mut key = key_of(object);
        self.shared_kinds.share(&mut key.kind);
        self.texts.share(&mut key.namespace);
        Arc::new(key)
    }

    fn learn(&mut self, object: &Value, asked: Asked) -> Arc<Child> {
        let (key, child) = (self.key(object), self.child(object));
        let of_kind = self.of_kind(&key.kind);
        let Some(changed) = of_kind.learn(key.clone(), child.clone(), Some(asked)) else {
            return child;
        };
        self.put(&key, &changed);
        changed.now.unwrap_or(child)
    }

    fn change(&mut self, kind: &Kind, change: Change) -> BTreeSet<NodeKey> {
        match change {
            Change::Restarted => self.of_kind(kind).restarted(),
            Change::Applied(object) => {
                let (key, child) = (self.key(&object), self.child(&object));
                let changed = self.of_kind(kind).applied(key.clone(), child);
                return self.put(&key, &changed);
            }
            Change::Deleted(object) => {
                let key = key_of(&object);
                let known = self.of_kind(kind).deleted(&key, identity(&object));
                let touched = known.and_then(|known| self.removed(&key, known));
                return touched.into_iter().collect();
            }
            Change::Refused(why) => {
                let watched = self.watched(kind);
                if watched.refused.as_ref() != Some(&why) {
                    watched.refused = Some(why);
                    return watched.waiting.clone();
                }
            }
            Change::Listed => {
                let watched = self.watched(kind);
                watched.listed = true;
                watched.refused = None;
                let mut touched = std::mem::take(&mut watched.waiting);
                for (key, known) in self.of_kind(kind).listed() {
                    touched.extend(self.removed(&key, known));
                }
                return touched;
            }
        }
        BTreeSet::new()
    }

    /// Returns the nodes for which something changed.
    fn put(&mut self, key: &Arc<ObjectKey>, changed: &Changed<Child>) -> BTreeSet<NodeKey> {
        let (Some(now), old) = (&changed.now, &changed.before) else {
            return BTreeSet::new();
        };
        // A heartbeat in the status, or the echo of our own write, is no reason to reconcile the node.
        let news = old.as_ref().is_none_or(|old| !old.is_like(now));
        let mut touched = BTreeSet::new();
        let left = old.as_ref().and_then(|old| old.node());
        if let Some(node) = left.filter(|node| Some(*node) != now.node()) {
            self.unlist(node, key);
            touched.insert(node.clone());
        }
        if let Some(node) = now.node() {
            let keys = self.by_node.entry(node.clone()).or_default();
            keys.insert(key.clone());
            if news {
                touched.insert(node.clone());
            }
        }
        touched
    }

    /// Returns the object's node.
    fn removed(&mut self, key: &ObjectKey, old: Arc<Child>) -> Option<NodeKey> {
        let node = old.node().cloned()?;
        self.unlist(&node, key);
        if old.completed {
            let ended = self.ended.entry(node.clone()).or_default();
            ended.push((key.clone(), old));
        }
        Some(node)
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
