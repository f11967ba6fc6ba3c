//! What a held node would change: a unified diff of its live content and the content that waits. Values of Secrets are redacted.

pub mod alike;

use std::collections::BTreeMap;

use serde_json::Value;
use similar::TextDiff;

use crate::api::resource::{ARRAYS, DeletionPolicy, Resource};
use crate::decide::child::secret::{self, REDACTED};
use crate::decide::child::{NodeKey, Scope, object_key};
use crate::decide::node::digest::{NodeDigest, arrays};

/// None if the node is not held. `object`: a LynqNode.
pub fn of_node(object: &Value) -> Option<String> {
    let node = NodeDigest::of(object, None);
    if !node.held() {
        return None;
    }
    let none = Value::Null;
    let spec = &object["spec"];
    let (live, held) = (spec.get("released").unwrap_or(&none), spec);
    Some(of_release(&node.key, ("live", live), ("held", held)))
}

/// What a release changes: a line for each object that the new content no longer names, and then the diffs.
pub fn of_release(node: &NodeKey, old: (&str, &Value), new: (&str, &Value)) -> String {
    departures(node, old.1, new.1) + &of_contents(old, new)
}

/// Says of each object that leaves the content whether lynqgate deletes it. The content that runs decides, as it does when the
/// node is released.
fn departures(node: &NodeKey, before: &Value, after: &Value) -> String {
    let (Some(before), Some(after)) = (arrays(before), arrays(after)) else {
        return String::new();
    };
    let key = |resource: &Resource| object_key(resource, node, Scope::Namespaced);
    let stays = |old: &Resource| {
        after.iter().any(|new| match new.render_error.is_empty() {
            true => key(new).is_same(&key(old)),
            // A resource that does not render keeps the object that was applied last.
            false => new.id == old.id,
        })
    };
    let departing = before.iter().filter(|old| !stays(old));
    let lines = departing.map(|old| {
        let key = key(old);
        let (kind, name) = (&key.kind.kind, &key.name);
        match old.deletion_policy {
            DeletionPolicy::Retain => format!(
                "lynqgate leaves {kind} {name} in place (deletionPolicy: Retain) and no longer manages it: lynqgate orphans list\n"
            ),
            DeletionPolicy::Delete => format!(
                "lynqgate deletes {kind} {name} once all resources of the new content are ready\n"
            ),
        }
    });
    lines.collect()
}

/// One diff for each resource that differs. Each content comes with its name in the headers of the diffs.
pub fn of_contents((old, before): (&str, &Value), (new, after): (&str, &Value)) -> String {
    let (before_by_id, after_by_id) = (resources(before), resources(after));
    let all: BTreeMap<_, ()> = before_by_id
        .keys()
        .chain(after_by_id.keys())
        .map(|key| (key, ()))
        .collect();
    let diffs = all.into_keys().filter_map(|key| {
        let before = before_by_id.get(key).copied();
        let after = after_by_id.get(key).copied();
        if before == after {
            return None;
        }
        let [before, after] = redacted(before, after).map(|side| side.as_ref().map(text));
        let [from, to] = [(old, &before), (new, &after)].map(|(side, text)| match text {
            Some(_) => format!("{side}/{}/{}", key.0, key.1),
            None => "/dev/null".to_owned(),
        });
        let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
        let diff = TextDiff::from_lines(&before, &after);
        Some(diff.unified_diff().header(&from, &to).to_string())
    });
    diffs.collect()
}

/// The resources of a content, their Secrets without values. A diff of two such contents shows no change of a value.
pub fn without_secrets(content: &Value) -> Value {
    let alone = |resource: &Value| {
        let [resource, _] = redacted(Some(resource), None);
        resource.unwrap_or_default()
    };
    let arrays = ARRAYS.into_iter().filter_map(|array| {
        let resources = content[array].as_array()?;
        let resources: Vec<Value> = resources.iter().map(alone).collect();
        (!resources.is_empty()).then(|| (array.to_owned(), Value::Array(resources)))
    });
    Value::Object(arrays.collect())
}

/// By the name of their array and their ids.
fn resources(content: &Value) -> BTreeMap<(&'static str, &str), &Value> {
    let of_array = |array: &'static str| {
        let all = content[array].as_array().into_iter().flatten();
        all.filter_map(move |resource| Some(((array, resource["id"].as_str()?), resource)))
    };
    ARRAYS.into_iter().flat_map(of_array).collect()
}

/// Redacts the values of Secrets on both sides, but so that a changed value still shows as a difference.
fn redacted(before: Option<&Value>, after: Option<&Value>) -> [Option<Value>; 2] {
    let is_same = |place: &str, key: &str| {
        let value = |side: Option<&Value>| side.map(|side| side["spec"][place][key].clone());
        value(before) == value(after)
    };
    let redacted = |side: Option<&Value>, changed: &'static str| {
        let mut side = side?.clone();
        if side["spec"]["kind"] == "Secret" {
            let told = |place: &str, key: &str| match is_same(place, key) {
                true => REDACTED,
                false => changed,
            };
            secret::redact(&mut side["spec"], told);
        }
        Some(side)
    };
    [
        redacted(before, REDACTED),
        redacted(after, "(redacted, another value)"),
    ]
}

/// In YAML.
pub fn text(resource: &Value) -> String {
    serde_saphyr::to_string(resource).unwrap_or_else(|error| format!("{error}\n"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_differs_is_shown_and_no_secret() {
        let deployment = |image: &str| json!([{"id": "app", "nameTemplate": "t0-app", "spec": {"kind": "Deployment", "image": image}}]);
        let secret = |password: &str, user: &str| {
            json!([{"id": "login", "spec": {
                "kind": "Secret", "stringData": {"password": password, "user": user},
            }}])
        };
        let live = json!({
            "deployments": deployment("web:1"), "secrets": secret("hunter2", "app"),
            "configMaps": [{"id": "old", "spec": {"kind": "ConfigMap"}}],
        });
        let held = json!({"deployments": deployment("web:2"), "secrets": secret("hunter3", "app")});
        let between = |live: &Value, held: &Value| of_contents(("live", live), ("held", held));
        let diff = between(&live, &held);
        for line in [
            "--- live/deployments/app\n+++ held/deployments/app\n",
            "\n-  image: web:1\n+  image: web:2\n",
            "--- live/configMaps/old\n+++ /dev/null\n",
            "\n-    password: (redacted)\n+    password: (redacted, another value)\n     user: (redacted)\n",
        ] {
            assert!(diff.contains(line), "{line} is not in\n{diff}");
        }
        assert!(!diff.contains("hunter"), "{diff}");
        let broken =
            json!({"secrets": [{"id": "login", "spec": {"kind": "Secret", "data": "hunter2"}}]});
        let diff = between(&json!({}), &broken);
        assert!(
            diff.contains("data: (redacted)") && !diff.contains("hunter"),
            "{diff}"
        );
        assert_eq!(between(&live, &live), "");
    }

    #[test]
    fn what_becomes_of_an_object_that_leaves_the_content_is_said() {
        let map = |id: &str, name: &str, policy: &str| {
            json!({"configMaps": [{
                "id": id, "nameTemplate": name, "deletionPolicy": policy,
                "spec": {"apiVersion": "v1", "kind": "ConfigMap"},
            }]})
        };
        let failed = json!({"configMaps": [{"id": "a", "spec": {}, "renderError": "no image"}]});
        let deleted =
            "lynqgate deletes ConfigMap a once all resources of the new content are ready\n";
        let left = "lynqgate leaves ConfigMap a in place (deletionPolicy: Retain) and no longer manages it: lynqgate orphans list\n";
        for (name, policy, after, expected) in [
            ("it stays", "Delete", map("a", "a", "Retain"), ""),
            ("it is deleted", "Delete", json!({}), deleted),
            ("it is left in place", "Retain", json!({}), left),
            ("another name", "Delete", map("a", "b", "Delete"), deleted),
            ("another id", "Delete", map("b", "a", "Delete"), ""),
            ("it does not render", "Delete", failed, ""),
        ] {
            let node = NodeKey::new("tenants", "t0-web");
            let said = departures(&node, &map("a", "a", policy), &after);
            assert_eq!(said, expected, "{name}");
        }
    }

    #[test]
    fn a_content_without_secrets_is_otherwise_the_same() {
        for (name, content, expected) in [
            ("nothing", json!({"secrets": [], "uid": "acme"}), json!({})),
            (
                "a Secret",
                json!({"secrets": [{"id": "login", "spec": {"kind": "Secret", "data": {"a": "hunter2"}}}]}),
                json!({"secrets": [{"id": "login", "spec": {"kind": "Secret", "data": {"a": "(redacted)"}}}]}),
            ),
            (
                "a Secret in another array, with two kinds of values",
                json!({"manifests": [{"id": "login", "spec": {
                    "kind": "Secret", "data": "hunter2", "stringData": {"b": "hunter2"},
                }}]}),
                json!({"manifests": [{"id": "login", "spec": {
                    "kind": "Secret", "data": "(redacted)", "stringData": {"b": "(redacted)"},
                }}]}),
            ),
            (
                "another kind",
                json!({"configMaps": [{"id": "map", "spec": {"kind": "ConfigMap", "data": {"a": "1"}}}]}),
                json!({"configMaps": [{"id": "map", "spec": {"kind": "ConfigMap", "data": {"a": "1"}}}]}),
            ),
        ] {
            assert_eq!(without_secrets(&content), expected, "{name}");
        }
    }
}
