//! Hostile templates: too deep, too long, too large. Each ends with an error or a result, on a small stack, never with a panic.

use std::thread;

use proptest::prelude::*;
use serde_json::json;

use crate::budget::{Budget, DEPTH_MAX, Limit, Limits};
use crate::context::Context;
use crate::library::Library;
use crate::planted;
use crate::template::Template;
use crate::template::tests::{limit_of, native, render};

/// The default stack of a thread.
const STACK_BYTES: usize = 2 << 20;
const MANY: usize = 100_000;

/// Runs `test` where an overflow would show.
fn on_small_stack<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = thread::Builder::new().stack_size(STACK_BYTES);
    thread.spawn(test).unwrap().join().unwrap()
}

/// `open` and `close` around `inner`, `count` times.
fn nested(open: &str, inner: &str, close: &str, count: usize) -> String {
    format!("{}{inner}{}", open.repeat(count), close.repeat(count))
}

#[test]
fn templates_are_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Template>();
}

#[test]
fn nesting_is_refused_before_the_stack_ends() {
    let cases = [
        ("parentheses", nested("(", "1", ")", MANY)),
        ("open parentheses", "(".repeat(MANY)),
        ("calls", nested("(print ", "1", ")", MANY)),
    ];
    let blocks = [
        ("if", nested("{{if .s}}", "x", "{{end}}", MANY)),
        ("open if", "{{if .s}}".repeat(MANY)),
        ("else", nested("{{if .s}}{{else}}", "x", "{{end}}", MANY)),
        ("with", nested("{{with .s}}", "x", "{{end}}", MANY)),
        ("range", nested("{{range .l}}", "x", "{{end}}", MANY)),
        ("block", nested("{{block \"a\" .}}", "x", "{{end}}", MANY)),
    ];
    let actions = cases.map(|(name, text)| (name, format!("{{{{{text}}}}}")));
    for (name, text) in actions.into_iter().chain(blocks) {
        let limit = on_small_stack(move || limit_of(&text, Limits::default()));
        assert_eq!(limit, Some(Limit::Depth), "{name}");
    }
}

#[test]
fn the_allowed_nesting_fits_the_stack() {
    let depth = DEPTH_MAX as usize;
    let cases = [
        ("parentheses", nested("(", "1", ")", depth)),
        ("calls", nested("(print ", "1", ")", depth)),
        ("logic", nested("(and 1 ", "1", ")", depth)),
        (
            "fields",
            format!("{}1{}", "(dict \"a\" ".repeat(depth), ").a".repeat(depth)),
        ),
    ];
    // Rendered, a block is a template call around its body.
    let block = |index: usize| format!("{{{{block \"{index}\" .}}}}");
    let blocks = [
        ("if", nested("{{if .s}}", "x", "{{end}}", depth)),
        ("with", nested("{{with .s}}", "x", "{{end}}", depth)),
        ("range", nested("{{range 1}}", "x", "{{end}}", depth)),
        (
            "block",
            (0..depth).map(block).collect::<String>() + &"{{end}}".repeat(depth),
        ),
    ];
    let actions = cases.map(|(name, text)| (name, format!("{{{{{text}}}}}")));
    for (name, text) in actions.into_iter().chain(blocks) {
        let limit = on_small_stack(move || limit_of(&text, Limits::default()));
        assert_eq!(limit, None, "{name}");
    }
}

#[test]
fn long_is_not_deep() {
    let cases = [
        (
            "else if",
            format!("{{{{if .s}}}}{}{{{{end}}}}", "{{else if .s}}".repeat(MANY)),
        ),
        (
            "else with",
            format!(
                "{{{{with .s}}}}{}{{{{end}}}}",
                "{{else with 0}}".repeat(MANY)
            ),
        ),
        ("actions", "{{.s}}".repeat(MANY)),
        ("arguments", format!("{{{{print {}}}}}", "1 ".repeat(MANY))),
        (
            "commands",
            format!("{{{{1{}}}}}", "|print".repeat(MANY / 4)),
        ),
        ("variables", "{{$x := 1}}".repeat(MANY)),
        ("comments", "{{/* c */}}".repeat(MANY)),
        ("operators", format!("{{{{and {}}}}}", "1 ".repeat(MANY))),
    ];
    for (name, text) in cases {
        let limit = on_small_stack(move || limit_of(&text, Limits::default()));
        assert_eq!(limit, None, "{name}");
    }
}

#[test]
fn each_limit_names_itself() {
    let cases = [
        ("{{range 1000000000000}}{{end}}", Limit::Steps),
        (
            "{{range .l}}{{range 1000000}}{{$.s}}{{end}}{{end}}",
            Limit::Steps,
        ),
        ("{{range 90000}}0123456789012345{{end}}", Limit::Output),
        ("{{range 90000}}{{$.s}}{{$.s}}{{$.s}}{{end}}", Limit::Steps),
        (
            "{{define \"r\"}}{{template \"r\" .}}{{end}}{{template \"r\" .}}",
            Limit::Depth,
        ),
        (
            "{{$x := \"0123456789\"}}{{range 40}}{{$x = print $x $x}}{{end}}",
            Limit::Memory,
        ),
        (
            "{{range 300}}{{repeat 100000 \"a\" | len}}{{end}}",
            Limit::Memory,
        ),
        ("{{repeat 1000000000 \"a\"}}", Limit::Memory),
        (
            "{{$l := list}}{{range 100000}}{{$l = list $l}}{{end}}{{$l}}",
            Limit::Steps,
        ),
        (
            "{{$l := list}}{{range 10000}}{{$l = list $l}}{{end}}{{$l}}",
            Limit::Depth,
        ),
        (
            "{{$l := list 1}}{{range 90}}{{$l = list $l $l}}{{end}}{{$l}}",
            Limit::Steps,
        ),
        (
            "{{$d := dict}}{{$_ := set $d \"d\" $d}}{{$d}}",
            Limit::Depth,
        ),
        (
            "{{define \"r\"}}{{template \"r\" (list . .)}}{{template \"r\" .}}{{end}}{{template \"r\" 1}}",
            Limit::Depth,
        ),
    ];
    for (text, limit) in cases {
        let got = on_small_stack(move || limit_of(text, Limits::default()));
        assert_eq!(got, Some(limit), "{text}");
    }
}

#[test]
fn errors_of_limits_say_where() {
    let template = Template::parse(
        &Library::sprig(),
        "web",
        "a\n{{range 1000000}}\n  {{.}}{{end}}",
    )
    .unwrap();
    let limits = Limits {
        steps: 102,
        ..Limits::default()
    };
    let mut context = Context::new(Budget::new(limits));
    let error = template
        .render(&native(&serde_json::json!({})), &mut context)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "template: web:3:4: executing \"web\" at <.>: the template takes more than 102 steps; shorten its loops"
    );
    assert_eq!((error.line, error.column), (Some(3), Some(4)));
}

/// Pieces that make more than a parse error now and then.
fn template_text() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "{{",
        "}}",
        "{{-",
        " -}}",
        " ",
        "\n",
        ".",
        ".s",
        ".l",
        ".x",
        "$",
        "$x",
        ":=",
        "=",
        ",",
        "|",
        "(",
        ")",
        "\"a\"",
        "`b`",
        "'c'",
        "1",
        "-1",
        "0x1F",
        "1.5e3",
        "true",
        "nil",
        "if",
        "else",
        "end",
        "range",
        "with",
        "define",
        "template",
        "block",
        "break",
        "continue",
        "print",
        "and",
        "or",
        "not",
        "len",
        "index",
        "list",
        "dict",
        "{{end}}",
        "{{if .s}}",
        "{{range .l}}",
        "{{range $x := .l}}",
        "{{with .s}}",
        "{{else}}",
        "{{$x := 1}}",
        "{{$x}}",
        "{{.}}",
        "{{/*",
        "*/}}",
        "{{define \"a\"}}",
        "{{template \"a\" .}}",
        "{{block \"a\" .}}",
        "ß",
        "\u{0}",
    ]);
    let any = prop_oneof![8 => pieces.prop_map(str::to_owned), 1 => any::<String>()];
    prop::collection::vec(any, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(planted::CASES))]

    #[test]
    fn no_text_makes_the_engine_panic(text in template_text()) {
        let small = Limits { steps: 200, memory_bytes: 10_000, output_bytes: 10_000, depth: 20 };
        limit_of(&text, small);
    }

    #[test]
    fn no_string_makes_the_engine_panic(text in any::<String>()) {
        let small = Limits { steps: 200, memory_bytes: 10_000, output_bytes: 10_000, depth: 20 };
        limit_of(&format!("{{{{{text}}}}}"), small);
    }
}

/// Proves that the property test would detect a panic.
#[test]
fn a_panic_in_a_range_would_be_found() {
    let planted =
        |text: &String| text.contains("{{range") && render(text, &json!({"l": [1]})).is_ok();
    assert!(planted::is_found(&template_text(), planted));
}
