//! Cases for slots whose nodes are made anew.

use super::*;

/// Nothing goes, and the ledger stays; when it is looked at again.
fn waits_until(snapshot: &Snapshot, second: i64) -> Option<Timestamp> {
    let plan = plan(snapshot, at(second));
    assert!(plan.releases.is_empty() && plan.ledger.is_none());
    plan.wake_at
}

/// Who deletes what is broken gets it back, and breaks nobody else.
#[test]
fn the_slot_of_a_node_that_is_made_anew_is_its_successors() {
    let mut snapshot = fleet("xA", 1);
    snapshot.slots = vec![slot(0, "99")];
    let mut anew = snapshot.nodes.remove("n0").unwrap();
    let form = snapshot.forms.get_mut("web").unwrap();
    form.absent.insert("n0".into(), 0);
    let gone = Confirmation::Gone {
        uid: "uid-0".into(),
    };
    snapshot.confirmed.insert(gone);
    let waits = plan(&snapshot, at(1));
    assert!(waits.releases.is_empty() && waits.ledger.is_none());
    // What cannot be made anew keeps nobody waiting.
    snapshot.missing.insert("uid-0".into(), at(0));
    assert_eq!(waits_until(&snapshot, 59), Some(at(60)));
    assert_eq!(released(&plan(&snapshot, at(60))), ["n1"]);
    (anew.uid, anew.live) = ("uid-9".into(), Live::None);
    (anew.start, anew.resource_version) = (None, "200".into());
    snapshot.nodes.insert("n0", anew);
    let form = snapshot.forms.get_mut("web").unwrap();
    form.absent.clear();
    form.unwritten.insert("n0".into());
    assert_eq!(waits_until(&snapshot, 1), Some(at(60)));
    let form = snapshot.forms.get_mut("web").unwrap();
    form.unwritten.clear();
    let goes = plan(&snapshot, at(1));
    assert_eq!(released(&goes), ["n0"]);
    let mut its = slot(0, "200");
    its.uid = "uid-9".into();
    assert_eq!(goes.ledger, Some(vec![its]));
    // It has one already: the release of the pass before conflicted.
    snapshot.slots.push(goes.ledger.unwrap().remove(0));
    let again = plan(&snapshot, at(1)).ledger.unwrap();
    assert_eq!(again.len(), 1);
    snapshot.slots.pop();
    // Its row is gone as well: the place is somebody else's.
    snapshot.nodes.remove("n0");
    assert_eq!(released(&plan(&snapshot, at(1))), ["n1"]);
}

/// Its release did not tell that it would be watched, and so it has landed as soon as it is ready.
#[test]
fn who_is_in_flight_is_watched_as_the_form_says_by_now() {
    let mut snapshot = fleet("yA", 1);
    snapshot.slots = vec![slot(0, "99")];
    confirmed(&mut snapshot, 0);
    let node = snapshot.nodes.get_mut("n0").unwrap();
    node.flight = Some(Flight {
        watched: false,
        landed: true,
        ..super::alone::flight("99")
    });
    assert_eq!(released(&plan(&snapshot, at(1))), ["n1"]);
    let form = snapshot.forms.get_mut("web").unwrap();
    form.policy.min_ready_seconds = 30;
    assert_eq!(waits_until(&snapshot, 29), Some(at(30)));
    assert_eq!(released(&plan(&snapshot, at(30))), ["n1"]);
}

/// It is not sent again, its slot stays as it is, and other places are filled meanwhile.
#[test]
fn a_release_without_a_reply_keeps_its_slot_and_is_not_sent_again() {
    let mut snapshot = fleet("AAA", 1);
    snapshot.slots = vec![slot(0, "100")];
    snapshot.sent.insert("n0".into(), "100".into());
    let waits = plan(&snapshot, at(1));
    assert!(waits.releases.is_empty() && waits.ledger.is_none());
    assert_eq!(waits.waiting["n0"].code(), "Releasing");
    let others = waits.waiting["n1"].to_string();
    assert_eq!(others, "the window of 1 is full; not ready: n0");
    let form = snapshot.forms.get_mut("web").unwrap();
    form.policy.max_skew = Skew::Count(2);
    let goes = plan(&snapshot, at(1));
    assert_eq!(released(&goes), ["n1"]);
    assert_eq!(goes.ledger.map(|slots| slots.len()), Some(2));
    let form = snapshot.forms.get_mut("web").unwrap();
    form.policy.paused = true;
    assert!(plan(&snapshot, at(1)).give_up.is_empty());
    let form = snapshot.forms.get_mut("web").unwrap();
    form.policy.paused = false;
    let refused = RefusedRelease {
        until: Some(at(0)),
        ..refusals::refusal("no")
    };
    snapshot.refused.insert("n0".into(), refused);
    let tried_again = plan(&snapshot, at(1));
    assert_eq!(tried_again.waiting["n0"].code(), "ReleaseRefused");
    // The release that was sent cannot go through any more.
    let node = snapshot.nodes.get_mut("n0").unwrap();
    node.resource_version = "101".into();
    assert_eq!(released(&plan(&snapshot, at(1))), ["n0", "n1"]);
}

/// It was forced, say, and the form is not forced any more.
#[test]
fn a_release_without_a_slot_fills_the_window_until_its_reply() {
    let mut snapshot = fleet("AA", 1);
    snapshot.sent.insert("n0".into(), "100".into());
    let waits = plan(&snapshot, at(1));
    assert!(waits.releases.is_empty() && waits.ledger.is_none());
    assert_eq!(waits.waiting["n1"].code(), "WindowFull");
    snapshot.sent.clear();
    assert_eq!(released(&plan(&snapshot, at(1))), ["n0"]);
}
