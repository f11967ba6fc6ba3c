//! The data sources against a real MariaDB, and against servers that misbehave on purpose.

mod canary;
mod database;
mod faults;
mod hostile;
mod queries;
mod tls;
mod values;

use std::time::Duration;

use lynqgate::datasource::mysql::{Limits, Mysql, Settings, Tls};
use lynqgate::datasource::{DataSource, SourceError};
use lynqgate::decide::rows::{Columns, RowCount};

use database::Database;

/// Columns `uid` and `activate`, and each of `extra` under its own name.
fn columns(extra: &[&str]) -> Columns {
    Columns {
        uid: "uid".into(),
        activate: "activate".into(),
        host_or_url: None,
        extra: (extra.iter())
            .map(|column| ((*column).to_owned(), (*column).to_owned()))
            .collect(),
    }
}

fn settings(database: &Database, schema: &str, table: &str) -> Settings {
    Settings {
        host: "127.0.0.1".into(),
        port: database.port,
        user: "root".into(),
        password: String::new().into(),
        database: schema.into(),
        table: table.into(),
        tls: Tls::Disabled,
        // Far above what any case needs, so that a slow machine fails none of them.
        limits: Limits {
            connect: Duration::from_secs(30),
            query: Duration::from_secs(120),
            ..Limits::default()
        },
    }
}

fn source(settings: Settings) -> DataSource {
    DataSource::Mysql(Box::new(Mysql::new(settings)))
}

/// The rows of one read as lossy text, `None` for NULL; and that their number is the one reported.
async fn read(
    source: &DataSource,
    columns: &Columns,
) -> Result<Vec<Vec<Option<String>>>, SourceError> {
    let mut rows = Vec::new();
    let text = |value: Vec<u8>| String::from_utf8_lossy(&value).into_owned();
    let count = source
        .rows(columns, |row| {
            assert_eq!(
                row.number,
                rows.len() as u64 + 1,
                "rows are numbered from 1"
            );
            rows.push(
                row.values
                    .into_iter()
                    .map(|value| value.map(text))
                    .collect(),
            );
        })
        .await?;
    assert_eq!(count, RowCount(rows.len() as u64));
    Ok(rows)
}
