//! The nodes of a snapshot by form, so that a pass does not scan the whole fleet for each form.

use std::collections::BTreeMap;

use crate::decide::rollout::{Node, Snapshot};

/// A node by its name.
pub type Named<'a> = (&'a String, &'a Node);

pub struct Index<'a> {
    by_form: BTreeMap<&'a str, Vec<Named<'a>>>,
}

impl<'a> Index<'a> {
    pub fn new(snapshot: &'a Snapshot) -> Self {
        let mut by_form: BTreeMap<&str, Vec<Named>> = BTreeMap::new();
        for named in &snapshot.nodes {
            by_form.entry(&named.1.form).or_default().push(named);
        }
        Index { by_form }
    }

    /// The form's nodes by name, with those that are being deleted.
    pub fn all_of(&self, form: &str) -> impl Iterator<Item = Named<'a>> + Clone {
        let nodes = self.by_form.get(form).map(Vec::as_slice);
        nodes.unwrap_or_default().iter().copied()
    }

    /// The form's nodes by name, without those that are being deleted.
    pub fn nodes_of(&self, form: &str) -> impl Iterator<Item = Named<'a>> + Clone {
        self.all_of(form).filter(|(_, node)| !node.deleting)
    }
}
