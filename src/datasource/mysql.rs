//! MySQL and MariaDB. One connection per hub, kept between syncs; one query per sync. Writes nothing, and never
//! takes a result that broke off for a complete one.

mod errors;
mod sql;
mod values;

use std::fmt;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder, Row, SslOpts, Value};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::datasource::error::{Limit, SourceError, Stage};
use crate::decide::rows::{Columns, RawRow, RowCount};

use errors::Context;
use sql::Table;
use values::Conversion;

/// A connection older than this is replaced, so that a hub follows a fail-over by name within this time.
const CONNECTION_AGE_MAX: Duration = Duration::from_secs(600);

/// The server gives up this much after the client: by then nobody waits for the result.
const SERVER_GRACE: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub host: String,
    pub port: u16,
    pub user: String,
    pub password: Password,
    pub database: String,
    /// `table` or `database.table`.
    pub table: String,
    pub tls: Tls,
    pub limits: Limits,
}

/// Shown by nothing.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Password(String);

impl From<String> for Password {
    fn from(password: String) -> Self {
        Self(password)
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tls {
    Disabled,
    /// The server's certificate must be valid for the host's name, and issued by one of these authorities, or,
    /// without any, by one that the web trusts.
    Required {
        ca_pem: Option<Vec<u8>>,
    },
}

/// Bounds that a slow, broken or malicious server cannot exceed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// For name look-up, connection, TLS and log-in together.
    pub connect: Duration,
    /// From the query to the last row.
    pub query: Duration,
    pub rows: u64,
    /// Of all values of all rows.
    pub bytes: u64,
    /// Of one row, as it travels.
    pub row_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            query: Duration::from_secs(60),
            rows: 1_000_000,
            bytes: 256 << 20,
            row_bytes: 32 << 20,
        }
    }
}

pub struct Mysql {
    settings: Settings,
    /// Empty before the first query, during one, and after one that failed. Held during a query: one at a time.
    idle: Mutex<Option<Idle>>,
}

struct Idle {
    connection: Conn,
    opened: Instant,
}

/// Without the connection: the driver's own output would show the password.
impl fmt::Debug for Mysql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Mysql").field(&self.settings).finish()
    }
}

impl Mysql {
    /// Does not connect yet.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            idle: Mutex::new(None),
        }
    }

    /// See [`crate::datasource::DataSource::rows`].
    pub async fn rows(
        &self,
        columns: &Columns,
        on_row: impl FnMut(RawRow),
    ) -> Result<RowCount, SourceError> {
        let selected = columns.selected();
        let table = Table::parse(&self.settings.table)?;
        let select = sql::select(&table, &selected)?;

        let mut idle = self.idle.lock().await;
        let mut lease = match self.reuse(idle.take()).await {
            Some(lease) => lease,
            None => self.connect(&table).await?,
        };
        let context = Context {
            settings: &self.settings,
            table: &table,
            columns: &selected,
            stage: Stage::Query,
        };
        let limit = self.settings.limits.query;
        let connection = &mut lease.get_mut().connection;
        let reading = context.read(connection, select, on_row);
        // The driver panics on some packets that no honest server sends.
        match timeout(limit, AssertUnwindSafe(reading).catch_unwind()).await {
            Ok(Ok(Ok(count))) => {
                *idle = Some(lease.keep());
                Ok(count)
            }
            Ok(Ok(Err(error))) => Err(error),
            Ok(Err(_)) => Err(context.protocol("a packet that the driver cannot read")),
            Err(_) => Err(SourceError::Timeout {
                seconds: limit.as_secs(),
                stage: Stage::Query,
            }),
        }
    }

    /// The kept connection, if it is young and its server answers.
    async fn reuse(&self, idle: Option<Idle>) -> Option<Abandon<Idle>> {
        let mut lease = Abandon::new(idle?);
        if lease.get_mut().opened.elapsed() > CONNECTION_AGE_MAX {
            return None;
        }
        let ping = AssertUnwindSafe(lease.get_mut().connection.ping()).catch_unwind();
        match timeout(self.settings.limits.connect, ping).await {
            Ok(Ok(Ok(()))) => Some(lease),
            _ => {
                tracing::debug!(host = %self.settings.host, "kept database connection is dead; opening another");
                None
            }
        }
    }

    async fn connect(&self, table: &Table) -> Result<Abandon<Idle>, SourceError> {
        let context = Context {
            settings: &self.settings,
            table,
            columns: &[],
            stage: Stage::Connect,
        };
        let limit = self.settings.limits.connect;
        let attempt = async {
            let addresses = self.addresses(&context).await?;
            let mut connecting = Abandon::new(Conn::new(self.options(addresses)));
            let outcome = AssertUnwindSafe(connecting.get_mut()).catch_unwind().await;
            drop(connecting.keep());
            match outcome {
                Ok(Ok(connection)) => Ok(Abandon::new(Idle {
                    connection,
                    opened: Instant::now(),
                })),
                Ok(Err(error)) => Err(context.explain(&error, 0)),
                Err(_) => Err(context.protocol("a packet that the driver cannot read")),
            }
        };
        match timeout(limit, attempt).await {
            Ok(outcome) => outcome,
            Err(_) => Err(SourceError::Timeout {
                seconds: limit.as_secs(),
                stage: Stage::Connect,
            }),
        }
    }

    /// Looked up here and not in the driver, so that a wrong name is told from a closed port.
    async fn addresses(&self, context: &Context<'_>) -> Result<Vec<IpAddr>, SourceError> {
        let Settings { host, port, .. } = &self.settings;
        let found = tokio::net::lookup_host((host.as_str(), *port)).await;
        let addresses: Vec<IpAddr> = (found.into_iter().flatten())
            .map(|address| address.ip())
            .collect();
        if addresses.is_empty() {
            return Err(context.unreachable("the host name is unknown"));
        }
        Ok(addresses)
    }

    fn options(&self, addresses: Vec<IpAddr>) -> Opts {
        let settings = &self.settings;
        let password = (!settings.password.0.is_empty()).then(|| settings.password.0.clone());
        let tls = match &settings.tls {
            Tls::Disabled => None,
            Tls::Required { ca_pem } => {
                let authorities = ca_pem.clone().map(Into::into);
                Some(
                    SslOpts::default()
                        .with_disable_built_in_roots(authorities.is_some())
                        .with_root_certs(authorities.into_iter().collect()),
                )
            }
        };
        OptsBuilder::default()
            .ip_or_hostname(settings.host.as_str())
            .tcp_port(settings.port)
            .resolved_ips(Some(addresses))
            .user(Some(settings.user.as_str()))
            .pass(password)
            .db_name(Some(settings.database.as_str()))
            .ssl_opts(tls)
            // A server must not be able to name a socket of this machine.
            .prefer_socket(false)
            .max_allowed_packet(Some(settings.limits.row_bytes))
            // Unused outside the driver's pool, but without it the driver asks the server.
            .wait_timeout(Some(0))
            .init(vec![sql::session(settings.limits.query + SERVER_GRACE)])
            .into()
    }
}

impl Context<'_> {
    async fn read(
        &self,
        connection: &mut Conn,
        select: String,
        mut on_row: impl FnMut(RawRow),
    ) -> Result<RowCount, SourceError> {
        let limits = &self.settings.limits;
        let mut result = (connection.query_iter(select).await).map_err(|e| self.explain(&e, 0))?;
        let stream = (result.stream::<Row>().await).map_err(|e| self.explain(&e, 0))?;
        let mut stream = stream.ok_or_else(|| self.protocol("no result set"))?;
        let conversions: Vec<_> = (stream.columns_ref().iter())
            .map(Conversion::of_column)
            .collect();
        if conversions.len() != self.columns.len() {
            return Err(self.protocol("another number of columns than asked for"));
        }
        let (mut rows, mut bytes) = (0, 0);
        while let Some(row) = stream.next().await {
            let row = row.map_err(|e| self.explain(&e, rows))?;
            rows += 1;
            let mut values = Vec::with_capacity(conversions.len());
            for (conversion, value) in conversions.iter().zip(row.unwrap()) {
                values.push(match value {
                    Value::NULL => None,
                    Value::Bytes(text) => {
                        bytes += text.len() as u64;
                        Some(conversion.apply(text))
                    }
                    _ => return Err(self.protocol("a value that is not text")),
                });
            }
            if rows > limits.rows {
                return Err(self.too_large(Limit::Rows(limits.rows)));
            }
            if bytes > limits.bytes {
                return Err(self.too_large(Limit::Bytes(limits.bytes)));
            }
            on_row(RawRow {
                number: rows,
                values,
            });
        }
        Ok(RowCount(rows))
    }

    fn too_large(&self, limit: Limit) -> SourceError {
        SourceError::TooLarge { limit }
    }
}

/// Something of the driver's that is dropped outside the runtime unless it is kept.
///
/// Dropped inside, a connection cleans itself up in the background: it reads the rest of its result, however long
/// that takes, without a deadline. Where no runtime is, dropping it closes the socket and that is all.
struct Abandon<T: Send + 'static>(Option<T>);

impl<T: Send + 'static> Abandon<T> {
    fn new(inner: T) -> Self {
        Self(Some(inner))
    }

    fn get_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("only `keep` empties it")
    }

    fn keep(mut self) -> T {
        self.0.take().expect("only `keep` empties it")
    }
}

impl<T: Send + 'static> Drop for Abandon<T> {
    fn drop(&mut self) {
        if let Some(inner) = self.0.take() {
            // Without a thread to spare it is dropped here, which is slower but safe.
            let _ = std::thread::Builder::new().spawn(move || drop(inner));
        }
    }
}
