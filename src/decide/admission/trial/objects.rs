//! The objects that a row's rendering names, and those that more than one row names. Shows no more of a row's values than an
//! error of its templates would.

use std::collections::BTreeMap;

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::api::resource::{ARRAYS, Resource};
use crate::decide::admission::trial::plural;
use crate::decide::child::{NodeKey, ObjectKey, Scope, kind_of, object_key};
use crate::decide::hub::render::{CompiledForm, RowInputs};
use crate::decide::hub::rows::Row;
use crate::decide::template::public::HIDDEN;

/// The objects of the rows tried so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Objects {
    /// The first two rows of one object, and the object.
    clash: Option<(String, String, String)>,
    clashes: usize,
}

/// The row of each object, by the object's hash, because a fleet has many objects.
#[derive(Default)]
pub struct Claims<'a>(BTreeMap<ObjectHash, &'a str>);

/// A form and a row, and where the row's node is.
pub struct Rendering<'a> {
    pub form: &'a CompiledForm,
    pub inputs: RowInputs<'a>,
    pub home: &'a NodeKey,
}

impl Rendering<'_> {
    /// None if the text contains a value of the row that must not be shown.
    pub fn shown(&self, resource: &Resource, text: &str) -> Option<String> {
        let shown = self.form.shown(&resource.id, &self.inputs, text);
        Some(shown).filter(|shown| !shown.contains(HIDDEN))
    }

    /// Describes an object.
    pub fn described(&self, (key, resource): &(ObjectKey, Resource)) -> String {
        let kind = &key.kind.kind;
        match self.shown(resource, &key.name) {
            Some(name) => format!("{kind} {name:?}"),
            None => format!("the same {kind}"),
        }
    }
}

/// The resources of a content with the keys of their objects, without those that did not render. Only Namespaces are known to be
/// cluster-scoped here.
pub fn named(content: Value, home: &NodeKey) -> Vec<(ObjectKey, Resource)> {
    let Value::Object(mut lists) = content else {
        return vec![];
    };
    let lists = ARRAYS.iter().filter_map(|array| lists.remove(*array));
    let all = lists.flat_map(|list| match list {
        Value::Array(list) => list,
        _ => vec![],
    });
    let resources = all.filter_map(|mut resource| {
        // Move the manifest, which is the largest part, instead of copying it.
        let manifest = resource.get_mut("spec").map(Value::take);
        let resource: Resource = serde_json::from_value(resource).ok()?;
        Some(Resource {
            spec: manifest.unwrap_or_default(),
            ..resource
        })
    });
    let rendered = resources.filter(|resource| resource.render_error.is_empty());
    let named = rendered.map(|resource| {
        let key = object_key(&resource, home, scope(&resource));
        (key, resource)
    });
    named.collect()
}

pub fn scope(resource: &Resource) -> Scope {
    match kind_of(&resource.spec).is_namespace() {
        true => Scope::Cluster,
        false => Scope::Namespaced,
    }
}

/// Identifies an object in any version of its kind.
pub fn identity(key: &ObjectKey) -> [&str; 4] {
    [key.kind.group(), &key.kind.kind, &key.namespace, &key.name]
}

/// The hash of an object's identity.
pub type ObjectHash = [u8; 32];

pub fn hash(key: &ObjectKey) -> ObjectHash {
    Sha256::digest(identity(key).join("\0")).into()
}

impl Objects {
    /// Reports an object that another row already names: no policy lets rows share one. `what` describes the row's object of this
    /// number.
    pub fn claim<'a>(
        &mut self,
        row: &'a Row,
        objects: &[ObjectHash],
        claims: &mut Claims<'a>,
        what: impl Fn(usize) -> String,
    ) {
        let row = row.uid.as_str();
        for (number, object) in objects.iter().enumerate() {
            let first = *claims.0.entry(*object).or_insert(row);
            if first == row {
                continue;
            }
            self.clashes += 1;
            let clash = || (first.to_owned(), row.to_owned(), what(number));
            self.clash.get_or_insert_with(clash);
        }
    }

    /// `all`: no row was left out.
    pub fn warning(&self, all: bool) -> Option<String> {
        let (first, second, what) = self.clash.as_ref()?;
        let least = if all { "" } else { "at least " };
        let more = match self.clashes - 1 {
            0 => String::new(),
            more => format!(" (and {least}{more} more such {})", plural(more, "clash")),
        };
        Some(format!(
            "rows {first} and {second} both name {what}{more}: the first to come owns it, the others wait (conflict); put the \
             row's uid into the nameTemplate"
        ))
    }
}

#[cfg(test)]
mod tests;
