//! The two statements that are ever sent. Every identifier in them is quoted; there are no values in them.

use std::time::Duration;

use crate::decide::identifier::{InvalidName, MYSQL, Table};

pub fn select(table: &Table, columns: &[&str]) -> Result<String, InvalidName> {
    let columns = MYSQL.columns(columns)?.join(", ");
    Ok(format!("SELECT {columns} FROM {}", table.quoted()))
}

/// Sent once per connection. A server-wide row limit would cut results short without a sign of it, and a query
/// that nobody waits for any more would go on loading the server, one more with every sync. The time limit has
/// another name and unit in each of the two products; each reads only its own comment.
pub fn session(give_up_after: Duration) -> String {
    let seconds = give_up_after.as_secs() + u64::from(give_up_after.subsec_nanos() > 0);
    format!(
        "SET SESSION sql_select_limit = {} /*M!100101 , SESSION max_statement_time = {seconds} */ \
         /*!50708 , SESSION max_execution_time = {} */",
        u64::MAX,
        seconds * 1000
    )
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
