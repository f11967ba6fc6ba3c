//! Sets of fields in the form that `managedFields` has them (FieldsV1): `f:name` is a field, `k:{…}` and `v:…` an element of a
//! list, `.` the place itself, and what has nothing below it a whole value.

use serde_json::{Map, Value, json};

/// The set names the whole value here.
pub fn is_leaf(fields: &Value) -> bool {
    fields.as_object().is_some_and(Map::is_empty)
}

/// Elements are named by their keys (`k:{"name":"web"}`) or, in a set, by their values (`v:"web"`).
pub fn names_element(token: &str, item: &Value) -> bool {
    match (token.get(..2), parsed(token)) {
        (Some("k:"), Some(Value::Object(keys))) => {
            keys.iter().all(|(key, value)| item.get(key) == Some(value))
        }
        (Some("v:"), Some(value)) => value == *item,
        _ => false,
    }
}

pub fn parsed(token: &str) -> Option<Value> {
    serde_json::from_str(token.split_once(':')?.1).ok()
}

/// The same for a manifest, which may leave out keys that the API server fills in.
pub fn may_name(token: &str, item: &Value) -> bool {
    match (token.get(..2), parsed(token)) {
        (Some("k:"), Some(Value::Object(keys))) => {
            let differs =
                |(key, value): (&String, &Value)| item.get(key).is_some_and(|other| other != value);
            item.is_object() && !keys.iter().any(differs)
        }
        _ => names_element(token, item),
    }
}

pub fn element<'a>(token: &str, list: Option<&'a Value>) -> Option<&'a Value> {
    let mut items = list?.as_array()?.iter();
    items.find(|item| names_element(token, item))
}

/// Adds the tokens of `more`.
pub fn unite(fields: &mut Value, more: &Value) {
    if !fields.is_object() {
        *fields = json!({});
    }
    if let (Some(fields), Some(more)) = (fields.as_object_mut(), more.as_object()) {
        for (token, more) in more {
            unite(fields.entry(token).or_insert_with(|| json!({})), more);
        }
    }
}

/// Removes the tokens of `less`; returns whether anything changed. A place that loses a part no longer names itself (`.`).
pub fn subtract(fields: &mut Value, less: &Value) -> bool {
    let (Some(fields), Some(less)) = (fields.as_object_mut(), less.as_object()) else {
        return false;
    };
    let mut changed = false;
    for (token, less) in less {
        let Some(below) = fields.get_mut(token) else {
            continue;
        };
        if is_leaf(less) {
            fields.remove(token);
            changed = true;
        } else if !is_leaf(below) && subtract(below, less) {
            changed = true;
            if is_leaf(below) {
                fields.remove(token);
            }
        }
    }
    if changed {
        fields.remove(".");
    }
    changed
}

/// The part of the second set that the first one also names, without the parents' own `.` tokens.
pub fn shared(fields: &Value, other: &Value) -> Value {
    let (Some(fields), Some(other)) = (fields.as_object(), other.as_object()) else {
        return json!({});
    };
    let tokens = other.iter().filter(|(token, _)| *token != ".");
    let both = tokens.filter_map(|(token, other)| {
        let fields = fields.get(token)?;
        if is_leaf(fields) || is_leaf(other) {
            return Some((token.clone(), other.clone()));
        }
        let both = shared(fields, other);
        (!is_leaf(&both)).then(|| (token.clone(), both))
    });
    Value::Object(both.collect())
}

/// Whether the first set names everything in the second.
pub fn covers(fields: &Value, other: &Value) -> bool {
    let (Some(fields), Some(other)) = (fields.as_object(), other.as_object()) else {
        return false;
    };
    let mut tokens = other.iter().filter(|(token, _)| *token != ".");
    tokens.all(|(token, other)| {
        let of_it = fields.get(token);
        of_it.is_some_and(|of_it| is_leaf(of_it) || (!is_leaf(other) && covers(of_it, other)))
    })
}

/// What the set names and the manifest does not, as far as the manifest alone shows: the API server fills in keys of lists.
pub fn unnamed(fields: &Value, manifest: &Value) -> Value {
    let Some(fields) = fields.as_object() else {
        return json!({});
    };
    let mut left = Map::new();
    let mut free: Vec<&Value> = manifest.as_array().into_iter().flatten().collect();
    for (token, below) in fields.iter().filter(|(token, _)| *token != ".") {
        let named = match token.strip_prefix("f:") {
            Some(name) => manifest.get(name).filter(|value| !value.is_null()),
            None => {
                let exact = free.iter().position(|item| names_element(token, item));
                let at = exact.or_else(|| free.iter().position(|item| may_name(token, item)));
                at.map(|at| free.remove(at))
            }
        };
        let below = match named {
            None => Some(below.clone()),
            Some(_) if is_leaf(below) => None,
            Some(value) => Some(unnamed(below, value)).filter(|left| !is_leaf(left)),
        };
        left.extend(below.map(|below| (token.clone(), below)));
    }
    Value::Object(left)
}

/// The part of the object that the set names, including the keys of list elements.
pub fn extract(object: &Value, fields: &Value) -> Value {
    let Some(tokens) = fields.as_object().filter(|fields| !fields.is_empty()) else {
        return object.clone();
    };
    match object {
        Value::Object(of_object) => {
            let part = tokens.iter().filter_map(|(token, below)| {
                let name = token.strip_prefix("f:")?;
                Some((name.to_owned(), extract(of_object.get(name)?, below)))
            });
            Value::Object(part.collect())
        }
        Value::Array(items) => {
            let part = items.iter().filter_map(|item| {
                let mut tokens = tokens.iter();
                let (token, below) = tokens.find(|(token, _)| names_element(token, item))?;
                let mut part = extract(item, below);
                if let (Some(part), Some(Value::Object(keys))) =
                    (part.as_object_mut(), parsed(token))
                {
                    part.extend(keys);
                }
                Some(part)
            });
            Value::Array(part.collect())
        }
        other => other.clone(),
    }
}

/// Removes from the object what the set names.
pub fn remove(object: &mut Value, fields: &Value) {
    let Some(tokens) = fields.as_object() else {
        return;
    };
    let is_whole = |below: &Value| is_leaf(below) || below.get(".").is_some();
    for (token, below) in tokens.iter().filter(|(token, _)| *token != ".") {
        match (object.as_object_mut(), token.strip_prefix("f:")) {
            (Some(of_object), Some(name)) if is_whole(below) => drop(of_object.remove(name)),
            (Some(of_object), Some(name)) => {
                of_object
                    .get_mut(name)
                    .into_iter()
                    .for_each(|value| remove(value, below));
            }
            _ => {
                let Some(items) = object.as_array_mut() else {
                    continue;
                };
                items.retain(|item| !(is_whole(below) && names_element(token, item)));
                let named = items.iter_mut().find(|item| names_element(token, item));
                named.into_iter().for_each(|item| remove(item, below));
            }
        }
    }
}

/// The set as readable paths.
pub fn paths(fields: &Value) -> Vec<String> {
    let mut paths = vec![];
    note_paths(fields, "", &mut paths);
    paths
}

fn note_paths(fields: &Value, path: &str, paths: &mut Vec<String>) {
    let Some(tokens) = fields.as_object() else {
        return;
    };
    if tokens.is_empty() || tokens.contains_key(".") {
        paths.push(path.trim_start_matches('.').to_owned());
        return;
    }
    for (token, below) in tokens {
        let place = match (token.strip_prefix("f:"), parsed(token)) {
            (Some(name), _) => format!(".{name}"),
            (None, Some(Value::Object(keys))) => {
                let keys: Vec<String> = keys.iter().map(|(k, v)| format!("{k}={v}")).collect();
                format!("[{}]", keys.join(","))
            }
            (None, Some(value)) => format!("[={value}]"),
            (None, None) => continue,
        };
        note_paths(below, &format!("{path}{place}"), paths);
    }
}
