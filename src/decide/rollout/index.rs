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
    /// Without those that are being deleted.
    by_form: BTreeMap<&'a str, Vec<Named<'a>>>,
    deleting: BTreeMap<&'a str, Vec<Named<'a>>>,
}

/// Each form's, in the order that they are in. The nodes of one form share its name as a rule, so no text is read for most of them.
pub fn by_form<'a, One>(
    all: impl IntoIterator<Item = One>,
    form_of: impl Fn(&One) -> &'a Arc<str>,
) -> BTreeMap<&'a str, Vec<One>> {
    let mut forms: Vec<(&Arc<str>, Vec<One>)> = vec![];
    for one in all {
        let form = form_of(&one);
        match forms.iter_mut().find(|(other, _)| *other == form) {
            Some((_, of_form)) => of_form.push(one),
            None => forms.push((form, vec![one])),
        }
    }
    let forms = forms.into_iter();
    forms.map(|(form, of_form)| (&**form, of_form)).collect()
}

impl<'a> Index<'a> {
    pub fn new(snapshot: &'a Snapshot) -> Self {
        let nodes = snapshot.nodes.iter().enumerate();
        let nodes = nodes.map(|(place, (name, node))| Named {
            name,
            node,
            place,
            held: node.held(),
            non_ready: node.non_ready(),
            unwritten: false,
        });
        let mut by_form = by_form(nodes, |named| &named.node.form);
        let mut deleting = BTreeMap::new();
        for (form, nodes) in &mut by_form {
            // In the order of names as the nodes are, so that both are walked side by side.
            let unwritten = snapshot.forms.get(*form).map(|form| &form.unwritten);
            let mut unwritten = unwritten.into_iter().flatten().peekable();
            for named in nodes.iter_mut() {
                while unwritten.next_if(|other| *other < named.name).is_some() {}
                named.unwritten = unwritten.next_if_eq(&named.name).is_some();
            }
            let going = nodes.extract_if(.., |named| named.node.deleting);
            deleting.insert(*form, going.collect());
        }
        Index { by_form, deleting }
    }

    /// Every form that a node names, also where there is none of that name.
    pub fn forms(&self) -> impl Iterator<Item = &'a str> {
        self.by_form.keys().copied()
    }

    /// The form's nodes by name, without those that are being deleted.
    pub fn nodes_of(&self, form: &str) -> &[Named<'a>] {
        self.by_form.get(form).map_or(&[], Vec::as_slice)
    }

    /// The form's nodes that are being deleted, by name.
    pub fn deleting_of(&self, form: &str) -> &[Named<'a>] {
        self.deleting.get(form).map_or(&[], Vec::as_slice)
    }

    /// The form's nodes, first those that are not being deleted.
    pub fn all_of(&self, form: &str) -> impl Iterator<Item = &Named<'a>> {
        self.nodes_of(form).iter().chain(self.deleting_of(form))
    }
}
