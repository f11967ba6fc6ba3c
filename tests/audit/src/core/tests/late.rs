//! What may lag and must not last, while the stream runs: all is well again before the end.

use serde_json::json;

use super::fleet::{Fleet, annotations, deployment, go_live, hub, namespace, node, settled_node};
use super::{Case, check};
use crate::core::{Audit, Options, Rule};

/// Released, and the operator is away.
fn let_go(f: &mut Fleet, name: &str, image: &str) {
    f.hold(&[name], image);
    f.slots(&[name]);
    f.release(&[name]);
}

fn mend(f: &mut Fleet, name: &str, image: &str) {
    f.apply(name, image);
    f.ready(name);
    f.slots(&[]);
}

fn unexplained(f: &mut Fleet) {
    f.hold(&["n0"], "web:2");
    f.edit(&node("n0"), |node| node["status"] = json!({}));
}

fn explained(f: &mut Fleet) {
    f.edit(&node("n0"), |node| {
        node["status"] =
            json!({"conditions": [{"type": "Held", "status": "True", "reason": "WindowFull"}]});
    });
}

fn breaks(f: &mut Fleet) {
    f.edit(&deployment("n0"), |it| {
        it["status"]["availableReplicas"] = 0.into()
    });
}

#[test]
fn what_lasts_for_too_long_is_found_though_it_is_mended() {
    check(&[
        Case {
            name: "what went live came late",
            play: |f| {
                let_go(f, "n0", "web:2");
                f.pass(62);
                mend(f, "n0", "web:2");
            },
            broken: &[Rule::Lost],
        },
        Case {
            name: "an object was made again late",
            play: |f| {
                f.pass(100);
                f.remove(&deployment("n0"));
                f.pass(62);
                mend(f, "n0", "web:1");
            },
            broken: &[Rule::Lost],
        },
        Case {
            name: "a reason came late",
            play: |f| {
                unexplained(f);
                f.pass(32);
                explained(f);
            },
            broken: &[Rule::Reason],
        },
        Case {
            name: "a reason was taken away",
            play: |f| {
                f.hold(&["n0"], "web:2");
                f.pass(100);
                f.edit(&node("n0"), |node| node["status"] = json!({}));
                f.pass(32);
                explained(f);
            },
            broken: &[Rule::Reason],
        },
        Case {
            name: "complete, while one is held",
            play: |f| {
                f.says_complete(true, 1);
                f.hold(&["n0"], "web:2");
                f.pass(62);
                f.says_complete(false, 1);
            },
            broken: &[Rule::Complete],
        },
        Case {
            name: "complete, while one is held and then not ready",
            play: |f| {
                f.says_complete(true, 1);
                f.hold(&["n0"], "web:2");
                f.pass(40);
                f.slots(&["n0"]);
                f.release(&["n0"]);
                f.apply("n0", "web:2");
                f.pass(40);
                f.ready("n0");
                f.slots(&[]);
            },
            broken: &[Rule::Complete],
        },
        Case {
            name: "complete, and not taken back when one broke by itself",
            play: |f| {
                f.says_complete(true, 1);
                f.pass(100);
                breaks(f);
                f.pass(62);
                f.ready("n0");
            },
            broken: &[Rule::Complete],
        },
        Case {
            name: "complete, while a new one has nothing live",
            play: |f| {
                f.says_complete(true, 1);
                let mut new = settled_node("n9", "web");
                annotations(&mut new)["lynq.sh/live-hash"] = "none".into();
                new["status"]["conditions"] =
                    json!([{"type": "Held", "status": "True", "reason": "WindowFull"}]);
                f.put(node("n9"), new);
                f.pass(62);
                f.says_complete(false, 1);
            },
            broken: &[Rule::Complete],
        },
        Case {
            name: "still complete at the end, and nothing was written meanwhile",
            play: |f| {
                f.says_complete(true, 1);
                breaks(f);
                f.wait(61);
            },
            broken: &[Rule::Complete],
        },
    ]);
}

#[test]
fn what_does_not_last_is_not_flagged() {
    check(&[
        Case {
            name: "what went live came in time",
            play: |f| {
                let_go(f, "n0", "web:2");
                f.pass(58);
                mend(f, "n0", "web:2");
                f.pass(100);
            },
            broken: &[],
        },
        Case {
            name: "an object goes again and again, and is made again",
            play: |f| {
                for _ in 0..5 {
                    f.remove(&deployment("n0"));
                    f.pass(20);
                    f.apply("n0", "web:1");
                    f.ready("n0");
                }
            },
            broken: &[],
        },
        Case {
            name: "each edit has its own time to arrive",
            play: |f| {
                for image in ["web:2", "web:3", "web:4"] {
                    let_go(f, "n0", image);
                    f.pass(50);
                }
                mend(f, "n0", "web:4");
            },
            broken: &[],
        },
        Case {
            name: "a namespace that goes excuses what is missing, and the node goes too",
            play: |f| {
                let going = json!({"metadata": {"name": "ns", "deletionTimestamp": "now"}});
                f.put(namespace(), going);
                f.remove(&deployment("n0"));
                f.pass(100);
                f.edit(&node("n0"), |node| {
                    node["metadata"]["deletionTimestamp"] = "now".into()
                });
            },
            broken: &[],
        },
        Case {
            name: "a node that is being deleted",
            play: |f| {
                f.says_complete(true, 1);
                f.edit(&node("n0"), |node| {
                    node["metadata"]["deletionTimestamp"] = "now".into()
                });
                f.remove(&deployment("n0"));
                f.pass(100);
                f.remove(&node("n0"));
            },
            broken: &[],
        },
        Case {
            name: "a source that was away brings at once what happened meanwhile",
            play: |f| {
                f.says_complete(true, 1);
                let_go(f, "n0", "web:2");
                f.pass(10);
                f.wait(300);
                f.edit(&hub(), |_| {});
                mend(f, "n0", "web:2");
                f.pass(10);
            },
            broken: &[],
        },
        Case {
            name: "complete is taken back in time, and said again",
            play: |f| {
                f.says_complete(true, 1);
                f.pass(100);
                breaks(f);
                f.pass(50);
                f.says_complete(false, 1);
                f.pass(100);
                f.ready("n0");
                f.says_complete(true, 1);
                f.pass(100);
            },
            broken: &[],
        },
        Case {
            name: "complete is said of an older generation",
            play: |f| {
                f.says_complete(true, 0);
                f.hold(&["n0"], "web:2");
                f.pass(100);
            },
            broken: &[],
        },
        Case {
            name: "complete, and each of two is not ready for a while",
            play: |f| {
                f.says_complete(true, 1);
                breaks(f);
                f.pass(40);
                f.ready("n0");
                f.edit(&deployment("n1"), |it| {
                    it["status"]["availableReplicas"] = 0.into()
                });
                f.pass(40);
                f.ready("n1");
            },
            broken: &[],
        },
        Case {
            name: "complete, and a change is taken back",
            play: |f| {
                f.says_complete(true, 1);
                f.hold(&["n0"], "web:2");
                f.pass(40);
                f.edit(&node("n0"), |node| {
                    node["spec"]["deployments"] = node["spec"]["released"]["deployments"].clone();
                    annotations(node)["lynq.sh/desired-hash"] =
                        annotations(node)["lynq.sh/live-hash"].clone();
                    go_live(node);
                });
                f.pass(40);
            },
            broken: &[],
        },
    ]);
}

#[test]
fn nothing_is_known_to_last_through_a_gap() {
    let mut fleet = Fleet::new(4, 2);
    fleet.says_complete(true, 1);
    let_go(&mut fleet, "n0", "web:2");
    fleet.pass(40);
    fleet.gap();
    fleet.pass(40);
    assert_eq!(fleet.audit.violations(), 0);
    fleet.pass(22);
    // The content, and that the form says it is complete.
    assert_eq!(fleet.audit.violations(), 2);
}

#[test]
fn each_case_is_told_once() {
    let mut fleet = Fleet::new(4, 2);
    fleet.says_complete(true, 1);
    for (image, found) in [("web:2", 2), ("web:3", 3)] {
        let_go(&mut fleet, "n0", image);
        fleet.pass(200);
        assert_eq!(fleet.audit.violations(), found, "{image}");
    }
    let violations = fleet.finish().violations;
    let complete: Vec<_> = violations
        .iter()
        .filter(|violation| violation.rule == Rule::Complete)
        .collect();
    assert_eq!(complete[0].object, "LynqForm ns/web");
    assert!(
        complete[0].evidence[0]
            .starts_with("LynqNode ns/n0, for 61 s: Deployment ns/n0-app differs"),
        "{:?}",
        complete[0].evidence
    );
}

/// An audit log that begins in the middle.
#[test]
fn what_was_never_seen_is_not_missing() {
    let mut fleet = Fleet::new(4, 2);
    fleet.audit = Audit::new(Options::default());
    fleet.says_complete(true, 1);
    for name in ["n0", "n1"] {
        fleet.edit(&node(name), |_| {});
    }
    fleet.edit(&deployment("n1"), |_| {});
    fleet.pass(100);
    assert_eq!(fleet.audit.violations(), 0);
    fleet.remove(&deployment("n1"));
    fleet.pass(62);
    let conclusion = fleet.finish();
    let broken: Vec<Rule> = conclusion.counts.keys().copied().collect();
    assert_eq!(broken, [Rule::Lost, Rule::Complete]);
    assert_eq!(
        conclusion.violations.len(),
        2,
        "{:?}",
        conclusion.violations
    );
}
