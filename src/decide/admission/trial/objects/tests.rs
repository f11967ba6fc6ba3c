//! Cases for the objects that rows share.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use crate::decide::admission::trial::tests::{
    changed, claim, map, of_resources as form, rows, tried,
};
use crate::decide::admission::trial::{On, Trial, of};

fn said(trial: &Trial) -> Vec<String> {
    let warning = trial.objects.warning(trial.tried == trial.rows);
    warning.into_iter().collect()
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
    let asked = AtomicUsize::new(0);
    let go_on = || asked.fetch_add(1, Ordering::Relaxed) < 3;
    let four = rows(&[("a", ""), ("b", ""), ("c", ""), ("d", "")]);
    let trial = of(&change, &On::rows(&four), ("tenants", "h", "web"), &go_on);
    assert!(said(&trial)[0].contains("(and at least 1 more such clash)"));
}
