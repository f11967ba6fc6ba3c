//! What a form's status says of its rollout: counted from the nodes, so that it is true at every moment.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::api::conditions::{ConditionReason, ConditionState};
use crate::api::form::{FormRolloutStatus, Phase};
use crate::api::hub::Slot;
use crate::api::names;
use crate::api::policy::{Skew, SkewCounts};
use crate::decide::rollout::failure::Failed;
use crate::decide::rollout::pace::{Pace, set_pace, set_times};
use crate::decide::rollout::reason::{Because, Names, Reason};
use crate::decide::rollout::stalled::stalled;
use crate::decide::rollout::{Form, Node, Snapshot, free_at, order};

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
    pub stalled: Option<String>,
    /// Nodes that run content which was changed since the hub wrote it: not the planner knows them, but [`Self::with_edited`].
    #[serde(skip)]
    pub edited: Names,
    /// Resources did not render or cannot be applied, of live nodes that are settled otherwise.
    pub unrendered: bool,
    pub rollout: FormRolloutStatus,
    pub conditions: Vec<ConditionState>,
    /// Held nodes, by the reason why they wait.
    pub waiting: BTreeMap<&'static str, i64>,
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

    /// Which windows apply.
    pub fn windows(&self) -> String {
        match (self.force, self.window, self.hub_window) {
            (Some(force), ..) => format!("no window applies: {force}"),
            (None, Some(own), Some(hub)) => format!("window {own}, and the hub's of {hub}"),
            (None, Some(own), None) => format!("window {own}"),
            (None, None, Some(hub)) => format!("no window of its own, but the hub's of {hub}"),
            (None, None, None) => "no window".to_owned(),
        }
    }

    /// What an event on the hub says of a window that is full, in Lynq's words.
    pub fn throttled(&self) -> String {
        let releasing = self.waiting.get(Reason::Releasing.code());
        let releasing = releasing.copied().unwrap_or_default();
        let held = self.waiting.values().sum::<i64>() - releasing;
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
    /// The ledger as it will stand.
    pub slots: &'a [Slot],
    pub failed: &'a Failed,
    /// How many of all forms are past their deadlines, and how many are not ready without a slot.
    pub late: usize,
    pub adrift: usize,
    pub waiting: &'a BTreeMap<String, Reason>,
    /// The nodes that wait, in their turn.
    pub candidates: &'a [&'a str],
    /// The form's window; None where there is none.
    pub window: Option<usize>,
    /// The hub's, over all of its forms; None where there is none.
    pub hub_window: Option<usize>,
}

pub fn of_form(name: &str, form: &Form, seen: &FormStatusInputs, now: Timestamp) -> FormState {
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
    let with_slots = with_slots(name, seen);
    let all_there = !form.outdated && form.unwritten.is_empty() && form.absent.is_empty();
    let done = ready_updated == total && all_there && with_slots.is_empty();
    // What another process told of a node may have changed since; what it said of them all may stand that long.
    let was_complete = |before: &FormRolloutStatus| {
        before.phase == Phase::Complete && before.target_generation == form.rendered_generation
    };
    let unlooked = nodes.iter().map(|(name, _)| *name);
    let unlooked = Names::of(unlooked.filter(|name| seen.snapshot.unlooked.contains(*name)));
    let looked = unlooked.is_empty() || form.previous.as_ref().is_some_and(was_complete);
    let phase = if total == 0 && all_there {
        Phase::Idle
    } else if seen.failed.spent() {
        Phase::Failed
    } else if done && looked {
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
        .candidates
        .iter()
        .copied()
        .filter(of_form)
        .filter_map(|n| seen.waiting.get(n));
    let mut waiting = BTreeMap::new();
    for reason in reasons.clone() {
        *waiting.entry(reason.code()).or_default() += 1;
    }
    // A repair that waits comes first in turn, and must not hide what halts all the others, nor why an order's first group
    // does not go; nor must who waits hide what is refused, and is tried by turns.
    let blocked = reasons
        .clone()
        .filter(|reason| **reason != Reason::Releasing)
        .min_by_key(|reason| match reason {
            Reason::BudgetSpent { .. } => 0,
            Reason::ReleaseRefused { .. } => 1,
            Reason::GroupNotDone { .. } => 3,
            _ => 2,
        });
    let mut rollout = FormRolloutStatus {
        phase,
        target_generation: form.rendered_generation,
        total_nodes: total,
        updated_nodes: updated,
        updating_nodes: updated - ready_updated,
        ready_updated_nodes: ready_updated,
        held_nodes: held,
        failed_nodes: seen.failed.names.len() as i32,
        unwritten_nodes: form.unwritten_before.max(not_written(form)),
        forced_nodes: 0,
        slots,
        waves_done: None,
        waves_left: None,
        start_time: None,
        completion_time: None,
        estimated_completion: None,
        message: String::new(),
    };
    let force = match () {
        () if form.forced => Some(Force::Form),
        () if seen.snapshot.forced => Some(Force::Hub),
        () => None,
    };
    rollout.forced_nodes = match force {
        Some(_) => total,
        None => count(&|node| node.forced),
    };
    set_times(&mut rollout, form, &nodes, !with_slots.is_empty(), now);
    let not_ready = not_ready(&nodes);
    // What breaks after its rollout is no rollout, nor does anything stand still while something goes.
    let began = form
        .previous
        .as_ref()
        .is_some_and(|previous| previous.start_time.is_some());
    let stands_still = phase == Phase::InProgress
        && rollout.completion_time.is_none()
        && (blocked.is_some() || began)
        && !waiting.contains_key(Reason::Releasing.code());
    let stalled = stands_still
        .then(|| stalled(name, form, seen, blocked, not_ready.as_deref()))
        .flatten();
    let (going, unwritten): (BTreeSet<_>, BTreeSet<_>) = form
        .unwritten
        .iter()
        .cloned()
        .partition(|name| seen.snapshot.nodes.get(name).is_some_and(|n| n.deleting));
    let unrendered = nodes
        .iter()
        .filter(|(_, node)| !node.held() && node.settled_since.is_some() && !node.ready);
    let unrendered = Names::of(unrendered.map(|(name, _)| *name));
    let broken = count(&|node| node.held() && node.non_ready());
    let counts = counts(&rollout, broken);
    let message = || {
        message(
            form,
            &rollout,
            &counts,
            seen,
            blocked,
            &unrendered,
            not_ready.as_deref(),
        )
    };
    let text = match () {
        () if form.outdated && total == 0 => format!("there are no nodes yet{SEE_WHY}"),
        () if form.outdated => {
            format!("the newest templates have not reached every node yet{SEE_WHY}")
        }
        () if unwritten.is_empty() && !going.is_empty() => format!(
            "being deleted, and made anew once gone: {}: see their finalizers, and the operator's log; {}",
            Names::of(&going),
            message()
        ),
        () if !unwritten.is_empty() => format!(
            "the newest content is not written to {}: if that lasts, see the hub's conditions; {}",
            Names::of(&form.unwritten),
            message()
        ),
        () if done && !looked => format!(
            "{updated}/{total} updated and ready, as was told before the operator started; it has not yet looked at {unlooked}"
        ),
        () if let Some(stalled) = &stalled => format!("{counts}: {stalled}"),
        () if held == 0 && updated == ready_updated && !with_slots.is_empty() => format!(
            "{updated}/{total} updated and ready; {}: {with_slots}",
            match form.policy.min_ready_seconds {
                0 => "looked at once more",
                _ => "watched for rollout.minReadySeconds",
            }
        ),
        () if held == 0 && updated == ready_updated && !form.absent.is_empty() => format!(
            "{updated}/{total} updated and ready; still to be made: {}; if that lasts, see the hub's conditions",
            Names::of(form.absent.keys())
        ),
        () => message(),
    };
    let text = text + &order::without_nodes(name, form, seen.snapshot);
    rollout.message = with_force(text, force);
    let applies = |window: Option<usize>| window.filter(|_| force.is_none());
    // An order without maxSkew has only the ledger's room for a window.
    let own = seen
        .window
        .filter(|_| form.policy.max_skew != Skew::Count(0));
    let (window, hub_window) = (applies(own), applies(seen.hub_window));
    let watched = watched(name, form, seen, now);
    let pace = Pace {
        width: window.into_iter().chain(hub_window).min(),
        soak: SignedDuration::from_secs(form.policy.min_ready_seconds.into()),
        watched: watched.len(),
        places: match phase {
            Phase::InProgress => places(name, form, seen, (window, hub_window)),
            _ => 0,
        },
        stopped: blocked.is_some_and(Reason::needs_somebody)
            || form.policy.paused
            || form.outdated
            || !form.unwritten.is_empty()
            // Since when those are settled is not known yet.
            || !seen.snapshot.unlooked.is_empty()
            || !unrendered.is_empty()
            || stalled.is_some(),
    };
    set_pace(&mut rollout, &nodes, &pace);
    // What is over went as it went, whatever the window is by now.
    let over = form
        .previous
        .as_ref()
        .filter(|p| p.completion_time.is_some() && p.completion_time == rollout.completion_time);
    if let (Some(over), Some(now)) = (over, rollout.waves_done) {
        rollout.waves_done = over.waves_done.or(Some(now));
    }
    FormState {
        total_nodes: total,
        ready_nodes: ready,
        conditions: conditions(
            &rollout,
            ready,
            (going.len(), form.absent.len()),
            blocked,
            stalled.as_deref(),
        ),
        non_ready: count(&|node| node.non_ready()),
        window,
        hub_window,
        force,
        watched,
        unrendered: !unrendered.is_empty(),
        stalled,
        edited: Names::default(),
        waiting,
        blocked: blocked.cloned(),
        rollout,
        wake_at: seen.failed.next_at,
    }
}

fn not_written(form: &Form) -> i32 {
    let absent = form.absent.keys();
    let absent = absent.filter(|name| !form.unwritten.contains(*name));
    (form.unwritten.len() + absent.count()) as i32
}

pub fn nodes_of<'a>(
    form: &'a str,
    snapshot: &'a Snapshot,
) -> impl Iterator<Item = (&'a String, &'a Node)> {
    snapshot
        .nodes
        .iter()
        .filter(move |(_, node)| node.form == form && !node.deleting)
}

/// What of the windows that apply (the form's, the hub's) is left to this form's rollout: without the nodes that are not
/// ready and that it does not repair, and of the hub's what comes to each form that is on its way.
fn places(
    form_name: &str,
    form: &Form,
    seen: &FormStatusInputs,
    (window, hub_window): (Option<usize>, Option<usize>),
) -> usize {
    let nodes = seen.snapshot.nodes.values();
    let slots: BTreeSet<&str> = seen.slots.iter().map(|slot| slot.uid.as_str()).collect();
    let has_slot = |node: &Node| slots.contains(node.uid.as_str());
    let broken: Vec<&str> = nodes
        .clone()
        .filter(|node| node.non_ready() && !node.held() && !has_slot(node))
        .map(|node| node.form.as_str())
        .collect();
    let of_hub = || {
        let held = nodes.filter(|node| node.held() && !node.deleting);
        let forms = held.map(|node| node.form.as_str());
        let forms = forms.chain(seen.slots.iter().map(|slot| slot.form.as_str()));
        let forms = BTreeSet::from_iter(forms.chain([form_name])).len();
        Some(hub_window?.saturating_sub(broken.len()).div_ceil(forms))
    };
    let of_form = broken.iter().filter(|form| **form == form_name).count();
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

/// The nodes that have slots: of those that are all ready, until rollout.minReadySeconds have passed, and they were looked at
/// once more.
fn with_slots(form_name: &str, seen: &FormStatusInputs) -> Names {
    let is_there = |slot: &&Slot| {
        let node = seen.snapshot.nodes.get(&slot.node);
        slot.form == form_name && node.is_some_and(|node| node.uid == slot.uid && !node.deleting)
    };
    let slots = seen.slots.iter().filter(is_there);
    Names::of(slots.map(|slot| &slot.node))
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

/// Somebody may have forgotten that no window applies.
fn with_force(message: String, force: Option<Force>) -> String {
    match force {
        Some(force) => format!("{message}; no window applies: {force}, until it is taken off"),
        None => message,
    }
}

fn complete(total: i32, edited: &[String]) -> String {
    const EDITED: &str = "what was changed since the hub wrote it (condition Edited)";
    match (total, edited.len()) {
        (1, 0) => "the node runs the newest content and is ready".to_owned(),
        (1, _) => format!("the node is ready, and runs {EDITED}"),
        (_, 0) => format!("all {total} nodes run the newest content and are ready"),
        (_, n) => format!(
            "all {total} nodes are ready; {} run the newest content, and {n} {EDITED}: {}",
            total - n as i32,
            Names::of(edited)
        ),
    }
}

/// `broken`: held nodes of which not even the live content is ready.
fn counts(rollout: &FormRolloutStatus, broken: i32) -> String {
    let FormRolloutStatus {
        total_nodes: total,
        updated_nodes: updated,
        updating_nodes: updating,
        held_nodes: held,
        ..
    } = rollout;
    let broken = match broken {
        0 => String::new(),
        n => format!(" ({n} of them not ready)"),
    };
    format!("{updated}/{total} updated, {updating} not ready yet, {held} held{broken}")
}

fn message(
    form: &Form,
    rollout: &FormRolloutStatus,
    counts: &str,
    seen: &FormStatusInputs,
    blocked: Option<&Reason>,
    unrendered: &Names,
    not_ready: Option<&str>,
) -> String {
    match rollout.phase {
        Phase::Idle => "there are no nodes: the hub has no active row".to_owned(),
        Phase::Complete => complete(rollout.total_nodes, &[]),
        Phase::Failed if blocked.is_none() => {
            let failed = Names::of(&seen.failed.names);
            let why = seen.failed.why(form, seen.snapshot);
            format!(
                "not ready in time: {}; correct the form or the rows, and they are repaired first",
                Because(&failed, why.as_deref())
            )
        }
        Phase::Failed | Phase::InProgress => {
            match blocked {
                // What halts is an event, too, and there may be nothing else to read.
                Some(reason) if rollout.phase == Phase::Failed => {
                    format!("{counts}: {}", reason.advice())
                }
                Some(reason) => format!("{counts}: {reason}"),
                None if !unrendered.is_empty() => format!(
                    "{counts}: resources of {unrendered} did not render or cannot be applied; see the hub's condition RenderFailed, and their own"
                ),
                None => match not_ready {
                    Some(names) => format!("{counts}: not ready: {names}"),
                    None => counts.to_owned(),
                },
            }
        }
    }
}

pub const ROLLOUT_COMPLETE: &str = "RolloutComplete";

fn conditions(
    rollout: &FormRolloutStatus,
    ready: i32,
    (going, absent): (usize, usize),
    blocked: Option<&Reason>,
    stalled: Option<&str>,
) -> Vec<ConditionState> {
    let total = rollout.total_nodes;
    let counts = format!("{ready}/{total} nodes ready");
    let (applied, applied_reason, applied_message) = match () {
        () if going > 0 => (
            false,
            ConditionReason::NotAllNodesReady,
            format!("{counts}; being deleted, and made anew once gone: {going}"),
        ),
        () if absent > 0 => (
            false,
            ConditionReason::NotAllNodesReady,
            format!("{counts}; still to be made: {absent}"),
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
        Phase::InProgress => ConditionReason::InProgress,
        Phase::Failed => ConditionReason::Failed,
        Phase::Complete => ConditionReason::Complete,
    };
    vec![
        ConditionState::new("Applied", applied, applied_reason, applied_message),
        ConditionState::new(ROLLOUT_COMPLETE, complete, reason, rollout.message.clone()),
        match blocked {
            Some(reason) => {
                let text = stalled.map_or_else(|| reason.advice(), str::to_owned);
                ConditionState::new("Held", true, reason.word(), text)
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
