//! How many tenants a changed hub, with another table or other mappings, deletes, creates or changes. Compares only the rows;
//! each form has its own trial.

use std::collections::{BTreeMap, BTreeSet};

use crate::decide::hub::rows::Rows;
use crate::decide::hub::rows::guard::Direction;
use crate::decide::hub::sync::Allowance;

/// Names in a warning.
const SHOWN_MAX: usize = 3;

/// A node of the hub, from its metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRow {
    pub name: String,
    /// The uid of its row.
    pub uid: String,
    /// The [`Row::hash`](crate::decide::hub::rows::Row::hash) from which it was written.
    pub hash: Option<String>,
}

/// `nodes`: the existing nodes. `rows`: the rows that the changed hub reads. `rendered`: the rows that a form renders to another
/// content than before; None if that is not known. Then each row counts that has other values than its node was written from, also if
/// no form uses them.
pub fn warnings(
    nodes: &[NodeRow],
    rows: &Rows,
    rendered: Option<&BTreeSet<String>>,
    (deletions, creations): (&Allowance, &Allowance),
) -> Vec<String> {
    let tenants: BTreeMap<&str, Option<&str>> = nodes
        .iter()
        .map(|node| (node.uid.as_str(), node.hash.as_deref()))
        .collect();
    let all = || tenants.keys().copied();
    let gone: Vec<&str> = all().filter(|uid| rows.is_gone(uid)).collect();
    let (old, new): (Vec<_>, Vec<_>) = rows
        .rows
        .values()
        .partition(|row| tenants.contains_key(row.uid.as_str()));
    let is_other = |uid: &str, hash: String| tenants[uid] != Some(hash.as_str());
    let is_rendered = |uid: &String| rendered.is_none_or(|rendered| rendered.contains(uid));
    let changed = old
        .iter()
        .filter(|row| is_rendered(&row.uid) && is_other(&row.uid, row.hash().to_string()));
    let changed: Vec<&str> = changed.map(|row| row.uid.as_str()).collect();
    let new: Vec<&str> = new.iter().map(|row| row.uid.as_str()).collect();
    let parts = [("deletes", gone), ("creates", new), ("changes", changed)];
    let said = parts.iter().filter(|(_, uids)| !uids.is_empty());
    let said: Vec<String> = said
        .map(|(verb, uids)| format!("{verb} {} ({})", uids.len(), named(uids)))
        .collect();
    let mut warnings = vec![];
    if !said.is_empty() {
        let there = tenants.len();
        warnings.push(format!(
            "with the rows that it reads now, this hub, of {there} tenants, {}",
            said.join(", ")
        ));
    }
    let going = nodes.iter().filter(|node| rows.is_gone(&node.uid)).count();
    let going_for_rows = Direction::Deletions {
        without_form: 0,
        unidentified: rows.unidentified,
    };
    // The hub's forms, from the names of its nodes.
    let forms = nodes.iter().filter_map(|node| {
        let of = node.name.strip_prefix(node.uid.as_str())?;
        of.strip_prefix('-')
    });
    let coming = parts[1].1.len() * BTreeSet::from_iter(forms).len();
    let held = [
        deletions.held(going_for_rows, nodes.len(), going),
        creations.held(Direction::Creations, nodes.len(), coming),
    ];
    warnings.extend(held.into_iter().flatten().map(|held| held.to_string()));
    if let Some(first) = rows.skipped.first() {
        let (count, name, why) = (rows.skipped.len(), first.name(), &first.reason);
        let rows = if count == 1 { "row" } else { "rows" };
        warnings.push(format!("leaves out {count} {rows}: {name}: {why}"));
    }
    warnings
}

fn named(uids: &[&str]) -> String {
    let shown = uids[..uids.len().min(SHOWN_MAX)].join(", ");
    match uids.len().saturating_sub(SHOWN_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::texts::Texts;
    use crate::decide::hub::rows::{Row, RowCount};

    fn rows(all: &[(&str, &str)]) -> Rows {
        let row = |(uid, plan): &(&str, &str)| {
            let variables = Texts::from_iter([("plan".into(), (*plan).into())]);
            let uid = (*uid).to_owned();
            (uid.clone(), Row { uid, variables })
        };
        Rows {
            read: RowCount(all.len() as u64),
            rows: all.iter().map(row).collect(),
            settled: BTreeSet::new(),
            inactive: 0,
            skipped: vec![],
            protected: BTreeSet::new(),
            unidentified: 0,
        }
    }

    fn nodes(of: &Rows) -> Vec<NodeRow> {
        let node = |(uid, row): (&String, &Row)| NodeRow {
            name: format!("{uid}-web"),
            uid: uid.clone(),
            hash: Some(row.hash().to_string()),
        };
        of.rows.iter().map(node).collect()
    }

    fn warned(before: &Rows, after: &Rows) -> Vec<String> {
        warned_of(before, after, None)
    }

    fn warned_of(before: &Rows, after: &Rows, rendered: Option<&[&str]>) -> Vec<String> {
        let set = |uids: &[&str]| -> BTreeSet<String> {
            uids.iter().map(|uid| (*uid).to_owned()).collect()
        };
        let rendered = rendered.map(set);
        let none = Allowance::default();
        warnings(&nodes(before), after, rendered.as_ref(), (&none, &none))
    }

    /// A new mapping gives each row another value.
    #[test]
    fn a_row_without_another_content_is_not_changed() {
        let before = rows(&[("a", "pro"), ("b", "pro"), ("c", "pro")]);
        let after = rows(&[("a", "big"), ("b", "big"), ("c", "pro")]);
        let (none, some): ([&str; 0], [&str; 2]) = ([], ["b", "c"]);
        for (rendered, changed) in [
            (None, Some("2 (a, b)")),
            (Some(some.as_slice()), Some("1 (b)")),
            (Some(none.as_slice()), None),
        ] {
            let said = warned_of(&before, &after, rendered);
            let expected = changed.map(|changed| {
                format!(
                    "with the rows that it reads now, this hub, of 3 tenants, changes {changed}"
                )
            });
            assert_eq!(said, Vec::from_iter(expected));
        }
    }

    #[test]
    fn a_hub_says_whom_it_deletes_makes_and_changes() {
        let before = rows(&[
            ("a", "pro"),
            ("b", "pro"),
            ("c", "pro"),
            ("d", "pro"),
            ("e", "pro"),
        ]);
        assert!(warned(&before, &before).is_empty());
        let after = rows(&[("b", "pro"), ("c", "big"), ("x", "pro")]);
        assert_eq!(
            warned(&before, &after),
            [
                "with the rows that it reads now, this hub, of 5 tenants, deletes 3 (a, d, e), creates 1 (x), changes 1 (c)"
            ]
        );
        let mut undecided = rows(&[]);
        undecided.protected = before.rows.keys().cloned().collect();
        assert!(
            warned(&before, &undecided).is_empty(),
            "what is protected stays"
        );
    }

    /// In the guard's words, as for the next sync.
    #[test]
    fn what_the_guard_would_hold_is_said() {
        let uids: Vec<String> = (0..150).map(|n| format!("t{n}")).collect();
        let many: Vec<(&str, &str)> = uids.iter().map(|uid| (uid.as_str(), "pro")).collect();
        let (few, many) = (rows(&many[..7]), rows(&many));
        let all = warned(&few, &many);
        let begins = "143 new nodes wait: a sync of a hub with 7 nodes creates at most 100";
        assert!(all.len() == 2 && all[1].starts_with(begins), "{all:?}");
        let none = warned(&few, &rows(&[]));
        let begins = "7 of 7 nodes have no active row any more; lynqgate deletes none of them";
        assert!(none.len() == 2 && none[1].starts_with(begins), "{none:?}");
        assert!(
            none[0].ends_with("deletes 7 (t0, t1, t2 and 4 more)"),
            "{none:?}"
        );
    }
}
