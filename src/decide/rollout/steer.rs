//! The field or annotation that a steering command changes, and the effect, as the user has to confirm it.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::api::form::{FormRolloutStatus, Phase};
use crate::api::hub::HubStatus;
use crate::api::policy::Rollout;
use crate::api::{names, stamp};
use crate::decide::node::digest::NodeDigest;
use crate::decide::rollout::explain::FormTold;
use crate::decide::rollout::history::{self, Reverted, Revision};
use crate::decide::rollout::order;

/// A change of one object.
#[derive(Clone, Debug, PartialEq)]
pub struct Steering {
    /// What it does, for whoever has to agree to it.
    pub effect: String,
    /// A merge patch.
    pub patch: Value,
}

/// What a command refuses to do, and what to do in its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(String);

type Steered = Result<Steering, Refusal>;

fn refuse(why: String) -> Steered {
    Err(Refusal(why))
}

fn annotate(name: &str, value: impl Into<Value>) -> Value {
    json!({"metadata": {"annotations": {name: value.into()}}})
}

/// `policy`: the form's rollout, if it has one.
pub fn pause(form: FormTold, policy: Option<&Rollout>) -> Steered {
    let name = form.name;
    match policy {
        None => refuse(format!(
            "form {name} has no spec.rollout: every change goes live at once, so there is nothing to pause. Set rollout.maxSkew first"
        )),
        Some(policy) if policy.paused => refuse(format!("form {name} is paused already")),
        Some(_) => {
            let (held, updating) = of(form).map_or((0, 0), |r| (r.held_nodes, r.updating_nodes));
            Ok(Steering {
                effect: format!(
                    "pauses the rollout of form {name}: lynqgate releases no more of its nodes ({held} held). {} not stopped",
                    nodes_that(updating, "updating", "is", "are")
                ),
                patch: json!({"spec": {"rollout": {"paused": true}}}),
            })
        }
    }
}

pub fn resume(form: FormTold, policy: Option<&Rollout>) -> Steered {
    let name = form.name;
    let rollout = of(form);
    if let Some(policy) = policy.filter(|policy| policy.paused) {
        let held = rollout.map_or(0, |rollout| rollout.held_nodes);
        let window = rollout.and_then(|rollout| rollout.window);
        let window = window.map(|window| format!(", with at most {window} not ready at a time"));
        let ordered = match policy.order.iter().any(|group| group.pause) {
            true => ", as far as the pauses of rollout.order allow (lynqgate promote)",
            false => "",
        };
        return Ok(Steering {
            effect: format!(
                "resumes the rollout of form {name}: lynqgate continues with {}{}{ordered}",
                held_nodes(held),
                window.unwrap_or_default()
            ),
            patch: json!({"spec": {"rollout": {"paused": null}}}),
        });
    }
    match rollout.map(|rollout| rollout.phase) {
        Some(Phase::Failed) => refuse(format!(
            "form {name} is not paused: its rollout is halted, because nodes failed. To continue without them: lynqgate retry {name}"
        )),
        _ if rollout.and_then(awaited).is_some() => refuse(format!(
            "rollout.paused of form {name} is not set: its rollout waits for a promotion. To continue: lynqgate promote {name}"
        )),
        _ => refuse(format!("form {name} is not paused")),
    }
}

pub fn retry(form: FormTold, policy: Option<&Rollout>, now: Timestamp) -> Steered {
    let name = form.name;
    let failed = of(form).filter(|rollout| rollout.phase == Phase::Failed);
    let Some(rollout) = failed else {
        return refuse(format!("the rollout of form {name} is not halted"));
    };
    if let Some(window) = rollout
        .window
        .filter(|window| *window <= rollout.failed_nodes)
    {
        return refuse(format!(
            "nothing would be released: {} the window of {window}. Correct form {name}, or raise its rollout.maxSkew",
            nodes_that(rollout.failed_nodes, "failed", "fills", "fill"),
        ));
    }
    let paused = match policy {
        Some(policy) if policy.paused => {
            format!(". It stays paused until lynqgate resume {name}")
        }
        _ => String::new(),
    };
    Ok(Steering {
        effect: format!(
            "continues the rollout of form {name}: lynqgate releases {}, and {} in the window{paused}",
            held_nodes(rollout.held_nodes),
            nodes_that(rollout.failed_nodes, "failed", "stays", "stay"),
        ),
        patch: annotate(names::RESUME, stamp::format(now)),
    })
}

/// The status names the group: only the operator knows whether a promotion of an older generation still counts.
pub fn promote(form: FormTold, policy: Option<&Rollout>) -> Steered {
    let name = form.name;
    let waits = of(form).and_then(|rollout| Some((rollout, awaited(rollout)?)));
    let Some((rollout, group)) = waits else {
        return refuse(match policy {
            Some(policy) if policy.paused => format!(
                "form {name} waits for no promotion: rollout.paused is set. To continue: lynqgate resume {name}"
            ),
            _ => format!("form {name} waits for no promotion"),
        });
    };
    let order = policy.map_or(&[][..], |policy| &policy.order);
    let number = order.iter().position(|other| other.name == group);
    let Some(number) = number.filter(|number| order[*number].pause) else {
        return refuse(format!(
            "rollout.order of form {name} has no pause after the group {group:?} any more, and lynqgate has not observed that change \
             yet. See lynqgate status form {name}"
        ));
    };
    let rest = match order::stops_after(order, number + 1) {
        Some(next) => format!("up to the pause after the group {:?}", order[next].name),
        None => "to all of its nodes".to_owned(),
    };
    let generation = rollout.target_generation;
    Ok(Steering {
        effect: format!(
            "promotes generation {generation} of form {name} past the group {group:?}: the rollout continues {rest} ({} held)",
            rollout.held_nodes
        ),
        patch: annotate(names::PROMOTE, format!("{generation}/{group}")),
    })
}

/// `spec`: the form's, as it is stored. `now`: the name of the revision that it is, where it can be read. `reverted`: what the
/// operator took back last. It takes that back no second time, and need not remind the user of what the user undoes.
pub fn undo(
    form: FormTold,
    spec: &Value,
    reverted: Option<Reverted>,
    now: Option<&str>,
    there: &[Revision],
    to: Option<i64>,
) -> Steered {
    let name = form.name;
    let Some(revision) = history::undone(there, now, to) else {
        return refuse(match to {
            Some(number) => {
                format!("form {name} has no revision {number}: lynqgate history {name}")
            }
            None => format!(
                "no other revision of form {name} has completed a rollout. Choose one: lynqgate history {name}, then lynqgate undo \
                 {name} --to REVISION"
            ),
        });
    };
    if now == Some(&*revision.name) {
        return refuse(format!("form {name} is revision {} now", revision.number));
    }
    let window = of(form).and_then(|rollout| rollout.window);
    let total = form.status.total_nodes.unwrap_or_default();
    // Nodes that are held run what was complete last.
    let reached = match form.status.current_revision.as_deref() == Some(&*revision.name) {
        true => total - of(form).map_or(0, |rollout| rollout.held_nodes),
        false => total,
    };
    let window = match window {
        Some(window) => format!("at most {window} not ready at a time, broken ones first"),
        None => "all at once: no maxSkew applies".to_owned(),
    };
    let completed = match revision.completed {
        Some(at) => format!("complete at {at}"),
        None => "its rollout was never complete".to_owned(),
    };
    let mut patch = history::set_back(spec, &revision.content);
    if let Some(Reverted { from, to: Some(_) }) = reverted {
        patch["metadata"] = json!({"annotations": {names::REVERTED: from}});
    }
    Ok(Steering {
        effect: format!(
            "sets form {name} back to revision {} ({}, {completed}), and leaves spec.rollout as it is. lynqgate rolls that out to {}, \
             {window}. The next kubectl apply --server-side of the form needs --force-conflicts",
            revision.number,
            revision.name,
            nodes(reached)
        ),
        patch,
    })
}

/// An object that `force` applies to.
#[derive(Clone, Copy)]
pub enum Forced<'a> {
    Hub(&'a str, &'a HubStatus),
    Form(FormTold<'a>),
    Node(&'a NodeDigest),
    StatefulSet(&'a str),
}

impl Forced<'_> {
    fn name(&self) -> String {
        match self {
            Forced::Hub(name, _) => format!("hub {name}"),
            Forced::Form(form) => format!("form {}", form.name),
            Forced::Node(node) => format!("node {}", node.key.name),
            Forced::StatefulSet(name) => format!("statefulset {name}"),
        }
    }

    fn reach(&self) -> String {
        match self {
            Forced::Hub(_, status) => format!(
                "all held nodes of its {} go live now",
                nodes(status.desired.unwrap_or_default())
            ),
            Forced::Form(form) => {
                let held = of(*form).map_or(0, |rollout| rollout.held_nodes);
                format!("{} live now", nodes_that(held, "held", "goes", "go"))
            }
            Forced::Node(_) => "its held content goes live now".to_owned(),
            Forced::StatefulSet(_) => "all of its pods are updated now".to_owned(),
        }
    }
}

/// `is_on`: whether it is forced now.
pub fn force(what: Forced, is_on: bool, off: bool) -> Steered {
    let name = what.name();
    match (is_on, off) {
        (true, true) => Ok(Steering {
            effect: format!(
                "takes the force off {name}: its windows apply again to the next change"
            ),
            patch: annotate(names::FORCE_ROLLOUT, Value::Null),
        }),
        (false, true) => refuse(format!("{name} is not forced")),
        (true, false) => refuse(format!(
            "{name} is forced already. To take that off: lynqgate force {name} --off"
        )),
        (false, false) => Ok(Steering {
            effect: format!(
                "forces {name}: {}, and so does every later change. No window applies until lynqgate force {name} --off",
                what.reach()
            ),
            patch: annotate(names::FORCE_ROLLOUT, names::TRUE),
        }),
    }
}

/// The node is forced until it is live.
pub fn release(node: &NodeDigest) -> Steered {
    let name = &node.key.name;
    match () {
        () if node.deleting => refuse(format!("node {name} is being deleted")),
        () if !node.held() => refuse(format!("node {name} is not held")),
        () if node.forced => refuse(format!(
            "node {name} is forced already, and held all the same: lynqgate explain node {name}"
        )),
        () => Ok(Steering {
            effect: format!(
                "releases node {name}: its held content goes live now, past its window. It counts in the window while it is not \
                 ready"
            ),
            patch: annotate(names::FORCE_ROLLOUT, names::TRUE),
        }),
    }
}

pub fn confirm(hub: &str, status: &HubStatus) -> Steered {
    let held = [
        (names::CONFIRM_DELETIONS, status.held_deletions),
        (names::CONFIRM_CREATIONS, status.held_creations),
    ];
    let held = held.map(|(annotation, count)| Some((annotation, count.filter(|n| *n > 0)?)));
    let effects = held.iter().flatten().map(|(annotation, count)| {
        match *annotation == names::CONFIRM_DELETIONS {
            true => format!("deletes {} of hub {hub} and their objects", nodes(*count)),
            false => format!("creates {} of hub {hub}", nodes(*count)),
        }
    });
    let effects: Vec<String> = effects.collect();
    if effects.is_empty() {
        return refuse(format!(
            "hub {hub} holds neither deletions nor creations back"
        ));
    }
    let annotations: serde_json::Map<String, Value> = held
        .into_iter()
        .flatten()
        .map(|(annotation, count)| (annotation.to_owned(), json!(count.to_string())))
        .collect();
    Ok(Steering {
        effect: effects.join(", and "),
        patch: json!({"metadata": {"annotations": annotations}}),
    })
}

fn of(form: FormTold<'_>) -> Option<&FormRolloutStatus> {
    form.status.rollout.as_ref()
}

/// The group whose promotion the rollout waits for.
fn awaited(rollout: &FormRolloutStatus) -> Option<&str> {
    let mut waiting = rollout.waiting.iter();
    waiting.find_map(|nodes| nodes.group.as_deref())
}

fn nodes(count: i32) -> String {
    nodes_that(count, "", "", "")
}

fn held_nodes(count: i32) -> String {
    nodes_that(count, "held", "", "")
}

fn nodes_that(count: i32, which: &str, one: &str, many: &str) -> String {
    let (noun, verb) = match count {
        1 => ("node", one),
        _ => ("nodes", many),
    };
    let words = [&count.to_string(), which, noun, verb];
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::api::form::FormStatus;

    fn status(phase: &str, held: i32, failed: i32) -> FormStatus {
        let status = json!({"totalNodes": 52, "currentRevision": "web-2", "rollout": {
            "phase": phase, "targetGeneration": 7, "totalNodes": 52, "updatedNodes": 23,
            "updatingNodes": 1, "readyUpdatedNodes": 20, "heldNodes": held, "failedNodes": failed,
            "slots": 3, "window": 3,
        }});
        serde_json::from_value(status).unwrap()
    }

    /// The rollout waits for the promotion of the group.
    fn pauses_after(group: &str) -> FormStatus {
        let mut waits = status("Paused", 29, 0);
        let waiting = json!([{
            "reason": "AwaitingPromotion", "count": 29, "nodes": [], "message": "", "next": "", "group": group,
        }]);
        waits.rollout.as_mut().unwrap().waiting = serde_json::from_value(waiting).unwrap();
        waits
    }

    fn policy(paused: bool) -> Rollout {
        serde_json::from_value(json!({"maxSkew": 3, "paused": paused})).unwrap()
    }

    fn said(steered: Steered) -> (String, Value) {
        match steered {
            Ok(Steering { effect, patch }) => (effect, patch),
            Err(Refusal(why)) => (why, Value::Null),
        }
    }

    #[test]
    fn forms() {
        let (goes, halted) = (status("InProgress", 29, 0), status("Failed", 29, 2));
        let (full, waits) = (status("Failed", 29, 3), pauses_after("a"));
        let told = |status| FormTold {
            name: "web",
            generation: 7,
            status,
        };
        let (on, off) = (policy(true), policy(false));
        let pauses = |paused: Value| json!({"spec": {"rollout": {"paused": paused}}});
        let resumed = annotate(names::RESUME, "2026-01-01T00:00:00.000Z");
        let at = stamp::parse("2026-01-01T00:00:00Z").unwrap();
        for (steered, effect, patch) in [
            (
                pause(told(&goes), Some(&off)),
                "pauses the rollout of form web: lynqgate releases no more of its nodes (29 held). 1 updating node is not stopped",
                pauses(json!(true)),
            ),
            (
                pause(told(&goes), Some(&on)),
                "form web is paused already",
                Value::Null,
            ),
            (
                pause(told(&goes), None),
                "form web has no spec.rollout: every change goes live at once, so there is nothing to pause. Set rollout.maxSkew first",
                Value::Null,
            ),
            (
                resume(told(&goes), Some(&on)),
                "resumes the rollout of form web: lynqgate continues with 29 held nodes, with at most 3 not ready at a time",
                pauses(Value::Null),
            ),
            (
                resume(told(&goes), Some(&off)),
                "form web is not paused",
                Value::Null,
            ),
            (
                resume(told(&halted), Some(&off)),
                "form web is not paused: its rollout is halted, because nodes failed. To continue without them: lynqgate retry web",
                Value::Null,
            ),
            (
                resume(told(&waits), Some(&off)),
                "rollout.paused of form web is not set: its rollout waits for a promotion. To continue: lynqgate promote web",
                Value::Null,
            ),
            (
                retry(told(&halted), Some(&on), at),
                "continues the rollout of form web: lynqgate releases 29 held nodes, and 2 failed nodes stay in the window. It stays \
                 paused until lynqgate resume web",
                resumed,
            ),
            (
                retry(told(&full), Some(&off), at),
                "nothing would be released: 3 failed nodes fill the window of 3. Correct form web, or raise its rollout.maxSkew",
                Value::Null,
            ),
            (
                retry(told(&goes), Some(&off), at),
                "the rollout of form web is not halted",
                Value::Null,
            ),
            (
                force(Forced::Form(told(&goes)), false, false),
                "forces form web: 29 held nodes go live now, and so does every later change. No window applies until lynqgate force form \
                 web --off",
                annotate(names::FORCE_ROLLOUT, "true"),
            ),
            (
                force(Forced::StatefulSet("db"), true, true),
                "takes the force off statefulset db: its windows apply again to the next change",
                annotate(names::FORCE_ROLLOUT, Value::Null),
            ),
        ] {
            assert_eq!(said(steered), (effect.to_owned(), patch));
        }
    }

    #[test]
    fn a_hub_confirms_what_it_holds() {
        let status = |deletions, creations| HubStatus {
            held_deletions: deletions,
            held_creations: creations,
            ..HubStatus::default()
        };
        let annotations = |all: Value| json!({"metadata": {"annotations": all}});
        for (deletions, creations, effect, patch) in [
            (
                None,
                None,
                "hub tenants holds neither deletions nor creations back",
                Value::Null,
            ),
            (
                Some(40),
                None,
                "deletes 40 nodes of hub tenants and their objects",
                annotations(json!({"lynq.sh/confirm-deletions": "40"})),
            ),
            (
                Some(1),
                Some(400),
                "deletes 1 node of hub tenants and their objects, and creates 400 nodes of hub tenants",
                annotations(json!({
                    "lynq.sh/confirm-deletions": "1", "lynq.sh/confirm-creations": "400",
                })),
            ),
        ] {
            let steered = confirm("tenants", &status(deletions, creations));
            assert_eq!(said(steered), (effect.to_owned(), patch));
        }
    }

    #[test]
    fn promotions() {
        let (first, last) = (pauses_after("a"), pauses_after("c"));
        let group = |name: &str, pause: bool| json!({"name": name, "when": "x", "pause": pause});
        let ordered =
            |order: Value| serde_json::from_value::<Rollout>(json!({"order": order})).unwrap();
        let two = ordered(json!([
            group("a", true),
            group("b", false),
            group("c", true)
        ]));
        let one = ordered(json!([group("a", true)]));
        let told = |status| FormTold {
            name: "web",
            generation: 7,
            status,
        };
        let (goes, paused) = (status("InProgress", 29, 0), policy(true));
        for (steered, effect, to) in [
            (
                promote(told(&first), Some(&one)),
                "promotes generation 7 of form web past the group \"a\": the rollout continues to all of its nodes (29 held)",
                Some("7/a"),
            ),
            (
                promote(told(&first), Some(&two)),
                "promotes generation 7 of form web past the group \"a\": the rollout continues up to the pause after the group \"c\" (29 held)",
                Some("7/a"),
            ),
            // An edit of the policy keeps the promotion of "a", of an older generation.
            (
                promote(told(&last), Some(&two)),
                "promotes generation 7 of form web past the group \"c\": the rollout continues to all of its nodes (29 held)",
                Some("7/c"),
            ),
            (
                promote(told(&last), Some(&one)),
                "rollout.order of form web has no pause after the group \"c\" any more, and lynqgate has not observed that change yet. See \
                 lynqgate status form web",
                None,
            ),
            (
                promote(told(&goes), Some(&two)),
                "form web waits for no promotion",
                None,
            ),
            (
                promote(told(&goes), Some(&paused)),
                "form web waits for no promotion: rollout.paused is set. To continue: lynqgate resume web",
                None,
            ),
        ] {
            let patch = to.map_or(Value::Null, |to| annotate(names::PROMOTE, to));
            assert_eq!(said(steered), (effect.to_owned(), patch));
        }
    }

    #[test]
    fn an_undo() {
        let goes = status("InProgress", 29, 0);
        let told = FormTold {
            name: "web",
            generation: 7,
            status: &goes,
        };
        let revision = |number: i64, completed: Option<i64>| Revision {
            name: format!("web-{number}"),
            number,
            created: None,
            completed: completed.map(|second| Timestamp::from_second(second).unwrap()),
            content: json!({"hubId": "tenants", "deployments": [number]}),
        };
        let there = [revision(3, None), revision(2, Some(0))];
        let spec = json!({"hubId": "tenants", "rollout": {}, "deployments": [3], "jobs": []});
        let undone = |to| said(undo(told, &spec, None, Some("web-3"), &there, to));
        let effect = "sets form web back to revision 2 (web-2, complete at 1970-01-01T00:00:00Z), and leaves spec.rollout as it is. lynqgate rolls \
                      that out to 23 nodes, at most 3 not ready at a time, broken ones first. The next kubectl apply --server-side of the form needs --force-conflicts";
        let patch = json!({"spec": {"hubId": "tenants", "deployments": [2], "jobs": null}});
        assert_eq!(undone(None), (effect.to_owned(), patch.clone()));
        assert_eq!(undone(Some(2)).1, patch);
        assert_eq!(undone(Some(3)).0, "form web is revision 3 now");
        assert_eq!(
            undone(Some(9)).0,
            "form web has no revision 9: lynqgate history web"
        );
        let after = |value: &str| {
            let annotations = BTreeMap::from([(names::REVERTED.to_owned(), value.to_owned())]);
            let reverted = Reverted::of(&annotations);
            let patch = said(undo(told, &spec, reverted, Some("web-3"), &there, None)).1;
            patch["metadata"].clone()
        };
        let ended = json!({"annotations": {names::REVERTED: "web-3"}});
        assert_eq!(after("web-3/web-2"), ended, "the user took it back");
        assert_eq!(after("web-3"), Value::Null);
        let none = undo(told, &spec, None, Some("web-3"), &there[..1], None);
        let why = "no other revision of form web has completed a rollout. Choose one: lynqgate history web, then lynqgate undo web --to REVISION";
        assert_eq!(said(none).0, why);
    }
}
