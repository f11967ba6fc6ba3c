//! The windows of one pass: who has a slot, who is non-ready, and whether one more fits.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::hub::Slot;
use crate::api::policy::{Rollout, Skew};
use crate::decide::rollout::reason::{Names, Reason};
use crate::decide::rollout::{Live, Node, Snapshot, is_ungated};

/// One window: a form's, or the hub's over all forms.
struct Window {
    /// None: unlimited.
    width: Option<usize>,
    /// Nodes with a slot, by uid.
    slots: BTreeSet<String>,
    /// Nodes with a slot, and non-ready nodes: uid and name.
    busy: BTreeMap<String, String>,
}

pub struct Windows {
    forms: BTreeMap<String, Window>,
    hub: Window,
    hub_skew: Skew,
}

impl Windows {
    pub fn new(snapshot: &Snapshot, slots: &[Slot]) -> Self {
        let mut totals: BTreeMap<&str, usize> = BTreeMap::new();
        for node in snapshot.nodes.values().filter(|node| !node.deleting) {
            *totals.entry(&node.form).or_default() += 1;
        }
        let total: usize = totals.values().sum();
        let mut windows = Windows {
            forms: BTreeMap::new(),
            hub: Window::new(snapshot.hub_skew, total),
            hub_skew: snapshot.hub_skew,
        };
        for (name, form) in &snapshot.forms {
            let total = totals.get(name.as_str()).copied().unwrap_or_default();
            windows
                .forms
                .insert(name.clone(), Window::new(form.policy.max_skew, total));
        }
        for (name, node) in snapshot.nodes.iter().filter(|(_, node)| node.non_ready()) {
            windows.each(&node.form, |window| {
                drop(window.busy.insert(node.uid.clone(), name.clone()))
            });
        }
        for slot in slots {
            windows.each(&slot.form, |window| window.take(&slot.uid, &slot.node));
        }
        windows
    }

    /// Whether this node needs a slot.
    pub fn apply_to(&self, node: &Node, policy: &Rollout) -> bool {
        !is_ungated(policy, self.hub_skew, node.live == Live::None)
    }

    /// The release rule, for the form's window and the hub's.
    pub fn admit(&self, node: &Node) -> Result<(), Reason> {
        let full = |window: &Window| window.full_for(node);
        if let Some(form) = self.forms.get(&node.form)
            && let Some(width) = full(form)
        {
            return Err(Reason::WindowFull {
                window: width,
                by: form.names(),
            });
        }
        match full(&self.hub) {
            Some(width) => Err(Reason::HubWindowFull {
                window: width,
                by: self.hub.names(),
            }),
            None => Ok(()),
        }
    }

    pub fn take(&mut self, name: &str, node: &Node) {
        self.each(&node.form, |window| window.take(&node.uid, name));
    }

    fn each(&mut self, form: &str, mut f: impl FnMut(&mut Window)) {
        self.forms.get_mut(form).into_iter().for_each(&mut f);
        f(&mut self.hub);
    }
}

impl Window {
    fn new(skew: Skew, total: usize) -> Self {
        let width = (skew != Skew::Count(0)).then(|| skew.of(total));
        Window {
            width,
            slots: BTreeSet::new(),
            busy: BTreeMap::new(),
        }
    }

    fn take(&mut self, uid: &str, name: &str) {
        self.slots.insert(uid.to_owned());
        self.busy.insert(uid.to_owned(), name.to_owned());
    }

    fn names(&self) -> Names {
        Names::of(self.busy.values())
    }

    /// The width, where the node does not fit.
    fn full_for(&self, node: &Node) -> Option<usize> {
        let width = self.width?;
        let others = self.slots.len() - usize::from(self.slots.contains(&node.uid));
        let busy = self.busy.len() + usize::from(!self.busy.contains_key(&node.uid));
        let fits = others < width && (node.non_ready() || busy <= width);
        (!fits).then_some(width)
    }
}
