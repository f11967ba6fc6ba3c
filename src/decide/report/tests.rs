//! What a report has, and what it must not have.

use super::*;
use crate::decide::shared::content;

const SECRET: &str = "hunter2";

fn secret(place: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", place: {"password": SECRET}})
}

#[test]
fn no_value_of_a_secret_is_left_and_its_keys_are() {
    let resource = |manifest: Value| json!([{"id": "login", "spec": manifest}]);
    let mut templated = secret("stringData");
    templated["kind"] = json!("{{ .kind }}");
    let mut annotated = secret("data");
    annotated["metadata"] =
        json!({"annotations": {"last-applied": format!("{{\"password\": \"{SECRET}\"}}")}});
    let untyped = json!({"stringData": {"password": SECRET}});
    let list = json!({"kind": "List", "items": [secret("data")]});
    for (name, spec) in [
        (
            "in its array",
            json!({"secrets": resource(secret("stringData"))}),
        ),
        ("in another", json!({"manifests": resource(secret("data"))})),
        (
            "what is live",
            json!({"released": {"secrets": resource(secret("data"))}}),
        ),
        ("without a kind", json!({"secrets": resource(untyped)})),
        (
            "of a kind that the row says",
            json!({"manifests": resource(templated)}),
        ),
        (
            "with a copy of itself",
            json!({"secrets": resource(annotated)}),
        ),
        ("in a list", json!({"manifests": resource(list)})),
    ] {
        let found = cleaned(json!({"kind": "LynqForm", "spec": spec})).to_string();
        let is_clean = !found.contains(SECRET) && found.contains(r#""password":"(redacted)""#);
        assert!(is_clean, "{name}: {found}");
    }
}

#[test]
fn what_only_programs_read_is_left_out_and_the_rest_stays() {
    let long = "x".repeat(ANNOTATION_MAX + 1);
    let object = json!({
        "kind": "LynqNode",
        "metadata": {
            "name": "acme-web", "managedFields": [{"manager": "x"}],
            "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": "{}", "example.com/applied": long,
                "example.com/team": "blue", names::DESIRED_HASH: "1:abc", names::DOMAINS_OF_ROW: r#"{"zone":"a"}"#,
                names::EXTRA: "x", names::HOST_OR_URL: "x",
            },
        },
        "spec": {
            "serviceAccounts": [{"id": "a", "spec": {"kind": "ServiceAccount", "secrets": [{"name": "b"}]}}],
            "configMaps": [{"id": "b", "spec": {"kind": "ConfigMap", "data": {"plan": "pro"}}}],
        },
        "webhooks": [{"clientConfig": {"caBundle": "x", "url": "https://x"}}],
    });
    let mut expected = object.clone();
    expected["metadata"] = json!({
        "name": "acme-web",
        "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": "(redacted)", "example.com/applied": "(redacted)",
            "example.com/team": "blue", names::DESIRED_HASH: "1:abc", names::DOMAINS_OF_ROW: r#"{"zone":"a"}"#,
            names::EXTRA: "(redacted)", names::HOST_OR_URL: "(redacted)",
        },
    });
    expected["webhooks"] = json!([{"clientConfig": {"url": "https://x"}}]);
    assert_eq!(cleaned(object), expected);
}

#[test]
fn lynqgates_own_environment_has_no_values() {
    let pod = |value: &str| {
        json!({"kind": "Pod", "spec": {"containers": [{"name": "manager", "args": ["run"], "env": [
            {"name": "HTTPS_PROXY", "value": value}, {"name": "POD", "valueFrom": {"fieldRef": {}}},
        ]}]}})
    };
    assert_eq!(cleaned_workload(pod(SECRET)), pod("(redacted)"));
}

/// A node with this live hash, or that of its content, and these conditions that are True.
fn node(name: &str, live: Option<&str>, conditions: &[&str]) -> Value {
    let spec = json!({"uid": "acme", "templateRef": "web"});
    let hash = content::hash(Some(&spec)).to_string();
    let all = ["Ready", "Degraded", "Held"].map(|type_| {
        let status = match conditions.contains(&type_) {
            true => "True",
            false => "False",
        };
        json!({
            "type": type_, "status": status, "reason": "X", "message": "", "lastTransitionTime": "2026-03-01T12:00:00Z",
        })
    });
    json!({
        "metadata": {"name": name, "namespace": "tenants", "uid": "u", "annotations": {
            names::DESIRED_HASH: hash, names::LIVE_HASH: live.unwrap_or(&hash),
        }},
        "spec": spec,
        "status": {"observedHash": hash, "conditions": all},
    })
}

#[test]
fn the_worst_nodes_come_first_and_all_are_counted() {
    let mut nodes = Nodes::default();
    for i in 0..NODES_MAX {
        nodes.add(node(&format!("ready-{i:03}"), None, &["Ready"]));
    }
    nodes.add(node("held", Some("none"), &["Held"]));
    nodes.add(node("not-ready", None, &[]));
    nodes.add(node("degraded", None, &["Degraded"]));
    let counts = json!({
        "all": NODES_MAX + 3, "inReport": NODES_MAX, "degraded": 1, "notReady": 1, "held": 1, "ready": NODES_MAX,
    });
    assert_eq!(nodes.counts(), counts);
    let kept: Vec<Value> = nodes.worst().collect();
    let names: Vec<&str> = kept
        .iter()
        .map(|node| text_at(node, "/metadata/name"))
        .collect();
    assert_eq!(
        names[..5],
        ["degraded", "not-ready", "held", "ready-000", "ready-001"]
    );
    assert_eq!(names.len(), NODES_MAX);
}

#[test]
fn the_newest_events_are_kept_in_their_order() {
    let event = |second: usize| {
        json!({
            "metadata": {"creationTimestamp": "2026-03-01T12:00:00Z"}, "type": "Warning", "reason": "X",
            "involvedObject": {"kind": "LynqNode", "name": format!("n{second}")}, "message": "it waits",
            "eventTime": format!("2026-03-01T{:02}:{:02}:{:02}.000000Z", second / 3600, second / 60 % 60, second % 60),
        })
    };
    let mut series = event(0);
    series["series"] = json!({"count": 7, "lastObservedTime": "2026-03-02T00:00:00.000000Z"});
    let mut all: Vec<Value> = (1..=EVENTS_MAX).rev().map(event).collect();
    all.push(series);
    let kept = events(&all);
    assert_eq!(kept.len(), EVENTS_MAX);
    assert_eq!(kept[0]["object"], "LynqNode/n2");
    let last = json!({
        "time": "2026-03-02T00:00:00Z", "type": "Warning", "reason": "X", "object": "LynqNode/n0", "message": "it waits",
        "count": 7,
    });
    assert_eq!(kept[EVENTS_MAX - 1], last);
}

#[test]
fn a_revision_has_no_content() {
    let object = json!({
        "metadata": {
            "name": "web-0123456789", "creationTimestamp": "2026-03-01T12:00:00Z", "ownerReferences": [{"name": "web"}],
        },
        "revision": 3, "data": {"secrets": [secret("data")]},
    });
    let expected = json!({
        "form": "web", "name": "web-0123456789", "revision": 3, "created": "2026-03-01T12:00:00Z", "completed": null,
    });
    assert_eq!(revision(&object), expected);
}

#[test]
fn the_file_has_a_name_and_a_size() {
    let now = stamp::parse("2026-03-01T12:00:00Z").expect("a time");
    assert_eq!(
        file_name("tenants", now),
        "lynqgate-report-tenants-20260301T120000Z.yaml"
    );
    for (bytes, expected) in [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1536, "1.5 KiB"),
        (3 << 20, "3.0 MiB"),
    ] {
        assert_eq!(size(bytes), expected);
    }
}
