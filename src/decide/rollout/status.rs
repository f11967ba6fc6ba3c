//! What a form's status says of its rollout: counted from the nodes, so that it is true at every moment.

mod message;
pub(super) mod progress;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::api::conditions::{ConditionReason, ConditionState};
use crate::api::form::{FormRolloutStatus, Phase, WaitingNodes};
use crate::api::hub::Slot;
use crate::api::names;
use crate::api::policy::{Skew, SkewCounts};
use crate::decide::rollout::failure::Failed;
use crate::decide::rollout::index::{Index, Named};
use crate::decide::rollout::pace::{Pace, set_pace, set_times};
use crate::decide::rollout::reason::{Advice, Names, Reason};
use crate::decide::rollout::slots::{free_at, uids};
use crate::decide::rollout::stalled::stalled;
use crate::decide::rollout::status::message::{Message, complete, with_force};
use crate::decide::rollout::status::progress::FormProgress;
use crate::decide::rollout::{Form, Snapshot, order, window};

/// The part of a form's status that the planner knows.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FormState {
    pub total_nodes: i32,
    pub ready_nodes: i32,
    /// Nodes whose live content is not ready, whatever the reason.
    pub non_ready: i32,
    /// The form's own window; None where there is none, and while it is forced.
    pub window: Option<usize>,
    /// The hub's window over all of its forms; None where there is none, and while the form is forced.
    pub hub_window: Option<usize>,
    /// Everything of the form goes at once.
    pub force: Option<Force>,
    /// Nodes that are ready and keep their slots for rollout.minReadySeconds, and until when.
    pub watched: BTreeMap<String, Timestamp>,
    /// Why nothing goes on without a correction although the failure budget is not spent, and what must happen.
    pub stalled: Option<Advice>,
    /// Nodes that run content which was changed since the hub wrote it: not the planner knows them, but [`Self::with_edited`].
    #[serde(skip)]
    pub edited: Names,
    /// Resources did not render or cannot be applied, of live nodes that are settled otherwise.
    pub unrendered: bool,
    pub rollout: FormRolloutStatus,
    pub conditions: Vec<ConditionState>,
    /// Why the first in turn of those that do not go by themselves waits.
    pub blocked: Option<Reason>,
    /// When a node's deadline passes.
    pub wake_at: Option<Timestamp>,
}

/// What the annotation is on that lets everything of a form go at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Force {
    Form,
    Hub,
}

impl fmt::Display for Force {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on = match self {
            Force::Form => "the form",
            Force::Hub => "its hub",
        };
        let (name, value) = (names::FORCE_ROLLOUT, names::TRUE);
        write!(f, "{name}={value} is on {on}")
    }
}

/// The windows that apply, as the specs have them: what a percentage comes to is not known before the form's nodes are there.
pub fn windows(force: Option<Force>, own: Skew, hub: Skew) -> String {
    let none = Skew::Count(0);
    match (force, own == none, hub == none) {
        (Some(force), ..) => format!("no window applies: {force}"),
        (None, false, false) => format!("maxSkew {own}, and {hub} of the hub"),
        (None, false, true) => format!("maxSkew {own}"),
        (None, true, false) => format!("no maxSkew of its own, but {hub} of the hub"),
        (None, true, true) => "no maxSkew".to_owned(),
    }
}

impl FormState {
    /// Whether its status has a part about the rollout, were there no policy of its own.
    pub fn is_told(&self) -> bool {
        let windowed = self.window.is_some() || self.hub_window.is_some();
        let FormRolloutStatus {
            slots,
            held_nodes,
            unwritten_nodes,
            ..
        } = self.rollout;
        windowed || self.force.is_some() || slots > 0 || held_nodes > 0 || unwritten_nodes > 0
    }

    /// What an event on the hub says of a window that is full, in Lynq's words.
    pub fn throttled(&self) -> String {
        let waiting = self.rollout.waiting.iter();
        let (releasing, held): (Vec<&WaitingNodes>, Vec<_>) =
            waiting.partition(|nodes| nodes.reason == *Reason::Releasing.code());
        let count = |all: &[&WaitingNodes]| all.iter().map(|nodes| i64::from(nodes.count)).sum();
        let (releasing, held): (i64, i64) = (count(&releasing), count(&held));
        // Those that are still to be written are held then.
        let FormRolloutStatus {
            total_nodes,
            updated_nodes,
            held_nodes,
            ..
        } = self.rollout;
        let held = held + i64::from(total_nodes - updated_nodes - held_nodes);
        let window = self.window.into_iter().chain(self.hub_window).min();
        format!(
            "{held} node updates throttled (maxSkew={}, currently updating={})",
            window.unwrap_or_default(),
            i64::from(self.rollout.updating_nodes) + releasing
        )
    }

    /// Complete with somebody's own content is told apart. The planner itself does not know what the hub rendered.
    pub fn with_edited(mut self, edited: &[String]) -> Self {
        self.edited = Names::of(edited);
        if self.rollout.phase == Phase::Complete && !edited.is_empty() {
            let text = complete(self.total_nodes, edited);
            self.rollout.message = with_force(text, self.force);
            let told = |state: &&mut ConditionState| state.type_ == ROLLOUT_COMPLETE;
            if let Some(state) = self.conditions.iter_mut().find(told) {
                state.message.clone_from(&self.rollout.message);
            }
        }
        self
    }
}

/// What the status of a form follows from, besides the form.
pub struct FormStatusInputs<'a> {
    pub snapshot: &'a Snapshot,
    pub index: &'a Index<'a>,
    /// The ledger as it will stand.
    pub slots: &'a [Slot],
    pub failed: &'a Failed,
    pub fleet: &'a Fleet<'a>,
    /// Why each of the form's held nodes waits, in their turn.
    pub reasons: &'a [(&'a str, &'a Reason)],
    /// The form's window; None where there is none.
    pub window: Option<usize>,
    /// The hub's, over all of its forms; None where there is none.
    pub hub_window: Option<usize>,
}

/// What a form's status follows from that other forms have a part in.
pub struct Fleet<'a> {
    /// How many nodes are past their deadlines, and how many are not ready without a slot.
    pub late: usize,
    pub adrift: usize,
    /// By form: nodes that are not ready, that no slot is for, and that nothing is held for.
    broken: BTreeMap<&'a str, usize>,
    /// The forms that have slots, or nodes that are held.
    under_way: BTreeSet<&'a str>,
}

impl<'a> Fleet<'a> {
    pub fn of(index: &Index<'a>, slots: &'a [Slot], failed: &BTreeMap<&str, Failed>) -> Self {
        let with_slots = uids(slots);
        let mut fleet = Fleet {
            late: failed.values().map(Failed::late).sum(),
            adrift: failed.values().map(|failed| failed.adrift.all).sum(),
            broken: BTreeMap::new(),
            under_way: slots.iter().map(|slot| slot.form.as_str()).collect(),
        };
        for form in index.forms() {
            let is_broken = |named: &&Named| {
                !named.held && named.non_ready && !with_slots.contains(named.node.uid.as_str())
            };
            let broken = index.all_of(form).filter(is_broken).count();
            fleet.broken.insert(form, broken);
            if index.nodes_of(form).iter().any(|named| named.held) {
                fleet.under_way.insert(form);
            }
        }
        fleet
    }
}

pub fn of_form(name: &str, form: &Form, seen: &FormStatusInputs, now: Timestamp) -> FormState {
    let progress = FormProgress::of(name, form, seen);
    let blocked = most_urgent(seen.reasons);
    let force = match () {
        () if form.forced => Some(Force::Form),
        () if seen.snapshot.forced => Some(Force::Hub),
        () => None,
    };
    let mut rollout = counted(name, form, seen, &progress, force);
    let has_slots = !progress.with_slots.is_empty();
    set_times(&mut rollout, form, progress.nodes, has_slots, now);
    // What breaks after its rollout is no rollout, nor does anything stand still while something goes.
    let began = form
        .previous
        .as_ref()
        .is_some_and(|previous| previous.start_time.is_some());
    let stands_still = rollout.phase == Phase::InProgress
        && rollout.completion_time.is_none()
        && (blocked.is_some() || began)
        && !(seen.reasons.iter()).any(|(_, reason)| **reason == Reason::Releasing);
    let stalled = stands_still
        .then(|| stalled(name, form, seen, blocked, &progress))
        .flatten();
    let text = Message {
        form,
        seen,
        progress: &progress,
        rollout: &rollout,
        blocked,
        stalled: stalled.as_ref(),
    }
    .text();
    let text = text + &order::without_nodes(name, form, seen.index);
    let text = text + &window::without_domain(name, form, seen.index);
    rollout.message = with_force(text, force);
    rollout.waiting = waiting(seen.reasons, blocked, stalled.as_ref());
    let applies = |window: Option<usize>| window.filter(|_| force.is_none());
    // An order without maxSkew has only the ledger's room for a window.
    let own = seen
        .window
        .filter(|_| form.policy.max_skew != Skew::Count(0));
    let (window, hub_window) = (applies(own), applies(seen.hub_window));
    let narrower = window.into_iter().chain(hub_window).min();
    rollout.window = narrower.and_then(|width| i32::try_from(width).ok());
    let watched = watched(name, form, seen, now);
    let pace = Pace {
        width: narrower,
        soak: SignedDuration::from_secs(form.policy.min_ready_seconds.into()),
        watched: watched.len(),
        places: match rollout.phase {
            Phase::InProgress => places(name, form, seen, (window, hub_window)),
            _ => 0,
        },
        stopped: blocked.is_some_and(Reason::needs_somebody)
            || form.policy.paused
            || form.outdated
            || !form.unwritten.is_empty()
            // Since when those are settled is not known yet.
            || !seen.snapshot.unlooked.is_empty()
            || !progress.unrendered.is_empty()
            || stalled.is_some(),
    };
    set_pace(&mut rollout, progress.nodes, &pace);
    // What is over went as it went, whatever the window is by now.
    let over = form
        .previous
        .as_ref()
        .filter(|p| p.completion_time.is_some() && p.completion_time == rollout.completion_time);
    if let (Some(over), Some(now)) = (over, rollout.waves_done) {
        rollout.waves_done = over.waves_done.or(Some(now));
    }
    let conditions = conditions(
        &rollout,
        progress.ready,
        (progress.going.len(), form.absent.len()),
        blocked,
        stalled.as_ref(),
    );
    let waits = matches!(
        blocked,
        Some(Reason::Paused { .. } | Reason::AwaitingPromotion { .. })
    );
    if rollout.phase == Phase::InProgress && waits {
        rollout.phase = Phase::Paused;
    }
    FormState {
        total_nodes: progress.total(),
        ready_nodes: progress.ready,
        conditions,
        non_ready: progress.count(|named| named.non_ready),
        window,
        hub_window,
        force,
        watched,
        unrendered: !progress.unrendered.is_empty(),
        stalled,
        edited: Names::default(),
        blocked: blocked.cloned(),
        rollout,
        wake_at: seen.failed.next_at,
    }
}

/// A repair that waits comes first in turn, and must not hide what halts all the others, nor why an order's first group
/// does not go; nor must who waits hide what is refused, and is tried by turns; nor must deletions of the hub hide what is wrong
/// with the form.
fn most_urgent<'a>(reasons: &[(&str, &'a Reason)]) -> Option<&'a Reason> {
    let waiting = reasons.iter().map(|(_, reason)| *reason);
    waiting
        .filter(|reason| **reason != Reason::Releasing)
        .min_by_key(|reason| match reason {
            Reason::RolloutFailed { .. } => 0,
            Reason::ReleaseRefused { .. } => 1,
            Reason::DeletionsHeld { .. } => 3,
            Reason::GroupNotDone { .. } => 4,
            _ => 2,
        })
}

/// An entry for each reason: of that why the rollout is blocked first, of the others as they come in turn.
fn waiting(
    reasons: &[(&str, &Reason)],
    blocked: Option<&Reason>,
    stalled: Option<&Advice>,
) -> Vec<WaitingNodes> {
    let mut all: Vec<WaitingNodes> = vec![];
    let entry = |reason: &Reason, advice: Advice| WaitingNodes {
        reason: reason.code().into(),
        count: 0,
        nodes: vec![],
        message: advice.why,
        next: advice.next,
        group: match reason {
            Reason::AwaitingPromotion { group, .. } => Some(group.clone()),
            _ => None,
        },
    };
    all.extend(blocked.map(|blocked| {
        let advice = stalled.cloned().unwrap_or_else(|| blocked.advice());
        entry(blocked, advice)
    }));
    for (name, reason) in reasons {
        let place = all.iter().position(|nodes| nodes.reason == *reason.code());
        let place = place.unwrap_or_else(|| {
            all.push(entry(reason, reason.advice()));
            all.len() - 1
        });
        let nodes = &mut all[place];
        nodes.count += 1;
        if nodes.nodes.len() < WAITING_SHOWN {
            nodes.nodes.push((*name).to_owned());
        }
    }
    all
}

/// So many names of nodes that wait for the same stand in the status.
const WAITING_SHOWN: usize = 3;

/// The phase and the counts; what follows from them is still missing.
fn counted(
    name: &str,
    form: &Form,
    seen: &FormStatusInputs,
    progress: &FormProgress,
    force: Option<Force>,
) -> FormRolloutStatus {
    let total = progress.total();
    FormRolloutStatus {
        phase: progress.phase(seen.failed),
        target_generation: form.rendered_generation,
        total_nodes: total,
        updated_nodes: progress.updated,
        updating_nodes: progress.updated - progress.ready_updated,
        ready_updated_nodes: progress.ready_updated,
        held_nodes: progress.held,
        failed_nodes: seen.failed.names.len() as i32,
        unwritten_nodes: form.unwritten_before.max(not_written(form)),
        forced_nodes: match force {
            Some(_) => total,
            None => progress.count(|named| named.node.forced),
        },
        slots: seen.slots.iter().filter(|slot| slot.form == name).count() as i32,
        waves_done: None,
        waves_left: None,
        start_time: None,
        completion_time: None,
        estimated_completion: None,
        window: None,
        deadline: seen.failed.deadline,
        waiting: vec![],
        message: String::new(),
    }
}

fn not_written(form: &Form) -> i32 {
    let absent = form.absent.keys();
    let absent = absent.filter(|name| !form.unwritten.contains(*name));
    (form.unwritten.len() + absent.count()) as i32
}

/// What of the windows that apply (the form's, the hub's) is left to this form's rollout: without the nodes that are not
/// ready and that it does not repair, and of the hub's what comes to each form that is on its way.
fn places(
    form_name: &str,
    form: &Form,
    seen: &FormStatusInputs,
    (window, hub_window): (Option<usize>, Option<usize>),
) -> usize {
    let of_hub = || {
        let under_way = &seen.fleet.under_way;
        let forms = under_way.len() + usize::from(!under_way.contains(form_name));
        let broken: usize = seen.fleet.broken.values().sum();
        Some(hub_window?.saturating_sub(broken).div_ceil(forms))
    };
    let of_form = seen.fleet.broken.get(form_name);
    let of_form = of_form.copied().unwrap_or_default();
    let of_form = match form.policy.skew_counts {
        SkewCounts::All => of_form,
        SkewCounts::Released => 0,
    };
    let own = window.map(|window| window.saturating_sub(of_form));
    own.into_iter().chain(of_hub()).min().unwrap_or_default()
}

/// Until when the settled nodes keep their slots.
fn watched(
    form_name: &str,
    form: &Form,
    seen: &FormStatusInputs,
    now: Timestamp,
) -> BTreeMap<String, Timestamp> {
    let until = |slot: &Slot| {
        let node = seen.snapshot.nodes.get(&slot.node);
        let node = node.filter(|node| node.uid == slot.uid && !node.held())?;
        let until = free_at(seen.snapshot, slot, node, now)?;
        Some((slot.node.clone(), until))
    };
    let of_form = |slot: &&Slot| slot.form == form_name && form.policy.min_ready_seconds > 0;
    seen.slots
        .iter()
        .filter(of_form)
        .filter_map(until)
        .collect()
}

pub const ROLLOUT_COMPLETE: &str = "RolloutComplete";

fn conditions(
    rollout: &FormRolloutStatus,
    ready: i32,
    (going, absent): (usize, usize),
    blocked: Option<&Reason>,
    stalled: Option<&Advice>,
) -> Vec<ConditionState> {
    let total = rollout.total_nodes;
    let counts = format!("{ready}/{total} nodes ready");
    let (applied, applied_reason, applied_message) = match () {
        () if going > 0 => (
            false,
            ConditionReason::NotAllNodesReady,
            format!("{counts}; being deleted, and created again once gone: {going}"),
        ),
        () if absent > 0 => (
            false,
            ConditionReason::NotAllNodesReady,
            format!("{counts}; not created yet: {absent}"),
        ),
        () if total == 0 => (
            false,
            ConditionReason::NoNodes,
            "there are no nodes".to_owned(),
        ),
        () if ready == total => (
            true,
            ConditionReason::AllNodesReady,
            format!("All {total} nodes ready"),
        ),
        () => (false, ConditionReason::NotAllNodesReady, counts),
    };
    let complete = matches!(rollout.phase, Phase::Complete | Phase::Idle);
    let reason = match rollout.phase {
        Phase::Idle => ConditionReason::NoNodes,
        // Nothing goes on by itself.
        Phase::InProgress if stalled.is_some() => ConditionReason::Stalled,
        Phase::InProgress | Phase::Paused => ConditionReason::InProgress,
        Phase::Failed => ConditionReason::Failed,
        Phase::Complete => ConditionReason::Complete,
    };
    vec![
        ConditionState::new("Applied", applied, applied_reason, applied_message),
        ConditionState::new(ROLLOUT_COMPLETE, complete, reason, rollout.message.clone()),
        match blocked {
            Some(reason) => {
                let advice = stalled.cloned().unwrap_or_else(|| reason.advice());
                ConditionState::new("Held", true, reason.word(), advice.to_string())
            }
            None => ConditionState::new(
                "Held",
                false,
                ConditionReason::NotHeld,
                "no node waits for its turn",
            ),
        },
    ]
}
