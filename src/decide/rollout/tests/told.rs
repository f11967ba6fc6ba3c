//! Cases for what people are told: force, the hub's window, the pace, and why nodes wait.

use super::*;
use crate::decide::rollout::formless::Formless;
use crate::decide::rollout::reason::{Advice, Reason};
use crate::decide::rollout::status::{FormState, windows};

pub fn state_of(snapshot: &Snapshot, second: i64) -> FormState {
    plan(snapshot, at(second)).forms["web"].clone()
}

pub fn policy_of(snapshot: &mut Snapshot) -> &mut Rollout {
    &mut snapshot.forms.get_mut("web").unwrap().policy
}

#[test]
fn force_is_told_as_long_as_it_is_there() {
    for (on_hub, on) in [(false, "the form"), (true, "its hub")] {
        let mut snapshot = fleet("yyy", 2);
        snapshot.forms.get_mut("web").unwrap().forced = !on_hub;
        snapshot.forced = on_hub;
        let state = state_of(&snapshot, 1);
        let force = format!("no window applies: lynq.sh/force-rollout=true is on {on}");
        assert_eq!((state.rollout.forced_nodes, state.window), (3, None));
        assert_eq!(state.rollout.phase, Phase::Complete);
        assert_eq!(
            state.rollout.message,
            format!(
                "all 3 nodes run the newest content and are ready; {force}, until you remove it"
            )
        );
        let told = windows(state.force, Skew::Count(2), Skew::Count(0));
        assert_eq!(told, force);
    }
    let mut snapshot = fleet("yyy", 2);
    snapshot.nodes.get_mut("n0").unwrap().forced = true;
    let state = state_of(&snapshot, 1);
    assert_eq!((state.rollout.forced_nodes, state.window), (1, Some(2)));
}

#[test]
fn the_hubs_window_is_told_by_a_form_without_one() {
    for (own, hub, told, width, waves_left) in [
        (0, 0, "no maxSkew", false, None),
        (
            0,
            2,
            "no maxSkew of its own, but 2 of the hub",
            true,
            Some(1),
        ),
        (3, 0, "maxSkew 3", true, Some(1)),
        (3, 1, "maxSkew 3, and 1 of the hub", true, Some(2)),
    ] {
        let mut snapshot = fleet("yxx", own);
        snapshot.hub_skew = Skew::Count(hub);
        let rolling = state_of(&snapshot, 1);
        assert_eq!(windows(None, Skew::Count(own), Skew::Count(hub)), told);
        assert_eq!(rolling.rollout.waves_left, waves_left, "{told}");
        assert_eq!(rolling.is_told(), width, "{told}");
        snapshot.nodes = fleet("yyy", own).nodes;
        assert_eq!(state_of(&snapshot, 1).is_told(), width, "{told}: it stays");
    }
}

#[test]
fn a_held_node_without_a_form_says_what_became_of_it() {
    let mut snapshot = fleet("Aa", 1);
    snapshot.forms.clear();
    for (why, told) in [
        (Some(Formless::Deleted), "was deleted"),
        (Some(Formless::Deleting), "is being deleted"),
        (None, "was deleted"),
    ] {
        let formless = why.map(|why| ("web".to_owned(), why));
        snapshot.formless = formless.into_iter().collect();
        let waiting = plan(&snapshot, at(1)).waiting;
        let said: Vec<(&str, String)> = waiting
            .iter()
            .map(|(name, reason)| (&**name, reason.to_string()))
            .collect();
        let text = format!("lynqgate releases no node of form \"web\", which {told}");
        assert_eq!(said, [("n0", text)]);
    }
}

/// Three of six are live and ready, and keep their slots for half a minute.
fn soaking() -> Snapshot {
    let mut snapshot = fleet("AAAAAA", 3);
    policy_of(&mut snapshot).min_ready_seconds = 30;
    let began = state_of(&snapshot, 1).rollout;
    snapshot.forms.get_mut("web").unwrap().previous = Some(began);
    settle(&mut snapshot, [0, 1, 2], 6);
    snapshot
}

fn settle(snapshot: &mut Snapshot, nodes: [usize; 3], second: i64) {
    for i in nodes {
        let node = snapshot.nodes.get_mut(&format!("n{i}")).unwrap();
        node.live = Live::Hash("new".into());
        (node.start, node.settled_since) = (Some(at(second - 4)), Some(at(second)));
        node.resource_version = "101".into();
        node.flight = Some(Flight {
            hash: "new".into(),
            release: "100".into(),
            repair: false,
            watched: true,
            landed: false,
            is_live: true,
        });
    }
    snapshot.slots = nodes.map(|i| slot(i, "100")).into();
}

#[test]
fn the_estimate_counts_the_time_that_a_node_is_watched() {
    let mut snapshot = soaking();
    let pace = |snapshot: &Snapshot, second| {
        let rollout = state_of(snapshot, second).rollout;
        (
            rollout.waves_done,
            rollout.waves_left,
            rollout.estimated_completion,
        )
    };
    let first = (Some(0), Some(2), Some(at(70)));
    assert_eq!(
        pace(&snapshot, 10),
        first,
        "34 s for each, the first three until 36"
    );
    assert_eq!(pace(&snapshot, 30), first, "it does not move by itself");
    snapshot.slots.clear();
    assert_eq!(pace(&snapshot, 36), (Some(1), Some(1), Some(at(70))));
    settle(&mut snapshot, [3, 4, 5], 41);
    assert_eq!(
        pace(&snapshot, 42),
        (Some(1), Some(1), Some(at(71))),
        "the last are watched, and nothing is late"
    );
}

#[test]
fn what_does_not_go_on_by_itself_has_no_estimate() {
    type Change = dyn Fn(&mut Snapshot);
    fn other_form(s: &mut Snapshot, states: &str) {
        s.hub_skew = Skew::Count(3);
        s.forms.insert("api".into(), s.forms["web"].clone());
        for (name, node) in fleet(states, 2).nodes.iter() {
            let (uid, form) = (format!("{}-api", node.uid), "api".into());
            let node = Node {
                uid,
                form,
                ..node.clone()
            };
            s.nodes.insert(format!("{name}-api"), node);
        }
    }
    fn add_from(s: &mut Snapshot, first: &str, states: &str) {
        let more = fleet(states, 2).nodes;
        for (name, node) in more.iter().filter(|(name, _)| &***name >= first) {
            s.nodes.insert(name.clone(), node.clone());
        }
    }
    let cases: [(&str, &Change, bool); 8] = [
        ("it goes on", &|_| {}, true),
        (
            "a third of the window is broken",
            &|s| other_form(s, "x"),
            true,
        ),
        ("all of it is broken", &|s| other_form(s, "xxx"), false),
        (
            "a node of its own is broken",
            &|s| add_from(s, "n6", "yyyyyyx"),
            true,
        ),
        (
            "the ledger is refused",
            &|s| s.ledger_refused = Some("closed".into()),
            false,
        ),
        (
            "deletions are held",
            &|s| {
                s.deletions_held = true;
                s.nodes.retain(|name, _| name < "n3");
                add_from(s, "n3", "yyyN");
            },
            false,
        ),
        ("paused", &|s| policy_of(s).paused = true, false),
        (
            "not rendered",
            &|s| s.forms.get_mut("web").unwrap().outdated = true,
            false,
        ),
    ];
    for (name, change, estimated) in cases {
        let mut snapshot = soaking();
        change(&mut snapshot);
        let has = state_of(&snapshot, 10)
            .rollout
            .estimated_completion
            .is_some();
        assert_eq!(has, estimated, "{name}");
    }
}

#[test]
fn forms_share_the_hubs_window_in_the_estimate() {
    let mut snapshot = soaking();
    snapshot.hub_skew = Skew::Count(3);
    let estimate = |snapshot: &Snapshot| state_of(snapshot, 10).rollout.estimated_completion;
    assert_eq!(estimate(&snapshot), Some(at(70)), "it has it for itself");
    let mut other = fleet("A", 2).nodes.remove("n0").unwrap();
    (other.uid, other.form) = ("uid-api".into(), "api".into());
    snapshot
        .forms
        .insert("api".into(), snapshot.forms["web"].clone());
    snapshot.nodes.insert("n0-api", other);
    assert_eq!(estimate(&snapshot), Some(at(87)), "two places for each");
}

/// A tenant whose node does not go is not there, whatever the others are.
#[test]
fn what_is_on_its_way_out_and_wanted_is_told_of() {
    let mut snapshot = fleet("yyy", 1);
    snapshot.nodes.get_mut("n1").unwrap().deleting = true;
    let form = snapshot.forms.get_mut("web").unwrap();
    form.unwritten.insert("n1".into());
    let state = state_of(&snapshot, 1);
    let applied = &state.conditions[0];
    assert_eq!(
        (applied.status, applied.message.as_str()),
        (
            false,
            "2/2 nodes ready; being deleted, and created again once gone: 1"
        )
    );
    let message = state.rollout.message;
    assert!(
        message.starts_with("being deleted, and created again once gone: n1: see their finalizers"),
        "{message}"
    );
}

/// Nothing waits any more, and the last one is broken.
#[test]
fn what_failed_last_is_told_with_its_cause() {
    let mut snapshot = fleet("yyx", 1);
    snapshot.slots = vec![slot(2, "99")];
    snapshot.nodes.get_mut("n2").unwrap().why = Some("no such image".into());
    policy_of(&mut snapshot).max_failures = None;
    let state = state_of(&snapshot, 600);
    assert_eq!(state.rollout.phase, Phase::Failed);
    let message = "not ready in time: n2 (no such image); correct the form or the rows: they get the correction first";
    assert_eq!(state.rollout.message, message);
}

#[test]
fn edited_content_is_not_the_newest() {
    let edited = ["n1".to_owned()];
    for (states, message) in [
        (
            "yyy",
            "all 3 nodes are ready; 2 run the newest content, and 1 what was changed since the hub wrote it (condition \
             Edited): n1",
        ),
        (
            "y",
            "the node is ready, and runs what was changed since the hub wrote it (condition Edited)",
        ),
    ] {
        let state = state_of(&fleet(states, 1), 1).with_edited(&edited);
        assert_eq!(state.rollout.message, message);
        let told = |c: &&crate::api::conditions::ConditionState| c.type_ == "RolloutComplete";
        assert_eq!(state.conditions.iter().find(told).unwrap().message, message);
    }
    let rolling = state_of(&fleet("yx", 1), 1);
    let told = rolling.clone().with_edited(&edited);
    assert_eq!(told.rollout, rolling.rollout, "only what is complete");
}

/// Whether a row asks for a node that the newest content is not written to.
#[test]
fn what_no_row_asks_for_waits_for_the_confirmation() {
    let mut snapshot = fleet("AA", 2);
    let form = snapshot.forms.get_mut("web").unwrap();
    form.unwritten.insert("n0".into());
    snapshot.deletions_held = true;
    let reason = |snapshot: &Snapshot| plan(snapshot, at(1)).waiting["n0"].clone();
    assert_eq!(reason(&snapshot).code(), "NotRendered", "a row asks for it");
    snapshot.nodes.get_mut("n0").unwrap().unwanted = true;
    let goes = reason(&snapshot);
    assert!(
        matches!(*goes, Reason::DeletionsHeld { goes: true, .. }),
        "{goes}"
    );
    let begins = "no active row requires n0 any more";
    assert!(goes.to_string().starts_with(begins), "{goes}");
}

/// No confirmed deletion ends a halt or a pause.
#[test]
fn held_deletions_hide_neither_a_halt_nor_a_pause() {
    let mut snapshot = fleet("xNA", 2);
    snapshot.slots = vec![slot(0, "99")];
    snapshot.deletions_held = true;
    let told = |snapshot: &Snapshot, second: i64| {
        let plan = plan(snapshot, at(second));
        let of_form = plan.forms["web"].blocked.as_ref().map(Reason::code);
        (plan.waiting["n1"].code(), of_form)
    };
    assert_eq!(told(&snapshot, 1).0, "DeletionsHeld");
    let halted = ("RolloutFailed", Some("RolloutFailed"));
    assert_eq!(told(&snapshot, 700), halted);
    policy_of(&mut snapshot).paused = true;
    assert_eq!(told(&snapshot, 700), ("Paused", Some("Paused")));
}

/// What everybody shows who tells why nodes wait.
#[test]
fn the_status_has_an_entry_for_each_reason_and_the_one_that_stops_the_rest_comes_first() {
    let told = plan(&fleet("xAAAAA", 2), at(1));
    let waiting = &told.forms["web"].rollout.waiting;
    let counted: Vec<(&str, i32, String)> = waiting
        .iter()
        .map(|nodes| (&*nodes.reason, nodes.count, nodes.nodes.join(" ")))
        .collect();
    assert_eq!(
        counted,
        [
            ("WindowFull", 4, "n2 n3 n4".to_owned()),
            ("Releasing", 1, "n1".to_owned())
        ]
    );
    let Advice { why, next } = told.waiting["n2"].advice();
    assert_eq!((&waiting[0].message, &waiting[0].next), (&why, &next));
    let idle = plan(&fleet("yyy", 2), at(1));
    assert!(idle.forms["web"].rollout.waiting.is_empty());
}
