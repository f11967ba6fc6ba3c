//! A report for support: which LynqNodes go into it, how events and revisions are shortened, and what is taken out of an object
//! before somebody else reads it. Redacts more rather than less.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::api::{names, stamp};
use crate::decide::child::secret::{self, REDACTED};
use crate::decide::node::digest::NodeDigest;
use crate::decide::rollout::Live;
use crate::decide::rollout::history::Revision;
use crate::decide::rollout::overview::{self, Verdict};
use crate::decide::shared::fields::text_at;

/// So many LynqNodes are in a report.
pub const NODES_MAX: usize = 50;
/// So many events, the newest.
pub const EVENTS_MAX: usize = 1_000;
/// Bytes of an annotation that is not lynqgate's. A longer one may be a copy of the whole manifest.
const ANNOTATION_MAX: usize = 128;

/// How a LynqNode is; the first is the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    Degraded,
    NotReady,
    Held,
    Ready,
}

impl Standing {
    const ALL: [(Standing, &str); 4] = [
        (Standing::Degraded, "degraded"),
        (Standing::NotReady, "notReady"),
        (Standing::Held, "held"),
        (Standing::Ready, "ready"),
    ];

    fn of(node: &NodeDigest) -> Self {
        let verdict = overview::of_node(node, None).verdict;
        match () {
            () if verdict >= Verdict::Degraded => Standing::Degraded,
            () if !node.is_ready() && node.live != Live::None => Standing::NotReady,
            () if node.held() => Standing::Held,
            () if verdict == Verdict::Complete => Standing::Ready,
            () => Standing::NotReady,
        }
    }
}

/// The LynqNodes of a namespace: all are counted, and the worst are kept.
#[derive(Default)]
pub struct Nodes {
    counts: BTreeMap<Standing, usize>,
    kept: BTreeMap<(Standing, String), Value>,
}

impl Nodes {
    pub fn add(&mut self, node: Value) {
        let digest = NodeDigest::of(&node, None);
        let standing = Standing::of(&digest);
        *self.counts.entry(standing).or_default() += 1;
        let name = digest.key.name.to_string();
        self.kept.insert((standing, name), node);
        if self.kept.len() > NODES_MAX {
            self.kept.pop_last();
        }
    }

    /// How many there are, how many are in the report, and how many are in which state.
    pub fn counts(&self) -> Value {
        let all: usize = self.counts.values().sum();
        let mut counts = json!({"all": all, "inReport": self.kept.len()});
        for (standing, word) in Standing::ALL {
            counts[word] = self
                .counts
                .get(&standing)
                .copied()
                .unwrap_or_default()
                .into();
        }
        counts
    }

    /// The worst, as they are in the report.
    pub fn worst(self) -> impl Iterator<Item = Value> {
        self.kept.into_values().map(cleaned)
    }
}

/// The object without values of Secrets, and without what only programs read.
pub fn cleaned(mut object: Value) -> Value {
    hide_annotations(&mut object);
    clean(&mut object);
    object
}

/// The same of lynqgate's own Deployment or pod: an environment variable may have a password, such as that of a proxy.
pub fn cleaned_workload(object: Value) -> Value {
    let mut object = cleaned(object);
    hide_environment(&mut object);
    object
}

fn clean(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(clean),
        Value::Object(fields) => {
            fields.remove("managedFields");
            fields.remove("caBundle");
            // Of a form or a node: what stands there is meant as a Secret, whatever kind a template makes of it.
            let secrets = fields.get_mut("secrets").and_then(Value::as_array_mut);
            for resource in secrets.into_iter().flatten() {
                if let Some(manifest) = resource.get_mut("spec") {
                    hide_secret(manifest);
                }
            }
            fields.values_mut().for_each(clean);
        }
        _ => {}
    }
    if is_secret(value) {
        hide_secret(value);
    }
}

/// Whether a manifest is of a Secret, or of a kind that only the row says.
fn is_secret(manifest: &Value) -> bool {
    let kind = manifest["kind"].as_str();
    kind.is_some_and(|kind| kind == "Secret" || kind.contains('{'))
}

fn hide_secret(manifest: &mut Value) {
    secret::redact(manifest, |_, _| REDACTED);
    hide_annotations(manifest);
}

/// Redacts the annotations that may have the values of a row, or a copy of the manifest, as that of `kubectl apply` does.
fn hide_annotations(object: &mut Value) {
    let metadata = object.get_mut("metadata");
    let annotations = metadata.and_then(|metadata| metadata.get_mut("annotations"));
    let annotations = annotations.and_then(Value::as_object_mut);
    for (name, value) in annotations.into_iter().flatten() {
        let is_of_row = [names::HOST_OR_URL, names::EXTRA].contains(&name.as_str());
        let is_ours = name.starts_with(names::PREFIX);
        let text = value.as_str();
        let is_plain = text.is_some_and(|text| text.len() <= ANNOTATION_MAX && !text.contains('{'));
        if is_of_row || !(is_ours || is_plain) {
            *value = REDACTED.into();
        }
    }
}

fn hide_environment(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(hide_environment),
        Value::Object(fields) => {
            let variables = fields.get_mut("env").and_then(Value::as_array_mut);
            for variable in variables.into_iter().flatten() {
                if let Some(value) = variable.get_mut("value") {
                    *value = REDACTED.into();
                }
            }
            fields.values_mut().for_each(hide_environment);
        }
        _ => {}
    }
}

/// The newest events, shortened, in the order of their times.
pub fn events(all: &[Value]) -> Vec<Value> {
    let mut all: Vec<(Option<Timestamp>, &Value)> =
        all.iter().map(|event| (time_of(event), event)).collect();
    all.sort_by_key(|(at, _)| *at);
    let surplus = all.len().saturating_sub(EVENTS_MAX);
    let newest = all.into_iter().skip(surplus);
    newest
        .map(|(at, event)| {
            let kind = text_at(event, "/involvedObject/kind");
            let name = text_at(event, "/involvedObject/name");
            let count = match &event["series"]["count"] {
                Value::Null => &event["count"],
                count => count,
            };
            json!({
                "time": at, "type": event["type"], "reason": event["reason"], "object": format!("{kind}/{name}"),
                "message": event["message"], "count": count,
            })
        })
        .collect()
}

/// When the event happened last.
fn time_of(event: &Value) -> Option<Timestamp> {
    let times = [
        "/series/lastObservedTime",
        "/lastTimestamp",
        "/eventTime",
        "/metadata/creationTimestamp",
    ];
    let mut times = times.iter().map(|place| text_at(event, place));
    times.find_map(stamp::parse)
}

/// A ControllerRevision of a form without the form's content.
pub fn revision(object: &Value) -> Value {
    let revision = Revision::of(object);
    json!({
        "form": object["metadata"]["ownerReferences"][0]["name"],
        "name": revision.name, "revision": revision.number, "created": revision.created, "completed": revision.completed,
    })
}

/// The name of the file, if the user gives none.
pub fn file_name(namespace: &str, now: Timestamp) -> String {
    format!(
        "lynqgate-report-{namespace}-{}.yaml",
        now.strftime("%Y%m%dT%H%M%SZ")
    )
}

/// A size in bytes, for people.
pub fn size(bytes: usize) -> String {
    const KIB: f64 = 1024.0;
    let size = bytes as f64;
    match () {
        () if size < KIB => format!("{bytes} bytes"),
        () if size < KIB * KIB => format!("{:.1} KiB", size / KIB),
        () => format!("{:.1} MiB", size / (KIB * KIB)),
    }
}

#[cfg(test)]
mod tests;
