//! Groups nodes whose contents differ in the same way: a thousand nodes with one change make one diff.

use std::collections::BTreeMap;
use std::fmt;

/// How many different diffs, and how many names of nodes, a message shows.
const DIFFS_MAX: usize = 3;
const NAMES_MAX: usize = 3;

/// Nodes whose contents differ in the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alike {
    pub names: Vec<String>,
    /// The diff of the first node.
    pub diff: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    /// By their diffs, in which the row's id stands for any row's.
    by_diff: BTreeMap<String, Alike>,
}

impl Groups {
    /// `uid`: the id of the node's row.
    pub fn add(&mut self, name: &str, uid: &str, diff: String) {
        let same = match uid {
            "" => diff.clone(),
            uid => diff.replace(uid, "\0"),
        };
        let names = vec![];
        let alike = self.by_diff.entry(same).or_insert(Alike { names, diff });
        alike.names.push(name.to_owned());
    }

    /// The number of nodes.
    pub fn nodes(&self) -> usize {
        self.by_diff.values().map(|alike| alike.names.len()).sum()
    }

    /// `alike`, or the number of ways in which the nodes differ.
    pub fn ways(&self) -> String {
        match self.by_diff.len() {
            0 | 1 => "alike".to_owned(),
            ways => format!("in {ways} ways"),
        }
    }

    pub fn largest_first(&self) -> Vec<&Alike> {
        let mut all: Vec<&Alike> = self.by_diff.values().collect();
        all.sort_by(|a, b| {
            let by_count = b.names.len().cmp(&a.names.len());
            by_count.then_with(|| a.names.cmp(&b.names))
        });
        all
    }

    /// The number of groups whose diffs [`Display`](fmt::Display) leaves out.
    pub fn left_out(&self) -> usize {
        self.by_diff.len().saturating_sub(DIFFS_MAX)
    }
}

/// The diffs of the largest groups, each with the names of its nodes.
impl fmt::Display for Groups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Alike { names, diff } in self.largest_first().into_iter().take(DIFFS_MAX) {
            let count = names.len();
            let nodes = if count == 1 { "node" } else { "nodes" };
            write!(f, "\n{count} {nodes} ({}):\n{diff}", first_of(names))?;
        }
        Ok(())
    }
}

/// The first names of a list, for a message.
pub fn first_of(names: &[String]) -> String {
    let first = names[..names.len().min(NAMES_MAX)].join(", ");
    match names.len() > NAMES_MAX {
        true => format!("{first}, ..."),
        false => first,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name, id of the row, and diff.
    type Node = (&'static str, &'static str, &'static str);

    #[test]
    fn nodes_that_differ_alike_share_a_diff() {
        let none: &[Node] = &[];
        let one: &[Node] = &[("a-web", "a", "+a\n")];
        let of_each_row: &[Node] = &[
            ("x1-web", "x1", "+of x1\n"),
            ("x2-web", "x2", "+of x2\n"),
            ("x3-web", "x3", "+of x3\n"),
            ("x4-web", "x4", "+of x4\n"),
        ];
        let two_ways: &[Node] = &[
            ("x1-web", "x1", "+1\n"),
            ("x2-web", "x2", "+2\n"),
            ("x3-web", "x3", "+2\n"),
        ];
        let without_ids: &[Node] = &[
            ("x1", "", "+1\n"),
            ("x2", "", "+2\n"),
            ("x3", "", "+3\n"),
            ("x4", "", "+4\n"),
        ];
        for (name, nodes, ways, left_out, text) in [
            ("none", none, "alike", 0, ""),
            ("one", one, "alike", 0, "\n1 node (a-web):\n+a\n"),
            (
                "the same but for the ids of the rows",
                of_each_row,
                "alike",
                0,
                "\n4 nodes (x1-web, x2-web, x3-web, ...):\n+of x1\n",
            ),
            (
                "the largest group first",
                two_ways,
                "in 2 ways",
                0,
                "\n2 nodes (x2-web, x3-web):\n+2\n\n1 node (x1-web):\n+1\n",
            ),
            (
                "more than a message shows, and no ids",
                without_ids,
                "in 4 ways",
                1,
                "\n1 node (x1):\n+1\n\n1 node (x2):\n+2\n\n1 node (x3):\n+3\n",
            ),
        ] {
            let mut groups = Groups::default();
            for (node, uid, diff) in nodes {
                groups.add(node, uid, (*diff).to_owned());
            }
            assert_eq!(groups.nodes(), nodes.len(), "{name}");
            assert_eq!(groups.ways(), ways, "{name}");
            assert_eq!(groups.left_out(), left_out, "{name}");
            assert_eq!(groups.to_string(), text, "{name}");
        }
    }
}
