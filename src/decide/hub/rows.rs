//! From a data source's rows to the instances that should exist. Pure: it reads no database, knows no cluster, and never picks a
//! winner between contradictory rows.
//!
//! Bad input never deletes a node, it only keeps its row from being updated. A skipped row is reported with a reason, and the
//! uids that it may mean are `protected` from deletion.

pub mod activity;
pub mod guard;
pub mod names;
pub mod reason;
pub mod uid;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::api::hub::HubSpec;
use crate::api::texts::Texts;
use activity::{Activity, Words};

pub use reason::{SkipReason, SkippedRow};

/// The most rows of one result that may get a node. With more, the sync fails, so that memory stays bounded.
pub const ROWS_MAX: u64 = 100_000;

/// Longest text of one column of an active row, in bytes. A node's whole content may be 600 KiB.
pub const VALUE_BYTES_MAX: usize = 1 << 20;

/// Which columns a hub reads and which template variables they become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Columns {
    pub uid: String,
    pub activate: String,
    pub host_or_url: Option<String>,
    /// The column of each template variable. None has the name of a variable that every row has.
    pub extra: BTreeMap<String, String>,
    /// The meaning of the words in the column `activate`.
    pub words: Words,
}

/// Variables that a row has whatever the hub maps.
const OF_EVERY_ROW: [&str; 4] = ["uid", "activate", "host", "hostOrUrl"];

impl Columns {
    /// Fails if the hub maps a variable that every row has anyway, or if a word means both active and inactive.
    pub fn of(hub: &HubSpec) -> Result<Self, String> {
        let mut shadows = hub.extra_value_mappings.keys();
        if let Some(name) = shadows.find(|name| OF_EVERY_ROW.contains(&name.as_str())) {
            let instead = match name.as_str() {
                "uid" | "activate" => format!("it is the column in valueMappings.{name}"),
                _ => "it is made of valueMappings.hostOrUrl".to_owned(),
            };
            return Err(format!(
                "extraValueMappings.{name}: every row has a variable of this name: {instead}. Give the mapping another name"
            ));
        }
        Ok(Columns {
            uid: hub.value_mappings.uid.clone(),
            activate: hub.value_mappings.activate.clone(),
            host_or_url: hub.value_mappings.host_or_url().map(str::to_owned),
            extra: hub.extra_value_mappings.clone(),
            words: Words::of(hub)?,
        })
    }

    /// The distinct columns to select, in the order in which [`RawRow::values`] carries them.
    pub fn selected(&self) -> Vec<&str> {
        let mut selected: Vec<&str> = Vec::new();
        for column in [&self.uid, &self.activate]
            .into_iter()
            .chain(&self.host_or_url)
            .chain(self.extra.values())
        {
            if !selected.contains(&column.as_str()) {
                selected.push(column);
            }
        }
        selected
    }
}

/// One row as the data source gave it: the texts of [`Columns::selected`], `None` for NULL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawRow {
    /// Place in the result, from 1. The order is the database's own, so it may differ between two reads.
    pub number: u64,
    pub values: Vec<Option<Vec<u8>>>,
}

/// How many rows a *complete* result had. A data source makes one only after the last row has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowCount(pub u64);

/// An active row that can be rendered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub uid: String,
    /// Template variables. `hostOrUrl` is absent where the column is not mapped or its value is empty.
    pub variables: Texts,
}

/// Tells whether a row changed, without its values. Written as `1:` and 32 hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowHash([u8; 16]);

impl Display for RowHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("1:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Row {
    /// Over uid and variables.
    pub fn hash(&self) -> RowHash {
        let mut sha = Sha256::new();
        let mut field = |text: &str| {
            sha.update((text.len() as u64).to_be_bytes());
            sha.update(text);
        };
        field(&self.uid);
        for (name, value) in self.variables.iter() {
            field(name);
            field(value);
        }
        let mut hash = [0; 16];
        hash.copy_from_slice(&sha.finalize()[..16]);
        RowHash(hash)
    }
}

/// The meaning of a complete result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rows {
    pub read: RowCount,
    /// Active rows by uid.
    pub rows: BTreeMap<String, Row>,
    /// Uids of active rows that are not kept: nothing is to be rendered from them.
    pub settled: BTreeSet<String>,
    /// The number of inactive rows.
    pub inactive: u64,
    /// Rows that are not switched off and cannot be used, by row number.
    pub skipped: Vec<SkippedRow>,
    /// Uids that a skipped row stands for or probably means: existing nodes of these stay exactly as they are.
    pub protected: BTreeSet<String>,
    /// Skipped rows that cannot be tied to any uid (NULL, empty, unreadable): each may be any node's row.
    pub unidentified: u64,
}

impl Rows {
    /// Whether the data gives a reason to delete the nodes of `uid`.
    pub fn is_gone(&self, uid: &str) -> bool {
        !self.rows.contains_key(uid) && !self.settled.contains(uid) && !self.protected.contains(uid)
    }
}

/// A result that must be dropped as a whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "too many rows: more than {ROWS_MAX} are active or undecided. Nothing was changed. Correct the table, or read a view that has fewer \
     rows"
)]
pub struct TooManyRows;

/// Takes the rows of one result as they arrive, and keeps only what is needed of them, of [`ROWS_MAX`] at most.
///
/// A result that broke off must not reach [`Collector::finish`]: drop the collector with the error.
#[derive(Debug)]
pub struct Collector {
    layout: Layout,
    active: BTreeMap<String, Vec<Candidate>>,
    inactive: u64,
    /// The number of rows that are not inactive.
    kept: u64,
    skipped: Vec<SkippedRow>,
    unidentified: u64,
}

/// A row that is not inactive, until all rows are read: another may have the same uid.
#[derive(Debug)]
struct Candidate {
    number: u64,
    shown: String,
    row: Result<Kept, SkipReason>,
}

/// The part of a row that is kept.
#[derive(Debug)]
enum Kept {
    Row(Row),
    /// The uid of a settled row.
    Settled(String),
}

impl Collector {
    pub fn new(columns: &Columns) -> Self {
        Self {
            layout: Layout::new(columns),
            active: BTreeMap::new(),
            inactive: 0,
            kept: 0,
            skipped: Vec::new(),
            unidentified: 0,
        }
    }

    pub fn push(&mut self, raw: RawRow) {
        self.push_unless(&|_| false, raw);
    }

    /// Keeps only the uid of a settled row.
    pub fn push_unless(&mut self, is_settled: &dyn Fn(&Row) -> bool, raw: RawRow) {
        let activate = raw.value(self.layout.activate).unwrap_or_default();
        let activity = self.layout.words.judge(activate);
        if activity == Activity::Inactive {
            self.inactive += 1;
            return;
        }
        self.kept += 1;
        if self.is_over() {
            self.active.clear();
            self.skipped.clear();
            return;
        }
        let uid = raw.value(self.layout.uid);
        let shown = uid.map(uid::shown).unwrap_or_default();
        let kept = |row: Row| match is_settled(&row) {
            true => Kept::Settled(row.uid),
            false => Kept::Row(row),
        };
        let row = self.layout.row(&raw, activity).map(kept);
        match (uid.and_then(uid::meant), row) {
            (Some(meant), row) => {
                let candidate = Candidate {
                    number: raw.number,
                    shown,
                    row,
                };
                // As a rule it stays the only one.
                let candidates = self.active.entry(meant);
                let candidates = candidates.or_insert_with(|| Vec::with_capacity(1));
                candidates.push(candidate);
            }
            (None, Err(reason)) => {
                self.unidentified += 1;
                let skipped = SkippedRow::new(raw.number, shown, reason);
                self.skipped.push(skipped);
            }
            (None, Ok(_)) => unreachable!("a valid uid means itself"),
        }
    }

    /// There were too many rows: no more of them need be read.
    pub fn is_over(&self) -> bool {
        self.kept > ROWS_MAX
    }

    pub fn finish(self, read: RowCount) -> Result<Rows, TooManyRows> {
        if self.is_over() {
            return Err(TooManyRows);
        }
        let mut done = Rows {
            read,
            rows: BTreeMap::new(),
            settled: BTreeSet::new(),
            inactive: self.inactive,
            skipped: self.skipped,
            protected: BTreeSet::new(),
            unidentified: self.unidentified,
        };
        for (meant, claims) in self.active {
            let rows = claims.len() as u64;
            for claim in claims {
                match claim.row {
                    Ok(Kept::Row(row)) if rows == 1 => {
                        done.rows.insert(row.uid.clone(), row);
                    }
                    Ok(Kept::Settled(uid)) if rows == 1 => {
                        done.settled.insert(uid);
                    }
                    unusable => {
                        let reason = unusable.err().unwrap_or(SkipReason::UidDuplicate { rows });
                        let skipped = SkippedRow::new(claim.number, claim.shown, reason);
                        done.skipped.push(skipped);
                        done.protected.insert(meant.clone());
                    }
                }
            }
        }
        done.skipped.sort_by_key(|row| row.number);
        Ok(done)
    }
}

impl RawRow {
    fn value(&self, index: usize) -> Option<&[u8]> {
        self.values.get(index)?.as_deref()
    }
}

/// The index in a [`RawRow`] of each variable.
#[derive(Debug)]
struct Layout {
    uid: usize,
    activate: usize,
    host_or_url: Option<usize>,
    extra: Vec<(Arc<str>, usize)>,
    /// The names of the variables that have one whatever the hub maps.
    of_every_row: [Arc<str>; 3],
    names: Vec<String>,
    words: Words,
}

impl Layout {
    fn new(columns: &Columns) -> Self {
        let names = columns.selected();
        let index = |column: &String| {
            let found = names.iter().position(|name| name == column);
            found.expect("every mapped column is selected")
        };
        Self {
            uid: index(&columns.uid),
            activate: index(&columns.activate),
            host_or_url: columns.host_or_url.as_ref().map(index),
            extra: columns
                .extra
                .iter()
                .map(|(variable, column)| (variable.as_str().into(), index(column)))
                .collect(),
            of_every_row: ["uid", "activate", "hostOrUrl"].map(Arc::from),
            names: names.into_iter().map(str::to_owned).collect(),
            words: columns.words.clone(),
        }
    }

    fn row(&self, raw: &RawRow, activity: Activity) -> Result<Row, SkipReason> {
        let uid = uid::parse(raw.value(self.uid).ok_or(SkipReason::UidNull)?)?;
        let activate = self.text(raw, self.activate)?;
        if activity == Activity::Undecided {
            let column = self.names[self.activate].clone();
            return Err(SkipReason::ActivateUndecided { column });
        }
        let [of_uid, of_activate, of_host] = &self.of_every_row;
        let mut variables: Vec<(Arc<str>, Box<str>)> = vec![
            (of_uid.clone(), uid.into()),
            (of_activate.clone(), activate.into()),
        ];
        if let Some(index) = self.host_or_url {
            let value = self.text(raw, index)?;
            if !value.is_empty() {
                variables.push((of_host.clone(), value.into()));
            }
        }
        for (variable, index) in &self.extra {
            variables.push((variable.clone(), self.text(raw, *index)?.into()));
        }
        Ok(Row {
            uid: uid.to_owned(),
            variables: variables.into_iter().collect(),
        })
    }

    /// NULL is the empty text, as in Lynq.
    fn text(&self, raw: &RawRow, index: usize) -> Result<String, SkipReason> {
        let bytes = raw.value(index).unwrap_or_default();
        let column = || self.names[index].clone();
        if bytes.len() > VALUE_BYTES_MAX {
            return Err(SkipReason::ValueTooLarge {
                column: column(),
                bytes: bytes.len() as u64,
            });
        }
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(SkipReason::ValueNotText { column: column() }),
        }
    }
}

#[cfg(test)]
mod tests;
