//! What an API server would say of an object's fields, for who has none at hand: by the schema of lynqgate's own definitions.

use regex::Regex;
use serde_json::{Map, Value};

use crate::api::names;
use crate::decide::hub::rows::uid::is_subdomain;

/// The schema of the spec that a definition has.
pub fn of_spec(definition: &Value) -> &Value {
    &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
}

/// What is wrong with the apiVersion and the names of an object of lynqgate's.
pub fn misnamed(object: &Value, kind: &str) -> Vec<String> {
    let metadata = |field: &str| &object["metadata"][field];
    let mut found = vec![];
    let version = format!("{}/{}", names::GROUP, names::VERSION);
    if object["apiVersion"] != version.as_str() {
        found.push(format!("apiVersion: a {kind} is of {version}"));
    }
    let fits = |name: &str, most: usize| name.len() <= most && is_subdomain(name);
    if !metadata("name")
        .as_str()
        .is_some_and(|name| fits(name, 253))
    {
        found.push(format!(
            "metadata.name: {} cannot be a name; give up to 253 of a-z, 0-9, - and ., with a letter or digit at the beginning and \
             end of what stands between two dots",
            metadata("name")
        ));
    }
    let is_namespace = |name: &str| fits(name, 63) && !name.contains('.');
    let namespace = metadata("namespace");
    if !namespace.is_null()
        && !namespace
            .as_str()
            .is_some_and(|n| n.is_empty() || is_namespace(n))
    {
        found.push(format!(
            "metadata.namespace: {namespace} cannot be one; give up to 63 of a-z, 0-9 and -, with a letter or digit at the \
             beginning and end"
        ));
    }
    found
}

/// The value as it is looked at and stored: a field that is null is not there, unless the schema takes it as that, and what
/// is not there has its default.
pub fn filled(schema: &Value, value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let of = |name: &str| match &schema["properties"][name] {
                Value::Null => &schema["additionalProperties"],
                known => known,
            };
            let is_there = |(name, value): &(String, Value)| {
                !value.is_null() || !of(name).is_object() || of(name)["nullable"] == true
            };
            let there = fields.into_iter().filter(is_there);
            let mut there: Map<String, Value> = there
                .map(|(name, value)| {
                    let value = filled(of(&name), value);
                    (name, value)
                })
                .collect();
            for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
                if !schema["default"].is_null() && !there.contains_key(name) {
                    there.insert(name.clone(), schema["default"].clone());
                }
            }
            Value::Object(there)
        }
        Value::Array(items) => {
            let items = items.into_iter();
            items.map(|item| filled(&schema["items"], item)).collect()
        }
        other => other,
    }
}

/// What is wrong with the value, each with its place.
pub fn problems(schema: &Value, value: &Value, place: &str) -> Vec<String> {
    if value.is_null() && schema["nullable"] == true {
        return vec![];
    }
    if schema["x-kubernetes-int-or-string"] == true
        && let Some(text) = value.as_str()
    {
        let found = of_rules(schema, text, place);
        return found
            .into_iter()
            .chain(of_text(schema, text, place))
            .collect();
    }
    let wanted = match schema["x-kubernetes-int-or-string"] == true {
        true => "integer",
        false => schema["type"].as_str().unwrap_or_default(),
    };
    let fits = match wanted {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        _ => true,
    };
    if !fits {
        return vec![format!("{place}: it must be of type {wanted}")];
    }
    match value {
        Value::Object(fields) => of_fields(schema, fields, place),
        Value::Array(items) => {
            let each = items.iter().enumerate().flat_map(|(number, item)| {
                problems(&schema["items"], item, &format!("{place}[{number}]"))
            });
            let limit = schema["maxItems"].as_u64();
            let many = limit.filter(|limit| items.len() as u64 > *limit);
            let many = many.map(|limit| format!("{place}: it may have {limit} items"));
            each.chain(many).collect()
        }
        Value::String(text) => of_text(schema, text, place),
        Value::Number(number) => of_number(schema, number.as_f64().unwrap_or_default(), place),
        Value::Bool(_) | Value::Null => vec![],
    }
}

/// The rules of what is a number or a text, in their own words.
fn of_rules(schema: &Value, text: &str, place: &str) -> Vec<String> {
    let rules = schema["x-kubernetes-validations"].as_array();
    let rules = rules.into_iter().flatten();
    let broken = rules.filter(|rule| rule["rule"].as_str().is_some_and(|rule| !holds(rule, text)));
    let said = broken.map(|rule| {
        let message = rule["message"].as_str().unwrap_or_default();
        format!("{place}: {text:?}: {message}")
    });
    said.collect()
}

/// Whether one of a rule's alternatives is true of a text. They are of the few forms that the definitions have.
fn holds(rule: &str, text: &str) -> bool {
    rule.split(" || ").any(|alternative| {
        let quoted = |start, end| alternative.strip_prefix(start)?.strip_suffix(end);
        if let Some(pattern) = quoted("self.matches('", "')") {
            Regex::new(pattern).is_ok_and(|regex| regex.is_match(text))
        } else if let Some(word) = quoted("self != '", "'") {
            word != text
        } else {
            quoted("self == '", "'") == Some(text)
        }
    })
}

fn of_fields(schema: &Value, fields: &Map<String, Value>, place: &str) -> Vec<String> {
    let known = &schema["properties"];
    let others = &schema["additionalProperties"];
    let takes_any = schema["x-kubernetes-preserve-unknown-fields"] == true || known.is_null();
    let mut found = vec![];
    for (name, value) in fields {
        let place = format!("{place}.{name}");
        match (&known[name], others) {
            (Value::Null, Value::Null) if !takes_any => {
                let names = known
                    .as_object()
                    .into_iter()
                    .flatten()
                    .map(|(name, _)| name);
                let names: Vec<&str> = names.map(String::as_str).collect();
                found.push(format!(
                    "{place}: there is no such field; there are {}",
                    names.join(", ")
                ));
            }
            (Value::Null, Value::Null) => {}
            (Value::Null, schema) | (schema, _) => found.extend(problems(schema, value, &place)),
        }
    }
    if fields.len() < schema["minProperties"].as_u64().unwrap_or_default() as usize {
        found.push(format!("{place}: it must not be empty"));
    }
    let required = schema["required"].as_array().into_iter().flatten();
    let missing = required.filter_map(Value::as_str);
    let missing = missing.filter(|name| fields.get(*name).is_none_or(Value::is_null));
    found.extend(missing.map(|name| format!("{place}.{name}: it is missing")));
    found
}

fn of_text(schema: &Value, text: &str, place: &str) -> Vec<String> {
    let length = text.chars().count() as u64;
    let mut found = vec![];
    if let Some(words) = schema["enum"].as_array()
        && !words.iter().any(|word| word == text)
    {
        let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
        found.push(format!("{place}: it must be one of {}", words.join(", ")));
    }
    if schema["minLength"]
        .as_u64()
        .is_some_and(|least| length < least)
    {
        found.push(format!("{place}: it must not be empty"));
    }
    if let Some(most) = schema["maxLength"].as_u64().filter(|most| length > *most) {
        found.push(format!("{place}: it may have {most} characters"));
    }
    if let Some(pattern) = schema["pattern"].as_str()
        && Regex::new(pattern).is_ok_and(|regex| !regex.is_match(text))
    {
        found.push(format!("{place}: {text:?} does not match {pattern}"));
    }
    found
}

fn of_number(schema: &Value, number: f64, place: &str) -> Vec<String> {
    let least = schema["minimum"].as_f64().filter(|least| number < *least);
    let most = schema["maximum"].as_f64().filter(|most| number > *most);
    let low = least.map(|least| format!("{place}: it must be {least} at least"));
    let high = most.map(|most| format!("{place}: it may be {most} at most"));
    low.into_iter().chain(high).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;
    use crate::api::crd;

    #[test]
    fn each_problem_has_its_place() {
        let form = json!({
            "hubId": "h",
            "rollout": {
                "maxSkew": "101%", "maxFailures": "0%", "progressDeadlineSeconds": 5, "creation": "Later", "minDelay": "1d",
                "order": [{"name": "canaries", "matchLabels": {}}, {"name": "late", "matchLabels": {"a": "b"}}],
            },
            "deployments": [
                {"id": "app", "spec": {"apiVersion": "apps/v1", "anything": [1]}, "dependsOn": ["x"], "timeoutSeconds": "a"},
                {"spec": {}, "minDelay": "-1s"},
            ],
            "services": [
                {"id": "a", "spec": {}, "minDelay": "10x"}, {"id": "b", "spec": {}, "minDelay": "10s "},
                {"id": "c", "spec": {}, "minDelay": "90m"},
            ],
            "confMaps": [], "allowedNamespaces": [null],
        });
        let hub = json!({
            "source": {"type": "configMap", "configMap": {"name": "rows", "key": "rows.txt"}, "syncInterval": "1 day"},
            "valueMappings": {"uid": "id", "activate": "on"}, "rollout": {"minDelay": "1", "maxSkew": "0%"},
            "guard": {"maxDeletions": "0%"},
        });
        let [of_hubs, of_forms, _] = crd::definitions();
        for (definition, spec, starts) in [
            (
                of_forms,
                form,
                &[
                    "spec.allowedNamespaces[0]: it must be of type string",
                    "spec.confMaps: there is no such field; there are allowedNamespaces, configMaps, ",
                    "spec.deployments[0].dependsOn: there is no such field; there are ",
                    "spec.deployments[0].timeoutSeconds: it must be of type integer",
                    "spec.deployments[1].id: it is missing",
                    "spec.deployments[1].minDelay: \"-1s\" does not match ^[0-9]{1,5}(s|m|h)$",
                    "spec.rollout.creation: it must be one of Gated, Immediate",
                    "spec.rollout.maxFailures: \"0%\": give a number of nodes, or a percentage from 1% to 100%",
                    "spec.rollout.maxSkew: \"101%\": give a number of nodes, or a percentage from 1% to 100%",
                    "spec.rollout.minDelay: \"1d\" does not match ",
                    "spec.rollout.order[0].matchLabels: it must not be empty",
                    "spec.rollout.progressDeadlineSeconds: it must be 60 at least",
                    "spec.services[0].minDelay: \"10x\" does not match ",
                    "spec.services[1].minDelay: \"10s \" does not match ",
                ][..],
            ),
            (
                of_hubs,
                hub,
                &[
                    "spec.guard.maxDeletions: \"0%\": give a number of nodes, or a percentage from 1% to 100%",
                    "spec.rollout.maxSkew: \"0%\": 0% would release nothing; to stop a rollout set paused: true",
                    "spec.rollout.minDelay: \"1\" does not match ",
                    "spec.source.configMap.key: \"rows.txt\" does not match \\.(csv|yaml|yml|json)$",
                    "spec.source.syncInterval: \"1 day\" does not match ^[0-9]{1,9}(s|m|h)$",
                ][..],
            ),
        ] {
            let found = problems(of_spec(&definition), &spec, "spec");
            assert_eq!(found.len(), starts.len(), "{found:#?}");
            for start in starts {
                assert!(
                    found.iter().any(|said| said.starts_with(start)),
                    "{start}: {found:#?}"
                );
            }
        }
    }

    #[test]
    fn empty_fields_are_as_the_api_server_has_them() {
        let [_, of_forms, _] = crd::definitions();
        let schema = of_spec(&of_forms);
        let form = json!({
            "hubId": "h", "templateEngine": null, "allowedNamespaces": null, "services": null, "nosuch": null,
            "rollout": {"maxSkew": null, "progressDeadlineSeconds": null, "order": null, "skewCounts": "Released"},
            "deployments": [{
                "id": "a", "dependIds": null, "labelsTemplate": {"a": null, "b": "c"}, "waitForReady": null, "minDelay": null,
                "spec": {"a": null, "b": [null]}, "conflictPolicy": "Force",
            }],
            "configMaps": [null],
        });
        let expected = json!({
            "hubId": "h", "templateEngine": "Go", "nosuch": null,
            "rollout": {
                "maxSkew": null, "progressDeadlineSeconds": 600, "creation": "Gated", "skewCounts": "Released",
            },
            "deployments": [{
                "id": "a", "labelsTemplate": {"b": "c"}, "waitForReady": true, "minDelay": null,
                "spec": {"a": null, "b": [null]}, "conflictPolicy": "Force",
                "creationPolicy": "WhenNeeded", "deletionPolicy": "Delete", "patchStrategy": "apply",
                "skipOnDependencyFailure": true, "timeoutSeconds": 300,
            }],
            "configMaps": [null],
        });
        let filled = filled(schema, form);
        assert_eq!(filled, expected);
        let found = problems(schema, &filled, "spec");
        let wrong = |start: &str| found.iter().any(|said| said.starts_with(start));
        assert!(
            wrong("spec.configMaps[0]: it must be of type object"),
            "{found:?}"
        );
        assert!(wrong("spec.nosuch: there is no such field"), "{found:?}");
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn names_are_the_api_servers() {
        let of = |version: &str, name: Value, namespace: Value| {
            let metadata = json!({"name": name, "namespace": namespace});
            misnamed(
                &json!({"apiVersion": version, "metadata": metadata}),
                "LynqForm",
            )
            .join("; ")
        };
        let good = "operator.lynq.sh/v1";
        for namespace in [Value::Null, json!(""), json!("team-a")] {
            assert_eq!(of(good, json!("web.1-a"), namespace), "");
        }
        for name in [
            json!("Web"),
            json!("a_b"),
            json!("-a"),
            json!(1),
            json!(""),
            Value::Null,
            json!("a".repeat(254)),
        ] {
            let said = of(good, name.clone(), Value::Null);
            assert!(
                said.starts_with(&format!("metadata.name: {name} cannot")),
                "{said}"
            );
        }
        for namespace in [json!("a.b"), json!("A"), json!(1), json!("a".repeat(64))] {
            let said = of(good, json!("web"), namespace.clone());
            assert!(
                said.starts_with(&format!("metadata.namespace: {namespace} cannot")),
                "{said}"
            );
        }
        let said = of("v1", json!("web"), Value::Null);
        assert_eq!(said, "apiVersion: a LynqForm is of operator.lynq.sh/v1");
    }

    /// The words of a schema and of those below it, and its rules.
    fn note_words(schema: &Value, words: &mut BTreeSet<String>) {
        for (word, value) in schema.as_object().into_iter().flatten() {
            words.insert(word.clone());
            match (word.as_str(), value) {
                ("properties", Value::Object(fields)) => {
                    fields.values().for_each(|field| note_words(field, words));
                }
                ("items" | "additionalProperties", inner) => note_words(inner, words),
                ("x-kubernetes-validations", Value::Array(rules)) => {
                    let rules = rules.iter().filter_map(|rule| rule["rule"].as_str());
                    words.extend(rules.map(str::to_owned));
                }
                _ => {}
            }
        }
    }

    /// Who uses another word in a definition says here what looks at it.
    #[test]
    fn whatever_the_definitions_demand_is_looked_at() {
        const HERE: [&str; 19] = [
            // Of a text; of a number there is nothing left to say.
            "type(self) == int || self != '0%'",
            "type(self) == int || self == '0%' || self.matches('^([1-9][0-9]?|100)%$')",
            "type(self) == int || self.matches('^([1-9][0-9]?|100)%$')",
            "additionalProperties",
            "default",
            "enum",
            "items",
            "maxItems",
            "maxLength",
            "maximum",
            "minLength",
            "minProperties",
            "minimum",
            "nullable",
            "pattern",
            "properties",
            "required",
            "type",
            "x-kubernetes-int-or-string",
        ];
        const DEMANDS_NOTHING: [&str; 4] = [
            "description",
            "x-kubernetes-list-type",
            "x-kubernetes-map-type",
            "x-kubernetes-preserve-unknown-fields",
        ];
        const BY_ADMISSION: [&str; 6] = [
            // A probe is parsed, a number read, an id looked for twice.
            "oneOf",
            "format",
            "x-kubernetes-list-map-keys",
            "x-kubernetes-validations",
            "has(self.label) != has(self.variable)",
            "has(self.when) != has(self.matchLabels)",
        ];
        // There is none before.
        const OF_CHANGES: [&str; 1] = ["self == oldSelf"];
        let [of_hubs, of_forms, _] = crd::definitions();
        let mut words = BTreeSet::new();
        for definition in [&of_hubs, &of_forms] {
            note_words(of_spec(definition), &mut words);
        }
        let known = [&HERE[..], &DEMANDS_NOTHING, &BY_ADMISSION, &OF_CHANGES].concat();
        let known: BTreeSet<String> = known.into_iter().map(str::to_owned).collect();
        assert_eq!(words, known);
    }
}
