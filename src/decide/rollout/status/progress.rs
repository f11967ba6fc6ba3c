//! The nodes of one form: how many are how far, and the names of those that its status names.

use crate::api::form::{FormRolloutStatus, Phase};
use crate::api::hub::Slot;
use crate::decide::rollout::Form;
use crate::decide::rollout::failure::Failed;
use crate::decide::rollout::index::Named;
use crate::decide::rollout::reason::Names;
use crate::decide::rollout::status::FormStatusInputs;

pub struct FormProgress<'a> {
    pub nodes: &'a [Named<'a>],
    pub ready: i32,
    pub held: i32,
    pub updated: i32,
    pub ready_updated: i32,
    /// Nodes that are being deleted, and made anew once they are gone.
    pub going: Vec<&'a str>,
    /// How many other nodes there are to which the newest content is not written.
    pub unwritten: usize,
    pub with_slots: Names,
    /// Nodes at which this process has not looked yet.
    pub unlooked: Names,
    /// Settled nodes with resources that do not render.
    pub unrendered: Names,
    /// The error of the first of them.
    pub why_unrendered: Option<&'a str>,
    /// The updated nodes that are not ready, and why the first of them is not.
    pub not_ready: Option<String>,
    /// The hub wrote the newest content to every node that the rows ask for.
    all_there: bool,
    /// Every node runs the newest content, is ready, and has no slot any more.
    pub done: bool,
    /// Nothing of that is only another process's word.
    pub looked: bool,
}

impl<'a> FormProgress<'a> {
    pub fn of(name: &'a str, form: &'a Form, seen: &FormStatusInputs<'a>) -> Self {
        let nodes = seen.index.nodes_of(name);
        let (mut ready, mut held, mut updated, mut ready_updated) = (0, 0, 0, 0);
        for named in nodes {
            let is_ready = named.node.settled_since.is_some() && named.node.ready;
            let is_updated = !named.held && !named.unwritten;
            ready += i32::from(is_ready);
            held += i32::from(named.held);
            updated += i32::from(is_updated);
            ready_updated += i32::from(is_ready && is_updated);
        }
        let with_slots = with_slots(name, seen);
        let all_there = !form.outdated && form.unwritten.is_empty() && form.absent.is_empty();
        // What another process told of a node may have changed since; what it said of them all may stand that long.
        let was_complete = |before: &FormRolloutStatus| {
            before.phase == Phase::Complete && before.target_generation == form.rendered_generation
        };
        let unlooked = nodes.iter().map(|named| named.name);
        let unlooked = Names::of(unlooked.filter(|name| seen.snapshot.unlooked.contains(*name)));
        let unrendered: Vec<&Named> = nodes
            .iter()
            .filter(|named| !named.held && named.node.settled_since.is_some() && !named.node.ready)
            .collect();
        let first = unrendered.first();
        let going = seen.index.deleting_of(name).iter();
        let going = going.filter(|named| named.unwritten);
        let going: Vec<&str> = going.map(|named| named.name.as_ref()).collect();
        FormProgress {
            ready,
            held,
            updated,
            ready_updated,
            unwritten: form.unwritten.len() - going.len(),
            going,
            done: ready_updated == nodes.len() as i32 && all_there && with_slots.is_empty(),
            looked: unlooked.is_empty() || form.previous.as_ref().is_some_and(was_complete),
            why_unrendered: first.and_then(|named| named.node.why.as_deref()),
            unrendered: Names::of(unrendered.iter().map(|named| named.name)),
            not_ready: not_ready(nodes),
            with_slots,
            unlooked,
            all_there,
            nodes,
        }
    }

    pub fn total(&self) -> i32 {
        self.nodes.len() as i32
    }

    pub fn count(&self, is_counted: impl Fn(&Named) -> bool) -> i32 {
        let counted = self.nodes.iter().filter(|named| is_counted(named));
        counted.count() as i32
    }

    pub fn phase(&self, failed: &Failed) -> Phase {
        if self.nodes.is_empty() && self.all_there {
            Phase::Idle
        } else if failed.is_of_newest() {
            Phase::Failed
        } else if self.done && self.looked {
            Phase::Complete
        } else {
            Phase::InProgress
        }
    }

    /// Every updated node is ready, and none is held.
    pub fn is_settled(&self) -> bool {
        self.held == 0 && self.updated == self.ready_updated
    }
}

/// The nodes that have slots: of those that are all ready, until rollout.minReadySeconds have passed, and they were looked at
/// once more.
fn with_slots(form_name: &str, seen: &FormStatusInputs) -> Names {
    let is_there = |slot: &&Slot| {
        let node = seen.snapshot.nodes.get(&slot.node);
        slot.form == form_name && node.is_some_and(|node| node.uid == slot.uid && !node.deleting)
    };
    let slots = seen.slots.iter().filter(is_there);
    Names::of(slots.map(|slot| &slot.node))
}

/// The updated nodes that are not ready, and why the first of them is not.
fn not_ready(nodes: &[Named]) -> Option<String> {
    let of = || nodes.iter().filter(|named| !named.held && named.non_ready);
    let first = of().next()?;
    let names = Names::of(of().map(|named| named.name));
    Some(match &first.node.why {
        Some(why) => format!("{names} ({}: {why})", first.name),
        None => names.to_string(),
    })
}
