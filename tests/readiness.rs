//! The readiness rules, case by case: one file each under tests/cases/readiness/<rule>/. No case needs a cluster.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::path::PathBuf;

use proptest::prelude::*;
use serde::Deserialize;
use serde_json::Value;
use serde_json::json;

use lynqgate::decide::readiness::Readiness;
use lynqgate::decide::readiness::Reason;
use lynqgate::decide::readiness::readiness;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    object: Value,
    expect: Expect,
}

#[derive(Debug, Deserialize, PartialEq)]
enum Expect {
    Ready,
    Waiting(Told),
    Failed(Told),
    Unknown(Told),
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Told {
    code: String,
    message: String,
}

impl Told {
    fn new(reason: &Reason) -> Self {
        Self {
            code: reason.code().to_owned(),
            message: reason.to_string(),
        }
    }
}

impl Expect {
    fn new(readiness: &Readiness) -> Self {
        match readiness {
            Readiness::Ready => Self::Ready,
            Readiness::Waiting(reason) => Self::Waiting(Told::new(reason)),
            Readiness::Failed(reason) => Self::Failed(Told::new(reason)),
            Readiness::Unknown(reason) => Self::Unknown(Told::new(reason)),
        }
    }

    fn told(&self) -> Option<&Told> {
        match self {
            Self::Ready => None,
            Self::Waiting(told) | Self::Failed(told) | Self::Unknown(told) => Some(told),
        }
    }
}

#[test]
fn every_case_is_judged_as_it_says() {
    let mut wrong = vec![];
    for (path, case) in cases() {
        let (shown, name) = (path.display(), &case.name);
        let got = Expect::new(&readiness(&case.object));
        if got != case.expect {
            let expect = &case.expect;
            wrong.push(format!(
                "{shown} ({name})\n  expected {expect:?}\n  got      {got:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn every_rule_has_its_cases() {
    let mut kinds_of: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for (path, case) in cases() {
        let rule = path
            .parent()
            .and_then(Path::file_name)
            .unwrap()
            .to_string_lossy()
            .into_owned();
        kinds_of.entry(rule).or_default().insert(match case.expect {
            Expect::Ready => "ready",
            Expect::Waiting(_) => "waiting",
            Expect::Failed(_) => "failed",
            Expect::Unknown(_) => "unknown",
        });
    }
    let mut wrong = vec![];
    let mut rules = BTreeSet::new();
    for path in files(&root().join("src/decide/readiness"), "rs") {
        let source = fs::read_to_string(&path).unwrap();
        if !source.contains("fn rule(") {
            continue;
        }
        let rule = path.file_stem().unwrap().to_string_lossy().into_owned();
        let found = kinds_of.get(&rule).cloned().unwrap_or_default();
        let mut needed = BTreeSet::from(["ready", "waiting"]);
        for (variant, kind) in [
            ("Readiness::Failed(", "failed"),
            ("Readiness::Unknown(", "unknown"),
        ] {
            if source.contains(variant) {
                needed.insert(kind);
            }
        }
        for kind in needed.difference(&found) {
            wrong.push(format!("tests/cases/readiness/{rule}: no {kind} case"));
        }
        rules.insert(rule);
    }
    for directory in kinds_of
        .keys()
        .filter(|directory| !rules.contains(*directory))
    {
        wrong.push(format!("tests/cases/readiness/{directory}: no such rule"));
    }
    assert!(
        !rules.is_empty(),
        "no rule was found; has the directory moved?"
    );
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn every_reason_has_a_case_and_a_code_of_its_own() {
    let source = fs::read_to_string(root().join("src/decide/readiness/reason.rs")).unwrap();
    let codes: Vec<(&str, &str)> = source
        .lines()
        .filter_map(|line| {
            line.trim()
                .strip_prefix("Self::")?
                .split_once(" { .. } => ")
        })
        .map(|(variant, code)| (variant, code.trim_matches([',', '"'])))
        .collect();
    let told: BTreeSet<String> = cases()
        .iter()
        .filter_map(|(_, case)| case.expect.told())
        .map(|told| told.code.clone())
        .collect();
    assert!(
        codes.len() >= told.len(),
        "the codes of reason.rs were not found: {codes:?}"
    );
    for (variant, code) in codes {
        assert_eq!(variant, code, "the code is the variant's name");
        assert!(
            told.contains(code),
            "{code}: no case in tests/cases/readiness produces it"
        );
    }
}

fn cases() -> Vec<(PathBuf, Case)> {
    let mut cases = vec![];
    for path in files(&root().join("tests/cases/readiness"), "yaml") {
        let text = fs::read_to_string(&path).unwrap();
        let case = serde_saphyr::from_str(&text)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        cases.push((path.strip_prefix(root()).unwrap().to_owned(), case));
    }
    assert!(!cases.is_empty(), "no cases under tests/cases/readiness");
    cases
}

fn files(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = vec![];
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop_oneof![
            Just("True"),
            Just("Ready"),
            Just("RollingUpdate"),
            Just("25%"),
            Just("-1%"),
            Just("é%")
        ]
        .prop_map(Value::from),
        ".*".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{0,4}|type|status|reason", inner, 0..4)
                .prop_map(|map| map.into_iter().collect()),
        ]
    })
}

/// Every place in an object, as JSON pointers.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                places(
                    inner,
                    &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")),
                    found,
                );
            }
        }
        Value::Array(list) => {
            for (i, inner) in list.iter().enumerate() {
                places(inner, &format!("{at}/{i}"), found);
            }
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_json_is_never_ready_and_never_a_panic(value in any_json()) {
        // None of these has both an apiVersion and a kind.
        let Readiness::Waiting(reason) = readiness(&value) else { panic!("{value}") };
        prop_assert_eq!(reason.code(), "Unidentified");
    }

    #[test]
    fn no_damaged_object_is_a_panic(
        which in any::<prop::sample::Index>(),
        place in any::<prop::sample::Index>(),
        instead in any_json(),
    ) {
        thread_local!(static CASES: Vec<Value> = cases().into_iter().map(|(_, case)| case.object).collect());
        let mut object = CASES.with(|cases| which.get(cases).clone());
        let mut found = vec![];
        places(&object, "", &mut found);
        *object.pointer_mut(place.get(&found).as_str()).unwrap() = instead;
        let got = Expect::new(&readiness(&object));
        if let Some(told) = got.told() {
            prop_assert!(told.message.contains(": "), "{}", told.message);
        }
    }

    /// The formula of design: stated once more, and differently, over all small numbers.
    #[test]
    fn a_deployment_is_ready_exactly_when_every_pod_is_new_and_available(
        generation in 1..3_i64, observed in 1..3_i64, wanted in 0..4_u32,
        total in 0..5_u32, updated in 0..5_u32, available in 0..5_u32,
        paused in prop::bool::weighted(0.2), has_deadline in any::<bool>(),
        reason in prop_oneof![
            4 => Just("NewReplicaSetAvailable"), 1 => Just("ReplicaSetUpdated"), 1 => Just("ProgressDeadlineExceeded"),
        ],
        surge in 0..3_u32, unavailable in 0..3_u32,
    ) {
        let progressing = json!([{"type": "Progressing", "status": "True", "reason": reason}]);
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "generation": generation},
            "spec": {
                "replicas": wanted, "paused": paused,
                "progressDeadlineSeconds": if has_deadline { 600 } else { i32::MAX },
                "strategy": {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}},
            },
            "status": {
                "observedGeneration": observed, "replicas": total, "updatedReplicas": updated,
                "availableReplicas": available,
                "conditions": if has_deadline { progressing } else { json!([]) },
            },
        });
        let confirmed = !has_deadline || reason == "NewReplicaSetAvailable";
        let complete = updated == wanted && available >= wanted && total <= updated;
        let done = if wanted == 0 { total == 0 } else { !paused && confirmed && complete };
        let expect = generation == observed && done;
        prop_assert_eq!(readiness(&object) == Readiness::Ready, expect, "{}", object);
    }
}
