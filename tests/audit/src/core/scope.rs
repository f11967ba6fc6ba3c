//! One window over time: a form's, or a hub's over all of its forms. Who is in flight, how wide it was when, and for how
//! long how many were out. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::view::Policy;
use crate::kinds::Key;

/// A node that was released and has not settled since.
#[derive(Clone, Debug)]
pub struct Member {
    pub name: String,
    pub revision: u64,
    pub repair: bool,
}

pub struct Scope {
    /// None: never seen.
    pub policy: Option<Policy>,
    pub hub: Option<Key>,
    pub gone: bool,
    /// Since when, and by which revision, a form says that its rollout is complete.
    pub complete_since: Option<i64>,
    pub complete_revision: u64,
    /// Nodes that are not being deleted.
    nodes: BTreeSet<String>,
    /// Released through a slot, by uid.
    flight: BTreeMap<String, Member>,
    /// Released by force or ungated: counted apart.
    aside: BTreeSet<String>,
    non_ready: BTreeSet<String>,
    /// Since when, and how wide. None: no window.
    widths: Vec<(i64, u64, Option<usize>)>,
    paused_since: Option<i64>,
    forced_until: Option<i64>,
    immediate_until: Option<i64>,
    /// Since when the form has the domains that it has.
    pub domains_since: i64,
    since: i64,
    pub times: Times,
    pub episodes: Vec<Episode>,
    episode: Option<Open>,
}

/// For how long how many, in milliseconds.
#[derive(Clone, Debug, Default)]
pub struct Times {
    pub in_flight: BTreeMap<usize, i64>,
    pub non_ready: BTreeMap<usize, i64>,
    /// More in flight than the window is wide: it was narrowed, and they drain.
    pub draining_ms: i64,
    pub peak: usize,
    pub peak_at: u64,
    pub peak_non_ready: usize,
    pub released: u64,
    pub repaired: u64,
    pub ungated: u64,
    pub forced: u64,
    pub taken_over: u64,
}

/// From the first release until nothing was held and nothing in flight.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Episode {
    pub releases: u64,
    pub window: Option<usize>,
    /// From the first workload that changed to the last that was rolled out.
    pub seconds: f64,
    /// Sum over the workloads of the time that each was not rolled out.
    pub busy_seconds: f64,
    /// What a window that is always full would need: the sum, divided by the window.
    pub ideal_seconds: Option<f64>,
}

#[derive(Default)]
struct Open {
    releases: u64,
    width: Option<usize>,
    first: Option<i64>,
    last: Option<i64>,
    busy_ms: i64,
}

impl Scope {
    pub fn new(now: i64) -> Scope {
        Scope {
            policy: None,
            hub: None,
            gone: false,
            complete_since: None,
            complete_revision: 0,
            nodes: BTreeSet::new(),
            flight: BTreeMap::new(),
            aside: BTreeSet::new(),
            non_ready: BTreeSet::new(),
            widths: vec![],
            paused_since: None,
            forced_until: None,
            immediate_until: None,
            domains_since: now,
            since: now,
            times: Times::default(),
            episodes: vec![],
            episode: None,
        }
    }

    /// Adds the time since the last change to what stood until now.
    pub fn tick(&mut self, now: i64) {
        let passed = (now - self.since).max(0);
        self.since = now.max(self.since);
        if passed == 0 || self.policy.is_none() {
            return;
        }
        *self.times.in_flight.entry(self.flight.len()).or_default() += passed;
        *self
            .times
            .non_ready
            .entry(self.non_ready.len())
            .or_default() += passed;
        if self.width().is_some_and(|width| self.flight.len() > width) {
            self.times.draining_ms += passed;
        }
    }

    pub fn set_policy(&mut self, now: i64, revision: u64, policy: Policy) {
        if self.policy.as_ref() == Some(&policy) {
            return;
        }
        self.tick(now);
        let before = self.policy.replace(policy);
        let (before, policy) = (before.as_ref(), self.policy.as_ref());
        let ended = |is: fn(&Policy) -> bool| before.is_some_and(is) && !policy.is_some_and(is);
        if ended(|p| p.forced) {
            self.forced_until = Some(now);
        }
        if ended(|p| p.immediate) {
            self.immediate_until = Some(now);
        }
        if before.map(|p| &p.domains) != policy.map(|p| &p.domains) {
            self.domains_since = now;
        }
        match policy.is_some_and(|p| p.paused) {
            true => drop(self.paused_since.get_or_insert(now)),
            false => self.paused_since = None,
        }
        self.resolve(now, revision);
    }

    /// A node is there, or is on its way out or gone.
    pub fn set_node(&mut self, now: i64, revision: u64, uid: &str, there: bool) {
        let changed = if there {
            self.nodes.insert(uid.to_owned())
        } else {
            self.nodes.remove(uid)
        };
        if changed {
            self.tick(now);
            self.resolve(now, revision);
        }
    }

    fn resolve(&mut self, now: i64, revision: u64) {
        let Some(policy) = &self.policy else { return };
        let width = policy.skew.width(self.nodes.len());
        if self.widths.last().is_none_or(|(.., last)| *last != width) {
            self.widths.push((now, revision, width));
        }
    }

    pub fn size(&self) -> usize {
        self.nodes.len()
    }

    pub fn width(&self) -> Option<usize> {
        self.widths.last().and_then(|(.., width)| *width)
    }

    pub fn widths(&self) -> impl Iterator<Item = (u64, Option<usize>)> + '_ {
        self.widths
            .iter()
            .map(|(_, revision, width)| (*revision, *width))
    }

    /// The widest window in force at any moment since then. None: there was a moment without one, or it is not known.
    pub fn widest_since(&self, since: i64) -> Option<usize> {
        let mut widest = 0;
        for (at, (_, _, width)) in self.widths.iter().enumerate() {
            let ended = self.widths.get(at + 1).map(|(end, ..)| *end);
            if ended.is_none_or(|end| end >= since) {
                widest = widest.max((*width)?);
            }
        }
        (!self.widths.is_empty()).then_some(widest)
    }

    pub fn is_limited_since(&self, since: i64) -> bool {
        self.widest_since(since).is_some()
    }

    pub fn is_paused_since(&self, since: i64) -> bool {
        self.paused_since.is_some_and(|at| at < since)
    }

    pub fn was_forced_since(&self, since: i64) -> bool {
        self.policy.as_ref().is_some_and(|p| p.forced)
            || self.forced_until.is_some_and(|at| at >= since)
    }

    pub fn was_immediate_since(&self, since: i64) -> bool {
        self.policy.as_ref().is_some_and(|p| p.immediate)
            || self.immediate_until.is_some_and(|at| at >= since)
    }

    pub fn flight(&self) -> &BTreeMap<String, Member> {
        &self.flight
    }

    pub fn take_off(&mut self, now: i64, revision: u64, uid: &str, member: Member) {
        self.tick(now);
        self.aside.remove(uid);
        self.flight.insert(uid.to_owned(), member);
        if self.flight.len() > self.times.peak {
            self.times.peak = self.flight.len();
            self.times.peak_at = revision;
        }
        let width = self.width();
        let episode = self.episode.get_or_insert_default();
        episode.releases += 1;
        episode.width = width;
    }

    /// By force or ungated: whatever slot it had, the window is no longer what let it go.
    pub fn take_off_aside(&mut self, now: i64, uid: &str) {
        self.tick(now);
        self.flight.remove(uid);
        self.aside.insert(uid.to_owned());
    }

    pub fn land(&mut self, now: i64, uid: &str) {
        if self.flight.contains_key(uid) {
            self.tick(now);
            self.flight.remove(uid);
        }
        self.aside.remove(uid);
    }

    pub fn aside(&self) -> usize {
        self.aside.len()
    }

    pub fn set_non_ready(&mut self, now: i64, uid: &str, is: bool) {
        if self.non_ready.contains(uid) != is {
            self.tick(now);
            if is {
                self.non_ready.insert(uid.to_owned());
            } else {
                self.non_ready.remove(uid);
            }
            self.times.peak_non_ready = self.times.peak_non_ready.max(self.non_ready.len());
        }
    }

    /// A workload stopped being rolled out at `now`.
    pub fn workload_began(&mut self, now: i64) {
        if let Some(episode) = &mut self.episode {
            episode.first.get_or_insert(now);
        }
    }

    pub fn workload_done(&mut self, now: i64, since: i64) {
        if let Some(episode) = &mut self.episode {
            let from = since.max(episode.first.unwrap_or(since));
            episode.busy_ms += (now - from).max(0);
            episode.last = Some(now);
        }
    }

    /// Nothing is held and nothing in flight any more.
    pub fn rest(&mut self) {
        let Some(open) = self.episode.take() else {
            return;
        };
        let Some((first, last)) = open.first.zip(open.last) else {
            return;
        };
        let busy_seconds = open.busy_ms as f64 / 1000.0;
        self.episodes.push(Episode {
            releases: open.releases,
            window: open.width,
            seconds: (last - first) as f64 / 1000.0,
            busy_seconds,
            ideal_seconds: open.width.map(|width| busy_seconds / width.max(1) as f64),
        });
    }

    pub fn has_episode(&self) -> bool {
        self.episode.is_some()
    }
}
