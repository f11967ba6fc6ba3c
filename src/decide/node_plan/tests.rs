//! Cases for what the node controller does next, and for the status that follows.

use std::sync::Arc;

use super::*;
use crate::api::conditions::is_true;
use crate::api::node::NodeStatus;
use crate::decide::child::{Kind, NodeKey};
use crate::decide::readiness::Reason;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

/// A resource that is named after its id and depends on `depends`.
fn facts(id: &str, depends: &[&str]) -> Facts {
    Facts {
        id: id.into(),
        kind: Kind {
            api_version: "v1".into(),
            kind: "Thing".into(),
        },
        name: id.into(),
        namespace: "tenants".into(),
        hash: format!("hash of {id}"),
        depend_ids: depends.iter().map(ToString::to_string).collect(),
        skip_on_dependency_failure: true,
        wait_for_ready: true,
        timeout_seconds: 300,
        once: false,
        retain: false,
        render_error: None,
    }
}

fn node(facts: Vec<Facts>) -> NodeDigest {
    let key = NodeKey {
        namespace: "tenants".into(),
        name: "acme-web".into(),
    };
    NodeDigest {
        key,
        uid: "node-uid".into(),
        resource_version: "9".into(),
        generation: 3,
        deleting: false,
        has_finalizer: true,
        hub: "tenants".into(),
        row_uid: "acme".into(),
        form: "web".into(),
        desired: "new".into(),
        live: Live::Hash("new".into()),
        start: Some("2026-03-01T12:00:00.000Z".into()),
        held_since: None,
        rendered_hash: None,
        first_seen: None,
        group_of_row: None,
        labels: Arc::default(),
        past_gate: false,
        status: Arc::new(NodeStatus::default()),
        facts: Arc::new(facts),
        content: None,
    }
}

/// The object of a resource, applied and ready.
fn child(facts: &Facts, owner: &NodeDigest) -> Child {
    Child {
        uid: format!("uid of {}", facts.id),
        resource_version: "5".into(),
        owner: Owner::Node {
            key: owner.key.clone(),
            uid: Some(owner.uid.clone()),
        },
        applied_hash: Some(facts.hash.clone()),
        fields_hash: None,
        once: false,
        orphaned: false,
        retain: false,
        deleting: false,
        readiness: Readiness::Ready,
    }
}

fn waiting() -> Readiness {
    Readiness::Waiting(Reason::Terminating { name: "x".into() })
}

fn key(name: &str) -> ObjectKey {
    ObjectKey {
        kind: Kind {
            api_version: "v1".into(),
            kind: "Thing".into(),
        },
        namespace: "tenants".into(),
        name: name.into(),
    }
}

/// Plans for a node with these resources, and these objects of theirs (in the same order).
fn planned(node: &NodeDigest, children: &[Option<Child>]) -> NodePlan {
    plan(node, &seen(node, children), &BTreeMap::new(), at(0))
}

fn seen<'a>(node: &'a NodeDigest, children: &'a [Option<Child>]) -> Vec<Seen<'a>> {
    node.facts
        .iter()
        .zip(children)
        .map(|(facts, child)| Seen {
            facts,
            unavailable: None,
            child: child.as_ref(),
            failure: None,
            drifted: false,
            waiting_since: Some(at(-10)),
        })
        .collect()
}

#[test]
fn what_depends_on_nothing_goes_first_and_side_by_side() {
    let node = node(vec![
        facts("app", &["a", "b"]),
        facts("a", &[]),
        facts("b", &[]),
    ]);
    assert_eq!(planned(&node, &[None, None, None]).apply, [1, 2]);
    let (a, b) = (child(&node.facts[1], &node), child(&node.facts[2], &node));
    let b_waits = Child {
        readiness: waiting(),
        ..b.clone()
    };
    let blocked = planned(&node, &[None, Some(a.clone()), Some(b_waits)]);
    assert!(blocked.apply.is_empty());
    assert_eq!(blocked.outcomes[0].message, "waits for b");
    assert_eq!(planned(&node, &[None, Some(a), Some(b)]).apply, [0]);
}

#[test]
fn only_what_changed_is_applied() {
    let node = node(vec![facts("a", &[]), facts("b", &[])]);
    let current = child(&node.facts[0], &node);
    let old = Child {
        applied_hash: Some("another".into()),
        ..child(&node.facts[1], &node)
    };
    assert_eq!(
        planned(&node, &[Some(current.clone()), Some(old)]).apply,
        [1]
    );
    let unchanged = [Some(current), Some(child(&node.facts[1], &node))];
    assert!(planned(&node, &unchanged).apply.is_empty());
    let mut drifted = seen(&node, &unchanged);
    drifted[0].drifted = true;
    assert_eq!(plan(&node, &drifted, &BTreeMap::new(), at(0)).apply, [0]);
}

#[test]
fn once_is_created_and_then_left_alone() {
    let mut once = facts("a", &[]);
    once.once = true;
    let node = node(vec![once]);
    assert_eq!(planned(&node, &[None]).apply, [0]);
    let made = Child {
        once: true,
        applied_hash: Some("another".into()),
        ..child(&node.facts[0], &node)
    };
    assert!(planned(&node, &[Some(made)]).apply.is_empty());
}

#[test]
fn somebody_elses_object_is_a_conflict_and_not_written() {
    let node = node(vec![facts("a", &[])]);
    let another = NodeKey {
        namespace: "tenants".into(),
        name: "other-web".into(),
    };
    for (name, owner, said) in [
        (
            "another node's",
            Owner::Node {
                key: another,
                uid: None,
            },
            "it belongs to lynqnode tenants/other-web; give one of them another name",
        ),
        (
            "an earlier node's of this name",
            Owner::Node {
                key: node.key.clone(),
                uid: Some("older".into()),
            },
            "belongs to lynqnode tenants/acme-web",
        ),
        (
            "another controller's",
            Owner::Other("Deployment d".into()),
            "belongs to Deployment d",
        ),
    ] {
        let child = Child {
            owner,
            ..child(&node.facts[0], &node)
        };
        let plan = planned(&node, &[Some(child)]);
        assert!(plan.apply.is_empty() && plan.outcomes[0].conflict, "{name}");
        let message = &plan.outcomes[0].message;
        assert!(message.contains(said), "{name}: {message}");
    }
}

#[test]
fn a_failure_is_not_tried_again_before_its_time_and_skips_what_depends_on_it() {
    let node = node(vec![facts("a", &[]), facts("b", &["a"])]);
    let failure = Failure {
        kind: FailureKind::Refused,
        message: "no".into(),
        retry_at: at(5),
    };
    let children = [None, None];
    let mut all = seen(&node, &children);
    all[0].failure = Some(&failure);
    let plan_now = plan(&node, &all, &BTreeMap::new(), at(0));
    assert_eq!((plan_now.apply, plan_now.wake_at), (vec![], Some(at(5))));
    assert_eq!(plan_now.outcomes[1].step, StepKind::Skipped);
    assert_eq!(plan_now.outcomes[1].message, "skipped because a failed");
    assert_eq!(plan(&node, &all, &BTreeMap::new(), at(5)).apply, [0]);
}

#[test]
fn a_kind_that_is_not_installed_is_said_and_looked_for_again() {
    let node = node(vec![facts("a", &[])]);
    let children = [None];
    let mut all = seen(&node, &children);
    let missing = missing_kind(&all[0].facts.kind);
    all[0].unavailable = Some(&missing);
    let plan = plan(&node, &all, &BTreeMap::new(), at(0));
    assert_eq!((plan.apply.len(), plan.wake_at), (0, Some(at(30))));
    assert_eq!(
        plan.outcomes[0].message,
        "the cluster has no kind Thing in v1; install its CustomResourceDefinition, or correct apiVersion and kind"
    );
}

#[test]
fn a_resource_that_waits_too_long_has_failed() {
    let node = node(vec![facts("a", &[])]);
    let slow = [Some(Child {
        readiness: waiting(),
        ..child(&node.facts[0], &node)
    })];
    let state = |second: i64, since: Option<Timestamp>| {
        let mut all = seen(&node, &slow);
        all[0].waiting_since = since;
        let plan = plan(&node, &all, &BTreeMap::new(), at(second));
        (plan.outcomes[0].state, plan.wake_at)
    };
    assert_eq!(state(299, Some(at(0))), (State::Waiting, Some(at(300))));
    assert_eq!(state(300, Some(at(0))), (State::Failed, None));
    assert_eq!(
        state(9_000, None),
        (State::Waiting, None),
        "it was ready before"
    );
}

#[test]
fn without_known_live_content_nothing_is_touched() {
    for live in [Live::None, Live::Unknown] {
        let mut node = node(vec![]);
        node.live = live;
        let others = BTreeMap::from([(key("old"), child(&facts("old", &[]), &node))]);
        assert_eq!(plan(&node, &[], &others, at(0)), NodePlan::default());
    }
}

#[test]
fn what_no_resource_names_any_more_goes_when_its_replacement_is_there() {
    let node_with = node(vec![facts("a", &[])]);
    let left_over = child(&facts("old", &[]), &node_with);
    let retained = Child {
        retain: true,
        ..left_over.clone()
    };
    let foreign = Child {
        owner: Owner::Nobody,
        ..left_over.clone()
    };
    let others = BTreeMap::from([
        (key("old"), left_over),
        (key("retained"), retained),
        (key("foreign"), foreign),
    ]);
    let take_down = |node: &NodeDigest, children: &[Option<Child>]| {
        plan(node, &seen(node, children), &others, at(0)).take_down
    };
    let ready = [Some(child(&node_with.facts[0], &node_with))];
    let both = [
        (key("old"), TakeDown::Delete),
        (key("retained"), TakeDown::Orphan),
    ];
    assert_eq!(take_down(&node_with, &ready), both);
    assert_eq!(take_down(&node_with, &[None]), [], "a is not applied yet");
    let mut unrendered = facts("a", &[]);
    unrendered.render_error = Some("no".into());
    let unrendered = node(vec![unrendered]);
    assert_eq!(take_down(&unrendered, &[None]), [], "old may be a's object");
}

#[test]
fn a_terminating_node_is_taken_down_in_reverse_order() {
    let node = node(vec![facts("db", &[]), facts("app", &["db"])]);
    let own_key = |facts: &Facts| Some(key(&facts.name));
    let (db, app) = (child(&node.facts[0], &node), child(&node.facts[1], &node));
    let foreign = Child {
        owner: Owner::Other("Deployment d".into()),
        ..db.clone()
    };
    let both = BTreeMap::from([(key("db"), db.clone()), (key("app"), app.clone())]);
    let first = plan_deletion(&node, &both, own_key);
    assert_eq!(first.take_down, [(key("app"), TakeDown::Delete)]);
    let going = Child {
        deleting: true,
        ..app
    };
    let both = BTreeMap::from([(key("db"), db.clone()), (key("app"), going)]);
    let second = plan_deletion(&node, &both, own_key);
    assert_eq!((second.take_down.len(), second.pending), (0, true));
    let last = BTreeMap::from([(key("db"), db)]);
    let third = plan_deletion(&node, &last, own_key);
    assert_eq!(third.take_down, [(key("db"), TakeDown::Delete)]);
    let done = plan_deletion(&node, &BTreeMap::from([(key("db"), foreign)]), own_key);
    assert_eq!(done, Deletion::default(), "somebody else's stays");
}

#[test]
fn a_broken_graph_touches_nothing_and_is_said() {
    let node = node(vec![facts("a", &["b"]), facts("b", &["a"])]);
    let plan = planned(&node, &[None, None]);
    assert!(plan.apply.is_empty() && plan.graph_error.is_some());
    let status = status::of_node(&node, &seen(&node, &[None, None]), &plan, None, at(0));
    let ready = status
        .conditions
        .iter()
        .find(|c| c.type_ == "Ready")
        .unwrap();
    assert_eq!(ready.reason, "DependencyError");
    assert!(
        ready.message.contains("circular dependency"),
        "{}",
        ready.message
    );
}

#[test]
fn the_status_says_what_is_ready_and_why_the_rest_is_not() {
    let node = node(vec![facts("a", &[]), facts("b", &["a"])]);
    let status_of = |children: &[Option<Child>]| {
        let all = seen(&node, children);
        let plan = plan(&node, &all, &BTreeMap::new(), at(0));
        status::of_node(&node, &all, &plan, None, at(0))
    };
    let (a, b) = (child(&node.facts[0], &node), child(&node.facts[1], &node));
    let done = status_of(&[Some(a.clone()), Some(b.clone())]);
    assert_eq!((done.ready_resources, done.desired_resources), (2, 2));
    assert!(is_true(&done.conditions, "Ready") && is_true(&done.conditions, "Rolled"));
    assert_eq!(
        done.applied_resources,
        ["Thing/tenants/a@a", "Thing/tenants/b@b"]
    );
    assert_eq!(done.observed_hash.as_deref(), Some("new"));

    let waits = Child {
        readiness: waiting(),
        ..a
    };
    let working = status_of(&[Some(waits), Some(b)]);
    assert!(is_true(&working.conditions, "Progressing"));
    assert!(!is_true(&working.conditions, "Rolled") && !is_true(&working.conditions, "Degraded"));
}

/// Else the status would be written again and again.
#[test]
fn a_status_that_says_the_same_is_the_same() {
    for live in [Live::None, Live::Unknown, Live::Hash("new".into())] {
        let mut node = node(vec![facts("a", &[])]);
        node.live = live.clone();
        let children = [Some(child(&node.facts[0], &node))];
        let status_at = |node: &NodeDigest, second: i64| {
            let all = seen(node, &children);
            let plan = plan(node, &all, &BTreeMap::new(), at(second));
            status::of_node(node, &all, &plan, None, at(second))
        };
        let first = status_at(&node, 0);
        node.status = Arc::new(first.clone());
        assert_eq!(status_at(&node, 60), first, "{live:?}");
    }
}

#[test]
fn a_resource_that_does_not_render_does_not_make_the_node_unsettled() {
    let mut broken = facts("a", &[]);
    broken.render_error = Some("map has no entry for key \"x\"".into());
    let node = node(vec![broken, facts("b", &[])]);
    let children = [None, Some(child(&node.facts[1], &node))];
    let all = seen(&node, &children);
    let plan = plan(&node, &all, &BTreeMap::new(), at(0));
    let status = status::of_node(&node, &all, &plan, None, at(0));
    assert!(is_true(&status.conditions, "Rolled") && !is_true(&status.conditions, "Ready"));
    assert!(is_true(&status.conditions, "Degraded"));
    assert_eq!(status.failed_resources, 1);
}

#[test]
fn content_that_is_not_what_the_hub_rendered_is_said_so() {
    for (rendered, said) in [
        (None, None),
        (Some("new/of the row"), Some("False")),
        (Some("other/of the row"), Some("True")),
    ] {
        let mut node = node(vec![]);
        node.rendered_hash = rendered.map(str::to_owned);
        let plan = plan(&node, &[], &BTreeMap::new(), at(0));
        let status = status::of_node(&node, &[], &plan, None, at(0));
        let edited = status.conditions.iter().find(|c| c.type_ == "Edited");
        assert_eq!(edited.map(|c| c.status.as_str()), said, "{rendered:?}");
    }
}

#[test]
fn a_status_is_written_when_it_is_worth_it() {
    let mut node = node(vec![facts("a", &[])]);
    let status_of = |node: &NodeDigest, readiness: Readiness, hold: Option<status::HoldReason>| {
        let object = Child {
            readiness,
            ..child(&node.facts[0], node)
        };
        let children = [Some(object)];
        let all = seen(node, &children);
        let plan = plan(node, &all, &BTreeMap::new(), at(0));
        status::of_node(node, &all, &plan, hold, at(0))
    };
    let waits = |name: &str| Readiness::Waiting(Reason::Terminating { name: name.into() });
    let ready = status_of(&node, Readiness::Ready, None);
    node.status = Arc::new(ready.clone());
    let (one, other) = (
        status_of(&node, waits("x"), None),
        status_of(&node, waits("y"), None),
    );
    node.desired = "newer".into();
    node.generation = 4;
    let held = status_of(&node, Readiness::Ready, None);
    let explained = status_of(&node, Readiness::Ready, Some(("WindowFull", "waits")));
    let broken = status_of(&node, waits("x"), None);
    let never = NodeStatus::default();
    for (name, old, new, written, hold_at, due) in [
        ("the same", &ready, &ready, None, None, None),
        ("another state", &ready, &one, Some(4), None, Some(5)),
        ("other words", &one, &other, Some(4), None, Some(14)),
        (
            "other words, later",
            &one,
            &other,
            Some(-20),
            None,
            Some(-10),
        ),
        ("after a restart", &one, &other, None, None, Some(5)),
        (
            "a hold without reason",
            &ready,
            &held,
            Some(4),
            Some(6),
            Some(6),
        ),
        (
            "a new node without reason",
            &never,
            &held,
            None,
            Some(6),
            Some(6),
        ),
        ("the reason", &ready, &explained, Some(4), None, Some(5)),
        (
            "a hold and another state",
            &ready,
            &broken,
            Some(4),
            Some(6),
            Some(5),
        ),
        (
            "a hold that is worth it by now",
            &ready,
            &held,
            Some(4),
            Some(5),
            Some(5),
        ),
    ] {
        let found = status::due(old, new, written.map(at), hold_at.map(at), at(5));
        assert_eq!(found, due.map(at), "{name}");
    }
}
