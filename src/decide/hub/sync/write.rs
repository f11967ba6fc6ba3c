//! The LynqNode that a hub writes for one row.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::api::names;
use crate::api::resource::ARRAYS;
use crate::api::stamp;
use crate::decide::child::NodeKey;
use crate::decide::hub::rows::Row;
use crate::decide::hub::sync::{CachedRendering, Form, Hub, NodeWrite, RenderSource, labels};
use crate::decide::node::digest::NodeDigest;
use crate::decide::rollout::{Live, Way, is_ungated};
use crate::decide::shared::content::{self, Hash};

/// The node that a row requires of a form, and the existing node.
pub struct RowNode<'a> {
    pub form_name: &'a str,
    pub form: &'a Form,
    pub row: &'a Row,
    pub key: NodeKey,
    pub node: Option<&'a Arc<NodeDigest>>,
}

/// The hash of everything that the hub renders for a node. It begins with the content's own hash, so that a manual edit can be
/// distinguished from what was rendered.
pub fn rendered_hash(
    hub: &Hub,
    (form, row): (&str, &Row),
    (group, domains): (Option<usize>, &BTreeMap<String, String>),
    content: &Hash,
) -> String {
    let mut rest = vec![json!(row.uid), json!(form), json!(hub.name), json!(hub.uid)];
    rest.extend(group.map(|group| json!(group)));
    rest.extend((!domains.is_empty()).then(|| json!(domains)));
    let rest = content::hash_value(&json!(rest));
    format!("{content}/{rest}")
}

impl NodeWrite {
    /// `deletions_held`: while deletions wait, the write releases no new node.
    pub fn of(
        hub: &Hub,
        target: &RowNode,
        rendering: &CachedRendering,
        deletions_held: bool,
    ) -> Self {
        let RowNode {
            form_name,
            form,
            row,
            ref key,
            node,
        } = *target;
        let creation = node.is_none_or(|node| node.live == Live::None);
        let free = form.forced || is_ungated(&form.policy, hub.skew, creation);
        let held = creation && deletions_held;
        // For a node that Lynq left, lynqgate first checks what the release would change, and which objects the node has.
        let known = node.is_none_or(|node| node.live != Live::Unknown);
        let goes = free && known && !held;
        NodeWrite {
            name: key.name.clone(),
            form: form_name.to_owned(),
            uid: row.uid.clone(),
            way: goes.then_some(match form.forced {
                true => Way::Forced,
                false => Way::Ungated,
            }),
            waits: !goes && !node.is_some_and(|node| node.is_broken()),
            resource_version: node.map(|node| node.resource_version.clone()),
            group: rendering.wanted.group,
            first_seen: rendering.first_seen,
        }
    }

    /// It creates the node.
    pub fn makes(&self) -> bool {
        self.resource_version.is_none()
    }

    /// The same write for a node that exists, whose templates have the time at which a sync first saw its row.
    pub fn of_existing(&self, node: &NodeDigest) -> Self {
        let mut write = self.clone();
        if let Some(first_seen) = node.first_seen {
            write.first_seen = first_seen;
        }
        write
    }
}

impl RenderSource {
    /// The node to write.
    pub fn object(&self, write: &NodeWrite) -> Value {
        let (hub, form, row) = (
            &self.hub,
            &self.forms[&write.form],
            &self.rows.rows[&write.uid],
        );
        let inputs = self.inputs(&write.form, row, write.first_seen);
        let (content, _) = form.compiled.render(&inputs);
        let domains = form.compiled.domains(&inputs).unwrap_or_default();
        let hash = content::hash(Some(&content));
        let rendered_hash = rendered_hash(hub, (&write.form, row), (write.group, &domains), &hash);
        let mut annotations = Map::from_iter([
            (names::HUB_ID.to_owned(), json!(hub.name)),
            (
                names::TEMPLATE_GENERATION.to_owned(),
                json!(form.generation.to_string()),
            ),
            (names::RENDERED_HASH.to_owned(), json!(rendered_hash)),
            (names::ROW_HASH.to_owned(), json!(row.hash().to_string())),
            (
                names::FIRST_SEEN.to_owned(),
                json!(stamp::format(write.first_seen)),
            ),
        ]);
        if let Some(group) = write.group {
            annotations.insert(names::GROUP_OF_ROW.to_owned(), json!(group.to_string()));
        }
        if !domains.is_empty() {
            let domains = json!(domains).to_string();
            annotations.insert(names::DOMAINS_OF_ROW.to_owned(), json!(domains));
        }
        if write.way.is_some() {
            let marker = match &write.resource_version {
                Some(version) => format!("{hash}/{version}"),
                None => hash.to_string(),
            };
            annotations.insert(names::UNGATED.to_owned(), json!(marker));
        }
        json!({
            "apiVersion": format!("{}/{}", names::GROUP, names::VERSION),
            "kind": "LynqNode",
            "metadata": {
                "name": write.name,
                "namespace": hub.namespace,
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
            "spec": self.spec(write, content),
        })
    }

    fn spec(&self, write: &NodeWrite, mut content: Value) -> Map<String, Value> {
        let mut spec = Map::from_iter([
            ("uid".to_owned(), json!(write.uid)),
            ("templateRef".to_owned(), json!(write.form)),
            ("hubId".to_owned(), json!(self.hub.name)),
        ]);
        // An array left out would not be pruned: what another manager wrote there would stay.
        for array in ARRAYS {
            let resources = content.get_mut(array).map(Value::take);
            spec.insert(array.to_owned(), resources.unwrap_or_else(|| json!([])));
        }
        spec
    }
}
