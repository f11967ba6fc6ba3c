//! MySQL and MariaDB. One connection for each read, in one read-only transaction. Writes nothing, and never takes a result
//! that broke off for a complete one.

mod errors;
mod sql;
mod values;

use std::net::{IpAddr, SocketAddr};

use futures::StreamExt;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder, Row, SslOpts, Value};
use tokio::time::timeout;

use crate::api::hub;
use crate::datasource::DataSource;
use crate::datasource::database::panics::caught;
use crate::datasource::database::{
    Context, GOODBYE_MAX, SERVER_GRACE, Server, Settings, Tally, Tls,
};
use crate::datasource::error::{SourceError, Stage};
use crate::decide::hub::identifier::{MYSQL, Table};
use crate::decide::hub::rows::{Columns, RawRow, RowCount};

use errors::explain;
use values::Conversion;

#[derive(Debug)]
pub struct Mysql {
    settings: Settings,
}

/// To skip the check of the host's name, `mysql_async` 0.37 searches an error's text for the error's name, which rustls no longer
/// prints. rustls does print the host's name, so this one contains it.
const ANY_NAME: &str = "NotValidForName.invalid";

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
        let (table, select) = self.select(&selected)?;
        let mut connection = self.connect(&table).await?;
        let context = self.settings.context(&table, &selected, Stage::Query);
        let reading = read(context, connection.get_mut(), select, on_row);
        let outcome = context.within(reading).await;
        end(connection, outcome.as_ref().err()).await;
        outcome
    }

    /// See [`crate::datasource::DataSource::check`].
    pub async fn check(&self, columns: &Columns) -> Result<(), SourceError> {
        let selected = columns.selected();
        let (table, select) = self.select(&selected)?;
        let mut connection = self.connect(&table).await?;
        let context = self.settings.context(&table, &selected, Stage::Query);
        let checking = async {
            let connection = connection.get_mut();
            let prepared = connection.prep(select).await;
            prepared.map_err(|error| explain(context, &error, 0))?;
            let ended = connection.query_drop(sql::END).await;
            ended.map_err(|error| explain(context, &error, 0))
        };
        let outcome = context.within(checking).await;
        end(connection, outcome.as_ref().err()).await;
        outcome
    }

    fn select(&self, columns: &[&str]) -> Result<(Table, String), SourceError> {
        let table = Table::parse(&self.settings.table, &MYSQL)?;
        let select = sql::select(&table, columns)?;
        Ok((table, select))
    }

    /// Opens a connection, prepares its session and begins a transaction.
    async fn connect(&self, table: &Table) -> Result<Abandon<Conn>, SourceError> {
        let context = self.settings.context(table, &[], Stage::Connect);
        let attempt = async {
            let addresses = context.addresses().await?;
            let mut connecting = Abandon::new(Conn::new(self.options(addresses)));
            let outcome = caught(connecting.get_mut()).await;
            drop(connecting.keep());
            let connection = outcome.ok_or_else(|| context.unreadable())?;
            let connection = connection.map_err(|error| explain(context, &error, 0))?;
            let mut connection = Abandon::new(connection);
            if let Err(error) = begin(context, connection.get_mut()).await {
                end(connection, Some(&error)).await;
                return Err(error);
            }
            Ok(connection)
        };
        context.within(attempt).await
    }

    fn options(&self, addresses: Vec<SocketAddr>) -> Opts {
        let settings = &self.settings;
        let addresses: Vec<IpAddr> = addresses.iter().map(SocketAddr::ip).collect();
        let tls = |authorities: Option<&Vec<u8>>| {
            let authorities = authorities.map(|pem| pem.clone().into());
            SslOpts::default()
                .with_disable_built_in_roots(authorities.is_some())
                .with_root_certs(authorities.into_iter().collect())
        };
        let tls = match &settings.tls {
            Tls::Disabled => None,
            Tls::Required { ca_pem } => Some(tls(ca_pem.as_ref())),
            Tls::VerifyCa { ca_pem } => Some(
                tls(Some(ca_pem))
                    .with_danger_skip_domain_validation(true)
                    .with_danger_tls_hostname_override(Some(ANY_NAME)),
            ),
        };
        OptsBuilder::default()
            .ip_or_hostname(settings.host.as_str())
            .tcp_port(settings.port)
            .resolved_ips(Some(addresses))
            .user(Some(settings.user.as_str()))
            .pass(settings.password.reveal())
            .db_name(Some(settings.database.as_str()))
            // For PAM, LDAP and cloud identities, and only to a server whose certificate was checked.
            .enable_cleartext_plugin(tls.is_some())
            .ssl_opts(tls)
            // A server must not be able to name a socket of this machine.
            .prefer_socket(false)
            .max_allowed_packet(Some(settings.limits.row_bytes))
            // Unused outside the driver's pool, but without it the driver asks the server.
            .wait_timeout(Some(0))
            .into()
    }
}

/// Sets the session's settings, whatever the server's configuration, `init_connect` or a proxy has set, and begins a transaction,
/// which keeps a proxy on one server. The settings are read back inside the transaction, on that server.
async fn begin(context: Context<'_>, connection: &mut Conn) -> Result<(), SourceError> {
    let failed = |error: mysql_async::Error| explain(context, &error, 0);
    for (setting, statement) in sql::session(context.settings.limits.query + SERVER_GRACE) {
        let set = connection.query_drop(statement).await;
        set.map_err(|error| failed(error).of_session(setting))?;
    }
    let found = connection.query_first::<Row, _>(sql::READ_BACK).await;
    let found = found.map_err(|error| failed(error).of_session("settings"))?;
    let values = found.map(Row::unwrap).unwrap_or_default();
    let values = values.into_iter().map(|value| match value {
        Value::Bytes(text) => Some(text),
        _ => None,
    });
    match sql::unlike(values) {
        None => Ok(()),
        Some(setting) => Err(SourceError::Session {
            setting,
            code: None,
        }),
    }
}

/// Closes the connection in order if the server waits for a command; otherwise only drops it.
async fn end(connection: Abandon<Conn>, error: Option<&SourceError>) {
    if error.is_none_or(SourceError::is_answer) {
        let _ = timeout(GOODBYE_MAX, connection.keep().disconnect()).await;
    }
}

async fn read(
    context: Context<'_>,
    connection: &mut Conn,
    select: String,
    mut on_row: impl FnMut(RawRow),
) -> Result<RowCount, SourceError> {
    let failed = |error: mysql_async::Error, rows| explain(context, &error, rows);
    let mut tally = Tally::new(&context.settings.limits);
    let begun = connection.query_iter(select).await;
    let mut result = begun.map_err(|error| failed(error, 0))?;
    let stream = result.stream::<Row>().await;
    let stream = stream.map_err(|error| failed(error, 0))?;
    let mut stream = stream.ok_or_else(|| context.protocol("no result set"))?;
    let conversions: Vec<_> = (stream.columns_ref().iter())
        .map(Conversion::of_column)
        .collect();
    if conversions.len() != context.columns.len() {
        return Err(context.protocol("another number of columns than asked for"));
    }
    while let Some(row) = stream.next().await {
        let row = row.map_err(|error| failed(error, tally.rows))?;
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
    drop(stream);
    drop(result);
    let ended = connection.query_drop(sql::END).await;
    ended.map_err(|error| failed(error, tally.rows))?;
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
