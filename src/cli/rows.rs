//! The rows that a user gives in a CSV file, as a data source would give them.

use std::path::Path;

use crate::cli::definitions::{self, Definitions};
use crate::cli::file;
use crate::datasource::SourceError;
use crate::datasource::config_map::{ConfigMap, Format, csv_columns};
use crate::decide::hub::rows::{Collector, Columns, RawRow, Rows, TooManyRows};

/// A file that was read.
pub struct RowsFile {
    path: String,
    text: String,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path}: {reason}")]
    Unreadable { path: String, reason: SourceError },
    #[error(
        "{path}: the first line has no column \"uid\"; rename a column, or give the hub that maps the columns with --hub"
    )]
    NoUid { path: String },
    #[error("{path}: {reason}")]
    TooMany { path: String, reason: TooManyRows },
    /// What the hub maps is the fault, and not the file.
    #[error(transparent)]
    Columns(#[from] definitions::Error),
}

impl RowsFile {
    /// `-` is standard input.
    pub fn read(path: &Path) -> Result<Self, file::Error> {
        Ok(RowsFile {
            path: path.display().to_string(),
            text: file::text_of(path)?,
        })
    }

    /// The rows for a form. Without a hub they are active, unless the file says otherwise.
    pub fn rows(&self, definitions: &Definitions) -> Result<Rows, Error> {
        let path = || self.path.clone();
        let wrong = |reason: SourceError| Error::Unreadable {
            path: path(),
            reason: match reason {
                SourceError::ColumnMissing { column, .. } => SourceError::ColumnMissing {
                    column,
                    table: "the file".to_owned(),
                },
                other => other,
            },
        };
        let names = csv_columns(&self.text).map_err(wrong)?;
        let has = |name: &str| names.iter().any(|other| other == name);
        let has_hub = definitions.hub().is_some();
        if !has_hub && !has("uid") {
            return Err(Error::NoUid { path: path() });
        }
        let is_active = !has_hub && !has("activate");
        let columns = definitions.columns(names.iter().map(String::as_str))?;
        let mut read = columns.clone();
        if is_active {
            // A column that is there in any case, and is read once.
            read.activate = read.uid.clone();
        }
        let mut collector = Collector::new(&columns);
        let source = ConfigMap {
            format: Format::Csv,
            text: self.text.clone(),
        };
        let count = source.rows(&read, |mut row| {
            if is_active {
                insert_activate(&columns, &mut row);
            }
            collector.push(row);
        });
        let rows = collector.finish(count.map_err(wrong)?);
        rows.map_err(|reason| Error::TooMany {
            path: path(),
            reason,
        })
    }
}

/// Adds the value of the column that says whether the row is active, in its place among those that are selected.
fn insert_activate(columns: &Columns, row: &mut RawRow) {
    let selected = columns.selected();
    let place = selected.iter().position(|name| *name == columns.activate);
    let place = place.unwrap_or_default().min(row.values.len());
    row.values.insert(place, Some(b"1".to_vec()));
}
