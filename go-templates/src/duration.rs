//! Go's durations: nanoseconds in 64 bits, written `1h2m3.5s`. Knows nothing of templates.

pub const SECOND: i64 = 1_000_000_000;
pub const MINUTE: i64 = 60 * SECOND;
pub const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// Parses numbers with units into nanoseconds; one sign may precede all of them.
pub fn parse(text: &[u8]) -> Result<i64, String> {
    let invalid = || format!("time: invalid duration {}", quote(text));
    let (is_negative, mut rest) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if rest == b"0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total = 0u64;
    while !rest.is_empty() {
        let (whole, after) = digits(rest);
        let (fraction, after) = match after {
            [b'.', after @ ..] => digits(after),
            after => (&after[..0], after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        let is_unit = |byte: &u8| *byte != b'.' && !byte.is_ascii_digit();
        let end = after.iter().position(|byte| !is_unit(byte));
        let (name, after) = after.split_at(end.unwrap_or(after.len()));
        if name.is_empty() {
            return Err(format!("time: missing unit in duration {}", quote(text)));
        }
        let Some(unit) = unit(name) else {
            return Err(format!(
                "time: unknown unit {} in duration {}",
                quote(name),
                quote(text)
            ));
        };
        let part = amount(whole, fraction, unit).ok_or_else(invalid)?;
        total = total
            .checked_add(part)
            .filter(|total| *total <= LIMIT)
            .ok_or_else(invalid)?;
        rest = after;
    }
    match (is_negative, total) {
        (true, total) => Ok((total as i64).wrapping_neg()),
        (false, LIMIT) => Err(invalid()),
        (false, total) => Ok(total as i64),
    }
}

/// The magnitude of the smallest duration, one more than that of the largest.
const LIMIT: u64 = 1 << 63;

fn digits(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|byte| !byte.is_ascii_digit());
    text.split_at(end.unwrap_or(text.len()))
}

fn unit(name: &[u8]) -> Option<u64> {
    Some(match name {
        b"ns" => 1,
        b"us" | b"\xc2\xb5s" | b"\xce\xbcs" => 1_000,
        b"ms" => 1_000_000,
        b"s" => SECOND as u64,
        b"m" => MINUTE as u64,
        b"h" => HOUR as u64,
        _ => return None,
    })
}

/// So many units, with decimals as far as they fit into 63 bits.
fn amount(whole: &[u8], fraction: &[u8], unit: u64) -> Option<u64> {
    let mut number = 0u64;
    for digit in whole {
        number = number
            .checked_mul(10)?
            .checked_add(u64::from(digit - b'0'))
            .filter(|number| *number <= LIMIT)?;
    }
    let (mut decimals, mut scale) = (0u64, 1f64);
    for digit in fraction {
        let longer = decimals
            .checked_mul(10)
            .and_then(|longer| longer.checked_add(u64::from(digit - b'0')))
            .filter(|longer| *longer <= LIMIT && decimals <= (LIMIT - 1) / 10);
        let Some(longer) = longer else { break };
        (decimals, scale) = (longer, scale * 10.0);
    }
    let nanoseconds = number.checked_mul(unit).filter(|all| *all <= LIMIT)?;
    let rest = (decimals as f64 * (unit as f64 / scale)) as u64;
    nanoseconds.checked_add(rest).filter(|all| *all <= LIMIT)
}

/// As Go's `Duration.String` writes it: the largest unit is the hour, and below a second there is only one.
pub fn show(nanoseconds: i64) -> String {
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let magnitude = nanoseconds.unsigned_abs();
    let second = SECOND as u64;
    if magnitude < second {
        let (unit, name) = match magnitude {
            0 => return "0s".to_owned(),
            1..1_000 => (1, "ns"),
            1_000..1_000_000 => (1_000, "µs"),
            _ => (1_000_000, "ms"),
        };
        return format!("{sign}{}{name}", with_decimals(magnitude, unit));
    }
    let minutes = magnitude / (60 * second);
    let seconds = with_decimals(magnitude % (60 * second), second);
    match (minutes / 60, minutes % 60) {
        (0, 0) => format!("{sign}{seconds}s"),
        (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
        (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
    }
}

/// `amount` in units, with as many decimals as it has.
fn with_decimals(amount: u64, unit: u64) -> String {
    let (whole, rest) = (amount / unit, amount % unit);
    let places = unit.ilog10() as usize;
    let decimals = format!("{rest:0places$}");
    match decimals.trim_end_matches('0') {
        _ if rest == 0 => whole.to_string(),
        decimals => format!("{whole}.{decimals}"),
    }
}

/// To a multiple of `unit`, away from zero where two are as near; at most what a duration can hold.
pub fn rounded(nanoseconds: i64, unit: i64) -> i64 {
    if unit <= 0 {
        return nanoseconds;
    }
    let rest = nanoseconds % unit;
    let down = nanoseconds - rest;
    match rest.unsigned_abs() * 2 < unit.unsigned_abs() {
        true => down,
        false => down.saturating_add(unit * nanoseconds.signum()),
    }
}

/// The duration in the largest unit of which it has more than one, as a whole number without sign.
pub fn largest_unit(nanoseconds: i64) -> String {
    let magnitude = nanoseconds.unsigned_abs();
    let units = [
        (365 * DAY, "y"),
        (30 * DAY, "mo"),
        (DAY, "d"),
        (HOUR, "h"),
        (MINUTE, "m"),
        (SECOND, "s"),
    ];
    let mut units = units.iter().map(|(unit, name)| (*unit as u64, name));
    match units.find(|(unit, _)| magnitude > *unit) {
        Some((unit, name)) => format!("{}{name}", magnitude / unit),
        None => "0s".to_owned(),
    }
}

/// A decimal integer; saturates if it is too large, and is 0 for any other text.
pub fn whole_number(text: &[u8]) -> i64 {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] | digits => (false, digits),
    };
    if !digits.first().is_some_and(u8::is_ascii_digit) {
        return 0;
    }
    // As Go reads it: what is too large only with its sign is still read to its end, and may be none.
    let magnitude: u64 = match std::str::from_utf8(digits).unwrap_or_default().parse() {
        Ok(magnitude) => magnitude,
        Err(error) if *error.kind() == std::num::IntErrorKind::PosOverflow => u64::MAX,
        Err(_) => 0,
    };
    match negative {
        true => 0i64.checked_sub_unsigned(magnitude).unwrap_or(i64::MIN),
        false => i64::try_from(magnitude).unwrap_or(i64::MAX),
    }
}

/// As the time package quotes: every byte that is no printable ASCII by its number.
pub fn quote(text: &[u8]) -> String {
    let mut quoted = String::from("\"");
    for byte in text {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(*byte)]),
            b' '..=b'\x7f' => quoted.push(char::from(*byte)),
            _ => quoted.push_str(&format!("\\x{byte:02x}")),
        }
    }
    quoted + "\""
}
