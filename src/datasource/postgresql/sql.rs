//! The few statements that are ever sent. Every identifier in them is quoted; there are no values in them.

use std::time::Duration;

use crate::datasource::postgresql::values::Conversion;
use crate::decide::hub::identifier::{InvalidName, POSTGRESQL, Table};

/// Fixes how values read as text, whatever the server, the database or the user has set.
const SETTINGS: [(&str, &str); 7] = [
    ("client_encoding", "UTF8"),
    ("datestyle", "ISO, MDY"),
    ("intervalstyle", "postgres"),
    ("timezone", "UTC"),
    ("extra_float_digits", "3"),
    ("bytea_output", "hex"),
    ("lc_monetary", "C"),
];

/// Settings of the transaction itself.
const TRANSACTION: [(&str, &str); 2] = [
    ("transaction_isolation", "repeatable read"),
    ("transaction_read_only", "on"),
];

/// Sends all settings in one message and for this transaction only, so that a pooler may sit in between; the last statement reads
/// them back. Without the time limit, abandoned queries would pile up on the server, one with each sync.
pub fn begin(give_up_after: Duration) -> String {
    let set = SETTINGS.map(|(name, value)| format!("SET LOCAL {name} = '{value}'; "));
    let read = expected().map(|(name, _)| format!("current_setting('{name}')"));
    format!(
        "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; SET LOCAL statement_timeout = {}; {}SELECT {}",
        give_up_after.as_millis(),
        set.concat(),
        read.collect::<Vec<_>>().join(", ")
    )
}

fn expected() -> impl Iterator<Item = (&'static str, &'static str)> {
    SETTINGS.into_iter().chain(TRANSACTION)
}

/// The first setting that does not read back as [`begin`] set it; `found` returns the value at a position.
pub fn unlike<'a>(found: impl Fn(usize) -> Option<&'a str>) -> Option<&'static str> {
    let wrong = |(place, (_, value)): &(usize, (&str, &str))| {
        !found(*place).is_some_and(|found| found.eq_ignore_ascii_case(value))
    };
    let first = expected().enumerate().find(wrong);
    first.map(|(_, (setting, _))| setting)
}

pub const END: &str = "COMMIT";

/// The server only describes this statement, it never runs it.
pub fn describe(table: &Table, columns: &[&str]) -> Result<String, InvalidName> {
    let columns = POSTGRESQL.columns(columns)?.join(", ");
    Ok(format!("SELECT {columns} FROM {}", table.quoted()))
}

pub fn select(
    table: &Table,
    columns: &[&str],
    conversions: &[Conversion],
) -> Result<String, InvalidName> {
    let mut read = POSTGRESQL.columns(columns)?;
    for (column, conversion) in read.iter_mut().zip(conversions) {
        column.push_str(conversion.cast());
    }
    Ok(format!(
        "SELECT {} FROM {}",
        read.join(", "),
        table.quoted()
    ))
}

/// The column at this character of the statement from [`describe`], counted from 1.
pub fn column_at<'a>(columns: &[&'a str], position: u32) -> Option<&'a str> {
    let mut start = "SELECT ".len() + 1;
    for column in columns {
        if start == position as usize {
            return Some(column);
        }
        start += POSTGRESQL.quote(column).chars().count() + ", ".len();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables() {
        let over = "\u{e9}".repeat(32);
        let limit = "x".repeat(63);
        let quoted_limit = format!("\"{limit}\"");
        let too_long = Err("it has over 63 bytes; put any SQL other than a name into a view");
        let cases: &[(&str, &str, Result<&str, &str>)] = &[
            ("plain", "tenants", Ok("\"tenants\"")),
            ("case is kept", "Tenants", Ok("\"Tenants\"")),
            ("with its schema", "crm.tenants", Ok("\"crm\".\"tenants\"")),
            ("space", "my tenants", Ok("\"my tenants\"")),
            ("quote inside", "a\"b", Ok("\"a\"\"b\"")),
            ("other quotes", "a'b`c", Ok("\"a'b`c\"")),
            ("63 bytes", &limit, Ok(&quoted_limit)),
            (
                "SQL is a name like any other",
                "t\" ; drop",
                Ok("\"t\"\" ; drop\""),
            ),
            ("dollar quotes", "$$t$$", Ok("\"$$t$$\"")),
            ("escape string", "E'\\'", Ok("\"E'\\'\"")),
            (
                "SQL that begins quoted",
                "\"t\" ; drop",
                Ok("\"\"\"t\"\" ; drop\""),
            ),
            ("condition", "t WHERE 1=1", Ok("\"t WHERE 1=1\"")),
            ("quoted by the user", "\"My T\"", Ok("\"My T\"")),
            ("both quoted", "\"crm\".\"t\"", Ok("\"crm\".\"t\"")),
            ("dot in quotes", "\"a.b\"", Ok("\"a.b\"")),
            ("doubled quote in quotes", "\"a\"\"b\"", Ok("\"a\"\"b\"")),
            ("empty", "", Err("it is empty")),
            ("empty in quotes", "\"\"", Err("it is empty")),
            ("empty schema", ".t", Err("it is empty")),
            (
                "with its database",
                "a.b.c",
                Err("write `table` or `schema.table`"),
            ),
            ("64 bytes", &over, too_long),
            ("NUL", "a\0b", Err("it contains a NUL character")),
        ];
        for (name, text, expected) in cases {
            let from = Table::parse(text, &POSTGRESQL).and_then(|table| describe(&table, &["id"]));
            match (from, expected) {
                (Ok(statement), Ok(quoted)) => {
                    assert_eq!(statement, format!("SELECT \"id\" FROM {quoted}"), "{name}");
                }
                (Err(InvalidName { why, .. }), Err(expected)) => {
                    assert_eq!(why, *expected, "{name}");
                }
                (found, expected) => panic!("{name}: {found:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn a_session_that_is_not_ours_is_known_by_its_first_setting() {
        let ours: Vec<&str> = expected().map(|(_, value)| value).collect();
        assert_eq!(unlike(|place| ours.get(place).copied()), None);
        assert_eq!(unlike(|_| None), Some("client_encoding"));
        for (wrong, (setting, _)) in expected().enumerate() {
            for other in [None, Some("German")] {
                let found = |place| {
                    if place == wrong {
                        other
                    } else {
                        Some(ours[place])
                    }
                };
                assert_eq!(unlike(found), Some(setting));
            }
        }
    }

    #[test]
    fn columns() {
        let table = Table::parse("t", &POSTGRESQL).unwrap();
        let columns = ["id", "a\"b", "x, (SELECT 1)"];
        let conversions = [Conversion::None, Conversion::Bytes, Conversion::Time];
        assert_eq!(
            select(&table, &columns, &conversions).as_deref(),
            Ok("SELECT \"id\"::text, \"a\"\"b\", \"x, (SELECT 1)\"::text FROM \"t\"")
        );
        for column in ["", "a\0", &"x".repeat(64)] {
            assert!(describe(&table, &["id", column]).is_err(), "{column:?}");
        }
    }

    #[test]
    fn a_column_is_known_by_its_place() {
        let columns = ["id", "\u{e9}\"", "plan"];
        let table = Table::parse("t", &POSTGRESQL).unwrap();
        let statement = describe(&table, &columns).unwrap();
        for column in columns {
            let quoted = POSTGRESQL.quote(column);
            let before = statement.split_once(&quoted).unwrap().0;
            let position = before.chars().count() as u32 + 1;
            assert_eq!(column_at(&columns, position), Some(column));
            assert_eq!(column_at(&columns, position + 1), None);
        }
        assert_eq!(column_at(&columns, 0), None);
    }
}
