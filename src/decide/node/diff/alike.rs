//! Groups nodes whose contents differ in the same way: a thousand nodes with one change make one diff.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

use serde_json::json;

use crate::decide::shared::content;

/// How many different diffs, and how many names of nodes, a message shows.
const DIFFS_MAX: usize = 3;
const NAMES_MAX: usize = 3;
/// A shorter value of a row, such as `1`, stands in many places where it is not the row's.
const VALUE_BYTES_MIN: usize = 3;

/// Nodes whose contents differ in the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alike {
    pub names: Vec<String>,
    /// The diff of the first node.
    pub diff: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    groups: Vec<Alike>,
    /// By the hash of each spelling of a diff: the place of its group.
    known: BTreeMap<String, usize>,
}

impl Groups {
    /// `uid`: the id of the node's row.
    pub fn add(&mut self, name: &str, uid: &str, diff: String) {
        self.add_row(name, (uid, &[]), diff);
    }

    /// As `add`, where the values of the row are known, too.
    pub fn add_row(&mut self, name: &str, (uid, values): (&str, &[&str]), diff: String) {
        let spellings = spellings(&diff, uid, values);
        let mut known = spellings.iter().filter_map(|hash| self.known.get(hash));
        let group = match known.next() {
            Some(group) => *group,
            None => {
                let names = vec![];
                self.groups.push(Alike { names, diff });
                self.groups.len() - 1
            }
        };
        self.groups[group].names.push(name.to_owned());
        for hash in spellings {
            self.known.entry(hash).or_insert(group);
        }
    }

    /// The number of nodes.
    pub fn nodes(&self) -> usize {
        self.groups.iter().map(|alike| alike.names.len()).sum()
    }

    /// `alike`, or the number of ways in which the nodes differ.
    pub fn ways(&self) -> String {
        match self.groups.len() {
            0 | 1 => "alike".to_owned(),
            ways => format!("in {ways} ways"),
        }
    }

    pub fn largest_first(&self) -> Vec<&Alike> {
        let mut all: Vec<&Alike> = self.groups.iter().collect();
        all.sort_by(|a, b| {
            let by_count = b.names.len().cmp(&a.names.len());
            by_count.then_with(|| a.names.cmp(&b.names))
        });
        all
    }

    /// The number of groups whose diffs [`Display`](fmt::Display) leaves out.
    pub fn left_out(&self) -> usize {
        self.groups.len().saturating_sub(DIFFS_MAX)
    }
}

/// The hashes of a diff's changed lines: as they are; without the row's id; without any value of the row; and without all values but
/// one, which another row may have by a default of the form, or by chance. Two diffs are alike if they have one in common. The lines
/// around the changed ones do not count, because they differ from row to row.
fn spellings(diff: &str, uid: &str, values: &[&str]) -> Vec<String> {
    let changed = diff.lines().filter(|line| !line.starts_with([' ', '@']));
    let changed = changed.collect::<Vec<_>>().join("\n");
    let values = values.iter().copied();
    let mut values: Vec<&str> = values
        .filter(|value| value.len() >= VALUE_BYTES_MIN)
        .chain([uid])
        .filter(|value| !value.is_empty() && changed.contains(value))
        .collect();
    // One may be a part of another.
    values.sort_by_key(|value| (Reverse(value.len()), *value));
    values.dedup();
    let without = |is_out: &dyn Fn(&str) -> bool| {
        let values = values.iter().filter(|value| is_out(value));
        let text = values.fold(changed.clone(), |text, value| text.replace(*value, "\0"));
        content::hash_value(&json!(text))
    };
    let mut spellings = vec![
        without(&|_| false),
        without(&|value| value == uid),
        without(&|_| true),
    ];
    spellings.extend(values.iter().map(|kept| without(&|value| value != *kept)));
    spellings
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

/// The first names of a list, and how many more there are.
pub fn first_of(names: &[String]) -> String {
    let first = names[..names.len().min(NAMES_MAX)].join(", ");
    match names.len().saturating_sub(NAMES_MAX) {
        0 => first,
        more => format!("{first} and {more} more"),
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
                "\n4 nodes (x1-web, x2-web, x3-web and 1 more):\n+of x1\n",
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

    /// Names, ids, hosts and plans of rows, and diffs.
    #[test]
    fn values_of_rows_and_lines_around_a_change_make_no_difference() {
        let around = |uid: &str| format!("@@ -1,3 +1,3 @@\n app: {uid}\n-image: 1\n+image: 2\n");
        let changed = |host: &str| format!("-host: a\n+host: {host}/x\n");
        let defaulted = |host: &str| format!("+host: {host}\n+plan: pro\n");
        for (name, [first, second], ways) in [
            (
                "the lines around",
                [
                    ("t0", "t0.example.com", "pro", around("t0")),
                    ("t1", "t1.example.com", "pro", around("other")),
                ],
                "alike",
            ),
            (
                "a value",
                [
                    ("t0", "a.example.com", "pro", changed("a.example.com")),
                    ("t1", "b.example.com", "pro", changed("b.example.com")),
                ],
                "alike",
            ),
            (
                "a value that has the id in it",
                [
                    ("t0", "t0.example.com", "pro", changed("t0.example.com")),
                    ("t1", "b.example.com", "pro", changed("b.example.com")),
                ],
                "alike",
            ),
            (
                "a word that is the value of one row",
                [
                    ("t0", "a.example.com", "pro", "+probe: 1\n".to_owned()),
                    ("t1", "b.example.com", "basic", "+probe: 1\n".to_owned()),
                ],
                "alike",
            ),
            (
                "a value that is another row's",
                [
                    ("t0", "a.example.com", "pro", changed("a.example.com")),
                    ("t1", "b.example.com", "pro", changed("a.example.com")),
                ],
                "alike",
            ),
            (
                "a value that is the default for a row without one",
                [
                    ("t0", "a.example.com", "pro", defaulted("a.example.com")),
                    ("t1", "b.example.com", "", defaulted("b.example.com")),
                ],
                "alike",
            ),
            (
                "a row without a value, and a form without a default",
                [
                    ("t0", "a.example.com", "pro", "+plan: pro\n".to_owned()),
                    ("t1", "b.example.com", "", "+plan: ''\n".to_owned()),
                ],
                "in 2 ways",
            ),
            (
                "another text",
                [
                    ("t0", "a.example.com", "pro", changed("a.example.com")),
                    ("t1", "b.example.com", "pro", changed("c.example.com")),
                ],
                "in 2 ways",
            ),
        ] {
            let mut groups = Groups::default();
            for (uid, host, plan, diff) in [first, second] {
                groups.add_row(uid, (uid, &["1", host, plan]), diff);
            }
            assert_eq!(groups.ways(), ways, "{name}");
        }
    }
}
