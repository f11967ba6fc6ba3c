//! The functions that Lynq's templates have beside sprig's, against Go: expected results are written by the Go program in `templates/oracle`.
//! Those of sprig are tested where they are, in `go-templates`. And what is public of all their errors.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use lynqgate::decide::template::functions::LIBRARY;
use lynqgate::decide::template::{Engine, Inputs, LIMITS, Template, facts, public};
use serde_json::Value;

const EXPECTED: &str = include_str!("templates/functions.golden.json");
const EXPECTED_OF_SPRIG: &str = include_str!("../go-templates/tests/functions.golden.json");

fn expected() -> (Value, BTreeMap<String, String>, Inputs) {
    let expected: Value = serde_json::from_str(EXPECTED).unwrap();
    let row = serde_json::from_value(expected["variables"].clone()).unwrap();
    let first_seen = "2026-01-02T03:04:05.6Z".parse().unwrap();
    let facts = facts::of(first_seen, [7; 32], "acme", "app");
    let inputs = Inputs::new(&row, Some(facts), LIMITS);
    (expected, row, inputs)
}

fn result(inputs: &Inputs, text: &str) -> Result<Value, String> {
    let template = Template::parse(Engine::Go, "t", text).map_err(|error| error.message)?;
    let rendered = template
        .render(inputs, "spec.x")
        .map_err(|error| error.message)?;
    Ok(rendered.into_leaf(false))
}

#[test]
fn results_are_those_of_lynq() {
    let (expected, _, inputs) = expected();
    let cases = expected["cases"].as_array().unwrap();
    let mut differences = Vec::new();
    for case in cases {
        let text = case["template"].as_str().unwrap();
        let wanted = match case["error"].as_str() {
            Some(error) => Err(error.to_owned()),
            None => Ok(case["leaf"].clone()),
        };
        let found = result(&inputs, text);
        if found != wanted {
            differences.push(format!(
                "{} {text}\n  Go:   {wanted:?}\n  ours: {found:?}",
                case["name"]
            ));
        }
    }
    assert!(cases.len() > 100, "only {} cases", cases.len());
    assert!(
        differences.is_empty(),
        "{} of {} cases differ:\n{}",
        differences.len(),
        cases.len(),
        differences.join("\n")
    );
}

/// The words of the functions' own messages are everybody's. What a template makes of its own words and numbers is not.
#[test]
fn messages_stay_readable_in_public() {
    let (expected, row, inputs) = expected();
    let of_sprig: Value = serde_json::from_str(EXPECTED_OF_SPRIG).unwrap();
    let both = [&expected, &of_sprig].map(|file| file["cases"].as_array().unwrap());
    let cases = both.into_iter().flatten();
    let (mut readable, mut hidden) = (0, Vec::new());
    for case in cases.filter(|case| case["error"].is_string()) {
        let text = case["template"].as_str().unwrap();
        let Ok(template) = Template::parse(Engine::Go, "t", text) else {
            continue;
        };
        // A few of sprig's errors are none here.
        let Err(error) = template.render(&inputs, "spec.x") else {
            continue;
        };
        let known = row.values().map(String::as_str).chain([text]);
        let public = public::message(&error, &known.collect::<Vec<_>>());
        match public == error.message {
            true => readable += 1,
            false => hidden.push(public),
        }
    }
    let hidden_max = readable / 20;
    assert!(readable > 500, "only {readable}");
    assert!(hidden.len() <= hidden_max, "{readable}, and {hidden:#?}");
}

/// What would tell a template of the machine that it is rendered on.
const UNKNOWN: [&str; 3] = ["env", "expandenv", "getHostByName"];

#[test]
fn every_name_is_in_the_table_or_refused_or_unknown_on_purpose() {
    let (expected, ..) = expected();
    let names = expected["names"].as_array().unwrap();
    // sprig has 210, to which Go adds its own and Lynq adds and takes.
    assert!(names.len() > 230, "only {} names", names.len());
    for name in names.iter().map(|name| name.as_str().unwrap()) {
        // The language's own: they stop early.
        let is_there = LIBRARY.get(name).is_some() || matches!(name, "and" | "or");
        let ways = [
            is_there,
            LIBRARY.refusal(name).is_some(),
            UNKNOWN.contains(&name),
        ];
        assert_eq!(ways.iter().filter(|way| **way).count(), 1, "{name}");
        let message = Template::parse(Engine::Go, "t", &format!("{{{{ {name} }}}}"))
            .err()
            .map(|error| error.message);
        let wanted = match LIBRARY.refusal(name) {
            Some(refusal) => Some(format!("template: t:1: {refusal}")),
            None if is_there => None,
            None => Some(format!("template: t:1: function {name:?} not defined")),
        };
        assert_eq!(message, wanted, "{name}");
    }
}

#[test]
fn hostile_templates_end_soon() {
    let doubled = "{% set x = x ~ x %}".repeat(40);
    let nested = "{% set y = [y, y] %}".repeat(40);
    let cases = [
        "{{ repeat(1000000000, 'x') }}".to_owned(),
        format!("{{% set x = x %}}{doubled}"),
        format!("{{% set y = [x] %}}{nested}{{{{ y == y }}}}"),
        "{% for i in range(9999) %}{% for j in range(9999) %}{{ x | sort | sha256sum }}{% endfor %}{% endfor %}".to_owned(),
    ];
    let row = BTreeMap::from([("x".to_owned(), "x".repeat(10_000))]);
    let inputs = Inputs::new(&row, None, LIMITS);
    for text in cases {
        let shown: String = text.chars().take(80).collect();
        let start = Instant::now();
        let template = Template::parse(Engine::Jinja, "t", &text);
        let rendered = template.and_then(|template| template.render(&inputs, "x"));
        assert!(rendered.is_err(), "{shown}");
        assert!(
            // Without its limits it would not end at all.
            start.elapsed() < Duration::from_secs(60),
            "{shown}: {:?}",
            start.elapsed()
        );
    }
}
