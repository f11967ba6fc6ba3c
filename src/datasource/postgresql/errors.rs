//! Translates errors of the driver and the server. Never passes the server's texts on: its codes say enough, in any language.

use std::error::Error as _;
use std::io;

use tokio_postgres::Error;
use tokio_postgres::error::{DbError, ErrorPosition};

use crate::datasource::database::{Context, Tls};
use crate::datasource::error::{SourceError, Stage};
use crate::datasource::postgresql::sql;
use crate::datasource::postgresql::wire::WireError;

pub fn explain(context: Context<'_>, error: &Error, rows_read: u64) -> SourceError {
    if let Some(of_server) = error.as_db_error() {
        return server(context, of_server, rows_read);
    }
    if error.is_closed() {
        return context.lost(rows_read);
    }
    let io = (error.source()).and_then(|cause| cause.downcast_ref::<io::Error>());
    // The driver does not export what kind of error it is.
    match (error.to_string().as_str(), io) {
        ("error communicating with the server", Some(io)) => {
            match io.get_ref().and_then(|inner| inner.downcast_ref()) {
                Some(WireError::Method(method)) => unsupported(context, method),
                Some(WireError::TooLarge) if context.stage == Stage::Query => {
                    context.row_too_large()
                }
                Some(WireError::TooLarge) => {
                    context.protocol("something else than PostgreSQL's messages")
                }
                None => context.io(io, rows_read),
            }
        }
        ("authentication error", Some(_)) => {
            context.protocol("its part of the log-in does not fit the password")
        }
        ("authentication error", None) => unsupported(context, "a method that is not known"),
        // The server asks for a password, and the hub has none.
        ("invalid configuration", _) => context.access_denied(),
        _ => context.protocol("a message out of place"),
    }
}

fn unsupported(context: Context<'_>, method: &'static str) -> SourceError {
    SourceError::AuthUnsupported {
        user: context.settings.user.clone(),
        method,
        methods: "a password, with scram-sha-256 in the server's pg_hba.conf",
    }
}

fn server(context: Context<'_>, error: &DbError, rows_read: u64) -> SourceError {
    let code = error.code().code();
    // An error in what a view calls has no place in our statement.
    let position = match error.position() {
        Some(ErrorPosition::Original(position)) => Some(*position),
        _ => None,
    };
    match (code, context.stage) {
        ("28P01", _) => context.access_denied(),
        ("28000", _) => context.denied(match context.settings.tls {
            Tls::Disabled => {
                "check the user name and the Secret with the password, and that the server's pg_hba.conf lets it in from here by a \
                 password and without TLS (tls is disabled here)"
            }
            Tls::Required { .. } | Tls::VerifyCa { .. } => {
                "check the user name and the Secret with the password, and that the server's pg_hba.conf lets it in from here by a \
                 password, without a certificate of its own"
            }
        }),
        ("53300", _) => SourceError::TooManyConnections { code: shown(code) },
        ("3D000", _) => SourceError::UnknownDatabase {
            database: context.settings.database.clone(),
        },
        ("42501", Stage::Connect) => SourceError::NotAllowed {
            user: context.settings.user.clone(),
            object: format!("database {:?}", context.settings.database),
            right: "CONNECT on it",
        },
        ("42501", Stage::Query) => SourceError::NotAllowed {
            user: context.settings.user.clone(),
            object: context.table.to_string(),
            right: "SELECT on it, and USAGE on its schema",
        },
        ("42P01", _) if position.is_some() => context.table_missing(),
        ("42703", _) => {
            let column = position.and_then(|position| sql::column_at(context.columns, position));
            context.column_missing(column)
        }
        ("57P03", _) => context.unreachable("it is starting, stopping or recovering"),
        // The server's own time limit is later than ours, so something else cancelled the query.
        ("57014" | "57P01" | "57P02" | "57P05" | "25P03" | "25P04", _) => context.lost(rows_read),
        _ => SourceError::Refused {
            code: shown(code),
            text: refusal(code),
        },
    }
}

/// Shows a code of five letters or digits; anything else could be any text of the server.
fn shown(code: &str) -> String {
    let valid = |c: u8| c.is_ascii_digit() || c.is_ascii_uppercase();
    match code.len() == 5 && code.bytes().all(valid) {
        true => code.to_owned(),
        false => "without a valid code".to_owned(),
    }
}

fn refusal(code: &str) -> &'static str {
    match code {
        "40001" => {
            "it was updated meanwhile and broke the query off; the next sync tries again (on a standby, \
             hot_standby_feedback avoids it)"
        }
        "40P01" | "55P03" => "the table is locked; the next sync tries again",
        "25006" => "reading it would change data; read a table or a view that changes nothing",
        "42809" => "what has this name is no table or view; correct the name",
        "42P01" | "42883" | "42704" => {
            "the view refers to tables, functions or types that are missing; correct the view"
        }
        "55000" => "it cannot be read now; a materialized view has to be refreshed first",
        _ if code.starts_with("22") => {
            "the database cannot compute the view from its data; correct the view or the data"
        }
        _ => "look the code up in its documentation",
    }
}
