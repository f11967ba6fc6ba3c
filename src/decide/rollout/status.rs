//! What a form's status says of its rollout: counted from the nodes, so that it is true at every moment.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::api::conditions::ConditionState;
use crate::api::form::{FormRolloutStatus, Phase};
use crate::api::hub::Slot;
use crate::api::stamp;
use crate::decide::rollout::reason::{Names, Reason};
use crate::decide::rollout::{Form, Node, Snapshot};

/// The part of a form's status that the planner knows.
#[derive(Clone, Debug, PartialEq)]
pub struct FormState {
    pub total_nodes: i32,
    pub ready_nodes: i32,
    pub rollout: FormRolloutStatus,
    pub conditions: Vec<ConditionState>,
    /// When a node's deadline passes.
    pub wake_at: Option<Timestamp>,
}

/// The nodes that spend the failure budget.
#[derive(Clone, Debug, Default)]
pub struct Failed {
    pub names: Vec<String>,
    /// How many of them halt the rollout.
    pub allowed: usize,
    /// When the next one would fail.
    pub next_at: Option<Timestamp>,
}

impl Failed {
    pub fn spent(&self) -> bool {
        self.names.len() >= self.allowed
    }
}

/// A failure is a slot that is no repair, whose node is live on the slot's hash, not held, and not settled at its
/// deadline: new content takes a node out of the count, and editing the policy does not.
pub fn failed_nodes(form_name: &str, form: &Form, snapshot: &Snapshot, now: Timestamp) -> Failed {
    let total = nodes_of(form_name, snapshot).count();
    let allowed = form
        .policy
        .max_failures
        .map_or(1, |skew| skew.of(total).max(1));
    let mut failed = Failed {
        allowed,
        ..Failed::default()
    };
    for slot in snapshot
        .slots
        .iter()
        .filter(|slot| slot.form == form_name && !slot.repair)
    {
        let Some(node) = snapshot
            .nodes
            .get(&slot.node)
            .filter(|node| node.uid == slot.uid)
        else {
            continue;
        };
        if node.held() || node.desired != slot.hash || !node.non_ready() {
            continue;
        }
        let limit = SignedDuration::from_secs(form.policy.progress_deadline_seconds.into());
        let Some(deadline) = node.start.and_then(|start| start.checked_add(limit).ok()) else {
            continue;
        };
        if deadline <= now {
            failed.names.push(slot.node.clone());
        } else {
            failed.next_at = Some(failed.next_at.map_or(deadline, |at| at.min(deadline)));
        }
    }
    failed
}

pub fn of_form(
    name: &str,
    form: &Form,
    snapshot: &Snapshot,
    slots: &[Slot],
    failed: &Failed,
    waiting: &BTreeMap<String, Reason>,
    now: Timestamp,
) -> FormState {
    let nodes: Vec<_> = nodes_of(name, snapshot).collect();
    let count = |f: &dyn Fn(&Node) -> bool| nodes.iter().filter(|(_, node)| f(node)).count() as i32;
    let total = nodes.len() as i32;
    let held = count(&|node| node.held());
    let ready = count(&|node| node.settled_since.is_some());
    let ready_updated = count(&|node| !node.held() && node.settled_since.is_some());
    let phase = if total == 0 {
        Phase::Idle
    } else if failed.spent() {
        Phase::Failed
    } else if ready_updated == total {
        Phase::Complete
    } else {
        Phase::InProgress
    };
    let slots = slots.iter().filter(|slot| slot.form == name).count() as i32;
    let blocked = waiting.iter().find(|(node, reason)| {
        **reason != Reason::Releasing
            && snapshot
                .nodes
                .get(*node)
                .is_some_and(|node| node.form == name)
    });
    let mut rollout = FormRolloutStatus {
        phase,
        target_generation: form.rendered_generation,
        total_nodes: total,
        updated_nodes: total - held,
        updating_nodes: total - held - ready_updated,
        ready_updated_nodes: ready_updated,
        held_nodes: held,
        failed_nodes: failed.names.len() as i32,
        slots,
        start_time: None,
        completion_time: None,
        message: String::new(),
    };
    rollout.message = message(&rollout, &failed.names, blocked.map(|(_, reason)| reason));
    set_times(&mut rollout, form.previous.as_ref(), now);
    FormState {
        total_nodes: total,
        ready_nodes: ready,
        conditions: conditions(&rollout, ready),
        rollout,
        wake_at: failed.next_at,
    }
}

fn nodes_of<'a>(
    form: &'a str,
    snapshot: &'a Snapshot,
) -> impl Iterator<Item = (&'a String, &'a Node)> {
    snapshot
        .nodes
        .iter()
        .filter(move |(_, node)| node.form == form && !node.deleting)
}

fn message(rollout: &FormRolloutStatus, failed: &[String], blocked: Option<&Reason>) -> String {
    let FormRolloutStatus {
        total_nodes: total,
        updated_nodes: updated,
        updating_nodes: updating,
        held_nodes: held,
        ..
    } = rollout;
    match rollout.phase {
        Phase::Idle => "there are no nodes: the hub has no active row".to_owned(),
        Phase::Complete => format!("all {total} nodes run the newest content and are ready"),
        Phase::Failed if blocked.is_none() => format!(
            "{} did not become ready in time; correct the form, and they are repaired first",
            Names::of(failed)
        ),
        Phase::Failed | Phase::InProgress => {
            let counts =
                format!("{updated}/{total} updated, {updating} not ready yet, {held} held");
            blocked.map_or(counts.clone(), |reason| format!("{counts}: {reason}"))
        }
    }
}

/// A rollout begins when something is to be done, and again when new content comes; it ends when all is done.
fn set_times(
    rollout: &mut FormRolloutStatus,
    previous: Option<&FormRolloutStatus>,
    now: Timestamp,
) {
    let now = stamp::millis(now);
    let over = |phase: Phase| matches!(phase, Phase::Complete | Phase::Idle);
    let continued = previous.filter(|p| {
        p.target_generation == rollout.target_generation
            && (over(p.phase) == over(rollout.phase) || over(rollout.phase))
    });
    rollout.start_time = match continued {
        Some(previous) => previous.start_time,
        None => (!over(rollout.phase)).then_some(now),
    };
    if over(rollout.phase) {
        rollout.completion_time = continued.and_then(|p| p.completion_time).or(Some(now));
    }
}

fn conditions(rollout: &FormRolloutStatus, ready: i32) -> Vec<ConditionState> {
    let total = rollout.total_nodes;
    let applied = match (total, ready) {
        (0, _) => ConditionState::new("Applied", false, "NoNodes", "there are no nodes"),
        _ if ready == total => ConditionState::new(
            "Applied",
            true,
            "AllNodesReady",
            format!("All {total} nodes ready"),
        ),
        _ => ConditionState::new(
            "Applied",
            false,
            "NotAllNodesReady",
            format!("{ready}/{total} nodes ready"),
        ),
    };
    let complete = matches!(rollout.phase, Phase::Complete | Phase::Idle);
    let reason = match rollout.phase {
        Phase::Idle => "NoNodes",
        Phase::InProgress => "InProgress",
        Phase::Failed => "Failed",
        Phase::Complete => "Complete",
    };
    vec![
        applied,
        ConditionState::new("RolloutComplete", complete, reason, rollout.message.clone()),
    ]
}
