//! What a write makes of the stored object: merge patch, JSON patch, server-side apply with its owners.

use serde_json::{Map, Value, json};

use crate::api::fields;

/// Who writes, and when; of a status, or of the rest.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    pub manager: &'a str,
    pub now: &'a str,
    pub of_status: bool,
}

/// RFC 7396.
pub fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let all = target.as_object_mut().expect("it is one");
    for (name, value) in patch {
        match value {
            Value::Null => drop(all.remove(name)),
            value => merge(all.entry(name).or_insert(Value::Null), value),
        }
    }
}

fn entries(object: &mut Value) -> &mut Vec<Value> {
    let managers = &mut object["metadata"]["managedFields"];
    if !managers.is_array() {
        *managers = json!([]);
    }
    managers.as_array_mut().expect("it is one")
}

fn is_of(entry: &Value, writer: &Writer, operation: &str) -> bool {
    entry["manager"] == writer.manager
        && entry["operation"] == operation
        && entry["subresource"].is_null() != writer.of_status
}

fn entry<'a>(object: &'a mut Value, writer: &Writer, operation: &str) -> &'a mut Value {
    let all = entries(object);
    let found = all.iter().position(|entry| is_of(entry, writer, operation));
    let at = found.unwrap_or_else(|| {
        let mut entry = json!({"manager": writer.manager, "operation": operation, "fieldsV1": {}});
        if writer.of_status {
            entry["subresource"] = "status".into();
        }
        all.push(entry);
        all.len() - 1
    });
    &mut all[at]
}

/// Notes what an update has changed as its writer's.
pub fn updated(old: &Value, new: &mut Value, writer: &Writer) {
    let (set, gone) = fields::changed(old, new);
    if set == json!({}) && gone == json!({}) {
        return;
    }
    for entry in entries(new) {
        if !is_of(entry, writer, "Update") {
            fields::subtract(&mut entry["fieldsV1"], &set);
        }
        fields::subtract(&mut entry["fieldsV1"], &gone);
    }
    if set != json!({}) {
        let entry = entry(new, writer, "Update");
        fields::unite(&mut entry["fieldsV1"], &set);
        entry["time"] = writer.now.into();
    }
    entries(new).retain(|entry| entry["fieldsV1"] != json!({}));
}

/// Server-side apply: the object as it is then, or the fields that others own.
pub fn apply(
    live: Option<&Value>,
    applied: &Value,
    writer: &Writer,
    force: bool,
) -> Result<Value, Vec<String>> {
    let mut named = fields::of_object(applied);
    if let Some(all) = named.as_object_mut() {
        all.remove("f:status");
    }
    let Some(live) = live else {
        let mut new = applied.clone();
        if let Some(all) = new.as_object_mut() {
            all.remove("status");
        }
        let entry = entry(&mut new, writer, "Apply");
        entry["fieldsV1"] = named;
        entry["time"] = writer.now.into();
        return Ok(new);
    };
    let mut new = live.clone();
    let paths = fields::leaves(&named);
    let differs = |path: &&Vec<String>| fields::get(live, path) != fields::get(applied, path);
    let mut conflicts = vec![];
    for entry in entries(&mut new) {
        if is_of(entry, writer, "Apply") {
            continue;
        }
        let theirs = |path: &&Vec<String>| fields::has(&entry["fieldsV1"], path);
        let taken: Vec<&Vec<String>> = paths.iter().filter(differs).filter(theirs).collect();
        for path in taken {
            let mut one = json!({});
            one = path
                .iter()
                .rev()
                .fold(one, |below, name| json!({format!("f:{name}"): below}));
            fields::subtract(&mut entry["fieldsV1"], &one);
            conflicts.push(format!(".{}", path.join(".")));
        }
    }
    if !force && !conflicts.is_empty() {
        return Err(conflicts);
    }
    lay_over(&mut new, applied);
    let own = entry(&mut new, writer, "Apply");
    let before = std::mem::replace(&mut own["fieldsV1"], named.clone());
    let all = entries(&mut new).clone();
    for path in fields::leaves(&before) {
        let owned = all
            .iter()
            .any(|entry| fields::has(&entry["fieldsV1"], &path));
        if !owned {
            fields::remove(&mut new, &path);
        }
    }
    entries(&mut new).retain(|entry| entry["fieldsV1"] != json!({}));
    if before != named || !same_content(live, &new) {
        entry(&mut new, writer, "Apply")["time"] = writer.now.into();
    }
    Ok(new)
}

fn same_content(a: &Value, b: &Value) -> bool {
    let without = |object: &Value| {
        let mut object = object.clone();
        entries(&mut object).clear();
        object
    };
    without(a) == without(b)
}

/// Maps are merged, finalizers and owners united, other lists replaced. An object has one controller: another one takes its place.
fn lay_over(target: &mut Value, applied: &Value) {
    fn over(target: &mut Value, applied: &Map<String, Value>) {
        if !target.is_object() {
            *target = json!({});
        }
        let all = target.as_object_mut().expect("it is one");
        for (name, value) in applied {
            let place = all.entry(name).or_insert(Value::Null);
            match value {
                Value::Object(value) => over(place, value),
                Value::Array(more)
                    if ["finalizers", "ownerReferences"].contains(&name.as_str()) =>
                {
                    if !place.is_array() {
                        *place = json!([]);
                    }
                    let known = place.as_array_mut().expect("it is one");
                    if more.iter().any(|one| one["controller"] == true) {
                        known.retain(|other| other["controller"] != true);
                    }
                    for one in more {
                        let same = |other: &Value| match one.get("uid") {
                            Some(uid) => other.get("uid") == Some(uid),
                            None => other == one,
                        };
                        match known.iter_mut().find(|other| same(other)) {
                            Some(other) => *other = one.clone(),
                            None => known.push(one.clone()),
                        }
                    }
                }
                value => *place = value.clone(),
            }
        }
    }
    let status = target.get("status").cloned();
    let version = target["metadata"]["resourceVersion"].clone();
    over(target, applied.as_object().expect("an object"));
    target["metadata"]["resourceVersion"] = version;
    match status {
        Some(status) => target["status"] = status,
        None => drop(target.as_object_mut().map(|all| all.remove("status"))),
    }
}
