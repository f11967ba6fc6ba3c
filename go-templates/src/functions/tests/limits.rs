//! Functions that could exceed the limits fail before they allocate.

use std::collections::BTreeMap;

use crate::budget::{Budget, Limit};
use crate::context::Context;
use crate::functions::tests::{render, text};
use crate::value::{Dict, Text, Value};

#[test]
fn hostile_arguments_end_with_a_limit() {
    let deep_json = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    let deep = format!("{{{{ fromJson `{deep_json}` }}}}");
    let cases = [
        ("{{ repeat 1000000000 \"x\" }}", Limit::Memory),
        ("{{ repeat 9223372036854775807 \"xy\" }}", Limit::Memory),
        ("{{ until 1000000000 }}", Limit::Steps),
        ("{{ until 9223372036854775807 }}", Limit::Steps),
        (
            "{{ untilStep -9223372036854775808 9223372036854775807 1 }}",
            Limit::Steps,
        ),
        ("{{ untilStep 0 9000000 1 }}", Limit::Memory),
        ("{{ seq 1 9000000 }}", Limit::Memory),
        ("{{ indent 1000000000 \"x\" }}", Limit::Memory),
        ("{{ nindent 9223372036854775807 \"x\\ny\" }}", Limit::Memory),
        (
            "{{ $x := repeat 100000 \"a\" }}{{ replace \"a\" $x $x }}",
            Limit::Memory,
        ),
        (
            "{{ $x := repeat 100000 \"a\" }}{{ replace \"\" $x $x }}",
            Limit::Memory,
        ),
        (
            "{{ $x := repeat 100000 \"a\" }}{{ splitList \"\" $x | join $x }}",
            Limit::Memory,
        ),
        (
            "{{ $x := repeat 100000 \"a b \" }}{{ wrapWith 1 $x $x }}",
            Limit::Memory,
        ),
        ("{{ printf \"%9999999d%9999999d\" 1 1 }}", Limit::Memory),
        (
            "{{ printf \"%.9999999f%.9999999f\" 1.5 1.5 }}",
            Limit::Memory,
        ),
        ("{{ randAlphaNum 1000000000 }}", Limit::Memory),
        ("{{ randBytes 1000000000 }}", Limit::Memory),
        (deep.as_str(), Limit::Depth),
        (
            "{{ $d := dict }}{{ set $d \"a\" $d | toJson }}",
            Limit::Depth,
        ),
        (
            "{{ $d := dict }}{{ deepCopy (set $d \"a\" $d) }}",
            Limit::Depth,
        ),
        (
            "{{ $d := dict }}{{ $e := dict }}{{ $_ := set $d \"a\" $d }}{{ $_ := set $e \"a\" $e }}{{ deepEqual $d $e }}",
            Limit::Depth,
        ),
        (
            "{{ $d := dict }}{{ $e := dict }}{{ $_ := set $d \"a\" $d }}{{ $_ := set $e \"a\" $e }}{{ merge $d $e }}",
            Limit::Depth,
        ),
        (
            "{{ $l := list 1 }}{{ range 60 }}{{ $l = list $l $l }}{{ end }}{{ toJson $l | len }}",
            Limit::Steps,
        ),
        (
            "{{ $l := list 1 }}{{ range 60 }}{{ $l = list $l $l }}{{ end }}{{ $m := deepCopy $l }}",
            Limit::Steps,
        ),
        (
            "{{ $l := list 1 }}{{ range 16 }}{{ $l = concat $l $l }}{{ end }}{{ uniq (concat (until 3000) (until 3000)) | len }}",
            Limit::Steps,
        ),
        (
            "{{ $x := repeat 1000000 \"a\" }}{{ range 1000 }}{{ $y := trimAll $x $x }}{{ end }}",
            Limit::Steps,
        ),
        (
            "{{ $x := repeat 2000000 \"a\" }}{{ range 1000 }}{{ $y := sha256sum $x }}{{ end }}",
            Limit::Steps,
        ),
        // Each `x` is found only after a search through the rest of the text.
        (
            "{{ $x := repeat 20000 \"x\" }}{{ regexReplaceAll \"x.*y|x\" $x \"\" }}",
            Limit::Steps,
        ),
        (
            "{{ $x := repeat 1000000 \"a\" }}{{ regexMatch \"(a?){50}a{50}$\" (print $x \"b\") }}",
            Limit::Steps,
        ),
        (
            "{{ $x := repeat 100000 \"a\" }}{{ regexReplaceAll \"\" $x $x }}",
            Limit::Memory,
        ),
        (
            "{{ $x := repeat 1000 \"()\" }}{{ range 1000 }}{{ $y := regexReplaceAll $x \"\" \"$1\" }}{{ end }}",
            Limit::Memory,
        ),
        (
            "{{ $x := repeat 16000 \"\\\\pL\" }}{{ regexMatch $x \"\" }}",
            Limit::Memory,
        ),
        (
            "{{ $x := print \"1.1.1-\" (repeat 1000 \"1\") }}{{ range 1000 }}{{ $y := semverCompare $x \"1\" }}{{ end }}",
            Limit::Steps,
        ),
        (
            "{{ range 10000 }}{{ $y := dateInZone \"15\" 0 \"Europe/Berlin\" }}{{ end }}",
            Limit::Steps,
        ),
        (
            "{{ $x := repeat 1000000 \"%\" }}{{ $y := urlJoin (dict \"path\" $x \"fragment\" $x \"host\" $x \"query\" $x) }}",
            Limit::Memory,
        ),
    ];
    for (template, limit) in cases {
        let found = render(template).map(|rendered| rendered.into_text().len());
        let shown: String = template.chars().take(120).collect();
        assert_eq!(
            found.map_err(|error| error.limit),
            Err(Some(limit)),
            "{shown}"
        );
    }
}

#[test]
fn a_pattern_cannot_make_a_search_take_long() {
    let template = "{{ $x := repeat 1000000 \"a\" }}{{ regexMatch \"(a+)+$\" (print $x \"b\") }}";
    assert_eq!(
        text(template),
        "false",
        "Go's engine, and this one, need one pass"
    );
}

#[test]
fn patterns_and_ranges_have_sizes() {
    let cases = [
        (
            "{{ regexMatch (repeat 65537 \"a\") \"\" }}",
            "the pattern has 65537 bytes, and may have 65536; make it shorter",
        ),
        (
            "{{ regexMatch \"\\\\pL{1000}\" \"\" }}",
            "the pattern's compiled form takes more than 1048576 bytes; repeat less, or smaller classes",
        ),
        (
            "{{ regexFind (print (repeat 201 \"(\") \"a\" (repeat 201 \")\")) \"a\" }}",
            "error parsing regexp: expression nests too deeply",
        ),
        (
            "{{ regexFind (print \"a\" (repeat 201 \"*(?i)\")) \"a\" }}",
            "error parsing regexp: expression nests too deeply",
        ),
        (
            "{{ regexFind (print (repeat 200 \"(?:\") \"a|b\" (repeat 200 \")\")) \"a\" }}",
            "a",
        ),
        (
            "{{ regexFind (print (repeat 199 \"(\") \"a\" (repeat 199 \")\")) \"a\" }}",
            "a",
        ),
        (
            "{{ semverCompare (repeat 1025 \"1\") \"1\" }}",
            "the ranges have 1025 bytes, and may have 1024; make them fewer",
        ),
    ];
    for (template, expected) in cases {
        let found = text(template);
        assert!(found.contains(expected), "{template}: {found}");
    }
}

#[test]
fn a_limit_of_a_function_names_it() {
    let message = text("{{ repeat 1000000000 \"x\" }}");
    assert!(
        message.starts_with("template: t:1:3: executing \"t\" at <repeat"),
        "{message}"
    );
    assert!(message.contains("8388608 bytes"), "{message}");
}

#[test]
fn a_dict_in_itself_is_given_back() {
    let dict = Dict::new(BTreeMap::new());
    let mut context = Context::new(Budget::default());
    let inserted = context.insert(&dict, Text::from(*b"self"), Value::Dict(dict.clone()));
    assert_eq!((inserted, dict.len()), (Ok(()), 1));
    drop(context);
    assert!(dict.is_empty(), "the end of the rendering breaks the cycle");
}
