//! Why rows could not be read, worded for the engineer on call. Contains no text from a server and no secret, because both could
//! leak into a condition, an event or a log.

use std::fmt;

use crate::decide::hub::hosts::Forbidden;
use crate::decide::hub::identifier::InvalidName;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    #[error("cannot reach the database at {}:{port}: {cause}; check source host and port, and that the network allows it", host.escape_debug())]
    Unreachable {
        host: String,
        port: u16,
        cause: &'static str,
    },
    #[error("no TLS with the database at {}:{port}: {cause}", host.escape_debug())]
    Tls {
        host: String,
        port: u16,
        cause: &'static str,
    },
    #[error("the database did not finish {stage} within {seconds} s; {}", stage.remedy())]
    Timeout { seconds: u64, stage: Stage },
    #[error("lynqgate may not connect to the database at {}:{port}: {why}", host.escape_debug())]
    HostForbidden {
        host: String,
        port: u16,
        why: Forbidden,
    },
    #[error("the database denies user {user:?} access; {check}")]
    AccessDenied { user: String, check: &'static str },
    #[error(
        "the database authenticates user {user:?} by {method}, which is not supported here; give the user {methods}"
    )]
    AuthUnsupported {
        user: String,
        method: &'static str,
        methods: &'static str,
    },
    #[error(
        "the database does not give a session the {setting} that lynqgate sets{}, so that its rows could be read wrongly; check \
         init_connect, and proxies in between", code.as_ref().map(|code| format!(" (error {code})")).unwrap_or_default()
    )]
    Session {
        setting: &'static str,
        /// The server's error code for setting it; None if the server accepted it but reads it back as another value.
        code: Option<String>,
    },
    #[error(
        "the database refused with error {code}: too many connections; raise its limits, or close connections of other clients"
    )]
    TooManyConnections { code: String },
    #[error(
        "the database lets user {user:?} in, but not read {object}; GRANT it {right}, or correct the name"
    )]
    NotAllowed {
        user: String,
        object: String,
        right: &'static str,
    },
    #[error("there is no database {database:?} on the server; check its name")]
    UnknownDatabase { database: String },
    #[error(
        "there is no table or view {table}; create it, or correct the name (for a query, create a view and give its name)"
    )]
    TableMissing { table: String },
    #[error("{table} has no column {column}; add it, or correct the hub's value mappings")]
    ColumnMissing { column: String, table: String },
    #[error(transparent)]
    InvalidName(#[from] InvalidName),
    #[error(
        "the connection to the database broke after {rows_read} rows; nothing was concluded from them, and the next sync reads again"
    )]
    Interrupted { rows_read: u64 },
    #[error(
        "the result is too large: {limit}; read fewer rows or columns, for example through a view"
    )]
    TooLarge { limit: Limit },
    #[error(
        "the server at {}:{port} does not keep to the protocol ({cause}); check that host and port are those of the database", host.escape_debug()
    )]
    Protocol {
        host: String,
        port: u16,
        cause: &'static str,
    },
    #[error("the database refused with error {code}: {text}")]
    Refused { code: String, text: &'static str },
    #[error("line {line} of the rows cannot be read: {cause}")]
    Malformed { line: u64, cause: &'static str },
    #[error(
        "column {column:?} of row {row} is a list or a mapping; give a text, a number, a boolean or null"
    )]
    Nested { row: u64, column: String },
    #[error(
        "column {column:?} of row {row} would lose how it is written, since YAML takes it for a number or a boolean (01234, 1.20, +49, 1e3, yes, NO); \
         write it in quotes"
    )]
    Lost { row: u64, column: String },
    #[error("row {row} is no mapping from a column's name to its value")]
    NoMapping { row: u64 },
}

impl SourceError {
    /// Whether only a change to the hub or to the table's columns can fix it. Any other cause may be about to disappear.
    pub fn is_certain(&self) -> bool {
        use SourceError::*;
        matches!(
            self,
            ColumnMissing { .. } | InvalidName(_) | HostForbidden { .. }
        )
    }

    /// Whether the fault is in what the hub asks for, or in the rows, while the source itself answers.
    pub fn is_of_the_data(&self) -> bool {
        use SourceError::*;
        let is_written = matches!(
            self,
            Malformed { .. } | Nested { .. } | Lost { .. } | NoMapping { .. } | TooLarge { .. }
        );
        let is_missing = matches!(self, UnknownDatabase { .. } | TableMissing { .. });
        self.is_certain() || is_missing || is_written
    }

    /// Turns a rejection of this setting into a session error.
    pub fn of_session(self, setting: &'static str) -> Self {
        match self {
            Self::Refused { code, .. } => Self::Session {
                setting,
                code: Some(code),
            },
            other => other,
        }
    }

    /// Whether the server is ready for the next command, so that the connection can be closed in order.
    pub fn is_answer(&self) -> bool {
        use SourceError::*;
        !matches!(
            self,
            Timeout { .. }
                | Interrupted { .. }
                | TooLarge { .. }
                | Protocol { .. }
                | Unreachable { .. }
        )
    }

    /// For conditions, events and metric labels.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "Unreachable",
            Self::Tls { .. } => "TlsFailed",
            Self::Timeout { .. } => "Timeout",
            Self::HostForbidden { .. } => "HostForbidden",
            Self::AccessDenied { .. } => "AccessDenied",
            Self::AuthUnsupported { .. } => "AuthUnsupported",
            Self::NotAllowed { .. } => "NotAllowed",
            Self::UnknownDatabase { .. } => "UnknownDatabase",
            Self::TableMissing { .. } => "TableMissing",
            Self::ColumnMissing { .. } => "ColumnMissing",
            Self::InvalidName(_) => "InvalidName",
            Self::Interrupted { .. } => "Interrupted",
            Self::TooLarge { .. } => "TooLarge",
            Self::Protocol { .. } => "Protocol",
            Self::Session { .. } => "Session",
            Self::TooManyConnections { .. } | Self::Refused { .. } => "Refused",
            Self::Malformed { .. } => "Malformed",
            Self::Nested { .. } | Self::Lost { .. } | Self::NoMapping { .. } => "Malformed",
        }
    }
}

/// The step that a time limit ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Connect,
    Query,
}

impl Stage {
    fn remedy(self) -> &'static str {
        match self {
            Self::Connect => "check source host and port, and whether the server is overloaded",
            Self::Query => "make the table or view faster, or smaller",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "connecting",
            Self::Query => "the query",
        })
    }
}

/// The bound that a result went over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    Rows(u64),
    Bytes(u64),
    RowBytes(u64),
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rows(rows) => write!(f, "over {rows} rows"),
            Self::Bytes(bytes) => write!(f, "over {bytes} bytes"),
            Self::RowBytes(bytes) => write!(f, "a row of over {bytes} bytes"),
        }
    }
}
