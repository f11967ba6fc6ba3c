//! Where Jinja's own ways and the table's meet.

use serde_json::json;

use super::leaf;

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
