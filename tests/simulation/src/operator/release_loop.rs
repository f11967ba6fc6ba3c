//! The release loop, one request a step. It mirrors `controller::rollout` function for function: `Look::go` is `step`,
//! with `Stage` for the place between two awaits; `snapshot`, `write_ledger`, `release_one`, `confirm_one`,
//! `give_up` and `remember_holds` have their names from there, `snapshot` from `rollout::snapshot::of`, and the writes of
//! statuses mirror `rollout::report`. Decisions are the planner's.

mod confirm;
mod plan;
mod refused;
mod releases;
mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lynqgate::api::hub::Slot;
use lynqgate::decide::node::{NodeDigest, desired_content};
use lynqgate::decide::rollout::reason::Reason;
use lynqgate::decide::rollout::{Confirm, Confirmation, Freed, GiveUp, Live, Plan, Release, Way};
use lynqgate_plants::Plant;

use crate::cluster::{Hub, Refused};
use crate::operator::release_loop::refused::{CONFLICT, Failed, NOT_SENT, refused_retry};
use crate::operator::{Asked, Process, Said, millis_until, sooner};
use crate::request::{Reply, Request};
use crate::witness::View;
use crate::world::World;

const PASSES_MAX: usize = 20;
const REQUESTS_MAX: usize = 16;
const UNCONFIRMED_RETRY: u64 = 1_000;

#[derive(Default)]
pub struct Loop {
    due: Option<u64>,
    look: Option<Box<Look>>,
    form_written: BTreeMap<String, u64>,
    hub_written: Option<u64>,
    refused: BTreeMap<String, Failed>,
    refusals: u32,
    surveyed: bool,
}

impl Loop {
    pub fn wake(&mut self, at: u64) {
        self.due = sooner(self.due, Some(at));
    }

    /// When it has something to do.
    pub fn due(&self) -> Option<u64> {
        if self.look.is_some() {
            Some(0)
        } else {
            self.due
        }
    }
}

pub struct Look {
    pass: usize,
    confirmed: BTreeSet<Confirmation>,
    unconfirmed: bool,
    /// The live reads come before the writes in this pass; there they are sent side by side.
    confirms_first: bool,
    stage: Stage,
    /// The nodes there are, where they were listed for want of a ledger.
    listed: Option<BTreeSet<String>>,
    /// Of the present pass.
    view: View,
    said: Said,
    resource_version: String,
    hub: Option<Arc<Hub>>,
    nodes: Vec<Arc<NodeDigest>>,
    /// The uids of the forms that the plan is about.
    forms: BTreeSet<String>,
    /// The ledger that it is made on.
    slots: Vec<Slot>,
    plan: Plan,
    released: usize,
    /// The ledger could not be written.
    interrupted: bool,
    again: Option<u64>,
    /// A reply that has not been read yet.
    reply: Option<(Sent, Result<Reply, Refused>)>,
}

enum Stage {
    /// The nodes are listed where there is no ledger; then comes the plan.
    Plan,
    Ledger,
    ReadHub,
    Release {
        left: Vec<Release>,
        read: Vec<String>,
    },
    Freed {
        left: Vec<Freed>,
    },
    GiveUp {
        left: Vec<GiveUp>,
    },
    Confirm {
        left: Vec<Confirm>,
    },
    Forms {
        left: Vec<String>,
    },
    Counts,
}

/// What a reply is the reply to.
enum Sent {
    /// With the version of the hub that had no ledger.
    Nodes(Asked, String),
    Ledger(Vec<Slot>),
    ReadHub,
    Release(Release),
    Read,
    /// `still_changes_nothing`: the node, then its workload and what that should run.
    Own(Release),
    Runs(Release, Option<String>),
    GiveUp,
    Confirm(Confirm, Asked),
    Form(String),
    Counts,
}

/// One step of the release loop of process `p`: at most one request, or one reply.
pub fn step(world: &mut World, p: usize) {
    let look = world.processes[p].release.look.take();
    let mut look = look.unwrap_or_else(|| {
        world.processes[p].release.due = None;
        Box::new(Look {
            pass: 0,
            confirmed: BTreeSet::new(),
            unconfirmed: false,
            confirms_first: false,
            stage: Stage::Plan,
            listed: None,
            view: View::default(),
            said: Said::default(),
            resource_version: String::new(),
            hub: None,
            nodes: vec![],
            forms: BTreeSet::new(),
            slots: vec![],
            plan: Plan::default(),
            released: 0,
            interrupted: false,
            again: None,
            reply: None,
        })
    });
    let done = match look.reply.take() {
        Some((sent, reply)) => look.read(world, p, sent, reply),
        None => look.send(world, p),
    };
    let now = world.time;
    let release = &mut world.processes[p].release;
    match done {
        Go::On => release.look = Some(look),
        Go::Back(wait) => release.due = sooner(release.due, wait.map(|wait| now + wait)),
    }
}

/// Whether the look goes on, or is over until some milliseconds later.
enum Go {
    On,
    Back(Option<u64>),
}

impl Look {
    fn send(&mut self, world: &mut World, p: usize) -> Go {
        match &mut self.stage {
            Stage::Plan => {
                let process = &world.processes[p];
                let hub = process.hub.as_ref();
                if let Some(hub) = hub.filter(|hub| !hub.has_ledger) {
                    let sent = Sent::Nodes(process.asked(), hub.resource_version.clone());
                    return self.ask(world, p, Request::ListNodes, sent);
                }
                return self.plan(world, p);
            }
            Stage::Ledger => {
                let slots = self.plan.ledger.clone().unwrap_or_default();
                let no_cas = world.planted(Plant::LeaderWithoutFence);
                let request = Request::Ledger {
                    resource_version: (!no_cas).then(|| self.resource_version.clone()),
                    slots: slots.clone(),
                };
                return self.ask(world, p, request, Sent::Ledger(slots));
            }
            Stage::ReadHub => return self.ask(world, p, Request::ReadHub, Sent::ReadHub),
            Stage::Release { left, read } => {
                if let Some(name) = read.pop() {
                    return self.ask(world, p, Request::ReadNode { name }, Sent::Read);
                }
                if !left.is_empty() {
                    let which = world.random.below(left.len().min(REQUESTS_MAX));
                    let release = left.remove(which);
                    return self.release(world, p, release);
                }
                self.stage = Stage::Freed {
                    left: self.plan.freed.clone(),
                };
            }
            Stage::Freed { left } => {
                if let Some(Freed { node, release, .. }) = left.pop() {
                    let request = Request::Freed {
                        name: node,
                        release,
                    };
                    return self.ask(world, p, request, Sent::GiveUp);
                }
                self.stage = Stage::GiveUp {
                    left: self.plan.give_up.clone(),
                };
            }
            Stage::GiveUp { left } => {
                if let Some(GiveUp {
                    node,
                    resource_version,
                }) = left.pop()
                {
                    return self.ask(
                        world,
                        p,
                        Request::GiveUp {
                            name: node,
                            resource_version,
                        },
                        Sent::GiveUp,
                    );
                }
                if self.confirms_first {
                    self.written(world, p);
                } else {
                    self.start_confirming();
                }
            }
            Stage::Confirm { left } => {
                if !left.is_empty() {
                    let which = world.random.below(left.len().min(REQUESTS_MAX));
                    let confirm = left.remove(which);
                    return self.confirm_one(world, p, confirm);
                }
                if self.confirms_first {
                    self.start_writing();
                } else {
                    self.written(world, p);
                }
            }
            Stage::Forms { left } => {
                let Some(name) = left.pop() else {
                    self.stage = Stage::Counts;
                    return Go::On;
                };
                return self.write_form(world, p, name);
            }
            Stage::Counts => return self.write_counts(world, p),
        }
        Go::On
    }

    fn ask(&mut self, world: &mut World, p: usize, request: Request, sent: Sent) -> Go {
        let reply = world.send(p, request, self.view);
        if world.is_slow() {
            self.reply = Some((sent, reply));
            return Go::On;
        }
        self.read(world, p, sent, reply)
    }

    fn read(
        &mut self,
        world: &mut World,
        p: usize,
        sent: Sent,
        reply: Result<Reply, Refused>,
    ) -> Go {
        let process = &mut world.processes[p];
        match (sent, reply) {
            (Sent::Ledger(slots), reply) => match reply {
                Ok(Reply::Hub(hub)) => {
                    process.learn_hub(&hub);
                    world.witness.ledger_acknowledged(process.life(), &slots);
                    self.start_releases();
                }
                Err(Refused::Conflict) => self.stage = Stage::ReadHub,
                Err(Refused::Unavailable) if world.planted(Plant::TrustLostLedgerWrite) => {
                    self.start_releases()
                }
                // Without its slot nothing goes but what needs none.
                _ => {
                    self.interrupted = true;
                    self.plan.freed.clear();
                    self.plan
                        .releases
                        .retain(|release| release.way != Way::Slot);
                    self.start_releases();
                }
            },
            (Sent::Nodes(asked, version), reply) => match reply {
                Ok(Reply::Nodes(nodes)) => {
                    for node in &nodes {
                        process.learn_new(&node.digest, asked);
                    }
                    let uids = nodes.iter().map(|node| node.digest.uid.clone());
                    self.listed = Some(uids.collect());
                    // There the plan is for the hub from before the list, and its write would be a conflict.
                    let hub = process.hub.as_ref();
                    if hub.is_some_and(|hub| hub.resource_version == version) {
                        return self.plan(world, p);
                    }
                }
                _ => return Go::Back(Some(1_000)),
            },
            (Sent::ReadHub, Ok(Reply::Hub(hub))) => {
                process.learn_hub(&hub);
                if world.planted(Plant::LedgerRetried)
                    && let Some(ledger) = &mut self.plan.ledger
                {
                    *ledger = plan::same_change(&self.slots, ledger, &hub.slots);
                    self.slots.clone_from(&hub.slots);
                    self.resource_version.clone_from(&hub.resource_version);
                    self.stage = Stage::Ledger;
                    return Go::On;
                }
                self.stage = Stage::Plan;
                if self.pass >= PASSES_MAX {
                    return Go::Back(Some(0));
                }
            }
            (Sent::ReadHub, _) => return Go::Back(Some(1_000)),
            (Sent::Release(release), reply) => match reply {
                Ok(Reply::Node(node)) => {
                    let digest = process.learn_node(&node.digest);
                    if matches!(&digest.live, Live::Hash(hash) if *hash == release.hash) {
                        self.released += 1;
                        process.release.refused.remove(&release.node);
                        process.node_loop.wake(&release.node, world.time);
                    } else {
                        let why = "nothing went live";
                        process.release.refuse(&release, why, world.time);
                    }
                }
                Err(Refused::Conflict) => {
                    process.release.refuse(&release, CONFLICT, world.time);
                    let retry = world.planted(Plant::BlindRetry);
                    let version = world
                        .cluster
                        .nodes
                        .get(&release.node)
                        .map(|n| n.digest.resource_version.clone());
                    if let Stage::Release { left, read } = &mut self.stage {
                        match version.filter(|_| retry) {
                            Some(resource_version) => left.push(Release {
                                resource_version,
                                ..release
                            }),
                            None => read.push(release.node),
                        }
                    }
                }
                _ => process.release.refuse(&release, NOT_SENT, world.time),
            },
            (Sent::Own(release), Ok(Reply::Node(node))) => {
                let content = desired_content(&node.value, &release.hash);
                let image = content.and_then(|content| {
                    let first = content.iter().next()?;
                    Some(first.spec["image"].as_str()?.to_owned())
                });
                let name = release.node.clone();
                return self.ask(
                    world,
                    p,
                    Request::ReadChild { name },
                    Sent::Runs(release, image),
                );
            }
            (Sent::Runs(release, image), Ok(Reply::Child(child))) => {
                let uid = process.nodes.get(&release.node).map(|node| &node.uid);
                let same = image.as_ref() == Some(&child.image) && uid == Some(&child.node_uid);
                return self.still_taken_over(world, p, release, same);
            }
            (Sent::Runs(release, _), Err(Refused::NotFound)) => {
                return self.still_taken_over(world, p, release, false);
            }
            (Sent::Own(release) | Sent::Runs(release, _), _) => {
                process.release.refuse(&release, NOT_SENT, world.time);
            }
            (Sent::Read | Sent::GiveUp, reply) => {
                if let Ok(Reply::Node(node)) = reply {
                    process.learn_node(&node.digest);
                }
            }
            (Sent::Confirm(confirm, asked), reply) => {
                self.confirmed_by(world, p, (confirm, asked), reply)
            }
            (Sent::Form(name), reply) => match reply {
                Ok(Reply::Form(form)) => {
                    process.learn_form(&form);
                    process.release.form_written.insert(name, world.time);
                }
                Err(Refused::Conflict) => {}
                Err(Refused::NotFound) => return Go::Back(None),
                _ => return Go::Back(Some(1_000)),
            },
            (Sent::Counts, reply) => match reply {
                Ok(Reply::Hub(hub)) => {
                    process.learn_hub(&hub);
                    process.release.hub_written = Some(world.time);
                    return self.over(world, p);
                }
                _ => return Go::Back(Some(1_000)),
            },
        }
        Go::On
    }

    fn plan(&mut self, world: &mut World, p: usize) -> Go {
        self.pass += 1;
        let unlooked = unlooked(&mut world.processes[p]);
        let process = &world.processes[p];
        let mut snapshot = plan::snapshot(world, process, std::mem::take(&mut self.confirmed));
        snapshot.unlooked = unlooked;
        if let Some(listed) = self.listed.take() {
            snapshot.nodes.retain(|_, node| listed.contains(&node.uid));
            if snapshot.nodes.len() < listed.len() {
                return Go::Back(Some(UNCONFIRMED_RETRY));
            }
        }
        (self.view, self.said) = (process.view(&world.cluster), process.said());
        let now = process.now(world.time);
        self.plan = plan::plan(world, p, &snapshot, now);
        self.hub = process.hub.clone();
        self.nodes = process.nodes.values().cloned().collect();
        self.forms = process
            .forms
            .values()
            .map(|form| form.uid.clone())
            .collect();
        self.slots.clone_from(&snapshot.slots);
        self.resource_version = snapshot.resource_version.clone();
        (self.released, self.unconfirmed, self.interrupted) = (0, false, false);
        let author = (process.life(), self.view);
        world
            .witness
            .planned(&world.cluster, &snapshot, &self.plan, author);
        world
            .witness
            .misses_none(&world.cluster, &self.plan, &world.processes[p], self.view);
        world.trace(|| {
            let plan = &self.plan;
            let names: Vec<&str> = plan.releases.iter().map(|r| r.node.as_str()).collect();
            format!(
                "operator {p}: plan on hub {}{}: ledger {}, release [{}], confirm {}, waiting {}",
                self.resource_version,
                if self.view.current {
                    ""
                } else {
                    " (stale view)"
                },
                plan.ledger
                    .as_ref()
                    .map_or("as it is".to_owned(), |slots| format!("of {}", slots.len())),
                names.join(" "),
                plan.confirm.len(),
                plan.waiting.len(),
            )
        });
        // Before it has looked at every node it releases none, whatever it has forgotten.
        world.processes[p].forgetful &= !snapshot.unlooked.is_empty();
        self.remember_holds(world, p);
        if self.hub.is_none() {
            self.stage = Stage::Forms {
                left: forms_of(&world.processes[p]),
            };
            return Go::On;
        }
        self.confirms_first = world.random.below(2) == 0;
        if self.confirms_first {
            self.start_confirming();
        } else {
            self.start_writing();
        }
        Go::On
    }

    fn start_confirming(&mut self) {
        self.stage = Stage::Confirm {
            left: self.plan.confirm.clone(),
        };
    }

    fn start_writing(&mut self) {
        if self.plan.ledger.is_some() {
            self.stage = Stage::Ledger;
        } else {
            self.start_releases();
        }
    }

    /// Ledger and releases are out; the statuses are left.
    fn written(&mut self, world: &mut World, p: usize) {
        if self.released > 0 {
            world.processes[p].release.refusals = 0;
        }
        self.again = None;
        self.stage = Stage::Forms {
            left: forms_of(&world.processes[p]),
        };
    }

    fn start_releases(&mut self) {
        self.stage = Stage::Release {
            left: self.plan.releases.clone(),
            read: vec![],
        };
    }

    fn remember_holds(&self, world: &mut World, p: usize) {
        let process = &mut world.processes[p];
        for node in &self.nodes {
            let name = &node.key.name;
            let new = self
                .plan
                .waiting
                .get(name)
                .filter(|r| **r != Reason::Releasing);
            let new = new.map(|r| (r.word_of_node(), r.summary()));
            let old = match new {
                Some(new) => process.holds.insert(name.clone(), new),
                None => process.holds.remove(name),
            };
            if old != new && new.is_some() {
                process.node_loop.wake(name, world.time);
            }
        }
    }

    /// The end of a pass: another one, or back later.
    fn over(&mut self, world: &mut World, p: usize) -> Go {
        if self.interrupted {
            return Go::Back(Some(1_000));
        }
        if self.released > 0 || !self.confirmed.is_empty() {
            if self.pass < PASSES_MAX {
                self.stage = Stage::Plan;
                return Go::On;
            }
            let wait = if self.unconfirmed {
                UNCONFIRMED_RETRY
            } else {
                0
            };
            return Go::Back(Some(wait));
        }
        let process = &mut world.processes[p];
        let now = process.now(world.time);
        let wake = self.plan.wake_at.map(|at| millis_until(at, now));
        let refused = (!self.plan.releases.is_empty()).then(|| back_off(&mut process.release));
        let retry = self.unconfirmed.then_some(UNCONFIRMED_RETRY).or(refused);
        Go::Back(sooner(sooner(self.again, wake), retry))
    }
}

fn back_off(memory: &mut Loop) -> u64 {
    memory.refusals += 1;
    refused_retry(memory.refusals)
}

fn unlooked(process: &mut Process) -> BTreeSet<String> {
    if process.release.surveyed {
        return BTreeSet::new();
    }
    let looked = &process.looked;
    let nodes = process.nodes.iter();
    let unlooked = nodes.filter(|(name, node)| !node.deleting && !looked.contains(*name));
    let unlooked: BTreeSet<String> = unlooked.map(|(name, _)| name.clone()).collect();
    process.release.surveyed = unlooked.is_empty();
    unlooked
}

fn forms_of(process: &Process) -> Vec<String> {
    process.forms.keys().cloned().collect()
}
