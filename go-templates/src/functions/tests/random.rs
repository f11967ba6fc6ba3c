//! Random values and times: the same for ever where nothing that they depend on changes.

use std::sync::Arc;

use crate::facts::Facts;
use crate::functions::tests::{facts, rendered, text, variables};
use crate::value::Value;

fn drawn(key: u8, user: &str, document: &str, path: &str, template: &str) -> String {
    let facts = facts(key, user, document);
    let output = rendered(template, &variables(), facts, path);
    output.unwrap().into_text()
}

const PASSWORD: &str = "{{ randAlphaNum 32 }}";

#[test]
fn the_same_place_draws_the_same_value() {
    let first = drawn(7, "acme", "app", "spec.x", PASSWORD);
    assert_eq!(first, drawn(7, "acme", "app", "spec.x", PASSWORD));
    // Written down, so that no release changes a password.
    assert_eq!(first, "cg6ROuBG6oGZxXafXoEfUXlQyk8Pu1X9");
}

#[test]
fn everything_it_depends_on_draws_anew() {
    let first = drawn(7, "acme", "app", "spec.x", PASSWORD);
    let others = [
        ("seed", drawn(8, "acme", "app", "spec.x", PASSWORD)),
        ("user", drawn(7, "acmf", "app", "spec.x", PASSWORD)),
        ("document", drawn(7, "acme", "apq", "spec.x", PASSWORD)),
        ("path", drawn(7, "acme", "app", "spec.y", PASSWORD)),
        (
            "template",
            drawn(7, "acme", "app", "spec.x", "{{- randAlphaNum 32 }}"),
        ),
        ("border", drawn(7, "acmea", "pp", "spec.x", PASSWORD)),
    ];
    for (what, other) in others {
        assert_ne!(first, other, "another {what}");
        assert_eq!(other.len(), 32, "{what}");
    }
}

#[test]
fn two_draws_of_one_template_differ() {
    let both = drawn(7, "acme", "app", "spec.x", "{{ uuidv4 }} {{ uuidv4 }}");
    let (first, second) = both.split_once(' ').unwrap();
    assert_ne!(first, second);
}

#[test]
fn each_kind_keeps_to_its_characters() {
    type Belongs = fn(char) -> bool;
    let cases: [(&str, Belongs); 5] = [
        ("{{ randAlpha 2000 }}", |c| c.is_ascii_alphabetic()),
        ("{{ randAlphaNum 2000 }}", |c| c.is_ascii_alphanumeric()),
        ("{{ randNumeric 2000 }}", |c| c.is_ascii_digit()),
        ("{{ randAscii 2000 }}", |c| matches!(c, ' '..='~')),
        ("{{ range 1000 }}{{ randInt 0 10 }}{{ end }}", |c| {
            c.is_ascii_digit()
        }),
    ];
    for (template, belongs) in cases {
        let drawn = text(template);
        let expected = drawn.chars().filter(|c| belongs(*c)).count();
        assert_eq!(drawn.chars().count(), expected, "{template}: {drawn}");
        let mut found: Vec<char> = drawn.chars().collect();
        found.sort_unstable();
        found.dedup();
        let all = (' '..='~').filter(|c| belongs(*c)).count();
        assert_eq!(found.len(), all, "{template} draws every character");
    }
}

#[test]
fn shapes_and_refusals() {
    let cases = [
        ("{{ randAlphaNum 0 }}|", "|"),
        ("{{ randAlphaNum -3 }}|", "|"),
        ("{{ randInt 5 6 }}", "5"),
        ("{{ randBytes 5 | b64dec | len }}", "5"),
        ("{{ randBytes 5 | len }}", "8"),
        ("{{ len (shuffle .uid) }}", "8"),
        (
            "{{ shuffle .uid | splitList \"\" | sortAlpha | join \"\" }}",
            "-abceemw",
        ),
        ("{{ shuffle \"\" }}|", "|"),
        ("{{ len uuidv4 }}", "36"),
        ("{{ substr 14 15 uuidv4 }}", "4"),
        (
            "{{ randInt 6 6 }}",
            "template: t:1:3: executing \"t\" at <randInt 6 6>: error calling randInt: invalid argument to Intn",
        ),
        (
            "{{ randBytes -1 }}",
            "template: t:1:3: executing \"t\" at <randBytes -1>: error calling randBytes: runtime error: makeslice: len out of range",
        ),
        (
            "{{ randAlpha \"3\" }}",
            "template: t:1:13: executing \"t\" at <\"3\">: expected integer; found \"3\"",
        ),
        ("{{ now }}", "2026-01-02 03:04:05.6 +0000 UTC"),
        (
            "{{ now | date \"2006-01-02 15:04:05.000\" }}",
            "2026-01-02 03:04:05.600",
        ),
        (
            "{{ htmlDate now }} {{ date \"2006\" \"x\" }}",
            "2026-01-02 2026",
        ),
        (
            "{{ toJson now }} {{ quote now }}",
            "\"2026-01-02T03:04:05.6Z\" \"2026-01-02 03:04:05.6 +0000 UTC\"",
        ),
        (
            "{{ eq now now }}{{ deepEqual now now }}{{ if now }}t{{ end }}",
            "truetruet",
        ),
        (
            "{{ printf \"%s %d\" now now }}",
            "2026-01-02 03:04:05.6 +0000 UTC %!d(time.Time=2026-01-02 03:04:05.6 +0000 UTC)",
        ),
    ];
    for (template, expected) in cases {
        assert_eq!(text(template), expected, "{template}");
    }
}

#[test]
fn what_is_not_known_is_said() {
    for (name, why) in [
        (
            "uuidv4",
            "no seed for random values was given to the rendering",
        ),
        ("now", "no time was given to the rendering"),
    ] {
        let template = format!("{{{{ {name} }}}}");
        let without = rendered(&template, &variables(), Arc::new(Facts::default()), "x");
        let error = without.unwrap_err().message;
        assert!(error.ends_with(why), "{name}: {error}");
        assert!(!text(&template).contains(why), "{name}");
    }
}

#[test]
fn the_seed_is_not_shown() {
    let shown = format!("{:?}", facts(217, "acme", "app"));
    assert!(shown.contains("acme") && !shown.contains("217"), "{shown}");
}

#[test]
fn what_is_encrypted_is_the_same_each_time_and_starts_like_nothing_else() {
    let first = drawn(7, "acme", "app", "spec.x", "{{ encryptAES `k` `text` }}");
    assert_eq!(
        first,
        drawn(7, "acme", "app", "spec.x", "{{ encryptAES `k` `text` }}")
    );
    let both =
        "{{ range list .a .b }}{{ encryptAES `k` . | b64dec | trunc 16 | b64enc }} {{ end }}";
    let pairs = [("text", "texts"), ("text", "text"), ("texts", "text")];
    let mut starts = Vec::new();
    for (a, b) in pairs {
        let variables = Value::dict([("a", Value::str(a)), ("b", Value::str(b))]);
        let output = rendered(both, &variables, facts(7, "acme", "app"), "spec.x");
        let text = output.unwrap().into_text();
        starts.extend(
            text.split_whitespace()
                .enumerate()
                .map(|(i, start)| (i, start.to_owned())),
        );
    }
    starts.sort();
    starts.dedup();
    assert_eq!(
        starts.len(),
        4,
        "two texts at each of two places: {starts:?}"
    );
}
