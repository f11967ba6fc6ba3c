//! The nodes of a snapshot. Two snapshots share the nodes that did not change between them.

use std::borrow::Borrow;
use std::collections::{BTreeMap, btree_map};
use std::iter::Map;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::decide::rollout::Node;

/// By name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Nodes(BTreeMap<String, Arc<Node>>);

impl Nodes {
    pub fn get<Q: Ord + ?Sized>(&self, name: &Q) -> Option<&Node>
    where
        String: Borrow<Q>,
    {
        self.0.get(name).map(Arc::as_ref)
    }

    /// A node that other snapshots share is copied first.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Node> {
        self.0.get_mut(name).map(Arc::make_mut)
    }

    pub fn insert(&mut self, name: String, node: Node) {
        self.0.insert(name, Arc::new(node));
    }

    pub fn remove(&mut self, name: &str) -> Option<Node> {
        self.0.remove(name).map(Arc::unwrap_or_clone)
    }

    pub fn retain(&mut self, mut stays: impl FnMut(&String, &Node) -> bool) {
        self.0.retain(|name, node| stays(name, node));
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> Iter<'_> {
        self.0.iter().map(|(name, node)| (name, node.as_ref()))
    }

    pub fn keys(&self) -> btree_map::Keys<'_, String, Arc<Node>> {
        self.0.keys()
    }

    pub fn values(&self) -> impl Iterator<Item = &Node> {
        self.0.values().map(Arc::as_ref)
    }

    pub fn iter_mut(&mut self) -> IterMut<'_> {
        self.0
            .iter_mut()
            .map(|(name, node)| (name, Arc::make_mut(node)))
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Node> {
        self.0.values_mut().map(Arc::make_mut)
    }
}

pub type Iter<'a> = Map<
    btree_map::Iter<'a, String, Arc<Node>>,
    fn((&'a String, &'a Arc<Node>)) -> (&'a String, &'a Node),
>;
pub type IterMut<'a> = Map<
    btree_map::IterMut<'a, String, Arc<Node>>,
    fn((&'a String, &'a mut Arc<Node>)) -> (&'a String, &'a mut Node),
>;

impl<'a> IntoIterator for &'a mut Nodes {
    type Item = (&'a String, &'a mut Node);
    type IntoIter = IterMut<'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

impl<'a> IntoIterator for &'a Nodes {
    type Item = (&'a String, &'a Node);
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl FromIterator<(String, Arc<Node>)> for Nodes {
    fn from_iter<All: IntoIterator<Item = (String, Arc<Node>)>>(all: All) -> Self {
        Nodes(all.into_iter().collect())
    }
}

impl<Name: Ord + ?Sized> std::ops::Index<&Name> for Nodes
where
    String: Borrow<Name>,
{
    type Output = Node;

    fn index(&self, name: &Name) -> &Node {
        &self.0[name]
    }
}

impl Serialize for Nodes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self)
    }
}

impl<'de> Deserialize<'de> for Nodes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let all = BTreeMap::<String, Node>::deserialize(deserializer)?;
        let all = all.into_iter().map(|(name, node)| (name, Arc::new(node)));
        Ok(all.collect())
    }
}
