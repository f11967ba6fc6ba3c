//! Properties of the gate over sequences of writes by anybody. What must come of a write is told from contents, users and
//! markers; the gate's own reading of the state has no say in it.

use lynqgate_plants::{Plant, Proof};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::api::resource::ARRAYS;

use super::*;
use mutant::Gate;
use steps::{Content, STATE, Step, annotated, fields, past_the_gate, steps, version_of, written};

mod mutant;
mod steps;

/// What the node controller applies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Live {
    /// Nothing, since its creation.
    None,
    Unknown,
    Known(Content),
}

/// What is stored, and what is live by the rules alone.
struct Node {
    gate: Gate,
    object: Value,
    live: Live,
    /// Of the machine that decides next: clocks of replicas disagree.
    now: Timestamp,
}

proptest! {
    /// Whoever writes what: held iff desired and live content differ, hashes true, and what is live changes by a release with
    /// the very hash and version, by force, and by ungating alone.
    #[test]
    fn any_history_keeps_the_state_true(first in steps::content(), history in steps()) {
        play(first, &history, None)?;
    }
}

/// How many histories are enough to find a planted bug; they are the same each time.
const ENOUGH: usize = 256;

#[test]
fn planted_bugs_are_found() {
    for plant in Proof::Histories.plants() {
        let breaks = plant.breaks_in(Proof::Histories).expect("it is its own");
        let mut runner = TestRunner::deterministic();
        let found = (1..=ENOUGH).find(|_| {
            let history = (steps::content(), steps()).new_tree(&mut runner);
            let (first, history) = history.expect("a history").current();
            match play(first, &history, Some(plant)) {
                Err(TestCaseError::Fail(why)) => breaks.iter().any(|b| why.message().contains(b)),
                _ => false,
            }
        });
        println!("{plant}: {found:?}");
        assert!(found.is_some(), "{plant} breaks nothing of {breaks:?}");
    }
}

type Judged = Result<(), TestCaseError>;

fn play(first: Content, history: &[Step], plant: Option<Plant>) -> Judged {
    let mut new = node("");
    first.write(&mut new["spec"], steps::Spelling::Plain);
    let mut node = Node {
        gate: Gate(plant),
        object: Value::Null,
        live: Live::None,
        now: now(),
    };
    node.put(None, &new, OPERATOR)?;
    for (i, step) in history.iter().enumerate() {
        node.now = now() + jiff::SignedDuration::from_secs(i as i64 * 7 % 5);
        node.step(step)?;
    }
    Ok(())
}

impl Node {
    fn step(&mut self, step: &Step) -> Judged {
        match step {
            Step::Write(user, changes) => {
                let old = self.object.clone();
                let new = written(&old, Some(&old), changes);
                self.put(Some(&old), &new, user.name())
            }
            Step::Recreate {
                by,
                from_copy,
                changes,
            } => {
                let mut base = self.object.clone();
                if !from_copy {
                    base = node("");
                    Content::A.write(&mut base["spec"], steps::Spelling::Plain);
                }
                self.put(None, &written(&base, None, changes), by.name())
            }
            Step::Past(past) => {
                let version = version_of(&self.object) + 1;
                self.object = past_the_gate(&self.object, *past);
                self.object["metadata"]["resourceVersion"] = json!(version.to_string());
                self.live = live_of(&self.object);
                Ok(())
            }
        }
    }

    /// One write through the gate, with all that must be true of it.
    fn put(&mut self, old: Option<&Value>, new: &Value, user: &str) -> Judged {
        let write = Write {
            old,
            new,
            user,
            operator: OPERATOR,
        };
        let expected = match old {
            Some(old) => self.after_update(old, new, user),
            None => after_creation(new, user),
        };
        let found = result(self.gate, &write, self.now);
        whatever_the_client_says_of_the_state(self.gate, &write, self.now, &found)?;
        let (live, stored) = match (expected, found) {
            (Err(code), Err(denial)) => {
                prop_assert_eq!(code, denial.code());
                prop_assert!(
                    self.gate.check(&write, self.now).is_err(),
                    "the validating half lets it pass"
                );
                return Ok(());
            }
            (Ok(live), Ok((_, stored))) => (live, stored),
            (expected, found) => {
                return Err(TestCaseError::fail(format!("{expected:?}, but {found:?}")));
            }
        };
        asked_again(self.gate, &write, self.now, &stored)?;
        let was = old.map(|old| (old, self.live));
        state_is_true(was, live, &write, &stored)?;
        let version = old.map_or(6, version_of) + 1;
        self.object = stored;
        self.object["metadata"]["resourceVersion"] = json!(version.to_string());
        self.live = live;
        Ok(())
    }

    /// What is live after an update, or the code of its denial.
    fn after_update(&self, old: &Value, new: &Value, user: &str) -> Result<Live, &'static str> {
        let desired = Content::of(&new["spec"]);
        let changed = desired != Content::of(&old["spec"]);
        let set =
            |name| annotation(new, name).filter(|value| Some(*value) != annotation(old, name));
        let (release, ungated) = (set(names::RELEASE), set(names::UNGATED));
        if user != OPERATOR && (release.is_some() || ungated.is_some()) {
            return Err("not_the_operator");
        }
        // An operator of another version names what it has read.
        let stored =
            annotation(old, names::DESIRED_HASH).filter(|hash| hash.starts_with("7:") && !changed);
        let hashes = [Some(desired.hash().to_string()), stored.map(str::to_owned)];
        let is_named = |marker: &str, end: &str| {
            hashes
                .iter()
                .flatten()
                .any(|hash| marker == format!("{hash}{end}"))
        };
        if let Some(marker) = release {
            let version = format!("/{}", version_of(old));
            return match (changed, is_named(marker, &version)) {
                (true, _) => Err("release_with_content"),
                (false, true) => Ok(Live::Known(desired)),
                (false, false) => Err("stale_release"),
            };
        }
        // Decided on another version of the object, it says nothing.
        let behind = format!("/{}", version_of(old));
        if let Some(named) = ungated.and_then(|marker| marker.strip_suffix(&behind)) {
            let named = Some(named);
            return if hashes.iter().any(|hash| hash.as_deref() == named) {
                Ok(Live::Known(desired))
            } else {
                Err("stale_release")
            };
        }
        Ok(if goes_by_force(self.live, Some(old), new) {
            Live::Known(desired)
        } else {
            self.live
        })
    }
}

fn after_creation(new: &Value, user: &str) -> Result<Live, &'static str> {
    let desired = Content::of(&new["spec"]);
    let marker = annotation(new, names::UNGATED).filter(|marker| !marker.contains('/'));
    if let Some(marker) = marker.filter(|_| user == OPERATOR) {
        return if marker == desired.hash().as_str() {
            Ok(Live::Known(desired))
        } else {
            Err("stale_release")
        };
    }
    Ok(
        if goes_by_force(Live::None, None, new) || desired == Content::Empty {
            Live::Known(desired)
        } else {
            Live::None
        },
    )
}

fn is_forced(object: &Value) -> bool {
    annotation(object, names::FORCE_ROLLOUT) == Some("true")
}

/// What a hub has rendered, and what is not of Lynq. (No content of these tests is a template.)
fn goes_by_force(was: Live, old: Option<&Value>, new: &Value) -> bool {
    let rendered = annotation(new, names::RENDERED_HASH);
    let desired = Content::of(&new["spec"]).hash();
    let of_lynq = |object| annotation(object, "lynq.sh/rollout-update-start").is_some();
    is_forced(new)
        && match rendered == Some(&*format!("{desired}/row")) {
            true => was != Live::Unknown || !of_lynq(new),
            false => !of_lynq(new) && !old.is_some_and(of_lynq),
        }
}

/// The live content of a stored object, however it came to be stored.
fn live_of(object: &Value) -> Live {
    let desired = Content::of(&object["spec"]);
    let released = object["spec"].get("released").map(Content::of);
    let was_held = released.is_some()
        || annotation(object, names::HELD_SINCE)
            .or(annotation(object, names::HELD_BY))
            .is_some();
    match annotation(object, names::LIVE_HASH) {
        Some("none") => Live::None,
        Some(live) if live.starts_with("7:") => match released {
            // Where Lynq's row is, Lynq may have written it since, and no hash tells.
            _ if annotation(object, names::DESIRED_HASH) == Some(live) => {
                match was_held || annotation(object, "lynq.sh/rollout-update-start").is_some() {
                    false => Live::Known(desired),
                    true => Live::Unknown,
                }
            }
            Some(released) => Live::Known(released),
            None => Live::Unknown,
        },
        Some(live) => {
            let mut known = released.into_iter().chain((!was_held).then_some(desired));
            known
                .find(|content| content.hash().as_str() == live)
                .map_or(Live::Unknown, Live::Known)
        }
        None => Live::Unknown,
    }
}

/// What the API server stores after the mutating half.
fn result(gate: Gate, write: &Write, now: Timestamp) -> Result<(Outcome, Value), Denial> {
    let decision = gate.decide(write, now)?;
    let mut stored = write.new.clone();
    patch(&mut stored, &decision.patch).expect("the patch applies");
    Ok((decision.outcome, stored))
}

/// The fields that are the gate's own may come with anything in them, or not at all.
fn whatever_the_client_says_of_the_state(
    gate: Gate,
    write: &Write,
    now: Timestamp,
    found: &Result<(Outcome, Value), Denial>,
) -> Judged {
    let desired = Content::of(&write.new["spec"]).hash();
    let mut forged = annotated(write.new.clone());
    for (name, value) in STATE.into_iter().zip([
        Content::A.hash().as_str(),
        desired.as_str(),
        "2001-01-01T00:00:00Z",
        "no time",
        "mallory",
    ]) {
        forged["metadata"]["annotations"][name] = json!(value);
    }
    forged["spec"]["released"] = steps::released(Content::B);
    let mut absent = annotated(write.new.clone());
    fields(&mut absent["metadata"]["annotations"])
        .retain(|name, _| !STATE.contains(&name.as_str()));
    fields(&mut absent["spec"]).remove("released");
    for new in [forged, absent] {
        let other = result(
            gate,
            &Write {
                new: &new,
                ..*write
            },
            now,
        );
        prop_assert_eq!(&other, found, "the client's word counts: {}", new);
    }
    Ok(())
}

/// The API server asks again after webhooks that changed something, with their result and the same old object.
fn asked_again(gate: Gate, write: &Write, now: Timestamp, stored: &Value) -> Judged {
    let again = Write {
        new: stored,
        ..*write
    };
    let second = gate.decide(&again, now).map(|decision| decision.patch);
    prop_assert_eq!(second, Ok(vec![]), "not idempotent");
    let later = now + jiff::SignedDuration::from_millis(250);
    for at in [now, later] {
        prop_assert_eq!(gate.check(&again, at), Ok(()));
    }
    // Only the stamps of this very write may move with the clock.
    let (_, mut moved) = result(gate, &again, later).expect("its own answer is allowed");
    let differs =
        |name| annotation(stored, name) != write.old.and_then(|old| annotation(old, name));
    // Two edits of one instant have the same time.
    let content = |object: &Value| Content::of(&object["spec"]);
    let is_edit = write.old.map(content) != Some(content(stored));
    for stamp in [names::START_TIME, names::HELD_SINCE, names::EDITED_AT] {
        let is_new = differs(stamp) || stamp == names::EDITED_AT && is_edit;
        if is_new && annotation(stored, stamp).is_some() {
            moved["metadata"]["annotations"][stamp] = json!(annotation(stored, stamp));
        }
    }
    prop_assert_eq!(&moved, stored, "not idempotent later");

    // Another webhook's change counts as if the client had made it.
    let mut change = [write.new.clone(), stored.clone()];
    for object in &mut change {
        Content::AandB.write(&mut object["spec"], steps::Spelling::Shuffled);
        object["metadata"]["labels"] = json!({"other": "webhook"});
    }
    let [by_client, by_webhook] = change
        .each_ref()
        .map(|new| result(gate, &Write { new, ..*write }, now));
    // A content that changed makes another marker of a creation stale, and one that was dropped is put back.
    prop_assert_eq!(by_client, by_webhook);
    Ok(())
}

/// The annotations and `released` say what is so, and nothing else was touched.
fn state_is_true(was: Option<(&Value, Live)>, live: Live, write: &Write, stored: &Value) -> Judged {
    let desired = Content::of(&stored["spec"]);
    let held = live != Live::Known(desired);
    let found = |name| annotation(stored, name);
    let old = |name| was.and_then(|(old, _)| annotation(old, name));

    let hash = desired.hash();
    prop_assert_eq!(found(names::DESIRED_HASH), Some(hash.as_str()));
    let live_hash = match live {
        Live::None => "none".to_owned(),
        Live::Unknown => "unknown".to_owned(),
        Live::Known(content) => content.hash().to_string(),
    };
    prop_assert_eq!(found(names::LIVE_HASH), Some(live_hash.as_str()));
    prop_assert_eq!(held, found(names::DESIRED_HASH) != found(names::LIVE_HASH));
    prop_assert_eq!(live_of(stored), live, "not what is read from it");

    let released = stored["spec"].get("released");
    match live {
        Live::None => prop_assert_eq!(released, Some(&json!({}))),
        Live::Known(content) if held => prop_assert_eq!(released.map(Content::of), Some(content)),
        Live::Known(_) | Live::Unknown => prop_assert_eq!(released, None),
    }

    let (before, after) = (old(names::START_TIME), found(names::START_TIME));
    if was.map_or(Live::None, |(_, live)| live) == live {
        prop_assert_eq!(before, after, "a start time for nothing");
    } else {
        prop_assert!(
            after > before,
            "no new start time: {:?} after {:?}",
            after,
            before
        );
    }
    prop_assert_eq!(held, found(names::HELD_SINCE).is_some());
    prop_assert_eq!(held, found(names::HELD_BY).is_some());
    let was_held =
        was.is_some_and(|(object, live)| live != Live::Known(Content::of(&object["spec"])));
    if held && was_held && old(names::HELD_SINCE).is_some() {
        prop_assert_eq!(found(names::HELD_SINCE), old(names::HELD_SINCE));
    }
    if held && was.is_none_or(|(old, _)| Content::of(&old["spec"]) != desired) {
        prop_assert_eq!(found(names::HELD_BY), Some(write.user));
    }
    for marker in [names::RELEASE, names::UNGATED] {
        let mine = write.user == OPERATOR && found(marker) == annotation(write.new, marker);
        prop_assert!(
            mine || found(marker) == old(marker),
            "{} is not kept",
            marker
        );
    }
    let mut expected = without_the_gates_own(write.new);
    // What says the same stands as it stood.
    let said = was.and_then(|(old, live)| match &old["spec"] {
        spec if Content::of(spec) == desired => Some(spec),
        spec if live == Live::Known(desired) => spec.get("released"),
        _ => None,
    });
    if let Some(said) = said {
        let filled = |spec: &Value, array: &str| spec[array].get(0).is_some();
        for array in ARRAYS {
            if filled(said, array) && filled(&expected["spec"], array) {
                expected["spec"][array] = said[array].clone();
            }
        }
    }
    prop_assert_eq!(without_the_gates_own(stored), expected);
    Ok(())
}

fn without_the_gates_own(object: &Value) -> Value {
    let mut rest = annotated(object.clone());
    let own = |name: &str| {
        let beside = [
            names::RELEASE,
            names::UNGATED,
            names::EDITED_BY,
            names::EDITED_AT,
        ];
        STATE.contains(&name) || beside.contains(&name)
    };
    fields(&mut rest["metadata"]["annotations"]).retain(|name, _| !own(name));
    fields(&mut rest["spec"]).remove("released");
    rest
}
