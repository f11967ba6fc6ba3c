//! Cases for what a user may ask of a rollout: order, what counts, force, resume; for the reasons, and the estimate.

use super::refusals::refusal;
use super::*;
use crate::api::policy::{Group, SkewCounts, WINDOW_MAX};

/// A fleet whose node `i` is in group `groups[i]` of two, `canaries` and `early`; 2 is the rest.
fn ordered(states: &str, max_skew: u32, groups: &str) -> Snapshot {
    let mut snapshot = fleet(states, max_skew);
    let group = |name: &str| Group {
        name: name.into(),
        when: None,
        match_labels: BTreeMap::from([("ring".into(), name.into())]),
        pause: false,
    };
    snapshot.forms.get_mut("web").unwrap().policy.order = vec![group("canaries"), group("early")];
    for (i, digit) in groups.chars().enumerate() {
        snapshot.nodes.get_mut(&format!("n{i}")).unwrap().group = digit as usize - '0' as usize;
    }
    snapshot
}

#[test]
fn a_group_waits_for_those_before_it() {
    for (name, states, skew, groups, slots, expected) in [
        ("canaries first", "AAA", 3, "210", vec![], vec!["n2"]),
        (
            "all of a group",
            "AAAA",
            3,
            "0012",
            vec![],
            vec!["n0", "n1"],
        ),
        ("not ready", "xAA", 3, "012", vec![], vec![]),
        ("its slot is still out", "yAA", 3, "012", vec![0], vec![]),
        ("done", "yAA", 3, "012", vec![], vec!["n1"]),
        ("an empty group", "AA", 3, "22", vec![], vec!["n0", "n1"]),
        (
            "broken before: waits its turn",
            "AX",
            3,
            "02",
            vec![],
            vec!["n0"],
        ),
        (
            "broken by this rollout: does not",
            "AX",
            3,
            "02",
            vec![1],
            vec!["n1", "n0"],
        ),
        ("without a window", "AAA", 0, "011", vec![], vec!["n0"]),
        (
            "broken fill the window: what may be their correction goes",
            "AXXA",
            2,
            "0222",
            vec![],
            vec!["n1", "n2"],
        ),
        (
            "one of the group is on its way",
            "xAXX",
            2,
            "0022",
            vec![0],
            vec![],
        ),
    ] {
        let mut snapshot = ordered(states, skew, groups);
        snapshot.slots = slots.into_iter().map(|i| slot(i, "99")).collect();
        let plan = plan(&snapshot, at(1));
        assert_eq!(released(&plan), expected, "{name}: {:?}", plan.waiting);
    }
    // A group that matches nobody holds nobody up.
    let nobody = plan(&ordered("AA", 1, "11"), at(1)).forms["web"].clone();
    let told = &nobody.rollout.message;
    let note = "; no node is in the group \"canaries\" of rollout.order";
    assert!(told.ends_with(note), "{told}");
    // One that is to be made anew counts in its group.
    let mut goes = ordered("AAA", 3, "011");
    goes.nodes.get_mut("n0").unwrap().deleting = true;
    assert_eq!(released(&plan(&goes, at(1))), ["n1", "n2"]);
    goes.forms.get_mut("web").unwrap().unwritten = ["n0".into()].into();
    let waits = plan(&goes, at(1)).waiting;
    assert!(
        waits.values().all(|why| why.code() == "GroupNotDone"),
        "{waits:?}"
    );
    let mut snapshot = ordered("xAA", 3, "012");
    let waits = |snapshot: &Snapshot| plan(snapshot, at(1)).waiting["n2"].to_string();
    let text = "the group \"canaries\" comes first and is not done: n0";
    assert_eq!(waits(&snapshot), text);
    let canary = snapshot.nodes.get_mut("n0").unwrap();
    (canary.settled_since, canary.ready) = (Some(at(0)), true);
    snapshot.slots = vec![slot(0, "99")];
    snapshot
        .forms
        .get_mut("web")
        .unwrap()
        .policy
        .min_ready_seconds = 60;
    let soaks = format!("{text} (it is ready, and must stay so until 08:01:00 UTC)");
    assert_eq!(waits(&snapshot), soaks);
}

#[test]
fn a_group_with_a_pause_waits_to_be_promoted() {
    // (case, states, groups of the nodes, groups that are promoted, released)
    let cases = [
        ("the group itself goes", "AAA", "012", 0, vec!["n0"]),
        ("it is under way", "xAA", "012", 0, vec![]),
        ("nobody promoted it", "yAA", "012", 0, vec![]),
        ("promoted", "yAA", "012", 1, vec!["n1"]),
        ("promoted before it is done", "xAA", "012", 1, vec![]),
        ("all are promoted", "yyA", "012", 2, vec!["n2"]),
        ("nobody is in the group", "AA", "22", 0, vec![]),
    ];
    let paused = |states: &str, groups: &str, promoted: usize| {
        let mut snapshot = ordered(states, 3, groups);
        let form = snapshot.forms.get_mut("web").unwrap();
        (form.policy.order[0].pause, form.promoted) = (true, promoted);
        snapshot
    };
    for (case, states, groups, promoted, expected) in cases {
        let plan = plan(&paused(states, groups, promoted), at(1));
        assert_eq!(released(&plan), expected, "{case}: {:?}", plan.waiting);
    }
    let waits = plan(&paused("yAA", "012", 0), at(1));
    let rollout = &waits.forms["web"].rollout;
    assert_eq!(rollout.phase, Phase::Paused);
    let told = &rollout.waiting[0];
    assert_eq!(
        (&*told.reason, told.count, told.group.as_deref()),
        ("AwaitingPromotion", 2, Some("canaries"))
    );
    let next = "if the nodes of that group work as they should: lynqgate promote web (or kubectl annotate lynqform web --overwrite \
                'lynq.sh/promote=2/canaries'); if not, correct the form, or lynqgate undo web";
    assert_eq!(told.next, next);
    // What the rollout broke is corrected all the same.
    let mut broken = paused("yAX", "012", 0);
    broken.slots = vec![slot(2, "99")];
    assert_eq!(released(&plan(&broken, at(1))), ["n2"]);
}

#[test]
fn a_promotion_is_of_a_group_and_of_generations_that_render_alike() {
    let order = ordered("A", 1, "0").forms["web"].policy.order.clone();
    let cases = [
        ("7/canaries", 1),
        ("7/early", 2),
        ("6/early", 2),
        ("5/early", 0),
        ("8/early", 0),
        ("7/late", 0),
        ("7", 0),
        ("x/early", 0),
    ];
    for (annotation, expected) in cases {
        let annotation = annotation.to_owned();
        let promoted = order::promoted(Some(&annotation), &order, 6, 7);
        assert_eq!(promoted, expected, "{annotation}");
    }
    assert_eq!(order::promoted(None, &order, 6, 7), 0);
}

#[test]
fn what_is_broken_for_good_fills_no_window_that_counts_releases() {
    for (name, states, skew, slots, expected) in [
        ("broken ones do not count", "xxxAA", 1, vec![], vec!["n3"]),
        ("what was released does", "xxAA", 1, vec![0], vec![]),
        ("a repair beside a release", "xXXA", 1, vec![0], vec!["n1"]),
        (
            "as many repairs as the window",
            "XXXA",
            2,
            vec![],
            vec!["n0", "n1", "n3"],
        ),
    ] {
        let mut snapshot = fleet(states, skew);
        snapshot.forms.get_mut("web").unwrap().policy.skew_counts = SkewCounts::Released;
        snapshot.slots = slots.into_iter().map(|i| slot(i, "99")).collect();
        assert_eq!(released(&plan(&snapshot, at(1))), expected, "{name}");
    }
}

#[test]
fn force_on_form_or_hub_lets_everything_go() {
    for on_hub in [true, false] {
        let mut snapshot = fleet("xxAN", 1);
        let form = snapshot.forms.get_mut("web").unwrap();
        form.policy.paused = true;
        (form.forced, snapshot.forced) = (!on_hub, on_hub);
        let plan_now = plan(&snapshot, at(1));
        assert_eq!(released(&plan_now), ["n2", "n3"]);
        assert!(
            plan_now.ledger.is_none() && plan_now.releases.iter().all(|r| r.way == Way::Forced)
        );
        snapshot.deletions_held = true;
        assert_eq!(released(&plan(&snapshot, at(1))), ["n2"], "no new nodes");
    }
}

#[test]
fn resume_forgives_what_failed_before() {
    let mut snapshot = fleet("xAA", 2);
    snapshot.slots = vec![slot(0, "99")];
    let mut resumed = |time: i64| {
        snapshot.forms.get_mut("web").unwrap().resumed_at = Some(at(time));
        plan(&snapshot, at(700))
    };
    assert_eq!(released(&resumed(650)), ["n1"], "it failed at 600");
    assert_eq!(released(&resumed(599)), [""; 0], "it failed after that");
    let early = resumed(705);
    assert_eq!(
        (released(&early), early.wake_at),
        (vec![], Some(at(705))),
        "not yet"
    );
}

#[test]
fn a_slot_that_will_not_be_used_is_given_up() {
    let with = |states: &str, version: &str| {
        let mut snapshot = fleet(states, 1);
        snapshot.slots = vec![slot(0, version), slot(1, "99")];
        snapshot
    };
    let given_up = |snapshot: &Snapshot| {
        let plan = plan(snapshot, at(1));
        plan.give_up
            .into_iter()
            .map(|slot| slot.node)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        given_up(&with("AxA", "100")),
        ["n0"],
        "more slots than the window has"
    );
    assert_eq!(
        given_up(&with("AxA", "99")),
        [""; 0],
        "no late release can use it"
    );
    assert_eq!(
        given_up(&with("XxA", "100")),
        [""; 0],
        "it fills the window anyway"
    );
    let mut paused = fleet("AA", 2);
    paused.slots = vec![slot(0, "100")];
    paused.forms.get_mut("web").unwrap().policy.paused = true;
    assert_eq!(given_up(&paused), ["n0"]);
    paused.forms.get_mut("web").unwrap().policy.paused = false;
    assert_eq!(given_up(&paused), [""; 0], "it is used");
}

#[test]
fn a_slot_of_a_restored_storage_is_written_again_and_not_compared() {
    let mut snapshot = fleet("yA", 1);
    snapshot.slots = vec![slot(0, "5000")];
    let plan = plan(&snapshot, at(1));
    assert_eq!(plan.ledger, Some(vec![slot(0, "100")]));
    assert!(plan.confirm.is_empty() && plan.releases.is_empty());
}

#[test]
fn a_release_that_nobody_reports_on_is_looked_at_again() {
    let mut snapshot = fleet("xA", 1);
    snapshot.slots = vec![slot(0, "99")];
    snapshot.nodes.get_mut("n0").unwrap().seen = false;
    let early = plan(&snapshot, at(1));
    assert_eq!(early.waiting["n1"].code(), "WindowFull");
    assert_eq!(early.wake_at, Some(at(30)));
    assert_eq!(
        plan(&snapshot, at(30)).waiting["n1"].code(),
        "ReadinessUnknown"
    );
}

#[test]
fn the_reason_tells_who_fills_the_window() {
    let reason = |change: &dyn Fn(&mut Snapshot)| {
        let mut snapshot = fleet("xAA", 1);
        snapshot.slots = vec![slot(0, "99")];
        change(&mut snapshot);
        let plan = plan(&snapshot, at(60));
        (plan.waiting["n1"].code(), plan.waiting["n1"].to_string())
    };
    type Change = dyn Fn(&mut Snapshot);
    let cases: [(&Change, &str, &str); 8] = [
        (
            &|_| {},
            "WindowFull",
            "the window of 1 is full; not ready: n0",
        ),
        (
            &|s| s.nodes.get_mut("n0").unwrap().why = Some("no image".into()),
            "WindowFull",
            "the window of 1 is full; not ready: n0 (no image)",
        ),
        (
            &|s| {
                s.slots.clear();
                began(s, 1);
            },
            "BrokenBefore",
            "the window of 1 is full of nodes that were already not ready before this change: n0",
        ),
        (
            &|s| {
                s.nodes.get_mut("n0").unwrap().settled_since = Some(at(50));
                s.forms.get_mut("web").unwrap().policy.min_ready_seconds = 30;
            },
            "Soaking",
            "the window of 1 is full; ready, and watched until 08:01:20 UTC at least: n0",
        ),
        (
            &|s| s.nodes.get_mut("n0").unwrap().seen = false,
            "ReadinessUnknown",
            "the window of 1 is full; released, no status update since: n0",
        ),
        (
            &|s| {
                s.hub_skew = Skew::Count(1);
                s.forms.get_mut("web").unwrap().policy.max_skew = Skew::Count(5);
            },
            "HubWindowFull",
            "the hub's window of 1 is full; not ready: n0",
        ),
        (
            &|s| {
                s.slots.push(slot(1, "100"));
            },
            "SlotReserved",
            "already holds a slot; waits because maxSkew is now 1 and 2 slots are in use; not ready: n0; about to be released: n1",
        ),
        (
            &|s| {
                s.slots.clear();
                s.nodes.get_mut("n0").unwrap().settled_since = Some(at(1));
                let refused = RefusedRelease {
                    until: Some(at(2)),
                    ..refusal("no route to host")
                };
                s.refused.insert("n1".into(), refused);
            },
            "ReleaseRefused",
            "the API server rejected the release of n1: no route to host",
        ),
    ];
    for (change, code, said) in cases {
        assert_eq!(reason(change), (code, said.to_owned()));
    }
}

#[test]
fn the_status_estimates_the_end_from_what_went_through() {
    let mut snapshot = fleet("yyyyAAAA", 2);
    let began = plan(&snapshot, at(1)).forms["web"].rollout.clone();
    assert_eq!((began.start_time, began.waves_left), (Some(at(1)), Some(2)));
    snapshot.forms.get_mut("web").unwrap().previous = Some(began);
    for i in 0..4 {
        let node = snapshot.nodes.get_mut(&format!("n{i}")).unwrap();
        let began = 1 + 10 * (i / 2);
        (node.start, node.settled_since) = (Some(at(began)), Some(at(began + 10)));
    }
    let status = |now: i64| plan(&snapshot, at(now)).forms["web"].rollout.clone();
    let later = status(40);
    assert_eq!((later.waves_done, later.waves_left), (Some(2), Some(2)));
    assert_eq!(
        later.estimated_completion,
        Some(at(41)),
        "10 s for each of 4 more, two at a time, from 21 on"
    );
    assert_eq!(later, status(90), "it does not move by itself");

    let mut without = |i: usize| {
        let node = snapshot.nodes.get_mut(&format!("n{i}")).unwrap();
        node.live = Live::Hash("old".into());
        (node.start, node.settled_since) = (Some(at(-100)), Some(at(-90)));
        plan(&snapshot, at(22)).forms["web"].rollout.clone()
    };
    // One alone took as long as a full window does.
    let estimated = without(3).estimated_completion;
    assert_eq!(estimated, Some(at(46)), "5 * 10 s / 2, from 21 on");
    let estimated = without(2).estimated_completion;
    assert_eq!(estimated, None, "two say too little");
}

#[test]
fn a_window_made_narrower_than_the_slots_that_are_out_does_not_lock_itself() {
    let with = |states: &str, version: &str| {
        let mut snapshot = fleet(states, 2);
        snapshot.slots = (0..3).map(|i| slot(i, version)).collect();
        snapshot
    };
    let broken = plan(&with("XXXA", "99"), at(1));
    assert_eq!(released(&broken), ["n0", "n1", "n2"]);

    let new = plan(&with("NNNA", "100"), at(1));
    assert_eq!(released(&new), [""; 0]);
    let given_up: Vec<&str> = new.give_up.iter().map(|slot| slot.node.as_str()).collect();
    assert_eq!(given_up, ["n0", "n1", "n2"], "none of them was used");
    let moved = plan(&with("NNNA", "99"), at(1));
    assert_eq!(moved.confirm.len(), 3, "{:?}", moved.confirm);
}

/// Another leader took the slot for a newer version of the node, and its release is under way.
#[test]
fn a_slot_is_never_written_back_to_an_older_version() {
    let mut snapshot = fleet("AA", 2);
    snapshot.slots = vec![slot(0, "150")];
    let plan = plan(&snapshot, at(1));
    assert_eq!(released(&plan), ["n1"]);
    assert!(plan.ledger.unwrap().contains(&slot(0, "150")));
    assert!(plan.waiting.contains_key("n0"));
}

#[test]
fn a_lost_ledger_is_made_anew_from_what_is_in_flight() {
    let flight = |repair| {
        Some(Flight {
            hash: "new".into(),
            release: "99".into(),
            repair,
            watched: false,
            landed: false,
            is_live: true,
        })
    };
    let mut snapshot = fleet("xxyAA", 2);
    snapshot.forms.get_mut("web").unwrap().policy.skew_counts = SkewCounts::Released;
    for i in 0..3 {
        snapshot.nodes.get_mut(&format!("n{i}")).unwrap().flight = flight(false);
    }
    let rolled_out = snapshot.nodes.get_mut("n2").unwrap();
    rolled_out.flight.as_mut().unwrap().landed = true;
    let at_once = plan(&snapshot, at(1));
    assert_eq!(
        released(&at_once),
        ["n3", "n4"],
        "nobody would be in flight"
    );
    snapshot.ledger_lost = true;
    let plan_anew = plan(&snapshot, at(1));
    assert!(released(&plan_anew).is_empty(), "{:?}", plan_anew.releases);
    let slots = plan_anew.ledger.expect("it is written");
    assert_eq!(slots, [presumed(0, "99"), presumed(1, "99")]);

    snapshot.nodes.get_mut("n0").unwrap().deleting = true;
    let slots = plan(&snapshot, at(1)).ledger.expect("it is written");
    assert_eq!(slots.len(), 2, "what is being deleted is there still");
    snapshot.nodes.get_mut("n0").unwrap().deleting = false;

    // Repairs stay repairs, and leave the place of the others free.
    for i in 0..2 {
        snapshot.nodes.get_mut(&format!("n{i}")).unwrap().flight = flight(true);
    }
    assert_eq!(released(&plan(&snapshot, at(1))), ["n3", "n4"]);

    let mut settled = fleet("yyA", 2);
    settled.ledger_lost = true;
    assert_eq!(
        plan(&settled, at(1)).ledger,
        Some(vec![slot(2, "100")]),
        "a hub that is new"
    );
    // Rolled out, and its slot not freed yet: it is watched, and may blink meanwhile.
    for (state, freed) in [("y", Some(30)), ("x", None)] {
        let mut watched = fleet(&format!("{state}y"), 2);
        watched.ledger_lost = true;
        watched
            .forms
            .get_mut("web")
            .unwrap()
            .policy
            .min_ready_seconds = 30;
        let node = watched.nodes.get_mut("n0").unwrap();
        node.flight = flight(false);
        node.flight.as_mut().unwrap().watched = true;
        let anew = soaking(presumed(0, "99"), 30);
        assert_eq!(plan(&watched, at(29)).ledger, Some(vec![anew]));
        watched.ledger_lost = false;
        watched.slots = vec![slot(0, "99")];
        let plan = plan(&watched, at(29));
        assert_eq!((plan.ledger, plan.confirm.len()), (None, 0), "{state}");
        let later = super::plan(&watched, at(30));
        assert_eq!(later.confirm.len(), usize::from(freed.is_some()), "{state}");
    }
}

/// Its node says so, in case that the ledger is lost: what blinks later has no slot any more.
#[test]
fn that_a_watched_slot_is_freed_is_said_once_the_ledger_is_written() {
    let mut snapshot = fleet("yyA", 2);
    snapshot
        .forms
        .get_mut("web")
        .unwrap()
        .policy
        .min_ready_seconds = 30;
    for i in 0..2 {
        let node = snapshot.nodes.get_mut(&format!("n{i}")).unwrap();
        node.flight = Some(Flight {
            hash: "new".into(),
            release: format!("9{i}"),
            repair: false,
            watched: true,
            landed: false,
            is_live: true,
        });
    }
    snapshot.slots = vec![slot(1, "91")];
    let plan = |snapshot: &Snapshot| super::plan(snapshot, at(1));
    let freed = |plan: &Plan| {
        let freed = plan.freed.iter();
        freed
            .map(|freed| (freed.node.clone(), freed.release.clone()))
            .collect::<Vec<_>>()
    };
    let planned = plan(&snapshot);
    assert!(planned.ledger.is_some());
    assert_eq!(freed(&planned), [("n0".to_owned(), "90".to_owned())]);
    snapshot.nodes.remove("n2");
    let without_write = plan(&snapshot);
    assert!(without_write.ledger.is_none() && without_write.freed.is_empty());

    snapshot
        .nodes
        .get_mut("n0")
        .unwrap()
        .flight
        .as_mut()
        .unwrap()
        .landed = true;
    snapshot.ledger_lost = true;
    let anew = plan(&snapshot);
    assert_eq!(anew.ledger, Some(vec![soaking(presumed(1, "91"), 30)]));
    assert!(anew.freed.is_empty());
}

/// A crowd that broke after it was rolled out has no slots, and a correction reaches no more of it at once than ever.
#[test]
fn what_broke_since_its_slot_was_freed_gets_none_from_a_lost_ledger() {
    for counts in [SkewCounts::All, SkewCounts::Released] {
        let mut snapshot = fleet("XXXXXX", 2);
        snapshot.forms.get_mut("web").unwrap().policy.skew_counts = counts;
        snapshot.ledger_lost = true;
        for (name, node) in snapshot.nodes.iter_mut() {
            let flight = Flight {
                hash: "new".into(),
                release: "99".into(),
                repair: &**name == "n5",
                watched: &**name == "n4",
                landed: &**name != "n5",
                is_live: true,
            };
            node.flight = Some(flight);
        }
        let plan = plan(&snapshot, at(1));
        assert_eq!(released(&plan), ["n0", "n5"], "{counts:?}");
        assert_eq!(plan.ledger.map(|slots| slots.len()), Some(2));
    }
}

#[test]
fn a_ledger_has_room_for_so_many_slots_whatever_the_forms_say() {
    let states: String = ["A"; 700].concat();
    let mut snapshot = fleet(&states, 700);
    let other = snapshot.forms["web"].clone();
    snapshot.forms.insert("other".into(), other);
    for i in 0..350 {
        snapshot.nodes.get_mut(&format!("n{i}")).unwrap().form = "other".into();
    }
    let taken = |i: usize| Slot {
        node: format!("m{i}"),
        uid: format!("uid-m{i}"),
        ..slot(i, "1")
    };
    snapshot.slots = (0..600).map(taken).collect();
    let plan = plan(&snapshot, at(1));
    assert_eq!(plan.ledger.map(|slots| slots.len()), Some(WINDOW_MAX));
    let full = |reason: &Reason| {
        matches!(
            reason,
            Reason::HubWindowFull {
                window: WINDOW_MAX,
                ..
            }
        )
    };
    assert!(plan.waiting.values().any(|reason| full(reason)));
}
