//! The operator's word that no window applies.

use serde_json::json;

use super::*;

#[test]
fn ungated_content_is_live_at_once() {
    let new = edited(&live(), "b");
    let new = with(
        &new,
        names::UNGATED,
        Some(content::hash(new.get("spec")).as_str()),
    );
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

/// The hub saw a new node, and by the time of its write the node's first content is live.
#[test]
fn ungated_if_new_does_not_let_an_update_through() {
    let marker = |object: &Value| {
        format!(
            "{}{}",
            content::hash(object.get("spec")),
            names::UNGATED_IF_NEW
        )
    };
    let mut created = node("a");
    created["metadata"]["annotations"] = json!({names::UNGATED: marker(&created)});
    let (outcome, created) = write(None, &created, OPERATOR).unwrap();
    assert_eq!(outcome, Outcome::Ungated);

    let held = stored(None, &node("a"), OPERATOR);
    let new = edited(&held, "b");
    let new = with(&new, names::UNGATED, Some(&marker(&new)));
    assert_eq!(
        write(Some(&held), &new, OPERATOR).unwrap().0,
        Outcome::Ungated,
        "new still"
    );

    let late = edited(&created, "b");
    let late = with(&late, names::UNGATED, Some(&marker(&late)));
    let (outcome, object) = write(Some(&created), &late, OPERATOR).unwrap();
    assert_eq!((outcome, live_image(&object)), (Outcome::Held, Some("a")));
    assert_eq!(
        annotation(&object, names::UNGATED),
        annotation(&created, names::UNGATED)
    );
}

/// No window applied when the content went live first, one did for the next content, and again none when it comes back.
#[test]
fn the_same_content_is_let_go_ungated_once_more() {
    let ungate = |old: &Value, image: &str, version: &str| {
        let new = edited(old, image);
        let marker = format!("{}/{version}", content::hash(new.get("spec")));
        stored(
            Some(old),
            &with(&new, names::UNGATED, Some(&marker)),
            OPERATOR,
        )
    };
    let first = ungate(&live(), "b", "7");
    let held = stored(Some(&first), &edited(&first, "c"), USER);
    let between = stored(Some(&held), &release(&held), OPERATOR);
    assert_eq!(live_image(&between), Some("c"));
    let again = ungate(&between, "b", "8");
    assert_eq!(live_image(&again), Some("b"));
}
