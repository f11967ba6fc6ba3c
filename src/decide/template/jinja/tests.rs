//! Jinja: the table's functions as filters and functions, strictness, typed leaves, and hostile templates.

mod hostile;
mod library;
mod own;

use std::collections::BTreeMap;

use go_templates::TemplateError;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::decide::shared::planted;
use crate::decide::template::functions::LIBRARY;
use crate::decide::template::{Engine, Inputs, LIMITS, Rendered, Template, facts};

fn inputs() -> Inputs {
    let row = [
        ("uid", "acme-web"),
        ("n", "5"),
        ("empty", ""),
        ("plan", "pro"),
        ("hostile", "{{ uid }}"),
        ("config", r#"{"db":{"host":"db.local"},"tags":["x","y"]}"#),
    ];
    let row = BTreeMap::from(row.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let first_seen = "2026-01-02T03:04:05Z".parse().unwrap();
    let facts = facts::of(first_seen, [7; 32], "acme", "app");
    Inputs::new(&row, Some(facts), LIMITS)
}

fn render(text: &str) -> Result<Rendered, TemplateError> {
    Template::parse(Engine::Jinja, "spec.x", text)?.render(&inputs(), "spec.x")
}

fn leaf(text: &str) -> Value {
    match render(text) {
        Ok(rendered) => rendered.into_leaf(false),
        Err(error) => panic!("{text}: {}", error.message),
    }
}

fn message(text: &str) -> String {
    match render(text) {
        Ok(rendered) => panic!("{text}: no error but {:?}", rendered.into_text()),
        Err(error) => error.message,
    }
}

#[test]
fn results() {
    let cases = [
        ("{{ uid }}", json!("acme-web")),
        ("plain", json!("plain")),
        ("{# nothing #}x", json!("x")),
        ("{{ uid | upper }}", json!("ACME-WEB")),
        ("{{ upper(uid) }}", json!("ACME-WEB")),
        ("{{ uid | trunc(4) }}", json!("acme")),
        ("{{ trunc(4, uid) }}", json!("acme")),
        ("{{ uid | replace('-', '_') }}", json!("acme_web")),
        ("{{ empty | default('x') }}", json!("x")),
        ("{{ missing | default('x') }}", json!("x")),
        ("{{ 'a' if plan == 'pro' else 'b' }}", json!("a")),
        (
            "{% if plan in ['pro', 'enterprise'] %}16{% else %}15{% endif %}",
            json!("16"),
        ),
        (
            "{% if missing is defined %}a{% else %}b{% endif %}",
            json!("b"),
        ),
        ("{{ uid ~ '-' ~ 3 }}", json!("acme-web-3")),
        ("{{ 'a' + uid }}", json!("aacme-web")),
        ("{{ 2 + 3 * 4 }}", json!("14")),
        (
            "{{ 1.5 + 1 }} {{ 2 * 1.5 }} {{ 7 // 2 }} {{ 2 ** 3 }}",
            json!("2.5 3.0 3 8"),
        ),
        ("{{ n | repeat(3) }}", json!("555")),
        ("{{ (n | int) * 2 }}", json!("10")),
        ("{{ n * 2 }}", json!("55")),
        ("{{ [1, 2] + [3] }}", json!("[1, 2, 3]")),
        ("{{ (1, uid) }}", json!("(1, 'acme-web')")),
        ("{{ range(3) | join(',') }}", json!("0,1,2")),
        ("{{ range(5, 0, -2) | join(',') }}", json!("5,3,1")),
        (
            "{% for i in range(3) %}{{ loop.index }}{{ i }};{% endfor %}",
            json!("10;21;32;"),
        ),
        (
            "{% for k, v in {'b': 1, 'a': 2} | dictsort %}{{ k }}{{ v }}{% endfor %}",
            json!("a2b1"),
        ),
        (
            "{% for k, v in dict('a', 1) | items %}{{ k }}={{ v }}{% endfor %}",
            json!("a=1"),
        ),
        (
            "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}",
            json!("013"),
        ),
        (
            "{% for x in [] %}{{ x }}{% else %}none{% endfor %}",
            json!("none"),
        ),
        (
            "{% macro m(a, b='y') %}<{{ a }}{{ b }}>{% endmacro %}{{ m('x') }}{{ m('x', b='z') }}",
            json!("<xy><xz>"),
        ),
        (
            "{% set x %}a{{ uid }}{% endset %}{{ x | length }}",
            json!("9"),
        ),
        ("{% with x = 1 %}{{ x }}{% endwith %}", json!("1")),
        (
            "{{ uid[0:4] }} {{ uid[-3:] }} {{ uid[::-1] }} {{ [1,2,3,4][1:3] }} {{ [1,2,3][::2] }} {{ 'äöü'[1:] }} {{ uid[5:2] }}|{{ uid[99:] }}|{{ [1,2,3][-1:-3:-1] }}",
            json!("acme web bew-emca [2, 3] [1, 3] öü ||[3, 2]"),
        ),
        ("{{ fromJson(config).db.host }}", json!("db.local")),
        ("{{ (config | fromJson).tags | join('-') }}", json!("x-y")),
        ("{{ ['b', 'a'] | sort | join(',') }}", json!("a,b")),
        ("{{ [1, 2, 3] | map('add1') | join(',') }}", json!("2,3,4")),
        (
            "{{ [1, 2, 3, 4] | select('even') | list | first | length }}",
            json!("2"),
        ),
        (
            "{{ [{'a': 1}, {'a': 2}] | map(attribute='a') | join(',') }}",
            json!("1,2"),
        ),
        ("{{ index([1, 2], 1) }} {{ len('abc') }}", json!("2 3")),
        (
            "{{ dict('b', [1], 'a', {'x': none}) | toJson }}",
            json!("{\"a\":{\"x\":null},\"b\":[1]}"),
        ),
        ("{{ printf('%s-%03d', uid, 7) }}", json!("acme-web-007")),
        ("{{ 'a,b' | splitList(',') | last }}", json!("b")),
        ("{{ ternary(3, 1, plan == 'pro') }}", json!("3")),
        (
            "{{ 'https://h.example:80/x' | toHost }}",
            json!("h.example"),
        ),
        ("{{ hostile }}", json!("{{ uid }}")),
        (
            "{{ true }} {{ 1.0 }} {{ uid ~ false }}",
            json!("true 1.0 acme-webfalse"),
        ),
        ("{{ now() | date('2006-01-02') }}", json!("2026-01-02")),
        ("{{ now() }}", json!("2026-01-02 03:04:05 +0000 UTC")),
        ("a\n", json!("a\n")),
        ("{{ uid }}\n", json!("acme-web\n")),
        ("{{ '<' ~ uid ~ '>' }}", json!("<acme-web>")),
        ("{{ add(1, 2.9, '3') }}", json!("6")),
        (
            "{{ uid | string | length }} {{ [1, uid] | string }}",
            json!("8 [1, 'acme-web']"),
        ),
        ("{{ dict('a', 1).a }}", json!("1")),
        ("{{ uid is startingwith('acme') }}", json!("true")),
        (
            "{{ 1 in [1] }}{{ not true }}{{ 1 < 2 < 3 }}",
            json!("truefalsetrue"),
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(leaf(text), expected, "{text}");
    }
}

#[test]
fn random_values_are_those_of_their_place() {
    let first = leaf("{{ randAlphaNum(16) }}");
    assert_eq!(first, leaf("{{ randAlphaNum(16) }}"));
    assert_ne!(first, leaf("{{ randAlphaNum(16)  }}"), "another template");
    let two = leaf("{{ uuidv4() }} {{ uuidv4() }}");
    let (one, other) = two.as_str().unwrap().split_once(' ').unwrap();
    assert_ne!(one, other);
}

#[test]
fn typed_leaves() {
    let cases = [
        ("{{ n | int }}", json!(5)),
        ("{{ int(n) }}", json!(5)),
        ("{{ n | default('1') | int }}", json!(5)),
        ("{{ '2.5' | float }}", json!(2.5)),
        ("{{ '3' | float }}", json!(3)),
        ("{{ 'on' | bool }}", json!(true)),
        (
            "{% if plan == 'pro' %}{{ 3 | int }}{% else %}{{ 1 | int }}{% endif %}",
            json!(3),
        ),
        (
            "{% set r = n | int %}{% set s = 7 | int %}{{ r }}",
            json!(5),
        ),
        ("{{ n | int }}Mi", json!("5Mi")),
        ("x{{ n | int }}", json!("x5")),
        ("{{ n | int }}{{ n | int }}", json!("55")),
        ("{{ n | int }}\n", json!("5\n")),
        ("{{ (n | int) + 1 }}", json!("6")),
        ("{{ ((n | int) + 1) | int }}", json!(6)),
        ("{{ n | int | string }}", json!("5")),
        ("{{ n | int | toString }}", json!("5")),
        ("{{ '1e6' | float }} bytes", json!("1e+06 bytes")),
        ("{{ 5 }}", json!("5")),
        ("{{ true }}", json!("true")),
        ("{{ n }}", json!("5")),
        ("{% if 5 | int %}{{ '5' }}{% endif %}", json!("5")),
        ("{{ uid | length }}", json!("8")),
    ];
    for (text, expected) in cases {
        assert_eq!(leaf(text), expected, "{text}");
    }
    let kept = render("{{ n | int }}").unwrap().into_leaf(true);
    assert_eq!(kept, json!("5"), "a field that keeps its text");
}

#[test]
fn errors() {
    let cases = [
        (
            "{{ missing }}",
            "template: spec.x:1:3: undefined value: the row has no missing",
        ),
        (
            "a\n{{ plann | upper }}",
            "template: spec.x:2:11: undefined value: error calling upper: an argument is undefined: the row has no plann",
        ),
        (
            "{{ missing ~ 'x' }}",
            "template: spec.x:1:3: undefined value: the row has no missing",
        ),
        (
            "{{ uid.x.y }}",
            "template: spec.x:1:6: undefined value: uid.x",
        ),
        (
            "{{ uid | nope }}",
            "template: spec.x:1:9: unknown filter: filter nope is unknown",
        ),
        (
            "{{ nope() }}",
            "template: spec.x:1:3: unknown function: nope is unknown",
        ),
        (
            "{{ env('HOME') }}",
            "template: spec.x:1:3: unknown function: env is unknown",
        ),
        (
            "{{ upper(1) }}",
            "template: spec.x:1:3: invalid operation: error calling upper: wrong type for value; expected string; got int",
        ),
        (
            "{{ upper() }}",
            "template: spec.x:1:3: invalid operation: error calling upper: wrong number of args: want 1 got 0",
        ),
        (
            "{{ default() }}",
            "template: spec.x:1:3: invalid operation: error calling default: wrong number of args: want at least 1 got 0",
        ),
        (
            "{{ fail('no ' ~ plan) }}",
            "template: spec.x:1:3: invalid operation: error calling fail: no pro",
        ),
        (
            "{{ div(1, 0) }}",
            "template: spec.x:1:3: invalid operation: error calling div: runtime error: integer divide by zero",
        ),
        (
            "{{ 1 + 'a' }}",
            "template: spec.x:1:3: invalid operation: the + operator cannot take number and string",
        ),
        (
            "{{ {} * 2 }}",
            "template: spec.x:1:3: invalid operation: the * operator cannot take map and number",
        ),
        (
            "{{ 9223372036854775807 + 1 | int }}",
            "template: spec.x:1:3: invalid operation: the result of the + operator is too large",
        ),
        (
            "{% include 'x' %}",
            "template: spec.x:1:3: include: a template cannot take in others",
        ),
        (
            "{% extends 'x' %}",
            "template: spec.x:1:3: extends: a template cannot take in others",
        ),
        (
            "{% block a %}{% endblock %}",
            "template: spec.x:1:3: block: a template cannot take in others",
        ),
        (
            "a\n{{ 'x' * 3 }}",
            "template: spec.x:2:3: a constant string or list is multiplied; use repeat",
        ),
        (
            "{{ ('x' ~ 'y') * 3 }}",
            "template: spec.x:1:3: a constant string or list is multiplied; use repeat",
        ),
        (
            "{{ uid ~ 3 * (1, 2) }}",
            "template: spec.x:1:3: a constant string or list is multiplied; use repeat",
        ),
        (
            "{{ uid ~ ('x' and ('y')) * 3 }}",
            "template: spec.x:1:3: a constant string or list is multiplied; use repeat",
        ),
        (
            "{{ range(10001) }}",
            "template: spec.x:1:3: invalid operation: error calling range: a range has more than 10000 items",
        ),
        (
            "{{ namespace() }}",
            "template: spec.x:1:3: unknown function: namespace is unknown",
        ),
        (
            "{{ upper(uid, x=1) }}",
            "template: spec.x:1:3: too many arguments: unexpected keyword arguments",
        ),
    ];
    for (text, expected) in cases {
        let found = message(text);
        assert!(
            found.starts_with(expected),
            "{text}\n  want {expected}\n  got  {found}"
        );
    }
    for (text, column) in [
        ("{{ ", 0),
        ("{{ a b }}", 5),
        ("{% if %}", 6),
        ("{% for %}", 7),
        ("{{ 1 + }}", 7),
        ("{% endif %}", 3),
        ("{{ 'a }}", 8),
    ] {
        let error = render(text).unwrap_err();
        assert_eq!((error.line, error.limit), (Some(1), None), "{text}");
        let start = format!("template: spec.x:1:{column}: syntax error: ");
        assert!(
            error.message.starts_with(&start),
            "{text}: {}",
            error.message
        );
    }
}

#[test]
fn every_function_is_a_filter_and_a_function() {
    let called = LIBRARY
        .functions()
        .map(|function| format!("{}()", function.name));
    // `and` and `or` are operators, too.
    let names = LIBRARY.functions().map(|function| function.name);
    let piped = names.chain(["and", "or"]);
    for expression in called.chain(piped.map(|name| format!("uid | {name}"))) {
        let Err(error) = render(&format!("{{{{ {expression} }}}}")) else {
            continue;
        };
        let said = error.message;
        assert!(!said.contains("unknown"), "{expression}: {said}");
    }
}

fn fragment() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "{{ ",
        " }}",
        "{% ",
        " %}",
        "uid",
        "n",
        "missing",
        "x",
        " | ",
        "upper",
        "int",
        "default",
        "list",
        "join",
        "map",
        "sort",
        "items",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ",",
        ":",
        ".",
        "'a'",
        "\"é\"",
        "1",
        "-1",
        "2.5",
        " ~ ",
        " + ",
        " * ",
        " - ",
        " / ",
        " // ",
        " % ",
        " ** ",
        " == ",
        " < ",
        " in ",
        " is ",
        "defined",
        " and ",
        " or ",
        " not ",
        " if ",
        " else ",
        "set x = ",
        "for x in ",
        "endfor",
        "if ",
        "elif ",
        "else",
        "endif",
        "macro m(x)",
        "endmacro",
        "m",
        "range",
        "loop",
        ".index",
        "dict",
        "[1:]",
        "[::-1]",
        "[-2:5:2]",
        "true",
        "none",
        "text",
        "{# c #}",
        "-%}",
        "{%- ",
        "set x",
        "endset",
        "call m()",
        "endcall",
        "filter upper",
        "endfilter",
        "with x = 1",
        "endwith",
        "raw",
        "endraw",
        "break",
        "continue",
        "caller",
        "do ",
        "recursive",
        "varargs",
        "*x",
        "**x",
        "=",
        "a=1",
    ])
}

/// Proves that the property test would detect a panic.
#[test]
fn a_panic_in_an_expression_would_be_found() {
    let planted = |text: &String| text.contains("{{ ") && render(text).is_ok();
    let texts = prop::collection::vec(fragment(), 0..14).prop_map(|all| all.concat());
    assert!(planted::is_found(&texts, planted));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: planted::CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_ends_in_a_result_or_an_error(fragments in prop::collection::vec(fragment(), 0..14)) {
        let inner = fragments.concat();
        for text in [inner.clone(), format!("{{{{ {inner} }}}}"), format!("{{% set x = [1, uid] %}}{{{{ {inner} }}}}"), format!("{{{{ {inner} | and({inner}) | or }}}}")] {
            let _ = render(&text);
        }
    }

    #[test]
    fn a_slice_is_that_of_minijinja(
        len in 0..6i64,
        start in prop::option::of(-8..8i64),
        stop in prop::option::of(-8..8i64),
        step in prop::option::of(1..4i64),
    ) {
        let bound = |bound: Option<i64>| bound.map_or(String::new(), |bound| bound.to_string());
        let slice = format!("[{}:{}:{}]", bound(start), bound(stop), bound(step));
        let items: Vec<String> = (0..len).map(|item| item.to_string()).collect();
        let text = format!("{{{{ [{}]{slice} }}}}", items.join(", "));
        let environment = minijinja::Environment::empty();
        let expected = environment.render_str(&text, ()).unwrap();
        prop_assert_eq!(render(&text).unwrap().into_text(), expected);
    }
}
