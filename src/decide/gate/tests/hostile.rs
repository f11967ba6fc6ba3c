//! Objects of any shape: the gate never panics.

use proptest::prelude::*;

use super::*;

proptest! {
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
