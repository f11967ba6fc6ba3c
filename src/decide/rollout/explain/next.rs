//! What is left to do, where no reason of a held node says it.

use crate::api::conditions::{Condition, ConditionReason};

pub const TAKE_BACK: &str = "nothing, if the change is to stay until the hub renders something new for the row; else discard it: kubectl annotate lynqnode, \
                         with lynq.sh/discard-edit=true";

pub const MEND_NODE: &str = "correct the form or the row (this node gets the correction first), or mend what the message names";

pub const MEND_FORMLESS: &str = "correct what the message names; or bring the form back first, for until then no correction of it reaches this node";

/// What is left to do where nothing waits, and not everything is ready.
pub const MEND: &str = "nothing, if those nodes become ready soon (lynqgate explain node NODE); else correct the form, or remove \
                    what stands in their way";

/// Of a rollout that has failed.
pub const MEND_FAILED: &str =
    "correct the form, or remove what stands in the way of the nodes that failed";

pub const UNREAD: &str = "mend what keeps the hub from its rows: they are read again within a minute, and what waits goes on";

pub const WRITE_FAILED: &str = "mend what keeps the hub from writing those nodes: the writes are tried again, at the latest after 30 s";

/// Of a node that no row asks for.
pub const CONFIRM: &str = "the hub's condition DeletionsHeld names the nodes that would be deleted, and why (kubectl describe lynqhub): correct the rows, or confirm the deletions (lynqgate confirm HUB)";

pub const UNWRITTEN: &str = "see the hub's conditions RenderFailed, RowsSkipped, WriteFailed, DeletionsHeld and CreationsHeld (kubectl describe \
                         lynqhub): they say why, and of which nodes; correct the form or the rows, or confirm the deletions or creations. What is being deleted waits for its finalizers (kubectl describe lynqnode)";

/// Beside what the others wait for.
pub const ALSO_UNWRITTEN: &str = "; of the nodes that are not written the hub's conditions say why: RenderFailed, RowsSkipped, WriteFailed, \
                              DeletionsHeld and CreationsHeld (kubectl describe lynqhub)";

pub const UNRENDERED: &str = "correct the form or the rows: the hub's condition RenderFailed (kubectl describe lynqhub) and those nodes' own \
                          (kubectl describe lynqnode) say what does not render or cannot be applied";

pub const GOING: &str = "nothing, if it is gone soon; else see its finalizers and the objects that it is to take along (kubectl describe lynqnode); the operator's log \
                     says what it cannot delete";

pub const UNTOLD: &str = "nothing, if that is over within seconds; else see the operator's log";

pub const STAYS_READY: &str = "nothing, as long as it stays ready";

pub const NO_NODES: &str = "nothing, if rows are to come, or were read a moment ago; else see the table, and the hub's \
                        conditions (kubectl describe lynqhub): Ready, RowsSkipped, RenderFailed, WriteFailed, CreationsHeld";

/// What is left to do about what a hub's condition says, where its message does not end with it.
pub fn of_hub(name: &str, told: &Condition) -> Option<String> {
    match &*told.type_ {
        "DeletionsHeld" | "CreationsHeld" => Some(format!(
            "check the rows; then, if it is intended: lynqgate confirm {name}"
        )),
        "WriteFailed" => Some(WRITE_FAILED.to_owned()),
        "Ready" if told.reason != *ConditionReason::InvalidSpec.as_str() => Some(UNREAD.to_owned()),
        _ => None,
    }
}

/// What is left to do, by the reason of the form's condition Valid.
pub fn correction(reason: ConditionReason) -> &'static str {
    match reason {
        ConditionReason::HubNotFound => {
            "create the hub; or delete the form, and make it anew for another one (a form's hubId cannot be changed); until then nothing of it changes"
        }
        ConditionReason::HubGoing => {
            "wait until the hub is gone; if it is not, see its finalizers and its nodes'; until then nothing of the form changes"
        }
        ConditionReason::HubInvalid => "correct the hub; until then nothing of the form changes",
        _ => "correct the form and apply it",
    }
}
