//! The hub loop: reads the rows of one hub, and brings its LynqNodes to what the rows and forms say.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::api::conditions::{self, ConditionState};
use crate::api::form::FormSpec;
use crate::api::hub::{HubSpec, Mysql as MysqlSpec};
use crate::api::names;
use crate::cluster::catalog::Hub;
use crate::cluster::events::About;
use crate::cluster::nodes::HubKey;
use crate::cluster::objects::ApiError;
use crate::controller::{Rendered, World, own_key};
use crate::datasource::mysql::{Limits, Mysql, Password, Settings, Tls};
use crate::datasource::{DataSource, SourceError};
use crate::decide::child::{Kind, ObjectKey};
use crate::decide::hub_sync::{self, NodeWrite, Seen};
use crate::decide::render::CompiledForm;
use crate::decide::rows::{Collector, Columns, Rows};

/// What the loop remembers of a hub between two syncs.
#[derive(Default)]
pub struct Memory {
    source: Option<(Settings, DataSource)>,
    rendered: hub_sync::Rendered,
    compiled: BTreeMap<String, Compiled>,
    seed: Option<[u8; 32]>,
    /// The events that were written, so that a sync every 30 s does not repeat them.
    said: BTreeMap<&'static str, String>,
}

/// A form as the last sync saw it, and what it compiled to.
struct Compiled {
    uid: String,
    generation: i64,
    spec: Arc<FormSpec>,
    form: Result<Arc<CompiledForm>, String>,
}

/// Node writes that one hub may have under way.
const REQUESTS_MAX: usize = 16;
/// Lines of a condition's message; the rest is counted.
const LINES_MAX: usize = 5;

pub async fn reconcile(world: Arc<World>, key: HubKey) -> Option<Duration> {
    let mut memory = world
        .hub_memory
        .lock()
        .expect("the hubs' memory")
        .remove(&key)
        .unwrap_or_default();
    let hub = world.hubs.get(&key.0, &key.1)?;
    let again = sync(&world, &hub, &mut memory).await;
    world
        .hub_memory
        .lock()
        .expect("the hubs' memory")
        .insert(key, memory);
    again
}

/// One sync; returns when the next one is due.
async fn sync(world: &World, hub: &Hub, memory: &mut Memory) -> Option<Duration> {
    if hub.deleting {
        release_hub(world, hub).await;
        return None;
    }
    let spec = match &hub.spec {
        Ok(spec) => spec.clone(),
        Err(error) => {
            let bad = ConditionState::new("Ready", false, "InvalidSpec", error.clone());
            write_status(world, hub, vec![bad], None).await;
            return None;
        }
    };
    let interval = interval(&spec.source.sync_interval);
    let rows = match read_rows(world, hub, &spec, memory).await {
        Ok(rows) => rows,
        Err(problem) => {
            world.metrics.synced(problem.code);
            say(world, hub, memory, "DatabaseQueryFailed", &problem.message);
            // Nothing is changed and nothing deleted, and the counts stay as they were.
            let bad =
                ConditionState::new("Ready", false, "DatabaseConnectionFailed", problem.message);
            write_status(world, hub, vec![bad], None).await;
            return interval;
        }
    };
    memory.said.remove("DatabaseQueryFailed");
    world.metrics.synced("success");
    if let Err(error) = act(world, hub, &spec, &rows, memory).await {
        tracing::warn!(hub = hub.name, namespace = hub.namespace, %error, "the sync was interrupted; trying again");
        return Some(Duration::from_secs(2));
    }
    interval
}

async fn act(
    world: &World,
    hub: &Hub,
    spec: &HubSpec,
    rows: &Rows,
    memory: &mut Memory,
) -> Result<(), ApiError> {
    let key = (hub.namespace.clone(), hub.name.clone());
    let seed = seed(world, hub, memory).await?;
    let (forms, broken) = compile_forms(world, &key, memory);
    let nodes = world.nodes.of_hub(&key);
    let view = hub_sync::Hub {
        namespace: hub.namespace.clone(),
        name: hub.name.clone(),
        uid: hub.uid.clone(),
        skew: spec
            .rollout
            .as_ref()
            .map(|r| r.max_skew)
            .unwrap_or_default(),
        max_deletions: spec.guard.as_ref().and_then(|g| g.max_deletions),
        confirmation: hub.annotations.get(names::CONFIRM_DELETIONS).cloned(),
        seed,
    };
    let foreign = |node: &crate::decide::child::NodeKey| {
        world
            .nodes
            .get(node)
            .is_some_and(|node| node.hub != hub.name)
    };
    let seen = Seen {
        hub: &view,
        forms: &forms,
        broken_forms: &broken,
        rows,
        nodes: &nodes,
        foreign: &foreign,
        rendered: &memory.rendered,
    };
    let plan = hub_sync::plan(&seen, Timestamp::now());

    {
        let mut held = world.deletions_held.lock().expect("the deletions' lock");
        if plan.held.is_some() {
            held.insert(key.clone())
        } else {
            held.remove(&key)
        };
    }
    let mut failures = write_nodes(world, &plan.writes).await;
    if !plan.deletes.is_empty() {
        // Spent before it is used: else it would let as many go again.
        if view.confirmation.is_some() {
            let patch = json!({"metadata": {"annotations": {names::CONFIRM_DELETIONS: null}}});
            world.hubs.learn(
                &world
                    .objects
                    .merge(&own_key("LynqHub", &hub.namespace, &hub.name), &patch)
                    .await?,
            );
        }
        failures.extend(delete_nodes(world, hub, &plan.deletes).await);
    }
    memory.rendered = plan.rendered;
    for write in failures.iter().filter_map(|failure| failure.node.as_ref()) {
        memory.rendered.remove(write);
    }
    note_rendered(world, &key, &forms, memory, &failures);
    report(
        world,
        hub,
        memory,
        &Report {
            rows,
            plan_held: plan.held.as_ref().map(ToString::to_string),
            skipped: &plan.skipped,
            render_errors: &plan.render_errors,
            failures: &failures,
            desired: plan.desired,
            forms: forms.len() + broken.len(),
        },
    )
    .await;
    world.rollout_queue.add(key);
    match failures.into_iter().next() {
        Some(failure) if failure.retry => Err(ApiError::Unavailable(failure.message)),
        _ => Ok(()),
    }
}

/// A row source that is kept while its settings are the same, and read once; a password that was changed is fetched anew.
async fn read_rows(
    world: &World,
    hub: &Hub,
    spec: &HubSpec,
    memory: &mut Memory,
) -> Result<Rows, Problem> {
    let Some(mysql) = &spec.source.mysql else {
        return Err(Problem {
            code: "invalid",
            message: "spec.source.mysql is required when type is mysql".into(),
        });
    };
    let columns = Columns {
        uid: spec.value_mappings.uid.clone(),
        activate: spec.value_mappings.activate.clone(),
        host_or_url: spec.value_mappings.host_or_url.clone(),
        extra: spec.extra_value_mappings.clone(),
    };
    for fresh in [false, true] {
        let (source, was_fresh) = source(world, hub, mysql, memory, fresh).await?;
        let mut collector = Collector::new(&columns);
        match source.rows(&columns, |row| collector.push(row)).await {
            Ok(count) => return Ok(collector.finish(count)),
            Err(SourceError::AccessDenied { .. }) if !was_fresh => {}
            Err(error) => {
                return Err(Problem {
                    code: error.code(),
                    message: error.to_string(),
                });
            }
        }
    }
    Err(Problem {
        code: "access_denied",
        message: "the database refuses the password".into(),
    })
}

struct Problem {
    code: &'static str,
    message: String,
}

/// The source, and whether its password was read just now.
async fn source<'a>(
    world: &World,
    hub: &Hub,
    mysql: &MysqlSpec,
    memory: &'a mut Memory,
    fresh: bool,
) -> Result<(&'a DataSource, bool), Problem> {
    let known = memory
        .source
        .as_ref()
        .map(|(settings, _)| settings.password.clone())
        .filter(|_| !fresh);
    let (password, read) = match known {
        Some(password) => (password, false),
        None => (password(world, hub, mysql).await?, true),
    };
    let settings = Settings {
        host: mysql.host.clone(),
        port: mysql.port as u16,
        user: mysql.username.clone(),
        password,
        database: mysql.database.clone(),
        table: mysql.table.clone(),
        tls: Tls::Disabled,
        limits: Limits::default(),
    };
    if memory
        .source
        .as_ref()
        .is_none_or(|(known, _)| *known != settings)
    {
        memory.source = Some((settings.clone(), DataSource::Mysql(Mysql::new(settings))));
    }
    let (_, source) = memory.source.as_ref().expect("it was just set");
    Ok((source, read))
}

async fn password(world: &World, hub: &Hub, mysql: &MysqlSpec) -> Result<Password, Problem> {
    let Some(reference) = &mysql.password_ref else {
        return Ok(Password::from(String::new()));
    };
    let at = format!("Secret {} in namespace {}", reference.name, hub.namespace);
    let secret = world
        .objects
        .get(&secret_key(&hub.namespace, &reference.name))
        .await
        .map_err(|error| Problem {
            code: "no_password",
            message: match error {
                ApiError::NotFound(_) => {
                    format!("{at}, named by spec.source.mysql.passwordRef, does not exist")
                }
                error => format!("{at} cannot be read: {error}"),
            },
        })?;
    let text = secret_text(&secret, &reference.key).and_then(|bytes| String::from_utf8(bytes).ok());
    let missing = || Problem {
        code: "no_password",
        message: format!("{at} has no key {:?} with text in it", reference.key),
    };
    text.map(Password::from).ok_or_else(missing)
}

fn secret_key(namespace: &str, name: &str) -> ObjectKey {
    let kind = Kind {
        api_version: "v1".into(),
        kind: "Secret".into(),
    };
    ObjectKey {
        kind,
        namespace: namespace.into(),
        name: name.into(),
    }
}

fn secret_text(secret: &Value, key: &str) -> Option<Vec<u8>> {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD
        .decode(secret["data"][key].as_str()?)
        .ok()
}

/// The secret that random template functions draw from: made once for each hub, so that no sync changes a password.
async fn seed(world: &World, hub: &Hub, memory: &mut Memory) -> Result<[u8; 32], ApiError> {
    use base64::Engine;
    if let Some(seed) = memory.seed {
        return Ok(seed);
    }
    let key = secret_key(&hub.namespace, &format!("{}-lynq-seed", hub.name));
    let secret = match world.objects.get(&key).await {
        Ok(secret) => secret,
        Err(ApiError::NotFound(_)) => {
            let mut fresh = [0_u8; 32];
            let provider = rustls::crypto::aws_lc_rs::default_provider();
            provider
                .secure_random
                .fill(&mut fresh)
                .map_err(|_| ApiError::Unavailable("the system gives no random numbers".into()))?;
            let object = json!({
                "apiVersion": "v1", "kind": "Secret",
                "metadata": {"name": key.name, "namespace": key.namespace, "ownerReferences": [{
                    "apiVersion": format!("{}/{}", names::GROUP, names::VERSION), "kind": "LynqHub", "name": hub.name, "uid": hub.uid,
                }]},
                "immutable": true,
                "data": {"seed": base64::engine::general_purpose::STANDARD.encode(fresh)},
            });
            match world.objects.create(&key, &object).await {
                Err(ApiError::Conflict(_)) => world.objects.get(&key).await?,
                other => other?,
            }
        }
        Err(error) => return Err(error),
    };
    let bytes = secret_text(&secret, "seed").and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
    let seed = bytes.ok_or_else(|| {
        ApiError::Refused(format!(
            "Secret {} has no seed of 32 bytes; delete it, and passwords made from it change",
            key.name
        ))
    })?;
    memory.seed = Some(seed);
    Ok(seed)
}

/// The hub's forms, compiled once for each generation; and the names of those that cannot be.
fn compile_forms(
    world: &World,
    hub: &HubKey,
    memory: &mut Memory,
) -> (BTreeMap<String, hub_sync::Form>, BTreeSet<String>) {
    let (mut forms, mut broken) = (BTreeMap::new(), BTreeSet::new());
    // What cannot be read does not say whose it is; its nodes must not go because of that.
    broken.extend(
        world
            .forms
            .in_namespace(&hub.0)
            .iter()
            .filter(|form| form.spec.is_err())
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
            let compiled = Compiled {
                uid: form.uid.clone(),
                generation: form.generation,
                spec: spec.clone(),
                form: CompiledForm::parse(&form.name, spec)
                    .map(Arc::new)
                    .map_err(|e| e.to_string()),
            };
            memory.compiled.insert(form.name.clone(), compiled);
        }
        match &memory.compiled[&form.name].form {
            Ok(compiled) => {
                let policy = spec.rollout.clone().unwrap_or_default();
                let form_view = hub_sync::Form {
                    generation: form.generation,
                    policy,
                    compiled: compiled.clone(),
                };
                forms.insert(form.name.clone(), form_view);
            }
            Err(_) => drop(broken.insert(form.name.clone())),
        }
    }
    (forms, broken)
}

/// The release loop shows how far the rendering is, and why a form cannot be rendered.
fn note_rendered(
    world: &World,
    hub: &HubKey,
    forms: &BTreeMap<String, hub_sync::Form>,
    memory: &Memory,
    failures: &[Failure],
) {
    let mut rendered = world.rendered.lock().expect("the rendered forms' lock");
    for (name, compiled) in &memory.compiled {
        let entry: &mut Rendered = rendered.entry((hub.0.clone(), name.clone())).or_default();
        match &compiled.form {
            Err(error) => {
                entry.error = Some(error.clone());
                entry.generation = compiled.generation;
            }
            Ok(_) => {
                entry.error = None;
                if failures.is_empty() && forms.contains_key(name) {
                    entry.generation = compiled.generation;
                }
                if !failures.iter().any(|failure| failure.retry) {
                    entry.spec = Some(compiled.spec.clone());
                }
            }
        }
    }
}

/// A write or deletion of a node that did not go through.
struct Failure {
    message: String,
    /// Form and uid of the node that was to be written.
    node: Option<(String, String)>,
    /// It may go through when it is tried again soon.
    retry: bool,
}

impl Failure {
    fn new(name: &str, node: Option<(String, String)>, error: &ApiError) -> Self {
        let retry = matches!(error, ApiError::Unavailable(_) | ApiError::Conflict(_));
        Failure {
            message: format!("lynqnode {name}: {error}"),
            node,
            retry,
        }
    }
}

async fn write_nodes(world: &World, writes: &[NodeWrite]) -> Vec<Failure> {
    let (mut failures, mut left, mut running) = (vec![], writes.iter(), FuturesUnordered::new());
    loop {
        while running.len() < REQUESTS_MAX
            && let Some(write) = left.next()
        {
            running.push(async move {
                let key = own_key(
                    "LynqNode",
                    write.object["metadata"]["namespace"]
                        .as_str()
                        .unwrap_or_default(),
                    &write.name,
                );
                (write, world.objects.apply(&key, &write.object, true).await)
            });
        }
        let Some((write, result)) = running.next().await else {
            return failures;
        };
        match result {
            Ok(object) => {
                let now = world.nodes.learn(&object);
                world.node_queue.add(now.key.clone());
            }
            Err(error) => failures.push(Failure::new(
                &write.name,
                Some((write.form.clone(), write.uid.clone())),
                &error,
            )),
        }
    }
}

async fn delete_nodes(world: &World, hub: &Hub, deletes: &[(String, String)]) -> Vec<Failure> {
    let about = About::new("LynqHub", &hub.namespace, &hub.name, &hub.uid);
    let mut failures = vec![];
    for (name, uid) in deletes {
        match world
            .objects
            .delete(&own_key("LynqNode", &hub.namespace, name), uid)
            .await
        {
            Ok(()) => world.events.normal(
                &about,
                "NodeDeleted",
                format!("Deleted LynqNode '{name}': its row or form is gone"),
            ),
            Err(error) => failures.push(Failure::new(name, None, &error)),
        }
    }
    failures
}

/// What a sync has to say.
struct Report<'a> {
    rows: &'a Rows,
    plan_held: Option<String>,
    skipped: &'a [String],
    render_errors: &'a [String],
    failures: &'a [Failure],
    desired: usize,
    forms: usize,
}

async fn report(world: &World, hub: &Hub, memory: &mut Memory, report: &Report<'_>) {
    let failed: Vec<String> = report
        .failures
        .iter()
        .map(|failure| failure.message.clone())
        .collect();
    let skipped = listed(report.skipped);
    let errors = listed(report.render_errors);
    let failed_text = listed(&failed);
    let mut states = vec![ConditionState::new(
        "Ready",
        true,
        "DatabaseConnected",
        "Successfully connected to database and queried node data",
    )];
    for (type_, reason, none, event, text) in [
        (
            "RowsSkipped",
            "UnusableRows",
            "AllRowsUsable",
            "RowsSkipped",
            &skipped,
        ),
        (
            "RenderFailed",
            "TemplateErrors",
            "AllRendered",
            "TemplateRenderFailed",
            &errors,
        ),
        (
            "WriteFailed",
            "NodesNotWritten",
            "AllWritten",
            "NodeWriteFailed",
            &failed_text,
        ),
        (
            "DeletionsHeld",
            "TooManyDeletions",
            "NothingHeld",
            "DeletionsHeld",
            &report.plan_held.clone().unwrap_or_default(),
        ),
    ] {
        let bad = !text.is_empty();
        states.push(ConditionState::new(
            type_,
            bad,
            if bad { reason } else { none },
            text.clone(),
        ));
        if bad {
            say(world, hub, memory, event, text);
        } else {
            memory.said.remove(event);
        }
    }
    let counts = Counts {
        forms: report.forms as i32,
        desired: report.desired as i32,
        skipped: report.rows.skipped.len() as i32,
    };
    write_status(world, hub, states, Some(counts)).await;
}

struct Counts {
    forms: i32,
    desired: i32,
    skipped: i32,
}

/// An event, once for each new text.
fn say(world: &World, hub: &Hub, memory: &mut Memory, reason: &'static str, text: &str) {
    if memory.said.get(reason).is_none_or(|said| said != text) {
        memory.said.insert(reason, text.to_owned());
        tracing::warn!(hub = hub.name, namespace = hub.namespace, reason, text);
        world.events.warning(
            &About::new("LynqHub", &hub.namespace, &hub.name, &hub.uid),
            reason,
            text,
        );
    }
}

/// Writes the hub's own part of its status, if it changed. The ledger beside it is never named here.
async fn write_status(
    world: &World,
    hub: &Hub,
    states: Vec<ConditionState>,
    counts: Option<Counts>,
) {
    // The newest known, since the release loop writes to the same object.
    let hub = world
        .hubs
        .get(&hub.namespace, &hub.name)
        .filter(|now| now.uid == hub.uid);
    let Some(hub) = hub else { return };
    let mut status = hub.status.clone();
    conditions::merge(
        &mut status.conditions,
        &states,
        Some(hub.generation),
        Timestamp::now(),
    );
    status.observed_generation = Some(hub.generation);
    if let Some(counts) = counts {
        status.referencing_templates = Some(counts.forms);
        status.desired = Some(counts.desired);
        status.skipped_rows = Some(counts.skipped);
    }
    if status == hub.status {
        return;
    }
    let patch = json!({"status": {
        "observedGeneration": status.observed_generation,
        "referencingTemplates": status.referencing_templates,
        "desired": status.desired,
        "skippedRows": status.skipped_rows,
        "conditions": status.conditions,
    }});
    match world
        .objects
        .merge_status(&own_key("LynqHub", &hub.namespace, &hub.name), &patch)
        .await
    {
        Ok(object) => drop(world.hubs.learn(&object)),
        Err(error) => {
            tracing::warn!(hub = hub.name, %error, "the hub's status could not be written")
        }
    }
}

/// A hub on its way out: its nodes go by their owner reference; the finalizer that Lynq left must not hold it.
async fn release_hub(world: &World, hub: &Hub) {
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
            .json_patch(&own_key("LynqHub", &hub.namespace, &hub.name), patch)
            .await
        {
            tracing::warn!(hub = hub.name, %error, "the hub's finalizer could not be removed");
        }
    }
}

/// `30s`, `5m`, `1h`; None turns polling off.
fn interval(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.len().saturating_sub(1));
    let factor = match unit {
        "m" => 60,
        "h" => 3600,
        _ => 1,
    };
    let seconds = number.parse::<u64>().unwrap_or(30).saturating_mul(factor);
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

fn listed(lines: &[String]) -> String {
    let shown = lines
        .iter()
        .take(LINES_MAX)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join("; ");
    match lines.len().saturating_sub(LINES_MAX) {
        0 => shown,
        more => format!("{shown}; and {more} more"),
    }
}
