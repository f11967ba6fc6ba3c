//! The gate's state as it stands on a LynqNode: how it is read, and how a written object is brought to it.

use std::borrow::Cow;

use jiff::Timestamp;
use json_patch::jsonptr::PointerBuf;
use serde::Serialize;
use serde_json::{Value, json};

use crate::api::{names, stamp};
use crate::decide::gate::node::Node;
use crate::decide::node::takeover::bears_lynqs_row;
use crate::decide::shared::content::Hash;
use crate::decide::shared::content::lists::{Content, Lists, RawJson, is_empty, text_of};

/// The value of `lynq.sh/live-hash` while nothing was ever live.
pub const NONE: &str = "none";
/// The value of `lynq.sh/live-hash` while it is not known what runs.
pub const UNKNOWN: &str = "unknown";

/// What the node controller applies.
#[derive(Clone, Debug)]
pub enum Live<'a> {
    /// Nothing was ever live: held since its creation.
    None,
    /// Something runs that this gate did not let through.
    Unknown,
    /// The content with this hash.
    Known(Hash, Source<'a>),
}

/// Where the live content stands.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// The stored `spec.released`.
    Released(&'a Lists<'a>),
    /// The arrays of the stored spec.
    Spec(&'a Lists<'a>),
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
    pub fn of_stored(old: &'a Node<'a>) -> Self {
        State {
            live: live_of(old),
            desired: old.content.hash.clone(),
            start: Stamp::Stored(old.annotation(names::START_TIME)),
            held_since: Stamp::Stored(old.annotation(names::HELD_SINCE)),
            held_by: old.annotation(names::HELD_BY),
            release: old.annotation(names::RELEASE),
            ungated: old.annotation(names::UNGATED),
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
    pub fn patch(&self, new: &Node) -> Vec<Step> {
        let mut patch = vec![];
        if !new.object["metadata"]["annotations"].is_object() {
            patch.push(Step::add(&["metadata", "annotations"], text_of(&json!({}))));
        }
        let annotations = self.annotations().into_iter();
        patch.extend(annotations.filter_map(|(name, wanted)| set_annotation(new, name, wanted)));
        match self.released() {
            Some(wanted) if !is_released(new, &wanted) => {
                if !new.has_spec() {
                    patch.push(Step::add(&["spec"], text_of(&json!({}))));
                }
                patch.push(Step::add(&["spec", "released"], wanted.text()));
            }
            None if new.has_released() => patch.push(Step::remove(&["spec", "released"])),
            _ => {}
        }
        patch
    }

    /// The annotations of the state that a write sets to something else.
    pub fn undone<'s>(
        &'s self,
        old: Option<&'s Node>,
        new: &'s Node,
    ) -> impl Iterator<Item = &'static str> + 's {
        self.annotations()
            .into_iter()
            .filter_map(move |(name, wanted)| {
                let set = new.annotation(name);
                (set != old?.annotation(name) && set != wanted).then_some(name)
            })
    }

    /// What of the state `new` does not have, stamps of earlier calls aside.
    pub fn mismatch(&self, new: &Node) -> Option<&'static str> {
        for (name, wanted) in self.annotations() {
            let found = new.annotation(name);
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
        let is_good = match self.released() {
            Some(wanted) => is_released(new, &wanted),
            None => !new.has_released(),
        };
        (!is_good).then_some("another spec.released")
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

    fn released(&self) -> Option<Cow<'a, Lists<'a>>> {
        match &self.live {
            Live::Known(_, Source::Released(lists)) if self.held() => Some(Cow::Borrowed(lists)),
            Live::Known(_, Source::Spec(lists)) if self.held() => Some(Cow::Owned(lists.filled())),
            Live::None => Some(Cow::Owned(Lists::default())),
            Live::Known(..) | Live::Unknown => None,
        }
    }
}

fn is_released(new: &Node, wanted: &Lists) -> bool {
    let found = new.released.as_ref();
    found.is_some_and(|found| found.lists.is_equal(wanted))
}

/// The live content of a stored object: `released` if its hash is the live hash, else the desired content if its hash
/// is, else unknown. (Lynq's CRD applied over ours prunes `released`; what is then left is not what was let through.)
/// Desired content that is said to be live while traces of its hold are there was made so past the gate.
fn live_of<'a>(old: &'a Node<'a>) -> Live<'a> {
    let (content, desired) = (&old.content, &old.content.hash);
    let released = old.released.as_ref();
    let known = |content: &'a Content<'a>| {
        Live::Known(content.hash.clone(), Source::Released(&content.lists))
    };
    // What nobody could read back one level deeper, as `released`, came past the gate.
    let of_spec = |hash| match content.check_depth() {
        Ok(()) => Live::Known(hash, Source::Spec(&content.lists)),
        Err(_) => Live::Unknown,
    };
    let Some(live) = old.annotation(names::LIVE_HASH) else {
        return Live::Unknown;
    };
    if live == NONE {
        return Live::None;
    }
    if Hash::is_of_another_version(live) {
        // Its hashes cannot be computed here, but whether it was held can be read.
        return match released {
            _ if old.annotation(names::DESIRED_HASH) == Some(live) => match old.bears_a_hold() {
                false if !bears_lynqs_row(old.object) => of_spec(desired.clone()),
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
    if let Some(released) = released.filter(|released| released.hash == live) {
        return known(released);
    }
    if *desired == live && !old.bears_a_hold() {
        of_spec(live)
    } else {
        Live::Unknown
    }
}

/// What gives lists that say the same in other words, or in another order, back their stored form: the fence cannot compute
/// a hash, and takes every other form for other content.
pub fn as_stored(stored: &Lists, new: &Lists) -> Vec<Step> {
    let is_filled = |text: &RawJson| text.get().starts_with('[') && !is_empty(text.get());
    let differs = |(array, stored): (&'static str, &RawJson)| {
        let new = new.get(array).filter(|new| is_filled(new))?;
        let differs = is_filled(stored) && new.get() != stored.get();
        differs.then(|| Step::add(&["spec", array], Cow::Owned(stored.clone().into_owned())))
    };
    stored.iter().filter_map(differs).collect()
}

/// What gives the annotation this value, or takes it off, where it is otherwise.
pub fn set_annotation(new: &Node, name: &str, wanted: Option<&str>) -> Option<Step> {
    let found = &new.object["metadata"]["annotations"][name];
    let path = ["metadata", "annotations", name];
    match wanted {
        Some(wanted) => {
            (found.as_str() != Some(wanted)).then(|| Step::add(&path, text_of(&json!(wanted))))
        }
        None => (!found.is_null()).then(|| Step::remove(&path)),
    }
}

pub fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object
        .get("metadata")?
        .get("annotations")?
        .get(name)?
        .as_str()
}

/// A step of a JSON patch.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    op: &'static str,
    path: PointerBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<RawJson<'static>>,
}

impl Step {
    fn add(path: &[&str], value: RawJson<'static>) -> Self {
        Step {
            op: "add",
            path: PointerBuf::from_tokens(path.iter().copied()),
            value: Some(value),
        }
    }

    fn remove(path: &[&str]) -> Self {
        Step {
            op: "remove",
            path: PointerBuf::from_tokens(path.iter().copied()),
            value: None,
        }
    }
}
