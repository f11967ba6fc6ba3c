//! How far a rollout is, and when it will be done.

use jiff::{SignedDuration, Timestamp};

use crate::api::form::{FormRolloutStatus, Phase};
use crate::api::stamp;
use crate::decide::rollout::index::Named;
use crate::decide::rollout::{Form, Node};

/// How far the clocks may be apart of who lets a node go and who sees it ready.
const CLOCKS_APART_MAX: SignedDuration = SignedDuration::from_mins(10);

/// So many nodes say how long one takes: the first ones have images to pull.
const SETTLED_MIN: usize = 3;

/// What the pace of a rollout follows from, besides its nodes.
pub struct Pace {
    /// The narrower of the windows that apply.
    pub width: Option<usize>,
    /// So many of its places are this form's, and not taken by what nothing here repairs.
    pub places: usize,
    /// How long a node that is ready keeps its slot.
    pub soak: SignedDuration,
    /// Nodes that are ready and still watched.
    pub watched: usize,
    /// Nothing goes on until somebody does something.
    pub stopped: bool,
}

/// A rollout begins when something changes, and again when new templates come; it ends when all is done. What breaks
/// afterwards by itself does not begin it anew.
pub fn set_times(
    rollout: &mut FormRolloutStatus,
    form: &Form,
    nodes: &[Named],
    has_slots: bool,
    now: Timestamp,
) {
    let now = stamp::millis(now);
    let over = matches!(rollout.phase, Phase::Complete | Phase::Idle);
    let to_do = form.outdated
        || rollout.held_nodes > 0
        || rollout.unwritten_nodes > 0
        || has_slots
        || rollout.phase == Phase::Failed;
    let continued = form.previous.as_ref().filter(|p| {
        let is_news = |node: &Node| {
            node.start
                .is_none_or(|start| Some(start) > p.completion_time)
        };
        let changed = || {
            let mut broken = nodes.iter().filter(|named| named.non_ready);
            to_do || broken.any(|named| is_news(named.node))
        };
        let generation = p.target_generation;
        (generation == rollout.target_generation || generation >= form.same_since)
            && (over || p.completion_time.is_none() || !changed())
    });
    rollout.start_time = match continued {
        Some(previous) => previous.start_time,
        None => (!over).then_some(now),
    };
    rollout.completion_time = continued.and_then(|p| p.completion_time);
    if over {
        rollout.completion_time.get_or_insert(now);
    }
}

/// How many windows full of nodes are through and are to come, and when it is done if it goes on as it went so far. It
/// follows from what happened, not from the time of asking: an estimate that moves by itself would be written forever.
pub fn set_pace(rollout: &mut FormRolloutStatus, nodes: &[Named], pace: &Pace) {
    let (Some(begin), Some(width)) = (rollout.start_time, pace.width) else {
        return;
    };
    // A node is through when its place is another's: known ahead, as long as it stays ready.
    let through = nodes.iter().filter_map(|Named { node, held, .. }| {
        let settled = node.settled_since.filter(|_| !held)?;
        let start = node.start.filter(|at| stamp::millis(*at) >= begin)?;
        // A forged time, or a clock that is far ahead, says nothing of the pace.
        if start.duration_since(settled) > CLOCKS_APART_MAX {
            return None;
        }
        let by_slot = node.flight.as_ref().is_some_and(|flight| flight.is_live);
        let soak = match by_slot {
            true => pace.soak,
            false => SignedDuration::ZERO,
        };
        let from = settled
            .max(start)
            .max(node.watched_since.unwrap_or(settled))
            .max(node.same_since.unwrap_or(settled));
        let through = from.checked_add(soak).ok()?;
        Some((through, through.duration_since(start).as_secs_f64()))
    });
    let none = (0, begin, 0.0);
    let (settled, latest, spent) = through.fold(none, |(n, last, spent), (at, took)| {
        (n + 1, last.max(at), spent + took)
    });
    let left = (rollout.total_nodes - rollout.ready_updated_nodes).max(0) as usize;
    let done = usize::saturating_sub(settled, pace.watched);
    // The last one may not have been a full one.
    let waves = match rollout.completion_time {
        Some(_) => done.div_ceil(width),
        None => done / width,
    };
    rollout.waves_done = Some(waves as i32);
    rollout.waves_left = Some((left + pace.watched).div_ceil(width) as i32);
    let goes_on = rollout.completion_time.is_none() && pace.places > 0 && !pace.stopped;
    if rollout.phase == Phase::InProgress && settled >= SETTLED_MIN && goes_on {
        // As full places go on: the first groups of an order fill only a part of them.
        let each = spent / settled as f64;
        let more = SignedDuration::try_from_secs_f64(each * left as f64 / pace.places as f64);
        rollout.estimated_completion = more
            .ok()
            .and_then(|more| latest.checked_add(more).ok())
            .map(stamp::millis);
    }
}
