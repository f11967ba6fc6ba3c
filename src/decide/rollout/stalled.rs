//! A rollout that nothing moves by itself, though its failure budget is not spent.

use crate::api::policy::SkewCounts;
use crate::decide::rollout::Form;
use crate::decide::rollout::index::Named;
use crate::decide::rollout::reason::{Advice, Because, Reason};
use crate::decide::rollout::status::FormStatusInputs;
use crate::decide::rollout::status::progress::FormProgress;

/// Why nothing goes on by itself: whatever keeps the rest waiting is past its deadline, but is not as much as maxFailures asks for,
/// or never had a slot, or broke when that was free; or nothing is left but resources that do not render. The phase stays what it
/// is, for no budget is spent. `blocked`: why others wait.
pub fn stalled(
    form_name: &str,
    form: &Form,
    seen: &FormStatusInputs,
    blocked: Option<&Reason>,
    progress: &FormProgress,
) -> Option<Advice> {
    let own = seen.failed;
    let slots = || {
        let of_form = seen.slots.iter().filter(|slot| slot.form == form_name);
        of_form.count()
    };
    let (late, in_the_way) = match blocked {
        // Who has a slot fills such a window, and nobody else.
        Some(Reason::WindowFull { .. }) if form.policy.skew_counts == SkewCounts::Released => {
            (own.late_slots, slots())
        }
        // What is still to be made may be what is to go first.
        None | Some(Reason::GroupNotDone { .. }) if !form.absent.is_empty() => return None,
        None if form.outdated || !form.unwritten.is_empty() => return None,
        None if let Some(advice) = unrendered(form_name, progress) => return Some(advice),
        None
        | Some(
            Reason::WindowFull { .. } | Reason::DomainFull { .. } | Reason::GroupNotDone { .. },
        ) => (own.late(), slots() + own.adrift.all),
        // Of another form, too, may give its place up.
        Some(Reason::HubWindowFull { .. }) => {
            (seen.fleet.late, seen.slots.len() + seen.fleet.adrift)
        }
        _ => return None,
    };
    if late == 0 || late < in_the_way {
        return None;
    }
    let counted = match own.names.len() {
        _ if late > own.late() => "some of them of other forms".to_owned(),
        0 => format!("and none counts as a failure: {}", own.why_uncounted()),
        n => format!(
            "and maxFailures ({}) halts only at more failures than {n}",
            own.allowed
        ),
    };
    let (what, or) = match blocked {
        Some(reason @ Reason::GroupNotDone { .. }) => {
            (reason.to_string(), "; or change rollout.order")
        }
        Some(reason) => (reason.to_string(), "; or raise maxSkew"),
        None => (format!("not ready: {}", progress.not_ready.as_deref()?), ""),
    };
    let (who, first) = match blocked {
        Some(_) => (
            "the nodes that the others wait for",
            ": those nodes get that first",
        ),
        None => ("the nodes that are not ready", ""),
    };
    let finalizers = match own.uncounted.deleting {
        0 => "",
        _ => " (of those being deleted: their finalizers)",
    };
    Some(Advice {
        why: format!("stalled: {who} are past their deadline, {counted}; {what}"),
        next: format!(
            "correct the form, or take its change back (lynqgate undo {form_name}){first}; or repair what they wait for{finalizers}{or}"
        ),
    })
}

/// A node is settled and not ready only while some of its resources do not render: without a correction that stays so.
fn unrendered(form_name: &str, progress: &FormProgress) -> Option<Advice> {
    let names = &progress.unrendered;
    let is_another =
        |named: &Named| !named.node.ready && (named.held || named.node.settled_since.is_none());
    if names.is_empty() || progress.nodes.iter().any(is_another) {
        return None;
    }
    let why = progress.why_unrendered;
    Some(Advice {
        why: format!("stalled: resources do not render: {}", Because(names, why)),
        next: format!(
            "correct the form, or take its change back (lynqgate undo {form_name}), or correct the rows of those nodes"
        ),
    })
}
