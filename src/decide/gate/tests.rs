//! Cases for each rule of the gate, written and stored as the API server does it.

use json_patch::patch;
use serde_json::json;

use super::*;

mod edits;
mod force;
mod histories;
mod hostile;
mod ungated;
mod warned;

const OPERATOR: &str = "system:serviceaccount:lynq-system:lynq-controller-manager";
const USER: &str = "alice";

/// A write of objects as values, and what is decided on it.
#[derive(Clone, Copy)]
struct Write<'a> {
    old: Option<&'a Value>,
    new: &'a Value,
    user: &'a str,
    operator: &'a str,
}

#[derive(Clone, Debug, PartialEq)]
struct Decision {
    outcome: Outcome,
    held: bool,
    patch: Vec<json_patch::PatchOperation>,
    warnings: Vec<String>,
}

impl Write<'_> {
    fn asked<T>(&self, ask: impl FnOnce(&super::Write) -> T) -> T {
        let (old, new) = (self.old.map(Node::of), Node::of(self.new));
        ask(&super::Write {
            old: old.as_ref(),
            new: &new,
            user: self.user,
            operator: self.operator,
        })
    }
}

fn decide(write: &Write, now: Timestamp) -> Result<Decision, Denial> {
    let decision = write.asked(|write| super::decide(write, now))?;
    let patch = match &*decision.patch {
        "" => vec![],
        text => serde_json::from_str(text).expect("a patch"),
    };
    Ok(Decision {
        outcome: decision.outcome,
        held: decision.held,
        patch,
        warnings: decision.warnings,
    })
}

fn check(write: &Write, now: Timestamp) -> Result<Outcome, Denial> {
    write.asked(|write| super::check(write, now))
}

fn now() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

/// A node with one Deployment of this image; "" for no content.
fn node(image: &str) -> Value {
    let mut node = json!({
        "apiVersion": "operator.lynq.sh/v1", "kind": "LynqNode",
        "metadata": {"name": "acme-web", "namespace": "tenants", "resourceVersion": "7"},
        "spec": {"uid": "acme", "templateRef": "web"}
    });
    if !image.is_empty() {
        node["spec"]["deployments"] = json!([{"id": "app", "spec": {"image": image}}]);
    }
    node
}

/// What the API server stores after both webhooks, or the denial.
fn write(old: Option<&Value>, new: &Value, user: &str) -> Result<(Outcome, Value), Denial> {
    let request = Write {
        old,
        new,
        user,
        operator: OPERATOR,
    };
    let decision = decide(&request, now())?;
    let mut stored = new.clone();
    patch(&mut stored, &decision.patch).expect("the patch applies");

    // Asked again about its own answer, a moment later.
    let later = now() + jiff::SignedDuration::from_millis(250);
    let again = decide(
        &Write {
            new: &stored,
            ..request
        },
        later,
    )
    .expect("its own answer is allowed");
    let mut twice = stored.clone();
    patch(&mut twice, &again.patch).unwrap();
    for stamp in [names::START_TIME, names::HELD_SINCE, names::EDITED_AT] {
        if annotation(&stored, stamp).is_some() {
            twice["metadata"]["annotations"][stamp] =
                stored["metadata"]["annotations"][stamp].clone();
        }
    }
    assert_eq!(stored, twice, "not idempotent");
    let agreed = check(
        &Write {
            new: &stored,
            ..request
        },
        later,
    );
    assert_eq!(agreed, Ok(decision.outcome), "the validating half agrees");
    stored["metadata"]["resourceVersion"] = json!("8");
    Ok((decision.outcome, stored))
}

fn stored(old: Option<&Value>, new: &Value, user: &str) -> Value {
    write(old, new, user).unwrap().1
}

fn with(object: &Value, name: &str, value: Option<&str>) -> Value {
    let mut object = object.clone();
    match value {
        Some(value) => object["metadata"]["annotations"][name] = json!(value),
        None => drop(
            object["metadata"]["annotations"]
                .as_object_mut()
                .unwrap()
                .remove(name),
        ),
    }
    object
}

/// The stored object with another image, as a client that knows the object would write it.
fn edited(object: &Value, image: &str) -> Value {
    let mut object = object.clone();
    object["spec"]["deployments"] = node(image)["spec"]["deployments"].clone();
    object
}

fn live_image(object: &Value) -> Option<&str> {
    let held = object["spec"].get("released");
    held.unwrap_or(&object["spec"])
        .pointer("/deployments/0/spec/image")
        .and_then(Value::as_str)
}

fn release(object: &Value) -> Value {
    let marker = format!(
        "{}/{}",
        annotation(object, names::DESIRED_HASH).unwrap(),
        object["metadata"]["resourceVersion"].as_str().unwrap()
    );
    with(object, names::RELEASE, Some(&marker))
}

/// Created, released, so live on image `a`.
fn live() -> Value {
    let created = stored(None, &node("a"), OPERATOR);
    stored(Some(&created), &release(&created), OPERATOR)
}

#[test]
fn a_creation_is_held_with_nothing_live() {
    let (outcome, object) = write(None, &node("a"), OPERATOR).unwrap();
    assert_eq!(outcome, Outcome::Held);
    assert_eq!(annotation(&object, names::LIVE_HASH), Some("none"));
    assert_eq!(object["spec"]["released"], json!({}));
    assert_eq!(annotation(&object, names::HELD_BY), Some(OPERATOR));
    assert_eq!(
        annotation(&object, names::HELD_SINCE),
        Some("2026-03-01T12:00:00.000Z")
    );
    assert_eq!(annotation(&object, names::START_TIME), None);
}

#[test]
fn a_creation_without_content_is_not_held() {
    let (_, object) = write(None, &node(""), USER).unwrap();
    assert_eq!(
        annotation(&object, names::LIVE_HASH),
        annotation(&object, names::DESIRED_HASH)
    );
    assert!(object["spec"].get("released").is_none());
}

#[test]
fn a_restored_backup_is_held_and_its_markers_forgotten() {
    let mut backup = live();
    backup["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("resourceVersion");
    backup["metadata"]["annotations"][names::UNGATED] =
        backup["metadata"]["annotations"][names::DESIRED_HASH].clone();
    let (outcome, object) = write(None, &backup, USER).unwrap();
    let found = |name| annotation(&object, name);
    assert_eq!(
        (outcome, found(names::LIVE_HASH)),
        (Outcome::Held, Some("none"))
    );
    assert_eq!((found(names::RELEASE), found(names::UNGATED)), (None, None));
}

#[test]
fn an_edit_is_held_whoever_writes_it() {
    for user in [USER, OPERATOR] {
        let (outcome, object) = write(Some(&live()), &edited(&live(), "b"), user).unwrap();
        assert_eq!(
            (outcome, live_image(&object)),
            (Outcome::Held, Some("a")),
            "{user}"
        );
        assert_eq!(annotation(&object, names::HELD_BY), Some(user));
    }
}

#[test]
fn edits_coalesce_and_the_oldest_hold_counts() {
    let first = with(
        &stored(Some(&live()), &edited(&live(), "b"), USER),
        names::HELD_SINCE,
        Some("2026-02-01T00:00:00.000Z"),
    );
    let second = stored(Some(&first), &edited(&first, "c"), "bob");
    assert_eq!(
        (live_image(&second), annotation(&second, names::HELD_BY)),
        (Some("a"), Some("bob"))
    );
    assert_eq!(
        annotation(&second, names::HELD_SINCE),
        Some("2026-02-01T00:00:00.000Z")
    );
}

#[test]
fn a_release_makes_the_desired_content_live_and_stamps_it() {
    let held = stored(Some(&live()), &edited(&live(), "b"), USER);
    let (outcome, object) = write(Some(&held), &release(&held), OPERATOR).unwrap();
    assert_eq!(
        (outcome, live_image(&object)),
        (Outcome::Released, Some("b"))
    );
    assert_eq!(
        annotation(&object, names::LIVE_HASH),
        annotation(&object, names::DESIRED_HASH)
    );
    assert!(object["spec"].get("released").is_none());
    assert!(
        annotation(&object, names::HELD_SINCE).is_none()
            && annotation(&object, names::HELD_BY).is_none()
    );
    // Later than the stamp before it, though the clock stood still.
    assert_eq!(
        annotation(&object, names::START_TIME),
        Some("2026-03-01T12:00:00.001Z")
    );
}

#[test]
fn a_release_of_what_is_not_held_changes_nothing() {
    let settled = live();
    let (outcome, object) = write(Some(&settled), &release(&settled), OPERATOR).unwrap();
    assert_eq!(
        (outcome, annotation(&object, names::START_TIME)),
        (Outcome::Unchanged, annotation(&settled, names::START_TIME))
    );
}

#[test]
fn releases_that_must_not_pass() {
    let held = stored(Some(&live()), &edited(&live(), "b"), USER);
    let marker = annotation(&release(&held), names::RELEASE)
        .unwrap()
        .to_owned();
    let other_hash = format!("{}/8", content::hash(None));
    for (name, new, user, code) in [
        ("by a user", release(&held), USER, "not_the_operator"),
        (
            "of another content",
            with(&held, names::RELEASE, Some(&other_hash)),
            OPERATOR,
            "stale_release",
        ),
        (
            "of another version",
            with(&held, names::RELEASE, Some(&marker.replace("/8", "/7"))),
            OPERATOR,
            "stale_release",
        ),
        (
            "without a version",
            with(&held, names::RELEASE, marker.split('/').next()),
            OPERATOR,
            "stale_release",
        ),
        (
            "with content",
            edited(&release(&held), "c"),
            OPERATOR,
            "release_with_content",
        ),
        (
            "ungated by a user",
            with(
                &held,
                names::UNGATED,
                annotation(&held, names::DESIRED_HASH),
            ),
            USER,
            "not_the_operator",
        ),
        (
            "ungated with another hash",
            with(&held, names::UNGATED, Some("1:0/8")),
            OPERATOR,
            "stale_release",
        ),
    ] {
        assert_eq!(
            write(Some(&held), &new, user).unwrap_err().code(),
            code,
            "{name}"
        );
    }
    let message = write(Some(&held), &release(&held), USER)
        .unwrap_err()
        .to_string();
    assert!(
        message
            .contains("kubectl annotate lynqnode acme-web -n tenants lynq.sh/force-rollout=true"),
        "{message}"
    );
}

#[test]
fn markers_that_were_removed_are_put_back() {
    let object = live();
    let bare = with(&with(&object, names::RELEASE, None), names::LIVE_HASH, None);
    let (outcome, after) = write(Some(&object), &bare, USER).unwrap();
    assert_eq!(
        (outcome, &after["metadata"]["annotations"]),
        (Outcome::Unchanged, &object["metadata"]["annotations"])
    );
}

#[test]
fn a_revert_before_the_release_unholds() {
    let held = stored(Some(&live()), &edited(&live(), "b"), USER);
    let (outcome, object) = write(Some(&held), &edited(&held, "a"), USER).unwrap();
    assert_eq!(
        (outcome, annotation(&object, names::START_TIME)),
        (Outcome::Unheld, annotation(&live(), names::START_TIME))
    );
    assert!(object["spec"].get("released").is_none());
}

#[test]
fn metadata_and_lost_state_change_nothing() {
    let held = stored(Some(&live()), &edited(&live(), "b"), USER);
    let mut put = node("b");
    put["metadata"]["labels"] = json!({"a": "b"});
    let (outcome, object) = write(Some(&held), &put, "bob").unwrap();
    assert_eq!(
        (outcome, live_image(&object)),
        (Outcome::Unchanged, Some("a"))
    );
    assert_eq!(
        object["metadata"]["annotations"],
        held["metadata"]["annotations"]
    );
}

/// The API server refuses it later, with a better word than that of a patch that does not apply.
#[test]
fn an_edit_that_leaves_no_spec_is_held() {
    for spec in [None, Some(Value::Null)] {
        let mut new = live();
        new.as_object_mut().unwrap().remove("spec");
        if let Some(spec) = spec {
            new["spec"] = spec;
        }
        let (outcome, object) = write(Some(&live()), &new, USER).unwrap();
        assert_eq!((outcome, live_image(&object)), (Outcome::Held, Some("a")));
    }
}

#[test]
fn what_the_client_claims_does_not_count() {
    let mut new = edited(&live(), "b");
    new["spec"]["released"] = json!({"deployments": [{"id": "app", "spec": {"image": "evil"}}]});
    let claims = content::hash(new["spec"].get("released"));
    let new = with(
        &with(&new, names::LIVE_HASH, Some(claims.as_str())),
        names::START_TIME,
        Some("2020-01-01T00:00:00.000Z"),
    );
    let object = stored(Some(&live()), &new, OPERATOR);
    assert_eq!(
        (live_image(&object), annotation(&object, names::START_TIME)),
        (Some("a"), annotation(&live(), names::START_TIME))
    );
}

/// As `released` it would be one level deeper, and the next review could not be read.
#[test]
fn content_too_deep_to_be_read_back_is_not_kept_as_released() {
    for (levels, expected) in [(10, None), (120, Some("unknown"))] {
        let mut old = live();
        let deep = (0..levels).fold(json!(1), |inner, _| json!([inner]));
        old["spec"]["deployments"][0]["spec"]["deep"] = deep;
        let hash = content::hash(old.get("spec")).to_string();
        for name in [names::DESIRED_HASH, names::LIVE_HASH] {
            old = with(&old, name, Some(&hash));
        }
        let (outcome, object) = write(Some(&old), &edited(&old, "b"), USER).unwrap();
        assert_eq!(outcome, Outcome::Held);
        let live = annotation(&object, names::LIVE_HASH);
        assert_eq!(live, expected.or(Some(&hash)), "{levels}");
    }
}

#[test]
fn content_that_did_not_come_through_the_gate_is_unknown_until_released() {
    let pruned = {
        let mut held = stored(Some(&live()), &edited(&live(), "b"), USER);
        held["spec"].as_object_mut().unwrap().remove("released");
        held
    };
    for (name, old) in [("left by Lynq", node("a")), ("released was pruned", pruned)] {
        let mut touched = old.clone();
        touched["metadata"]["labels"] = json!({"a": "b"});
        let object = stored(Some(&old), &touched, USER);
        assert_eq!(
            annotation(&object, names::LIVE_HASH),
            Some("unknown"),
            "{name}"
        );
        assert!(object["spec"].get("released").is_none(), "{name}");
        let held = stored(Some(&object), &edited(&object, "c"), USER);
        assert_eq!(
            annotation(&held, names::LIVE_HASH),
            Some("unknown"),
            "{name}"
        );
        let (outcome, released) = write(Some(&held), &release(&held), OPERATOR).unwrap();
        assert_eq!(
            (outcome, live_image(&released)),
            (Outcome::Released, Some("c")),
            "{name}"
        );
    }
}

#[test]
fn hashes_of_another_version_are_rebased() {
    let other = |object: &Value| {
        let mut object = object.clone();
        for name in [names::DESIRED_HASH, names::LIVE_HASH] {
            let text = annotation(&object, name).unwrap().replace("1:", "7:");
            object["metadata"]["annotations"][name] = json!(text);
        }
        object
    };
    let settled = other(&live());
    let held = other(&stored(Some(&live()), &edited(&live(), "b"), USER));
    for (name, old, live) in [("settled", &settled, "a"), ("held", &held, "a")] {
        let mut touched = old.clone();
        touched["metadata"]["labels"] = json!({"a": "b"});
        let (outcome, object) = write(Some(old), &touched, USER).unwrap();
        assert_eq!(
            (outcome, live_image(&object)),
            (Outcome::Unchanged, Some(live)),
            "{name}"
        );
        assert_eq!(
            old["spec"].get("released").is_some(),
            object["spec"].get("released").is_some(),
            "{name}"
        );
        assert_eq!(
            annotation(&object, names::START_TIME),
            annotation(old, names::START_TIME),
            "{name}"
        );
    }
    // A leader of that version decided on the hash that it wrote.
    assert_eq!(
        write(Some(&held), &release(&held), OPERATOR).unwrap().0,
        Outcome::Released
    );
}

#[test]
fn what_a_later_webhook_leaves_is_checked() {
    let old = live();
    let good = stored(Some(&old), &edited(&old, "b"), USER);
    let mut content = good.clone();
    content["spec"]["deployments"][0]["spec"]["image"] = json!("c");
    let mut released = good.clone();
    released["spec"]["released"] = json!({});
    for (name, object, said) in [
        (
            "content",
            content,
            "content that the desired hash does not name",
        ),
        ("released", released, "spec.released"),
        (
            "live hash",
            with(
                &good,
                names::LIVE_HASH,
                annotation(&good, names::DESIRED_HASH),
            ),
            "live hash",
        ),
        (
            "start time",
            with(&good, names::START_TIME, Some("2026-03-02T00:00:00Z")),
            names::START_TIME,
        ),
    ] {
        let error = check(
            &Write {
                old: Some(&old),
                new: &object,
                user: USER,
                operator: OPERATOR,
            },
            now(),
        )
        .unwrap_err()
        .to_string();
        assert!(error.contains(said), "{name}: {error}");
    }
}

#[test]
fn content_too_large_to_be_held_is_refused_only_when_it_changes() {
    let big = |n: usize| edited(&live(), &"x".repeat(n));
    let error = write(Some(&live()), &big(700_000), USER).unwrap_err();
    assert_eq!(error.code(), "too_large");
    assert!(
        error.to_string().contains("\"app\" in deployments"),
        "{error}"
    );
    let old = big(700_000);
    assert!(write(Some(&old), &with(&old, "a", Some("b")), USER).is_ok());
}

/// The fence sees lists, and no hashes: what only stands in another order is stored as it stood.
#[test]
fn content_in_another_order_is_stored_as_it_was() {
    let lists = |first: &str, second: &str| {
        let mut node = node("");
        node["spec"]["configMaps"] = json!([{"id": first, "spec": {}}, {"id": second, "spec": {}}]);
        node
    };
    let before = stored(None, &lists("a", "b"), OPERATOR);
    let mut swapped = lists("b", "a");
    swapped["spec"]["configMaps"][0]["timeoutSeconds"] = json!(300);
    swapped["spec"]["deployments"] = json!([]);
    swapped["metadata"]["annotations"] = json!({"note": "x"});
    let (outcome, after) = write(Some(&before), &swapped, OPERATOR).unwrap();
    assert_eq!(outcome, Outcome::Unchanged);
    assert_eq!(after["spec"]["configMaps"], before["spec"]["configMaps"]);
    assert_eq!(after["metadata"]["annotations"]["note"], "x");
    let other = stored(Some(&before), &lists("b", "c"), OPERATOR);
    assert_eq!(
        other["spec"]["configMaps"],
        lists("b", "c")["spec"]["configMaps"]
    );
}
