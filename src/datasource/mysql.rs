//! MySQL and MariaDB. One connection per hub, kept between syncs; one query per sync. Writes nothing, and never
//! takes a result that broke off for a complete one.

mod errors;
mod sql;
mod values;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::panic::AssertUnwindSafe;

use futures::{FutureExt, StreamExt};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder, Row, SslOpts, Value};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::api::hub;
use crate::datasource::DataSource;
use crate::datasource::database::{
    CONNECTION_AGE_MAX, Context, SERVER_GRACE, Server, Settings, Tally, Tls,
};
use crate::datasource::error::{SourceError, Stage};
use crate::decide::identifier::{MYSQL, Table};
use crate::decide::rows::{Columns, RawRow, RowCount};

use errors::explain;
use values::Conversion;

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

impl<'a> From<&'a hub::Mysql> for Server<'a> {
    fn from(spec: &'a hub::Mysql) -> Self {
        Server {
            block: "mysql",
            host: &spec.host,
            port: spec.port,
            username: &spec.username,
            password_ref: spec.password_ref.as_ref(),
            tls: spec.tls.as_ref(),
            database: &spec.database,
            table: &spec.table,
            source: |settings| DataSource::Mysql(Box::new(Mysql::new(settings))),
        }
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
        let table = Table::parse(&self.settings.table, &MYSQL)?;
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
        let connection = &mut lease.get_mut().connection;
        let count = context
            .within(read(context, connection, select, on_row))
            .await?;
        *idle = Some(lease.keep());
        Ok(count)
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
        let attempt = async {
            let addresses = context.addresses().await?;
            let mut connecting = Abandon::new(Conn::new(self.options(addresses)));
            let outcome = AssertUnwindSafe(connecting.get_mut()).catch_unwind().await;
            drop(connecting.keep());
            match outcome {
                Ok(Ok(connection)) => Ok(Abandon::new(Idle {
                    connection,
                    opened: Instant::now(),
                })),
                Ok(Err(error)) => Err(explain(context, &error, 0)),
                Err(_) => Err(context.protocol("a packet that the driver cannot read")),
            }
        };
        context.within(attempt).await
    }

    fn options(&self, addresses: Vec<SocketAddr>) -> Opts {
        let settings = &self.settings;
        let addresses: Vec<IpAddr> = addresses.iter().map(SocketAddr::ip).collect();
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
            .pass(settings.password.reveal())
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

async fn read(
    context: Context<'_>,
    connection: &mut Conn,
    select: String,
    mut on_row: impl FnMut(RawRow),
) -> Result<RowCount, SourceError> {
    let mut tally = Tally::new(&context.settings.limits);
    let begun = connection.query_iter(select).await;
    let mut result = begun.map_err(|error| explain(context, &error, 0))?;
    let stream = result.stream::<Row>().await;
    let stream = stream.map_err(|error| explain(context, &error, 0))?;
    let mut stream = stream.ok_or_else(|| context.protocol("no result set"))?;
    let conversions: Vec<_> = (stream.columns_ref().iter())
        .map(Conversion::of_column)
        .collect();
    if conversions.len() != context.columns.len() {
        return Err(context.protocol("another number of columns than asked for"));
    }
    while let Some(row) = stream.next().await {
        let row = row.map_err(|error| explain(context, &error, tally.rows))?;
        let mut values = Vec::with_capacity(conversions.len());
        let mut bytes = 0;
        for (conversion, value) in conversions.iter().zip(row.unwrap()) {
            values.push(match value {
                Value::NULL => None,
                Value::Bytes(text) => {
                    bytes += text.len();
                    Some(conversion.apply(text))
                }
                _ => return Err(context.protocol("a value that is not text")),
            });
        }
        let number = tally.row(bytes)?;
        on_row(RawRow { number, values });
    }
    Ok(RowCount(tally.rows))
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
