//! The nodes that the rows of one form ask for, as the hub loop planned them last, beside the nodes that there are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::decide::node::NodeDigest;

/// By name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Desired(BTreeMap<String, Wanted>);

/// What one node is to be.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// What the hub rendered for it, as the node's annotation has it; None where that did not work.
    pub rendered_hash: Option<Arc<str>>,
    /// The group of the form's order whose condition its row meets.
    pub group: Option<usize>,
}

/// What there is not.
#[derive(Debug, Default, PartialEq)]
pub struct Lack {
    /// Nodes that hold something else than was rendered last, and those that are being deleted and will be made anew.
    pub unwritten: BTreeSet<String>,
    /// Nodes that are not there, and the groups of their rows.
    pub absent: BTreeMap<String, Option<usize>>,
}

impl Desired {
    pub fn insert(&mut self, name: String, wanted: Wanted) {
        self.0.insert(name, wanted);
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the node holds something else than was rendered for it: a write that was late, or a copy of an older time.
    pub fn is_behind(&self, node: &NodeDigest) -> bool {
        let wanted = self.0.get(&node.key.name);
        let rendered = wanted.and_then(|wanted| wanted.rendered_hash.as_deref());
        rendered.is_some_and(|rendered| node.rendered_hash.as_deref() != Some(rendered))
    }

    /// `nodes`: those of the form.
    pub fn lack<'a>(&self, nodes: impl Iterator<Item = &'a NodeDigest>) -> Lack {
        let mut absent: BTreeMap<&String, &Wanted> = self.0.iter().collect();
        let mut lack = Lack::default();
        for node in nodes {
            let is_wanted = absent.remove(&node.key.name).is_some();
            if is_wanted && (node.deleting || self.is_behind(node)) {
                lack.unwritten.insert(node.key.name.clone());
            }
        }
        let absent = absent.into_iter();
        lack.absent = absent
            .map(|(name, wanted)| (name.clone(), wanted.group))
            .collect();
        lack
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(name: &str, rendered: &str, deleting: bool) -> NodeDigest {
        let mut object = json!({"metadata": {
            "name": name, "namespace": "shop", "annotations": {"lynq.sh/rendered-hash": rendered},
        }});
        if deleting {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        NodeDigest::of(&object, None)
    }

    #[test]
    fn too_many_nodes_hide_none_that_is_missing() {
        let mut desired = Desired::default();
        for (name, hash, group) in [
            ("same", Some("h1"), None),
            ("older", Some("h1"), None),
            ("going", Some("h1"), None),
            ("gone", Some("h1"), Some(2)),
            ("unrendered", None, None),
        ] {
            let rendered_hash = hash.map(Arc::from);
            desired.insert(
                name.to_owned(),
                Wanted {
                    rendered_hash,
                    group,
                },
            );
        }
        let nodes = [
            node("same", "h1", false),
            node("older", "h0", false),
            node("going", "h1", true),
            node("unrendered", "h0", false),
            node("left over", "h0", false),
            node("left over too", "h0", false),
        ];
        let lack = desired.lack(nodes.iter());
        let unwritten: Vec<&str> = lack.unwritten.iter().map(String::as_str).collect();
        assert_eq!(unwritten, ["going", "older"]);
        assert_eq!(lack.absent, BTreeMap::from([("gone".to_owned(), Some(2))]));
    }
}
