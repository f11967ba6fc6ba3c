//! Renders one row of a trial by the changed form and by the stored form, and compares both. It needs no other row, so rows are
//! tried in parallel. The thread that renders a row also drops the contents; the few contents that a response needs are rendered
//! again.

use jiff::Timestamp;
use serde_json::Value;

use crate::decide::admission::form::Change;
use crate::decide::admission::trial::On;
use crate::decide::admission::trial::deletions::{Deletions, Tenant};
use crate::decide::admission::trial::live::LiveNode;
use crate::decide::admission::trial::objects::{self, ObjectHash, Rendering};
use crate::decide::admission::trial::restarts::Restarts;
use crate::decide::admission::trial::sample::{self, Shape};
use crate::decide::child::NodeKey;
use crate::decide::hub::render::{CompiledForm, RowInputs};
use crate::decide::hub::rows::Row;
use crate::decide::hub::rows::names::node_name;
use crate::decide::shared::content::{self, Hash};

/// The inputs for rendering all rows of a form.
pub struct FormTrial<'a> {
    pub change: &'a Change,
    pub on: &'a On<'a>,
    pub namespace: &'a str,
    pub hub: &'a str,
    pub form: &'a str,
}

/// The node of a row, and the inputs for rendering the row.
pub struct RowContext<'a> {
    pub home: NodeKey,
    pub node: Option<&'a LiveNode>,
    pub inputs: RowInputs<'a>,
}

/// The result of rendering a row, compared with its earlier rendering.
pub struct TriedRow<'a> {
    pub row: &'a Row,
    pub context: RowContext<'a>,
    /// The node does not exist yet.
    pub is_made: bool,
    pub new: Version,
    /// None if the form or the row is new.
    pub old: Option<Version>,
    /// The first group of the order that the row is in, and a condition that is neither true nor false; or why that is not known.
    pub placed: Result<(Option<usize>, Option<String>), String>,
    pub too_large: Option<String>,
    /// The node is created, or its content changes.
    pub changes: bool,
    pub restarts: Restarts,
    pub deletions: Deletions,
    /// The change deletes an object of it that holds data.
    pub loses_data: bool,
    pub objects: Vec<ObjectHash>,
    /// The id and the shape of each resource that changes.
    pub shapes: Vec<(String, Shape)>,
}

/// One of the two.
pub struct Version {
    pub hash: Hash,
    pub errors: Vec<(String, String)>,
}

impl Version {
    fn of(content: &Value, errors: Vec<(String, String)>) -> Self {
        Version {
            hash: content::hash(Some(content)),
            errors,
        }
    }

    pub fn has_error(&self, id: &String) -> bool {
        self.errors.iter().any(|(of, _)| of == id)
    }

    pub fn runs(&self, node: &LiveNode) -> bool {
        node.live == self.hash.as_str()
    }
}

impl<'a> FormTrial<'a> {
    fn context(&self, row: &'a Row) -> RowContext<'a> {
        let live = self.on.live;
        let home = NodeKey::new(self.namespace, node_name(&row.uid, self.form));
        let node = live.and_then(|live| live.get(&home.name));
        let inputs = RowInputs {
            hub: self.hub,
            form: self.form,
            row,
            first_seen: node
                .and_then(|node| node.first_seen)
                .unwrap_or(Timestamp::UNIX_EPOCH),
            seed: live.and_then(|live| live.seed).unwrap_or_default(),
        };
        RowContext { home, node, inputs }
    }

    /// The changed form's content for a row.
    pub fn content(&self, row: &'a Row) -> Value {
        self.change.new.render(&self.context(row).inputs).0
    }

    /// The earlier form, and the row as it was read then.
    fn before(&self, row: &'a Row) -> Option<(&'a CompiledForm, &'a Row)> {
        let row = match self.on.before {
            Some(before) => before.rows.get(&row.uid)?,
            None => row,
        };
        Some((self.change.old.as_ref()?, row))
    }

    /// `number`: the row's number.
    pub fn try_row(&self, number: usize, row: &'a Row) -> TriedRow<'a> {
        let form = &self.change.new;
        let context = self.context(row);
        let RowContext { home, node, inputs } = &context;
        let is_made = self.on.live.is_some() && node.is_none();
        let filled = form.fill(inputs);
        let before = self.before(row).map(|(old, row)| {
            let of_old = RowInputs { row, ..*inputs };
            let filled = match self.on.before {
                None => old.fill_like(&of_old, (form, &filled)),
                Some(_) => old.fill(&of_old),
            };
            let (content, errors) = old.finish(&of_old, filled);
            let rendering = Rendering {
                form: old,
                inputs: of_old,
                home,
            };
            (rendering, content, errors)
        });
        let (content, errors) = form.finish(inputs, filled);
        let new = Version::of(&content, errors);
        let (before, old) = match before {
            None => (None, None),
            Some((old, content, errors)) => {
                let version = Version::of(&content, errors);
                (Some((old, content)), Some(version))
            }
        };
        let changes = match node {
            Some(node) => !new.runs(node),
            None => is_made || old.as_ref().is_none_or(|old| old.hash != new.hash),
        };
        let placed = form.group(inputs);
        let placed = placed.and_then(|placed| form.domains(inputs).map(|_| placed));
        let fits = content::check_size(Some(&content));
        let shapes = sample::shapes(&content, before.as_ref().map(|(_, content)| content));
        let now = objects::named(content, home);
        let (mut restarts, mut deletions) = (Restarts::default(), Deletions::default());
        let mut loses_data = false;
        // This also covers a node with a resource that does not render: its objects are deleted once that is corrected.
        if let (true, Some((rendering, content)), Some(old)) = (changes && !is_made, before, &old) {
            let named = objects::named(content, home);
            // The live content may be neither the old nor the new one.
            let runs_old = node.is_none_or(|node| old.runs(node));
            match runs_old {
                true => restarts.add(&named, &now),
                false => restarts.add_in_doubt(home, &now),
            }
            let tenant = Tenant {
                number,
                old: rendering,
                runs_old,
            };
            let unrendered = new.errors.iter().map(|(id, _)| id.clone()).collect();
            loses_data = deletions.add(&tenant, &named, &now, &unrendered);
        }
        TriedRow {
            row,
            is_made,
            changes,
            old,
            new,
            placed,
            too_large: fits.err().map(|error| error.to_string()),
            restarts,
            deletions,
            loses_data,
            objects: now.iter().map(|(key, _)| objects::hash(key)).collect(),
            shapes,
            context,
        }
    }
}
