//! Converts column values to text. Sees one value, never the row.
//!
//! The query selects `column::text`, so every type, also one of an extension, reads as the server prints it: a boolean is `true`
//! or `false`, an array `{a,b}`, a bit string its digits. Floating point numbers, dates and times are converted here to what
//! other sources give for the same value. `bytea` arrives as its bytes.

use std::error::Error;

use tokio_postgres::types::{FromSql, Type};

use crate::datasource::database::values::{rfc3339, shortest};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conversion {
    None,
    Bytes,
    Float,
    Double,
    Time,
}

impl Conversion {
    pub fn of_type(type_: &Type) -> Self {
        match *type_ {
            Type::BYTEA => Self::Bytes,
            Type::FLOAT4 => Self::Float,
            Type::FLOAT8 => Self::Double,
            Type::DATE | Type::TIMESTAMP | Type::TIMESTAMPTZ => Self::Time,
            _ => Self::None,
        }
    }

    /// The cast to append to the column's name.
    pub fn cast(self) -> &'static str {
        match self {
            Self::Bytes => "",
            Self::None | Self::Float | Self::Double | Self::Time => "::text",
        }
    }

    /// Returns a value that it cannot convert unchanged: `NaN`, `infinity`, years before Christ or after 9999.
    pub fn apply(self, bytes: &[u8]) -> Vec<u8> {
        let text = std::str::from_utf8(bytes).ok();
        let converted = match self {
            Self::None | Self::Bytes => None,
            Self::Float => text.and_then(shortest::<f32>),
            Self::Double => text.and_then(shortest::<f64>),
            Self::Time => text.and_then(time),
        };
        converted.map_or_else(|| bytes.to_vec(), String::into_bytes)
    }
}

/// Expects UTC, the transaction's time zone.
fn time(text: &str) -> Option<String> {
    if text.ends_with(" BC") {
        return None;
    }
    rfc3339(text.strip_suffix("+00").unwrap_or(text))
}

/// The bytes of a value of any type, as the server sends them.
pub struct Raw<'a>(pub &'a [u8]);

impl<'a> FromSql<'a> for Raw<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(raw))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions() {
        let cases = [
            (Conversion::None, "007", "007"),
            (Conversion::Bytes, "1e5", "1e5"),
            (Conversion::Double, "1e+15", "1000000000000000"),
            (Conversion::Double, "1e+21", "1e+21"),
            (Conversion::Double, "1e-05", "1e-05"),
            (Conversion::Double, "-0", "-0"),
            (Conversion::Double, "NaN", "NaN"),
            (Conversion::Double, "-Infinity", "-Infinity"),
            (Conversion::Float, "1e+20", "100000000000000000000"),
            (Conversion::Float, "Infinity", "Infinity"),
            (Conversion::Time, "2024-01-31", "2024-01-31T00:00:00Z"),
            (
                Conversion::Time,
                "2024-01-31 10:11:12.5",
                "2024-01-31T10:11:12.5Z",
            ),
            (
                Conversion::Time,
                "2024-01-31 10:11:12+00",
                "2024-01-31T10:11:12Z",
            ),
            (Conversion::Time, "0044-03-15 BC", "0044-03-15 BC"),
            (
                Conversion::Time,
                "0044-03-15 00:00:00+00 BC",
                "0044-03-15 00:00:00+00 BC",
            ),
            (Conversion::Time, "10000-01-01", "10000-01-01"),
            (Conversion::Time, "infinity", "infinity"),
            (Conversion::Time, "-infinity", "-infinity"),
        ];
        for (conversion, text, expected) in cases {
            let found = String::from_utf8(conversion.apply(text.as_bytes())).unwrap();
            assert_eq!(found, expected, "{conversion:?} of {text}");
        }
    }
}
