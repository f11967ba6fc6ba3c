//! Properties of the gate over arbitrary sequences of writes, and over arbitrary JSON. No single case stands here.

use proptest::prelude::*;

use super::*;

/// One write of a random history.
#[derive(Clone, Debug)]
enum Step {
    Edit(u8),
    Annotate(u8, u8),
    DropAnnotation(u8),
    DropReleased,
    Release,
    Ungate(u8),
    Force(bool),
    Label(u8),
}

fn steps() -> impl Strategy<Value = Vec<(Step, bool)>> {
    let step = prop_oneof![
        4 => (0..4u8).prop_map(Step::Edit),
        1 => (0..7u8, 0..3u8).prop_map(|(which, value)| Step::Annotate(which, value)),
        1 => (0..7u8).prop_map(Step::DropAnnotation),
        1 => Just(Step::DropReleased),
        3 => Just(Step::Release),
        1 => (0..4u8).prop_map(Step::Ungate),
        1 => any::<bool>().prop_map(Step::Force),
        1 => any::<u8>().prop_map(Step::Label),
    ];
    prop::collection::vec((step, any::<bool>()), 1..12)
}

const OWNED: [&str; 7] = [
    names::DESIRED_HASH,
    names::LIVE_HASH,
    names::START_TIME,
    names::HELD_SINCE,
    names::HELD_BY,
    names::RELEASE,
    names::UNGATED,
];
const IMAGES: [&str; 4] = ["", "a", "b", "c"];

fn written(old: &Value, step: &Step) -> Value {
    match step {
        Step::Edit(image) => {
            let mut new = edited(old, IMAGES[*image as usize]);
            if *image == 0 {
                new["spec"].as_object_mut().unwrap().remove("deployments");
            }
            new
        }
        Step::Annotate(which, value) => {
            let hash = content::hash(old.get("spec")).to_string();
            with(
                old,
                OWNED[*which as usize],
                Some([hash.as_str(), "none", "2020-01-01T00:00:00Z"][*value as usize]),
            )
        }
        Step::DropAnnotation(which) => with(old, OWNED[*which as usize], None),
        Step::DropReleased => {
            let mut new = old.clone();
            new["spec"].as_object_mut().unwrap().remove("released");
            new
        }
        Step::Release => release(old),
        Step::Ungate(image) => {
            let new = written(old, &Step::Edit(*image));
            with(
                &new,
                names::UNGATED,
                Some(content::hash(new.get("spec")).as_str()),
            )
        }
        Step::Force(on) => with(old, names::FORCE_ROLLOUT, on.then_some("true")),
        Step::Label(value) => {
            let mut new = old.clone();
            new["metadata"]["labels"] = json!({"l": value.to_string()});
            new
        }
    }
}

proptest! {
    /// Whoever writes what: held iff the hashes differ, hashes true, and what is live changes by release, force and
    /// ungating alone.
    #[test]
    fn any_history_keeps_the_state_true(first in 0..4u8, history in steps()) {
        let mut old = stored(None, &written(&node(""), &Step::Edit(first)), USER);
        for (step, by_operator) in history {
            let user = if by_operator { OPERATOR } else { USER };
            let Ok((outcome, new)) = write(Some(&old), &written(&old, &step), user) else { continue };
            let held = annotation(&new, names::DESIRED_HASH) != annotation(&new, names::LIVE_HASH);
            prop_assert_eq!(annotation(&new, names::DESIRED_HASH).unwrap().to_owned(), content::hash(new.get("spec")).to_string());
            prop_assert_eq!(held, new["spec"].get("released").is_some());
            prop_assert_eq!(held, annotation(&new, names::HELD_SINCE).is_some());
            if held && annotation(&new, names::LIVE_HASH) != Some("none") {
                prop_assert_eq!(annotation(&new, names::LIVE_HASH).unwrap().to_owned(), content::hash(new["spec"].get("released")).to_string());
            }
            let live_changed = annotation(&new, names::LIVE_HASH) != annotation(&old, names::LIVE_HASH);
            prop_assert_eq!(live_changed, annotation(&new, names::START_TIME) != annotation(&old, names::START_TIME));
            if live_changed {
                prop_assert!(matches!(outcome, Outcome::Released | Outcome::Ungated | Outcome::Forced), "{:?} by {:?}", outcome, step);
            }
            old = new;
        }
    }

    #[test]
    fn arbitrary_json_never_panics(old in json_value(), new in json_value()) {
        let request = Write { old: Some(&old), new: &new, user: USER, operator: OPERATOR };
        let _ = decide(&request, now()).map(|decision| decision.patch.len());
        let _ = check(&Write { old: None, ..request }, now());
    }
}

/// Arbitrary JSON under the keys that the gate looks at.
fn json_value() -> impl Strategy<Value = Value> {
    let keys = prop::sample::select(vec![
        "metadata",
        "annotations",
        "spec",
        "released",
        "deployments",
        "id",
        names::LIVE_HASH,
        names::RELEASE,
        names::FORCE_ROLLOUT,
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z1:/]{0,8}".prop_map(Value::from),
        Just(json!("none")),
        Just(json!("true"))
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(keys.clone().prop_map(str::to_owned), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}
