//! Ties an object to its node: by an owner reference if the garbage collector may delete the object, otherwise by labels. An
//! annotation holds the deletion policy for when the node is deleted. Knows nothing else of the object.

use serde_json::{Map, Value, json};

use crate::api::names;
use crate::api::resource::DeletionPolicy;
use crate::decide::child::NodeKey;

/// The longest value of a label.
const LABEL_CHARS_MAX: usize = 63;

/// The labels by which an object names its node.
const LABELS: [&str; 3] = [
    names::LABEL_MANAGED,
    names::LABEL_NODE,
    names::LABEL_NODE_NAMESPACE,
];

/// The tie of one object to one node.
pub struct Tie<'a> {
    pub node: &'a NodeKey,
    pub node_uid: &'a str,
    /// Of the object; empty for a cluster-scoped one.
    pub namespace: &'a str,
    pub policy: DeletionPolicy,
}

impl Tie<'_> {
    /// An owner reference cannot cross namespaces, and the garbage collector would delete what is to be retained.
    fn by_reference(&self) -> bool {
        *self.namespace == *self.node.namespace && self.policy == DeletionPolicy::Delete
    }

    /// Why the object cannot be tied to a node of this name.
    pub fn impossible(&self) -> Option<String> {
        let chars = self.node.name.len();
        (!self.by_reference() && chars > LABEL_CHARS_MAX).then(|| {
            format!(
                "the name of its lynqnode has {chars} characters; an object in another namespace, of the whole cluster or with \
                 deletionPolicy: Retain carries that name in the label {}, which takes {LABEL_CHARS_MAX}; shorten the \
                 name of the form or the uid",
                names::LABEL_NODE
            )
        })
    }

    /// Adds the tie to the metadata of a manifest.
    pub fn add_to(
        &self,
        metadata: &mut Map<String, Value>,
        labels: &mut Map<String, Value>,
        annotations: &mut Map<String, Value>,
    ) {
        for (label, value) in self.labels() {
            if let Some(value) = value {
                labels.insert(label.to_owned(), value.into());
            }
        }
        annotations.insert(names::DELETION_POLICY.into(), json!(self.policy));
        if self.by_reference() {
            metadata.insert("ownerReferences".into(), json!([self.reference()]));
        }
    }

    /// The patch that ties the object in this way, and removes any other tie and the orphan marks; None if nothing changes. Owner
    /// references of others stay.
    pub fn mend(&self, object: &Value) -> Option<Value> {
        let metadata = &object["metadata"];
        let wanted = self.by_reference().then(|| self.reference());
        let references = references(metadata, self.node_uid, wanted);
        let labels: Map<String, Value> = self
            .labels()
            .into_iter()
            .filter(|(label, value)| metadata["labels"][label].as_str() != *value)
            .map(|(label, value)| (label.to_owned(), json!(value)))
            .collect();
        let annotations = [
            (names::DELETION_POLICY, json!(self.policy)),
            (names::ORPHANED_AT, Value::Null),
            (names::ORPHANED_REASON, Value::Null),
            (names::ORPHANED_FROM, Value::Null),
        ];
        let annotations: Map<String, Value> = annotations
            .into_iter()
            .filter(|(name, value)| metadata["annotations"][name] != *value)
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        if references.is_none() && labels.is_empty() && annotations.is_empty() {
            return None;
        }
        let mut patch = json!({"metadata": {
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "labels": labels,
            "annotations": annotations,
        }});
        if let Some(references) = references {
            patch["metadata"]["ownerReferences"] = references.into();
        }
        Some(patch)
    }

    fn labels(&self) -> [(&'static str, Option<&str>); 4] {
        let by_label = !self.by_reference();
        let [managed, node, namespace] = LABELS;
        [
            (managed, Some(names::TRUE)),
            (node, by_label.then_some(&*self.node.name)),
            (namespace, by_label.then_some(&*self.node.namespace)),
            (names::LABEL_ORPHANED, None),
        ]
    }

    fn reference(&self) -> Value {
        json!({
            "apiVersion": format!("{}/{}", names::GROUP, names::VERSION),
            "kind": "LynqNode",
            "name": self.node.name,
            "uid": self.node_uid,
            "controller": true,
            "blockOwnerDeletion": true,
        })
    }
}

/// The patch that unties the object from its node and marks it as an orphan.
pub fn orphan(object: &Value, (node, node_uid): (&NodeKey, &str), at: &str, why: &str) -> Value {
    let metadata = &object["metadata"];
    let mut labels: Map<String, Value> = LABELS
        .iter()
        .map(|label| ((*label).to_owned(), Value::Null))
        .collect();
    labels.insert(names::LABEL_ORPHANED.into(), names::TRUE.into());
    let mut patch = json!({"metadata": {
        "uid": metadata["uid"],
        "resourceVersion": metadata["resourceVersion"],
        "labels": labels,
        "annotations": {
            names::ORPHANED_AT: at, names::ORPHANED_REASON: why, names::ORPHANED_FROM: node.to_string(),
        },
    }});
    if let Some(references) = references(metadata, node_uid, None) {
        patch["metadata"]["ownerReferences"] = references.into();
    }
    patch
}

/// All owner references, with or without the node's as `wanted`; None if nothing changes.
fn references(metadata: &Value, node_uid: &str, wanted: Option<Value>) -> Option<Vec<Value>> {
    let present = metadata["ownerReferences"].as_array();
    let (ours, mut others): (Vec<Value>, Vec<Value>) = present
        .into_iter()
        .flatten()
        .cloned()
        .partition(|reference| reference["uid"] == node_uid);
    let wanted = Vec::from_iter(wanted);
    if ours == wanted {
        return None;
    }
    others.extend(wanted);
    Some(others)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> NodeKey {
        NodeKey::new("tenants", "acme-web")
    }

    /// The object after a merge patch of its metadata.
    fn patched(object: &Value, patch: &Value) -> Value {
        let mut object = object.clone();
        json_patch::merge(&mut object, patch);
        object
    }

    #[test]
    fn a_change_of_the_policy_alone_changes_the_tie_in_both_directions() {
        let node = node();
        let other = json!({"kind": "Thing", "name": "x", "uid": "x"});
        let bare = json!({"metadata": {"uid": "o", "resourceVersion": "7", "ownerReferences": [other],
            "labels": {"app": "acme"}, "annotations": {"a": "b"}}});
        for (name, namespace, policy, owners, labels) in [
            (
                "beside its node",
                "tenants",
                DeletionPolicy::Delete,
                2,
                json!({"app": "acme", "lynq.sh/managed": "true"}),
            ),
            (
                "retained",
                "tenants",
                DeletionPolicy::Retain,
                1,
                json!({"app": "acme", "lynq.sh/managed": "true", "lynq.sh/node": "acme-web", "lynq.sh/node-namespace": "tenants"}),
            ),
            (
                "elsewhere",
                "other",
                DeletionPolicy::Delete,
                1,
                json!({"app": "acme", "lynq.sh/managed": "true", "lynq.sh/node": "acme-web", "lynq.sh/node-namespace": "tenants"}),
            ),
        ] {
            for before in [DeletionPolicy::Delete, DeletionPolicy::Retain] {
                let tie = |policy| Tie {
                    node: &node,
                    node_uid: "u1",
                    namespace,
                    policy,
                };
                let old = patched(&bare, &tie(before).mend(&bare).expect("not tied yet"));
                let tied = tie(policy)
                    .mend(&old)
                    .map_or(old.clone(), |patch| patched(&old, &patch));
                let metadata = &tied["metadata"];
                assert_eq!(metadata["labels"], labels, "{name} after {before:?}");
                assert_eq!(
                    metadata["annotations"],
                    json!({"a": "b", "lynq.sh/deletion-policy": policy}),
                    "{name} after {before:?}"
                );
                let references = metadata["ownerReferences"].as_array().expect("references");
                assert_eq!(
                    references.len(),
                    owners,
                    "{name} after {before:?}: {references:?}"
                );
                assert_eq!(references[0], other, "{name}: another owner's stays");
                assert_eq!(tie(policy).mend(&tied), None, "{name}: tied is tied");
            }
        }
    }

    /// Otherwise the garbage collector would delete a retained object.
    #[test]
    fn an_orphan_has_neither_owner_reference_nor_labels_of_the_node() {
        let node = node();
        for policy in [DeletionPolicy::Delete, DeletionPolicy::Retain] {
            let tie = Tie {
                node: &node,
                node_uid: "u1",
                namespace: "tenants",
                policy,
            };
            let bare = json!({"metadata": {"uid": "o", "resourceVersion": "7"}});
            let tied = patched(&bare, &tie.mend(&bare).expect("not tied yet"));
            let left = patched(&tied, &orphan(&tied, (&node, "u1"), "now", "why"));
            assert_eq!(
                left["metadata"]["labels"],
                json!({"lynq.sh/orphaned": "true"})
            );
            assert!(
                left["metadata"]["ownerReferences"]
                    .as_array()
                    .is_none_or(Vec::is_empty),
                "{left}"
            );
            let back = patched(&left, &tie.mend(&left).expect("an orphan is not tied"));
            assert_eq!(back["metadata"]["labels"], tied["metadata"]["labels"]);
            assert_eq!(
                back["metadata"]["annotations"],
                tied["metadata"]["annotations"]
            );
        }
    }

    #[test]
    fn a_name_that_no_label_takes_is_said_where_a_label_is_needed() {
        let node = NodeKey::new("tenants", "x".repeat(64));
        for (namespace, policy, possible) in [
            ("tenants", DeletionPolicy::Delete, true),
            ("tenants", DeletionPolicy::Retain, false),
            ("other", DeletionPolicy::Delete, false),
            ("", DeletionPolicy::Delete, false),
        ] {
            let tie = Tie {
                node: &node,
                node_uid: "u1",
                namespace,
                policy,
            };
            let said = tie.impossible();
            assert_eq!(
                said.is_none(),
                possible,
                "{namespace:?} {policy:?}: {said:?}"
            );
            assert!(said.is_none_or(|said| said.contains("64 characters")));
        }
    }
}
