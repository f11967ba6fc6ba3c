//! Screens, as they are read.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::api::{names, stamp};
use crate::decide::partition::walk::{Around, Pod, Set, step};
use crate::decide::shared::content;

const NOW: &str = "2026-01-01T00:05:00Z";

fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({
        "type": type_, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    })
}

/// With 20 of 52 nodes updated and ready.
fn rollout(phase: &str, changed: Value) -> Value {
    let mut rollout = json!({
        "phase": phase, "targetGeneration": 7, "totalNodes": 52, "updatedNodes": 23,
        "updatingNodes": 3, "readyUpdatedNodes": 20, "heldNodes": 29, "failedNodes": 0,
        "slots": 3, "window": 3, "startTime": "2026-01-01T00:02:00Z",
    });
    for (name, value) in changed.as_object().unwrap() {
        rollout[name] = value.clone();
    }
    rollout
}

fn form(generation: i64, rollout: Value, conditions: Value) -> Part {
    form_that(false, generation, rollout, conditions)
}

fn form_that(reverts: bool, generation: i64, rollout: Value, conditions: Value) -> Part {
    let status = json!({
        "observedGeneration": 7, "totalNodes": 52, "readyNodes": 49,
        "rollout": rollout, "conditions": conditions,
    });
    let told = FormTold {
        name: "web",
        generation,
        status: &serde_json::from_value(status).unwrap(),
    };
    of_form(told, reverts, stamp::parse(NOW).unwrap())
}

fn goes_on() -> Value {
    let valid = condition("Valid", "True", "ValidationPassed", "");
    let complete = condition("RolloutComplete", "False", "InProgress", "it goes on");
    json!([valid, complete])
}

fn waits() -> Value {
    json!([{
        "reason": "WindowFull", "count": 29, "nodes": ["a-web", "b-web", "c-web"],
        "message": "the window of 3 is full", "next": "nothing",
    }])
}

fn screen(part: Part) -> String {
    Overview::of(vec![part], &Leader::Leads).screen(Style::Plain)
}

#[test]
fn a_rollout_reads_so() {
    let estimate = "2026-01-01T00:09:00Z";
    let changed = json!({"waiting": waits(), "estimatedCompletion": estimate});
    let part = form(7, rollout("InProgress", changed), goes_on());
    assert_eq!(part.verdict, Verdict::Progressing);
    let expected = "\
form web: progressing: generation 7, 3 of 3 slots in use
  nodes      20 of 52 updated and ready, 3 updating, 29 held, 0 failed; 49 of 52 ready in all
  time       began 3m ago; complete in about 4m (00:09:00 UTC)
  why        WindowFull (29: a-web, b-web, c-web, ...): the window of 3 is full
  next       nothing
";
    assert_eq!(screen(part.clone()), expected);
    let terminal = Overview::of(vec![part], &Leader::Leads).screen(Style::Terminal);
    let bar = terminal
        .lines()
        .find(|line| line.contains('[') && line.contains('#'));
    let bar: String = bar
        .unwrap()
        .chars()
        .filter(|c| "#=.".contains(*c))
        .collect();
    assert_eq!(bar, format!("{}=={}", "#".repeat(15), ".".repeat(23)));
}

#[test]
fn verdicts() {
    let complete = json!([
        condition("Valid", "True", "ValidationPassed", ""),
        condition("RolloutComplete", "True", "Complete", ""),
    ]);
    let stops = |reason: &str| {
        let valid = condition("Valid", "True", "ValidationPassed", "");
        json!([
            valid,
            condition("RolloutComplete", "False", reason, "halted")
        ])
    };
    let invalid = json!([
        condition("Valid", "False", "HubNotFound", "there is no hub"),
        condition("RolloutComplete", "False", "HubNotFound", ""),
    ]);
    let over = json!({"completionTime": "2026-01-01T00:04:00Z"});
    for (name, part, expected) in [
        (
            "complete",
            form(7, rollout("Complete", over.clone()), complete.clone()),
            Verdict::Complete,
        ),
        (
            "an edit that nobody has taken up",
            form(8, rollout("Complete", over.clone()), complete),
            Verdict::Progressing,
        ),
        (
            "an edit of a halted form",
            form(8, rollout("Failed", json!({})), stops("Failed")),
            Verdict::Progressing,
        ),
        (
            "halted",
            form(7, rollout("Failed", json!({})), stops("Failed")),
            Verdict::Halted,
        ),
        (
            "stalled",
            form(7, rollout("InProgress", json!({})), stops("Stalled")),
            Verdict::Halted,
        ),
        (
            "invalid",
            form(8, rollout("InProgress", json!({})), invalid),
            Verdict::Halted,
        ),
        (
            "paused",
            form(7, rollout("Paused", json!({})), goes_on()),
            Verdict::Paused,
        ),
        (
            "a node broke after the rollout",
            form(7, rollout("InProgress", over), goes_on()),
            Verdict::Degraded,
        ),
    ] {
        assert_eq!(part.verdict, expected, "{name}");
        assert_eq!(
            part.problems.is_empty(),
            part.verdict <= Verdict::Progressing,
            "{name}"
        );
    }
}

#[test]
fn a_change_that_was_taken_back_is_not_complete() {
    let message = "revision web-b failed, and lynqgate took it back";
    let of = |rollout: Value, complete: &str, reason: &str| {
        let conditions = json!([
            condition("Valid", "True", "ValidationPassed", ""),
            condition("RolloutComplete", complete, reason, ""),
            condition("Reverted", "True", "Reverted", message),
        ]);
        form(7, rollout, conditions)
    };
    let over = json!({"completionTime": "2026-01-01T00:04:00Z"});
    let back = of(rollout("Complete", over), "True", "Complete");
    assert_eq!(
        (back.verdict, back.verdict.exit_status()),
        (Verdict::Degraded, 2)
    );
    let problem = &back.problems[0];
    assert_eq!((&*problem.reason, &*problem.message), ("Reverted", message));
    let goes_back = rollout("InProgress", json!({"waiting": waits()}));
    let goes_back = of(goes_back, "False", "InProgress");
    let reasons = goes_back.problems.iter().map(|problem| &*problem.reason);
    let reasons: Vec<&str> = reasons.collect();
    assert_eq!(
        (goes_back.verdict, reasons),
        (Verdict::Progressing, vec!["Reverted", "WindowFull"])
    );
    let halted = of(rollout("Failed", json!({})), "False", "Failed");
    assert_eq!(halted.verdict, Verdict::Halted, "it cannot even go back");
}

/// `--watch` does not end before lynqgate has taken the change back.
#[test]
fn a_change_that_is_about_to_be_taken_back_goes_on() {
    let conditions = json!([condition("RolloutComplete", "False", "Failed", "halted")]);
    let next = "nothing: lynqgate takes the change back now (rollout.onFailure: Revert)";
    for (name, waiting, reason) in [
        ("nodes wait", waits(), "WindowFull"),
        ("none waits", json!([]), "Failed"),
    ] {
        let rollout = rollout("Failed", json!({"waiting": waiting}));
        let part = form_that(true, 7, rollout, conditions.clone());
        let problem = &part.problems[0];
        let told = (&*problem.reason, problem.next.as_deref());
        assert_eq!(part.verdict, Verdict::Progressing, "{name}");
        assert_eq!(told, (reason, Some(next)), "{name}");
    }
}

#[test]
fn a_hub_says_what_it_leaves_out() {
    let ready = condition("Ready", "True", "DatabaseConnected", "");
    let skipped = condition(
        "RowsSkipped",
        "True",
        "UnusableRows",
        "row \"a b\": the uid is no name",
    );
    let held = condition(
        "DeletionsHeld",
        "True",
        "TooManyDeletions",
        "40 of 52 nodes wait",
    );
    let of = |conditions: Value| {
        let status = json!({
            "observedGeneration": 2, "desired": 52, "ready": 49, "failed": 1, "skippedRows": 1,
            "conditions": conditions,
        });
        of_hub("tenants", 2, &serde_json::from_value(status).unwrap())
    };
    let part = of(json!([ready, skipped]));
    let expected = "\
hub tenants: degraded: 52 nodes wanted, 49 ready, 1 failed, 1 row skipped
  why        UnusableRows: row \"a b\": the uid is no name
";
    assert_eq!(screen(part), expected);
    assert_eq!(of(json!([ready])).verdict, Verdict::Degraded, "1 failed");
    let part = of(json!([ready, skipped, held]));
    let reasons = part.problems.iter().map(|problem| problem.reason.as_str());
    let reasons: Vec<&str> = reasons.collect();
    assert_eq!(
        (part.verdict, reasons),
        (Verdict::Halted, vec!["TooManyDeletions", "UnusableRows"])
    );
}

#[test]
fn a_held_node_goes_on_only_while_its_form_does() {
    let node = |degraded: &str, deleting: bool| {
        let deleted = deleting.then_some("2026-01-01T00:00:00Z");
        let annotations = json!({names::LIVE_HASH: "none"});
        let node = json!({
            "metadata": {"name": "z-web", "annotations": annotations, "deletionTimestamp": deleted},
            "spec": {"uid": "z", "hubId": "tenants", "templateRef": "web"},
            "status": {"conditions": [
                condition("Held", "True", "WindowFull", "waits for a slot"),
                condition("Degraded", degraded, "ResourceFailures", "app-z failed"),
            ]},
        });
        NodeDigest::of(&node, None)
    };
    let stops = |reason: &str| json!([condition("RolloutComplete", "False", reason, "")]);
    let waits = json!({"waiting": waits()});
    let going = form(7, rollout("InProgress", waits.clone()), goes_on());
    let paused = form(7, rollout("Paused", waits.clone()), goes_on());
    let halted = form(7, rollout("Failed", waits), stops("Failed"));
    let window = "WindowFull: the window of 3 is full";
    for (name, node, form, verdict, why) in [
        (
            "no form",
            node("False", false),
            None,
            Verdict::Progressing,
            vec!["WindowFull: waits for a slot"],
        ),
        (
            "its turn comes",
            node("False", false),
            Some(&going),
            Verdict::Progressing,
            vec!["WindowFull: waits for a slot"],
        ),
        (
            "paused",
            node("False", false),
            Some(&paused),
            Verdict::Paused,
            vec![window],
        ),
        (
            "halted",
            node("False", false),
            Some(&halted),
            Verdict::Halted,
            vec![window],
        ),
        (
            "halted, and broken itself",
            node("True", false),
            Some(&halted),
            Verdict::Halted,
            vec!["ResourceFailures: app-z failed", window],
        ),
        (
            "on its way out",
            node("False", true),
            Some(&halted),
            Verdict::Progressing,
            vec![],
        ),
    ] {
        let part = of_node(&node, form);
        let told: Vec<String> = part.problems.iter().map(Problem::why).collect();
        assert_eq!(part.verdict, verdict, "{name}");
        assert_eq!(told, why, "{name}");
    }
}

/// A node whose status speaks of what is live.
fn live_node(conditions: &[Value]) -> NodeDigest {
    let spec = json!({"uid": "z", "hubId": "tenants", "templateRef": "web"});
    let hash = content::hash(Some(&spec)).to_string();
    let annotations = json!({names::DESIRED_HASH: hash, names::LIVE_HASH: hash});
    let node = json!({
        "metadata": {"name": "z-web", "annotations": annotations},
        "spec": spec,
        "status": {"observedHash": hash, "conditions": conditions},
    });
    NodeDigest::of(&node, None)
}

#[test]
fn a_release_without_a_status_does_not_show_the_failure_of_the_release_before() {
    let failed = condition("Degraded", "True", "ResourceFailures", "no such image");
    let held = condition("Held", "True", "WindowFull", "waits for a slot");
    let mut in_vain = condition("Ready", "False", "LookFailed", "it panicked");
    in_vain["observedGeneration"] = json!(0);
    let mut in_vain_before = in_vain.clone();
    in_vain_before["observedGeneration"] = json!(-1);
    let node = |conditions: &[&Value]| {
        let mut node = live_node(&Vec::from_iter(conditions.iter().copied().cloned()));
        Arc::make_mut(&mut node.status).failed_resources = 1;
        assert_eq!(of_node(&node, None).verdict, Verdict::Degraded);
        node.start = Some("2027-01-15T08:00:01Z".into());
        node
    };
    let released = node(&[&failed, &held]);
    let held_again = NodeDigest {
        desired: "another".into(),
        ..released.clone()
    };
    for (name, node, why) in [
        ("released", released, vec![]),
        (
            "held again",
            held_again,
            vec!["WindowFull: waits for a slot"],
        ),
        (
            "it cannot be looked at",
            node(&[&failed, &in_vain]),
            vec!["LookFailed: it panicked"],
        ),
        (
            "nor could the release before",
            node(&[&failed, &in_vain_before]),
            vec![],
        ),
    ] {
        let part = of_node(&node, None);
        let told: Vec<String> = part.problems.iter().map(Problem::why).collect();
        assert_eq!(part.verdict, Verdict::Progressing, "{name}");
        assert_eq!(told, why, "{name}");
        let (_, resources) = part.summary.rsplit_once("; ").unwrap();
        assert_eq!(
            resources, "no status update since its last release",
            "{name}"
        );
    }
}

#[test]
fn a_live_node_that_is_not_ready_says_what_halts_its_form() {
    let node = |ready: &str| live_node(&[condition("Ready", ready, "NotReady", "no such image")]);
    let stops = json!([condition("RolloutComplete", "False", "Failed", "")]);
    let going = form(7, rollout("InProgress", json!({})), goes_on());
    let halted = form(7, rollout("Failed", json!({"waiting": waits()})), stops);
    let own = "NotReady: no such image";
    for (name, form, verdict, why) in [
        ("it goes on", &going, Verdict::Progressing, vec![own]),
        (
            "halted",
            &halted,
            Verdict::Halted,
            vec![own, "WindowFull: the window of 3 is full"],
        ),
    ] {
        let part = of_node(&node("False"), Some(form));
        let told: Vec<String> = part.problems.iter().map(Problem::why).collect();
        assert_eq!(part.verdict, verdict, "{name}");
        assert_eq!(told, why, "{name}");
    }
    let ready = of_node(&node("True"), Some(&halted));
    assert_ne!(ready.verdict, Verdict::Halted);
    assert!(ready.problems.is_empty());
}

/// Pods with these revisions and readiness, from the lowest.
fn stateful_set(partition: i64, current: &str, pods: &[(&str, bool)]) -> Part {
    let set = Set::of(&json!({
        "metadata": {"name": "db", "generation": 2, "labels": {names::PARTITION_GATE: names::TRUE}},
        "spec": {"replicas": 4, "updateStrategy": {"rollingUpdate": {"partition": partition}}},
        "status": {"observedGeneration": 2, "updateRevision": "db-2", "currentRevision": current},
    }));
    let pod = |(index, (revision, ready)): (usize, &(&str, bool))| Pod {
        index: i64::try_from(index).unwrap(),
        name: format!("db-{index}"),
        uid: String::new(),
        revision: (*revision).to_owned(),
        ready_since: ready.then_some(Timestamp::UNIX_EPOCH),
        terminating: false,
    };
    let pods: Vec<Pod> = pods.iter().enumerate().map(pod).collect();
    let step = step(&set, &pods, &Around::default(), Timestamp::MAX);
    let told = partition::explain::Explanation::of("shop", (&set, &pods), &step, None);
    of_stateful_set(&told)
}

#[test]
fn a_stateful_set_reads_so() {
    let (old, new) = (("db-1", true), ("db-2", true));
    let part = stateful_set(2, "db-1", &[old, old, ("db-2", false), new]);
    let expected = "\
statefulset db: progressing: partition 2
  pods       1 of 4 updated and ready, 1 updating, 2 held, 0 failed; 3 of 4 ready in all
  why        NotAvailable: the next pod waits: pod db-2 is updated and not ready, or not for long enough; if it stays so, correct the pod template
";
    assert_eq!(screen(part.clone()), expected);
    let overview = Overview::of(vec![part], &Leader::Leads);
    assert_eq!(
        overview.line(),
        "statefulset db progressing: 1 of 4 updated and ready, 1 updating, 2 held, 0 failed; 3 of 4 ready in all"
    );
    let terminal = overview.screen(Style::Terminal);
    let mut lines = terminal.lines();
    let bar = lines.find(|line| line.contains('[') && line.contains('#'));
    assert!(bar.is_some(), "{terminal}");
    let expected = "\
statefulset db: complete: no update waits
  pods       4 of 4 updated and ready, 0 updating, 0 held, 0 failed; 4 of 4 ready in all
";
    assert_eq!(screen(stateful_set(0, "db-2", &[new; 4])), expected);
    let expected = "\
statefulset db: degraded: no update waits
  pods       3 of 4 updated and ready, 1 updating, 0 held, 0 failed; 3 of 4 ready in all
  why        NotAvailable: 1 of 4 pods are not ready
  next       lynqgate explain statefulset db
";
    assert_eq!(screen(stateful_set(0, "db-2", &[new; 3])), expected);
}

#[test]
fn without_a_leader_nothing_goes_on() {
    let leader = Leader::Missing {
        lease: "lynq-system/f2130106.lynq.sh".to_owned(),
        since: None,
    };
    let part = form(7, rollout("InProgress", json!({})), goes_on());
    let overview = Overview::of(vec![part], &leader);
    assert_eq!(overview.verdict, Verdict::Halted);
    assert!(
        overview
            .screen(Style::Plain)
            .starts_with("operator: halted: what follows may be old\n")
    );
    assert!(
        overview
            .line()
            .contains("form web progressing: 20 of 52 updated and ready")
    );
}
