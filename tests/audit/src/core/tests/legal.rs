//! What is legal, however odd it looks.

use serde_json::json;

use super::fleet::{
    Fleet, annotations, deployment, deployment_of, form, go_live, hash, hub, namespace, node,
    settled_node,
};
use super::{Case, check};
use crate::core::Options;
use crate::core::finish::Conclusion;

#[test]
fn what_is_legal_is_not_flagged() {
    check(&[
        Case {
            name: "a rollout, two at a time",
            play: |f| {
                f.roll_out(&["n0", "n1"], "web:2");
                f.roll_out(&["n2", "n3"], "web:2");
            },
            broken: &[],
        },
        Case {
            name: "a node in flight is edited and released again",
            play: |f| {
                f.hold(&["n0", "n1", "n2"], "bad");
                f.slots(&["n0", "n1"]);
                f.release(&["n0", "n1"]);
                f.apply("n0", "bad");
                f.apply("n1", "bad");
                f.hold(&["n0", "n1", "n2"], "web:2");
                f.slots(&["n0", "n1"]);
                f.release(&["n0", "n1"]);
                for name in ["n0", "n1"] {
                    f.apply(name, "web:2");
                    f.ready(name);
                }
                f.slots(&["n2"]);
                f.release(&["n2"]);
            },
            broken: &[],
        },
        Case {
            name: "a change is taken back before its release",
            play: |f| {
                f.hold(&["n0"], "web:2");
                f.edit(&node("n0"), |node| {
                    node["spec"]["deployments"] = node["spec"]["released"]["deployments"].clone();
                    annotations(node)["lynq.sh/desired-hash"] = hash("n0", "web:1").into();
                    go_live(node);
                });
            },
            broken: &[],
        },
        Case {
            name: "a window is narrowed below what is in flight, which drains",
            play: |f| {
                f.hold(&["n0", "n1", "n2"], "web:2");
                f.slots(&["n0", "n1"]);
                f.release(&["n0", "n1"]);
                f.policy(json!({"maxSkew": 1}));
                f.wait(60);
                f.edit(&deployment("n0"), |_| {});
                for name in ["n0", "n1"] {
                    f.apply(name, "web:2");
                    f.ready(name);
                }
                f.slots(&["n2"]);
                f.release(&["n2"]);
            },
            broken: &[],
        },
        Case {
            name: "a window is narrowed between slot and release",
            play: |f| {
                f.hold(&["n0", "n1"], "web:2");
                f.slots(&["n0", "n1"]);
                f.release(&["n0"]);
                f.policy(json!({"maxSkew": 1}));
                f.wait(30);
                f.release(&["n1"]);
            },
            broken: &[],
        },
        Case {
            name: "a narrower window is not seen at once",
            play: |f| {
                f.hold(&["n0", "n1"], "web:2");
                f.policy(json!({"maxSkew": 1}));
                f.wait(2);
                f.slots(&["n0", "n1"]);
                f.release(&["n0", "n1"]);
            },
            broken: &[],
        },
        Case {
            name: "a window is widened",
            play: |f| {
                f.hold(&["n0", "n1", "n2"], "web:2");
                f.policy(json!({"maxSkew": 3}));
                f.slots(&["n0", "n1", "n2"]);
                f.release(&["n0", "n1", "n2"]);
            },
            broken: &[],
        },
        Case {
            name: "the window is lifted, and all go ungated",
            play: |f| {
                f.policy(json!({"maxSkew": 0}));
                f.hold(&["n0", "n1", "n2"], "web:2");
                for (name, behind) in [("n0", ""), ("n1", "/17"), ("n2", "/18")] {
                    f.edit(&node(name), |node| {
                        let marker = format!("{}{behind}", hash(name, "web:2"));
                        annotations(node)["lynq.sh/ungated"] = marker.into();
                        go_live(node);
                    });
                }
            },
            broken: &[],
        },
        Case {
            name: "forced",
            play: |f| {
                f.hold(&["n0", "n1", "n2"], "web:2");
                for name in ["n0", "n1", "n2"] {
                    f.edit(&node(name), |node| {
                        annotations(node)["lynq.sh/force-rollout"] = "true".into();
                        go_live(node);
                    });
                }
            },
            broken: &[],
        },
        Case {
            name: "a forced form",
            play: |f| {
                f.hold(&["n0", "n1", "n2"], "web:2");
                f.edit(&form("web"), |form| {
                    form["metadata"] = json!({"annotations": {"lynq.sh/force-rollout": "true"}})
                });
                f.release(&["n0", "n1", "n2"]);
            },
            broken: &[],
        },
        Case {
            name: "a node in flight is deleted",
            play: |f| {
                f.hold(&["n0", "n1"], "web:2");
                f.slots(&["n0", "n1"]);
                f.release(&["n0", "n1"]);
                f.edit(&node("n0"), |node| {
                    node["metadata"]["deletionTimestamp"] = "now".into()
                });
                f.remove(&deployment("n0"));
                f.remove(&node("n0"));
                f.slots(&["n1"]);
            },
            broken: &[],
        },
        Case {
            name: "the hub goes, and all with it",
            play: |f| {
                f.hold(&["n0", "n1"], "web:2");
                f.slots(&["n0", "n1"]);
                f.edit(&hub(), |hub| {
                    hub["metadata"]["deletionTimestamp"] = "now".into()
                });
                f.release(&["n0"]);
                for name in ["n0", "n1", "n2", "n3"] {
                    f.edit(&node(name), |node| {
                        node["metadata"]["deletionTimestamp"] = "now".into()
                    });
                    f.remove(&deployment(name));
                    f.remove(&node(name));
                }
                f.remove(&hub());
            },
            broken: &[],
        },
        Case {
            name: "the namespace goes, the nodes before the hub and the objects before the nodes",
            play: |f| {
                f.edit(&hub(), |hub| {
                    hub["spec"]["guard"] = json!({"maxDeletions": 1})
                });
                f.put(namespace(), json!({"metadata": {"name": "ns"}}));
                f.edit(&namespace(), |namespace| {
                    namespace["metadata"]["deletionTimestamp"] = "now".into()
                });
                ["n0", "n1", "n2", "n3"]
                    .iter()
                    .for_each(|name| f.remove(&deployment(name)));
                ["n0", "n1", "n2"]
                    .iter()
                    .for_each(|name| f.remove(&node(name)));
                f.wait(100);
            },
            broken: &[],
        },
        Case {
            name: "deletions that were confirmed",
            play: |f| {
                f.edit(&hub(), |hub| {
                    hub["spec"]["guard"] = json!({"maxDeletions": 1})
                });
                f.edit(&hub(), |hub| {
                    hub["metadata"]["annotations"] = json!({"lynq.sh/confirm-deletions": "3"})
                });
                f.edit(&hub(), |hub| hub["metadata"]["annotations"] = json!({}));
                ["n0", "n1", "n2"]
                    .iter()
                    .for_each(|name| f.remove(&node(name)));
            },
            broken: &[],
        },
        Case {
            name: "an object is edited by hand and mended",
            play: |f| {
                f.edit(&deployment("n0"), |object| {
                *object = deployment_of("n0", "mine", false);
                object["metadata"]["managedFields"] = json!([{"manager": "kubectl-edit", "operation": "Update", "fieldsV1": {
                    "f:spec": {"f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"app\"}": {"f:image": {}}}}}}}}]);
            });
                f.apply("n0", "web:1");
                f.ready("n0");
            },
            broken: &[],
        },
        Case {
            name: "another manager takes a container's image over",
            play: |f| {
                f.take_over("n0", "mine");
                f.wait(100);
            },
            broken: &[],
        },
        Case {
            name: "what conflicts in one field is not applied at all",
            play: |f| {
                f.take_over("n0", "mine");
                f.hold(&["n0"], "web:2+");
                f.edit(&node("n0"), |node| {
                    node["spec"]["deployments"][0]["spec"]["spec"]["replicas"] = 2.into();
                    annotations(node)["lynq.sh/desired-hash"] = "1:two".into();
                });
                f.slots(&["n0"]);
                f.release(&["n0"]);
                f.wait(100);
            },
            broken: &[],
        },
        Case {
            name: "a container is removed by hand",
            play: |f| {
                f.roll_out(&["n0"], "web:2+");
                f.apply("n0", "web:2");
                f.apply("n0", "web:2+");
                f.ready("n0");
            },
            broken: &[],
        },
        Case {
            name: "an old content arrives late and is mended",
            play: |f| {
                f.roll_out(&["n0"], "web:2");
                f.apply("n0", "web:1");
                f.apply("n0", "web:2");
                f.ready("n0");
            },
            broken: &[],
        },
        Case {
            name: "taken over from Lynq without touching anything",
            play: |f| {
                f.edit(&node("n0"), |node| {
                    annotations(node)["lynq.sh/live-hash"] = "unknown".into()
                });
                f.ungate("n0");
            },
            broken: &[],
        },
        Case {
            name: "a lost ledger is made anew under a window that was narrowed",
            play: |f| {
                f.hold(&["n0", "n1"], "web:2");
                f.slots(&["n0", "n1"]);
                f.release(&["n0", "n1"]);
                f.policy(json!({"maxSkew": 1}));
                f.wait(30);
                f.lose_ledger();
                f.slots(&["n0", "n1"]);
                for name in ["n0", "n1"] {
                    f.apply(name, "web:2");
                    f.ready(name);
                }
                f.slots(&[]);
            },
            broken: &[],
        },
        Case {
            name: "a lost ledger is made anew with what was settled and broke since",
            play: |f| {
                f.roll_out(&["n0", "n1"], "web:2");
                f.roll_out(&["n2"], "web:2");
                ["n0", "n1", "n2"]
                    .iter()
                    .for_each(|name| f.apply(name, "web:2"));
                f.lose_ledger();
                f.slots(&["n0", "n1", "n2"]);
            },
            broken: &[],
        },
        Case {
            name: "a ledger is lost while a release is on its way, and another settles",
            play: |f| {
                f.hold(&["n0", "n1"], "web:2");
                f.slots(&["n0", "n1"]);
                f.release(&["n0"]);
                f.lose_ledger();
                f.edit(&hub(), |_| {});
                f.release(&["n1"]);
                f.apply("n0", "web:2");
                f.ready("n0");
                f.slots(&["n1"]);
            },
            broken: &[],
        },
        Case {
            name: "the hub's label is edited on a node that names its hub",
            play: |f| {
                f.edit(&node("n0"), |node| {
                    node["spec"]["hubId"] = "hub".into();
                    node["metadata"]["labels"]["lynq.sh/hub"] = "other".into();
                });
                f.roll_out(&["n0"], "web:2");
            },
            broken: &[],
        },
        Case {
            name: "hashes of another version",
            play: |f| {
                for name in ["n0", "n1", "n2", "n3"] {
                    f.edit(&node(name), |node| {
                        annotations(node)["lynq.sh/desired-hash"] = format!("2:{name}").into();
                        annotations(node)["lynq.sh/live-hash"] = format!("2:{name}").into();
                    });
                }
            },
            broken: &[],
        },
        Case {
            name: "a new node waits for its slot",
            play: |f| {
                let mut new = settled_node("n9", "web");
                annotations(&mut new)["lynq.sh/live-hash"] = "none".into();
                new["spec"]["released"] = json!({});
                f.put(node("n9"), new);
                f.slots(&["n9"]);
                f.release(&["n9"]);
                f.apply("n9", "web:1");
                f.ready("n9");
                f.slots(&[]);
            },
            broken: &[],
        },
        Case {
            name: "content was written past the gate, and was held again",
            play: |f| {
                f.edit(&node("n0"), |node| {
                    node["spec"]["deployments"] =
                        settled_node("n0", "x")["spec"]["statefulSets"].take()
                });
                f.edit(&node("n0"), |node| {
                    annotations(node)["lynq.sh/desired-hash"] = "1:empty".into();
                    annotations(node)["lynq.sh/live-hash"] = "unknown".into();
                });
                f.slots(&["n0"]);
                f.release(&["n0"]);
            },
            broken: &[],
        },
        Case {
            name: "the ledger is freed of a slot that was never used",
            play: |f| {
                f.hold(&["n0"], "web:2");
                f.slots(&["n0"]);
                f.edit(&node("n0"), |node| {
                    node["metadata"]["labels"]["moved"] = "on".into()
                });
                f.slots(&[]);
            },
            broken: &[],
        },
    ]);
}

#[test]
fn a_gap_is_no_violation_but_leaves_a_doubt() {
    let mut fleet = Fleet::new(4, 1);
    fleet.hold(&["n0", "n1"], "web:2");
    fleet.unseen(|fleet| {
        fleet.roll_out(&["n0"], "web:2");
        fleet.slots(&["n1"]);
        fleet.release(&["n1"]);
        fleet.remove(&node("n3"));
        fleet.remove(&deployment("n3"));
    });
    fleet.gap();
    fleet.baseline();
    let in_flight = |conclusion: &Conclusion| conclusion.windows[0].in_flight_now;
    let conclusion = fleet.finish();
    assert_eq!(conclusion.counts.len(), 0, "{:?}", conclusion.violations);
    assert_eq!(conclusion.doubts, ["a gap: compacted"]);
    assert_eq!((conclusion.nodes, in_flight(&conclusion)), (3, 1));
}

#[test]
fn the_distribution_is_over_time() {
    let mut fleet = Fleet::new(4, 2);
    fleet.hold(&["n0", "n1"], "web:2");
    fleet.slots(&["n0", "n1"]);
    fleet.release(&["n0"]);
    fleet.apply("n0", "web:2");
    fleet.wait(10);
    fleet.release(&["n1"]);
    fleet.apply("n1", "web:2");
    fleet.wait(20);
    fleet.ready("n0");
    fleet.ready("n1");
    let conclusion = fleet.finish();
    let window = conclusion
        .windows
        .iter()
        .find(|window| window.key == form("web"))
        .expect("the form");
    let seconds = |count: usize| window.times.in_flight.get(&count).map_or(0, |ms| ms / 1000);
    assert_eq!((seconds(1), seconds(2), window.times.peak), (10, 20, 2));
    let rollout = &window.episodes[0];
    assert_eq!(
        (
            rollout.releases,
            rollout.seconds as i64,
            rollout.busy_seconds as i64
        ),
        (2, 30, 50)
    );
    assert_eq!(rollout.ideal_seconds.map(|s| s as i64), Some(25));
}

#[test]
fn percentages_and_the_hubs_window_are_windows() {
    let mut fleet = Fleet::with(4, 0, Options::default());
    fleet.policy(json!({"maxSkew": "50%"}));
    fleet.edit(&hub(), |hub| hub["spec"]["rollout"] = json!({"maxSkew": 1}));
    let conclusion = fleet.finish();
    let widths: Vec<_> = conclusion
        .windows
        .iter()
        .map(|window| window.width)
        .collect();
    assert_eq!(widths, [Some(1), Some(2)]);
}
