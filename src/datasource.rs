//! Where a hub's rows come from. Reads and converts; what the rows mean is for `decide::hub::rows` to say.
//!
//! A new kind of source is one file here and one arm of [`DataSource`], beside its block in `api::hub`; how it is opened, and what
//! is said of it, is an arm each in `controller::hub::source`.

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
    /// Reads the mapped columns of every row, and hands each row over as it arrives.
    ///
    /// `Ok` means that the result was complete. After an error, whatever `on_row` saw is worthless: nothing may be
    /// concluded from a row that is not in it.
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

    /// Whether the mapped columns are there and may be read, found out without reading any row.
    pub async fn check(&self, columns: &Columns) -> Result<(), SourceError> {
        match self {
            Self::Mysql(mysql) => mysql.check(columns).await,
            Self::Postgresql(postgresql) => postgresql.check(columns).await,
            Self::ConfigMap(config_map) => config_map.rows(columns, drop).map(drop),
        }
    }
}
