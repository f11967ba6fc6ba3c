//! `ignoreFields`: the places of an object that are others' to say. An element of a list is the same one wherever it stands,
//! for somebody may have put another before it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::api::names;
use crate::api::resource::{PatchStrategy, Resource};
use crate::decide::path::Path;

/// What tells the elements of Kubernetes' lists apart: the first of these that one has.
const ELEMENT_KEYS: [&str; 9] = [
    "name",
    "mountPath",
    "devicePath",
    "containerPort",
    "port",
    "ip",
    "topologyKey",
    "key",
    "type",
];

/// The resource's manifest without them.
pub fn without(resource: &Resource) -> Value {
    let mut object = resource.spec.clone();
    let places = pointers(resource, &object);
    blank(&mut object, &places);
    purge(&mut object, &places);
    object
}

/// Puts in their place what the cluster has; absent there, it is left out. A server-side apply takes away what its owner no
/// longer names, unless it is somebody else's too: that is left out as well, for to name it is to own it, and each change of
/// theirs would take it from us again.
pub fn keep(object: &mut Value, resource: &Resource, live: &Value) {
    let desired = object.clone();
    let places = pointers(resource, &desired);
    blank(object, &places);
    let applies = resource.patch_strategy == PatchStrategy::Apply;
    // What replaces an object takes the rest away with it.
    let replaces = resource.patch_strategy == PatchStrategy::Replace;
    for pointer in pointers(resource, live) {
        if applies && is_others(live, &pointer) {
            continue;
        }
        if let Some(value) = live.pointer(&pointer)
            && let Some(place) = counterpart(&desired, live, &pointer, replaces)
        {
            put(object, &place, value.clone());
        }
    }
    purge(object, &places);
}

/// JSON pointers of what `ignoreFields` matches in the object. A path that does not parse matches nothing here; no
/// form is rendered that has one.
fn pointers(resource: &Resource, object: &Value) -> Vec<String> {
    let paths = resource.ignore_fields.iter();
    let paths = paths.filter_map(|path| Path::parse(path).ok());
    paths.flat_map(|path| path.pointers(object)).collect()
}

/// Takes the fields out. An element leaves null behind, so that those after it stay where they are.
fn blank(object: &mut Value, places: &[String]) {
    for place in places {
        let Some((parent, token)) = place.rsplit_once('/') else {
            continue;
        };
        match object.pointer_mut(parent) {
            Some(Value::Object(fields)) => drop(fields.remove(&unescaped(token))),
            Some(Value::Array(items)) => {
                if let Some(item) = token.parse().ok().and_then(|i: usize| items.get_mut(i)) {
                    *item = Value::Null;
                }
            }
            _ => {}
        }
    }
}

/// Takes the elements out that are still blank.
fn purge(object: &mut Value, places: &[String]) {
    let mut lists: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for place in places {
        if let Some((list, token)) = place.rsplit_once('/')
            && let Ok(i) = token.parse()
        {
            lists.entry(list).or_default().insert(i);
        }
    }
    // What is deepest first: its path leads through the others.
    let mut lists: Vec<_> = lists.into_iter().collect();
    lists.sort_by_key(|(list, _)| std::cmp::Reverse(list.matches('/').count()));
    for (list, elements) in lists {
        if let Some(Value::Array(items)) = object.pointer_mut(list) {
            for i in elements.into_iter().rev() {
                if items.get(i).is_some_and(Value::is_null) {
                    items.remove(i);
                }
            }
        }
    }
}

/// The place in `desired` of what `pointer` names in `live`; `-` is the end of a list. None where there is none, because
/// what is around it is not there; `make` says whether that is made.
fn counterpart(desired: &Value, live: &Value, pointer: &str, make: bool) -> Option<String> {
    let mut place = String::new();
    let (mut ours, mut theirs) = (Some(desired), live);
    let mut tokens = pointer.split('/').skip(1).peekable();
    while let Some(token) = tokens.next() {
        let is_last = tokens.peek().is_none();
        match theirs {
            Value::Object(fields) => {
                let name = unescaped(token);
                place = format!("{place}/{token}");
                ours = ours.and_then(|ours| ours.get(&name));
                if ours.is_none() && !is_last && !make {
                    return None;
                }
                theirs = fields.get(&name)?;
            }
            Value::Array(items) => {
                let i: usize = token.parse().ok()?;
                let (item, list) = (items.get(i)?, ours?.as_array()?);
                match same_element(item, i, list) {
                    Some(at) => {
                        place = format!("{place}/{at}");
                        ours = list.get(at);
                    }
                    None if is_last => place = format!("{place}/-"),
                    None => return None,
                }
                theirs = item;
            }
            _ => return None,
        }
    }
    Some(place)
}

/// Where in the list the element is that `item`, the `i`th of its own, is a version of.
fn same_element(item: &Value, i: usize, list: &[Value]) -> Option<usize> {
    let is_scalar = |value: &Value| value.is_string() || value.is_number();
    let key = ELEMENT_KEYS
        .into_iter()
        .find(|key| item.get(key).is_some_and(is_scalar));
    let Some(key) = key else {
        return (i < list.len()).then_some(i);
    };
    let is_same = |other: &Value| other.get(key) == item.get(key);
    // Two ports may have one number, and differ in their protocols.
    if list.get(i).is_some_and(is_same) {
        return Some(i);
    }
    list.iter().position(is_same)
}

fn put(object: &mut Value, place: &str, value: Value) {
    let Some((parents, last)) = place.rsplit_once('/') else {
        return;
    };
    let mut here = object;
    for token in parents.split('/').skip(1) {
        let next = match here {
            Value::Object(fields) => {
                let empty = || Value::Object(Map::new());
                Some(fields.entry(unescaped(token)).or_insert_with(empty))
            }
            Value::Array(items) => token.parse().ok().and_then(|i: usize| items.get_mut(i)),
            _ => None,
        };
        let Some(next) = next else {
            return;
        };
        here = next;
    }
    match here {
        Value::Object(fields) => drop(fields.insert(unescaped(last), value)),
        Value::Array(items) => match last.parse().ok().and_then(|i: usize| items.get_mut(i)) {
            Some(item) => *item = value,
            None => items.push(value),
        },
        _ => {}
    }
}

/// Whether another field manager owns this very field.
fn is_others(live: &Value, pointer: &str) -> bool {
    let managers = live["metadata"]["managedFields"].as_array();
    managers.into_iter().flatten().any(|entry| {
        let is_ours = entry["manager"] == names::FIELD_MANAGER && entry["operation"] == "Apply";
        !is_ours && owned(&entry["fieldsV1"], live, pointer).is_some()
    })
}

/// The field's entry in a manager's set of fields, where that is a leaf.
fn owned<'a>(mut fields: &'a Value, mut object: &Value, pointer: &str) -> Option<&'a Value> {
    for token in pointer.split('/').skip(1) {
        match object {
            Value::Object(of_object) => {
                let name = unescaped(token);
                fields = fields.get(format!("f:{name}"))?;
                object = of_object.get(&name)?;
            }
            Value::Array(items) => {
                object = items.get(token.parse::<usize>().ok()?)?;
                let mut elements = fields.as_object()?.iter();
                fields = elements.find(|(name, _)| names_element(name, object))?.1;
            }
            _ => return None,
        }
    }
    Some(fields).filter(|fields| fields.as_object().is_some_and(Map::is_empty))
}

/// Elements are named by their keys (`k:{"name":"web"}`) or, in a set, by their values (`v:"web"`).
fn names_element(name: &str, item: &Value) -> bool {
    let parsed = |json: &str| serde_json::from_str::<Value>(json).ok();
    match name.split_once(':') {
        Some(("k", keys)) => parsed(keys).is_some_and(|keys| {
            let mut keys = keys.as_object().into_iter().flatten();
            keys.all(|(key, value)| item.get(key) == Some(value))
        }),
        Some(("v", value)) => parsed(value).as_ref() == Some(item),
        _ => false,
    }
}

fn unescaped(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The manifest of a resource that ignores these, when the cluster has that.
    fn kept(ignored: &[&str], strategy: &str, desired: Value, live: &Value) -> Value {
        let resource = json!({"id": "app", "ignoreFields": ignored, "patchStrategy": strategy, "spec": desired});
        let resource: Resource = serde_json::from_value(resource).expect("a resource");
        let mut object = resource.spec.clone();
        keep(&mut object, &resource, live);
        object
    }

    fn containers(list: Value) -> Value {
        json!({"spec": {"template": {"spec": {"containers": list}}}})
    }

    #[test]
    fn an_element_is_the_same_wherever_it_stands() {
        let one = "$.spec.template.spec.containers[?(@.name=='app')].image";
        let all = "$.spec.template.spec.containers[*].image";
        let (app, proxy) = (
            json!({"name": "app", "image": "app:1"}),
            json!({"name": "proxy", "image": "proxy:1"}),
        );
        let changed = json!({"name": "app", "image": "app:2"});
        let theirs = json!({"name": "side", "image": "side:9"});
        for (path, desired, live, expected) in [
            (
                one,
                json!([proxy, app]),
                json!([changed]),
                json!([proxy, changed]),
            ),
            (
                one,
                json!([app]),
                json!([theirs, changed]),
                json!([changed]),
            ),
            (
                all,
                json!([app]),
                json!([theirs, changed]),
                json!([changed]),
            ),
            (
                all,
                json!([proxy, app]),
                json!([changed, proxy]),
                json!([proxy, changed]),
            ),
            // One that the form no longer has.
            (one, json!([proxy]), json!([changed, proxy]), json!([proxy])),
            (one, json!([app]), json!([]), json!([{"name": "app"}])),
        ] {
            let object = kept(
                &[path],
                "apply",
                containers(desired),
                &containers(live.clone()),
            );
            assert_eq!(object, containers(expected), "{path} {live}");
        }
    }

    #[test]
    fn whole_elements_may_be_others() {
        let tolerations = |list: Value| json!({"spec": {"tolerations": list}});
        let spot = "$.spec.tolerations[?(@.key=='spot')]";
        let (gpu, ours, theirs) = (
            json!({"key": "gpu"}),
            json!({"key": "spot", "value": "ours"}),
            json!({"key": "spot", "value": "theirs"}),
        );
        for (path, desired, live, expected) in [
            (
                spot,
                json!([ours, gpu]),
                json!([gpu, theirs]),
                json!([theirs, gpu]),
            ),
            (
                spot,
                json!([gpu]),
                json!([gpu, theirs]),
                json!([gpu, theirs]),
            ),
            (spot, json!([ours, gpu, ours]), json!([gpu]), json!([gpu])),
            (
                "$.spec.tolerations[0]",
                json!([gpu]),
                json!([theirs]),
                json!([theirs]),
            ),
        ] {
            let object = kept(
                &[path],
                "apply",
                tolerations(desired),
                &tolerations(live.clone()),
            );
            assert_eq!(object, tolerations(expected), "{path} {live}");
        }
    }

    #[test]
    fn what_replaces_an_object_keeps_what_stands_in_nothing_of_the_forms() {
        let path = "$.spec.template.metadata.annotations['kubectl.kubernetes.io/restartedAt']";
        let note = json!({"annotations": {"kubectl.kubernetes.io/restartedAt": "noon"}});
        let live = json!({"spec": {"template": {"metadata": note}}});
        let desired = json!({"spec": {"template": {}}});
        assert_eq!(kept(&[path], "replace", desired.clone(), &live), live);
        assert_eq!(kept(&[path], "apply", desired.clone(), &live), desired);
    }

    #[test]
    fn what_another_manager_owns_is_not_named() {
        let fields = |fields: Value| json!([{"manager": "autoscaler", "operation": "Update", "subresource": "scale", "fieldsV1": fields}]);
        let mut live = containers(json!([{"name": "app", "image": "app:2"}]));
        live["spec"]["replicas"] = json!(7);
        let mut desired = containers(json!([{"name": "app", "image": "app:1"}]));
        desired["spec"]["replicas"] = json!(2);
        let paths = [
            "$.spec.replicas",
            "$.spec.template.spec.containers[*].image",
        ];
        let said = |live: &Value, strategy: &str| {
            let object = kept(&paths, strategy, desired.clone(), live);
            let image = object["spec"]["template"]["spec"]["containers"][0]["image"].clone();
            (object["spec"].get("replicas").cloned(), image)
        };
        assert_eq!(said(&live, "apply"), (Some(json!(7)), json!("app:2")));
        live["metadata"]["managedFields"] = fields(json!({"f:spec": {"f:replicas": {}}}));
        assert_eq!(said(&live, "apply"), (None, json!("app:2")));
        assert_eq!(said(&live, "merge"), (Some(json!(7)), json!("app:2")));
        let image = json!({r#"k:{"name":"app"}"#: {".": {}, "f:image": {}}});
        let of_pod = json!({"f:template": {"f:spec": {"f:containers": image}}});
        live["metadata"]["managedFields"] = fields(json!({"f:spec": of_pod}));
        assert_eq!(said(&live, "apply"), (Some(json!(7)), Value::Null));
        live["metadata"]["managedFields"][0]["manager"] = json!(names::FIELD_MANAGER);
        live["metadata"]["managedFields"][0]["operation"] = json!("Apply");
        assert_eq!(said(&live, "apply"), (Some(json!(7)), json!("app:2")));
    }

    #[test]
    fn paths_may_overlap_and_match_nothing() {
        let live = json!({"spec": {"a": {"b": 1}, "list": [[1], [2]]}});
        for paths in [
            vec!["$..*"],
            vec!["$.spec", "$.spec.a", "$.spec.a.b"],
            vec!["$.spec.list[*][*]", "$.spec.list[*]", "$.spec.a"],
        ] {
            let desired = json!({"spec": {"a": {"b": 2}, "list": [[3], [4]]}});
            assert_eq!(kept(&paths, "apply", desired, &live), live, "{paths:?}");
        }
        let desired = json!({"spec": {"a": 1}});
        assert_eq!(
            kept(&["$.nope", "$.spec.a.b.c"], "apply", desired.clone(), &live),
            desired
        );
    }
}
