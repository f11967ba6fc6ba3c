//! Selects the rendered resources to try on the API server. A form's manifests have the same fields for every row and differ only
//! in their texts: one row represents all whose texts have the same shape.

use serde::Deserialize;
use serde_json::Value;

use crate::api::resource::Resource;
use crate::decide::admission::trial::resources;
use crate::decide::child::{Kind, NodeKey, Scope, kind_of, object_key};

/// The most rows whose resources are tried.
const ROWS_MAX: usize = 3;
/// So much of a text counts for its shape.
const TEXT_BYTES_MAX: usize = 256;

/// A resource as it is rendered for a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub row: String,
    pub node: NodeKey,
    pub resource: Resource,
    /// The form itself installs its kind.
    pub brings_kind: bool,
    /// The form itself makes its namespace.
    pub makes_namespace: bool,
}

impl Sample {
    pub fn kind(&self) -> Kind {
        kind_of(&self.resource.spec)
    }
}

/// A row with its rendered resources.
pub struct Offer<'a> {
    pub row: &'a str,
    pub node: &'a NodeKey,
    /// The row's node exists: only then does the API server check immutable fields.
    pub has_node: bool,
    /// The id and the shape of each resource that changes.
    pub shapes: Vec<(String, Shape)>,
    /// Renders the row again, and returns its content.
    pub content: &'a dyn Fn() -> Value,
}

/// The rows chosen so far.
#[derive(Default)]
pub struct Samples {
    first: Option<Chosen>,
    /// Rows that render to values of other types, or to nothing where others have something.
    other_types: Vec<Chosen>,
    /// Rows that render to texts of another shape.
    other_texts: Vec<Chosen>,
}

struct Chosen {
    has_node: bool,
    tried: Vec<(Sample, Shape)>,
}

impl Samples {
    pub fn offer(&mut self, offer: Offer) {
        if self.is_full() || offer.shapes.is_empty() {
            return;
        }
        let is_first = match &self.first {
            None => true,
            Some(first) => !first.has_node && offer.has_node,
        };
        let chosen = || self.first.iter().chain(&self.other_types);
        let is_news = |of: fn(&Shape) -> &[u8], known: &[&Chosen]| {
            offer.shapes.iter().any(|(id, shape)| {
                let mut known = known.iter().flat_map(|chosen| &chosen.tried);
                !known.any(|(sample, known)| *id == sample.resource.id && of(known) == of(shape))
            })
        };
        let by_type: Vec<&Chosen> = chosen().collect();
        let by_text: Vec<&Chosen> = chosen().chain(&self.other_texts).collect();
        let list = if is_first {
            None
        } else if is_news(|shape| &shape.types, &by_type) {
            Some(&mut self.other_types)
        } else if is_news(|shape| &shape.texts, &by_text) {
            Some(&mut self.other_texts)
        } else {
            return;
        };
        if list.as_ref().is_some_and(|list| list.len() >= ROWS_MAX - 1) {
            return;
        }
        let chosen = Chosen {
            has_node: offer.has_node,
            tried: offer.samples(),
        };
        match list {
            None => self.first = Some(chosen),
            Some(list) => list.push(chosen),
        }
    }

    fn is_full(&self) -> bool {
        let has_node = self.first.as_ref().is_some_and(|first| first.has_node);
        has_node && self.other_types.len() >= ROWS_MAX - 1
    }

    /// The samples, row by row in the form's order; from later rows only resources of a new shape.
    pub fn finish(self) -> Vec<Sample> {
        let rows = self.first.into_iter();
        let rows = rows.chain(self.other_types).chain(self.other_texts);
        let mut all: Vec<(Sample, Shape)> = vec![];
        for (sample, shape) in rows.take(ROWS_MAX).flat_map(|chosen| chosen.tried) {
            let is_known = all.iter().any(|(known, of_known)| {
                known.resource.id == sample.resource.id && *of_known == shape
            });
            if !is_known {
                all.push((sample, shape));
            }
        }
        all.into_iter().map(|(sample, _)| sample).collect()
    }
}

/// The id and the shape of each changed resource. One that did not render has no manifest to compare.
pub fn shapes(new: &Value, old: Option<&Value>) -> Vec<(String, Shape)> {
    let renders = |resource: &&Value| resource["renderError"].as_str().is_none_or(str::is_empty);
    let is_changed = |resource: &&Value| {
        let of_old = |old: &&Value| old["id"] == resource["id"];
        old.and_then(|old| resources(old).find(of_old)) != Some(*resource)
    };
    let changed = resources(new).filter(renders).filter(is_changed);
    let shapes = changed.filter_map(|resource| {
        let id = resource["id"].as_str()?.to_owned();
        Some((id, Shape::of(resource)))
    });
    shapes.collect()
}

impl Offer<'_> {
    fn samples(self) -> Vec<(Sample, Shape)> {
        let content = (self.content)();
        let all: Vec<Resource> = resources(&content)
            .filter_map(|resource| Resource::deserialize(resource).ok())
            .collect();
        let tried = self.shapes.into_iter().filter_map(|(id, shape)| {
            let resource = all.iter().find(|resource| resource.id == id)?;
            let kind = kind_of(&resource.spec);
            let namespace = object_key(resource, self.node, Scope::Namespaced).namespace;
            let makes_namespace = |other: &Resource| {
                let made = object_key(other, self.node, Scope::Cluster);
                made.kind.kind == "Namespace" && *made.name == *namespace
            };
            let sample = Sample {
                row: self.row.to_owned(),
                node: self.node.clone(),
                brings_kind: all.iter().any(|other| defines(&other.spec, &kind)),
                makes_namespace: all.iter().any(makes_namespace),
                resource: resource.clone(),
            };
            Some((sample, shape))
        });
        tried.collect()
    }
}

/// Whether the manifest is the definition of the kind.
pub fn defines(manifest: &Value, kind: &Kind) -> bool {
    let spec = &manifest["spec"];
    kind_of(manifest).kind == "CustomResourceDefinition"
        && spec["group"] == kind.group()
        && spec["names"]["kind"] == kind.kind.as_str()
}

/// The types of a resource's values in their order, and the kinds of characters of its texts.
#[derive(PartialEq)]
pub struct Shape {
    types: Vec<u8>,
    texts: Vec<u8>,
}

impl Shape {
    fn of(resource: &Value) -> Shape {
        let mut shape = Shape {
            types: vec![],
            texts: vec![],
        };
        shape.add(resource);
        shape
    }

    fn add(&mut self, value: &Value) {
        match value {
            Value::Null => self.types.push(b'n'),
            Value::Bool(_) => self.types.push(b'b'),
            Value::Number(_) => self.types.push(b'0'),
            Value::String(text) if text.is_empty() => self.types.push(b'e'),
            Value::String(text) => {
                self.types.push(b't');
                let mut last = 0;
                for byte in text.bytes().take(TEXT_BYTES_MAX).map(kind_of_byte) {
                    if byte != last {
                        self.texts.push(byte);
                    }
                    last = byte;
                }
                self.texts.push(0);
            }
            Value::Array(items) => {
                self.types.push(b'[');
                items.iter().for_each(|item| self.add(item));
                self.types.push(b']');
            }
            Value::Object(fields) => {
                self.types.push(b'{');
                fields.values().for_each(|value| self.add(value));
                self.types.push(b'}');
            }
        }
    }
}

fn kind_of_byte(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => b'0',
        b'a'..=b'z' => b'a',
        b'A'..=b'Z' => b'A',
        0x80.. => 0x80,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn content(size: Value, plan: &str) -> Value {
        json!({"configMaps": [
            {"id": "map", "nameTemplate": "x", "spec": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"size": size}}},
            {"id": "plan", "nameTemplate": "y", "spec": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"plan": plan}}},
        ]})
    }

    /// The row and id of each sample.
    fn tried(rows: &[(&str, bool, Value)], old: Option<&Value>) -> Vec<String> {
        let mut samples = Samples::default();
        for (row, has_node, new) in rows {
            let node = NodeKey::new("tenants", *row);
            let offer = Offer {
                row,
                node: &node,
                has_node: *has_node,
                shapes: shapes(new, old),
                content: &|| new.clone(),
            };
            samples.offer(offer);
        }
        let samples = samples.finish().into_iter();
        samples
            .map(|sample| format!("{} {}", sample.row, sample.resource.id))
            .collect()
    }

    #[test]
    fn rows_of_other_shapes_are_tried_and_of_them_what_differs() {
        let pro = |size: &str| content(json!(size), "pro");
        let all_alike = [
            ("a", true, pro("64Mi")),
            ("b", true, pro("8Gi")),
            ("c", true, pro("1Ki")),
        ];
        assert_eq!(tried(&all_alike, None), ["a map", "a plan"]);
        let with_types = [
            ("a", true, pro("64Mi")),
            ("b", true, pro("64MB")),
            ("c", true, pro("64 M")),
            ("d", true, content(json!(64), "pro")),
            ("e", true, content(json!("64Mi"), "")),
            ("f", true, content(json!(true), "pro")),
        ];
        assert_eq!(
            tried(&with_types, None),
            ["a map", "a plan", "d map", "e plan"],
            "types come before texts"
        );
        let with_texts = [&with_types[..3], &with_types[..1]].concat();
        let texts = ["a map", "a plan", "b map", "c map"];
        assert_eq!(tried(&with_texts, None), texts);
    }

    #[test]
    fn what_changes_is_tried_on_a_row_that_has_a_node() {
        let old = content(json!("64Mi"), "pro");
        let rows = [
            ("new", false, content(json!("64Mi"), "free")),
            ("b", true, content(json!("64Mi"), "free")),
        ];
        assert_eq!(tried(&rows, Some(&old)), ["b plan"]);
        assert_eq!(tried(&rows[..1], Some(&old)), ["new plan"]);
        assert_eq!(
            tried(&[("a", true, old.clone())], Some(&old)),
            Vec::<String>::new()
        );
        let broken = json!({"manifests": [{"id": "x", "renderError": "no", "spec": {}}]});
        assert_eq!(tried(&[("a", true, broken)], None), Vec::<String>::new());
    }

    #[test]
    fn a_form_may_bring_a_kind_and_a_namespace() {
        let new = json!({"manifests": [
            {"id": "crd", "nameTemplate": "w", "spec": {
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "spec": {"group": "example.com", "names": {"kind": "Widget"}},
            }},
            {"id": "ns", "nameTemplate": "team", "spec": {"apiVersion": "v1", "kind": "Namespace"}},
            {"id": "widget", "nameTemplate": "w", "spec": {"apiVersion": "example.com/v1", "kind": "Widget"}},
            {"id": "gadget", "nameTemplate": "w", "spec": {"apiVersion": "example.com/v1", "kind": "Gadget"}},
            {"id": "map", "nameTemplate": "w", "targetNamespace": "team", "spec": {"apiVersion": "v1", "kind": "ConfigMap"}},
        ]});
        let node = NodeKey::new("tenants", "a");
        let offer = Offer {
            row: "a",
            node: &node,
            has_node: true,
            shapes: shapes(&new, None),
            content: &|| new.clone(),
        };
        let mut samples = Samples::default();
        samples.offer(offer);
        let of = |f: fn(&Sample) -> bool| {
            let all = samples.first.iter().flat_map(|chosen| &chosen.tried);
            let all = all.filter(|(sample, _)| f(sample));
            Vec::from_iter(all.map(|(sample, _)| sample.resource.id.as_str()))
        };
        assert_eq!(of(|sample| sample.brings_kind), ["widget"]);
        assert_eq!(of(|sample| sample.makes_namespace), ["map"]);
    }
}
