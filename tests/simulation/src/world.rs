//! Everything of one run: the cluster, two operator processes, the people who use them, the clock and the faults.
//! Each request of a process passes through here, where it may be lost, answered late or refused.

use std::collections::{BTreeMap, BTreeSet};

use lynqgate::api::names;
use lynqgate::decide::marker::ReleaseMarker;
use lynqgate_plants::Plant;
use serde_json::Value;

use crate::cluster::{Admission, Cluster, OPERATOR, Refused};
use crate::operator::Process;
use crate::operator::timestamp;
use crate::random::Random;
use crate::request::{Reply, Request};
use crate::users::Users;
use crate::witness::{Life, View, Witness};

macro_rules! faults {
    ($($name:ident: $what:literal,)*) => {
        /// A class of what may go wrong, or of what people do meanwhile. A seed has some of them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Fault { $($name,)* }

        impl Fault {
            pub const ALL: &[Fault] = &[$(Fault::$name,)*];

            pub fn what(self) -> &'static str {
                match self { $(Fault::$name => $what,)* }
            }
        }
    };
}

faults! {
    Crash: "processes are killed anywhere, and start with empty memory",
    LateRequest: "a request of a dead process arrives after its end",
    LostReply: "a write happens, and its sender sees an error",
    Unreachable: "a request does not arrive",
    SlowReply: "a reply is read later than events that came after it",
    TwoLeaders: "both processes believe that they lead",
    Freeze: "a process stands still anywhere, and goes on",
    LostWatch: "a watch is silent until a new list",
    Lag: "a watch is late",
    StaleList: "a list is older than what was there",
    Clock: "the processes' clocks jump by up to 30 s",
    WebhookDown: "the webhook does not answer, and writes fail",
    Reinvocation: "another webhook changes the object, and the gate is asked again",
    OtherWriters: "others write the hub's and the nodes' metadata",
    Edits: "several edits of a form in a short time, reverts among them",
    BadEdits: "content that is never ready, slow, or flaps",
    HandEdits: "nodes are edited by hand, reverted, written without `released`, tampered with",
    Force: "nodes are forced",
    ForceAll: "a whole form or the hub is forced, and no longer",
    Order: "canaries first, no order, and other canaries",
    Policy: "maxSkew up, down, 0, percentages; paused; minReadySeconds; creation",
    HubWindow: "the hub's own maxSkew",
    LostLedger: "the hub's status is lost, and the ledger with it",
    Rows: "rows come and go",
    Forms: "forms are deleted and made again",
    NoPolling: "rows are read only when the hub or a form changes",
    Database: "queries fail, and tables are empty for a while",
    Takeover: "nodes and workloads that Lynq left, content that gets past the gate, workloads that others change",
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}

#[derive(Clone, Debug)]
pub struct Settings {
    pub seed: u64,
    /// Rows, and forms: a node for each pair.
    pub rows: usize,
    pub forms: usize,
    /// Steps with faults, before everything heals.
    pub steps: u64,
    pub faults: BTreeSet<Fault>,
    pub mutant: Option<Plant>,
}

/// A request of a process that is gone by now.
struct Late {
    life: Life,
    view: View,
    request: Request,
}

pub struct World {
    pub settings: Settings,
    /// Of the order in which things happen.
    pub random: Random,
    /// Of faults, so that one class less shifts the others as little as may be.
    chance: Random,
    /// Milliseconds.
    pub time: u64,
    pub cluster: Cluster,
    pub processes: [Process; 2],
    pub witness: Witness,
    pub users: Users,
    pub rows: BTreeMap<String, bool>,
    pub faults_on: bool,
    pub tracing: bool,
    pub lines: Vec<String>,
    /// Writes that processes asked for.
    pub writes: u64,
    pub last_write: u64,
    late: Vec<Late>,
    /// The process that is dying: its next request is late.
    dying: Option<usize>,
    /// When which workload (name, uid, image) becomes ready, or ceases to be.
    pub timers: BTreeMap<(u64, u64), (String, String, String, bool)>,
    timer_count: u64,
    pub webhook_down_until: u64,
    pub database_down_until: u64,
}

impl World {
    pub fn new(settings: Settings, tracing: bool) -> Self {
        let seed = settings.seed;
        World {
            random: Random::stream(seed, 1),
            chance: Random::stream(seed, 2),
            users: Users::new(Random::stream(seed, 3)),
            settings,
            time: 0,
            cluster: Cluster::default(),
            processes: [
                Process::default(),
                Process {
                    id: 1,
                    ..Process::default()
                },
            ],
            witness: Witness::default(),
            rows: BTreeMap::new(),
            faults_on: true,
            tracing,
            lines: vec![],
            writes: 0,
            last_write: 0,
            late: vec![],
            dying: None,
            timers: BTreeMap::new(),
            timer_count: 0,
            webhook_down_until: 0,
            database_down_until: 0,
        }
    }

    pub fn trace(&mut self, line: impl FnOnce() -> String) {
        if self.tracing {
            let line = format!("{:>8} ms  {}", self.time, line());
            self.lines.push(line);
        }
    }

    pub fn planted(&self, plant: Plant) -> bool {
        self.settings.mutant == Some(plant)
    }

    pub fn has(&self, fault: Fault) -> bool {
        self.faults_on && self.settings.faults.contains(&fault)
    }

    pub fn strikes(&mut self, fault: Fault, permille: u32) -> bool {
        self.has(fault) && self.chance.permille(permille)
    }

    pub fn draw(&mut self, n: usize) -> usize {
        self.chance.below(n)
    }

    /// Whether a reply is read at a later step.
    pub fn is_slow(&mut self) -> bool {
        self.strikes(Fault::SlowReply, 150)
    }

    pub fn database_fails(&mut self) -> bool {
        self.database_down_until > self.time
    }

    pub fn send(&mut self, p: usize, request: Request, view: View) -> Result<Reply, Refused> {
        let life = self.processes[p].life();
        let known = self.processes[p].said_since(&self.cluster);
        let view = View {
            said: known,
            ..view
        };
        if self.dying == Some(p) {
            self.dying = None;
            if !request.is_read() {
                self.trace(|| {
                    format!(
                        "operator {p} asks, and dies before it arrives: {}",
                        request.shown()
                    )
                });
                self.late.push(Late {
                    life,
                    view,
                    request,
                });
            }
            return Err(Refused::Unavailable);
        }
        let write = !request.is_read();
        if write {
            self.writes += 1;
            self.last_write = self.time;
        }
        if self.strikes(Fault::Unreachable, 15) {
            self.trace(|| format!("operator {p}: {}: does not arrive", request.shown()));
            return Err(Refused::Unavailable);
        }
        let shown = if self.tracing {
            request.shown()
        } else {
            String::new()
        };
        let reply = self.execute((life, view), request);
        let lost = write && reply.is_ok() && self.strikes(Fault::LostReply, 25);
        self.trace(|| format!("operator {p}: {shown}: {}", said(&reply, lost)));
        if lost {
            Err(Refused::Unavailable)
        } else {
            reply
        }
    }

    /// The next request of this process is on its way when it dies.
    pub fn die_asking(&mut self, p: usize, step: fn(&mut World, usize)) {
        self.dying = Some(p);
        step(self, p);
        self.dying = None;
    }

    pub fn has_late(&self) -> bool {
        !self.late.is_empty()
    }

    pub fn deliver_late(&mut self) {
        let which = self.random.below(self.late.len());
        let Late {
            life,
            view,
            request,
        } = self.late.remove(which);
        let shown = if self.tracing {
            request.shown()
        } else {
            String::new()
        };
        let reply = self.execute((life, view), request);
        self.trace(|| {
            format!(
                "late, of operator {}'s life {}: {shown}: {}",
                life.process,
                life.boot,
                said(&reply, false)
            )
        });
    }

    fn admission<'a>(&mut self, user: &'a str) -> Admission<'a> {
        let replica = self.chance.below(2);
        Admission {
            user,
            now: timestamp(self.time as i64 + self.processes[replica].clock_offset),
            reinvoked: self.strikes(Fault::Reinvocation, 300),
            mutant: self.settings.mutant,
        }
    }

    /// A write of a LynqNode by anybody, through the gate.
    pub fn write_node(
        &mut self,
        name: &str,
        user: &str,
        author: Option<(Life, View)>,
        write: impl FnOnce(
            &mut Cluster,
            &Admission,
        ) -> Result<std::sync::Arc<crate::cluster::Node>, Refused>,
    ) -> Result<Reply, Refused> {
        if self.webhook_down_until > self.time {
            return Err(Refused::Unavailable);
        }
        let old = self.cluster.nodes.get(name).cloned();
        let admission = self.admission(user);
        let new = write(&mut self.cluster, &admission)?;
        if old
            .as_ref()
            .is_none_or(|old| !std::sync::Arc::ptr_eq(old, &new))
        {
            self.witness
                .node_written(&self.cluster, old.as_deref(), &new, author);
        }
        Ok(Reply::Node(new))
    }

    fn execute(&mut self, author: (Life, View), request: Request) -> Result<Reply, Refused> {
        match request {
            Request::ReadHub => Ok(Reply::Hub(self.cluster.hub.clone())),
            Request::ListNodes => Ok(Reply::Nodes(self.cluster.nodes.values().cloned().collect())),
            Request::ReadNode { name } => self
                .cluster
                .nodes
                .get(&name)
                .cloned()
                .map(Reply::Node)
                .ok_or(Refused::NotFound),
            Request::ReadChild { name } => {
                let child = self.cluster.children.get(&name).cloned();
                let child = child.ok_or(Refused::NotFound)?;
                self.witness
                    .child_read(self.cluster.revision, author.0, &child);
                Ok(Reply::Child(child))
            }
            Request::Ledger {
                resource_version,
                slots,
            } => {
                let old = self.cluster.hub.slots.clone();
                let written = self.cluster.write_hub(resource_version.as_deref(), |hub| {
                    (hub.slots, hub.has_ledger) = (slots, true)
                })?;
                self.witness.ledger_written(&self.cluster, &old, author);
                Ok(Reply::Hub(written))
            }
            Request::HubCounts { counts } => self
                .cluster
                .write_hub(None, |hub| hub.counts = counts)
                .map(Reply::Hub),
            Request::DeletionsHeld { held } => self
                .cluster
                .write_hub(None, |hub| hub.deletions_held = held)
                .map(Reply::Hub),
            Request::SpendConfirmation => self
                .cluster
                .write_hub(None, |hub| hub.confirmation = None)
                .map(Reply::Hub),
            Request::Release {
                name,
                resource_version,
                marker,
            } => {
                let (key, mut value) = marker;
                if self.planted(Plant::ReleaseUnversioned)
                    && key == names::RELEASE
                    && let (Some(marker), Some(node)) =
                        (ReleaseMarker::parse(&value), self.cluster.nodes.get(&name))
                {
                    let resource_version = node.digest.resource_version.clone();
                    let marker = ReleaseMarker {
                        resource_version,
                        ..marker
                    };
                    value = marker.to_string();
                }
                if !self.cluster.nodes.contains_key(&name) {
                    return Err(Refused::NotFound);
                }
                self.write_node(&name, OPERATOR, Some(author), |cluster, admission| {
                    cluster.write_node(
                        &name,
                        admission,
                        |new| new["metadata"]["annotations"][key] = value.into(),
                        resource_version.as_deref(),
                    )
                })
            }
            Request::Freed { name, release } => {
                self.cluster.say_freed(&name, &release).map(Reply::Node)
            }
            Request::GiveUp {
                name,
                resource_version,
            } => self
                .cluster
                .give_up_slot(&name, &resource_version)
                .map(Reply::Node),
            Request::ApplyNode { name, object } => {
                self.write_node(&name, OPERATOR, Some(author), |cluster, admission| {
                    cluster.apply_node(&name, &object, admission)
                })
            }
            Request::DeleteNode { name, uid } => {
                self.cluster.delete_node(&name, &uid)?;
                self.witness.count_nodes(&self.cluster);
                Ok(Reply::Done)
            }
            Request::RemoveFinalizer { name, uid } => {
                self.cluster.remove_finalizer(&name, &uid)?;
                self.witness.node_gone(&self.cluster, &uid);
                self.collect_garbage(&name);
                Ok(Reply::Done)
            }
            Request::NodeStatus { name, status } => self
                .cluster
                .write_node_status(&name, &status)
                .map(Reply::Node),
            Request::FormStatus {
                name,
                resource_version,
                status,
            } => {
                self.witness
                    .form_said(&self.cluster, &name, &status, author.1);
                self.cluster
                    .write_form_status(&name, &resource_version, status)
                    .map(Reply::Form)
            }
            Request::ApplyChild {
                node,
                node_uid,
                image,
                applied_hash,
            } => {
                let old = self.cluster.children.get(&node).cloned();
                let new = self
                    .cluster
                    .apply_child(&node, &node_uid, &image, &applied_hash);
                self.witness
                    .child_applied(&self.cluster, old.as_deref(), &new, author.1);
                if old.is_none_or(|old| old.image != new.image || old.uid != new.uid) {
                    self.start_workload(&new.node, &new.uid, &new.image);
                }
                self.collect_garbage(&node);
                Ok(Reply::Child(new))
            }
            Request::LabelChild {
                node,
                resource_version,
            } => self
                .cluster
                .label_child(&node, &resource_version)
                .map(Reply::Child),
            Request::GateAgain {
                name,
                resource_version,
            } => self.write_node(&name, OPERATOR, Some(author), |cluster, admission| {
                let again = |new: &mut Value| {
                    new["metadata"]["annotations"][names::GATED_AGAIN] =
                        resource_version.as_str().into();
                };
                cluster.write_node(&name, admission, again, Some(&resource_version))
            }),
            Request::DeleteChild { node, uid } => {
                self.cluster.delete_child(&node, &uid);
                Ok(Reply::Done)
            }
        }
    }

    /// A workload whose node is gone goes too.
    fn collect_garbage(&mut self, name: &str) {
        let owner = self
            .cluster
            .nodes
            .get(name)
            .map(|node| node.digest.uid.clone());
        if let Some(child) = self.cluster.children.get(name).cloned()
            && owner.as_deref() != Some(child.node_uid.as_str())
        {
            self.cluster.delete_child(name, &child.uid);
        }
    }

    /// What the image promises: `v3-good for t7`.
    pub fn start_workload(&mut self, node: &str, uid: &str, image: &str) {
        let kind = image
            .split(' ')
            .next()
            .and_then(|version| version.rsplit('-').next())
            .unwrap_or_default();
        let number: usize = node
            .bytes()
            .filter(u8::is_ascii_digit)
            .fold(0, |n, digit| n * 10 + usize::from(digit - b'0'));
        let soon = self.time + 50 + self.random.below(1_500) as u64;
        let turns: Vec<(u64, bool)> = match kind {
            "never" => vec![],
            "half" if number.is_multiple_of(2) => vec![],
            "slow" => vec![(soon + self.random.below(20_000) as u64, true)],
            "flap" => (0..5)
                .map(|turn| (soon + turn * 700, turn % 2 == 0))
                .collect(),
            _ => vec![(soon, true)],
        };
        for (at, ready) in turns {
            self.timer_count += 1;
            self.timers.insert(
                (at, self.timer_count),
                (node.to_owned(), uid.to_owned(), image.to_owned(), ready),
            );
        }
    }

    /// A workload becomes ready or ceases to be, if it is still the one that this was about.
    pub fn fire_timer(&mut self) {
        let Some((_, (node, uid, image, ready))) = self.timers.pop_first() else {
            return;
        };
        let same = self
            .cluster
            .children
            .get(&node)
            .is_some_and(|child| child.uid == uid && child.image == image);
        if same {
            self.trace(|| {
                format!(
                    "the workload of {node} is {}",
                    if ready { "ready" } else { "not ready any more" }
                )
            });
            self.cluster.set_ready(&node, ready);
            self.witness.look_at(&self.cluster, &node);
        }
    }

    /// A change of the hub by a person.
    pub fn change_hub(&mut self, change: impl FnOnce(&mut crate::cluster::Hub)) {
        let _ = self.cluster.write_hub(None, change);
        self.witness
            .hub_changed(self.cluster.revision, &self.cluster.hub.clone());
    }

    pub fn put_form(&mut self, name: &str, spec: Value) {
        let spec = serde_json::from_value(spec).expect("the simulation's forms can be read");
        self.cluster.put_form(name, spec);
        self.witness.form_changed(
            self.cluster.revision,
            name,
            self.cluster.forms.get(name).map(|form| &**form),
        );
    }

    pub fn annotate_form(&mut self, name: &str, forced: bool, resumed_at: Option<jiff::Timestamp>) {
        self.cluster.annotate_form(name, forced, resumed_at);
        self.witness.form_changed(
            self.cluster.revision,
            name,
            self.cluster.forms.get(name).map(|form| &**form),
        );
    }

    /// By somebody's hand.
    pub fn delete_node(&mut self, name: &str) {
        let node = self.cluster.nodes.get(name);
        if let Some(uid) = node.map(|node| node.digest.uid.clone()) {
            let deleted = self.cluster.delete_node(name, &uid);
            deleted.expect("it is there");
            self.witness.count_nodes(&self.cluster);
        }
    }

    pub fn delete_form(&mut self, name: &str) {
        self.cluster.delete_form(name);
        self.witness.form_changed(self.cluster.revision, name, None);
    }
}

fn said(reply: &Result<Reply, Refused>, lost: bool) -> String {
    match reply {
        Ok(_) if lost => "done, and the reply is lost".to_owned(),
        Ok(Reply::Node(node)) => format!("ok, {}", node.digest.resource_version),
        Ok(Reply::Hub(hub)) => format!("ok, hub {}", hub.resource_version),
        Ok(_) => "ok".to_owned(),
        Err(refused) => format!("{refused:?}"),
    }
}
