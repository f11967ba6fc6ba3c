//! Why the newest templates of a form have not reached every node, as far as its conditions and its hub's tell.

use crate::api::conditions::{self, Condition, ConditionReason, ConditionState};
use crate::api::form::WaitingNodes;
use crate::decide::rollout::explain::next;
use crate::decide::rollout::reason::NEXT;

/// `invalid`: why the form cannot be rendered, if it cannot. `hub`: the conditions of its hub.
pub fn add_cause(
    waiting: &mut [WaitingNodes],
    invalid: Option<&(ConditionReason, String)>,
    hub: &[Condition],
) {
    let of_hub = |type_: &str, status: &str| {
        let told = conditions::find(hub, type_).filter(|told| told.status == *status);
        told.map(|told| told.message.as_str())
    };
    let invalid = invalid.map(|(reason, text)| (text.as_str(), next::correction(*reason)));
    let unread = || Some((of_hub("Ready", "False")?, next::UNREAD));
    let unwritten = || Some((of_hub("WriteFailed", "True")?, next::WRITE_FAILED));
    let Some((why, next)) = invalid.or_else(unread).or_else(unwritten) else {
        return;
    };
    let is_it = |nodes: &&mut WaitingNodes| nodes.reason == *ConditionReason::NotRendered.as_str();
    for nodes in waiting.iter_mut().filter(is_it) {
        nodes.message = format!("{}: {why}", nodes.message);
        nodes.next = next.to_owned();
    }
}

/// Has the form's condition Held name the same cause as `waiting`, whose first entry is what blocks the rollout.
pub fn tell_held(waiting: &[WaitingNodes], states: &mut [ConditionState]) {
    let is_it = |state: &&mut ConditionState| {
        state.type_ == "Held" && state.reason == ConditionReason::NotRendered
    };
    if let Some(held) = states.iter_mut().find(is_it)
        && let Some(first) = waiting.first()
    {
        held.message = format!("{}{NEXT}{}", first.message, first.next);
    }
}
