//! Cases for what the API server does not take: releases, and the content itself.

use super::*;

pub fn refusal(why: &str) -> RefusedRelease {
    RefusedRelease {
        hash: "new".into(),
        why: why.into(),
        until: None,
        lasting: false,
        at: at(0),
    }
}

/// What is refused may go on to be, and each try costs a write of the ledger; other content is another matter.
#[test]
fn a_refused_release_is_put_off_and_gives_up_its_slot_when_that_lasts() {
    let mut snapshot = fleet("AA", 1);
    snapshot.slots = vec![slot(0, "100")];
    let refused = RefusedRelease {
        until: Some(at(30)),
        ..refusal("no")
    };
    snapshot.refused.insert("n0".into(), refused.clone());
    let put_off = plan(&snapshot, at(10));
    assert_eq!(
        (
            put_off.releases.len(),
            put_off.ledger,
            put_off.give_up.len()
        ),
        (0, None, 0)
    );
    assert_eq!(put_off.waiting["n0"].code(), "ReleaseRefused");
    assert_eq!(put_off.wake_at, Some(at(30)));
    let others = put_off.waiting["n1"].to_string();
    assert_eq!(
        others,
        "the window of 1 is full; the API server rejected their release: n0"
    );

    let lasting = RefusedRelease {
        lasting: true,
        ..refused
    };
    snapshot.refused.insert("n0".into(), lasting);
    let given_up = plan(&snapshot, at(10)).give_up;
    assert_eq!(given_up.len(), 1, "others may go meanwhile");
    // Nothing of it went, so that nothing is to be watched.
    let form = snapshot.forms.get_mut("web").unwrap();
    form.policy.min_ready_seconds = 3600;
    let node = snapshot.nodes.get_mut("n0").unwrap();
    node.settled_since = Some(at(9));
    node.start = node.settled_since;
    (node.watched_since, node.same_since) = (Some(at(9)), Some(at(9)));
    let version = std::mem::replace(&mut node.resource_version, "101".into());
    let uid = node.uid.clone();
    snapshot.confirmed.insert(Confirmation::Ready {
        uid,
        resource_version: "101".into(),
    });
    assert_eq!(released(&plan(&snapshot, at(10))), ["n1"]);
    snapshot.nodes.get_mut("n0").unwrap().resource_version = version;

    assert_eq!(released(&plan(&snapshot, at(30))), ["n0"]);
    snapshot.nodes.get_mut("n0").unwrap().desired = "newer".into();
    assert_eq!(released(&plan(&snapshot, at(10))), ["n0"]);
}

/// Each of many is tried in turn; who looks at the form must not read another word at each try.
#[test]
fn what_is_refused_again_and_again_is_what_all_wait_for() {
    let mut snapshot = fleet("AAAA", 1);
    let lasting = |until: i64| RefusedRelease {
        until: Some(at(until)),
        lasting: true,
        ..refusal("no such webhook")
    };
    // The slot is another's, and its time to be tried has come.
    snapshot.refused.insert("n0".into(), lasting(5));
    snapshot.refused.insert("n1".into(), lasting(30));
    snapshot.slots = vec![slot(2, "100")];
    let plan = plan(&snapshot, at(10));
    assert_eq!(released(&plan), ["n2"]);
    let code = |node: &str| plan.waiting[node].code();
    let codes = ["n0", "n1", "n2", "n3"].map(code);
    let refused = "ReleaseRefused";
    assert_eq!(codes, [refused, refused, "Releasing", "WindowFull"]);
    let blocked = plan.forms["web"].blocked.as_ref();
    assert_eq!(blocked.map(Reason::code), Some(refused));
}

/// Nobody knows any more whether it would be.
#[test]
fn an_old_refusal_is_not_told() {
    let mut snapshot = fleet("AA", 1);
    let old = RefusedRelease {
        until: Some(at(5)),
        lasting: true,
        ..refusal("no such webhook")
    };
    snapshot.refused.insert("n0".into(), old);
    snapshot.slots = vec![slot(1, "100")];
    let told = |second: i64| plan(&snapshot, at(second)).waiting["n0"].code();
    assert_eq!((told(59), told(60)), ("ReleaseRefused", "WindowFull"));
    assert_eq!(plan(&snapshot, at(10)).wake_at, Some(at(60)));
}

/// What was refused says nothing of what was corrected since.
#[test]
fn a_refusal_of_other_content_is_not_told() {
    let mut snapshot = fleet("A", 1);
    let refused = RefusedRelease {
        until: Some(at(30)),
        lasting: true,
        ..refusal("no")
    };
    snapshot.refused.insert("n0".into(), refused);
    snapshot.nodes.get_mut("n0").unwrap().desired = "newer".into();
    assert_eq!(plan(&snapshot, at(10)).waiting["n0"].code(), "Releasing");
}

/// What is too large, or refused, is not awaited; but nobody is told that it is there.
#[test]
fn a_form_is_not_complete_whose_content_could_not_be_written() {
    let mut snapshot = fleet("yyy", 1);
    let form = snapshot.forms.get_mut("web").expect("the form");
    form.unwritten = ["n2", "n7"].map(Arc::from).into();
    let rollout = &plan(&snapshot, at(1)).forms["web"].rollout;
    assert_eq!((rollout.updated_nodes, rollout.held_nodes), (2, 0));
    assert_eq!(rollout.phase, Phase::InProgress);
    assert!(
        rollout.message.starts_with(
            "the newest content is not written to n2, n7: if that lasts, see the hub's conditions"
        ),
        "{}",
        rollout.message
    );
}

/// Its row is rendered from the newest form, and could not be written: what is held there is of an older one.
#[test]
fn held_content_that_is_not_the_newest_is_not_released() {
    let mut snapshot = fleet("AA", 1);
    let form = snapshot.forms.get_mut("web").expect("the form");
    form.unwritten.insert("n0".into());
    for forced in [false, true] {
        snapshot.forced = forced;
        let plan = plan(&snapshot, at(1));
        assert_eq!(released(&plan), ["n1"]);
        assert_eq!(plan.waiting["n0"].code(), "NotRendered");
    }
}

#[test]
fn while_the_ledger_is_refused_all_that_need_a_slot_say_so() {
    let why = "the books are closed";
    let mut snapshot = fleet("AAA", 1);
    snapshot.ledger_refused = Some(why.into());
    let waits = |snapshot: &Snapshot| {
        let plan = plan(snapshot, at(1));
        assert_eq!(released(&plan).first(), Some(&"n0"), "it is tried again");
        plan.waiting.into_values().collect::<Vec<_>>()
    };
    let refused = Arc::new(Reason::LedgerRefused { why: why.into() });
    assert_eq!(waits(&snapshot), vec![refused; 3]);
    snapshot.forms.get_mut("web").unwrap().forced = true;
    assert_eq!(waits(&snapshot), vec![Arc::new(Reason::Releasing); 3]);
}

/// It keeps its slot, for it fills the window anyway.
#[test]
fn who_is_refused_and_not_ready_is_told_as_refused() {
    let mut snapshot = fleet("XXA", 1);
    snapshot.slots = vec![slot(0, "100")];
    let refused = RefusedRelease {
        until: Some(at(30)),
        lasting: true,
        ..refusal("no")
    };
    snapshot.refused.insert("n0".into(), refused);
    let plan = plan(&snapshot, at(10));
    assert!(plan.give_up.is_empty() && plan.releases.is_empty());
    assert_eq!(
        plan.waiting["n1"].to_string(),
        "the window of 1 is full; the API server rejected their release: n0; already not ready before this change: n1"
    );
}
