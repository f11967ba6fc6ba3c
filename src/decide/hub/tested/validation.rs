//! Whether the manifests that a form renders fit the schemas of their kinds. Knows no other rule of the API server.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::resource::{PatchStrategy, Resource, ResourceArrays};
use crate::decide::admission::trial::sample::defines;
use crate::decide::child::schema::{self, Fault, Schemas};
use crate::decide::child::texts::Texts;
use crate::decide::child::{Kind, NodeKey, Scope, kind_of, manifest};
use crate::decide::hub::findings::{Findings, Subject};
use crate::decide::hub::tested::line;
use crate::decide::node::diff::alike::first_of;

/// What the schemas say of a kind.
#[derive(Clone, Debug)]
pub enum Schema {
    /// The document that has it, and which of its fields are texts.
    Known(Arc<Value>, Option<Texts>),
    /// There is none: its manifests are not validated.
    Unknown,
    /// No object of the kind can be applied; with the reason.
    Refused(String),
}

impl Schema {
    pub fn of(document: &Arc<Value>, kind: &Kind) -> Self {
        let schemas = Schemas::of(document);
        match schemas.is_some_and(|schemas| schemas.of_kind(kind).is_some()) {
            true => Schema::Known(document.clone(), Texts::of(document, kind)),
            false => Schema::Unknown,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Validation {
    /// Where the schemas come from.
    source: String,
    nodes: usize,
    /// The names of the nodes with a fault.
    invalid: BTreeSet<String>,
    /// The same by fault.
    faults: BTreeMap<ResourceFault, BTreeSet<String>>,
    /// The kinds without a schema, and the ids of their resources.
    unknown: BTreeMap<Kind, BTreeSet<String>>,
}

/// A fault in the manifests of a resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ResourceFault {
    id: String,
    kind: Kind,
    /// Empty if all of the manifest is meant.
    path: String,
    what: String,
}

impl Validation {
    pub fn with(source: &str) -> Self {
        Validation {
            source: source.to_owned(),
            ..Validation::default()
        }
    }

    /// `schemas`: of every kind of the resources.
    pub fn add(
        &mut self,
        node: &NodeKey,
        resources: &ResourceArrays,
        schemas: &BTreeMap<Kind, Schema>,
    ) {
        self.nodes += 1;
        for resource in resources.iter() {
            let kind = kind_of(&resource.spec);
            // The form itself installs the kind.
            let is_own = || resources.iter().any(|other| defines(&other.spec, &kind));
            let faults = match schemas.get(&kind) {
                Some(Schema::Known(document, texts)) => {
                    faults(node, resource, &kind, (document, texts.as_ref()))
                }
                Some(Schema::Refused(why)) if !is_own() => vec![Fault {
                    path: String::new(),
                    what: why.clone(),
                }],
                Some(Schema::Refused(_) | Schema::Unknown) | None => {
                    let ids = self.unknown.entry(kind.clone()).or_default();
                    ids.insert(resource.id.clone());
                    vec![]
                }
            };
            for Fault { path, what } in faults {
                self.invalid.insert(node.name.to_string());
                let (id, kind) = (resource.id.clone(), kind.clone());
                let fault = ResourceFault {
                    id,
                    kind,
                    path,
                    what,
                };
                let names = self.faults.entry(fault).or_default();
                names.insert(node.name.to_string());
            }
        }
    }

    /// The number of nodes with a fault.
    pub fn invalid(&self) -> usize {
        self.invalid.len()
    }

    pub fn json(&self) -> Value {
        let faults = self.faults.iter().map(|(fault, nodes)| {
            json!({
                "resource": fault.id,
                "kind": fault.kind.to_string(),
                "path": fault.path,
                "what": fault.what,
                "nodes": nodes,
            })
        });
        let unknown = self.unknown.iter();
        let unknown =
            unknown.map(|(kind, ids)| json!({"kind": kind.to_string(), "resources": ids}));
        json!({
            "source": self.source,
            "valid": self.nodes - self.invalid(),
            "invalid": self.invalid(),
            "faults": faults.collect::<Vec<Value>>(),
            "notValidated": unknown.collect::<Vec<Value>>(),
        })
    }
}

impl fmt::Display for ResourceFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "resource {:?} ({}): ", self.id, self.kind.called())?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.what)
    }
}

impl fmt::Display for Validation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (source, nodes) = (&self.source, self.nodes);
        let valid = nodes - self.invalid();
        let noun = if nodes == 1 { "node" } else { "nodes" };
        line(
            f,
            "schemas",
            &format!("{source}: {valid} of {nodes} {noun} valid"),
        )?;
        let mut findings = Findings::default();
        for (fault, names) in &self.faults {
            for name in names {
                findings.add(Subject::Node, name, fault.to_string());
            }
        }
        for text in findings.lines() {
            line(f, "invalid", &text)?;
        }
        let unknown: Vec<String> = self.unknown.keys().map(Kind::to_string).collect();
        match unknown.is_empty() {
            true => Ok(()),
            false => {
                let kinds = first_of(&unknown);
                line(f, "no schema", &format!("{kinds}: not validated"))
            }
        }
    }
}

/// What is wrong with the manifest as the operator sends it: what works is no fault.
fn faults(
    node: &NodeKey,
    resource: &Resource,
    kind: &Kind,
    (document, texts): (&Value, Option<&Texts>),
) -> Vec<Fault> {
    let mut object = manifest(resource, node, "", Scope::Namespaced, None);
    if let Some(texts) = texts {
        texts.convert(&mut object);
    }
    let found = match resource.patch_strategy {
        // The object may have more than the manifest.
        PatchStrategy::Merge => schema::faults(document, kind, &object),
        PatchStrategy::Apply | PatchStrategy::Replace => {
            schema::faults_of_whole(document, kind, &object)
        }
    };
    let unknown = schema::unknown_metadata(&resource.spec);
    unknown.into_iter().chain(found).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHY: &str = "the cluster has no kind Queue in example.com/v1; install its CustomResourceDefinition first, or correct \
                       apiVersion and kind";

    fn schemas() -> BTreeMap<Kind, Schema> {
        let document = Arc::new(json!({"components": {"schemas": {"Deployment": {
            "properties": {
                "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
                "spec": {
                    "required": ["selector"],
                    "properties": {
                        "selector": {"type": "object"}, "replicas": {"type": "integer"}, "note": {"type": "string"},
                    },
                },
            },
            "x-kubernetes-group-version-kind": [{"group": "apps", "version": "v1", "kind": "Deployment"}],
        }}}}));
        let deployment = Kind::new("apps/v1", "Deployment");
        let bucket = Kind::new("example.com/v1", "Bucket");
        BTreeMap::from([
            (deployment.clone(), Schema::of(&document, &deployment)),
            (bucket.clone(), Schema::of(&document, &bucket)),
            (
                Kind::new("example.com/v1", "Queue"),
                Schema::Refused(WHY.to_owned()),
            ),
        ])
    }

    /// The same manifests for two nodes.
    fn validated(manifests: &Value) -> Validation {
        let resources = json!({ "manifests": manifests });
        let resources: ResourceArrays = serde_json::from_value(resources).unwrap();
        let mut validation = Validation::with("cluster");
        for name in ["acme-web", "beta-web"] {
            validation.add(&NodeKey::new("tenants", name), &resources, &schemas());
        }
        validation
    }

    fn app(spec: Value) -> Value {
        json!({"id": "app", "spec": {"apiVersion": "apps/v1", "kind": "Deployment", "spec": spec}})
    }

    fn other(id: &str, kind: &str) -> Value {
        json!({"id": id, "spec": {"apiVersion": "example.com/v1", "kind": kind}})
    }

    #[test]
    fn a_fault_is_told_once_with_its_nodes() {
        let good = json!({"selector": {}, "replicas": 1, "note": true});
        let mut merged = app(json!({"replicas": 2}));
        merged["patchStrategy"] = json!("merge");
        let mut labelled = app(good.clone());
        labelled["spec"]["metadata"] = json!({"lables": {}});
        let definition = json!({"id": "crd", "spec": {
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "spec": {"group": "example.com", "names": {"kind": "Queue"}},
        }});
        let all_good = "  schemas    cluster: 2 of 2 nodes valid\n";
        let invalid = |fault: &str| {
            format!(
                "  schemas    cluster: 0 of 2 nodes valid\n  invalid    LynqNodes acme-web, beta-web: {fault}\n"
            )
        };
        for (name, manifests, text) in [
            (
                "all is well, and a boolean is sent as a text",
                json!([app(good)]),
                all_good.to_owned(),
            ),
            (
                "an unknown field",
                json!([app(json!({"selector": {}, "replicsa": 1}))]),
                invalid(
                    "resource \"app\" (Deployment): spec.replicsa: unknown field; did you mean \"replicas\"?",
                ),
            ),
            (
                "a field that is missing",
                json!([app(json!({"replicas": 1}))]),
                invalid(
                    "resource \"app\" (Deployment): spec.selector: missing; the field is required",
                ),
            ),
            ("a part of an object", json!([merged]), all_good.to_owned()),
            (
                "metadata that lynqgate would drop",
                json!([labelled]),
                invalid(
                    "resource \"app\" (Deployment): metadata.lables: unknown field; did you mean \"labels\"?",
                ),
            ),
            (
                "a kind without a schema",
                json!([other("a", "Bucket"), other("b", "Bucket")]),
                format!("{all_good}  no schema  example.com/v1 Bucket: not validated\n"),
            ),
            (
                "a kind that is not installed",
                json!([other("jobs", "Queue")]),
                invalid(&format!("resource \"jobs\" (Queue.example.com): {WHY}")),
            ),
            (
                "a kind that the form installs",
                json!([definition, other("jobs", "Queue")]),
                format!(
                    "{all_good}  no schema  apiextensions.k8s.io/v1 CustomResourceDefinition, example.com/v1 Queue: not validated\n"
                ),
            ),
        ] {
            assert_eq!(validated(&manifests).to_string(), text, "{name}");
        }
    }

    #[test]
    fn programs_get_the_parts_of_a_fault() {
        let manifests = json!([
            app(json!({"selector": {}, "replicas": "two"})),
            other("b", "Bucket")
        ]);
        let validation = validated(&manifests);
        assert_eq!(validation.invalid(), 2);
        let expected = json!({
            "source": "cluster", "valid": 0, "invalid": 2,
            "faults": [{
                "resource": "app", "kind": "apps/v1 Deployment", "path": "spec.replicas",
                "what": "expected a number, got a text; write it without quotes, or end its template with int",
                "nodes": ["acme-web", "beta-web"],
            }],
            "notValidated": [{"kind": "example.com/v1 Bucket", "resources": ["b"]}],
        });
        assert_eq!(validation.json(), expected);
    }
}
