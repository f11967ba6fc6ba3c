//! The hub loop: reads the rows of one hub, and brings its LynqNodes to what the rows and forms say.

mod asked;
mod nodes;
mod report;
pub mod seed;
mod source;
mod turn;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::Semaphore;

use crate::api::form::FormSpec;
use crate::api::hub::HubSpec;
use crate::api::policy::seconds_of;
use crate::api::{conditions, names};
use crate::cluster::catalog::{Form, Hub};
use crate::cluster::clock;
use crate::cluster::nodes::HubKey;
use crate::cluster::objects::ApiError;
use crate::cluster::process;
use crate::controller::rollout::snapshot::is_forced;
use crate::controller::{Rendered, Said, World, metrics, panic_text};
use crate::datasource::database::Limits;
use crate::decide::child::{NodeKey, ObjectKey};
use crate::decide::hub::desired::Desired;
use crate::decide::hub::render::CompiledForm;
use crate::decide::hub::rows::{Row, Rows, guard};
use crate::decide::hub::sync::{self, SyncInputs};
use crate::decide::rollout::status::ROLLOUT_COMPLETE;
use crate::decide::shared::backoff::Backoff;
pub use asked::{check, rows_as, rows_now, rows_of};
use nodes::{Ended, Failure};
use report::Report;
pub use source::{Databases, Problem};
use turn::Turn;

/// What the loop remembers of a hub between two syncs.
#[derive(Default)]
pub struct HubMemory {
    /// The hub's uid: one of the same name made later is another.
    uid: String,
    rendered: sync::Rendered,
    compiled: BTreeMap<String, Compiled>,
    seed: Option<[u8; 32]>,
    /// Nodes whose writes or deletions fail: in how many syncs in a row.
    failing: BTreeMap<String, u32>,
    /// By condition: what its events said, so that a sync every 30 s does not repeat them.
    said: BTreeMap<&'static str, Vec<String>>,
    /// How often in a row the status could not be written.
    unsaid: u32,
}

/// A form as the last sync saw it, and what it compiled to.
struct Compiled {
    uid: String,
    generation: i64,
    spec: Arc<FormSpec>,
    /// When this process began with what it renders, its status told that every node was written from it.
    all_written: bool,
    form: Result<Arc<CompiledForm>, String>,
}

/// Rows are read at least once a week, whatever the hub says, unless it says never.
const INTERVAL_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// While nodes are written that only wait for their release, rows are read again no sooner than after this: each time all rows are
/// read, and what they changed is rendered.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(30);
/// A node that so many syncs could not write is not waited for.
const LASTING: u32 = 3;
/// The release loop says within this that a rollout goes on, or is not waited for.
const REOPENED_WITHIN: Duration = Duration::from_secs(2);

/// `turns` bounds how many hubs render and write at a time. Reading needs no turn: a database that hangs holds up its own
/// hub and no other.
pub async fn reconcile(world: Arc<World>, turns: Arc<Semaphore>, key: HubKey) -> Option<Duration> {
    if !world.leads(&key) {
        world.forget_rows(&key);
        return None;
    }
    let mut memory = world.hub_memory.lock().remove(&key).unwrap_or_default();
    let Some(hub) = world.hubs.get(&key.0, &key.1) else {
        world.deletions_held.lock().remove(&key);
        return None;
    };
    if memory.uid != hub.uid {
        memory = HubMemory {
            uid: hub.uid.clone(),
            ..HubMemory::default()
        };
    }
    let again = sync(&world, &turns, &hub, &mut memory).await;
    world.hub_memory.lock().insert(key, memory);
    again
}

/// The sync of a hub panicked. Its memory is lost, as with a restart, and its nodes stay as they are.
pub async fn panicked(world: Arc<World>, key: HubKey, rest: Duration) {
    world.metrics.panicked("lynqhub");
    let why = panic_text(rest);
    tracing::error!(hub = ?key, "the sync panicked: {why}");
    if let Some(hub) = world.hubs.get(&key.0, &key.1) {
        let error = ApiError::Unavailable(why);
        report::interrupted(&world, &hub, &mut HubMemory::default(), &error).await;
    }
}

/// One sync; returns when the next one is due.
async fn sync(
    world: &World,
    turns: &Semaphore,
    hub: &Hub,
    memory: &mut HubMemory,
) -> Option<Duration> {
    if hub.deleting {
        return release_hub(world, hub, memory).await;
    }
    let spec = match &hub.spec {
        Ok(spec) => spec.clone(),
        Err(error) => {
            return report::problem(world, hub, memory, Problem::invalid(error)).await;
        }
    };
    let interval = interval(&spec.source.sync_interval);
    let retry = interval
        .into_iter()
        .chain([Backoff::HUB_REFUSED.longest])
        .min();
    let forced = is_forced(&hub.annotations);
    let key = (hub.namespace.clone(), hub.name.clone());
    if interval.is_some() {
        // A database that never answered since this process leads must be alerted on, too.
        (world.metrics).hub_due(&key, || report::unread_since(hub));
    }
    let (forms, _) = process::compute(|| compile_forms(world, &key, forced, memory));
    let limits = Limits::default();
    let rows = {
        // Where a node changes while the rows are read, the plan sees that its row is not settled any more.
        let nodes = world.nodes.of_hub(&key).into_iter();
        let nodes = nodes.map(|node| (node.key.name.clone(), node)).collect();
        let is_settled = |row: &Row| sync::is_settled(&forms, &memory.rendered, &nodes, row);
        source::read_rows(world, (hub, true), &spec, &limits, &is_settled).await
    };
    let rows = match rows {
        Ok(rows) => rows,
        Err(problem) => {
            // Nothing is changed and nothing deleted, and the counts stay as they were.
            let say_again = report::problem(world, hub, memory, problem).await;
            return say_again.into_iter().chain(retry).min();
        }
    };
    let turn = Turn::of(turns).await;
    // First what was said, then what is decided on: whatever changes between the two, and after them, is noticed.
    let said = world.said(&key);
    // The hub may have changed while the database answered.
    let current = world.hubs.get(&hub.namespace, &hub.name)?;
    if current.uid != hub.uid || current.generation != hub.generation || current.deleting {
        return Some(Duration::ZERO);
    }
    world.metrics.synced("success");
    let acted = act(world, (&current, &said), &spec, rows, memory, turn).await;
    world.metrics.reconciled("lynqhub", acted.is_ok());
    match acted {
        Ok(wait) => wait.into_iter().chain(interval).min(),
        Err(error) => {
            report::interrupted(world, &current, memory, &error).await;
            match error.may_pass() {
                true => Some(Backoff::HUB.first),
                false => retry,
            }
        }
    }
}

/// Returns when to try again what may go through then.
async fn act(
    world: &World,
    (hub, said): (&Hub, &Said),
    spec: &HubSpec,
    rows: Rows,
    memory: &mut HubMemory,
    mut turn: Turn<'_>,
) -> Result<Option<Duration>, ApiError> {
    let key = (hub.namespace.clone(), hub.name.clone());
    let seed = match memory.seed {
        Some(seed) => seed,
        None => *memory.seed.insert(seed::seed(world, hub).await?),
    };
    let (mut source, mut plan, broken) = decide(world, (hub, spec), rows, memory, seed);
    source.keep_written(&plan.writes);
    // Each sync looks at the nodes to find out what is written, so the renderings of the last sync can go before the writes.
    memory.rendered = std::mem::take(&mut plan.rendered);
    let mut failures = vec![];
    let makes = plan.writes.iter().any(|write| write.makes());
    let waits = plan.creations_held.is_some();
    if let Err(failure) = nodes::spend(world, hub, names::CONFIRM_CREATIONS, waits, makes).await {
        failures.push(failure);
        plan.writes.retain(|write| !write.makes());
    }

    let rows_hash = sync::rows_hash(spec);
    if !plan.writes.is_empty() {
        report::forget_rows(world, hub, &rows_hash).await?;
    }
    note_planned(world, &key, memory, &plan, &rows_hash);
    (world.deletions_held.lock()).insert(key.clone(), plan.held.is_some());
    if !plan.writes.is_empty() {
        reopen(world, &key, &plan.desired).await;
    }
    let rows_due = interval(&spec.source.sync_interval)
        .map(|interval| clock::instant() + interval.max(READ_AGAIN_AFTER));
    let of_hub = (&key, said);
    let written =
        nodes::write_nodes(world, of_hub, &source, &plan.writes, &mut turn, rows_due).await;
    failures.extend(written.failures);
    if written.ended != Ended::Outdated {
        let (mut deletes, waits) = (plan.deletes.as_slice(), plan.held.is_some());
        let goes = !deletes.is_empty();
        let spent = nodes::spend(world, hub, names::CONFIRM_DELETIONS, waits, goes).await;
        if let Err(failure) = spent {
            failures.push(failure);
            deletes = &[];
        }
        failures.extend(nodes::delete_nodes(world, hub, deletes).await);
    }
    for failure in &mut failures {
        failure.times += memory.failing.get(&failure.name).copied().unwrap_or(0);
    }
    let failing = failures.iter();
    memory.failing = failing
        .map(|failure| (failure.name.clone(), failure.times))
        .collect();
    for failure in failures.iter().filter(|failure| failure.form.is_some()) {
        memory.rendered.remove(failure.name.as_str());
    }
    note_written(world, &key, memory, &failures);
    if written.ended != Ended::Finished {
        return Ok(Some(Duration::ZERO));
    }
    if interval(&spec.source.sync_interval).is_some() {
        note_synced(world, &key, &source.rows, &plan);
    }
    let desired = plan.desired.values().map(|nodes| nodes.count()).sum();
    let report = Report {
        source: spec.source.type_,
        deletions_held: plan.held.as_ref(),
        creations_held: plan.creations_held.as_ref(),
        skipped_rows: source.rows.skipped.len(),
        skipped: &plan.skipped,
        render_errors: &plan.render_errors,
        failures: &failures,
        desired,
        forms: source.forms.len() + broken.len(),
    };
    let say_again = report::synced(world, hub, memory, &report).await;
    world.rollout_queue.add(key.clone());
    let waits = failures.iter().map(|failure| {
        let backoff = match failure.retry {
            true => Backoff::HUB,
            false => Backoff::HUB_REFUSED,
        };
        backoff.after(failure.times)
    });
    // Seen while they were being written, it was no reason for another sync.
    let behind = world.has_behind(&key).then_some(Backoff::HUB.first);
    let reread = plan.reread.then_some(Duration::ZERO);
    Ok(waits.chain(behind).chain(say_again).chain(reread).min())
}

/// Of a hub whose rows are read again by themselves, so that somebody can be alerted when they are not.
fn note_synced(world: &World, hub: &HubKey, rows: &Rows, plan: &sync::Plan) {
    let count = |held: &Option<guard::Held>| held.as_ref().map_or(0, |held| held.count as i64);
    let held = metrics::Held {
        deletions: count(&plan.held),
        creations: count(&plan.creations_held),
    };
    let mut skipped: BTreeMap<&'static str, i64> = BTreeMap::new();
    for row in &rows.skipped {
        *skipped.entry(row.reason.code()).or_default() += 1;
    }
    world.metrics.hub_synced(hub, held, &skipped, clock::now());
}

/// Whoever waits for a rollout's end must not read it between the first write and the release loop's next pass: that loop says
/// that the rollout goes on before a node is written. What keeps it from that keeps no node from what it needs.
async fn reopen(world: &World, hub: &HubKey, desired: &BTreeMap<String, Arc<Desired>>) {
    let nodes = world.nodes.of_hub(hub);
    let changes = |(name, desired): &(&String, &Arc<Desired>)| {
        let of_form = nodes.iter().filter(|node| node.form == **name);
        desired.lacks_any(of_form.map(Arc::as_ref))
    };
    let changed: Vec<&String> = desired
        .iter()
        .filter(changes)
        .map(|(name, _)| name)
        .collect();
    let is_complete = |name: &&String| {
        let form = world.forms.get(&hub.0, name);
        form.is_some_and(|form| conditions::is_true(&form.status.conditions, ROLLOUT_COMPLETE))
    };
    if !changed.iter().any(is_complete) {
        return;
    }
    let told = async {
        let mut next = world.forms_told.notified();
        while changed.iter().any(is_complete) {
            next.await;
            next = world.forms_told.notified();
        }
    };
    world.hurry(hub);
    if tokio::time::timeout(REOPENED_WITHIN, told).await.is_err() {
        tracing::warn!(
            ?hub,
            ?changed,
            "nodes are written while a status still says that its rollout is complete"
        );
    }
}

/// What the first sync of a hub finds, and what it would write and delete.
pub struct FirstSync {
    pub source: sync::RenderSource,
    pub plan: sync::Plan,
    /// Forms that cannot be rendered, and why.
    pub broken: BTreeMap<String, String>,
}

/// Makes the seed of the hub, if it has none, and writes nothing else.
pub async fn first_sync(world: &World, hub: &Hub) -> Result<FirstSync, String> {
    let spec = hub.spec.clone()?;
    let limits = Limits::default();
    let rows = source::read_rows(world, (hub, true), &spec, &limits, &|_| false).await;
    let rows = rows.map_err(|problem| problem.message)?;
    let seed = seed::seed(world, hub).await;
    let seed = seed.map_err(|error| error.to_string())?;
    let mut memory = HubMemory::default();
    let (source, plan, names) = decide(world, (hub, &spec), rows, &mut memory, seed);
    let why = |name: &String| match memory.compiled.get(name) {
        Some(compiled) => compiled.form.as_ref().err().cloned(),
        None => world
            .forms
            .get(&hub.namespace, name)?
            .spec
            .as_ref()
            .err()
            .cloned(),
    };
    let broken = names
        .iter()
        .filter_map(|name| Some((name.clone(), why(name)?)));
    let broken = broken.collect();
    Ok(FirstSync {
        source,
        plan,
        broken,
    })
}

/// What the rows and forms make of the hub's nodes, and the names of the forms that cannot be rendered.
fn decide(
    world: &World,
    (hub, spec): (&Hub, &HubSpec),
    rows: Rows,
    memory: &mut HubMemory,
    seed: [u8; 32],
) -> (sync::RenderSource, sync::Plan, BTreeSet<String>) {
    let key = (hub.namespace.clone(), hub.name.clone());
    let forced = is_forced(&hub.annotations);
    let (forms, broken) = process::compute(|| compile_forms(world, &key, forced, memory));
    let nodes = world.nodes.of_hub(&key);
    let annotation = |name: &str| hub.annotations.get(name).cloned();
    let (deletions, creations) = sync::allowances(spec, &annotation);
    let view = sync::Hub {
        namespace: hub.namespace.clone(),
        name: hub.name.clone(),
        uid: hub.uid.clone(),
        skew: spec
            .rollout
            .as_ref()
            .map(|r| r.max_skew)
            .unwrap_or_default(),
        deletions,
        creations,
        seed,
    };
    let foreign = |node: &NodeKey| {
        let of = world.nodes.get(node)?.hub.clone();
        (of != hub.name).then_some(of)
    };
    let moved = |form: &str| {
        let form = world.forms.get(&hub.namespace, form)?;
        let elsewhere = !form.deleting && !form.hub_id.is_empty() && form.hub_id != hub.name;
        elsewhere.then(|| form.hub_id.clone())
    };
    let source = sync::RenderSource {
        hub: view,
        forms,
        rows,
    };
    let seen = SyncInputs {
        source: &source,
        broken_forms: &broken,
        nodes: &nodes,
        foreign: &foreign,
        moved: &moved,
        rendered: &memory.rendered,
    };
    // Rendering takes as long as the templates like; the gate and the lease must not wait for it.
    let plan = process::compute(|| world.decisions.sync(&seen, clock::now()));
    (source, plan, broken)
}

/// The hub's forms, compiled once for each generation; and the names of those that cannot be.
fn compile_forms(
    world: &World,
    hub: &HubKey,
    hub_forced: bool,
    memory: &mut HubMemory,
) -> (BTreeMap<String, sync::Form>, BTreeSet<String>) {
    let (mut forms, mut broken) = (BTreeMap::new(), BTreeSet::new());
    // What cannot be read may not say whose it is; no node must go because of that.
    broken.extend(
        world
            .forms
            .in_namespace(&hub.0)
            .iter()
            .filter(|form| form.spec.is_err() && (form.hub_id.is_empty() || form.hub_id == hub.1))
            .map(|form| form.name.clone()),
    );
    let present = world.forms_of(hub);
    memory
        .compiled
        .retain(|name, _| present.iter().any(|form| form.name == *name));
    for form in present {
        let Ok(spec) = &form.spec else { continue };
        let known = memory.compiled.get(&form.name);
        if known.is_none_or(|known| known.uid != form.uid || known.generation != form.generation) {
            let same = known.filter(|known| known.uid == form.uid && known.spec.renders_like(spec));
            let told = || form.status.all_written(form.generation);
            let compiled = Compiled {
                uid: form.uid.clone(),
                generation: form.generation,
                spec: spec.clone(),
                all_written: same.map_or_else(told, |known| known.all_written),
                form: CompiledForm::parse(&form.name, spec)
                    .map(|form| Arc::new(form.sparing(&world.namespace)))
                    .map_err(|e| e.to_string()),
            };
            memory.compiled.insert(form.name.clone(), compiled);
        }
        let known = &memory.compiled[&form.name];
        match &known.form {
            Ok(compiled) => {
                let policy = spec.rollout.clone().unwrap_or_default();
                let form_view = sync::Form {
                    generation: form.generation,
                    policy,
                    forced: hub_forced || is_forced(&form.annotations),
                    all_written: known.all_written,
                    compiled: compiled.clone(),
                };
                forms.insert(form.name.clone(), form_view);
            }
            Err(_) => drop(broken.insert(form.name.clone())),
        }
    }
    (forms, broken)
}

/// The form, unless it is another one of the same name by now.
fn current(world: &World, hub: &HubKey, name: &str, compiled: &Compiled) -> Option<Arc<Form>> {
    let form = world.forms.get(&hub.0, name)?;
    (form.uid == compiled.uid && form.hub_id == hub.1).then_some(form)
}

/// What every node is to be is known before the first of them is written: the release loop lets go what is written, and waits
/// for the rest.
fn note_planned(
    world: &World,
    hub: &HubKey,
    memory: &HubMemory,
    plan: &sync::Plan,
    rows_hash: &str,
) {
    let mut rendered = world.rendered.lock();
    for (name, compiled) in &memory.compiled {
        let Some(form) = current(world, hub, name, compiled) else {
            continue;
        };
        let entry = rendered.entry((hub.0.clone(), name.clone()));
        let entry = entry.or_insert_with(|| Rendered::told(&form.status));
        entry.error = compiled.form.as_ref().err().cloned();
        // Where the form cannot be rendered now, all of that stays as it was.
        let Some(desired) = plan.desired.get(name) else {
            continue;
        };
        entry.writing = plan.writes.iter().any(|write| write.form == *name);
        // The release loop sees again only the nodes of which something else is known.
        if entry.desired.as_ref() != Some(desired) {
            entry.desired = Some(desired.clone());
        }
        let unwritten = plan.unwritten.iter().filter(|(form, _)| form == name);
        entry.unwritten = unwritten.map(|(_, node)| node.clone()).collect();
        entry.generation = compiled.generation;
        entry.rows_hash = Some(rows_hash.to_owned());
        let before = entry.spec.replace(compiled.spec.clone());
        if !before.is_some_and(|before| compiled.spec.renders_like(&before)) {
            entry.same_since = compiled.generation;
        }
    }
}

/// What could not be written is not waited for by any other sync.
fn note_written(world: &World, hub: &HubKey, memory: &HubMemory, failures: &[Failure]) {
    let mut rendered = world.rendered.lock();
    for name in memory.compiled.keys() {
        let Some(entry) = rendered.get_mut(&(hub.0.clone(), name.clone())) else {
            continue;
        };
        entry.writing = false;
        let refused = failures.iter();
        let refused = refused.filter(|failure| failure.form.as_ref() == Some(name));
        let refused = refused.map(|failure| failure.name.as_str().into());
        entry.unwritten.extend(refused);
    }
}

/// A hub on its way out: its nodes go by their owner reference; the finalizer that Lynq left must not hold it.
/// Returns when to try it again.
async fn release_hub(world: &World, hub: &Hub, memory: &mut HubMemory) -> Option<Duration> {
    if let Some(position) = hub
        .finalizers
        .iter()
        .position(|f| f == names::HUB_FINALIZER)
    {
        let path = format!("/metadata/finalizers/{position}");
        let patch = json!([{"op": "test", "path": path, "value": names::HUB_FINALIZER}, {"op": "remove", "path": path}]);
        let patch = serde_json::from_value(patch).expect("a JSON patch");
        if let Err(error) = world
            .objects
            .json_patch(&ObjectKey::own("LynqHub", &hub.namespace, &hub.name), patch)
            .await
        {
            report::stays(world, hub, memory, &error);
            return Some(Backoff::HUB.longest);
        }
    }
    None
}

/// `30s`, `5m`, `1h`; None turns polling off. What is too long for a number is as good as the longest.
fn interval(text: &str) -> Option<Duration> {
    let interval = Duration::from_secs(seconds_of(text)).min(INTERVAL_MAX);
    (!interval.is_zero()).then_some(interval)
}
