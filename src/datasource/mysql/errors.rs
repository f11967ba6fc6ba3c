//! Translates errors of the driver and the server. Reads the server's texts, but never passes them on.

use std::io;

use mysql_async::{DriverError, Error, IoError, LocalInfileError, TlsError};

use crate::datasource::database::Context;
use crate::datasource::error::{SourceError, Stage};

pub fn explain(context: Context<'_>, error: &Error, rows_read: u64) -> SourceError {
    match error {
        Error::Server(of_server) => server(context, of_server.code, &of_server.message, rows_read),
        Error::Io(IoError::Io(error)) => io(context, error, rows_read),
        // These come before the handshake; errors of the handshake itself are I/O errors.
        Error::Io(IoError::Tls(TlsError::InvalidDnsName(_))) => context.no_server_name(),
        Error::Io(IoError::Tls(_)) => context.no_authority(),
        Error::Driver(DriverError::NoClientSslFlagFromServer) => context.no_tls_offered(),
        Error::Driver(DriverError::ConnectionClosed) => context.lost(rows_read),
        Error::Driver(DriverError::UnknownAuthPlugin { name }) => {
            unsupported(context, method(name))
        }
        Error::Driver(DriverError::MysqlOldPasswordDisabled) => {
            unsupported(context, "mysql_old_password")
        }
        Error::Driver(DriverError::CleartextPluginDisabled) => unsupported(
            context,
            "a password in clear (mysql_clear_password: PAM, LDAP or the identity of a cloud) without TLS (tls is disabled here)",
        ),
        Error::Driver(DriverError::LocalInfile(LocalInfileError::NoHandler)) => {
            context.protocol("it asked for a file of this machine")
        }
        _ => context.protocol("a packet out of place"),
    }
}

fn unsupported(context: Context<'_>, method: &'static str) -> SourceError {
    SourceError::AuthUnsupported {
        user: context.settings.user.clone(),
        method,
        methods: "ed25519 (MariaDB), caching_sha2_password (MySQL) or mysql_native_password",
    }
}

/// Our own name for an authentication method of the server.
fn method(name: &str) -> &'static str {
    match name {
        "dialog" => "PAM (dialog)",
        "auth_gssapi_client" => "GSSAPI (auth_gssapi_client)",
        "authentication_kerberos_client" => "Kerberos (authentication_kerberos_client)",
        "authentication_ldap_sasl_client" => "LDAP (authentication_ldap_sasl_client)",
        "authentication_windows_client" => "Windows (authentication_windows_client)",
        "authentication_webauthn_client" | "authentication_fido_client" => {
            "a security key (WebAuthn)"
        }
        "authentication_openid_connect_client" => "OpenID Connect",
        "authentication_oci_client" => "the identity of a cloud (authentication_oci_client)",
        "sha256_password" => "sha256_password",
        _ => "a method that is not known",
    }
}

fn io(context: Context<'_>, error: &io::Error, rows_read: u64) -> SourceError {
    // The driver does not export the type of its packet errors.
    let inner = error.get_ref().map(ToString::to_string);
    match inner.as_deref() {
        Some("Packet is larger than max_allowed_packet") if context.stage == Stage::Query => {
            context.row_too_large()
        }
        Some("Packet is larger than max_allowed_packet" | "Packets out of sync") => {
            context.protocol("something else than MySQL's packets")
        }
        _ => context.io(error, rows_read),
    }
}

fn server(context: Context<'_>, code: u16, message: &str, rows_read: u64) -> SourceError {
    let user = || context.settings.user.clone();
    let database = || {
        let other = context.table.schema.clone();
        match context.stage {
            Stage::Connect => context.settings.database.clone(),
            Stage::Query => other.unwrap_or_else(|| context.settings.database.clone()),
        }
    };
    match code {
        1045 => context.access_denied(),
        // MariaDB also sends this for an unknown user.
        1698 => context.denied(
            "check the user name; if it is right, the user logs in without a password (unix_socket, auth_socket or GSSAPI), which \
             is not supported here: give it ed25519 (MariaDB), caching_sha2_password (MySQL) or mysql_native_password",
        ),
        1040 | 1203 | 1226 => SourceError::TooManyConnections {
            code: code.to_string(),
        },
        1044 => SourceError::NotAllowed {
            user: user(),
            object: format!("database {:?}", database()),
            right: "SELECT on it",
        },
        1142 | 1143 => SourceError::NotAllowed {
            user: user(),
            object: context.table.to_string(),
            right: "SELECT on it",
        },
        1049 => SourceError::UnknownDatabase {
            database: database(),
        },
        1146 => context.table_missing(),
        1054 => context.column_missing(missing_column(context, message)),
        1969 | 3024 => SourceError::Timeout {
            seconds: context.settings.limits.query.as_secs(),
            stage: Stage::Query,
        },
        1053 | 1077 | 1079 | 1152 | 1158..=1161 | 1317 | 1927 | 4031 => context.lost(rows_read),
        3159 => context.tls("the server insists on it; set tls.mode to required"),
        _ => SourceError::Refused {
            code: code.to_string(),
            text: refusal(code),
        },
    }
}

/// The server quotes the column. Only one of our own column names is passed on.
fn missing_column<'a>(context: Context<'a>, message: &str) -> Option<&'a str> {
    let named = |column: &&&str| message.contains(&format!("'{column}'"));
    context.columns.iter().find(named).copied()
}

fn refusal(code: u16) -> &'static str {
    match code {
        1129 | 1130 => {
            "it takes no connections from this address; allow the address for the user there"
        }
        1205 | 1213 => "the table is locked; the next sync tries again",
        1251 | 1524 => {
            "it does not know the user's authentication method; change the user's method there"
        }
        1792 => "reading it would change data; read a table or a view that changes nothing",
        3118 | 4151 => "the user's account is locked; unlock it there",
        3955 | 4150 => "the user is blocked after too many log-ins that failed; unblock it there",
        1356 => {
            "the view refers to tables, columns or functions that are missing or forbidden; correct the view or the rights of its definer"
        }
        1820 | 1862 => "the user's password has expired; renew it, also in the Secret",
        _ => "look the number up in its error reference",
    }
}
