//! The nodes of a snapshot by form, with what a pass asks of each node again and again.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::decide::rollout::{Node, Snapshot};

/// A node by its name.
#[derive(Clone, Copy)]
pub struct Named<'a> {
    pub name: &'a Arc<str>,
    pub node: &'a Node,
    /// Its place among all nodes of the snapshot, by name.
    pub place: usize,
    /// As [`Node::held`] and [`Node::non_ready`] say.
    pub held: bool,
    pub non_ready: bool,
    /// The newest content is not written to it: it is in [`Form::unwritten`](crate::decide::rollout::Form::unwritten).
    pub unwritten: bool,
}

pub struct Index<'a> {
    by_form: BTreeMap<&'a str, Vec<Named<'a>>>,
}

impl<'a> Index<'a> {
    pub fn new(snapshot: &'a Snapshot) -> Self {
        let mut by_form: BTreeMap<&str, Vec<Named>> = BTreeMap::new();
        // In the order of names as the nodes are, so that both are walked side by side.
        let forms = snapshot.forms.iter();
        let unwritten = forms.map(|(name, form)| (name.as_str(), form.unwritten.iter().peekable()));
        let mut unwritten: BTreeMap<&str, _> = unwritten.collect();
        for (place, (name, node)) in snapshot.nodes.iter().enumerate() {
            let unwritten = unwritten.get_mut(node.form.as_str()).is_some_and(|names| {
                while names.next_if(|other| *other < name).is_some() {}
                names.next_if_eq(&name).is_some()
            });
            by_form.entry(&node.form).or_default().push(Named {
                name,
                node,
                place,
                held: node.held(),
                non_ready: node.non_ready(),
                unwritten,
            });
        }
        Index { by_form }
    }

    /// Every form that a node names, also where there is none of that name, and its nodes.
    pub fn forms(&self) -> impl Iterator<Item = (&'a str, &[Named<'a>])> {
        let forms = self.by_form.iter();
        forms.map(|(form, nodes)| (*form, nodes.as_slice()))
    }

    /// The form's nodes by name, with those that are being deleted.
    pub fn all_of(&self, form: &str) -> impl Iterator<Item = Named<'a>> + Clone {
        let nodes = self.by_form.get(form).map(Vec::as_slice);
        nodes.unwrap_or_default().iter().copied()
    }

    /// The form's nodes by name, without those that are being deleted.
    pub fn nodes_of(&self, form: &str) -> impl Iterator<Item = Named<'a>> + Clone {
        self.all_of(form).filter(|named| !named.node.deleting)
    }
}
