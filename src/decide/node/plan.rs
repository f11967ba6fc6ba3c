//! The next steps of the node controller for one node: which resources to apply, which objects to take down, and the status.
//! Called again after every step, until nothing is left to do.

pub mod applies;
pub mod news;
pub mod ownership;
pub mod record;
pub mod recreate;
pub mod status;
mod take_down;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::api::names;
use crate::decide::child::{Child, Kind, ObjectKey};
use crate::decide::node::digest::{Facts, NodeDigest};
use crate::decide::node::graph::{Graph, GraphError, State, Step, Vertex};
use crate::decide::node::plan::applies::{Applies, fought_over};
use crate::decide::node::plan::news::Trouble;
use crate::decide::node::plan::ownership::{is_ours, refused};
use crate::decide::node::plan::record::{Record, key_of};
pub use crate::decide::node::plan::take_down::{Deletion, TakeDown, plan_deletion};
use crate::decide::readiness::{Readiness, Reason};
use crate::decide::rollout::Live;
use crate::decide::shared::backoff::Backoff;
use crate::decide::shared::content::hash_value;

/// A failed apply of a resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    pub kind: FailureKind,
    pub message: String,
    pub retry_at: Timestamp,
    /// The state on which the apply failed. Once it changes, the failure no longer counts.
    pub premise: Premise,
}

/// The state on which an apply may depend, as far as events report it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Premise {
    /// When the content went live: a policy may have changed with it that the object does not show.
    pub start: Option<String>,
    /// The object's uid, and what changes when it is written.
    pub object: Option<(String, u64)>,
    /// The uid of its namespace, and whether that is being deleted.
    pub namespace: Option<(String, bool)>,
}

impl Premise {
    pub fn of(node: &NodeDigest, child: Option<&Child>, namespace: Option<(String, bool)>) -> Self {
        Premise {
            start: node.start.clone(),
            object: child.map(|child| (child.uid.clone(), child.written)),
            namespace,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// Another owner has the object or one of its fields.
    Conflict,
    Refused,
}

/// A resource with its object.
#[derive(Clone, Debug)]
pub struct ObservedResource<'a> {
    pub facts: &'a Facts,
    /// Why objects of its kind cannot be handled.
    pub unavailable: Option<&'a str>,
    pub child: Option<&'a Child>,
    /// What keeps its pods from running, if it waits for pods.
    pub obstacle: Option<&'a str>,
    pub failure: Option<&'a Failure>,
    /// The state on which an apply would depend now.
    pub premise: Premise,
    /// Hash of the fields that our last apply owned. None while that is not known: one more apply settles it.
    pub fields_hash: Option<&'a str>,
    /// The applies of its newest content so far.
    pub applies: Applies,
    /// When the wait for readiness began; None once it was ready.
    pub waiting_since: Option<Timestamp>,
    /// How long after its apply the object counts as ready while its readiness is unknown.
    pub untold: SignedDuration,
}

/// How long a controller whose status has no generation may take to observe a new one. Most take less than a second; if the
/// controller has nothing to write, its node waits for all of this time.
const OLD_STATUS_PATIENCE: SignedDuration = SignedDuration::from_secs(10);

/// That delay, from the resource, its form or its hub; by default, the resource's timeout if its kind has a status, in which
/// something may still appear.
pub fn untold_delay(
    facts: &Facts,
    policy: Option<SignedDuration>,
    has_status: bool,
    readiness: Option<&Readiness>,
) -> SignedDuration {
    let patience = match (readiness, has_status) {
        (Some(Readiness::Unknown(Reason::StatusMayBeOld { .. })), _) => OLD_STATUS_PATIENCE,
        (_, true) => SignedDuration::from_secs(facts.timeout_seconds.into()),
        (_, false) => SignedDuration::ZERO,
    };
    facts.min_delay.or(policy).unwrap_or(patience)
}

/// When an object with unknown readiness counts as ready.
pub fn untold_until(child: &Child, delay: SignedDuration) -> Option<Timestamp> {
    child.applied_at?.checked_add(delay).ok()
}

/// The state of one resource.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceOutcome {
    pub state: State,
    pub step: StepKind,
    pub conflict: bool,
    /// Why it is not ready, or not known to be, for people; empty when it is.
    pub message: String,
    pub trouble: Option<Trouble>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    Go,
    Blocked,
    Skipped,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodePlan {
    /// Indices of the resources to apply now, side by side.
    pub apply: Vec<usize>,
    pub take_down: Vec<(ObjectKey, TakeDown)>,
    /// Objects that the content no longer names, which stay until all their possible replacements are ready.
    pub kept: Vec<(ObjectKey, TakeDown)>,
    /// One for each resource, in their order. Empty where the content is not live or the graph is broken.
    pub outcomes: Vec<ResourceOutcome>,
    pub graph_error: Option<GraphError>,
    /// If the live content is not known: the objects that are not ready, with reasons. None if its objects are not known either:
    /// Lynq's lack the label by which they would be watched.
    pub unready: Option<Vec<String>>,
    /// Objects that could not be taken down, with reasons.
    pub left_over: Vec<String>,
    /// What is applied now, and what was applied and still exists.
    pub record: Record,
    pub wake_at: Option<Timestamp>,
}

/// What belongs to a node besides the objects of its live content.
#[derive(Clone, Debug, Default)]
pub struct Rest {
    /// The record of what was applied for the node.
    pub record: Record,
    /// Objects that say they are its own, and that no resource of its live content names.
    pub others: BTreeMap<ObjectKey, Child>,
    /// Kinds whose objects the operator cannot list at present.
    pub unlisted: BTreeSet<Kind>,
}

pub fn plan(node: &NodeDigest, seen: &[ObservedResource], rest: &Rest, now: Timestamp) -> NodePlan {
    let mut plan = NodePlan {
        record: rest.record.clone(),
        ..NodePlan::default()
    };
    // Without known live content the children stay exactly as they are; the window counts the node all the same.
    match node.live {
        Live::None => return plan,
        Live::Unknown => {
            plan.unready = unready(node, &rest.others);
            return plan;
        }
        Live::Hash(_) => {}
    }
    let vertices: Vec<Vertex> = seen.iter().map(|s| vertex(s.facts)).collect();
    let graph = match Graph::new(&vertices) {
        Ok(graph) => graph,
        Err(error) => {
            plan.graph_error = Some(error);
            return plan;
        }
    };
    let mut record = rest.record.clone();
    for (facts, child) in seen.iter().filter_map(|s| Some((s.facts, s.child?))) {
        record.note(node, facts, child);
    }
    let assess = |s| assess(s, node, &record, now);
    let assessed: Vec<Assessed> = seen.iter().map(assess).collect();
    let states: Vec<State> = assessed.iter().map(|a| a.state).collect();
    for (i, (step, a)) in graph.steps(&states).into_iter().zip(&assessed).enumerate() {
        let late = a.timed_out.then_some(Trouble::TimedOut);
        let (kind, message, trouble) = match step {
            Step::Apply => (StepKind::Go, a.message.clone(), late),
            Step::Proceed { despite } => {
                let despite = despite.to_owned();
                let trouble = late.unwrap_or(Trouble::Proceeded { despite });
                (StepKind::Go, a.message.clone(), Some(trouble))
            }
            Step::Blocked { on } => (StepKind::Blocked, format!("waits for {on}"), None),
            Step::Skip { because } => (
                StepKind::Skipped,
                format!("skipped because {because} failed"),
                // An object that exists stays, so there is nothing to report.
                (a.state == State::NotApplied).then(|| Trouble::Skipped {
                    because: because.to_owned(),
                    always: because == seen[i].facts.namespace_from,
                }),
            ),
        };
        if kind == StepKind::Go && a.apply {
            plan.apply.push(i);
        }
        plan.wake_at = [plan.wake_at, a.wake_at].into_iter().flatten().min();
        plan.outcomes.push(ResourceOutcome {
            state: a.state,
            step: kind,
            conflict: a.conflict,
            message,
            trouble,
        });
    }
    // An object is deleted only after its replacement is ready, so that a change that never becomes ready does not break what
    // runs. A resource that does not render is never ready, and its last applied object cannot be recognized.
    let is_done = |o: &ResourceOutcome| o.state == State::Ready && o.step == StepKind::Go;
    let surplus = take_down::surplus(node, rest);
    match plan.outcomes.iter().all(is_done) {
        true => plan.take_down = surplus,
        false => plan.kept = surplus,
    }
    plan.record = record.next(node, (seen, &plan.outcomes), rest);
    plan
}

fn unready(node: &NodeDigest, children: &BTreeMap<ObjectKey, Child>) -> Option<Vec<String>> {
    let ours = || children.iter().filter(|(_, child)| is_ours(child, node));
    ours().next()?;
    let not_ready = ours().filter_map(|(key, child)| match &*child.readiness {
        Readiness::Ready | Readiness::Unknown(_) => None,
        Readiness::Waiting(reason) | Readiness::Failed(reason) => {
            let said = reason.to_string();
            let said = said
                .strip_prefix(&format!("{}: ", key.name))
                .unwrap_or(&said);
            Some(format!("{} {}: {said}", key.kind.kind, key.name))
        }
    });
    Some(not_ready.collect())
}

/// One hash of the fields that our last writes owned, by the id of the resource: what the status keeps of them.
pub fn fields_hash<'a>(fields: impl Iterator<Item = (&'a Facts, &'a str)>) -> Option<String> {
    // Objects with `creationPolicy: Once` are left to other managers.
    let fields: BTreeMap<&str, &str> = fields
        .filter(|(facts, _)| !facts.once)
        .map(|(facts, hash)| (facts.id.as_str(), hash))
        .collect();
    (!fields.is_empty()).then(|| hash_value(&json!(fields)))
}

/// Whether these objects are as our last applies left them, by the hash in the status: no manager took over a field while no
/// operator was running.
pub fn is_untouched(node: &NodeDigest, children: &[Option<Arc<Child>>]) -> bool {
    let is_told = |hash: fn(&Child) -> &str| {
        let objects = node.facts.iter().zip(children);
        let applied = objects.filter_map(|(facts, child)| {
            let child = child.as_deref()?;
            let current = child.applied_hash.as_ref() == Some(&facts.hash);
            current.then_some((facts, hash(child)))
        });
        fields_hash(applied) == node.status.applied_fields_hash
    };
    // The status of an older version does not cover the fields of a merge or replace; an upgrade accepts those as they are. If
    // the status is about other content, the merge may be newer than it.
    let older = || node.status_is_current() && is_told(|child| &child.applied_fields_hash);
    is_told(|child| &child.fields_hash) || older()
}

/// The objects of a node's resources, without those that an earlier resource has too: applied in turn, they would change for
/// ever. The hub cannot check this, because it does not know which kinds are namespaced.
pub fn distinct(
    keys: impl Iterator<Item = Result<ObjectKey, String>>,
) -> Vec<Result<ObjectKey, String>> {
    let mut seen = BTreeSet::new();
    let mut first = |key: ObjectKey| {
        let group = key.kind.group().to_owned();
        let parts = (
            group,
            key.kind.kind.clone(),
            key.namespace.clone(),
            key.name.clone(),
        );
        match seen.insert(parts) {
            true => Ok(key),
            false => Err(twice(&key)),
        }
    };
    keys.map(|key| key.and_then(&mut first)).collect()
}

pub fn twice(key: &ObjectKey) -> String {
    format!(
        "an earlier resource is {} {} too; give one of them another name",
        key.kind.kind, key.name
    )
}

/// The message for a resource whose kind is not installed.
pub fn missing_kind(Kind { api_version, kind }: &Kind) -> String {
    format!(
        "the cluster has no kind {kind} in {api_version}; install its CustomResourceDefinition, or correct apiVersion and kind"
    )
}

/// The message for a kind if the API server cannot say whether it serves it.
pub fn unknown_kind(Kind { api_version, kind }: &Kind, error: &str) -> String {
    format!(
        "the API server does not say whether it has kind {kind} in {api_version}: {error}; it is asked again"
    )
}

/// The message for a kind whose objects the operator cannot list; `refusal` is the API server's message, `forbidden` means that
/// RBAC does not allow it.
pub fn unlistable_kind(Kind { kind, .. }: &Kind, refusal: &str, forbidden: bool) -> String {
    if !forbidden {
        return format!(
            "the operator cannot watch objects of kind {kind}: {refusal}; it is tried again"
        );
    }
    // The label before the long refusal: a form's status has room for 300 characters.
    format!(
        "the operator may not watch objects of kind {kind}; add get, list, watch, create, patch, update and delete on them to a ClusterRole \
         with label {}: \"true\" (lynqgate check shows the rule): {refusal}",
        names::AGGREGATE_TO_TENANTS
    )
}

fn vertex(facts: &Facts) -> Vertex<'_> {
    Vertex {
        id: &facts.id,
        depend_ids: &facts.depend_ids,
        namespace_from: &facts.namespace_from,
        skip_on_dependency_failure: facts.skip_on_dependency_failure,
        wait_for_ready: facts.wait_for_ready,
    }
}

struct Assessed {
    state: State,
    apply: bool,
    conflict: bool,
    /// It was not ready within its timeout.
    timed_out: bool,
    message: String,
    wake_at: Option<Timestamp>,
}

fn assess(seen: &ObservedResource, node: &NodeDigest, record: &Record, now: Timestamp) -> Assessed {
    let settled = |state, message: String| Assessed {
        state,
        apply: false,
        conflict: false,
        timed_out: false,
        message,
        wake_at: None,
    };
    if let Some(error) = &seen.facts.render_error {
        return settled(State::ApplyFailed, error.clone());
    }
    if let Some(reason) = seen.unavailable {
        let wake_at = now.checked_add(Backoff::NO_EVENT.first).ok();
        return Assessed {
            wake_at,
            ..settled(State::ApplyFailed, reason.to_owned())
        };
    }
    // Its object may go, by its ttlSecondsAfterFinished or by hand: that is no drift.
    let is_there = seen.child.is_some_and(|child| !child.deleting);
    if record.has_run(seen.facts) && !is_there {
        return settled(State::Ready, String::new());
    }
    // A retry later than this was set by a clock that was ahead: ignore it.
    let last = now.checked_add(Backoff::APPLY.longest).unwrap_or(now);
    let holds = |failure: &&Failure| {
        (now < failure.retry_at && failure.retry_at <= last) && failure.premise == seen.premise
    };
    if let Some(failure) = seen.failure.filter(holds) {
        return Assessed {
            conflict: failure.kind == FailureKind::Conflict,
            wake_at: Some(failure.retry_at),
            ..settled(State::ApplyFailed, failure.message.clone())
        };
    }
    let apply = |message: &str| match seen.applies.pause(now) {
        None => Assessed {
            apply: true,
            ..settled(State::NotApplied, message.to_owned())
        },
        Some(until) => Assessed {
            wake_at: Some(until),
            ..settled(State::ApplyFailed, fought_over(&seen.facts.kind).to_owned())
        },
    };
    let Some(child) = seen.child else {
        return apply("not created yet");
    };
    if child.deleting {
        return settled(
            State::NotApplied,
            "the object of that name is being deleted; lynqgate creates it again once it is gone"
                .to_owned(),
        );
    }
    let recorded = record.names(&key_of(seen.facts));
    if let Some(why) = refused(child, node, seen.facts.conflict_policy, recorded) {
        return Assessed {
            conflict: true,
            wake_at: now.checked_add(Backoff::NO_EVENT.first).ok(),
            ..settled(State::ApplyFailed, why)
        };
    }
    let current = child.applied_hash.as_ref() == Some(&seen.facts.hash)
        && seen.fields_hash == Some(&*child.fields_hash)
        && is_ours(child, node);
    if !(current || (seen.facts.once && child.once && is_ours(child, node))) {
        return apply("its newest content is not applied yet");
    }
    // Also of an object that is otherwise left alone.
    if !child.follows(seen.facts.retain) {
        return apply("its deletionPolicy is not written yet");
    }
    await_ready(seen, child, now)
}

fn await_ready(seen: &ObservedResource, child: &Child, now: Timestamp) -> Assessed {
    let done = |state, message: String, wake_at| Assessed {
        state,
        apply: false,
        conflict: false,
        timed_out: false,
        message,
        wake_at,
    };
    if !seen.facts.wait_for_ready {
        return done(State::Ready, String::new(), None);
    }
    let told = |reason: &Reason| match seen.obstacle.filter(|_| reason.is_of_pods()) {
        Some(obstacle) => format!("{reason}; {obstacle}"),
        None => reason.to_string(),
    };
    let reason = match &*child.readiness {
        Readiness::Ready => return done(State::Ready, String::new(), None),
        Readiness::Failed(reason) => return done(State::Failed, told(reason), None),
        Readiness::Unknown(reason) => {
            return match untold_until(child, seen.untold).filter(|until| *until > now) {
                // Its status says that it is ready.
                None if matches!(reason, Reason::StatusMayBeOld { .. }) => {
                    done(State::Ready, String::new(), None)
                }
                None => done(State::Ready, reason.to_string(), None),
                Some(until) => {
                    let waits = format!("{reason}; {}", untold_text(seen.untold));
                    done(State::Waiting, waits, Some(until))
                }
            };
        }
        Readiness::Waiting(reason) => told(reason),
    };
    // The reason begins with the object's name, and so does the message around it.
    let bare = reason.strip_prefix(&format!("{}: ", seen.facts.name));
    let limit = SignedDuration::from_secs(seen.facts.timeout_seconds.into());
    match seen
        .waiting_since
        .and_then(|since| since.checked_add(limit).ok())
    {
        Some(end) if end <= now => {
            let (limit, why) = (seen.facts.timeout_seconds, bare.unwrap_or(&reason));
            let late = format!("not ready after {limit}s: {why}");
            Assessed {
                timed_out: true,
                ..done(State::Failed, late, None)
            }
        }
        end => done(State::Waiting, reason, end),
    }
}

fn untold_text(delay: SignedDuration) -> String {
    format!(
        "it counts as ready {} s after its apply, unless something does by then (readyProbe and minDelay change that)",
        delay.as_secs()
    )
}

#[cfg(test)]
mod tests;
