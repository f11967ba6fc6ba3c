//! Converts column values to the text that Lynq's templates have always seen. Sees one value, never the row.
//!
//! Rows arrive as text, so most values stay as the server prints them. Three differ from Lynq on purpose: `BIT` is a number and
//! not a byte, a number with `ZEROFILL` keeps its zeros, and a floating point number below 1e21 has no exponent.

use mysql_async::Column;
use mysql_async::consts::ColumnType;

use crate::datasource::database::values::{rfc3339, shortest};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conversion {
    None,
    Bit,
    Float,
    Double,
    Time,
}

impl Conversion {
    pub fn of_column(column: &Column) -> Self {
        match column.column_type() {
            ColumnType::MYSQL_TYPE_BIT => Self::Bit,
            ColumnType::MYSQL_TYPE_FLOAT => Self::Float,
            ColumnType::MYSQL_TYPE_DOUBLE => Self::Double,
            ColumnType::MYSQL_TYPE_DATE
            | ColumnType::MYSQL_TYPE_NEWDATE
            | ColumnType::MYSQL_TYPE_DATETIME
            | ColumnType::MYSQL_TYPE_DATETIME2
            | ColumnType::MYSQL_TYPE_TIMESTAMP
            | ColumnType::MYSQL_TYPE_TIMESTAMP2 => Self::Time,
            _ => Self::None,
        }
    }

    /// Returns a value that it cannot convert unchanged.
    pub fn apply(self, bytes: Vec<u8>) -> Vec<u8> {
        let text = std::str::from_utf8(&bytes).ok();
        let converted = match self {
            Self::None => None,
            Self::Bit => bit(&bytes),
            Self::Float => text.and_then(shortest::<f32>),
            Self::Double => text.and_then(shortest::<f64>),
            Self::Time => text.and_then(rfc3339),
        };
        converted.map_or(bytes, String::into_bytes)
    }
}

/// Big-endian, 1 to 8 bytes.
fn bit(bytes: &[u8]) -> Option<String> {
    let mut number = [0; 8];
    let start = number.len().checked_sub(bytes.len())?;
    number[start..].copy_from_slice(bytes);
    Some(u64::from_be_bytes(number).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions() {
        type Case<'a> = (Conversion, &'a [u8], &'a str);
        let cases: &[Case] = &[
            (Conversion::None, b"007", "007"),
            (Conversion::Bit, b"\x01", "1"),
            (Conversion::Bit, b"\x00", "0"),
            (Conversion::Bit, b"\x01\x00", "256"),
            (Conversion::Bit, &[0xff; 8], "18446744073709551615"),
            (Conversion::Bit, b"", "0"),
            (Conversion::Double, b"0", "0"),
            (Conversion::Double, b"-0", "-0"),
            (Conversion::Double, b"1.50", "1.5"),
            (Conversion::Double, b"1000000", "1000000"),
            (Conversion::Double, b"12345678.5", "12345678.5"),
            (Conversion::Double, b"1e15", "1000000000000000"),
            (Conversion::Double, b"1e20", "100000000000000000000"),
            (Conversion::Double, b"1e21", "1e+21"),
            (Conversion::Double, b"-1.5e300", "-1.5e+300"),
            (Conversion::Double, b"0.0001", "0.0001"),
            (Conversion::Double, b"0.00001", "1e-05"),
            (Conversion::Double, b"1.25e-100", "1.25e-100"),
            (Conversion::Double, b"0.1", "0.1"),
            (
                Conversion::Double,
                b"0.30000000000000004",
                "0.30000000000000004",
            ),
            (Conversion::Double, b"1e400", "1e400"),
            (Conversion::Double, b"?", "?"),
            (Conversion::Float, b"0.1", "0.1"),
            (Conversion::Float, b"16777216", "16777216"),
            (Conversion::Float, b"1e20", "100000000000000000000"),
            (Conversion::Float, b"3.40282e38", "3.40282e+38"),
            (Conversion::Time, b"2024-01-31", "2024-01-31T00:00:00Z"),
            (
                Conversion::Time,
                b"2024-02-29 23:59:59",
                "2024-02-29T23:59:59Z",
            ),
            (
                Conversion::Time,
                b"2024-01-01 10:00:00.500000",
                "2024-01-01T10:00:00.5Z",
            ),
            (
                Conversion::Time,
                b"2024-01-01 10:00:00.000001",
                "2024-01-01T10:00:00.000001Z",
            ),
            (
                Conversion::Time,
                b"2024-01-01 10:00:00.000",
                "2024-01-01T10:00:00Z",
            ),
            (Conversion::Time, b"0000-00-00", "0001-01-01T00:00:00Z"),
            (
                Conversion::Time,
                b"0000-00-00 00:00:00.000000",
                "0001-01-01T00:00:00Z",
            ),
            (Conversion::Time, b"2024-00-00", "2024-01-01T00:00:00Z"),
            (Conversion::Time, b"2023-02-30", "2023-03-02T00:00:00Z"),
            (
                Conversion::Time,
                b"9999-12-31 23:59:59.999999",
                "9999-12-31T23:59:59.999999Z",
            ),
            (Conversion::Time, b"tomorrow", "tomorrow"),
        ];
        for (conversion, bytes, expected) in cases {
            let found = String::from_utf8(conversion.apply(bytes.to_vec())).unwrap();
            let shown = String::from_utf8_lossy(bytes);
            assert_eq!(found, *expected, "{conversion:?} of {shown:?}");
        }
    }
}
