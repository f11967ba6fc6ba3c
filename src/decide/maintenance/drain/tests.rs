//! Which pods are evicted, and what is reported about the others.

use serde_json::json;

use super::*;

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

/// A pod of a ReplicaSet, changed by a merge patch.
fn pod(name: &str, patch: Value) -> Pod {
    let mut object = json!({
        "metadata": {
            "namespace": "shop", "name": name, "uid": name, "labels": {"app": "web"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "web-1", "controller": true}],
        },
        "spec": {"priority": 0},
        "status": {"phase": "Running"},
    });
    json_patch::merge(&mut object, &patch);
    Pod::of(&object)
}

fn owned_by(kind: &str) -> Value {
    json!({"metadata": {"ownerReferences": [{"kind": kind, "name": "x", "controller": true}]}})
}

fn told(plan: &Plan) -> String {
    let names = |pods: &[Pod]| {
        pods.iter()
            .map(|pod| pod.name.clone())
            .collect::<Vec<_>>()
            .join(" ")
    };
    let kept: Vec<String> = plan
        .kept
        .iter()
        .map(|(pod, why)| format!("{} {why:?}", pod.name))
        .collect();
    format!(
        "evict [{}] leaving [{}] kept [{}] staying {} overdue {}",
        names(&plan.evict),
        names(&plan.leaving),
        kept.join(", "),
        plan.staying,
        plan.overdue
    )
}

#[test]
fn each_pod_is_evicted_or_has_a_reason_not_to_be() {
    const NONE: Allowed = Allowed {
        empty_dir: false,
        unmanaged: false,
    };
    const ALL: Allowed = Allowed {
        empty_dir: true,
        unmanaged: true,
    };
    let empty_dir = json!({"spec": {"volumes": [{"name": "a", "configMap": {}}, {"name": "b", "emptyDir": {}}]}});
    let unmanaged = json!({"metadata": {"ownerReferences": null}});
    let not_controlled = json!({"metadata": {"ownerReferences": [{"kind": "Thing", "name": "x"}]}});
    let mirror = json!({"metadata": {"annotations": {MIRROR: "hash"}, "ownerReferences": [{"kind": "Node", "controller": true}]}});
    let ends = |at: &str| json!({"metadata": {"deletionTimestamp": at}});
    let finished = |patch: &Value| {
        let mut patch = patch.clone();
        patch["status"] = json!({"phase": "Succeeded"});
        patch
    };
    for (name, pods, allowed, unreachable, expected) in [
        (
            "a plain pod",
            vec![json!({})],
            NONE,
            false,
            "evict [0] leaving [] kept [] staying 0 overdue 0",
        ),
        (
            "of a DaemonSet",
            vec![owned_by("DaemonSet")],
            ALL,
            false,
            "evict [] leaving [] kept [] staying 1 overdue 0",
        ),
        (
            "a finished one of a DaemonSet",
            vec![finished(&owned_by("DaemonSet"))],
            NONE,
            false,
            "evict [0] leaving [] kept [] staying 0 overdue 0",
        ),
        (
            "a mirror pod",
            vec![mirror],
            ALL,
            false,
            "evict [] leaving [] kept [] staying 1 overdue 0",
        ),
        (
            "with an emptyDir",
            vec![empty_dir.clone()],
            NONE,
            false,
            "evict [] leaving [] kept [0 EmptyDir] staying 0 overdue 0",
        ),
        (
            "with an emptyDir, allowed",
            vec![empty_dir.clone()],
            ALL,
            false,
            "evict [0] leaving [] kept [] staying 0 overdue 0",
        ),
        (
            "with an emptyDir, finished",
            vec![finished(&empty_dir)],
            NONE,
            false,
            "evict [0] leaving [] kept [] staying 0 overdue 0",
        ),
        (
            "without a controller",
            vec![unmanaged.clone()],
            NONE,
            false,
            "evict [] leaving [] kept [0 Unmanaged] staying 0 overdue 0",
        ),
        (
            "with an owner that is no controller",
            vec![not_controlled],
            NONE,
            false,
            "evict [] leaving [] kept [0 Unmanaged] staying 0 overdue 0",
        ),
        (
            "without a controller, allowed",
            vec![unmanaged.clone()],
            ALL,
            false,
            "evict [0] leaving [] kept [] staying 0 overdue 0",
        ),
        (
            "without a controller, finished",
            vec![finished(&unmanaged)],
            NONE,
            false,
            "evict [0] leaving [] kept [] staying 0 overdue 0",
        ),
        (
            "without a controller, leaving",
            vec![ends("2026-01-01T00:00:30Z")],
            NONE,
            false,
            "evict [] leaving [0] kept [] staying 0 overdue 0",
        ),
        (
            "overdue, where the kubelet reports",
            vec![ends("2025-12-31T23:00:00Z")],
            NONE,
            false,
            "evict [] leaving [0] kept [] staying 0 overdue 0",
        ),
        (
            "overdue, where it does not",
            vec![ends("2025-12-31T23:58:59Z")],
            NONE,
            true,
            "evict [] leaving [] kept [] staying 0 overdue 1",
        ),
        (
            "nearly overdue",
            vec![ends("2025-12-31T23:59:00Z")],
            NONE,
            true,
            "evict [] leaving [0] kept [] staying 0 overdue 0",
        ),
        (
            "by priority",
            vec![
                json!({"spec": {"priority": 2_000_000_000}}),
                json!({"spec": {"priority": -5}}),
                json!({}),
                json!({"metadata": {"namespace": "a"}}),
            ],
            NONE,
            false,
            "evict [1 3 2 0] leaving [] kept [] staying 0 overdue 0",
        ),
    ] {
        let pods = pods
            .into_iter()
            .enumerate()
            .map(|(i, patch)| pod(&i.to_string(), patch));
        let plan = plan(pods.collect(), allowed, unreachable, now());
        assert_eq!(told(&plan), expected, "{name}");
    }
}

fn budget(selector: Value) -> Budget {
    Budget::of(&json!({
        "metadata": {"namespace": "shop", "name": "web"},
        "spec": {"selector": selector},
        "status": {"currentHealthy": 2, "desiredHealthy": 2, "disruptionsAllowed": 0},
    }))
}

#[test]
fn a_budget_selects_as_the_api_server_does() {
    for (selector, selects) in [
        (json!(null), false),
        (json!({}), true),
        (json!({"matchLabels": {"app": "web"}}), true),
        (json!({"matchLabels": {"app": "web", "tier": "x"}}), false),
        (
            json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["db", "web"]}]}),
            true,
        ),
        (
            json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}),
            false,
        ),
        (
            json!({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["x"]}]}),
            true,
        ),
        (
            json!({"matchExpressions": [{"key": "app", "operator": "Exists"}, {"key": "tier", "operator": "DoesNotExist"}]}),
            true,
        ),
        (
            json!({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]}),
            false,
        ),
    ] {
        assert_eq!(
            budget(selector.clone()).selects(&pod("a", json!({}))),
            selects,
            "{selector}"
        );
    }
    let elsewhere = pod("a", json!({"metadata": {"namespace": "other"}}));
    assert!(!budget(json!({})).selects(&elsewhere));
}

#[test]
fn the_progress_names_what_blocks() {
    let refused = || EvictionOutcome::Refused(Some(budget(json!({}))));
    let unmanaged = pod("bare", json!({"metadata": {"ownerReferences": null}}));
    let nothing = Plan::default();
    let keeps = Plan {
        kept: vec![(unmanaged, Kept::Unmanaged)],
        staying: 2,
        ..Plan::default()
    };
    let leaving = Plan {
        leaving: vec![pod("going", json!({}))],
        ..Plan::default()
    };
    let overdue = Plan {
        overdue: 1,
        ..Plan::default()
    };
    let outcomes = |all: &[EvictionOutcome]| {
        let named = (0..)
            .zip(all)
            .map(|(i, outcome)| (pod(&format!("web-{i}"), json!({})), outcome.clone()));
        named.collect::<Vec<_>>()
    };
    let budget_says = "PodDisruptionBudget shop/web: 2 healthy of 2 needed (disruptionsAllowed 0)";
    for (name, plan, done, stage, text, again) in [
        ("nothing left", &nothing, vec![], Stage::Drained, "drained".to_owned(), None),
        ("gone meanwhile", &nothing, vec![EvictionOutcome::Gone], Stage::Drained, "drained".to_owned(), None),
        ("evicted", &leaving, vec![EvictionOutcome::Evicted], Stage::Draining, "draining: 2 pods left".to_owned(), Some(5)),
        ("a terminating namespace", &nothing, vec![EvictionOutcome::Terminating], Stage::Draining, "draining: 1 pod left".to_owned(), Some(5)),
        (
            "a budget",
            &nothing,
            vec![refused(), refused(), refused(), refused(), EvictionOutcome::Evicted],
            Stage::Blocked,
            format!("blocked: 5 pods left; shop/web-0, shop/web-1, shop/web-2 and 1 more: {budget_says}"),
            Some(5),
        ),
        (
            "no flag",
            &keeps,
            vec![],
            Stage::Blocked,
            "blocked: 1 pod left; shop/bare: it has no controller. Delete it, or start lynqgate with --drain-unmanaged-pods; \
             not evicted: 2 pods of DaemonSets, or static"
                .to_owned(),
            Some(30),
        ),
        (
            "unreachable",
            &overdue,
            vec![],
            Stage::Drained,
            "drained: not waiting for 1 pod: the Kubernetes node does not report".to_owned(),
            None,
        ),
    ] {
        let progress = progress(plan, &outcomes(&done));
        let found = (progress.stage, progress.text, progress.again.map(|again| again.as_secs()));
        assert_eq!(Stage::of(&found.1), Some(stage), "{name}");
        assert_eq!(found, (stage, text, again), "{name}");
    }
}
