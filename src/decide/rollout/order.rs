//! The groups of an ordered rollout: whose turn it is.

use std::collections::BTreeMap;

use crate::decide::rollout::reason::{Names, Reason};
use crate::decide::rollout::{Form, Node, Snapshot};

/// The first group of a form that is not done, and who is not done in it.
struct Turn {
    group: usize,
    name: String,
    pending: Names,
    why: Option<String>,
}

/// Whose turn it is, by form; a form without an order is not in it.
pub struct Turns(BTreeMap<String, Turn>);

impl Turns {
    pub fn new(snapshot: &Snapshot) -> Self {
        let slots: Vec<&str> = snapshot
            .slots
            .iter()
            .map(|slot| slot.uid.as_str())
            .collect();
        let pending = |state: &Form, name: &String, node: &Node| {
            let settled = node.settled_since.is_some() && !slots.contains(&node.uid.as_str());
            // What could not be written yet may be what is to go first.
            node.held() || !settled || state.unwritten.contains(name)
        };
        let turn = |(form, state): (&String, &Form)| {
            let order = &state.policy.order;
            if order.is_empty() {
                return None;
            }
            let nodes = || {
                snapshot.nodes.iter().filter(|(name, node)| {
                    node.form == *form && !node.deleting && pending(state, name, node)
                })
            };
            let group = nodes().map(|(_, node)| node.group).min()?;
            let mut first: Vec<_> = nodes().filter(|(_, node)| node.group == group).collect();
            first.sort_by_key(|(_, node)| node.why.is_none());
            let turn = Turn {
                group,
                name: order.get(group).map(|group| group.name.clone())?,
                pending: Names::of(first.iter().map(|(name, _)| *name)),
                why: first.first().and_then(|(_, node)| node.why.clone()),
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
            pending: turn.pending.clone(),
            why: turn.why.clone(),
        })
    }
}
