//! Properties of every step, over all combinations of the values that a step reads.

use super::tests::{ME, lease, now, policy};
use super::*;

/// Every observation with small values: each field takes each value at which a rule changes.
fn each(mut look: impl FnMut(&Observed)) {
    let requests = [
        Request::None,
        Request::Window(10),
        Request::Window(60),
        Request::Unreadable("x".to_owned()),
    ];
    let statuses = [None, Some("strange")].into_iter();
    let statuses = statuses.chain(Status::ALL.map(|status| Some(status.as_str())));
    let statuses: Vec<Option<String>> = statuses.map(|text| text.map(str::to_owned)).collect();
    let mut leases = vec![None];
    for holder in ["", ME, "other"] {
        for duration in [0, 30, 40, 90] {
            for age in [-5, 0, 11, 31, 61, 91] {
                for (skew, owner, was_schedulable) in [
                    (0, "u", true),
                    (0, "u", false),
                    (0, "former", true),
                    (200, "u", true),
                ] {
                    let lease = lease(holder, duration, age);
                    leases.push(Some(Lease {
                        renewed: lease
                            .acquired
                            .map(|at| at + SignedDuration::from_secs(skew)),
                        owner: Some(owner.to_owned()),
                        was_schedulable,
                        ..lease
                    }));
                }
            }
        }
    }
    for request in &requests {
        for status in &statuses {
            for bits in 0..16 {
                for lease in &leases {
                    let is = |bit: u8| bits & (1 << bit) != 0;
                    look(&Observed {
                        node: Some(KubernetesNode {
                            name: "k8s-3".to_owned(),
                            uid: "u".to_owned(),
                            request: request.clone(),
                            status: status.clone(),
                            unschedulable: is(0),
                            deleting: is(1),
                            ..KubernetesNode::default()
                        }),
                        lease: lease.clone(),
                        others: if is(2) {
                            vec!["k8s-1".to_owned()]
                        } else {
                            vec![]
                        },
                        full_windows: if is(3) {
                            vec!["shop/web".to_owned()]
                        } else {
                            vec![]
                        },
                    });
                }
            }
        }
    }
}

#[test]
fn what_never_happens_never_happens() {
    let mut seen = 0;
    each(|observed| {
        seen += 1;
        let step = step(&policy(), observed, now());
        let lease = observed.lease.as_ref();
        let anothers = lease.and_then(|lease| lease.held_by_another_until(ME, now()));
        let mine = lease.is_some_and(|lease| lease.holder == ME);
        let writes = step.effects.iter().map(|effect| match effect {
            Effect::Lease(_) => 1,
            Effect::Node(_) => 2,
            Effect::Tell(_) | Effect::Drain { .. } => 3,
        });
        assert!(
            writes.is_sorted_by(|a, b| a < b),
            "the Lease first, and the Kubernetes node once: the shell reads the Lease in between: {observed:?}"
        );
        for effect in &step.effects {
            match effect {
                Effect::Lease(write) => {
                    assert_eq!(
                        anothers, None,
                        "a valid Lease of another is written: {observed:?}"
                    );
                    assert_eq!(write.holder, ME);
                    assert_eq!(write.over.is_none(), lease.is_none(), "{observed:?}");
                }
                Effect::Node(write) => {
                    let taken = matches!(step.effects[0], Effect::Lease(_));
                    assert!(mine || taken, "written without the Lease: {observed:?}");
                    if write.change == NodeChange::Uncordon {
                        let lease = lease.unwrap();
                        assert!(mine && lease.was_schedulable, "{observed:?}");
                        assert!(now() < lease.times().end(), "{observed:?}");
                    }
                    if write.change == NodeChange::Cordon {
                        let node = observed.node.as_ref().unwrap();
                        let remembered = lease.is_some_and(|lease| lease.was_schedulable);
                        assert!(mine && (remembered || node.unschedulable), "{observed:?}");
                    }
                }
                Effect::Drain { until } => {
                    assert!(mine && anothers.is_none() && now() < *until, "{observed:?}");
                    assert!(
                        observed.node.as_ref().unwrap().unschedulable,
                        "{observed:?}"
                    );
                }
                Effect::Tell(_) => {}
            }
        }
    });
    assert!(seen > 100_000, "{seen}");
}

/// The world after the effects, with no time passed.
fn carry_out(observed: &Observed, step: &Step) -> Observed {
    let mut next = observed.clone();
    let node = next.node.as_mut().unwrap();
    for effect in &step.effects {
        match effect {
            Effect::Lease(write) => {
                let mut object = write.object("lynq-system", "k8s-3");
                if write.owner.is_none() {
                    let owner = observed
                        .lease
                        .as_ref()
                        .and_then(|lease| lease.owner.clone());
                    object["metadata"]["ownerReferences"] =
                        serde_json::json!([{"apiVersion": "v1", "kind": "Node", "uid": owner}]);
                }
                next.lease = Some(Lease::of(&object));
            }
            Effect::Node(write) => {
                node.status = Some(write.status.as_str().to_owned());
                match write.change {
                    NodeChange::Status => {}
                    NodeChange::Cordon => node.unschedulable = true,
                    NodeChange::Uncordon => node.unschedulable = false,
                    NodeChange::TakeRequestOff => node.request = Request::None,
                }
            }
            Effect::Tell(status) => node.status = status.map(|status| status.as_str().to_owned()),
            Effect::Drain { .. } => {}
        }
    }
    next
}

#[test]
fn every_step_leads_to_rest_in_a_few_more() {
    each(|observed| {
        let mut world = observed.clone();
        for _ in 0..6 {
            let step = step(&policy(), &world, now());
            let next = carry_out(&world, &step);
            if next == world {
                assert_ne!(step.again, Some(now()), "it turns in place: {world:?}");
                return;
            }
            world = next;
        }
        panic!("no rest: {observed:?}\n{world:?}");
    });
}
