//! The functions against Go's text/template and sprig: expected results are written by the Go program in `oracle/functions`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use go_templates::{
    Budget, Context, Facts, Library, Param, Place, Seed, Template, Value as Given, methods,
};
use serde_json::Value;

const EXPECTED: &str = include_str!("functions.golden.json");

/// The expected results of the cases, and their variables.
fn expected() -> (Value, Texts) {
    let expected: Value = serde_json::from_str(EXPECTED).unwrap();
    let texts = serde_json::from_value(expected["variables"].clone()).unwrap();
    (expected, texts)
}

type Texts = BTreeMap<String, String>;

fn result(library: &Library, texts: &Texts, text: &str) -> Result<String, String> {
    let variables = texts.iter();
    let variables = variables.map(|(name, text)| (name.as_str(), Given::str(text)));
    // Of its own for each rendering: a template may change it.
    let variables = Given::dict(variables);
    let facts = Facts {
        now: Ok("2026-01-02T03:04:05.6Z".parse().unwrap()),
        seed: Ok(Seed::new([7; 32], ["acme"])),
    };
    let place = Place::default();
    let mut context = Context::with_facts(Budget::default(), Arc::new(facts), place);
    Template::parse(library, "t", text)
        .and_then(|template| template.render(&variables, &mut context))
        .map(|output| output.into_text())
        .map_err(|error| error.message)
}

#[test]
fn results_are_those_of_go_and_sprig() {
    let (expected, variables) = expected();
    let library = Library::sprig();
    let cases = expected["cases"].as_array().unwrap();
    let mut differences = Vec::new();
    for case in cases {
        let text = case["template"].as_str().unwrap();
        let wanted = match case["error"].as_str() {
            Some(error) => Err(error.to_owned()),
            None => Ok(case["leaf"].as_str().unwrap_or_default().to_owned()),
        };
        let found = result(&library, &variables, text);
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
    let (expected, _) = expected();
    let cases = expected["cases"].as_array().unwrap();
    let uses = |name: &str, failing: bool| {
        cases.iter().any(|case| {
            let text = case["template"].as_str().unwrap();
            let mut words = text.split(|c: char| c != '_' && !c.is_ascii_alphanumeric());
            case["error"].is_string() == failing && words.any(|word| word == name)
        })
    };
    let mut missing = Vec::new();
    let library = Library::sprig();
    for function in library
        .functions()
        .filter(|function| !NOT_OF_GO.contains(&function.name))
    {
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
    for method in methods::all().filter(|method| !uses(method.name, false)) {
        missing.push(format!("{}: a result", method.name));
    }
    assert_eq!(missing, Vec::<String>::new());
}

/// Names of sprig's that are not here: they ask the machine, or their salt or key is new each time.
const UNKNOWN: [&str; 12] = [
    "bcrypt",
    "env",
    "expandenv",
    "genCA",
    "genCAWithKey",
    "genPrivateKey",
    "genSelfSignedCert",
    "genSelfSignedCertWithKey",
    "genSignedCert",
    "genSignedCertWithKey",
    "getHostByName",
    "htpasswd",
];

#[test]
fn every_name_of_sprig_is_there_or_unknown_on_purpose() {
    let (expected, variables) = expected();
    let library = Library::sprig();
    let names = expected["names"].as_array().unwrap();
    assert!(names.len() > 225, "only {} names", names.len());
    let names: Vec<&str> = names.iter().map(|name| name.as_str().unwrap()).collect();
    for name in &names {
        // The language's own: they stop early.
        let is_there = library.get(name).is_some() || matches!(*name, "and" | "or");
        assert_eq!(is_there, !UNKNOWN.contains(name), "{name}");
        if !is_there {
            let found = result(&library, &variables, &format!("{{{{ {name} }}}}"));
            let unknown = format!("template: t:1: function {name:?} not defined");
            assert_eq!(found, Err(unknown));
        }
    }
    let own = library.functions().map(|function| function.name);
    let own: Vec<&str> = own.filter(|name| !names.contains(name)).collect();
    assert_eq!(
        own,
        Vec::<&str>::new(),
        "functions that sprig does not have"
    );
}

#[test]
fn an_embedder_adds_replaces_and_refuses_functions() {
    use go_templates::{Function, Signature, arguments};
    let shout = Function::new(
        "shout",
        Signature::exactly(&[Param::Str]),
        |context, args| {
            let text = arguments::text(args, 0)?.to_ascii_uppercase();
            context.string(text)
        },
    );
    let hello = Function::new("hello", Signature::exactly(&[]), |_, _| {
        Ok(Given::str("Hi"))
    });
    let library = Library::sprig()
        .with([shout, hello])
        .refusing("upper", "shout instead");
    let found = |text| result(&library, &Texts::new(), text);
    assert_eq!(
        found("{{ hello }} {{ `x` | shout }}"),
        Ok("Hi X".to_owned())
    );
    for (text, error) in [
        (
            "{{ upper `x` }}",
            "template: t:1: function upper is refused: shout instead",
        ),
        (
            "{{ shout 1 }}",
            "template: t:1:9: executing \"t\" at <1>: expected string; found 1",
        ),
        (
            "{{ shout }}",
            "template: t:1:3: executing \"t\" at <shout>: wrong number of args for shout: want 1 got 0",
        ),
    ] {
        assert_eq!(found(text), Err(error.to_owned()));
    }
}

#[test]
fn hostile_templates_end_soon() {
    let cases = [
        "{{ repeat 1000000000 \"x\" }}".to_owned(),
        "{{ until 1000000000 }}".to_owned(),
        "{{ indent 1000000000 \"x\" }}".to_owned(),
        "{{ range until 100 }}{{ derivePassword 1 \"pin\" $.x $.x $.x }}{{ end }}".to_owned(),
        format!("{{{{ fromJson `{}` }}}}", "[".repeat(100_000)),
        "{{ range until 100000 }}{{ range until 100000 }}{{ sha256sum $.x }}{{ end }}{{ end }}".to_owned(),
        "{{ $l := list 1 }}{{ range 60 }}{{ $l = list $l $l }}{{ end }}{{ deepEqual $l (deepCopy $l) }}".to_owned(),
        "{{ range until 100000 }}{{ regexFindAll \".*y|x\" $.x -1 | len }}{{ end }}".to_owned(),
        format!("{{{{ regexMatch `{}` .x }}}}", "[\\pL\\pN]{30}".repeat(30)),
        format!("{{{{ regexMatch `{}` .x }}}}", "\\pL".repeat(20_000)),
        format!("{{{{ semverCompare \"{}\" \"1\" }}}}", "1".repeat(100_000)),
    ];
    let library = Library::sprig();
    let variables = Texts::from([("x".to_owned(), "x".repeat(10_000))]);
    for text in cases {
        let shown: String = text.chars().take(80).collect();
        let start = Instant::now();
        let rendered = result(&library, &variables, &text);
        assert!(rendered.is_err(), "{shown}");
        assert!(
            // Without its limits it would not end at all.
            start.elapsed() < Duration::from_secs(60),
            "{shown}: {:?}",
            start.elapsed()
        );
    }
}
