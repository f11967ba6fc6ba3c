//! What the auditor reads on a hub, a form and a node. Pure; it parses and judges nothing.

use std::collections::BTreeMap;
use std::rc::Rc;

use serde_json::Value;

use super::content::{Content, text_at};
use super::release::Marker;
use crate::kinds::{self, Key, Kind};

/// A window as written: a number, or a percentage of the nodes. 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skew {
    Count(u64),
    Percent(u64),
}

/// The widest window of a hub.
const WINDOW_MAX: usize = 1_000;

impl Skew {
    pub fn of(value: Option<&Value>) -> Option<Skew> {
        match value? {
            Value::Number(n) => n.as_u64().map(Skew::Count),
            Value::String(text) => text.strip_suffix('%')?.parse().ok().map(Skew::Percent),
            _ => None,
        }
    }

    /// None: no window.
    pub fn width(self, total: usize) -> Option<usize> {
        match self {
            Skew::Count(0) => None,
            Skew::Count(n) => Some((n as usize).min(WINDOW_MAX)),
            Skew::Percent(p) => Some((total * p as usize / 100).clamp(1, WINDOW_MAX)),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    pub skew: Skew,
    pub paused: bool,
    /// New nodes do not wait.
    pub immediate: bool,
    /// Non-ready nodes do not count; new releases and repairs have a window each.
    pub only_released: bool,
    pub forced: bool,
    /// What tells domains apart, and how many of each may be in flight.
    pub domains: Vec<(DomainKey, Skew)>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum DomainKey {
    Label(String),
    Variable(String),
}

impl DomainKey {
    pub fn name(&self) -> &str {
        let (DomainKey::Label(name) | DomainKey::Variable(name)) = self;
        name
    }
}

impl Policy {
    pub fn of(object: &Value) -> Policy {
        let rollout = &object["spec"]["rollout"];
        let is_ordered = rollout["order"].as_array().is_some_and(|o| !o.is_empty());
        let domain = |domain: &Value| {
            let key = match domain["label"].as_str() {
                Some(label) => DomainKey::Label(label.to_owned()),
                None => DomainKey::Variable(domain["variable"].as_str()?.to_owned()),
            };
            Some((key, Skew::of(domain.get("maxSkew"))?))
        };
        let domains = rollout["domains"].as_array().into_iter().flatten();
        let domains: Vec<_> = domains.filter_map(domain).collect();
        Policy {
            skew: match Skew::of(rollout.get("maxSkew")).unwrap_or(Skew::Count(0)) {
                // Groups that come one after the other, and domains, need slots, of which there are so many at most.
                Skew::Count(0) if is_ordered || !domains.is_empty() => {
                    Skew::Count(WINDOW_MAX as u64)
                }
                skew => skew,
            },
            paused: rollout["paused"] == true,
            immediate: rollout["creation"] == "Immediate" && !is_ordered,
            only_released: rollout["skewCounts"] == "Released",
            forced: annotation(object, kinds::FORCE) == Some("true"),
            domains,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Slot {
    pub node: String,
    pub uid: String,
    pub form: String,
    pub hash: String,
    pub resource_version: String,
    pub repair: bool,
}

/// The ledger, by the node's uid.
pub fn slots_of(hub: &Value) -> BTreeMap<String, Slot> {
    let slots = hub
        .pointer("/status/rollout/slots")
        .and_then(Value::as_array);
    slots
        .into_iter()
        .flatten()
        .map(|slot| Slot {
            node: text_at(slot, "/node").to_owned(),
            uid: text_at(slot, "/uid").to_owned(),
            form: text_at(slot, "/form").to_owned(),
            hash: text_at(slot, "/hash").to_owned(),
            resource_version: text_at(slot, "/resourceVersion").to_owned(),
            repair: slot["repair"] == true,
        })
        .map(|slot| (slot.uid.clone(), slot))
        .collect()
}

/// The live hash of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Live {
    /// The gate has never seen the node.
    Absent,
    /// Held since its creation.
    Nothing,
    Unknown,
    Hash(String),
}

impl Live {
    pub fn text(&self) -> &str {
        match self {
            Live::Absent => "(absent)",
            Live::Nothing => "none",
            Live::Unknown => "unknown",
            Live::Hash(hash) => hash,
        }
    }
}

#[derive(Clone, Debug)]
pub struct NodeView {
    pub uid: String,
    pub form: String,
    pub hub: Option<String>,
    pub desired_hash: Option<String>,
    pub live: Live,
    pub release: Option<String>,
    pub ungated: Option<String>,
    pub forced: bool,
    pub deleting: bool,
    pub desired: Rc<Content>,
    pub released: Option<Rc<Content>>,
    /// `spec.released` is there, though it may be empty.
    pub has_released: bool,
    /// Why it is held, as its condition says.
    pub reason: Option<String>,
    labels: BTreeMap<String, String>,
    /// What the hub found in the node's row, by variable.
    row: BTreeMap<String, String>,
    /// The spec as it stood, so that the next write that leaves it alone costs nothing.
    spec: Value,
}

fn texts(object: Option<&Value>) -> BTreeMap<String, String> {
    object
        .and_then(|object| serde_json::from_value(object.clone()).ok())
        .unwrap_or_default()
}

impl NodeView {
    /// Which of the domains it is in; None where it is in none.
    pub fn domain(&self, key: &DomainKey) -> Option<&String> {
        let value = match key {
            DomainKey::Label(label) => self.labels.get(label),
            DomainKey::Variable(variable) => self.row.get(variable),
        };
        value.filter(|value| !value.is_empty())
    }

    pub fn of(key: &Key, object: &Value, before: Option<&NodeView>) -> NodeView {
        let own = |name: &str| annotation(object, name).map(str::to_owned);
        let spec = &object["spec"];
        let label = text_at(object, "/metadata/labels/lynq.sh~1hub");
        // Lynq writes only the label, and a label is anybody's to edit.
        let hub = [text_at(spec, "/hubId"), label]
            .into_iter()
            .find(|text| !text.is_empty());
        let same = before.filter(|before| before.spec == *spec);
        let (desired, released) = match same {
            Some(before) => (before.desired.clone(), before.released.clone()),
            None => (
                Rc::new(Content::of(spec, &key.namespace)),
                spec.get("released")
                    .filter(|r| !r.is_null())
                    .map(|r| Rc::new(Content::of(r, &key.namespace))),
            ),
        };
        let held = object
            .pointer("/status/conditions")
            .and_then(Value::as_array);
        let held = held
            .into_iter()
            .flatten()
            .find(|c| c["type"] == "Held" && c["status"] == "True");
        NodeView {
            uid: text_at(object, "/metadata/uid").to_owned(),
            form: text_at(spec, "/templateRef").to_owned(),
            hub: hub.map(str::to_owned),
            desired_hash: own(kinds::DESIRED_HASH),
            live: match annotation(object, kinds::LIVE_HASH) {
                None | Some("") => Live::Absent,
                Some("none") => Live::Nothing,
                Some("unknown") => Live::Unknown,
                Some(hash) => Live::Hash(hash.to_owned()),
            },
            release: own(kinds::RELEASE),
            ungated: own(kinds::UNGATED),
            forced: annotation(object, kinds::FORCE) == Some("true"),
            deleting: object.pointer("/metadata/deletionTimestamp").is_some(),
            has_released: spec.get("released").is_some_and(|r| !r.is_null()),
            reason: held
                .map(|c| text_at(c, "/reason").to_owned())
                .filter(|text| !text.is_empty()),
            labels: texts(object.pointer("/metadata/labels")),
            row: texts(
                annotation(object, kinds::DOMAINS_OF_ROW)
                    .and_then(|text| serde_json::from_str(text).ok())
                    .as_ref(),
            ),
            desired,
            released,
            spec: spec.clone(),
        }
    }

    /// A slot let go what is live.
    pub fn is_live_by_release(&self) -> bool {
        let marker = self.release.as_deref().and_then(Marker::of);
        matches!((&self.live, marker), (Live::Hash(live), Some(marker)) if marker.hash == live)
    }

    pub fn held(&self) -> bool {
        match &self.live {
            Live::Hash(hash) => self.desired_hash.as_ref() != Some(hash),
            _ => true,
        }
    }
}

/// The node that an object belongs to: by its owner reference, or by labels where there can be none.
pub fn owner_of(key: &Key, object: &Value) -> Option<Key> {
    let references = object
        .pointer("/metadata/ownerReferences")
        .and_then(Value::as_array);
    let owner = references.into_iter().flatten().find(|reference| {
        reference["kind"] == Kind::Node.name()
            && text_at(reference, "/apiVersion").starts_with(Kind::Node.group())
    });
    if let Some(owner) = owner {
        return Some(Key::new(
            Kind::Node,
            &key.namespace,
            text_at(owner, "/name"),
        ));
    }
    let labels = &object["metadata"]["labels"];
    let name = labels[kinds::LABEL_NODE].as_str()?;
    let namespace = labels[kinds::LABEL_NODE_NAMESPACE]
        .as_str()
        .unwrap_or(&key.namespace);
    Some(Key::new(Kind::Node, namespace, name))
}

pub fn annotation<'v>(object: &'v Value, name: &str) -> Option<&'v str> {
    object
        .get("metadata")?
        .get("annotations")?
        .get(name)?
        .as_str()
}

/// The form says that its rollout is complete, and means its newest generation.
pub fn says_complete(form: &Value) -> bool {
    let conditions = form.pointer("/status/conditions").and_then(Value::as_array);
    let generation = &form["metadata"]["generation"];
    let says = |condition: &Value| {
        condition["type"] == "RolloutComplete"
            && condition["status"] == "True"
            && condition["observedGeneration"] == *generation
    };
    conditions.into_iter().flatten().any(says)
}

pub fn hub_of_form(key: &Key, form: &Value) -> Option<Key> {
    let hub = text_at(form, "/spec/hubId");
    (!hub.is_empty()).then(|| Key::new(Kind::Hub, &key.namespace, hub))
}
