//! Any bytes as the body of an admission request: libFuzzer looks for one on which the gate panics, hangs, or disagrees
//! with itself. It must not know what the right answer is; src/decide/gate/tests does.

#![no_main]

use std::sync::{Arc, LazyLock};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use libfuzzer_sys::fuzz_target;
use lynqgate::api::names;
use lynqgate::server::webhook::{Half, Judged, Metrics, Policy, Webhook, judge};
use prometheus_client::registry::Registry;
use serde_json::Value;

static WEBHOOK: LazyLock<Webhook> = LazyLock::new(|| Webhook {
    operator: "operator".to_owned(),
    authors: None,
    policy_of: Arc::new(|_, form| (form == "web").then(Policy::default)),
    metrics: Metrics::register(&mut Registry::default()),
});

// A panic ends the process here, also one that the webhook would catch.
fuzz_target!(|body: &[u8]| {
    let _ = judge(&WEBHOOK, Half::Validating, body).map(|judged| judged.answer.body(&judged.uid));
    let Ok(Judged { uid, answer, .. }) = judge(&WEBHOOK, Half::Mutating, body) else {
        return;
    };
    if cfg!(feature = "planted") {
        assert_eq!(answer.denied, None, "planted");
    }
    let reply: Value = serde_json::from_str(&answer.body(&uid)).expect("JSON");
    let review = serde_json::from_slice::<Value>(body).ok();
    let Some(mut review) = review.filter(|review| {
        answer.denied.is_none() && is_an_object_of_kubernetes(&review["request"]["object"])
    }) else {
        return;
    };
    if let Some(text) = reply["response"]["patch"].as_str() {
        let text = STANDARD.decode(text).expect("base64");
        let patch: json_patch::Patch = serde_json::from_slice(&text).expect("a JSON patch");
        json_patch::patch(&mut review["request"]["object"], &patch).expect("the patch applies");
    }
    let body = review.to_string();
    let asked = |half| judge(&WEBHOOK, half, body.as_bytes()).expect("a review");
    let validated = asked(Half::Validating).answer;
    assert_eq!(validated.denied, None, "the halves disagree");
    let again = asked(Half::Mutating).answer;
    assert_eq!(again.denied, None, "asked again, it denies");
    let again = match &*again.patch {
        "" => json_patch::Patch::default(),
        text => serde_json::from_str(text).expect("a JSON patch"),
    };
    for operation in again.0 {
        let path = operation.path().as_str().replace("~1", "/");
        let stamp = path.ends_with(names::START_TIME) || path.ends_with(names::HELD_SINCE);
        assert!(stamp, "asked again, it patches {path}");
    }
});

/// What the API server decodes before it asks anybody: metadata is an object, with text in its annotations.
fn is_an_object_of_kubernetes(object: &Value) -> bool {
    let annotations = &object["metadata"]["annotations"];
    let texts = annotations
        .as_object()
        .is_some_and(|all| all.values().all(Value::is_string));
    let spec = &object["spec"];
    object["metadata"].is_object()
        && (texts || annotations.is_null())
        && (spec.is_object() || spec.is_null())
}
