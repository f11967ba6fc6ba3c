//! From the rows of a data source to the instances that should exist. Pure: it reads no database, knows no
//! cluster, and never picks a winner between rows that contradict each other.
//!
//! Bad input costs the row its update, never its node: what is skipped is named with a reason, and the uids that
//! a skipped row may stand for are `protected`, so that nobody deletes their nodes.

pub mod guard;
pub mod names;
pub mod reason;
pub mod uid;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use sha2::{Digest, Sha256};

use crate::api::hub::HubSpec;

pub use reason::{SkipReason, SkippedRow};

/// Longest text of one column of an active row, in bytes. A node's whole content may be 600 KiB.
pub const VALUE_BYTES_MAX: usize = 1 << 20;

/// Which columns a hub reads and which template variables they become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Columns {
    pub uid: String,
    pub activate: String,
    pub host_or_url: Option<String>,
    /// Template variable to column. A variable named `uid`, `activate` or `hostOrUrl` overrides that one.
    pub extra: BTreeMap<String, String>,
}

impl Columns {
    pub fn of(hub: &HubSpec) -> Self {
        Columns {
            uid: hub.value_mappings.uid.clone(),
            activate: hub.value_mappings.activate.clone(),
            host_or_url: hub.value_mappings.host_or_url().map(str::to_owned),
            extra: hub.extra_value_mappings.clone(),
        }
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
    pub variables: BTreeMap<String, String>,
}

impl Row {
    /// `1:` and 32 hex digits over uid and variables: tells whether the row changed, without its values.
    pub fn hash(&self) -> String {
        let mut sha = Sha256::new();
        let mut field = |text: &str| {
            sha.update((text.len() as u64).to_be_bytes());
            sha.update(text);
        };
        field(&self.uid);
        for (name, value) in &self.variables {
            field(name);
            field(value);
        }
        let mut hash = "1:".to_owned();
        for byte in &sha.finalize()[..16] {
            write!(hash, "{byte:02x}").expect("writing to a String succeeds");
        }
        hash
    }
}

/// Lynq's rule: exactly these seven spellings, not trimmed, not case folded.
pub fn is_active(activate: &[u8]) -> bool {
    matches!(
        activate,
        b"1" | b"true" | b"TRUE" | b"True" | b"yes" | b"YES" | b"Yes"
    )
}

/// What a complete result means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rows {
    pub read: RowCount,
    /// Active rows by uid.
    pub rows: BTreeMap<String, Row>,
    /// Valid uids all of whose rows are inactive.
    pub inactive: BTreeSet<String>,
    /// Active rows that cannot be used, by row number.
    pub skipped: Vec<SkippedRow>,
    /// Uids that a skipped row stands for or probably means: existing nodes of these stay exactly as they are.
    pub protected: BTreeSet<String>,
    /// Skipped rows that cannot be tied to any uid (NULL, empty, unreadable): each may be any node's row.
    pub unidentified: u64,
}

impl Rows {
    /// Whether the data gives a reason to delete the nodes of `uid`.
    pub fn is_gone(&self, uid: &str) -> bool {
        !self.rows.contains_key(uid) && !self.protected.contains(uid)
    }
}

/// Takes the rows of one result as they arrive, and keeps only what is needed of them.
///
/// A result that broke off must not reach [`Collector::finish`]: drop the collector with the error.
#[derive(Debug)]
pub struct Collector {
    layout: Layout,
    active: BTreeMap<String, Vec<Candidate>>,
    inactive: BTreeSet<String>,
    skipped: Vec<SkippedRow>,
    unidentified: u64,
}

/// The row of an active uid, before it is known whether others claim the same uid.
#[derive(Debug)]
struct Candidate {
    number: u64,
    shown: String,
    row: Result<Row, SkipReason>,
}

impl Collector {
    pub fn new(columns: &Columns) -> Self {
        Self {
            layout: Layout::new(columns),
            active: BTreeMap::new(),
            inactive: BTreeSet::new(),
            skipped: Vec::new(),
            unidentified: 0,
        }
    }

    pub fn push(&mut self, raw: RawRow) {
        let uid = raw.value(self.layout.uid);
        let activate = raw.value(self.layout.activate).unwrap_or_default();
        // Text that cannot be read may have been a "1": such a row is not taken for a switched-off one.
        if !is_active(activate) && std::str::from_utf8(activate).is_ok() {
            if let Some(uid) = uid.and_then(|bytes| uid::parse(bytes).ok()) {
                self.inactive.insert(uid.to_owned());
            }
            return;
        }
        let shown = uid.map(uid::shown).unwrap_or_default();
        match (uid.and_then(uid::meant), self.layout.row(&raw)) {
            (Some(meant), row) => self.active.entry(meant).or_default().push(Candidate {
                number: raw.number,
                shown,
                row,
            }),
            (None, Err(reason)) => {
                self.unidentified += 1;
                let skipped = SkippedRow::new(raw.number, shown, reason);
                self.skipped.push(skipped);
            }
            (None, Ok(_)) => unreachable!("a valid uid means itself"),
        }
    }

    pub fn finish(self, read: RowCount) -> Rows {
        let mut done = Rows {
            read,
            rows: BTreeMap::new(),
            inactive: self.inactive,
            skipped: self.skipped,
            protected: BTreeSet::new(),
            unidentified: self.unidentified,
        };
        for (meant, claims) in self.active {
            let rows = claims.len() as u64;
            for claim in claims {
                match claim.row {
                    Ok(row) if rows == 1 => {
                        done.rows.insert(row.uid.clone(), row);
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
        done.inactive
            .retain(|uid| !done.rows.contains_key(uid) && !done.protected.contains(uid));
        done
    }
}

impl RawRow {
    fn value(&self, index: usize) -> Option<&[u8]> {
        self.values.get(index)?.as_deref()
    }
}

/// Where in a [`RawRow`] each variable stands.
#[derive(Debug)]
struct Layout {
    uid: usize,
    activate: usize,
    host_or_url: Option<usize>,
    extra: Vec<(String, usize)>,
    names: Vec<String>,
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
                .map(|(variable, column)| (variable.clone(), index(column)))
                .collect(),
            names: names.into_iter().map(str::to_owned).collect(),
        }
    }

    fn row(&self, raw: &RawRow) -> Result<Row, SkipReason> {
        let uid = uid::parse(raw.value(self.uid).ok_or(SkipReason::UidNull)?)?;
        let mut variables = BTreeMap::from([
            ("uid".to_owned(), uid.to_owned()),
            ("activate".to_owned(), self.text(raw, self.activate)?),
        ]);
        if let Some(index) = self.host_or_url {
            let value = self.text(raw, index)?;
            if !value.is_empty() {
                variables.insert("hostOrUrl".to_owned(), value);
            }
        }
        for (variable, index) in &self.extra {
            variables.insert(variable.clone(), self.text(raw, *index)?);
        }
        Ok(Row {
            uid: uid.to_owned(),
            variables,
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
