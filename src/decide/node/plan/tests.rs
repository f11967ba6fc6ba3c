//! The next steps of the node controller, by cases.

mod edited;
mod jobs;
mod ownership;
mod progress;
mod record;
mod status;
mod take_down;

use std::sync::Arc;

use super::*;
use crate::api::conditions::is_true;
use crate::api::node::NodeStatus;
use crate::api::resource::ConflictPolicy;
use crate::decide::child::{Kind, NodeKey, Owner};
use crate::decide::node::digest::Declared;
use crate::decide::readiness::Reason;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

/// A resource that is named after its id and depends on `depends`.
fn facts(id: &str, depends: &[&str]) -> Facts {
    let declared = Declared {
        id: id.into(),
        kind: Kind {
            api_version: "v1".into(),
            kind: "Thing".into(),
        }
        .into(),
        depend_ids: depends.iter().map(ToString::to_string).collect(),
        namespace_from: String::new(),
        skip_on_dependency_failure: true,
        wait_for_ready: true,
        timeout_seconds: 300,
        min_delay: None,
        once: false,
        retain: false,
        conflict_policy: ConflictPolicy::Stuck,
        render_error: None,
    };
    Facts {
        name: id.into(),
        namespace: "tenants".into(),
        hash: format!("hash of {id}").into(),
        declared: Arc::new(declared),
    }
}

/// The resource with a changed declaration.
fn declared(facts: Facts, change: impl FnOnce(&mut Declared)) -> Facts {
    let mut declared = (*facts.declared).clone();
    change(&mut declared);
    Facts {
        declared: Arc::new(declared),
        ..facts
    }
}

fn node(facts: Vec<Facts>) -> NodeDigest {
    let key = NodeKey::new("tenants", "acme-web");
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
        edited_by: None,
        edited_at: None,
        discard_edit: false,
        bears_lynqs_row: false,
        written_from: None,
        first_seen: None,
        group_of_row: None,
        domains_of_row: Arc::default(),
        forced: false,
        labels: Arc::default(),
        release: None,
        live_by_slot: false,
        past_gate: false,
        status: Arc::new(NodeStatus::default()),
        facts: Arc::new(facts),
        content: None,
    }
}

/// The status of a node whose one object has this readiness.
fn status_of(
    node: &NodeDigest,
    readiness: Readiness,
    hold: Option<super::status::Hold>,
) -> NodeStatus {
    let object = Child {
        readiness: readiness.into(),
        ..child(&node.facts[0], node)
    };
    let children = [Some(object)];
    let all = seen(node, &children);
    let plan = plan(node, &all, &Rest::default(), at(0));
    super::status::of_node(node, &all, &plan, hold, at(0))
}

/// The object of a resource, applied and ready.
fn child(facts: &Facts, owner: &NodeDigest) -> Child {
    Child {
        uid: format!("uid of {}", facts.id),
        resource_version: "5".into(),
        written: 1,
        owner: Arc::new(Owner::Node {
            key: owner.key.clone(),
            uid: Some(owner.uid.clone()),
        }),
        applied_hash: Some(facts.hash.clone()),
        fields_hash: "ours".into(),
        applied_fields_hash: "ours".into(),
        owned: "{}".into(),
        marked: true,
        once: false,
        orphaned: false,
        orphaned_from: None,
        retain: false,
        deleting: false,
        finalizers: vec![],
        readiness: Readiness::Ready.into(),
        completed: false,
        applied_at: Some(at(-5)),
        stepped_at: None,
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
        }
        .into(),
        namespace: "tenants".into(),
        name: name.into(),
    }
}

/// The plan for a node with these resources and their objects, in the same order.
fn planned(node: &NodeDigest, children: &[Option<Child>]) -> NodePlan {
    plan(node, &seen(node, children), &Rest::default(), at(0))
}

fn seen<'a>(node: &'a NodeDigest, children: &'a [Option<Child>]) -> Vec<ObservedResource<'a>> {
    node.facts
        .iter()
        .zip(children)
        .map(|(facts, child)| ObservedResource {
            facts,
            unavailable: None,
            child: child.as_ref(),
            obstacle: None,
            failure: None,
            premise: Premise::of(node, child.as_ref(), Some(("here".into(), false))),
            fields_hash: Some("ours"),
            applies: Applies::default(),
            waiting_since: Some(at(-10)),
            untold: SignedDuration::ZERO,
        })
        .collect()
}

/// With a record that names all of them.
fn rest(others: BTreeMap<ObjectKey, Child>) -> Rest {
    let record = recorded(others.keys().map(|key| key.name.as_str()));
    Rest {
        record,
        others,
        ..Rest::default()
    }
}

fn recorded<'a>(names: impl Iterator<Item = &'a str>) -> Record {
    let mut record = Record::default();
    for name in names {
        record.add(&facts(name, &[]));
    }
    record
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
        readiness: waiting().into(),
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
    for (name, fields_hash) in [("drifted", Some("other")), ("not known", None)] {
        let mut drifted = seen(&node, &unchanged);
        drifted[0].fields_hash = fields_hash;
        let plan = plan(&node, &drifted, &Rest::default(), at(0));
        assert_eq!(plan.apply, [0], "{name}");
    }
}

#[test]
fn once_is_created_and_then_left_alone_but_asked() {
    let once = declared(facts("a", &[]), |of| of.once = true);
    let node = node(vec![once]);
    assert_eq!(planned(&node, &[None]).apply, [0]);
    let made = Child {
        once: true,
        applied_hash: Some("another".into()),
        ..child(&node.facts[0], &node)
    };
    let asked = |readiness: Readiness| {
        let made = Child {
            readiness: readiness.into(),
            ..made.clone()
        };
        let plan = planned(&node, &[Some(made)]);
        (plan.apply, plan.outcomes[0].state)
    };
    assert_eq!(asked(Readiness::Ready), (vec![], State::Ready));
    assert_eq!(asked(waiting()), (vec![], State::Waiting));
}

/// The data of an object that is otherwise left alone must survive its row as well.
#[test]
fn a_change_of_the_policy_reaches_what_is_left_alone() {
    for (retain, once) in [(true, true), (false, true), (true, false), (false, false)] {
        let facts = declared(facts("a", &[]), |of| {
            (of.retain, of.once) = (retain, once);
        });
        let node = node(vec![facts]);
        let by_label = Arc::new(Owner::Node {
            key: node.key.clone(),
            uid: None,
        });
        let made = Child {
            once,
            retain: !retain,
            ..child(&node.facts[0], &node)
        };
        assert_eq!(planned(&node, &[Some(made.clone())]).apply, [0]);
        let follows = Child {
            retain,
            owner: if retain { by_label } else { made.owner.clone() },
            ..made.clone()
        };
        assert!(planned(&node, &[Some(follows.clone())]).apply.is_empty());
        let collected = Child { retain, ..made };
        assert_eq!(
            planned(&node, &[Some(collected)]).apply.len(),
            usize::from(retain),
            "the garbage collector would take it"
        );
        // The policy is not written yet when the row is deleted.
        let own_key = |facts: &Facts| Some(key(&facts.name));
        let late = BTreeMap::from([(
            key("a"),
            Child {
                retain: !retain,
                ..follows
            },
        )]);
        let gone = plan_deletion(&node, &late, &Record::default(), &BTreeMap::new(), own_key);
        assert_eq!(
            gone.take_down,
            [(key("a"), super::take_down::take_down(retain))]
        );
    }
}

#[test]
fn somebody_elses_object_is_a_conflict_and_not_written() {
    let node = node(vec![facts("a", &[])]);
    let another = NodeKey::new("tenants", "other-web");
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
            "it belongs to an earlier lynqnode of this name; the garbage collector removes it",
        ),
        (
            "another controller's",
            Owner::Other("Deployment d".into()),
            "belongs to Deployment d",
        ),
    ] {
        let child = Child {
            owner: owner.into(),
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
        premise: Premise::of(&node, None, Some(("here".into(), false))),
    };
    let children = [None, None];
    let mut all = seen(&node, &children);
    all[0].failure = Some(&failure);
    let plan_now = plan(&node, &all, &Rest::default(), at(0));
    assert_eq!((plan_now.apply, plan_now.wake_at), (vec![], Some(at(5))));
    assert_eq!(plan_now.outcomes[1].step, StepKind::Skipped);
    assert_eq!(plan_now.outcomes[1].message, "skipped because a failed");
    assert_eq!(plan(&node, &all, &Rest::default(), at(5)).apply, [0]);
    let plan_before = plan(&node, &all, &Rest::default(), at(-3600));
    assert_eq!(plan_before.apply, [0], "a clock was ahead");
}

#[test]
fn a_failure_is_tried_again_at_once_when_what_it_met_is_another() {
    let mut fleet_node = node(vec![facts("a", &[])]);
    let conflicted = Child {
        applied_hash: Some("another".into()),
        ..child(&fleet_node.facts[0], &fleet_node)
    };
    let failure = Failure {
        kind: FailureKind::Conflict,
        message: "no".into(),
        retry_at: at(5),
        premise: Premise::of(&fleet_node, Some(&conflicted), None),
    };
    let written = Child {
        written: 2,
        ..conflicted.clone()
    };
    let unready = Child {
        readiness: waiting().into(),
        ..conflicted.clone()
    };
    for (name, child, namespace, start, tried) in [
        ("nothing", Some(&conflicted), None, None, false),
        ("its status", Some(&unready), None, None, false),
        ("the object is written", Some(&written), None, None, true),
        ("the object is gone", None, None, None, true),
        (
            "its namespace came",
            Some(&conflicted),
            Some("uid"),
            None,
            true,
        ),
        ("the content", Some(&conflicted), None, Some("later"), true),
    ] {
        if let Some(start) = start {
            fleet_node.start = Some(start.into());
        }
        let children = [child.cloned()];
        let mut all = seen(&fleet_node, &children);
        all[0].failure = Some(&failure);
        all[0].premise = Premise::of(
            &fleet_node,
            child,
            namespace.map(|uid| (uid.to_owned(), false)),
        );
        let plan = plan(&fleet_node, &all, &Rest::default(), at(0));
        assert_eq!(!plan.apply.is_empty(), tried, "{name}");
        assert_eq!(plan.outcomes[0].conflict, !tried, "{name}");
    }
}

#[test]
fn a_kind_that_is_not_installed_is_said_and_looked_for_again() {
    let node = node(vec![facts("a", &[])]);
    let children = [None];
    let mut all = seen(&node, &children);
    let missing = missing_kind(&all[0].facts.kind);
    all[0].unavailable = Some(&missing);
    let plan = plan(&node, &all, &Rest::default(), at(0));
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
        readiness: waiting().into(),
        ..child(&node.facts[0], &node)
    })];
    let state = |second: i64, since: Option<Timestamp>| {
        let mut all = seen(&node, &slow);
        all[0].waiting_since = since;
        let plan = plan(&node, &all, &Rest::default(), at(second));
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
fn what_somebody_else_deletes_each_time_is_made_again_at_pauses() {
    let node = node(vec![facts("a", &[])]);
    let gone = [None];
    let mut all = seen(&node, &gone);
    for count in 1..=4 {
        all[0].applies.note(at(0));
        let plan = plan(&node, &all, &Rest::default(), at(0));
        let outcome = &plan.outcomes[0];
        match count {
            1 | 2 => assert_eq!(plan.apply, [0]),
            _ => {
                assert_eq!((plan.apply.len(), outcome.state), (0, State::ApplyFailed));
                assert!(outcome.message.starts_with("somebody else deletes it"));
                assert_eq!(plan.wake_at, Some(at(count - 2)));
            }
        }
    }
}

#[test]
fn without_known_live_content_nothing_is_touched() {
    for live in [Live::None, Live::Unknown] {
        let mut node = node(vec![]);
        node.live = live.clone();
        let old = facts("old", &[]);
        let rest = rest(BTreeMap::from([(key("old"), child(&old, &node))]));
        let nothing = NodePlan {
            record: rest.record.clone(),
            unready: (live == Live::Unknown).then(Vec::new),
            ..NodePlan::default()
        };
        assert_eq!(plan(&node, &[], &rest, at(0)), nothing);
    }
}

/// For an object with unknown readiness: the delay of the resource, of the policy, of a kind with a status, and none.
#[test]
fn what_says_nothing_counts_as_ready_after_its_delay() {
    let untold = || Readiness::Unknown(Reason::NothingTold { name: "a".into() });
    let minute = SignedDuration::from_secs(60);
    let node = node(vec![facts("a", &[])]);
    let of = |min_delay: Option<SignedDuration>| {
        declared(node.facts[0].clone(), |of| of.min_delay = min_delay)
    };
    let old = Readiness::Unknown(Reason::StatusMayBeOld { name: "a".into() });
    for (own, policy, has_status, readiness, delay) in [
        (Some(minute), Some(minute * 2), true, None, 60),
        (None, Some(minute * 2), true, None, 120),
        (None, None, true, Some(&untold()), 300),
        (None, None, true, Some(&old), 10),
        (Some(minute), None, true, Some(&old), 60),
        (None, None, false, None, 0),
    ] {
        let found = untold_delay(&of(own), policy, has_status, readiness);
        assert_eq!(found.as_secs(), delay, "{own:?} {policy:?} {has_status}");
    }
    let mut child = child(&node.facts[0], &node);
    child.readiness = untold().into();
    // It was applied 5 s ago.
    for (delay, state, wake_at) in [
        (0, State::Ready, None),
        (5, State::Ready, None),
        (6, State::Waiting, Some(at(1))),
    ] {
        let children = [Some(child.clone())];
        let mut seen = seen(&node, &children);
        seen[0].untold = SignedDuration::from_secs(delay);
        let plan = plan(&node, &seen, &Rest::default(), at(0));
        assert_eq!(plan.outcomes[0].state, state, "{delay}");
        assert_eq!(plan.wake_at, wake_at, "{delay}");
        assert!(plan.outcomes[0].message.contains("no field of it shows"));
    }
}

#[test]
fn what_is_not_ready_in_time_is_named_once() {
    let node = node(vec![facts("a", &[])]);
    let mut child = child(&node.facts[0], &node);
    let pods = Reason::Terminating { name: "a".into() };
    child.readiness = Readiness::Waiting(pods).into();
    let children = [Some(child)];
    let mut seen = seen(&node, &children);
    seen[0].waiting_since = Some(at(-300));
    let plan = plan(&node, &seen, &Rest::default(), at(0));
    assert_eq!(
        (plan.outcomes[0].state, plan.outcomes[0].message.as_str()),
        (
            State::Failed,
            "not ready after 300s: being deleted; it is applied again once it is gone"
        )
    );
}
