//! What is recorded is read and planned as it was; and the cases that were recorded on real control planes.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::*;
use crate::decide::rollout::replay::{self, Recording, Replayed, Unreadable};

fn recording(snapshot: Snapshot) -> Recording {
    Recording {
        namespace: "tenants".into(),
        name: "hub".into(),
        now: at(1),
        snapshot,
    }
}

fn document(snapshot: Snapshot) -> Value {
    let served = replay::to_json(Some(&[Arc::new(recording(snapshot))])).unwrap();
    serde_json::from_slice(&served).unwrap()
}

fn replayed(document: &Value) -> (Recording, Replayed) {
    let state = replay::read(&document.to_string()).unwrap();
    let [hub] = state.hubs.as_slice() else {
        panic!("one hub: {document}")
    };
    let replayed = replay::replay(hub, &state.lynqgate).unwrap();
    (hub.recording.clone(), replayed)
}

/// Everything is set that may be absent.
fn full() -> Snapshot {
    let mut snapshot = fleet("yAXN", 1);
    snapshot.slots = vec![presumed(0, "99"), soaking(slot(3, "98"), 60)];
    snapshot.hub_skew = Skew::Percent(50);
    confirmed(&mut snapshot, 0);
    let gone = "uid-9".to_owned();
    snapshot.confirmed.insert(Confirmation::Gone { uid: gone });
    (snapshot.deletions_held, snapshot.forced) = (true, true);
    let refusal = RefusedRelease {
        hash: "new".into(),
        why: "no changes on a Friday".into(),
        until: Some(at(30)),
        lasting: true,
        at: at(0),
    };
    snapshot.refused.insert("n1".into(), refusal);
    snapshot.ledger_refused = Some("the books are closed".into());
    snapshot.missing.insert("uid-9".into(), at(0));
    snapshot.unlooked.insert("n2".into());
    let maintained = Maintained {
        kubernetes_node: "k8s-3".into(),
        began: at(-60),
        ended: Some(at(-30)),
    };
    snapshot.maintained.insert("n2".into(), maintained);
    for (form, why) in [
        ("gone", Formless::Deleted),
        (
            "elsewhere",
            Formless::OfAnotherHub {
                hub: "others".into(),
            },
        ),
    ] {
        snapshot.formless.insert(form.into(), why);
    }
    began(&mut snapshot, 0);
    let form = snapshot.forms.get_mut("web").unwrap();
    form.unwritten.insert("n1".into());
    form.unwritten_before = 1;
    form.absent.insert("n4".into(), 1);
    (form.outdated, form.forced) = (true, true);
    form.resumed_at = Some(at(-1));
    form.policy.max_failures = Some(Skew::Percent(10));
    let node = snapshot.nodes.get_mut("n0").unwrap();
    let time = "2027-01-15T08:00:00.123456789Z".parse().ok();
    (node.start, node.settled_since) = (time, time);
    (node.went_at, node.stepped_at, node.watched_since) = (time, time, time);
    (node.same_since, node.unready_since, node.broke_at) = (time, time, time);
    node.why = Some("Deployment n0-app: its image cannot be pulled".into());
    (node.forced, node.deleting, node.unrendered, node.unwanted) = (true, true, true, true);
    node.unchanged = None;
    node.group = 2;
    node.flight = Some(Flight {
        hash: "new".into(),
        release: "99".into(),
        repair: true,
        watched: true,
        landed: true,
        is_live: true,
    });
    snapshot.nodes.get_mut("n1").unwrap().live = Live::Unknown;
    snapshot
}

#[test]
fn all_of_a_snapshot_is_read_as_it_was_written() {
    for snapshot in [Snapshot::default(), full()] {
        let (read, replayed) = replayed(&document(snapshot.clone()));
        assert_eq!(read, recording(snapshot));
        assert_eq!(replayed.differences, []);
    }
}

#[test]
fn a_replica_that_does_not_lead_says_so() {
    for (recordings, leads) in [(None, false), (Some(&[][..]), true)] {
        let served = String::from_utf8(replay::to_json(recordings).unwrap()).unwrap();
        let state = replay::read(&served).unwrap();
        assert_eq!((state.leads, state.hubs.len()), (leads, 0), "{served}");
    }
}

proptest! {
    /// Nothing but the snapshot and the time goes into a plan.
    #[test]
    fn what_is_replayed_is_planned_the_same(snapshot in any_fleet()) {
        let (read, replayed) = replayed(&document(snapshot.clone()));
        prop_assert_eq!(plan(&read.snapshot, read.now), plan(&snapshot, at(1)));
        prop_assert_eq!(replayed.differences, vec![]);
    }
}

#[test]
fn what_differs_is_named() {
    let mut document = document(fleet("xAAA", 2));
    let plan = &mut document["hubs"][0]["plan"];
    plan["waiting"]["n2"]["reason"] = json!("Paused");
    plan["releases"][0]["node"] = json!("n3");
    plan["failed"] = json!(["n0"]);
    let (_, replayed) = replayed(&document);
    let paths: Vec<&str> = replayed
        .differences
        .iter()
        .map(|d| d.path.as_str())
        .collect();
    assert_eq!(
        paths,
        ["failed", "releases", "releases", "waiting.n2.reason"],
        "{replayed}"
    );
    let text = replayed.to_string();
    for line in [
        "hub tenants/hub at 2027-01-15T08:00:01Z, recorded by lynqgate 0.1.0: 4 differences in the plan",
        "  waiting.n2.reason",
        "    recorded  \"Paused\"",
        "    planned   \"WindowFull\"",
        "  n1 waits: Releasing: its turn has come; the release is on its way",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
}

#[test]
fn what_cannot_be_read_is_refused_with_both_versions() {
    let good = document(fleet("A", 1));
    let with = |pointer: &str, value: Value| {
        let mut bad = good.clone();
        *bad.pointer_mut(pointer).unwrap() = value;
        bad.to_string()
    };
    let newer = with("/lynqgate", json!("9.9.9"));
    let newer_field = newer.replace("\"hubSkew\":", "\"moon\":\"full\",\"hubSkew\":");
    let newer_format = newer.replace("\"format\":1", "\"format\":7");
    for (text, said) in [
        ("kind: Pod".to_owned(), "it is not JSON"),
        (with("/kind", json!("Pod")), "its kind is \"Pod\""),
        (
            newer_format,
            "lynqgate 9.9.9 wrote it in format 7, and this is lynqgate 0.1.0, which reads format 1",
        ),
        (
            newer_field,
            "lynqgate 9.9.9 wrote it, and this is lynqgate 0.1.0",
        ),
        (with("/hubs/0/now", json!("noon")), "cannot read it"),
    ] {
        let error: Unreadable = replay::read(&text).unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
    }
}

/// `lynqgate replay FILE --as-case NAME` adds one. Where a change of the planner changes a plan on purpose:
/// `UPDATE_GOLDENS=1 cargo test --lib replayed`, and read the difference.
#[test]
fn every_recorded_case_is_planned_as_it_says() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/snapshots");
    let mut problems = vec![];
    let mut cases = 0;
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let document: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let (recording, replayed) = replayed(&document);
        cases += 1;
        if replayed.differences.is_empty() {
            continue;
        }
        match std::env::var_os("UPDATE_GOLDENS") {
            Some(_) => fs::write(&path, recording.as_case().unwrap()).unwrap(),
            None => problems.push(format!("{}: {replayed}", path.display())),
        }
    }
    assert!(cases > 2, "{cases} cases");
    assert!(
        problems.is_empty(),
        "if the plans change on purpose, UPDATE_GOLDENS=1 writes the cases with the plans of now:\n{}",
        problems.join("\n")
    );
}
