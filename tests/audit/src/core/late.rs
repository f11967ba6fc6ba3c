//! What may lag, and must not last: an object without what is live, a held node without a reason, a form that says it is
//! complete and is not. Judged about once a second of the stream's clock, and at the end.

use std::collections::BTreeMap;

use super::finding::Rule;
use super::nodes::Node;
use super::view::Live;
use super::{Audit, SETTLE_MS};
use crate::kinds::Key;

/// Since when, without a break, a node is as it must not stay.
#[derive(Clone, Default)]
pub struct Since {
    /// Held, and its condition names no reason.
    unexplained: Option<i64>,
    /// Held, or released and not settled.
    open: Option<i64>,
    /// Objects that do not say what is live, by no fault of others.
    lost: BTreeMap<Key, i64>,
}

impl Since {
    pub fn update(&mut self, now: i64, unexplained: bool, open: bool, lost: Vec<Key>) {
        let keep = |since: Option<i64>, is: bool| is.then(|| since.unwrap_or(now));
        self.unexplained = keep(self.unexplained, unexplained);
        self.open = keep(self.open, open);
        let before = std::mem::take(&mut self.lost);
        let since = |key: &Key| before.get(key).copied().unwrap_or(now);
        let lost = lost.into_iter();
        self.lost = lost.map(|key| (key.clone(), since(&key))).collect();
    }

    pub fn is_none(&self) -> bool {
        self.unexplained.is_none() && self.open.is_none() && self.lost.is_empty()
    }
}

/// One thing that must not last.
struct Case {
    rule: Rule,
    node: Key,
    about: Key,
    /// The state that it is about, by its beginning: it is told once of each.
    of: i64,
    since: i64,
}

const EVERY_MS: i64 = 1_000;

/// A held node has a reason as soon as it has a status.
const REASON_AFTER_MS: i64 = 30_000;

/// Objects of a finding that are named.
const NAMED_MAX: usize = 5;

impl Audit {
    /// As the clock moves, before what moved it is looked at: until now all stood as it stands.
    pub(super) fn look(&mut self) {
        if self.now < self.looked_at + EVERY_MS {
            return;
        }
        // A source that was away brings all at once what happened meanwhile, and first of all a new time. So what is told
        // was overdue a look ago, and still is.
        let by = std::mem::replace(&mut self.looked_at, self.now);
        let cases = self.cases(false);
        self.remember_longest(&cases, by);
        self.judge_cases(cases, by);
    }

    /// At the end what is live for long must be everywhere, and whatever is held for long must have a reason.
    pub(super) fn look_at_the_end(&mut self) {
        self.remember_longest(&self.cases(false), self.now);
        self.judge_cases(self.cases(true), self.now);
    }

    fn cases(&self, at_the_end: bool) -> Vec<Case> {
        let mut cases = vec![];
        // Nothing is known to have lasted through a gap.
        let from = self.judged_from;
        for (key, stored) in self
            .lagging
            .iter()
            .filter_map(|key| self.nodes.get_key_value(key))
        {
            let node = &stored.it;
            let lasting = &node.since;
            let mut case = |rule, about: &Key, of: i64, since: i64| {
                let (node, about) = (key.clone(), about.clone());
                cases.push(Case {
                    rule,
                    node,
                    about,
                    of,
                    since,
                })
            };
            if let (Some(since), Some(held)) = (lasting.unexplained, node.held_since) {
                let since = if at_the_end { held } else { since.max(from) };
                case(Rule::Reason, key, held, since);
            }
            let live = node.live_since;
            for (object, since) in &lasting.lost {
                let since = if at_the_end {
                    live
                } else {
                    live.max(*since).max(from)
                };
                case(Rule::Lost, object, live, since);
            }
            let form = self.scopes.get(&node.form);
            let said = form.and_then(|form| form.complete_since);
            if let (Some(open), Some(said)) = (lasting.open, said) {
                case(Rule::Complete, &node.form, said, open.max(said).max(from));
            }
        }
        cases
    }

    fn remember_longest(&mut self, cases: &[Case], by: i64) {
        for case in cases {
            let longest = self.longest.entry(case.rule).or_default();
            *longest = (*longest).max(by - case.since);
        }
    }

    fn judge_cases(&mut self, cases: Vec<Case>, by: i64) {
        let mut incomplete: BTreeMap<(Key, i64), Vec<String>> = BTreeMap::new();
        for case in cases {
            let told = (case.rule, case.about.clone(), case.of);
            if case.since + self.allowed(case.rule) > by || self.told.contains(&told) {
                continue;
            }
            let seconds = (self.now - case.since) / 1000;
            match case.rule {
                Rule::Complete => {
                    let node = &self.nodes[&case.node].it;
                    let why = if node.view.held() {
                        "is held"
                    } else {
                        &node.unsettled
                    };
                    let line = format!("{}, for {seconds} s: {why}", case.node);
                    let lines = incomplete.entry((case.about, case.of)).or_default();
                    lines.push(line);
                    continue;
                }
                Rule::Lost if !self.lost_now(&case, seconds) => continue,
                Rule::Lost => {}
                _ => self.unexplained(&case, seconds),
            }
            self.told.insert(told);
        }
        for ((form, said), lines) in incomplete {
            self.incomplete(&form, said, lines);
            self.told.insert((Rule::Complete, form, said));
        }
    }

    fn allowed(&self, rule: Rule) -> i64 {
        match rule {
            // What --settle has more than by default is for an operator that is away.
            Rule::Reason => REASON_AFTER_MS + (self.options.settle_ms - SETTLE_MS).max(0),
            _ => self.options.settle_ms,
        }
    }

    /// Whether it still is: a namespace that began to go excuses what is missing.
    fn lost_now(&mut self, case: &Case, seconds: i64) -> bool {
        let lost = self.lost(&case.node);
        let Some((object, what)) = lost.into_iter().find(|(object, _)| *object == case.about)
        else {
            return false;
        };
        let live_for = (self.now - case.of) / 1000;
        let mut what = format!(
            "what went live on {} {live_for} s ago did not reach it: {what}",
            case.node
        );
        if seconds < live_for {
            what.push_str(&format!(", for {seconds} s"));
        }
        let (revision, evidence) = (
            self.nodes[&case.node].revision,
            self.node_evidence(&case.node),
        );
        self.violation(Rule::Lost, revision, &object, what, evidence);
        true
    }

    fn unexplained(&mut self, case: &Case, seconds: i64) {
        let stored = &self.nodes[&case.node];
        let (revision, evidence) = (stored.revision, stored.it.evidence());
        let held_for = (self.now - case.of) / 1000;
        let mut what = format!("held for {held_for} s, and its condition Held names no reason");
        if seconds < held_for {
            what.push_str(&format!(", for {seconds} s"));
        }
        self.violation(Rule::Reason, revision, &case.node, what, evidence);
    }

    fn incomplete(&mut self, form: &Key, said: i64, mut lines: Vec<String>) {
        let what = format!(
            "its condition RolloutComplete has been True, of the newest generation, for {} s, and {} of its nodes have been \
             held or not settled for more than {} s of them",
            (self.now - said) / 1000,
            lines.len(),
            self.options.settle_ms / 1000
        );
        lines.truncate(NAMED_MAX);
        let revision = self
            .scopes
            .get(form)
            .map_or(0, |scope| scope.complete_revision);
        self.violation(Rule::Complete, revision, form, what, lines);
    }
}

impl Node {
    /// Held, and nobody says why.
    pub fn is_unexplained(&self) -> bool {
        let view = &self.view;
        let gated = view.live != Live::Absent;
        view.held() && gated && view.reason.is_none() && !view.deleting
    }

    /// Not done: held, or released and not settled.
    pub fn is_open(&self, unsettled: bool) -> bool {
        let held = self.view.held() && self.view.live != Live::Absent;
        (held || unsettled) && !self.view.deleting
    }
}
