//! Checks a manifest against the OpenAPI v3 schema that the API server publishes for its kind: unknown fields, values of the
//! wrong type, invalid quantities, and required fields. The API server decides what is valid; this module only locates the error.

use std::fmt;
use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use regex::Regex;
use serde_json::{Map, Value, json};

use crate::decide::child::{Kind, kind_of};
use crate::decide::shared::near::did_you_mean;

/// The longest chain of references to follow for one value.
const REFERENCES_MAX: usize = 8;

/// An error in the manifest and its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub path: String,
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.what)
    }
}

/// The schemas of one OpenAPI v3 document: those of a group and version.
#[derive(Clone, Copy)]
pub struct Schemas<'a>(&'a Map<String, Value>);

impl<'a> Schemas<'a> {
    pub fn of(document: &'a Value) -> Option<Self> {
        document["components"]["schemas"].as_object().map(Schemas)
    }

    pub fn of_kind(self, kind: &Kind) -> Option<&'a Value> {
        let version = kind.api_version.rsplit('/').next().unwrap_or_default();
        self.0.values().find(|schema| {
            let kinds = schema["x-kubernetes-group-version-kind"].as_array();
            kinds.into_iter().flatten().any(|named| {
                named["group"] == kind.group()
                    && named["version"] == version
                    && named["kind"] == kind.kind.as_str()
            })
        })
    }

    /// Follows `$ref`, direct or as the only item of `allOf`; returns the schema and its name, empty without a reference.
    pub fn resolved(self, schema: &'a Value) -> (&'a Value, &'a str) {
        let (mut schema, mut name) = (schema, "");
        for _ in 0..REFERENCES_MAX {
            let referred = schema["$ref"]
                .as_str()
                .or_else(|| schema["allOf"][0]["$ref"].as_str());
            let Some(found) = referred.and_then(|text| text.rsplit('/').next()) else {
                break;
            };
            let Some(next) = self.0.get(found) else {
                break;
            };
            (schema, name) = (next, found);
        }
        (schema, name)
    }
}

/// The OpenAPI v3 documents in an object: the object itself if it is one, one for each version of a CustomResourceDefinition, and
/// those of the items of a List. No other object has any.
pub fn documents(object: &Value) -> Vec<Value> {
    let kind = kind_of(object).kind;
    if kind == "CustomResourceDefinition" {
        return of_definition(&object["spec"]);
    }
    if kind.ends_with("List") {
        let items = object["items"].as_array().into_iter().flatten();
        return items.flat_map(documents).collect();
    }
    let is_one = Schemas::of(object).is_some();
    Vec::from_iter(is_one.then(|| object.clone()))
}

/// As the API server publishes the kind: with the fields of every object, whatever a definition says of them.
fn of_definition(spec: &Value) -> Vec<Value> {
    let versions = spec["versions"].as_array().into_iter().flatten();
    let documents = versions.filter_map(|version| {
        let mut schema = version["schema"]["openAPIV3Schema"].as_object()?.clone();
        let properties = schema.get("properties").and_then(Value::as_object);
        let mut properties = properties.cloned().unwrap_or_default();
        for (field, type_) in [
            ("apiVersion", "string"),
            ("kind", "string"),
            ("metadata", "object"),
        ] {
            properties.insert(field.to_owned(), json!({ "type": type_ }));
        }
        schema.insert("properties".to_owned(), properties.into());
        let kind = json!([{"group": spec["group"], "version": version["name"], "kind": spec["names"]["kind"]}]);
        schema.insert("x-kubernetes-group-version-kind".to_owned(), kind);
        Some(json!({"components": {"schemas": {"defined": schema}}}))
    });
    documents.collect()
}

/// Errors in the manifest's order; none if `document`, which is for the kind's group and version, lacks the kind.
pub fn faults(document: &Value, kind: &Kind, manifest: &Value) -> Vec<Fault> {
    walk(document, kind, manifest, false)
}

/// As `faults`, with the required fields that are missing: for a manifest that has its whole object.
pub fn faults_of_whole(document: &Value, kind: &Kind, manifest: &Value) -> Vec<Fault> {
    walk(document, kind, manifest, true)
}

fn walk(document: &Value, kind: &Kind, manifest: &Value, is_whole: bool) -> Vec<Fault> {
    let mut faults = vec![];
    let schemas = Schemas::of(document);
    let schema = schemas.and_then(|schemas| Some((schemas, schemas.of_kind(kind)?)));
    if let Some((schemas, schema)) = schema {
        let mut walk = Walk {
            schemas,
            is_whole,
            faults: &mut faults,
        };
        walk.value(schema, manifest, "");
    }
    faults
}

/// The valid fields of metadata. lynqgate builds an object's metadata itself and would drop any other field.
const METADATA: [&str; 15] = [
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// The first unknown field of the manifest's metadata.
pub fn unknown_metadata(manifest: &Value) -> Option<Fault> {
    let fields = manifest["metadata"].as_object()?;
    let key = fields
        .keys()
        .find(|key| !METADATA.contains(&key.as_str()))?;
    Some(Fault {
        path: format!("metadata.{key}"),
        what: format!("unknown field{}", did_you_mean(key, METADATA)),
    })
}

struct Walk<'a> {
    schemas: Schemas<'a>,
    is_whole: bool,
    faults: &'a mut Vec<Fault>,
}

impl<'a> Walk<'a> {
    fn value(&mut self, schema: &'a Value, value: &Value, path: &str) {
        let (schema, name) = self.schemas.resolved(schema);
        let is_quantity = name.ends_with(".Quantity");
        // Of some types both a number and a text may be.
        let either = is_quantity || schema["format"] == "int-or-string";
        if let Some(what) = mismatch(schema, value).filter(|_| !either) {
            let path = path.to_owned();
            self.faults.push(Fault { path, what });
            return;
        }
        match value {
            Value::Object(fields) => self.fields(schema, fields, path),
            Value::Array(items) => {
                for (number, item) in items.iter().enumerate() {
                    self.value(&schema["items"], item, &format!("{path}[{number}]"));
                }
            }
            Value::String(text) if is_quantity => self.quantity(text, path),
            Value::String(text) if schema["format"] == "byte" => self.base64(text, path),
            _ => {}
        }
    }

    fn fields(&mut self, schema: &'a Value, fields: &Map<String, Value>, path: &str) {
        let properties = schema["properties"].as_object();
        let others = &schema["additionalProperties"];
        let is_open = properties.is_none()
            || *others == true
            || others.is_object()
            || schema["x-kubernetes-preserve-unknown-fields"] == true;
        for (key, value) in fields {
            let at = below(path, key);
            match properties.and_then(|properties| properties.get(key)) {
                Some(schema) => self.value(schema, value, &at),
                None if is_open => self.value(others, value, &at),
                None => {
                    let known = properties.into_iter().flat_map(|all| all.keys());
                    let meant = did_you_mean(key, known.map(String::as_str));
                    self.faults.push(Fault {
                        path: at,
                        what: format!("unknown field{meant}"),
                    });
                }
            }
        }
        if self.is_whole {
            self.required(schema, fields, path);
        }
    }

    /// A required field that has a default may be missing. The schemas of Kubernetes itself require more than its API server does
    /// (serviceName of a StatefulSet), but give such a field the default "", 0 or {}.
    fn required(&mut self, schema: &Value, fields: &Map<String, Value>, path: &str) {
        let required = schema["required"].as_array().into_iter().flatten();
        for name in required.filter_map(Value::as_str) {
            let is_there = fields.get(name).is_some_and(|value| !value.is_null());
            if !is_there && schema["properties"][name]["default"].is_null() {
                self.faults.push(Fault {
                    path: below(path, name),
                    what: "missing; the field is required".to_owned(),
                });
            }
        }
    }

    /// The API server does not say where.
    fn base64(&mut self, text: &str, path: &str) {
        let joined: String = text.chars().filter(|c| !"\r\n".contains(*c)).collect();
        if STANDARD.decode(joined).is_err() {
            let other = match path.split('.').next() {
                Some("data") => "stringData",
                Some("binaryData") => "data",
                _ => "",
            };
            let instead = match other {
                "" => "encode it, for example with the function b64enc".to_owned(),
                other => format!("write it under {other}, as it is, or encode it (b64enc)"),
            };
            let (path, what) = (path.to_owned(), format!("not base64; {instead}"));
            self.faults.push(Fault { path, what });
        }
    }

    /// The API server does not say which one.
    fn quantity(&mut self, text: &str, path: &str) {
        // apimachinery's rule: a signed number with a binary or decimal suffix or an exponent.
        static QUANTITY: LazyLock<Regex> = LazyLock::new(|| {
            Regex::new(
                r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(([KMGTPE]i)|[numkMGTPE]|([eE][+-]?[0-9]+))?$",
            )
            .expect("a pattern")
        });
        if !QUANTITY.is_match(text) {
            let what = "not a quantity; write it like 64Mi, 1G, 500m or 2".to_owned();
            let path = path.to_owned();
            self.faults.push(Fault { path, what });
        }
    }
}

/// The path of a field of what is at `path`.
fn below(path: &str, field: &str) -> String {
    let dot = if path.is_empty() { "" } else { "." };
    format!("{path}{dot}{field}")
}

/// The error if the value's type differs from the schema's.
fn mismatch(schema: &Value, value: &Value) -> Option<String> {
    let found = match value {
        Value::Null => return None,
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    };
    let (wanted, hint) = match schema["type"].as_str()? {
        "boolean" => (
            "a boolean",
            "; write true or false, or end its template with bool",
        ),
        "integer" | "number" => (
            "a number",
            "; write it without quotes, or end its template with int",
        ),
        "string" => (
            "a text",
            "; put it in quotes, or end its template with toString",
        ),
        "array" => ("a list", ""),
        "object" => ("a map", ""),
        _ => return None,
    };
    let is_single = matches!(value, Value::Bool(_) | Value::Number(_) | Value::String(_));
    let hint = if is_single { hint } else { "" };
    (found != wanted).then(|| format!("expected {wanted}, got {found}{hint}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document() -> Value {
        let of = |name: &str| json!({"allOf": [{"$ref": format!("#/components/schemas/{name}")}], "default": {}});
        json!({"components": {"schemas": {
            "Deployment": {
                "type": "object",
                "properties": {
                    "apiVersion": {"type": "string"}, "kind": {"type": "string"},
                    "metadata": of("Meta"), "spec": of("Spec"),
                },
                "x-kubernetes-group-version-kind": [{"group": "apps", "kind": "Deployment", "version": "v1"}],
            },
            "Meta": {"properties": {"name": {"type": "string"}, "labels": {"additionalProperties": {"type": "string"}}}},
            "Spec": {"properties": {"containers": {"type": "array", "items": of("Container")}, "any": {"type": "object"}}},
            "Container": {"properties": {
                "name": {"type": "string"}, "port": {"type": "string", "format": "int-or-string"},
                "ports": {"items": {"properties": {"containerPort": {"type": "integer"}}}},
                "limits": {"additionalProperties": of("io.k8s.Quantity")},
                "ca": {"type": "string", "format": "byte"},
            }},
            "Secret": {
                "properties": {"data": {"additionalProperties": {"type": "string", "format": "byte"}}},
                "x-kubernetes-group-version-kind": [{"group": "apps", "kind": "Secret", "version": "v1"}],
            },
            "io.k8s.Quantity": {"type": "string"},
        }}})
    }

    fn found(spec: Value) -> Vec<String> {
        let kind = Kind {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
        };
        let manifest = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x", "labels": {"any": "x"}}, "spec": spec,
        });
        let faults = faults(&document(), &kind, &manifest);
        faults.iter().map(Fault::to_string).collect()
    }

    #[test]
    fn metadata_that_would_be_dropped_is_found() {
        let of = |metadata: Value| unknown_metadata(&json!({"metadata": metadata}));
        let good = json!({"labels": {"any": "x"}, "creationTimestamp": null});
        assert_eq!(of(good), None);
        assert_eq!(unknown_metadata(&json!({})), None);
        assert_eq!(
            of(json!({"lables": {}})).unwrap().to_string(),
            "metadata.lables: unknown field; did you mean \"labels\"?"
        );
    }

    #[test]
    fn a_required_field_without_a_default_is_missed_in_a_whole_manifest() {
        let bucket = json!({
            "kind": "CustomResourceDefinition",
            "spec": {
                "group": "example.com", "names": {"kind": "Bucket"},
                "versions": [
                    {"name": "v1", "schema": {"openAPIV3Schema": {
                        "type": "object", "required": ["spec"],
                        "properties": {
                            "metadata": {"type": "object", "properties": {"name": {"maxLength": 8}}},
                            "spec": {
                                "type": "object", "required": ["region", "size", "class"],
                                "properties": {
                                    "region": {"type": "string"}, "size": {"x-kubernetes-int-or-string": true},
                                    "class": {"type": "string", "default": "slow"},
                                },
                            },
                        },
                    }}},
                    {"name": "v2", "schema": {"openAPIV3Schema": {"type": "object"}}},
                    {"name": "v3"},
                ],
            },
        });
        let list = json!({"kind": "List", "items": [{"kind": "ConfigMap"}, bucket]});
        let found = documents(&list);
        assert_eq!(found.len(), 2);
        assert_eq!(documents(&bucket), found);
        assert_eq!(documents(&document()), [document()]);
        for none in [json!({"kind": "ConfigMap"}), json!([1]), Value::Null] {
            assert_eq!(documents(&none), Vec::<Value>::new(), "{none}");
        }
        let kind = Kind::new("example.com/v1", "Bucket");
        let of = |faults: fn(&Value, &Kind, &Value) -> Vec<Fault>, spec: Value| {
            let manifest = json!({
                "apiVersion": "example.com/v1", "kind": "Bucket", "metadata": {"name": "x", "labels": {}}, "spec": spec,
            });
            let faults = faults(&found[0], &kind, &manifest);
            let faults: Vec<String> = faults.iter().map(Fault::to_string).collect();
            faults.join(", ")
        };
        for (spec, part, whole) in [
            (json!({"region": "eu", "size": 1}), "", ""),
            (
                json!({"region": null, "size": "1Gi"}),
                "",
                "spec.region: missing; the field is required",
            ),
            (
                json!({"region": "eu", "siez": 1}),
                "spec.siez: unknown field; did you mean \"size\"?",
                "spec.siez: unknown field; did you mean \"size\"?, spec.size: missing; the field is required",
            ),
            (Value::Null, "", "spec: missing; the field is required"),
        ] {
            assert_eq!(of(faults, spec.clone()), part, "{spec}");
            assert_eq!(of(faults_of_whole, spec.clone()), whole, "{spec}");
        }
    }

    #[test]
    fn a_text_that_is_no_base64_is_found() {
        let of_container = |text: &str| found(json!({"containers": [{"ca": text}]}));
        assert_eq!(of_container("aGVs\nbG8="), [""; 0]);
        let said =
            "spec.containers[0].ca: not base64; encode it, for example with the function b64enc";
        assert_eq!(of_container("hello"), [said]);
        let kind = Kind {
            api_version: "apps/v1".into(),
            kind: "Secret".into(),
        };
        let secret = faults(&document(), &kind, &json!({"data": {"x": "hello"}}));
        assert_eq!(
            secret[0].to_string(),
            "data.x: not base64; write it under stringData, as it is, or encode it (b64enc)"
        );
    }

    #[test]
    fn what_the_schema_does_not_have_is_found_with_its_place() {
        let container = |more: Value| json!({"containers": [{"name": "app", "ports": [more]}]});
        let good = container(json!({"containerPort": 80}));
        assert_eq!(found(good), Vec::<String>::new());
        assert_eq!(
            found(container(json!({"containerPrt": 80}))),
            [
                "spec.containers[0].ports[0].containerPrt: unknown field; did you mean \"containerPort\"?"
            ]
        );
        assert_eq!(
            found(json!({"any": {"x": 1}, "quite": {"else": 2}})),
            ["spec.quite: unknown field"]
        );
        let limit = |text: &str| {
            found(json!({"containers": [{"limits": {"memory": text}}]}))
                .first()
                .cloned()
        };
        for good in ["64Mi", "1", "0.5", ".5", "500m", "1e3", "2E", "+1k"] {
            assert_eq!(limit(good), None, "{good}");
        }
        for bad in ["64MB", "64 Mi", "1,5", "Mi", "", "64mb"] {
            let said = limit(bad).unwrap_or_default();
            let place = "spec.containers[0].limits.memory: not a quantity; write it like 64Mi";
            assert!(said.starts_with(place), "{bad}: {said}");
        }
        let of_type = |container: Value| found(json!({"containers": container})).join(", ");
        for (container, said) in [
            (json!([{"name": "x", "port": 80}]), ""),
            (
                json!([{"name": true}]),
                "spec.containers[0].name: expected a text, got a boolean; put it in quotes, or end its template with toString",
            ),
            (
                json!([{"ports": [{"containerPort": "http"}]}]),
                "spec.containers[0].ports[0].containerPort: expected a number, got a text; write it without quotes, or end its template with int",
            ),
            (
                json!({"name": "x"}),
                "spec.containers: expected a list, got a map",
            ),
        ] {
            assert_eq!(of_type(container), said);
        }
        let other = Kind {
            api_version: "apps/v1".into(),
            kind: "Other".into(),
        };
        assert_eq!(faults(&document(), &other, &json!({"x": 1})), vec![]);
        assert_eq!(faults(&Value::Null, &other, &json!({"x": 1})), vec![]);
    }
}
