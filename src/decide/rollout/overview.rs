//! `status`: how far hubs, forms and nodes are, on one screen, from what the operator wrote into their statuses; and StatefulSets, from
//! what the partition loop would do.

mod screen;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::api::conditions::kstatus::{self, Standing};
use crate::api::conditions::{self, Condition, ConditionReason};
use crate::api::form::{FormRolloutStatus, FormStatus, Phase, WaitingNodes};
use crate::api::hub::HubStatus;
use crate::decide::node::digest::NodeDigest;
use crate::decide::partition;
use crate::decide::partition::walk;
use crate::decide::rollout::Live;
use crate::decide::rollout::explain::{FormTold, Leader, next, short};
use crate::decide::rollout::reason::Reason;
pub use screen::Style;

/// How far something is; of several, the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Verdict {
    /// It is what its spec asks for, and ready.
    Complete,
    /// A rollout goes on.
    Progressing,
    /// No rollout goes on, and something is not ready or is left out.
    Degraded,
    /// It does not go on until somebody lets it: somebody has paused it, or asked for a promotion.
    Paused,
    /// It does not go on until somebody does something.
    Halted,
}

impl Verdict {
    /// For continuous integration.
    pub fn exit_status(self) -> u8 {
        match self {
            Verdict::Complete => 0,
            Verdict::Progressing => 1,
            Verdict::Degraded => 2,
            Verdict::Paused | Verdict::Halted => 3,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Verdict::Complete => "complete",
            Verdict::Progressing => "progressing",
            Verdict::Degraded => "degraded",
            Verdict::Paused => "paused",
            Verdict::Halted => "halted",
        }
    }
}

/// The answer, in the order in which it is read.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Overview {
    pub verdict: Verdict,
    pub parts: Vec<Part>,
}

/// A hub, a form, a node or a StatefulSet.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Part {
    /// `form web`.
    pub subject: String,
    pub verdict: Verdict,
    /// What it is, in a line.
    pub summary: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Counts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods: Option<Counts>,
    /// How long the rollout takes, in a line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// What keeps it from being complete.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
}

/// Nodes of a form, or pods of a StatefulSet. Each is updated, updating or held.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    pub total: i32,
    /// Whatever content they run.
    pub ready: i32,
    /// They run the newest content and are ready.
    pub updated: i32,
    /// They run the newest content and are not ready yet.
    pub updating: i32,
    pub held: i32,
    /// Of those that are updating: they were not ready before their deadline.
    pub failed: i32,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    pub reason: String,
    /// Nodes that it concerns, where it concerns nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<i32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl Part {
    fn new(subject: String, verdict: Verdict, summary: String) -> Self {
        Part {
            subject,
            verdict,
            summary,
            nodes: None,
            pods: None,
            time: None,
            problems: vec![],
        }
    }
}

impl Problem {
    /// None while somebody leads.
    pub fn of_leader(leader: &Leader) -> Option<Self> {
        let Leader::Missing { lease, since } = leader else {
            return None;
        };
        let reason = Reason::NoLeader {
            lease: lease.clone(),
            since: *since,
        };
        let next = reason.next().into_owned();
        Some(Problem::new(reason.code(), reason.to_string(), Some(next)))
    }

    fn told(told: &Condition, next: Option<&str>) -> Self {
        let next = next.map(str::to_owned);
        Problem::new(&told.reason, told.message.to_string(), next)
    }

    fn new(reason: &str, message: String, next: Option<String>) -> Self {
        Problem {
            reason: reason.to_owned(),
            count: None,
            nodes: vec![],
            message,
            next,
        }
    }

    fn waiting(nodes: &WaitingNodes) -> Self {
        Problem {
            reason: nodes.reason.to_string(),
            count: Some(nodes.count),
            nodes: nodes.nodes.clone(),
            message: nodes.message.clone(),
            next: Some(nodes.next.clone()),
        }
    }

    /// Of one of the nodes.
    fn of_one(&self) -> Self {
        Problem {
            count: None,
            nodes: vec![],
            ..self.clone()
        }
    }
}

impl Overview {
    /// Where nobody leads, the statuses are old, and nothing goes on.
    pub fn of(mut parts: Vec<Part>, leader: &Leader) -> Self {
        if let Some(problem) = Problem::of_leader(leader) {
            let summary = "what follows may be old".to_owned();
            let part = Part {
                problems: vec![problem],
                ..Part::new("operator".to_owned(), Verdict::Halted, summary)
            };
            parts.insert(0, part);
        }
        let verdicts = parts.iter().map(|part| part.verdict);
        Overview {
            verdict: verdicts.max().unwrap_or(Verdict::Complete),
            parts,
        }
    }
}

pub fn of_hub(name: &str, generation: i64, status: &HubStatus) -> Part {
    let conditions = &status.conditions;
    let is_taken_up = status.observed_generation == Some(generation);
    let complaints = ["RowsSkipped", "RenderFailed", "WriteFailed"];
    let complaints = complaints.iter().filter_map(|type_| {
        let told = conditions::find(conditions, type_)?;
        (told.status == "True").then_some(told)
    });
    let complaints: Vec<&Condition> = complaints.collect();
    let count = |count: Option<i32>| count.unwrap_or_default();
    let (verdict, first) = match kstatus::of_hub(conditions) {
        _ if !is_taken_up => (Verdict::Progressing, None),
        Standing::Failed(why) => (Verdict::Halted, Some(why)),
        Standing::InProgress(why) => (Verdict::Degraded, Some(why)),
        Standing::Current if !complaints.is_empty() || count(status.failed) > 0 => {
            (Verdict::Degraded, None)
        }
        Standing::Current if count(status.ready) < count(status.desired) => {
            (Verdict::Progressing, None)
        }
        Standing::Current => (Verdict::Complete, None),
    };
    let others = complaints.into_iter().filter(|told| first != Some(*told));
    let skipped = match count(status.skipped_rows) {
        0 => String::new(),
        1 => ", 1 row skipped".to_owned(),
        rows => format!(", {rows} rows skipped"),
    };
    let untold = match is_taken_up {
        true => "",
        false => "; lynqgate has not observed the hub's newest change yet",
    };
    let summary = format!(
        "{} nodes wanted, {} ready, {} failed{skipped}{untold}",
        count(status.desired),
        count(status.ready),
        count(status.failed),
    );
    let problems = first.into_iter().chain(others);
    Part {
        problems: problems
            .map(|told| Problem::told(told, next::of_hub(name, told).as_deref()))
            .collect(),
        ..Part::new(format!("hub {name}"), verdict, summary)
    }
}

/// `reverts`: the operator is about to take the form's change back (rollout.onFailure: Revert).
pub fn of_form(form: FormTold, reverts: bool, now: Timestamp) -> Part {
    let FormStatus {
        rollout,
        conditions,
        ..
    } = form.status;
    let rollout = rollout.as_ref();
    let is_over = rollout.is_some_and(|rollout| rollout.completion_time.is_some());
    let is_paused = rollout.is_some_and(|rollout| rollout.phase == Phase::Paused);
    let is_back = is_over || conditions::is_true(conditions, "RolloutComplete");
    let is_taken_up = form.status.observed_generation == Some(form.generation);
    let invalid = conditions::find(conditions, "Valid").filter(|told| told.status == "False");
    let reverts = reverts && invalid.is_none();
    let (verdict, why) = match kstatus::of_form(conditions) {
        Standing::Failed(why) if reverts => (Verdict::Progressing, Some(why)),
        Standing::Failed(why) if is_taken_up && is_reverted(why) => match is_back {
            true => (Verdict::Degraded, Some(why)),
            false => (Verdict::Progressing, Some(why)),
        },
        Standing::Failed(why) if is_taken_up || invalid.is_some() => (Verdict::Halted, Some(why)),
        _ if !is_taken_up => (Verdict::Progressing, None),
        Standing::InProgress(why) if is_paused => (Verdict::Paused, Some(why)),
        Standing::InProgress(why) if is_over => (Verdict::Degraded, Some(why)),
        Standing::InProgress(why) | Standing::Failed(why) => (Verdict::Progressing, Some(why)),
        Standing::Current => (Verdict::Complete, None),
    };
    let waiting = rollout.map(|rollout| rollout.waiting.as_slice());
    let waiting = waiting.unwrap_or_default();
    let mut problems: Vec<Problem> = vec![];
    if let Some(invalid) = invalid {
        let next = ConditionReason::named(&invalid.reason).map(next::correction);
        problems.push(Problem::told(invalid, next));
    } else if let Some(why) = why.filter(|why| waiting.is_empty() || is_reverted(why)) {
        let undo = format!(
            "nothing, if they become ready soon; else correct the form, or take its change back: lynqgate undo {}",
            form.name
        );
        let is_windowless = rollout.is_none() && verdict == Verdict::Progressing;
        problems.push(Problem::told(why, is_windowless.then_some(&*undo)));
    }
    problems.extend(waiting.iter().map(Problem::waiting));
    if let Some(first) = problems.first_mut().filter(|_| reverts) {
        first.next = Some(next::TAKEN_BACK.to_owned());
    }
    let summary = summary(form, rollout, is_taken_up);
    Part {
        nodes: counts(form.status, rollout),
        time: rollout.and_then(|rollout| time(rollout, now)),
        problems,
        ..Part::new(format!("form {}", form.name), verdict, summary)
    }
}

fn is_reverted(told: &Condition) -> bool {
    told.type_ == kstatus::REVERTED
}

fn summary(form: FormTold, rollout: Option<&FormRolloutStatus>, is_taken_up: bool) -> String {
    let window = match rollout.map(|rollout| (rollout.slots, rollout.window)) {
        None => "no window: every change goes live at once".to_owned(),
        Some((slots, None)) => format!("no window, {slots} slots in use"),
        Some((slots, Some(window))) => format!("{slots} of {window} slots in use"),
    };
    let forced = match rollout.map_or(0, |rollout| rollout.forced_nodes) {
        0 => String::new(),
        nodes => format!(", {nodes} nodes forced"),
    };
    let newer = match is_taken_up {
        true => "",
        false => "; lynqgate has not observed the form's newest change yet",
    };
    format!("generation {}, {window}{forced}{newer}", form.generation)
}

fn counts(status: &FormStatus, rollout: Option<&FormRolloutStatus>) -> Option<Counts> {
    let total = status.total_nodes?;
    Some(match rollout {
        Some(rollout) => Counts {
            total,
            ready: status.ready_nodes.unwrap_or_default(),
            updated: rollout.ready_updated_nodes,
            updating: rollout.updating_nodes,
            held: rollout.held_nodes,
            failed: rollout.failed_nodes,
        },
        None => {
            let ready = status.ready_nodes.unwrap_or_default();
            Counts {
                total,
                ready,
                updated: ready,
                updating: total - ready,
                held: 0,
                failed: 0,
            }
        }
    })
}

fn time(rollout: &FormRolloutStatus, now: Timestamp) -> Option<String> {
    let ago = |at: Timestamp| short(now.duration_since(at));
    let began = rollout.start_time?;
    Some(
        match (rollout.completion_time, rollout.estimated_completion) {
            (Some(end), _) => format!(
                "complete {} ago, after {}",
                ago(end),
                short(end.duration_since(began))
            ),
            (None, Some(end)) if end.duration_since(now) > SignedDuration::ZERO => format!(
                "began {} ago; complete in about {} ({})",
                ago(began),
                short(end.duration_since(now)),
                end.strftime("%H:%M:%S UTC")
            ),
            (None, _) => format!("began {} ago", ago(began)),
        },
    )
}

/// `form`: the node's form, where its hub has it.
pub fn of_node(node: &NodeDigest, form: Option<&Part>) -> Part {
    let conditions = &node.status.conditions;
    // For a moment after a release, the status is that of the release before.
    let is_old = matches!(node.live, Live::Hash(_)) && !node.status_is_current();
    let held = || {
        let held = conditions::find(conditions, "Held");
        held.filter(|held| node.held() && held.status == "True")
    };
    let (verdict, why) = match kstatus::of_node(conditions) {
        _ if node.deleting || conditions.is_empty() => (Verdict::Progressing, None),
        _ if is_old => (Verdict::Progressing, node.ready_told().or_else(held)),
        Standing::Failed(why) => (Verdict::Degraded, Some(why)),
        Standing::InProgress(why) => (Verdict::Progressing, Some(why)),
        Standing::Current if node.status_is_current() => (Verdict::Complete, None),
        Standing::Current => (Verdict::Progressing, None),
    };
    let state = match () {
        () if node.deleting => "is being deleted",
        () if node.held() => "held",
        () => "live",
    };
    let status = &node.status;
    let resources = match is_old {
        true => "no status update since its last release".to_owned(),
        false => format!(
            "{} of {} resources ready, {} failed",
            status.ready_resources, status.desired_resources, status.failed_resources
        ),
    };
    let summary = format!("{state}; form {}, hub {}; {resources}", node.form, node.hub);
    let why = why.map(|why| Problem::told(why, None));
    let mut part = Part {
        problems: why.into_iter().collect(),
        ..Part::new(format!("node {}", node.key.name), verdict, summary)
    };
    let concerns = |form: &&Part| match node.held() {
        _ if node.deleting => false,
        true => form.verdict >= Verdict::Paused,
        // It halted the form, or has the same fault.
        false => form.verdict == Verdict::Halted && !node.is_ready(),
    };
    if let Some(form) = form.filter(concerns) {
        // The node's own condition Held says the same, later and without names.
        if verdict == Verdict::Progressing && node.held() {
            part.problems.clear();
        }
        part.problems
            .extend(form.problems.first().map(Problem::of_one));
        part.verdict = verdict.max(form.verdict);
    }
    part
}

pub fn of_stateful_set(set: &partition::explain::Explanation) -> Part {
    let count = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    let ready = set.pods.iter().filter(|pod| pod.ready);
    let updated = ready.clone().filter(|pod| pod.updated).count();
    let (ready, updated) = (count(ready.count()), count(updated));
    let total = i32::try_from(set.replicas).unwrap_or(i32::MAX);
    let held = count(set.pods.len() - set.updated);
    let counts = Counts {
        total,
        ready,
        updated,
        // A pod that is not there is created with the new revision.
        updating: total - updated - held,
        held,
        failed: 0,
    };
    let is_done = set.reason == walk::Reason::Done.code();
    let problem = match is_done {
        false => Some(Problem::new(set.reason, set.message.clone(), None)),
        true if set.verdict == Verdict::Degraded => Some(Problem::new(
            "NotAvailable",
            format!("{} of {total} pods are not ready", total - ready),
            Some(format!("lynqgate explain statefulset {}", set.name)),
        )),
        true => None,
    };
    let summary = match is_done {
        false => &set.released,
        true => &set.message,
    };
    let subject = format!("statefulset {}", set.name);
    Part {
        pods: Some(counts),
        problems: problem.into_iter().collect(),
        ..Part::new(subject, set.verdict, summary.clone())
    }
}

#[cfg(test)]
mod tests;
