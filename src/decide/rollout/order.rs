//! Whose turn it is: the order of those that wait, and the groups of an ordered rollout.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::iter;

use crate::decide::rollout::index::{Index, Named};
use crate::decide::rollout::reason::{Names, Reason};
use crate::decide::rollout::{Form, Node, Snapshot};

/// The first group of a form that is not done, and who is not done in it.
struct Turn {
    group: usize,
    name: String,
    pending: Vec<String>,
    /// How many of those are nodes; the rest are not there yet.
    nodes: usize,
    why: Option<String>,
}

/// Why the node is not done.
pub fn why(form: &Form, node: &Node) -> Option<String> {
    let soaks = !node.held() && node.settled_since.is_some() && form.policy.min_ready_seconds > 0;
    let soaks = || soaks.then(|| "it is ready, and has to stay so for a while".to_owned());
    node.why.clone().or_else(soaks)
}

/// What is to be added about groups of the form's order without any node, which an order passes over as if they were done.
pub fn without_nodes(name: &str, form: &Form, index: &Index) -> String {
    let order = &form.policy.order;
    // What is there may be of an older order.
    if order.is_empty() || form.outdated || !form.unwritten.is_empty() {
        return String::new();
    }
    let there = index.nodes_of(name).map(|(_, node)| node.group);
    let there: BTreeSet<usize> = there.chain(form.absent.values().copied()).collect();
    let empty = order.iter().enumerate();
    let empty = empty.filter(|(number, _)| !there.contains(number));
    let empty: Vec<String> = empty
        .map(|(_, group)| format!("{:?}", group.name))
        .collect();
    match empty.is_empty() || there.is_empty() {
        true => String::new(),
        false => format!(
            "; no node is in the group {} of rollout.order",
            Names::of(&empty)
        ),
    }
}

/// Whose turn it is, by form; a form without an order is not in it.
pub struct Turns(BTreeMap<String, Turn>);

impl Turns {
    /// `slots`: the uids of the nodes whose slots are left.
    pub fn new(snapshot: &Snapshot, index: &Index, slots: &BTreeSet<&str>) -> Self {
        let is_pending = |state: &Form, (name, node): &Named| {
            let settled = node.settled_since.is_some() && !slots.contains(node.uid.as_str());
            // What could not be written yet may be what is to go first.
            let unwritten = state.unwritten.contains(*name);
            // What goes and is to be made anew is as good as not written.
            (!node.deleting || unwritten) && (node.held() || !settled || unwritten)
        };
        let turn = |(form, state): (&String, &Form)| {
            let order = &state.policy.order;
            if order.is_empty() {
                return None;
            }
            let nodes = || index.all_of(form).filter(|named| is_pending(state, named));
            let groups = nodes().map(|(_, node)| node.group);
            let group = groups.chain(state.absent.values().copied()).min()?;
            let mut first: Vec<_> = nodes().filter(|(_, node)| node.group == group).collect();
            first.sort_by_key(|(_, node)| node.why.is_none());
            let absent = state.absent.iter().filter(|(_, of)| **of == group);
            let pending = first.iter().map(|(name, _)| *name);
            let turn = Turn {
                group,
                nodes: first.len(),
                name: order.get(group).map(|group| group.name.clone())?,
                pending: pending
                    .chain(absent.map(|(name, _)| name))
                    .cloned()
                    .collect(),
                why: first.first().and_then(|(_, node)| why(state, node)),
            };
            Some((form.clone(), turn))
        };
        Turns(snapshot.forms.iter().filter_map(turn).collect())
    }

    /// Why the node's turn has not come. What this rollout broke does not wait: its repair ends the halt.
    pub fn stop(&self, node: &Node, has_slot: bool) -> Option<Reason> {
        let turn = self.0.get(&node.form)?;
        let waits = node.group > turn.group && !(has_slot && node.non_ready());
        waits.then(|| Reason::GroupNotDone {
            group: turn.name.clone(),
            pending: Names::of(&turn.pending),
            why: turn.why.clone(),
        })
    }

    /// The forms of which nobody whose turn it is can go, since what is broken fills the windows: what may be its correction
    /// must not wait for them.
    pub fn stuck(&self, full: &BTreeMap<&str, Reason>) -> BTreeSet<String> {
        let is_stuck = |name: &String| full.get(name.as_str()).is_some_and(Reason::is_of_broken);
        let stuck = self.0.iter();
        let stuck = stuck.filter(|(_, turn)| {
            let nodes = &turn.pending[..turn.nodes];
            !nodes.is_empty() && nodes.iter().all(is_stuck)
        });
        stuck.map(|(form, _)| form.clone()).collect()
    }
}

/// The held nodes: non-ready ones first, for a fix must reach them before anything else, then group by group, by name.
pub fn candidates(snapshot: &Snapshot) -> Vec<Named<'_>> {
    let known = |node: &Node| snapshot.forms.contains_key(&node.form);
    let mut held: Vec<Named> = snapshot
        .nodes
        .iter()
        .filter(|(_, node)| node.held() && !node.deleting && known(node))
        .collect();
    held.sort_by_key(|(name, node)| (!node.non_ready(), node.group, Natural(name)));
    held
}

/// A name, ordered so that `web-9` comes before `web-10`: texts with their numbers as numbers.
#[derive(Clone, Copy, Debug)]
pub struct Natural<'a>(pub &'a str);

impl<'a> Natural<'a> {
    /// Each text, and the number after it: 0 where none is.
    fn parts(self) -> impl Iterator<Item = (&'a str, u64)> {
        let mut rest = Some(self.0);
        iter::from_fn(move || {
            let text = rest?;
            let digits = text
                .find(|c: char| c.is_ascii_digit())
                .unwrap_or(text.len());
            let (text, number) = text.split_at(digits);
            let end = number.find(|c: char| !c.is_ascii_digit());
            let (number, after) = number.split_at(end.unwrap_or(number.len()));
            rest = (!after.is_empty()).then_some(after);
            let add =
                |sum: u64, digit: u8| sum.saturating_mul(10).saturating_add((digit - b'0').into());
            Some((text, number.bytes().fold(0, add)))
        })
    }
}

impl Ord for Natural<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        // Names of one fleet begin alike. A number is compared as a whole.
        let both = self.0.bytes().zip(other.0.bytes());
        let same = both.take_while(|(one, other)| one == other).count();
        let same = self.0[..self.0.floor_char_boundary(same)]
            .trim_end_matches(|c: char| c.is_ascii_digit());
        let (one, other) = (&self.0[same.len()..], &other.0[same.len()..]);
        Natural(one).parts().cmp(Natural(other).parts())
    }
}

impl PartialOrd for Natural<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Natural<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Natural<'_> {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_names_have_in_common_does_not_change_their_order(
            common in "[a1ß-]{0,4}", one in "[ab019ßà-]{0,4}", other in "[ab019ßà-]{0,4}",
        ) {
            let (one, other) = (common.clone() + &one, common + &other);
            let (one, other) = (Natural(&one), Natural(&other));
            prop_assert_eq!(one.cmp(&other), one.parts().cmp(other.parts()));
        }
    }
}
