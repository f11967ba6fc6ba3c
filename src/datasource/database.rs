//! What all database servers share: connection settings, limits of a read, and errors. Knows no driver and no protocol.

pub mod panics;
pub mod values;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::CertificateError;
use tokio::time::timeout;

use crate::api::hub::{SecretKey, SourceTls};
use crate::datasource::DataSource;
use crate::datasource::error::{Limit, SourceError, Stage};
use crate::decide::hub::hosts::Hosts;
use crate::decide::hub::identifier::Table;

use panics::caught;

/// The time limit for closing a connection in order: the server may no longer answer.
pub const GOODBYE_MAX: Duration = Duration::from_secs(1);

/// The server's time limit is this much longer than the client's, after which no one waits for the result.
pub const SERVER_GRACE: Duration = Duration::from_secs(1);

/// A hub's settings of its database, for any product.
pub struct Server<'a> {
    /// The name of the hub's field with these settings.
    pub block: &'static str,
    pub host: &'a str,
    pub port: i32,
    pub username: &'a str,
    pub password_ref: Option<&'a SecretKey>,
    pub tls: Option<&'a SourceTls>,
    pub database: &'a str,
    pub table: &'a str,
    pub source: fn(Settings) -> DataSource,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub host: String,
    pub port: u16,
    pub user: String,
    pub password: Password,
    pub database: String,
    /// `table`, or `schema.table`.
    pub table: String,
    pub tls: Tls,
    pub limits: Limits,
    /// The hosts to which lynqgate may connect.
    pub hosts: Arc<Hosts>,
}

impl Settings {
    pub fn context<'a>(
        &'a self,
        table: &'a Table,
        columns: &'a [&'a str],
        stage: Stage,
    ) -> Context<'a> {
        Context {
            settings: self,
            table,
            columns,
            stage,
        }
    }
}

/// Never printed, not even by `Debug`.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Password(String);

impl Password {
    /// None for an empty password: it means that there is none.
    pub fn reveal(&self) -> Option<&str> {
        Some(self.0.as_str()).filter(|password| !password.is_empty())
    }

    /// A likely mistake in the password, to mention when the server rejects it.
    fn blemish(&self) -> Option<&'static str> {
        let is_trimmed = |by: fn(char) -> bool| self.0.trim_matches(by) == self.0;
        match () {
            () if self.0.ends_with(['\n', '\r']) => Some(
                "the password in the Secret ends in a line break, which counts as part of it; store it without one (echo -n, or \
                 kubectl create secret --from-literal)",
            ),
            () if !is_trimmed(char::is_whitespace) => Some(
                "the password in the Secret begins or ends with a space, which counts as part of it; store it without one, unless you mean it",
            ),
            () => None,
        }
    }
}

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
    /// One of these authorities must have issued the server's certificate; its names are not checked.
    VerifyCa {
        ca_pem: Vec<u8>,
    },
}

/// Bounds that a slow, broken or malicious server cannot exceed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Covers DNS lookup, connection, TLS and login together.
    pub connect: Duration,
    /// From the query to the last row.
    pub query: Duration,
    pub rows: u64,
    /// Of all values of all rows.
    pub bytes: u64,
    /// Of one row in the protocol's encoding.
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

impl Limits {
    /// For a caller that waits for the answer.
    pub fn within(patience: Duration) -> Self {
        Self {
            connect: patience,
            query: patience,
            ..Self::default()
        }
    }
}

/// Counts the rows and bytes of a result as they arrive.
pub struct Tally<'a> {
    limits: &'a Limits,
    pub rows: u64,
    bytes: u64,
}

impl<'a> Tally<'a> {
    pub fn new(limits: &'a Limits) -> Self {
        Self {
            limits,
            rows: 0,
            bytes: 0,
        }
    }

    /// Counts a row whose values have so many bytes; returns its number.
    pub fn row(&mut self, bytes: usize) -> Result<u64, SourceError> {
        self.rows += 1;
        self.bytes += bytes as u64;
        let limit = match self.limits {
            limits if self.rows > limits.rows => Limit::Rows(limits.rows),
            limits if self.bytes > limits.bytes => Limit::Bytes(limits.bytes),
            _ => return Ok(self.rows),
        };
        Err(SourceError::TooLarge { limit })
    }
}

/// The operation in progress, to word its errors.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub settings: &'a Settings,
    pub table: &'a Table,
    pub columns: &'a [&'a str],
    pub stage: Stage,
}

impl Context<'_> {
    /// Waits for a driver's work, at most as long as this stage may take. Returns an error if the driver panics, which a packet
    /// from a broken or malicious server can cause.
    pub async fn within<T>(
        &self,
        work: impl Future<Output = Result<T, SourceError>>,
    ) -> Result<T, SourceError> {
        let limit = match self.stage {
            Stage::Connect => self.settings.limits.connect,
            Stage::Query => self.settings.limits.query,
        };
        match timeout(limit, caught(work)).await {
            Ok(Some(outcome)) => outcome,
            Ok(None) => Err(self.unreadable()),
            Err(_) => Err(SourceError::Timeout {
                seconds: limit.as_secs(),
                stage: self.stage,
            }),
        }
    }

    /// Resolves the name here instead of in a driver: so an unknown name is distinguished from a closed port, and no driver
    /// connects to a forbidden address.
    pub async fn addresses(&self) -> Result<Vec<SocketAddr>, SourceError> {
        let Settings { host, port, .. } = self.settings;
        let found = tokio::net::lookup_host((host.as_str(), *port)).await;
        let mut why = None;
        let mut addresses: Vec<SocketAddr> = found.into_iter().flatten().collect();
        addresses.retain(|address| {
            let forbidden = self.settings.hosts.forbids(host, *address);
            why = why.or(forbidden);
            forbidden.is_none()
        });
        match (addresses.is_empty(), why) {
            (false, _) => Ok(addresses),
            (true, None) => Err(self.unreachable("the host name is unknown")),
            (true, Some(why)) => Err(SourceError::HostForbidden {
                host: host.clone(),
                port: *port,
                why,
            }),
        }
    }

    pub fn unreadable(&self) -> SourceError {
        self.protocol("a packet that the driver cannot read")
    }

    pub fn unreachable(&self, cause: &'static str) -> SourceError {
        SourceError::Unreachable {
            host: self.settings.host.clone(),
            port: self.settings.port,
            cause,
        }
    }

    pub fn protocol(&self, cause: &'static str) -> SourceError {
        SourceError::Protocol {
            host: self.settings.host.clone(),
            port: self.settings.port,
            cause,
        }
    }

    pub fn tls(&self, cause: &'static str) -> SourceError {
        SourceError::Tls {
            host: self.settings.host.clone(),
            port: self.settings.port,
            cause,
        }
    }

    pub fn no_tls_offered(&self) -> SourceError {
        self.tls("the server does not offer it; enable it there, or set tls.mode to disabled")
    }

    pub fn no_server_name(&self) -> SourceError {
        self.tls("the host is neither a DNS name nor an address")
    }

    pub fn no_authority(&self) -> SourceError {
        self.tls("the Secret with the authority's certificate holds no valid PEM certificate")
    }

    pub fn handshake(&self, error: &rustls::Error) -> SourceError {
        self.tls(tls_cause(error))
    }

    pub fn row_too_large(&self) -> SourceError {
        let limit = Limit::RowBytes(self.settings.limits.row_bytes as u64);
        SourceError::TooLarge { limit }
    }

    /// The connection broke, and not because of the query.
    pub fn lost(&self, rows_read: u64) -> SourceError {
        match self.stage {
            Stage::Connect => {
                self.unreachable("it closed the connection before the log-in was done")
            }
            Stage::Query => SourceError::Interrupted { rows_read },
        }
    }

    pub fn io(&self, error: &io::Error, rows_read: u64) -> SourceError {
        let inner = error.get_ref();
        if let Some(tls) = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            return self.handshake(tls);
        }
        match (self.stage, error.kind()) {
            (_, io::ErrorKind::InvalidData) => self.protocol("a packet that cannot be read"),
            (Stage::Connect, io::ErrorKind::ConnectionRefused) => {
                self.unreachable("nothing listens there (connection refused)")
            }
            (
                Stage::Connect,
                io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable,
            ) => self.unreachable("there is no route to it"),
            (Stage::Connect, io::ErrorKind::TimedOut) => self.unreachable("it does not answer"),
            _ => self.lost(rows_read),
        }
    }

    /// A server answers a user that must use TLS and does not as it answers a wrong password.
    pub fn access_denied(&self) -> SourceError {
        let check = match self.settings.tls {
            Tls::Disabled => {
                "check the user name and the Secret with the password, and whether it must use TLS (tls is disabled here)"
            }
            Tls::Required { .. } | Tls::VerifyCa { .. } => {
                "check the user name and the Secret with the password"
            }
        };
        self.denied(check)
    }

    /// `check` is the advice, unless the password itself shows a likely mistake.
    pub fn denied(&self, check: &'static str) -> SourceError {
        SourceError::AccessDenied {
            user: self.settings.user.clone(),
            check: self.settings.password.blemish().unwrap_or(check),
        }
    }

    pub fn table_missing(&self) -> SourceError {
        SourceError::TableMissing {
            table: self.table.to_string(),
        }
    }

    /// None: the server did not name one of our columns.
    pub fn column_missing(&self, column: Option<&str>) -> SourceError {
        SourceError::ColumnMissing {
            column: match column {
                Some(column) => format!("{column:?}"),
                None => format!("of this name, one of {:?}", self.columns),
            },
            table: self.table.to_string(),
        }
    }
}

fn tls_cause(error: &rustls::Error) -> &'static str {
    match error {
        rustls::Error::InvalidCertificate(certificate) => match certificate {
            // An authority that was renewed under the same name causes a bad signature.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "its certificate is not issued by a trusted authority; check the Secret with the authority's certificate"
            }
            CertificateError::NotValidForNameContext { presented, .. } if presented.is_empty() => {
                "its certificate has no subjectAltName, so that no host name fits it; set tls.mode to verifyCa, which checks the \
                 authority alone, or issue a certificate that has one"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "its certificate is not valid for this host name; use a name that it contains, or set tls.mode to verifyCa, which \
                 checks the authority alone"
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "its certificate has expired; renew it on the server"
            }
            CertificateError::Other(other) if other.0.to_string() == "UnsupportedCertVersion" => {
                "its certificate is of X.509 version 1, which is not supported; issue one of version 3"
            }
            _ => "its certificate is not acceptable; check it on the server",
        },
        _ => "the handshake failed; check the TLS versions and ciphers that the server allows",
    }
}
