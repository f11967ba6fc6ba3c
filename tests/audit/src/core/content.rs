//! A node's content: what its resource arrays say, which objects they stand for, and whether an object says the same. Pure.
//! Contents are compared by a digest of the auditor's own; lynqgate's hashes are taken as names and never computed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::fields::{self, Claims, Path};
use super::same::{canonical, is_quantity, says};
use crate::kinds::{Key, Kind};

const ARRAYS: [&str; 16] = [
    "serviceAccounts",
    "deployments",
    "statefulSets",
    "daemonSets",
    "services",
    "ingresses",
    "configMaps",
    "secrets",
    "persistentVolumeClaims",
    "jobs",
    "cronJobs",
    "podDisruptionBudgets",
    "networkPolicies",
    "horizontalPodAutoscalers",
    "namespaces",
    "manifests",
];

/// A field of a resource with its default says what its absence says.
const DEFAULTS: [(&str, &str); 7] = [
    ("skipOnDependencyFailure", "true"),
    ("creationPolicy", "\"WhenNeeded\""),
    ("deletionPolicy", "\"Delete\""),
    ("conflictPolicy", "\"Stuck\""),
    ("patchStrategy", "\"apply\""),
    ("waitForReady", "true"),
    ("timeoutSeconds", "300"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Digest([u8; 16]);

impl Digest {
    pub fn of(text: &str) -> Digest {
        let all = Sha256::digest(text);
        let mut digest = [0; 16];
        digest.copy_from_slice(&all[..16]);
        Digest(digest)
    }

    pub fn of_value(value: &Value) -> Digest {
        let mut text = String::new();
        canonical(value, &mut text);
        Digest::of(&text)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..4]
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[derive(Clone, Debug)]
pub struct Content {
    pub digest: Digest,
    /// By the object that each makes. Only the kinds that are followed.
    pub resources: BTreeMap<Key, Resource>,
    /// Kinds of resources that are not followed.
    pub unfollowed: BTreeSet<String>,
}

#[derive(Clone, Debug)]
pub struct Resource {
    /// Only `spec`, `data` and the like: no metadata, no status.
    manifest: Value,
    /// Made once, not rendered, or skipped because something else was not: whatever stands there is right.
    pub hands_off: bool,
    pub wait_for_ready: bool,
    /// Waits for others.
    pub depends: bool,
    /// Applied, but not over fields of other managers.
    yields: bool,
    /// Fields that are others' once the object is there, as names from the top.
    ignored: Vec<Vec<String>>,
}

impl Content {
    /// Of a node's spec, or of its `released`.
    pub fn of(spec: &Value, namespace: &str) -> Content {
        let (mut lines, mut resources, mut unfollowed) = (vec![], BTreeMap::new(), BTreeSet::new());
        for array in ARRAYS {
            for resource in spec
                .get(array)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
            {
                let mut line = format!("{array} ");
                canonical(&normal(resource), &mut line);
                lines.push(line);
                match key_of(resource, namespace) {
                    Ok(key) => drop(resources.insert(key, Resource::of(resource))),
                    Err(kind) => drop(unfollowed.insert(kind)),
                }
            }
        }
        for key in skipped(spec).filter_map(|resource| key_of(resource, namespace).ok()) {
            if let Some(resource) = resources.get_mut(&key) {
                (resource.hands_off, resource.wait_for_ready) = (true, false);
            }
        }
        lines.sort();
        Content {
            digest: Digest::of(&lines.join("\n")),
            resources,
            unfollowed,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.resources.is_empty() && self.unfollowed.is_empty()
    }
}

/// What waits, directly or not, for a resource that did not render: nothing is done about it, and nothing waits for it.
fn skipped(spec: &Value) -> impl Iterator<Item = &Value> {
    let arrays = ARRAYS
        .iter()
        .filter_map(|array| spec.get(array)?.as_array());
    let all: Vec<&Value> = arrays.flatten().collect();
    let mut failed: BTreeSet<&str> = all
        .iter()
        .filter(|resource| !text_at(resource, "/renderError").is_empty())
        .map(|resource| text_at(resource, "/id"))
        .collect();
    let mut skipped = vec![];
    loop {
        let waits = |resource: &&&Value| {
            let ids = resource["dependIds"].as_array().into_iter().flatten();
            let mut ids = ids.filter_map(Value::as_str);
            let by_choice = resource["skipOnDependencyFailure"] != Value::Bool(false);
            let is_failed = |id: &str| failed.contains(id);
            let waits = by_choice && ids.any(is_failed);
            !is_failed(text_at(resource, "/id"))
                && (waits || is_failed(text_at(resource, "/namespaceFrom")))
        };
        let Some(next) = all.iter().find(waits) else {
            return skipped.into_iter();
        };
        failed.insert(text_at(next, "/id"));
        skipped.push(*next);
    }
}

/// A resource without what says nothing: nulls, empty lists and texts, defaults. Its `spec` is left alone.
fn normal(resource: &Value) -> Value {
    let Some(fields) = resource.as_object() else {
        return resource.clone();
    };
    let says_something = |(name, value): &(&String, &Value)| {
        let empty = match value {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Array(list) => list.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            _ => false,
        };
        let default = || {
            let text = value.to_string();
            DEFAULTS.iter().any(|(n, d)| n == name && *d == text)
        };
        *name == "spec" || !(empty || default())
    };
    let kept = fields.iter().filter(says_something);
    kept.map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// The object that a resource makes; or its kind, where that is not followed.
fn key_of(resource: &Value, namespace: &str) -> Result<Key, String> {
    let text = |pointer: &str| {
        let text = resource.pointer(pointer).and_then(Value::as_str);
        text.filter(|text| !text.is_empty())
    };
    let kind = text("/spec/kind").unwrap_or("a resource without kind");
    let followed = Kind::of_manifest(text("/spec/apiVersion").unwrap_or_default(), kind);
    let followed = followed
        .filter(|kind| kind.is_child())
        .ok_or_else(|| kind.to_owned())?;
    let name = text("/nameTemplate")
        .or(text("/spec/metadata/name"))
        .unwrap_or_default();
    let namespace = text("/targetNamespace")
        .or(text("/spec/metadata/namespace"))
        .unwrap_or(namespace);
    Ok(Key::new(followed, namespace, name))
}

impl Resource {
    fn of(resource: &Value) -> Resource {
        let text = |name: &str| {
            resource
                .get(name)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let mut manifest = resource["spec"].clone();
        if let Some(fields) = manifest.as_object_mut() {
            for name in ["metadata", "status", "apiVersion", "kind"] {
                fields.remove(name);
            }
        }
        let list = |name: &str| {
            resource
                .get(name)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
        };
        let mut ignored: Vec<Vec<String>> = list("ignoreFields")
            .filter_map(Value::as_str)
            .map(names_in)
            .collect();
        if text_at(resource, "/spec/kind") == "StatefulSet" {
            // The operator's own gate moves it.
            ignored.push(names_in("spec.updateStrategy.rollingUpdate.partition"));
        }
        Resource {
            manifest,
            hands_off: text("creationPolicy") == "Once" || !text("renderError").is_empty(),
            wait_for_ready: resource.get("waitForReady") != Some(&Value::Bool(false)),
            depends: list("dependIds").next().is_some(),
            yields: text("conflictPolicy") != "Force"
                && matches!(text("patchStrategy"), "" | "apply"),
            ignored,
        }
    }

    /// Whether the object says what this resource says and, as far as the manager's fields tell, nothing that an earlier
    /// resource said. The paths where it does not; empty where all is well.
    pub fn differences(&self, object: &Value, manager: &str) -> Vec<Path> {
        if self.hands_off {
            return vec![];
        }
        let mut comparison = Comparison {
            resource: self,
            object,
            path: vec![],
            differences: vec![],
        };
        comparison.compare(&self.manifest, object);
        let mut differences = comparison.differences;
        for leaf in fields::owned_by(object, manager).unwrap_or_default() {
            let is_left_over = leaf.applied && fields::at(&self.manifest, &leaf.path).is_none();
            if is_left_over && !self.is_ignored(&leaf.path) {
                differences.push(leaf.path);
            }
        }
        differences
    }

    /// Fields that the object has otherwise, and that others own. One of them keeps the whole object from being applied, unless
    /// the resource takes fields over, or is not applied at all.
    pub fn conflicts<'p>(
        &self,
        differences: &'p [Path],
        object: &Value,
        claims: &Claims,
    ) -> Option<&'p Path> {
        let is_conflict = |path: &&Path| {
            self.names(path) && fields::at(object, path).is_some() && claims.others(path)
        };
        let yields = self.yields;
        differences.iter().filter(|_| yields).find(is_conflict)
    }

    /// Whether this resource says what stands in the object at one path that the manager owns.
    pub fn agrees_at(&self, object: &Value, path: &Path, applied: bool) -> bool {
        if self.hands_off || self.is_ignored(path) {
            return true;
        }
        match fields::at(&self.manifest, path) {
            Some(wanted) => says(wanted, fields::at(object, path), in_quantities(path)),
            // An update also owns the defaults that it set; an apply owns only what it names.
            None => !applied,
        }
    }

    pub fn names(&self, path: &Path) -> bool {
        fields::at(&self.manifest, path).is_some_and(|value| !value.is_null())
    }

    fn is_ignored(&self, path: &[String]) -> bool {
        self.ignored
            .iter()
            .any(|field| fields::is_below(path, field))
    }

    fn ignores_below(&self, path: &[String]) -> bool {
        let names: Vec<&str> = path
            .iter()
            .filter_map(|step| step.strip_prefix("f:"))
            .collect();
        self.ignored
            .iter()
            .any(|field| field.len() > names.len() && field.iter().zip(&names).all(|(a, b)| a == b))
    }
}

/// Goes down the maps, and the lists whose items have keys, so that a difference has a path. Other lists are compared whole.
struct Comparison<'a> {
    resource: &'a Resource,
    object: &'a Value,
    path: Path,
    differences: Vec<Path>,
}

impl Comparison<'_> {
    fn compare(&mut self, wanted: &Value, found: &Value) {
        if self.resource.is_ignored(&self.path) {
            return;
        }
        match (wanted, found) {
            (Value::Object(wanted), Value::Object(fields)) => {
                for (name, value) in wanted {
                    self.below(format!("f:{name}"), value, fields.get(name));
                }
            }
            (Value::Array(list), _) => self.compare_list(wanted, list, found),
            _ if self.says(wanted, found) => {}
            _ => self.differences.push(self.path.clone()),
        }
    }

    fn compare_list(&mut self, wanted: &Value, list: &[Value], found: &Value) {
        // What is ignored may be inside: then each item is looked at for itself.
        let ignores = self.resource.ignores_below(&self.path);
        if !ignores && self.says(wanted, found) {
            return;
        }
        let items = fields::items_of(self.object, &self.path);
        if let Some(any) = items.first() {
            for item in list {
                // A manifest may leave out a key with a default, and then more than one may fit.
                let fit = |step: &&String| {
                    let there = fields::at(found, std::slice::from_ref(*step));
                    let same = there.is_some_and(|there| self.says(item, there));
                    (fields::fits(item, step), same)
                };
                let step = items.iter().max_by_key(fit);
                let step = step.filter(|step| fields::fits(item, step) > 0);
                let step = step.map_or_else(|| fields::step_like(any, item), String::clone);
                let there = fields::at(found, std::slice::from_ref(&step));
                self.below(step, item, there);
            }
        } else if ignores {
            for (at, item) in list.iter().enumerate() {
                self.below(format!("i:{at}"), item, found.get(at));
            }
        } else {
            self.differences.push(self.path.clone());
        }
    }

    fn below(&mut self, step: String, wanted: &Value, found: Option<&Value>) {
        self.path.push(step);
        match found {
            Some(found) => self.compare(wanted, found),
            None if says(wanted, None, false) || self.resource.is_ignored(&self.path) => {}
            None => self.differences.push(self.path.clone()),
        }
        self.path.pop();
    }

    fn says(&self, wanted: &Value, found: &Value) -> bool {
        says(wanted, Some(found), in_quantities(&self.path))
    }
}

fn in_quantities(path: &[String]) -> bool {
    path.iter()
        .filter_map(|step| step.strip_prefix("f:"))
        .any(is_quantity)
}

/// The names in a simple JSONPath such as `$.spec.template.spec.containers[0].image`. Indices and wildcards match all.
fn names_in(path: &str) -> Vec<String> {
    let parts = path.trim_start_matches('$').split(['.', '[', ']']);
    parts
        .map(|part| part.trim_matches(['\'', '"']))
        .filter(|part| !part.is_empty() && *part != "*" && part.parse::<usize>().is_err())
        .map(str::to_owned)
        .collect()
}

pub fn text_at<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn resource(extra: Value) -> Value {
        let mut resource = json!({"id": "app", "nameTemplate": "a-app", "spec": {
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"labels": {"x": "y"}},
            "spec": {"replicas": 1, "template": {"spec": {"containers": [{"name": "app", "image": "web:1"}]}}},
        }});
        for (name, value) in extra.as_object().expect("fields") {
            resource[name] = value.clone();
        }
        resource
    }

    fn object(image: &str, replicas: i64) -> Value {
        json!({"spec": {"replicas": replicas, "template": {"spec": {"containers": [
            {"name": "app", "image": image, "imagePullPolicy": "Always"}], "dnsPolicy": "ClusterFirst"}}}})
    }

    #[test]
    fn defaults_do_not_make_another_content() {
        let of = |spec: Value| Content::of(&spec, "ns").digest;
        let plain = of(json!({"deployments": [resource(json!({}))]}));
        let filled = json!({"timeoutSeconds": 300, "waitForReady": true, "dependIds": [], "renderError": ""});
        assert_eq!(
            plain,
            of(json!({"deployments": [resource(filled)], "services": []}))
        );
        assert_ne!(
            plain,
            of(json!({"deployments": [resource(json!({"timeoutSeconds": 1}))]}))
        );
        assert_ne!(plain, of(json!({"manifests": [resource(json!({}))]})));
    }

    #[test]
    fn what_waits_for_what_did_not_render_is_let_be() {
        let of = |id: &str, more: Value| {
            let mut resource = resource(more);
            (resource["id"], resource["nameTemplate"]) = (json!(id), json!(id));
            resource
        };
        let spec = json!({"deployments": [
            of("last", json!({"dependIds": ["next"]})),
            of("next", json!({"dependIds": ["bad"]})),
            of("inside", json!({"namespaceFrom": "bad", "skipOnDependencyFailure": false})),
            of("anyway", json!({"dependIds": ["bad"], "skipOnDependencyFailure": false})),
            of("other", json!({"dependIds": ["anyway"]})),
            {"id": "bad", "spec": {}, "renderError": "no"},
        ]});
        let content = Content::of(&spec, "ns");
        let let_be = content
            .resources
            .iter()
            .filter(|(_, resource)| resource.hands_off);
        let let_be: Vec<String> = let_be.map(|(key, _)| key.to_string()).collect();
        assert_eq!(let_be.len(), 3, "{let_be:?}");
        for name in ["inside", "last", "next"] {
            assert!(let_be.iter().any(|key| key.contains(name)), "{let_be:?}");
        }
    }

    #[test]
    fn differences_are_named_by_path() {
        for (name, extra, found, differences) in [
            ("the same", json!({}), object("web:1", 1), 0),
            ("another image", json!({}), object("web:2", 1), 1),
            ("scaled by others", json!({}), object("web:1", 5), 1),
            (
                "scaled, and that is theirs",
                json!({"ignoreFields": ["$.spec.replicas"]}),
                object("web:1", 5),
                0,
            ),
            (
                "image ignored",
                json!({"ignoreFields": ["$.spec.template.spec.containers[0].image"]}),
                object("x", 1),
                0,
            ),
            (
                "made once",
                json!({"creationPolicy": "Once"}),
                object("x", 9),
                0,
            ),
        ] {
            let content = Content::of(&json!({"deployments": [resource(extra)]}), "ns");
            let key = Key::new(Kind::Deployment, "ns", "a-app");
            let found = content.resources[&key].differences(&found, "m");
            assert_eq!(found.len(), differences, "{name}: {found:?}");
        }
    }

    #[test]
    fn what_an_earlier_apply_left_is_a_difference() {
        let content = Content::of(&json!({"deployments": [resource(json!({}))]}), "ns");
        let mut found = object("web:1", 1);
        found["spec"]["paused"] = json!(true);
        found["metadata"] = json!({"managedFields": [
            {"manager": "m", "operation": "Apply", "fieldsV1": {"f:spec": {"f:paused": {}}}}]});
        let resource = content.resources.values().next().expect("one");
        assert_eq!(resource.differences(&found, "m").len(), 1);
        assert_eq!(resource.differences(&found, "other").len(), 0);
    }

    #[test]
    fn items_with_keys_are_compared_one_by_one() {
        let image = "$.spec.template.spec.containers[0].image";
        let app = |image: &str| json!({"name": "app", "image": image});
        let side = || json!({"name": "side", "image": "side:1"});
        let port = |protocol: &str, name: &str| json!({"containerPort": 80, "protocol": protocol, "name": name});
        let with_ports = |ports: Value| json!({"name": "app", "image": "web:1", "ports": ports});
        for (name, ignored, wanted, found, differences) in [
            (
                "another image",
                "",
                json!([app("web:1")]),
                json!([side(), app("x")]),
                vec!["[name=app].image"],
            ),
            (
                "no such item",
                "",
                json!([app("web:1"), side()]),
                json!([app("x")]),
                vec!["[name=app].image", "[name=side]"],
            ),
            (
                "ignored, and another item before it",
                image,
                json!([app("web:1")]),
                json!([side(), app("x")]),
                vec![],
            ),
            (
                "ignored, and not there",
                image,
                json!([app("web:1")]),
                json!([side()]),
                vec!["[name=app]"],
            ),
            (
                "a key left out, and two that fit",
                "",
                json!([
                    with_ports(json!([{"containerPort": 80, "name": "a"}])),
                    side()
                ]),
                json!([with_ports(json!([port("UDP", "b"), port("TCP", "a")]))]),
                vec!["[name=side]"],
            ),
        ] {
            let ignored: Vec<&str> = [ignored]
                .into_iter()
                .filter(|path| !path.is_empty())
                .collect();
            let mut resource = resource(json!({"ignoreFields": ignored}));
            resource["spec"]["spec"]["template"]["spec"]["containers"] = wanted;
            let content = Content::of(&json!({"deployments": [resource]}), "ns");
            let mut object = object("", 1);
            object["spec"]["template"]["spec"]["containers"] = found;
            let items = json!({"k:{\"name\":\"app\"}": {"f:image": {}, "f:ports": {
                "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {}, "k:{\"containerPort\":80,\"protocol\":\"UDP\"}": {}}}});
            object["metadata"] = json!({"managedFields": [{"manager": "other", "operation": "Update",
                "fieldsV1": {"f:spec": {"f:template": {"f:spec": {"f:containers": items}}}}}]});
            let resource = content.resources.values().next().expect("one");
            let found = resource.differences(&object, "m");
            let found: Vec<String> = found.iter().map(|path| fields::show(path)).collect();
            let differences: Vec<String> = differences
                .iter()
                .map(|item| format!(".spec.template.spec.containers{item}"))
                .collect();
            assert_eq!(found, differences, "{name}");
        }
    }
}
