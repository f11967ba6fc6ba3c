//! The function table against Go's text/template and sprig: expected results are written by the Go program in `templates/oracle/functions`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lynqgate::decide::template::budget::Limits;
use lynqgate::decide::template::facts::{Facts, Seed};
use lynqgate::decide::template::signature::Param;
use lynqgate::decide::template::{Engine, Inputs, Template, functions};
use serde_json::Value;

const EXPECTED: &str = include_str!("templates/functions.golden.json");

fn facts() -> Arc<Facts> {
    Arc::new(Facts {
        first_seen: "2026-01-02T03:04:05.6Z".parse().unwrap(),
        seed: Seed {
            key: [7; 32],
            uid: "acme".to_owned(),
            resource_id: "app".to_owned(),
        },
    })
}

/// The message without what differs from Go by design.
fn result(inputs: &Inputs, text: &str) -> Result<Value, String> {
    let template = Template::parse(Engine::Go, "t", text).map_err(|error| error.message)?;
    let rendered = template
        .render(inputs, "spec.x")
        .map_err(|error| error.message)?;
    Ok(rendered.into_leaf(false))
}

#[test]
fn results_are_those_of_go_and_sprig() {
    let expected: Value = serde_json::from_str(EXPECTED).unwrap();
    let row: BTreeMap<String, String> = serde_json::from_value(expected["row"].clone()).unwrap();
    let inputs = Inputs::new(&row, Some(facts()), Limits::default());
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
    assert!(cases.len() > 1500, "only {} cases", cases.len());
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
    let expected: Value = serde_json::from_str(EXPECTED).unwrap();
    let row: BTreeMap<String, String> = serde_json::from_value(expected["row"].clone()).unwrap();
    let inputs = Inputs::new(&row, Some(facts()), Limits::default());
    let cases = expected["cases"].as_array().unwrap();
    let (mut readable, mut hidden) = (0, Vec::new());
    for case in cases.iter().filter(|case| case["error"].is_string()) {
        let text = case["template"].as_str().unwrap();
        let Ok(template) = Template::parse(Engine::Go, "t", text) else {
            continue;
        };
        let error = template.render(&inputs, "spec.x").unwrap_err();
        let known = row.values().map(String::as_str).chain([text]);
        let public = error.public(&known.collect::<Vec<_>>());
        match public == error.message {
            true => readable += 1,
            false => hidden.push(public),
        }
    }
    let hidden_max = readable / 20;
    assert!(hidden.len() <= hidden_max, "{readable}, and {hidden:#?}");
}

/// Their results cannot be those of Go, which draws them or reads a clock: they have tests of their own.
const NOT_OF_GO: [&str; 9] = [
    "ago",
    "randAlpha",
    "randAlphaNum",
    "randAscii",
    "randBytes",
    "randInt",
    "randNumeric",
    "shuffle",
    "uuidv4",
];

#[test]
fn every_function_has_a_case_and_an_error() {
    let expected: Value = serde_json::from_str(EXPECTED).unwrap();
    let cases = expected["cases"].as_array().unwrap();
    let uses = |name: &str, failing: bool| {
        cases.iter().any(|case| {
            let text = case["template"].as_str().unwrap();
            let mut words = text.split(|c: char| c != '_' && !c.is_ascii_alphanumeric());
            case["error"].is_string() == failing && words.any(|word| word == name)
        })
    };
    let mut missing = Vec::new();
    for function in functions::all().filter(|function| !NOT_OF_GO.contains(&function.name)) {
        let takes_anything =
            function.signature.fixed.is_empty() && function.signature.variadic == Some(Param::Any);
        if !uses(function.name, false) && !matches!(function.name, "call" | "fail") {
            missing.push(format!("{}: a result", function.name));
        }
        if !uses(function.name, true) && !takes_anything {
            missing.push(format!("{}: an error", function.name));
        }
    }
    // A method of two types needs a case of one.
    for method in functions::methods::all().filter(|method| !uses(method.name, false)) {
        missing.push(format!("{}: a result", method.name));
    }
    assert_eq!(missing, Vec::<String>::new());
}

/// What would tell a template of the machine that it is rendered on.
const UNKNOWN: [&str; 3] = ["env", "expandenv", "getHostByName"];

#[test]
fn every_name_is_in_the_table_or_refused_or_unknown_on_purpose() {
    let expected: Value = serde_json::from_str(EXPECTED).unwrap();
    let names = expected["names"].as_array().unwrap();
    // sprig has 210, to which Go adds its own and Lynq adds and takes.
    assert!(names.len() > 230, "only {} names", names.len());
    for name in names.iter().map(|name| name.as_str().unwrap()) {
        // The engine's own: they stop early.
        let is_there = functions::lookup(name).is_some() || matches!(name, "and" | "or");
        let ways = [
            is_there,
            functions::refusal(name).is_some(),
            UNKNOWN.contains(&name),
        ];
        assert_eq!(ways.iter().filter(|way| **way).count(), 1, "{name}");
        let message = Template::parse(Engine::Go, "t", &format!("{{{{ {name} }}}}"))
            .err()
            .map(|error| error.message);
        let wanted = match functions::refusal(name) {
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
        (Engine::Go, "{{ repeat 1000000000 \"x\" }}".to_owned()),
        (Engine::Go, "{{ until 1000000000 }}".to_owned()),
        (Engine::Go, "{{ indent 1000000000 \"x\" }}".to_owned()),
        (Engine::Go, "{{ range until 100 }}{{ derivePassword 1 \"pin\" $.x $.x $.x }}{{ end }}".to_owned()),
        (Engine::Go, format!("{{{{ fromJson `{}` }}}}", "[".repeat(100_000))),
        (Engine::Go, "{{ range until 100000 }}{{ range until 100000 }}{{ sha256sum $.x }}{{ end }}{{ end }}".to_owned()),
        (Engine::Go, "{{ $l := list 1 }}{{ range 60 }}{{ $l = list $l $l }}{{ end }}{{ deepEqual $l (deepCopy $l) }}".to_owned()),
        (Engine::Go, "{{ range until 100000 }}{{ regexFindAll \".*y|x\" $.x -1 | len }}{{ end }}".to_owned()),
        (Engine::Go, format!("{{{{ regexMatch `{}` .x }}}}", "[\\pL\\pN]{30}".repeat(30))),
        (Engine::Go, format!("{{{{ regexMatch `{}` .x }}}}", "\\pL".repeat(20_000))),
        (Engine::Go, format!("{{{{ semverCompare \"{}\" \"1\" }}}}", "1".repeat(100_000))),
        (Engine::Jinja, "{{ repeat(1000000000, 'x') }}".to_owned()),
        (Engine::Jinja, format!("{{% set x = x %}}{doubled}")),
        (Engine::Jinja, format!("{{% set y = [x] %}}{nested}{{{{ y == y }}}}")),
        (Engine::Jinja, "{% for i in range(9999) %}{% for j in range(9999) %}{{ x | sort | sha256sum }}{% endfor %}{% endfor %}".to_owned()),
    ];
    let row = BTreeMap::from([("x".to_owned(), "x".repeat(10_000))]);
    let inputs = Inputs::new(&row, None, Limits::default());
    for (engine, text) in cases {
        let shown: String = text.chars().take(80).collect();
        let start = Instant::now();
        let rendered = Template::parse(engine, "t", &text).and_then(|t| t.render(&inputs, "x"));
        assert!(rendered.is_err(), "{shown}");
        assert!(
            // Without its limits it would not end at all.
            start.elapsed() < Duration::from_secs(60),
            "{shown}: {:?}",
            start.elapsed()
        );
    }
}
