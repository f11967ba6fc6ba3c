//! The few statements that are ever sent. Every identifier in them is quoted; there are no values in them.

use std::time::Duration;

use crate::decide::hub::identifier::{InvalidName, MYSQL, Table};

pub fn select(table: &Table, columns: &[&str]) -> Result<String, InvalidName> {
    let columns = MYSQL.columns(columns)?.join(", ");
    Ok(format!("SELECT {columns} FROM {}", table.quoted()))
}

pub const END: &str = "COMMIT";

/// The settings of a session, each with its name. Without them the server decides how a TIMESTAMP, a CHAR or an umlaut reads,
/// whether uncommitted rows are read, and how many rows a result has at most. Without the time limit, abandoned queries would
/// pile up on the server, one with each sync. MySQL and MariaDB name the limit differently and in other units; each reads only
/// its own comment.
pub fn session(give_up_after: Duration) -> [(&'static str, String); 5] {
    let seconds = give_up_after.as_secs() + u64::from(give_up_after.subsec_nanos() > 0);
    [
        // One that `init_connect` began would hand its isolation level on to the next.
        ("end of any transaction", "ROLLBACK".to_owned()),
        ("character set utf8mb4", "SET NAMES utf8mb4".to_owned()),
        (
            "isolation level REPEATABLE READ",
            "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ".to_owned(),
        ),
        (
            "time zone, SQL mode and limits",
            format!(
                "SET SESSION time_zone = '+00:00', SESSION sql_mode = '', SESSION autocommit = 1, \
                 SESSION sql_select_limit = {ROWS_MAX} /*M!100101 , SESSION max_statement_time = {seconds} */ \
                 /*!50708 , SESSION max_execution_time = {} */",
                seconds * 1000
            ),
        ),
        (
            "read-only transaction",
            "START TRANSACTION READ ONLY".to_owned(),
        ),
    ]
}

const ROWS_MAX: &str = "18446744073709551615";

/// MySQL and MariaDB name the isolation level differently, and MySQL before 5.7.20 is not asked for it.
pub const READ_BACK: &str = "SELECT @@session.time_zone, @@session.character_set_client, @@session.character_set_connection, \
    @@session.character_set_results, @@session.sql_mode, @@session.autocommit, @@session.sql_select_limit \
    /*M!100000 , @@session.tx_isolation */ /*!50720 , @@session.transaction_isolation */";

/// Name and value of what [`READ_BACK`] reads.
const EXPECTED: [(&str, &str); 8] = [
    ("time zone +00:00", "+00:00"),
    ("character_set_client utf8mb4", "utf8mb4"),
    ("character_set_connection utf8mb4", "utf8mb4"),
    ("character_set_results utf8mb4", "utf8mb4"),
    ("empty SQL mode", ""),
    ("autocommit", "1"),
    ("lack of a row limit", ROWS_MAX),
    ("isolation level REPEATABLE READ", "REPEATABLE-READ"),
];

/// The first setting that is not as it was set.
pub fn unlike(found: impl IntoIterator<Item = Option<Vec<u8>>>) -> Option<&'static str> {
    let found: Vec<_> = found.into_iter().collect();
    let wrong = |(index, (_, expected)): &(usize, &(&str, &str))| match found.get(*index) {
        Some(Some(value)) => !value.eq_ignore_ascii_case(expected.as_bytes()),
        Some(None) => true,
        None => *index + 1 < EXPECTED.len(),
    };
    let first = EXPECTED.iter().enumerate().find(wrong);
    first.map(|(_, (setting, _))| *setting)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables() {
        let over = "x".repeat(65);
        let limit = "\u{e9}".repeat(64);
        let quoted_limit = format!("`{limit}`");
        let cases: &[(&str, &str, Result<&str, &str>)] = &[
            ("plain", "tenants", Ok("`tenants`")),
            ("with its database", "crm.tenants", Ok("`crm`.`tenants`")),
            (
                "of the system",
                "information_schema.tables",
                Ok("`information_schema`.`tables`"),
            ),
            ("space", "my tenants", Ok("`my tenants`")),
            ("hyphen", "my-tenants", Ok("`my-tenants`")),
            ("backtick inside", "a`b", Ok("`a``b`")),
            ("quotes", "a'b\"c", Ok("`a'b\"c`")),
            ("unicode", "t\u{e4}nants", Ok("`t\u{e4}nants`")),
            ("64 characters", &limit, Ok(&quoted_limit)),
            (
                "SQL is a name like any other",
                "t` ; drop",
                Ok("`t`` ; drop`"),
            ),
            ("SQL that begins quoted", "`t` ; drop", Ok("```t`` ; drop`")),
            ("comment", "t -- ", Ok("`t -- `")),
            ("condition", "t WHERE 1=1", Ok("`t WHERE 1=1`")),
            ("quoted by the user", "`my-tenants`", Ok("`my-tenants`")),
            (
                "both quoted",
                "`crm`.`my-tenants`",
                Ok("`crm`.`my-tenants`"),
            ),
            ("one quoted", "crm.`my-tenants`", Ok("`crm`.`my-tenants`")),
            ("dot in quotes", "`a.b`", Ok("`a.b`")),
            ("doubled backtick in quotes", "`a``b`", Ok("`a``b`")),
            ("a lone backtick", "`", Ok("````")),
            ("empty", "", Err("it is empty")),
            ("empty in quotes", "``", Err("it is empty")),
            ("empty database", ".t", Err("it is empty")),
            ("empty table", "crm.", Err("it is empty")),
            (
                "three parts",
                "a.b.c",
                Err("write `table` or `database.table`"),
            ),
            (
                "65 characters",
                &over,
                Err("it has over 64 characters; put any SQL other than a name into a view"),
            ),
            ("NUL", "a\0b", Err("it contains a NUL character")),
        ];
        for (name, text, expected) in cases {
            let from = Table::parse(text, &MYSQL).and_then(|table| select(&table, &["id"]));
            match (from, expected) {
                (Ok(statement), Ok(quoted)) => {
                    assert_eq!(statement, format!("SELECT `id` FROM {quoted}"), "{name}");
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
        let ours: Vec<_> = EXPECTED
            .iter()
            .map(|(_, value)| Some(value.as_bytes().to_vec()))
            .collect();
        assert_eq!(unlike(ours.clone()), None);
        assert_eq!(unlike(ours[..7].to_vec()), None, "an old MySQL");
        assert_eq!(unlike(ours[..6].to_vec()), Some("lack of a row limit"));
        assert_eq!(unlike([]), Some("time zone +00:00"));
        for (index, (setting, _)) in EXPECTED.iter().enumerate() {
            for other in [None, Some(b"SYSTEM".to_vec())] {
                let mut found = ours.clone();
                found[index] = other;
                assert_eq!(unlike(found), Some(*setting));
            }
        }
    }

    #[test]
    fn columns() {
        let table = Table::parse("t", &MYSQL).unwrap();
        let statement = select(&table, &["id", "a`b", "x, (SELECT 1)"]);
        let expected = "SELECT `id`, `a``b`, `x, (SELECT 1)` FROM `t`";
        assert_eq!(statement.as_deref(), Ok(expected));
        for column in ["", "a\0", &"x".repeat(65)] {
            assert!(select(&table, &["id", column]).is_err(), "{column:?}");
        }
    }
}
