//! Cases for what nothing ends by itself, though no budget is spent.

use super::alone::flight;
use super::told::{policy_of, state_of};
use super::*;
use crate::api::conditions::ConditionReason;
use crate::api::policy::{Group, SkewCounts};

/// Two in flight past their deadline fill the window, and five may fail.
fn stuck() -> Snapshot {
    let mut snapshot = fleet("xxAA", 2);
    snapshot.slots = vec![slot(0, "99"), slot(1, "99")];
    policy_of(&mut snapshot).max_failures = Some(Skew::Count(5));
    snapshot
}

#[test]
fn a_window_full_of_failed_nodes_is_told_where_the_budget_cannot_be_spent() {
    let state = state_of(&stuck(), 600);
    assert_eq!(
        (state.rollout.phase, state.rollout.failed_nodes),
        (Phase::InProgress, 2)
    );
    let late = plan(&stuck(), at(600)).failed;
    assert!(late.iter().eq(["n0", "n1"]), "{late:?}");
    assert_eq!(
        state.rollout.message,
        "2/4 updated, 2 not ready yet, 2 held: stalled: the nodes that the others wait for are past their deadline, and maxFailures (5) \
         halts only at more failures than 2; the window of 2 is full; not ready: n0, n1. Next: correct the form, or take its \
         change back (lynqgate undo web): those nodes get that first; or repair what they wait for; or raise maxSkew"
    );
    let waiting = &state_of(&stuck(), 600).rollout.waiting[0];
    assert!(waiting.message.starts_with("stalled: "));
    assert!(waiting.next.starts_with("correct the form"));

    type Change = dyn Fn(&mut Snapshot);
    let cases: [(&str, &Change, i64, bool); 14] = [
        ("before the deadline", &|_| {}, 599, false),
        (
            "one of two may become ready",
            &|s| s.nodes.get_mut("n1").unwrap().start = Some(at(100)),
            600,
            false,
        ),
        ("paused", &|s| policy_of(s).paused = true, 600, false),
        (
            "ready, and watched until somebody deletes it",
            &|s| {
                policy_of(s).min_ready_seconds = 900;
                for name in ["n0", "n1"] {
                    let node = s.nodes.get_mut(name).unwrap();
                    (node.settled_since, node.deleting) = (Some(at(60)), true);
                }
            },
            700,
            false,
        ),
        (
            "nothing is held",
            &|s| {
                s.nodes.retain(|name, _| name < "n2");
                began(s, 0);
            },
            600,
            true,
        ),
        (
            "nothing is held, and no rollout was ever told of",
            &|s| s.nodes.retain(|name, _| name < "n2"),
            600,
            false,
        ),
        (
            "nothing is held, and it was complete once",
            &|s| {
                s.nodes.retain(|name, _| name < "n2");
                s.slots.clear();
                began(s, 0);
                let form = s.forms.get_mut("web").unwrap();
                form.previous.as_mut().unwrap().completion_time = Some(at(2));
            },
            900,
            false,
        ),
        (
            "what went without a window",
            &|s| {
                policy_of(s).max_skew = Skew::Count(0);
                s.nodes.retain(|name, _| name < "n2");
                s.slots.clear();
                began(s, 0);
            },
            600,
            true,
        ),
        (
            "what went long ago, and broke just now",
            &|s| {
                s.slots.clear();
                for node in s.nodes.values_mut() {
                    node.unready_since = Some(at(5_000));
                }
            },
            5_599,
            false,
        ),
        (
            "what was forgiven fills the window still",
            &|s| s.forms.get_mut("web").unwrap().resumed_at = Some(at(600)),
            600,
            true,
        ),
        (
            "a group that is not done",
            &|s| {
                policy_of(s).max_skew = Skew::Count(9);
                policy_of(s).order = vec![Group {
                    name: "canaries".into(),
                    when: None,
                    match_labels: BTreeMap::new(),
                    pause: false,
                }];
                s.nodes.get_mut("n2").unwrap().group = 1;
                s.nodes.get_mut("n3").unwrap().group = 1;
            },
            600,
            true,
        ),
        (
            "the hub's window",
            &|s| {
                policy_of(s).max_skew = Skew::Count(9);
                s.hub_skew = Skew::Count(2);
            },
            600,
            true,
        ),
        (
            "the hub's window, where another form may make room",
            &|s| share_hub_with_api(s, 1_200),
            600,
            false,
        ),
        (
            "the hub's window, of two forms",
            &|s| share_hub_with_api(s, 600),
            600,
            true,
        ),
    ];
    for (name, change, second, expected) in cases {
        let mut snapshot = stuck();
        change(&mut snapshot);
        let state = state_of(&snapshot, second);
        let complete = state
            .conditions
            .iter()
            .find(|c| c.type_ == "RolloutComplete");
        assert_eq!(
            complete.is_some_and(|c| !c.status && c.reason == ConditionReason::Stalled),
            expected,
            "{name}: {}",
            state.rollout.message
        );
        assert_eq!(state.stalled.is_some(), expected, "{name}");
    }
}

/// Nothing of it starts, so that no deadline has to pass.
#[test]
fn what_does_not_render_stalls_at_once() {
    let mut snapshot = fleet("yyx", 0);
    began(&mut snapshot, 0);
    let error = "resource \"web\": no such column";
    for name in ["n0", "n1"] {
        let node = snapshot.nodes.get_mut(name).unwrap();
        (node.ready, node.why) = (false, Some(error.to_owned()));
    }
    assert!(state_of(&snapshot, 1).stalled.is_none(), "n2 still starts");
    let node = snapshot.nodes.get_mut("n2").unwrap();
    (node.ready, node.settled_since) = (true, Some(at(1)));
    assert_eq!(
        state_of(&snapshot, 1).rollout.message,
        "3/3 updated, 2 not ready yet, 0 held: stalled: resources do not render: n0, n1 (n0: resource \"web\": no such column). Next: \
         correct the form, or take its change back (lynqgate undo web), or correct the rows of those nodes"
    );
    snapshot.forms.get_mut("web").unwrap().outdated = true;
    assert!(state_of(&snapshot, 1).stalled.is_none(), "corrected");
}

#[test]
fn where_no_node_waits_no_node_is_waited_for() {
    let mut snapshot = fleet("xx", 0);
    began(&mut snapshot, 0);
    let stalled = state_of(&snapshot, 600).stalled.unwrap();
    assert_eq!(
        stalled.to_string(),
        "stalled: the nodes that are not ready are past their deadline, and none counts as a failure: 2 live without a slot (no window \
         applied, or it was free again); not ready: n0, n1. Next: correct the form, or take its change back (lynqgate undo web); or repair \
         what they wait for"
    );
}

fn share_hub_with_api(snapshot: &mut Snapshot, deadline_seconds: i32) {
    policy_of(snapshot).max_skew = Skew::Count(9);
    snapshot.hub_skew = Skew::Count(2);
    let mut other = snapshot.forms["web"].clone();
    other.policy.progress_deadline_seconds = deadline_seconds;
    snapshot.forms.insert("api".into(), other);
    snapshot.nodes.get_mut("n1").unwrap().form = "api".into();
    snapshot.slots[1].form = "api".into();
}

/// Ready once, their slots free, and then broken for good: no slot tells that they are late.
#[test]
fn what_breaks_when_its_slot_is_free_stalls() {
    let mut snapshot = fleet("xxAA", 2);
    for (name, broke) in [("n0", 50), ("n1", 100)] {
        snapshot.nodes.get_mut(name).unwrap().unready_since = Some(at(broke));
    }
    assert_eq!(plan(&snapshot, at(1)).wake_at, Some(at(650)));
    assert!(state_of(&snapshot, 699).stalled.is_none());
    let state = state_of(&snapshot, 700);
    assert_eq!(state.rollout.failed_nodes, 0);
    let text = state.stalled.unwrap().to_string();
    assert!(
        text.contains(
            "and none counts as a failure: 2 live without a slot (no window applied, or it was free again); the window of 2 is full; not \
             ready: n0, n1. Next: "
        ),
        "{text}"
    );
    // The places of updates are not theirs.
    policy_of(&mut snapshot).skew_counts = SkewCounts::Released;
    assert!(state_of(&snapshot, 700).stalled.is_none());
    // A canary keeps all others waiting, however wide the window is.
    let policy = policy_of(&mut snapshot);
    policy.order = vec![Group {
        name: "canaries".into(),
        when: None,
        match_labels: BTreeMap::new(),
        pause: false,
    }];
    policy.max_skew = Skew::Count(9);
    snapshot.nodes.get_mut("n2").unwrap().group = 1;
    snapshot.nodes.get_mut("n3").unwrap().group = 1;
    assert!(state_of(&snapshot, 699).stalled.is_none());
    assert!(state_of(&snapshot, 700).stalled.is_some());
    // What is still to be made is to go before them.
    let form = snapshot.forms.get_mut("web").unwrap();
    form.absent.insert("n9".into(), 0);
    assert!(state_of(&snapshot, 700).stalled.is_none());
}

/// Its slot is for what was withdrawn before it went; what went before that is still not ready.
#[test]
fn a_slot_of_withdrawn_content_is_late_with_what_went_before() {
    let mut snapshot = stuck();
    snapshot.slots[0].hash = "withdrawn".into();
    let mut went = flight("98");
    (went.hash, went.is_live) = ("new".into(), true);
    snapshot.nodes.get_mut("n0").unwrap().flight = Some(went);
    let state = state_of(&snapshot, 600);
    assert_eq!(state.rollout.failed_nodes, 2);
}

/// What cannot be repaired in time fills the window, too, and wakes the planner.
#[test]
fn a_repair_past_its_deadline_stalls() {
    let mut snapshot = stuck();
    snapshot.slots[0].repair = true;
    assert_eq!(plan(&snapshot, at(1)).wake_at, Some(at(600)));
    let state = state_of(&snapshot, 600);
    assert_eq!(state.rollout.failed_nodes, 1, "it spends no budget");
    assert!(state.stalled.is_some());
    snapshot.forms.get_mut("web").unwrap().resumed_at = Some(at(600));
    let why = state_of(&snapshot, 600).stalled.unwrap().why;
    let uncounted = "1 not ready before this change, 1 forgiven by lynq.sh/resume";
    assert!(why.contains(uncounted), "{why}");
}

/// Two nodes in a window of 2; the first was released at 0, and is not ready. Its deadline is at 600.
fn late(maintained: Option<(i64, Option<i64>)>) -> Snapshot {
    let mut snapshot = fleet("xAA", 2);
    snapshot.slots = vec![slot(0, "1")];
    if let Some((began, ended)) = maintained {
        let of = Maintained {
            kubernetes_node: "k8s-3".into(),
            began: at(began),
            ended: ended.map(at),
        };
        snapshot.maintained.insert("n0".into(), of);
    }
    snapshot
}

#[test]
fn what_maintenance_evicted_is_no_failure_of_the_content() {
    for (name, maintained, now, fails) in [
        ("no maintenance", None, 700, true),
        ("during it", Some((100, None)), 700, false),
        ("long during it", Some((100, None)), 100_000, false),
        ("just after it", Some((100, Some(800))), 1_399, false),
        (
            "as long after it as a release may take",
            Some((100, Some(800))),
            1_400,
            true,
        ),
        ("late before it began", Some((650, None)), 700, true),
    ] {
        let plan = plan(&late(maintained), at(now));
        assert_eq!(!plan.failed.is_empty(), fails, "{name}");
        let state = &plan.forms["web"];
        assert_eq!(state.rollout.failed_nodes > 0, fails, "{name}");
        let released: Vec<&str> = plan
            .releases
            .iter()
            .map(|release| release.node.as_str())
            .collect();
        let expected: &[&str] = if fails { &[] } else { &["n1"] };
        assert_eq!(released, expected, "{name}: it takes one of two places");
    }
}

#[test]
fn a_window_is_full_of_what_is_not_ready_or_has_a_slot() {
    for (name, states, skew, slots, full) in [
        ("all ready", "AAA", 1, vec![], false),
        ("one not ready", "xAA", 1, vec![], true),
        ("one of two", "xAA", 2, vec![], false),
        ("a slot", "AAA", 1, vec![0], true),
        ("no window", "xxx", 0, vec![], false),
    ] {
        let mut snapshot = fleet(states, skew);
        snapshot.slots = slots.into_iter().map(|i| slot(i, "1")).collect();
        let found = full_windows(&snapshot, at(10));
        assert_eq!(found.contains("web"), full, "{name}");
        snapshot.forms.get_mut("web").unwrap().forced = true;
        assert!(full_windows(&snapshot, at(10)).is_empty(), "{name}, forced");
    }
    let mut snapshot = fleet("XAA", 1);
    policy_of(&mut snapshot).skew_counts = SkewCounts::Released;
    assert!(full_windows(&snapshot, at(10)).is_empty(), "broken before");
}
