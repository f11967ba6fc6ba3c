//! What is left to do, where no reason of a held node says it.

use crate::api::conditions::{Condition, ConditionReason};

pub const TAKE_BACK: &str = "nothing, to keep the change until the hub renders something new for the row; to discard it: kubectl annotate \
                         lynqnode NODE lynq.sh/discard-edit=true";

pub const MEND_NODE: &str =
    "correct the form or the row (this node gets the correction first), or what the message names";

pub const MEND_FORMLESS: &str = "correct what the message names; or first apply the form again: without it no correction reaches this node";

/// What is left to do where nothing waits, and not everything is ready.
pub const MEND: &str = "nothing, if those nodes become ready soon (lynqgate explain node NODE); else correct the form, or repair what they wait for";

/// Of a rollout that has failed, with `onFailure: Revert`.
pub const TAKEN_BACK: &str =
    "nothing: lynqgate takes the change back now (rollout.onFailure: Revert)";

/// Of a rollout that has failed.
pub const MEND_FAILED: &str = "correct the form, or repair what the failed nodes wait for";

pub const UNREAD: &str =
    "correct what keeps the hub from reading its rows: it reads them again within a minute";

pub const WRITE_FAILED: &str =
    "correct what keeps the hub from writing those nodes: it retries within 30 s";

/// Of a node that no row asks for, and of a new one that waits with it.
pub const CONFIRM: &str = "lynqgate explain hub HUB names the first of the nodes, and why. To keep them, correct the rows or apply the deleted \
                       form again; to delete them and their objects: lynqgate confirm HUB";

pub const UNWRITTEN: &str = "correct what the hub's conditions name (kubectl describe lynqhub), or confirm the deletions or creations (lynqgate \
                         confirm HUB). A node that is being deleted waits for its finalizers (kubectl describe lynqnode)";

/// Beside what the others wait for.
pub const ALSO_UNWRITTEN: &str =
    "; the hub's conditions say why it does not write the other nodes (kubectl describe lynqhub)";

/// Where rows of the hub do not render, and nothing waits.
pub const UNRENDERED: &str = "correct the form or the rows, if resources of those nodes do not render: the hub's condition RenderFailed (kubectl \
                          describe lynqhub) names the errors; else nothing, if those nodes become ready soon";

pub const GOING: &str = "nothing, if it is gone soon; else see its finalizers and its objects (kubectl describe lynqnode); the operator's log \
                     names what it cannot delete";

pub const UNTOLD: &str = "nothing, if that ends within seconds; else see the operator's log";

pub const STAYS_READY: &str = "nothing, as long as it stays ready";

pub const NO_NODES: &str = "nothing, if the hub is new or its table has no active row yet; else see the table, and the hub's conditions (kubectl \
                        describe lynqhub): Ready, RowsSkipped, RenderFailed, WriteFailed, CreationsHeld";

/// What is left to do about what a hub's condition says, where its message does not end with it.
pub fn of_hub(name: &str, told: &Condition) -> Option<String> {
    match &*told.type_ {
        "DeletionsHeld" | "CreationsHeld" => {
            Some(format!("if that is intended: lynqgate confirm {name}"))
        }
        "WriteFailed" => Some(WRITE_FAILED.to_owned()),
        "Ready" if told.reason != *ConditionReason::InvalidSpec.as_str() => Some(UNREAD.to_owned()),
        _ => None,
    }
}

/// What is left to do, by the reason of the form's condition Valid.
pub fn correction(reason: ConditionReason) -> &'static str {
    match reason {
        ConditionReason::HubNotFound => {
            "create the hub; or delete the form and apply it with another hubId, which is immutable. Until then its nodes stay as they are"
        }
        ConditionReason::HubGoing => {
            "wait until the hub is gone; if it stays, see its finalizers and those of its nodes. Until then the form's nodes stay as they are"
        }
        ConditionReason::HubInvalid => {
            "correct the hub. Until then the form's nodes stay as they are"
        }
        _ => "correct the form and apply it",
    }
}
