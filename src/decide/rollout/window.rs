//! The windows of one pass: who fills them, and whether one more node fits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::api::hub::Slot;
use crate::api::policy::{Rollout, Skew, SkewCounts, WINDOW_MAX};
use crate::decide::rollout::index::{Index, Named};
use crate::decide::rollout::order::Natural;
use crate::decide::rollout::reason::{Holders, Names, Reason};
use crate::decide::rollout::{Form, Node, Snapshot, free_at, is_ungated, put_off};

/// A status that says nothing of the live content for this long is not just late.
const UNSEEN_MAX: SignedDuration = SignedDuration::from_secs(30);

/// What a node does in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Busy {
    /// In flight, and it cannot be told whether it is ready.
    Unknown,
    /// In flight and not ready; or not ready with the newest content, which this rollout brought.
    NotReady,
    /// Its release is on its way.
    Releasing,
    /// It has a slot, and its release is tried again.
    Refused,
    /// Ready, but for how long is still watched.
    Soaking(Timestamp),
    /// Ready, which is still to be read from the API server itself.
    Confirming,
    /// Not ready, but no release of this rollout made it so.
    Broken,
}

#[derive(Clone, Copy)]
struct Occupant<'a> {
    name: &'a str,
    /// None where there is no node of the name.
    node: Option<&'a Node>,
    busy: Busy,
    slot: Option<Taken>,
}

impl Occupant<'_> {
    /// Of the first one it is said why: of who has been at it for longest, give or take, as it may be stuck.
    fn rank(&self) -> (bool, Option<i64>, Natural<'_>, &str) {
        let untold = self.node.is_none_or(|node| node.why.is_none());
        let start = self.node.and_then(|node| node.start);
        let start = start.map(|at| at.as_second() / ABOUT);
        (untold, start, Natural(self.name), self.name)
    }
}

#[derive(Clone, Copy)]
struct Taken {
    repair: bool,
    /// See [`Slot::presumed`].
    presumed: bool,
}

/// As many seconds more or less say little of how long a node has been at it.
const ABOUT: i64 = 10;

/// One window: a form's, or the hub's over all forms.
struct Window<'a> {
    /// None: unlimited.
    width: Option<usize>,
    counts: SkewCounts,
    /// By node uid.
    occupants: BTreeMap<&'a str, Occupant<'a>>,
    slots: usize,
    repairs: usize,
    /// Slots that are not presumed: what a window full of goes at a time.
    genuine: usize,
    /// Of updates, and of repairs.
    holders: [Option<Arc<Holders>>; 2],
}

pub struct Windows<'a> {
    forms: BTreeMap<String, Window<'a>>,
    domains: Domains<'a>,
    hub: Window<'a>,
    hub_skew: Skew,
}

impl<'a> Windows<'a> {
    pub fn new(
        snapshot: &'a Snapshot,
        index: &Index<'a>,
        slots: &'a [Slot],
        now: Timestamp,
    ) -> Self {
        let total = index.forms().map(|form| index.nodes_of(form).len());
        let total: usize = total.sum();
        let forms = snapshot.forms.iter().map(|(name, form)| {
            let total = index.nodes_of(name).len();
            let (skew, counts) = (form.policy.max_skew, form.policy.skew_counts);
            let mut window = Window::new(skew, counts, total);
            if !form.policy.order.is_empty() || !form.policy.domains.is_empty() {
                // Groups and domains need slots, and of those a ledger has room for so many.
                window.width.get_or_insert(WINDOW_MAX);
            }
            (name.clone(), window)
        });
        let mut windows = Windows {
            forms: forms.collect(),
            domains: Domains::new(snapshot, index),
            hub: Window::new(snapshot.hub_skew, SkewCounts::All, total),
            hub_skew: snapshot.hub_skew,
        };
        for form in index.forms() {
            let rollout = snapshot.forms.get(form);
            let began = rollout.and_then(|form| form.previous.as_ref()?.start_time);
            // A release without a slot and without a reply may have made its node non-ready by now.
            let is_sent = |named: &Named| snapshot.is_sent(named.name, named.node);
            let all = index.all_of(form);
            for named in all.filter(|named| named.non_ready || is_sent(named)) {
                let Named { name, node, .. } = *named;
                // What is live came with the rollout that goes on now.
                let is_of_rollout = !named.held && node.start >= began;
                let occupant = Occupant {
                    name,
                    node: Some(node),
                    busy: match (named.non_ready, is_of_rollout) {
                        (false, _) => Busy::Releasing,
                        (true, true) => Busy::NotReady,
                        (true, false) => Busy::Broken,
                    },
                    slot: None,
                };
                windows.each(form, Some(node), |window| window.put(&node.uid, occupant));
            }
        }
        for slot in slots {
            let of_name = snapshot.nodes.get(&slot.node);
            let node = of_name.filter(|node| node.uid == slot.uid);
            let occupant = Occupant {
                name: &slot.node,
                node: of_name,
                busy: node.map_or(Busy::NotReady, |node| busy(snapshot, slot, node, now)),
                slot: Some(Taken {
                    repair: slot.repair,
                    presumed: slot.presumed,
                }),
            };
            windows.each(&slot.form, node, |window| window.put(&slot.uid, occupant));
        }
        windows
    }

    /// Whether this node needs a slot.
    pub fn apply_to(&self, node: &Node, policy: &Rollout) -> bool {
        !is_ungated(policy, self.hub_skew, node.is_new())
    }

    /// The release rule, for the form's window, those of the node's domains, and the hub's.
    pub fn admit(&mut self, node: &'a Node, policy: &Rollout) -> Result<(), Reason> {
        let form = self.forms.get_mut(&*node.form);
        if let Some((window, width)) = form.and_then(|form| Some((form.full_for(node)?, form))) {
            return Err(width.reason(node, window));
        }
        self.domains.admit(node, policy)?;
        let has_slot = |occupant: &Occupant| occupant.slot.is_some();
        let occupant = self.hub.occupants.get(node.uid.as_str());
        let without = !occupant.is_some_and(has_slot);
        // Of so many the ledger has room.
        let full = (without && self.hub.slots >= WINDOW_MAX).then_some(WINDOW_MAX);
        match self.hub.full_for(node).or(full) {
            Some(window) => Err(Reason::HubWindowFull {
                window,
                holders: self.hub.holders(false),
            }),
            None => Ok(()),
        }
    }

    /// The forms that a full window is in the way of.
    pub fn full(&self) -> BTreeSet<String> {
        let hub = self.hub.is_full();
        let full = self.forms.iter().filter(|(name, window)| {
            hub || window.is_full() || self.domains.of_form(name).any(|domain| domain.is_full())
        });
        full.map(|(name, _)| name.clone()).collect()
    }

    /// How wide the form's window is; None where there is none.
    pub fn width(&self, form: &str) -> Option<usize> {
        self.forms.get(form)?.width
    }

    /// How wide the hub's window over all forms is; None where there is none.
    pub fn hub_width(&self) -> Option<usize> {
        self.hub.width
    }

    pub fn take(&mut self, name: &'a str, node: &'a Node) {
        let busy = match node.non_ready() {
            true => Busy::NotReady,
            false => Busy::Releasing,
        };
        self.each(&node.form, Some(node), |window| {
            let before = window.occupants.get(node.uid.as_str());
            let before = before.and_then(|occupant| occupant.slot);
            let taken = Taken {
                repair: before.map_or(node.non_ready(), |slot| slot.repair),
                presumed: false,
            };
            let occupant = Occupant {
                name,
                node: Some(node),
                busy,
                slot: Some(taken),
            };
            window.put(&node.uid, occupant);
        });
    }

    /// Calls `f` with each window that counts a node of the form. A slot whose node no longer exists counts in every domain of the
    /// form, because its domain is unknown.
    fn each(&mut self, form: &'a str, node: Option<&'a Node>, mut f: impl FnMut(&mut Window<'a>)) {
        self.forms.get_mut(form).into_iter().for_each(&mut f);
        match node {
            Some(node) => {
                keys(node).for_each(|key| self.domains.0.get_mut(&key).into_iter().for_each(&mut f))
            }
            None => self.domains.of_form_mut(form).for_each(&mut f),
        }
        f(&mut self.hub);
    }
}

/// The windows of each form's domains, by form, number in `rollout.domains`, and value.
struct Domains<'a>(BTreeMap<(&'a str, usize, &'a str), Window<'a>>);

impl<'a> Domains<'a> {
    fn new(snapshot: &'a Snapshot, index: &Index<'a>) -> Self {
        let mut totals: BTreeMap<(&str, usize, &str), usize> = BTreeMap::new();
        let forms = snapshot.forms.iter();
        let forms = forms.filter(|(_, form)| !form.policy.domains.is_empty());
        for named in forms.flat_map(|(form, _)| index.nodes_of(form)) {
            for key in keys(named.node) {
                *totals.entry(key).or_default() += 1;
            }
        }
        let window = |(key, total): ((&'a str, usize, &'a str), usize)| {
            let policy = &snapshot.forms.get(key.0)?.policy;
            let skew = policy.domains.get(key.1)?.max_skew;
            Some((key, Window::new(skew, policy.skew_counts, total)))
        };
        Domains(totals.into_iter().filter_map(window).collect())
    }

    fn of_form(&self, form: &str) -> impl Iterator<Item = &Window<'a>> {
        let windows = self.0.iter();
        windows.filter_map(move |(key, window)| (key.0 == form).then_some(window))
    }

    fn of_form_mut(&mut self, form: &str) -> impl Iterator<Item = &mut Window<'a>> {
        let windows = self.0.iter_mut();
        windows.filter_map(move |(key, window)| (key.0 == form).then_some(window))
    }

    fn admit(&mut self, node: &'a Node, policy: &Rollout) -> Result<(), Reason> {
        for key in keys(node) {
            if let Some(domain) = self.0.get_mut(&key)
                && let Some(window) = domain.full_for(node)
            {
                return Err(Reason::DomainFull {
                    domain: policy.domains[key.1].key().to_owned(),
                    value: key.2.to_owned(),
                    window,
                    holders: domain.holders(domain.is_repair(node)),
                });
            }
        }
        Ok(())
    }
}

/// What is to be added about nodes that `rollout.domains` does not limit: as a rule they lack the label by mistake.
pub fn without_domain(name: &str, form: &Form, index: &Index) -> String {
    let nodes = index.nodes_of(name);
    let told = form.policy.domains.iter().enumerate();
    let told = told.filter_map(|(number, domain)| {
        let is_outside = |named: &&Named| {
            let value = named.node.domains.get(number);
            value.is_none_or(String::is_empty)
        };
        let outside: Vec<&Named> = nodes.iter().filter(is_outside).collect();
        let what = match domain.label {
            Some(_) => "label",
            None => "value of the variable",
        };
        Some(format!(
            "; {} of {} nodes have no {what} {}, so that rollout.domains does not limit them: {} is one",
            outside.len(),
            nodes.len(),
            domain.key(),
            outside.first()?.name,
        ))
    });
    told.collect()
}

fn keys(node: &Node) -> impl Iterator<Item = (&str, usize, &str)> {
    let domains = node.domains.iter().enumerate();
    let domains = domains.filter(|(_, value)| !value.is_empty());
    domains.map(|(number, value)| (&*node.form, number, value.as_str()))
}

fn busy(snapshot: &Snapshot, slot: &Slot, node: &Node, now: Timestamp) -> Busy {
    if node.deleting {
        return Busy::NotReady;
    }
    if !node.non_ready() {
        return match free_at(snapshot, slot, node, now) {
            Some(at) if at > now => Busy::Soaking(at),
            _ if put_off(snapshot, &slot.node, node, now).is_some() => Busy::Refused,
            // Its release is sent, and has most likely gone through: who reads this later looks for a node that is not ready.
            _ if snapshot.is_sent(&slot.node, node) => Busy::NotReady,
            _ if node.held() => Busy::Releasing,
            Some(_) => Busy::Confirming,
            None => Busy::NotReady,
        };
    }
    if node.held() && put_off(snapshot, &slot.node, node, now).is_some() {
        return Busy::Refused;
    }
    let late = |start: Timestamp| start.checked_add(UNSEEN_MAX).is_ok_and(|at| at <= now);
    match !node.seen && node.start.is_none_or(late) {
        true => Busy::Unknown,
        false => Busy::NotReady,
    }
}

/// When the next node in flight has been silent for so long that this is a reason of its own.
pub fn silent_at(snapshot: &Snapshot, slots: &[Slot], now: Timestamp) -> Option<Timestamp> {
    let silent_at = |slot: &Slot| {
        let node = snapshot.nodes.get(&slot.node)?;
        let silent = node.uid == slot.uid && node.non_ready() && !node.seen;
        node.start.filter(|_| silent)?.checked_add(UNSEEN_MAX).ok()
    };
    slots
        .iter()
        .filter_map(silent_at)
        .filter(|at| *at > now)
        .min()
}

impl<'a> Window<'a> {
    fn new(skew: Skew, counts: SkewCounts, total: usize) -> Self {
        Window {
            width: (skew != Skew::Count(0)).then(|| skew.of(total)),
            counts,
            occupants: BTreeMap::new(),
            slots: 0,
            repairs: 0,
            genuine: 0,
            holders: [None, None],
        }
    }

    /// Nothing waits for what is not ready in a window without a width, and it may be a whole fleet.
    fn put(&mut self, uid: &'a str, occupant: Occupant<'a>) {
        if self.width.is_none() && occupant.slot.is_none() {
            return;
        }
        let before = self.occupants.insert(uid, occupant);
        if let Some(taken) = before.and_then(|occupant| occupant.slot) {
            self.slots -= 1;
            self.repairs -= usize::from(taken.repair);
            self.genuine -= usize::from(!taken.presumed);
        }
        if let Some(taken) = occupant.slot {
            self.slots += 1;
            self.repairs += usize::from(taken.repair);
            self.genuine += usize::from(!taken.presumed);
        }
        self.holders = [None, None];
    }

    /// One more node that is not ready would be one too many.
    fn is_full(&self) -> bool {
        let taken = match self.counts {
            SkewCounts::All => self.occupants.len(),
            SkewCounts::Released => self.slots - self.repairs,
        };
        self.width.is_some_and(|width| taken >= width)
    }

    /// Whether its release repairs it, as far as the window is concerned: what its slot was taken for stays.
    fn is_repair(&self, node: &Node) -> bool {
        let occupant = self.occupants.get(node.uid.as_str());
        let slot = occupant.and_then(|occupant| occupant.slot);
        slot.map_or(node.non_ready(), |slot| slot.repair)
    }

    /// The width, where the node does not fit.
    fn full_for(&self, node: &Node) -> Option<usize> {
        let width = self.width?;
        let occupant = self.occupants.get(node.uid.as_str());
        let slot = occupant.and_then(|occupant| occupant.slot);
        // With a slot and not ready, it fills the window whether it goes or not: also a window that was made narrower
        // than the slots that are out, whose nodes nothing but this could repair. What was put anew into a lost ledger may
        // be more than ever went at a time: of that a window full goes at a time.
        let fills = |slot: Taken| node.non_ready() && (!slot.presumed || self.genuine < width);
        let fills_anyway = slot.is_some_and(fills);
        let fits = fills_anyway
            || match self.counts {
                SkewCounts::All => {
                    let others = self.slots - usize::from(slot.is_some());
                    let busy = self.occupants.len() + usize::from(occupant.is_none());
                    others < width && (node.non_ready() || busy <= width)
                }
                SkewCounts::Released => match self.is_repair(node) {
                    true => self.repairs - usize::from(slot.is_some()) < width,
                    false => self.slots - self.repairs + usize::from(slot.is_none()) <= width,
                },
            };
        (!fits).then_some(width)
    }

    /// Why the node does not fit, by who is in its way.
    fn reason(&mut self, node: &Node, window: usize) -> Reason {
        let occupant = self.occupants.get(node.uid.as_str());
        let slot = occupant.and_then(|occupant| occupant.slot);
        let holders = self.holders(self.is_repair(node));
        // What is broken may fill it as well.
        let full_of_slots = |slot: Taken| match (self.counts, slot.repair) {
            (SkewCounts::All, _) => self.slots > window,
            (SkewCounts::Released, true) => self.repairs > window,
            (SkewCounts::Released, false) => self.slots - self.repairs > window,
        };
        if slot.is_some_and(full_of_slots) {
            return Reason::SlotReserved {
                window,
                slots: self.slots,
                holders,
            };
        }
        if !holders.unknown.is_empty() {
            Reason::ReadinessUnknown { window, holders }
        } else if !(holders.not_ready.is_empty()
            && holders.releasing.is_empty()
            && holders.refused.is_empty()
            && holders.confirming.is_empty())
        {
            Reason::WindowFull { window, holders }
        } else if !holders.soaking.is_empty() {
            Reason::Soaking { window, holders }
        } else {
            Reason::BrokenBefore { window, holders }
        }
    }

    /// Who fills the window. With `skewCounts: Released` repairs and updates have places of their own.
    fn holders(&mut self, of_repairs: bool) -> Arc<Holders> {
        if let Some(holders) = &self.holders[usize::from(of_repairs)] {
            return holders.clone();
        }
        let fills = |occupant: &&Occupant| match (self.counts, occupant.slot) {
            (SkewCounts::All, _) => true,
            (SkewCounts::Released, Some(slot)) => slot.repair == of_repairs,
            (SkewCounts::Released, None) => false,
        };
        let filling: Vec<&Occupant> = self.occupants.values().filter(fills).collect();
        let of = |wanted: fn(Busy) -> bool| {
            let filling = filling.iter().copied();
            let mut wanted: Vec<_> = filling.filter(|occupant| wanted(occupant.busy)).collect();
            let by_rank = |a: &&Occupant, b: &&Occupant| a.rank().cmp(&b.rank());
            // The others are only counted, and may be a whole fleet.
            let shown = wanted.len().min(Names::SHOWN_MAX);
            if shown < wanted.len() {
                wanted.select_nth_unstable_by(shown, by_rank);
            }
            wanted[..shown].sort_by(by_rank);
            wanted
        };
        let names = |of: Vec<&Occupant>| Names::of(of.into_iter().map(|occupant| occupant.name));
        let soaked = filling.iter().filter_map(|occupant| match occupant.busy {
            Busy::Soaking(at) => Some(at),
            _ => None,
        });
        let mut soaked: Vec<Timestamp> = soaked.collect();
        soaked.sort_unstable();
        // As many of them as there are too many have to go first; of a repair those are slots alone.
        let busy = match (self.counts, of_repairs) {
            (SkewCounts::All, true) => self.slots,
            _ => filling.len(),
        };
        let too_many = self.width.and_then(|width| busy.checked_sub(width));
        let not_ready = of(|busy| busy == Busy::NotReady);
        let broken = of(|busy| busy == Busy::Broken);
        let unknown = of(|busy| busy == Busy::Unknown);
        let first = [&not_ready, &unknown, &broken]
            .into_iter()
            .find_map(|of| of.first());
        let holders = Arc::new(Holders {
            why: first.and_then(|occupant| occupant.node?.why.clone()),
            releasing: names(of(|busy| busy == Busy::Releasing)),
            refused: names(of(|busy| busy == Busy::Refused)),
            confirming: names(of(|busy| busy == Busy::Confirming)),
            unknown: names(unknown),
            not_ready: names(not_ready),
            soaking: names(of(|busy| matches!(busy, Busy::Soaking(_)))),
            soaked_at: soaked.first().copied(),
            free_at: too_many.and_then(|too_many| soaked.get(too_many).copied()),
            broken: names(broken),
        });
        self.holders[usize::from(of_repairs)] = Some(holders.clone());
        holders
    }
}
