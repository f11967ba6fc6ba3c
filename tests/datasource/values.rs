//! Every column type of MariaDB, as the text that a template sees.

use crate::datasource::database::Database;
use crate::datasource::{columns, read, settings, source};

/// Column type, SQL value, text.
const CASES: &[(&str, &str, Option<&str>)] = &[
    ("TINYINT", "-128", Some("-128")),
    ("TINYINT UNSIGNED", "255", Some("255")),
    ("SMALLINT", "-32768", Some("-32768")),
    ("MEDIUMINT", "8388607", Some("8388607")),
    ("INT", "-2147483648", Some("-2147483648")),
    ("INT UNSIGNED", "4294967295", Some("4294967295")),
    ("INT(6) ZEROFILL", "42", Some("000042")),
    (
        "BIGINT",
        "-9223372036854775808",
        Some("-9223372036854775808"),
    ),
    ("BIGINT", "9007199254740993", Some("9007199254740993")),
    (
        "BIGINT UNSIGNED",
        "18446744073709551615",
        Some("18446744073709551615"),
    ),
    ("BOOLEAN", "TRUE", Some("1")),
    ("BOOLEAN", "FALSE", Some("0")),
    ("BIT(1)", "b'1'", Some("1")),
    ("BIT(1)", "b'0'", Some("0")),
    ("BIT(1)", "NULL", None),
    ("BIT(16)", "258", Some("258")),
    (
        "BIT(64)",
        "18446744073709551615",
        Some("18446744073709551615"),
    ),
    ("DECIMAL(10,2)", "1234567.10", Some("1234567.10")),
    ("DECIMAL(10,0)", "1000000", Some("1000000")),
    (
        "DECIMAL(65,30)",
        "-12345678901234567890123456789012345.000000000000000000000000000001",
        Some("-12345678901234567890123456789012345.000000000000000000000000000001"),
    ),
    ("DOUBLE", "1000000", Some("1000000")),
    ("DOUBLE", "12345678.5", Some("12345678.5")),
    ("DOUBLE", "1e20", Some("100000000000000000000")),
    ("DOUBLE", "1e21", Some("1e+21")),
    ("DOUBLE", "-0.00001", Some("-1e-05")),
    ("DOUBLE", "0.1", Some("0.1")),
    ("DOUBLE(8,2)", "1.50", Some("1.5")),
    ("FLOAT", "1000000", Some("1000000")),
    ("FLOAT", "0.1", Some("0.1")),
    ("FLOAT", "1.5", Some("1.5")),
    ("YEAR", "2024", Some("2024")),
    ("DATE", "'2024-01-31'", Some("2024-01-31T00:00:00Z")),
    ("DATE", "'0000-00-00'", Some("0001-01-01T00:00:00Z")),
    (
        "DATETIME",
        "'2024-01-31 10:11:12'",
        Some("2024-01-31T10:11:12Z"),
    ),
    (
        "DATETIME(6)",
        "'2024-01-31 10:11:12.500000'",
        Some("2024-01-31T10:11:12.5Z"),
    ),
    (
        "DATETIME(3)",
        "'2024-01-31 10:11:12.000'",
        Some("2024-01-31T10:11:12Z"),
    ),
    (
        "DATETIME",
        "'0000-00-00 00:00:00'",
        Some("0001-01-01T00:00:00Z"),
    ),
    (
        "TIMESTAMP NULL",
        "'2024-01-31 10:11:12'",
        Some("2024-01-31T10:11:12Z"),
    ),
    (
        "TIMESTAMP(6) NULL",
        "'2024-01-31 10:11:12.000001'",
        Some("2024-01-31T10:11:12.000001Z"),
    ),
    ("TIME", "'-838:59:59'", Some("-838:59:59")),
    ("TIME(3)", "'10:11:12.500'", Some("10:11:12.500")),
    ("CHAR(10)", "'ab  '", Some("ab")),
    ("VARCHAR(10)", "'ab  '", Some("ab  ")),
    ("VARCHAR(20)", "''", Some("")),
    ("VARCHAR(20)", "NULL", None),
    (
        "VARCHAR(20) CHARACTER SET latin1",
        "'M\u{fc}nchen'",
        Some("M\u{fc}nchen"),
    ),
    (
        "TEXT",
        "'\u{65e5}\u{672c} \u{1f600} e\u{301}'",
        Some("\u{65e5}\u{672c} \u{1f600} e\u{301}"),
    ),
    ("TINYTEXT", "'{{ .uid }}'", Some("{{ .uid }}")),
    ("BINARY(4)", "'ab'", Some("ab\0\0")),
    ("VARBINARY(4)", "'ab'", Some("ab")),
    ("BLOB", "x'6100FF62'", Some("a\0\u{fffd}b")),
    ("JSON", "'{\"a\": [1, null]}'", Some("{\"a\": [1, null]}")),
    ("ENUM('basic','pro')", "'pro'", Some("pro")),
    ("SET('a','b','c')", "'c,a'", Some("a,c")),
    (
        "UUID",
        "'123e4567-e89b-12d3-a456-426655440000'",
        Some("123e4567-e89b-12d3-a456-426655440000"),
    ),
    ("INET6", "'::ffff:192.0.2.1'", Some("::ffff:192.0.2.1")),
];

#[tokio::test]
async fn column_types() {
    let names: Vec<String> = (0..CASES.len()).map(|case| format!("c{case:02}")).collect();
    let definitions: Vec<String> = (names.iter().zip(CASES))
        .map(|(name, (kind, ..))| format!("{name} {kind}"))
        .collect();
    let values: Vec<&str> = CASES.iter().map(|(_, value, _)| *value).collect();
    let database = Database::shared();
    let create = format!(
        "CREATE TABLE t (uid VARCHAR(63), activate BIT(1), {})",
        definitions.join(", ")
    );
    let insert = format!("INSERT INTO t VALUES ('acme', b'1', {})", values.join(", "));
    database
        .schema("types", &["SET sql_mode = ''", &create, &insert])
        .await;

    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    // The same through a view: its columns must keep their types.
    for table in ["t", "v"] {
        if table == "v" {
            let view = ["CREATE VIEW types.v AS SELECT * FROM types.t"];
            database.schema("types_view", &view).await;
        }
        let source = source(settings(database, "types", table));
        let rows = read(&source, &columns(&names)).await.expect(table);
        assert_eq!(rows.len(), 1, "{table}");
        assert_eq!(
            rows[0][1].as_deref(),
            Some("1"),
            "{table}: BIT(1) switches a row on"
        );
        for ((kind, value, expected), found) in CASES.iter().zip(&rows[0][2..]) {
            assert_eq!(found.as_deref(), *expected, "{table}: {kind} {value}");
        }
    }
}

#[tokio::test]
async fn bytes_that_are_no_text_arrive_as_they_are() {
    let database = Database::shared();
    let statements = [
        "CREATE TABLE t (uid LONGBLOB, activate INT)",
        "INSERT INTO t VALUES (x'61FF00', 1), (REPEAT(x'FE', 300000), 1)",
    ];
    database.schema("raw", &statements).await;
    let mut uids = Vec::new();
    source(settings(database, "raw", "t"))
        .rows(&columns(&[]), |row| uids.push(row.values[0].clone()))
        .await
        .expect("a complete result");
    let long = vec![0xfe; 300_000];
    assert_eq!(uids, [Some(vec![0x61, 0xff, 0x00]), Some(long)]);
}
