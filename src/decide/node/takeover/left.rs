//! The objects of a node that was not taken over yet, from the record in Lynq's status and from the node's content. Both may
//! contain templates, which are rendered as by Lynq, with the row that Lynq left on the node.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;

use crate::api::names;
use crate::api::resource::{DeletionPolicy, Resource};
use crate::decide::child::{Kind, Scope, kind_of, object_key};
use crate::decide::gate::annotation;
use crate::decide::hub::render::{RowInputs, text_as_lynq};
use crate::decide::hub::rows::Row;
use crate::decide::node::digest::{NodeDigest, contents};
use crate::decide::node::takeover::{Recorded, recorded};

/// Objects that may be there.
#[derive(Debug, Default, PartialEq)]
pub struct Left {
    /// Each object, and whether its content retains it when the node is deleted.
    pub objects: Vec<(Recorded, bool)>,
    /// Recorded or named objects that cannot be identified, with reasons.
    pub unclear: Vec<String>,
}

pub fn left(object: &Value, node: &NodeDigest) -> Left {
    let row = row(object, node);
    let inputs = inputs(node, &row);
    let mut left = Left::default();
    let content: Vec<Resource> = contents(object)
        .flat_map(|arrays| arrays.iter().cloned().collect::<Vec<_>>())
        .filter(|resource| resource.render_error.is_empty())
        .collect();
    for resource in &content {
        let retain = resource.deletion_policy == DeletionPolicy::Retain;
        let named = named(resource, node);
        // What one of our hubs wrote is rendered, even if it looks like a template.
        match node.rendered_hash {
            Some(_) => left.objects.push((named, retain)),
            None => left.add(named, retain, &inputs),
        }
    }
    for mut recorded in recorded(&node.status) {
        let of_kind = || content.iter().map(|resource| kind_of(&resource.spec));
        if recorded.api_versions.is_empty() {
            let same = of_kind().filter(|kind| kind.kind == recorded.kind);
            recorded.api_versions = same.map(|kind| kind.api_version).collect();
            recorded.api_versions.sort();
            recorded.api_versions.dedup();
        }
        // A record with a template in it may be of what a hub of ours has rendered since.
        let is_rendered = node.rendered_hash.is_some()
            && left.names(&recorded)
            && text_as_lynq(&inputs, "namespace", &recorded.namespace).is_err();
        if is_rendered {
            continue;
        }
        if recorded.api_versions.is_empty() {
            let why = "the record does not say of which group and version it is";
            left.unclear.push(format!("{recorded}: {why}"));
        } else {
            left.add(recorded, false, &inputs);
        }
    }
    left
}

/// For `status.appliedResources` and `status.appliedKinds`: Lynq's record of a node that it wrote last, plus the objects that its
/// templates name for this row, and their kinds. An entry that cannot be rendered stays as Lynq recorded it.
pub fn record(object: &Value, node: &NodeDigest) -> (Vec<String>, Vec<String>) {
    let row = row(object, node);
    let inputs = inputs(node, &row);
    let mut entries = BTreeSet::new();
    let mut kinds = BTreeSet::from_iter(node.status.applied_kinds.iter().cloned());
    for resource in contents(object).flat_map(|arrays| Vec::from_iter(arrays.iter().cloned())) {
        if let Ok(named) = named(&resource, node).rendered(&inputs) {
            entries.insert(format!("{named}@{}", resource.id));
            let versions = named.api_versions.iter();
            kinds.extend(versions.map(|version| format!("{version} {}", named.kind)));
        }
    }
    for recorded in recorded(&node.status) {
        let versions = recorded.api_versions.iter();
        kinds.extend(versions.map(|version| format!("{version} {}", recorded.kind)));
    }
    for entry in &node.status.applied_resources {
        let (named, id) = entry.split_once('@').unwrap_or((entry, ""));
        let rendered = Recorded::parse(named).and_then(|named| named.rendered(&inputs).ok());
        entries.insert(rendered.map_or(entry.clone(), |named| format!("{named}@{id}")));
    }
    (entries.into_iter().collect(), kinds.into_iter().collect())
}

fn inputs<'a>(node: &'a NodeDigest, row: &'a Row) -> RowInputs<'a> {
    RowInputs {
        hub: &node.hub,
        form: &node.form,
        row,
        first_seen: Timestamp::UNIX_EPOCH,
        seed: [0; 32],
    }
}

impl Recorded {
    fn rendered(mut self, inputs: &RowInputs) -> Result<Recorded, String> {
        for version in &mut self.api_versions {
            *version = text_as_lynq(inputs, "apiVersion", version)?;
        }
        self.kind = text_as_lynq(inputs, "kind", &self.kind)?;
        self.namespace = text_as_lynq(inputs, "namespace", &self.namespace)?;
        self.name = text_as_lynq(inputs, "name", &self.name)?;
        match self.namespace.is_empty() || self.name.is_empty() {
            true => Err("its name or its namespace is empty".to_owned()),
            false => Ok(self),
        }
    }
}

impl Left {
    /// Whether an object of this kind and name is known, in any namespace.
    fn names(&self, recorded: &Recorded) -> bool {
        let is_it =
            |named: &Recorded| (&named.kind, &named.name) == (&recorded.kind, &recorded.name);
        self.objects.iter().any(|(named, _)| is_it(named))
    }

    fn add(&mut self, named: Recorded, retain: bool, inputs: &RowInputs) {
        match named.clone().rendered(inputs) {
            Ok(named) => {
                if !self.objects.iter().any(|(known, _)| *known == named) {
                    self.objects.push((named, retain));
                }
            }
            Err(why) => {
                let why = format!("{named}: {why}");
                if !self.unclear.contains(&why) {
                    self.unclear.push(why);
                }
            }
        }
    }
}

/// The object of a resource. Lynq ignores the namespace in a manifest.
fn named(resource: &Resource, node: &NodeDigest) -> Recorded {
    let Kind { api_version, kind } = kind_of(&resource.spec);
    let key = object_key(resource, &node.key, Scope::Namespaced);
    let is_lynqs = node.rendered_hash.is_none() && resource.target_namespace.is_empty();
    Recorded {
        kind,
        api_versions: vec![api_version],
        namespace: match is_lynqs {
            true => node.key.namespace.to_string(),
            false => key.namespace.to_string(),
        },
        name: key.name,
    }
}

/// The row that Lynq left on the node.
fn row(object: &Value, node: &NodeDigest) -> Row {
    let said = |name| annotation(object, name).filter(|text| !text.is_empty());
    let extra = said(names::EXTRA).and_then(|text| serde_json::from_str(text).ok());
    let mut variables: BTreeMap<String, String> = extra.unwrap_or_default();
    let mut add = |name: &str, value: &str| {
        let name = name.to_owned();
        variables.entry(name).or_insert_with(|| value.to_owned());
    };
    add("activate", said(names::ACTIVATE).unwrap_or(names::TRUE));
    if let Some(url) = said(names::HOST_OR_URL) {
        add("hostOrUrl", url);
    }
    Row {
        uid: node.row_uid.clone(),
        variables: variables.into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(annotations: Value, resources: Value, recorded: &[&str]) -> Value {
        json!({
            "apiVersion": "operator.lynq.sh/v1", "kind": "LynqNode",
            "metadata": {
                "name": "acme-web", "namespace": "tenants", "labels": {"lynq.sh/hub": "hub"}, "annotations": annotations,
            },
            "spec": {"uid": "acme", "templateRef": "web", "manifests": resources},
            "status": {"appliedResources": recorded},
        })
    }

    fn told(object: &Value) -> (Vec<(String, bool)>, Vec<String>) {
        let found = left(object, &NodeDigest::of(object, None));
        let objects = found.objects.into_iter();
        let objects = objects.map(|(named, retain)| {
            let versions = named.api_versions.join(",");
            (format!("{versions} {named}"), retain)
        });
        (objects.collect(), found.unclear)
    }

    fn resource(id: &str, api_version: &str, kind: &str, more: Value) -> Value {
        let mut resource = json!({
            "id": id, "nameTemplate": format!("acme-{id}"),
            "spec": {"apiVersion": api_version, "kind": kind, "metadata": {"namespace": "ignored"}},
        });
        let fields = resource.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        resource
    }

    #[test]
    fn what_lynq_recorded_and_what_its_templates_name() {
        let row = json!({
            "lynq.sh/extra": r#"{"region":"eu"}"#, "lynq.sh/hostOrUrl": "https://acme.example.com/", "lynq.sh/activate": "1",
        });
        let far =
            json!({"targetNamespace": "{{ .uid }}-{{ .region }}", "deletionPolicy": "Retain"});
        let resources = json!([
            resource("near", "v1", "ConfigMap", json!({})),
            resource("far", "v1", "Secret", far),
            resource(
                "widget",
                "example.com/v1",
                "Widget",
                json!({"targetNamespace": "{{ .host }}"})
            ),
            resource(
                "lost",
                "v1",
                "Secret",
                json!({"targetNamespace": "{{ .gone }}"})
            ),
        ]);
        let recorded = [
            "ConfigMap/tenants/acme-near@near",
            "Secret/{{ .uid }}-{{ .region }}/acme-far@far",
            "Widget/{{ .host }}/acme-old@old",
            "Gadget/tenants/acme-gadget@gadget",
            "Deployment/{{ .uid }}-{{ .region }}/acme-app@app",
            "Secret/{{ .gone }}/acme-lost@lost",
        ];
        let (objects, unclear) = told(&object(row, resources, &recorded));
        let expected = [
            ("v1 ConfigMap/tenants/acme-near", false),
            ("v1 Secret/acme-eu/acme-far", true),
            ("example.com/v1 Widget/acme.example.com/acme-widget", false),
            ("example.com/v1 Widget/acme.example.com/acme-old", false),
            ("apps/v1 Deployment/acme-eu/acme-app", false),
        ];
        let expected = expected.map(|(text, retain)| (text.to_owned(), retain));
        assert_eq!(objects, expected);
        assert_eq!(unclear.len(), 2, "{unclear:?}");
        assert!(
            unclear[0].starts_with("Secret/{{ .gone }}/acme-lost: "),
            "{unclear:?}"
        );
        assert!(
            unclear[1].starts_with("Gadget/tenants/acme-gadget: "),
            "{unclear:?}"
        );
    }

    #[test]
    fn the_record_names_what_lynqs_templates_made() {
        let row = json!({"lynq.sh/extra": r#"{"region":"eu","group":"example.com"}"#});
        let namespace = json!({"targetNamespace": "{{ .uid }}-{{ .region }}"});
        let lost = json!({"targetNamespace": "{{ .gone }}"});
        let resources = json!([
            resource("near", "v1", "ConfigMap", json!({})),
            resource("far", "v1", "Secret", namespace),
            resource("lost", "v1", "Secret", lost),
            resource("own", "{{ .group }}/v1", "Widget", json!({})),
        ]);
        let recorded = [
            "Secret/{{ .uid }}-{{ .region }}/acme-far@far",
            "Secret/{{ .region }}/acme-old@old",
            "Secret/{{ .gone }}/acme-lost@lost",
            "whatever",
        ];
        let object = object(row, resources, &recorded);
        let expected = [
            "ConfigMap/tenants/acme-near@near",
            "Secret/acme-eu/acme-far@far",
            "Secret/eu/acme-old@old",
            "Secret/{{ .gone }}/acme-lost@lost",
            "Widget/tenants/acme-own@own",
            "whatever",
        ];
        let (entries, kinds) = record(&object, &NodeDigest::of(&object, None));
        assert_eq!(entries, expected);
        assert_eq!(
            kinds,
            ["example.com/v1 Widget", "v1 ConfigMap", "v1 Secret"]
        );
    }

    /// Of the row that Lynq left only the uid is known any more.
    #[test]
    fn what_a_hub_has_rendered_is_named_as_it_is() {
        let rendered = json!({"lynq.sh/rendered-hash": "x/y", "lynq.sh/live-hash": "unknown"});
        let resources = json!([
            resource("far", "v1", "Secret", json!({"targetNamespace": "acme-eu"})),
            resource("odd", "v1", "Secret", json!({"nameTemplate": "{{ .uid }}"})),
        ]);
        let recorded = [
            "Secret/{{ .uid }}-{{ .region }}/acme-far@far",
            "Secret/{{ .uid }}/acme-old@old",
        ];
        let (objects, unclear) = told(&object(rendered, resources, &recorded));
        let expected = [
            "v1 Secret/acme-eu/acme-far",
            "v1 Secret/ignored/{{ .uid }}",
            "v1 Secret/acme/acme-old",
        ];
        assert_eq!(objects, expected.map(|text| (text.to_owned(), false)));
        assert_eq!(unclear, Vec::<String>::new(), "the content names it");
    }
}
