//! The hub's nodes as they are, so that a change is compared with what runs and not with what was to run.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use crate::api::{names, stamp};
use crate::decide::hub::rows::names::node_name;
use crate::decide::node::digest::NodeDigest;
use crate::decide::rollout::Live;

/// The nodes of a hub by name. They include all its forms, because no label names a node's form.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveNodes {
    /// The seed of the hub's random values; None before its first sync.
    pub seed: Option<[u8; 32]>,
    nodes: BTreeMap<String, LiveNode>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct LiveNode {
    /// Of its row.
    uid: String,
    /// The gate's hash of the live content; empty if nothing was released or it is not known.
    pub live: String,
    /// The desired content differs from the live one.
    pub is_held: bool,
    pub first_seen: Option<Timestamp>,
}

impl LiveNodes {
    pub fn new(seed: Option<[u8; 32]>) -> Self {
        LiveNodes {
            seed,
            nodes: BTreeMap::new(),
        }
    }

    /// Adds a node from its metadata. One that is being deleted is left out, because it will be created again.
    pub fn add(&mut self, name: &str, metadata: &Value) {
        if !metadata["deletionTimestamp"].is_null() {
            return;
        }
        let annotation = |name: &str| metadata["annotations"][name].as_str().unwrap_or_default();
        let live = annotation(names::LIVE_HASH).to_owned();
        let uid = metadata["labels"][names::LABEL_UID].as_str();
        let node = LiveNode {
            uid: uid.unwrap_or_default().to_owned(),
            is_held: annotation(names::DESIRED_HASH) != live,
            first_seen: stamp::parse(annotation(names::FIRST_SEEN)).map(stamp::millis),
            live,
        };
        self.nodes.insert(name.to_owned(), node);
    }

    /// Adds a node of the leader's cache.
    pub fn add_cached(&mut self, node: &NodeDigest) {
        if node.deleting {
            return;
        }
        let live = match &node.live {
            Live::Hash(hash) => hash.as_str(),
            Live::None => "none",
            Live::Unknown => "unknown",
        };
        let uid = node.labels.get(names::LABEL_UID);
        let of_node = LiveNode {
            uid: uid.unwrap_or_default().to_owned(),
            is_held: node.desired != live,
            first_seen: node.first_seen,
            live: live.to_owned(),
        };
        self.nodes.insert(node.key.name.to_string(), of_node);
    }

    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// The uids of a form's nodes.
    pub fn of_form(&self, form: &str) -> impl Iterator<Item = &str> {
        let of_form =
            move |(name, node): &(&String, &LiveNode)| **name == node_name(&node.uid, form);
        let nodes = self.nodes.iter().filter(of_form);
        nodes.map(|(_, node)| node.uid.as_str())
    }

    pub fn get(&self, name: &str) -> Option<&LiveNode> {
        self.nodes.get(name)
    }
}

/// Whether the stored form is live on all its nodes, so that its nodes need not be read.
pub fn runs_everywhere(form: &Value) -> bool {
    let (generation, status) = (&form["metadata"]["generation"], &form["status"]);
    let rollout = &status["rollout"];
    !generation.is_null()
        && status["observedGeneration"] == *generation
        && rollout["targetGeneration"] == *generation
        && rollout["phase"] == "Complete"
        && rollout["heldNodes"] == 0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nodes_are_read_from_their_metadata() {
        let mut nodes = LiveNodes::new(None);
        let of = |live: &str, desired: &str| {
            json!({"annotations": {
                names::LIVE_HASH: live, names::DESIRED_HASH: desired, names::FIRST_SEEN: "1970-01-01T00:00:01.000Z",
            }})
        };
        nodes.add("same", &of("1:a", "1:a"));
        nodes.add("held", &of("1:a", "1:b"));
        nodes.add("new", &json!({"annotations": {names::DESIRED_HASH: "1:b"}}));
        let mut going = of("1:a", "1:a");
        going["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        nodes.add("going", &going);
        let held = |name: &str| nodes.get(name).map(|node| node.is_held);
        assert_eq!(
            ["same", "held", "new", "going"].map(held),
            [Some(false), Some(true), Some(true), None]
        );
        nodes.add("acme-web", &json!({"labels": {names::LABEL_UID: "acme"}}));
        nodes.add("b-other-web", &json!({"labels": {names::LABEL_UID: "b"}}));
        assert_eq!(Vec::from_iter(nodes.of_form("web")), ["acme"]);
        let first = nodes.get("same").and_then(|node| node.first_seen);
        assert_eq!(first.map(|at| at.as_second()), Some(1));
    }

    #[test]
    fn a_form_that_is_complete_runs_everywhere() {
        let form = |generation: i64, phase: &str, held: u64| {
            json!({
                "metadata": {"generation": generation},
                "status": {"observedGeneration": 2, "rollout": {"targetGeneration": 2, "phase": phase, "heldNodes": held}},
            })
        };
        assert!(runs_everywhere(&form(2, "Complete", 0)));
        for other in [
            form(3, "Complete", 0),
            form(2, "InProgress", 0),
            form(2, "Complete", 1),
            json!({}),
        ] {
            assert!(!runs_everywhere(&other), "{other}");
        }
    }
}
