//! `ignoreFields`: the fields of an object that the form leaves to other managers. An element of a list keeps its identity when
//! its position changes, because another manager may insert one before it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::api::resource::{PatchStrategy, Resource};
use crate::decide::child::managers::without_others;
use crate::decide::child::{elements, secret};
use crate::decide::shared::path::{Path, unescaped};

/// The resource's manifest without its ignored fields.
pub fn without(resource: &Resource) -> Value {
    let mut object = resource.spec.clone();
    let places = pointers(resource, &object);
    blank(&mut object, &places);
    purge(&mut object, &places);
    object
}

/// Replaces each ignored field by its live value, and omits it if the live object lacks it. An element that the live object lacks
/// gets the form's values. For a server-side apply, also omits what another manager owns: to name a field is to own it, and each
/// change by the other manager would take it from us again.
pub fn keep(object: &mut Value, resource: &Resource, live: &Value) {
    let desired = object.clone();
    let mut places = pointers(resource, &desired);
    blank(object, &places);
    let fixed = object.clone();
    let versions = Versions {
        desired: &desired,
        fixed: &fixed,
        live,
        paired: RefCell::default(),
    };
    places.retain(|place| !versions.is_new(place));
    object.clone_from(&desired);
    blank(object, &places);
    let applies = resource.patch_strategy == PatchStrategy::Apply;
    // A replace would remove fields that the manifest omits.
    let replaces = resource.patch_strategy == PatchStrategy::Replace;
    let mut free: BTreeSet<&str> = places.iter().map(String::as_str).collect();
    for pointer in pointers(resource, live) {
        let value = match applies {
            true => without_others(live, &pointer),
            false => live.pointer(&pointer).cloned(),
        };
        let Some(value) = value else {
            continue;
        };
        let Some((parent, token)) = pointer.rsplit_once('/') else {
            continue;
        };
        let Some(parent_place) = versions.place(parent, replaces) else {
            continue;
        };
        match live.pointer(parent) {
            Some(Value::Array(_)) => {
                let own = desired.pointer(&parent_place).and_then(Value::as_array);
                let own = own.map(Vec::as_slice).unwrap_or_default();
                // Only an ignored element may be replaced by the live one.
                let is_free = |(i, one): &(usize, &Value)| {
                    let place = format!("{parent_place}/{i}");
                    let same = elements::is_same(one, &value).unwrap_or(true);
                    free.contains(place.as_str()) && same
                };
                let at = own.iter().enumerate().find(is_free).map(|(i, _)| i);
                let place = at.map(|i| format!("{parent_place}/{i}"));
                if let Some(place) = &place {
                    free.remove(place.as_str());
                }
                put_element(object, &parent_place, place.as_deref(), value, replaces);
            }
            _ => put(object, &format!("{parent_place}/{token}"), value),
        }
    }
    purge(object, &places);
}

/// JSON pointers of what `ignoreFields` matches in the object. A path that does not parse matches nothing here; no
/// form is rendered that has one.
fn pointers(resource: &Resource, object: &Value) -> Vec<String> {
    let paths = resource.ignore_fields.iter();
    let paths = paths.filter_map(|path| Path::parse(path).ok());
    match secret::mirrored(object) {
        None => paths.flat_map(|path| path.pointers(object)).collect(),
        Some(mirrored) => {
            let found = paths.flat_map(|path| path.pointers(&mirrored)).collect();
            secret::unmirrored(found, object)
        }
    }
}

/// Takes the fields out of any version of the object.
pub fn take_out(object: &mut Value, resource: &Resource) {
    let places = pointers(resource, object);
    blank(object, &places);
}

/// Removes the fields. An element becomes null, so that the positions of those after it stay valid.
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
    // Go deepest first, because a deeper path leads through the outer lists.
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

/// An object as the form wants it and as it is in the cluster.
struct Versions<'a> {
    desired: &'a Value,
    /// `desired` without the ignored fields.
    fixed: &'a Value,
    live: &'a Value,
    /// Caches matches by the addresses of both lists: many paths may lead through one list.
    paired: RefCell<BTreeMap<[*const Value; 2], Vec<Option<usize>>>>,
}

impl Versions<'_> {
    fn paired<T>(
        &self,
        theirs: &[Value],
        ours: &[Value],
        fixed: Option<&Value>,
        found: impl FnOnce(&[Option<usize>]) -> T,
    ) -> T {
        let mut paired = self.paired.borrow_mut();
        let pairs = paired
            .entry([theirs.as_ptr(), ours.as_ptr()])
            .or_insert_with(|| elements::pairs(theirs, ours, elements_of(fixed)));
        found(pairs)
    }

    /// The path in the desired object that matches the live path `pointer`. If the desired object lacks a parent of it: None, or
    /// the path anyway with `make`.
    fn place(&self, pointer: &str, make: bool) -> Option<String> {
        let mut place = String::new();
        let (mut ours, mut fixed) = (Some(self.desired), Some(self.fixed));
        let mut theirs = self.live;
        for token in pointer.split('/').skip(1) {
            match theirs {
                Value::Object(fields) => {
                    let name = unescaped(token);
                    place = format!("{place}/{token}");
                    ours = ours.and_then(|ours| ours.get(&name));
                    fixed = fixed.and_then(|fixed| fixed.get(&name));
                    if ours.is_none() && !make {
                        return None;
                    }
                    theirs = fields.get(&name)?;
                }
                Value::Array(items) => {
                    let i: usize = token.parse().ok()?;
                    let list = ours?.as_array()?;
                    let at = self.paired(items, list, fixed, |pairs| pairs.get(i).copied());
                    let at = at.flatten()?;
                    place = format!("{place}/{at}");
                    ours = list.get(at);
                    fixed = elements_of(fixed).get(at);
                    theirs = items.get(i)?;
                }
                _ => return None,
            }
        }
        Some(place)
    }

    /// Whether the place is in an element that the live object does not have.
    fn is_new(&self, place: &str) -> bool {
        let (mut ours, mut fixed) = (self.desired, Some(self.fixed));
        let mut theirs = Some(self.live);
        let mut tokens = place.split('/').skip(1).peekable();
        while let Some(token) = tokens.next() {
            let next = match ours {
                Value::Object(fields) => {
                    let name = unescaped(token);
                    theirs = theirs.and_then(|theirs| theirs.get(&name));
                    fixed = fixed.and_then(|fixed| fixed.get(&name));
                    fields.get(&name)
                }
                // The element itself is ignored.
                Value::Array(_) if tokens.peek().is_none() => return false,
                Value::Array(list) => {
                    let at: Option<usize> = token.parse().ok();
                    let items = elements_of(theirs);
                    let position = |pairs: &[Option<usize>]| pairs.iter().position(|p| *p == at);
                    let Some(i) = self.paired(items, list, fixed, position) else {
                        return true;
                    };
                    theirs = items.get(i);
                    fixed = at.and_then(|at| elements_of(fixed).get(at));
                    at.and_then(|at| list.get(at))
                }
                _ => None,
            };
            let Some(next) = next else {
                return false;
            };
            ours = next;
        }
        false
    }
}

fn elements_of(value: Option<&Value>) -> &[Value] {
    let list = value.and_then(Value::as_array);
    list.map(Vec::as_slice).unwrap_or_default()
}

fn put_element(object: &mut Value, list: &str, place: Option<&str>, value: Value, make: bool) {
    match (place, object.pointer_mut(list)) {
        (Some(place), _) => put(object, place, value),
        (None, Some(Value::Array(items))) => items.push(value),
        (None, None) if make => put(object, list, Value::Array(vec![value])),
        (None, _) => {}
    }
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
        Value::Array(items) => {
            if let Some(item) = last.parse().ok().and_then(|i: usize| items.get_mut(i)) {
                *item = value;
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::names;

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
            // An element that does not exist yet.
            (
                all,
                json!([app, proxy]),
                json!([changed]),
                json!([changed, proxy]),
            ),
            (one, json!([app]), json!([]), json!([app])),
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

    /// Our elements stay, whatever other managers insert beside them.
    #[test]
    fn an_element_of_others_takes_nobodys_place() {
        let in_list = |list: Value| json!({"spec": {"list": list}});
        let (ours, theirs) = (json!({"host": "ours"}), json!({"host": "theirs"}));
        let (ours_of_key, theirs_of_key) = (
            json!({"key": "spot", "effect": "NoSchedule"}),
            json!({"key": "spot", "effect": "NoExecute"}),
        );
        let (mount, injected) = (
            json!({"name": "data", "mountPath": "/a"}),
            json!({"name": "data", "mountPath": "/inj", "readOnly": true}),
        );
        let keyless = |from: &str| json!({"from": [from]});
        for (path, desired, live, expected) in [
            (
                "$.spec.list[?(@.host=='theirs')]",
                json!([ours]),
                json!([theirs, ours]),
                json!([ours, theirs]),
            ),
            (
                "$.spec.list[?(@.effect=='NoExecute')]",
                json!([ours_of_key]),
                json!([ours_of_key, theirs_of_key]),
                json!([ours_of_key, theirs_of_key]),
            ),
            (
                "$.spec.list[*].readOnly",
                json!([mount]),
                json!([injected, mount]),
                json!([mount]),
            ),
            (
                "$.spec.list[1]",
                json!(["--ours"]),
                json!(["--ours", "--theirs"]),
                json!(["--ours", "--theirs"]),
            ),
            (
                "$.spec.list[*].to",
                json!([keyless("a")]),
                json!([{"from": ["b"], "to": [1]}, keyless("a")]),
                json!([keyless("a")]),
            ),
            (
                "$.spec.list[*].to",
                json!([keyless("a")]),
                json!([{"from": ["a"], "to": [1]}]),
                json!([{"from": ["a"], "to": [1]}]),
            ),
        ] {
            let object = kept(&[path], "apply", in_list(desired), &in_list(live.clone()));
            assert_eq!(object, in_list(expected), "{path} {live}");
        }
        // An element that another manager applied is not named, so that its manager can remove it.
        let path = "$.spec.template.spec.containers[?(@.name=='side')]";
        let (app, side) = (
            json!({"name": "app"}),
            json!({"name": "side", "image": "s"}),
        );
        let mut live = containers(json!([app, side]));
        let element = json!({r#"k:{"name":"side"}"#: {".": {}, "f:name": {}, "f:image": {}}});
        let fields = json!({"f:spec": {"f:template": {"f:spec": {"f:containers": element}}}});
        live["metadata"]["managedFields"] =
            json!([{"manager": "mesh", "operation": "Apply", "fieldsV1": fields}]);
        let desired = containers(json!([app]));
        assert_eq!(kept(&[path], "apply", desired.clone(), &live), desired);
    }

    #[test]
    fn of_what_is_partly_others_the_rest_is_named() {
        let notes = |notes: Value| json!({"spec": {"notes": notes}});
        let mut live = notes(json!({"ours": "1", "theirs": "2"}));
        let fields = json!({"f:spec": {"f:notes": {".": {}, "f:theirs": {}}}});
        live["metadata"]["managedFields"] =
            json!([{"manager": "x", "operation": "Update", "fieldsV1": fields}]);
        let kept = |live: &Value| {
            kept(
                &["$.spec.notes"],
                "apply",
                notes(json!({"ours": "0"})),
                live,
            )
        };
        assert_eq!(kept(&live), notes(json!({"ours": "1"})));
        live["spec"]["notes"] = json!({"theirs": "2"});
        assert_eq!(kept(&live), json!({"spec": {}}));
    }

    /// Without its key, the element would be another one.
    #[test]
    fn a_key_of_an_element_is_always_named() {
        let ports = |port: Value| json!({"spec": {"ports": [{"name": "http", "port": port}]}});
        let mut live = ports(json!(81));
        let element = json!({r#"k:{"port":81,"protocol":"TCP"}"#: {"f:port": {}}});
        live["spec"]["ports"][0]["protocol"] = json!("TCP");
        live["metadata"]["managedFields"] = json!([{"manager": "x", "operation": "Apply", "fieldsV1": {"f:spec": {"f:ports": element}}}]);
        let object = kept(&["$.spec.ports[*].port"], "apply", ports(json!(80)), &live);
        assert_eq!(object, ports(json!(81)));
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
