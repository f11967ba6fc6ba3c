//! The LynqNodes of the cluster, as digests kept by a watch.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch::{Receiver, Sender, channel};

use crate::cluster::gone::Gone;
use crate::cluster::vital::RwLock;
use crate::cluster::watch::Change;
use crate::decide::child::NodeKey;
use crate::decide::node::NodeDigest;
use crate::decide::version;

/// When a request was sent: after so many complete lists.
#[derive(Clone, Copy, Debug)]
pub struct Asked(u64);

/// Namespace and name of a hub.
pub type HubKey = (String, String);

/// Cheap to clone; all clones are one store.
#[derive(Clone)]
pub struct Nodes {
    inner: Arc<RwLock<Inner>>,
    listed: (Arc<Sender<bool>>, Receiver<bool>),
}

#[derive(Default)]
struct Inner {
    nodes: BTreeMap<NodeKey, Arc<NodeDigest>>,
    by_hub: BTreeMap<HubKey, BTreeSet<String>>,
    /// While the watch lists anew: what it has not named yet.
    unseen: Option<BTreeSet<NodeKey>>,
    lists: u64,
    gone: Gone,
}

impl Default for Nodes {
    fn default() -> Self {
        let (sender, receiver) = channel(false);
        Nodes {
            inner: Arc::default(),
            listed: (Arc::new(sender), receiver),
        }
    }
}

impl Nodes {
    pub fn get(&self, key: &NodeKey) -> Option<Arc<NodeDigest>> {
        self.inner.read().nodes.get(key).cloned()
    }

    /// The nodes of one hub, by name.
    pub fn of_hub(&self, hub: &HubKey) -> Vec<Arc<NodeDigest>> {
        let inner = self.inner.read();
        let names = inner.by_hub.get(hub).into_iter().flatten();
        let key = |name: &String| NodeKey {
            namespace: hub.0.clone(),
            name: name.clone(),
        };
        names
            .filter_map(|name| inner.nodes.get(&key(name)).cloned())
            .collect()
    }

    pub fn all(&self) -> Vec<Arc<NodeDigest>> {
        let inner = self.inner.read();
        inner.nodes.values().cloned().collect()
    }

    pub fn keys(&self) -> Vec<NodeKey> {
        self.inner.read().nodes.keys().cloned().collect()
    }

    /// Until the first list is complete.
    pub async fn wait_listed(&self) {
        let mut listed = self.listed.1.clone();
        // The sender lives as long as this store.
        let _ = listed.wait_for(|listed| *listed).await;
    }

    /// To be asked before a node is written that may be new.
    pub fn asked(&self) -> Asked {
        Asked(self.inner.read().lists)
    }

    /// Takes a node that may be new. One that a list since then does not have is gone, or the watch is about to name it.
    pub fn learn_new(&self, object: &Value, asked: Asked) -> Arc<NodeDigest> {
        let mut inner = self.inner.write();
        let key = key_of(object);
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
        if inner.nodes.get(&key).is_none_or(|known| known.uid != uid) {
            if inner.lists != asked.0 {
                return Arc::new(NodeDigest::of(object, None));
            }
            // Read since the newest list, it is there, whatever that list had.
            inner.gone.found(uid);
            if let Some(unseen) = &mut inner.unseen {
                unseen.insert(key);
            }
        }
        drop(inner);
        self.learn(object)
    }

    /// Takes an object that a write returned: what we wrote ourselves is known without waiting for the watch. One that is
    /// gone since stays gone.
    pub fn learn(&self, object: &Value) -> Arc<NodeDigest> {
        let mut inner = self.inner.write();
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        if inner.gone.has(text("uid"), text("resourceVersion")) {
            return Arc::new(NodeDigest::of(object, None));
        }
        inner.put(object)
    }

    /// Takes a watch event; returns the nodes whose digest changed, as they were before and are now.
    pub fn change(&self, change: Change) -> Vec<Changed> {
        let mut inner = self.inner.write();
        match change {
            Change::Restarted => {
                inner.unseen = Some(inner.nodes.keys().cloned().collect());
                vec![]
            }
            Change::Applied(object) => {
                let key = key_of(&object);
                if let Some(unseen) = &mut inner.unseen {
                    unseen.remove(&key);
                }
                let uid = object["metadata"]["uid"].as_str();
                inner.gone.back(uid.unwrap_or_default());
                let before = inner.nodes.get(&key).cloned();
                // A late reply must not bring back whom this one follows.
                if let Some(known) = before
                    .as_ref()
                    .filter(|known| Some(known.uid.as_str()) != uid)
                {
                    inner.gone.deleted(&known.uid);
                }
                let now = inner.put(&object);
                vec![Changed {
                    before,
                    now: Some(now),
                }]
            }
            Change::Deleted(object) => {
                let uid = object["metadata"]["uid"].as_str();
                inner.gone.deleted(uid.unwrap_or_default());
                inner.remove(&key_of(&object), uid).into_iter().collect()
            }
            Change::Refused(_) => vec![],
            Change::Listed => {
                inner.lists += 1;
                let gone = inner.unseen.take().unwrap_or_default();
                let missed = |key| {
                    let changed = inner.remove(key, None)?;
                    inner.gone.missed(&changed.node().uid);
                    Some(changed)
                };
                let changed = gone.iter().filter_map(missed).collect();
                drop(inner);
                self.listed.0.send_replace(true);
                changed
            }
        }
    }
}

/// One node before and after an event; either may be absent.
#[derive(Clone, Debug)]
pub struct Changed {
    pub before: Option<Arc<NodeDigest>>,
    pub now: Option<Arc<NodeDigest>>,
}

impl Changed {
    pub fn node(&self) -> &NodeDigest {
        self.now
            .as_ref()
            .or(self.before.as_ref())
            .expect("a change has a node")
    }
}

impl Inner {
    fn put(&mut self, object: &Value) -> Arc<NodeDigest> {
        let key = key_of(object);
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let old = self
            .nodes
            .get(&key)
            .filter(|old| old.uid == text("uid"))
            .cloned();
        // Events and replies of our own writes come in any order.
        if let Some(old) = &old
            && version::is_newer(&old.resource_version, text("resourceVersion"))
        {
            return old.clone();
        }
        let digest = Arc::new(NodeDigest::of(object, old.as_deref()));
        if let Some(replaced) = self.nodes.insert(key, digest.clone()) {
            self.unlist(&replaced);
        }
        let hub = (digest.key.namespace.clone(), digest.hub.clone());
        self.by_hub
            .entry(hub)
            .or_default()
            .insert(digest.key.name.clone());
        digest
    }

    fn remove(&mut self, key: &NodeKey, uid: Option<&str>) -> Option<Changed> {
        if uid.is_some_and(|uid| self.nodes.get(key).is_some_and(|node| node.uid != uid)) {
            return None;
        }
        let before = self.nodes.remove(key)?;
        self.unlist(&before);
        Some(Changed {
            before: Some(before),
            now: None,
        })
    }

    fn unlist(&mut self, node: &NodeDigest) {
        let hub = (node.key.namespace.clone(), node.hub.clone());
        if let Some(names) = self.by_hub.get_mut(&hub) {
            names.remove(&node.key.name);
            if names.is_empty() {
                self.by_hub.remove(&hub);
            }
        }
    }
}

fn key_of(object: &Value) -> NodeKey {
    let text = |field: &str| {
        object["metadata"][field]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    NodeKey {
        namespace: text("namespace"),
        name: text("name"),
    }
}
