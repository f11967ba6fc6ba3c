//! PostgreSQL. One connection per hub, kept between syncs; one read-only transaction per sync. Never takes a result that
//! broke off for a complete one.

mod errors;
mod sql;
mod values;
mod wire;

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use futures::TryStreamExt;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::{Client, Config, Connection, Error, NoTls};

use crate::api::hub;
use crate::datasource::DataSource;
use crate::datasource::database::{
    CONNECTION_AGE_MAX, Context, SERVER_GRACE, Server, Settings, Tally,
};
use crate::datasource::error::{SourceError, Stage};
use crate::decide::identifier::{POSTGRESQL, Table};
use crate::decide::rows::{Columns, RawRow, RowCount};

use errors::explain;
use values::{Conversion, Raw};
use wire::Wire;

pub struct Postgresql {
    settings: Settings,
    /// Empty before the first query, during one, and after one that failed. Held during a query: one at a time.
    idle: Mutex<Option<Session>>,
}

/// A connection. Nothing but [`Session::drive`] makes it move, so that dropping it ends all that is under way.
struct Session {
    client: Client,
    connection: Connection<Wire, NoTlsStream>,
    opened: Instant,
}

/// Without the connection: the driver's own output is not ours to vouch for.
impl fmt::Debug for Postgresql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Postgresql").field(&self.settings).finish()
    }
}

impl<'a> From<&'a hub::Postgresql> for Server<'a> {
    fn from(spec: &'a hub::Postgresql) -> Self {
        Server {
            block: "postgresql",
            host: &spec.host,
            port: spec.port,
            username: &spec.username,
            password_ref: spec.password_ref.as_ref(),
            tls: spec.tls.as_ref(),
            database: &spec.database,
            table: &spec.table,
            source: |settings| DataSource::Postgresql(Box::new(Postgresql::new(settings))),
        }
    }
}

impl Postgresql {
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
        let table = Table::parse(&self.settings.table, &POSTGRESQL)?;
        let describe = sql::describe(&table, &selected)?;
        let context = |stage| Context {
            settings: &self.settings,
            table: &table,
            columns: &selected,
            stage,
        };

        let mut idle = self.idle.lock().await;
        let mut session = match self.reuse(idle.take()).await {
            Some(session) => session,
            None => self.connect(context(Stage::Connect)).await?,
        };
        let context = context(Stage::Query);
        let count = context
            .within(session.read(context, &describe, on_row))
            .await?;
        *idle = Some(session);
        Ok(count)
    }

    /// The kept connection with a transaction begun on it, if it is young and its server answers.
    async fn reuse(&self, idle: Option<Session>) -> Option<Session> {
        let mut session = idle?;
        if session.opened.elapsed() > CONNECTION_AGE_MAX {
            return None;
        }
        let begun = session.begin(&self.settings);
        match timeout(self.settings.limits.connect, begun).await {
            Ok(Ok(())) => Some(session),
            _ => {
                tracing::debug!(host = %self.settings.host, "kept database connection is dead; opening another");
                None
            }
        }
    }

    /// A new connection with a transaction begun on it.
    async fn connect(&self, context: Context<'_>) -> Result<Session, SourceError> {
        let attempt = async {
            let wire = Wire::open(context).await?;
            let mut config = Config::new();
            config
                .user(&self.settings.user)
                .dbname(&self.settings.database)
                .application_name("lynqgate")
                // The wire is encrypted already, or need not be.
                .ssl_mode(SslMode::Disable);
            if let Some(password) = self.settings.password.reveal() {
                config.password(password);
            }
            let connected = config.connect_raw(wire, NoTls).await;
            let (client, connection) = connected.map_err(|error| explain(context, &error, 0))?;
            let mut session = Session {
                client,
                connection,
                opened: Instant::now(),
            };
            let begun = session.begin(&self.settings).await;
            begun.map_err(|error| explain(context, &error, 0))?;
            Ok(session)
        };
        context.within(attempt).await
    }
}

impl Session {
    async fn begin(&mut self, settings: &Settings) -> Result<(), Error> {
        let begin = sql::begin(settings.limits.query + SERVER_GRACE);
        drive(&mut self.connection, self.client.batch_execute(&begin)).await
    }

    /// Within the transaction: what the types of the columns are, and then their values as text. The description locks
    /// the table against changes of its columns in between.
    async fn read(
        &mut self,
        context: Context<'_>,
        describe: &str,
        mut on_row: impl FnMut(RawRow),
    ) -> Result<RowCount, SourceError> {
        let Session {
            client, connection, ..
        } = self;
        let mut tally = Tally::new(&context.settings.limits);
        let described = drive(connection, client.prepare(describe)).await;
        let described = described.map_err(|error| explain(context, &error, 0))?;
        let conversions: Vec<_> = (described.columns().iter())
            .map(|column| Conversion::of_type(column.type_()))
            .collect();
        if conversions.len() != context.columns.len() {
            return Err(context.protocol("another number of columns than asked for"));
        }
        let select = sql::select(context.table, context.columns, &conversions)?;
        let parameters: [(&str, _); 0] = [];
        let stream = drive(connection, client.query_typed_raw(&select, parameters)).await;
        let mut stream = pin!(stream.map_err(|error| explain(context, &error, 0))?);
        loop {
            let row = drive(connection, stream.try_next()).await;
            let Some(row) = row.map_err(|error| explain(context, &error, tally.rows))? else {
                break;
            };
            if row.len() != conversions.len() {
                return Err(context.protocol("another number of columns than asked for"));
            }
            let mut values = Vec::with_capacity(conversions.len());
            let mut bytes = 0;
            for (place, conversion) in conversions.iter().enumerate() {
                let value: Option<Raw> =
                    (row.try_get(place)).expect("any type is taken, and the columns were counted");
                values.push(value.map(|Raw(value)| {
                    bytes += value.len();
                    conversion.apply(value)
                }));
            }
            let number = tally.row(bytes)?;
            on_row(RawRow { number, values });
        }
        // The server's own count of them.
        if stream.rows_affected() != Some(tally.rows) {
            return Err(context.protocol("another number of rows than it says it sent"));
        }
        let ended = drive(connection, client.batch_execute(sql::END)).await;
        ended.map_err(|error| explain(context, &error, tally.rows))?;
        Ok(RowCount(tally.rows))
    }
}

/// Moves the connection until the work is done. What the connection ends with says more than that the work cannot go on.
/// Notices are dropped: they are the server's words, which the driver would log.
async fn drive<T>(
    connection: &mut Connection<Wire, NoTlsStream>,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let mut work = pin!(work);
    poll_fn(|cx| {
        loop {
            if let Poll::Ready(outcome) = work.as_mut().poll(cx) {
                return Poll::Ready(outcome);
            }
            match connection.poll_message(cx) {
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Pending => return Poll::Pending,
                // What came before the end counts, and may be the reason for it.
                Poll::Ready(Some(Err(end))) => {
                    return match work.as_mut().poll(cx) {
                        Poll::Ready(Err(error)) if error.is_closed() => Poll::Ready(Err(end)),
                        Poll::Ready(outcome) => Poll::Ready(outcome),
                        Poll::Pending => Poll::Ready(Err(end)),
                    };
                }
                Poll::Ready(None) => return work.as_mut().poll(cx),
            }
        }
    })
    .await
}
