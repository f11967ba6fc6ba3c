//! What an API server would say of an object's fields, for who has none at hand: by the schema of lynqgate's own definitions.

use regex::Regex;
use serde_json::Value;

/// The schema of the spec that a definition has.
pub fn of_spec(definition: &Value) -> &Value {
    &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
}

/// What is wrong with the value, each with its place.
pub fn problems(schema: &Value, value: &Value, place: &str) -> Vec<String> {
    if value.is_null() {
        return vec![];
    }
    if schema["x-kubernetes-int-or-string"] == true && value.is_string() {
        return vec![];
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

fn of_fields(schema: &Value, fields: &serde_json::Map<String, Value>, place: &str) -> Vec<String> {
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
                "maxSkew": "10%", "progressDeadlineSeconds": 5, "creation": "Later", "minDelay": "1d",
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
            "confMaps": [],
        });
        let hub = json!({
            "source": {"type": "configMap", "configMap": {"name": "rows", "key": "rows.txt"}, "syncInterval": "1 day"},
            "valueMappings": {"uid": "id", "activate": "on"}, "rollout": {"minDelay": "1"},
        });
        let [of_hubs, of_forms, _] = crd::definitions();
        for (definition, spec, starts) in [
            (
                of_forms,
                form,
                &[
                    "spec.confMaps: there is no such field; there are allowedNamespaces, configMaps, ",
                    "spec.deployments[0].dependsOn: there is no such field; there are ",
                    "spec.deployments[0].timeoutSeconds: it must be of type integer",
                    "spec.deployments[1].id: it is missing",
                    "spec.deployments[1].minDelay: \"-1s\" does not match ^[0-9]{1,5}(s|m|h)$",
                    "spec.rollout.creation: it must be one of Gated, Immediate",
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
        const HERE: [&str; 14] = [
            "additionalProperties",
            "enum",
            "items",
            "maxItems",
            "maxLength",
            "maximum",
            "minLength",
            "minProperties",
            "minimum",
            "pattern",
            "properties",
            "required",
            "type",
            "x-kubernetes-int-or-string",
        ];
        const DEMANDS_NOTHING: [&str; 6] = [
            "default",
            "description",
            "nullable",
            "x-kubernetes-list-type",
            "x-kubernetes-map-type",
            "x-kubernetes-preserve-unknown-fields",
        ];
        const BY_ADMISSION: [&str; 8] = [
            // A probe is parsed, a number read, an id looked for twice.
            "oneOf",
            "format",
            "x-kubernetes-list-map-keys",
            "x-kubernetes-validations",
            // What a number of nodes or a percentage may be says the type that reads it.
            "type(self) == int || self != '0%'",
            "type(self) == int || self == '0%' || self.matches('^([1-9][0-9]?|100)%$')",
            "type(self) == int || self.matches('^([1-9][0-9]?|100)%$')",
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
