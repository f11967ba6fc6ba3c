//! Cases for the revisions of a form.

use super::*;

const OWNER: Owner = Owner {
    namespace: "shop",
    name: "web",
    uid: "u1",
};

fn form(image: &str, policy: Value) -> FormSpec {
    let spec = json!({"hubId": "tenants", "rollout": policy, "deployments": [{"id": "app", "spec": {"image": image}}]});
    serde_json::from_value(spec).unwrap()
}

fn revision(number: i64, name: &str, completed: Option<i64>) -> Revision {
    Revision {
        name: name.to_owned(),
        number,
        created: None,
        completed: completed.map(|second| Timestamp::from_second(second).unwrap()),
        content: Value::Null,
    }
}

fn status(update: &str, current: Option<&str>) -> FormStatus {
    FormStatus {
        observed_generation: Some(7),
        update_revision: Some(update.to_owned()),
        current_revision: current.map(str::to_owned),
        ..FormStatus::default()
    }
}

#[test]
fn a_revision_is_the_spec_without_its_policy() {
    let spec = form("web:1", json!({"maxSkew": 3}));
    let name = OWNER.revision_of(&spec);
    assert_eq!(
        name,
        OWNER.revision_of(&form("web:1", json!({"maxSkew": 9, "paused": true})))
    );
    assert_ne!(
        name,
        OWNER.revision_of(&form("web:2", json!({"maxSkew": 3})))
    );
    let other = Owner { uid: "u2", ..OWNER };
    assert_ne!(name, other.revision_of(&spec), "a form that was made again");
    let Recorded::Create(created) = record(OWNER, &spec, &status(&name, None), &[]).newest else {
        panic!("it is not there yet");
    };
    assert_eq!(created["data"]["deployments"][0]["spec"]["image"], "web:1");
    assert!(created["data"]["rollout"].is_null(), "{created}");
    assert_eq!(
        (&created["revision"], &created["metadata"]["name"]),
        (&json!(1), &json!(name))
    );
}

#[test]
fn the_newest_has_the_highest_number_and_the_oldest_go() {
    let spec = form("web:1", json!({"revisionHistoryLimit": 3}));
    let there = [
        revision(1, "a", Some(1)),
        revision(2, "b", None),
        revision(4, "c", None),
    ];
    let recorded = |name, current| record(OWNER, &spec, &status(name, current), &there);
    let new = recorded("d", Some("a"));
    let Recorded::Create(created) = new.newest else {
        panic!("it is not there yet");
    };
    assert_eq!(created["revision"], 5);
    assert_eq!(new.delete, ["b"], "the current one stays");
    let again = recorded("a", Some("c"));
    let renumbered = Recorded::Renumber(json!({"revision": 5}));
    assert_eq!((again.newest, again.delete), (renumbered, vec![]));
    let same = recorded("c", None);
    assert_eq!((same.newest, same.delete), (Recorded::There, vec![]));
}

#[test]
fn what_never_completed_goes_first() {
    let spec = form("web:1", json!({"revisionHistoryLimit": 4}));
    let there = [
        revision(1, "a", Some(1)),
        revision(2, "b", Some(2)),
        revision(3, "c", None),
        revision(4, "d", Some(4)),
        revision(5, "e", None),
        revision(6, "f", None),
    ];
    let deleted = |update, current| record(OWNER, &spec, &status(update, current), &there).delete;
    assert_eq!(deleted("f", Some("d")), ["c", "e"]);
    assert_eq!(deleted("g", Some("d")), ["c", "e", "f"]);
    let few = form("web:1", json!({"revisionHistoryLimit": 2}));
    let recording = record(OWNER, &few, &status("f", Some("a")), &there);
    assert_eq!(
        recording.delete,
        ["c", "e", "b", "d"],
        "the named ones stay"
    );
}

/// The annotation of a form.
fn annotated(value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(names::REVERTED.to_owned(), value.to_owned())])
}

#[test]
fn the_annotation_names_what_was_taken_back_and_what_it_was_set_back_to() {
    for (value, from, to) in [
        ("web-b/web-a", "web-b", Some("web-a")),
        ("web-b", "web-b", None),
    ] {
        let annotations = annotated(value);
        let reverted = Reverted::of(&annotations);
        assert_eq!(reverted, Some(Reverted { from, to }));
        assert_eq!(reverted.unwrap().to_string(), value);
    }
    assert_eq!(Reverted::of(&BTreeMap::new()), None);
}

#[test]
fn a_form_says_that_its_change_was_taken_back_until_it_has_another_content() {
    let told = |value: &str, before: &FormStatus, now: &str, complete: bool| {
        let annotations = annotated(value);
        let mut status = FormStatus {
            update_revision: Some(now.to_owned()),
            ..before.clone()
        };
        let reason = match complete {
            true => ConditionReason::Complete,
            false => ConditionReason::InProgress,
        };
        let mut states = vec![ConditionState::new(ROLLOUT_COMPLETE, complete, reason, "")];
        let reverted = Reverted::of(&annotations);
        tell_reverted(reverted, "web", before, &mut status, &mut states);
        conditions::merge(
            &mut status.conditions,
            &states,
            Some(8),
            Timestamp::UNIX_EPOCH,
        );
        status
    };
    let says = |status: &FormStatus| {
        let told = conditions::find(&status.conditions, kstatus::REVERTED)?;
        Some(told.message.to_string())
    };
    let next = "correct the change and apply it (with kubectl apply --server-side --force-conflicts); or keep what runs: kubectl annotate \
                lynqform web lynq.sh/reverted-revision-";
    let failed = status("bad", Some("good"));
    let goes_back = told("bad/good", &failed, "good", false);
    assert_eq!(
        says(&goes_back).unwrap(),
        format!(
            "revision bad failed, and lynqgate took it back; the nodes go back to revision good. Next: {next}"
        )
    );
    let is_back = told("bad/good", &goes_back, "good", true);
    assert_eq!(
        says(&is_back).unwrap(),
        format!(
            "revision bad failed, and lynqgate took it back; every node runs revision good. Next: {next}"
        )
    );
    let stays = told("bad/good", &is_back, "good", true);
    assert_eq!(says(&stays), says(&is_back), "an edit of the policy");
    let other = told("bad/good", &stays, "better", false);
    assert_eq!(says(&other), None, "another content");
    let again = told("bad/good", &other, "good", true);
    assert_eq!(says(&again), None, "a person came back to it");
    let undone = told("bad", &failed, "good", true);
    assert_eq!(says(&undone), None, "a person took it back");
    let kept = told("bad", &is_back, "good", true);
    assert_eq!(says(&kept), None, "a person keeps what runs");
}

#[test]
fn the_history_says_what_each_revision_is() {
    let rollout = |phase: &str| {
        serde_json::from_value(json!({
            "phase": phase, "targetGeneration": 7, "totalNodes": 4, "updatedNodes": 1, "updatingNodes": 1,
            "readyUpdatedNodes": 0, "heldNodes": 3, "failedNodes": 1, "slots": 1,
        }))
        .unwrap()
    };
    let in_phase = |phase: &str| FormStatus {
        rollout: Some(rollout(phase)),
        ..status("new", Some("good"))
    };
    let (goes_on, halted) = (in_phase("InProgress"), in_phase("Failed"));
    let back = FormStatus {
        rollout: Some(rollout("Complete")),
        ..status("good", Some("good"))
    };
    let annotations = annotated("bad/good");
    let reverted = Reverted::of(&annotations);
    let (never, once) = (None, Some(3));
    for (name, completed, status, now, expected) in [
        ("new", never, &goes_on, "new", "being rolled out"),
        ("new", never, &halted, "new", "halted"),
        ("new", never, &halted, "newer", "did not complete"),
        ("newer", never, &halted, "newer", "being rolled out"),
        ("good", once, &halted, "new", "complete last"),
        ("good", once, &back, "good", "current"),
        ("new", never, &back, "good", "did not complete"),
        ("bad", never, &back, "good", "failed, taken back"),
        ("old", once, &back, "good", ""),
    ] {
        let said = state(&revision(1, name, completed), status, reverted, Some(now));
        assert_eq!(said, expected, "{name} of {now}");
    }
}

#[test]
fn a_status_names_what_is_rolled_out_and_what_was_complete() {
    let old = form("web:1", json!({}));
    let mut now = status("", None);
    named(
        OWNER,
        &old,
        &FormStatus::default(),
        Phase::Complete,
        &mut now,
    );
    assert_eq!(now.update_revision, Some(OWNER.revision_of(&old)));
    assert_eq!(now.current_revision, now.update_revision);
    let (before, spec) = (now.clone(), form("web:2", json!({})));
    now.observed_generation = Some(8);
    named(OWNER, &spec, &before, Phase::InProgress, &mut now);
    assert_eq!(now.update_revision, Some(OWNER.revision_of(&spec)));
    assert_eq!(now.current_revision, before.current_revision);
}

#[test]
fn a_form_is_set_back_whole_but_for_its_policy() {
    let spec = json!({"hubId": "tenants", "rollout": {"maxSkew": 3}, "deployments": [1, 2], "secrets": [3]});
    let back = set_back(
        &spec,
        &json!({"hubId": "tenants", "deployments": [1], "services": [4]}),
    );
    let expected =
        json!({"hubId": "tenants", "deployments": [1], "secrets": null, "services": [4]});
    assert_eq!(back["spec"], expected);
}

#[test]
fn a_failed_change_is_taken_back_once() {
    let revert = || form("web:2", json!({"onFailure": "Revert"}));
    let failed = |update: &str| {
        FormStatus {
        rollout: serde_json::from_value(json!({
            "phase": "Failed", "targetGeneration": 7, "totalNodes": 4, "updatedNodes": 1, "updatingNodes": 1,
            "readyUpdatedNodes": 0, "heldNodes": 3, "failedNodes": 1, "slots": 1,
        }))
        .unwrap(),
        ..status(update, Some("good"))
    }
    };
    let mut going = failed("bad");
    going.rollout.as_mut().unwrap().phase = Phase::InProgress;
    let mut before = failed("correction");
    before.rollout.as_mut().unwrap().unwritten_nodes = 1;
    // (case, spec, generation, status, reverted before, to)
    let cases = [
        ("it failed", revert(), 7, failed("bad"), None, Some("good")),
        (
            "another one was taken back",
            revert(),
            7,
            failed("bad"),
            Some("worse"),
            Some("good"),
        ),
        (
            "it was taken back before",
            revert(),
            7,
            failed("bad"),
            Some("bad"),
            None,
        ),
        (
            "what all nodes ran fails",
            revert(),
            7,
            failed("good"),
            None,
            None,
        ),
        (
            "nothing was complete yet",
            revert(),
            7,
            FormStatus {
                current_revision: None,
                ..failed("bad")
            },
            None,
            None,
        ),
        ("it goes on", revert(), 7, going, None, None),
        (
            "the node that failed may not have it yet",
            revert(),
            7,
            before,
            None,
            None,
        ),
        (
            "the form has changed since",
            revert(),
            8,
            failed("bad"),
            None,
            None,
        ),
        (
            "nobody asked for it",
            form("web:2", json!({})),
            7,
            failed("bad"),
            None,
            None,
        ),
        (
            "it is paused",
            form("web:2", json!({"onFailure": "Revert", "paused": true})),
            7,
            failed("bad"),
            None,
            None,
        ),
    ];
    for (case, spec, generation, status, reverted, to) in cases {
        assert_eq!(
            reverts_to(&spec, generation, &status, reverted),
            to,
            "{case}"
        );
    }
}

#[test]
fn undo_goes_to_the_last_that_was_complete() {
    let there = [
        revision(4, "d", None),
        revision(3, "c", Some(9)),
        revision(2, "b", Some(5)),
        revision(1, "a", Some(7)),
    ];
    let to = |now, number| undone(&there, now, number).map(|revision| revision.name.as_str());
    assert_eq!(to(Some("d"), None), Some("c"));
    assert_eq!(to(Some("c"), None), Some("a"));
    assert_eq!(to(None, None), Some("c"), "the spec cannot be read");
    assert_eq!(to(Some("d"), Some(2)), Some("b"));
    assert_eq!(to(Some("d"), Some(9)), None);
    assert_eq!(undone(&there[..1], Some("d"), None), None);
}
