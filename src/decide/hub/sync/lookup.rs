//! The node of each row and form, and which rows share the name of a node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::decide::child::NodeKey;
use crate::decide::hub::rows::Row;
use crate::decide::hub::rows::names::node_name;
use crate::decide::hub::sync::SyncInputs;
use crate::decide::node::digest::NodeDigest;

pub struct Lookup<'a> {
    seen: &'a SyncInputs<'a>,
    namespace: Arc<str>,
    by_name: BTreeMap<&'a str, &'a Arc<NodeDigest>>,
    /// Why a row has no node of a name, by that name and the row's uid.
    collisions: BTreeMap<(String, String), String>,
}

impl<'a> Lookup<'a> {
    pub fn of(seen: &'a SyncInputs) -> Self {
        let source = seen.source;
        let forms: BTreeSet<&str> = source.forms.keys().map(String::as_str).collect();
        let skipped = source.rows.skipped_nodes(&forms).into_iter();
        let nodes = seen.nodes.iter();
        Lookup {
            seen,
            namespace: source.hub.namespace.as_str().into(),
            by_name: nodes.map(|node| (&*node.key.name, node)).collect(),
            collisions: skipped
                .map(|s| ((node_name(&s.uid, &s.form), s.uid.clone()), s.cause()))
                .collect(),
        }
    }

    pub fn named(&self, name: &str) -> Option<&'a Arc<NodeDigest>> {
        self.by_name.get(name).copied()
    }

    /// The key of the row's node of the form, and the node if it exists.
    pub fn node(&self, row: &Row, form: &str) -> (NodeKey, Option<&'a Arc<NodeDigest>>) {
        let name = node_name(&row.uid, form);
        match self.named(&name) {
            Some(node) => (node.key.clone(), Some(node)),
            None => (NodeKey::new(self.namespace.clone(), name), None),
        }
    }

    pub fn collision(&self, name: &str, uid: &str) -> Option<&str> {
        if self.collisions.is_empty() {
            return None;
        }
        let id = (name.to_owned(), uid.to_owned());
        self.collisions.get(&id).map(String::as_str)
    }

    pub fn is_new(&self, row: &Row, form: &str) -> bool {
        let (key, node) = self.node(row, form);
        node.is_none()
            && self.collision(&key.name, &row.uid).is_none()
            && (self.seen.foreign)(&key).is_none()
    }

    /// The number of nodes to create.
    pub fn new_nodes(&self) -> usize {
        let source = self.seen.source;
        let new_of = |form: &String| {
            let rows = source.rows.rows.values();
            rows.filter(|row| self.is_new(row, form)).count()
        };
        source.forms.keys().map(new_of).sum()
    }
}
