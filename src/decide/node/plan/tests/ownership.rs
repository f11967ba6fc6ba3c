//! Cases for objects without a tie to a node: those of no owner, and those that have lost their tie.

use super::*;

/// An object without an owner is written if the form allows it, or if it was the node's.
#[test]
fn nobodys_object_is_a_conflict_unless_it_was_ours() {
    let stuck = node(vec![facts("a", &[])]);
    let force = declared(facts("a", &[]), |of| {
        of.conflict_policy = ConflictPolicy::Force
    });
    let force = node(vec![force]);
    let left = Child {
        owner: Owner::Nobody.into(),
        ..child(&stuck.facts[0], &stuck)
    };
    let labelled = Child {
        marked: false,
        ..left.clone()
    };
    let orphan = Child {
        orphaned: true,
        marked: false,
        ..left.clone()
    };
    let left_by = |from: String| Child {
        orphaned_from: Some(from),
        ..orphan.clone()
    };
    let here = left_by(format!("{}/other-web", stuck.key.namespace));
    let elsewhere = left_by("elsewhere/acme-web".to_owned());
    for (name, node, child, recorded_before, is_written) in [
        ("a label", &stuck, &labelled, &[][..], false),
        ("a label, and Force", &force, &labelled, &[], true),
        ("its namesake was ours", &stuck, &labelled, &["a"], false),
        ("an orphan", &stuck, &orphan, &[], true),
        ("an orphan of here", &stuck, &here, &[], true),
        ("an orphan of elsewhere", &stuck, &elsewhere, &[], false),
        ("the same, and Force", &force, &elsewhere, &[], true),
        ("left at an uninstallation", &stuck, &left, &[], false),
        ("another of ours is known", &stuck, &left, &["b"], false),
        ("untied", &stuck, &left, &["a"], true),
    ] {
        let rest = Rest {
            record: recorded(recorded_before.iter().copied()),
            ..Rest::default()
        };
        let children = [Some(child.clone())];
        let plan = plan(node, &seen(node, &children), &rest, at(0));
        let outcome = &plan.outcomes[0];
        assert_eq!(!plan.apply.is_empty(), is_written, "{name}");
        assert_eq!(outcome.conflict, !is_written, "{name}");
        let said = match child.orphaned_from {
            Some(_) => {
                "lynqnode elsewhere/acme-web of another namespace left it behind; conflictPolicy: Force takes it over"
            }
            None => "it was there before and is nobody's; conflictPolicy: Force takes it over",
        };
        assert!(is_written || outcome.message == said, "{name}: {outcome:?}");
        assert!(is_written || plan.wake_at.is_some(), "{name}");
    }
}

/// Until it is tied again, only the record shows that it was ours.
#[test]
fn what_is_untied_stays_in_the_record_and_what_is_given_away_does_not() {
    let node = node(vec![facts("a", &[])]);
    let untied = Child {
        owner: Owner::Nobody.into(),
        ..child(&node.facts[0], &node)
    };
    let unlabelled = Child {
        marked: false,
        ..untied.clone()
    };
    for (name, child, expected) in [
        ("untied", untied, recorded(["a"].into_iter())),
        ("given away", unlabelled, Record::default()),
    ] {
        let rest = Rest {
            record: recorded(["a"].into_iter()),
            ..Rest::default()
        };
        let children = [Some(child)];
        let failure = Failure {
            kind: FailureKind::Refused,
            message: "no".into(),
            retry_at: at(5),
            premise: Premise::of(&node, children[0].as_ref(), Some(("here".into(), false))),
        };
        for failure in [None, Some(&failure)] {
            let mut all = seen(&node, &children);
            all[0].failure = failure;
            let plan = plan(&node, &all, &rest, at(0));
            assert_eq!(plan.record, expected, "{name}, {failure:?}");
        }
    }
}
