//! Every column type, as the text that a template sees.

mod mariadb_types;
mod postgresql_types;

use lynqgate::decide::hub::rows::activity::{Activity, Words};

use crate::cluster::database::Product;
use crate::datasource::{columns, create, query, read, settings, shared, source};

/// Column type, SQL value, text.
type Case = (&'static str, &'static str, Option<&'static str>);

on_each_product!(
    column_types,
    settings_of_the_server_change_no_text,
    a_boolean_switches_a_row,
    bytes_that_are_no_text_arrive_as_they_are,
);

async fn column_types(product: Product) {
    let (types, cases) = match product {
        Product::Mariadb => (&["SET sql_mode = ''"][..], mariadb_types::CASES),
        Product::Postgresql => (&postgresql_types::TYPES[..], postgresql_types::CASES),
    };
    let names: Vec<String> = (0..cases.len()).map(|case| format!("c{case:02}")).collect();
    let definitions: Vec<String> = (names.iter().zip(cases))
        .map(|(name, (kind, ..))| format!("{name} {kind}"))
        .collect();
    let values: Vec<&str> = cases.iter().map(|(_, value, _)| *value).collect();
    let mut statements: Vec<String> = types.iter().map(ToString::to_string).collect();
    statements.extend([
        format!(
            "CREATE TABLE t (uid VARCHAR(63), activate INT, {})",
            definitions.join(", ")
        ),
        format!("INSERT INTO t VALUES ('acme', 1, {})", values.join(", ")),
        "CREATE VIEW v AS SELECT * FROM t".to_owned(),
    ]);
    let database = shared(product).await;
    create(database, "types", &statements).await;

    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    // The same through a view: its columns must keep their types.
    for table in ["t", "v"] {
        let source = source(product, settings(database, "types", table));
        let rows = read(&source, &columns(&names)).await.expect(table);
        assert_eq!(rows.len(), 1, "{table}");
        for ((kind, value, expected), found) in cases.iter().zip(&rows[0][2..]) {
            assert_eq!(found.as_deref(), *expected, "{table}: {kind} {value}");
        }
    }
}

/// Such as an administrator may choose for a user or a database.
async fn settings_of_the_server_change_no_text(product: Product) {
    let database = shared(product).await;
    let statements = [
        "CREATE TABLE t (uid VARCHAR(9), activate INT, f DOUBLE PRECISION, d DATE)",
        "INSERT INTO t VALUES ('acme', 1, 0.1234567890123456, '2024-01-31')",
    ];
    create(database, "chosen", &statements).await;
    let mut expected = vec!["acme", "1", "0.1234567890123456", "2024-01-31T00:00:00Z"];
    let mut names = vec!["f", "d"];
    if product == Product::Postgresql {
        query(
            database,
            "chosen",
            "ALTER TABLE t ADD z TIMESTAMPTZ, ADD i INTERVAL",
        )
        .await;
        let fill = "UPDATE t SET z = '2024-01-31 10:00:00+00', i = '1 day 02:00:00'";
        query(database, "chosen", fill).await;
        for (name, value) in [
            ("datestyle", "'German'"),
            ("intervalstyle", "'iso_8601'"),
            ("timezone", "'Asia/Kolkata'"),
            ("extra_float_digits", "-10"),
            ("bytea_output", "'escape'"),
            ("default_transaction_read_only", "on"),
        ] {
            let set = format!("ALTER DATABASE chosen SET {name} = {value}");
            database.execute(&set).await.expect(name);
        }
        // The order in which they are read is that of their names.
        names.extend(["i", "z"]);
        expected.extend(["1 day 02:00:00", "2024-01-31T10:00:00Z"]);
    }
    let columns = columns(&names);
    let source = source(product, settings(database, "chosen", "t"));
    let rows = read(&source, &columns).await.expect("rows");
    let mut found: Vec<&str> = rows[0].iter().flatten().map(String::as_str).collect();
    found[2..].sort_unstable();
    expected[2..].sort_unstable();
    assert_eq!(found, expected);
}

async fn a_boolean_switches_a_row(product: Product) {
    let database = shared(product).await;
    let bit = match product {
        Product::Mariadb => ("b'1'", "b'0'"),
        Product::Postgresql => ("B'1'", "B'0'"),
    };
    for (name, kind, (on, off)) in [
        ("switch_boolean", "BOOLEAN", ("TRUE", "FALSE")),
        ("switch_bit", "BIT(1)", bit),
        ("switch_int", "INT", ("1", "0")),
        ("switch_text", "VARCHAR(9)", ("'yes'", "'no'")),
        ("switch_padded", "CHAR(9)", ("'1'", "' n'")),
    ] {
        let statements = [
            format!("CREATE TABLE t (uid INT, activate {kind})"),
            format!("INSERT INTO t VALUES (1, {on}), (0, {off})"),
        ];
        create(database, name, &statements).await;
        let source = source(product, settings(database, name, "t"));
        let rows = read(&source, &columns(&[])).await.expect("rows");
        for row in rows {
            let activity = Words::default().judge(row[1].as_ref().expect("no NULL").as_bytes());
            let expected = match row[0].as_deref() {
                Some("1") => Activity::Active,
                _ => Activity::Inactive,
            };
            assert_eq!(activity, expected, "{kind}: {row:?}");
        }
    }
}

async fn bytes_that_are_no_text_arrive_as_they_are(product: Product) {
    let database = shared(product).await;
    let statements = match product {
        Product::Mariadb => [
            "CREATE TABLE t (uid LONGBLOB, activate INT)",
            "INSERT INTO t VALUES (x'61FF00', 1), (REPEAT(x'FE', 300000), 1)",
        ],
        Product::Postgresql => [
            "CREATE TABLE t (uid BYTEA, activate INT)",
            "INSERT INTO t VALUES ('\\x61FF00', 1), (decode(repeat('FE', 300000), 'hex'), 1)",
        ],
    };
    create(database, "raw", &statements).await;
    let mut uids = Vec::new();
    source(product, settings(database, "raw", "t"))
        .rows(&columns(&[]), |row| uids.push(row.values[0].clone()))
        .await
        .expect("a complete result");
    let long = vec![0xfe; 300_000];
    assert_eq!(uids, [Some(vec![0x61, 0xff, 0x00]), Some(long)]);
}
