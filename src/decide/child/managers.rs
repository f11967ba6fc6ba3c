//! Which fields of an object lynqgate and other managers own, by its `managedFields`.

use std::borrow::Cow;
use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::api::names;
use crate::decide::child::fields::{is_leaf, names_element, parsed, unite};
use crate::decide::child::secret;
use crate::decide::partition;
use crate::decide::shared::content::hash_value;
use crate::decide::shared::path::unescaped;

/// Hash of the set of fields that are ours. A server-side apply owns what it names; `merge` and `replace` are updates, and own
/// what they have changed.
pub fn fields_hash(object: &Value) -> String {
    let updates = ours(object, "Update").filter_map(|fields| of_content(&fields));
    let updates: BTreeSet<String> = updates.map(|fields| hash_value(&fields)).collect();
    let applied = applied_fields_hash(object);
    match updates.is_empty() {
        true => applied,
        false => hash_value(&json!([applied, updates])),
    }
}

/// Whether the object shows that lynqgate applied it: it has our label, and we own its annotation with the applied hash.
pub fn is_marked(object: &Value) -> bool {
    let metadata = &object["metadata"];
    let hash = format!("f:{}", names::APPLIED_HASH);
    let mut all = ["Apply", "Update"]
        .into_iter()
        .flat_map(|operation| ours(object, operation));
    metadata["labels"][names::LABEL_MANAGED] == names::TRUE
        && metadata["annotations"][names::APPLIED_HASH].is_string()
        && all.any(|fields: Cow<'_, Value>| !fields["f:metadata"]["f:annotations"][&hash].is_null())
}

/// Hash of the fields that lynqgate owns by server-side apply.
pub fn applied_fields_hash(object: &Value) -> String {
    ours(object, "Apply")
        .next()
        .map(|fields| hash_value(&fields))
        .unwrap_or_default()
}

pub fn entries(object: &Value) -> impl Iterator<Item = &Value> {
    let managers = object["metadata"]["managedFields"].as_array();
    managers.into_iter().flatten()
}

/// The fields of the object's content that lynqgate owns, by any kind of write.
pub fn owned(object: &Value) -> Value {
    let mut all = json!({});
    for operation in ["Apply", "Update"] {
        for fields in ours(object, operation).filter_map(|fields| of_content(&fields)) {
            unite(&mut all, &fields);
        }
    }
    if let Some(Value::Object(metadata)) = all.get_mut("f:metadata") {
        metadata.retain(|name, _| ["f:labels", "f:annotations"].contains(&name.as_str()));
    }
    secret::fold_fields(&mut all, object);
    all
}

/// Our own sets of fields for this operation, without the status. The API server attributes the partition that our webhook sets
/// to the sender of the write, so it is left out.
fn ours<'a>(object: &'a Value, operation: &'a str) -> impl Iterator<Item = Cow<'a, Value>> {
    let ours = entries(object).filter(move |entry| {
        entry["manager"] == names::FIELD_MANAGER
            && entry["operation"] == operation
            && entry["subresource"].is_null()
    });
    let gates = partition::is_gated_set(object);
    ours.map(move |entry| match gates {
        true => Cow::Owned(partition::without_field(&entry["fieldsV1"])),
        false => Cow::Borrowed(&entry["fieldsV1"]),
    })
}

/// Without the fields that tie the object to its node, which an update writes only once under any patchStrategy, and which are
/// checked separately. None if nothing else is left.
fn of_content(fields: &Value) -> Option<Value> {
    let mut fields = fields.as_object()?.clone();
    if let Some(Value::Object(metadata)) = fields.get_mut("f:metadata") {
        metadata.remove("f:ownerReferences");
        for texts in ["f:labels", "f:annotations"] {
            if let Some(Value::Object(texts)) = metadata.get_mut(texts) {
                let is_ours = |name: &str| name.starts_with(&format!("f:{}", names::PREFIX));
                texts.retain(|name, _| name != "." && !is_ours(name));
            }
        }
        metadata.retain(|_, below| !is_leaf(below));
        if metadata.is_empty() {
            fields.remove("f:metadata");
        }
    }
    (!fields.is_empty()).then_some(Value::Object(fields))
}

/// The live value without what other managers own of it; None if nothing is left.
pub fn without_others(live: &Value, pointer: &str) -> Option<Value> {
    let mut value = live.pointer(pointer)?.clone();
    let parent = pointer
        .rsplit_once('/')
        .and_then(|(parent, _)| live.pointer(parent));
    let is_element = parent.is_some_and(Value::is_array);
    for entry in entries(live) {
        if entry["manager"] == names::FIELD_MANAGER && entry["operation"] == "Apply" {
            continue;
        }
        let Some(fields) = owned_at(&entry["fieldsV1"], live, pointer) else {
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

/// The part of a manager's set at this path. None for the key of a list element, which would be another element without it.
fn owned_at<'a>(mut fields: &'a Value, mut object: &Value, pointer: &str) -> Option<&'a Value> {
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

/// When this manager last changed something but the status, by the API server's clock.
pub fn written_at(object: &Value, manager: &str) -> Option<Timestamp> {
    let entries = object["metadata"]["managedFields"].as_array()?;
    let theirs = entries
        .iter()
        .filter(|entry| entry["manager"] == manager && entry["subresource"].is_null());
    theirs
        .filter_map(|entry| entry["time"].as_str()?.parse().ok())
        .max()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, operation: &str, fields: Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsV1": fields})
    }

    fn owned(entries: &[Value]) -> Value {
        json!({"metadata": {"managedFields": entries}})
    }

    #[test]
    fn what_a_merge_wrote_is_ours_as_well() {
        let ours = |operation, fields| entry(names::FIELD_MANAGER, operation, fields);
        let label = json!({"f:metadata": {"f:labels": {"f:app": {}}}});
        let plan = json!({"f:data": {"f:plan": {}}});
        let applied = ours("Apply", label.clone());
        let merged = ours("Update", plan.clone());
        let mut status = ours("Update", json!({"f:status": {}}));
        status["subresource"] = json!("status");
        // These are left by a takeover, by a change of the deletionPolicy, and by the adoption of an orphan.
        let tied = ours(
            "Update",
            json!({"f:metadata": {
                "f:labels": {".": {}, "f:lynq.sh/managed": {}},
                "f:annotations": {"f:lynq.sh/applied-hash": {}, "f:lynq.sh/deletion-policy": {}},
                "f:ownerReferences": {".": {}, "k:{\"uid\":\"u\"}": {}},
            }}),
        );
        let mut tied_and_merged = tied.clone();
        tied_and_merged["fieldsV1"]["f:data"] = plan["f:data"].clone();
        let theirs = entry("kubectl-patch", "Update", plan);
        let of = |entries: &[&Value]| {
            let entries: Vec<Value> = entries.iter().map(|entry| (*entry).clone()).collect();
            fields_hash(&owned(&entries))
        };
        let only_applied = applied_fields_hash(&owned(std::slice::from_ref(&applied)));
        assert_eq!(of(&[&applied]), only_applied, "as older versions have it");
        assert_eq!(of(&[&applied, &tied]), only_applied, "nothing but the tie");
        assert_eq!(of(&[&applied, &status, &theirs]), only_applied);
        let both = of(&[&applied, &merged]);
        assert_ne!(both, only_applied);
        assert_eq!(of(&[&merged, &theirs, &applied]), both, "in any order");
        assert_eq!(of(&[&applied, &tied_and_merged]), both, "the tie aside");
        assert_ne!(of(&[&merged]), both, "a field of the apply was taken");
        assert_eq!(of(&[]), "");
        let more = ours("Update", label);
        assert_ne!(of(&[&applied, &more]), only_applied, "labels of the form's");
        let later = json!({"metadata": {"managedFields": [applied, {
            "time": "2026-03-01T12:00:00Z", "manager": names::FIELD_MANAGER, "operation": "Update", "apiVersion": "v1",
            "fieldsV1": merged["fieldsV1"],
        }]}});
        assert_eq!(fields_hash(&later), both, "whenever it was");
    }

    #[test]
    fn what_shows_that_we_applied_it() {
        let label = json!({"lynq.sh/managed": "true"});
        let hash = json!({"lynq.sh/applied-hash": "x"});
        let fields = json!({"f:metadata": {"f:annotations": {"f:lynq.sh/applied-hash": {}}}});
        let by = |manager| json!([entry(manager, "Update", fields.clone())]);
        let (ours, theirs) = (by(names::FIELD_MANAGER), by("kubectl-create"));
        let none = || json!(null);
        for (name, labels, annotations, managers, expected) in [
            ("all of it", &label, &hash, &ours, true),
            ("a copy", &label, &hash, &theirs, false),
            ("a label", &label, &none(), &none(), false),
            ("unlabelled", &none(), &hash, &ours, false),
        ] {
            let object = json!({"metadata": {
                "labels": labels, "annotations": annotations, "managedFields": managers,
            }});
            assert_eq!(is_marked(&object), expected, "{name}");
        }
    }
}
