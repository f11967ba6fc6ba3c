//! The status of a LynqNode, from the outcomes of its resources.

use jiff::{SignedDuration, Timestamp};

use crate::api::conditions::{self, ConditionReason, ConditionState, kstatus};
use crate::api::node::NodeStatus;
use crate::api::text::Text;
use crate::api::{names, stamp};
use crate::decide::child::ObjectKey;
use crate::decide::node::digest::{Facts, NodeDigest};
use crate::decide::node::graph::State;
use crate::decide::node::plan::{
    NodePlan, ObservedResource, ResourceOutcome, StepKind, TakeDown, fields_hash,
};
use crate::decide::rollout::Live;
use crate::decide::rollout::reason::Reason;

/// Why the release planner holds the node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hold {
    pub reason: ConditionReason,
    pub summary: &'static str,
}

impl Hold {
    pub fn of(reason: &Reason) -> Self {
        Hold {
            reason: reason.word_of_node(),
            summary: reason.summary(),
        }
    }

    /// Reasons that all nodes of a form share until the newest content has reached them, or that soon end. Writing the status for
    /// one would conflict with the release.
    fn is_brief(self) -> bool {
        matches!(
            self.reason,
            ConditionReason::NotRendered | ConditionReason::Releasing
        )
    }
}

/// The status to write; equal to the present one where nothing changed.
pub fn of_node(
    node: &NodeDigest,
    seen: &[ObservedResource],
    plan: &NodePlan,
    hold: Option<Hold>,
    now: Timestamp,
) -> NodeStatus {
    let count =
        |f: &dyn Fn(&ResourceOutcome) -> bool| plan.outcomes.iter().filter(|o| f(o)).count() as i32;
    let pairs = || seen.iter().zip(&plan.outcomes);
    let mut skipped: Vec<String> = pairs()
        .filter(|(_, o)| o.step == StepKind::Skipped)
        .map(|(s, _)| s.facts.id.clone())
        .collect();
    skipped.sort();
    let (applied_resources, applied_kinds) = plan.record.texts();
    let mut status = NodeStatus {
        observed_generation: Some(node.generation),
        observed_hash: match &node.live {
            Live::Hash(hash) => Some(hash.clone()),
            Live::None | Live::Unknown => None,
        },
        observed_start_time: node.start.clone(),
        landed_release: node.status.landed_release.clone(),
        desired_resources: seen.len() as i32,
        ready_resources: count(&|o| o.state == State::Ready && o.step == StepKind::Go),
        failed_resources: count(&|o| is_failed(o)),
        conflicted_resources: count(&|o| o.conflict),
        skipped_resources: skipped.len() as i32,
        skipped_resource_ids: skipped,
        applied_resources,
        applied_kinds,
        completed_jobs: plan.record.completed_texts(),
        // No manager can take over a field of a completed Job that is gone.
        applied_fields_hash: fields_hash(
            seen.iter()
                .filter(|s| s.child.is_some())
                .filter_map(|s| s.fields_hash.map(|hash| (s.facts, hash))),
        ),
        slot_given_up: node.status.slot_given_up.clone(),
        freed_release: node.status.freed_release.clone(),
        conditions: node.status.conditions.clone(),
    };
    let states = conditions_of(node, &status, seen, plan, hold);
    conditions::merge(&mut status.conditions, &states, Some(node.generation), now);
    kstatus::summarize(&mut status.conditions, kstatus::of_node, now);
    if conditions::is_true(&status.conditions, "Rolled") {
        let release = node.release.as_ref();
        status.landed_release = release.map(|release| release.resource_version.clone());
    }
    // A reader of `settled since` must not see an older rollout of the same content.
    if !node.status_is_current() {
        let rolled = status
            .conditions
            .iter_mut()
            .find(|c| c.type_ == "Rolled" && c.status == "True");
        if let Some(condition) = rolled {
            condition.last_transition_time = stamp::millis(now);
        }
    }
    status
}

/// The status of a node that could not be read for a long time: it is no longer known to be ready.
pub fn in_vain(node: &NodeDigest, why: &str, now: Timestamp) -> NodeStatus {
    not_ready(node, ConditionReason::LookFailed, why, now)
}

/// The message of a node that is being deleted while some objects remain.
pub fn waits_for(going: &[(ObjectKey, Vec<String>)]) -> String {
    let named = |(key, finalizers): &(ObjectKey, Vec<String>)| match finalizers.as_slice() {
        [] => key.to_string(),
        all => format!("{key} (finalizers: {})", all.join(", ")),
    };
    let shown: Vec<String> = going.iter().take(SHOWN_MAX).map(named).collect();
    let more = match going.len().saturating_sub(SHOWN_MAX) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    format!(
        "it is being deleted, and waits until these objects are gone: {}{more}",
        shown.join(", ")
    )
}

/// The status of a node that is being deleted, and stays.
pub fn going(node: &NodeDigest, why: &str, now: Timestamp) -> NodeStatus {
    let mut status = NodeStatus {
        ready_resources: 0,
        ..not_ready(node, ConditionReason::Deleting, why, now)
    };
    // It will release nothing more, so it is not held.
    let held = ConditionState::new(
        "Held",
        false,
        ConditionReason::NotHeld,
        "it is being deleted",
    );
    conditions::merge(&mut status.conditions, &[held], Some(node.generation), now);
    kstatus::summarize(&mut status.conditions, kstatus::of_node, now);
    status
}

fn not_ready(node: &NodeDigest, reason: ConditionReason, why: &str, now: Timestamp) -> NodeStatus {
    let mut status = (*node.status).clone();
    let says = |type_: &'static str| ConditionState::new(type_, false, reason, why);
    let states = [says("Ready"), says("Rolled")];
    conditions::merge(&mut status.conditions, &states, Some(node.generation), now);
    kstatus::summarize(&mut status.conditions, kstatus::of_node, now);
    status
}

/// How often a status is written if only its texts change: during a rollout they change with every pod.
const TEXT_EVERY: SignedDuration = SignedDuration::from_secs(3);

/// How long to delay a write for a change of the hold: the release planner usually decides soon why the node waits, or that it
/// does not. `told` is the reason in the current status.
///
/// For a node that already has a reason, a brief reason is little news, and the same reason for a newer generation is none. Nor is
/// a brief reason where the window is full, which it still is, as a rule, when that reason has passed. Otherwise a correction would
/// write all of them to all nodes that hold the bad change.
pub fn patience(hold: Option<Hold>, told: Option<&str>) -> SignedDuration {
    let is_news = |hold: Hold, told: &str| !hold.is_brief() && hold.reason.as_str() != told;
    let is_no_news = |hold: Hold, told: &str| {
        hold.reason.as_str() == told || told == ConditionReason::WindowFull.as_str()
    };
    match (hold, told) {
        (None, None) => SignedDuration::from_secs(1),
        (Some(hold), None) if hold.is_brief() => SignedDuration::from_secs(10),
        (Some(_), None) => SignedDuration::ZERO,
        (Some(hold), Some(told)) if is_news(hold, told) => SignedDuration::ZERO,
        // Longer than it takes to write a large fleet.
        (Some(hold), Some(told)) if is_no_news(hold, told) => SignedDuration::from_mins(10),
        // It is not on its way any more.
        (Some(_), Some(told)) if told == ConditionReason::Releasing.as_str() => {
            SignedDuration::from_secs(10)
        }
        (_, Some(_)) => SignedDuration::from_mins(2),
    }
}

/// The reason for the hold in the status.
pub fn told_hold(status: &NodeStatus) -> Option<&str> {
    let told = conditions::find(&status.conditions, "Held").filter(|told| told.status == "True");
    Some(&told?.reason)
}

/// When to write `new` in the place of `old`; None while they are the same. Every change of a state is worth a write at
/// once. `written` is the time of the last write; `hold_at` is when the hold is worth one.
pub fn due(
    old: &NodeStatus,
    new: &NodeStatus,
    written: Option<Timestamp>,
    hold_at: Option<Timestamp>,
    now: Timestamp,
) -> Option<Timestamp> {
    if old == new {
        return None;
    }
    if let Some(at) = hold_at.filter(|at| *at > now)
        && (old.conditions.is_empty() || but_hold(old) == but_hold(new))
    {
        return Some(at);
    }
    if let Some(written) = written.filter(|written| *written <= now)
        && old.observed_generation == new.observed_generation
        && states(old) == states(new)
    {
        return written.checked_add(TEXT_EVERY).ok();
    }
    Some(now)
}

/// Whether `new` is the first status of a release, and says no more of it than that its workloads are not ready yet. What lynqgate
/// must remember of the objects is more: a process that stops must not forget what it applied.
pub fn is_only_progress(old: &NodeStatus, new: &NodeStatus) -> bool {
    let is_true = |name| conditions::is_true(&new.conditions, name);
    let is_new_release = new.observed_start_time != old.observed_start_time;
    let remembers_the_same = old.applied_resources == new.applied_resources
        && old.applied_kinds == new.applied_kinds
        && old.completed_jobs == new.completed_jobs;
    is_new_release && remembers_the_same && is_true("Progressing") && !is_true("Degraded")
}

/// The status without the hold and without generations.
fn but_hold(status: &NodeStatus) -> NodeStatus {
    let mut rest = status.clone();
    rest.observed_generation = None;
    rest.conditions
        .retain(|c| c.type_ != "Held" && !kstatus::is_summary(&c.type_));
    for condition in &mut rest.conditions {
        condition.observed_generation = None;
    }
    rest
}

/// The status without its texts.
fn states(status: &NodeStatus) -> NodeStatus {
    let mut states = status.clone();
    for condition in &mut states.conditions {
        condition.message = Text::default();
    }
    states
}

fn is_failed(outcome: &ResourceOutcome) -> bool {
    outcome.step == StepKind::Go && matches!(outcome.state, State::ApplyFailed | State::Failed)
}

fn conditions_of(
    node: &NodeDigest,
    status: &NodeStatus,
    seen: &[ObservedResource],
    plan: &NodePlan,
    hold: Option<Hold>,
) -> Vec<ConditionState> {
    let conflicts = status.conflicted_resources;
    let failed = status.failed_resources;
    let mut why = why_not_ready(seen, plan);
    if let Some(kept) = kept(seen, plan) {
        why = format!("{why}; {kept}");
    }
    let (ready, ready_reason, ready_message) = readiness(node, status, seen, plan, &why);
    let left_over = plan.left_over.first();
    let degraded = failed > 0 || plan.graph_error.is_some() || left_over.is_some();
    let degraded_reason = match (conflicts > 0, degraded) {
        (_, false) => ConditionReason::Healthy,
        (false, _) if failed == 0 && plan.graph_error.is_none() => ConditionReason::DeletionFailed,
        (true, _) if failed > conflicts => ConditionReason::ResourceFailuresAndConflicts,
        (true, _) => ConditionReason::ResourceConflicts,
        (false, _) if plan.graph_error.is_some() => ConditionReason::DependencyCycle,
        (false, _) => ConditionReason::ResourceFailures,
    };
    // A resource that does not render does not count, because waiting does not fix it. A skipped resource does not count either:
    // its cause does not render, or counts itself.
    let rolled = matches!(node.live, Live::Hash(_))
        && plan.graph_error.is_none()
        && seen.iter().zip(&plan.outcomes).all(|(s, o)| {
            s.facts.render_error.is_some()
                || match o.step {
                    StepKind::Skipped => true,
                    StepKind::Go => o.state == State::Ready,
                    StepKind::Blocked => false,
                }
        });
    // The other resources make progress in spite of the failures.
    let starts = plan.outcomes.iter().any(|o| o.state == State::Waiting);
    let working = matches!(node.live, Live::Hash(_)) && !rolled && (starts || !degraded);
    let (held_reason, held_message) = match hold {
        Some(hold) if node.held() => (hold.reason, hold.summary),
        _ if node.held() => (Reason::Releasing.word(), Reason::Releasing.summary()),
        _ => (ConditionReason::NotHeld, "the desired content is live"),
    };
    let mut states = vec![
        ConditionState::new("Ready", ready, ready_reason, ready_message),
        ConditionState::new(
            "Progressing",
            working,
            if working {
                ConditionReason::Reconciling
            } else {
                ConditionReason::ReconcileComplete
            },
            "",
        ),
        ConditionState::new(
            "Conflicted",
            conflicts > 0,
            if conflicts > 0 {
                ConditionReason::ResourceConflict
            } else {
                ConditionReason::NoConflict
            },
            if conflicts > 0 { why.as_str() } else { "" },
        ),
        ConditionState::new(
            "Degraded",
            degraded,
            degraded_reason,
            match left_over {
                Some(text) if why.is_empty() => text.clone(),
                // Worded as in Lynq.
                _ if failed > 0 => format!("LynqNode has {failed} failed resources: {why}"),
                _ if degraded => why.clone(),
                _ => String::new(),
            },
        ),
        ConditionState::new("Held", node.held(), held_reason, held_message),
        ConditionState::new(
            "Rolled",
            rolled,
            if rolled {
                ConditionReason::Rolled
            } else {
                ConditionReason::NotRolled
            },
            if rolled {
                "the live content is applied and ready"
            } else {
                why.as_str()
            },
        ),
    ];
    states.extend(node.is_edited().map(|yes| edited(node, yes)));
    states
}

fn readiness(
    node: &NodeDigest,
    status: &NodeStatus,
    seen: &[ObservedResource],
    plan: &NodePlan,
    why: &str,
) -> (bool, ConditionReason, String) {
    let conflicts = status.conflicted_resources;
    match (&node.live, &plan.graph_error) {
        (Live::None, _) => (
            false,
            ConditionReason::NotReleased,
            "never released: nothing of it runs yet".to_owned(),
        ),
        (Live::Unknown, _) => (
            match &plan.unready {
                Some(unready) => unready.is_empty(),
                None => node.is_ready(),
            },
            ConditionReason::LiveContentUnknown,
            unknown_content(plan.unready.as_deref().unwrap_or_default()),
        ),
        (_, Some(error)) => (false, ConditionReason::DependencyError, error.to_string()),
        _ if status.ready_resources == status.desired_resources => {
            (true, ConditionReason::Reconciled, all_ready(seen, plan))
        }
        _ => {
            let reason = match (conflicts > 0, status.failed_resources > conflicts) {
                (true, true) => ConditionReason::ResourcesFailedAndConflicted,
                (true, false) => ConditionReason::ResourcesConflicted,
                (false, true) => ConditionReason::ResourcesFailed,
                (false, false) => ConditionReason::NotAllResourcesReady,
            };
            (false, reason, why.to_owned())
        }
    }
}

fn edited(node: &NodeDigest, yes: bool) -> ConditionState {
    if !yes {
        let message = "the content is what the hub rendered";
        return ConditionState::new("Edited", yes, ConditionReason::AsRendered, message);
    }
    let by = match (&node.edited_by, &node.edited_at) {
        (Some(by), Some(at)) if !node.past_gate => format!("by {by:?} at {at}"),
        _ => "by hand or by a webhook".to_owned(),
    };
    let next = match node.discard_edit {
        true => format!(
            "The hub renders it from its row again; if it does not, see the conditions of lynqhub {}",
            node.hub
        ),
        false => format!(
            "It stays so until the hub renders something new for the row. To discard the change: kubectl annotate lynqnode {} -n {} \
             {}=true",
            node.key.name,
            node.key.namespace,
            names::DISCARD_EDIT
        ),
    };
    let message = format!("the content is not what the hub rendered: it was changed {by}. {next}");
    ConditionState::new("Edited", yes, ConditionReason::NotAsRendered, message)
}

/// The message about an edit, if the old status did not have it.
pub fn edit_news<'a>(old: &NodeStatus, new: &'a NodeStatus) -> Option<&'a str> {
    fn said(status: &NodeStatus) -> Option<&str> {
        let mut conditions = status.conditions.iter();
        let edited = conditions.find(|c| c.type_ == "Edited" && c.status == "True");
        edited.map(|c| c.message.as_str())
    }
    said(new).filter(|news| said(old) != Some(*news))
}

/// A resource that did not render has no kind and no name.
pub fn named(facts: &Facts) -> String {
    match facts.kind.kind.as_str() {
        "" => format!("resource {:?}", facts.id),
        kind => format!("{kind} {}", facts.name),
    }
}

fn unknown_content(unready: &[String]) -> String {
    let stays = "what runs did not come through the gate, or its record is lost; it stays as it is until the release";
    match unready.len() {
        0 => stays.to_owned(),
        all => {
            let shown = unready[..all.min(SHOWN_MAX)].join("; ");
            let more = match all.saturating_sub(SHOWN_MAX) {
                0 => String::new(),
                more => format!(" (and {more} more)"),
            };
            format!("{shown}{more}; {stays}")
        }
    }
}

/// How many resources a message names.
const SHOWN_MAX: usize = 3;

/// Names the resources that count as ready although their readiness is unknown.
fn all_ready(seen: &[ObservedResource], plan: &NodePlan) -> String {
    let untold = seen
        .iter()
        .zip(&plan.outcomes)
        .filter(|(_, o)| !o.message.is_empty());
    let names: Vec<String> = untold.map(|(s, _)| named(s.facts)).collect();
    match names.len().checked_sub(SHOWN_MAX) {
        _ if names.is_empty() => "all resources are ready".to_owned(),
        None | Some(0) => format!(
            "all resources are ready; ReadinessUnknown: nothing reports on {}",
            names.join(", ")
        ),
        Some(more) => format!(
            "all resources are ready; ReadinessUnknown: nothing reports on {} (and {more} more)",
            names[..SHOWN_MAX].join(", ")
        ),
    }
}

/// The objects that stay although no resource names them, and what to do if they block their replacement. Nothing if a resource
/// does not render, because one of the objects may be its own.
fn kept(seen: &[ObservedResource], plan: &NodePlan) -> Option<String> {
    let unrendered = seen.iter().any(|s| s.facts.render_error.is_some());
    if unrendered || plan.kept.is_empty() {
        return None;
    }
    let named = |key: &ObjectKey| format!("{} {}", key.kind.kind, key.name);
    let shown = plan.kept.iter().take(SHOWN_MAX).map(|(key, _)| named(key));
    let names = shown.collect::<Vec<_>>().join(", ");
    let more = match plan.kept.len().saturating_sub(SHOWN_MAX) {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    let kept = format!(
        "lynqgate keeps {names}{more}, which the form no longer names, until all resources are ready"
    );
    // Never advise a user to delete data.
    let mut goes = plan
        .kept
        .iter()
        .filter(|(key, how)| *how == TakeDown::Delete && key.kind.holds().is_none());
    Some(match goes.next() {
        None => kept,
        Some((first, _)) => format!(
            "{kept}. If {} is in their way (the same port, host, volume or quota), delete it: {}",
            named(first),
            delete_command(first)
        ),
    })
}

pub fn delete_command(key: &ObjectKey) -> String {
    let kind = key.kind.kind.to_lowercase();
    let kind = match key.kind.group() {
        "" => kind,
        group => format!("{kind}.{group}"),
    };
    let namespace = match &*key.namespace {
        "" => String::new(),
        namespace => format!(" -n {namespace}"),
    };
    format!("kubectl delete {kind} {}{namespace}", key.name)
}

/// The first resources that are not ready, with their reasons: failed ones first.
fn why_not_ready(seen: &[ObservedResource], plan: &NodePlan) -> String {
    let mut bad: Vec<_> = seen
        .iter()
        .zip(&plan.outcomes)
        .filter(|(_, o)| o.state != State::Ready || o.step != StepKind::Go)
        .collect();
    bad.sort_by_key(|(_, o)| !is_failed(o));
    let shown: Vec<String> = bad
        .iter()
        .take(SHOWN_MAX)
        .map(|(s, o)| {
            // A readiness reason begins with the name already.
            let said = o.message.strip_prefix(&format!("{}: ", s.facts.name));
            format!("{}: {}", named(s.facts), said.unwrap_or(&o.message))
        })
        .collect();
    match bad.len().saturating_sub(SHOWN_MAX) {
        0 => shown.join("; "),
        more => format!("{} (and {more} more)", shown.join("; ")),
    }
}
