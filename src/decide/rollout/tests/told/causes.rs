//! Cases for causes that the operator alone knows, or has written elsewhere: `explain` repeats them.

use super::*;
use crate::decide::rollout::explain::of_nobody;
use crate::decide::rollout::reason::Reason;

fn held(code: &str, text: &str) -> NodeDigest {
    let spec = json!({"uid": "acme", "templateRef": "web", "hubId": "tenants"});
    let object = json!({
        "metadata": {"name": "n0", "namespace": "tenants", "annotations": {
            names::DESIRED_HASH: content::hash(Some(&spec)).to_string(), names::LIVE_HASH: "old",
        }},
        "spec": spec,
        "status": {"conditions": [{
            "type": "Held", "status": "True", "reason": code, "message": text, "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]},
    });
    NodeDigest::of(&object, None)
}

/// Everybody reads the same form of the same version; the operator has not rendered it since its start.
#[test]
fn explain_says_why_what_is_rendered_no_more_is_not() {
    let snapshot = fleet("A", 2);
    let node = held(
        "NotRendered",
        "the newest templates have not reached every node",
    );
    let explained = ask(&snapshot, 1, None, |asked| {
        let unread = Some("nothing listens there".to_owned());
        let asked = Asked { unread, ..*asked };
        asked.node(&node)
    });
    assert_eq!(explained.reason.as_deref(), Some("NotRendered"));
    let why = explained.why.unwrap();
    assert!(why.ends_with(": nothing listens there"), "{why}");
    let next = explained.next.unwrap();
    assert!(
        next.starts_with("mend what keeps the hub from its rows"),
        "{next}"
    );
}

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
    assert!(goes.to_string().starts_with("no row asks for n0"), "{goes}");

    // Who has not read the rows takes the operator's word for it.
    snapshot.nodes.get_mut("n0").unwrap().unwanted = false;
    let node = held("DeletionsHeld", goes.summary());
    let explained = ask(&snapshot, 1, None, |asked| asked.node(&node));
    assert_eq!(explained.reason.as_deref(), Some("DeletionsHeld"));
    assert_eq!(explained.why.as_deref(), Some(goes.summary()));
    assert!(
        explained
            .next
            .is_some_and(|next| next.contains("confirm its deletions"))
    );
    snapshot.deletions_held = false;
    let over = ask(&snapshot, 1, None, |asked| asked.node(&node));
    assert_eq!(over.reason.as_deref(), Some("NotRendered"), "it is old");
}

/// The form's status tells who failed, also where something could not be written.
#[test]
fn explain_names_who_failed() {
    let mut snapshot = fleet("yyx", 1);
    snapshot.slots = vec![slot(2, "99")];
    let mut told = state_of(&snapshot, 1).rollout;
    told.phase = Phase::Failed;
    told.message = "not ready in time: n2 (it belongs to Deployment d)".into();
    told.unwritten_nodes = 1;
    snapshot.forms.get_mut("web").unwrap().previous = Some(told);
    let explained = ask(&snapshot, 600, None, form);
    assert!(explained.state.starts_with("failed: "), "{explained}");
    assert!(
        explained
            .why
            .as_ref()
            .is_some_and(|why| why.contains("n2 (it belongs to")),
        "{explained}"
    );
    let next = explained.next.unwrap();
    assert!(
        next.starts_with("correct the form, or remove what stands"),
        "{next}"
    );
}

#[test]
fn a_node_of_no_hub_says_what_to_do() {
    let object = json!({"metadata": {"name": "n0", "namespace": "tenants"}, "spec": {"uid": "acme", "templateRef": "web"}});
    let text = of_nobody(&NodeDigest::of(&object, None)).to_string();
    assert!(text.contains("it belongs to no hub"), "{text}");
    assert!(text.contains("lynq.sh/hub=NAME"), "{text}");
}
