//! Cases for the status that follows from a plan.

use super::*;
use crate::api::conditions::ConditionReason;
use crate::api::stamp;
use crate::decide::node::plan::status;
use crate::decide::rollout::reason::Reason as Held;

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
        let plan = plan(&node, &all, &Rest::default(), at(0));
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
        readiness: waiting().into(),
        ..a
    };
    let working = status_of(&[Some(waits), Some(b)]);
    assert!(is_true(&working.conditions, "Progressing"));
    assert!(!is_true(&working.conditions, "Rolled") && !is_true(&working.conditions, "Degraded"));
}

/// A rollout of the same content that was seen before it went live again is an older one: the soak restarts.
#[test]
fn what_goes_live_again_is_rolled_out_anew() {
    let mut node = node(vec![facts("a", &[])]);
    let children = [Some(child(&node.facts[0], &node))];
    let rolled_since = |node: &NodeDigest, second: i64| {
        let all = seen(node, &children);
        let plan = plan(node, &all, &Rest::default(), at(second));
        let status = status::of_node(node, &all, &plan, None, at(second));
        let rolled = status.conditions.iter().find(|c| c.type_ == "Rolled");
        let since = rolled.unwrap().last_transition_time;
        (status, since)
    };
    let (first, since) = rolled_since(&node, 0);
    assert_eq!(since, at(0));
    node.status = Arc::new(first);
    assert_eq!(rolled_since(&node, 60).1, at(0), "nothing happened");
    node.start = Some(stamp::millis(at(50)).to_string());
    assert_eq!(rolled_since(&node, 60).1, at(60));
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
            let plan = plan(node, &all, &Rest::default(), at(second));
            status::of_node(node, &all, &plan, None, at(second))
        };
        let first = status_at(&node, 0);
        node.status = Arc::new(first.clone());
        assert_eq!(status_at(&node, 60), first, "{live:?}");
    }
}

/// The window counts broken nodes, even if the intended content is not known.
#[test]
fn without_known_live_content_a_node_is_as_ready_as_what_is_there() {
    let said = |children: &[Child], before: &str| {
        let mut node = node(vec![]);
        node.live = Live::Unknown;
        node.status = Arc::new(NodeStatus {
            observed_generation: Some(node.generation),
            conditions: serde_json::from_value(json!([{
                "type": "Ready", "status": before, "reason": "R", "message": "", "lastTransitionTime": at(-60),
            }]))
            .unwrap(),
            ..NodeStatus::default()
        });
        let objects = children.iter().enumerate();
        let others = objects.map(|(i, child)| (key(&format!("c{i}")), child.clone()));
        let rest = rest(others.collect());
        let plan = plan(&node, &[], &rest, at(0));
        node.status = Arc::new(status::of_node(&node, &[], &plan, None, at(0)));
        let why = node.for_rollout(None).why;
        (node.settled_since().is_some(), why.unwrap_or_default())
    };
    let stays = "what runs did not come through the gate, or its record is lost; it stays as it is until the release";
    let ready = child(&facts("c0", &[]), &node(vec![]));
    let broken = Child {
        readiness: waiting().into(),
        ..ready.clone()
    };
    let foreign = Child {
        owner: Owner::Nobody.into(),
        ..broken.clone()
    };
    assert_eq!(said(&[], "True"), (true, String::new()), "left by Lynq");
    assert_eq!(
        said(&[], "False"),
        (false, stays.to_owned()),
        "left by Lynq"
    );
    assert_eq!(
        said(&[ready.clone(), foreign], "False"),
        (true, String::new())
    );
    let (settled, why) = said(&[ready, broken], "True");
    assert!(!settled);
    assert_eq!(
        why,
        format!("Thing c1: x: being deleted; it is applied again once it is gone; {stays}")
    );
}

#[test]
fn a_resource_that_does_not_render_does_not_make_the_node_unsettled() {
    let broken = declared(facts("a", &[]), |of| {
        of.render_error = Some("map has no entry for key \"x\"".into())
    });
    let node = node(vec![broken, facts("b", &[])]);
    let children = [None, Some(child(&node.facts[1], &node))];
    let all = seen(&node, &children);
    let plan = plan(&node, &all, &Rest::default(), at(0));
    let status = status::of_node(&node, &all, &plan, None, at(0));
    assert!(is_true(&status.conditions, "Rolled") && !is_true(&status.conditions, "Ready"));
    assert!(is_true(&status.conditions, "Degraded"));
    assert_eq!(status.failed_resources, 1);
}

/// A skipped resource fills the window if something other than a render error is the cause, through any number of dependencies.
#[test]
fn what_is_skipped_because_of_a_render_error_counts_like_it() {
    let unrendered = |id: &str| {
        declared(facts(id, &[]), |of| {
            of.render_error = Some("no such variable".into())
        })
    };
    let conflict = "conflict";
    let inside = declared(facts("b", &[]), |of| {
        of.namespace_from = "a".into();
        of.skip_on_dependency_failure = false;
    });
    let anyway = declared(facts("b", &["a"]), |of| {
        of.skip_on_dependency_failure = false
    });
    type Case<'a> = (&'a str, Vec<Facts>, Vec<&'a str>, bool, Vec<&'a str>);
    // For each resource: whether its object is ready, waits, or belongs to others.
    let cases: [Case; 11] = [
        (
            "directly",
            vec![unrendered("a"), facts("b", &["a"])],
            vec!["", ""],
            true,
            vec!["b"],
        ),
        (
            "through a chain",
            vec![facts("c", &["b"]), facts("b", &["a"]), unrendered("a")],
            vec!["", "", ""],
            true,
            vec!["b", "c"],
        ),
        (
            "by its namespace",
            vec![unrendered("a"), inside],
            vec!["", ""],
            true,
            vec!["b"],
        ),
        (
            "with an object that is there, and not ready",
            vec![unrendered("a"), facts("b", &["a"])],
            vec!["", "waits"],
            true,
            vec!["b"],
        ),
        (
            "beside others that are ready",
            vec![unrendered("a"), facts("b", &["a"]), facts("c", &[])],
            vec!["", "", "ready"],
            true,
            vec!["b"],
        ),
        (
            "beside others that are not",
            vec![unrendered("a"), facts("b", &["a"]), facts("c", &[])],
            vec!["", "", "waits"],
            false,
            vec!["b"],
        ),
        (
            "because of a conflict",
            vec![facts("a", &[]), facts("b", &["a"])],
            vec![conflict, ""],
            false,
            vec!["b"],
        ),
        (
            "because of both",
            vec![unrendered("a"), facts("b", &[]), facts("c", &["a", "b"])],
            vec!["", conflict, ""],
            false,
            vec!["c"],
        ),
        (
            "because of both, through a chain",
            vec![
                unrendered("a"),
                facts("b", &[]),
                facts("c", &["a"]),
                facts("d", &["b"]),
                facts("e", &["c", "d"]),
            ],
            vec!["", conflict, "", "", ""],
            false,
            vec!["c", "d", "e"],
        ),
        (
            "what goes on all the same",
            vec![unrendered("a"), anyway.clone()],
            vec!["", "ready"],
            true,
            vec![],
        ),
        (
            "and is not there yet",
            vec![unrendered("a"), anyway],
            vec!["", ""],
            false,
            vec![],
        ),
    ];
    for (name, all, children, rolled, skipped) in cases {
        let node = node(all);
        let children = node.facts.iter().zip(children);
        let children: Vec<Option<Child>> = children
            .map(|(facts, state)| {
                let ready = child(facts, &node);
                match state {
                    "ready" => Some(ready),
                    "waits" => Some(Child {
                        readiness: waiting().into(),
                        ..ready
                    }),
                    "conflict" => Some(Child {
                        owner: Owner::Other("Thing another".into()).into(),
                        ..ready
                    }),
                    _ => None,
                }
            })
            .collect();
        let all = seen(&node, &children);
        let plan = plan(&node, &all, &Rest::default(), at(0));
        let status = status::of_node(&node, &all, &plan, None, at(0));
        let said = |type_: &str| is_true(&status.conditions, type_);
        assert_eq!((said("Rolled"), said("Ready")), (rolled, false), "{name}");
        assert_eq!(status.skipped_resource_ids, skipped, "{name}");
    }
}

#[test]
fn a_status_is_written_when_it_is_worth_it() {
    let mut node = node(vec![facts("a", &[])]);
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
    let window_full = status::Hold {
        reason: ConditionReason::WindowFull,
        summary: "waits",
    };
    let explained = status_of(&node, Readiness::Ready, Some(window_full));
    let broken = status_of(&node, waits("x"), None);
    node.generation = 5;
    let newer = status_of(&node, Readiness::Ready, Some(window_full));
    let never = NodeStatus::default();
    for (name, old, new, written, hold_at, due) in [
        ("the same", &ready, &ready, None, None, None),
        ("another state", &ready, &one, Some(4), None, Some(5)),
        ("other words", &one, &other, Some(4), None, Some(7)),
        (
            "other words, later",
            &one,
            &other,
            Some(-20),
            None,
            Some(-17),
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
            "a hold of a newer generation",
            &explained,
            &newer,
            Some(-50),
            Some(9),
            Some(9),
        ),
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

/// An operator that was not running when the drift occurred must detect it, without a request to the API server.
#[test]
fn after_a_restart_the_status_tells_whether_somebody_has_taken_a_field() {
    let made_once = declared(facts("b", &[]), |of| of.once = true);
    let mut node = node(vec![facts("a", &[]), made_once]);
    let children = node.facts.iter().map(|facts| Some(child(facts, &node)));
    let children: Vec<Option<Child>> = children.collect();
    let all = seen(&node, &children);
    let plan = plan(&node, &all, &Rest::default(), at(0));
    let status = status::of_node(&node, &all, &plan, None, at(0));
    drop(all);
    let [a, b] = [0, 1].map(|i| children[i].clone().expect("a child"));
    let taken = |child: &Child| Child {
        fields_hash: "less".into(),
        applied_fields_hash: "less".into(),
        ..child.clone()
    };
    // A merge has written to it.
    let merged = |fields_hash: &str| Child {
        fields_hash: fields_hash.into(),
        ..a.clone()
    };
    let older = Child {
        applied_hash: Some("another".into()),
        ..a.clone()
    };
    for (name, a, b, untouched) in [
        ("nothing", Some(a.clone()), b.clone(), true),
        ("a field was taken", Some(taken(&a)), b.clone(), false),
        (
            "of what is left to others",
            Some(a.clone()),
            taken(&b),
            true,
        ),
        (
            "by an older version, which did not know of the merge",
            Some(merged("more")),
            b.clone(),
            true,
        ),
        ("an object is gone", None, b.clone(), false),
        ("an older one is back", Some(older), b.clone(), false),
    ] {
        let children = [a.map(Arc::new), Some(Arc::new(b))];
        node.status = Arc::new(status.clone());
        assert_eq!(is_untouched(&node, &children), untouched, "{name}");
    }
    node.start = Some("2026-03-01T13:00:00.000Z".into());
    let children_since = [Some(Arc::new(merged("more"))), Some(Arc::new(b.clone()))];
    node.status = Arc::new(status.clone());
    assert!(!is_untouched(&node, &children_since), "merged since");
    let told = merged("more");
    let told = [(&node.facts[0], &*told.fields_hash)].into_iter();
    node.status = Arc::new(NodeStatus {
        applied_fields_hash: fields_hash(told),
        ..NodeStatus::default()
    });
    for (fields_hash, untouched) in [("more", true), ("less", false)] {
        let children = [Some(Arc::new(merged(fields_hash))), None];
        assert_eq!(is_untouched(&node, &children), untouched, "{fields_hash}");
    }
    node.status = Arc::new(NodeStatus::default());
    let children: Vec<_> = children.into_iter().map(|c| c.map(Arc::new)).collect();
    assert!(!is_untouched(&node, &children), "no status");
}

/// Ready, waiting, failed and conflicted resources, with Lynq's reasons.
#[test]
fn the_conditions_have_lynqs_reasons() {
    type Reasons = [(&'static str, bool, &'static str); 4];
    let cases: [(&str, Reasons); 7] = [
        (
            "rr",
            [
                ("Ready", true, "Reconciled"),
                ("Progressing", false, "ReconcileComplete"),
                ("Conflicted", false, "NoConflict"),
                ("Degraded", false, "Healthy"),
            ],
        ),
        (
            "rw",
            [
                ("Ready", false, "NotAllResourcesReady"),
                ("Progressing", true, "Reconciling"),
                ("Conflicted", false, "NoConflict"),
                ("Degraded", false, "Healthy"),
            ],
        ),
        (
            "rf",
            [
                ("Ready", false, "ResourcesFailed"),
                ("Progressing", false, "ReconcileComplete"),
                ("Conflicted", false, "NoConflict"),
                ("Degraded", true, "ResourceFailures"),
            ],
        ),
        (
            "wf",
            [
                ("Ready", false, "ResourcesFailed"),
                ("Progressing", true, "Reconciling"),
                ("Conflicted", false, "NoConflict"),
                ("Degraded", true, "ResourceFailures"),
            ],
        ),
        (
            "rc",
            [
                ("Ready", false, "ResourcesConflicted"),
                ("Progressing", false, "ReconcileComplete"),
                ("Conflicted", true, "ResourceConflict"),
                ("Degraded", true, "ResourceConflicts"),
            ],
        ),
        (
            "cf",
            [
                ("Ready", false, "ResourcesFailedAndConflicted"),
                ("Progressing", false, "ReconcileComplete"),
                ("Conflicted", true, "ResourceConflict"),
                ("Degraded", true, "ResourceFailuresAndConflicts"),
            ],
        ),
        (
            "∞r",
            [
                ("Ready", false, "DependencyError"),
                ("Progressing", false, "ReconcileComplete"),
                ("Conflicted", false, "NoConflict"),
                ("Degraded", true, "DependencyCycle"),
            ],
        ),
    ];
    for (states, expected) in cases {
        let of = |(i, state): (usize, char)| {
            let id = format!("r{i}");
            let render_error = (state == 'f').then(|| "no such variable".to_owned());
            let depends = match state {
                '∞' => vec![id.as_str()],
                _ => vec![],
            };
            declared(facts(&id, &depends), |of| of.render_error = render_error)
        };
        let node = node(states.chars().enumerate().map(of).collect());
        let children = states.chars().zip(&node.facts[..]);
        let children = children.map(|(state, facts)| {
            let ready = child(facts, &node);
            match state {
                'f' => None,
                'w' => Some(Child {
                    readiness: waiting().into(),
                    ..ready
                }),
                'c' => Some(Child {
                    owner: Owner::Other("Thing another".into()).into(),
                    ..ready
                }),
                _ => Some(ready),
            }
        });
        let children: Vec<Option<Child>> = children.collect();
        let all = seen(&node, &children);
        let plan = plan(&node, &all, &Rest::default(), at(0));
        let status = status::of_node(&node, &all, &plan, None, at(0));
        let conflicted = states.matches('c').count();
        assert_eq!(status.conflicted_resources, conflicted as i32, "{states}");
        if status.failed_resources > 0 {
            let degraded = status.conditions.iter().find(|c| c.type_ == "Degraded");
            let message = &degraded.unwrap().message;
            let lynqs = format!(
                "LynqNode has {} failed resources: ",
                status.failed_resources
            );
            assert!(message.starts_with(&lynqs), "{states}: {message}");
        }
        for (type_, is_true, reason) in expected {
            let condition = status.conditions.iter().find(|c| c.type_ == type_).unwrap();
            let said = (condition.status == "True", condition.reason.as_str());
            assert_eq!(said, (is_true, reason), "{states}: {type_}");
        }
    }
}

#[test]
fn what_keeps_a_node_that_goes_is_named() {
    let going = |i: usize| (key(&format!("o{i}")), vec![]);
    let mut all: Vec<(ObjectKey, Vec<String>)> = (0..2).map(going).collect();
    all[1].1 = vec!["example.com/keep".into()];
    assert_eq!(
        status::waits_for(&all),
        "it is being deleted, and waits until these objects are gone: Thing/tenants/o0, Thing/tenants/o1 (finalizers: \
         example.com/keep)"
    );
    all.extend((2..5).map(going));
    let text = status::waits_for(&all);
    assert!(text.ends_with("Thing/tenants/o2, and 2 more"), "{text}");
}

#[test]
fn a_status_does_not_come_between_a_node_and_its_release() {
    let patience =
        |reason: Held, told: Option<&str>| status::patience(Some(status::Hold::of(&reason)), told);
    let paused = || Held::Paused { form: "web".into() };
    assert!(patience(Held::Releasing, None) > status::patience(None, None));
    assert!(patience(paused(), None).is_zero());
    assert!(patience(paused(), Some("WindowFull")).is_zero());
    let told = patience(Held::Releasing, Some("Paused"));
    assert!(told > patience(Held::Releasing, None));
    assert!(patience(paused(), Some("Paused")) > told);
    let unrendered = || Held::NotRendered { form: "web".into() };
    assert!(patience(unrendered(), Some("Releasing")) < told);
    assert_eq!(patience(unrendered(), Some("Paused")), told);
    assert!(patience(unrendered(), Some("WindowFull")) > told);
    assert_eq!(status::patience(None, Some("Paused")), told);
}
