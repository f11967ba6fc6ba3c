//! PostgreSQL. Each read has its own connection and one read-only transaction. Never takes a truncated result for a complete one.

mod errors;
mod sql;
mod values;
mod wire;

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use futures::TryStreamExt;
use tokio::time::timeout;
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::{Client, Config, Connection, Error, NoTls, SimpleQueryMessage};

use crate::api::hub;
use crate::datasource::DataSource;
use crate::datasource::database::{Context, GOODBYE_MAX, SERVER_GRACE, Server, Settings, Tally};
use crate::datasource::error::{SourceError, Stage};
use crate::decide::hub::identifier::{POSTGRESQL, Table};
use crate::decide::hub::rows::{Columns, RawRow, RowCount};

use errors::explain;
use values::{Conversion, Raw};
use wire::Wire;

#[derive(Debug)]
pub struct Postgresql {
    settings: Settings,
}

/// A connection. Only [`drive`] polls it, so dropping it stops all its work.
struct Session {
    client: Client,
    connection: Connection<Wire, NoTlsStream>,
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
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }

    /// See [`crate::datasource::DataSource::rows`].
    pub async fn rows(
        &self,
        columns: &Columns,
        on_row: impl FnMut(RawRow),
    ) -> Result<RowCount, SourceError> {
        let selected = columns.selected();
        let (table, describe) = self.describe(&selected)?;
        let context = |stage| self.settings.context(&table, &selected, stage);
        let mut session = self.connect(context(Stage::Connect)).await?;
        let context = context(Stage::Query);
        let reading = session.read(context, &describe, on_row);
        let outcome = context.within(reading).await;
        session.end(outcome.as_ref().err()).await;
        outcome
    }

    /// See [`crate::datasource::DataSource::check`].
    pub async fn check(&self, columns: &Columns) -> Result<(), SourceError> {
        let selected = columns.selected();
        let (table, describe) = self.describe(&selected)?;
        let context = |stage| self.settings.context(&table, &selected, stage);
        let mut session = self.connect(context(Stage::Connect)).await?;
        let context = context(Stage::Query);
        let checking = async {
            let Session { client, connection } = &mut session;
            let described = drive(connection, client.prepare(&describe)).await;
            described.map_err(|error| explain(context, &error, 0))?;
            let ended = drive(connection, client.batch_execute(sql::END)).await;
            ended.map_err(|error| explain(context, &error, 0))
        };
        let outcome = context.within(checking).await;
        session.end(outcome.as_ref().err()).await;
        outcome
    }

    fn describe(&self, columns: &[&str]) -> Result<(Table, String), SourceError> {
        let table = Table::parse(&self.settings.table, &POSTGRESQL)?;
        let describe = sql::describe(&table, columns)?;
        Ok((table, describe))
    }

    /// Opens a connection and begins a transaction.
    async fn connect(&self, context: Context<'_>) -> Result<Session, SourceError> {
        let attempt = async {
            let wire = Wire::open(context).await?;
            let mut config = Config::new();
            config
                .user(&self.settings.user)
                .dbname(&self.settings.database)
                .application_name("lynqgate")
                // TLS, where it is required, is inside `wire`.
                .ssl_mode(SslMode::Disable);
            if let Some(password) = self.settings.password.reveal() {
                config.password(password);
            }
            let connected = config.connect_raw(wire, NoTls).await;
            let (client, connection) = connected.map_err(|error| explain(context, &error, 0))?;
            let mut session = Session { client, connection };
            if let Err(error) = session.begin(context).await {
                session.end(Some(&error)).await;
                return Err(error);
            }
            Ok(session)
        };
        context.within(attempt).await
    }
}

impl Session {
    /// Sets the session's settings, whatever the server, the user or a proxy has set, and reads them back.
    async fn begin(&mut self, context: Context<'_>) -> Result<(), SourceError> {
        let begin = sql::begin(context.settings.limits.query + SERVER_GRACE);
        let begun = drive(&mut self.connection, self.client.simple_query(&begin)).await;
        let begun = begun.map_err(|error| explain(context, &error, 0).of_session("settings"))?;
        let row = begun.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let found = |place| row?.try_get(place).ok()?;
        match sql::unlike(found) {
            None => Ok(()),
            Some(setting) => Err(SourceError::Session {
                setting,
                code: None,
            }),
        }
    }

    /// Closes the connection in order if the server waits for a message; otherwise only drops it.
    async fn end(self, error: Option<&SourceError>) {
        if !error.is_none_or(SourceError::is_answer) {
            return;
        }
        let Session {
            client,
            mut connection,
        } = self;
        // Without its client, the connection only sends the terminate message.
        drop(client);
        let ended = poll_fn(|task| {
            loop {
                match connection.poll_message(task) {
                    Poll::Ready(Some(Ok(_))) => {}
                    Poll::Ready(_) => return Poll::Ready(()),
                    Poll::Pending => return Poll::Pending,
                }
            }
        });
        let _ = timeout(GOODBYE_MAX, ended).await;
    }

    /// Reads, in the transaction, first the columns' types, then their values as text. Describing the query locks the table, so
    /// that its columns cannot change in between.
    async fn read(
        &mut self,
        context: Context<'_>,
        describe: &str,
        mut on_row: impl FnMut(RawRow),
    ) -> Result<RowCount, SourceError> {
        let Session { client, connection } = self;
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
        // Closed within the transaction, so that no proxy keeps it.
        drop(described);
        // The number of rows that the server reports.
        if stream.rows_affected() != Some(tally.rows) {
            return Err(context.protocol("another number of rows than it says it sent"));
        }
        let ended = drive(connection, client.batch_execute(sql::END)).await;
        ended.map_err(|error| explain(context, &error, tally.rows))?;
        Ok(RowCount(tally.rows))
    }
}

/// Polls the connection until the work is done. The error with which a connection ends is more specific than the work's own.
/// Notices are dropped: the driver would log the server's text.
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
                // The work may have failed before the connection ended, and that error may be the cause.
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
