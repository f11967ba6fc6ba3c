//! The objects that a row's rendering names: which of them a change makes go, and which more than one row asks for. Of a row's
//! values it tells no more than an error of its templates would.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::api::resource::{DeletionPolicy, Resource, ResourceArrays};
use crate::decide::admission::trial::{counted, plural};
use crate::decide::child::{NodeKey, ObjectKey, Scope, object_key};
use crate::decide::render::{CompiledForm, RowInputs};
use crate::decide::rows::Row;
use crate::decide::template::public::HIDDEN;

/// How many objects of a kind a warning names, and in how many characters: the API server cuts it off after 256, and what
/// keeps them stands at its end.
const NAMES_SHOWN: usize = 2;
const NAMES_CHARS_MAX: usize = 80;

/// What the rows tried so far make of their objects.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Objects {
    /// By kind.
    gone: BTreeMap<String, Gone>,
    /// The first two rows of one object, and the object.
    clash: Option<(String, String, String)>,
    clashes: usize,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Gone {
    count: usize,
    names: Vec<String>,
}

/// Rows by a hash of what they name: a fleet has many objects.
#[derive(Default)]
pub struct Claims<'a>(BTreeMap<[u8; 32], &'a str>);

/// A form and a row, and where the row's node is.
pub struct Rendering<'a> {
    pub form: &'a CompiledForm,
    pub inputs: &'a RowInputs<'a>,
    pub home: &'a NodeKey,
}

impl Rendering<'_> {
    /// What did not render has no name. Which kinds have no namespaces only an API server knows.
    pub fn objects(&self, content: &Value) -> Vec<(ObjectKey, Resource)> {
        let arrays = ResourceArrays::deserialize(content).unwrap_or_default();
        let rendered = arrays.iter().filter(|r| r.render_error.is_empty());
        let named = rendered.map(|resource| {
            let key = object_key(resource, self.home, Scope::Namespaced);
            (key, resource.clone())
        });
        named.collect()
    }

    /// None where a value of the row is in it that is not for everybody.
    fn shown(&self, (key, resource): &(ObjectKey, Resource)) -> Option<String> {
        let name = self.form.shown(&resource.id, self.inputs, &key.name);
        Some(name).filter(|name| !name.contains(HIDDEN))
    }
}

/// The same in whatever version.
fn identity(key: &ObjectKey) -> [&str; 4] {
    [key.kind.group(), &key.kind.kind, &key.namespace, &key.name]
}

impl Objects {
    /// What the new rendering names no more, and is not to be left behind.
    pub fn compare(
        &mut self,
        old: &Rendering,
        before: &[(ObjectKey, Resource)],
        now: &[(ObjectKey, Resource)],
    ) {
        let stays: BTreeSet<_> = now.iter().map(|(key, _)| identity(key)).collect();
        let gone = before.iter().filter(|(key, resource)| {
            resource.deletion_policy == DeletionPolicy::Delete && !stays.contains(&identity(key))
        });
        for object in gone {
            let gone = self.gone.entry(object.0.kind.kind.clone()).or_default();
            gone.count += 1;
            if gone.names.len() < NAMES_SHOWN {
                let of_row = || format!("one of row {}", old.inputs.row.uid);
                gone.names.push(old.shown(object).unwrap_or_else(of_row));
            }
        }
    }

    /// Rows do not share an object, whatever their forms' policies.
    pub fn claim<'a>(
        &mut self,
        row: &'a Row,
        new: &Rendering,
        named: &[(ObjectKey, Resource)],
        claims: &mut Claims<'a>,
    ) {
        let row = row.uid.as_str();
        for object in named {
            let hash = Sha256::digest(identity(&object.0).join("\0"));
            let first = *claims.0.entry(hash.into()).or_insert(row);
            if first == row {
                continue;
            }
            self.clashes += 1;
            self.clash.get_or_insert_with(|| {
                let kind = &object.0.kind.kind;
                let what = match new.shown(object) {
                    Some(name) => format!("{kind} {name:?}"),
                    None => format!("the same {kind}"),
                };
                (first.to_owned(), row.to_owned(), what)
            });
        }
    }

    /// `all`: no row was left out.
    pub fn warnings(&self, all: bool) -> Vec<String> {
        let least = if all { "" } else { "at least " };
        let gone = self.gone.iter().map(|(kind, gone)| {
            let them = if gone.count == 1 { "it" } else { "them" };
            let names = gone.names();
            format!(
                "deletes {least}{}{names}, as the form does not name {them} any more; to keep {them}, set deletionPolicy: Retain first \
                 and let that roll out",
                counted(gone.count, kind)
            )
        });
        let clash = self.clash.as_ref().map(|(first, second, what)| {
            let more = match self.clashes - 1 {
                0 => String::new(),
                more => format!(" (and {least}{more} more such {})", plural(more, "clash")),
            };
            format!(
                "rows {first} and {second} both name {what}{more}: the first to come owns it, the others wait (conflict); put the \
                 row's uid into the nameTemplate"
            )
        });
        gone.chain(clash).collect()
    }
}

impl Gone {
    fn names(&self) -> String {
        let mut chars = 0;
        let fit = self.names.iter().take_while(|name| {
            chars += name.chars().count();
            chars <= NAMES_CHARS_MAX
        });
        let fit: Vec<&str> = fit.map(String::as_str).collect();
        match (fit.as_slice(), self.count - fit.len()) {
            ([], _) => String::new(),
            ([one, other], 0) => format!(" ({one} and {other})"),
            (some, 0) => format!(" ({})", some.join(", ")),
            (some, more) => format!(" ({} and {more} more)", some.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests;
