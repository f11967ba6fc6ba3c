//! The two statements that are ever sent. Every identifier in them is quoted; there are no values in them.

use std::fmt;
use std::time::Duration;

use crate::datasource::error::SourceError;

/// Longest identifier of MySQL and MariaDB, in characters.
const IDENTIFIER_CHARS_MAX: usize = 64;

/// A table or view, in the connection's database or another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    pub database: Option<String>,
    pub name: String,
}

impl Table {
    /// `table`, `database.table`, or either part in backticks (Lynq's users had to write those around some names).
    /// Everything else is one identifier or none: no text gets into the statement unquoted.
    pub fn parse(text: &str) -> Result<Self, SourceError> {
        let invalid = |why| SourceError::InvalidName {
            what: "table",
            name: text.to_owned(),
            why,
        };
        let mut parts = Vec::new();
        let mut rest = text;
        loop {
            let (part, after) = quoted(rest).unwrap_or_else(|| bare(rest));
            check(&part).map_err(invalid)?;
            parts.push(part);
            match after {
                Some(after) => rest = after,
                None => break,
            }
        }
        match parts.len() {
            1 | 2 => Ok(Self {
                name: parts.pop().expect("one part at least"),
                database: parts.pop(),
            }),
            _ => Err(invalid("write `table` or `database.table`")),
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(database) = &self.database {
            write!(f, "{}.", quote(database).escape_debug())?;
        }
        write!(f, "{}", quote(&self.name).escape_debug())
    }
}

/// A part in backticks that ends the text or stands before a dot, and what follows the dot.
fn quoted(text: &str) -> Option<(String, Option<&str>)> {
    let mut name = String::new();
    let mut rest = text.strip_prefix('`')?;
    loop {
        let (before, after) = rest.split_once('`')?;
        name.push_str(before);
        match after.chars().next() {
            None => return Some((name, None)),
            Some('.') => return Some((name, Some(&after[1..]))),
            Some('`') => name.push('`'),
            Some(_) => return None,
        }
        rest = &after[1..];
    }
}

fn bare(text: &str) -> (String, Option<&str>) {
    match text.split_once('.') {
        Some((part, after)) => (part.to_owned(), Some(after)),
        None => (text.to_owned(), None),
    }
}

fn check(identifier: &str) -> Result<(), &'static str> {
    if identifier.is_empty() {
        return Err("it is empty");
    }
    if identifier.chars().count() > IDENTIFIER_CHARS_MAX {
        return Err("it has over 64 characters; put any SQL other than a name into a view");
    }
    if identifier.contains('\0') {
        return Err("it contains a NUL character");
    }
    Ok(())
}

fn quote(identifier: &str) -> String {
    format!("`{}`", identifier.replace('`', "``"))
}

pub fn select(table: &Table, columns: &[&str]) -> Result<String, SourceError> {
    let mut quoted = Vec::with_capacity(columns.len());
    for column in columns {
        check(column).map_err(|why| SourceError::InvalidName {
            what: "column",
            name: (*column).to_owned(),
            why,
        })?;
        quoted.push(quote(column));
    }
    let mut from = quote(&table.name);
    if let Some(database) = &table.database {
        from = format!("{}.{from}", quote(database));
    }
    Ok(format!("SELECT {} FROM {from}", quoted.join(", ")))
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
            let from = Table::parse(text).and_then(|table| select(&table, &["id"]));
            match (from, expected) {
                (Ok(statement), Ok(quoted)) => {
                    assert_eq!(statement, format!("SELECT `id` FROM {quoted}"), "{name}");
                }
                (Err(SourceError::InvalidName { why, .. }), Err(expected)) => {
                    assert_eq!(why, *expected, "{name}");
                }
                (found, expected) => panic!("{name}: {found:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn columns() {
        let table = Table::parse("t").unwrap();
        let statement = select(&table, &["id", "a`b", "x, (SELECT 1)"]);
        let expected = "SELECT `id`, `a``b`, `x, (SELECT 1)` FROM `t`";
        assert_eq!(statement.as_deref(), Ok(expected));
        for column in ["", "a\0", &"x".repeat(65)] {
            let error = select(&table, &["id", column]).unwrap_err();
            assert_eq!(error.code(), "InvalidName", "{column:?}");
        }
    }
}
