//! A server that is set up in its own way gives the rows that any other gives; and its certificate may have no name.

use std::time::Duration;

use lynqgate::datasource::SourceError;
use lynqgate::datasource::database::{Settings, Tls};
use mysql_async::prelude::Queryable;
use rcgen::{CertificateParams, DnType, KeyPair};
use tokio::time::timeout;

use crate::cluster::database::{Database, Options, Product};
use crate::cluster::wait;
use crate::datasource::tls::{authority, required};
use crate::datasource::{columns, query, read, settings, source, start_with};

on_each_product!(the_servers_configuration_changes_no_row);

/// One server for all of it, whose settings are added one to the other.
async fn the_servers_configuration_changes_no_row(product: Product) {
    let ours = authority("ours");
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![]).unwrap();
    let name = &mut params.distinguished_name;
    name.push(DnType::CommonName, "project:instance");
    let certificate = params.signed_by(&key, &ours).unwrap();
    let options = Options {
        tls: Some((certificate.pem(), key.serialize_pem())),
        arguments: match product {
            Product::Mariadb => &[
                "--skip-character-set-client-handshake",
                "--character-set-server=latin1",
            ],
            Product::Postgresql => &[],
        },
        ..Options::default()
    };
    let database = start_with(product, &options).await;
    let create = match product {
        Product::Mariadb => "CREATE DATABASE shop",
        Product::Postgresql => {
            "CREATE DATABASE shop ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'"
        }
    };
    database.execute(create).await.unwrap();
    for statement in prepared(product) {
        query(&database, "shop", statement).await;
    }
    let settings = settings(&database, "shop", "t");
    let good = rows(&settings, product).await.expect("rows");
    let name = match product {
        Product::Mariadb => "M\u{fc}ller \u{65e5}\u{672c}",
        Product::Postgresql => "M\u{fc}ller",
    };
    let first = ["acme", "1", "2026-03-28T23:30:00Z", name];
    assert_eq!(good[0], first.map(|text| Some(text.to_owned())));
    assert_eq!(good.len(), 3);

    names_of_the_certificate(product, &settings, &ours.pem()).await;
    methods(product, &database, &settings, &ours.pem()).await;
    what_is_mapped(product, &settings).await;
    one_connection(product, &settings).await;

    let aborted = aborted(&database).await;
    for setting in added(product) {
        query(&database, "shop", setting).await;
        assert_eq!(
            rows(&settings, product).await,
            Ok(good.clone()),
            "{setting}"
        );
    }
    match product {
        Product::Mariadb => {
            // What somebody is about to delete, and takes back.
            let admin = mysql_async::OptsBuilder::default()
                .socket(Some(database.socket().display().to_string()))
                .user(Some("root"))
                .db_name(Some("shop"));
            let mut admin = mysql_async::Conn::new(admin).await.unwrap();
            admin.query_drop("START TRANSACTION").await.unwrap();
            admin.query_drop("DELETE FROM t").await.unwrap();
            assert_eq!(rows(&settings, product).await, Ok(good.clone()));
            admin.query_drop("ROLLBACK").await.unwrap();
            admin.disconnect().await.unwrap();
        }
        Product::Postgresql => {
            database.stop().await.unwrap();
            let signal = database.group().directory().join("data/standby.signal");
            std::fs::write(signal, "").unwrap();
            database.start_again().await.unwrap();
            let standby = query(&database, "shop", "SELECT pg_is_in_recovery()").await;
            assert_eq!(standby, ["t"]);
            assert_eq!(rows(&settings, product).await, Ok(good.clone()));
        }
    }
    let find = match product {
        Product::Mariadb => "SELECT user FROM information_schema.processlist WHERE user = 'reader'",
        Product::Postgresql => "SELECT usename FROM pg_stat_activity WHERE usename = 'reader'",
    };
    let left = wait::until(
        "no connection is left",
        Duration::from_secs(10),
        async || {
            let left = query(&database, "shop", find).await;
            anyhow::ensure!(left.is_empty(), "{left:?}");
            Ok(())
        },
    );
    left.await.unwrap();
    assert_eq!(self::aborted(&database).await, aborted, "each said goodbye");
}

/// In the order of the columns' names: the time, and the name.
async fn rows(
    settings: &Settings,
    product: Product,
) -> Result<Vec<Vec<Option<String>>>, SourceError> {
    read(
        &source(product, settings.clone()),
        &columns(&["made", "name"]),
    )
    .await
}

fn prepared(product: Product) -> Vec<&'static str> {
    match product {
        Product::Mariadb => vec![
            "CREATE TABLE t (uid CHAR(10), activate INT, made TIMESTAMP NOT NULL, name VARCHAR(40) CHARACTER SET utf8mb4)",
            "SET time_zone = '+00:00'; INSERT INTO t VALUES \
                ('acme', 1, '2026-03-28 23:30:00', _utf8mb4 x'4DC3BC6C6C657220E697A5E69CAC'), \
                ('bolt', 1, '2026-06-01 12:00:00', 'plain'), ('coil', 1, '2026-06-01 12:00:00', 'plain')",
            "CREATE VIEW slow AS SELECT uid, 1 + SLEEP(600) activate FROM t",
            "CREATE USER one@'%' IDENTIFIED BY 'right' WITH MAX_USER_CONNECTIONS 1; GRANT SELECT ON *.* TO one@'%'",
        ],
        Product::Postgresql => vec![
            "CREATE TABLE t (uid CHAR(10), activate INT, made TIMESTAMPTZ, name TEXT)",
            "INSERT INTO t VALUES ('acme', 1, '2026-03-28 23:30:00+00', 'M' || chr(252) || 'ller'), \
                ('bolt', 1, '2026-06-01 12:00:00+00', 'plain'), ('coil', 1, '2026-06-01 12:00:00+00', 'plain')",
            "CREATE VIEW slow AS SELECT uid, CASE WHEN pg_sleep(600)::text = '' THEN 1 END activate FROM t",
            "CREATE ROLE one LOGIN PASSWORD 'right' CONNECTION LIMIT 1 IN ROLE pg_read_all_data",
            "CREATE ROLE by_password LOGIN PASSWORD 'right' IN ROLE pg_read_all_data",
        ],
    }
}

fn added(product: Product) -> Vec<&'static str> {
    match product {
        Product::Mariadb => vec![
            "SET GLOBAL time_zone = '+02:00'",
            "SET GLOBAL sql_select_limit = 1",
            "SET GLOBAL wait_timeout = 1",
            "SET GLOBAL tx_isolation = 'READ-UNCOMMITTED'",
            "SET GLOBAL init_connect = 'SET NAMES latin1; SET time_zone = ''+09:00''; SET autocommit = 0; \
                SET sql_mode = ''PAD_CHAR_TO_FULL_LENGTH''; SET sql_select_limit = 1; START TRANSACTION'",
            "SET GLOBAL sql_mode = 'ORACLE,ANSI_QUOTES,PAD_CHAR_TO_FULL_LENGTH,NO_BACKSLASH_ESCAPES'",
            "SET GLOBAL read_only = 1",
        ],
        Product::Postgresql => vec![
            "ALTER ROLE reader SET timezone = '<+02>-02'",
            "ALTER ROLE reader SET client_encoding = 'LATIN1'",
            "ALTER ROLE reader SET datestyle = 'German'",
            "ALTER ROLE reader SET default_transaction_isolation = 'read uncommitted'",
            "ALTER ROLE reader SET idle_in_transaction_session_timeout = 1000",
            "ALTER ROLE reader SET statement_timeout = 1000",
            "ALTER DATABASE shop SET default_transaction_read_only = on",
        ],
    }
}

async fn names_of_the_certificate(product: Product, settings: &Settings, ours: &str) {
    let with = |tls| Settings {
        tls,
        ..settings.clone()
    };
    let any = |pem: &str| {
        with(Tls::VerifyCa {
            ca_pem: pem.as_bytes().to_vec(),
        })
    };
    assert!(
        rows(&any(ours), product).await.is_ok(),
        "its authority is trusted"
    );
    let no_tls = |cause: &str| {
        format!(
            "no TLS with the database at 127.0.0.1:{}: {cause}",
            settings.port
        )
    };
    for (settings, cause) in [
        (
            with(required(ours)),
            "its certificate has no subjectAltName, so that no host name fits it; set tls.mode to verifyCa, which checks the \
             authority alone, or issue a certificate that has one",
        ),
        (
            any(&authority("ours").pem()),
            "its certificate is not issued by a trusted authority; check the Secret with the authority's certificate",
        ),
        (
            any(""),
            "the Secret with the authority's certificate holds no valid PEM certificate",
        ),
    ] {
        let error = rows(&settings, product).await.expect_err(cause);
        assert_eq!(error.to_string(), no_tls(cause));
    }
}

/// Those that the installed server has and that no other test has.
async fn methods(product: Product, database: &Database, settings: &Settings, ours: &str) {
    let login = |user: &str| Settings {
        user: user.to_owned(),
        password: "right".to_owned().into(),
        ..settings.clone()
    };
    if product == Product::Postgresql {
        let mut encrypted = login("by_password");
        encrypted.tls = Tls::VerifyCa {
            ca_pem: ours.as_bytes().to_vec(),
        };
        assert!(rows(&encrypted, product).await.is_ok());
        return;
    }
    let socket =
        "CREATE USER socket@'%' IDENTIFIED VIA unix_socket; GRANT SELECT ON *.* TO socket@'%'";
    database.execute(socket).await.unwrap();
    let error = rows(&login("socket"), product).await.expect_err("a socket");
    assert_eq!(
        error.to_string(),
        "the database denies user \"socket\" access; check the user name; if it is right, the user logs in without a password \
         (unix_socket, auth_socket or GSSAPI), which is not supported here: give it ed25519 (MariaDB), caching_sha2_password (MySQL) \
         or mysql_native_password"
    );
    for (library, method) in [("auth_ed25519", "ed25519"), ("auth_parsec", "parsec")] {
        let install = format!("INSTALL SONAME '{library}'");
        if database.execute(&install).await.is_err() {
            continue;
        }
        let user = format!(
            "CREATE USER {method}@'%' IDENTIFIED VIA {method} USING PASSWORD('right'); GRANT SELECT ON *.* TO {method}@'%'"
        );
        database.execute(&user).await.unwrap();
        assert!(rows(&login(method), product).await.is_ok(), "{method}");
        let mut wrong = login(method);
        wrong.password = "wrong".to_owned().into();
        let error = rows(&wrong, product).await.expect_err(method);
        assert_eq!(error.code(), "AccessDenied", "{method}");
    }
}

/// Found out without a row: a view that takes long is not run.
async fn what_is_mapped(product: Product, settings: &Settings) {
    for (table, extra, expected) in [
        ("t", "name", None),
        ("t", "nane", Some("ColumnMissing")),
        ("tt", "name", Some("TableMissing")),
        ("slow", "uid", None),
    ] {
        let settings = Settings {
            table: table.to_owned(),
            ..settings.clone()
        };
        let (source, columns) = (source(product, settings), columns(&[extra]));
        let checking = timeout(Duration::from_secs(30), source.check(&columns));
        let checked = checking.await.expect("no row is read");
        let found = checked.as_ref().err().map(SourceError::code);
        assert_eq!(found, expected, "{table} {extra}: {checked:?}");
    }
}

/// The server may need a moment to see that the last one is gone.
async fn one_connection(product: Product, settings: &Settings) {
    let one = Settings {
        user: "one".to_owned(),
        password: "right".to_owned().into(),
        ..settings.clone()
    };
    for _ in 0..4 {
        let read = wait::until(
            "one connection is enough",
            Duration::from_secs(10),
            async || Ok(rows(&one, product).await?),
        );
        assert_eq!(read.await.unwrap().len(), 3);
    }
}

/// Connections that ended without a goodbye, as far as the product counts them.
async fn aborted(database: &Database) -> Vec<String> {
    match database.product() {
        Product::Mariadb => {
            let count = "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'Aborted_clients'";
            query(database, "shop", count).await
        }
        Product::Postgresql => vec![],
    }
}
