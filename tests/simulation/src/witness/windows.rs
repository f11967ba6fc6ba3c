//! What the windows were and when: a plan is judged by what was in force between its view and its effect.

use std::collections::BTreeMap;

use lynqgate::api::policy::{Creation, Rollout, Skew, SkewCounts, WINDOW_MAX};

use crate::witness::NodeView;

#[derive(Clone)]
pub struct Policy {
    pub rollout: Rollout,
    pub forced: bool,
}

#[derive(Default)]
pub struct History {
    policies: BTreeMap<String, Vec<(u64, Option<Policy>)>>,
    hub_forced: Vec<(u64, bool)>,
    hub: Vec<(u64, Skew)>,
    /// How many deletions people have confirmed.
    confirmed: Vec<(u64, usize)>,
    /// Nodes that count, and creations so far; by form, and all under the empty name.
    nodes: BTreeMap<String, Vec<(u64, usize, usize)>>,
}

/// What held at `since` and whatever came later.
fn from<T>(entries: &[T], since: u64, at: impl Fn(&T) -> u64) -> &[T] {
    let first = entries
        .partition_point(|entry| at(entry) <= since)
        .saturating_sub(1);
    &entries[first..]
}

impl History {
    pub fn policy(&mut self, revision: u64, form: &str, policy: Option<Policy>) {
        self.policies
            .entry(form.to_owned())
            .or_default()
            .push((revision, policy));
    }

    pub fn hub(&mut self, revision: u64, skew: Skew, forced: bool, confirmed: usize) {
        self.confirmed.push((revision, confirmed));
        self.hub_forced.push((revision, forced));
        if self.hub.last().is_none_or(|(_, last)| *last != skew) {
            self.hub.push((revision, skew));
        }
    }

    pub fn nodes(&mut self, revision: u64, nodes: &BTreeMap<String, NodeView>) {
        let mut counts: BTreeMap<&str, (usize, usize)> = self
            .nodes
            .keys()
            .map(|form| (form.as_str(), (0, 0)))
            .collect();
        for node in nodes.values() {
            for form in ["", node.form.as_str()] {
                let count = counts.entry(form).or_default();
                count.0 += usize::from(!node.deleting);
                count.1 += 1;
            }
        }
        let counts: Vec<(String, (usize, usize))> =
            counts.into_iter().map(|(f, c)| (f.to_owned(), c)).collect();
        for (form, (count, there)) in counts {
            let entries = self.nodes.entry(form).or_default();
            let last = entries.last().copied().unwrap_or_default();
            if last.1 != count || last.2 != there {
                entries.push((revision, count, there));
            }
        }
    }

    /// The widest windows of a form and its hub since then; None: there was none.
    pub fn widths(&self, form: &str, since: u64) -> (Option<usize>, Option<usize>) {
        let total = |form: &str| {
            let all = self.nodes.get(form).map(Vec::as_slice).unwrap_or_default();
            // A cache may mix nodes of several moments; it never has more than ever came along.
            let range = from(all, since, |entry| entry.0);
            range.iter().map(|entry| entry.1).max().unwrap_or_default()
                + range
                    .windows(2)
                    .map(|two| two[1].2.saturating_sub(two[0].2))
                    .sum::<usize>()
        };
        let of = |skew: Skew, total: usize| (skew != Skew::Count(0)).then(|| skew.of(total));
        let widest = |widths: &mut dyn Iterator<Item = Option<usize>>| {
            let all: Option<Vec<usize>> = widths.collect();
            all.map(|all| all.into_iter().max().unwrap_or_default())
        };
        let of_form = |policy: &Policy| {
            let policy = &policy.rollout;
            of(policy.max_skew, total(form)).or((!policy.order.is_empty()).then_some(WINDOW_MAX))
        };
        let policies = self
            .policies
            .get(form)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let policies = from(policies, since, |entry| entry.0);
        (
            widest(&mut policies.iter().filter_map(|(_, p)| p.as_ref()).map(of_form)),
            widest(
                &mut from(&self.hub, since, |entry| entry.0)
                    .iter()
                    .map(|(_, skew)| of(*skew, total(""))),
            ),
        )
    }

    /// How many deletions were confirmed at some moment since then.
    pub fn confirmed(&self, since: u64) -> usize {
        let all = from(&self.confirmed, since, |entry| entry.0).iter();
        all.map(|entry| entry.1).max().unwrap_or_default()
    }

    fn policies(&self, form: &str, since: u64) -> impl Iterator<Item = &Policy> {
        let all = self
            .policies
            .get(form)
            .map(Vec::as_slice)
            .unwrap_or_default();
        from(all, since, |entry| entry.0)
            .iter()
            .filter_map(|(_, policy)| policy.as_ref())
    }

    /// Whether at some moment since then the form was not paused.
    pub fn was_open(&self, form: &str, since: u64) -> bool {
        self.policies(form, since)
            .any(|policy| !policy.rollout.paused)
    }

    /// Whether all the time since then one window was for every node of the form, and not one for repairs beside one for
    /// changes.
    pub fn counts_all(&self, form: &str, since: u64) -> bool {
        let all = |policy: &Policy| policy.rollout.skew_counts == SkewCounts::All;
        self.policies(form, since).all(all)
    }

    /// Whether at some moment since then all of the form was forced.
    pub fn was_forced(&self, form: &str, since: u64) -> bool {
        from(&self.hub_forced, since, |entry| entry.0)
            .iter()
            .any(|(_, forced)| *forced)
            || self.policies(form, since).any(|policy| policy.forced)
    }

    /// Whether at some moment since then content of this form needed no slot.
    pub fn was_ungated(&self, form: &str, since: u64, creation: bool) -> bool {
        let hub_open = from(&self.hub, since, |entry| entry.0)
            .iter()
            .any(|(_, skew)| *skew == Skew::Count(0));
        self.policies(form, since).any(|policy| {
            let policy = &policy.rollout;
            let unlimited = policy.max_skew == Skew::Count(0) && hub_open;
            !policy.paused
                && policy.order.is_empty()
                && (unlimited || (creation && policy.creation == Creation::Immediate))
        })
    }
}
