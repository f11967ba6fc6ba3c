//! The driver's and the server's errors as ours. The server's own words are looked at, never passed on.

use std::io;

use mysql_async::{DriverError, Error, IoError, LocalInfileError, TlsError};
use rustls::CertificateError;

use crate::datasource::error::{Limit, SourceError, Stage};
use crate::datasource::mysql::sql::Table;
use crate::datasource::mysql::{Settings, Tls};

/// What was being done when an error came.
pub struct Context<'a> {
    pub settings: &'a Settings,
    pub table: &'a Table,
    pub columns: &'a [&'a str],
    pub stage: Stage,
}

impl Context<'_> {
    pub fn explain(&self, error: &Error, rows_read: u64) -> SourceError {
        match error {
            Error::Server(server) => self.server(server.code, &server.message, rows_read),
            Error::Io(IoError::Io(io)) => self.io(io, rows_read),
            // What goes wrong during the handshake comes as an I/O error; these come before it.
            Error::Io(IoError::Tls(TlsError::InvalidDnsName(_))) => {
                self.tls("the host is neither a DNS name nor an address")
            }
            Error::Io(IoError::Tls(_)) => self
                .tls("the Secret with the authority's certificate holds no valid PEM certificate"),
            Error::Driver(DriverError::NoClientSslFlagFromServer) => self
                .tls("the server does not offer it; enable it there, or set tls.mode to disabled"),
            Error::Driver(DriverError::ConnectionClosed) => self.lost(rows_read),
            Error::Driver(
                DriverError::UnknownAuthPlugin { .. }
                | DriverError::MysqlOldPasswordDisabled
                | DriverError::CleartextPluginDisabled,
            ) => SourceError::AuthUnsupported {
                user: self.settings.user.clone(),
            },
            Error::Driver(DriverError::LocalInfile(LocalInfileError::NoHandler)) => {
                self.protocol("it asked for a file of this machine")
            }
            _ => self.protocol("a packet out of place"),
        }
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

    fn tls(&self, cause: &'static str) -> SourceError {
        SourceError::Tls {
            host: self.settings.host.clone(),
            port: self.settings.port,
            cause,
        }
    }

    /// The connection is gone, and not because of anything in the query.
    fn lost(&self, rows_read: u64) -> SourceError {
        match self.stage {
            Stage::Connect => {
                self.unreachable("it closed the connection before the log-in was done")
            }
            Stage::Query => SourceError::Interrupted { rows_read },
        }
    }

    fn io(&self, error: &io::Error, rows_read: u64) -> SourceError {
        if let Some(inner) = error.get_ref() {
            if let Some(tls) = inner.downcast_ref::<rustls::Error>() {
                return self.tls(tls_cause(tls));
            }
            // The driver does not export the type of its packet errors.
            match inner.to_string().as_str() {
                "Packet is larger than max_allowed_packet" if self.stage == Stage::Query => {
                    let bytes = self.settings.limits.row_bytes as u64;
                    let limit = Limit::RowBytes(bytes);
                    return SourceError::TooLarge { limit };
                }
                "Packet is larger than max_allowed_packet" | "Packets out of sync" => {
                    return self.protocol("something else than MySQL's packets");
                }
                _ => {}
            }
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

    fn server(&self, code: u16, message: &str, rows_read: u64) -> SourceError {
        let user = || self.settings.user.clone();
        let database = || {
            let other = self.table.database.clone();
            match self.stage {
                Stage::Connect => self.settings.database.clone(),
                Stage::Query => other.unwrap_or_else(|| self.settings.database.clone()),
            }
        };
        match code {
            // A user who must use TLS and does not is told nothing else than one with a wrong password.
            1045 | 1698 => SourceError::AccessDenied {
                user: user(),
                hint: match self.settings.tls {
                    Tls::Disabled => ", and whether it must use TLS (tls is disabled here)",
                    Tls::Required { .. } => "",
                },
            },
            1044 => SourceError::NotAllowed {
                user: user(),
                object: format!("database {:?}", database()),
            },
            1142 | 1143 => SourceError::NotAllowed {
                user: user(),
                object: self.table.to_string(),
            },
            1049 => SourceError::UnknownDatabase {
                database: database(),
            },
            1146 => SourceError::TableMissing {
                table: self.table.to_string(),
            },
            1054 => SourceError::ColumnMissing {
                column: self.missing_column(message),
                table: self.table.to_string(),
            },
            1969 | 3024 => SourceError::Timeout {
                seconds: self.settings.limits.query.as_secs(),
                stage: Stage::Query,
            },
            1053 | 1077 | 1079 | 1152 | 1158..=1161 | 1317 | 1927 | 4031 => self.lost(rows_read),
            3159 => self.tls("the server insists on it; set tls.mode to required"),
            _ => SourceError::Refused {
                code,
                text: refusal(code),
            },
        }
    }

    /// The server names the column in quotes. Only a name that is ours is shown.
    fn missing_column(&self, message: &str) -> String {
        let named = |column: &&&str| message.contains(&format!("'{column}'"));
        match self.columns.iter().find(named) {
            Some(column) => format!("{column:?}"),
            None => format!("of this name, one of {:?}", self.columns),
        }
    }
}

fn tls_cause(error: &rustls::Error) -> &'static str {
    match error {
        rustls::Error::InvalidCertificate(certificate) => match certificate {
            // A renewed authority of the same name shows as a bad signature.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "its certificate is not issued by a trusted authority; check the Secret with the authority's certificate"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "its certificate is not valid for this host name; use a name that it contains"
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "its certificate has expired; renew it on the server"
            }
            _ => "its certificate is not acceptable; check it on the server",
        },
        _ => "the handshake failed; check the TLS versions and ciphers that the server allows",
    }
}

fn refusal(code: u16) -> &'static str {
    match code {
        1040 | 1203 | 1226 => {
            "too many connections; raise its limits, or close connections of other clients"
        }
        1129 | 1130 => {
            "it takes no connections from this address; allow the address for the user there"
        }
        1205 | 1213 => "the table is locked; the next sync tries again",
        1251 | 1524 => {
            "it does not know the user's authentication method; change the user's method there"
        }
        1356 => {
            "the view refers to tables, columns or functions that are missing or forbidden; mend the view or the \
             rights of its definer"
        }
        1820 | 1862 => "the user's password has expired; renew it, also in the Secret",
        _ => "look the number up in its error reference",
    }
}
