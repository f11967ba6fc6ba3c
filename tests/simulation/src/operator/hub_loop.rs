//! The hub loop, one request a step. It mirrors `controller::hub` (`sync`, `act`, `note_rendered`) and its `nodes`;
//! what it writes and deletes is `decide::hub_sync`'s decision, templates, rows and guard included.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lynqgate::api::form::FormSpec;
use lynqgate::api::names;
use lynqgate::decide::desired::Desired;
use lynqgate::decide::hub_sync::{self, Allowance, NodeDeletion, NodeWrite, Seen};
use lynqgate::decide::render::CompiledForm;
use lynqgate::decide::rows::activity::Words;
use lynqgate::decide::rows::{Collector, Columns, RawRow, RowCount, Rows};
use lynqgate_plants::Plant;

use crate::cluster::{Form, HUB, NAMESPACE, Refused};
use crate::operator::{Asked, Rendered, Said, sooner};
use crate::request::{Reply, Request};
use crate::witness::View;
use crate::world::{Fault, World};

const INTERVAL: u64 = 30_000;
/// As good as `syncInterval: 0s`: nothing that should happen by then waits for it.
const RARELY: u64 = 3_600_000;
const RETRY_SOON: u64 = 2_000;
const REQUESTS_MAX: usize = 16;

#[derive(Default)]
pub struct Loop {
    due: Option<u64>,
    sync: Option<Box<Sync>>,
    rendered: hub_sync::Rendered,
    /// The active rows that the last sync saw.
    pub rows: BTreeSet<String>,
    compiled: BTreeMap<String, (Arc<Form>, Arc<CompiledForm>)>,
}

impl Loop {
    pub fn wake(&mut self, at: u64) {
        self.due = sooner(self.due, Some(at));
    }

    pub fn due(&self) -> Option<u64> {
        if self.sync.is_some() {
            Some(0)
        } else {
            self.due
        }
    }
}

/// A sync under way: what is left to write.
struct Sync {
    view: View,
    said: Said,
    writes: Vec<NodeWrite>,
    spend: bool,
    deletes: Vec<NodeDeletion>,
    plan_rendered: hub_sync::Rendered,
    desired: BTreeMap<String, Arc<Desired>>,
    unwritten: BTreeSet<(String, String)>,
    held: Option<u64>,
    failed: Vec<Failed>,
    stage: Stage,
    reply: Option<(Sent, Result<Reply, Refused>)>,
}

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Write,
    Delete,
    Report,
}

struct Failed {
    node: Option<(String, String)>,
    retry: bool,
}

enum Sent {
    Write(NodeWrite, Asked),
    Spend,
    Delete,
    Report,
}

pub fn step(world: &mut World, p: usize) {
    let time = world.time;
    let Some(mut sync) = world.processes[p].hub_loop.sync.take() else {
        world.processes[p].hub_loop.due = None;
        match begin(world, p) {
            Some(sync) => world.processes[p].hub_loop.sync = Some(sync),
            None => world.processes[p].hub_loop.wake(time + INTERVAL),
        }
        return;
    };
    let over = match sync.reply.take() {
        Some((sent, reply)) => sync.read(world, p, sent, reply),
        None => sync.send(world, p),
    };
    match over {
        None => world.processes[p].hub_loop.sync = Some(sync),
        Some(wait) => world.processes[p].hub_loop.wake(time + wait),
    }
}

/// Reads the rows and plans; None where the database does not answer.
fn begin(world: &mut World, p: usize) -> Option<Box<Sync>> {
    let rows = rows(world)?;
    let process = &mut world.processes[p];
    let hub = process.hub.clone()?;
    let (view, said) = (process.view(&world.cluster), process.said());
    let present: Vec<Arc<Form>> = process.forms.values().cloned().collect();
    let hub_loop = &mut process.hub_loop;
    hub_loop
        .compiled
        .retain(|name, _| present.iter().any(|form| form.name == *name));
    let mut forms = BTreeMap::new();
    for form in present {
        let known = hub_loop.compiled.get(&form.name);
        if known
            .is_none_or(|(known, _)| known.uid != form.uid || known.generation != form.generation)
        {
            let compiled = CompiledForm::parse(&form.name, &form.spec)
                .expect("the simulation's forms are sound");
            hub_loop
                .compiled
                .insert(form.name.clone(), (form.clone(), Arc::new(compiled)));
        }
        let compiled = hub_loop.compiled[&form.name].1.clone();
        let policy = form.spec.rollout.clone().unwrap_or_default();
        let forced = hub.forced || form.forced;
        forms.insert(
            form.name.clone(),
            hub_sync::Form {
                generation: form.generation,
                policy,
                forced,
                all_written: form.status.all_written(form.generation),
                compiled,
            },
        );
    }
    let seen_hub = hub_sync::Hub {
        namespace: NAMESPACE.to_owned(),
        name: HUB.to_owned(),
        uid: "uid-hub".to_owned(),
        skew: hub.skew,
        deletions: Allowance {
            max: None,
            confirmation: hub.confirmation.clone(),
        },
        creations: Allowance::default(),
        seed: [7; 32],
    };
    let nodes: Vec<_> = process.nodes.values().cloned().collect();
    let seen = Seen {
        hub: &seen_hub,
        forms: &forms,
        broken_forms: &BTreeSet::new(),
        rows: &rows,
        nodes: &nodes,
        foreign: &|_| None,
        moved: &|_| None,
        rendered: &process.hub_loop.rendered,
    };
    let mut plan = hub_sync::plan(&seen, process.now(world.time));
    let held = plan.held.as_ref().map(|held| held.count);
    if let Some(count) = held.filter(|_| world.settings.mutant == Some(Plant::DeleteOnEmptyRows)) {
        let hub = hub_sync::Hub {
            deletions: Allowance {
                max: None,
                confirmation: Some(count.to_string()),
            },
            ..seen_hub.clone()
        };
        plan = hub_sync::plan(&Seen { hub: &hub, ..seen }, process.now(world.time));
    }
    process.deletions_held = Some(plan.held.is_some());
    let active = world.rows.iter().filter(|(_, active)| **active);
    process.hub_loop.rows = active.map(|(uid, _)| uid.clone()).collect();
    let existing = nodes.iter().filter(|node| !node.deleting).count();
    world
        .witness
        .synced(existing, plan.deletes.len(), hub.confirmation.as_deref());
    world.trace(|| {
        format!(
            "operator {p}: sync: {} writes, {} deletes{}",
            plan.writes.len(),
            plan.deletes.len(),
            if plan.held.is_some() {
                ", deletions held"
            } else {
                ""
            }
        )
    });
    // `note_planned`
    let forgets = !world.planted(Plant::TakeBackUnseen);
    let process = &mut world.processes[p];
    for (name, (form, _)) in &process.hub_loop.compiled {
        let now = process.forms.get(name);
        let Some(now) = now.filter(|now| now.uid == form.uid) else {
            continue;
        };
        if plan.writes.iter().any(|write| write.form == *name) {
            let entry = process.rendered.entry(name.clone());
            entry.or_insert_with(|| Rendered::told(&now.status)).writing = true;
        }
        if let Some(entry) = process.rendered.get_mut(name) {
            entry.desired = plan.desired.get(name).cloned();
            let behind = plan.unwritten.iter().filter(|(form, _)| form == name);
            entry.unwritten.extend(behind.map(|(_, node)| node.clone()));
            let same = |written: &Arc<FormSpec>| written.renders_like(&form.spec);
            entry.spec = entry.spec.take().filter(|spec| !forgets || same(spec));
        }
    }
    Some(Box::new(Sync {
        view,
        said,
        writes: plan.writes,
        spend: hub.confirmation.is_some() && plan.held.is_none(),
        deletes: plan.deletes,
        plan_rendered: plan.rendered,
        desired: plan.desired,
        unwritten: plan.unwritten,
        held: plan.held.map(|held| held.count),
        failed: vec![],
        stage: Stage::Write,
        reply: None,
    }))
}

/// The rows as the data source gives them; None: the query failed.
fn rows(world: &mut World) -> Option<Rows> {
    let failed = world.database_fails();
    if failed && !world.planted(Plant::DeleteOnEmptyRows) {
        return None;
    }
    let columns = Columns {
        uid: "uid".into(),
        activate: "active".into(),
        host_or_url: None,
        extra: BTreeMap::new(),
        words: Words::default(),
    };
    let mut collector = Collector::new(&columns);
    let mut number = 0;
    for (uid, active) in world.rows.iter().filter(|_| !failed) {
        number += 1;
        let active = if *active { "1" } else { "0" };
        collector.push(RawRow {
            number,
            values: vec![Some(uid.clone().into_bytes()), Some(active.into())],
        });
    }
    let rows = collector.finish(RowCount(number));
    Some(rows.expect("the simulation has few rows"))
}

impl Sync {
    fn send(&mut self, world: &mut World, p: usize) -> Option<u64> {
        match self.stage {
            Stage::Write if !self.writes.is_empty() => {
                let which = world.random.below(self.writes.len().min(REQUESTS_MAX));
                let write = self.writes.remove(which);
                let process = &world.processes[p];
                let mut object = write.object.clone();
                if write.way.is_some()
                    && process.said() != self.said
                    && !world.planted(Plant::UngatedUnasked)
                {
                    let all = object["metadata"]["annotations"].as_object_mut();
                    all.map(|all| all.remove(names::UNGATED));
                }
                let request = Request::ApplyNode {
                    name: write.name.clone(),
                    object,
                };
                let asked = process.asked();
                self.ask(world, p, request, Sent::Write(write, asked))
            }
            Stage::Write => {
                self.stage = Stage::Delete;
                None
            }
            Stage::Delete if self.spend => {
                self.spend = false;
                self.ask(world, p, Request::SpendConfirmation, Sent::Spend)
            }
            Stage::Delete => match self.deletes.pop() {
                Some(NodeDeletion { name, uid, .. }) => {
                    self.ask(world, p, Request::DeleteNode { name, uid }, Sent::Delete)
                }
                None => {
                    self.note_rendered(world, p);
                    self.stage = Stage::Report;
                    None
                }
            },
            Stage::Report => {
                let hub = world.processes[p].hub.clone();
                if hub.is_some_and(|hub| hub.deletions_held == self.held) {
                    return Some(self.again(world, p));
                }
                self.ask(
                    world,
                    p,
                    Request::DeletionsHeld { held: self.held },
                    Sent::Report,
                )
            }
        }
    }

    fn ask(&mut self, world: &mut World, p: usize, request: Request, sent: Sent) -> Option<u64> {
        let reply = world.send(p, request, self.view);
        if world.is_slow() {
            self.reply = Some((sent, reply));
            return None;
        }
        self.read(world, p, sent, reply)
    }

    fn read(
        &mut self,
        world: &mut World,
        p: usize,
        sent: Sent,
        reply: Result<Reply, Refused>,
    ) -> Option<u64> {
        let time = world.time;
        let process = &mut world.processes[p];
        let retry = matches!(reply, Err(Refused::Unavailable | Refused::Conflict));
        match (sent, reply) {
            (Sent::Write(write, asked), Ok(Reply::Node(node))) => {
                process.learn_new(&node.digest, asked);
                process.node_loop.wake(&write.name, time);
            }
            (Sent::Write(write, _), _) => self.failed.push(Failed {
                node: Some((write.form, write.uid)),
                retry,
            }),
            (Sent::Spend, Ok(Reply::Hub(hub))) => process.learn_hub(&hub),
            // The sync ends here: what was rendered is not noted, and it begins anew.
            (Sent::Spend, _) => return Some(RETRY_SOON),
            (Sent::Delete, Err(Refused::NotFound) | Ok(_)) => {}
            (Sent::Delete, Err(_)) => self.failed.push(Failed { node: None, retry }),
            (Sent::Report, reply) => {
                if let Ok(Reply::Hub(hub)) = reply {
                    process.learn_hub(&hub);
                }
                let again = self.again(world, p);
                return Some(if retry { again.min(RETRY_SOON) } else { again });
            }
        }
        None
    }

    /// `act` after the writes.
    fn note_rendered(&mut self, world: &mut World, p: usize) {
        let process = &mut world.processes[p];
        let hub_loop = &mut process.hub_loop;
        hub_loop.rendered = std::mem::take(&mut self.plan_rendered);
        for write in self.failed.iter().filter_map(|failed| failed.node.as_ref()) {
            hub_loop.rendered.remove(write);
        }
        for (name, (form, _)) in &hub_loop.compiled {
            let now = process.forms.get(name);
            let Some(now) = now.filter(|now| now.uid == form.uid) else {
                continue;
            };
            let entry = process.rendered.entry(name.clone());
            let entry = entry.or_insert_with(|| Rendered::told(&now.status));
            entry.writing = false;
            entry.desired = self.desired.get(name).cloned();
            let of_form = self.unwritten.iter().filter(|(form, _)| form == name);
            entry.unwritten = of_form.map(|(_, node)| node.clone()).collect();
            let failed = self.failed.iter().filter_map(|failed| {
                let (form, uid) = failed.node.as_ref()?;
                (form == name).then_some((uid, failed.retry))
            });
            let refused = failed.clone().map(|(uid, _)| format!("{uid}-{name}"));
            entry.unwritten.extend(refused);
            if !failed.clone().any(|(_, retry)| retry) {
                entry.generation = form.generation;
                let before = entry.spec.replace(form.spec.clone());
                if !before.is_some_and(|before| form.spec.renders_like(&before)) {
                    entry.same_since = form.generation;
                }
            }
        }
    }

    fn again(&self, world: &mut World, p: usize) -> u64 {
        let time = world.time;
        world.processes[p].release.wake(time);
        let process = &world.processes[p];
        let behind = process.nodes.values().any(|node| process.is_behind(node));
        if behind || self.failed.iter().any(|failed| failed.retry) {
            RETRY_SOON
        } else if world.settings.faults.contains(&Fault::NoPolling) {
            RARELY
        } else {
            INTERVAL
        }
    }
}
