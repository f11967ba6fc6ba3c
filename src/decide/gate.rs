//! The gate: what a write to a LynqNode makes live, and what it leaves held.
//!
//! A pure function of the stored object, the written object and the writer. It reads no cache and asks nobody: the
//! state is on the object itself, and it is derived from the *stored* object and the new content, never from the state
//! that a client sends along. It also gives the same answer when it is asked again about its own answer, because the
//! API server does that whenever a later webhook changes the object.
//!
//! The state, all of it owned by this gate:
//! - `lynq.sh/desired-hash`, `lynq.sh/live-hash`: held iff they differ. The live hash may be `none` (held since its
//!   creation: nothing was ever live) or `unknown` (what runs was not let through by this gate);
//! - `spec.released`: the live content, there only while held and known; `{}` where the live hash is `none`;
//! - `lynq.sh/rollout-update-start-time`: when the live content last changed;
//! - `lynq.sh/held-since`, `lynq.sh/held-by`: only while held;
//! - `lynq.sh/release`, `lynq.sh/ungated`: the operator's markers. A marker counts when it differs from the stored one
//!   and is never taken off: a gate that took it off would see none when asked again, and hold what it just released.
//!
//! Beside the state it stamps content that no hub rendered with its writer (`gate::edit`).

mod edit;
pub mod marker;
pub mod node;
mod state;

use jiff::Timestamp;
use serde_json::Value;

use crate::api::names;
use crate::decide::gate::marker::ReleaseMarker;
use crate::decide::gate::node::Node;
use crate::decide::node::takeover::bears_lynqs_row;
use crate::decide::shared::content;
use crate::decide::shared::content::Hash;
use crate::decide::shared::content::lists::Lists;
pub use state::annotation;
use state::{Live, Source, State};

/// What is written, over what, and by whom.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// The stored node; None for a creation.
    pub old: Option<&'a Node<'a>>,
    pub new: &'a Node<'a>,
    /// User name of the writer.
    pub user: &'a str,
    /// User name of the operator itself.
    pub operator: &'a str,
}

/// What the gate did; `code` is the audit annotation and the metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// The content did not change, and neither did the hold.
    Unchanged,
    /// The content waits; the one before it stays live.
    Held,
    /// The content is again the live one: nothing waits any more.
    Unheld,
    Released,
    Ungated,
    Forced,
}

impl Outcome {
    pub fn code(self) -> &'static str {
        match self {
            Outcome::Unchanged => "unchanged",
            Outcome::Held => "held",
            Outcome::Unheld => "unheld",
            Outcome::Released => "released",
            Outcome::Ungated => "ungated",
            Outcome::Forced => "forced",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    pub outcome: Outcome,
    /// Whether content waits after this write.
    pub held: bool,
    /// The JSON patch that brings the written object to the state decided on. Empty when it is there already.
    pub patch: String,
    /// For the person who wrote.
    pub warnings: Vec<String>,
}

/// Why a write is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    #[error(
        "stale release: {marker:?} was decided on another version of lynqnode {node}, or on other content than it has now ({current}); read the node again"
    )]
    StaleRelease {
        node: String,
        marker: String,
        current: String,
    },
    #[error(
        "a release changes nothing but its marker, but this one also changes the content of lynqnode {node}"
    )]
    ReleaseWithContent { node: String },
    #[error(
        "only lynqgate itself sets {annotation} (you are {user}). To let the waiting content of lynqnode {node} go live now: \
         kubectl annotate lynqnode {node} lynq.sh/force-rollout=true"
    )]
    NotTheOperator {
        node: String,
        annotation: &'static str,
        user: String,
    },
    #[error("lynqnode {node}: {reason}")]
    TooLarge {
        node: String,
        reason: content::TooLarge,
    },
    #[error("lynqnode {node}: {reason}")]
    TooDeep {
        node: String,
        reason: content::TooDeep,
    },
    #[error(
        "lynqnode {node}: this write leaves {what}. If lynqgate's mutating webhook did not see it, install the webhook again (lynqgate \
         check). If another webhook changed it afterwards, exclude LynqNodes from that one, or give it reinvocationPolicy: IfNeeded"
    )]
    Tampered { node: String, what: &'static str },
}

impl Denial {
    pub fn code(&self) -> &'static str {
        match self {
            Denial::StaleRelease { .. } => "stale_release",
            Denial::ReleaseWithContent { .. } => "release_with_content",
            Denial::NotTheOperator { .. } => "not_the_operator",
            Denial::TooLarge { .. } => "too_large",
            Denial::TooDeep { .. } => "too_deep",
            Denial::Tampered { .. } => "tampered",
        }
    }
}

/// The mutating half: the first rule that matches decides.
pub fn decide(write: &Write, now: Timestamp) -> Result<Decision, Denial> {
    let next = next_state(write, now)?;
    let mut warnings = vec![];
    for (name, does) in [
        (names::FORCE_ROLLOUT, "forces"),
        (names::DISCARD_EDIT, "discards"),
    ] {
        if let Some(value) = write
            .new
            .annotation(name)
            .filter(|value| *value != names::TRUE)
        {
            warnings.push(format!(
                "{name}: only \"true\" {does}; {value:?} does nothing"
            ));
        }
    }
    if write.new.annotation(names::FORCE_ROLLOUT) == Some(names::TRUE) && next.state.held() {
        warnings.push(format!(
            "{}: lynqnode {} still waits, because Lynq made it, or its content looks like a template: its hub must render it first, and \
             lynqgate must find the objects that Lynq left. To see what is missing: lynqgate explain node {}",
            names::FORCE_ROLLOUT,
            name(write),
            name(write)
        ));
    }
    let old = write.old.filter(|_| write.user != write.operator);
    for name in next.state.undone(old, write.new) {
        warnings.push(format!(
            "{name}: only lynqgate sets this annotation; the change is undone"
        ));
    }
    let mut patch = next.state.patch(write.new);
    if let Some(stored) = next.stored {
        patch.extend(state::as_stored(stored, &write.new.content.lists));
    }
    patch.extend(edit::patch(write, &next.state.desired, next.changed, now));
    let patch = match patch.is_empty() {
        true => String::new(),
        false => serde_json::to_string(&patch).expect("a patch can be written"),
    };
    Ok(Decision {
        outcome: next.outcome,
        held: next.state.held(),
        patch,
        warnings,
    })
}

/// The validating half, which sees what every other webhook left: it must be what the gate decides on it, stamps aside. Returns
/// what the gate did with it. The API server does not ask it for releases by a slot: the fence checks those.
pub fn check(write: &Write, now: Timestamp) -> Result<Outcome, Denial> {
    let next = next_state(write, now)?;
    match next.state.mismatch(write.new) {
        Some(what) => Err(Denial::Tampered {
            node: name(write),
            what,
        }),
        None => Ok(next.outcome),
    }
}

/// The state of a stored object in hashes of this version.
#[derive(Clone, Debug, PartialEq)]
pub struct Rebased<'a> {
    pub desired: Hash,
    /// The live content with its hash, where one is known.
    pub live: Option<(Hash, &'a Value)>,
}

/// What the next write through the gate will make of hashes that an operator of another version wrote; None where
/// there are none. Such an object is as held, or not, as it was: whoever reads it meanwhile must see the same.
pub fn rebased(stored: &Value) -> Option<Rebased<'_>> {
    let other = |name| annotation(stored, name).is_some_and(Hash::is_of_another_version);
    if !other(names::DESIRED_HASH) && !other(names::LIVE_HASH) {
        return None;
    }
    let node = Node::of(stored);
    let state = State::of_stored(&node);
    let spec = &stored["spec"];
    let live = match state.live {
        Live::Known(hash, Source::Released(_)) => Some((hash, &spec["released"])),
        Live::Known(hash, Source::Spec(_)) => Some((hash, spec)),
        Live::Known(_, Source::Written) | Live::None | Live::Unknown => None,
    };
    Some(Rebased {
        desired: state.desired,
        live,
    })
}

/// Left from a hold, which ends with all of these at once.
pub fn bears_a_hold(stored: &Value) -> bool {
    let released = stored.pointer("/spec/released");
    released.is_some_and(|released| !released.is_null())
        || [names::HELD_SINCE, names::HELD_BY]
            .iter()
            .any(|name| annotation(stored, name).is_some())
}

struct Next<'a> {
    outcome: Outcome,
    state: State<'a>,
    /// The content is another than the stored one.
    changed: bool,
    /// The stored content that this one says again: what was desired before, or what is live.
    stored: Option<&'a Lists<'a>>,
}

fn next_state<'a>(write: &Write<'a>, now: Timestamp) -> Result<Next<'a>, Denial> {
    let content = &write.new.content;
    let old = write.old.map(State::of_stored);
    let desired = content.hash.clone();
    let changed = old.as_ref().is_none_or(|old| old.desired != desired);
    if changed {
        content.check_size().map_err(|reason| Denial::TooLarge {
            node: name(write),
            reason,
        })?;
        content.check_depth().map_err(|reason| Denial::TooDeep {
            node: name(write),
            reason,
        })?;
    }

    let stored = match old.as_ref().map(|old| &old.live) {
        Some(_) if !changed => write.old.map(|old| &old.content.lists),
        Some(Live::Known(hash, Source::Released(lists))) if *hash == desired => Some(*lists),
        _ => None,
    };
    let (outcome, state) = by_rule(write, old, desired, changed, now)?;
    Ok(Next {
        outcome,
        state,
        changed,
        stored,
    })
}

/// `old` is the stored state, `desired` the hash of the new content.
fn by_rule<'a>(
    write: &Write<'a>,
    old: Option<State<'a>>,
    desired: Hash,
    changed: bool,
    now: Timestamp,
) -> Result<(Outcome, State<'a>), Denial> {
    // What every rule starts from: the stored state, speaking of the new content.
    let mut next = match &old {
        Some(old) => State {
            desired: desired.clone(),
            ..old.clone()
        },
        None => State::new(desired.clone()),
    };
    let release = marker(
        write,
        names::RELEASE,
        old.as_ref().and_then(|old| old.release),
    )?;
    let ungated = marker(
        write,
        names::UNGATED,
        old.as_ref().and_then(|old| old.ungated),
    )?;

    // The operator releases what waits.
    if let (Some(value), Some(old)) = (release, &old) {
        if changed {
            return Err(Denial::ReleaseWithContent { node: name(write) });
        }
        check_marker(write, old, value, &desired, true)?;
        next.release = Some(value);
        let outcome = if old.held() {
            Outcome::Released
        } else {
            Outcome::Unchanged
        };
        next.go_live(now);
        return Ok((outcome, next));
    }
    // The operator says that no window applies to the node as it has seen it. It may be another by now, and so may the window.
    if let Some((value, named)) = ungated.and_then(|value| as_seen(write, value)) {
        if let Some(old) = &old {
            check_marker(write, old, named, &desired, false)?;
        } else if named != desired.as_str() {
            return Err(stale(write, value, &desired));
        }
        next.ungated = Some(value);
        next.go_live(now);
        return Ok((Outcome::Ungated, next));
    }
    // Forced, for as long as the annotation is there.
    if write.new.annotation(names::FORCE_ROLLOUT) == Some(names::TRUE)
        && may_be_forced(write, old.as_ref(), &desired)
    {
        let was_settled = !changed && old.as_ref().is_some_and(|old| !old.held());
        next.go_live(now);
        return Ok((
            if was_settled {
                Outcome::Unchanged
            } else {
                Outcome::Forced
            },
            next,
        ));
    }
    if old.is_none() {
        // A creation. Without content there is nothing to wait for.
        if write.new.content.is_empty() {
            next.go_live(now);
            return Ok((Outcome::Unchanged, next));
        }
        next.hold(write.user, now);
        return Ok((Outcome::Held, next));
    }
    // Metadata, a re-apply, or a PUT by somebody who does not know `spec.released`. Only what was written past the gate
    // can be held, or not, without the stamps that say so.
    if !changed {
        match next.held() {
            true if next.held_since.text().is_none() => next.hold(write.user, now),
            true => {}
            false => next.unhold(),
        }
        return Ok((Outcome::Unchanged, next));
    }
    // Back to what is live: a revert before the release disturbs nobody. (What Lynq left, or was written past the gate, is
    // not known to be live: it stays exactly as it is until the release.)
    if next.live_hash() == Some(&desired) {
        next.unhold();
        return Ok((Outcome::Unheld, next));
    }
    next.hold(write.user, now);
    Ok((Outcome::Held, next))
}

/// Whether force lets this content go. Lynq's nodes hold templates, and a copy of one may be put back over whatever runs.
///
/// - What a hub has rendered goes. Of a node that is not taken over yet the node loop finds out first which objects it has, and then
///   takes Lynq's row off it.
/// - Nothing else goes by a write of a node that bears that row, or that takes it off.
/// - What somebody has edited goes, if a hub wrote the node before and it is known what runs, or if it cannot be a template.
fn may_be_forced(write: &Write, old: Option<&State>, desired: &Hash) -> bool {
    let is_unknown = matches!(old.map(|old| &old.live), Some(Live::Unknown));
    let bears_row = bears_lynqs_row(write.new.object);
    let rendered = write.new.annotation(names::RENDERED_HASH);
    if rendered.and_then(|rendered| rendered.split('/').next()) == Some(desired.as_str()) {
        return !(bears_row && is_unknown);
    }
    if bears_row || write.old.is_some_and(|old| bears_lynqs_row(old.object)) {
        return false;
    }
    (rendered.is_some() && !is_unknown) || !write.new.content.has_template()
}

/// A marker of the operator's that this write sets or changes. Removed, it is put back (the state keeps the old one).
fn marker<'a>(
    write: &Write<'a>,
    which: &'static str,
    old: Option<&str>,
) -> Result<Option<&'a str>, Denial> {
    let Some(new) = write.new.annotation(which).filter(|new| Some(*new) != old) else {
        return Ok(None);
    };
    if write.old.is_none() && (which == names::RELEASE || write.user != write.operator) {
        // Nothing waits yet when an object is made. A restored backup has the markers of its former life, which the state
        // does not carry over: it is held like any other creation.
        return Ok(None);
    }
    if write.user != write.operator {
        return Err(Denial::NotTheOperator {
            node: name(write),
            annotation: which,
            user: write.user.to_owned(),
        });
    }
    Ok(Some(new))
}

/// Whether the marker names the content, and for a release also the version of the stored object, that it was decided on.
fn check_marker(
    write: &Write,
    old: &State,
    value: &str,
    desired: &Hash,
    release: bool,
) -> Result<(), Denial> {
    let parsed = ReleaseMarker::parse(value).filter(|_| release);
    let (hash, version) = match &parsed {
        Some(marker) => (marker.hash.as_str(), Some(marker.resource_version.as_str())),
        None => (value, None),
    };
    // An operator of another version decided on the hash that it reads on the object.
    let stored = write
        .old
        .and_then(|old| old.annotation(names::DESIRED_HASH));
    let named_as_stored =
        stored == Some(hash) && Hash::is_of_another_version(hash) && old.desired == *desired;
    let current = (hash == desired.as_str() || named_as_stored)
        && (!release || version == stored_version(write));
    if current {
        Ok(())
    } else {
        Err(stale(write, value, desired))
    }
}

/// The marker with the hash in it, if the object is still of the version behind the hash; a new object has none.
fn as_seen<'a>(write: &Write, marker: &'a str) -> Option<(&'a str, &'a str)> {
    let (hash, version) = match marker.rsplit_once('/') {
        Some((hash, version)) => (hash, Some(version)),
        None => (marker, None),
    };
    (version == stored_version(write)).then_some((marker, hash))
}

fn stored_version<'a>(write: &Write<'a>) -> Option<&'a str> {
    let version = write.old?.object.pointer("/metadata/resourceVersion")?;
    version.as_str()
}

fn stale(write: &Write, marker: &str, current: &Hash) -> Denial {
    Denial::StaleRelease {
        node: name(write),
        marker: marker.to_owned(),
        current: current.to_string(),
    }
}

fn name(write: &Write) -> String {
    let text = |pointer| {
        write
            .new
            .object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    format!(
        "{} -n {}",
        text("/metadata/name"),
        text("/metadata/namespace")
    )
}

#[cfg(test)]
mod tests;
