//! Which node owns an object, and whether a node may write it.

use crate::api::resource::ConflictPolicy;
use crate::decide::child::{Child, Owner};
use crate::decide::node::digest::NodeDigest;

/// Whether the object belongs to the node of this uid, not to an earlier one of its name.
pub fn is_ours(child: &Child, node: &NodeDigest) -> bool {
    match &*child.owner {
        // Lynq also puts owner references on cluster-scoped objects; they name no namespace.
        Owner::Node { uid: Some(uid), .. } => *uid == node.uid,
        Owner::Node { key, uid: None } => *key == node.key,
        Owner::Other(_) | Owner::Nobody => false,
    }
}

/// Whether the object is the node's, or was and lost its tie: the node's record names it, and it shows that we applied it. The
/// record alone could mean an earlier object of that name; an object without our label was given away on purpose.
pub fn was_ours(child: &Child, node: &NodeDigest, recorded: bool) -> bool {
    let untied = *child.owner == Owner::Nobody && !child.orphaned;
    is_ours(child, node) || (untied && recorded && child.marked)
}

/// Why the node may not write an existing object. `recorded`: the node's record names it.
pub fn refused(
    child: &Child,
    node: &NodeDigest,
    policy: ConflictPolicy,
    recorded: bool,
) -> Option<String> {
    match &*child.owner {
        _ if was_ours(child, node, recorded) => None,
        Owner::Node { key, .. } if *key == node.key => Some(
            "it belongs to an earlier lynqnode of this name; the garbage collector removes it, unless its owner reference is removed"
                .to_owned(),
        ),
        Owner::Node { key, .. } => Some(owned_by(&format!("lynqnode {key}"))),
        Owner::Other(owner) => Some(owned_by(owner)),
        Owner::Nobody if policy == ConflictPolicy::Force => None,
        Owner::Nobody if child.orphaned => elsewhere(child, node),
        Owner::Nobody => Some(
            "it was there before and is nobody's; conflictPolicy: Force takes it over".to_owned(),
        ),
    }
}

/// An orphan of one namespace is not for nodes of another, which may belong to other users. Lynq does not record who left an
/// orphan.
fn elsewhere(child: &Child, node: &NodeDigest) -> Option<String> {
    let from = child.orphaned_from.as_deref()?;
    let (namespace, _) = from.split_once('/')?;
    (*namespace != *node.key.namespace).then(|| {
        format!(
            "lynqnode {from} of another namespace left it behind; conflictPolicy: Force takes it over"
        )
    })
}

fn owned_by(owner: &str) -> String {
    format!("it belongs to {owner}; give one of them another name")
}
