//! Files that a user names on the command line.

use std::io::Read;
use std::path::Path;

use serde_json::{Map, Value};

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

/// The documents of a file in YAML, of which JSON is a part; `-` is standard input.
fn read(path: &Path) -> Result<Vec<Value>, Error> {
    let shown = || path.display().to_string();
    let unreadable = |reason| Error::Unreadable {
        path: shown(),
        reason,
    };
    let mut text = String::new();
    match path.to_str() {
        Some("-") => std::io::stdin().read_to_string(&mut text).map(|_| ()),
        _ => std::fs::read_to_string(path).map(|read| text = read),
    }
    .map_err(unreadable)?;
    // `0644` is what kubectl makes of it.
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    serde_saphyr::from_multiple_with_options(&text, options).map_err(|error| Error::Unparsable {
        path: shown(),
        reason: error.to_string(),
    })
}

/// The only object of a kind; any number of other kinds may be there, too.
pub fn object(path: &Path, kind: &'static str) -> Result<Value, Error> {
    let documents = read(path)?;
    let mut found = documents
        .into_iter()
        .filter(|document| document["kind"] == kind);
    let path = path.display().to_string();
    match (found.next(), found.next()) {
        (Some(object), None) => Ok(object),
        (None, _) => Err(Error::Missing { path, kind }),
        (Some(_), Some(_)) => Err(Error::TooMany { path, kind }),
    }
}

/// The only document, a mapping.
pub fn mapping(path: &Path) -> Result<Map<String, Value>, Error> {
    let mut documents = read(path)?;
    match (documents.pop(), documents.is_empty()) {
        (Some(Value::Object(fields)), true) => Ok(fields),
        _ => Err(Error::Unparsable {
            path: path.display().to_string(),
            reason: "give one JSON object, and nothing else".to_owned(),
        }),
    }
}

/// A value as a database gives it: its text, None for null.
pub fn text(value: &Value) -> Result<Option<String>, &'static str> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.clone())),
        Value::Number(_) | Value::Bool(_) => Ok(Some(value.to_string())),
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
        std::fs::write(file.path(), "mode: 0644\nmodern: 0o17\nten: 10\n").unwrap();
        let read = mapping(file.path()).unwrap();
        let expected = json!({"mode": 420, "modern": 15, "ten": 10});
        assert_eq!(Value::Object(read), expected);
    }
}
