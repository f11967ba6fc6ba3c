//! The nodes that the rows of one form require, as the hub loop last planned them, compared with the existing nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::decide::node::digest::NodeDigest;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Desired {
    /// By name.
    wanted: BTreeMap<Arc<str>, Wanted>,
    /// Nodes that exist without a row, with their rendered hashes: their rows are skipped, or they wait for their deletion.
    others: BTreeMap<Arc<str>, Option<Arc<str>>>,
}

/// The desired state of one node.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// The hash that the hub rendered, as in the node's annotation; None if rendering failed.
    pub rendered_hash: Option<Arc<str>>,
    /// The group of the form's order for the row.
    pub group: Option<usize>,
}

impl Wanted {
    /// The node was written from it, and needs no other write: an edit since then stays, unless it is to be discarded.
    pub fn is_held_by(&self, node: &NodeDigest) -> bool {
        node.rendered_hash.as_deref() == self.rendered_hash.as_deref() && !node.discards_edit()
    }
}

/// How a node compares with what the rows ask for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standing {
    /// A row asks for it.
    is_wanted: bool,
    is_deleting: bool,
    /// See [`Desired::is_behind`].
    holds_else: bool,
}

impl Standing {
    /// The node is being deleted, and no row requires it.
    fn goes_for_good(self) -> bool {
        self.is_deleting && !self.is_wanted
    }

    fn is_behind(self) -> bool {
        !self.goes_for_good() && (self.is_deleting || self.holds_else)
    }
}

/// Nodes that are missing or outdated.
#[derive(Debug, Default, PartialEq)]
pub struct Lack {
    /// Nodes that differ from the last rendering, that no sync has seen yet, or that are being deleted and will be recreated.
    pub unwritten: BTreeSet<Arc<str>>,
    /// Nodes that do not exist, by name, with the groups of their rows.
    pub absent: Vec<(Arc<str>, Option<usize>)>,
}

impl Desired {
    pub fn insert(&mut self, name: Arc<str>, wanted: Wanted) {
        self.wanted.insert(name, wanted);
    }

    /// Records an existing node that no row requires.
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

    /// The group of the node's row, if a row requires the node. The node itself has it only once it is written.
    pub fn group_of(&self, name: &str) -> Option<Option<usize>> {
        Some(self.wanted.get(name)?.group)
    }

    /// The number of nodes that the rows require.
    pub fn count(&self) -> usize {
        self.wanted.len()
    }

    /// Whether the node holds something else than the last sync left or saw there: a write that was late, a copy of an older
    /// time, or an edit that is to be discarded.
    pub fn is_behind(&self, node: &NodeDigest) -> bool {
        self.holds_else(node, self.wanted.get(&node.key.name))
    }

    /// `wanted`: the node's desired state.
    fn holds_else(&self, node: &NodeDigest, wanted: Option<&Wanted>) -> bool {
        match wanted {
            Some(wanted) => wanted.rendered_hash.is_some() && !wanted.is_held_by(node),
            None => match self.others.get(&node.key.name) {
                Some(seen) => seen.is_some() && node.rendered_hash.as_deref() != seen.as_deref(),
                None => true,
            },
        }
    }

    pub fn standing(&self, node: &NodeDigest) -> Standing {
        let wanted = self.wanted.get(&node.key.name);
        Standing {
            is_wanted: wanted.is_some(),
            is_deleting: node.deleting,
            holds_else: self.holds_else(node, wanted),
        }
    }

    /// Whether [`Self::lack`] finds anything, if the last sync could write all of these nodes of the form.
    pub fn lacks_any<'a>(&self, nodes: impl Iterator<Item = &'a NodeDigest>) -> bool {
        let mut there = 0;
        for standing in nodes.map(|node| self.standing(node)) {
            if standing.is_behind() {
                return true;
            }
            there += usize::from(standing.is_wanted);
        }
        there < self.wanted.len()
    }

    /// `nodes`: the form's nodes, by name. `unwritten`: the nodes, existing or required, that the last sync could not write.
    pub fn lack<'a>(
        &self,
        nodes: impl Iterator<Item = (&'a Arc<str>, Standing)> + Clone,
        unwritten: &BTreeSet<Arc<str>>,
    ) -> Lack {
        let is_behind = |(name, standing): &(&Arc<str>, Standing)| {
            !standing.goes_for_good() && (standing.is_behind() || unwritten.contains(*name))
        };
        let behind = nodes.clone().filter(is_behind);
        let mut behind: BTreeSet<Arc<str>> = behind.map(|(name, _)| name.clone()).collect();
        let there = nodes.clone().filter(|(_, standing)| standing.is_wanted);
        let mut absent = vec![];
        // Usually all exist, so that the names need no comparison.
        if there.count() < self.wanted.len() {
            let mut there = nodes.map(|(name, _)| name).peekable();
            for (name, wanted) in &self.wanted {
                while there.next_if(|other| *other < name).is_some() {}
                if there.next_if(|other| *other == name).is_none() {
                    absent.push((name.clone(), wanted.group));
                }
            }
        }
        let refused = absent.iter().map(|(name, _)| name);
        behind.extend(refused.filter(|name| unwritten.contains(*name)).cloned());
        Lack {
            unwritten: behind,
            absent,
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
                name.into(),
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
        let standing = |node: &NodeDigest| (node.key.name.clone(), desired.standing(node));
        let mut standings: Vec<(Arc<str>, Standing)> = nodes.iter().map(standing).collect();
        standings.sort_by(|(one, _), (other, _)| one.cmp(other));
        let standings = standings.iter().map(|(name, standing)| (name, *standing));
        let lack = desired.lack(standings, &refused.map(Arc::from).into());
        let unwritten: Vec<&str> = lack.unwritten.iter().map(AsRef::as_ref).collect();
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
        let absent = [("gone".into(), Some(2)), ("refused".into(), None)];
        assert_eq!(lack.absent, absent);
    }
}
