//! Finds what to remove from an object because the form no longer has it: fields that lynqgate applied before, and defaults that
//! the API server filled in beside them. A server-side apply removes only fields that no other manager owns. So lynqgate first
//! becomes the only owner of the rest, by a change of `managedFields` alone, and its next apply removes them
//! ([decision 0027](../../../docs/decisions/0027-what-leaves-a-form-leaves-its-object.md)).

use std::fmt;

use serde_json::{Map, Value, json};

use crate::api::names;
use crate::api::resource::Resource;
use crate::decide::child::{fields, ignored, managers, secret};
use crate::decide::partition;

/// Fields that the API server assigns to a Service, and removes itself if its type does not use them.
const ASSIGNED: [&str; 4] = ["nodePort", "clusterIP", "clusterIPs", "healthCheckNodePort"];

/// Whether the manifest omits a field that lynqgate owns (`owned`, as in `Child`), or sets one to null to remove it.
pub fn drops(owned: &str, manifest: &Value) -> bool {
    let owned: Value = serde_json::from_str(owned).unwrap_or_default();
    has_nulls(manifest) || !fields::is_leaf(&fields::unnamed(&owned, manifest))
}

fn has_nulls(value: &Value) -> bool {
    let below = |value: &Value| value.is_null() || has_nulls(value);
    match value {
        Value::Object(fields) => fields.values().any(below),
        Value::Array(items) => items.iter().any(has_nulls),
        _ => false,
    }
}

/// Removes fields that are null, which means absent.
pub fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// The manifest as if the object did not exist: a dry run of its creation shows the API server's defaults.
pub fn of_a_new_one(manifest: &Value, live: &Value) -> Value {
    let mut new = manifest.clone();
    drop_nulls(&mut new);
    new["apiVersion"] = live["apiVersion"].clone();
    new["kind"] = live["kind"].clone();
    let uid = live["metadata"]["uid"].as_str().unwrap_or_default();
    if let Some(metadata) = new["metadata"].as_object_mut() {
        for of_the_live_one in ["uid", "resourceVersion", "ownerReferences", "finalizers"] {
            metadata.remove(of_the_live_one);
        }
        metadata.insert("name".into(), format!("lynqgate-{uid}").into());
        if let Some(namespace) = live["metadata"].get("namespace") {
            metadata.insert("namespace".into(), namespace.clone());
        }
    }
    // Otherwise the gate would hold the object in the cluster, which has our labels, but not this copy.
    if partition::is_gated_set(live) {
        new["metadata"]["labels"][names::PARTITION_GATE] = "false".into();
    }
    without_assigned(&mut new);
    new
}

/// Removes assigned addresses: the API server rejects one that is in use. Keeps `None`, which makes the Service headless.
fn without_assigned(object: &mut Value) {
    if object["apiVersion"] != "v1" || object["kind"] != "Service" {
        return;
    }
    let Some(spec) = object["spec"].as_object_mut() else {
        return;
    };
    let is_headless = spec.get("clusterIP").is_some_and(|ip| ip == "None");
    spec.retain(|name, _| {
        !ASSIGNED.contains(&name.as_str()) || (is_headless && name == "clusterIP")
    });
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
        port.remove("nodePort");
    }
}

/// What lynqgate applied before, as far as it still owns it in the live object.
pub fn applied_before(live: &Value) -> Value {
    part(live, managers::owned(live))
}

/// As `applied_before`, plus the fields that the manifest names; for a live object of which lynqgate does not own enough to make
/// a valid object. `new` is the API server's result for the manifest.
pub fn named_before(live: &Value, new: &Value) -> Value {
    let mut named = managers::owned(live);
    fields::unite(&mut named, &managers::owned(new));
    part(live, named)
}

fn part(live: &Value, mut of: Value) -> Value {
    // Include the metadata even if none of it is owned: an object needs some.
    fields::unite(&mut of, &json!({"f:metadata": {".": {}}}));
    fields::extract(live, &of)
}

/// The fields to remove from the live object. `manifest` is what is applied, with its nulls. `old` and `new` are the API server's
/// results for the previous and the new manifest. A field exists only because of the previous one if the live object has its
/// value from `old` and `new` lacks it.
pub fn departed(
    live: &Value,
    (old, new): (&Value, &Value),
    manifest: &Value,
    resource: &Resource,
) -> Value {
    let mut old = old.clone();
    without_assigned(&mut old);
    ignored::take_out(&mut old, resource);
    let named = managers::owned(new);
    let mut known = managers::owned(live);
    fields::unite(&mut known, &named);
    for entry in managers::entries(live).filter(|entry| entry["apiVersion"] == live["apiVersion"]) {
        fields::unite(&mut known, &entry["fieldsV1"]);
    }
    let versions = FieldVersions {
        old: Some(&old),
        new: Some(new),
        named: Some(&named),
        known: Some(&known),
        said: Some(manifest),
    };
    let live = content(live);
    versions
        .departed(&live)
        .map_or_else(|| json!({}), |gone| gone.fields)
}

/// As `departed`, from the manifest alone.
pub fn unnamed(live: &Value, manifest: &Value, resource: &Resource) -> Value {
    let mut live = live.clone();
    let owned = managers::owned(&live);
    let left = fields::unnamed(&owned, manifest);
    ignored::take_out(&mut live, resource);
    // Ignored fields were taken out of `live`: do not remove them from the object.
    let ignored = fields::unnamed(&left, &live);
    let mut left = left;
    fields::subtract(&mut left, &ignored);
    left
}

/// The object without its identity, its owner references and its status.
fn content(object: &Value) -> Value {
    let mut content = object.clone();
    if let Some(fields) = content.as_object_mut() {
        for other in ["apiVersion", "kind", "status"] {
            fields.remove(other);
        }
        if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
            metadata.retain(|name, _| ["labels", "annotations"].contains(&name.as_str()));
        }
    }
    content
}

/// One field in each version of the object.
#[derive(Clone, Copy)]
struct FieldVersions<'a> {
    old: Option<&'a Value>,
    new: Option<&'a Value>,
    /// The fields of the new one that the manifest names.
    named: Option<&'a Value>,
    /// The fields of all managers, to recognize the elements of lists.
    known: Option<&'a Value>,
    said: Option<&'a Value>,
}

struct Gone {
    fields: Value,
    /// All of this field is removed.
    whole: bool,
}

impl<'a> FieldVersions<'a> {
    fn departed(self, live: &'a Value) -> Option<Gone> {
        // The manifest removes the field explicitly, whatever its previous value.
        let is_null = self.said.is_some_and(Value::is_null);
        let old = if is_null { live } else { self.old? };
        let versions = FieldVersions {
            old: Some(old),
            ..self
        };
        let is_atomic = self.known.is_some_and(fields::is_leaf);
        match (live, old) {
            _ if self.named.is_some_and(fields::is_leaf) => None,
            (Value::Object(of_live), Value::Object(_)) if !of_live.is_empty() && !is_atomic => {
                let parts = of_live.iter().map(|(name, live)| {
                    let gone = versions.field(name).departed(live);
                    (format!("f:{name}"), gone)
                });
                versions.together(parts)
            }
            (Value::Array(items), Value::Array(_)) if self.has_elements() => {
                let parts = items.iter().map(|item| match self.token(item) {
                    Some(token) => (token.to_owned(), versions.element(token).departed(item)),
                    None => (String::new(), None),
                });
                versions.together(parts)
            }
            _ => {
                let goes = live == old && self.new != Some(live) && self.named.is_none();
                goes.then(|| Gone {
                    fields: json!({}),
                    whole: true,
                })
            }
        }
    }

    fn together(self, parts: impl Iterator<Item = (String, Option<Gone>)>) -> Option<Gone> {
        let mut whole = self.new.is_none();
        let mut fields = Map::new();
        for (token, gone) in parts {
            whole &= gone.as_ref().is_some_and(|gone| gone.whole);
            fields.extend(gone.map(|gone| (token, gone.fields)));
        }
        if fields.is_empty() {
            return None;
        }
        if whole {
            fields.insert(".".into(), json!({}));
        }
        Some(Gone {
            fields: fields.into(),
            whole,
        })
    }

    fn field(self, name: &str) -> FieldVersions<'a> {
        let token = format!("f:{name}");
        FieldVersions {
            old: self.old.and_then(|old| old.get(name)),
            new: self.new.and_then(|new| new.get(name)),
            named: self.named.and_then(|named| named.get(&token)),
            known: self.known.and_then(|known| known.get(&token)),
            said: self.said.and_then(|said| said.get(name)),
        }
    }

    fn has_elements(self) -> bool {
        let tokens = self.known.and_then(Value::as_object);
        tokens.is_some_and(|tokens| tokens.keys().any(|token| is_element(token)))
    }

    fn token(self, item: &Value) -> Option<&'a str> {
        let mut tokens = self.known?.as_object()?.keys();
        let token = tokens.find(|token| fields::names_element(token, item))?;
        Some(token)
    }

    fn element(self, token: &str) -> FieldVersions<'a> {
        let mut said = self.said.and_then(Value::as_array).into_iter().flatten();
        FieldVersions {
            old: fields::element(token, self.old),
            new: fields::element(token, self.new),
            named: self.named.and_then(|named| named.get(token)),
            known: self.known.and_then(|known| known.get(token)),
            said: said.find(|said| fields::may_name(token, said)),
        }
    }
}

fn is_element(token: &str) -> bool {
    token.starts_with("k:") || token.starts_with("v:")
}

/// The fields to remove that another manager owns.
#[derive(Debug, PartialEq, Eq)]
pub struct OwnedByOthers {
    pub manager: String,
    pub paths: Vec<String>,
}

impl fmt::Display for OwnedByOthers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.paths.len().min(PATHS_SHOWN);
        let more = match self.paths.len() - shown {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let paths = self.paths[..shown].join(", ");
        write!(
            f,
            "the form no longer has {paths}{more}, but the field manager {:?} owns it too, so that it would stay. Set conflictPolicy: Force to \
             remove it, or add it to ignoreFields to leave it to that manager",
            self.manager
        )
    }
}

/// The number of fields that a message names.
const PATHS_SHOWN: usize = 3;

/// The `managedFields` after which an apply of lynqgate removes these fields; None if it does so already. A field that another
/// manager writes through a subresource, such as an autoscaler's replicas, stays with it. Other managers lose a field only with
/// `force`.
pub fn made_ours(
    live: &Value,
    departed: &Value,
    force: bool,
) -> Result<Option<Value>, OwnedByOthers> {
    let mut departed = departed.clone();
    let is_ours = |entry: &Value| {
        [names::FIELD_MANAGER, names::PARTITION_MANAGER]
            .map(Value::from)
            .contains(&entry["manager"])
    };
    let is_apply =
        |entry: &Value| entry["manager"] == names::FIELD_MANAGER && entry["operation"] == "Apply";
    let of_object = |entry: &Value| entry["subresource"].is_null();
    let same_version = |entry: &Value| entry["apiVersion"] == live["apiVersion"];
    for entry in managers::entries(live).filter(|entry| !of_object(entry) && same_version(entry)) {
        let claimed = fields::shared(&entry["fieldsV1"], &departed);
        fields::subtract(&mut departed, &claimed);
    }
    let mut entries: Vec<Value> = managers::entries(live).cloned().collect();
    let mut changed = false;
    let others = entries
        .iter_mut()
        .filter(|entry| of_object(entry) && !is_apply(entry) && same_version(entry));
    for entry in others {
        let shared = fields::shared(&entry["fieldsV1"], &departed);
        if fields::is_leaf(&shared) {
            continue;
        }
        if !force && !is_ours(entry) {
            return Err(OwnedByOthers {
                manager: entry["manager"].as_str().unwrap_or_default().to_owned(),
                paths: fields::paths(&shared),
            });
        }
        fields::subtract(&mut entry["fieldsV1"], &departed);
        changed = true;
    }
    entries.retain(|entry| !fields::is_leaf(&entry["fieldsV1"]));
    let ours = entries
        .iter_mut()
        .find(|entry| is_apply(entry) && of_object(entry));
    match ours {
        Some(entry) if !same_version(entry) => return Ok(None),
        Some(entry) => {
            let owned = &mut entry["fieldsV1"];
            changed |= !fields::covers(owned, &departed);
            secret::fold_fields(owned, live);
            fields::unite(owned, &departed);
        }
        None if fields::is_leaf(&departed) => {}
        None => {
            changed = true;
            entries.push(json!({
                "manager": names::FIELD_MANAGER, "operation": "Apply", "apiVersion": live["apiVersion"],
                "fieldsType": "FieldsV1", "fieldsV1": departed,
            }));
        }
    }
    Ok(changed.then(|| entries.into()))
}

/// The object after an apply that removes these fields, for a dry run. Lists come from the manifest alone.
pub fn replaced(live: &Value, gone: &Value, manifest: &Value) -> Value {
    let mut next = live.clone();
    fields::remove(&mut next, gone);
    json_patch::merge(&mut next, manifest);
    next
}

#[cfg(test)]
mod tests;
