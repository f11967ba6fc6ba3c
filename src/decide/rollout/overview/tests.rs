//! Screens, as they are read.

use serde_json::{Value, json};

use super::*;
use crate::api::stamp;

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
    let status = json!({
        "observedGeneration": 7, "totalNodes": 52, "readyNodes": 49,
        "rollout": rollout, "conditions": conditions,
    });
    let told = FormTold {
        name: "web",
        generation,
        status: &serde_json::from_value(status).unwrap(),
    };
    of_form(told, stamp::parse(NOW).unwrap())
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
