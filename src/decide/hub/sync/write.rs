//! The LynqNode that a hub writes for one row.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::api::names;
use crate::api::resource::ARRAYS;
use crate::decide::child::NodeKey;
use crate::decide::hub::desired::Wanted;
use crate::decide::hub::rows::Row;
use crate::decide::hub::sync::{Form, Hub, NodeWrite, labels};
use crate::decide::node::digest::NodeDigest;
use crate::decide::rollout::{Live, Way, is_ungated};
use crate::decide::shared::content::{self, Hash};

/// The node that a row of a form asks for, and what there is of it.
#[derive(Clone, Copy)]
pub struct RowNode<'a> {
    pub form_name: &'a str,
    pub form: &'a Form,
    pub row: &'a Row,
    pub key: &'a NodeKey,
    pub node: Option<&'a Arc<NodeDigest>>,
}

/// What a form makes of a row.
pub struct RenderedNode {
    content: Value,
    hash: Hash,
    rendered_hash: String,
    first_seen: String,
    pub wanted: Wanted,
}

impl RenderedNode {
    pub fn of(
        hub: &Hub,
        target: RowNode,
        content: Value,
        group: Option<usize>,
        first_seen: String,
    ) -> Self {
        let hash = content::hash(Some(&content));
        let mut rest = vec![
            json!(target.row.uid),
            json!(target.form_name),
            json!(hub.name),
            json!(hub.uid),
        ];
        rest.extend(group.map(|group| json!(group)));
        let rest = content::hash_value(&json!(rest));
        // The content's own hash in front: it tells an edit by hand from what was rendered.
        let rendered_hash = format!("{hash}/{rest}");
        let wanted = Wanted {
            rendered_hash: Some(rendered_hash.as_str().into()),
            group,
        };
        RenderedNode {
            content,
            hash,
            rendered_hash,
            first_seen,
            wanted,
        }
    }

    /// `deletions_held`: no new node goes live while nodes wait for their deletion.
    pub fn write(&self, hub: &Hub, target: RowNode, deletions_held: bool) -> NodeWrite {
        let RowNode {
            form_name,
            form,
            row,
            key,
            node,
        } = target;
        let creation = node.is_none_or(|node| node.live == Live::None);
        let free = form.forced || is_ungated(&form.policy, hub.skew, creation);
        let held = creation && deletions_held;
        // Of what Lynq left it is found out first what the release would change, and which objects the node has.
        let known = node.is_none_or(|node| node.live != Live::Unknown);
        let goes = free && known && !held;
        let mut annotations = self.annotations(hub, target);
        if goes {
            let version = node.map(|node| format!("/{}", node.resource_version));
            let marker = format!("{}{}", self.hash, version.unwrap_or_default());
            annotations.insert(names::UNGATED.to_owned(), json!(marker));
        }
        let object = json!({
            "apiVersion": format!("{}/{}", names::GROUP, names::VERSION),
            "kind": "LynqNode",
            "metadata": {
                "name": key.name,
                "namespace": key.namespace,
                "labels": labels(&hub.name, &row.uid),
                "annotations": annotations,
                "finalizers": [names::NODE_FINALIZER],
                "ownerReferences": [{
                    "apiVersion": format!("{}/{}", names::GROUP, names::VERSION),
                    "kind": "LynqHub",
                    "name": hub.name,
                    "uid": hub.uid,
                    "controller": true,
                    "blockOwnerDeletion": true,
                }],
            },
            "spec": self.spec(hub, target),
        });
        NodeWrite {
            name: key.name.clone(),
            form: form_name.to_owned(),
            uid: row.uid.clone(),
            object,
            makes: node.is_none(),
            way: goes.then_some(match form.forced {
                true => Way::Forced,
                false => Way::Ungated,
            }),
        }
    }

    fn annotations(&self, hub: &Hub, target: RowNode) -> Map<String, Value> {
        let generation = target.form.generation.to_string();
        let mut annotations = Map::from_iter([
            (names::HUB_ID.to_owned(), json!(hub.name)),
            (names::TEMPLATE_GENERATION.to_owned(), json!(generation)),
            (names::RENDERED_HASH.to_owned(), json!(self.rendered_hash)),
            (names::ROW_HASH.to_owned(), json!(target.row.hash())),
            (names::FIRST_SEEN.to_owned(), json!(self.first_seen)),
        ]);
        if let Some(group) = self.wanted.group {
            annotations.insert(names::GROUP_OF_ROW.to_owned(), json!(group.to_string()));
        }
        annotations
    }

    fn spec(&self, hub: &Hub, target: RowNode) -> Map<String, Value> {
        let mut spec = Map::from_iter([
            ("uid".to_owned(), json!(target.row.uid)),
            ("templateRef".to_owned(), json!(target.form_name)),
            ("hubId".to_owned(), json!(hub.name)),
        ]);
        // An array left out would not be pruned: what another manager wrote there would stay.
        for array in ARRAYS {
            let resources = self.content.get(array).cloned();
            spec.insert(array.to_owned(), resources.unwrap_or_else(|| json!([])));
        }
        spec
    }
}
