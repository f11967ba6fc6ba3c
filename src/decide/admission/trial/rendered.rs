//! One row of a trial: rendered by the changed form and by the stored form. It needs no other row, so rows are rendered in parallel.

use jiff::Timestamp;
use serde_json::Value;

use crate::api::resource::Resource;
use crate::decide::admission::form::Change;
use crate::decide::admission::trial::On;
use crate::decide::admission::trial::live::LiveNode;
use crate::decide::admission::trial::objects::Rendering;
use crate::decide::child::{NodeKey, ObjectKey};
use crate::decide::hub::render::{CompiledForm, RowInputs};
use crate::decide::hub::rows::Row;
use crate::decide::hub::rows::names::node_name;
use crate::decide::shared::content::{self, Hash};

/// What a form's rows are rendered with.
pub struct FormTrial<'a> {
    pub change: &'a Change,
    pub on: &'a On<'a>,
    pub namespace: &'a str,
    pub hub: &'a str,
    pub form: &'a str,
}

/// A row as the form renders it, and as it did.
pub struct RenderedRow<'a> {
    pub row: &'a Row,
    pub home: NodeKey,
    pub node: Option<&'a LiveNode>,
    /// Its node is not there yet.
    pub is_made: bool,
    pub new: Version<'a>,
    /// None where the form is new, or the row.
    pub old: Option<Version<'a>>,
    /// The first group of the order that the row is in, and a condition that is neither true nor false; or why that is not known.
    pub placed: Result<(Option<usize>, Option<String>), String>,
    pub too_large: Option<String>,
}

/// One of the two.
pub struct Version<'a> {
    pub inputs: RowInputs<'a>,
    pub content: Value,
    pub errors: Vec<(String, String)>,
    pub hash: Hash,
    pub named: Vec<(ObjectKey, Resource)>,
}

impl Version<'_> {
    pub fn has_error(&self, id: &String) -> bool {
        self.errors.iter().any(|(of, _)| of == id)
    }
}

impl<'a> FormTrial<'a> {
    pub fn render(&self, row: &'a Row) -> RenderedRow<'a> {
        let FormTrial { change, on, .. } = *self;
        let home = NodeKey {
            namespace: self.namespace.to_owned(),
            name: node_name(&row.uid, self.form),
        };
        let node = on.live.and_then(|live| live.get(&home.name));
        let inputs = RowInputs {
            hub: self.hub,
            form: self.form,
            row,
            first_seen: node
                .and_then(|node| node.first_seen)
                .unwrap_or(Timestamp::UNIX_EPOCH),
            seed: on.live.and_then(|live| live.seed).unwrap_or_default(),
        };
        let version = |form: &CompiledForm, inputs: RowInputs<'a>| {
            let (content, errors) = form.render(&inputs);
            let of = Rendering {
                form,
                inputs: &inputs,
                home: &home,
            };
            Version {
                hash: content::hash(Some(&content)),
                named: of.objects(&content),
                inputs,
                content,
                errors,
            }
        };
        let new = version(&change.new, inputs);
        let before = match on.before {
            Some(before) => before.rows.get(&row.uid),
            None => Some(row),
        };
        let old = change.old.as_ref().zip(before);
        let placed = change.new.group(&inputs);
        let placed = placed.and_then(|placed| change.new.domains(&inputs).map(|_| placed));
        let fits = content::check_size(Some(&new.content));
        RenderedRow {
            row,
            node,
            is_made: on.live.is_some() && node.is_none(),
            old: old.map(|(form, row)| version(form, RowInputs { row, ..inputs })),
            new,
            placed,
            too_large: fits.err().map(|error| error.to_string()),
            home,
        }
    }
}
