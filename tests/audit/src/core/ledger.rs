//! Hubs and their ledgers: what was reserved and freed, and whether it might be.

use std::collections::{BTreeMap, VecDeque};

use serde_json::Value;

use super::finding::Rule;
use super::view::{Policy, Slot, annotation, slots_of};
use super::{Audit, Stored};
use crate::kinds::{self, Key, Kind};

pub struct Hub {
    pub slots: BTreeMap<String, Slot>,
    /// The status has a ledger, though it may be empty.
    pub has_ledger: bool,
    /// The slots of a ledger that somebody took away, until it is made anew: what happens to them shows then.
    pub lost: BTreeMap<String, Slot>,
    /// When a node's place in the ledger was first taken, by uid: revision and time.
    pub reserved: BTreeMap<String, (u64, i64)>,
    /// The newest ledger writes, for evidence.
    pub log: VecDeque<String>,
    /// `spec.guard.maxDeletions` and `spec.source.syncInterval`, as they stand.
    pub guard: Option<Value>,
    pub sync_ms: i64,
    /// The most deletions that a user agreed to, and until when that counts.
    pub confirmed: Option<(u64, i64)>,
    pub deleting: bool,
    /// Recent deletions of nodes: when, and which.
    pub deletions: VecDeque<(i64, String)>,
    /// A burst of deletions was reported already.
    pub reported_until: i64,
}

const LOG_MAX: usize = 6;

/// A confirmation is taken off before it is used.
const CONFIRMED_FOR_MS: i64 = 60_000;

impl Audit {
    pub(super) fn load_hub(&mut self, key: Key, revision: u64, object: &Value) {
        self.hub_scope(&key, revision, object);
        let now = self.now;
        let before = self.hubs.remove(&key).map(|stored| stored.it);
        let mut hub = Hub::of(object, before, now);
        for uid in hub.slots.keys() {
            hub.reserved.entry(uid.clone()).or_insert((revision, now));
        }
        hub.reserved.retain(|uid, _| hub.slots.contains_key(uid));
        hub.lost.clear();
        hub.remember(format!("revision {revision}: found {}", hub.show()));
        self.hubs.insert(key, Stored { revision, it: hub });
    }

    pub(super) fn hub_written(&mut self, key: Key, revision: u64, object: &Value, created: bool) {
        if !self.hubs.contains_key(&key) && !created {
            return self.load_hub(key, revision, object);
        }
        self.hub_scope(&key, revision, object);
        let now = self.now;
        // A hub made anew has nothing of the one before it.
        let before = self.hubs.remove(&key).filter(|_| !created);
        let mut before = before.map(|stored| stored.it);
        let had_ledger = before.as_ref().is_some_and(|hub| hub.has_ledger);
        let (old, lost) = match &mut before {
            Some(hub) => (hub.slots.clone(), std::mem::take(&mut hub.lost)),
            None => (BTreeMap::new(), BTreeMap::new()),
        };
        let mut hub = Hub::of(object, before, now);
        if hub.slots != old || hub.has_ledger != had_ledger {
            hub.remember(format!("revision {revision}: {}", hub.show()));
        }
        let (regained, taken): (Vec<Slot>, Vec<Slot>) = hub
            .slots
            .values()
            .filter(|slot| !old.contains_key(&slot.uid))
            .cloned()
            .partition(|slot| !had_ledger && self.is_regained(&key, slot));
        let mut freed = vec![];
        if hub.has_ledger {
            let gone = old.into_values().chain(lost.into_values());
            freed.extend(gone.filter(|slot| !hub.slots.contains_key(&slot.uid)));
        } else {
            hub.lost = lost;
            hub.lost.extend(old);
        }
        for slot in &regained {
            let reserved = hub.reserved.entry(slot.uid.clone());
            reserved.or_insert((revision, now));
        }
        for slot in &taken {
            hub.reserved.insert(slot.uid.clone(), (revision, now));
        }
        hub.reserved
            .retain(|uid, _| hub.slots.contains_key(uid) || hub.lost.contains_key(uid));
        self.hubs.insert(key.clone(), Stored { revision, it: hub });
        for slot in &freed {
            self.slot_freed(&key, revision, slot);
        }
        self.slots_taken(&key, revision, &taken);
    }

    /// The ledger is kept: a release that was on its way when the hub went had its slot.
    pub(super) fn hub_gone(&mut self, key: &Key, revision: u64) {
        self.scope(key).gone = true;
        if let Some(hub) = self.hubs.get_mut(key) {
            hub.it.deleting = true;
            hub.it
                .remember(format!("revision {revision}: the hub is gone"));
        }
    }

    fn hub_scope(&mut self, key: &Key, revision: u64, object: &Value) {
        let now = self.now;
        let scope = self.scope(key);
        scope.set_policy(now, revision, Policy::of(object));
        scope.gone = object.pointer("/metadata/deletionTimestamp").is_some();
    }

    /// Rule 2 of the ledger: only when the node has settled, or is gone, or was never released for it.
    fn slot_freed(&mut self, hub: &Key, revision: u64, slot: &Slot) {
        let key = Key::new(Kind::Node, &hub.namespace, &slot.node);
        let Some(node) = self.nodes.get(&key).map(|stored| &stored.it) else {
            return;
        };
        let Some(flight) = &node.flight else { return };
        if node.view.uid != slot.uid || node.view.deleting || !flight.class.is_gated() {
            return;
        }
        let why = node.unsettled.clone();
        let mut evidence = node.evidence();
        evidence.extend(self.hub_evidence(hub));
        self.violation(
            Rule::EarlyFree,
            revision,
            &key,
            format!(
                "its slot was freed although it was released at revision {} and has not settled since: {why}",
                flight.revision
            ),
            evidence,
        );
    }

    /// A ledger made anew names who was let go by a slot of the one before it and is not settled. Whether it was settled in
    /// between the operator cannot know, and such a slot lets nothing go that was not let go before.
    fn is_regained(&self, hub: &Key, slot: &Slot) -> bool {
        let key = Key::new(Kind::Node, &hub.namespace, &slot.node);
        let node = self.nodes.get(&key).map(|stored| &stored.it);
        node.is_some_and(|node| {
            node.view.uid == slot.uid
                && node.view.is_live_by_release()
                && !node.view.deleting
                && !node.unsettled.is_empty()
        })
    }

    /// A window is kept by the ledger, so it must not hold more than the window has room for.
    fn slots_taken(&mut self, hub: &Key, revision: u64, taken: &[Slot]) {
        let since = self.now - self.options.lag_ms;
        let Some(slots) = self.hubs.get(hub).map(|stored| stored.it.slots.clone()) else {
            return;
        };
        let mut counted: Vec<(Key, bool, Option<bool>)> = vec![];
        for slot in taken {
            let form = Key::new(Kind::Form, &hub.namespace, &slot.form);
            let only_released = self
                .scopes
                .get(&form)
                .and_then(|s| s.policy.as_ref())
                .is_some_and(|p| p.only_released);
            let repair = only_released.then_some(slot.repair);
            // The hub's window is one, whatever the form's repairs have.
            for entry in [(form, false, repair), (hub.clone(), true, None)] {
                if !counted.contains(&entry) {
                    counted.push(entry);
                }
            }
        }
        for (scope, is_hub, repair) in counted {
            let count = slots
                .values()
                .filter(|slot| is_hub || slot.form == scope.name)
                .filter(|slot| repair.is_none_or(|repair| slot.repair == repair))
                .count();
            let Some(widest) = self.scopes.get(&scope).and_then(|s| s.widest_since(since)) else {
                continue;
            };
            if count > widest {
                let evidence = [self.hub_evidence(hub), self.width_evidence(&scope)].concat();
                let what =
                    format!("{count} slots were reserved where {scope} has a window of {widest}");
                self.violation(Rule::Reserve, revision, hub, what, evidence);
            }
        }
    }

    pub(super) fn hub_evidence(&self, hub: &Key) -> Vec<String> {
        let log = self.hubs.get(hub).map(|stored| &stored.it.log);
        let lines = log
            .into_iter()
            .flatten()
            .rev()
            .take(3)
            .map(|line| format!("{hub}, {line}"));
        let mut lines: Vec<String> = lines.collect();
        lines.reverse();
        lines
    }

    pub(super) fn width_evidence(&self, scope: &Key) -> Vec<String> {
        let Some(it) = self.scopes.get(scope) else {
            return vec![];
        };
        let shown =
            |width: Option<usize>| width.map_or("none".to_owned(), |width| width.to_string());
        let history: Vec<String> = it
            .widths()
            .map(|(revision, width)| format!("{} from revision {revision}", shown(width)))
            .collect();
        let skip = history.len().saturating_sub(3);
        vec![format!("window of {scope}: {}", history[skip..].join(", "))]
    }
}

impl Hub {
    fn of(object: &Value, before: Option<Hub>, now: i64) -> Hub {
        let count = annotation(object, kinds::CONFIRM_DELETIONS).and_then(|text| text.parse().ok());
        let confirmed = count.map(|count| (count, now + CONFIRMED_FOR_MS));
        let mut hub = before.unwrap_or(Hub {
            slots: BTreeMap::new(),
            has_ledger: false,
            lost: BTreeMap::new(),
            reserved: BTreeMap::new(),
            log: VecDeque::new(),
            guard: None,
            sync_ms: 0,
            confirmed: None,
            deleting: false,
            deletions: VecDeque::new(),
            reported_until: 0,
        });
        if hub.confirmed.is_some() && count.is_none() {
            // Just taken off: what it allows happens now.
            hub.confirmed = hub
                .confirmed
                .map(|(count, until)| (count, until.max(now + CONFIRMED_FOR_MS)));
        }
        hub.slots = slots_of(object);
        hub.has_ledger = object
            .pointer("/status/rollout")
            .is_some_and(Value::is_object);
        hub.guard = object.pointer("/spec/guard/maxDeletions").cloned();
        hub.sync_ms = object
            .pointer("/spec/source/syncInterval")
            .and_then(Value::as_str)
            .map_or(30_000, interval_ms);
        hub.confirmed = confirmed.or(hub.confirmed);
        hub.deleting = object.pointer("/metadata/deletionTimestamp").is_some();
        hub
    }

    fn remember(&mut self, line: String) {
        self.log.push_back(line);
        if self.log.len() > LOG_MAX {
            self.log.pop_front();
        }
    }

    fn show(&self) -> String {
        if !self.has_ledger {
            return "no ledger".to_owned();
        }
        let slots: Vec<String> = self
            .slots
            .values()
            .map(|slot| format!("{}={}@{}", slot.node, slot.hash, slot.resource_version))
            .collect();
        format!("{} slots [{}]", slots.len(), slots.join(" "))
    }
}

/// `30s`, `5m`, `1h`.
fn interval_ms(text: &str) -> i64 {
    let digits = text.trim_end_matches(['s', 'm', 'h']);
    let unit = match text.as_bytes().last() {
        Some(b'm') => 60_000,
        Some(b'h') => 3_600_000,
        _ => 1_000,
    };
    digits.parse::<i64>().unwrap_or(30).saturating_mul(unit)
}
