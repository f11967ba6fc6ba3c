//! Objects that belong to nodes: who wrote what into them, whether they run what is live, and when a node has settled.

use std::rc::Rc;

use serde_json::Value;

use super::content::{Content, Digest};
use super::fields::{self, Claims, Path, at, show};
use super::finding::Rule;
use super::nodes::Node;
use super::ready::is_ready;
use super::view::{Live, owner_of};
use super::{Audit, Stored};
use crate::kinds::{Key, Kind};

pub struct Child {
    object: Value,
    owner: Option<Key>,
    ready: bool,
    /// Since when a workload is not rolled out.
    open_since: Option<i64>,
}

/// The newest of what the operator's manager wrote into an object in one write.
struct Written {
    changed: Vec<(Path, bool)>,
    removed: Vec<Path>,
}

impl Audit {
    pub(super) fn load_child(&mut self, key: Key, revision: u64, object: Value) {
        let child = Child {
            owner: owner_of(&key, &object),
            ready: is_ready(key.kind, &object),
            open_since: None,
            object,
        };
        // What belongs to no node is not kept.
        if let Some(owner) = child.owner.clone() {
            self.children.insert(
                key,
                Stored {
                    revision,
                    it: child,
                },
            );
            self.assess(&owner);
        }
    }

    pub(super) fn child_written(&mut self, key: Key, revision: u64, object: Value, created: bool) {
        self.removed.remove(&key);
        let old = self.children.remove(&key).map(|stored| stored.it);
        if old.is_none() && !created {
            return self.load_child(key, revision, object);
        }
        let owner = owner_of(&key, &object);
        let ready = is_ready(key.kind, &object);
        let mut open_since = old.as_ref().and_then(|old| old.open_since);
        let is_workload = !matches!(key.kind, Kind::ConfigMap | Kind::Service);
        if let Some(owner) = owner.as_ref().filter(|_| is_workload) {
            self.time_workload(owner, ready, &mut open_since);
        }
        if let Some(owner) = &owner {
            let old = old.as_ref().map(|old| &old.object);
            self.check_write(&key, revision, owner, old, &object);
        }
        let former = old
            .and_then(|old| old.owner)
            .filter(|former| Some(former) != owner.as_ref());
        let it = Child {
            object,
            owner: owner.clone(),
            ready,
            open_since,
        };
        if owner.is_some() {
            self.children.insert(key, Stored { revision, it });
        }
        for node in [former, owner].into_iter().flatten() {
            self.assess(&node);
        }
    }

    pub(super) fn child_gone(&mut self, key: &Key) {
        let Some(old) = self.children.remove(key).map(|stored| stored.it) else {
            return;
        };
        let Some(owner) = old.owner else { return };
        if !self.listed.contains(&key.kind) {
            self.removed.insert(key.clone());
        }
        let wanted = self.nodes.get(&owner).is_some_and(|node| {
            !node.it.view.deleting
                && node
                    .it
                    .live
                    .as_ref()
                    .is_some_and(|live| live.resources.contains_key(key))
        });
        if wanted && !self.is_terminating(key) {
            let revision = self.last.0;
            self.findings
                .note("an object was deleted although its node wants it", || {
                    format!("{key} at revision {revision}")
                });
        }
        self.assess(&owner);
    }

    fn time_workload(&mut self, owner: &Key, ready: bool, open_since: &mut Option<i64>) {
        let now = self.now;
        let Some(scopes) = self
            .nodes
            .get(owner)
            .map(|node| [node.it.form.clone(), node.it.hub.clone()])
        else {
            return;
        };
        match (ready, *open_since) {
            (false, None) => {
                *open_since = Some(now);
                scopes
                    .iter()
                    .for_each(|scope| self.scope(scope).workload_began(now));
            }
            (true, Some(since)) => {
                *open_since = None;
                scopes
                    .iter()
                    .for_each(|scope| self.scope(scope).workload_done(now, since));
            }
            _ => {}
        }
    }

    /// What the operator wrote must be what is live, or was: an object never carries what was not let through.
    fn check_write(
        &mut self,
        key: &Key,
        revision: u64,
        owner: &Key,
        old: Option<&Value>,
        new: &Value,
    ) {
        let Some(written) = self.written(key, old, new) else {
            return;
        };
        if written.changed.is_empty() && written.removed.is_empty() {
            return;
        }
        let Some(node) = self.nodes.get(owner).map(|stored| &stored.it) else {
            return self
                .findings
                .note("an object was written after its node was gone", || {
                    format!("{key} at revision {revision}")
                });
        };
        let allows = |content: &Content| written.is_of(content, key, new);
        if node
            .live
            .as_ref()
            .is_some_and(|live| allows(live) && !written.removes_ahead(node, key))
        {
            return;
        }
        if written.changed.is_empty() && !written.removes_ahead(node, key) {
            // Who removed a field does not show.
            return;
        }
        if node.past.iter().any(|past| allows(past)) && !written.changed.is_empty() {
            return self.findings.note(
                "an object was given content that was live before, late; that is to be mended",
                || format!("{key} at revision {revision}"),
            );
        }
        let is_held = node.view.held() && allows(&node.view.desired);
        let (what, evidence) = premature(node, key, &written, old, new, is_held);
        let evidence = [evidence, node.evidence()].concat();
        self.violation(Rule::Premature, revision, key, what, evidence);
    }

    fn written(&mut self, key: &Key, old: Option<&Value>, new: &Value) -> Option<Written> {
        let Some(owned) = fields::owned_by(new, &self.options.manager) else {
            *self
                .unreadable
                .entry(format!("managedFields of {}s", key.kind.name()))
                .or_default() += 1;
            return None;
        };
        let before = |path: &Path| old.and_then(|old| at(old, path));
        let changed = owned
            .iter()
            .filter(|leaf| {
                at(new, &leaf.path).is_some() && at(new, &leaf.path) != before(&leaf.path)
            })
            .map(|leaf| (leaf.path.clone(), leaf.applied))
            .collect();
        let was = old
            .and_then(|old| fields::owned_by(old, &self.options.manager))
            .unwrap_or_default();
        let removed = was
            .into_iter()
            .filter(|leaf| before(&leaf.path).is_some() && at(new, &leaf.path).is_none())
            .map(|leaf| leaf.path)
            .collect();
        Some(Written { changed, removed })
    }

    /// Whether the node runs what is live, now; its flight ends when it does.
    pub(super) fn assess(&mut self, key: &Key) {
        let unsettled = self.unsettled(key);
        let (broken, lost) = match unsettled.is_empty() {
            true => (false, vec![]),
            false => (self.is_known(key), self.lost(key)),
        };
        let lost = lost.into_iter().map(|(object, _)| object).collect();
        let now = self.now;
        let Some(node) = self.nodes.get_mut(key).map(|stored| &mut stored.it) else {
            return;
        };
        let settled = unsettled.is_empty();
        node.unsettled = unsettled;
        let (unexplained, open) = (node.is_unexplained(), node.is_open(broken));
        node.since.update(now, unexplained, open, lost);
        match node.since.is_none() {
            true => drop(self.lagging.remove(key)),
            false => drop(self.lagging.insert(key.clone())),
        }
        let (uid, scopes) = (node.view.uid.clone(), [node.form.clone(), node.hub.clone()]);
        let non_ready = !settled && node.live.is_some() && !node.view.deleting;
        let in_flight = node.flight.is_some();
        for scope in &scopes {
            self.scope(scope).set_non_ready(now, &uid, non_ready);
        }
        if settled && in_flight {
            self.land(key);
        }
    }

    /// Why the node has not settled; empty when it has.
    pub(super) fn unsettled(&self, key: &Key) -> String {
        self.departs(key, true)
    }

    /// What of the node's objects is not as its live content says, ready or not.
    pub(super) fn apart(&self, key: &Key) -> String {
        self.departs(key, false)
    }

    fn departs(&self, key: &Key, ready: bool) -> String {
        let Some(node) = self.nodes.get(key).map(|stored| &stored.it) else {
            return String::new();
        };
        let Some(live) = &node.live else {
            return match node.view.live {
                Live::Nothing => "nothing of it is live yet".to_owned(),
                _ => "its live content is not known".to_owned(),
            };
        };
        for (object, resource) in &live.resources {
            let Some(child) = self.children.get(object).map(|stored| &stored.it) else {
                if resource.hands_off {
                    continue;
                }
                return format!("{object} is not there");
            };
            if child.owner.as_ref() != Some(key) {
                return format!("{object} is not this node's");
            }
            if let Some(path) = resource
                .differences(&child.object, &self.options.manager)
                .first()
            {
                return format!("{object} differs from what is live at {}", show(path));
            }
            if ready && resource.wait_for_ready && !child.ready {
                return format!("{object} is not ready");
            }
        }
        String::new()
    }

    /// What is not there may be there unseen, where the source began in the middle.
    fn is_absent(&self, node: &Node, object: &Key) -> bool {
        node.from_birth || self.listed.contains(&object.kind) || self.removed.contains(object)
    }

    /// Its live content, and all of its objects, or that they are not there.
    fn is_known(&self, key: &Key) -> bool {
        let node = self.nodes.get(key).map(|stored| &stored.it);
        let Some((node, live)) = node.and_then(|node| Some((node, node.live.as_ref()?))) else {
            return false;
        };
        let mut objects = live.resources.keys();
        objects.all(|object| self.children.contains_key(object) || self.is_absent(node, object))
    }

    /// Objects of the node that do not say what has been live for long, by no fault of another manager.
    pub(super) fn lost(&self, key: &Key) -> Vec<(Key, String)> {
        let Some(node) = self.nodes.get(key).map(|stored| &stored.it) else {
            return vec![];
        };
        let Some(live) = node.live.as_ref().filter(|_| !node.view.deleting) else {
            return vec![];
        };
        let mut lost = vec![];
        for (object, resource) in &live.resources {
            if resource.hands_off || resource.depends {
                continue;
            }
            let Some(child) = self.children.get(object).map(|stored| &stored.it) else {
                if self.is_absent(node, object) && !self.is_terminating(object) {
                    lost.push((object.clone(), "it is not there".to_owned()));
                }
                continue;
            };
            if child.owner.as_ref() != Some(key) {
                continue;
            }
            let claims = Claims::of(&child.object, &self.options.manager);
            let paths = resource.differences(&child.object, &self.options.manager);
            if resource.conflicts(&paths, &child.object, &claims).is_some() {
                continue;
            }
            // What is not there nobody owns, and nothing keeps the operator from writing it.
            let is_ours = |path: &&Path| claims.own(path) || at(&child.object, path).is_none();
            if let Some(path) = paths.iter().find(is_ours) {
                lost.push((object.clone(), format!("it differs at {}", show(path))));
            }
        }
        lost
    }
}

impl Written {
    /// Whether all that was written is what this content says of the object.
    fn is_of(&self, content: &Content, key: &Key, object: &Value) -> bool {
        content.resources.get(key).is_some_and(|resource| {
            self.changed
                .iter()
                .all(|(path, applied)| resource.agrees_at(object, path, *applied))
        })
    }

    /// What was removed is what the held content leaves out, and the live one still names.
    fn removes_ahead(&self, node: &Node, key: &Key) -> bool {
        let Some(live) = node.live.as_ref().and_then(|live| live.resources.get(key)) else {
            return false;
        };
        let Some(desired) = node
            .view
            .desired
            .resources
            .get(key)
            .filter(|_| node.view.held())
        else {
            return false;
        };
        self.removed
            .iter()
            .any(|path| live.names(path) && !desired.names(path))
    }
}

/// Values are not shown: they may be secret. An image is not, and says most.
fn premature(
    node: &Node,
    key: &Key,
    written: &Written,
    old: Option<&Value>,
    new: &Value,
    is_held: bool,
) -> (String, Vec<String>) {
    let what = if is_held {
        "the operator gave it content that its node still holds"
    } else if node.live.is_none() {
        "the operator wrote it although nothing is known to be live on its node"
    } else {
        "the operator gave it content that was never live on its node"
    };
    let shown =
        |object: Option<&Value>, path: &Path| match object.and_then(|object| at(object, path)) {
            None => "(absent)".to_owned(),
            Some(value) if path.last().is_some_and(|step| step == "f:image") => {
                value.as_str().unwrap_or_default().to_owned()
            }
            Some(value) => format!("(sha256 {})", Digest::of_value(value)),
        };
    let resource = |content: Option<&Rc<Content>>| {
        content
            .and_then(|content| content.resources.get(key))
            .cloned()
    };
    let live = resource(node.live.as_ref());
    let changed = written.changed.iter().filter(|(path, applied)| {
        live.as_ref()
            .is_none_or(|live| !live.agrees_at(new, path, *applied))
    });
    let paths = changed
        .map(|(path, _)| path)
        .chain(&written.removed)
        .take(5);
    let lines = paths.map(|path| {
        format!(
            "{}: {} to {}",
            show(path),
            shown(old, path),
            shown(Some(new), path)
        )
    });
    (what.to_owned(), lines.collect())
}
