//! Cases for what people are told: force, the hub's window, the pace, and what `explain` makes of it.

mod causes;

use serde_json::json;

use super::*;
use crate::api::conditions::Condition;
use crate::api::node::NodeStatus;
use crate::api::text::Text;
use crate::api::{names, stamp};
use crate::decide::node::digest::NodeDigest;
use crate::decide::rollout::explain::{Asked, Explanation, Leader};
use crate::decide::rollout::status::FormState;
use crate::decide::shared::content;

pub fn state_of(snapshot: &Snapshot, second: i64) -> FormState {
    plan(snapshot, at(second)).forms["web"].clone()
}

pub fn policy_of(snapshot: &mut Snapshot) -> &mut Rollout {
    &mut snapshot.forms.get_mut("web").unwrap().policy
}

/// Says why its form is not valid, and asks.
pub fn ask(
    snapshot: &Snapshot,
    second: i64,
    invalid: Option<(&str, &str)>,
    about: impl Fn(&Asked) -> Explanation,
) -> Explanation {
    let told = |(code, text): (&str, &str)| (code.to_owned(), text.to_owned());
    about(&Asked {
        namespace: "tenants",
        snapshot,
        plan: &plan(snapshot, at(second)),
        leader: &Leader::Leads,
        told: &BTreeMap::new(),
        invalid: &invalid
            .map(|said| ("web".to_owned(), told(said)))
            .into_iter()
            .collect(),
        unread: None,
        unwritten: None,
        failed: &BTreeSet::new(),
        now: at(second),
    })
}

pub fn form(asked: &Asked) -> Explanation {
    asked.form("web").unwrap()
}

/// A node that is live and ready since the second.
fn ready_node(name: &str, since: i64) -> NodeDigest {
    let spec = json!({"uid": "acme", "templateRef": "web", "hubId": "tenants"});
    let hash = content::hash(Some(&spec)).to_string();
    let start = stamp::millis(at(since)).to_string();
    let object = json!({
        "metadata": {"name": name, "namespace": "tenants", "annotations": {
            names::DESIRED_HASH: hash, names::LIVE_HASH: hash, names::START_TIME: start,
        }},
        "spec": spec,
    });
    let ready = Condition {
        type_: "Ready".into(),
        status: "True".into(),
        observed_generation: None,
        last_transition_time: at(since),
        reason: "Reconciled".into(),
        message: Text::default(),
    };
    NodeDigest {
        status: Arc::new(NodeStatus {
            observed_hash: Some(hash),
            observed_start_time: Some(start),
            conditions: vec![ready],
            ..NodeStatus::default()
        }),
        ..NodeDigest::of(&object, None)
    }
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
                "all 3 nodes run the newest content and are ready; {force}, until it is taken off"
            )
        );
        assert_eq!(state.windows(), force);
        let explained = ask(&snapshot, 1, None, form);
        assert!(explained.state.ends_with(&force), "{}", explained.state);
        let node = ready_node("n0", 0);
        let explained = ask(&snapshot, 1, None, |asked| asked.node(&node));
        assert!(
            explained.state.ends_with(&format!(
                "no window applies to it: lynq.sh/force-rollout=true is on {on}"
            )),
            "{}",
            explained.state
        );
    }
    let mut snapshot = fleet("yyy", 2);
    snapshot.nodes.get_mut("n0").unwrap().forced = true;
    let state = state_of(&snapshot, 1);
    assert_eq!((state.rollout.forced_nodes, state.window), (1, Some(2)));
}

#[test]
fn the_hubs_window_is_told_by_a_form_without_one() {
    for (own, hub, told, width, waves_left) in [
        (0, 0, "no window", false, None),
        (
            0,
            2,
            "no window of its own, but the hub's of 2",
            true,
            Some(1),
        ),
        (3, 0, "window 3", true, Some(1)),
        (3, 1, "window 3, and the hub's of 1", true, Some(2)),
    ] {
        let mut snapshot = fleet("yxx", own);
        snapshot.hub_skew = Skew::Count(hub);
        let rolling = state_of(&snapshot, 1);
        assert_eq!(rolling.windows(), told);
        assert_eq!(rolling.rollout.waves_left, waves_left, "{told}");
        assert_eq!(rolling.is_told(), width, "{told}");
        snapshot.nodes = fleet("yyy", own).nodes;
        assert_eq!(state_of(&snapshot, 1).is_told(), width, "{told}: it stays");
    }
}

/// Two of four are live and ready, and keep their slots for half a minute.
fn soaking() -> Snapshot {
    let mut snapshot = fleet("AAAA", 2);
    policy_of(&mut snapshot).min_ready_seconds = 30;
    let began = state_of(&snapshot, 1).rollout;
    snapshot.forms.get_mut("web").unwrap().previous = Some(began);
    settle(&mut snapshot, [0, 1], 6);
    snapshot
}

fn settle(snapshot: &mut Snapshot, nodes: [usize; 2], second: i64) {
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
        "34 s for each, the first two until 36"
    );
    assert_eq!(pace(&snapshot, 30), first, "it does not move by itself");
    snapshot.slots.clear();
    assert_eq!(pace(&snapshot, 36), (Some(1), Some(1), Some(at(70))));
    settle(&mut snapshot, [2, 3], 41);
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
        s.hub_skew = Skew::Count(2);
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
            "half of the window is broken",
            &|s| other_form(s, "x"),
            true,
        ),
        ("all of it is broken", &|s| other_form(s, "xx"), false),
        (
            "a node of its own is broken",
            &|s| add_from(s, "n4", "yyyyx"),
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
                s.nodes.retain(|name, _| name < "n2");
                add_from(s, "n2", "yyN");
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
        let explained = ask(&snapshot, 10, None, form);
        let has = explained.estimated_completion.is_some();
        assert_eq!(has, estimated, "{name}");
    }
}

#[test]
fn forms_share_the_hubs_window_in_the_estimate() {
    let mut snapshot = soaking();
    snapshot.hub_skew = Skew::Count(2);
    let estimate = |snapshot: &Snapshot| state_of(snapshot, 10).rollout.estimated_completion;
    assert_eq!(estimate(&snapshot), Some(at(70)), "it has it for itself");
    let mut other = fleet("A", 2).nodes.remove("n0").unwrap();
    (other.uid, other.form) = ("uid-api".into(), "api".into());
    snapshot
        .forms
        .insert("api".into(), snapshot.forms["web"].clone());
    snapshot.nodes.insert("n0-api", other);
    assert_eq!(estimate(&snapshot), Some(at(104)), "a place for each");
}

#[test]
fn explain_says_until_when_a_ready_node_is_watched() {
    let snapshot = soaking();
    let node = ready_node("n0", 6);
    let explained = ask(&snapshot, 19, None, |asked| asked.node(&node));
    assert_eq!(explained.state, "live and ready; live for 13s");
    assert_eq!(
        explained.why.as_deref(),
        Some(
            "it is watched for rollout.minReadySeconds, until 08:00:36 UTC: as long as that it keeps its slot, and 2 held \
             nodes of the form may wait for that"
        )
    );
    assert_eq!(
        explained.expected.as_deref(),
        Some("its slot is free in 17s (at 08:00:36 UTC)")
    );
    let through = ready_node("n2", 6);
    let explained = ask(&snapshot, 19, None, |asked| asked.node(&through));
    assert_eq!(
        (explained.why, explained.expected),
        (None, None),
        "it has no slot"
    );
    for (held, said) in [("A", "and one held node"), ("", "keeps its slot")] {
        let mut last = soaking();
        last.nodes
            .retain(|name, _| name == "n0" || (name == "n2" && !held.is_empty()));
        let explained = ask(&last, 19, None, |asked| asked.node(&node)).why;
        assert!(explained.is_some_and(|why| why.contains(said)), "{said}");
    }
}

#[test]
fn explain_says_until_when_a_node_may_be_on_its_way() {
    let mut snapshot = fleet("xAA", 1);
    policy_of(&mut snapshot).progress_deadline_seconds = 60;
    snapshot.slots = vec![slot(0, "99")];
    let mut node = ready_node("n0", 0);
    let status = Arc::make_mut(&mut node.status);
    status.conditions[0].status = "False".into();
    for (second, expected) in [
        (
            5,
            "ready before 08:01:00 UTC; after that it counts as failed (rollout.progressDeadlineSeconds)",
        ),
        (
            61,
            "late: it counts as failed since 08:01:00 UTC (rollout.progressDeadlineSeconds, rollout.maxFailures)",
        ),
    ] {
        let explained = ask(&snapshot, second, None, |asked| asked.node(&node));
        assert_eq!(explained.expected.as_deref(), Some(expected));
        assert_eq!(explained.deadline, Some(at(60)));
    }
    snapshot.slots[0].repair = true;
    let explained = ask(&snapshot, 61, None, |asked| asked.node(&node));
    assert_eq!(explained.deadline, None, "it was broken before");
    snapshot.slots.clear();
    let explained = ask(&snapshot, 61, None, |asked| asked.node(&node));
    assert_eq!(explained.deadline, None, "no release made it so");
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
            "2/2 nodes ready; being deleted, and made anew once gone: 1"
        )
    );
    let message = state.rollout.message;
    assert!(
        message.starts_with("being deleted, and made anew once gone: n1: see their finalizers"),
        "{message}"
    );
}

#[test]
fn explain_says_why_a_form_has_no_nodes() {
    let empty = ask(&fleet("", 2), 1, None, form);
    assert_eq!(
        empty.why.as_deref(),
        Some("there are no nodes: the hub has no active row")
    );
    assert!(empty.next.is_some_and(|next| next.contains("RowsSkipped")));

    // What the operator alone knows: it could not write them.
    let mut unwritten = fleet("", 2);
    let mut told = state_of(&unwritten, 1).rollout;
    (told.phase, told.message) = (Phase::InProgress, "not written to n0".into());
    unwritten.forms.get_mut("web").unwrap().previous = Some(told);
    let explained = ask(&unwritten, 1, None, form);
    assert!(
        explained.state.starts_with("in progress: 0 nodes"),
        "{explained}"
    );
    assert_eq!(explained.why.as_deref(), Some("not written to n0"));

    for (code, said, next) in [
        (
            "HubNotFound",
            "there is no LynqHub \"tenants\"",
            "create the hub",
        ),
        ("HubGoing", "is being deleted", "wait until the hub is gone"),
        ("HubInvalid", "no source", "correct the hub"),
        ("ValidationFailed", "order.when: bad", "correct the form"),
    ] {
        let mut invalid = fleet("", 2);
        invalid.forms.get_mut("web").unwrap().outdated = true;
        let explained = ask(&invalid, 1, Some((code, said)), form);
        assert_eq!(
            (explained.reason.as_deref(), explained.why.as_deref()),
            (Some(code), Some(said))
        );
        assert!(explained.next.is_some_and(|text| text.starts_with(next)));
    }
}

#[test]
fn explain_quotes_why_nothing_is_rendered_for_a_node() {
    let mut snapshot = fleet("x", 1);
    snapshot.forms.get_mut("web").unwrap().outdated = true;
    let node = ready_node("n0", 0);
    let said = ("HubNotFound", "there is no LynqHub \"tenants\"");
    let explained = ask(&snapshot, 1, Some(said), |asked| asked.node(&node));
    let why = "; nothing is rendered for it: there is no LynqHub \"tenants\"";
    assert!(explained.state.ends_with(why), "{}", explained.state);
}

#[test]
fn explain_quotes_why_a_form_cannot_be_rendered() {
    let mut snapshot = fleet("A", 2);
    snapshot.forms.get_mut("web").unwrap().outdated = true;
    let said = ("ValidationFailed", "order.when: bad");
    let explained = ask(&snapshot, 1, Some(said), form);
    assert_eq!(explained.reason.as_deref(), Some("NotRendered"));
    let why = explained.why.unwrap();
    assert!(why.ends_with("every node yet: order.when: bad"), "{why}");
    assert!(explained.next.unwrap().starts_with("correct the form"));
    let explained = ask(&snapshot, 1, None, form);
    let why = explained.why.unwrap();
    assert!(why.ends_with("have not reached every node yet"), "{why}");
}

#[test]
fn explain_says_what_keeps_the_hub_from_its_rows() {
    let mut snapshot = fleet("A", 2);
    snapshot.forms.get_mut("web").unwrap().outdated = true;
    let explained = ask(&snapshot, 1, None, |asked| {
        let unread = Some("nothing listens there".to_owned());
        form(&Asked { unread, ..*asked })
    });
    assert_eq!(explained.reason.as_deref(), Some("NotRendered"));
    let why = explained.why.unwrap();
    assert!(why.ends_with(": nothing listens there"), "{why}");
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
    let message = "not ready in time: n2 (no such image); correct the form or the rows, and they are repaired first";
    assert_eq!(state.rollout.message, message);
    let explained = ask(&snapshot, 600, None, form);
    assert_eq!(explained.why.as_deref(), Some(message));
    assert!(explained.next.is_some());
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
    let mut explained = plan(&fleet("yy", 1), at(1));
    let state = explained.forms.remove("web").unwrap().with_edited(&edited);
    explained.forms.insert("web".into(), state);
    let snapshot = fleet("yy", 1);
    let asked = Asked {
        namespace: "tenants",
        snapshot: &snapshot,
        plan: &explained,
        leader: &Leader::Leads,
        told: &BTreeMap::new(),
        invalid: &BTreeMap::new(),
        unread: None,
        unwritten: None,
        failed: &BTreeSet::new(),
        now: at(1),
    };
    let state = form(&asked).state;
    assert!(
        state.ends_with("; changed since the hub wrote it: n1"),
        "{state}"
    );
}

/// Whether something is held or not: what goes on by itself does not go on.
#[test]
fn explain_says_first_that_nobody_leads() {
    for states in ["yy", "xA", "yx"] {
        let snapshot = fleet(states, 1);
        let asked = Asked {
            namespace: "tenants",
            snapshot: &snapshot,
            plan: &plan(&snapshot, at(1)),
            leader: &Leader::Missing {
                lease: "f2130106.lynq.sh-2".to_owned(),
                since: None,
            },
            told: &BTreeMap::new(),
            invalid: &BTreeMap::new(),
            unread: None,
            unwritten: None,
            failed: &BTreeSet::new(),
            now: at(1),
        };
        for told in [form(&asked), asked.node(&ready_node("n0", 0))] {
            assert_eq!(
                told.reason.as_deref(),
                Some("NoLeader"),
                "{states}: {told:?}"
            );
            assert!(
                told.next
                    .is_some_and(|next| next.starts_with("start the operator"))
            );
        }
    }
}

/// To wait mends neither a refusal nor a time that is over.
#[test]
fn what_failed_is_not_waited_for() {
    let snapshot = fleet("xA", 1);
    let failed = BTreeSet::from(["web".to_owned()]);
    let of_form = |failed: &BTreeSet<String>| {
        let explained = ask(&snapshot, 1, None, |asked| {
            form(&Asked {
                failed,
                unread: None,
                ..*asked
            })
        });
        explained.next.unwrap()
    };
    let waits = "nothing, if those nodes become ready soon";
    assert!(of_form(&BTreeSet::new()).starts_with(waits));
    let next = of_form(&failed);
    assert!(next.starts_with("correct the form"), "{next}");

    let mut node = ready_node("n0", 0);
    let mut status = (*node.status).clone();
    status.conditions[0].status = "False".into();
    node.status = Arc::new(status.clone());
    let of_node = |node: &NodeDigest| {
        ask(&snapshot, 1, None, |asked| asked.node(node))
            .next
            .unwrap()
    };
    assert!(of_node(&node).starts_with("nothing, if it becomes ready soon; else correct"));
    status.failed_resources = 1;
    node.status = Arc::new(status);
    let next = of_node(&node);
    assert!(next.starts_with("correct the form or the row"), "{next}");
}
