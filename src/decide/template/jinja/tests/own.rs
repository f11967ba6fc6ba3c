//! Where Jinja's own ways and the table's meet.

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

/// What is piped is the last argument, as in Go.
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
        // Jinja's own.
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
        "{{ uid | trimSuffix(title) }}",
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
        ("{% if title %}a{% else %}b{% endif %}", "b"),
        ("{% if title is defined %}a{% else %}b{% endif %}", "b"),
        ("{% if title is undefined %}a{% endif %}", "a"),
        ("{{ [fail, bcrypt] }}", "[function, function]"),
    ] {
        assert_eq!(leaf(text), json!(expected), "{text}");
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
