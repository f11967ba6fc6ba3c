//! Cases for the objects that a change makes go, and for those that rows share.

use serde_json::{Value, json};

use crate::decide::admission::trial::tests::{changed, rows, tried};
use crate::decide::admission::trial::{Trial, of};

fn form(resources: Value) -> Value {
    json!({"metadata": {"name": "web"}, "spec": {"hubId": "h", "manifests": resources}})
}

fn claim(name: &str, more: Value) -> Value {
    let mut claim = json!({
        "id": "data", "nameTemplate": name, "spec": {"apiVersion": "v1", "kind": "PersistentVolumeClaim"},
    });
    let fields = claim.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    claim
}

fn map(name: &str, value: &str) -> Value {
    json!({
        "id": "map", "nameTemplate": name, "spec": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": value}},
    })
}

fn said(trial: &Trial) -> Vec<String> {
    trial.objects.warnings(trial.tried == trial.rows)
}

const GONE: &str = ", as the form does not name them any more; to keep them, set deletionPolicy: Retain first and let that roll out";

#[test]
fn what_a_change_makes_go_is_told_before_it_goes() {
    let three = rows(&[("acme", "pro"), ("globex", "free"), ("initech", "free")]);
    let uid = "{{ .uid }}";
    let data = || claim("{{ .uid }}-data", json!({}));
    let with = |more: Value| claim("{{ .uid }}-data", more);
    let claims = |names: &str| vec![format!("deletes 3 PersistentVolumeClaims{names}{GONE}")];
    let all = "(acme-data, globex-data and 1 more)";
    let fails = r#"{{ if eq .plan "free" }}{{ fail "no" }}{{ end }}"#;
    let of_v2 = json!({"spec": {"apiVersion": "v2", "kind": "PersistentVolumeClaim"}});
    let cases: Vec<(&str, Value, Value, Vec<String>)> = vec![
        (
            "the block is gone",
            json!([data(), map(uid, "x")]),
            json!([map(uid, "x")]),
            claims(&format!(" {all}")),
        ),
        (
            "another name",
            json!([data()]),
            json!([claim("{{ .uid }}-disk", json!({}))]),
            claims(&format!(" {all}")),
        ),
        (
            "another namespace",
            json!([data()]),
            json!([with(json!({"targetNamespace": "elsewhere"}))]),
            claims(&format!(" {all}")),
        ),
        (
            "the same namespace, by its name",
            json!([data()]),
            json!([with(json!({"targetNamespace": "tenants"}))]),
            vec![],
        ),
        (
            "another id",
            json!([data()]),
            json!([with(json!({"id": "disk"}))]),
            vec![],
        ),
        (
            "another version",
            json!([data()]),
            json!([with(of_v2)]),
            vec![],
        ),
        (
            "another value",
            json!([map(uid, "x")]),
            json!([map(uid, "y")]),
            vec![],
        ),
        (
            "it was to stay",
            json!([with(json!({"deletionPolicy": "Retain"})), map(uid, "x")]),
            json!([map(uid, "x")]),
            vec![],
        ),
        (
            "too late for that",
            json!([data()]),
            json!([claim(
                "{{ .uid }}-disk",
                json!({"deletionPolicy": "Retain"})
            )]),
            claims(&format!(" {all}")),
        ),
        (
            "the one of a row",
            json!([data()]),
            json!([claim(
                r#"{{ .uid }}-{{ if eq .plan "pro" }}disk{{ else }}data{{ end }}"#,
                json!({})
            )]),
            vec![format!(
                "deletes 1 PersistentVolumeClaim (acme-data){}",
                GONE.replace("them", "it")
            )],
        ),
        (
            "by kind",
            json!([data(), map(uid, "x")]),
            json!([{"id": "s", "nameTemplate": uid, "spec": {"apiVersion": "v1", "kind": "Secret"}}]),
            vec![
                format!("deletes 3 ConfigMaps (acme, globex and 1 more){GONE}"),
                format!("deletes 3 PersistentVolumeClaims {all}{GONE}"),
            ],
        ),
        (
            "a row's value is not told",
            json!([claim("{{ .uid }}-{{ .plan | sha1sum }}", json!({}))]),
            json!([data()]),
            claims(" (one of row acme, one of row globex and 1 more)"),
        ),
        (
            "nothing goes of a node of which something does not render",
            json!([data(), map(uid, "x")]),
            json!([map(uid, fails)]),
            vec![format!(
                "deletes 1 PersistentVolumeClaim (acme-data){}",
                GONE.replace("them", "it")
            )],
        ),
        (
            "what did not render has made nothing",
            json!([claim(fails, json!({})), map(uid, "x")]),
            json!([map(uid, "x")]),
            // An empty name does not render either.
            vec![],
        ),
    ];
    for (name, old, new, expected) in cases {
        let trial = tried(Some(&form(old)), &form(new), &three);
        assert_eq!(said(&trial), expected, "{name}");
    }
    let created = tried(None, &form(json!([data()])), &three);
    assert_eq!(said(&created), [""; 0], "a new form");

    let (old, new) = (
        form(json!([data(), map(uid, "x")])),
        form(json!([map(uid, "x")])),
    );
    let change = changed(Some(&old), &new).unwrap();
    let left = std::cell::Cell::new(3);
    let go_on = || left.replace(left.get() - 1) > 1;
    let trial = of(&change, &three, ("tenants", "h", "web"), None, &go_on);
    let least =
        format!("deletes at least 2 PersistentVolumeClaims (acme-data and globex-data){GONE}");
    assert_eq!(said(&trial), [least]);

    // What is to be done stands at the end, where the API server cuts.
    let long = "a".repeat(60);
    let far = rows(&[
        (&*format!("{long}1"), "x"),
        (&*format!("{long}2"), "x"),
        ("c", "x"),
    ]);
    let told = said(&tried(Some(&old), &new, &far)).remove(0);
    assert!(told.len() <= 256 && told.ends_with("roll out"), "{told}");
}

#[test]
fn what_two_rows_both_name_is_told() {
    let three = rows(&[("acme", "pro"), ("globex", "free"), ("initech", "free")]);
    let then = ": the first to come owns it, the others wait (conflict); put the row's uid into the nameTemplate";
    let both = json!([claim("{{ .uid }}", json!({})), map("m", "x")]);
    for (name, resources, expected) in [
        ("a name of each", json!([map("{{ .uid }}", "x")]), None),
        (
            "a name of all",
            json!([map("a", "x")]),
            Some(r#"rows acme and globex both name ConfigMap "a" (and 1 more such clash)"#),
        ),
        (
            "one of two resources",
            both,
            Some(r#"rows acme and globex both name ConfigMap "m" (and 1 more such clash)"#),
        ),
        (
            "another resource of another row",
            json!([
                map(r#"{{ if eq .uid "acme" }}x{{ else }}{{ .uid }}{{ end }}"#, "x"),
                {"id": "b", "nameTemplate": r#"{{ if eq .uid "globex" }}x{{ else }}{{ .uid }}-b{{ end }}"#,
                 "spec": {"apiVersion": "v1", "kind": "ConfigMap"}},
            ]),
            Some(r#"rows acme and globex both name ConfigMap "x""#),
        ),
        (
            "another kind of the same name",
            json!([
                map(
                    r#"{{ if eq .uid "acme" }}x{{ else }}{{ .uid }}{{ end }}"#,
                    "x"
                ),
                claim(
                    r#"{{ if eq .uid "globex" }}x{{ else }}{{ .uid }}{{ end }}"#,
                    json!({})
                ),
            ]),
            None,
        ),
        (
            "another namespace each",
            json!([
                {"id": "ns", "nameTemplate": "t-{{ .uid }}", "spec": {"apiVersion": "v1", "kind": "Namespace"}},
                {"id": "map", "nameTemplate": "a", "targetNamespace": "t-{{ .uid }}", "spec": {"apiVersion": "v1", "kind": "ConfigMap"}},
            ]),
            None,
        ),
        (
            "a row's value is not told",
            json!([map("{{ .plan | sha1sum }}", "x")]),
            Some("rows globex and initech both name the same ConfigMap"),
        ),
        (
            "what does not render names nothing",
            json!([map(
                r#"{{ if eq .uid "acme" }}a{{ else }}{{ fail "no" }}{{ end }}"#,
                "x"
            )]),
            None,
        ),
    ] {
        let trial = tried(None, &form(resources), &three);
        let expected: Vec<String> = expected
            .map(|said| format!("{said}{then}"))
            .into_iter()
            .collect();
        assert_eq!(said(&trial), expected, "{name}");
    }
    let change = changed(None, &form(json!([map("a", "x")]))).unwrap();
    let left = std::cell::Cell::new(4);
    let go_on = || left.replace(left.get() - 1) > 1;
    let four = rows(&[("a", ""), ("b", ""), ("c", ""), ("d", "")]);
    let trial = of(&change, &four, ("tenants", "h", "web"), None, &go_on);
    assert!(said(&trial)[0].contains("(and at least 1 more such clash)"));
}
