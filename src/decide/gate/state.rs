//! The gate's state as it stands on a LynqNode: how it is read, and how a written object is brought to it.

use std::borrow::Cow;

use jiff::Timestamp;
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, RemoveOperation};
use serde_json::{Map, Value, json};

use crate::api::resource::ARRAYS;
use crate::api::{names, stamp};
use crate::decide::node::takeover::bears_lynqs_row;
use crate::decide::shared::content;
use crate::decide::shared::content::Hash;

/// The value of `lynq.sh/live-hash` while nothing was ever live.
pub const NONE: &str = "none";
/// The value of `lynq.sh/live-hash` while it is not known what runs.
pub const UNKNOWN: &str = "unknown";

/// What the node controller applies.
#[derive(Clone, Debug, PartialEq)]
pub enum Live<'a> {
    /// Nothing was ever live: held since its creation.
    None,
    /// Something runs that this gate did not let through.
    Unknown,
    /// The content with this hash.
    Known(Hash, Source<'a>),
}

/// Where the live content stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Source<'a> {
    /// The stored `spec.released`.
    Released(&'a Value),
    /// The arrays of the stored spec.
    Spec(&'a Value),
    /// The written object itself: it has just gone live.
    Written,
}

/// A point in time on the object: as it is stored, or new with this write.
#[derive(Clone, Debug, PartialEq)]
pub enum Stamp<'a> {
    Stored(Option<&'a str>),
    New(String),
}

impl Stamp<'_> {
    pub fn text(&self) -> Option<&str> {
        match self {
            Stamp::Stored(text) => *text,
            Stamp::New(text) => Some(text),
        }
    }

    /// Whether `found` can be this stamp: the very text where it is stored; any time where it is new, since it was made by an
    /// earlier call of the gate, at another `now`.
    fn admits(&self, found: Option<&str>) -> bool {
        match self {
            Stamp::Stored(text) => found == *text,
            Stamp::New(_) => found.and_then(stamp::parse).is_some(),
        }
    }
}

#[derive(Clone, Debug)]
pub struct State<'a> {
    pub desired: Hash,
    pub live: Live<'a>,
    pub start: Stamp<'a>,
    pub held_since: Stamp<'a>,
    pub held_by: Option<&'a str>,
    pub release: Option<&'a str>,
    pub ungated: Option<&'a str>,
}

impl<'a> State<'a> {
    /// The state of an object that is not there yet.
    pub fn new(desired: Hash) -> Self {
        State {
            desired,
            live: Live::None,
            start: Stamp::Stored(None),
            held_since: Stamp::Stored(None),
            held_by: None,
            release: None,
            ungated: None,
        }
    }

    /// The state of a stored object. What its annotations claim is believed only where the content bears it out.
    pub fn of_stored(old: &'a Value) -> Self {
        let desired = content::hash(old.get("spec"));
        State {
            live: live_of(old, &desired),
            desired,
            start: Stamp::Stored(annotation(old, names::START_TIME)),
            held_since: Stamp::Stored(annotation(old, names::HELD_SINCE)),
            held_by: annotation(old, names::HELD_BY),
            release: annotation(old, names::RELEASE),
            ungated: annotation(old, names::UNGATED),
        }
    }

    pub fn held(&self) -> bool {
        match &self.live {
            Live::None | Live::Unknown => true,
            Live::Known(hash, _) => *hash != self.desired,
        }
    }

    pub fn live_hash(&self) -> Option<&Hash> {
        match &self.live {
            Live::Known(hash, _) => Some(hash),
            Live::None | Live::Unknown => None,
        }
    }

    /// The desired content becomes live. Where it is live already, above all the start time stays.
    pub fn go_live(&mut self, now: Timestamp) {
        if self.held() {
            self.start = Stamp::New(stamp::after(self.start.text(), now));
            self.live = Live::Known(self.desired.clone(), Source::Written);
        }
        self.unhold();
    }

    pub fn unhold(&mut self) {
        self.held_since = Stamp::Stored(None);
        self.held_by = None;
    }

    /// The desired content waits: since the first hold, by the newest writer.
    pub fn hold(&mut self, user: &'a str, now: Timestamp) {
        if self.held_since.text().is_none() {
            self.held_since = Stamp::New(stamp::format(now));
        }
        self.held_by = Some(user);
    }

    /// What brings `new` to this state.
    pub fn patch(&self, new: &Value) -> Vec<PatchOperation> {
        let mut patch = vec![];
        if !new["metadata"]["annotations"].is_object() {
            patch.push(add(&["metadata", "annotations"], json!({})));
        }
        let annotations = self.annotations().into_iter();
        patch.extend(annotations.filter_map(|(name, wanted)| set_annotation(new, name, wanted)));
        let found = new.pointer("/spec/released");
        match self.released() {
            Some(wanted) if found != Some(wanted.as_ref()) => {
                if new.get("spec").is_none_or(Value::is_null) {
                    patch.push(add(&["spec"], json!({})));
                }
                patch.push(add(&["spec", "released"], wanted.into_owned()));
            }
            None if found.is_some() => patch.push(remove(&["spec", "released"])),
            _ => {}
        }
        patch
    }

    /// What of the state `new` does not have, stamps of earlier calls aside.
    pub fn mismatch(&self, new: &Value) -> Option<&'static str> {
        for (name, wanted) in self.annotations() {
            let found = annotation(new, name);
            let good = match name {
                names::START_TIME => self.start.admits(found),
                names::HELD_SINCE => self.held_since.admits(found),
                _ => found == wanted,
            };
            if !good {
                return Some(match name {
                    names::DESIRED_HASH => "content that the desired hash does not name",
                    names::LIVE_HASH => "a live hash that is not true",
                    other => other,
                });
            }
        }
        let found = new.pointer("/spec/released");
        (self.released().as_deref() != found).then_some("another spec.released")
    }

    fn annotations(&self) -> [(&'static str, Option<&str>); 7] {
        let live = match &self.live {
            Live::None => NONE,
            Live::Unknown => UNKNOWN,
            Live::Known(hash, _) => hash.as_str(),
        };
        [
            (names::DESIRED_HASH, Some(self.desired.as_str())),
            (names::LIVE_HASH, Some(live)),
            (names::START_TIME, self.start.text()),
            (names::HELD_SINCE, self.held_since.text()),
            (names::HELD_BY, self.held_by),
            (names::RELEASE, self.release),
            (names::UNGATED, self.ungated),
        ]
    }

    fn released(&self) -> Option<Cow<'a, Value>> {
        match &self.live {
            Live::Known(_, Source::Released(content)) if self.held() => {
                Some(Cow::Borrowed(*content))
            }
            Live::Known(_, Source::Spec(spec)) if self.held() => {
                Some(Cow::Owned(content::of_spec(Some(spec))))
            }
            Live::None => Some(Cow::Owned(Value::Object(Map::new()))),
            Live::Known(..) | Live::Unknown => None,
        }
    }
}

/// Left from a hold, which ends with all of these at once.
pub fn bears_a_hold(object: &Value) -> bool {
    let released = object.pointer("/spec/released");
    released.is_some_and(|released| !released.is_null())
        || [names::HELD_SINCE, names::HELD_BY]
            .iter()
            .any(|name| annotation(object, name).is_some())
}

/// The live content of a stored object: `released` if its hash is the live hash, else the desired content if its hash
/// is, else unknown. (Lynq's CRD applied over ours prunes `released`; what is then left is not what was let through.)
/// Desired content that is said to be live while traces of its hold are there was made so past the gate.
fn live_of<'a>(old: &'a Value, desired: &Hash) -> Live<'a> {
    let spec = old.get("spec").unwrap_or(&Value::Null);
    let released = spec.get("released");
    let known =
        |source: &'a Value| Live::Known(content::hash(Some(source)), Source::Released(source));
    // What nobody could read back one level deeper, as `released`, came past the gate.
    let of_spec = |hash| match content::check_depth(Some(spec)) {
        Ok(()) => Live::Known(hash, Source::Spec(spec)),
        Err(_) => Live::Unknown,
    };
    let Some(live) = annotation(old, names::LIVE_HASH) else {
        return Live::Unknown;
    };
    if live == NONE {
        return Live::None;
    }
    if Hash::is_of_another_version(live) {
        // Its hashes cannot be computed here, but whether it was held can be read.
        return match released {
            _ if annotation(old, names::DESIRED_HASH) == Some(live) => match bears_a_hold(old) {
                false if !bears_lynqs_row(old) => of_spec(desired.clone()),
                // Lynq may have written it since.
                _ => Live::Unknown,
            },
            Some(released) => known(released),
            None => Live::Unknown,
        };
    }
    let Some(live) = Hash::parse(live) else {
        return Live::Unknown;
    };
    if let Some(Live::Known(hash, source)) = released.map(known)
        && hash == live
    {
        return Live::Known(hash, source);
    }
    if *desired == live && !bears_a_hold(old) {
        of_spec(live)
    } else {
        Live::Unknown
    }
}

/// What gives lists that say the same in other words, or in another order, back their stored form: the fence cannot compute
/// a hash, and takes every other form for other content.
pub fn as_stored(stored: &Value, new: &Value) -> Vec<PatchOperation> {
    let list = |content: &'_ Value, array: &str| {
        let list = content.get(array).cloned();
        list.filter(|list| list.as_array().is_some_and(|list| !list.is_empty()))
    };
    let differs = |array: &&'static str| {
        let stored = list(stored, array)?;
        (list(new, array)? != stored).then(|| add(&["spec", array], stored))
    };
    ARRAYS.iter().filter_map(differs).collect()
}

/// What gives the annotation this value, or takes it off, where it is otherwise.
pub fn set_annotation(new: &Value, name: &str, wanted: Option<&str>) -> Option<PatchOperation> {
    let found = &new["metadata"]["annotations"][name];
    match wanted {
        Some(wanted) => (found.as_str() != Some(wanted))
            .then(|| add(&["metadata", "annotations", name], json!(wanted))),
        None => (!found.is_null()).then(|| remove(&["metadata", "annotations", name])),
    }
}

pub fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object
        .get("metadata")?
        .get("annotations")?
        .get(name)?
        .as_str()
}

fn add(path: &[&str], value: Value) -> PatchOperation {
    PatchOperation::Add(AddOperation {
        path: PointerBuf::from_tokens(path.iter().copied()),
        value,
    })
}

fn remove(path: &[&str]) -> PatchOperation {
    PatchOperation::Remove(RemoveOperation {
        path: PointerBuf::from_tokens(path.iter().copied()),
    })
}
