//! What other field managers own of an object, by its `managedFields`.

use serde_json::{Map, Value};

use crate::api::names;
use crate::decide::path::unescaped;

/// What is there, without what other field managers own of it; None where that is all.
pub fn without_others(live: &Value, pointer: &str) -> Option<Value> {
    let mut value = live.pointer(pointer)?.clone();
    let parent = pointer
        .rsplit_once('/')
        .and_then(|(parent, _)| live.pointer(parent));
    let is_element = parent.is_some_and(Value::is_array);
    let managers = live["metadata"]["managedFields"].as_array();
    for entry in managers.into_iter().flatten() {
        if entry["manager"] == names::FIELD_MANAGER && entry["operation"] == "Apply" {
            continue;
        }
        let Some(fields) = owned(&entry["fieldsV1"], live, pointer) else {
            continue;
        };
        let is_theirs = is_leaf(fields) || (is_element && fields.get(".").is_some());
        if is_theirs || !prune(&mut value, fields) {
            return None;
        }
    }
    Some(value)
}

/// Takes out of an object what these fields name; false if nothing is left.
fn prune(value: &mut Value, fields: &Value) -> bool {
    let (Some(of_value), Some(fields)) = (value.as_object_mut(), fields.as_object()) else {
        return true;
    };
    for (name, below) in fields {
        let Some(name) = name.strip_prefix("f:") else {
            continue;
        };
        let stays = !is_leaf(below) && of_value.get_mut(name).is_some_and(|v| prune(v, below));
        if !stays {
            of_value.remove(name);
        }
    }
    !of_value.is_empty()
}

fn is_leaf(fields: &Value) -> bool {
    fields.as_object().is_some_and(Map::is_empty)
}

/// What a manager's set of fields has at this place. Nothing at what tells an element of a list from the others: without that it
/// would be another.
fn owned<'a>(mut fields: &'a Value, mut object: &Value, pointer: &str) -> Option<&'a Value> {
    let mut keys = None;
    for token in pointer.split('/').skip(1) {
        match object {
            Value::Object(of_object) => {
                let name = unescaped(token);
                if keys
                    .take()
                    .is_some_and(|keys: Value| keys.get(&name).is_some())
                {
                    return None;
                }
                fields = fields.get(format!("f:{name}"))?;
                object = of_object.get(&name)?;
            }
            Value::Array(items) => {
                object = items.get(token.parse::<usize>().ok()?)?;
                let mut elements = fields.as_object()?.iter();
                let (name, below) = elements.find(|(name, _)| names_element(name, object))?;
                (fields, keys) = (below, parsed(name));
            }
            _ => return None,
        }
    }
    Some(fields)
}

/// Elements are named by their keys (`k:{"name":"web"}`) or, in a set, by their values (`v:"web"`).
fn names_element(name: &str, item: &Value) -> bool {
    match (name.get(..2), parsed(name)) {
        (Some("k:"), Some(Value::Object(keys))) => {
            keys.iter().all(|(key, value)| item.get(key) == Some(value))
        }
        (Some("v:"), Some(value)) => value == *item,
        _ => false,
    }
}

fn parsed(name: &str) -> Option<Value> {
    serde_json::from_str(name.split_once(':')?.1).ok()
}
