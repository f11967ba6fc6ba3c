//! How a LynqNode is read, case by case.

use serde_json::json;

use super::*;

/// The slot as the node itself records it, in case the ledger is lost.
#[test]
fn a_slot_is_over_by_what_it_was_taken_for() {
    let spec = json!({"uid": "acme", "templateRef": "web"});
    let live = content::hash(Some(&spec)).to_string();
    let of = |live_hash: &str, marker: &str, ungated: &str, status: Value| {
        let annotations = json!({
            names::DESIRED_HASH: live, names::LIVE_HASH: live_hash,
            names::RELEASE: format!("{live}/90{marker}"), names::UNGATED: format!("{live}/{ungated}"),
        });
        let object = json!({"metadata": {"uid": "u", "annotations": annotations}, "spec": spec, "status": status});
        let flight = NodeDigest::of(&object, None).flight().unwrap();
        (flight.is_live, flight.landed)
    };
    let node = |marker: &str, ungated: &str, status: Value| of(&live, marker, ungated, status);
    let landed = || json!({"landedRelease": "90"});
    let freed = || json!({"freedRelease": "90"});
    for (name, flight, expected) in [
        ("on its way", node("", "", json!({})), (true, false)),
        ("rolled out", node("", "", landed()), (true, true)),
        (
            "rolled out before",
            node("", "", json!({"landedRelease": "80"})),
            (true, false),
        ),
        (
            "watched, and rolled out",
            node("/watched", "", landed()),
            (true, false),
        ),
        (
            "watched, and let go",
            node("/watched", "", freed()),
            (true, true),
        ),
        (
            "not watched, and a word of another slot",
            node("", "", freed()),
            (true, false),
        ),
        ("ungated before", node("", "80", json!({})), (true, false)),
        ("ungated since", node("", "95", json!({})), (false, false)),
        ("unknown", of("", "", "", json!({})), (true, false)),
        ("never live", of("none", "", "", json!({})), (false, false)),
    ] {
        assert_eq!(flight, expected, "{name}");
    }
}

#[test]
fn what_waits_did_not_fail() {
    let of = |ready: &str, reason: &str, failed: i32| {
        let condition = json!({
            "type": "Ready", "status": ready, "reason": reason, "message": "", "lastTransitionTime": "2026-03-01T12:00:00Z",
        });
        let status = json!({"conditions": [condition], "failedResources": failed});
        NodeDigest::of(&json!({"metadata": {"uid": "u"}, "status": status}), None).has_failed()
    };
    for (ready, reason, failed, expected) in [
        ("True", "Reconciled", 0, false),
        ("False", "NotReleased", 0, false),
        ("False", "NotAllResourcesReady", 0, false),
        ("False", "Deleting", 0, false),
        ("False", "ResourcesFailed", 1, true),
        ("False", "DependencyError", 0, true),
        ("False", "LookFailed", 0, true),
    ] {
        assert_eq!(of(ready, reason, failed), expected, "{reason}");
    }
    let new = NodeDigest::of(&json!({"metadata": {"uid": "u"}}), None);
    assert!(!new.has_failed(), "nobody has looked at it");
}

/// An upgrade of the operator may change the hashes, but must not change any state.
#[test]
fn hashes_of_another_version_are_read_as_the_gate_rebases_them() {
    let content = |image: &str| json!([{"id": "app", "spec": {"apiVersion": "v1", "kind": "Pod", "image": image}}]);
    let hash =
        |image: &str| content::hash(Some(&json!({"deployments": content(image)}))).to_string();
    let node = |desired: &str, live: &str, released: Option<&str>| {
        let mut node = json!({
            "metadata": {"uid": "u", "annotations": {names::DESIRED_HASH: desired, names::LIVE_HASH: live}},
            "spec": {"uid": "acme", "templateRef": "web", "deployments": content("b")},
        });
        if let Some(image) = released {
            node["spec"]["released"] = json!({"deployments": content(image)});
        }
        node
    };
    let image = |node: &Value, digest: &NodeDigest| {
        let content = live_content(node, &digest.live)?;
        Some(content.deployments[0].spec["image"].clone())
    };
    for (name, node, same) in [
        (
            "settled",
            node("7:bb", "7:bb", None),
            node(&hash("b"), &hash("b"), None),
        ),
        (
            "held",
            node("7:bb", "7:aa", Some("a")),
            node(&hash("b"), &hash("a"), Some("a")),
        ),
        (
            "held at creation",
            node("7:bb", "none", None),
            node(&hash("b"), "none", None),
        ),
        (
            "unknown",
            node("7:bb", "unknown", None),
            node(&hash("b"), "unknown", None),
        ),
        (
            "released was pruned",
            node("7:bb", "7:aa", None),
            node(&hash("b"), "unknown", None),
        ),
    ] {
        let (found, expected) = (NodeDigest::of(&node, None), NodeDigest::of(&same, None));
        assert_eq!(
            (&found.desired, &found.live),
            (&expected.desired, &expected.live),
            "{name}"
        );
        assert_eq!(
            (found.held(), found.past_gate),
            (expected.held(), false),
            "{name}"
        );
        assert_eq!(image(&node, &found), image(&same, &expected), "{name}");
        assert_eq!(found.facts, expected.facts, "{name}");
    }
}

/// Content that bypassed the gate counts as such until it is corrected.
#[test]
fn a_claim_that_changes_is_checked_anew() {
    let content = json!({"uid": "acme", "deployments": [{"id": "app", "spec": {"kind": "Pod"}}]});
    let node = |desired: &str, previous: Option<&NodeDigest>| {
        let annotations = json!({names::DESIRED_HASH: desired, names::LIVE_HASH: "none"});
        let metadata = json!({"uid": "u", "generation": 3, "annotations": annotations});
        NodeDigest::of(&json!({"metadata": metadata, "spec": content}), previous)
    };
    let good = node(content::hash(Some(&content)).as_str(), None);
    let other = content::hash(Some(&json!({}))).to_string();
    let forged = node(&other, Some(&good));
    assert!(!good.past_gate && forged.past_gate);
    assert!(node(&other, Some(&forged)).past_gate);
}

/// A release removes all traces of the hold: while some are left, content that claims to be live was not released.
#[test]
fn held_content_that_is_called_live_is_found() {
    let content =
        json!({"uid": "acme", "configMaps": [{"id": "app", "spec": {"kind": "ConfigMap"}}]});
    let hash = content::hash(Some(&content)).to_string();
    let node = |since: Value, released: Value| {
        let annotations =
            json!({names::DESIRED_HASH: hash, names::LIVE_HASH: hash, names::HELD_SINCE: since});
        let mut object =
            json!({"metadata": {"uid": "u", "annotations": annotations}, "spec": content});
        object["spec"]["released"] = released;
        let node = NodeDigest::of(&object, None);
        (node.live != Live::Unknown, node.past_gate)
    };
    assert_eq!(node(Value::Null, Value::Null), (true, false));
    let since = json!("2026-03-01T12:00:00Z");
    assert_eq!(node(since.clone(), Value::Null), (false, true));
    assert_eq!(node(Value::Null, json!({})), (false, true));
    let live = content::of_spec(Some(&content));
    assert_eq!(
        node(since, live),
        (true, false),
        "written back past the gate"
    );
}

/// There is no release without a hash. Lynq's nodes have none, but have not bypassed the gate.
#[test]
fn a_lost_hash_is_found() {
    let node = |annotations: Value| {
        let object =
            json!({"metadata": {"uid": "u", "annotations": annotations}, "spec": {"uid": "acme"}});
        NodeDigest::of(&object, None).past_gate
    };
    assert!(node(
        json!({names::RENDERED_HASH: "1:aa", names::LIVE_HASH: "none"})
    ));
    assert!(!node(json!({names::TEMPLATE_GENERATION: "1"})));
}

/// C1, then C2, then C1 again: what was said of the first time says nothing of the second.
#[test]
fn an_older_roll_out_of_the_same_content_is_not_seen() {
    let spec = json!({"uid": "acme", "templateRef": "web"});
    let live = content::hash(Some(&spec)).to_string();
    let seen = |of: &str| {
        let annotations = json!({
            names::DESIRED_HASH: live, names::LIVE_HASH: live, names::START_TIME: "2026-03-01T12:00:00.000Z",
        });
        let status = json!({"observedHash": live, "observedStartTime": of});
        let object = json!({"metadata": {"uid": "u", "annotations": annotations}, "spec": spec, "status": status});
        NodeDigest::of(&object, None).is_seen()
    };
    assert!(seen("2026-03-01T12:00:00.000Z"));
    assert!(!seen("2026-03-01T11:00:00.000Z"));
}

/// Lynq leaves the annotations that it does not know.
#[test]
fn what_lynq_wrote_since_is_not_taken_for_what_a_hub_rendered() {
    let spec = |plan: &str| {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"plan": plan}});
        json!({"uid": "acme", "templateRef": "web", "configMaps": [{"id": "map", "spec": map}]})
    };
    let rendered = content::hash(Some(&spec("pro"))).to_string();
    let ours = format!("{rendered}/aa");
    for (name, plan, lynqs, is_rendered) in [
        ("as a hub left it", "pro", None, true),
        ("edited by hand", "free", None, true),
        ("not taken over yet", "pro", Some(names::EXTRA), true),
        ("Lynq is back", "{{ .plan }}", Some(names::EXTRA), false),
        (
            "without more columns",
            "{{ .plan }}",
            Some(names::ACTIVATE),
            false,
        ),
    ] {
        let mut annotations = json!({
            names::RENDERED_HASH: ours, names::DESIRED_HASH: rendered, names::LIVE_HASH: rendered,
        });
        if let Some(lynqs) = lynqs {
            annotations[lynqs] = json!("1");
        }
        let node =
            json!({"metadata": {"uid": "u", "annotations": annotations}, "spec": spec(plan)});
        let digest = NodeDigest::of(&node, None);
        assert_eq!(digest.rendered_hash.is_some(), is_rendered, "{name}");
        let unrendered = digest.for_rollout(None).unrendered;
        assert_eq!(unrendered, !is_rendered, "{name}: no slot lets it go");
    }
}
