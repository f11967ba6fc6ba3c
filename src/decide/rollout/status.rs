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
    /// Nodes whose live content is not ready, whatever the reason.
    pub non_ready: i32,
    /// The form's window; None where there is none.
    pub window: Option<usize>,
    pub rollout: FormRolloutStatus,
    pub conditions: Vec<ConditionState>,
    /// Held nodes, by the reason why they wait.
    pub waiting: BTreeMap<&'static str, i64>,
    /// Why the first in turn of those that do not go by themselves waits.
    pub blocked: Option<Reason>,
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

    /// Why the first of them is not ready.
    pub fn why(&self, snapshot: &Snapshot) -> Option<String> {
        snapshot.nodes.get(self.names.first()?)?.why.clone()
    }

    fn wake(&mut self, at: Timestamp) {
        self.next_at = Some(self.next_at.map_or(at, |other| other.min(at)));
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
        if deadline > now {
            failed.wake(deadline);
        } else if form.resumed_at.is_none_or(|at| at > now || deadline > at) {
            failed.names.push(slot.node.clone());
            // Written ahead of its time, by a clock that is before ours.
            if let Some(at) = form.resumed_at.filter(|at| *at > now) {
                failed.wake(at);
            }
        }
    }
    failed
}

/// What the status of a form follows from, besides the form.
pub struct Seen<'a> {
    pub snapshot: &'a Snapshot,
    /// The ledger as it will stand.
    pub slots: &'a [Slot],
    pub failed: &'a Failed,
    pub waiting: &'a BTreeMap<String, Reason>,
    /// The nodes that wait, in their turn.
    pub turns: &'a [&'a str],
    /// The form's window; None where there is none.
    pub window: Option<usize>,
}

pub fn of_form(name: &str, form: &Form, seen: &Seen, now: Timestamp) -> FormState {
    let nodes: Vec<_> = nodes_of(name, seen.snapshot).collect();
    let count = |f: &dyn Fn(&Node) -> bool| nodes.iter().filter(|(_, node)| f(node)).count() as i32;
    let total = nodes.len() as i32;
    let held = count(&|node| node.held());
    let is_ready = |node: &Node| node.settled_since.is_some() && node.ready;
    let ready = count(&is_ready);
    let updated = || {
        let all = nodes.iter();
        all.filter(|(name, node)| !node.held() && !form.unwritten.contains(*name))
    };
    let ready_updated = updated().filter(|(_, node)| is_ready(node)).count() as i32;
    let updated = updated().count() as i32;
    let soaking = soaking(name, form, seen);
    let phase = if total == 0 && !form.outdated && form.unwritten.is_empty() {
        Phase::Idle
    } else if seen.failed.spent() {
        Phase::Failed
    } else if ready_updated == total
        && !form.outdated
        && form.unwritten.is_empty()
        && soaking.is_empty()
    {
        Phase::Complete
    } else {
        Phase::InProgress
    };
    let slots = seen.slots.iter().filter(|slot| slot.form == name).count() as i32;
    let of_form = |node: &&str| {
        seen.snapshot
            .nodes
            .get(*node)
            .is_some_and(|n| n.form == name)
    };
    let reasons = seen
        .turns
        .iter()
        .copied()
        .filter(of_form)
        .filter_map(|n| seen.waiting.get(n));
    let mut waiting = BTreeMap::new();
    for reason in reasons.clone() {
        *waiting.entry(reason.code()).or_default() += 1;
    }
    let blocked = reasons.clone().find(|reason| **reason != Reason::Releasing);
    let mut rollout = FormRolloutStatus {
        phase,
        target_generation: form.rendered_generation,
        total_nodes: total,
        updated_nodes: updated,
        updating_nodes: updated - ready_updated,
        ready_updated_nodes: ready_updated,
        held_nodes: held,
        failed_nodes: seen.failed.names.len() as i32,
        forced_nodes: 0,
        slots,
        waves_done: None,
        waves_left: None,
        start_time: None,
        completion_time: None,
        estimated_completion: None,
        message: String::new(),
    };
    rollout.forced_nodes = count(&|node| node.forced);
    let not_ready = not_ready(&nodes);
    let unrendered = count(&|node| !node.held() && node.settled_since.is_some() && !node.ready);
    rollout.message = match () {
        () if form.outdated && total == 0 => format!("there are no nodes yet{SEE_WHY}"),
        () if form.outdated => {
            format!("the newest templates have not reached every node yet{SEE_WHY}")
        }
        () if !form.unwritten.is_empty() => format!(
            "the newest content could not be written to {}: see the hub's conditions; {}",
            Names::of(&form.unwritten),
            message(&rollout, &seen.failed.names, blocked, unrendered, not_ready)
        ),
        () if held == 0 && updated == ready_updated && !soaking.is_empty() => format!(
            "{updated}/{total} updated and ready; watched for rollout.minReadySeconds: {soaking}"
        ),
        () => message(&rollout, &seen.failed.names, blocked, unrendered, not_ready),
    };
    set_times(&mut rollout, form.previous.as_ref(), now);
    set_pace(&mut rollout, &nodes, seen.window);
    FormState {
        total_nodes: total,
        ready_nodes: ready,
        conditions: conditions(&rollout, ready, blocked),
        non_ready: count(&|node| node.non_ready()),
        window: seen.window,
        waiting,
        blocked: blocked.cloned(),
        rollout,
        wake_at: seen.failed.next_at,
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

/// The nodes that are ready, and whose slots are kept until rollout.minReadySeconds have passed.
fn soaking(form_name: &str, form: &Form, seen: &Seen) -> Names {
    let soaks = |slot: &&Slot| {
        let node = seen.snapshot.nodes.get(&slot.node);
        slot.form == form_name && node.is_some_and(|node| node.uid == slot.uid && !node.deleting)
    };
    let slots = seen.slots.iter().filter(soaks);
    match form.policy.min_ready_seconds {
        0 => Names::default(),
        _ => Names::of(slots.map(|slot| &slot.node)),
    }
}

/// The updated nodes that are not ready, and why the first of them is not.
fn not_ready(nodes: &[(&String, &Node)]) -> Option<String> {
    let of = || {
        nodes
            .iter()
            .filter(|(_, node)| !node.held() && node.non_ready())
    };
    let (first, node) = of().next()?;
    let names = Names::of(of().map(|(name, _)| *name));
    Some(match &node.why {
        Some(why) => format!("{names} ({first}: {why})"),
        None => names.to_string(),
    })
}

const SEE_WHY: &str =
    "; if that lasts, see the form's condition Valid, and the conditions of the hub";

fn message(
    rollout: &FormRolloutStatus,
    failed: &[String],
    blocked: Option<&Reason>,
    unrendered: i32,
    not_ready: Option<String>,
) -> String {
    let FormRolloutStatus {
        total_nodes: total,
        updated_nodes: updated,
        updating_nodes: updating,
        held_nodes: held,
        ..
    } = rollout;
    match rollout.phase {
        Phase::Idle => "there are no nodes: the hub has no active row".to_owned(),
        Phase::Complete if *total == 1 => {
            "the node runs the newest content and is ready".to_owned()
        }
        Phase::Complete => format!("all {total} nodes run the newest content and are ready"),
        Phase::Failed if blocked.is_none() => format!(
            "not ready in time: {}; correct the form, and they are repaired first",
            Names::of(failed)
        ),
        Phase::Failed | Phase::InProgress => {
            let counts =
                format!("{updated}/{total} updated, {updating} not ready yet, {held} held");
            match blocked {
                // What halts is an event, too, and there may be nothing else to read.
                Some(reason) if rollout.phase == Phase::Failed => {
                    format!("{counts}: {}", reason.advice())
                }
                Some(reason) => format!("{counts}: {reason}"),
                None if unrendered > 0 => format!(
                    "{counts}: {unrendered} have resources that did not render or cannot be applied; see the hub's condition RenderFailed, and their own"
                ),
                None => match not_ready {
                    Some(names) => format!("{counts}: not ready: {names}"),
                    None => counts,
                },
            }
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

/// How many windows full of nodes are through and are to come, and when it is done if it goes on as it went so far. It
/// follows from what happened, not from the time of asking: an estimate that moves by itself would be written forever.
fn set_pace(rollout: &mut FormRolloutStatus, nodes: &[(&String, &Node)], window: Option<usize>) {
    let (Some(begin), Some(window)) = (rollout.start_time, window) else {
        return;
    };
    let ready = nodes.iter().filter_map(|(_, node)| {
        let settled = node.settled_since.filter(|_| !node.held())?;
        (stamp::millis(node.start?) >= begin).then_some(settled)
    });
    let (done, latest) = ready.fold((0, begin), |(n, last), at| (n + 1, last.max(at)));
    let left = (rollout.total_nodes - rollout.ready_updated_nodes).max(0) as usize;
    rollout.waves_done = Some((done / window) as i32);
    rollout.waves_left = Some(left.div_ceil(window) as i32);
    if rollout.phase == Phase::InProgress && done > 0 {
        let spent = latest.duration_since(begin).as_secs_f64();
        let more = SignedDuration::try_from_secs_f64(spent * left as f64 / done as f64);
        rollout.estimated_completion = more
            .ok()
            .and_then(|more| latest.checked_add(more).ok())
            .map(stamp::millis);
    }
}

fn conditions(
    rollout: &FormRolloutStatus,
    ready: i32,
    blocked: Option<&Reason>,
) -> Vec<ConditionState> {
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
        match blocked {
            Some(reason) => ConditionState::new("Held", true, reason.code(), reason.advice()),
            None => ConditionState::new("Held", false, "NotHeld", "no node waits for its turn"),
        },
    ]
}
