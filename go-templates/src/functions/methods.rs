//! The methods and fields of function results, by Go's names: of times, durations, months, weekdays, versions and certificates. A
//! method is a function whose first argument precedes the point.

use crate::functions::Function;
use crate::functions::{semver, time};
use crate::named::Named;
use crate::value::Value;

/// The meaning of a name after a value's point.
pub enum Member {
    /// A method: a function whose first argument is the value itself.
    Method(&'static Function),
    /// A field with its value.
    Field(Value),
    /// It exists, but no template can use it; with the reason.
    Unusable(String),
}

/// Nothing for values that have neither methods nor fields, and for what they do not have.
pub fn member(value: &Value, name: &str) -> Option<Member> {
    if let Value::Certificate(certificate) = value {
        let fields = certificate.fields().into_iter();
        let found = fields.filter(|(field, _)| *field == name);
        return found
            .map(|(_, text)| Member::Field(Value::Str(text.clone())))
            .next();
    }
    let method = tables(value)
        .iter()
        .copied()
        .flatten()
        .find(|method| method.name == name);
    method
        .map(Member::Method)
        .or_else(|| unusable(value, name).map(Member::Unusable))
}

/// Every method, for tests.
pub fn all() -> impl Iterator<Item = &'static Function> {
    let tables = [
        time::OF_TIME,
        time::OF_DURATION,
        time::NAMED,
        semver::OF_VERSION,
        semver::OF_POINTER,
    ];
    tables.into_iter().flatten()
}

/// The methods of a value's type.
fn tables(value: &Value) -> &'static [&'static [Function]] {
    match value {
        Value::Time(_) => &[time::OF_TIME],
        Value::Named(Named::Duration(_)) => &[time::OF_DURATION, time::NAMED],
        Value::Named(_) => &[time::NAMED],
        Value::Version(version) if version.derived => &[semver::OF_VERSION],
        Value::Version(_) => &[semver::OF_VERSION, semver::OF_POINTER],
        _ => &[],
    }
}

/// In Go's words where Go has some.
fn unusable(value: &Value, name: &str) -> Option<String> {
    let not_an_error = |second: &str| {
        format!(
            "invalid function signature for {name}: second return value should be error; is {second}"
        )
    };
    Some(match (value, name) {
        (Value::Time(_), "Clock" | "Date") => {
            format!("function {name} has 3 return values; should be 1 or 2")
        }
        (Value::Time(_), "ISOWeek" | "Zone") => not_an_error("int"),
        (Value::Time(_), "ZoneBounds") => not_an_error("time.Time"),
        (Value::Time(_), "In" | "Location") => {
            format!("{name} of a time is not there; dateInZone shows a time in a zone")
        }
        (Value::Time(_), "wall" | "ext" | "loc")
        | (Value::Version(_), "major" | "minor" | "patch" | "pre" | "metadata" | "original") => {
            format!(
                "{name} is an unexported field of struct type {}",
                value.type_name()
            )
        }
        _ => return None,
    })
}
