//! Any text as what people write into forms: templates of both engines, JSONPath, CEL. libFuzzer looks for one on which
//! reading or evaluating it panics or hangs. The first byte says as what the rest is read.

#![no_main]

use std::collections::BTreeMap;
use std::sync::LazyLock;

use go_templates::Limits;
use libfuzzer_sys::{Corpus, fuzz_target};
use lynqgate::api::names;
use lynqgate::decide::readiness::readiness;
use lynqgate::decide::shared::path::Path;
use lynqgate::decide::template::{Engine, Inputs, LIMITS, Template, facts};
use serde_json::{Value, json};

static OBJECT: LazyLock<Value> = LazyLock::new(|| {
    json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "generation": 2, "annotations": {}},
        "spec": {"list": [1, 2, {"name": "a", "value": null}], "text": "some"},
        "status": {"observedGeneration": 2, "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    })
});

static VARIABLES: LazyLock<BTreeMap<String, String>> = LazyLock::new(|| {
    let row = [
        ("uid", "acme"),
        ("n", "3"),
        ("empty", ""),
        ("config", r#"{"list": [1, "two", null], "map": {"k": "v"}}"#),
    ];
    row.map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
});

fuzz_target!(|input: &[u8]| -> Corpus {
    let Some((kind, text)) = input.split_first() else {
        return Corpus::Reject;
    };
    let Ok(text) = std::str::from_utf8(text) else {
        return Corpus::Reject;
    };
    match kind {
        b'g' => render(Engine::Go, text),
        b'j' => render(Engine::Jinja, text),
        b'p' => {
            let _ = Path::of_others(text);
            if let Ok(path) = Path::parse(text) {
                path.values(&OBJECT);
                path.pointers(&OBJECT);
            }
        }
        b'c' => probe(&json!({"cel": text})),
        b'e' => probe(&json!({"jsonPath": text, "expectedValue": "Running"})),
        _ => return Corpus::Reject,
    }
    Corpus::Keep
});

fn render(engine: Engine, text: &str) {
    let Ok(template) = Template::parse(engine, "template", text) else {
        return;
    };
    let first_seen = "2026-03-01T12:00:00Z".parse().expect("a time");
    let facts = facts::of(first_seen, [0; 32], "acme", "app");
    let limits = Limits {
        steps: 10_000,
        memory_bytes: 1_000_000,
        output_bytes: 100_000,
        ..LIMITS
    };
    let inputs = Inputs::new(&VARIABLES, Some(facts), limits);
    let rendered = template.render(&inputs, "template");
    if cfg!(feature = "planted") && engine == Engine::Jinja {
        let text = rendered.map_or(String::new(), |rendered| rendered.into_text());
        assert!(!text.starts_with("ACM"), "planted");
    }
}

fn probe(probe: &Value) {
    let mut object = OBJECT.clone();
    object["metadata"]["annotations"][names::READY_PROBE] = probe.to_string().into();
    if let Some(reason) = readiness(&object).reason() {
        let _ = reason.to_string();
    }
}
