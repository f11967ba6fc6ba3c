//! Settled rows: their nodes already hold what was rendered from them, so nothing needs to be rendered. Only the uid of such a
//! row is kept, so that a large table is never in memory as a whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::decide::hub::desired::{Desired, Wanted};
use crate::decide::hub::findings::Subject;
use crate::decide::hub::rows::Row;
use crate::decide::hub::rows::names::node_name;
use crate::decide::hub::sync::lookup::Lookup;
use crate::decide::hub::sync::{CachedRendering, Form, Plan, Rendered, RenderedFrom, SyncInputs};
use crate::decide::node::digest::NodeDigest;

/// Whether all nodes of the row hold what was rendered from it before. `nodes`: those of the hub, by name.
pub fn is_settled(
    forms: &BTreeMap<String, Form>,
    rendered: &Rendered,
    nodes: &BTreeMap<Arc<str>, Arc<NodeDigest>>,
    row: &Row,
) -> bool {
    forms.iter().all(|(form_name, form)| {
        let name = node_name(&row.uid, form_name);
        let known = rendered.get(name.as_str());
        let known = known.filter(|known| known.source == RenderedFrom::of(form, row));
        let node = nodes.get(name.as_str());
        known
            .zip(node)
            .is_some_and(|(known, node)| known.is_settled((form_name, &row.uid), node))
    })
}

impl CachedRendering {
    fn is_settled(&self, (form, uid): (&str, &str), node: &NodeDigest) -> bool {
        !node.deleting
            && (node.form.as_str(), node.row_uid.as_str()) == (form, uid)
            && self.wanted.is_held_by(node)
    }
}

/// Adds the rows that were settled when they were read. Where one is not any more, the rows are to be read again.
pub(super) fn plan(
    seen: &SyncInputs,
    plan: &mut Plan,
    lookup: &Lookup,
    (form_name, form): (&String, &Form),
    desired: &mut Desired,
) {
    for uid in &seen.source.rows.settled {
        let name = node_name(uid, form_name);
        if let Some(cause) = lookup.collision(&name, uid) {
            plan.skipped.add(Subject::Row, format!("{uid:?}"), cause);
            continue;
        }
        let node = lookup.named(&name);
        let name = node.map_or_else(|| name.into(), |node| node.key.name.clone());
        let known = seen.rendered.get(&name).filter(|known| {
            known.is_of(form) && node.is_some_and(|node| known.is_settled((form_name, uid), node))
        });
        let wanted = match known {
            Some(known) => {
                plan.complain(&name, &known.errors);
                plan.rendered.insert(name.clone(), known.clone());
                known.wanted.clone()
            }
            None => {
                plan.reread = true;
                plan.unwritten.insert((form_name.clone(), name.clone()));
                // Assume the first group until the row is read again.
                Wanted {
                    rendered_hash: None,
                    group: Some(0),
                }
            }
        };
        desired.insert(name, wanted);
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::decide::hub::sync::tests::{form, rows_of, seen, source, written};
    use crate::decide::hub::sync::{RenderSource, plan};

    /// Reads the same rows again, now that some are settled.
    fn read_again(
        uids: &[usize],
        forms: &BTreeMap<String, Form>,
        nodes: &[Arc<NodeDigest>],
        rendered: &Rendered,
    ) -> RenderSource {
        let mut read = rows_of(uids);
        let nodes = nodes
            .iter()
            .map(|node| (node.key.name.clone(), node.clone()));
        let nodes = nodes.collect();
        let all = std::mem::take(&mut read.rows);
        for (uid, row) in all {
            match is_settled(forms, rendered, &nodes, &row) {
                true => drop(read.settled.insert(uid)),
                false => drop(read.rows.insert(uid, row)),
            }
        }
        source(forms, &read)
    }

    #[test]
    fn a_row_whose_nodes_hold_what_it_asks_for_is_planned_without_its_content() {
        let (old, new) = (form(1, "web:1"), form(2, "web:2"));
        let none = Rendered::new();
        let whole =
            |forms: &BTreeMap<String, Form>, nodes: &[Arc<NodeDigest>], known: &Rendered| {
                let source = source(forms, &rows_of(&[0, 1, 2]));
                plan(&seen(&source, nodes, known), Timestamp::UNIX_EPOCH)
            };
        let first = whole(&old, &[], &none);
        let nodes = written(&old, &rows_of(&[0, 1, 2]), &first);
        let known = &first.rendered;
        for (name, forms, nodes, known, settled) in [
            ("settled", &old, &nodes[..], known, 3),
            ("one node is gone", &old, &nodes[1..], known, 2),
            ("another form", &new, &nodes[..], known, 0),
            ("a new process", &old, &nodes[..], &none, 0),
        ] {
            let source = read_again(&[0, 1, 2], forms, nodes, known);
            assert_eq!(source.rows.settled.len(), settled, "{name}");
            let lean = plan(&seen(&source, nodes, known), Timestamp::UNIX_EPOCH);
            assert_eq!(lean, whole(forms, nodes, known), "{name}");
        }
    }

    #[test]
    fn what_changes_while_the_rows_are_read_has_them_read_again_and_deletes_nothing() {
        let (old, new) = (form(1, "web:1"), form(2, "web:2"));
        let all = rows_of(&[0, 1]);
        let first = plan(
            &seen(&source(&old, &all), &[], &Rendered::new()),
            Timestamp::UNIX_EPOCH,
        );
        let nodes = written(&old, &all, &first);
        let read = read_again(&[0, 1], &old, &nodes, &first.rendered);
        assert_eq!(read.rows.settled.len(), 2);
        let changed = RenderSource {
            forms: new,
            ..read.clone()
        };
        for (name, source, nodes, unwritten) in [
            ("the form", &changed, &nodes[..], 2),
            ("a node", &read, &nodes[1..], 1),
        ] {
            let plan = plan(&seen(source, nodes, &first.rendered), Timestamp::UNIX_EPOCH);
            assert!(plan.reread, "{name}");
            assert_eq!(plan.unwritten.len(), unwritten, "{name}");
            assert_eq!(plan.desired["web"].count(), 2, "{name}");
            assert!(plan.deletes.is_empty() && plan.held.is_none(), "{name}");
        }
    }
}
