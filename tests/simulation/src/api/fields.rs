//! Who owns which field, as the API server keeps it in `managedFields`. Maps are divided into their fields; a list is one value.

use serde_json::{Map, Value, json};

/// What nobody owns.
const NOT_OWNED: [&str; 8] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "managedFields",
];

/// The fields of an object, as `fieldsV1`.
pub fn of_object(object: &Value) -> Value {
    let mut fields = of(object);
    if let Some(all) = fields.as_object_mut() {
        all.remove("f:apiVersion");
        all.remove("f:kind");
        if let Some(metadata) = all.get_mut("f:metadata").and_then(Value::as_object_mut) {
            metadata.retain(|name, _| !NOT_OWNED.contains(&&name[2..]));
            if metadata.is_empty() {
                all.remove("f:metadata");
            }
        }
    }
    fields
}

fn of(value: &Value) -> Value {
    let fields = value.as_object().into_iter().flatten();
    fields
        .map(|(name, below)| (format!("f:{name}"), of(below)))
        .collect::<Map<_, _>>()
        .into()
}

fn is_leaf(fields: &Value) -> bool {
    fields.as_object().is_none_or(Map::is_empty)
}

/// All of `more` is in `fields` then.
pub fn unite(fields: &mut Value, more: &Value) {
    for (name, below) in more.as_object().into_iter().flatten() {
        unite(&mut fields[name], below);
    }
    if fields.is_null() {
        *fields = json!({});
    }
}

/// Takes the leaves of `less` out of `fields`; whether nothing is left.
pub fn subtract(fields: &mut Value, less: &Value) -> bool {
    let (Some(all), Some(less)) = (fields.as_object_mut(), less.as_object()) else {
        return true;
    };
    if all.is_empty() || less.is_empty() {
        return true;
    }
    for (name, below) in less {
        if let Some(known) = all.get_mut(name)
            && subtract(known, below)
        {
            all.remove(name);
        }
    }
    all.is_empty()
}

/// The paths of the leaves, as names.
pub fn leaves(fields: &Value) -> Vec<Vec<String>> {
    fn collect(fields: &Value, path: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
        if is_leaf(fields) {
            return found.push(path.clone());
        }
        for (name, below) in fields.as_object().into_iter().flatten() {
            path.push(name[2..].to_owned());
            collect(below, path, found);
            path.pop();
        }
    }
    let mut found = vec![];
    if !is_leaf(fields) {
        collect(fields, &mut vec![], &mut found);
    }
    found
}

pub fn get<'a>(object: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, name| value.get(name))
}

/// Whether these fields have the path, or one above it as a whole.
pub fn has(fields: &Value, path: &[String]) -> bool {
    let mut fields = fields;
    for name in path {
        match fields.get(format!("f:{name}")) {
            Some(below) => fields = below,
            None => return false,
        }
        if is_leaf(fields) {
            return true;
        }
    }
    true
}

/// Takes a field away, and the maps that are empty then.
pub fn remove(object: &mut Value, path: &[String]) {
    let Some((name, below)) = path.split_first() else {
        return;
    };
    let Some(all) = object.as_object_mut() else {
        return;
    };
    match (all.get_mut(name), below.is_empty()) {
        (Some(value), false) => {
            remove(value, below);
            if value.as_object().is_some_and(Map::is_empty) {
                all.remove(name);
            }
        }
        _ => drop(all.remove(name)),
    }
}

/// The fields that differ between two versions: what the newer has, and what it has not any more.
pub fn changed(old: &Value, new: &Value) -> (Value, Value) {
    let (before, after) = (of_object(old), of_object(new));
    let mut set = json!({});
    let mut gone = json!({});
    for path in leaves(&after) {
        if get(old, &path) != get(new, &path) {
            put(&mut set, &path);
        }
    }
    for path in leaves(&before) {
        if get(new, &path).is_none() {
            put(&mut gone, &path);
        }
    }
    (set, gone)
}

fn put(fields: &mut Value, path: &[String]) {
    match path.split_first() {
        None if fields.is_null() => *fields = json!({}),
        None => {}
        Some((name, below)) => put(&mut fields[format!("f:{name}")], below),
    }
}
