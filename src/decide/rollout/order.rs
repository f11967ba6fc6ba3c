//! Whose turn it is: the order of those that wait, and the groups of an ordered rollout.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::iter;

use jiff::SignedDuration;

use crate::api::policy::Group;
use crate::decide::rollout::index::{Index, Named};
use crate::decide::rollout::reason::{Names, Reason};
use crate::decide::rollout::{Form, Node, Snapshot};

/// The first group of a form that is not done, and who is not done in it.
struct Turn {
    group: usize,
    /// The nodes that are not done; others are not there yet.
    pending: Vec<String>,
    /// Why later groups wait.
    told: Reason,
}

/// Why the node is not done.
pub fn why(form: &Form, node: &Node) -> Option<String> {
    let soak = form.policy.min_ready_seconds;
    let soaks = || {
        let since = node.settled_since.filter(|_| !node.held() && soak > 0)?;
        let until = since
            .checked_add(SignedDuration::from_secs(soak.into()))
            .ok()?;
        let until = until.strftime("%H:%M:%S UTC");
        Some(format!("it is ready, and must stay so until {until}"))
    };
    node.why.clone().or_else(soaks)
}

/// The first group with a pause that nobody has ended, by its number.
pub fn stops_after(order: &[Group], promoted: usize) -> Option<usize> {
    let groups = order.iter().enumerate().skip(promoted);
    groups
        .clone()
        .find(|(_, group)| group.pause)
        .map(|(number, _)| number)
}

/// How many groups of the order somebody has promoted, as the annotation on the form says it: GENERATION/GROUP. It counts for the
/// generations from `since` to `rendered`, which render alike.
pub fn promoted(annotation: Option<&String>, order: &[Group], since: i64, rendered: i64) -> usize {
    let parts = annotation.and_then(|text| text.split_once('/'));
    let group = parts.and_then(|(generation, group)| {
        let generation: i64 = generation.parse().ok()?;
        let number = order.iter().position(|other| other.name == group)?;
        (since..=rendered).contains(&generation).then_some(number)
    });
    group.map_or(0, |number| number + 1)
}

/// What is to be added about groups of the form's order without any node, which an order passes over as if they were done.
pub fn without_nodes(name: &str, form: &Form, index: &Index) -> String {
    let order = &form.policy.order;
    // What is there may be of an older order.
    if order.is_empty() || form.outdated || !form.unwritten.is_empty() {
        return String::new();
    }
    let there = index.nodes_of(name).iter().map(|named| named.node.group);
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
        let is_pending = |named: &&Named| {
            let node = named.node;
            let settled = node.settled_since.is_some() && !slots.contains(node.uid.as_str());
            // What could not be written yet may be what is to go first.
            let unwritten = named.unwritten;
            // What goes and is to be made anew is as good as not written.
            (!node.deleting || unwritten) && (named.held || !settled || unwritten)
        };
        let turn = |(form, state): (&String, &Form)| {
            let order = &state.policy.order;
            if order.is_empty() {
                return None;
            }
            let nodes = || index.all_of(form).filter(|named| is_pending(named));
            let groups = nodes().map(|named| named.node.group);
            let group = groups.chain(state.absent.values().copied()).min();
            if let Some(stop) = stops_after(order, state.promoted)
                && group.is_none_or(|group| group > stop)
            {
                let turn = Turn {
                    group: stop,
                    pending: vec![],
                    told: Reason::AwaitingPromotion {
                        form: form.clone(),
                        generation: state.rendered_generation,
                        group: order[stop].name.clone(),
                    },
                };
                return Some((form.clone(), turn));
            }
            let group = group?;
            let mut first: Vec<_> = nodes().filter(|named| named.node.group == group).collect();
            first.sort_by_key(|named| (named.node.why.is_none(), named.place));
            let absent = state.absent.iter().filter(|(_, of)| **of == group);
            let pending = || first.iter().map(|named| named.name.as_ref());
            let told = Reason::GroupNotDone {
                group: order.get(group).map(|group| group.name.clone())?,
                pending: Names::of(pending().chain(absent.map(|(name, _)| &**name))),
                why: first.first().and_then(|named| why(state, named.node)),
            };
            let turn = Turn {
                group,
                pending: pending().map(str::to_owned).collect(),
                told,
            };
            Some((form.clone(), turn))
        };
        Turns(snapshot.forms.iter().filter_map(turn).collect())
    }

    /// Why the node's turn has not come. What this rollout broke does not wait: its repair ends the halt.
    pub fn stop(&self, node: &Node, has_slot: bool) -> Option<Reason> {
        let turn = self.0.get(&*node.form)?;
        let waits = node.group > turn.group && !(has_slot && node.non_ready());
        waits.then(|| turn.told.clone())
    }

    /// The forms of which nobody whose turn it is can go, since what is broken fills the windows: what may be its correction
    /// must not wait for them.
    pub fn stuck(&self, full: &BTreeMap<&str, Reason>) -> BTreeSet<String> {
        let is_stuck = |name: &String| full.get(name.as_str()).is_some_and(Reason::is_of_broken);
        let stuck = self.0.iter();
        let stuck =
            stuck.filter(|(_, turn)| !turn.pending.is_empty() && turn.pending.iter().all(is_stuck));
        stuck.map(|(form, _)| form.clone()).collect()
    }
}

/// A held node, and its form.
#[derive(Clone, Copy)]
pub struct Candidate<'a> {
    pub named: Named<'a>,
    pub form: &'a Form,
    /// The form's place among all forms of the snapshot.
    pub form_place: usize,
}

/// The held nodes: non-ready ones first, for a fix must reach them before anything else, then group by group, by name.
pub fn candidates<'a>(snapshot: &'a Snapshot, index: &Index<'a>) -> Vec<Candidate<'a>> {
    let of_form = |(form_place, (name, form)): (usize, (&'a String, &'a Form))| {
        let held = index.nodes_of(name).iter().filter(|named| named.held);
        held.map(move |named| Candidate {
            named: *named,
            form,
            form_place,
        })
    };
    let forms = snapshot.forms.iter().enumerate();
    let mut held: Vec<Candidate> = forms.flat_map(of_form).collect();
    let mut names = snapshot.nodes.keys();
    let ends = [names.next(), names.next_back()];
    let same = match ends {
        [Some(first), Some(last)] => Natural(first).same(Natural(last)).len(),
        _ => 0,
    };
    held.sort_by_cached_key(|Candidate { named, .. }| {
        let name = named.name;
        let head = Natural(&name[same..]).head();
        (
            !named.non_ready,
            named.node.group,
            head,
            Natural(name),
            name,
        )
    });
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

impl<'a> Natural<'a> {
    /// What both begin with, up to a number that goes on: a number is compared as a whole.
    fn same(self, other: Natural) -> &'a str {
        let both = self.0.bytes().zip(other.0.bytes());
        let same = both.take_while(|(one, other)| one == other).count();
        let same = &self.0[..self.0.floor_char_boundary(same)];
        same.trim_end_matches(|c: char| c.is_ascii_digit())
    }

    /// A number for the beginning of the name. Where those of two names differ, the names are in their order: to compare them
    /// takes a hundredth of what the names take. A part is its text, how many bytes its number has, and those.
    fn head(self) -> u128 {
        let mut head = [0; size_of::<u128>()];
        let mut room = head.as_mut_slice();
        for (text, number) in self.parts() {
            let bytes = number.to_be_bytes();
            let bytes = &bytes[number.leading_zeros() as usize / 8..];
            for some in [text.as_bytes(), &[bytes.len() as u8], bytes] {
                let (filled, left) = room.split_at_mut(some.len().min(room.len()));
                filled.copy_from_slice(&some[..filled.len()]);
                room = left;
            }
            if room.is_empty() {
                break;
            }
        }
        u128::from_be_bytes(head)
    }
}

impl Ord for Natural<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        // Names of one fleet begin alike.
        let same = self.same(*other).len();
        let (one, other) = (&self.0[same..], &other.0[same..]);
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

        #[test]
        fn the_heads_of_names_are_in_the_order_of_the_names(
            one in "[a0-9.-]{0,24}", other in "[a0-9.-]{0,24}",
        ) {
            let (one, other) = (Natural(&one), Natural(&other));
            let by_head = one.head().cmp(&other.head());
            prop_assert!(by_head.is_eq() || by_head == one.cmp(&other));
        }
    }
}
