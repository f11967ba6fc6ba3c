//! The nodes that the rows of one form ask for, as the hub loop planned them last, beside the nodes that there are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::decide::node::digest::NodeDigest;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Desired {
    /// By name.
    wanted: BTreeMap<String, Wanted>,
    /// Nodes that were there and that no row asks for, and what they held: their rows are skipped, or they are to go.
    others: BTreeMap<String, Option<Arc<str>>>,
}

/// What one node is to be.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// What the hub rendered for it, as the node's annotation has it; None where that did not work.
    pub rendered_hash: Option<Arc<str>>,
    /// The group of the form's order whose condition its row meets.
    pub group: Option<usize>,
}

impl Wanted {
    /// The node was written from it, and needs no other write: an edit since then stays, unless it is to be discarded.
    pub fn is_held_by(&self, node: &NodeDigest) -> bool {
        node.rendered_hash.as_deref() == self.rendered_hash.as_deref() && !node.discards_edit()
    }
}

/// What there is not.
#[derive(Debug, Default, PartialEq)]
pub struct Lack {
    /// Nodes that hold something else than was rendered last, that no sync has seen yet, or that are being deleted and will be
    /// made anew.
    pub unwritten: BTreeSet<String>,
    /// Nodes that are not there, and the groups of their rows.
    pub absent: BTreeMap<String, Option<usize>>,
}

impl Desired {
    pub fn insert(&mut self, name: String, wanted: Wanted) {
        self.wanted.insert(name, wanted);
    }

    /// A node that the sync sees; it counts for as long as no row asks for it.
    pub fn note_seen(&mut self, node: &NodeDigest) {
        if !self.wanted.contains_key(&node.key.name) {
            let held = node.rendered_hash.as_deref().map(Arc::from);
            self.others.insert(node.key.name.clone(), held);
        }
    }

    /// Whether the last sync saw the node, and found no row that asks for it.
    pub fn is_unwanted(&self, name: &str) -> bool {
        self.others.contains_key(name)
    }

    /// The group of the node's row, where a row asks for the node. The node itself tells it only once it is written.
    pub fn group_of(&self, name: &str) -> Option<Option<usize>> {
        Some(self.wanted.get(name)?.group)
    }

    /// How many nodes the rows ask for.
    pub fn count(&self) -> usize {
        self.wanted.len()
    }

    /// Whether the node holds something else than the last sync left or saw there: a write that was late, a copy of an older
    /// time, or an edit that is to be discarded.
    pub fn is_behind(&self, node: &NodeDigest) -> bool {
        self.holds_else(node, self.wanted.get(&node.key.name))
    }

    /// `wanted`: what the node is to be.
    fn holds_else(&self, node: &NodeDigest, wanted: Option<&Wanted>) -> bool {
        match wanted {
            Some(wanted) => wanted.rendered_hash.is_some() && !wanted.is_held_by(node),
            None => match self.others.get(&node.key.name) {
                Some(seen) => seen.is_some() && node.rendered_hash.as_deref() != seen.as_deref(),
                None => true,
            },
        }
    }

    /// `nodes`: those of the form. `unwritten`: those of them, and of the ones that are wanted, that the last sync could not
    /// write.
    pub fn lack<'a>(
        &self,
        nodes: impl Iterator<Item = &'a NodeDigest>,
        unwritten: &BTreeSet<String>,
    ) -> Lack {
        // In the order of names, as a rule already: so both are walked side by side.
        let mut nodes: Vec<&NodeDigest> = nodes.collect();
        nodes.sort_unstable_by(|one, other| one.key.name.cmp(&other.key.name));
        let mut nodes = nodes.into_iter().peekable();
        let mut behind = vec![];
        let mut absent = vec![];
        let mut look_at = |node: &NodeDigest, wanted: Option<&Wanted>| {
            let name = &node.key.name;
            let goes_for_good = node.deleting && wanted.is_none();
            let is_behind =
                || node.deleting || unwritten.contains(name) || self.holds_else(node, wanted);
            if !goes_for_good && is_behind() {
                behind.push(name.clone());
            }
        };
        for (name, wanted) in &self.wanted {
            while let Some(other) = nodes.next_if(|node| node.key.name < *name) {
                look_at(other, None);
            }
            match nodes.next_if(|node| node.key.name == *name) {
                Some(node) => look_at(node, Some(wanted)),
                None => absent.push((name.clone(), wanted.group)),
            }
        }
        nodes.for_each(|node| look_at(node, None));
        let refused = absent.iter().filter(|(name, _)| unwritten.contains(name));
        behind.extend(refused.map(|(name, _)| name.clone()));
        Lack {
            unwritten: behind.into_iter().collect(),
            absent: absent.into_iter().collect(),
        }
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
            ("refused", Some("h1"), None),
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
            node("left over and changed", "h0", false),
            node("left over and going", "h0", true),
            node("left over and refused", "h0", false),
            node("new", "h0", false),
        ];
        desired.note_seen(&node("same", "h0", false));
        desired.note_seen(&node("left over", "h0", false));
        desired.note_seen(&node("left over and changed", "h9", false));
        desired.note_seen(&node("left over and refused", "h0", false));
        let refused = [
            "refused",
            "left over and refused",
            "left over and going",
            "away",
        ];
        let lack = desired.lack(nodes.iter(), &refused.map(str::to_owned).into());
        let unwritten: Vec<&str> = lack.unwritten.iter().map(String::as_str).collect();
        let expected = [
            "going",
            "left over and changed",
            "left over and refused",
            "new",
            "older",
            "refused",
        ];
        assert_eq!(unwritten, expected);
        assert_eq!(desired.count(), 6);
        let absent = [("gone".to_owned(), Some(2)), ("refused".to_owned(), None)];
        assert_eq!(lack.absent, absent.into());
    }
}
