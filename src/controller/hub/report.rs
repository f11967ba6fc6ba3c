//! What a sync has to say: conditions of the hub, and an event for each new text. Says the same in both.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use crate::api::conditions::{self, ConditionReason, ConditionState, kstatus};
use crate::api::events::EventReason;
use crate::api::hub::SourceType;
use crate::cluster::catalog::Hub;
use crate::cluster::clock;
use crate::cluster::events::About;
use crate::cluster::objects::ApiError;
use crate::controller::World;
use crate::controller::hub::HubMemory;
use crate::controller::hub::nodes::Failure;
use crate::controller::hub::source::{Problem, rows_read};
use crate::decide::child::ObjectKey;
use crate::decide::hub::findings::{Findings, Subject};
use crate::decide::hub::rows::guard::Held;
use crate::decide::hub::sync::rows_hash;
use crate::decide::shared::backoff::Backoff;

/// A sync that knew the rows.
pub struct Report<'a> {
    pub source: SourceType,
    /// Why deletions, or creations, wait, if they do.
    pub deletions_held: Option<&'a Held>,
    pub creations_held: Option<&'a Held>,
    pub skipped_rows: usize,
    pub skipped: &'a Findings,
    pub render_errors: &'a Findings,
    pub failures: &'a [Failure],
    pub desired: usize,
    pub forms: usize,
}

/// A condition of the hub that is True when something is wrong, with the event that goes with it.
struct Complaint {
    type_: &'static str,
    bad: ConditionReason,
    good: ConditionReason,
    event: EventReason,
}

const READY: Complaint = Complaint {
    type_: "Ready",
    bad: ConditionReason::DatabaseConnectionFailed,
    good: ConditionReason::DatabaseConnected,
    event: EventReason::DatabaseQueryFailed,
};
const ROWS: Complaint = Complaint {
    type_: "RowsSkipped",
    bad: ConditionReason::UnusableRows,
    good: ConditionReason::AllRowsUsable,
    event: EventReason::RowsSkipped,
};
const TEMPLATES: Complaint = Complaint {
    type_: "RenderFailed",
    bad: ConditionReason::TemplateErrors,
    good: ConditionReason::AllRendered,
    event: EventReason::TemplateRenderFailed,
};
const WRITES: Complaint = Complaint {
    type_: "WriteFailed",
    bad: ConditionReason::NodesNotWritten,
    good: ConditionReason::AllWritten,
    event: EventReason::NodeWriteFailed,
};
const DELETIONS: Complaint = Complaint {
    type_: "DeletionsHeld",
    bad: ConditionReason::TooManyDeletions,
    good: ConditionReason::NothingHeld,
    event: EventReason::DeletionsHeld,
};
const CREATIONS: Complaint = Complaint {
    type_: "CreationsHeld",
    bad: ConditionReason::TooManyCreations,
    good: ConditionReason::NothingHeld,
    event: EventReason::CreationsHeld,
};

impl Complaint {
    fn state(&self, text: &str) -> ConditionState {
        let (bad, reason) = match text {
            "" => (false, self.good),
            _ => (true, self.bad),
        };
        ConditionState::new(self.type_, bad, reason, text)
    }
}

/// Returns when to say it again, if it could not be said.
pub async fn synced(
    world: &World,
    hub: &Hub,
    memory: &mut HubMemory,
    report: &Report<'_>,
) -> Option<Duration> {
    let mut failed = Findings::default();
    for failure in report.failures {
        // Its name would make a cause of its own of each.
        let named = format!(" {:?}", failure.name);
        failed.add(
            Subject::Node,
            &failure.name,
            failure.message.replacen(&named, "", 1),
        );
    }
    memory.said.remove(READY.type_);
    let mut states = vec![ConditionState::new(
        "Ready",
        true,
        READY.good,
        rows_read(report.source),
    )];
    for (complaint, findings) in [
        (ROWS, report.skipped),
        (TEMPLATES, report.render_errors),
        (WRITES, &failed),
    ] {
        say(world, hub, memory, &complaint, findings.sentences());
        states.push(complaint.state(&findings.to_string()));
    }
    for (complaint, held) in [
        (DELETIONS, report.deletions_held),
        (CREATIONS, report.creations_held),
    ] {
        let held = held.map(Held::to_string);
        say(world, hub, memory, &complaint, held.clone());
        states.push(complaint.state(&held.unwrap_or_default()));
    }
    let count = |held: &Held| i32::try_from(held.count).unwrap_or(i32::MAX);
    let counts = Counts {
        forms: report.forms as i32,
        desired: report.desired as i32,
        skipped: report.skipped_rows as i32,
        held_deletions: report.deletions_held.map(count),
        held_creations: report.creations_held.map(count),
        rows_hash: match &hub.spec {
            Ok(spec) if !report.failures.iter().any(Failure::is_fleeting) => Some(rows_hash(spec)),
            _ => None,
        },
    };
    write_status(world, hub, memory, states, Some(counts)).await
}

/// There are no rows. The counts stay as they were. Returns when to say it again, if it could not be said.
pub async fn problem(
    world: &World,
    hub: &Hub,
    memory: &mut HubMemory,
    problem: Problem,
) -> Option<Duration> {
    world.metrics.synced(problem.code);
    world.metrics.reconciled("lynqhub", false);
    let complaint = Complaint {
        event: match problem.reason {
            ConditionReason::InvalidSpec => EventReason::InvalidSpec,
            _ => READY.event,
        },
        ..READY
    };
    let message = Some(problem.message.clone());
    say(world, hub, memory, &complaint, message);
    let bad = ConditionState::new("Ready", false, problem.reason, problem.message);
    let say_again = write_status(world, hub, memory, vec![bad], None).await;
    // The forms whose changes wait for the rows name the cause.
    let key = (hub.namespace.clone(), hub.name.clone());
    world.rollout_queue.add(key);
    say_again
}

/// Since when the rows are not read, as the status tells; now if the last try succeeded.
pub fn unread_since(hub: &Hub) -> Timestamp {
    let ready = conditions::find(&hub.status.conditions, READY.type_);
    let unread = ready.filter(|ready| ready.status == "False");
    unread.map_or_else(clock::now, |unread| unread.last_transition_time)
}

/// The rows were there, but the sync ended on the way.
pub async fn interrupted(world: &World, hub: &Hub, memory: &mut HubMemory, error: &ApiError) {
    let text = error.to_string();
    say(world, hub, memory, &WRITES, Some(text.clone()));
    write_status(world, hub, memory, vec![WRITES.state(&text)], None).await;
}

/// The hub is deleted, and cannot be let go.
pub fn stays(world: &World, hub: &Hub, memory: &mut HubMemory, error: &ApiError) {
    let text = format!("lynqgate cannot remove the finalizer that Lynq left: {error}; it retries");
    say(world, hub, memory, &WRITES, Some(text));
}

/// An event for each sentence that was not said by the last sync.
fn say(
    world: &World,
    hub: &Hub,
    memory: &mut HubMemory,
    complaint: &Complaint,
    sentences: impl IntoIterator<Item = String>,
) {
    let now: Vec<String> = sentences.into_iter().collect();
    let before = memory.said.insert(complaint.type_, now.clone());
    let before = before.unwrap_or_default();
    for text in now.into_iter().filter(|text| !before.contains(text)) {
        let reason = complaint.event;
        let word = reason.as_str();
        tracing::warn!(
            hub = hub.name,
            namespace = hub.namespace,
            reason = word,
            text
        );
        let about = About::new("LynqHub", &hub.namespace, &hub.name, &hub.uid);
        world.events.tell(&about, reason, text);
    }
}

struct Counts {
    forms: i32,
    desired: i32,
    skipped: i32,
    held_deletions: Option<i32>,
    held_creations: Option<i32>,
    /// None where some of the nodes are still to be written.
    rows_hash: Option<String>,
}

/// Before nodes are written from other rows than the status tells of: whoever comes next must not take those for what a revert
/// of the hub asks for.
pub async fn forget_rows(world: &World, hub: &Hub, rows_hash: &str) -> Result<(), ApiError> {
    let now = world.hubs.get(&hub.namespace, &hub.name);
    let told = now.and_then(|now| now.status.rows_hash.clone());
    if told.is_some_and(|told| told != rows_hash) {
        let key = ObjectKey::own("LynqHub", &hub.namespace, &hub.name);
        let patch = json!({"status": {"rowsHash": null}});
        match world.objects.merge_status(&key, &patch).await {
            Ok(written) => drop(world.hubs.learn(&written)),
            // Whoever refuses that must not keep the nodes from what they need; this process knows.
            Err(ApiError::Refused(why) | ApiError::Invalid { text: why, .. }) => {
                tracing::warn!(hub = hub.name, why, "the hub's status could not be written");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes the hub's own part of its status, if it changed. The ledger beside it is never named here. Returns when to try it
/// again, where that may help.
async fn write_status(
    world: &World,
    hub: &Hub,
    memory: &mut HubMemory,
    states: Vec<ConditionState>,
    counts: Option<Counts>,
) -> Option<Duration> {
    let failed = std::mem::take(&mut memory.unsaid);
    // What is said is about this one, however often it was edited since.
    let generation = Some(hub.generation);
    // The newest known, since the release loop writes to the same object.
    let hub = world
        .hubs
        .get(&hub.namespace, &hub.name)
        .filter(|now| now.uid == hub.uid);
    let hub = hub?;
    let mut status = hub.status.clone();
    let now = clock::now();
    conditions::merge(&mut status.conditions, &states, generation, now);
    kstatus::summarize(&mut status.conditions, kstatus::of_hub, now);
    status.observed_generation = generation;
    if let Some(counts) = counts {
        status.referencing_templates = Some(counts.forms);
        status.desired = Some(counts.desired);
        status.skipped_rows = Some(counts.skipped);
        status.held_deletions = counts.held_deletions;
        status.held_creations = counts.held_creations;
        status.rows_hash = counts.rows_hash.or(status.rows_hash);
    }
    if status == hub.status {
        return None;
    }
    let patch = json!({"status": {
        "observedGeneration": status.observed_generation,
        "referencingTemplates": status.referencing_templates,
        "desired": status.desired,
        "skippedRows": status.skipped_rows,
        "heldDeletions": status.held_deletions,
        "heldCreations": status.held_creations,
        "rowsHash": status.rows_hash,
        "conditions": status.conditions,
    }});
    match world
        .objects
        .merge_status(
            &ObjectKey::own("LynqHub", &hub.namespace, &hub.name),
            &patch,
        )
        .await
    {
        Ok(object) => {
            world.hubs.learn(&object);
            None
        }
        Err(error) => {
            tracing::warn!(hub = hub.name, %error, "the hub's status could not be written");
            memory.unsaid = failed.saturating_add(1);
            error.may_pass().then(|| Backoff::HUB.after(memory.unsaid))
        }
    }
}
