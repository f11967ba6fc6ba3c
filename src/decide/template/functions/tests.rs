//! Typed values, which Lynq gives as marked texts; in these cases its mark would leak. Also values that no release may change.

use std::collections::BTreeMap;

use go_templates::TemplateError;
use serde_json::{Value, json};

use crate::decide::template::{Engine, Inputs, LIMITS, Rendered, Template, facts};

fn inputs() -> Inputs {
    let row = [
        ("uid", "acme-web"),
        ("n", "5"),
        ("empty", ""),
        ("half", "2.5"),
    ];
    let row = row.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let first_seen = "2026-01-02T03:04:05.6Z".parse().unwrap();
    let facts = facts::of(first_seen, [7; 32], "acme", "app");
    Inputs::new(&BTreeMap::from(row), Some(facts), LIMITS)
}

fn render(text: &str) -> Result<Rendered, TemplateError> {
    Template::parse(Engine::Go, "t", text)?.render(&inputs(), "spec.x")
}

fn leaf(template: &str) -> Value {
    match render(template) {
        Ok(rendered) => rendered.into_leaf(false),
        Err(error) => panic!("{template}: {}", error.message),
    }
}

#[test]
fn alone_it_makes_the_leaf_typed_and_elsewhere_it_is_text() {
    let cases = [
        ("{{ .n | int }}", json!(5)),
        ("{{ if .n }}{{ .n | int }}{{ end }}", json!(5)),
        ("{{ .n | int }}Mi", json!("5Mi")),
        ("x-{{ .n | int }}", json!("x-5")),
        ("{{ .n | int }}{{ .n | int }}", json!("55")),
        (" {{ .n | int }}", json!(" 5")),
        ("{{ .n | int }}\n", json!("5\n")),
        ("{{ .n | int }}{{ .empty }}", json!(5)),
        ("{{ .empty }}{{ .n | int }}", json!(5)),
        ("{{ .n | int | toString }}", json!("5")),
        ("{{ .n | int | quote }}", json!("\"5\"")),
        ("{{ .n }}", json!("5")),
        ("{{ 5 }}", json!("5")),
        ("{{ add (.n | int) 1 }}", json!("6")),
        ("{{ add (.n | int) 1 | int }}", json!(6)),
        ("{{ .half | float }}", json!(2.5)),
        ("{{ float 1e6 }}", json!(1_000_000)),
        ("{{ float 1e6 }}x", json!("1e+06x")),
        ("{{ float \"1e300\" }}", json!(1e300)),
        ("{{ float \"NaN\" }}", json!("NaN")),
        ("{{ bool .n }}", json!(false)),
        ("{{ bool \"on\" }}!", json!("true!")),
        ("{{ list (int 1) }}", json!("[1]")),
        (
            "{{ toJson (dict \"a\" (int 1) \"b\" (bool 1)) }}",
            json!("{\"a\":1,\"b\":true}"),
        ),
    ];
    for (template, expected) in cases {
        assert_eq!(leaf(template), expected, "{template}");
    }
}

#[test]
fn it_counts_as_a_number_and_fits_a_string() {
    let cases = [
        ("{{ gt (int \"5\") 3 }}", json!("true")),
        ("{{ eq (int .n) 5 }}", json!("true")),
        ("{{ mul (int \"3\") (int \"4\") }}", json!("12")),
        (
            "{{ if .empty | bool }}yes{{ else }}no{{ end }}",
            json!("no"),
        ),
        ("{{ not (int 0) }}", json!("true")),
        ("{{ until (int \"3\") }}", json!("[0 1 2]")),
        ("{{ index (list 7 8) (int 1) }}", json!("8")),
        ("{{ repeat (int \"2\") \"ab\" }}", json!("abab")),
        ("{{ ternary 1 2 (bool \"yes\") }}", json!("1")),
        ("{{ replace \"5\" \"6\" (int .n) }}", json!("6")),
        ("{{ upper (bool 1) }}", json!("TRUE")),
        (
            "{{ printf \"%d %s %v %q %03d %T\" (int 5) (int 5) (int 5) (int 5) (int 5) (int 5) }}",
            json!("5 5 5 \"5\" 005 int"),
        ),
        (
            "{{ printf \"%.1f %s %t %s\" (float 2) (float 2) (bool 1) (bool 1) }}",
            json!("2.0 2 true true"),
        ),
        (
            "{{ typeOf (int 1) }} {{ typeOf (float 1) }} {{ kindOf (bool 1) }}",
            json!("int float64 bool"),
        ),
        ("{{ print (int 1) (int 2) }}", json!("1 2")),
        ("{{ len (print (float 1e6)) }}", json!("5")),
        ("{{ int (int 5) }}", json!(5)),
        ("{{ float (int 5) }}", json!(5)),
        ("{{ bool (int 1) }}", json!(true)),
        (
            "{{ has 5 (list (int 5)) }}{{ uniq (list 5 (int 5)) }}",
            json!("true[5]"),
        ),
        ("{{ sortAlpha (list (int 3) (int 1)) }}", json!("[1 3]")),
        (
            "{{ lt (int 1) 2 }}{{ lt (float 1) 2.0 }}",
            json!("truetrue"),
        ),
    ];
    for (template, expected) in cases {
        assert_eq!(leaf(template), expected, "{template}");
    }
}

#[test]
fn a_field_that_must_stay_text_gets_the_text() {
    let rendered = render("{{ .n | int }}").unwrap();
    assert_eq!(rendered.clone().into_leaf(true), json!("5"));
    assert_eq!(rendered.into_text(), "5");
}

/// Written out here, so that no release changes a generated password.
#[test]
fn random_values_are_those_of_every_release() {
    let password = render("{{ randAlphaNum 32 }}").unwrap().into_text();
    assert_eq!(password, "h5vVmowZFaasqOf95UuTtGYIg2X2YCh7");
}

#[test]
fn a_row_without_a_seed_is_told_so() {
    let without = Inputs::new(&BTreeMap::new(), None, LIMITS);
    for (text, why) in [
        (
            "{{ uuidv4 }}",
            "error calling uuidv4: the hub's seed for random values is not known here",
        ),
        (
            "{{ now }}",
            "error calling now: the time at which the row was first seen is not known here",
        ),
        (
            "{{ ago 1 }}",
            "error calling ago: the time at which the row was first seen is not known here",
        ),
    ] {
        let template = Template::parse(Engine::Go, "t", text).unwrap();
        let message = template.render(&without, "x").unwrap_err().message;
        assert!(message.ends_with(why), "{text}: {message}");
    }
}

#[test]
fn many_renderings_of_a_row_have_one_budget() {
    let template = Template::parse(Engine::Go, "t", "{{ range 90000 }}{{ end }}").unwrap();
    let row = inputs();
    let count = (0..10).position(|_| match template.render(&row, "x") {
        Ok(_) => false,
        Err(error) => {
            let why =
                "the form's templates take more than 400000 steps for one row; shorten their loops";
            assert!(error.message.ends_with(why), "{}", error.message);
            true
        }
    });
    assert!(count.is_some_and(|count| count > 1), "{count:?}");
}

#[test]
fn a_function_that_is_not_there_has_the_one_that_was_meant() {
    for (text, why) in [
        (
            "{{ tohost .uid }}",
            "template: t:1: function \"tohost\" not defined; did you mean \"toHost\"?",
        ),
        ("{{ zzzz }}", "template: t:1: function \"zzzz\" not defined"),
    ] {
        assert_eq!(render(text).unwrap_err().message, why);
    }
}
