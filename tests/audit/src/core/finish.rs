//! The end: what can only be said when nothing more comes, and the sum of it all.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::finding::{Finding, Rule};
use super::scope::{Episode, Scope};
use super::{Audit, Note};
use crate::kinds::{Key, Kind};

/// All that is known at the end; `report` turns it into text and JSON.
pub struct Conclusion {
    pub first: Option<(u64, Timestamp)>,
    pub last: (u64, Timestamp),
    pub changes: u64,
    pub seen: BTreeMap<Kind, u64>,
    pub nodes: usize,
    pub windows: Vec<WindowSeen>,
    pub violations: Vec<Finding>,
    pub counts: BTreeMap<Rule, u64>,
    pub notes: Vec<Note>,
    /// Why no more can be concluded than what was found.
    pub doubts: Vec<String>,
    pub unfollowed: Vec<String>,
    /// How long what must not last did, at most, in milliseconds.
    pub longest: BTreeMap<Rule, i64>,
    pub end: End,
}

/// How the fleet was left.
#[derive(Clone, Debug, Default)]
pub struct End {
    pub held: Vec<String>,
    pub unsettled: Vec<String>,
    pub slots: Vec<String>,
}

impl End {
    pub fn converged(&self) -> bool {
        self.held.is_empty() && self.unsettled.is_empty() && self.slots.is_empty()
    }
}

pub struct WindowSeen {
    pub key: Key,
    pub width: Option<usize>,
    pub widths: Vec<(u64, Option<usize>)>,
    pub nodes: usize,
    pub in_flight_now: usize,
    pub aside_now: usize,
    pub times: super::scope::Times,
    pub episodes: Vec<Episode>,
}

impl Audit {
    pub(super) fn violation(
        &mut self,
        rule: Rule,
        revision: u64,
        object: &Key,
        what: String,
        evidence: Vec<String>,
    ) {
        let at = Timestamp::from_millisecond(self.now).unwrap_or(self.last.1);
        self.findings.add(Finding {
            rule,
            revision,
            at,
            object: object.to_string(),
            what,
            evidence,
        });
    }

    /// Ends the audit at this time.
    pub fn finish(mut self, at: Timestamp) -> Conclusion {
        self.now = self.now.max(at.as_millisecond());
        let now = self.now;
        self.scopes.values_mut().for_each(|scope| scope.tick(now));
        let end = self.end();
        if self.in_gap {
            self.judged_from = now;
        }
        self.look_at_the_end();
        self.conclude_fleet(&end);
        let doubts = self.doubts();
        let windows = self
            .scopes
            .iter()
            .filter(|(_, scope)| scope.policy.is_some())
            .map(|(key, scope)| window(key, scope));
        let unfollowed = self
            .nodes
            .values()
            .flat_map(|node| node.it.view.desired.unfollowed.clone());
        let mut unfollowed: Vec<String> = unfollowed.collect();
        unfollowed.sort();
        unfollowed.dedup();
        Conclusion {
            first: self.first,
            last: self.last,
            changes: self.changes,
            nodes: self.nodes.len(),
            windows: windows.collect(),
            violations: self.findings.kept,
            counts: self.findings.counts,
            notes: self.findings.notes.into_values().collect(),
            seen: self.seen,
            longest: self.longest,
            doubts,
            unfollowed,
            end,
        }
    }

    fn end(&self) -> End {
        let mut end = End::default();
        for (key, node) in &self.nodes {
            let node = &node.it;
            if node.view.held() {
                let reason = node.view.reason.as_deref().unwrap_or("no reason given");
                end.held.push(format!("{key}: {reason}"));
            } else if !node.unsettled.is_empty() {
                end.unsettled.push(format!("{key}: {}", node.unsettled));
            } else if node.view.deleting {
                end.unsettled.push(format!("{key}: it is being deleted"));
            }
        }
        for (key, hub) in &self.hubs {
            if !self.scopes.get(key).is_some_and(|scope| scope.gone) {
                let slots = hub.it.slots.values();
                end.slots.extend(slots.map(|slot| {
                    format!("{key}: {} at version {}", slot.node, slot.resource_version)
                }));
            }
        }
        end
    }

    fn conclude_fleet(&mut self, end: &End) {
        let fleet = Key::new(Kind::Node, "*", "*");
        let revision = self.last.0;
        if self.options.converged && !end.converged() {
            let what = format!(
                "at the end {} nodes are held, {} are not settled, and {} slots are taken",
                end.held.len(),
                end.unsettled.len(),
                end.slots.len()
            );
            let lines = end
                .held
                .iter()
                .chain(&end.unsettled)
                .chain(&end.slots)
                .take(20);
            let lines = lines.cloned().collect();
            self.violation(Rule::Convergence, revision, &fleet, what, lines);
        }
        if let Some(wanted) = self
            .options
            .nodes
            .filter(|wanted| *wanted != self.nodes.len())
        {
            let what = format!(
                "there are {} nodes at the end, and {wanted} were expected",
                self.nodes.len()
            );
            self.violation(Rule::Convergence, revision, &fleet, what, vec![]);
        }
    }

    fn doubts(&self) -> Vec<String> {
        let mut doubts: Vec<String> = self
            .gaps
            .iter()
            .map(|why| format!("a gap: {why}"))
            .collect();
        doubts.extend(
            self.unreadable
                .iter()
                .map(|(what, count)| format!("not readable, {count} times: {what}")),
        );
        if !self.seen.contains_key(&Kind::Node) {
            doubts.push("no LynqNode was seen".to_owned());
        }
        for (key, scope) in &self.scopes {
            if scope.policy.is_none() && scope.size() > 0 {
                doubts.push(format!(
                    "{key} was never seen, so the window of its {} nodes is not known",
                    scope.size()
                ));
            }
        }
        doubts
    }
}

fn window(key: &Key, scope: &Scope) -> WindowSeen {
    WindowSeen {
        key: key.clone(),
        width: scope.width(),
        widths: scope.widths().collect(),
        nodes: scope.size(),
        in_flight_now: scope.flight().len(),
        aside_now: scope.aside(),
        times: scope.times.clone(),
        episodes: scope.episodes.clone(),
    }
}
