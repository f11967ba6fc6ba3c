//! Rows in a ConfigMap, for users without a database: CSV with a header line, or a YAML list of mappings. The caller fetches the
//! text.

use serde_json::Value;

use crate::datasource::{SourceError, written};
use crate::decide::hub::rows::{Columns, RawRow, RowCount};

/// The format of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Csv,
    Yaml,
}

impl Format {
    /// The format for the extension of the key.
    pub fn of(key: &str) -> Option<Format> {
        match key.rsplit_once('.')?.1 {
            "csv" => Some(Format::Csv),
            "yaml" | "yml" | "json" => Some(Format::Yaml),
            _ => None,
        }
    }
}

#[derive(Debug)]
pub struct ConfigMap {
    pub format: Format,
    pub text: String,
}

impl ConfigMap {
    /// See [`crate::datasource::DataSource::rows`].
    pub fn rows(
        &self,
        columns: &Columns,
        on_row: impl FnMut(RawRow),
    ) -> Result<RowCount, SourceError> {
        match self.format {
            Format::Csv => self.csv(columns, on_row),
            Format::Yaml => self.yaml(columns, on_row),
        }
    }

    fn csv(
        &self,
        columns: &Columns,
        mut on_row: impl FnMut(RawRow),
    ) -> Result<RowCount, SourceError> {
        let mut reader = csv_reader(&self.text)?;
        let names = reader.headers().map_err(malformed_csv)?;
        let mut places = vec![];
        for column in columns.selected() {
            let mut found = names.iter().enumerate().filter(|(_, name)| *name == column);
            match (found.next(), found.next()) {
                (Some((place, _)), None) => places.push(place),
                (Some(_), Some(_)) => {
                    return Err(SourceError::Malformed {
                        line: 1,
                        cause: "a column that the hub maps appears twice",
                    });
                }
                (None, _) => return Err(missing(column, "the ConfigMap")),
            }
        }
        let mut number = 0;
        for record in reader.records() {
            let record = record.map_err(malformed_csv)?;
            number += 1;
            let value = |place: &usize| record.get(*place).map(|text| text.as_bytes().to_vec());
            on_row(RawRow {
                number,
                values: places.iter().map(value).collect(),
            });
        }
        Ok(RowCount(number))
    }

    fn yaml(
        &self,
        columns: &Columns,
        mut on_row: impl FnMut(RawRow),
    ) -> Result<RowCount, SourceError> {
        let malformed = |line| SourceError::Malformed {
            line,
            cause: "this is not a YAML list of mappings from a column's name to a text, a number or a boolean",
        };
        let located = |error: serde_saphyr::Error| {
            malformed(error.location().map_or(1, |location| location.line()))
        };
        let document = serde_saphyr::from_str(&self.text).map_err(located)?;
        // An empty text is no empty list: it may be a mistake.
        let Value::Array(rows) = document else {
            return Err(malformed(1));
        };
        if let Some((row, _)) = (1..).zip(&rows).find(|(_, row)| !row.is_object()) {
            return Err(SourceError::NoMapping { row });
        }
        let places: Vec<written::SpannedValues> =
            serde_saphyr::from_str(&self.text).map_err(located)?;
        let mut number = 0;
        for (row, places) in rows.into_iter().zip(places) {
            number += 1;
            if let Some(column) = written::lost(&self.text, &places, columns.selected()) {
                return Err(SourceError::Lost {
                    row: number,
                    column: column.to_owned(),
                });
            }
            let values = columns
                .selected()
                .into_iter()
                .map(|column| match row.get(column) {
                    None => Err(missing(column, &format!("row {number} of the ConfigMap"))),
                    Some(Value::Array(_) | Value::Object(_)) => Err(SourceError::Nested {
                        row: number,
                        column: column.to_owned(),
                    }),
                    Some(value) => Ok(written::text(value).map(String::into_bytes)),
                });
            let values = values.collect::<Result<_, _>>()?;
            on_row(RawRow { number, values });
        }
        Ok(RowCount(number))
    }
}

/// The names in the first line of CSV.
pub fn csv_columns(text: &str) -> Result<Vec<String>, SourceError> {
    let mut reader = csv_reader(text)?;
    let names = reader.headers().map_err(malformed_csv)?;
    Ok(names.iter().map(str::to_owned).collect())
}

fn csv_reader(text: &str) -> Result<csv::Reader<&[u8]>, SourceError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if let Some(line) = swallowing_quote(text) {
        return Err(SourceError::Malformed {
            line,
            cause: "a value begins with a quote there that does not end where the value does; close it, and write a quote inside as \"\"",
        });
    }
    Ok(csv::ReaderBuilder::new().from_reader(text.as_bytes()))
}

fn missing(column: &str, place: &str) -> SourceError {
    SourceError::ColumnMissing {
        column: format!("{column:?}"),
        table: place.to_owned(),
    }
}

/// The line of an opening quote that is never closed, or closed inside a value. The csv crate would read everything up to the
/// next quote, or to the end, as one value: rows would be lost.
fn swallowing_quote(text: &str) -> Option<u64> {
    let (mut line, mut opened) = (1, 1);
    let (mut begins, mut quoted) = (true, false);
    let mut bytes = text.bytes().peekable();
    while let Some(byte) = bytes.next() {
        line += u64::from(byte == b'\n');
        match byte {
            b'"' if quoted => match bytes.peek() {
                Some(b'"') => drop(bytes.next()),
                Some(b',' | b'\r' | b'\n') | None => quoted = false,
                Some(_) => return Some(opened),
            },
            _ if quoted => {}
            b'"' if begins => (quoted, opened) = (true, line),
            _ => {}
        }
        begins = matches!(byte, b',' | b'\r' | b'\n');
    }
    quoted.then_some(opened)
}

/// The crate's own words may have a value of a row in them.
fn malformed_csv(error: csv::Error) -> SourceError {
    let line = error.position().map_or(1, |position| position.line());
    let cause = match error.kind() {
        csv::ErrorKind::UnequalLengths { .. } => {
            "it has not as many values as the first line has names; a value with a comma needs quotes"
        }
        csv::ErrorKind::Utf8 { .. } => "it is no UTF-8",
        _ => "it is no CSV",
    };
    SourceError::Malformed { line, cause }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::decide::hub::rows::activity::Words;

    fn columns() -> Columns {
        Columns {
            uid: "id".into(),
            activate: "active".into(),
            host_or_url: None,
            extra: BTreeMap::from([("plan".into(), "plan".into())]),
            words: Words::default(),
        }
    }

    /// The values of `id`, `active` and `plan`; `-` for NULL.
    fn read(format: Format, text: &str) -> Result<Vec<String>, SourceError> {
        let text = text.to_owned();
        let mut rows = vec![];
        let shown = |value: Option<Vec<u8>>| match value {
            Some(bytes) => String::from_utf8(bytes).unwrap(),
            None => "-".to_owned(),
        };
        let count = ConfigMap { format, text }.rows(&columns(), |row| {
            assert_eq!(row.number, rows.len() as u64 + 1);
            let values: Vec<String> = row.values.into_iter().map(shown).collect();
            rows.push(values.join("|"));
        })?;
        assert_eq!(count, RowCount(rows.len() as u64));
        Ok(rows)
    }

    #[test]
    fn rows_as_csv() {
        for (text, expected) in [
            ("id,active,plan\na,1,pro\nb,0,\n", vec!["a|1|pro", "b|0|"]),
            ("plan,more,id,active\r\nx,y,a,1\r\n", vec!["a|1|x"]),
            (
                "\u{feff}id,active,plan\na,1,\"x, \"\"y\"\"\nz\"\n",
                vec!["a|1|x, \"y\"\nz"],
            ),
            ("id,active,plan\n", vec![]),
            ("id,active,plan\n\n a ,1,ü\n", vec![" a |1|ü"]),
            (
                "id,active,plan\na,1,\"\"\nb,1,5\" disk\nc,1,\"\"\"\"",
                vec!["a|1|", "b|1|5\" disk", "c|1|\""],
            ),
        ] {
            assert_eq!(read(Format::Csv, text).unwrap(), expected, "{text:?}");
        }
    }

    #[test]
    fn the_first_line_of_csv_names_the_columns() {
        for (text, expected) in [
            ("id,active\na,1\n", &["id", "active"][..]),
            ("\u{feff}id,\"a, b\"\r\n", &["id", "a, b"]),
            ("", &[]),
        ] {
            assert_eq!(csv_columns(text).unwrap(), expected, "{text:?}");
        }
        assert!(csv_columns("id\n\"a\n").is_err());
    }

    #[test]
    fn rows_as_yaml() {
        for (text, expected) in [
            (
                "- {id: a, active: 1, plan: pro}\n- id: b\n  active: true\n  plan: null\n",
                vec!["a|1|pro", "b|true|-"],
            ),
            (
                "- {id: '007', active: \"1\", plan: 1.5, more: [1]}",
                vec!["007|1|1.5"],
            ),
            (
                "- {id: 7, active: 1, plan: 1000000}\n- {id: 1.5, active: 1, plan: 1e-07}",
                vec!["7|1|1000000", "1.5|1|1e-07"],
            ),
            (
                r#"[{"id": "a", "active": "1", "plan": "x"}]"#,
                vec!["a|1|x"],
            ),
            (
                "- {id: a, active: 1, plan: '01234', more: 01234}",
                vec!["a|1|01234"],
            ),
            ("[]", vec![]),
        ] {
            assert_eq!(read(Format::Yaml, text).unwrap(), expected, "{text:?}");
        }
    }

    /// No message may have a value of a row in it.
    #[test]
    fn what_cannot_be_read_is_named_by_its_place() {
        for (format, text, expected) in [
            (Format::Csv, "", "the ConfigMap has no column \"id\""),
            (
                Format::Csv,
                "id,active\na,1\n",
                "the ConfigMap has no column \"plan\"",
            ),
            (
                Format::Csv,
                "id,active,plan\na,1,pro\nb,1,\"gold\nc,1,x\n",
                "line 3 of the rows cannot be read: a value begins with a quote there that does not end where the value does; \
                 close it, and write a quote inside as \"\"",
            ),
            (
                Format::Csv,
                "id,active,plan\na,1,\"pro\nb,1,\"gold\nc,1,x\n",
                "line 2 of the rows cannot be read: a value begins with a quote there that does not end where the value does; \
                 close it, and write a quote inside as \"\"",
            ),
            (
                Format::Csv,
                "id,id,active,plan\n",
                "line 1 of the rows cannot be read: a column that the hub maps appears twice",
            ),
            (
                Format::Csv,
                "id,active,plan\na,1,pro\nb,1,secret,x\n",
                "line 3 of the rows cannot be read: it has not as many",
            ),
            (
                Format::Yaml,
                "- {id: a, active: 1}",
                "row 1 of the ConfigMap has no column \"plan\"",
            ),
            (
                Format::Yaml,
                "- {id: a, active: 1, plan: [secret]}",
                "column \"plan\" of row 1 is a list or a mapping",
            ),
            (
                Format::Yaml,
                "- {id: a, active: 1, plan: x}\n- id: b\n  active: 1\n  plan: 01234 # secret\n",
                "column \"plan\" of row 2 would lose how it is written",
            ),
            (
                Format::Yaml,
                "- {id: a, active: 1, plan: x, more: &m {plan: 007}}\n- {<<: *m, id: b, active: 1}",
                "column \"plan\" of row 2 would lose how it is written",
            ),
            (
                Format::Yaml,
                "- {id: a, active: 1, plan: +4930}",
                "column \"plan\" of row 1 would lose how it is written",
            ),
            (
                Format::Yaml,
                "- {id: a, active: 1, plan: x}\n- secret\n",
                "row 2 is no mapping",
            ),
            (
                Format::Yaml,
                "secret: [",
                "of the rows cannot be read: this is not a YAML list",
            ),
            (
                Format::Yaml,
                "",
                "of the rows cannot be read: this is not a YAML list",
            ),
        ] {
            let said = read(format, text).unwrap_err().to_string();
            assert!(said.contains(expected), "{text:?}: {said}");
            assert!(!said.contains("secret"), "{said}");
        }
    }

    #[test]
    fn what_is_nested_deep_is_refused_on_a_workers_stack() {
        for depth in [50, 60, 65, 300, 5_000] {
            let nested = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
            let block: String = (0..depth)
                .map(|level| format!("{}- a:\n", "  ".repeat(level)))
                .collect();
            for text in [format!("- {{id: a, active: 1, plan: {nested}}}"), block] {
                assert!(read(Format::Yaml, &text).is_err(), "{depth}");
            }
        }
    }

    #[test]
    fn the_ending_of_the_key_is_the_format() {
        for (key, format) in [
            ("rows.csv", Some(Format::Csv)),
            ("tenants.eu.yaml", Some(Format::Yaml)),
            ("rows.json", Some(Format::Yaml)),
            ("rows", None),
            ("rows.txt", None),
        ] {
            assert_eq!(Format::of(key), format, "{key}");
        }
    }
}
