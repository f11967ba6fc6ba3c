//! The data sources against real servers, and against servers that misbehave on purpose. What each must do is one suite,
//! which runs against MariaDB and against PostgreSQL; what one of them alone has stands in a file with its name.

/// A test of each of these functions for each product.
macro_rules! on_each_product {
    ($($(#[$attribute:meta])* $name:ident),+ $(,)?) => {
        mod mariadb {
            $($(#[$attribute])* #[tokio::test] async fn $name() {
                super::$name($crate::cluster::database::Product::Mariadb).await;
            })+
        }
        mod postgresql {
            $($(#[$attribute])* #[tokio::test] async fn $name() {
                super::$name($crate::cluster::database::Product::Postgresql).await;
            })+
        }
    };
}

mod canary;
mod faults;
pub mod hostile;
mod queries;
mod refusals;
mod sessions;
pub mod tls;
mod values;

use std::sync::Arc;
use std::time::Duration;

use lynqgate::datasource::database::{Limits, Settings, Tls};
use lynqgate::datasource::mysql::Mysql;
use lynqgate::datasource::postgresql::Postgresql;
use lynqgate::datasource::{DataSource, SourceError};
use lynqgate::decide::hub::rows::activity::Words;
use lynqgate::decide::hub::rows::{Columns, RowCount};

use crate::cluster::database::{self, Database, Options, Product, READER};

/// Columns `uid` and `activate`, and each of `extra` under its own name.
fn columns(extra: &[&str]) -> Columns {
    Columns {
        uid: "uid".into(),
        activate: "activate".into(),
        host_or_url: None,
        extra: (extra.iter())
            .map(|column| ((*column).to_owned(), (*column).to_owned()))
            .collect(),
        words: Words::default(),
    }
}

async fn shared(product: Product) -> &'static Database {
    database::shared(product).await.expect("a shared server")
}

/// A server of the caller's own, to stop.
async fn start(product: Product) -> Database {
    start_with(product, &Options::default()).await
}

async fn start_with(product: Product, options: &Options) -> Database {
    let started = Database::start_with(product, options).await;
    started.expect("a server of the test's own")
}

/// A new database of this name, in which these statements are run.
async fn create(database: &Database, name: &str, statements: &[impl AsRef<str>]) {
    let created = database.database(name, statements).await;
    created.unwrap_or_else(|error| panic!("{name}: {error:#}"));
}

async fn query(database: &Database, name: &str, statement: &str) -> Vec<String> {
    let rows = database.query(Some(name), statement).await;
    rows.unwrap_or_else(|error| panic!("{error:#}"))
}

fn settings(database: &Database, name: &str, table: &str) -> Settings {
    Settings {
        host: "127.0.0.1".into(),
        port: database.port(),
        user: READER.into(),
        password: String::new().into(),
        database: name.into(),
        table: table.into(),
        tls: Tls::Disabled,
        // Far above what any case needs, so that a slow machine fails none of them.
        limits: Limits {
            connect: Duration::from_secs(30),
            query: Duration::from_secs(120),
            ..Limits::default()
        },
        hosts: Arc::default(),
    }
}

fn source(product: Product, settings: Settings) -> DataSource {
    match product {
        Product::Mariadb => DataSource::Mysql(Box::new(Mysql::new(settings))),
        Product::Postgresql => DataSource::Postgresql(Box::new(Postgresql::new(settings))),
    }
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

/// The same in SQL, as each product writes it.
impl Product {
    /// What to select from for a column `seq` that counts from 1. Made as it is read: the server stores none of it.
    fn sequence(self, rows: u64) -> String {
        match self {
            Self::Mariadb => format!("seq_1_to_{rows}"),
            Self::Postgresql => {
                format!("(SELECT generate_series(1, {rows}::bigint) seq) numbers")
            }
        }
    }
}
