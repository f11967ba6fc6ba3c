//! Converts texts that each product prints differently into the form that templates see.

use std::fmt::{Display, LowerExp};
use std::str::FromStr;

use jiff::ToSpan;
use jiff::civil::Date;

/// The fewest digits that still mean this number, with an exponent (as Go writes it) only below 1e-4 and from 1e21 on. Lynq
/// prints Go's `%g`, which uses exponents from 1e6 or a little later. None for infinity and NaN.
pub fn shortest<F: FromStr + Display + LowerExp>(text: &str) -> Option<String> {
    let number: F = text.parse().ok()?;
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e')?;
    let exponent: i32 = exponent.parse().ok()?;
    if (-4..21).contains(&exponent) {
        return Some(number.to_string());
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    Some(format!("{digits}e{sign}{:02}", exponent.abs()))
}

/// `2024-01-31[ 10:00:00[.500000]]` as UTC, whatever the server's time zone is. Like the Go driver, it takes a zero
/// year, month or day for a one, so that the zero date is 0001-01-01, and 31 April for 1 May.
pub fn rfc3339(text: &str) -> Option<String> {
    let (date, time) = text.split_once(' ').unwrap_or((text, "00:00:00"));
    let mut parts = date.split('-');
    let mut part = || parts.next()?.parse::<i16>().ok();
    let (year, month, day) = (part()?.max(1), part()?.max(1), part()?.max(1));
    let first = Date::new(year, month.try_into().ok()?, 1).ok()?;
    let date = first.checked_add((i64::from(day) - 1).days()).ok()?;
    // Remove the fraction's trailing zeros, and the point if no digit is left.
    let time = match time.split_once('.') {
        Some((seconds, fraction)) => {
            let fraction = fraction.trim_end_matches('0');
            let point = if fraction.is_empty() { "" } else { "." };
            format!("{seconds}{point}{fraction}")
        }
        None => time.to_owned(),
    };
    Some(format!("{date}T{time}Z"))
}
