//! Where a hub's rows come from. This layer reads and converts values; `decide::hub::rows` interprets the rows.
//!
//! To add a kind of source, add a file here and an arm of [`DataSource`], beside its block in `api::hub`. One arm each in
//! `controller::hub::source` opens the source and describes it.

pub mod config_map;
pub mod database;
pub mod error;
pub mod mysql;
pub mod postgresql;
pub mod written;

use crate::decide::hub::rows::{Columns, RawRow, RowCount};

pub use error::SourceError;

#[derive(Debug)]
pub enum DataSource {
    Mysql(Box<mysql::Mysql>),
    Postgresql(Box<postgresql::Postgresql>),
    ConfigMap(config_map::ConfigMap),
}

impl DataSource {
    /// Reads the mapped columns of every row, and passes each row to `on_row` as it arrives.
    ///
    /// `Ok` means that the result was complete. After an error the rows so far prove nothing: a missing row may still exist.
    pub async fn rows(
        &self,
        columns: &Columns,
        on_row: impl FnMut(RawRow),
    ) -> Result<RowCount, SourceError> {
        match self {
            Self::Mysql(mysql) => mysql.rows(columns, on_row).await,
            Self::Postgresql(postgresql) => postgresql.rows(columns, on_row).await,
            Self::ConfigMap(config_map) => config_map.rows(columns, on_row),
        }
    }

    /// Checks that the mapped columns exist and may be read. A database is checked without reading a row.
    pub async fn check(&self, columns: &Columns) -> Result<(), SourceError> {
        match self {
            Self::Mysql(mysql) => mysql.check(columns).await,
            Self::Postgresql(postgresql) => postgresql.check(columns).await,
            Self::ConfigMap(config_map) => config_map.rows(columns, drop).map(drop),
        }
    }
}
