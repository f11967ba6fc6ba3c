//! The judge: a stream of revisions in, findings out. Pure and synchronous; the clock is the one of the stream.
//!
//! It keeps the newest state of every hub, form, node and child object, and looks at what each revision changed. What it
//! did not see (before it began, or in a gap) it does not judge.

mod children;
pub mod content;
mod deletions;
mod fields;
mod finding;
pub mod finish;
mod late;
mod ledger;
mod nodes;
mod partitions;
mod ready;
mod release;
mod same;
mod scope;
mod view;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;

use crate::kinds::{Key, Kind};
use content::Digest;
use finding::Findings;
pub use finding::{Finding, Note, Rule};
pub use scope::Episode;
use scope::Scope;

#[derive(Clone, Debug)]
pub struct Options {
    /// Field manager of the operator's writes.
    pub manager: String,
    /// How long the operator may act on a policy that was just replaced.
    pub lag_ms: i64,
    /// How long a live content may be on its way to the objects before it counts as lost.
    pub settle_ms: i64,
    /// A fleet that has not converged at the end is a violation.
    pub converged: bool,
    /// How many nodes there must be at the end.
    pub nodes: Option<usize>,
    /// The source has every revision: versions can be compared for equality.
    pub every_revision: bool,
}

/// `--settle`, if nobody says otherwise.
const SETTLE_MS: i64 = 60_000;

impl Default for Options {
    fn default() -> Options {
        Options {
            manager: "lynq-operator".to_owned(),
            lag_ms: 5_000,
            settle_ms: SETTLE_MS,
            converged: false,
            nodes: None,
            every_revision: true,
        }
    }
}

/// One write of one object.
#[derive(Clone, Debug)]
pub struct Change {
    pub revision: u64,
    pub at: Timestamp,
    pub key: Key,
    /// The write made the object. An object seen first that was not made then has a past that is not judged.
    pub created: bool,
    /// None: it is gone.
    pub object: Option<Value>,
}

#[derive(Clone, Debug)]
pub enum Input {
    /// All objects of these kinds, each with its revision, as of one revision.
    Baseline {
        revision: u64,
        at: Timestamp,
        kinds: Vec<Kind>,
        objects: Vec<(Key, u64, Value)>,
    },
    Change(Change),
    /// Writes were missed. A baseline follows where the source can make one.
    Gap {
        why: String,
    },
    /// A write was seen, but not its content.
    Unreadable {
        what: String,
    },
}

/// What is stored under a key, and since which revision.
struct Stored<T> {
    revision: u64,
    it: T,
}

pub struct Audit {
    options: Options,
    now: i64,
    first: Option<(u64, Timestamp)>,
    last: (u64, Timestamp),
    changes: u64,
    seen: BTreeMap<Kind, u64>,
    gaps: Vec<String>,
    unreadable: BTreeMap<String, u64>,
    findings: Findings,
    hubs: BTreeMap<Key, Stored<ledger::Hub>>,
    scopes: BTreeMap<Key, Scope>,
    nodes: BTreeMap<Key, Stored<nodes::Node>>,
    children: BTreeMap<Key, Stored<children::Child>>,
    /// StatefulSets whose partition lynqgate moves, and the pods of any.
    sets: BTreeMap<Key, Stored<partitions::Set>>,
    pods: BTreeMap<Key, partitions::Pod>,
    /// Namespaces that are being deleted, or are gone.
    terminating: BTreeSet<String>,
    /// What each hash was seen to stand for.
    hashes: BTreeMap<String, Digest>,
    /// Kinds of which all objects were listed: what is not there is known not to be.
    listed: BTreeSet<Kind>,
    /// Objects of nodes that were seen to go, and did not come back.
    removed: BTreeSet<Key>,
    /// Nodes that are as they must not stay.
    lagging: BTreeSet<Key>,
    /// The last look at them.
    looked_at: i64,
    /// Since the last gap, nothing before it counts as having lasted.
    judged_from: i64,
    in_gap: bool,
    /// What lasted for too long and was told: the rule, of what, and since when that is so.
    told: BTreeSet<(Rule, Key, i64)>,
    /// How long what must not last did last, at most, in milliseconds.
    longest: BTreeMap<Rule, i64>,
}

impl Audit {
    pub fn new(options: Options) -> Audit {
        Audit {
            options,
            now: 0,
            first: None,
            last: (0, Timestamp::UNIX_EPOCH),
            changes: 0,
            seen: BTreeMap::new(),
            gaps: vec![],
            unreadable: BTreeMap::new(),
            findings: Findings::default(),
            hubs: BTreeMap::new(),
            scopes: BTreeMap::new(),
            nodes: BTreeMap::new(),
            children: BTreeMap::new(),
            sets: BTreeMap::new(),
            pods: BTreeMap::new(),
            terminating: BTreeSet::new(),
            hashes: BTreeMap::new(),
            listed: BTreeSet::new(),
            removed: BTreeSet::new(),
            lagging: BTreeSet::new(),
            looked_at: 0,
            judged_from: 0,
            in_gap: false,
            told: BTreeSet::new(),
            longest: BTreeMap::new(),
        }
    }

    /// The newest revision that was looked at.
    pub fn revision(&self) -> u64 {
        self.last.0
    }

    /// So far.
    pub fn violations(&self) -> u64 {
        self.findings.counts.values().sum()
    }

    pub fn observe(&mut self, input: Input) {
        match input {
            Input::Change(change) => {
                self.clock(change.revision, change.at);
                self.changes += 1;
                *self.seen.entry(change.key.kind).or_default() += 1;
                self.change(change);
            }
            Input::Baseline {
                revision,
                at,
                kinds,
                objects,
            } => {
                self.clock(revision, at);
                self.baseline(revision, &kinds, objects);
            }
            Input::Gap { why } => {
                self.in_gap = true;
                self.gaps.push(why);
            }
            Input::Unreadable { what } => *self.unreadable.entry(what).or_default() += 1,
        }
    }

    /// Time never goes back: sources that merge streams may be a little out of order.
    fn clock(&mut self, revision: u64, at: Timestamp) {
        self.first.get_or_insert((revision, at));
        self.now = self.now.max(at.as_millisecond());
        self.last = (self.last.0.max(revision), self.last.1.max(at));
        if std::mem::take(&mut self.in_gap) {
            self.judged_from = self.now;
        }
        self.look();
    }

    fn change(&mut self, change: Change) {
        let Change {
            revision,
            key,
            created,
            object,
            ..
        } = change;
        if key.kind == Kind::StatefulSet {
            self.set_written(&key, revision, object.as_ref(), true);
        }
        match (key.kind, object) {
            (Kind::Hub, Some(object)) => self.hub_written(key, revision, &object, created),
            (Kind::Hub, None) => self.hub_gone(&key, revision),
            (Kind::Form, Some(object)) => self.form_written(key, revision, &object),
            (Kind::Form, None) => self.form_gone(&key),
            (Kind::Node, Some(object)) => self.node_written(key, revision, &object, created),
            (Kind::Node, None) => self.node_gone(&key, revision),
            (Kind::Namespace, object) => self.namespace_written(&key, object.as_ref()),
            (Kind::Pod, object) => self.pod_written(key, object.as_ref()),
            (_, Some(object)) => self.child_written(key, revision, object, created),
            (_, None) => self.child_gone(&key),
        }
    }

    /// Loads what is there without judging how it came about.
    fn baseline(&mut self, revision: u64, kinds: &[Kind], mut objects: Vec<(Key, u64, Value)>) {
        let is_gone =
            |key: &&Key| kinds.contains(&key.kind) && !objects.iter().any(|(k, ..)| k == *key);
        let gone: Vec<Key> = self
            .hubs
            .keys()
            .chain(self.nodes.keys())
            .chain(self.children.keys())
            .chain(self.scopes.keys().filter(|key| key.kind == Kind::Form))
            .filter(is_gone)
            .cloned()
            .collect();
        for key in gone {
            match key.kind {
                Kind::Hub => self.hub_gone(&key, revision),
                Kind::Node => self.node_gone(&key, revision),
                Kind::Form => self.form_gone(&key),
                _ => self.child_gone(&key),
            }
        }
        self.pods.retain(|_, _| !kinds.contains(&Kind::Pod));
        self.sets.retain(|_, _| !kinds.contains(&Kind::StatefulSet));
        self.listed.extend(kinds);
        // Windows and ledgers first: what is in flight is told by them.
        objects.sort_by(|one, other| one.0.cmp(&other.0));
        let mut nodes = vec![];
        for (key, version, object) in objects {
            *self.seen.entry(key.kind).or_default() += 1;
            match key.kind {
                Kind::Hub => self.load_hub(key, version, &object),
                Kind::Form => self.form_written(key, version, &object),
                Kind::Node => {
                    nodes.push(key.clone());
                    self.load_node(key, version, &object);
                }
                Kind::Namespace => self.namespace_written(&key, Some(&object)),
                Kind::Pod => self.pod_written(key, Some(&object)),
                Kind::StatefulSet => {
                    self.set_written(&key, version, Some(&object), false);
                    self.load_child(key, version, object);
                }
                _ => self.load_child(key, version, object),
            }
        }
        if kinds.iter().any(|kind| kind.is_child()) {
            nodes = self.nodes.keys().cloned().collect();
        }
        for node in nodes {
            self.load_flight(&node);
        }
    }

    fn form_written(&mut self, key: Key, revision: u64, object: &Value) {
        let now = self.now;
        let hub = view::hub_of_form(&key, object);
        let scope = self.scope(&key);
        scope.set_policy(now, revision, view::Policy::of(object));
        scope.hub = hub;
        scope.gone = object.pointer("/metadata/deletionTimestamp").is_some();
        scope.complete_since = match scope.complete_since {
            _ if scope.gone || !view::says_complete(object) => None,
            None => {
                scope.complete_revision = revision;
                Some(now)
            }
            since => since,
        };
    }

    fn form_gone(&mut self, key: &Key) {
        let scope = self.scope(key);
        scope.gone = true;
        scope.complete_since = None;
    }

    /// The window of a form or hub; one that was never seen is made, and known not to be known.
    fn scope(&mut self, key: &Key) -> &mut Scope {
        let now = self.now;
        self.scopes
            .entry(key.clone())
            .or_insert_with(|| Scope::new(now))
    }
}
