//! What the status of a form says in words of its rollout.

use crate::api::form::{FormRolloutStatus, Phase};
use crate::decide::rollout::Form;
use crate::decide::rollout::index::Named;
use crate::decide::rollout::reason::{Advice, Because, Names, Reason};
use crate::decide::rollout::status::progress::FormProgress;
use crate::decide::rollout::status::{Force, FormStatusInputs};

/// What the message is made from.
pub struct Message<'a> {
    pub form: &'a Form,
    pub seen: &'a FormStatusInputs<'a>,
    pub progress: &'a FormProgress<'a>,
    pub rollout: &'a FormRolloutStatus,
    pub blocked: Option<&'a Reason>,
    pub stalled: Option<&'a Advice>,
}

const SEE_WHY: &str =
    "; if that lasts, see the form's condition Valid, and the conditions of the hub";

impl Message<'_> {
    /// What keeps the hub from writing the newest content comes first, then what halts, then how far it is.
    pub fn text(&self) -> String {
        let (form, progress) = (self.form, self.progress);
        let done = format!(
            "{}/{} updated and ready",
            progress.updated,
            progress.total()
        );
        match () {
            () if form.outdated && progress.nodes.is_empty() => {
                format!("there are no nodes yet{SEE_WHY}")
            }
            () if form.outdated => {
                format!("the newest templates have not reached every node yet{SEE_WHY}")
            }
            () if progress.unwritten == 0 && !progress.going.is_empty() => format!(
                "being deleted, and created again once gone: {}: see their finalizers, and the operator's log; {}",
                Names::of(&progress.going),
                self.of_phase()
            ),
            () if progress.unwritten > 0 => format!(
                "the newest content is not written to {}: if that lasts, see the hub's conditions; {}",
                Names::of(&form.unwritten),
                self.of_phase()
            ),
            () if progress.done && !progress.looked => format!(
                "{done}, as reported before the operator started; not checked yet: {}",
                progress.unlooked
            ),
            () if let Some(stalled) = self.stalled => format!("{}: {stalled}", self.counts()),
            () if progress.is_settled() && !progress.with_slots.is_empty() => format!(
                "{done}; {}: {}",
                match form.policy.min_ready_seconds {
                    0 => "to be checked once more",
                    _ => "watched for rollout.minReadySeconds",
                },
                progress.with_slots
            ),
            () if progress.is_settled() && !form.absent.is_empty() => format!(
                "{done}; not created yet: {}; if that lasts, see the hub's conditions",
                Names::of(form.absent.keys())
            ),
            () => self.of_phase(),
        }
    }

    fn of_phase(&self) -> String {
        let counts = self.counts();
        let unrendered = &self.progress.unrendered;
        match self.rollout.phase {
            Phase::Idle => "there are no nodes: the hub has no active row".to_owned(),
            Phase::Complete => complete(self.rollout.total_nodes, &[]),
            Phase::Failed if self.blocked.is_none() => {
                let failed = Names::of(&self.seen.failed.names);
                let why = self.seen.failed.why(self.form, self.seen.snapshot);
                format!(
                    "not ready in time: {}; correct the form or the rows: they get the correction first",
                    Because(&failed, why.as_deref())
                )
            }
            Phase::Failed | Phase::InProgress | Phase::Paused => match self.blocked {
                // What halts is an event, too, and there may be nothing else to read.
                Some(reason) if self.rollout.phase == Phase::Failed => {
                    format!("{counts}: {}", reason.advice())
                }
                Some(reason) => format!("{counts}: {reason}"),
                None if !unrendered.is_empty() => format!(
                    "{counts}: resources do not render: {}; correct the form or the rows",
                    Because(unrendered, self.progress.why_unrendered)
                ),
                None => match &self.progress.not_ready {
                    Some(names) => format!("{counts}: not ready: {names}"),
                    None => counts,
                },
            },
        }
    }

    fn counts(&self) -> String {
        let FormRolloutStatus {
            total_nodes: total,
            updated_nodes: updated,
            updating_nodes: updating,
            held_nodes: held,
            ..
        } = self.rollout;
        // Not even their live content is ready.
        let is_broken = |named: &Named| named.held && named.non_ready;
        let broken = match self.progress.count(is_broken) {
            0 => String::new(),
            n => format!(" ({n} of them not ready)"),
        };
        format!("{updated}/{total} updated, {updating} not ready yet, {held} held{broken}")
    }
}

/// Somebody may have forgotten that no window applies.
pub fn with_force(message: String, force: Option<Force>) -> String {
    match force {
        Some(force) => format!("{message}; no window applies: {force}, until you remove it"),
        None => message,
    }
}

pub fn complete(total: i32, edited: &[String]) -> String {
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
