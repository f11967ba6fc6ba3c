//! Cases for `lynq.sh/force-rollout`.

use super::*;

#[test]
fn force_lets_everything_through_while_it_is_there() {
    let held = stored(Some(&live()), &edited(&live(), "b"), USER);
    let (outcome, forced) = write(
        Some(&held),
        &with(&held, names::FORCE_ROLLOUT, Some("true")),
        USER,
    )
    .unwrap();
    assert_eq!((outcome, live_image(&forced)), (Outcome::Forced, Some("b")));
    let (outcome, next) = write(Some(&forced), &edited(&forced, "c"), USER).unwrap();
    assert_eq!((outcome, live_image(&next)), (Outcome::Forced, Some("c")));
    let unforced = stored(Some(&next), &with(&next, names::FORCE_ROLLOUT, None), USER);
    assert_eq!(
        write(Some(&unforced), &edited(&unforced, "d"), USER)
            .unwrap()
            .0,
        Outcome::Held
    );
}

/// It may hold templates, and its objects are looked for first.
#[test]
fn force_lets_go_what_lynq_left_once_it_is_rendered_and_its_row_is_off() {
    let force = |node: &Value| with(node, names::FORCE_ROLLOUT, Some("true"));
    let of_lynq = with(&node("{{ .image }}"), names::ACTIVATE, Some("1"));
    let unknown = |old: &Value, new: &Value, outcome: Outcome| {
        let (found, next) = write(Some(old), new, USER).unwrap();
        let live = annotation(&next, names::LIVE_HASH);
        assert_eq!((found, live), (outcome, Some("unknown")));
        next
    };
    let forced = unknown(&of_lynq, &force(&of_lynq), Outcome::Unchanged);
    let without_row = with(&forced, names::ACTIVATE, None);
    unknown(&of_lynq, &without_row, Outcome::Unchanged);
    unknown(&forced, &without_row, Outcome::Unchanged);
    let rendered = edited(&forced, "b");
    let hash = content::hash(Some(&rendered["spec"]));
    let rendered = with(
        &rendered,
        names::RENDERED_HASH,
        Some(&format!("{hash}/row")),
    );
    let rendered = unknown(&forced, &rendered, Outcome::Held);
    unknown(
        &rendered,
        &edited(&with(&rendered, names::ACTIVATE, None), "c"),
        Outcome::Held,
    );
    let without_row = with(&rendered, names::ACTIVATE, None);
    let (outcome, next) = write(Some(&rendered), &without_row, OPERATOR).unwrap();
    assert_eq!((outcome, live_image(&next)), (Outcome::Forced, Some("b")));
    // From a backup of Lynq's time: whatever is done to its annotations, and over what runs.
    let restored = force(&of_lynq);
    let (outcome, held) = write(None, &restored, USER).unwrap();
    assert_eq!((outcome, live_image(&held)), (Outcome::Held, None));
    let bare = with(&held, names::ACTIVATE, None);
    let (outcome, bare) = write(Some(&held), &bare, USER).unwrap();
    assert_eq!((outcome, live_image(&bare)), (Outcome::Unchanged, None));
    let labelled = with(&bare, "a", Some("b"));
    let (outcome, next) = write(Some(&bare), &labelled, USER).unwrap();
    assert_eq!((outcome, live_image(&next)), (Outcome::Unchanged, None));
    let running = stored(Some(&live()), &force(&live()), USER);
    let (outcome, over) = write(Some(&running), &restored, USER).unwrap();
    assert_eq!((outcome, live_image(&over)), (Outcome::Held, Some("a")));
    let bare = with(&over, names::ACTIVATE, None);
    let (outcome, bare) = write(Some(&over), &bare, USER).unwrap();
    assert_eq!(
        (outcome, live_image(&bare)),
        (Outcome::Unchanged, Some("a"))
    );
    let labelled = with(&bare, "a", Some("b"));
    let (outcome, next) = write(Some(&bare), &labelled, USER).unwrap();
    assert_eq!(
        (outcome, live_image(&next)),
        (Outcome::Unchanged, Some("a"))
    );
}

#[test]
fn any_other_force_value_warns_and_holds() {
    let new = with(&edited(&live(), "b"), names::FORCE_ROLLOUT, Some("yes"));
    let old = live();
    let decision = decide(
        &Write {
            old: Some(&old),
            new: &new,
            user: USER,
            operator: OPERATOR,
        },
        now(),
    )
    .unwrap();
    assert_eq!(decision.outcome, Outcome::Held);
    assert!(
        decision.warnings[0].contains("only \"true\" forces"),
        "{:?}",
        decision.warnings
    );
}

/// An alert's text may look like a template; a node of a hub's own that somebody edits goes as it is.
#[test]
fn force_lets_an_edit_go_whatever_it_looks_like() {
    for old in [live(), stored(None, &node("a"), OPERATOR)] {
        let old = with(&old, names::RENDERED_HASH, Some("1:00/row"));
        let edit = with(
            &edited(&old, "{{ $labels.pod }}"),
            names::FORCE_ROLLOUT,
            Some("true"),
        );
        let (outcome, next) = write(Some(&old), &edit, USER).unwrap();
        let expected = (Outcome::Forced, Some("{{ $labels.pod }}"));
        assert_eq!((outcome, live_image(&next)), expected);
    }
}
