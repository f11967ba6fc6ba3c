//! Bodies of any shape, from nearly right to nonsense: each gets an answer, none makes the gate panic, and what is let
//! through is what the validating half agrees with.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use json_patch::patch;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::decide::shared::content;

const OPERATOR: &str = "system:serviceaccount:lynq-system:lynq-controller-manager";

fn webhook() -> Webhook {
    let policy = Policy {
        of_form: Rollout {
            max_skew: Skew::Count(3),
            ..Rollout::default()
        },
        ..Policy::default()
    };
    Webhook {
        operator: OPERATOR.to_owned(),
        authors: None,
        policy_of: Arc::new(move |_, form| (form == "web").then(|| policy.clone())),
        metrics: Metrics::register(&mut Registry::default()),
    }
}

/// What an API server sends.
fn good_reviews() -> Vec<Value> {
    let content = |image: &str| json!([{"id": "app", "spec": {"image": image}}]);
    let hash =
        |image: &str| content::hash(Some(&json!({"deployments": content(image)}))).to_string();
    let node = |image: &str, annotations: Value| {
        json!({
            "apiVersion": "operator.lynq.sh/v1", "kind": "LynqNode",
            "metadata": {"name": "acme-web", "namespace": "tenants", "resourceVersion": "7", "annotations": annotations},
            "spec": {"uid": "acme", "templateRef": "web", "deployments": content(image)},
        })
    };
    let live = node(
        "a",
        json!({names::DESIRED_HASH: hash("a"), names::LIVE_HASH: hash("a"), names::START_TIME: "2026-03-01T12:00:00.000Z"}),
    );
    let mut held = node(
        "b",
        json!({
            names::DESIRED_HASH: hash("b"), names::LIVE_HASH: hash("a"), names::HELD_SINCE: "2026-03-01T12:00:00.000Z",
            names::HELD_BY: "alice", names::START_TIME: "2026-03-01T12:00:00.000Z",
        }),
    );
    held["spec"]["released"] = json!({"deployments": content("a")});
    let marked = |name: &str, value: String| {
        let mut new = held.clone();
        new["metadata"]["annotations"][name] = json!(value);
        new
    };
    let edited = |image: &str| {
        let mut new = held.clone();
        new["spec"]["deployments"] = content(image);
        new
    };
    let review = |operation: &str, user: &str, old: &Value, new: &Value| {
        json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "u-1", "operation": operation, "subResource": "", "userInfo": {"username": user},
                "object": new, "oldObject": old,
            },
        })
    };
    vec![
        review("CREATE", "alice", &Value::Null, &node("a", json!({}))),
        review(
            "CREATE",
            OPERATOR,
            &Value::Null,
            &node("a", json!({names::UNGATED: hash("a")})),
        ),
        review("UPDATE", "alice", &live, &node("b", json!({}))),
        review("UPDATE", "alice", &held, &edited("c")),
        review("UPDATE", "alice", &held, &edited("a")),
        review(
            "UPDATE",
            "alice",
            &held,
            &marked(names::FORCE_ROLLOUT, "true".to_owned()),
        ),
        review(
            "UPDATE",
            "alice",
            &held,
            &marked(names::FORCE_ROLLOUT, "yes".to_owned()),
        ),
        review(
            "UPDATE",
            OPERATOR,
            &held,
            &marked(names::RELEASE, format!("{}/7", hash("b"))),
        ),
        review(
            "UPDATE",
            OPERATOR,
            &held,
            &marked(names::UNGATED, format!("{}/7", hash("b"))),
        ),
        review(
            "UPDATE",
            OPERATOR,
            &node(
                "a",
                json!({names::DESIRED_HASH: "7:ab", names::LIVE_HASH: "7:ab"}),
            ),
            &node("b", json!({})),
        ),
        review("DELETE", "alice", &live, &Value::Null),
    ]
}

/// What is done to one place of a review.
#[derive(Clone, Debug)]
enum Damage {
    Replace(Value),
    Remove,
    /// The field once more, with another value: no `Value` can hold it, so the text gets it.
    Duplicate(Value),
    /// So many levels, which is text as well.
    Nest(usize),
    /// A literal that is no `Value`, or only as another number.
    Literal(&'static str),
    /// As the value of another place.
    CopyTo(prop::sample::Index),
    /// Wrapped into an array, or into an object.
    Wrap(bool),
}

const TWIN: &str = "\u{1}twin\u{1}";
const NEST: &str = "\u{1}nest\u{1}";
const LITERAL: &str = "\u{1}literal\u{1}";
const LITERALS: [&str; 9] = [
    "1e999",
    "-0.0",
    "5e-324",
    "18446744073709551616",
    "123456789012345678901234567890",
    "-9223372036854775809",
    "\"\\ud800\"",
    "nul",
    "{\"a\":1,\"a\":2}",
];

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        4 => value().prop_map(Damage::Replace),
        3 => Just(Damage::Remove),
        2 => value().prop_map(Damage::Duplicate),
        1 => prop_oneof![1..150usize, Just(20_000)].prop_map(Damage::Nest),
        2 => prop::sample::select(LITERALS.to_vec()).prop_map(Damage::Literal),
        3 => any::<prop::sample::Index>().prop_map(Damage::CopyTo),
        1 => any::<bool>().prop_map(Damage::Wrap),
    ]
}

/// JSON of any shape, with words that mean something to the gate.
fn value() -> impl Strategy<Value = Value> {
    let words = prop::sample::select(vec![
        "",
        "none",
        "unknown",
        "true",
        "UPDATE",
        "CREATE",
        "CONNECT",
        "status",
        OPERATOR,
        "7",
        "7:ab",
        "1:/7",
        "a/b/c",
        "2026-03-01T12:00:00Z",
        "9999-12-31T23:59:59.999Z",
        "-009999-01-02T01:59:59Z",
        "admission.k8s.io/v1",
        "\u{0}\u{feff}é\u{2028}",
    ]);
    let keys = prop::sample::select(vec![
        "metadata",
        "annotations",
        "spec",
        "released",
        "deployments",
        "jobs",
        "id",
        "uid",
        "object",
        "request",
        names::LIVE_HASH,
        names::RELEASE,
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        words.prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        let fields =
            prop::collection::btree_map(keys.clone().prop_map(str::to_owned), inner.clone(), 0..4);
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(Value::from),
            fields.prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// Pointers to every place below the root.
fn places(value: &Value, path: &str, found: &mut Vec<String>) {
    let mut add = |key: &str, item: &Value| {
        let path = format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"));
        found.push(path.clone());
        places(item, &path, found);
    };
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, item)| add(key, item)),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(i, item)| add(&i.to_string(), item)),
        _ => {}
    }
}

fn damaged(mut review: Value, damages: &[(prop::sample::Index, Damage)]) -> Vec<u8> {
    let (mut depth, mut literal) = (0, "");
    for (at, damage) in damages {
        let mut all = vec![];
        places(&review, "", &mut all);
        if all.is_empty() {
            break;
        }
        let place = at.get(&all);
        let (parent, key) = place.rsplit_once('/').expect("a pointer");
        let key = key.replace("~1", "/").replace("~0", "~");
        let target = review.pointer(place).expect("a place").clone();
        let put = match damage {
            Damage::Replace(value) => value.clone(),
            Damage::Remove => {
                match review.pointer_mut(parent) {
                    Some(Value::Object(fields)) => drop(fields.remove(&key)),
                    Some(Value::Array(items)) => drop(items.remove(key.parse().expect("an index"))),
                    _ => unreachable!("only these have places in them"),
                }
                continue;
            }
            Damage::Duplicate(value) => {
                if let Some(Value::Object(fields)) = review.pointer_mut(parent) {
                    fields.insert(format!("{TWIN}{key}"), value.clone());
                }
                continue;
            }
            Damage::Nest(levels) => {
                depth = *levels;
                json!(NEST)
            }
            Damage::Literal(text) => {
                literal = text;
                json!(LITERAL)
            }
            Damage::CopyTo(other) => {
                *review
                    .pointer_mut(&all[other.index(all.len())])
                    .expect("a place") = target;
                continue;
            }
            Damage::Wrap(true) => json!([target]),
            Damage::Wrap(false) => json!({"metadata": target}),
        };
        *review.pointer_mut(place).expect("a place") = put;
    }
    let escaped = |text: &str| json!(text).to_string();
    let text = review
        .to_string()
        .replace(escaped(TWIN).trim_matches('"'), "")
        .replace(&escaped(NEST), &("[".repeat(depth) + &"]".repeat(depth)))
        .replace(&escaped(LITERAL), literal);
    text.into_bytes()
}

fn operations(text: &str) -> json_patch::Patch {
    match text {
        "" => json_patch::Patch::default(),
        text => serde_json::from_str(text).expect("a JSON patch"),
    }
}

/// Sends the body to both halves, and what the first made of its object to both again.
fn ask(webhook: &Webhook, body: &[u8]) -> Result<(), TestCaseError> {
    let parsed: Option<Value> = serde_json::from_slice(body).ok();
    for half in [Half::Mutating, Half::Validating] {
        let Ok(Judged { uid, answer, .. }) = judge(webhook, half, body) else {
            continue;
        };
        prop_assert!(
            !answer
                .denied
                .as_ref()
                .is_some_and(|(_, text)| text.contains("failed inside")),
            "it panicked"
        );
        let reply: Value = serde_json::from_str(&answer.body(&uid)).expect("JSON");
        prop_assert_eq!(&reply["response"]["uid"], &json!(uid));
        let patched = &reply["response"]["patch"];
        prop_assert_eq!(patched.is_null(), reply["response"]["patchType"].is_null());
        let (Some(mut review), None, Half::Mutating) = (parsed.clone(), &answer.denied, half)
        else {
            continue;
        };
        if let Some(text) = patched.as_str() {
            let text = STANDARD.decode(text).expect("base64");
            let operations: json_patch::Patch =
                serde_json::from_slice(&text).expect("a JSON patch");
            let applied = patch(&mut review["request"]["object"], &operations);
            prop_assert!(applied.is_ok(), "{:?}: {:?}", applied, operations);
        }
        let body = review.to_string();
        let asked = |half| judge(webhook, half, body.as_bytes()).expect("it is a review still");
        let validated = asked(Half::Validating).answer;
        prop_assert_eq!(validated.denied, None, "the halves disagree about {}", body);
        let again = asked(Half::Mutating).answer;
        prop_assert_eq!(again.denied, None);
        // A stamp of this write is made anew, from the clock.
        let stamps = [names::START_TIME, names::HELD_SINCE].map(|name| name.replace('/', "~1"));
        let moved = |operation: &json_patch::PatchOperation| {
            stamps
                .iter()
                .any(|stamp| operation.path().as_str().ends_with(stamp.as_str()))
        };
        let steps = operations(&again.patch);
        prop_assert!(
            steps.0.iter().all(moved),
            "asked again, it patches {:?}",
            again.patch
        );
    }
    Ok(())
}

#[test]
fn what_has_not_the_shape_of_an_object_is_refused_by_both_halves() {
    let webhook = webhook();
    let good = good_reviews().swap_remove(2);
    for place in ["object", "oldObject"] {
        for bad in [
            json!("x"),
            json!([]),
            json!({}),
            json!({"metadata": 5}),
            json!({"metadata": {}, "spec": 7}),
        ] {
            let mut review = good.clone();
            review["request"][place] = bad.clone();
            for half in [Half::Mutating, Half::Validating] {
                let judged = judge(&webhook, half, review.to_string().as_bytes());
                let answer = judged.expect("a review").answer;
                assert!(answer.denied.is_some(), "{place}: {bad}");
            }
        }
    }
}

/// However deep it is: the API server alone writes it.
#[test]
fn what_no_decision_reads_is_skipped() {
    let deep = "[".repeat(1_000) + &"]".repeat(1_000);
    for (at, denied) in [
        ("/request/object/status", false),
        ("/request/oldObject/metadata/managedFields", false),
        ("/request/object/metadata/labels", true),
        ("/request/object/spec/deployments", true),
        ("/request/oldObject/spec/deployments", true),
        ("/request/object/spec/released", true),
    ] {
        let mut review = good_reviews().swap_remove(3);
        let (parent, field) = at.rsplit_once('/').expect("a pointer");
        review.pointer_mut(parent).expect("an object")[field] = json!(NEST);
        let escaped = json!(NEST).to_string();
        let body = review.to_string().replace(&escaped, &deep);
        let judged = judge(&webhook(), Half::Mutating, body.as_bytes());
        let answer = judged.expect("a review").answer;
        assert_eq!(answer.denied.is_some(), denied, "{at}: {:?}", answer.denied);
    }
}

/// The cases below start from reviews that are answered as they should be.
#[test]
fn good_reviews_are_answered() {
    let webhook = webhook();
    let codes: Vec<String> = good_reviews()
        .iter()
        .map(|review| {
            let judged = judge(&webhook, Half::Mutating, review.to_string().as_bytes());
            let Judged { uid, answer, .. } = judged.unwrap();
            assert_eq!((uid.as_str(), &answer.denied), ("u-1", &None), "{review}");
            answer
                .audit
                .first()
                .map(|(_, code)| code.clone())
                .unwrap_or_default()
        })
        .collect();
    let expected = [
        "held",
        "ungated",
        "held",
        "held",
        "unheld",
        "forced",
        "unchanged",
        "released",
        "ungated",
        "held",
        "",
    ];
    assert_eq!(codes, expected);
}

/// The API server shows a warning of the mutating half beside a denial of the validating one, or of the fence.
#[test]
fn the_validating_half_says_that_a_write_is_held() {
    let webhook = webhook();
    let mut review = good_reviews().swap_remove(2);
    let asked = |half, review: &Value| {
        let judged = judge(&webhook, half, review.to_string().as_bytes());
        judged.expect("a review").answer
    };
    let mutated = asked(Half::Mutating, &review);
    let is_held = |warning: &String| warning.starts_with("held: ");
    assert!(!mutated.warnings.iter().any(is_held));
    let steps = operations(&mutated.patch);
    patch(&mut review["request"]["object"], &steps).expect("the patch applies");
    let validated = asked(Half::Validating, &review);
    assert_eq!(validated.denied, None);
    let held = "held: lynqnode acme-web waits for a slot of form web (maxSkew 3)";
    assert_eq!(validated.warnings, [held]);
}

proptest! {
    #[test]
    fn damaged_reviews_never_panic(
        review in prop::sample::select(good_reviews()),
        damages in prop::collection::vec((any::<prop::sample::Index>(), damage()), 0..5),
    ) {
        ask(&webhook(), &damaged(review, &damages))?;
    }

    #[test]
    fn arbitrary_json_never_panics(body in value()) {
        ask(&webhook(), body.to_string().as_bytes())?;
        let request = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": body});
        ask(&webhook(), request.to_string().as_bytes())?;
    }

    #[test]
    fn arbitrary_bytes_never_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
        ask(&webhook(), &body)?;
    }

    /// A review that was cut, or in which some bytes are others.
    #[test]
    fn broken_transfers_never_panic(
        review in prop::sample::select(good_reviews()),
        bytes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        end in any::<prop::sample::Index>(), cut in any::<bool>(),
    ) {
        let mut body = review.to_string().into_bytes();
        for (at, byte) in bytes {
            let at = at.index(body.len());
            body[at] = byte;
        }
        if cut {
            body.truncate(end.index(body.len()));
        }
        ask(&webhook(), &body)?;
    }
}
