//! Rejects numbers and booleans of a YAML text that would not survive as a row's text: one parser reads the postal code `01234`
//! as 1234, another as 668, and the country `NO` becomes `false`.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_saphyr::Spanned;

use crate::datasource::database::values::shortest;

/// A mapping's values, with their places in the text.
pub type SpannedValues = BTreeMap<String, Spanned<Value>>;

/// The first of these columns whose value would be written differently.
pub fn lost<'a>(
    text: &str,
    places: &SpannedValues,
    columns: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    columns.into_iter().find(|column| {
        let place = places.get(*column);
        place.is_some_and(|place| loses(&place.value, raw(text, place).unwrap_or_default()))
    })
}

fn raw<'a>(text: &'a str, place: &Spanned<Value>) -> Option<&'a str> {
    let span = place.defined.span();
    let start = usize::try_from(span.byte_offset()?).ok()?;
    let end = start.checked_add(usize::try_from(span.byte_len()?).ok()?)?;
    text.get(start..end)
}

/// A value's text in a row, a fraction as a database has it. None for null, a list and a mapping.
pub fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(value) => Some(value.to_string()),
        Value::Number(number) => {
            let text = number.to_string();
            let short = number.is_f64().then(|| shortest::<f64>(&text)).flatten();
            Some(short.unwrap_or(text))
        }
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// The version `1.20` would become `1.2`, another version.
fn loses(value: &Value, raw: &str) -> bool {
    matches!(value, Value::Number(_) | Value::Bool(_)) && text(value).as_deref() != Some(raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_lose_how_it_is_written_is_found() {
        for (written, is_lost) in [
            ("01234", true),
            ("-007", true),
            ("089", true),
            ("00", true),
            ("01.5", true),
            ("+49301234", true),
            ("+1.5", true),
            ("0x1F", true),
            ("0o17", true),
            ("1_000", true),
            ("0", false),
            ("-7", false),
            ("1.50", true),
            ("1.5", false),
            ("1.0", true),
            ("0.5", false),
            ("1.0e-7", true),
            ("1e-07", false),
            ("1e3", true),
            ("12345678901234567890", false),
            ("123456789012345678901", true),
            ("0.12345678901234567890123", true),
            ("true", false),
            ("True", true),
            ("yes", true),
            ("NO", true),
            ("'01234'", false),
            ("\"+49\"", false),
            ("!!str 007", false),
            ("v007", false),
            ("'no'", false),
            ("", false),
        ] {
            for text in [
                format!("é: 1\na: {written}\n"),
                format!("é: &x {written}\na: *x # 007\n"),
                format!("{{é: 1, a: {written} }}"),
            ] {
                let places: SpannedValues = serde_saphyr::from_str(&text).unwrap();
                let found = lost(&text, &places, ["a"]);
                assert_eq!(found, is_lost.then_some("a"), "{text}");
                assert_eq!(lost(&text, &places, ["b"]), None);
            }
        }
    }
}
