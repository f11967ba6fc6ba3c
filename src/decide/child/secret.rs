//! Converts a Secret's `stringData`, which the API server never returns, into `data`. lynqgate owns the keys that it applies as
//! `data`, so it detects when another manager changes one, or when one leaves the form. Redacts the values of a Secret's manifest.

use std::collections::BTreeSet;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value, json};

use crate::decide::child::fields::unite;

const PLACES: [&str; 2] = ["data", "stringData"];

/// Stands in the place of a value that is not shown.
pub const REDACTED: &str = "(redacted)";

fn is_secret(object: &Value) -> bool {
    object["apiVersion"] == "v1" && object["kind"] == "Secret"
}

/// `stringData` wins, as in Kubernetes. A value that is not a string stays, so that the API server rejects it by name.
pub fn fold(mut object: Value) -> Value {
    if !is_secret(&object) {
        return object;
    }
    let Some(texts) = object.get("stringData").and_then(Value::as_object) else {
        return object;
    };
    let mut folded = match &object["data"] {
        Value::Object(data) => data.clone(),
        Value::Null => Map::new(),
        _ => return object,
    };
    for (key, text) in texts {
        match text {
            Value::String(text) => {
                drop(folded.insert(key.clone(), BASE64_STANDARD.encode(text).into()))
            }
            Value::Null => {}
            _ => return object,
        }
    }
    object["data"] = folded.into();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("stringData");
    }
    object
}

/// The same for a set of fields that was owned by an apply of `stringData`.
pub fn fold_fields(fields: &mut Value, object: &Value) {
    if is_secret(object)
        && let Some(texts) = fields
            .as_object_mut()
            .and_then(|fields| fields.remove("f:stringData"))
    {
        unite(fields, &json!({"f:data": texts}));
    }
}

/// The Secret with each key in both `data` and `stringData`, so that a path finds it in either.
pub fn mirrored(object: &Value) -> Option<Value> {
    let mut all = Map::new();
    for place in PLACES.iter().filter(|_| is_secret(object)) {
        all.extend(object[place].as_object().cloned().unwrap_or_default());
    }
    let mut mirrored = object.clone();
    for place in PLACES.iter().filter(|_| !all.is_empty()) {
        mirrored[place] = all.clone().into();
    }
    (!all.is_empty()).then_some(mirrored)
}

/// Converts pointers into a mirrored object to pointers into the object itself.
pub fn unmirrored(pointers: Vec<String>, object: &Value) -> Vec<String> {
    let mut all = BTreeSet::new();
    for pointer in pointers {
        let mut parts = pointer.splitn(3, '/');
        let (place, below) = (parts.nth(1).unwrap_or_default(), parts.next());
        if !PLACES.contains(&place) {
            all.insert(pointer);
            continue;
        }
        let below = below.map(|below| format!("/{below}")).unwrap_or_default();
        all.extend(PLACES.map(|place| format!("/{place}{below}")));
    }
    all.retain(|pointer| object.pointer(pointer).is_some());
    all.into_iter().collect()
}

/// Replaces the values of a Secret's manifest, and keeps its keys. `told`: the text for the key of `data` or `stringData`.
pub fn redact(manifest: &mut Value, told: impl Fn(&str, &str) -> &'static str) {
    for place in PLACES {
        match manifest.get_mut(place) {
            None | Some(Value::Null) => {}
            Some(Value::Object(fields)) => {
                for (key, value) in fields {
                    *value = told(place, key).into();
                }
            }
            // Not a valid value for a Secret; a template may have put a secret value here.
            Some(other) => *other = REDACTED.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn string_data_becomes_data() {
        let secret = |fields: Value| {
            let mut secret = json!({"apiVersion": "v1", "kind": "Secret"});
            let all = secret.as_object_mut().expect("an object");
            all.extend(fields.as_object().expect("an object").clone());
            secret
        };
        for (name, said, folded) in [
            (
                "texts",
                json!({"stringData": {"a": "x", "b": ""}}),
                json!({"data": {"a": "eA==", "b": ""}}),
            ),
            (
                "both: the text wins",
                json!({"data": {"a": "b2xk", "c": "Yw=="}, "stringData": {"a": "x"}}),
                json!({"data": {"a": "eA==", "c": "Yw=="}}),
            ),
            (
                "a null is absent",
                json!({"stringData": {"a": null}, "data": null}),
                json!({"data": {}}),
            ),
            (
                "no text",
                json!({"stringData": {"a": 12}}),
                json!({"stringData": {"a": 12}}),
            ),
            (
                "no map",
                json!({"stringData": {"a": "x"}, "data": 1}),
                json!({"stringData": {"a": "x"}, "data": 1}),
            ),
            (
                "none",
                json!({"data": {"a": "eA=="}}),
                json!({"data": {"a": "eA=="}}),
            ),
        ] {
            assert_eq!(fold(secret(said)), secret(folded), "{name}");
        }
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "stringData": {"a": "x"}});
        assert_eq!(fold(map.clone()), map, "of a Secret only");
    }

    #[test]
    fn values_are_redacted_and_keys_stay() {
        for (name, manifest, redacted) in [
            ("none", json!({"kind": "Secret"}), json!({"kind": "Secret"})),
            (
                "both places",
                json!({"data": {"a": "eA=="}, "stringData": {"b": "x", "c": 1, "d": {"e": "x"}}}),
                json!({
                    "data": {"a": "(redacted)"},
                    "stringData": {"b": "(redacted)", "c": "(redacted)", "d": "(redacted)"},
                }),
            ),
            (
                "no map",
                json!({"data": "x", "stringData": ["x"]}),
                json!({"data": "(redacted)", "stringData": "(redacted)"}),
            ),
            ("null", json!({"data": null}), json!({"data": null})),
            ("no object", json!("x"), json!("x")),
        ] {
            let mut found = manifest;
            redact(&mut found, |_, _| REDACTED);
            assert_eq!(found, redacted, "{name}");
        }
    }
}
