//! Which namespaces there are, so that what failed for want of one is tried again as soon as it is there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::cluster::watch::Change;
use crate::decide::child::NodeKey;

/// Cheap to clone; all clones are one store.
#[derive(Clone, Default)]
pub struct Namespaces {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    /// What there is under each name: another text is another namespace, or one that has begun to go.
    present: BTreeMap<String, String>,
    /// While the watch lists anew: what it has not named yet.
    unseen: BTreeSet<String>,
    /// Nodes to be told when something becomes of a namespace.
    waiting: BTreeMap<String, BTreeSet<NodeKey>>,
}

impl Namespaces {
    /// What there is now; the node is told once when that changes.
    pub fn wait(&self, name: &str, node: &NodeKey) -> Option<String> {
        let mut inner = self.inner.lock().expect("the namespaces' lock");
        let waiting = inner.waiting.entry(name.to_owned()).or_default();
        waiting.insert(node.clone());
        inner.present.get(name).cloned()
    }

    /// Takes a watch event; returns the nodes to tell.
    pub fn change(&self, change: Change) -> BTreeSet<NodeKey> {
        let mut inner = self.inner.lock().expect("the namespaces' lock");
        match change {
            Change::Restarted => inner.unseen = inner.present.keys().cloned().collect(),
            Change::Applied(object) => {
                let name = name_of(&object);
                inner.unseen.remove(&name);
                let now = present(&object);
                if inner.present.insert(name.clone(), now.clone()) != Some(now) {
                    return inner.waiting.remove(&name).unwrap_or_default();
                }
            }
            Change::Deleted(object) => return inner.remove(&name_of(&object)),
            Change::Listed => {
                let gone = std::mem::take(&mut inner.unseen);
                return gone.iter().flat_map(|name| inner.remove(name)).collect();
            }
            Change::Refused(_) => {}
        }
        BTreeSet::new()
    }
}

impl Inner {
    fn remove(&mut self, name: &str) -> BTreeSet<NodeKey> {
        self.present.remove(name);
        self.waiting.remove(name).unwrap_or_default()
    }
}

fn present(object: &Value) -> String {
    let metadata = &object["metadata"];
    let going = !metadata["deletionTimestamp"].is_null();
    format!(
        "{}{}",
        metadata["uid"].as_str().unwrap_or_default(),
        if going { ", going" } else { "" }
    )
}

fn name_of(object: &Value) -> String {
    let name = object["metadata"]["name"].as_str();
    name.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn who_waits_for_a_namespace_is_told_when_it_comes_and_when_it_goes() {
        let namespaces = Namespaces::default();
        let node = NodeKey {
            namespace: "tenants".into(),
            name: "acme-web".into(),
        };
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
}
