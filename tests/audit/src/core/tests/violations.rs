//! Every rule, broken.

use serde_json::json;

use super::fleet::{
    Fleet, annotations, deployment, deployment_of, form, go_live, hash, hub, node, settled_node,
};
use super::{Case, check};
use crate::core::{Options, Rule};
use crate::kinds::{Key, Kind};

#[test]
fn what_is_broken_is_found() {
    check(&[
        Case {
            name: "one more than the window",
            play: |f| {
                f.hold(&["n0", "n1", "n2"], "web:2");
                f.slots(&["n0", "n1", "n2"]);
                f.release(&["n0", "n1", "n2"]);
            },
            broken: &[Rule::Window, Rule::Reserve],
        },
        Case {
            name: "a slot is freed early, and its place taken",
            play: |f| {
                f.hold(&["n0", "n1", "n2"], "web:2");
                f.slots(&["n0", "n1"]);
                f.release(&["n0", "n1"]);
                f.apply("n0", "web:2");
                f.slots(&["n1", "n2"]);
                f.release(&["n2"]);
            },
            broken: &[Rule::Window, Rule::EarlyFree],
        },
        Case {
            name: "only the current generation is counted: the second bad edit breaks others",
            play: |f| {
                f.hold(&["n0", "n1"], "bad");
                f.slots(&["n0", "n1"]);
                f.release(&["n0", "n1"]);
                f.hold(&["n0", "n1", "n2", "n3"], "worse");
                f.slots(&["n2", "n3"]);
                f.release(&["n2"]);
            },
            broken: &[Rule::Window, Rule::EarlyFree],
        },
        Case {
            name: "a narrower window is ignored",
            play: |f| {
                f.hold(&["n0", "n1"], "web:2");
                f.policy(json!({"maxSkew": 1}));
                f.wait(30);
                f.slots(&["n0", "n1"]);
                f.release(&["n0", "n1"]);
            },
            broken: &[Rule::Window, Rule::Reserve],
        },
        Case {
            name: "one more than a domain has room for",
            play: |f| {
                f.policy(json!({"maxSkew": 4, "domains": [{"variable": "shard", "maxSkew": 1}]}));
                for (name, shard) in [("n0", "a"), ("n1", "b"), ("n2", "a")] {
                    f.edit(&node(name), |node| {
                        annotations(node)["lynq.sh/rollout-domains"] =
                            json!({"shard": shard}).to_string().into();
                    });
                }
                f.wait(30);
                f.hold(&["n0", "n1", "n2"], "web:2");
                f.slots(&["n0", "n1", "n2"]);
                f.release(&["n0", "n1", "n2"]);
            },
            broken: &[Rule::Window],
        },
        Case {
            name: "the hub's window over two forms",
            play: |f| {
                f.put(
                    form("api"),
                    json!({"spec": {"hubId": "hub", "rollout": {"maxSkew": 1}}}),
                );
                f.put(node("a0"), {
                    let mut new = settled_node("a0", "api");
                    annotations(&mut new)["lynq.sh/live-hash"] = "none".into();
                    new
                });
                f.edit(&hub(), |hub| hub["spec"]["rollout"] = json!({"maxSkew": 1}));
                f.hold(&["n0"], "web:2");
                f.wait(30);
                f.slots(&["n0", "a0"]);
                f.release(&["n0", "a0"]);
            },
            broken: &[Rule::Window, Rule::Reserve],
        },
        Case {
            name: "a release without a slot",
            play: |f| {
                f.hold(&["n0"], "web:2");
                f.release(&["n0"]);
            },
            broken: &[Rule::Exact],
        },
        Case {
            name: "the live hash is changed behind the gate",
            play: |f| {
                f.edit(&node("n0"), |node| {
                    annotations(node)["lynq.sh/live-hash"] = "1:other".into()
                });
            },
            broken: &[Rule::Exact],
        },
        Case {
            name: "held content is declared live behind the gate",
            play: |f| {
                f.hold(&["n0"], "web:2");
                f.edit(&node("n0"), |node| {
                    annotations(node)["lynq.sh/live-hash"] = hash("n0", "web:2").into()
                });
            },
            broken: &[Rule::Exact, Rule::Held],
        },
        Case {
            name: "the slot names an older content",
            play: |f| {
                f.hold(&["n0"], "web:2");
                f.slots(&["n0"]);
                f.hold(&["n0"], "web:3");
                f.release(&["n0"]);
            },
            broken: &[Rule::Exact],
        },
        Case {
            name: "the slot names an older version",
            play: |f| {
                f.hold(&["n0"], "web:2");
                f.slots(&["n0"]);
                f.edit(&node("n0"), |node| {
                    node["metadata"]["labels"]["moved"] = "on".into()
                });
                f.release(&["n0"]);
            },
            broken: &[Rule::Exact],
        },
        Case {
            name: "the slot is written after the release",
            play: |f| {
                f.hold(&["n0"], "web:2");
                let slot = f.slot("n0");
                f.release(&["n0"]);
                f.edit(&hub(), |hub| {
                    hub["status"]["rollout"]["slots"] = json!([slot])
                });
            },
            broken: &[Rule::Exact],
        },
        Case {
            name: "a new node is live at once",
            play: |f| {
                f.put(node("n9"), settled_node("n9", "web"));
            },
            broken: &[Rule::Exact],
        },
        Case {
            name: "ungated in spite of a window",
            play: |f| {
                f.hold(&["n0"], "web:2");
                f.edit(&node("n0"), |node| {
                    annotations(node)["lynq.sh/ungated"] = hash("n0", "web:2").into();
                    go_live(node);
                });
            },
            broken: &[Rule::Ungated],
        },
        Case {
            name: "called taken over, and something else runs",
            play: |f| {
                f.hold(&["n0"], "web:2");
                f.edit(&node("n0"), |node| {
                    annotations(node)["lynq.sh/live-hash"] = "unknown".into();
                    node["spec"]
                        .as_object_mut()
                        .map(|spec| spec.remove("released"));
                });
                f.ungate("n0");
            },
            broken: &[Rule::Ungated],
        },
        Case {
            name: "taken over while paused",
            play: |f| {
                f.policy(json!({"maxSkew": 2, "paused": true}));
                f.wait(30);
                f.edit(&node("n0"), |node| {
                    annotations(node)["lynq.sh/live-hash"] = "unknown".into()
                });
                f.ungate("n0");
            },
            broken: &[Rule::Paused],
        },
        Case {
            name: "ungated in spite of an order",
            play: |f| {
                f.policy(json!({"order": [{"name": "canary", "matchLabels": {"tier": "canary"}}]}));
                f.wait(30);
                f.hold(&["n0"], "web:2");
                f.edit(&node("n0"), |node| {
                    annotations(node)["lynq.sh/ungated"] = hash("n0", "web:2").into();
                    go_live(node);
                });
            },
            broken: &[Rule::Ungated],
        },
        Case {
            name: "released while paused",
            play: |f| {
                f.policy(json!({"maxSkew": 2, "paused": true}));
                f.wait(30);
                f.hold(&["n0"], "web:2");
                f.slots(&["n0"]);
                f.release(&["n0"]);
            },
            broken: &[Rule::Paused],
        },
        Case {
            name: "held content reaches the object",
            play: |f| {
                f.hold(&["n0"], "web:2");
                f.apply("n0", "web:2");
            },
            broken: &[Rule::Premature],
        },
        Case {
            name: "the object runs ahead of its release, which comes",
            play: |f| {
                f.hold(&["n0"], "web:2");
                f.slots(&["n0"]);
                f.apply("n0", "web:2");
                f.release(&["n0"]);
            },
            broken: &[Rule::Premature],
        },
        Case {
            name: "an object is written by hand in the operator's name",
            play: |f| {
                f.apply("n0", "secret:1");
            },
            broken: &[Rule::Premature],
        },
        Case {
            name: "held content takes a container away",
            play: |f| {
                f.roll_out(&["n0"], "web:2+");
                f.hold(&["n0"], "web:2");
                f.apply("n0", "web:2");
            },
            broken: &[Rule::Premature],
        },
        Case {
            name: "an object is made before anything is live",
            play: |f| {
                let mut new = settled_node("n9", "web");
                annotations(&mut new)["lynq.sh/live-hash"] = "none".into();
                f.put(node("n9"), new);
                f.put(deployment("n9"), deployment_of("n9", "web:1", false));
            },
            broken: &[Rule::Premature],
        },
        Case {
            name: "what went live never reached the object",
            play: |f| {
                f.hold(&["n0"], "web:2");
                f.slots(&["n0"]);
                f.release(&["n0"]);
                f.wait(100);
            },
            broken: &[Rule::Lost],
        },
        Case {
            name: "a container that went live never reached the object",
            play: |f| {
                f.hold(&["n0"], "web:1+");
                f.slots(&["n0"]);
                f.release(&["n0"]);
                f.wait(100);
            },
            broken: &[Rule::Lost],
        },
        Case {
            name: "never reached the object, and another manager's fields are no reason",
            play: |f| {
                f.take_over("n0", "web:1");
                f.hold(&["n0"], "web:1+");
                f.slots(&["n0"]);
                f.release(&["n0"]);
                f.wait(100);
            },
            broken: &[Rule::Lost],
        },
        Case {
            name: "what takes fields over has no conflict to wait for",
            play: |f| {
                f.take_over("n0", "mine");
                f.hold(&["n0"], "web:1+");
                f.edit(&node("n0"), |node| {
                    node["spec"]["deployments"][0]["conflictPolicy"] = "Force".into();
                    annotations(node)["lynq.sh/desired-hash"] = "1:forced".into();
                });
                f.slots(&["n0"]);
                f.release(&["n0"]);
                f.wait(100);
            },
            broken: &[Rule::Lost],
        },
        Case {
            name: "an object is not made again",
            play: |f| {
                f.remove(&deployment("n0"));
                f.wait(100);
            },
            broken: &[Rule::Lost],
        },
        Case {
            name: "a ledger that is made anew has a node more, that was not in flight",
            play: |f| {
                f.roll_out(&["n2"], "web:2");
                f.hold(&["n0", "n1"], "web:2");
                f.slots(&["n0", "n1"]);
                f.release(&["n0", "n1"]);
                f.lose_ledger();
                f.slots(&["n0", "n1", "n2"]);
            },
            broken: &[Rule::Reserve],
        },
        Case {
            name: "a ledger that is made anew reserves for what no slot let go",
            play: |f| {
                f.lose_ledger();
                f.hold(&["n0", "n1", "n2"], "web:2");
                ["n0", "n1", "n2"]
                    .iter()
                    .for_each(|name| f.apply(name, "web:1"));
                f.slots(&["n0", "n1", "n2"]);
            },
            broken: &[Rule::Reserve],
        },
        Case {
            name: "a ledger that was made anew is a ledger like any other",
            play: |f| {
                f.hold(&["n0", "n1", "n2"], "web:2");
                f.slots(&["n0", "n1"]);
                f.release(&["n0", "n1"]);
                f.lose_ledger();
                f.slots(&["n0", "n1"]);
                f.slots(&["n0", "n1", "n2"]);
            },
            broken: &[Rule::Reserve],
        },
        Case {
            name: "a ledger that is made anew leaves out what is in flight",
            play: |f| {
                f.hold(&["n0", "n1"], "web:2");
                f.slots(&["n0", "n1"]);
                f.release(&["n0", "n1"]);
                f.lose_ledger();
                f.slots(&["n0"]);
            },
            broken: &[Rule::EarlyFree],
        },
        Case {
            name: "the slots of a ledger that was lost are none once it is made anew",
            play: |f| {
                f.hold(&["n0"], "web:2");
                f.slots(&["n0"]);
                f.lose_ledger();
                f.slots(&[]);
                f.release(&["n0"]);
            },
            broken: &[Rule::Exact],
        },
        Case {
            name: "held, and nobody says why",
            play: |f| {
                f.hold(&["n0"], "web:2");
                f.edit(&node("n0"), |node| node["status"] = json!({}));
                f.wait(100);
            },
            broken: &[Rule::Reason],
        },
    ]);
}

/// No rows: the classic.
#[test]
fn a_fleet_deleted_at_once_is_found() {
    let mut fleet = Fleet::new(20, 2);
    for name in (0..20).map(|i| format!("n{i}")) {
        fleet.edit(&node(&name), |node| {
            node["metadata"]["deletionTimestamp"] = "now".into()
        });
    }
    let conclusion = fleet.finish();
    assert_eq!(conclusion.counts.get(&Rule::Deletions), Some(&1));
    assert!(
        conclusion.violations[0]
            .what
            .starts_with("11 of its 20 nodes"),
        "{:?}",
        conclusion.violations
    );
    let evidence = &conclusion.violations[0].evidence;
    assert!(
        evidence[1].ends_with("no Namespace was seen"),
        "{evidence:?}"
    );
}

/// A namespace that goes excuses what is in it, and nothing else; and one that is back excuses nothing.
#[test]
fn a_fleet_deleted_at_once_is_found_beside_a_namespace_that_goes() {
    for (name, is_back) in [("other", false), ("ns", true)] {
        let mut fleet = Fleet::new(20, 2);
        let namespace = Key::new(Kind::Namespace, "", name);
        let there = json!({"metadata": {"name": name}});
        fleet.put(namespace.clone(), there.clone());
        fleet.remove(&namespace);
        if is_back {
            fleet.put(namespace, there);
        }
        (0..20).for_each(|i| fleet.remove(&node(&format!("n{i}"))));
        let conclusion = fleet.finish();
        assert_eq!(conclusion.counts.get(&Rule::Deletions), Some(&1), "{name}");
        let evidence = &conclusion.violations[0].evidence;
        assert_eq!(evidence.len(), 1, "{name}: {evidence:?}");
    }
}

#[test]
fn what_has_not_converged_is_found_where_it_must() {
    let options = || Options {
        converged: true,
        nodes: Some(4),
        ..Options::default()
    };
    let held = |fleet: &mut Fleet| fleet.hold(&["n0"], "web:2");
    let broken = |fleet: &mut Fleet| fleet.apply("n0", "web:1");
    let slot = |fleet: &mut Fleet| fleet.slots(&["n0"]);
    let gone = |fleet: &mut Fleet| fleet.remove(&node("n0"));
    type Play<'a> = &'a dyn Fn(&mut Fleet);
    let cases: [(&str, Play, u64); 5] = [
        ("settled", &|_| {}, 0),
        ("held", &held, 1),
        ("broken", &broken, 1),
        ("a slot", &slot, 1),
        ("gone", &gone, 1),
    ];
    for (name, play, found) in cases {
        let mut fleet = Fleet::with(4, 2, options());
        play(&mut fleet);
        let conclusion = fleet.finish();
        assert_eq!(
            conclusion
                .counts
                .get(&Rule::Convergence)
                .copied()
                .unwrap_or(0),
            found,
            "{name}"
        );
    }
}

/// The second window of `skewCounts: Released` is for repairs.
#[test]
fn repairs_have_a_window_of_their_own_only_where_they_must() {
    for (counts, broken) in [("All", 1), ("Released", 0)] {
        let mut fleet = Fleet::new(4, 1);
        fleet.policy(json!({"maxSkew": 1, "skewCounts": counts}));
        fleet.hold(&["n0", "n1"], "web:2");
        let mut repair = fleet.slot("n1");
        repair["repair"] = true.into();
        let slots = json!([fleet.slot("n0"), repair]);
        fleet.edit(&hub(), |hub| hub["status"]["rollout"]["slots"] = slots);
        fleet.release(&["n0", "n1"]);
        let conclusion = fleet.finish();
        assert_eq!(
            conclusion.counts.get(&Rule::Window).copied().unwrap_or(0),
            broken,
            "{counts}"
        );
    }
}
