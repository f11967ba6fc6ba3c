//! The LynqNodes of the cluster, as digests kept by a watch.

use std::collections::{BTreeMap, btree_map};
use std::sync::Arc;

use serde_json::Value;

use crate::api::conditions::Condition;
use crate::cluster::cache::{Asked, Cache, Cached, Changed, FirstList, identity};
use crate::cluster::shared::Shared;
use crate::cluster::vital::RwLock;
use crate::cluster::watch::Change;
use crate::decide::child::NodeKey;
use crate::decide::node::digest::{Declared, NodeDigest};

/// A hub's namespace and name.
pub type HubKey = (String, String);

pub type NodesOfHub<'a> = btree_map::Values<'a, Arc<str>, Arc<NodeDigest>>;

/// Clones are cheap and share one cache.
#[derive(Clone, Default)]
pub struct Nodes {
    inner: Arc<RwLock<Inner>>,
    first_list: FirstList,
}

#[derive(Default)]
struct Inner {
    nodes: Cache<NodeKey, NodeDigest>,
    /// By the node's name.
    by_hub: BTreeMap<HubKey, BTreeMap<Arc<str>, Arc<NodeDigest>>>,
    declared: Shared<Declared>,
    texts: Shared<str>,
}

impl Cached for NodeDigest {
    fn uid(&self) -> &str {
        &self.uid
    }

    fn resource_version(&self) -> &str {
        &self.resource_version
    }
}

impl Nodes {
    pub fn get(&self, key: &NodeKey) -> Option<Arc<NodeDigest>> {
        self.inner.read().nodes.get(key).cloned()
    }

    /// Reads the nodes of one hub, by name, without a copy of them. No node changes meanwhile.
    pub fn with_hub<Read>(&self, hub: &HubKey, read: impl FnOnce(NodesOfHub) -> Read) -> Read {
        let inner = self.inner.read();
        let none = BTreeMap::new();
        read(inner.by_hub.get(hub).unwrap_or(&none).values())
    }

    /// The nodes of one hub, by name.
    pub fn of_hub(&self, hub: &HubKey) -> Vec<Arc<NodeDigest>> {
        let inner = self.inner.read();
        let nodes = inner.by_hub.get(hub).into_iter();
        nodes.flat_map(BTreeMap::values).cloned().collect()
    }

    pub fn all(&self) -> Vec<Arc<NodeDigest>> {
        let inner = self.inner.read();
        inner.nodes.all().values().cloned().collect()
    }

    pub fn keys(&self) -> Vec<NodeKey> {
        self.inner.read().nodes.all().keys().cloned().collect()
    }

    /// Until the first list is complete.
    pub async fn wait_listed(&self) {
        self.first_list.wait().await;
    }

    /// To be asked before a node is written that may be new.
    pub fn asked(&self) -> Asked {
        self.inner.read().nodes.asked()
    }

    /// Takes a node that may be new.
    pub fn learn_new(&self, object: &Value, asked: Asked) -> Arc<NodeDigest> {
        let digest = self.digest(object);
        self.inner.write().learn(digest, Some(asked))
    }

    /// Takes the reply to a write of a cached node, so that our own write is known before the watch delivers it.
    pub fn learn(&self, object: &Value) -> Arc<NodeDigest> {
        let digest = self.digest(object);
        self.inner.write().learn(digest, None)
    }

    /// Computed outside the lock: it hashes the node's content, which no other task should wait for.
    fn digest(&self, object: &Value) -> NodeDigest {
        let known = self.get(&key_of(object));
        let known = known.filter(|known| known.uid == identity(object).0);
        NodeDigest::of(object, known.as_deref())
    }

    /// Takes a watch event; returns the nodes whose digest changed, as they were before and are now.
    pub fn change(&self, change: Change) -> Vec<Changed<NodeDigest>> {
        match change {
            Change::Restarted => self.inner.write().nodes.restarted(),
            Change::Applied(object) => {
                let digest = self.digest(&object);
                let mut inner = self.inner.write();
                let digest = inner.share(digest);
                let changed = inner.nodes.applied(digest.key.clone(), digest);
                inner.index(&changed);
                return vec![changed];
            }
            Change::Deleted(object) => {
                let mut inner = self.inner.write();
                let before = inner.nodes.deleted(&key_of(&object), identity(&object));
                return inner.removed(before).into_iter().collect();
            }
            Change::Refused(_) => {}
            Change::Listed => {
                let mut inner = self.inner.write();
                let gone = inner.nodes.listed().into_iter();
                let changed = gone.filter_map(|(_, node)| inner.removed(Some(node)));
                let changed = changed.collect();
                drop(inner);
                self.first_list.complete();
                return changed;
            }
        }
        vec![]
    }
}

impl Inner {
    /// Stores a text that many nodes have only once.
    fn share(&mut self, mut digest: NodeDigest) -> Arc<NodeDigest> {
        // `get_mut` returns None if the last digest already has these facts.
        for facts in Arc::get_mut(&mut digest.facts).into_iter().flatten() {
            self.declared.share(&mut facts.declared);
            self.texts.share(&mut facts.namespace);
        }
        if let Some(status) = Arc::get_mut(&mut digest.status) {
            status.conditions.shrink_to_fit();
            for text in status.conditions.iter_mut().flat_map(Condition::texts_mut) {
                self.texts.share(&mut text.0);
            }
        }
        Arc::new(digest)
    }

    fn learn(&mut self, digest: NodeDigest, asked: Option<Asked>) -> Arc<NodeDigest> {
        let digest = self.share(digest);
        let changed = self.nodes.learn(digest.key.clone(), digest.clone(), asked);
        if let Some(changed) = &changed {
            self.index(changed);
        }
        changed.and_then(|changed| changed.now).unwrap_or(digest)
    }

    fn index(&mut self, changed: &Changed<NodeDigest>) {
        let stays = |before: &&Arc<NodeDigest>| {
            let now = changed.now.as_ref();
            now.is_some_and(|now| now.key == before.key && now.hub == before.hub)
        };
        if let Some(before) = changed.before.as_ref().filter(|before| !stays(before)) {
            let hub = before.hub_key();
            if let Some(nodes) = self.by_hub.get_mut(&hub) {
                nodes.remove(&before.key.name);
                if nodes.is_empty() {
                    self.by_hub.remove(&hub);
                }
            }
        }
        if let Some(now) = &changed.now {
            let nodes = self.by_hub.entry(now.hub_key()).or_default();
            nodes.insert(now.key.name.clone(), now.clone());
        }
    }

    fn removed(&mut self, before: Option<Arc<NodeDigest>>) -> Option<Changed<NodeDigest>> {
        let before = Some(before?);
        let changed = Changed { before, now: None };
        self.index(&changed);
        Some(changed)
    }
}

impl Changed<NodeDigest> {
    pub fn node(&self) -> &NodeDigest {
        let either = self.now.as_ref().or(self.before.as_ref());
        either.expect("a change has a node")
    }
}

fn key_of(object: &Value) -> NodeKey {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    NodeKey::new(text("namespace"), text("name"))
}

impl NodeDigest {
    pub fn hub_key(&self) -> HubKey {
        (self.key.namespace.to_string(), self.hub.clone())
    }
}
