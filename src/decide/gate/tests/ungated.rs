//! The operator's word that no window applies.

use serde_json::json;

use super::*;

/// Other content, and the operator's word that it may go live in the place of this version.
fn ungated(old: &Value, image: &str, version: &str) -> Value {
    let new = edited(old, image);
    let marker = format!("{}/{version}", content::hash(new.get("spec")));
    with(&new, names::UNGATED, Some(&marker))
}

#[test]
fn ungated_content_is_live_at_once() {
    let new = ungated(&live(), "b", "8");
    let (outcome, object) = write(Some(&live()), &new, OPERATOR).unwrap();
    assert_eq!(
        (outcome, live_image(&object)),
        (Outcome::Ungated, Some("b"))
    );
    let mut created = node("a");
    created["metadata"]["annotations"] =
        json!({names::UNGATED: content::hash(created.get("spec")).as_str()});
    let (outcome, object) = write(None, &created, OPERATOR).unwrap();
    assert_eq!(
        (outcome, object["spec"].get("released")),
        (Outcome::Ungated, None)
    );
    // The marker of then does not let the next content through.
    assert_eq!(
        write(Some(&object), &edited(&object, "c"), OPERATOR)
            .unwrap()
            .0,
        Outcome::Held
    );
}

/// Somebody wrote the node since: whatever the operator wants to let go was not decided on what it is now.
#[test]
fn ungated_counts_for_the_version_it_was_decided_on() {
    let held = stored(None, &node("a"), OPERATOR);
    for (old, version, expected) in [
        (&held, "8", Outcome::Ungated),
        (&held, "6", Outcome::Held),
        (&held, "", Outcome::Held),
        (&live(), "6", Outcome::Held),
    ] {
        let (outcome, object) = write(Some(old), &ungated(old, "b", version), OPERATOR).unwrap();
        assert_eq!(outcome, expected, "{version}");
        let kept = annotation(&object, names::UNGATED) == annotation(old, names::UNGATED);
        assert_eq!(kept, expected == Outcome::Held, "{version}");
    }
    let mut created = node("a");
    let marker = format!("{}/7", content::hash(created.get("spec")));
    created["metadata"]["annotations"] = json!({names::UNGATED: marker});
    let (outcome, _) = write(None, &created, OPERATOR).unwrap();
    assert_eq!(outcome, Outcome::Held, "it was deleted, and is made anew");
    let other = content::hash(node("b").get("spec")).to_string();
    created["metadata"]["annotations"] = json!({names::UNGATED: other});
    let denied = write(None, &created, OPERATOR);
    assert!(
        matches!(denied, Err(Denial::StaleRelease { .. })),
        "it names other content"
    );
}

/// No window applied when the content went live first, one did for the next content, and again none when it comes back.
#[test]
fn the_same_content_is_let_go_ungated_once_more() {
    let first = stored(Some(&live()), &ungated(&live(), "b", "8"), OPERATOR);
    let held = stored(Some(&first), &edited(&first, "c"), USER);
    let mut between = stored(Some(&held), &release(&held), OPERATOR);
    assert_eq!(live_image(&between), Some("c"));
    between["metadata"]["resourceVersion"] = json!("9");
    let again = stored(Some(&between), &ungated(&between, "b", "9"), OPERATOR);
    assert_eq!(live_image(&again), Some("b"));
}
