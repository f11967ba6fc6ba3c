//! Finds which fields of a kind are strings, from the schema that the API server publishes. A template may give a number where
//! Kubernetes requires a string (`value: "{{ .port | int }}"` in an env), which the API server would reject.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::decide::child::Kind;
use crate::decide::child::schema::Schemas;

/// The fields of a kind that hold texts; all others are left out.
#[derive(Clone, Debug, PartialEq)]
pub enum Texts {
    Text,
    /// Each item of a list, or each value of a map.
    Each(Box<Texts>),
    Fields(BTreeMap<String, Texts>),
}

impl Texts {
    /// Reads the OpenAPI v3 document for the kind's group and version.
    pub fn of(document: &Value, kind: &Kind) -> Option<Texts> {
        let schemas = Schemas::of(document)?;
        read(schemas, schemas.of_kind(kind)?, &mut Vec::new())
    }

    /// Whether there may be anything to convert. Labels and annotations are always rendered as strings.
    pub fn concern(manifest: &Value) -> bool {
        fn has_other(value: &Value) -> bool {
            match value {
                Value::Number(_) | Value::Bool(_) => true,
                Value::Array(items) => items.iter().any(has_other),
                Value::Object(fields) => fields.values().any(has_other),
                Value::Null | Value::String(_) => false,
            }
        }
        let mut fields = manifest.as_object().into_iter().flatten();
        fields.any(|(name, value)| name != "metadata" && has_other(value))
    }

    /// Converts numbers and booleans to strings where the kind requires strings.
    pub fn convert(&self, value: &mut Value) {
        match (self, value) {
            (Texts::Text, value @ (Value::Number(_) | Value::Bool(_))) => {
                *value = Value::String(value.to_string());
            }
            (Texts::Each(each), Value::Array(items)) => {
                items.iter_mut().for_each(|item| each.convert(item));
            }
            (Texts::Each(each), Value::Object(items)) => {
                items.values_mut().for_each(|item| each.convert(item));
            }
            (Texts::Fields(fields), Value::Object(object)) => {
                for (name, texts) in fields {
                    if let Some(value) = object.get_mut(name) {
                        texts.convert(value);
                    }
                }
            }
            _ => {}
        }
    }
}

/// `above`: the names of the enclosing schemas. Recursion into one of them stops.
fn read<'a>(schemas: Schemas<'a>, schema: &'a Value, above: &mut Vec<&'a str>) -> Option<Texts> {
    let (schema, name) = schemas.resolved(schema);
    if name.is_empty() {
        return of_parts(schemas, schema, above);
    }
    if above.contains(&name) {
        return None;
    }
    above.push(name);
    let found = of_parts(schemas, schema, above);
    above.pop();
    found
}

fn of_parts<'a>(
    schemas: Schemas<'a>,
    schema: &'a Value,
    above: &mut Vec<&'a str>,
) -> Option<Texts> {
    // A field that accepts a string or a number (ports, quantities) has no single type, and is left alone.
    if schema["type"] == "string" {
        return Some(Texts::Text);
    }
    for each in ["items", "additionalProperties"] {
        if schema[each].is_object() {
            let each = read(schemas, &schema[each], above)?;
            return Some(Texts::Each(Box::new(each)));
        }
    }
    let fields = schema["properties"].as_object()?.iter();
    let fields =
        fields.filter_map(|(name, schema)| Some((name.clone(), read(schemas, schema, above)?)));
    let fields: BTreeMap<String, Texts> = fields.collect();
    (!fields.is_empty()).then_some(Texts::Fields(fields))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document() -> Value {
        let reference = |name: &str| json!({"allOf": [{"$ref": format!("#/components/schemas/{name}")}], "default": {}});
        json!({"components": {"schemas": {
            "Deployment": {
                "type": "object",
                "properties": {
                    "apiVersion": {"type": "string"},
                    "metadata": reference("Meta"),
                    "spec": reference("Spec"),
                },
                "x-kubernetes-group-version-kind": [{"group": "apps", "kind": "Deployment", "version": "v1"}],
            },
            "Meta": {"type": "object", "properties": {
                "generation": {"type": "integer"},
                "annotations": {"type": "object", "additionalProperties": {"type": "string", "default": ""}},
            }},
            "Spec": {"type": "object", "properties": {
                "replicas": {"type": "integer"},
                "paused": {"type": "boolean"},
                "args": {"type": "array", "items": {"type": "string"}},
                "env": {"type": "array", "items": reference("Env")},
                "limits": {"type": "object", "additionalProperties": {"oneOf": [{"type": "string"}, {"type": "number"}]}},
                "port": {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]},
                "self": reference("Spec"),
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            }},
            "Env": {"type": "object", "properties": {"name": {"type": "string"}, "value": {"type": "string"}}},
        }}})
    }

    fn kind(api_version: &str, kind: &str) -> Kind {
        Kind {
            api_version: api_version.into(),
            kind: kind.into(),
        }
    }

    #[test]
    fn a_number_is_a_text_where_the_schema_wants_a_text() {
        let texts = Texts::of(&document(), &kind("apps/v1", "Deployment")).expect("a schema");
        let given = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"generation": 7, "annotations": {"port": 8080, "on": true, "text": "x"}},
            "spec": {
                "replicas": 3, "paused": false, "args": ["--port", 8080, 1.5, true, null],
                "env": [{"name": "PORT", "value": 8080}, {"name": "ON", "value": false}, "odd", {"value": [1]}],
                "limits": {"cpu": 1}, "port": 80, "self": {"args": [1]}, "free": {"value": 1}, "unknown": 1,
            },
        });
        let mut expected = given.clone();
        expected["metadata"]["annotations"] = json!({"port": "8080", "on": "true", "text": "x"});
        expected["spec"]["args"] = json!(["--port", "8080", "1.5", "true", null]);
        expected["spec"]["env"][0]["value"] = json!("8080");
        expected["spec"]["env"][1]["value"] = json!("false");
        let mut converted = given;
        texts.convert(&mut converted);
        assert_eq!(converted, expected);
        texts.convert(&mut converted);
        assert_eq!(converted, expected, "again");
    }

    #[test]
    fn what_has_nothing_but_texts_needs_no_schema() {
        let tied = json!({"ownerReferences": [{"controller": true}]});
        assert!(!Texts::concern(
            &json!({"metadata": tied, "data": {"a": "1"}})
        ));
        assert!(Texts::concern(
            &json!({"metadata": tied, "spec": {"a": [{"b": 1}]}})
        ));
    }

    #[test]
    fn a_kind_without_a_schema_is_left_as_it_is() {
        for (api_version, name) in [
            ("apps/v1", "StatefulSet"),
            ("apps/v2", "Deployment"),
            ("v1", "Deployment"),
        ] {
            assert_eq!(Texts::of(&document(), &kind(api_version, name)), None);
        }
        assert_eq!(
            Texts::of(&json!("odd"), &kind("apps/v1", "Deployment")),
            None
        );
    }
}
