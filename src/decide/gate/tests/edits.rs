//! Cases for the stamps of content that no hub rendered.

use super::*;
use crate::api::stamp;

/// Who wrote the content, and whether somebody wants it discarded; there is a time wherever there is a writer.
fn stamps(object: &Value) -> (Option<&str>, bool) {
    let by = annotation(object, names::EDITED_BY);
    let at = annotation(object, names::EDITED_AT);
    assert_eq!(
        by.is_some(),
        at.is_some_and(|at| stamp::parse(at).is_some())
    );
    (by, annotation(object, names::DISCARD_EDIT).is_some())
}

/// As the hub writes it.
fn rendered(image: &str) -> Value {
    let node = node(image);
    let hash = format!("{}/of the row", content::hash(node.get("spec")));
    with(&node, names::RENDERED_HASH, Some(&hash))
}

/// With this content, and everything else as it is stored.
fn edited(stored: &Value, image: &str) -> Value {
    let mut object = stored.clone();
    object["spec"]["deployments"][0]["spec"]["image"] = json!(image);
    object
}

#[test]
fn an_edit_names_its_writer_for_as_long_as_it_is_there() {
    let made = stored(None, &rendered("a"), OPERATOR);
    assert_eq!(stamps(&made), (None, false));
    let by_alice = stored(Some(&made), &edited(&made, "b"), "alice");
    assert_eq!(stamps(&by_alice), (Some("alice"), false));

    let labelled = with(&by_alice, "team", Some("blue"));
    let labelled = stored(Some(&by_alice), &labelled, "bob");
    assert_eq!(stamps(&labelled), (Some("alice"), false), "not his content");
    let forged = with(&labelled, names::EDITED_BY, Some("carol"));
    let forged = with(&forged, names::EDITED_AT, None);
    let forged = stored(Some(&labelled), &forged, "bob");
    assert_eq!(stamps(&forged), (Some("alice"), false));
    let released = with(&labelled, names::FORCE_ROLLOUT, Some("true"));
    let (outcome, released) = write(Some(&labelled), &released, "bob").unwrap();
    assert_eq!(outcome, Outcome::Forced);
    assert_eq!(
        stamps(&released),
        (Some("alice"), false),
        "also once it is live"
    );

    let by_bob = stored(Some(&released), &edited(&released, "c"), "bob");
    assert_eq!(stamps(&by_bob), (Some("bob"), false));
    let back = stored(Some(&by_bob), &edited(&by_bob, "a"), "bob");
    assert_eq!(stamps(&back), (None, false));
}

#[test]
fn a_wish_to_discard_an_edit_ends_with_the_edit() {
    let made = stored(None, &rendered("a"), OPERATOR);
    let nothing = with(&made, names::DISCARD_EDIT, Some("true"));
    let nothing = stored(Some(&made), &nothing, "bob");
    assert_eq!(stamps(&nothing), (None, false), "there is no edit");

    let edit = stored(Some(&made), &edited(&made, "b"), "alice");
    let asked = with(&edit, names::DISCARD_EDIT, Some("true"));
    let asked = stored(Some(&edit), &asked, "bob");
    assert_eq!(stamps(&asked), (Some("alice"), true));
    let written = stored(Some(&asked), &edited(&asked, "a"), OPERATOR);
    assert_eq!(stamps(&written), (None, false));

    let wrong = with(&edit, names::DISCARD_EDIT, Some("yes"));
    let request = Write {
        old: Some(&edit),
        new: &wrong,
        user: "bob",
        operator: OPERATOR,
    };
    let warnings = decide(&request, now()).unwrap().warnings;
    let said = "lynq.sh/discard-edit: only \"true\" discards; \"yes\" does nothing";
    assert_eq!(warnings, [said]);
}

/// What no hub rendered is no edit, nor are Lynq's templates; and nobody is named for what was written past the gate.
#[test]
fn only_content_of_a_hub_is_edited() {
    let by_hand = stored(None, &node("a"), "alice");
    let other = stored(Some(&by_hand), &edited(&by_hand, "b"), "bob");
    assert_eq!(stamps(&other), (None, false));

    let made = stored(None, &rendered("a"), OPERATOR);
    let lynqs = with(&edited(&made, "{{ .image }}"), names::EXTRA, Some("{}"));
    assert_eq!(stamps(&stored(Some(&made), &lynqs, "lynq")), (None, false));

    let edit = stored(Some(&made), &edited(&made, "b"), "alice");
    let past = edited(&edit, "past");
    assert_eq!(stamps(&stored(Some(&past), &past, OPERATOR)), (None, false));
}
