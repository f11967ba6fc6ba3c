//! Where Jinja's own behaviour meets the function table.

use serde_json::json;

use super::{leaf, message, render};

#[test]
fn a_second_argument_of_default_is_jinjas() {
    for (text, expected) in [
        ("{{ uid | default('x', true) }}", "acme-web"),
        ("{{ empty | default('x', true) }}", "x"),
        ("{{ missing | default('x', true) }}", "x"),
        ("{{ empty | default('x', false) }}", ""),
        ("{{ missing | d('x', false) }}", "x"),
        ("{{ default('x', empty) }}", "x"),
    ] {
        assert_eq!(leaf(text), json!(expected), "{text}");
    }
}

#[test]
fn whole_numbers_of_json_have_no_fraction() {
    for (text, expected) in [
        ("{{ ('{\"port\": 5432}' | fromJson).port }}", "5432"),
        ("{{ 'p:' ~ ('[1.5, 3]' | fromJson)[1] }}", "p:3"),
        ("{{ ('[1.5]' | fromJson)[0] }}", "1.5"),
        ("{{ addf(1, 2) }}", "3"),
    ] {
        assert_eq!(leaf(text), json!(expected), "{text}");
    }
}

/// A piped value is the last argument, as in Go.
#[test]
fn and_and_or_are_filters_too() {
    for (text, expected) in [
        ("{{ true | and(false) }}", "false"),
        ("{{ true | and(true) }}", "true"),
        ("{{ uid | and(plan) }}", "acme-web"),
        ("{{ uid | and(empty, plan) }}", ""),
        ("{{ uid | or(empty) }}", "acme-web"),
        ("{{ uid | or(plan) }}", "pro"),
        ("{{ empty | or(0, none) }}", ""),
        ("{{ empty | or }}", ""),
        ("{{ uid | and }}", "acme-web"),
        ("{% if (plan == 'pro') | and(uid) %}x{% endif %}", "x"),
        // Jinja's own operators.
        ("{{ true and false or plan }}", "pro"),
    ] {
        assert_eq!(leaf(text), json!(expected), "{text}");
    }
    for text in ["{{ call(upper, uid) }}", "{{ uid | call }}", "{{ call() }}"] {
        let said = message(text);
        assert!(
            said.ends_with("error calling call: no value is a function; use the function's name"),
            "{said}"
        );
    }
}

/// A column may be called like one, and not be mapped.
#[test]
fn a_function_that_is_not_called_is_an_undefined_variable() {
    for text in [
        "{{ title }}",
        "{{ title ~ 1 }}",
        "{{ title.x }}",
        "{{ title[0] }}",
        "{{ [title] }}",
        "{{ {'a': title} }}",
        "{{ not title }}",
        "{{ title == 'x' }}",
        "{{ title or 'x' }}",
        "{% if title %}{% endif %}",
        "{% for x in title %}{% endfor %}",
        "{% macro m() %}{{ title }}{% endmacro %}{{ m() }}",
    ] {
        let said = message(text);
        let (_, said) = said.split_once("undefined value: ").unwrap();
        assert_eq!(
            said, "the row has no title, and the function title is called as title(…)",
            "{text}"
        );
    }
    for (text, expected) in [
        ("{{ title | default('x') }}", "x"),
        ("{{ title | default('x', false) }}", "x"),
        ("{{ title | d('x', true) }}", "x"),
        ("{{ coalesce(title, 'x') }}", "x"),
        ("{% set title = 'a' %}{{ title }}{{ upper('b') }}", "aB"),
        (
            "{% for list in [1] %}{{ list }}{% endfor %}{{ list(2) }}",
            "1[2]",
        ),
        (
            "{% macro base(x) %}<{{ x }}>{% endmacro %}{{ base(1) }}",
            "<1>",
        ),
        (
            "{% macro m() %}{{ upper('a') }}{% endmacro %}{{ m() }}",
            "A",
        ),
        ("{% if title is defined %}a{% else %}b{% endif %}", "b"),
        ("{% if title is undefined %}a{% endif %}", "a"),
    ] {
        assert_eq!(leaf(text), json!(expected), "{text}");
    }
}

/// An error names what was undefined, not every name that the row lacks.
#[test]
fn an_error_says_what_is_undefined() {
    for (text, expected) in [
        ("{{ config.zz }}", "config.zz"),
        ("{{ fromJson(config).zz }}", "(…).zz"),
        ("{{ (config | fromJson)['zz'] }}", "(…)['zz']"),
        ("{% set c = fromJson(config) %}{{ c.db.zz }}", "c.db.zz"),
        ("{% set c = [1] %}{{ c[7] }}", "c[7]"),
        ("{% set c = [1] %}{{ c[n | int] }}", "(…)[…]"),
        ("{% set c = {'a': {}} %}{{ c[plan ~ 1] }}", "(…)[…]"),
        ("{% set c = {'pro': {}} %}{{ c[plan].x }}", "(…)[…].x"),
        ("{{ uid.x.y }}", "uid.x"),
        ("{{ semver('1').Nope }}", "(…).Nope"),
        ("{{ missing | default(1) }}{{ uid.zz ~ 1 }}", "uid.zz"),
        (
            "{{ gone | default(1) }}{{ missing }}",
            "the row has no missing",
        ),
        ("{{ [uid, missing] }}", "the row has no missing"),
        ("{{ {'a': missing} }}", "the row has no missing"),
        ("{% set x = (missing, 1) %}", "the row has no missing"),
        ("{% if missing %}{% endif %}", "the row has no missing"),
        ("{{ missing[1:] }}", "the row has no missing"),
        ("{{ 1 + missing }}", "the row has no missing"),
        ("{% set x = uid.zz %}\n{{ x }}", "uid.zz (from line 1)"),
        (
            "{{ uid.zz | upper }}",
            "error calling upper: an argument is undefined: uid.zz",
        ),
        (
            "{{ uid.zz | sum }}",
            "error calling sum: an argument is undefined: uid.zz",
        ),
        (
            "{{ missing | string }}",
            "error calling string: an argument is undefined: the row has no missing",
        ),
        (
            "{{ missing | items }}",
            "error calling items: an argument is undefined: the row has no missing",
        ),
        (
            "{{ uid | or(missing) }}",
            "error calling or: an argument is undefined: the row has no missing",
        ),
        (
            "{{ uid | trimSuffix(title) }}",
            "error calling trimSuffix: an argument is undefined: the row has no title, and the function title is called as title(…)",
        ),
    ] {
        let said = message(text);
        let (_, said) = said.split_once("undefined value: ").unwrap();
        assert_eq!(said, expected, "{text}");
    }
}

#[test]
fn an_error_names_the_function_also_where_it_is_jinjas() {
    for (text, expected) in [
        ("{{ uid | sum }}", "sum: can only sum numbers, got string"),
        ("{{ 1 | sort }}", "sort: cannot convert value to list"),
        ("{{ 'x' | abs }}", "abs: cannot get absolute value"),
        ("{{ 1 | items }}", "items: number is not iterable"),
        ("{{ [1] | map('upper') }}", "map: error calling upper: "),
        ("{{ [1] | map('nope') }}", "map"),
        ("{{ [1] | select('nope') }}", "select"),
        ("{{ range('a') }}", "range: cannot convert string to i64"),
        ("{{ range() }}", "range"),
        (
            "{{ range(1, 2, 0) }}",
            "range: the step of a range cannot be 0",
        ),
    ] {
        let said = message(text);
        let (_, said) = said.split_once(": error calling ").expect(&said);
        assert!(said.starts_with(expected), "{text}: {said}");
    }
}

/// In Jinja no value changes, unlike Go's dicts.
#[test]
fn a_change_that_would_be_lost_is_refused() {
    for text in [
        "{% do set(x, 'b', 2) %}",
        "{%- do unset(x, 'b') -%}",
        "{% do mergeOverwrite(x, x) %}",
        "{% set _ = merge(x, x) %}",
        "{% do x | merge(dict('a', 1)) %}",
        "{% do dict() | merge(x) | set('a', (1)) %}",
        "{% set _ = x | unset('b') %}{{ uid }}",
    ] {
        let said = message(text);
        assert!(
            said.contains("gives a changed copy, which is lost here; keep it: {% set d = "),
            "{said}"
        );
    }
    for (text, expected) in [
        (
            "{% set x = dict('a', 1) %}{% set x = set(x, 'b', 2) %}{{ x | toJson }}",
            r#"{"a":1,"b":2}"#,
        ),
        (
            "{% set x = unset(dict('a', 1, 'b', 2), 'b') %}{{ x }}",
            "{'a': 1}",
        ),
        ("{% do upper('a') %}{% set _ = 1 %}{{ _ }}", "1"),
        ("{% set _ = set(dict(), 'a', 1) %}{{ _ }}", "{'a': 1}"),
        ("{% do toJson(set(dict(), 'a', 1)) %}x", "x"),
    ] {
        assert_eq!(leaf(text), json!(expected), "{text}");
    }
    assert!(message("{% do fail('no') %}").ends_with("error calling fail: no"));
}

/// minijinja's error contains every variable of the row in its debug information.
#[test]
fn an_error_tells_no_values() {
    for text in [
        "{{ missing }}",
        "{{ missing ~ config }}",
        "{{ config | date }}",
        "{{ config.zz }}",
    ] {
        let error = render(text).unwrap_err();
        assert!(!format!("{error:?}").contains("db.local"), "{error:?}");
    }
}

#[test]
fn an_error_has_its_line_and_column() {
    for (text, line, column, function) in [
        ("{{ missing }}", 1, 3, ""),
        ("\u{e9}{{ missing }}", 1, 5, ""),
        (
            "a\nb {{ uid }}{{ plann | upper }}",
            2,
            22,
            "error calling upper: ",
        ),
        (
            "{% if uid %}\n\n {{ upper(plann) }}{% endif %}",
            3,
            4,
            "error calling upper: ",
        ),
        ("{{ uid | and(plann) }}", 1, 9, "error calling and: "),
        ("{{ uid }}\n{{ uid | nope }}", 2, 9, ""),
        ("{{ uid }}\n{{ div(1, 0) }}", 2, 3, "error calling div: "),
        ("{{ uid ~ 'x' }}\n  {{ [1] + 'a' }}", 2, 5, ""),
        ("x\n{{ uid | }}", 2, 9, ""),
        ("x\ny{% include 'x' %}", 2, 4, ""),
        (
            "{% macro m(x) %}\n{{ x | fail }}{% endmacro %}{{ m('no') }}",
            2,
            7,
            "error calling fail: ",
        ),
    ] {
        let error = render(text).unwrap_err();
        let found = (error.line, error.column);
        assert_eq!(found, (Some(line), Some(column)), "{text}");
        let place = format!("template: spec.x:{line}:{column}: ");
        assert!(
            error.message.starts_with(&place) && error.message.contains(function),
            "{text}: {}",
            error.message
        );
    }
}
