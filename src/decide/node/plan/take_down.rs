//! Which objects of a node go: those that its live content no longer names, and all of a node that is deleted itself.

use std::collections::{BTreeMap, BTreeSet};

use crate::decide::child::{Child, ObjectKey};
use crate::decide::node::digest::{Facts, NodeDigest};
use crate::decide::node::graph::{Graph, Vertex};
use crate::decide::node::plan::ownership::is_ours;
use crate::decide::node::plan::record::Record;
use crate::decide::node::plan::{Rest, vertex};

/// How to take down an object that no resource names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeDown {
    Delete,
    /// Left in the cluster, marked as an orphan.
    Orphan,
}

/// The node's own objects that no resource of its live content names.
pub(super) fn surplus(node: &NodeDigest, rest: &Rest) -> Vec<(ObjectKey, TakeDown)> {
    let others = rest.others.iter();
    let ours = others
        .filter(|(key, child)| is_ours(child, node) && rest.record.names(key) && !child.deleting);
    ours.map(|(key, child)| (key.clone(), take_down(child.retain)))
        .collect()
}

/// The objects of a terminating node to take down now, dependencies last; empty once all are gone. An object that claims to be
/// the node's, but is neither in its content nor in its record, is left alone. `of_lynq`: the objects that a node names that was
/// not taken over yet, and whether its content retains them.
pub fn plan_deletion(
    node: &NodeDigest,
    children: &BTreeMap<ObjectKey, Child>,
    record: &Record,
    of_lynq: &BTreeMap<ObjectKey, bool>,
    key_of: impl Fn(&Facts) -> Option<ObjectKey>,
) -> Deletion {
    let mut deletion = Deletion::default();
    let named: BTreeSet<ObjectKey> = node.facts.iter().filter_map(&key_of).collect();
    let is_named =
        |key: &ObjectKey| named.contains(key) || of_lynq.contains_key(key) || record.names(key);
    let mut left: BTreeMap<&ObjectKey, &Child> = children
        .iter()
        .filter(|(key, child)| is_ours(child, node) && is_named(key))
        .collect();
    let vertices: Vec<Vertex> = node.facts.iter().map(vertex).collect();
    let levels = Graph::new(&vertices).map(|graph| {
        graph
            .deletion_order()
            .into_iter()
            .map(|level| level.into_iter().map(str::to_owned).collect())
            .collect()
    });
    let levels: Vec<Vec<String>> = levels.unwrap_or_default();
    for level in levels {
        let here: Vec<(ObjectKey, bool)> = level
            .iter()
            .filter_map(|id| node.facts.iter().find(|f| f.id == *id))
            .filter_map(|facts| Some((key_of(facts)?, facts.retain)))
            .collect();
        for (key, retain) in here {
            if let Some((key, child)) = left.remove_entry(&key) {
                // The content decides, even if the object does not have the policy yet.
                deletion.push(key, child, retain);
            }
        }
        if deletion.pending {
            return deletion;
        }
    }
    for (key, child) in left {
        let stays = of_lynq.get(key).is_some_and(|stays| *stays);
        deletion.push(key, child, child.retain || stays);
    }
    deletion
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Deletion {
    pub take_down: Vec<(ObjectKey, TakeDown)>,
    /// Some object still exists, so the finalizer must stay.
    pub pending: bool,
    /// The objects that are being deleted, with their finalizers.
    pub going: Vec<(ObjectKey, Vec<String>)>,
}

impl Deletion {
    fn push(&mut self, key: &ObjectKey, child: &Child, retain: bool) {
        self.pending = true;
        match child.deleting {
            true => self.going.push((key.clone(), child.finalizers.clone())),
            false => self.take_down.push((key.clone(), take_down(retain))),
        }
    }
}

pub(super) fn take_down(retain: bool) -> TakeDown {
    if retain {
        TakeDown::Orphan
    } else {
        TakeDown::Delete
    }
}
