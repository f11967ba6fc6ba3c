//! The node loop, one request a step. It mirrors `controller::node` (`Look::go`, `delete`, `content`, `hold`, `report`)
//! for nodes with one resource. Not mirrored: retries of failed applies, drift, timeouts of resources.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use lynqgate::api::node::NodeStatus;
use lynqgate::api::resource::ResourceArrays;
use lynqgate::decide::child::{self, Child, NodeKey, ObjectKey, Owner};
use lynqgate::decide::node::{NodeDigest, desired_content, live_content};
use lynqgate::decide::node_plan::applies::Applies;
use lynqgate::decide::node_plan::record::Record;
use lynqgate::decide::node_plan::status::HoldReason;
use lynqgate::decide::node_plan::{self, Premise, Rest, Seen};
use lynqgate::decide::readiness::{Readiness, Reason};
use lynqgate::decide::rollout::Live;
use lynqgate_plants::Plant;

use crate::cluster::{Kind, NAMESPACE, Refused, Workload};
use crate::operator::{Asked, millis_until};
use crate::request::{Reply, Request};
use crate::witness::View;
use crate::world::World;

#[derive(Default)]
pub struct Loop {
    queue: BTreeMap<String, u64>,
    /// Looks whose last request was sent and whose reply is not read yet.
    replies: BTreeMap<String, (Sent, Result<Reply, Refused>)>,
    memory: BTreeMap<String, Memory>,
}

#[derive(Default)]
struct Memory {
    written: Option<Timestamp>,
    hold_since: Option<Timestamp>,
    hold_at: Option<Timestamp>,
    /// Of which generation it was sent through the gate again, and when it is due once more.
    gated_again: Option<(i64, Timestamp)>,
    /// The desired content of which it is known whether its release would change anything.
    taken_over: Option<String>,
}

/// How often an object whose state is not true is sent through the gate.
const GATE_EVERY: SignedDuration = SignedDuration::from_secs(10);

enum Sent {
    GateAgain(i64),
    /// `take_over`, for this desired content: the node, its workload and what it should run, the label.
    Own(String),
    Runs(String, Option<String>),
    Label(String, bool, Asked),
    Content,
    Child(Asked),
    Status(Timestamp),
    Finalizer,
}

impl Loop {
    pub fn wake(&mut self, name: &str, at: u64) {
        let due = self.queue.entry(name.to_owned()).or_insert(at);
        *due = at.min(*due);
    }

    pub fn due(&self) -> Option<u64> {
        if self.replies.is_empty() {
            self.queue.values().min().copied()
        } else {
            Some(0)
        }
    }
}

/// One step of one node that has something to do.
pub fn step(world: &mut World, p: usize) {
    let time = world.time;
    let nodes = &mut world.processes[p].node_loop;
    let waiting = nodes.replies.len();
    let due: Vec<&String> = nodes
        .queue
        .iter()
        .filter(|(name, due)| **due <= time && !nodes.replies.contains_key(*name))
        .map(|(name, _)| name)
        .collect();
    let which = world.random.below(waiting + due.len());
    if which < waiting {
        let name = nodes.replies.keys().nth(which).expect("counted").clone();
        let (sent, reply) = nodes.replies.remove(&name).expect("it is there");
        return read(world, p, &name, sent, reply);
    }
    let Some(name) = due.get(which - waiting).map(|name| name.to_string()) else {
        return;
    };
    nodes.queue.remove(&name);
    look(world, p, &name);
}

fn ask(world: &mut World, p: usize, name: &str, request: Request, sent: Sent) {
    let view = world.processes[p].view(&world.cluster);
    ask_on(world, p, name, view, request, sent);
}

/// Asks for what was decided on an earlier view.
fn ask_on(world: &mut World, p: usize, name: &str, view: View, request: Request, sent: Sent) {
    let reply = world.send(p, request, view);
    if world.is_slow() {
        world.processes[p]
            .node_loop
            .replies
            .insert(name.to_owned(), (sent, reply));
        return;
    }
    read(world, p, name, sent, reply);
}

fn read(world: &mut World, p: usize, name: &str, sent: Sent, reply: Result<Reply, Refused>) {
    let time = world.time;
    let process = &mut world.processes[p];
    let wait = match (sent, reply) {
        (Sent::Status(at), Ok(Reply::Node(node))) => {
            process.learn_node(&node.digest);
            process
                .node_loop
                .memory
                .entry(name.to_owned())
                .or_default()
                .written = Some(at);
            process.release.wake(time);
            return;
        }
        (Sent::Child(asked), Ok(Reply::Child(child))) => {
            process.learn_child(&child, asked);
            0
        }
        (Sent::Child(_), Ok(_)) => {
            process.children.remove(name);
            0
        }
        (Sent::GateAgain(generation), reply) => {
            let (hold_off, wait) = match &reply {
                Ok(_) => (GATE_EVERY, 0),
                Err(Refused::Conflict) => (SignedDuration::ZERO, 200),
                Err(_) => (GATE_EVERY, 5_000),
            };
            let due = process.now(time).checked_add(hold_off).ok();
            let memory = process.node_loop.memory.entry(name.to_owned()).or_default();
            memory.gated_again = due.map(|due| (generation, due));
            if let Ok(Reply::Node(node)) = &reply {
                process.learn_node(&node.digest);
            }
            wait
        }
        (Sent::Own(desired), Ok(Reply::Node(node))) => {
            let content = desired_content(&node.value, &desired);
            let Some(content) = content else {
                return look_on(world, p, name);
            };
            let image = content.iter().next();
            let image = image.and_then(|first| Some(first.spec["image"].as_str()?.to_owned()));
            let request = Request::ReadChild {
                name: name.to_owned(),
            };
            return ask(world, p, name, request, Sent::Runs(desired, image));
        }
        (Sent::Runs(desired, image), Ok(Reply::Child(child))) => {
            let uid = process.nodes.get(name).map(|node| &node.uid);
            let ours = uid == Some(&child.node_uid);
            let same = ours && image.as_ref() == Some(&child.image);
            if ours && !child.labelled {
                let request = Request::LabelChild {
                    node: name.to_owned(),
                    resource_version: child.resource_version.clone(),
                };
                let sent = Sent::Label(desired, same, process.asked());
                return ask(world, p, name, request, sent);
            }
            return taken_over(world, p, name, desired, same);
        }
        (Sent::Runs(desired, _), Err(Refused::NotFound)) => {
            return taken_over(world, p, name, desired, false);
        }
        (Sent::Label(desired, same, asked), Ok(Reply::Child(child))) => {
            process.learn_child(&child, asked);
            return taken_over(world, p, name, desired, same);
        }
        (Sent::Content, Ok(Reply::Node(node))) => return apply(world, p, name, &node.value),
        (Sent::Finalizer, Ok(_)) | (_, Err(Refused::NotFound)) => return,
        (_, Err(Refused::Conflict)) => 200,
        _ => 5_000,
    };
    process.node_loop.wake(name, time + wait);
}

/// One round of `Look::go`.
fn look(world: &mut World, p: usize, name: &str) {
    let process = &mut world.processes[p];
    let Some(node) = process.nodes.get(name).cloned() else {
        process.node_loop.memory.remove(name);
        process.holds.remove(name);
        process.unchanged.remove(name);
        return;
    };
    if !process.cursors[Kind::Child as usize].listed {
        return;
    }
    if node.deleting {
        return delete(world, p, &node);
    }
    if gate_again(world, p, &node) || take_over(world, p, &node) {
        return;
    }
    look_on(world, p, name);
}

/// What was written past the gate goes through it once more.
fn gate_again(world: &mut World, p: usize, node: &NodeDigest) -> bool {
    let (name, time) = (&node.key.name, world.time);
    let process = &mut world.processes[p];
    let now = process.now(time);
    let memory = process.node_loop.memory.entry(name.clone()).or_default();
    if !node.past_gate {
        memory.gated_again = None;
        return false;
    }
    let tried = memory.gated_again;
    let tried = tried.filter(|(generation, _)| *generation == node.generation);
    let due = tried.map(|(_, due)| due);
    if let Some(due) = due.filter(|due| *due > now && due.duration_since(now) <= GATE_EVERY) {
        process.node_loop.wake(name, time + millis_until(due, now));
        return false;
    }
    let request = Request::GateAgain {
        name: name.clone(),
        resource_version: node.resource_version.clone(),
    };
    ask(world, p, name, request, Sent::GateAgain(node.generation));
    true
}

/// `takeover::take_over`
fn take_over(world: &mut World, p: usize, node: &NodeDigest) -> bool {
    let name = &node.key.name;
    let process = &mut world.processes[p];
    let memory = process.node_loop.memory.entry(name.clone()).or_default();
    if node.live != Live::Unknown || node.rendered_hash.is_none() {
        memory.taken_over = None;
        process.unchanged.remove(name);
        return false;
    }
    if memory.taken_over.as_ref() == Some(&node.desired) {
        return false;
    }
    let request = Request::ReadNode { name: name.clone() };
    ask(world, p, name, request, Sent::Own(node.desired.clone()));
    true
}

fn taken_over(world: &mut World, p: usize, name: &str, desired: String, same: bool) {
    let time = world.time;
    let process = &mut world.processes[p];
    let memory = process.node_loop.memory.entry(name.to_owned()).or_default();
    memory.taken_over = Some(desired.clone());
    process.unchanged.insert(name.to_owned(), (desired, same));
    process.release.wake(time);
    look_on(world, p, name);
}

/// The rest of a look, with what is known by now.
fn look_on(world: &mut World, p: usize, name: &str) {
    let process = &mut world.processes[p];
    let Some(node) = process.nodes.get(name).cloned() else {
        return;
    };
    if node.deleting {
        let time = world.time;
        return world.processes[p].node_loop.wake(name, time);
    }
    let now = process.now(world.time);
    let hold = hold(
        process.holds.get(name).copied(),
        &node,
        process.node_loop.memory.entry(name.to_owned()).or_default(),
        now,
    );
    let child = process.children.get(name).map(|child| digest(child));
    let seen: Vec<Seen> = node
        .facts
        .iter()
        .map(|facts| Seen {
            facts,
            unavailable: None,
            child: child.as_ref(),
            obstacle: None,
            failure: None,
            premise: Premise::default(),
            // Nobody takes fields over here.
            fields_hash: Some(""),
            applies: Applies::default(),
            waiting_since: None,
            untold: SignedDuration::ZERO,
        })
        .collect();
    let key = || ObjectKey {
        kind: child::Kind {
            api_version: "apps/v1".to_owned(),
            kind: "Deployment".to_owned(),
        },
        namespace: NAMESPACE.to_owned(),
        name: name.to_owned(),
    };
    let unnamed = child.clone().filter(|_| node.facts.is_empty());
    let rest = Rest {
        record: Record::of(&node.status),
        others: unnamed.map(|child| (key(), child)).into_iter().collect(),
        ..Rest::default()
    };
    let plan = node_plan::plan(&node, &seen, &rest, now);
    if plan.apply.is_empty() {
        let status = node_plan::status::of_node(&node, &seen, &plan, hold, now);
        report(world, p, &node, status, now);
        return note_looked(world, p, name);
    }
    match node
        .content
        .clone()
        .filter(|_| !world.planted(Plant::ApplyDesired))
    {
        Some(content) => {
            let view = world.processes[p].view(&world.cluster);
            apply_content(world, p, &node, view, &content);
        }
        None => ask(
            world,
            p,
            name,
            Request::ReadNode {
                name: name.to_owned(),
            },
            Sent::Content,
        ),
    }
}

/// `Look::content`, read live: only if it is the content of this very digest.
fn apply(world: &mut World, p: usize, name: &str, object: &serde_json::Value) {
    let Some(node) = world.processes[p].nodes.get(name).cloned() else {
        return;
    };
    let content = if world.planted(Plant::ApplyDesired) {
        serde_json::from_value(lynqgate::decide::content::of_spec(Some(&object["spec"]))).ok()
    } else {
        live_content(object, &node.live)
    };
    match content.filter(|_| object["metadata"]["uid"] == node.uid.as_str()) {
        // The workload may have changed while the content was read.
        Some(content) => apply_content(world, p, &node, View::default(), &content),
        None => {
            let time = world.time;
            world.processes[p].node_loop.wake(name, time + 200);
        }
    }
}

fn apply_content(
    world: &mut World,
    p: usize,
    node: &Arc<NodeDigest>,
    view: View,
    content: &ResourceArrays,
) {
    let Some((resource, facts)) = content.iter().next().zip(node.facts.first()) else {
        return;
    };
    let request = Request::ApplyChild {
        node: node.key.name.clone(),
        node_uid: node.uid.clone(),
        image: resource.spec["image"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        applied_hash: facts.hash.clone(),
    };
    let asked = world.processes[p].asked();
    ask_on(world, p, &node.key.name, view, request, Sent::Child(asked));
}

/// The release loop may wait for the last first look. (There it comes after the reply to the status, here before.)
fn note_looked(world: &mut World, p: usize, name: &str) {
    let time = world.time;
    let process = &mut world.processes[p];
    if process.looked.insert(name.to_owned()) {
        process.release.wake(time);
    }
}

fn report(world: &mut World, p: usize, node: &NodeDigest, mut status: NodeStatus, now: Timestamp) {
    let name = &node.key.name;
    let memory = world.processes[p]
        .node_loop
        .memory
        .entry(name.clone())
        .or_default();
    let due = node_plan::status::due(&node.status, &status, memory.written, memory.hold_at, now);
    match due {
        None => {}
        Some(due) if due > now => {
            let at = world.time + millis_until(due, now);
            world.processes[p].node_loop.wake(name, at);
        }
        Some(_) => {
            if status.landed_release == node.status.landed_release {
                status.landed_release = None;
            }
            (status.slot_given_up, status.freed_release) = (None, None);
            let request = Request::NodeStatus {
                name: name.clone(),
                status: Box::new(status),
            };
            ask(world, p, name, request, Sent::Status(now));
        }
    }
}

fn hold(
    hold: Option<HoldReason>,
    node: &NodeDigest,
    memory: &mut Memory,
    now: Timestamp,
) -> Option<HoldReason> {
    let patience = node_plan::status::patience(hold);
    if node.held() && !patience.is_zero() {
        let since = *memory.hold_since.get_or_insert(now);
        memory.hold_at = since.checked_add(patience).ok();
    } else {
        (memory.hold_since, memory.hold_at) = (None, None);
    }
    hold
}

fn delete(world: &mut World, p: usize, node: &NodeDigest) {
    let name = node.key.name.clone();
    match world.processes[p]
        .children
        .get(&name)
        .filter(|child| child.node_uid == node.uid)
    {
        Some(child) => {
            let request = Request::DeleteChild {
                node: name.clone(),
                uid: child.uid.clone(),
            };
            let asked = world.processes[p].asked();
            ask(world, p, &name, request, Sent::Child(asked));
        }
        None => {
            let request = Request::RemoveFinalizer {
                name: name.clone(),
                uid: node.uid.clone(),
            };
            ask(world, p, &name, request, Sent::Finalizer);
        }
    }
}

/// What the library would read from the object.
fn digest(child: &Workload) -> Child {
    let waiting = || Reason::StatusMissing {
        name: child.node.clone(),
        field: "status",
    };
    Child {
        uid: child.uid.clone(),
        resource_version: child.resource_version.clone(),
        written: String::new(),
        owner: Owner::Node {
            key: NodeKey {
                namespace: NAMESPACE.to_owned(),
                name: child.node.clone(),
            },
            uid: Some(child.node_uid.clone()),
        },
        applied_hash: Some(child.applied_hash.clone()),
        fields_hash: String::new(),
        applied_fields_hash: String::new(),
        owned: "{}".into(),
        marked: true,
        once: false,
        orphaned: false,
        orphaned_from: None,
        retain: false,
        deleting: false,
        finalizers: vec![],
        readiness: if child.ready {
            Readiness::Ready
        } else {
            Readiness::Waiting(waiting())
        },
        completed: false,
        applied_at: None,
        stepped_at: None,
    }
}
