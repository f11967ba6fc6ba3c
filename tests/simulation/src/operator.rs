//! One operator process: what it remembers, and how watches and replies get into its caches. It mirrors
//! `cluster::nodes`, `cluster::catalog`, `cluster::children` and the event handlers of `controller::World`, without
//! their locks and requests.

pub mod hub_loop;
pub mod node_loop;
pub mod release_loop;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use lynqgate::api::form::{FormSpec, FormStatus};
use lynqgate::decide::desired::Desired;
use lynqgate::decide::node::NodeDigest;
use lynqgate::decide::node_plan::status::HoldReason;
use lynqgate::decide::version;

use crate::cluster::{Cluster, Event, Form, Hub, Kind, Object, Workload};
use crate::witness::{Life, View};

pub const START: i64 = 1_800_000_000_000;

pub fn timestamp(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(START + ms).expect("within the calendar")
}

/// What the hub loop made of a form (`controller::Rendered`).
#[derive(Clone, Debug, Default)]
pub struct Rendered {
    pub generation: i64,
    pub same_since: i64,
    pub writing: bool,
    pub spec: Option<Arc<FormSpec>>,
    pub desired: Option<Arc<Desired>>,
    pub unwritten: BTreeSet<String>,
}

impl Rendered {
    pub fn told(status: &FormStatus) -> Self {
        let generation = status.observed_generation.unwrap_or_default();
        Rendered {
            generation,
            same_since: generation,
            ..Rendered::default()
        }
    }

    pub fn is_behind(&self, node: &NodeDigest) -> bool {
        let desired = self.desired.as_ref().filter(|_| !self.writing);
        desired.is_some_and(|desired| desired.is_behind(node))
            && !self.unwritten.contains(&node.key.name)
    }
}

/// What the hub and its forms say (`controller::Said`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Said(Vec<(String, i64, bool)>);

/// How far one watch is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    pub listed: bool,
    /// The next event of the log to be delivered.
    pub next: usize,
    /// Nothing is delivered before this time.
    pub stalled_until: u64,
    /// The connection died: the events that come are lost, and a new list ends it.
    pub lost: bool,
}

/// When a request was sent.
#[derive(Clone, Copy)]
pub struct Asked([u64; 4]);

#[derive(Default)]
pub struct Process {
    pub id: usize,
    pub boot: u32,
    pub alive: bool,
    /// Does nothing before this time; then it goes on where it was.
    pub frozen_until: u64,
    pub clock_offset: i64,
    pub cursors: [Cursor; 4],
    /// How many lists of each kind there were.
    pub lists: [u64; 4],

    pub nodes: BTreeMap<String, Arc<NodeDigest>>,
    pub hub: Option<Arc<Hub>>,
    pub forms: BTreeMap<String, Arc<Form>>,
    /// The hub and the forms as their last events had them (`Catalog`).
    pub told: (Option<Arc<Hub>>, BTreeMap<String, Arc<Form>>),
    pub children: BTreeMap<String, Arc<Workload>>,

    /// `cluster::gone`, without its end.
    pub gone: BTreeSet<String>,
    /// Those of them that a list did not have.
    pub missed: BTreeSet<String>,

    pub rendered: BTreeMap<String, Rendered>,
    pub deletions_held: Option<bool>,
    /// Of nodes of which it is not known what runs: for which content, and whether its release would change nothing.
    pub unchanged: BTreeMap<String, (String, bool)>,
    /// Nodes that this process has looked at.
    pub looked: BTreeSet<String>,
    pub holds: BTreeMap<String, HoldReason>,

    pub release: release_loop::Loop,
    pub hub_loop: hub_loop::Loop,
    pub node_loop: node_loop::Loop,
    /// The release loop found the ledger empty because it has forgotten it (a planted bug).
    pub forgetful: bool,
}

impl Process {
    /// A process with empty memory.
    pub fn started(id: usize, boot: u32, clock_offset: i64) -> Self {
        Process {
            id,
            boot,
            alive: true,
            clock_offset,
            forgetful: true,
            ..Process::default()
        }
    }

    pub fn life(&self) -> Life {
        Life {
            process: self.id,
            boot: self.boot,
        }
    }

    pub fn now(&self, time: u64) -> Timestamp {
        timestamp(time as i64 + self.clock_offset)
    }

    /// The loops run once these are listed (`World::lead`).
    pub fn leads(&self) -> bool {
        [Kind::Node, Kind::Hub, Kind::Form]
            .iter()
            .all(|kind| self.cursors[*kind as usize].listed)
    }

    /// Since which revision everything that it knows holds.
    pub fn view(&self, cluster: &Cluster) -> View {
        let behind = self.behind(cluster, &[Kind::Node, Kind::Hub, Kind::Form]);
        View {
            since: behind.unwrap_or(cluster.revision),
            said: 0,
            current: behind.is_none() && self.children_current(cluster),
        }
    }

    /// Since which revision the hub and its forms say what they say as far as it knows.
    pub fn said_since(&self, cluster: &Cluster) -> u64 {
        let behind = self.behind(cluster, &[Kind::Hub, Kind::Form]);
        behind.unwrap_or(cluster.revision)
    }

    /// The revision before the first event of these kinds that it has not seen; None: it has seen all.
    fn behind(&self, cluster: &Cluster, kinds: &[Kind]) -> Option<u64> {
        let unseen = kinds.iter().filter_map(|kind| {
            let next = self.cursors[*kind as usize].next;
            cluster.log[*kind as usize].get(next)
        });
        unseen.map(|event| event.revision.saturating_sub(1)).min()
    }

    /// `World::said`
    pub fn said(&self) -> Said {
        let hub = self.hub.iter();
        let hub = hub.map(|hub| (String::new(), hub.generation, hub.forced));
        let forms = self.forms.values();
        let forms = forms.map(|form| (form.uid.clone(), form.generation, form.forced));
        Said(hub.chain(forms).collect())
    }

    fn children_current(&self, cluster: &Cluster) -> bool {
        self.cursors[Kind::Child as usize].next == cluster.log[Kind::Child as usize].len()
    }

    /// A list, as of the first `events` of the log; what it does not name is gone.
    pub fn list(&mut self, cluster: &Cluster, kind: Kind, events: usize, time: u64) {
        let all = cluster.at(kind, events);
        let gone: Vec<String> = match kind {
            Kind::Node => self
                .nodes
                .keys()
                .filter(|name| !all.contains_key(*name))
                .cloned()
                .collect(),
            Kind::Form => self
                .forms
                .keys()
                .filter(|name| !all.contains_key(*name))
                .cloned()
                .collect(),
            Kind::Child => self
                .children
                .keys()
                .filter(|name| !all.contains_key(*name))
                .cloned()
                .collect(),
            Kind::Hub => vec![],
        };
        for (name, object) in all {
            self.take(&name, object, time);
        }
        for name in gone {
            let node = self.nodes.get(&name).filter(|_| kind == Kind::Node);
            self.missed.extend(node.map(|node| node.uid.clone()));
            self.drop_object(kind, &name, time);
        }
        self.lists[kind as usize] += 1;
        let cursor = &mut self.cursors[kind as usize];
        *cursor = Cursor {
            listed: true,
            next: events,
            ..Cursor::default()
        };
        if kind == Kind::Child {
            let names: Vec<String> = self.nodes.keys().cloned().collect();
            names
                .iter()
                .for_each(|name| self.node_loop.wake(name, time));
        }
    }

    pub fn event(&mut self, event: &Event, time: u64) {
        if !event.deleted {
            return self.take(&event.name, event.object.clone(), time);
        }
        let same = match &event.object {
            Object::Node(node) => self
                .nodes
                .get(&event.name)
                .is_some_and(|known| known.uid == node.digest.uid),
            Object::Form(form) => self
                .forms
                .get(&event.name)
                .is_some_and(|known| known.uid == form.uid),
            Object::Child(child) => self
                .children
                .get(&event.name)
                .is_some_and(|known| known.uid == child.uid),
            Object::Hub(_) => false,
        };
        let kind = match &event.object {
            Object::Node(_) => Kind::Node,
            Object::Form(_) => Kind::Form,
            Object::Child(_) => Kind::Child,
            Object::Hub(_) => Kind::Hub,
        };
        let uid = match &event.object {
            Object::Node(node) => node.digest.uid.clone(),
            Object::Form(form) => form.uid.clone(),
            Object::Child(child) => child.uid.clone(),
            Object::Hub(_) => String::new(),
        };
        self.missed.remove(&uid);
        self.gone.insert(uid);
        if same {
            self.drop_object(kind, &event.name, time);
        }
    }

    fn take(&mut self, name: &str, object: Object, time: u64) {
        match object {
            Object::Node(node) => {
                self.gone.remove(&node.digest.uid);
                let before = self.nodes.get(name).map(|known| known.uid.clone());
                self.gone
                    .extend(before.filter(|uid| *uid != node.digest.uid));
                self.put_node(&node.digest);
                self.node_loop.wake(name, time);
                self.release.wake(time);
                if self.is_behind(&node.digest) {
                    self.hub_loop.wake(time);
                }
            }
            Object::Hub(hub) => {
                self.learn_hub(&hub);
                let before = self.told.0.replace(hub.clone());
                let news = |f: &dyn Fn(&Hub, &Hub) -> bool| {
                    before.as_ref().is_none_or(|before| f(before, &hub))
                };
                if news(&|a, b| {
                    a.generation != b.generation
                        || a.confirmation != b.confirmation
                        || a.forced != b.forced
                }) {
                    self.hub_loop.wake(time);
                }
                if news(&|a, b| {
                    a.slots != b.slots
                        || a.generation != b.generation
                        || a.confirmation != b.confirmation
                        || a.forced != b.forced
                }) {
                    self.release.wake(time);
                }
            }
            Object::Form(form) => {
                self.gone.remove(&form.uid);
                let before = self.forms.get(name).map(|known| known.uid.clone());
                self.gone.extend(before.filter(|uid| *uid != form.uid));
                self.put_form(&form);
                let before = self.told.1.insert(name.to_owned(), form.clone());
                self.release.wake(time);
                if before.is_none_or(|before| {
                    before.uid != form.uid
                        || before.generation != form.generation
                        || before.forced != form.forced
                        || before.resumed_at != form.resumed_at
                }) {
                    self.hub_loop.wake(time);
                }
            }
            Object::Child(child) => {
                self.gone.remove(&child.uid);
                if self.put_child(&child) {
                    self.node_loop.wake(name, time);
                }
            }
        }
    }

    pub fn is_behind(&self, node: &NodeDigest) -> bool {
        let form = self.rendered.get(&node.form).filter(|_| !node.deleting);
        form.is_some_and(|form| form.is_behind(node))
    }

    fn drop_object(&mut self, kind: Kind, name: &str, time: u64) {
        match kind {
            Kind::Node => {
                self.gone
                    .extend(self.nodes.remove(name).map(|gone| gone.uid.clone()));
                self.node_loop.wake(name, time);
                self.hub_loop.wake(time);
                self.release.wake(time);
            }
            Kind::Form => {
                self.gone
                    .extend(self.forms.remove(name).map(|gone| gone.uid.clone()));
                self.told.1.remove(name);
                self.rendered.remove(name);
                self.release.wake(time);
                self.hub_loop.wake(time);
            }
            Kind::Child => {
                self.gone
                    .extend(self.children.remove(name).map(|gone| gone.uid.clone()));
                self.node_loop.wake(name, time);
            }
            Kind::Hub => {}
        }
    }

    /// `Nodes::learn`: events and replies come in any order.
    pub fn learn_node(&mut self, digest: &Arc<NodeDigest>) -> Arc<NodeDigest> {
        if self.gone.contains(&digest.uid) {
            return digest.clone();
        }
        self.put_node(digest)
    }

    fn put_node(&mut self, digest: &Arc<NodeDigest>) -> Arc<NodeDigest> {
        if let Some(old) = self.nodes.get(&digest.key.name)
            && old.uid == digest.uid
            && version::is_newer(&old.resource_version, &digest.resource_version)
        {
            return old.clone();
        }
        self.nodes.insert(digest.key.name.clone(), digest.clone());
        digest.clone()
    }

    pub fn learn_hub(&mut self, hub: &Arc<Hub>) {
        let newer =
            |old: &Arc<Hub>| version::is_newer(&old.resource_version, &hub.resource_version);
        if !self.hub.as_ref().is_some_and(newer) {
            self.hub = Some(hub.clone());
        }
    }

    pub fn learn_form(&mut self, form: &Arc<Form>) {
        if !self.gone.contains(&form.uid) {
            self.put_form(form);
        }
    }

    fn put_form(&mut self, form: &Arc<Form>) {
        let newer = |old: &Arc<Form>| {
            old.uid == form.uid && version::is_newer(&old.resource_version, &form.resource_version)
        };
        if !self.forms.get(&form.name).is_some_and(newer) {
            self.forms.insert(form.name.clone(), form.clone());
        }
    }

    /// When a request is sent: after so many lists of each kind.
    pub fn asked(&self) -> Asked {
        Asked(self.lists)
    }

    /// `Children::learn`: what a list since the request does not have is not taken. Whether it is news.
    pub fn learn_child(&mut self, child: &Arc<Workload>, asked: Asked) -> bool {
        let known = self.children.get(&child.node);
        let known = known.is_some_and(|known| known.uid == child.uid);
        let listed = asked.0[Kind::Child as usize] != self.lists[Kind::Child as usize];
        !(self.gone.contains(&child.uid) || (listed && !known)) && self.put_child(child)
    }

    /// `Nodes::learn_new`, of a node that may be new.
    pub fn learn_new(&mut self, digest: &Arc<NodeDigest>, asked: Asked) {
        let known = self.nodes.get(&digest.key.name);
        let known = known.is_some_and(|known| known.uid == digest.uid);
        if known || asked.0[Kind::Node as usize] == self.lists[Kind::Node as usize] {
            if self.missed.remove(&digest.uid) {
                self.gone.remove(&digest.uid);
            }
            self.learn_node(digest);
        }
    }

    fn put_child(&mut self, child: &Arc<Workload>) -> bool {
        if !child.labelled {
            return false;
        }
        if let Some(old) = self.children.get(&child.node) {
            if old.uid == child.uid
                && version::is_newer(&old.resource_version, &child.resource_version)
            {
                return false;
            }
            let same = **old
                == Workload {
                    resource_version: old.resource_version.clone(),
                    ..(**child).clone()
                };
            self.children.insert(child.node.clone(), child.clone());
            return !same;
        }
        self.children.insert(child.node.clone(), child.clone());
        true
    }
}

/// When something is to be looked at again: the earliest of what was asked for.
pub fn sooner(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    [a, b].into_iter().flatten().min()
}

/// From now, in milliseconds of the simulation, until this point of the process's clock.
pub fn millis_until(at: Timestamp, now: Timestamp) -> u64 {
    let wait: SignedDuration = at.duration_since(now);
    // Rounded up: waking a moment too soon would spin.
    u64::try_from(wait.as_millis()).unwrap_or_default() + u64::from(wait.as_nanos() % 1_000_000 > 0)
}
