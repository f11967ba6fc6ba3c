//! The guard: how many nodes of a hub may be deleted at once. Zero rows is the classic case.

use serde_json::Value;

use super::Audit;
use super::finding::Rule;
use super::view::Skew;
use crate::kinds::{Key, Kind};

/// As many as this may always go, where the hub sets no limit of its own.
const ALWAYS_ALLOWED: usize = 5;

impl Audit {
    /// A namespace that goes takes everything with it, in any order.
    pub(super) fn namespace_written(&mut self, key: &Key, object: Option<&Value>) {
        let goes = |object: &Value| object.pointer("/metadata/deletionTimestamp").is_some();
        if object.is_none_or(goes) {
            self.terminating.insert(key.name.clone());
        } else {
            self.terminating.remove(&key.name);
        }
    }

    pub(super) fn is_terminating(&self, key: &Key) -> bool {
        self.terminating.contains(&key.namespace)
    }

    /// A node was told to go. Legal are: a few; what a user confirmed; a hub, form or namespace that goes itself.
    pub(super) fn node_deleted(&mut self, node: &Key, revision: u64, hub: &Key, form: &Key) {
        if self.is_terminating(node) {
            return;
        }
        let now = self.now;
        let form_left = self
            .scopes
            .get(form)
            .is_none_or(|scope| scope.gone || scope.hub.as_ref().is_some_and(|its| its != hub));
        let size = self.scopes.get(hub).map_or(0, |scope| scope.size());
        let Some(it) = self.hubs.get_mut(hub).map(|stored| &mut stored.it) else {
            return;
        };
        if form_left || it.deleting {
            return;
        }
        // One sync is much shorter than the time between two.
        let since = now - it.sync_ms.clamp(1_000, 10_000);
        while it.deletions.front().is_some_and(|(at, _)| *at < since) {
            it.deletions.pop_front();
        }
        it.deletions.push_back((now, node.name.clone()));
        let count = it.deletions.len();
        // The scope has forgotten those that are on their way.
        let before = size + count;
        let allowed = match Skew::of(it.guard.as_ref()) {
            Some(Skew::Count(n)) => n as usize,
            Some(Skew::Percent(p)) => (before * p as usize / 100).max(1),
            None => (before / 2).max(ALWAYS_ALLOWED),
        };
        let confirmed = it
            .confirmed
            .filter(|(_, until)| *until >= now)
            .map_or(0, |(count, _)| count as usize);
        if count <= allowed.max(confirmed) || it.reported_until >= now {
            return;
        }
        it.reported_until = now + it.sync_ms.max(10_000);
        let names: Vec<String> = it
            .deletions
            .iter()
            .map(|(_, name)| name.clone())
            .take(20)
            .collect();
        let what = format!(
            "{count} of its {before} nodes were deleted at once; its guard lets {allowed} go, and {confirmed} were confirmed"
        );
        let mut evidence = vec![format!("deleted: {}", names.join(", "))];
        if !self.seen.contains_key(&Kind::Namespace) {
            evidence.push(
                "whether their namespace was being deleted, which would explain it, is not known: no Namespace was seen"
                    .to_owned(),
            );
        }
        self.violation(Rule::Deletions, revision, hub, what, evidence);
    }

    pub(super) fn hub_of(&self, node: &Key, named: Option<&str>, form: &Key) -> Key {
        let by_form = || self.scopes.get(form).and_then(|scope| scope.hub.clone());
        match named {
            Some(name) => Key::new(Kind::Hub, &node.namespace, name),
            None => by_form().unwrap_or_else(|| Key::new(Kind::Hub, &node.namespace, "")),
        }
    }
}
