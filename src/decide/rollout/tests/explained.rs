//! Cases for `explain`: it shows what the statuses say.

use serde_json::json;

use super::told::state_of;
use super::*;
use crate::api::conditions::{self, Condition, ConditionReason, ConditionState};
use crate::api::form::FormStatus;
use crate::api::hub::{HubRolloutStatus, HubStatus};
use crate::api::node::NodeStatus;
use crate::api::{names, stamp};
use crate::decide::node::digest::NodeDigest;
use crate::decide::rollout::explain::{Asked, Explanation, FormTold, Leader, next, of_nobody};
use crate::decide::rollout::formless::Formless;
use crate::decide::rollout::not_reached;
use crate::decide::rollout::status::Force;
use crate::decide::shared::content;

/// What the operator has written.
struct Told {
    form: FormStatus,
    hub: HubStatus,
    force: Option<Force>,
    leader: Leader,
    second: i64,
}

impl Told {
    fn of(snapshot: &Snapshot, second: i64) -> Self {
        let state = state_of(snapshot, second);
        let mut form = FormStatus {
            observed_generation: Some(2),
            total_nodes: Some(state.total_nodes),
            ready_nodes: Some(state.ready_nodes),
            rollout: Some(state.rollout),
            ..FormStatus::default()
        };
        conditions::merge(&mut form.conditions, &state.conditions, Some(2), at(second));
        let slots = snapshot.slots.clone();
        let hub = HubStatus {
            rollout: Some(HubRolloutStatus { slots }),
            ..HubStatus::default()
        };
        Told {
            form,
            hub,
            force: None,
            leader: Leader::Leads,
            second,
        }
    }

    fn form_told(&self) -> FormTold<'_> {
        FormTold {
            name: "web",
            generation: 2,
            status: &self.form,
        }
    }

    fn asked(&self) -> Asked<'_> {
        Asked {
            namespace: "tenants",
            form: Some(self.form_told()),
            formless: None,
            hub: Some(&self.hub),
            policy: None,
            force: self.force,
            leader: &self.leader,
            now: at(self.second),
        }
    }

    fn of_form(&self) -> Explanation {
        self.asked().form(self.form_told())
    }

    fn of_node(&self, node: &NodeDigest) -> Explanation {
        self.asked().node(node)
    }

    fn says(&mut self, type_: &'static str, status: bool, reason: ConditionReason, text: &str) {
        let of_hub = matches!(type_, "DeletionsHeld");
        let conditions = match of_hub {
            true => &mut self.hub.conditions,
            false => &mut self.form.conditions,
        };
        let state = ConditionState::new(type_, status, reason, text);
        conditions::merge(conditions, &[state], Some(2), at(self.second));
    }
}

fn told(type_: &str, status: &str, reason: &str, message: &str, second: i64) -> Condition {
    Condition {
        type_: type_.into(),
        status: status.into(),
        observed_generation: None,
        last_transition_time: at(second),
        reason: reason.into(),
        message: message.into(),
    }
}

/// A node that is live since the second, and ready or not.
fn live_node(name: &str, ready: bool, since: i64) -> NodeDigest {
    let spec = json!({"uid": "acme", "templateRef": "web", "hubId": "tenants"});
    let hash = content::hash(Some(&spec)).to_string();
    let start = stamp::millis(at(since)).to_string();
    let object = json!({
        "metadata": {"name": name, "namespace": "tenants", "uid": format!("uid-{}", &name[1..]), "annotations": {
            names::DESIRED_HASH: hash, names::LIVE_HASH: hash, names::START_TIME: start,
        }},
        "spec": spec,
    });
    let status = if ready { "True" } else { "False" };
    NodeDigest {
        status: Arc::new(NodeStatus {
            observed_hash: Some(hash),
            observed_start_time: Some(start),
            conditions: vec![told("Ready", status, "Reconciled", "no such image", since)],
            ..NodeStatus::default()
        }),
        ..NodeDigest::of(&object, None)
    }
}

fn held_node(name: &str, reason: &str) -> NodeDigest {
    let spec = json!({"uid": "acme", "templateRef": "web", "hubId": "tenants"});
    let object = json!({
        "metadata": {"name": name, "namespace": "tenants", "annotations": {
            names::DESIRED_HASH: content::hash(Some(&spec)).to_string(), names::LIVE_HASH: "old",
        }},
        "spec": spec,
    });
    NodeDigest {
        status: Arc::new(NodeStatus {
            conditions: vec![told("Held", "True", reason, "waits", 0)],
            ..NodeStatus::default()
        }),
        ..NodeDigest::of(&object, None)
    }
}

#[test]
fn what_a_form_waits_for_is_what_its_status_says() {
    let mut snapshot = fleet("xAAAAA", 2);
    snapshot.slots = vec![slot(0, "99")];
    let told = Told::of(&snapshot, 1);
    let explained = told.of_form();
    let waiting = &told.form.rollout.as_ref().unwrap().waiting;
    assert_eq!(explained.reason.as_deref(), Some("WindowFull"));
    assert_eq!(explained.why.as_ref(), Some(&waiting[0].message));
    assert_eq!(explained.next.as_ref(), Some(&waiting[0].next));
    assert_eq!(explained.waiting, waiting[1..]);
    assert_eq!(explained.in_flight, ["n0"]);
    assert!(explained.state.contains("5 held; window 2"), "{explained}");
    let text = explained.to_string();
    assert!(
        text.contains("also       Releasing (1: n1): its turn"),
        "{text}"
    );
    let fails = "the first of the released nodes fails, unless it is ready";
    assert!(explained.expected.unwrap().contains(fails));
}

#[test]
fn a_held_node_waits_for_what_its_form_says_of_it() {
    let told = Told::of(&fleet("xAAAAA", 2), 1);
    for (name, of_node, reason) in [
        ("n1", "WindowFull", "Releasing"),
        ("n2", "Releasing", "WindowFull"),
        ("n5", "WindowFull", "WindowFull"),
    ] {
        let explained = told.of_node(&held_node(name, of_node));
        assert_eq!(explained.reason.as_deref(), Some(reason), "{name}");
    }
    let old = told.of_node(&held_node("n5", "RolloutFailed"));
    assert_eq!(old.reason.as_deref(), Some("WindowFull"), "it is old");
    let silent = Told::of(&fleet("yy", 2), 1);
    let explained = silent.of_node(&held_node("n0", "Paused"));
    assert_eq!(explained.reason.as_deref(), Some("Paused"));
}

#[test]
fn nothing_waits_and_the_status_has_the_whole_story() {
    let complete = Told::of(&fleet("yy", 1), 1).of_form();
    let why = "all 2 nodes run the newest content and are ready";
    assert_eq!(complete.why.as_deref(), Some(why));
    assert_eq!((complete.reason, complete.next), (None, None));

    let empty = Told::of(&fleet("", 2), 1).of_form();
    let why = "there are no nodes: the hub has no active row";
    assert_eq!(empty.why.as_deref(), Some(why));
    assert!(empty.next.unwrap().contains("RowsSkipped"));

    let mut last = fleet("yyx", 1);
    last.slots = vec![slot(2, "99")];
    policy_of_failed(&mut last);
    let failed = Told::of(&last, 600).of_form();
    assert!(failed.state.starts_with("failed: "), "{failed}");
    assert!(failed.why.as_ref().unwrap().contains("n2"), "{failed}");
    assert!(failed.next.unwrap().starts_with("correct the form, or"));

    let mut unwritten = Told::of(&fleet("yy", 1), 1);
    unwritten.form.rollout.as_mut().unwrap().unwritten_nodes = 1;
    let next = unwritten.of_form().next.unwrap();
    assert!(
        next.starts_with("correct what the hub's conditions name"),
        "{next}"
    );
    let held = (ConditionReason::TooManyDeletions, "8 deletions wait");
    unwritten.says("DeletionsHeld", true, held.0, held.1);
    let why = unwritten.of_form().why.unwrap();
    assert!(
        why.ends_with("; the hub says DeletionsHeld: 8 deletions wait"),
        "{why}"
    );
}

#[test]
fn a_complete_form_says_that_its_change_was_taken_back() {
    let message = "revision web-b failed, and lynqgate took it back";
    let mut told = Told::of(&fleet("yy", 1), 1);
    told.says("Reverted", true, ConditionReason::Reverted, message);
    let explained = told.of_form();
    assert_eq!(explained.reason.as_deref(), Some("Reverted"));
    assert_eq!(explained.why.as_deref(), Some(message));
}

fn policy_of_failed(snapshot: &mut Snapshot) {
    snapshot.forms.get_mut("web").unwrap().policy.max_failures = None;
}

#[test]
fn a_form_that_is_not_valid_says_why() {
    let mut snapshot = fleet("", 2);
    snapshot.forms.get_mut("web").unwrap().outdated = true;
    for (reason, text, next) in [
        (
            ConditionReason::HubNotFound,
            "there is no LynqHub",
            "create the hub",
        ),
        (
            ConditionReason::HubGoing,
            "is being deleted",
            "wait until the hub is gone",
        ),
        (ConditionReason::HubInvalid, "no source", "correct the hub"),
        (
            ConditionReason::ValidationFailed,
            "order.when: bad",
            "correct the form",
        ),
    ] {
        let mut told = Told::of(&snapshot, 1);
        told.says("Valid", false, reason, text);
        told.form.observed_generation = Some(1);
        let explained = told.of_form();
        assert_eq!(explained.reason.as_deref(), Some(reason.as_str()));
        assert_eq!(explained.why.as_deref(), Some(text));
        assert!(explained.next.unwrap().starts_with(next));
        let state = told.of_node(&live_node("n0", true, 0)).state;
        let why = format!("; nothing is rendered for it: {text}");
        assert!(state.ends_with(&why), "{state}");
    }
}

/// The operator adds what it knows of the causes when it writes the status.
#[test]
fn why_templates_do_not_reach_the_nodes_stands_with_those_that_wait_for_it() {
    let mut snapshot = fleet("A", 2);
    snapshot.forms.get_mut("web").unwrap().outdated = true;
    let unread = told(
        "Ready",
        "False",
        "DatabaseQueryFailed",
        "nothing listens there",
        0,
    );
    let invalid = (
        ConditionReason::ValidationFailed,
        "order.when: bad".to_owned(),
    );
    for (invalid, why, next) in [
        (
            None,
            "nothing listens there",
            "correct what keeps the hub from reading its rows",
        ),
        (Some(&invalid), "order.when: bad", "correct the form"),
    ] {
        let state = state_of(&snapshot, 1);
        let (mut waiting, mut states) = (state.rollout.waiting, state.conditions);
        not_reached::add_cause(&mut waiting, invalid, std::slice::from_ref(&unread));
        not_reached::tell_held(&waiting, &mut states);
        let held = states.iter().find(|state| state.type_ == "Held").unwrap();
        let told = format!("{}. Next: {}", waiting[0].message, waiting[0].next);
        assert_eq!(held.message, told);
        assert_eq!(waiting[0].reason, *"NotRendered");
        assert!(
            waiting[0]
                .message
                .ends_with(&format!("every node yet: {why}"))
        );
        assert!(waiting[0].next.starts_with(next), "{}", waiting[0].next);
    }
}

#[test]
fn force_is_told_as_long_as_it_is_there() {
    for (force, on) in [(Force::Form, "the form"), (Force::Hub, "its hub")] {
        let told = Told {
            force: Some(force),
            ..Told::of(&fleet("yyy", 2), 1)
        };
        let said = format!("no window applies: lynq.sh/force-rollout=true is on {on}");
        assert!(told.of_form().state.ends_with(&said));
        let state = told.of_node(&live_node("n0", true, 0)).state;
        assert!(state.contains(&format!("to it: lynq.sh/force-rollout=true is on {on}")));
    }
}

#[test]
fn a_release_without_a_report_is_neither_ready_nor_broken() {
    let mut snapshot = fleet("yAA", 1);
    snapshot.slots = vec![slot(0, "99")];
    let told = Told::of(&snapshot, 1);
    for ready in [true, false] {
        let mut node = live_node("n0", ready, 0);
        node.start = Some(stamp::millis(at(1)).to_string());
        let explained = told.of_node(&node);
        assert!(
            explained
                .state
                .contains("no status update since its release"),
            "{explained}"
        );
        assert_eq!(explained.why, None);
        assert_eq!(explained.next.as_deref(), Some(next::UNTOLD));
    }
}

#[test]
fn a_ready_node_that_keeps_its_slot_says_so() {
    let mut snapshot = fleet("yAA", 1);
    snapshot.slots = vec![soaking(slot(0, "99"), 30)];
    let told = Told::of(&snapshot, 13);
    let explained = told.of_node(&live_node("n0", true, 0));
    assert_eq!(explained.state, "live and ready; live for 13s");
    let why = "it keeps its slot until it has been ready for rollout.minReadySeconds (30 s)";
    assert_eq!(explained.why.as_deref(), Some(why));
    assert_eq!(told.of_node(&live_node("n2", true, 0)).why, None);
}

/// To wait mends neither a refusal nor a time that is over.
#[test]
fn what_failed_is_not_waited_for() {
    let told = Told::of(&fleet("xA", 1), 1);
    let mut node = live_node("n0", false, 0);
    let next = told.of_node(&node).next.unwrap();
    assert!(next.starts_with("nothing, if it becomes ready soon; else correct"));
    Arc::make_mut(&mut node.status).failed_resources = 1;
    let next = told.of_node(&node).next.unwrap();
    assert!(next.starts_with("correct the form or the row"), "{next}");
}

#[test]
fn a_node_that_failed_says_how_to_end_the_halt() {
    let mut snapshot = fleet("xA", 3);
    snapshot.slots = vec![slot(0, "99")];
    let told = Told::of(&snapshot, 600);
    let explained = told.of_node(&live_node("n0", false, 0));
    assert_eq!(explained.reason.as_deref(), Some("RolloutFailed"));
    assert!(explained.why.unwrap().contains("not ready in time: n0"));
    assert!(explained.next.unwrap().contains("lynqgate undo web"));
    assert_eq!(told.of_node(&live_node("n0", true, 0)).reason, None);
}

#[test]
fn a_node_whose_form_is_gone_says_what_keeps_it() {
    let mut told = Told::of(&fleet("y", 1), 1);
    let text = "8 deletions wait for lynq.sh/confirm-deletions=8";
    told.says(
        "DeletionsHeld",
        true,
        ConditionReason::TooManyDeletions,
        text,
    );
    let asked = Asked {
        form: None,
        formless: Some(&Formless::Deleted),
        ..told.asked()
    };
    let explained = asked.node(&live_node("n0", true, 0));
    assert!(
        explained.state.ends_with("; its form \"web\" was deleted"),
        "{explained}"
    );
    assert_eq!(explained.why.as_deref(), Some(text));
    assert!(explained.next.unwrap().contains("lynqgate explain hub HUB"));
}

/// Whatever the operator said before of the node, or says still.
#[test]
fn a_held_node_says_what_became_of_its_form() {
    let told = Told::of(&fleet("A", 1), 1);
    let unreadable = Formless::Unreadable {
        why: "no hubId".to_owned(),
    };
    for (formless, reason, why) in [
        (
            Some(&Formless::Deleted),
            "NoForm",
            "lynqgate releases no node of form \"web\", which was deleted",
        ),
        (
            Some(&unreadable),
            "NoForm",
            "lynqgate releases no node of form \"web\", which cannot be read: no hubId",
        ),
        (None, "Releasing", "its turn has come"),
    ] {
        for before in ["NoForm", "WindowFull"] {
            let asked = Asked {
                formless,
                ..told.asked()
            };
            let explained = asked.node(&held_node("n0", before));
            assert_eq!(explained.reason.as_deref(), Some(reason), "{explained}");
            assert!(explained.why.unwrap().starts_with(why), "{before}");
        }
    }
}

/// Whether something is held or not: what goes on by itself does not go on.
#[test]
fn explain_says_first_that_nobody_leads() {
    for states in ["yy", "xA", "yx"] {
        let told = Told {
            leader: Leader::Missing {
                lease: "f2130106.lynq.sh-2".to_owned(),
                since: None,
            },
            ..Told::of(&fleet(states, 1), 1)
        };
        for told in [told.of_form(), told.of_node(&live_node("n0", true, 0))] {
            assert_eq!(told.reason.as_deref(), Some("NoLeader"), "{told:?}");
            assert!(
                told.next
                    .unwrap()
                    .starts_with("find out why the operator does not run")
            );
        }
    }
}

#[test]
fn a_node_of_no_hub_says_what_to_do() {
    let object = json!({"metadata": {"name": "n0", "namespace": "tenants"}, "spec": {"uid": "acme", "templateRef": "web"}});
    let text = of_nobody(&NodeDigest::of(&object, None)).to_string();
    assert!(text.contains("it belongs to no hub"), "{text}");
    assert!(text.contains("lynq.sh/hub=NAME"), "{text}");
}
