//! What is asked, and what of it the database says is missing or forbidden.

use lynqgate::datasource::SourceError;
use lynqgate::decide::rows::{Collector, Columns};

use crate::datasource::database::Database;
use crate::datasource::{columns, read, settings, source};

#[tokio::test]
async fn odd_identifiers_are_quoted() {
    let database = Database::shared();
    let long = "l".repeat(64);
    let names = [
        "plain",
        "with space",
        "back`tick",
        "`t` ; drop",
        "t` ; DROP TABLE victim; -- x",
        "qu'ote\"s",
        "t\u{e4}bl\u{e9} \u{65e5}\u{672c}",
        "select",
        "100%",
        &long,
    ];
    let quote = |name: &str| format!("`{}`", name.replace('`', "``"));
    let mut statements = vec!["CREATE TABLE victim (a INT)".to_owned()];
    for name in names {
        let column = quote(name);
        statements.push(format!(
            "CREATE TABLE {column} (uid VARCHAR(9), activate INT, {column} INT)"
        ));
        statements.push(format!("INSERT INTO {column} VALUES ('acme', 1, 7)"));
    }
    let statements: Vec<&str> = statements.iter().map(String::as_str).collect();
    database.schema("odd `names`", &statements).await;
    for name in names {
        let source = source(settings(database, "odd `names`", name));
        let rows = read(&source, &columns(&[name])).await;
        let expected = ["acme", "1", "7"]
            .map(|text| Some(text.to_owned()))
            .to_vec();
        assert_eq!(rows, Ok(vec![expected]), "{name:?}");
    }
    let victims = database
        .query("SELECT table_name FROM information_schema.tables WHERE table_name = 'victim'")
        .await;
    assert_eq!(victims, ["victim"]);
}

#[tokio::test]
async fn tables_of_other_databases_and_views() {
    let database = Database::shared();
    let statements = [
        "CREATE TABLE `other-t` (uid VARCHAR(9), activate INT)",
        "INSERT INTO `other-t` VALUES ('acme', 1), ('zeta', 0)",
        "CREATE VIEW active AS SELECT * FROM `other-t` WHERE activate = 1",
    ];
    database.schema("other", &statements).await;
    database.schema("home", &[]).await;
    let cases = [
        ("other.other-t", 2),
        ("other.active", 1),
        ("`other`.`other-t`", 2),
    ];
    for (table, expected) in cases {
        let source = source(settings(database, "home", table));
        let rows = read(&source, &columns(&[])).await.expect(table);
        assert_eq!(rows.len(), expected, "{table}");
    }
}

#[tokio::test]
async fn a_column_mapped_twice_is_read_once() {
    let database = Database::shared();
    let statements = [
        "CREATE TABLE t (uid VARCHAR(9), activate INT, plan VARCHAR(9))",
        "INSERT INTO t VALUES ('acme', 1, 'pro')",
    ];
    database.schema("twice", &statements).await;
    let columns = Columns {
        host_or_url: Some("uid".into()),
        extra: [("a".into(), "plan".into()), ("b".into(), "plan".into())].into(),
        ..columns(&[])
    };
    let source = source(settings(database, "twice", "t"));
    assert_eq!(read(&source, &columns).await.expect("rows")[0].len(), 3);
    let mut collector = Collector::new(&columns);
    let read = source.rows(&columns, |row| collector.push(row)).await;
    let rows = collector.finish(read.expect("rows")).rows;
    let variables = &rows["acme"].variables;
    assert_eq!(
        ["hostOrUrl", "a", "b"].map(|name| variables[name].as_str()),
        ["acme", "pro", "pro"]
    );
}

#[tokio::test]
async fn an_empty_table_is_a_complete_result() {
    let database = Database::shared();
    database
        .schema("empty", &["CREATE TABLE t (uid INT, activate INT)"])
        .await;
    let source = source(settings(database, "empty", "t"));
    assert_eq!(read(&source, &columns(&[])).await, Ok(Vec::new()));
}

#[tokio::test]
async fn a_row_limit_of_the_server_does_not_cut_the_result() {
    let database = Database::start(&[]);
    let statements = [
        "CREATE TABLE t (uid VARCHAR(9), activate INT)",
        "INSERT INTO t VALUES ('a', 1), ('b', 1), ('c', 1)",
    ];
    database.schema("cut", &statements).await;
    database.query("SET GLOBAL sql_select_limit = 1").await;
    assert_eq!(
        database.query("SELECT uid FROM cut.t").await.len(),
        1,
        "other clients are limited"
    );
    let source = source(settings(&database, "cut", "t"));
    assert_eq!(read(&source, &columns(&[])).await.expect("rows").len(), 3);
}

#[tokio::test]
async fn refusals() {
    let database = Database::shared();
    let statements = [
        "CREATE TABLE t (uid VARCHAR(9), activate INT)",
        "CREATE TABLE gone (uid VARCHAR(9), activate INT)",
        "CREATE VIEW broken AS SELECT * FROM gone",
        "DROP TABLE gone",
        "CREATE USER 'mary'@'localhost' IDENTIFIED BY 'right'",
        "CREATE USER 'peter'@'localhost' IDENTIFIED BY 'right'",
        "CREATE TABLE free (uid VARCHAR(9), activate INT)",
        "GRANT SELECT ON refuse.free TO 'peter'@'localhost'",
    ];
    database.schema("refuse", &statements).await;
    type Case<'a> = (
        &'a str,
        &'a str,
        &'a str,
        &'a str,
        &'a str,
        &'a [&'a str],
        &'a str,
    );
    // Name, user, password, database, table, extra columns, message.
    let cases: &[Case] = &[
        (
            "wrong password",
            "mary",
            "wrong-canary",
            "refuse",
            "t",
            &[],
            "the database denies user \"mary\" access; check the user name and the Secret with the password, and whether \
             it must use TLS (tls is disabled here)",
        ),
        (
            "no password",
            "mary",
            "",
            "refuse",
            "t",
            &[],
            "the database denies user \"mary\" access; check the user name and the Secret with the password, and whether \
             it must use TLS (tls is disabled here)",
        ),
        (
            "no right to the database",
            "mary",
            "right",
            "refuse",
            "t",
            &[],
            "the database lets user \"mary\" in, but not read database \"refuse\"; GRANT it SELECT on it, or correct the \
             name",
        ),
        (
            "no right to the table",
            "peter",
            "right",
            "refuse",
            "t",
            &[],
            "the database lets user \"peter\" in, but not read `t`; GRANT it SELECT on it, or correct the name",
        ),
        (
            "unknown database",
            "root",
            "",
            "nowhere",
            "t",
            &[],
            "there is no database \"nowhere\" on the server; check its name",
        ),
        (
            "unknown table",
            "root",
            "",
            "refuse",
            "tt",
            &[],
            "there is no table or view `tt`; create it, or correct the name (anything but a name belongs into a view)",
        ),
        (
            "SQL instead of a table",
            "root",
            "",
            "refuse",
            "t WHERE 1=1",
            &[],
            "there is no table or view `t WHERE 1=1`; create it, or correct the name (anything but a name belongs into a \
             view)",
        ),
        (
            "unknown column",
            "root",
            "",
            "refuse",
            "t",
            &["planId", "uid"],
            "`t` has no column \"planId\"; correct the hub's value mappings or the table",
        ),
        (
            "broken view",
            "root",
            "",
            "refuse",
            "broken",
            &[],
            "the database refused with error 1356: the view refers to tables, columns or functions that are missing \
             or forbidden; mend the view or the rights of its definer",
        ),
    ];
    for (name, user, password, schema, table, extra, expected) in cases {
        let mut settings = settings(database, schema, table);
        settings.user = (*user).into();
        settings.password = (*password).to_owned().into();
        let error = read(&source(settings), &columns(extra))
            .await
            .expect_err(name);
        assert_eq!(error.to_string(), *expected, "{name}");
    }
}

#[tokio::test]
async fn a_column_that_goes_away_is_named_and_comes_back() {
    let database = Database::shared();
    let statements = [
        "CREATE TABLE t (uid VARCHAR(9), activate INT, plan INT)",
        "INSERT INTO t VALUES ('acme', 1, 7)",
    ];
    database.schema("alter", &statements).await;
    let source = source(settings(database, "alter", "t"));
    let columns = columns(&["plan"]);
    assert_eq!(read(&source, &columns).await.expect("rows").len(), 1);
    database
        .query("ALTER TABLE alter.t RENAME COLUMN plan TO gone")
        .await;
    let missing = SourceError::ColumnMissing {
        column: "\"plan\"".into(),
        table: "`t`".into(),
    };
    assert_eq!(read(&source, &columns).await, Err(missing));
    database
        .query("ALTER TABLE alter.t RENAME COLUMN gone TO plan")
        .await;
    assert_eq!(read(&source, &columns).await.expect("rows").len(), 1);
}
