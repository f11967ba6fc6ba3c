//! The nodes of a snapshot. Two snapshots share the nodes that did not change between them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::decide::rollout::Node;

/// A node and its name.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedNode {
    pub name: Arc<str>,
    pub node: Node,
}

/// In the order of their names. A sorted list, because each pass of the release loop makes one of a whole fleet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Nodes(Vec<Arc<NamedNode>>);

impl Nodes {
    /// Of nodes that are in the order of their names.
    pub fn sorted(all: impl Iterator<Item = Arc<NamedNode>>) -> Self {
        let all: Vec<_> = all.collect();
        debug_assert!(all.is_sorted_by(|one, other| one.name < other.name));
        Nodes(all)
    }

    fn place<Name: AsRef<str> + ?Sized>(&self, name: &Name) -> Result<usize, usize> {
        let name = name.as_ref();
        self.0.binary_search_by(|other| (*other.name).cmp(name))
    }

    pub fn get<Name: AsRef<str> + ?Sized>(&self, name: &Name) -> Option<&Node> {
        let place = self.place(name).ok()?;
        Some(&self.0[place].node)
    }

    /// A node that other snapshots share is copied first.
    pub fn get_mut<Name: AsRef<str> + ?Sized>(&mut self, name: &Name) -> Option<&mut Node> {
        let place = self.place(name).ok()?;
        Some(&mut Arc::make_mut(&mut self.0[place]).node)
    }

    pub fn insert(&mut self, name: impl Into<Arc<str>>, node: Node) {
        let name = name.into();
        let place = self.place(&*name);
        let node = Arc::new(NamedNode { name, node });
        match place {
            Ok(place) => self.0[place] = node,
            Err(place) => self.0.insert(place, node),
        }
    }

    pub fn remove<Name: AsRef<str> + ?Sized>(&mut self, name: &Name) -> Option<Node> {
        let place = self.place(name).ok()?;
        Some(Arc::unwrap_or_clone(self.0.remove(place)).node)
    }

    pub fn retain(&mut self, mut stays: impl FnMut(&str, &Node) -> bool) {
        self.0.retain(|named| stays(&named.name, &named.node));
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&Arc<str>, &Node)> {
        self.0.iter().map(|named| (&named.name, &named.node))
    }

    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &Arc<str>> {
        self.0.iter().map(|named| &named.name)
    }

    pub fn values(&self) -> impl Iterator<Item = &Node> {
        self.0.iter().map(|named| &named.node)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&Arc<str>, &mut Node)> {
        self.0.iter_mut().map(|named| {
            let NamedNode { name, node } = Arc::make_mut(named);
            (&*name, node)
        })
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Node> {
        self.iter_mut().map(|(_, node)| node)
    }
}

/// Of several nodes with one name it takes the last.
impl FromIterator<(Arc<str>, Node)> for Nodes {
    fn from_iter<All: IntoIterator<Item = (Arc<str>, Node)>>(all: All) -> Self {
        let all: BTreeMap<Arc<str>, Node> = all.into_iter().collect();
        let all = all.into_iter();
        Nodes::sorted(all.map(|(name, node)| Arc::new(NamedNode { name, node })))
    }
}

impl<Name: AsRef<str> + ?Sized> std::ops::Index<&Name> for Nodes {
    type Output = Node;

    fn index(&self, name: &Name) -> &Node {
        let name = name.as_ref();
        (self.get(name)).unwrap_or_else(|| panic!("there is no node {name}"))
    }
}

impl Serialize for Nodes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Nodes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let all = BTreeMap::<Arc<str>, Node>::deserialize(deserializer)?;
        Ok(all.into_iter().collect())
    }
}
