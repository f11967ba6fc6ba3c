//! How the numbers of a YAML text are written. In a row each is a text, which must not become another one without a word:
//! `01234` of a postal code would be 1234 to one parser, and 668 to the next.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_saphyr::Spanned;

/// A mapping's values, with their places in the text.
pub type Places = BTreeMap<String, Spanned<Value>>;

/// The first of these columns whose value would lose how it is written.
pub fn lost<'a>(
    text: &str,
    places: &Places,
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

/// A fraction may: as in a database, zeros at its end say nothing.
fn loses(value: &Value, raw: &str) -> bool {
    let digits = raw.trim_start_matches(['+', '-']).as_bytes();
    let leads = digits.first() == Some(&b'0') && digits.get(1).is_some_and(u8::is_ascii_digit);
    match value {
        Value::Number(number) if !number.is_f64() => number.to_string() != raw,
        Value::Number(_) => leads || raw.starts_with('+'),
        _ => false,
    }
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
            ("1.50", false),
            ("0.5", false),
            ("1e3", false),
            ("12345678901234567890", false),
            ("'01234'", false),
            ("\"+49\"", false),
            ("!!str 007", false),
            ("v007", false),
            ("no", false),
            ("", false),
        ] {
            for text in [
                format!("é: 1\na: {written}\n"),
                format!("é: &x {written}\na: *x # 007\n"),
                format!("{{é: 1, a: {written} }}"),
            ] {
                let places: Places = serde_saphyr::from_str(&text).unwrap();
                let found = lost(&text, &places, ["a"]);
                assert_eq!(found, is_lost.then_some("a"), "{text}");
                assert_eq!(lost(&text, &places, ["b"]), None);
            }
        }
    }
}
