//! Cases for the release rule, the ledger and the status.

mod alone;
mod domains;
mod explained;
mod policy;
mod refusals;
mod replayed;
mod slots;
mod stalled;
mod told;

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::api::form::Phase;
use crate::decide::shared::version;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

/// The rollout that goes on now began then.
fn began(snapshot: &mut Snapshot, second: i64) {
    let mut told = plan(snapshot, at(0)).forms["web"].rollout.clone();
    told.start_time = Some(at(second));
    snapshot.forms.get_mut("web").unwrap().previous = Some(told);
}

/// Nodes `n0`, `n1`, ... of form `web`. `a`: live on the old content and ready; `A`: the same, held for the new;
/// `x`: live on the new content, not ready; `X`: live on something broken and held for the new; `y`: new and ready;
/// `N`: never live, held.
fn fleet(states: &str, max_skew: u32) -> Snapshot {
    let mut snapshot = Snapshot {
        resource_version: "1000".into(),
        ..Snapshot::default()
    };
    let policy = Rollout {
        max_skew: Skew::Count(max_skew),
        ..Rollout::default()
    };
    let form = Form {
        policy,
        rendered_generation: 2,
        same_since: 2,
        ..Form::default()
    };
    snapshot.forms.insert("web".into(), form);
    for (i, state) in states.chars().enumerate() {
        let live = match state {
            'a' | 'A' => Live::Hash("old".into()),
            'x' | 'y' => Live::Hash("new".into()),
            'X' => Live::Hash("broken".into()),
            _ => Live::None,
        };
        let node = Node {
            uid: format!("uid-{i}"),
            resource_version: "100".into(),
            form: "web".into(),
            desired: if state == 'a' {
                "old".into()
            } else {
                "new".into()
            },
            live,
            start: Some(at(0)),
            settled_since: matches!(state, 'a' | 'A' | 'y').then_some(at(0)),
            seen: true,
            ready: matches!(state, 'a' | 'A' | 'y'),
            unchanged: Some(false),
            ..Node::default()
        };
        snapshot.nodes.insert(format!("n{i}"), node);
    }
    snapshot
}

fn slot(i: usize, resource_version: &str) -> Slot {
    Slot {
        node: format!("n{i}"),
        uid: format!("uid-{i}"),
        form: "web".into(),
        hash: "new".into(),
        resource_version: resource_version.into(),
        repair: false,
        presumed: false,
        min_ready_seconds: 0,
    }
}

/// Of a ledger made anew.
fn presumed(i: usize, resource_version: &str) -> Slot {
    Slot {
        presumed: true,
        ..slot(i, resource_version)
    }
}

/// The same, whose form asked for so much.
fn soaking(slot: Slot, min_ready_seconds: i32) -> Slot {
    Slot {
        min_ready_seconds,
        ..slot
    }
}

fn released(plan: &Plan) -> Vec<&str> {
    plan.releases
        .iter()
        .map(|release| release.node.as_str())
        .collect()
}

fn confirmed(snapshot: &mut Snapshot, i: usize) {
    let node = &snapshot.nodes[&format!("n{i}")];
    let ready = Confirmation::Ready {
        uid: node.uid.clone(),
        resource_version: node.resource_version.clone(),
    };
    snapshot.confirmed.insert(ready);
}

#[test]
fn the_window_bounds_what_goes() {
    for (name, states, skew, expected) in [
        ("a free window", "AAAA", 2, vec!["n0", "n1"]),
        (
            "in flight counts, with a slot or not",
            "xAAA",
            2,
            vec!["n1"],
        ),
        ("full", "xxAA", 2, vec![]),
        ("a new node is like an update", "NNN", 2, vec!["n0", "n1"]),
        (
            "what is broken is repaired first, in a window that is full of it",
            "AAXX",
            2,
            vec!["n2", "n3"],
        ),
        (
            "and only as many as the window at a time",
            "AXXX",
            2,
            vec!["n1", "n2"],
        ),
        ("by number, not by text", "xxxxxxxxxxAA", 11, vec!["n10"]),
        ("larger than the fleet", "AA", 50, vec!["n0", "n1"]),
        ("nothing held", "aay", 2, vec![]),
    ] {
        assert_eq!(
            released(&plan(&fleet(states, skew), at(1))),
            expected,
            "{name}"
        );
    }
}

#[test]
fn every_release_has_its_slot_in_the_same_ledger_write() {
    let plan = plan(&fleet("AAX", 2), at(1));
    let ledger = plan.ledger.unwrap();
    for release in &plan.releases {
        let slot = ledger
            .iter()
            .find(|slot| slot.node == release.node)
            .unwrap();
        assert_eq!(
            (&slot.hash, &slot.resource_version),
            (&release.hash, &release.resource_version)
        );
        assert_eq!(slot.repair, release.node == "n2");
    }
}

#[test]
fn a_slot_seen_but_not_used_is_written_again() {
    let mut snapshot = fleet("AA", 1);
    snapshot.slots = vec![slot(0, "100")];
    let plan = plan(&snapshot, at(1));
    assert_eq!(released(&plan), ["n0"]);
    assert_eq!(plan.ledger, Some(vec![slot(0, "100")]));
}

#[test]
fn a_slot_is_freed_by_a_newer_settled_observation_and_a_live_read() {
    let with_slot = |states: &str, version: &str| {
        let mut snapshot = fleet(states, 1);
        snapshot.slots = vec![slot(0, version)];
        snapshot
    };
    for (name, snapshot, confirms) in [
        ("settled after the release", with_slot("yA", "99"), true),
        ("seen before the release", with_slot("yA", "100"), false),
        ("not settled", with_slot("xA", "99"), false),
    ] {
        let first = plan(&snapshot, at(1));
        assert_eq!(
            (first.confirm.len(), first.ledger),
            (usize::from(confirms), None),
            "{name}"
        );
    }
    let mut snapshot = with_slot("yA", "99");
    confirmed(&mut snapshot, 0);
    let second = plan(&snapshot, at(1));
    assert_eq!(released(&second), ["n1"]);
    assert_eq!(
        second.ledger.unwrap(),
        [slot(1, "100")],
        "freed and reserved in one write"
    );
}

#[test]
fn the_slot_of_a_deleted_node_stays_until_it_is_gone() {
    let mut snapshot = fleet("yA", 1);
    snapshot.slots = vec![slot(0, "99")];
    snapshot.nodes.get_mut("n0").unwrap().deleting = true;
    let plan_now = plan(&snapshot, at(1));
    assert!(plan_now.confirm.is_empty() && plan_now.releases.is_empty());
    snapshot.nodes.remove("n0");
    assert_eq!(
        plan(&snapshot, at(1)).confirm,
        [Confirm::Gone {
            node: "n0".into(),
            uid: "uid-0".into()
        }]
    );
    snapshot.confirmed.insert(Confirmation::Gone {
        uid: "uid-0".into(),
    });
    assert_eq!(released(&plan(&snapshot, at(1))), ["n1"]);
}

#[test]
fn min_ready_seconds_holds_the_slot() {
    let mut snapshot = fleet("yA", 1);
    snapshot.slots = vec![slot(0, "99")];
    snapshot
        .forms
        .get_mut("web")
        .unwrap()
        .policy
        .min_ready_seconds = 30;
    confirmed(&mut snapshot, 0);
    let soaking = plan(&snapshot, at(29));
    assert_eq!((soaking.releases.len(), soaking.wake_at), (0, Some(at(30))));
    assert_eq!(released(&plan(&snapshot, at(30))), ["n1"]);
}

/// Statuses and stamps of a process whose clock was an hour ahead.
#[test]
fn times_to_come_do_not_keep_a_slot() {
    let mut snapshot = fleet("aAA", 1);
    snapshot.slots = vec![slot(0, "99")];
    let node = snapshot.nodes.get_mut("n0").unwrap();
    (node.start, node.settled_since) = (Some(at(3600)), Some(at(3601)));
    let ahead = plan(&snapshot, at(10));
    assert_eq!(ahead.outrun, ["n0"]);
    assert!(ahead.confirm.is_empty() && ahead.releases.is_empty());
    // Its status was written anew; the stamp stays as it is.
    snapshot.nodes.get_mut("n0").unwrap().settled_since = Some(at(10));
    let again = plan(&snapshot, at(10));
    assert_eq!((again.outrun.len(), again.confirm.len()), (0, 1));
    confirmed(&mut snapshot, 0);
    assert_eq!(released(&plan(&snapshot, at(10))), ["n1"]);
}

#[test]
fn an_edit_of_a_node_in_flight_keeps_its_slot() {
    let mut snapshot = fleet("XAA", 1);
    snapshot.slots = vec![Slot {
        hash: "broken".into(),
        ..slot(0, "99")
    }];
    let plan = plan(&snapshot, at(1));
    assert_eq!(released(&plan), ["n0"]);
    assert_eq!(
        plan.ledger.unwrap(),
        [slot(0, "100")],
        "not a repair: the slot was taken for a healthy node"
    );
}

#[test]
fn paused_releases_nothing_and_says_so() {
    let mut snapshot = fleet("AXA", 2);
    snapshot.forms.get_mut("web").unwrap().policy.paused = true;
    let plan = plan(&snapshot, at(1));
    assert!(plan.releases.is_empty());
    assert!(
        plan.waiting
            .values()
            .all(|reason| matches!(**reason, Reason::Paused { .. }))
            && plan.waiting.len() == 3
    );
}

#[test]
fn what_an_older_form_left_held_is_not_released_by_a_newer_policy() {
    for (name, states, skew) in [
        ("a free window", "AAN", 2),
        ("a repair", "XA", 1),
        ("no window", "AN", 0),
    ] {
        let mut snapshot = fleet(states, skew);
        snapshot.forms.get_mut("web").unwrap().outdated = true;
        let plan = plan(&snapshot, at(1));
        assert_eq!(released(&plan), [""; 0], "{name}");
        assert!(
            plan.waiting
                .values()
                .all(|reason| matches!(**reason, Reason::NotRendered { .. }))
                && plan.waiting.len() == states.len(),
            "{name}: {:?}",
            plan.waiting
        );
    }
}

#[test]
fn no_window_releases_everything_without_slots() {
    let plan = plan(&fleet("AAXx", 0), at(1));
    assert_eq!(released(&plan), ["n2", "n0", "n1"]);
    assert!(
        plan.ledger.is_none()
            && plan
                .releases
                .iter()
                .all(|release| release.way == Way::Ungated)
    );
}

#[test]
fn the_hubs_window_is_over_all_forms() {
    let mut snapshot = fleet("AxAA", 3);
    snapshot.hub_skew = Skew::Count(2);
    let other = Form {
        policy: Rollout {
            max_skew: Skew::Count(0),
            ..Rollout::default()
        },
        ..Form::default()
    };
    snapshot.forms.insert("api".into(), other);
    snapshot.nodes.get_mut("n3").unwrap().form = "api".into();
    let plan = plan(&snapshot, at(1));
    assert_eq!(released(&plan), ["n0"]);
    assert_eq!(plan.waiting["n2"].code(), "HubWindowFull");
    assert_eq!(
        plan.waiting["n3"].code(),
        "HubWindowFull",
        "no window of its own, but the hub's"
    );
}

#[test]
fn creation_immediate_needs_no_slot() {
    let mut snapshot = fleet("xNA", 1);
    snapshot.forms.get_mut("web").unwrap().policy.creation = Creation::Immediate;
    let plan = plan(&snapshot, at(1));
    assert_eq!(
        (released(&plan), plan.releases[0].way),
        (vec!["n1"], Way::Ungated)
    );
}

#[test]
fn a_failure_halts_all_but_repairs() {
    let mut snapshot = fleet("xAAX", 3);
    snapshot.slots = vec![slot(0, "99")];
    let plan_before = plan(&snapshot, at(599));
    assert_eq!(
        (released(&plan_before), plan_before.wake_at),
        (vec!["n3", "n1"], Some(at(600)))
    );
    let halted = plan(&snapshot, at(600));
    assert_eq!(released(&halted), ["n3"]);
    assert_eq!(halted.waiting["n1"].code(), "RolloutFailed");
    assert_eq!(halted.forms["web"].rollout.phase, Phase::Failed);
    assert!(
        halted.forms["web"]
            .rollout
            .message
            .contains("halted (maxFailures 1): not ready in time: n0. Next: (1) correct the form"),
        "{}",
        halted.forms["web"].rollout.message
    );
    let phase = |snapshot: &Snapshot| plan(snapshot, at(600)).forms["web"].rollout.phase;
    // A correction has not failed before it is written to the node that failed; nothing but repairs goes until then.
    let mut corrected = snapshot.clone();
    corrected.forms.get_mut("web").unwrap().unwritten = ["n0".into()].into();
    assert_eq!(phase(&corrected), Phase::InProgress);
    assert_eq!(released(&plan(&corrected, at(600))), ["n3"]);
    // A repair never spends the budget.
    snapshot.slots[0].repair = true;
    assert_eq!(phase(&snapshot), Phase::InProgress);
}

#[test]
fn the_status_is_counted_from_the_nodes() {
    for (states, phase, updated, updating, held) in [
        ("", Phase::Idle, 0, 0, 0),
        ("yyy", Phase::Complete, 3, 0, 0),
        ("yyA", Phase::InProgress, 2, 0, 1),
        ("yxA", Phase::InProgress, 2, 1, 1),
        ("yx", Phase::InProgress, 2, 1, 0),
    ] {
        let rollout = plan(&fleet(states, 1), at(1)).forms["web"].rollout.clone();
        assert_eq!(
            (
                rollout.phase,
                rollout.updated_nodes,
                rollout.updating_nodes,
                rollout.held_nodes
            ),
            (phase, updated, updating, held),
            "{states}"
        );
    }
}

/// The status by which its slot may be freed may be old; whether it is, is found out first.
#[test]
fn what_has_a_slot_is_not_complete() {
    let mut snapshot = fleet("yy", 1);
    snapshot.slots = vec![slot(0, "99")];
    let rollout = plan(&snapshot, at(1)).forms["web"].rollout.clone();
    let told = (rollout.phase, rollout.message.as_str());
    let message = "2/2 updated and ready; to be checked once more: n0";
    assert_eq!(told, (Phase::InProgress, message));
    confirmed(&mut snapshot, 0);
    let rollout = plan(&snapshot, at(1)).forms["web"].rollout.clone();
    assert_eq!(rollout.phase, Phase::Complete);
}

#[test]
fn a_rollouts_times_begin_and_end_with_it() {
    let mut snapshot = fleet("yA", 1);
    let mut step = |states: &str, (generation, same_since): (i64, i64), second: i64| {
        let nodes = fleet(states, 1).nodes;
        snapshot.nodes = nodes;
        let form = snapshot.forms.get_mut("web").unwrap();
        (form.rendered_generation, form.same_since) = (generation, same_since);
        let rollout = plan(&snapshot, at(second)).forms["web"].rollout.clone();
        snapshot.forms.get_mut("web").unwrap().previous = Some(rollout.clone());
        (rollout.start_time, rollout.completion_time)
    };
    assert_eq!(step("yA", (2, 2), 10), (Some(at(10)), None));
    assert_eq!(step("yx", (2, 2), 20), (Some(at(10)), None));
    // The policy is edited, which is the same rollout.
    assert_eq!(step("yx", (3, 2), 25), (Some(at(10)), None));
    assert_eq!(step("yy", (3, 2), 30), (Some(at(10)), Some(at(30))));
    assert_eq!(step("yy", (4, 2), 40), (Some(at(10)), Some(at(30))));
    // What breaks by itself is no rollout, and is none that ends.
    assert_eq!(step("xy", (4, 2), 43), (Some(at(10)), Some(at(30))));
    assert_eq!(step("yy", (4, 2), 45), (Some(at(10)), Some(at(30))));
    assert_eq!(step("xy", (4, 2), 46), (Some(at(10)), Some(at(30))));
    assert_eq!(step("xA", (4, 2), 48), (Some(at(48)), None));
    assert_eq!(step("yA", (5, 5), 50), (Some(at(50)), None));
    // New templates could not be written to every node.
    assert_eq!(step("yA", (5, 6), 60), (Some(at(50)), None));
}

/// Any fleet: states as in [`fleet`], a window, and slots on some of the nodes.
fn any_fleet() -> impl Strategy<Value = Snapshot> {
    let node = prop::sample::select(vec!['a', 'A', 'x', 'X', 'y', 'N']);
    let nodes = prop::collection::vec((node, any::<bool>(), any::<bool>()), 0..12);
    (nodes, 0..6u32, 0..4u32, any::<bool>()).prop_map(|(nodes, width, hub_width, older)| {
        let states: String = nodes.iter().map(|(state, ..)| *state).collect();
        let mut snapshot = fleet(&states, width);
        snapshot.hub_skew = Skew::Count(hub_width);
        for (i, (_, slotted, is_confirmed)) in nodes.iter().enumerate() {
            if *slotted {
                snapshot
                    .slots
                    .push(slot(i, if older { "99" } else { "100" }));
            }
            if *is_confirmed {
                confirmed(&mut snapshot, i);
            }
        }
        snapshot
    })
}

proptest! {
    /// Whatever the fleet: what goes has its slot, and neither the slots nor the non-ready nodes outgrow a window
    /// because of it.
    #[test]
    fn no_plan_outgrows_a_window(snapshot in any_fleet()) {
        let plan = plan(&snapshot, at(1));
        let slots = plan.ledger.as_ref().unwrap_or(&snapshot.slots);
        let gated: Vec<_> = plan.releases.iter().filter(|release| release.way == Way::Slot).collect();
        for release in &gated {
            let node = &snapshot.nodes[&release.node];
            prop_assert!(slots.iter().any(|s| s.uid == node.uid && s.hash == release.hash && s.resource_version == release.resource_version));
        }
        let taken = slots.iter().filter(|s| !snapshot.slots.iter().any(|old| old.uid == s.uid)).count();
        let broken = |node: &Node| node.non_ready();
        let before = snapshot.nodes.values().filter(|node| broken(node)).count();
        let widths = [snapshot.forms["web"].policy.max_skew, snapshot.hub_skew];
        for width in widths.into_iter().filter(|skew| *skew != Skew::Count(0)).map(|skew| skew.of(snapshot.nodes.len())) {
            prop_assert!(taken == 0 || slots.len() <= width, "{} slots in a window of {}", slots.len(), width);
            let healthy = gated.iter().filter(|release| !broken(&snapshot.nodes[&release.node])).count();
            let new_slots: BTreeSet<&str> = slots.iter().map(|s| s.node.as_str()).collect();
            let busy = snapshot.nodes.iter().filter(|(name, node)| broken(node) || new_slots.contains(&***name)).count();
            prop_assert!(healthy == 0 || busy <= width, "{} busy in a window of {}, {} before", busy, width, before);
        }
        // A slot goes only with a confirmation, and nothing that is not held is released.
        for old in &snapshot.slots {
            let kept = slots.iter().any(|s| s.uid == old.uid);
            let node = &snapshot.nodes[&old.node];
            let ready = Confirmation::Ready { uid: node.uid.clone(), resource_version: node.resource_version.clone() };
            // What was never live has nothing to settle, once no release can use the slot.
            let over = node.settled_since.is_some() || (node.is_new() && version::is_newer(&node.resource_version, &old.resource_version));
            prop_assert!(kept || (over && snapshot.confirmed.contains(&ready)));
        }
        for release in &plan.releases {
            prop_assert!(snapshot.nodes[&release.node].held());
        }
    }
    /// Whoever waits, waits for something that can be said, and nobody else is said to wait.
    #[test]
    fn every_held_node_has_a_reason(snapshot in any_fleet()) {
        let plan = plan(&snapshot, at(1));
        for (name, node) in snapshot.nodes.iter() {
            prop_assert_eq!(node.held(), plan.waiting.contains_key(name), "{}", name);
            prop_assert!(plan.waiting.get(name).is_none_or(|reason| !reason.summary().is_empty()));
        }
    }

    /// Where everything that is live gets ready, everything goes live and the ledger empties, whatever slots a crash
    /// left behind, as long as no window was made smaller than the slots in it.
    #[test]
    fn a_fleet_that_becomes_ready_completes(mut snapshot in any_fleet()) {
        // A node is un-held by a write, so the slot of one that is not held names an older version of it.
        let nodes = snapshot.nodes.clone();
        snapshot.slots.retain(|slot| slot.resource_version == "99" || nodes[&slot.node].held());
        let widths = [snapshot.forms["web"].policy.max_skew, snapshot.hub_skew];
        for width in widths.into_iter().filter(|skew| *skew != Skew::Count(0)) {
            snapshot.slots.truncate(width.of(nodes.len()));
        }
        // A node is released, gets ready, is confirmed and freed: a pass each, one node after the other at worst.
        let passes = 4 * snapshot.nodes.len() as i64 + 4;
        for pass in 1..=passes {
            let plan = plan(&snapshot, at(pass));
            carry_out(&mut snapshot, &plan, at(pass));
        }
        prop_assert!(snapshot.nodes.values().all(|node| !node.held()), "still held: {:?}", snapshot);
        prop_assert!(snapshot.slots.is_empty(), "never freed: {:?}", snapshot.slots);
    }
}

/// What the fleet is like after the plan, where all that was live before gets ready.
fn carry_out(snapshot: &mut Snapshot, plan: &Plan, now: Timestamp) {
    if let Some(ledger) = &plan.ledger {
        snapshot.slots.clone_from(ledger);
    }
    let moved = |node: &mut Node| {
        let version: u64 = node.resource_version.parse().unwrap();
        node.resource_version = (version + 1).to_string();
    };
    for node in snapshot.nodes.values_mut().filter(|n| n.non_ready()) {
        node.settled_since = Some(now);
        moved(node);
    }
    for release in &plan.releases {
        let node = snapshot.nodes.get_mut(&release.node).unwrap();
        node.live = Live::Hash(release.hash.clone());
        node.start = Some(now);
        node.settled_since = None;
        moved(node);
    }
    snapshot.confirmed = plan
        .confirm
        .iter()
        .map(|confirm| match confirm.clone() {
            Confirm::Gone { uid, .. } => Confirmation::Gone { uid },
            Confirm::Ready {
                uid,
                resource_version,
                ..
            } => Confirmation::Ready {
                uid,
                resource_version,
            },
        })
        .collect();
}
