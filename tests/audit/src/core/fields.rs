//! Who wrote which field: `metadata.managedFields`, read as the paths that one manager owns and what stands there. Pure.
//! Metadata and status are left out: they are not content.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// A path as `fieldsV1` writes it: `f:spec`, `k:{"name":"app"}`, `v:"x"`, `i:0`.
pub type Path = Vec<String>;

#[derive(Clone, Debug, PartialEq)]
pub struct Owned {
    pub path: Path,
    /// By server-side apply: then the manager has named the field itself, and it is no default.
    pub applied: bool,
}

/// The leaves that the manager owns, main resource only. None where the object says nothing about managers.
pub fn owned_by(object: &Value, manager: &str) -> Option<Vec<Owned>> {
    let is_its = |entry: &Value| {
        let is_main = entry["subresource"].as_str().unwrap_or_default().is_empty();
        entry["manager"] == manager && is_main
    };
    object.pointer("/metadata/managedFields")?.as_array()?;
    Some(leaves(object, is_its))
}

fn leaves(object: &Value, of: impl Fn(&Value) -> bool) -> Vec<Owned> {
    let mut leaves = vec![];
    for entry in entries(object).filter(|entry| of(entry)) {
        let applied = entry["operation"] == "Apply";
        walk(&entry["fieldsV1"], &mut vec![], applied, &mut leaves);
    }
    leaves
}

fn entries(object: &Value) -> impl Iterator<Item = &Value> {
    let entries = object.pointer("/metadata/managedFields");
    entries.and_then(Value::as_array).into_iter().flatten()
}

/// Whose a field is: the manager's, or others'.
pub struct Claims {
    own: Vec<Owned>,
    others: Vec<Owned>,
}

impl Claims {
    /// Others may also write through a subresource, such as `/scale`.
    pub fn of(object: &Value, manager: &str) -> Claims {
        Claims {
            own: owned_by(object, manager).unwrap_or_default(),
            others: leaves(object, |entry| entry["manager"] != manager),
        }
    }

    /// Who owns a map or a list may own it whole, or its existence only: what others own inside is not the manager's.
    pub fn own(&self, path: &[String]) -> bool {
        is_in(&self.own, path) || !is_in(&self.others, path) && is_around(&self.own, path)
    }

    pub fn others(&self, path: &[String]) -> bool {
        is_in(&self.others, path) || !is_in(&self.own, path) && is_around(&self.others, path)
    }
}

fn is_in(leaves: &[Owned], path: &[String]) -> bool {
    leaves.iter().any(|leaf| leaf.path.starts_with(path))
}

fn is_around(leaves: &[Owned], path: &[String]) -> bool {
    leaves.iter().any(|leaf| path.starts_with(&leaf.path))
}

/// The items of a list, each as the step that leads to it; none where nobody's fields tell its items apart by keys.
pub fn items_of(object: &Value, list: &[String]) -> BTreeSet<String> {
    let below = |entry: &Value| -> Vec<String> {
        let start = entry.get("fieldsV1");
        let fields = list
            .iter()
            .fold(start, |fields, step| fields.and_then(|f| f.get(step)));
        let steps = fields.and_then(Value::as_object).into_iter();
        steps
            .flat_map(|fields| fields.keys().cloned())
            .filter(|step| step.starts_with("k:"))
            .collect()
    };
    entries(object).flat_map(below).collect()
}

/// How many keys of the step the item has; 0 when it is another item.
pub fn fits(item: &Value, step: &str) -> usize {
    keys_of(step)
        .and_then(|keys| matches_keys(item, &keys))
        .unwrap_or(0)
}

/// The step that would lead to an item, by the keys that another one's step has.
pub fn step_like(step: &str, item: &Value) -> String {
    let keys = keys_of(step).unwrap_or_default();
    let names = keys.as_object().into_iter().flatten();
    let keys: Map<String, Value> = names
        .filter_map(|(name, _)| Some((name.clone(), item.get(name)?.clone())))
        .collect();
    format!("k:{}", Value::Object(keys))
}

fn keys_of(step: &str) -> Option<Value> {
    serde_json::from_str(step.strip_prefix("k:")?).ok()
}

fn walk(fields: &Value, path: &mut Path, applied: bool, out: &mut Vec<Owned>) {
    let Some(children) = fields.as_object() else {
        return;
    };
    let is_leaf = children.keys().all(|name| name == ".");
    if is_leaf && !path.is_empty() {
        let path = path.clone();
        out.push(Owned { path, applied });
        return;
    }
    for (name, below) in children {
        let is_bookkeeping = path.is_empty()
            && ["f:metadata", "f:status", "f:apiVersion", "f:kind"].contains(&name.as_str());
        if name != "." && !is_bookkeeping {
            path.push(name.clone());
            walk(below, path, applied, out);
            path.pop();
        }
    }
}

/// What stands at a path, in a stored object or in a manifest. An item of a list is found by the keys that it has, since a
/// manifest may leave out those with a default.
pub fn at<'v>(value: &'v Value, path: &[String]) -> Option<&'v Value> {
    let Some((step, rest)) = path.split_first() else {
        return Some(value);
    };
    let (kind, name) = step.split_once(':')?;
    match kind {
        "f" => at(value.get(name)?, rest),
        "i" => at(value.get(name.parse::<usize>().ok()?)?, rest),
        "v" => {
            let wanted: Value = serde_json::from_str(name).ok()?;
            at(
                value.as_array()?.iter().find(|item| **item == wanted)?,
                rest,
            )
        }
        "k" => {
            let keys: Value = serde_json::from_str(name).ok()?;
            let fits = |item: &&Value| matches_keys(item, &keys).unwrap_or(0);
            let best = value.as_array()?.iter().max_by_key(fits)?;
            (fits(&best) > 0).then(|| at(best, rest))?
        }
        _ => None,
    }
}

/// How many of the keys the item has; None when it has another value for one.
fn matches_keys(item: &Value, keys: &Value) -> Option<usize> {
    let mut count = 0;
    for (name, value) in keys.as_object()? {
        match item.get(name) {
            None => {}
            Some(found) if found == value => count += 1,
            Some(_) => return None,
        }
    }
    Some(count)
}

/// Whether a path lies at or below a field given by names alone; items of lists count for nothing.
pub fn is_below(path: &[String], field: &[String]) -> bool {
    let mut names = path.iter().filter_map(|step| step.strip_prefix("f:"));
    field.iter().all(|name| names.next() == Some(name.as_str()))
}

/// For people: `.spec.template.spec.containers[name=app].image`.
pub fn show(path: &[String]) -> String {
    let mut text = String::new();
    for step in path {
        match step.split_once(':') {
            Some(("f", name)) => {
                text.push('.');
                text.push_str(name);
            }
            Some(("k", keys)) => {
                let keys: Value = serde_json::from_str(keys).unwrap_or_default();
                let shown: Vec<String> = keys
                    .as_object()
                    .into_iter()
                    .flatten()
                    .map(|(name, value)| {
                        format!("{name}={}", value.as_str().unwrap_or(&value.to_string()))
                    })
                    .collect();
                text.push_str(&format!("[{}]", shown.join(",")));
            }
            _ => text.push_str("[]"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn leaves_are_found_in_objects_and_manifests() {
        let object = json!({
            "metadata": {"managedFields": [
                {"manager": "m", "operation": "Apply", "fieldsV1": {
                    "f:metadata": {"f:labels": {"f:a": {}}},
                    "f:spec": {"f:replicas": {}, "f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}}}},
                }},
                {"manager": "m", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {"f:x": {}}}},
                {"manager": "other", "operation": "Update", "fieldsV1": {"f:spec": {"f:paused": {}}}},
            ]},
            "spec": {"replicas": 3, "paused": true, "ports": [{"port": 80, "protocol": "TCP", "name": "http"}]},
        });
        let owned = owned_by(&object, "m").expect("managers");
        let shown: Vec<_> = owned
            .iter()
            .map(|leaf| (show(&leaf.path), at(&object, &leaf.path).cloned()))
            .collect();
        assert!(
            shown.contains(&(".spec.replicas".to_owned(), Some(json!(3)))),
            "{shown:?}"
        );
        assert!(
            shown.contains(&(
                ".spec.ports[port=80,protocol=TCP].name".to_owned(),
                Some(json!("http"))
            )),
            "{shown:?}"
        );
        assert_eq!(shown.len(), 2);
        let manifest = json!({"spec": {"ports": [{"port": 80, "name": "web"}, {"port": 81}]}});
        let path = owned
            .iter()
            .find(|leaf| leaf.path.len() > 2)
            .expect("the port");
        assert_eq!(at(&manifest, &path.path), Some(&json!("web")));
        assert_eq!(owned_by(&json!({"metadata": {}}), "m"), None);
        assert!(is_below(
            &path.path,
            &["spec".to_owned(), "ports".to_owned()]
        ));
        assert!(!is_below(
            &path.path,
            &["spec".to_owned(), "replicas".to_owned()]
        ));
    }

    #[test]
    fn a_field_is_whose_claim_is_the_closest() {
        let object = json!({"metadata": {"managedFields": [
            {"manager": "m", "operation": "Apply", "fieldsV1": {"f:spec": {"f:limits": {}, "f:both": {}, "f:map": {"f:a": {}}}}},
            {"manager": "other", "operation": "Update", "fieldsV1": {"f:spec": {"f:limits": {"f:cpu": {}}, "f:both": {}, "f:map": {}}}},
            {"manager": "other", "operation": "Update", "subresource": "scale", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
        ]}});
        let claims = Claims::of(&object, "m");
        for (field, own, others) in [
            ("limits/f:cpu", false, true),
            ("limits/f:memory", true, false),
            ("map/f:a", true, false),
            ("map/f:b", false, true),
            ("both", true, true),
            ("replicas", false, true),
            ("nobodys", false, false),
        ] {
            let path: Path = format!("f:spec/f:{field}")
                .split('/')
                .map(str::to_owned)
                .collect();
            let found = (claims.own(&path), claims.others(&path));
            assert_eq!(found, (own, others), "{field}");
        }
    }
}
