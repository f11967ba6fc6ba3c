//! Quotes the names of tables and columns for a statement, and rejects texts that are not names.

use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} cannot be the name of a {what}: {why}")]
pub struct InvalidName {
    pub what: &'static str,
    pub name: String,
    pub why: &'static str,
}

pub static MYSQL: Quoting = Quoting {
    mark: '`',
    length: |identifier| identifier.chars().count(),
    length_max: 64,
    too_long: "it has over 64 characters; put any SQL other than a name into a view",
    forms: "write `table` or `database.table`",
};

/// The server would truncate a longer name, and might then find another one.
pub static POSTGRESQL: Quoting = Quoting {
    mark: '"',
    length: str::len,
    length_max: 63,
    too_long: "it has over 63 bytes; put any SQL other than a name into a view",
    forms: "write `table` or `schema.table`",
};

/// How a product quotes identifiers, and which it has.
#[derive(Debug)]
pub struct Quoting {
    pub mark: char,
    pub length: fn(&str) -> usize,
    pub length_max: usize,
    pub too_long: &'static str,
    /// The allowed spellings of a table, for messages.
    pub forms: &'static str,
}

impl Quoting {
    pub fn quote(&self, identifier: &str) -> String {
        let mark = self.mark;
        let doubled = identifier.replace(mark, &format!("{mark}{mark}"));
        format!("{mark}{doubled}{mark}")
    }

    /// Quoted.
    pub fn column(&self, column: &str) -> Result<String, InvalidName> {
        match self.check(column) {
            Ok(()) => Ok(self.quote(column)),
            Err(why) => Err(InvalidName {
                what: "column",
                name: column.to_owned(),
                why,
            }),
        }
    }

    pub fn columns(&self, columns: &[&str]) -> Result<Vec<String>, InvalidName> {
        columns.iter().map(|column| self.column(column)).collect()
    }

    fn check(&self, identifier: &str) -> Result<(), &'static str> {
        if identifier.is_empty() {
            return Err("it is empty");
        }
        if (self.length)(identifier) > self.length_max {
            return Err(self.too_long);
        }
        if identifier.contains('\0') {
            return Err("it contains a NUL character");
        }
        Ok(())
    }

    /// A part in quotes that ends the text or stands before a dot, and what follows the dot.
    fn quoted_part<'a>(&self, text: &'a str) -> Option<(String, Option<&'a str>)> {
        let mut name = String::new();
        let mut rest = text.strip_prefix(self.mark)?;
        loop {
            let (before, after) = rest.split_once(self.mark)?;
            name.push_str(before);
            match after.chars().next() {
                None => return Some((name, None)),
                Some('.') => return Some((name, Some(&after[1..]))),
                Some(mark) if mark == self.mark => name.push(mark),
                Some(_) => return None,
            }
            rest = &after[1..];
        }
    }
}

/// A table or view, in the connection's default schema or in a named one.
#[derive(Debug, Clone)]
pub struct Table {
    pub schema: Option<String>,
    pub name: String,
    quoting: &'static Quoting,
}

impl Table {
    /// Parses `table`, `schema.table`, or the same with quoted parts (Lynq required quotes around some names). Any other text is
    /// one identifier or invalid, so that no text gets into a statement unquoted.
    pub fn parse(text: &str, quoting: &'static Quoting) -> Result<Self, InvalidName> {
        let invalid = |why| InvalidName {
            what: "table",
            name: text.to_owned(),
            why,
        };
        let mut parts = Vec::new();
        let mut rest = text;
        loop {
            let (part, after) = quoting.quoted_part(rest).unwrap_or_else(|| bare(rest));
            quoting.check(&part).map_err(invalid)?;
            parts.push(part);
            match after {
                Some(after) => rest = after,
                None => break,
            }
        }
        match parts.len() {
            1 | 2 => Ok(Self {
                name: parts.pop().expect("one part at least"),
                schema: parts.pop(),
                quoting,
            }),
            _ => Err(invalid(quoting.forms)),
        }
    }

    /// The quoted form for a statement.
    pub fn quoted(&self) -> String {
        let name = self.quoting.quote(&self.name);
        match &self.schema {
            Some(schema) => format!("{}.{name}", self.quoting.quote(schema)),
            None => name,
        }
    }
}

/// For messages.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.quoted().chars() {
            match c {
                '"' | '\'' => write!(f, "{c}")?,
                c => write!(f, "{}", c.escape_debug())?,
            }
        }
        Ok(())
    }
}

fn bare(text: &str) -> (String, Option<&str>) {
    match text.split_once('.') {
        Some((part, after)) => (part.to_owned(), Some(after)),
        None => (text.to_owned(), None),
    }
}
