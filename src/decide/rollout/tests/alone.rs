//! Rules that nothing else shows when they are broken: neither the wider cases, nor the simulation within a thousand seeds.

use super::told::state_of;
use super::*;
use crate::api::form::FormRolloutStatus;
use crate::api::policy::{Group, SkewCounts};

fn policy_of(snapshot: &mut Snapshot) -> &mut Rollout {
    &mut snapshot.forms.get_mut("web").unwrap().policy
}

fn node_of<'a>(snapshot: &'a mut Snapshot, name: &str) -> &'a mut Node {
    snapshot.nodes.get_mut(name).unwrap()
}

fn canaries_first(snapshot: &mut Snapshot) {
    policy_of(snapshot).order = vec![Group {
        name: "canaries".into(),
        when: Some("x".into()),
        match_labels: BTreeMap::new(),
        pause: false,
    }];
}

pub fn flight(release: &str) -> Flight {
    Flight {
        hash: "new".into(),
        release: release.into(),
        repair: false,
        watched: true,
        landed: false,
        is_live: true,
    }
}

fn phase_of(snapshot: &Snapshot, second: i64) -> Phase {
    plan(snapshot, at(second)).forms["web"].rollout.phase
}

#[test]
fn what_is_rolled_out_and_not_ready_is_not_complete() {
    let mut snapshot = fleet("yy", 1);
    assert_eq!(phase_of(&snapshot, 1), Phase::Complete);
    node_of(&mut snapshot, "n1").ready = false;
    assert_eq!(phase_of(&snapshot, 1), Phase::InProgress);
}

#[test]
fn nothing_takes_a_slot_before_every_node_was_looked_at() {
    let mut snapshot = fleet("AAX", 3);
    snapshot.unlooked = ["n1".into()].into();
    let waits = plan(&snapshot, at(1));
    assert!(waits.releases.is_empty() && waits.ledger.is_none());
    assert!(waits.waiting.values().all(|why| why.code() == "Starting"));
    policy_of(&mut snapshot).max_skew = Skew::Count(0);
    assert_eq!(released(&plan(&snapshot, at(1))).len(), 3, "no window");
}

/// What Lynq left goes at once where that changes nothing, and like any other change else.
#[test]
fn what_a_release_would_not_change_takes_no_slot() {
    let mut snapshot = fleet("AAA", 1);
    for name in ["n0", "n1", "n2"] {
        node_of(&mut snapshot, name).live = Live::Unknown;
    }
    node_of(&mut snapshot, "n0").unchanged = None;
    node_of(&mut snapshot, "n1").unchanged = Some(true);
    let first = plan(&snapshot, at(1));
    assert_eq!(first.waiting["n0"].code(), "LiveContentUnknown");
    assert_eq!(released(&first), ["n1", "n2"]);
    assert_eq!(
        first.releases[0].marker(),
        (names::UNGATED, "new/100".to_owned())
    );
    assert_eq!(first.ledger, Some(vec![slot(2, "100")]));
}

/// Before that is known its release might leave behind what it should delete.
#[test]
fn what_lynq_left_is_tried_first_also_without_a_window_or_by_force() {
    let mut snapshot = fleet("AAA", 0);
    for name in ["n0", "n1", "n2"] {
        node_of(&mut snapshot, name).live = Live::Unknown;
    }
    node_of(&mut snapshot, "n0").unchanged = None;
    node_of(&mut snapshot, "n1").unchanged = Some(true);
    for (forced, ways) in [
        (false, [Way::TakenOver, Way::Ungated]),
        (true, [Way::Forced, Way::Forced]),
    ] {
        snapshot.forced = forced;
        let first = plan(&snapshot, at(1));
        assert_eq!(first.waiting["n0"].code(), "LiveContentUnknown");
        let found: Vec<(&str, Way)> = first
            .releases
            .iter()
            .map(|release| (release.node.as_str(), release.way))
            .collect();
        assert_eq!(found, [("n1", ways[0]), ("n2", ways[1])]);
    }
}

#[test]
fn a_release_says_what_its_slot_is_for() {
    let mut snapshot = fleet("XA", 2);
    let markers = |snapshot: &Snapshot| {
        let releases = plan(snapshot, at(1)).releases;
        releases.iter().map(Release::marker).collect::<Vec<_>>()
    };
    let said = |texts: [&str; 2]| texts.map(|text| (names::RELEASE, text.to_owned()));
    assert_eq!(markers(&snapshot), said(["new/100/repair", "new/100"]));
    policy_of(&mut snapshot).min_ready_seconds = 5;
    let watched = said(["new/100/repair/watched", "new/100/watched"]);
    assert_eq!(markers(&snapshot), watched);
}

#[test]
fn it_is_said_of_the_slot_that_this_very_write_frees() {
    let mut snapshot = fleet("yA", 1);
    snapshot.slots = vec![slot(0, "99")];
    node_of(&mut snapshot, "n0").flight = Some(flight("99"));
    confirmed(&mut snapshot, 0);
    let freed = plan(&snapshot, at(1)).freed;
    let release = "99".to_owned();
    let node = "n0".to_owned();
    let uid = snapshot.nodes["n0"].uid.clone();
    assert_eq!(freed, [Freed { node, uid, release }]);

    // Whoever gets a slot in it has one, whatever the old ledger had.
    let mut again = fleet("XA", 1);
    node_of(&mut again, "n0").flight = Some(flight("99"));
    let again = plan(&again, at(1));
    assert_eq!(released(&again), ["n0"]);
    assert_eq!(again.freed, []);
}

#[test]
fn a_canary_that_could_not_be_written_keeps_its_group_open() {
    let mut snapshot = fleet("yA", 2);
    canaries_first(&mut snapshot);
    node_of(&mut snapshot, "n1").group = 1;
    assert_eq!(released(&plan(&snapshot, at(1))), ["n1"]);
    let form = snapshot.forms.get_mut("web").unwrap();
    form.unwritten.insert("n0".into());
    let waits = plan(&snapshot, at(1));
    assert_eq!(waits.waiting["n1"].code(), "GroupNotDone");

    // Nor does its group close when somebody deletes it.
    snapshot.nodes.remove("n0");
    let form = snapshot.forms.get_mut("web").unwrap();
    form.unwritten.clear();
    form.absent.insert("n0".into(), 0);
    let waits = plan(&snapshot, at(1));
    assert_eq!(
        waits.waiting["n1"].to_string(),
        "the group \"canaries\" comes first and is not done: n0"
    );
}

#[test]
fn a_group_that_is_not_done_is_told_with_the_cause() {
    let mut snapshot = fleet("xxA", 3);
    canaries_first(&mut snapshot);
    node_of(&mut snapshot, "n2").group = 1;
    node_of(&mut snapshot, "n1").why = Some("no such image".into());
    let waits = plan(&snapshot, at(1));
    assert_eq!(
        waits.waiting["n2"].to_string(),
        "the group \"canaries\" comes first and is not done: n1, n0 (n1: no such image)"
    );
}

#[test]
fn only_what_a_slot_let_go_spends_the_budget() {
    let mut snapshot = fleet("xA", 2);
    snapshot.slots = vec![slot(0, "99")];
    assert_eq!(phase_of(&snapshot, 600), Phase::Failed);
    snapshot.slots[0].hash = "older".into();
    assert_eq!(phase_of(&snapshot, 600), Phase::InProgress);
}

#[test]
fn a_slot_of_what_goes_anyway_is_not_given_up() {
    let mut snapshot = fleet("AA", 2);
    policy_of(&mut snapshot).paused = true;
    snapshot.slots = vec![slot(0, "100")];
    assert_eq!(plan(&snapshot, at(1)).give_up.len(), 1);
    node_of(&mut snapshot, "n0").deleting = true;
    assert_eq!(plan(&snapshot, at(1)).give_up, []);
}

/// A correction reaches all that a wider window let break, also where one of them stays broken for a reason of its own.
#[test]
fn a_narrowed_window_keeps_no_repair_waiting() {
    for counts in [SkewCounts::All, SkewCounts::Released] {
        let mut snapshot = fleet("xXXA", 1);
        policy_of(&mut snapshot).skew_counts = counts;
        snapshot.slots = (0..3).map(|i| slot(i, "99")).collect();
        let plan = plan(&snapshot, at(1));
        assert_eq!(released(&plan), ["n1", "n2"], "{counts:?}");
    }
}

/// Whether they ever went is not known of them.
#[test]
fn of_presumed_slots_a_window_full_goes_at_a_time() {
    let mut snapshot = fleet("XXXX", 2);
    snapshot.slots = (0..4).map(|i| presumed(i, "99")).collect();
    let first = plan(&snapshot, at(1));
    assert_eq!(released(&first), ["n0", "n1"]);
    let is_presumed = |slot: &Slot| slot.presumed;
    let ledger = first.ledger.unwrap();
    let left: Vec<bool> = ledger.iter().map(is_presumed).collect();
    assert_eq!(left, [false, false, true, true]);

    // What was let go before the loss goes nowhere; a correction of another does.
    let mut broken = fleet("xxX", 1);
    broken.slots = (0..3).map(|i| presumed(i, "99")).collect();
    assert_eq!(released(&plan(&broken, at(1))), ["n2"]);

    // What has gone since fills the window, corrected or not; one more correction of it takes no second place.
    let mut mixed = fleet("XXXX", 2);
    mixed.slots = vec![slot(0, "99"), presumed(1, "99"), presumed(2, "99")];
    canaries_first(&mut mixed);
    assert_eq!(released(&plan(&mixed, at(1))), ["n0", "n1"]);
    for node in ["n0", "n1"] {
        node_of(&mut mixed, node).group = 1;
    }
    mixed.slots = vec![slot(0, "99"), slot(1, "99"), presumed(2, "99")];
    assert_eq!(released(&plan(&mixed, at(1))), ["n0", "n1"]);

    // One that is gone holds its place like one that goes.
    let mut gone = fleet("XXX", 1);
    gone.nodes.remove("n0");
    gone.slots = vec![slot(0, "99"), presumed(1, "99"), presumed(2, "99")];
    assert!(released(&plan(&gone, at(1))).is_empty());
}

/// What broke after its slot was free fills the window, so that the canary cannot go; the change may be its correction.
#[test]
fn an_order_keeps_no_correction_from_what_fills_the_window() {
    let mut snapshot = fleet("AXXX", 2);
    canaries_first(&mut snapshot);
    for name in ["n1", "n2", "n3"] {
        node_of(&mut snapshot, name).group = 1;
    }
    let first = plan(&snapshot, at(1));
    assert_eq!(released(&first), ["n1", "n2"]);
    let blocked = first.forms["web"].blocked.as_ref();
    assert_eq!(blocked.map(Reason::code), Some("WindowFull"));
    // Of another form, in the hub's window.
    policy_of(&mut snapshot).max_skew = Skew::Count(0);
    snapshot.hub_skew = Skew::Count(2);
    assert_eq!(released(&plan(&snapshot, at(1))), ["n1", "n2"]);
    // That the first one was refused for a while, and would go by now, is another matter.
    let refused = RefusedRelease {
        until: Some(at(0)),
        lasting: true,
        ..refusals::refusal("no such webhook")
    };
    snapshot.refused.insert("n0".into(), refused);
    assert_eq!(released(&plan(&snapshot, at(1))), ["n1", "n2"]);
}

/// Whoever reads only the form must learn that it is halted.
#[test]
fn a_repair_that_waits_hides_no_halt() {
    let mut snapshot = fleet("xXXA", 1);
    snapshot.slots = vec![slot(0, "99")];
    let halted = plan(&snapshot, at(600));
    assert_eq!(halted.waiting["n1"].code(), "WindowFull");
    let form = &halted.forms["web"];
    assert_eq!(form.rollout.phase, Phase::Failed);
    assert_eq!(
        form.blocked.as_ref().map(Reason::code),
        Some("RolloutFailed"),
        "{}",
        form.rollout.message
    );
}

/// With `skewCounts: Released`, the correction of one repair leaves room for another.
#[test]
fn a_repair_that_goes_again_takes_no_second_place() {
    let mut snapshot = fleet("XX", 2);
    policy_of(&mut snapshot).skew_counts = SkewCounts::Released;
    let repair = Slot {
        repair: true,
        ..slot(0, "99")
    };
    snapshot.slots = vec![repair];
    assert_eq!(released(&plan(&snapshot, at(1))), ["n0", "n1"]);
}

/// The failure budget is that of the window; a pause is everybody's.
#[test]
fn a_pause_holds_what_takes_no_slot_and_a_halt_does_not() {
    let mut snapshot = fleet("xA", 1);
    snapshot.slots = vec![slot(0, "99")];
    let taken_over = node_of(&mut snapshot, "n1");
    (taken_over.live, taken_over.unchanged) = (Live::Unknown, Some(true));
    assert_eq!(released(&plan(&snapshot, at(1))), ["n1"]);
    let halted = plan(&snapshot, at(600));
    assert_eq!(halted.forms["web"].rollout.phase, Phase::Failed);
    assert_eq!(released(&halted), ["n1"]);
    policy_of(&mut snapshot).paused = true;
    let paused = plan(&snapshot, at(1));
    assert_eq!(paused.waiting["n1"].code(), "Paused");
}

#[test]
fn what_is_not_known_and_not_ready_fills_the_window() {
    let mut snapshot = fleet("XA", 1);
    let left = node_of(&mut snapshot, "n0");
    (left.live, left.unchanged) = (Live::Unknown, None);
    let waits = plan(&snapshot, at(1));
    assert_eq!(released(&waits), [""; 0]);
    assert_eq!(waits.waiting["n1"].code(), "BrokenBefore");
}

/// What became ready, lost its slot and broke then, runs the newest content: that is to be corrected, not the window widened.
#[test]
fn what_breaks_later_with_the_newest_content_is_not_called_broken_before() {
    let mut snapshot = fleet("xA", 1);
    snapshot.slots = vec![];
    let waits = plan(&snapshot, at(1));
    assert_eq!(waits.waiting["n1"].code(), "WindowFull");
    let told = waits.waiting["n1"].to_string();
    assert!(told.contains("not ready: n0"), "{told}");
    // What its form brought before has nothing to do with what waits now.
    began(&mut snapshot, 1);
    let waits = plan(&snapshot, at(2));
    assert_eq!(waits.waiting["n1"].code(), "BrokenBefore");
}

/// After a restore its slot was taken to the version that it has now; nothing else would move that.
#[test]
fn a_slot_of_what_is_live_and_ready_since_before_it_is_given_up() {
    let mut snapshot = fleet("ab", 1);
    snapshot.slots = vec![slot(0, "100")];
    let plan = plan(&snapshot, at(1));
    let given_up: Vec<&str> = plan.give_up.iter().map(|g| g.node.as_str()).collect();
    assert_eq!(given_up, ["n0"]);
}

/// A release that is not live any more has no slot in a ledger made anew.
#[test]
fn what_is_not_live_by_a_slot_gets_none_anew() {
    let mut snapshot = fleet("xx", 2);
    snapshot.ledger_lost = true;
    for (name, is_live) in [("n0", true), ("n1", false)] {
        let mut left = flight("99");
        left.is_live = is_live;
        node_of(&mut snapshot, name).flight = Some(left);
    }
    let anew = plan(&snapshot, at(1));
    assert_eq!(anew.ledger, Some(vec![presumed(0, "99")]));
    // Who takes the hashes off a node takes nothing from its slot.
    node_of(&mut snapshot, "n0").live = Live::Unknown;
    policy_of(&mut snapshot).paused = true;
    assert_eq!(plan(&snapshot, at(1)).ledger, anew.ledger);
}

/// With `skewCounts: Released` repairs and updates have places of their own.
#[test]
fn who_fills_a_window_is_told_for_each_kind_of_place() {
    let mut snapshot = fleet("xxAX", 1);
    policy_of(&mut snapshot).skew_counts = SkewCounts::Released;
    let repair = Slot {
        repair: true,
        ..slot(0, "99")
    };
    snapshot.slots = vec![repair, slot(1, "99")];
    let waits = plan(&snapshot, at(1)).waiting;
    let told = |name: &str| waits[name].to_string();
    assert!(told("n2").ends_with("not ready: n1"), "{}", told("n2"));
    assert!(told("n3").ends_with("not ready: n0"), "{}", told("n3"));
}

/// It is no failure of the content, but nothing goes on by itself.
#[test]
fn what_cannot_be_deleted_stalls() {
    let mut snapshot = fleet("xA", 1);
    snapshot.slots = vec![slot(0, "99")];
    let going = node_of(&mut snapshot, "n0");
    (going.deleting, going.why) = (true, Some("it is being deleted".into()));
    let form = &plan(&snapshot, at(700)).forms["web"];
    assert_eq!(form.rollout.failed_nodes, 0);
    let stalled = form.stalled.as_ref().unwrap().to_string();
    assert!(
        stalled.contains("not ready: n0 (it is being deleted)"),
        "{stalled}"
    );
}

/// Its next correction needs it.
#[test]
fn an_unused_slot_of_what_is_not_ready_is_kept() {
    let mut snapshot = fleet("X", 2);
    snapshot.forms.get_mut("web").unwrap().outdated = true;
    snapshot.slots = vec![slot(0, "100")];
    assert_eq!(plan(&snapshot, at(1)).give_up, []);
    // A release that is late must not land in a pause.
    policy_of(&mut snapshot).paused = true;
    let paused = plan(&snapshot, at(1));
    assert_eq!(paused.give_up.len(), 1);
    assert_eq!(paused.ledger, None);
}

/// An order needs slots, and the ledger has room for so many.
#[test]
fn an_order_without_a_window_fills_the_ledger_at_most() {
    let mut snapshot = fleet(&"A".repeat(1_001), 0);
    canaries_first(&mut snapshot);
    assert_eq!(released(&plan(&snapshot, at(1))).len(), 1_000);
}

/// Not even by force: it would go live as templates.
#[test]
fn what_no_hub_has_written_yet_waits_for_that() {
    let mut snapshot = fleet("AA", 0);
    for force in [false, true] {
        let form = snapshot.forms.get_mut("web").unwrap();
        form.forced = force;
        let left = node_of(&mut snapshot, "n0");
        (left.live, left.unrendered) = (Live::Unknown, true);
        let waits = plan(&snapshot, at(1));
        assert_eq!(released(&waits), ["n1"]);
        assert_eq!(waits.waiting["n0"].code(), "NotRendered");
    }
}

/// What was ready and breaks while it is watched has as long once more, but no longer than it would be watched: a
/// tenant that comes and goes fails, however often it was ready in between.
#[test]
fn what_breaks_while_it_is_watched_has_its_deadline_once_more() {
    const LIMIT: i64 = 600;
    for (name, soak, broke, fails) in [
        ("broken before the deadline", 1_000, 500, 500 + LIMIT),
        ("broken after it", 1_000, 700, 700 + LIMIT),
        ("again and again", 1_000, 1_500, LIMIT + 1_000),
        ("a short watch", 100, 650, LIMIT + 100),
        ("no watch", 0, 700, LIMIT),
    ] {
        let mut snapshot = fleet("xA", 1);
        policy_of(&mut snapshot).min_ready_seconds = soak;
        snapshot.slots = vec![slot(0, "99")];
        node_of(&mut snapshot, "n0").broke_at = Some(at(broke));
        assert_eq!(phase_of(&snapshot, fails - 1), Phase::InProgress, "{name}");
        assert_eq!(phase_of(&snapshot, fails), Phase::Failed, "{name}");
    }
}

/// What gets ready too late ends the halt once it has stayed so: what comes and goes would end it each time that it comes.
#[test]
fn what_gets_ready_too_late_counts_until_it_has_stayed_so() {
    const SOAK: i32 = 100;
    for (name, before, ready, halted_until) in [
        ("in time", Phase::Failed, 590, None),
        (
            "too late, and nobody has seen it",
            Phase::InProgress,
            701,
            None,
        ),
        ("too late", Phase::Failed, 701, Some(801)),
    ] {
        let mut snapshot = fleet("yA", 1);
        policy_of(&mut snapshot).min_ready_seconds = SOAK;
        let before = FormRolloutStatus {
            phase: before,
            ..state_of(&snapshot, 1).rollout
        };
        snapshot.forms.get_mut("web").unwrap().previous = Some(before);
        snapshot.slots = vec![slot(0, "99")];
        node_of(&mut snapshot, "n0").settled_since = Some(at(ready));
        let soaks = plan(&snapshot, at(ready + 20));
        let phase = match halted_until {
            Some(_) => Phase::Failed,
            None => Phase::InProgress,
        };
        assert_eq!(soaks.forms["web"].rollout.phase, phase, "{name}");
        let Some(until) = halted_until else { continue };
        let mut comes_and_goes = snapshot.clone();
        let node = node_of(&mut comes_and_goes, "n0");
        (node.settled_since, node.broke_at) = (None, Some(at(720)));
        assert_eq!(phase_of(&comes_and_goes, 721), Phase::Failed);
        // What is told is taken up in the next pass, and changes nothing any more.
        for (resumed, phase) in [(None, Phase::Failed), (Some(650), Phase::InProgress)] {
            let mut again = comes_and_goes.clone();
            let form = again.forms.get_mut("web").unwrap();
            form.resumed_at = resumed.map(at);
            for now in [721, 721, 721, 1_500] {
                let told = state_of(&again, now).rollout;
                assert_eq!(told.phase, phase, "{resumed:?} at {now}");
                again.forms.get_mut("web").unwrap().previous = Some(told);
            }
        }
        let mut unseen = snapshot.clone();
        unseen.unlooked = ["n0".into()].into();
        node_of(&mut unseen, "n0").settled_since = None;
        assert_eq!(phase_of(&unseen, 721), Phase::Failed, "as was told");
        unseen.forms.get_mut("web").unwrap().previous = None;
        assert_eq!(phase_of(&unseen, 721), Phase::InProgress, "nobody knows");
        let mut forgiven = snapshot.clone();
        forgiven.forms.get_mut("web").unwrap().resumed_at = Some(at(650));
        assert_eq!(phase_of(&forgiven, 750), Phase::InProgress);
        let Reason::RolloutFailed { why, .. } = &*soaks.waiting["n1"] else {
            panic!("{:?}", soaks.waiting);
        };
        let said = "it is ready, and must stay so until ";
        assert!(why.as_ref().unwrap().starts_with(said));
        assert_eq!(phase_of(&snapshot, until - 1), Phase::Failed);
        confirmed(&mut snapshot, 0);
        let freed = plan(&snapshot, at(until));
        assert_eq!(freed.ledger, Some(vec![]));
        snapshot.slots.clear();
        assert_eq!(phase_of(&snapshot, until), Phase::InProgress);
    }
}

/// A release of the version that is known here would fail.
#[test]
fn what_somebody_has_seen_a_newer_version_of_is_read_first() {
    let mut snapshot = fleet("AA", 2);
    snapshot.slots = vec![slot(0, "101")];
    let first = plan(&snapshot, at(1));
    assert_eq!(first.behind, ["n0"]);
    assert_eq!(released(&first), ["n1"]);
    assert_eq!(*first.waiting["n0"], Reason::Releasing);
}

/// Whoever waits for Complete waits for all the tenants there are.
#[test]
fn what_is_still_to_be_made_is_not_complete() {
    let mut snapshot = fleet("yy", 1);
    let form = snapshot.forms.get_mut("web").unwrap();
    form.absent.insert("n2".into(), 0);
    let state = plan(&snapshot, at(1)).forms["web"].clone();
    assert_eq!(state.rollout.phase, Phase::InProgress);
    let told = &state.rollout.message;
    assert!(
        told.starts_with("2/2 updated and ready; not created yet: n2;"),
        "{told}"
    );
    let applied = &state.conditions[0];
    assert_eq!((applied.type_, applied.status), ("Applied", false));
}

/// A form that is deleted and made anew in the middle of its rollout.
#[test]
fn a_slot_is_watched_for_as_long_as_its_form_asked_for_when_that_is_gone() {
    let mut snapshot = fleet("yA", 1);
    policy_of(&mut snapshot).min_ready_seconds = 60;
    let held = Snapshot {
        nodes: fleet("AA", 1).nodes,
        ..snapshot.clone()
    };
    let taken = plan(&held, at(1)).ledger.unwrap();
    assert_eq!(taken[0].min_ready_seconds, 60);
    snapshot.slots = vec![soaking(slot(0, "99"), 60)];
    let form = snapshot.forms.remove("web").unwrap();
    let gone = plan(&snapshot, at(30));
    assert_eq!((gone.confirm.len(), gone.wake_at), (0, Some(at(60))));
    snapshot.forms.insert("web".into(), form);
    policy_of(&mut snapshot).min_ready_seconds = 10;
    assert_eq!(
        plan(&snapshot, at(30)).confirm.len(),
        1,
        "the form's own word counts"
    );
}

/// What the process before this one told of a node may have changed since.
#[test]
fn nothing_gets_complete_before_every_node_was_looked_at() {
    let mut snapshot = fleet("yy", 1);
    assert_eq!(phase_of(&snapshot, 1), Phase::Complete);
    snapshot.unlooked = ["another form's".into()].into();
    assert_eq!(phase_of(&snapshot, 1), Phase::Complete);
    snapshot.unlooked.insert("n1".into());
    let told = state_of(&snapshot, 1).rollout;
    assert_eq!(told.phase, Phase::InProgress);
    let text =
        "2/2 updated and ready, as reported before the operator started; not checked yet: n1";
    assert_eq!(told.message, text);
    let before = FormRolloutStatus {
        phase: Phase::Complete,
        target_generation: 2,
        ..told
    };
    let form = snapshot.forms.get_mut("web").unwrap();
    form.previous = Some(before);
    assert_eq!(phase_of(&snapshot, 1), Phase::Complete, "as was told");
    snapshot.forms.get_mut("web").unwrap().rendered_generation = 3;
    assert_eq!(phase_of(&snapshot, 1), Phase::InProgress, "another form");
}
