//! LynqNodes: what each write of one changed about what is live, and what the node's state is since.

use std::collections::VecDeque;
use std::rc::Rc;

use serde_json::Value;

use super::content::Content;
use super::finding::Rule;
use super::late::Since;
use super::release::Class;
use super::scope::Member;
use super::view::{Live, NodeView};
use super::{Audit, Stored};
use crate::kinds::{Key, Kind};

pub struct Node {
    pub view: NodeView,
    /// The live content, where it is known.
    pub live: Option<Rc<Content>>,
    /// Contents that were live before, newest last.
    pub past: VecDeque<Rc<Content>>,
    /// When the live content last changed.
    pub live_since: i64,
    pub held_since: Option<i64>,
    pub since: Since,
    /// It was seen to be created, and so was whatever it has.
    pub from_birth: bool,
    pub flight: Option<Flight>,
    /// Why it is not settled; empty when it is.
    pub unsettled: String,
    pub log: VecDeque<String>,
    pub form: Key,
    pub hub: Key,
}

/// Released, and not settled since.
#[derive(Clone, Debug)]
pub struct Flight {
    pub class: Class,
    pub revision: u64,
}

const LOG_MAX: usize = 5;
const PAST_MAX: usize = 16;

impl Audit {
    pub(super) fn load_node(&mut self, key: Key, revision: u64, object: &Value) {
        let before = self.nodes.remove(&key);
        let view = NodeView::of(&key, object, before.as_ref().map(|stored| &stored.it.view));
        let same = before.filter(|stored| stored.it.view.uid == view.uid);
        let mut node = self.node(&key, view);
        node.remember(format!("revision {revision}: found with {}", node.show()));
        if let Some(same) = same {
            node.past = same.it.past;
            node.past.extend(same.it.live);
            if same.it.view.live == node.view.live {
                node.flight = same.it.flight;
            }
        }
        self.put(key, revision, node);
    }

    /// After a baseline: a node with a slot for what is live, that has not settled, is in flight.
    pub(super) fn load_flight(&mut self, key: &Key) {
        self.assess(key);
        let Some(node) = self.nodes.get(key).map(|stored| &stored.it) else {
            return;
        };
        let slot = self
            .hubs
            .get(&node.hub)
            .and_then(|hub| hub.it.slots.get(&node.view.uid));
        if node.unsettled.is_empty() || node.flight.is_some() {
            return;
        }
        if let Some(slot) = slot.filter(|slot| node.view.live == Live::Hash(slot.hash.clone())) {
            let class = Class::Slot {
                repair: slot.repair,
            };
            let revision = self.last.0;
            self.take_off(key, class, revision);
        }
    }

    pub(super) fn node_written(&mut self, key: Key, revision: u64, object: &Value, created: bool) {
        let Some(old) = self.nodes.remove(&key) else {
            if !created {
                self.load_node(key.clone(), revision, object);
                return self.load_flight(&key);
            }
            return self.node_created(key, revision, object);
        };
        let view = NodeView::of(&key, object, Some(&old.it.view));
        if view.uid != old.it.view.uid {
            self.leave(&old.it);
            return self.node_created(key, revision, object);
        }
        let mut node = self.node(&key, view);
        node.past = old.it.past.clone();
        node.log = old.it.log.clone();
        node.flight = old.it.flight.clone();
        node.live_since = old.it.live_since;
        node.since = old.it.since.clone();
        node.from_birth = old.it.from_birth;
        node.unsettled = old.it.unsettled.clone();
        node.held_since = if node.view.held() {
            old.it.held_since.or(Some(self.now))
        } else {
            None
        };
        let content_changed = node.view.desired.digest != old.it.view.desired.digest;
        let hash_changed = node.view.desired_hash != old.it.view.desired_hash;
        if content_changed && !hash_changed {
            node.remember(format!(
                "revision {revision}: the content changed and the desired hash did not"
            ));
            self.findings.note(
                "a write went past the gate: content changed and the desired hash did not",
                || format!("{key} at revision {revision}"),
            );
        }
        let live_changed = node.view.live != old.it.view.live;
        if live_changed || hash_changed {
            node.remember(format!("revision {revision}: {}", node.show()));
        }
        let live_digest = |node: &Node| node.live.as_ref().map(|content| content.digest);
        if live_digest(&old.it) != live_digest(&node) {
            node.live_since = self.now;
            if let Some(content) = &old.it.live {
                node.past.push_back(content.clone());
                if node.past.len() > PAST_MAX {
                    node.past.pop_front();
                }
            }
        }
        let told_to_go = node.view.deleting && !old.it.view.deleting;
        let (form, hub) = (node.form.clone(), node.hub.clone());
        if old.it.form != form || old.it.hub != hub {
            self.leave(&old.it);
        }
        self.put(key.clone(), revision, node);
        self.check_held(&key, revision);
        if live_changed {
            self.live_changed(&key, revision, Some((&old.it, old.revision)));
        }
        self.assess(&key);
        if told_to_go {
            self.land(&key);
            self.node_deleted(&key, revision, &hub, &form);
        }
    }

    fn node_created(&mut self, key: Key, revision: u64, object: &Value) {
        let view = NodeView::of(&key, object, None);
        let mut node = self.node(&key, view);
        node.from_birth = true;
        node.remember(format!("revision {revision}: created with {}", node.show()));
        let is_live = matches!(node.view.live, Live::Hash(_));
        self.put(key.clone(), revision, node);
        self.check_held(&key, revision);
        if is_live {
            self.live_changed(&key, revision, None);
        }
        self.assess(&key);
    }

    pub(super) fn node_gone(&mut self, key: &Key, revision: u64) {
        self.lagging.remove(key);
        if let Some(old) = self.nodes.remove(key) {
            self.leave(&old.it);
            if !old.it.view.deleting {
                self.node_deleted(key, revision, &old.it.hub, &old.it.form);
            }
        }
    }

    /// The state of a node whose past is not looked at.
    fn node(&mut self, key: &Key, view: NodeView) -> Node {
        let form = Key::new(Kind::Form, &key.namespace, &view.form);
        let hub = self.hub_of(key, view.hub.as_deref(), &form);
        let live = self.live_content(&view);
        Node {
            live,
            past: VecDeque::new(),
            live_since: self.now,
            held_since: view.held().then_some(self.now),
            since: Since::default(),
            from_birth: false,
            flight: None,
            unsettled: "not looked at yet".to_owned(),
            log: VecDeque::new(),
            form,
            hub,
            view,
        }
    }

    fn put(&mut self, key: Key, revision: u64, node: Node) {
        let now = self.now;
        let (uid, there) = (node.view.uid.clone(), !node.view.deleting);
        for scope in [node.form.clone(), node.hub.clone()] {
            self.scope(&scope).set_node(now, revision, &uid, there);
        }
        self.nodes.insert(key, Stored { revision, it: node });
    }

    /// The node no longer counts where it counted.
    fn leave(&mut self, old: &Node) {
        let (now, revision) = (self.now, self.last.0);
        for scope in [&old.form, &old.hub] {
            let scope = self.scope(scope);
            scope.set_node(now, revision, &old.view.uid, false);
            scope.land(now, &old.view.uid);
            scope.set_non_ready(now, &old.view.uid, false);
        }
        self.rest(&[old.form.clone(), old.hub.clone()]);
    }

    /// Content by its hash, as it was first seen to stand for. A content under a hash that stood for another is not known.
    fn live_content(&mut self, view: &NodeView) -> Option<Rc<Content>> {
        if let Some(hash) = view.desired_hash.clone() {
            self.hashes.entry(hash).or_insert(view.desired.digest);
        }
        let Live::Hash(hash) = &view.live else {
            return None;
        };
        let known = self.hashes.get(hash).copied();
        let candidates = [
            view.released.as_ref().filter(|_| view.held()),
            Some(&view.desired),
        ];
        let is_it = |content: &&Rc<Content>| known.is_none_or(|digest| digest == content.digest);
        // Without `released`, a held node's live content cannot be guessed from what is desired.
        let guess = |content: &&Rc<Content>| {
            known.is_some() || !Rc::ptr_eq(content, &view.desired) || !view.held()
        };
        let found = candidates
            .into_iter()
            .flatten()
            .filter(guess)
            .find(is_it)?
            .clone();
        self.hashes.entry(hash.clone()).or_insert(found.digest);
        Some(found)
    }

    /// `released` is there only while held. (While held it may be missing: another version of the CRD drops it, and then
    /// the live content is unknown.)
    fn check_held(&mut self, key: &Key, revision: u64) {
        let Some(node) = self.nodes.get(key).map(|stored| &stored.it) else {
            return;
        };
        let Live::Hash(_) = node.view.live else {
            return;
        };
        if node.view.held() && !node.view.has_released {
            self.findings
                .note("a held node without its released content", || {
                    format!("{key} at revision {revision}")
                });
        } else if !node.view.held() && node.view.has_released {
            let evidence = node.evidence();
            let what =
                "the hashes say that it is not held, and spec.released that it is".to_owned();
            self.violation(Rule::Held, revision, key, what, evidence);
        }
    }

    pub(super) fn take_off(&mut self, key: &Key, class: Class, revision: u64) {
        let now = self.now;
        let Some(node) = self.nodes.get_mut(key).map(|stored| &mut stored.it) else {
            return;
        };
        node.flight = Some(Flight {
            class: class.clone(),
            revision,
        });
        let uid = node.view.uid.clone();
        for scope in [node.form.clone(), node.hub.clone()] {
            let name = key.name.clone();
            let scope = self.scope(&scope);
            match class {
                Class::Slot { repair } => scope.take_off(
                    now,
                    revision,
                    &uid,
                    Member {
                        name,
                        revision,
                        repair,
                    },
                ),
                Class::Unexplained => scope.take_off(
                    now,
                    revision,
                    &uid,
                    Member {
                        name,
                        revision,
                        repair: false,
                    },
                ),
                Class::Forced | Class::Ungated | Class::TakenOver => {
                    scope.take_off_aside(now, &uid)
                }
            }
        }
    }

    pub(super) fn land(&mut self, key: &Key) {
        let now = self.now;
        let Some(node) = self.nodes.get_mut(key).map(|stored| &mut stored.it) else {
            return;
        };
        node.flight = None;
        let (uid, scopes) = (node.view.uid.clone(), [node.form.clone(), node.hub.clone()]);
        for scope in &scopes {
            let scope = self.scope(scope);
            scope.land(now, &uid);
            scope.set_non_ready(now, &uid, false);
        }
        self.rest(&scopes);
    }

    /// Ends the episode of each window in which nothing is held and nothing in flight.
    fn rest(&mut self, scopes: &[Key]) {
        for scope in scopes {
            let Some(it) = self.scopes.get(scope) else {
                continue;
            };
            if !it.has_episode() || !it.flight().is_empty() {
                continue;
            }
            let waits = |node: &Node| {
                (node.form == *scope || node.hub == *scope)
                    && node.view.held()
                    && !node.view.deleting
            };
            if !self.nodes.values().any(|stored| waits(&stored.it)) {
                self.scope(scope).rest();
            }
        }
    }
}

impl Node {
    pub fn remember(&mut self, line: String) {
        self.log.push_back(line);
        if self.log.len() > LOG_MAX {
            self.log.pop_front();
        }
    }

    pub fn evidence(&self) -> Vec<String> {
        self.log.iter().cloned().collect()
    }

    fn show(&self) -> String {
        let mut text = format!(
            "desired {}, live {}",
            self.view.desired_hash.as_deref().unwrap_or("(absent)"),
            self.view.live.text()
        );
        for (name, marker) in [
            ("release", &self.view.release),
            ("ungated", &self.view.ungated),
        ] {
            if let Some(marker) = marker {
                text.push_str(&format!(", {name} {marker}"));
            }
        }
        if self.view.forced {
            text.push_str(", forced");
        }
        text
    }
}
