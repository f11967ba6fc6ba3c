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
