//! What the gate warns of.

use super::*;

#[test]
fn who_sets_what_only_the_gate_sets_is_warned() {
    let (_, stored) = write(None, &node("web:1"), OPERATOR).unwrap();
    let set = |name: &str, value: &str| {
        let mut new = stored.clone();
        new["metadata"]["annotations"][name] = value.into();
        new
    };
    let warned = |new: &Value, user: &str| {
        let request = Write {
            old: Some(&stored),
            new,
            user,
            operator: OPERATOR,
        };
        decide(&request, now()).unwrap().warnings
    };
    let forged = set(names::LIVE_HASH, "y");
    let said = "lynq.sh/live-hash: only lynqgate sets this annotation; the change is undone";
    assert_eq!(warned(&forged, "dev"), [said]);
    for (name, new, user) in [
        ("the operator", &forged, OPERATOR),
        ("nothing of it", &stored, "dev"),
        ("another annotation", &set("team", "a"), "dev"),
    ] {
        assert_eq!(warned(new, user), [""; 0], "{name}");
    }
}
