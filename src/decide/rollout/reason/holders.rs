//! Who keeps others waiting, as a reason names them.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

/// Some nodes, and why the first of them is not ready.
pub struct Because<'a>(pub &'a Names, pub Option<&'a str>);

impl fmt::Display for Because<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Because(names, why) = self;
        match (why, &*names.shown) {
            (None, _) => write!(f, "{names}"),
            (Some(why), [first, _, ..]) => write!(f, "{names} ({first}: {why})"),
            (Some(why), _) => write!(f, "{names} ({why})"),
        }
    }
}

/// Who fills a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holders {
    /// Why the first of those that are not ready is not: of those in flight, else of those that are not reported on, else of
    /// those that were broken before.
    pub why: Option<String>,
    /// They have a slot, and are not released yet.
    pub releasing: Names,
    /// They have a slot, and the API server did not take their release, which is tried again.
    pub refused: Names,
    pub unknown: Names,
    pub not_ready: Names,
    /// They are ready, and are to be read from the API server once more before their slots are free.
    pub confirming: Names,
    pub soaking: Names,
    /// When the first of those has soaked.
    pub soaked_at: Option<Timestamp>,
    /// When so many of them have soaked that a place is free.
    pub free_at: Option<Timestamp>,
    /// Not ready, and not by this change.
    pub broken: Names,
}

impl fmt::Display for Holders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = vec![];
        let why = self.why.as_deref();
        if !self.not_ready.is_empty() {
            parts.push(format!("not ready: {}", Because(&self.not_ready, why)));
        }
        if !self.unknown.is_empty() {
            let why = why.filter(|_| self.not_ready.is_empty());
            parts.push(format!(
                "released, no status update since: {}",
                Because(&self.unknown, why)
            ));
        }
        if !self.releasing.is_empty() {
            parts.push(format!("about to be released: {}", self.releasing));
        }
        if !self.refused.is_empty() {
            parts.push(format!(
                "the API server rejected their release: {}",
                self.refused
            ));
        }
        if let Some(at) = self.soaked_at.filter(|_| !self.soaking.is_empty()) {
            let until = at.strftime("%H:%M:%S");
            parts.push(format!(
                "ready, and watched until {until} UTC at least: {}",
                self.soaking
            ));
        }
        if !self.confirming.is_empty() {
            parts.push(format!(
                "ready, to be checked once more: {}",
                self.confirming
            ));
        }
        if !self.broken.is_empty() {
            let why = why.filter(|_| self.not_ready.is_empty() && self.unknown.is_empty());
            parts.push(format!(
                "already not ready before this change: {}",
                Because(&self.broken, why)
            ));
        }
        f.write_str(&parts.join("; "))
    }
}

/// A few names, and how many more there are: a reason is kept for every node that waits. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    pub shown: Arc<[String]>,
    pub more: usize,
}

impl Names {
    pub const SHOWN_MAX: usize = 5;

    pub fn of<Name: AsRef<str>>(names: impl IntoIterator<Item = Name>) -> Self {
        let mut names = names.into_iter();
        let shown = names.by_ref().take(Self::SHOWN_MAX);
        let shown = shown.map(|name| name.as_ref().to_owned()).collect();
        Names {
            shown,
            more: names.count(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.shown.is_empty()
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown.join(", "))?;
        if self.more > 0 {
            write!(f, " and {} more", self.more)?;
        }
        Ok(())
    }
}
