//! The program from outside: arguments, exit status, and the report as text. What it judges is for the cases of `core`.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

/// An audit log of a fleet with one node; `released` is what the last write makes live without a slot.
fn log(released: Option<&str>) -> String {
    let node = |version: u64, live: &str| {
        json!({
            "metadata": {"name": "a-web", "namespace": "ns", "uid": "u", "resourceVersion": version.to_string(),
                "labels": {"lynq.sh/hub": "hub"}, "annotations": {"lynq.sh/desired-hash": "1:b", "lynq.sh/live-hash": live}},
            "spec": {"templateRef": "web", "configMaps": []},
        })
    };
    let mut lines = vec![
        event(
            "create",
            "lynqhubs",
            "hub",
            json!({"metadata": {"resourceVersion": "1"}, "spec": {}}),
        ),
        event(
            "create",
            "lynqforms",
            "web",
            json!({"metadata": {"resourceVersion": "2"}, "spec": {"hubId": "hub", "rollout": {"maxSkew": 1}}}),
        ),
        event("create", "lynqnodes", "a-web", node(3, "1:b")),
    ];
    lines.extend(released.map(|hash| event("patch", "lynqnodes", "a-web", node(4, hash))));
    lines.join("\n")
}

fn event(verb: &str, resource: &str, name: &str, object: Value) -> String {
    json!({
        "stage": "ResponseComplete", "verb": verb, "requestURI": "/", "stageTimestamp": "2026-01-01T00:00:00.000000Z",
        "objectRef": {"apiGroup": "operator.lynq.sh", "resource": resource, "namespace": "ns", "name": name},
        "responseStatus": {"code": 200}, "responseObject": object,
    })
    .to_string()
}

fn run(arguments: &[&str]) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_lynqgate-audit"));
    Command::new(program)
        .args(arguments)
        .output()
        .expect("the program")
}

#[test]
fn the_exit_status_is_the_verdict() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("audit.log");
    let path = file.to_str().expect("a path");
    for (name, text, status, said) in [
        ("all is well", log(None), 0, "HELD: 0 violations"),
        (
            "live without a slot",
            log(Some("1:other")),
            1,
            "VIOLATED: 1 violations (1 exact)",
        ),
        ("nothing to judge", String::new(), 2, "no LynqNode was seen"),
        ("not a log", log(None) + "\nnot JSON", 2, "INCONCLUSIVE"),
    ] {
        std::fs::write(&file, text).expect(name);
        let output = run(&["log", path]);
        let report = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(status), "{name}: {report}");
        assert!(report.contains(said), "{name}: {report}");
        let output = run(&["log", path, "-o", "json"]);
        let json: Value = serde_json::from_slice(&output.stdout).expect(name);
        let verdict = ["held", "violated", "inconclusive"][status as usize];
        assert_eq!(json["verdict"], verdict, "{name}");
    }
}

#[test]
fn what_cannot_be_read_is_said_and_is_no_verdict() {
    for (arguments, said) in [
        (&["log", "/nowhere"][..], "cannot read /nowhere"),
        (
            &["etcd", "--endpoint", "http://127.0.0.1:1"],
            "check the address",
        ),
        (&["watch", "--kubeconfig", "/nowhere"], "check --kubeconfig"),
    ] {
        let output = run(arguments);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(said), "{arguments:?}: {error}");
    }
}
