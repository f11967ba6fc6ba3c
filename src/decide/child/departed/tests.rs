//! Which fields are removed from an object, and how.

use super::*;

fn resource(more: Value) -> Resource {
    let mut resource = json!({"id": "app", "spec": {}});
    let all = resource.as_object_mut().expect("an object");
    all.extend(more.as_object().expect("an object").clone());
    serde_json::from_value(resource).expect("a resource")
}

fn entry(manager: &str, operation: &str, fields: &Value) -> Value {
    json!({"manager": manager, "operation": operation, "apiVersion": "apps/v1", "fieldsV1": fields})
}

fn object(spec: &Value, managers: &[Value]) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "spec": spec,
        "metadata": {"uid": "u", "resourceVersion": "7", "managedFields": managers},
    })
}

fn ours(spec: &Value) -> Value {
    entry(names::FIELD_MANAGER, "Apply", &json!({"f:spec": spec}))
}

#[test]
fn only_what_leaves_the_manifest_is_a_reason_to_look() {
    let owned = json!({"f:spec": {
        "f:strategy": {"f:type": {}}, "f:args": {},
        "f:ports": {
            r#"k:{"port":53,"protocol":"TCP"}"#: {".": {}, "f:port": {}},
            r#"k:{"port":53,"protocol":"UDP"}"#: {".": {}, "f:port": {}, "f:protocol": {}},
        },
        "f:set": {r#"v:"a""#: {}},
    }});
    let ports = json!([{"port": 53, "protocol": "UDP"}, {"port": 53}]);
    let spec = json!({"strategy": {"type": "A"}, "args": ["a"], "ports": ports, "set": ["a"]});
    let with = |name: &str, value: Value| {
        let mut spec = spec.clone();
        spec[name] = value;
        spec
    };
    for (name, spec, expected) in [
        ("the same", spec.clone(), false),
        ("other values", with("args", json!(["b", "c"])), false),
        ("more", with("more", json!({"a": 1})), false),
        ("a field less", with("strategy", json!({})), true),
        (
            "a null",
            with("strategy", json!({"type": "A", "rollingUpdate": null})),
            true,
        ),
        (
            "an element less",
            with("ports", json!([{"port": 53}])),
            true,
        ),
        (
            "another element",
            with("ports", json!([{"port": 54}, {"port": 53}])),
            true,
        ),
        ("a value less", with("set", json!(["b"])), true),
    ] {
        assert_eq!(
            drops(&owned.to_string(), &json!({"spec": spec})),
            expected,
            "{name}"
        );
    }
}

/// The removed fields: `live` is the live object, of which lynqgate owns `owned`; `old` and `new` are the API server's results
/// for the previous and the new manifest.
fn gone(
    live: &Value,
    owned: &Value,
    old: &Value,
    (new, named): (&Value, &Value),
    ignored: &[&str],
) -> Value {
    let live = object(live, &[ours(owned)]);
    let new = object(new, &[ours(named)]);
    let resource = resource(json!({"ignoreFields": ignored}));
    let mut gone = departed(&live, (&object(old, &[]), &new), &new, &resource);
    gone.as_object_mut()
        .expect("a set")
        .remove("f:spec")
        .unwrap_or_else(|| json!({}))
}

#[test]
fn what_only_the_old_manifest_brought_about_goes() {
    let type_of = |name: &str| json!({"strategy": {"type": name}});
    let rolling = json!({"strategy": {"type": "Rolling", "rollingUpdate": {"max": 1}}});
    let recreate = (&type_of("Recreate"), &json!({"f:strategy": {"f:type": {}}}));
    let whole = json!({"f:strategy": {"f:rollingUpdate": {".": {}, "f:max": {}}}});
    let none = json!({});
    assert_eq!(
        gone(&rolling, &none, &rolling, recreate, &[]),
        whole,
        "a default beside it"
    );
    let theirs = json!({"strategy": {"type": "Rolling", "rollingUpdate": {"max": 2}}});
    assert_eq!(
        gone(&theirs, &none, &rolling, recreate, &[]),
        none,
        "no default: somebody wrote it"
    );
    let ignored = ["$.spec.strategy.rollingUpdate"];
    assert_eq!(
        gone(&rolling, &none, &rolling, recreate, &ignored),
        none,
        "left to others"
    );
    let same = (&rolling, &json!({"f:strategy": {"f:type": {}}}));
    assert_eq!(
        gone(&rolling, &none, &rolling, same, &[]),
        none,
        "a new one has it too"
    );
    // The default itself changes, as a NetworkPolicy's policyTypes do.
    let (before, after) = (json!({"types": ["In", "Out"]}), json!({"types": ["In"]}));
    let (named, goes) = (json!({"f:in": {}}), json!({"f:types": {}}));
    assert_eq!(gone(&before, &none, &before, (&after, &named), &[]), goes);
}

#[test]
fn an_element_goes_with_all_that_is_in_it() {
    let (a, b) = (
        json!({"name": "a", "image": "x", "pull": "Always"}),
        json!({"name": "b", "image": "y"}),
    );
    let element = |name: &str| {
        (
            format!("k:{{\"name\":\"{name}\"}}"),
            json!({".": {}, "f:name": {}, "f:image": {}}),
        )
    };
    let owned: Map<String, Value> = [element("a"), element("b")].into_iter().collect();
    let named: Map<String, Value> = [element("b")].into_iter().collect();
    let live = json!({"list": [a, b]});
    let new = json!({"list": [b]});
    let gone = gone(
        &live,
        &json!({"f:list": owned}),
        &live,
        (&new, &json!({"f:list": named})),
        &[],
    );
    let whole = json!({".": {}, "f:name": {}, "f:image": {}, "f:pull": {}});
    assert_eq!(gone, json!({"f:list": {r#"k:{"name":"a"}"#: whole}}));
    assert_eq!(fields::paths(&gone), [r#"list[name="a"]"#]);
    let mut object = live.clone();
    fields::remove(&mut object, &gone);
    assert_eq!(object, new);
}

#[test]
fn others_are_asked_for_nothing_but_by_force_and_subresources_never() {
    let (replicas, paused) = (
        json!({"f:spec": {"f:replicas": {}}}),
        json!({"f:spec": {"f:paused": {}}}),
    );
    let both = json!({"f:spec": {"f:replicas": {}, "f:paused": {}}});
    let mut scaled = entry("autoscaler", "Update", &replicas);
    scaled["subresource"] = json!("scale");
    let managers = |more: &[Value]| {
        let all = [
            &[ours(&json!({"f:replicas": {}, "f:paused": {}, "f:x": {}}))],
            more,
        ]
        .concat();
        object(&json!({"replicas": 1, "paused": true}), &all)
    };
    assert_eq!(
        made_ours(&managers(&[]), &both, false),
        Ok(None),
        "an apply takes them away"
    );
    assert_eq!(
        made_ours(&managers(&[scaled.clone()]), &both, true),
        Ok(None),
        "the autoscaler's stays"
    );
    for operation in ["Update", "Apply"] {
        let helm = entry("helm", operation, &both);
        let live = managers(&[scaled.clone(), helm]);
        let refused = OwnedByOthers {
            manager: "helm".into(),
            paths: vec!["spec.paused".into()],
        };
        assert_eq!(made_ours(&live, &both, false), Err(refused));
        let entries = made_ours(&live, &both, true)
            .expect("by force")
            .expect("a change");
        assert_eq!(
            entries[2]["fieldsV1"], replicas,
            "helm keeps what the autoscaler has too"
        );
        assert_eq!(entries[1], scaled);
    }
    let merged = entry(names::FIELD_MANAGER, "Update", &paused);
    let entries = made_ours(&managers(&[merged]), &paused, false)
        .expect("ours")
        .expect("a change");
    assert_eq!(entries.as_array().map(Vec::len), Some(1), "{entries}");
    // A field that no manager owns, in an object that lynqgate never applied.
    let live = object(&json!({"paused": true}), &[]);
    let entries = made_ours(&live, &paused, false)
        .expect("nobody's")
        .expect("a change");
    assert_eq!(entries[0]["fieldsV1"], paused);
}

/// Older versions applied a Secret's `stringData` unchanged.
#[test]
fn keys_that_were_applied_as_string_data_go() {
    let owned = json!({"f:stringData": {"f:user": {}, "f:password": {}}});
    let mut live = json!({
        "apiVersion": "v1", "kind": "Secret", "data": {"user": "YQ==", "password": "Yg=="},
        "metadata": {"managedFields": [entry(names::FIELD_MANAGER, "Apply", &owned)]},
    });
    live["metadata"]["managedFields"][0]["apiVersion"] = json!("v1");
    let new = json!({"apiVersion": "v1", "kind": "Secret", "data": {"password": "Yg=="}});
    assert!(drops(&managers::owned(&live).to_string(), &new));
    let gone = unnamed(&live, &new, &resource(json!({})));
    assert_eq!(gone, json!({"f:data": {"f:user": {}}}));
    let entries = made_ours(&live, &gone, false)
        .expect("ours")
        .expect("a change");
    assert_eq!(
        entries[0]["fieldsV1"],
        json!({"f:data": {"f:user": {}, "f:password": {}}})
    );
}
