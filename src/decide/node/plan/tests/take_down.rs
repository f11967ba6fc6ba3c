//! Cases for taking down objects that the content no longer names, and those of a deleted node.

use super::*;
use crate::decide::node::plan::status;

/// Of the content: a resource by each name, and whether its object is ready.
fn with(resources: Vec<Facts>, children: &[(&str, bool)]) -> (NodeDigest, Vec<Option<Child>>) {
    let node = node(resources);
    let of = |facts: &Facts| {
        let (_, is_ready) = children.iter().find(|(name, _)| *name == facts.id)?;
        let readiness = match is_ready {
            true => Readiness::Ready,
            false => waiting(),
        };
        Some(Child {
            readiness: readiness.into(),
            ..child(facts, &node)
        })
    };
    let children = node.facts.iter().map(of).collect();
    (node, children)
}

fn unrendered(id: &str) -> Facts {
    declared(facts(id, &[]), |of| of.render_error = Some("no".into()))
}

/// The other objects: one to delete, one to orphan, one that belongs to others, one being deleted.
fn left_over(node: &NodeDigest) -> Rest {
    let old = child(&facts("old", &[]), node);
    let retained = Child {
        retain: true,
        ..old.clone()
    };
    let foreign = Child {
        owner: Owner::Nobody.into(),
        ..old.clone()
    };
    let going = Child {
        deleting: true,
        ..old.clone()
    };
    rest(BTreeMap::from([
        (key("foreign"), foreign),
        (key("going"), going),
        (key("old"), old),
        (key("retained"), retained),
    ]))
}

/// A change that never becomes ready must not break what runs.
#[test]
fn what_no_resource_names_any_more_stays_until_all_resources_are_ready() {
    let patient = || declared(facts("a", &[]), |of| of.wait_for_ready = false);
    let both = |b: Facts| vec![facts("a", &[]), b];
    let after = |skip| {
        declared(facts("b", &["a"]), |of| {
            of.skip_on_dependency_failure = skip
        })
    };
    for (name, resources, children, goes) in [
        ("ready", vec![facts("a", &[])], vec![("a", true)], true),
        ("no resources", vec![], vec![], true),
        ("not applied yet", vec![facts("a", &[])], vec![], false),
        ("waits", vec![facts("a", &[])], vec![("a", false)], false),
        ("nobody waits", vec![patient()], vec![("a", false)], true),
        (
            "one of two waits",
            both(facts("b", &[])),
            vec![("a", true), ("b", false)],
            false,
        ),
        (
            "blocked by one that waits",
            both(after(true)),
            vec![("a", false), ("b", true)],
            false,
        ),
        ("does not render", vec![unrendered("a")], vec![], false),
        (
            "skipped because of that",
            vec![unrendered("a"), after(true)],
            vec![("b", true)],
            false,
        ),
        (
            "in spite of that",
            vec![unrendered("a"), after(false)],
            vec![("b", true)],
            false,
        ),
    ] {
        let (node, children) = with(resources, &children);
        let plan = plan(&node, &seen(&node, &children), &left_over(&node), at(0));
        let surplus = [
            (key("old"), TakeDown::Delete),
            (key("retained"), TakeDown::Orphan),
        ];
        let (gone, kept) = match goes {
            true => (&surplus[..], &[][..]),
            false => (&[][..], &surplus[..]),
        };
        assert_eq!(
            (&plan.take_down[..], &plan.kept[..]),
            (gone, kept),
            "{name}"
        );
        let status = status::of_node(&node, &seen(&node, &children), &plan, None, at(0));
        assert!(!goes || is_true(&status.conditions, "Rolled"), "{name}");
    }
}

/// A rejected, late or conflicted object is never fixed by taking down what runs.
#[test]
fn what_failed_replaces_nothing() {
    let (node, children) = with(vec![facts("a", &[]), facts("b", &["a"])], &[]);
    let failure = Failure {
        kind: FailureKind::Refused,
        message: "port is already allocated".into(),
        retry_at: at(5),
        premise: Premise::of(&node, None, Some(("here".into(), false))),
    };
    let mut refused = seen(&node, &children);
    refused[0].failure = Some(&failure);
    let kept = |seen: &[ObservedResource]| plan(&node, seen, &left_over(&node), at(0)).kept.len();
    assert_eq!(kept(&refused), 2, "refused, and the other skipped");

    let (node, children) = with(vec![facts("a", &[])], &[("a", false)]);
    let mut late = seen(&node, &children);
    late[0].waiting_since = Some(at(-300));
    let late = plan(&node, &late, &left_over(&node), at(0));
    assert_eq!(
        (late.outcomes[0].state, late.kept.len()),
        (State::Failed, 2)
    );

    let (node, mut children) = with(vec![facts("a", &[])], &[("a", true)]);
    let foreign = children[0].as_mut().expect("a child");
    foreign.owner = Owner::Other("Deployment d".into()).into();
    let plan = plan(&node, &seen(&node, &children), &left_over(&node), at(0));
    assert!(plan.outcomes[0].conflict && plan.take_down.is_empty());
}

/// The content names the running object again, and it is ready: the one that was never ready is deleted at once, and nothing is
/// applied.
#[test]
fn a_change_that_is_taken_back_takes_down_what_never_became_ready() {
    let (node, children) = with(vec![facts("api", &[])], &[("api", true)]);
    let broken = Child {
        readiness: waiting().into(),
        ..child(&facts("api2", &[]), &node)
    };
    let rest = rest(BTreeMap::from([(key("api2"), broken)]));
    let plan = plan(&node, &seen(&node, &children), &rest, at(0));
    assert!(plan.apply.is_empty());
    assert_eq!(plan.take_down, [(key("api2"), TakeDown::Delete)]);
}

#[test]
fn what_is_kept_is_told_with_the_reason_and_the_way_out() {
    let said = |resources: Vec<Facts>, others: &[(&str, bool)]| {
        let (node, children) = with(resources, &[]);
        let others = others.iter().map(|(name, retain)| {
            let old = Child {
                retain: *retain,
                ..child(&facts(name, &[]), &node)
            };
            (key(name), old)
        });
        let rest = rest(others.collect());
        let all = seen(&node, &children);
        let plan = plan(&node, &all, &rest, at(0));
        let status = status::of_node(&node, &all, &plan, None, at(0));
        let [ready, rolled] = ["Ready", "Rolled"].map(|type_| {
            let condition = status.conditions.iter().find(|c| c.type_ == type_);
            condition.cloned().expect(type_)
        });
        // A resource that does not render leaves the node settled.
        assert!(rolled.status == "True" || rolled.message == ready.message);
        ready.message
    };
    let a = || vec![facts("a", &[])];
    assert_eq!(
        said(a(), &[("api", false)]),
        "Thing a: not created yet; lynqgate keeps Thing api, which the form no longer names, until all resources are ready. If Thing \
         api is in their way (the same port, host, volume or quota), delete it: kubectl delete thing api -n tenants"
    );
    let many = said(
        a(),
        &[("a1", true), ("a2", false), ("a3", false), ("a4", false)],
    );
    assert!(
        many.contains("keeps Thing a1, Thing a2, Thing a3 (and 1 more), which"),
        "{many}"
    );
    // No user is advised to delete an object that is retained.
    assert!(many.contains("If Thing a2 is in their way"), "{many}");
    let retained = said(a(), &[("a1", true)]);
    assert!(
        retained.ends_with("until all resources are ready"),
        "{retained}"
    );
    assert_eq!(
        said(vec![unrendered("a")], &[("api", false)]),
        "Thing a: no",
        "it may be the object of what does not render"
    );
    assert_eq!(said(a(), &[]), "Thing a: not created yet");
}

#[test]
fn a_terminating_node_is_taken_down_in_reverse_order() {
    let node = node(vec![facts("db", &[]), facts("app", &["db"])]);
    let own_key = |facts: &Facts| Some(key(&facts.name));
    let (db, app) = (child(&node.facts[0], &node), child(&node.facts[1], &node));
    let foreign = Child {
        owner: Owner::Other("Deployment d".into()).into(),
        ..db.clone()
    };
    let both = BTreeMap::from([(key("db"), db.clone()), (key("app"), app.clone())]);
    let first = plan_deletion(&node, &both, &Record::default(), &BTreeMap::new(), own_key);
    assert_eq!(first.take_down, [(key("app"), TakeDown::Delete)]);
    let going = Child {
        deleting: true,
        finalizers: vec!["kept".into()],
        ..app
    };
    let both = BTreeMap::from([(key("db"), db.clone()), (key("app"), going)]);
    let second = plan_deletion(&node, &both, &Record::default(), &BTreeMap::new(), own_key);
    assert_eq!((second.take_down.len(), second.pending), (0, true));
    assert_eq!(second.going, [(key("app"), vec!["kept".to_owned()])]);
    let last = BTreeMap::from([(key("db"), db)]);
    let third = plan_deletion(&node, &last, &Record::default(), &BTreeMap::new(), own_key);
    assert_eq!(third.take_down, [(key("db"), TakeDown::Delete)]);
    let done = plan_deletion(
        &node,
        &BTreeMap::from([(key("db"), foreign)]),
        &Record::default(),
        &BTreeMap::new(),
        own_key,
    );
    assert_eq!(done, Deletion::default(), "somebody else's stays");
}
