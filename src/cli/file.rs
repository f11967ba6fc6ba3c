//! Files that a user names on the command line.

use std::io::Read;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::{Map, Number, Value};
use serde_saphyr::budget::BudgetBreach;

use crate::datasource::written;
use crate::decide::shared::content::DEPTH_MAX;

/// How deep a file may be nested: more than a form may be, of which its own check says more; and no danger to a program's stack.
const LEVELS_MAX: usize = 80;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path}: {reason}")]
    Unreadable {
        path: String,
        reason: std::io::Error,
    },
    #[error("{path}: {reason}")]
    Unparsable { path: String, reason: String },
    #[error("{path}: there is no {kind} in it")]
    Missing { path: String, kind: &'static str },
    #[error("{path}: there is more than one {kind} in it")]
    TooMany { path: String, kind: &'static str },
}

/// The text of a file; `-` is standard input.
pub fn text_of(path: &Path) -> Result<String, Error> {
    let mut text = String::new();
    match path.to_str() {
        Some("-") => std::io::stdin().read_to_string(&mut text).map(|_| ()),
        _ => std::fs::read_to_string(path).map(|read| text = read),
    }
    .map_err(|reason| Error::Unreadable {
        path: path.display().to_string(),
        reason,
    })?;
    Ok(text)
}

/// The documents of a text in YAML, of which JSON is a part. `0644` is what kubectl makes of it.
fn documents<T: DeserializeOwned>(path: &Path, text: &str) -> Result<Vec<T>, Error> {
    let options = serde_saphyr::options! {
        legacy_octal_numbers: true,
        budget: serde_saphyr::budget! {
            max_depth: LEVELS_MAX,
            // Not the parser's own words for the same.
            flow_nesting_limit: 100_000,
        },
    };
    let read = serde_saphyr::from_multiple_with_options(text, options);
    read.map_err(|error| Error::Unparsable {
        path: path.display().to_string(),
        reason: said(&error),
    })
}

fn said(error: &serde_saphyr::Error) -> String {
    let line = error.location().map_or(1, |location| location.line());
    match error.without_snippet() {
        serde_saphyr::Error::Budget {
            breach: BudgetBreach::Depth { .. },
            ..
        } => format!(
            "line {line} is nested more than {LEVELS_MAX} levels deep; a manifest may have {DEPTH_MAX} levels, itself included"
        ),
        serde_saphyr::Error::Budget { .. } => {
            format!("it is larger than a manifest may be, up to line {line} alone")
        }
        serde_saphyr::Error::DuplicateMappingKey { key: Some(key), .. } => {
            format!("line {line}: {key:?} appears twice")
        }
        _ => error.to_string(),
    }
}

const I64_END: f64 = 9_223_372_036_854_775_808.0;

/// Numbers as kubectl sends them, which writes `1.0` and `1e3` without a fraction.
fn whole(value: Value) -> Value {
    match value {
        Value::Number(number) => Value::Number(
            number
                .as_f64()
                .filter(|double| number.is_f64() && double.fract() == 0.0 && double.abs() < I64_END)
                .map_or(number, |double| Number::from(double as i64)),
        ),
        Value::Array(items) => items.into_iter().map(whole).collect(),
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| (name, whole(value)));
            Value::Object(fields.collect())
        }
        other => other,
    }
}

/// The only object of a kind; any number of other kinds may be there, too.
pub fn object(path: &Path, kind: &'static str) -> Result<Value, Error> {
    let mut found = objects(path, kind)?;
    match (found.pop(), found.is_empty()) {
        (Some(object), true) => Ok(object),
        _ => Err(Error::TooMany {
            path: path.display().to_string(),
            kind,
        }),
    }
}

/// Every object of a kind, one at least.
pub fn objects(path: &Path, kind: &'static str) -> Result<Vec<Value>, Error> {
    let all = documents(path, &text_of(path)?)?.into_iter();
    let of_kind = all.filter(|document: &Value| document["kind"] == kind);
    let found: Vec<Value> = of_kind.map(whole).collect();
    match found.is_empty() {
        false => Ok(found),
        true => Err(Error::Missing {
            path: path.display().to_string(),
            kind,
        }),
    }
}

/// Every object of a file. Documents of an API server are large: JSON is read as what it is, not as YAML.
pub fn all(path: &Path) -> Result<Vec<Value>, Error> {
    let text = text_of(path)?;
    match serde_json::from_str(&text) {
        Ok(object) => Ok(vec![object]),
        Err(_) => documents(path, &text),
    }
}

/// Columns or variables, and their values, which are texts once they are rendered.
pub struct Mapping {
    pub fields: Map<String, Value>,
    text: String,
    places: written::SpannedValues,
}

impl Mapping {
    /// The only document of a file.
    pub fn read(path: &Path) -> Result<Mapping, Error> {
        let text = text_of(path)?;
        let mut documents = documents(path, &text)?;
        let (Some(Value::Object(fields)), true) = (documents.pop(), documents.is_empty()) else {
            return Err(Error::Unparsable {
                path: path.display().to_string(),
                reason: "give one JSON object, and nothing else".to_owned(),
            });
        };
        let places = self::documents(path, &text)?.pop().unwrap_or_default();
        Ok(Mapping {
            fields,
            text,
            places,
        })
    }

    /// Whether the values of these fields are what is written there.
    pub fn check<'a>(&'a self, names: impl IntoIterator<Item = &'a str>) -> Result<(), String> {
        match written::lost(&self.text, &self.places, names) {
            None => Ok(()),
            Some(name) => Err(format!(
                "{name:?} would lose how it is written, since YAML takes it for a number or a boolean (01234, 1.20, +49, 1e3, yes, NO); \
                 write it in quotes"
            )),
        }
    }
}

/// A value as a database gives it: its text, None for null.
pub fn text(value: &Value) -> Result<Option<String>, &'static str> {
    match value {
        Value::Null => Ok(None),
        Value::String(_) | Value::Number(_) | Value::Bool(_) => Ok(written::text(value)),
        Value::Array(_) => Err("a list; give a text, a number, a boolean or null"),
        Value::Object(_) => Err("an object; give a text, a number, a boolean or null"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Which is YAML 1.1 there.
    #[test]
    fn numbers_are_what_kubectl_makes_of_them() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text =
            "kind: A\nmode: 0644\nmodern: 0o17\nten: 10\nof: [1.0, {a: 1e3}, -2.0, 1.5, 1e300]\n";
        std::fs::write(file.path(), text).unwrap();
        let read = object(file.path(), "A").unwrap();
        let expected = json!({
            "kind": "A", "mode": 420, "modern": 15, "ten": 10, "of": [1, {"a": 1000}, -2, 1.5, 1e300],
        });
        assert_eq!(read, expected);
    }

    #[test]
    fn what_a_row_would_lose_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = |text: &str| {
            std::fs::write(file.path(), text).unwrap();
            let mapping = Mapping::read(file.path()).map_err(|error| error.to_string())?;
            mapping.check(["uid", "zip"]).map(|()| mapping.fields)
        };
        for text in ["uid: a\nzip: 01234\n", "{uid: a, zip: 01234, n: [1]}"] {
            let said = read(text).unwrap_err();
            assert!(
                said.contains("\"zip\" would lose how it is written"),
                "{said}"
            );
        }
        assert_eq!(read("zip: '01234'").unwrap()["zip"], "01234");
        assert_eq!(read("zip: '01234'\nother: 01234").unwrap()["zip"], "01234");
    }

    #[test]
    fn what_is_nested_too_deep_is_told_with_its_line() {
        // As much as the program's own thread has.
        let thread = std::thread::Builder::new().stack_size(8 << 20);
        thread.spawn(nested_too_deep).unwrap().join().unwrap();
    }

    fn nested_too_deep() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let of = |depth: usize| {
            let lines = (0..depth).map(|level| format!("{}a:\n", " ".repeat(level)));
            let block: String = lines.collect();
            let flow = format!("a:\n  {}{}", "[".repeat(depth), "]".repeat(depth));
            let json = format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
            [block, flow, json]
        };
        for depth in [LEVELS_MAX - 10, 150, 300, 5_000] {
            for text in of(depth) {
                std::fs::write(file.path(), format!("kind: A\n---\n{text}")).unwrap();
                let read = documents::<Value>(file.path(), &text_of(file.path()).unwrap());
                let said = read.err().map(|error| error.to_string());
                let told = said.as_ref().is_some_and(|said| {
                    said.contains(" is nested more than 80 levels deep; a manifest may have 64")
                });
                assert_eq!(told, depth > LEVELS_MAX, "{depth}: {said:?}");
            }
        }
    }
}
