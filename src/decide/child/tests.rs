//! How an object's digest is read, and what is applied.

use super::*;

/// In a request's path they would address another resource, or start a query.
#[test]
fn names_that_no_object_can_have() {
    for (namespace, name, possible) in [
        ("shop", "acme-web", true),
        ("", "system:reader", true),
        ("shop", "x/status", false),
        ("shop", "acme?dryRun=All", false),
        ("shop", "acme#x", false),
        ("shop", "..", false),
        ("shop", "a b", false),
        ("shop", "a%2fb", false),
        ("shop", "", false),
        ("shop/../kube-system", "acme", false),
    ] {
        let key = ObjectKey {
            kind: Kind {
                api_version: "v1".into(),
                kind: "ConfigMap".into(),
            }
            .into(),
            namespace: namespace.into(),
            name: name.into(),
        };
        assert_eq!(
            key.impossible().is_none(),
            possible,
            "{namespace:?} {name:?}"
        );
    }
}

#[test]
fn what_is_of_the_whole_cluster_is_named_without_a_namespace() {
    let object = |kind: &str, namespace: &str| {
        let metadata = json!({"name": "acme", "namespace": namespace});
        key_of(&json!({"apiVersion": "v1", "kind": kind, "metadata": metadata})).to_string()
    };
    assert_eq!(object("Namespace", ""), "Namespace/acme");
    assert_eq!(object("ConfigMap", "shop"), "ConfigMap/shop/acme");
}

fn resource(extra: Value) -> Resource {
    let mut base = json!({"id": "app", "nameTemplate": "acme-app", "spec": {
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"labels": {"app": "acme"}, "annotations": {"a": "b"}, "finalizers": ["a.example.com/f"], "namespace": "elsewhere"},
        "spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": "a", "image": "x:1"}, {"name": "b", "image": "y:1"}]}}}}});
    base.as_object_mut()
        .unwrap()
        .extend(extra.as_object().unwrap().clone());
    serde_json::from_value(base).unwrap()
}

fn node() -> NodeKey {
    NodeKey::new("tenants", "acme-web")
}

#[test]
fn a_child_beside_its_node_has_an_owner_reference() {
    let object = manifest(
        &resource(json!({"targetNamespace": "tenants", "labelsTemplate": {"plan": "pro"}})),
        &node(),
        "u1",
        Scope::Namespaced,
        None,
    );
    assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], "u1");
    assert_eq!(object["metadata"]["finalizers"], json!(["a.example.com/f"]));
    assert_eq!(
        object["metadata"]["labels"],
        json!({"app": "acme", "plan": "pro", "lynq.sh/managed": "true"})
    );
    assert_eq!(object["metadata"]["annotations"]["a"], "b");
    assert_eq!(
        *Child::of(&object).owner,
        Owner::Node {
            key: node(),
            uid: Some("u1".into())
        }
    );
}

#[test]
fn elsewhere_and_retained_children_have_labels_instead() {
    for (name, extra, scope, namespace) in [
        (
            "another namespace",
            json!({}),
            Scope::Namespaced,
            "elsewhere",
        ),
        ("cluster-scoped", json!({}), Scope::Cluster, ""),
        (
            "retained",
            json!({"targetNamespace": "tenants", "deletionPolicy": "Retain"}),
            Scope::Namespaced,
            "tenants",
        ),
    ] {
        let object = manifest(&resource(extra), &node(), "u1", scope, None);
        assert!(
            object["metadata"].get("ownerReferences").is_none(),
            "{name}"
        );
        assert_eq!(key_of(&object).namespace, namespace.into(), "{name}");
        assert_eq!(
            *Child::of(&object).owner,
            Owner::Node {
                key: node(),
                uid: None
            },
            "{name}"
        );
    }
}

#[test]
fn ignored_fields_keep_what_the_cluster_has() {
    let resource = resource(
        json!({"ignoreFields": ["$.spec.replicas", "$.spec.template.spec.containers[*].image", "$.spec.paused"]}),
    );
    let mut live = resource.spec.clone();
    live["spec"]["replicas"] = json!(7);
    live["spec"]["template"]["spec"]["containers"][1]["image"] = json!("y:2");
    let object = manifest(&resource, &node(), "u1", Scope::Namespaced, Some(&live));
    assert_eq!(object["spec"]["replicas"], 7);
    assert_eq!(
        object["spec"]["template"]["spec"]["containers"],
        json!([{"name": "a", "image": "x:1"}, {"name": "b", "image": "y:2"}])
    );
    assert!(object["spec"].get("paused").is_none());
    let mut scaled = resource.clone();
    scaled.spec["spec"]["replicas"] = json!(9);
    assert_eq!(applied_hash(&resource), applied_hash(&scaled));
    assert_eq!(
        manifest(&scaled, &node(), "u1", Scope::Namespaced, None)["spec"]["replicas"],
        9,
        "set at creation"
    );
}

#[test]
fn whose_an_object_is() {
    let object =
        |metadata: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    for (name, metadata, expected) in [
        ("nobody's", json!({}), Owner::Nobody),
        (
            "another controller's",
            json!({"ownerReferences": [{"controller": true, "apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "x"}]}),
            Owner::Other("Deployment d".into()),
        ),
        (
            "an orphan",
            json!({"labels": {"lynq.sh/orphaned": "true", "lynq.sh/node": "acme-web"}}),
            Owner::Nobody,
        ),
        (
            "by label, in its node's namespace",
            json!({"namespace": "tenants", "labels": {"lynq.sh/node": "acme-web"}}),
            Owner::Node {
                key: node(),
                uid: None,
            },
        ),
    ] {
        assert_eq!(*Child::of(&object(metadata)).owner, expected, "{name}");
    }
}

#[test]
fn a_replace_keeps_what_a_controller_counts_with() {
    let live = json!({"metadata": {"annotations": {"deployment.kubernetes.io/revision": "3", "theirs": "yes"}}});
    for (strategy, kept) in [("replace", "3".into()), ("apply", Value::Null)] {
        let resource = resource(json!({"patchStrategy": strategy}));
        let object = manifest(&resource, &node(), "u1", Scope::Namespaced, Some(&live));
        let annotations = &object["metadata"]["annotations"];
        assert_eq!(annotations["deployment.kubernetes.io/revision"], kept);
        assert!(annotations["theirs"].is_null(), "{strategy}");
    }
}
