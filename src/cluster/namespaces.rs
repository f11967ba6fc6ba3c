//! Knows which namespaces exist, so that a node that failed for want of one is retried as soon as it is created. Where the operator
//! watches some namespaces only, it may not list them, and this knows none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::cluster::cache::{Cache, Cached, identity};
use crate::cluster::vital::Mutex;
use crate::cluster::watch::Change;
use crate::decide::child::NodeKey;

/// Clones are cheap and share one cache.
#[derive(Clone, Default)]
pub struct Namespaces {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    present: Cache<String, Namespace>,
    /// Nodes to queue when a namespace is created or deleted, or its deletion begins.
    waiting: BTreeMap<String, BTreeSet<NodeKey>>,
    /// The same by node.
    of_node: BTreeMap<NodeKey, Vec<String>>,
}

/// A namespace as a node has seen it: its uid, and whether it was being deleted.
pub type Present = (String, bool);

struct Namespace {
    present: Present,
    resource_version: String,
}

impl Cached for Namespace {
    fn uid(&self) -> &str {
        &self.present.0
    }

    fn resource_version(&self) -> &str {
        &self.resource_version
    }
}

impl Namespaces {
    /// Returns the namespace as it is now; the node is queued once when that changes.
    pub fn wait(&self, name: &str, node: &NodeKey) -> Option<Present> {
        let mut inner = self.inner.lock();
        let waiting = inner.waiting.entry(name.to_owned()).or_default();
        if waiting.insert(node.clone()) {
            let of_node = inner.of_node.entry(node.clone()).or_default();
            of_node.push(name.to_owned());
        }
        inner.present.get(name).map(|now| now.present.clone())
    }

    pub fn has(&self, name: &str) -> bool {
        self.inner.lock().present.get(name).is_some()
    }

    /// The node is deleted and no longer waits for any namespace.
    pub fn forget_node(&self, node: &NodeKey) {
        let mut inner = self.inner.lock();
        for name in inner.of_node.remove(node).unwrap_or_default() {
            if let Some(waiting) = inner.waiting.get_mut(&name) {
                waiting.remove(node);
                if waiting.is_empty() {
                    inner.waiting.remove(&name);
                }
            }
        }
    }

    /// Whether a node waits for it.
    #[cfg(test)]
    pub fn is_awaited(&self, name: &str) -> bool {
        self.inner.lock().waiting.contains_key(name)
    }

    /// Takes a watch event; returns the nodes to tell.
    pub fn change(&self, change: Change) -> BTreeSet<NodeKey> {
        let mut inner = self.inner.lock();
        match change {
            Change::Restarted => inner.present.restarted(),
            Change::Applied(object) => {
                let (name, now) = named(&object);
                let changed = inner.present.applied(name.clone(), now);
                let present = |known: &Option<Arc<Namespace>>| {
                    known.as_ref().map(|known| known.present.clone())
                };
                if present(&changed.before) != present(&changed.now) {
                    return inner.told(&name);
                }
            }
            Change::Deleted(object) => {
                let (name, _) = named(&object);
                let gone = inner.present.deleted(&name, identity(&object));
                if gone.is_some() {
                    return inner.told(&name);
                }
            }
            Change::Listed => {
                let gone = inner.present.listed();
                return gone.iter().flat_map(|(name, _)| inner.told(name)).collect();
            }
            Change::Refused(_) => {}
        }
        BTreeSet::new()
    }
}

impl Inner {
    /// Removes and returns the nodes that wait for the namespace.
    fn told(&mut self, name: &str) -> BTreeSet<NodeKey> {
        let nodes = self.waiting.remove(name).unwrap_or_default();
        for node in &nodes {
            if let Some(names) = self.of_node.get_mut(node) {
                names.retain(|other| other != name);
                if names.is_empty() {
                    self.of_node.remove(node);
                }
            }
        }
        nodes
    }
}

fn named(object: &Value) -> (String, Arc<Namespace>) {
    let metadata = &object["metadata"];
    let text = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
    let namespace = Namespace {
        present: (text("uid"), !metadata["deletionTimestamp"].is_null()),
        resource_version: text("resourceVersion"),
    };
    (text("name"), Arc::new(namespace))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn who_waits_for_a_namespace_is_told_when_it_comes_and_when_it_goes() {
        let namespaces = Namespaces::default();
        let node = NodeKey::new("tenants", "acme-web");
        let object = |uid: &str| json!({"metadata": {"name": "other", "uid": uid}});
        let told = BTreeSet::from([node.clone()]);
        let nobody = BTreeSet::new();
        assert_eq!(namespaces.wait("other", &node), None);
        assert_eq!(namespaces.change(Change::Applied(object("a"))), told);
        assert_eq!(
            namespaces.change(Change::Applied(object("b"))),
            nobody,
            "once"
        );
        assert!(namespaces.wait("other", &node).is_some());
        assert_eq!(
            namespaces.change(Change::Applied(object("b"))),
            nobody,
            "no news"
        );
        let mut going = object("b");
        going["metadata"]["deletionTimestamp"] = json!("2026-03-01T12:00:00Z");
        assert_eq!(namespaces.change(Change::Applied(going)), told);
        assert!(namespaces.wait("other", &node).is_some());
        assert_eq!(namespaces.change(Change::Restarted), nobody);
        assert_eq!(namespaces.change(Change::Listed), told);
        assert_eq!(namespaces.wait("other", &node), None);
    }

    #[test]
    fn nothing_is_kept_of_a_node_that_is_gone() {
        let namespaces = Namespaces::default();
        let node = |name: &str| NodeKey::new("tenants", name);
        let (gone, stays) = (node("gone"), node("stays"));
        for name in ["its own", "shared"] {
            namespaces.wait(name, &gone);
            namespaces.wait(name, &gone);
        }
        namespaces.wait("shared", &stays);
        namespaces.forget_node(&gone);
        let inner = namespaces.inner.lock();
        let waiting: Vec<_> = inner.waiting.iter().collect();
        assert_eq!(
            waiting,
            [(&"shared".to_owned(), &BTreeSet::from([stays.clone()]))]
        );
        assert!(inner.of_node.keys().eq([&stays]));
        drop(inner);
        let object = json!({"metadata": {"name": "shared", "uid": "a"}});
        let told = namespaces.change(Change::Applied(object));
        assert_eq!(told, BTreeSet::from([stays]));
        let inner = namespaces.inner.lock();
        assert!(inner.waiting.is_empty() && inner.of_node.is_empty());
    }
}
