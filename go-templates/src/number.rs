//! Go's number syntax: integers in all bases and floats, with underscores, as strconv reads them. Knows nothing of templates.

/// A signed integer in the base that its prefix names, as `strconv.ParseInt(text, 0, 64)` takes it.
pub fn int(text: &str) -> Option<i64> {
    let (negative, unsigned) = split_sign(text);
    let magnitude = i128::from(uint(unsigned)?);
    i64::try_from(if negative { -magnitude } else { magnitude }).ok()
}

/// A float without its fraction. What no `int64` can hold becomes the smallest one, as on amd64.
pub fn float_to_int(value: f64) -> i64 {
    let fits = -(2f64.powi(63)) <= value && value < 2f64.powi(63);
    if fits { value as i64 } else { i64::MIN }
}

/// An unsigned integer in the base that its prefix names; a leading `0` alone means octal.
pub fn uint(text: &str) -> Option<u64> {
    let (base, digits) = match text.as_bytes() {
        [] => return None,
        [b'0', b'b' | b'B', _, ..] => (2, &text[2..]),
        [b'0', b'o' | b'O', _, ..] => (8, &text[2..]),
        [b'0', b'x' | b'X', _, ..] => (16, &text[2..]),
        [b'0', ..] => (8, &text[1..]),
        _ => (10, text),
    };
    if !underscores_separate_digits(text) {
        return None;
    }
    digits
        .chars()
        .filter(|c| *c != '_')
        .try_fold(0u64, |value, c| {
            value
                .checked_mul(base)?
                .checked_add(u64::from(c.to_digit(base as u32)?))
        })
}

fn split_sign(text: &str) -> (bool, &str) {
    match text.as_bytes() {
        [b'-', ..] => (true, &text[1..]),
        [b'+', ..] => (false, &text[1..]),
        _ => (false, text),
    }
}

/// Underscores may stand between digits, and between a base prefix and the first digit.
fn underscores_separate_digits(text: &str) -> bool {
    if !text.contains('_') {
        return true;
    }
    let (_, text) = split_sign(text);
    let (hex, prefixed, digits) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (true, true, &text[2..]),
        [b'0', b'b' | b'B' | b'o' | b'O', ..] => (false, true, &text[2..]),
        _ => (false, false, text),
    };
    let is_digit = |c: char| c.is_ascii_digit() || (hex && c.is_ascii_hexdigit());
    let mut after_digit = prefixed;
    let mut after_underscore = false;
    for c in digits.chars() {
        let legal = match c {
            '_' => after_digit,
            _ => is_digit(c) || !after_underscore,
        };
        if !legal {
            return false;
        }
        after_digit = is_digit(c);
        after_underscore = c == '_';
    }
    !after_underscore
}

/// A decimal float, a hexadecimal one with its obligatory `p` exponent, an infinity or a NaN, as
/// `strconv.ParseFloat(text, 64)` takes it. A number too large for a float is none.
pub fn float(text: &str) -> Option<f64> {
    if !underscores_separate_digits(text) {
        return None;
    }
    let (negative, unsigned) = split_sign(text);
    let plain: String = unsigned.chars().filter(|c| *c != '_').collect();
    let magnitude = match plain.strip_prefix("0x").or(plain.strip_prefix("0X")) {
        Some(hex) => hex_float(hex)?,
        None if plain.starts_with(|c: char| c.is_ascii_digit() || c == '.') => plain
            .parse::<f64>()
            .ok()
            .filter(|value| value.is_finite())?,
        None => special(unsigned, text)?,
    };
    Some(if negative { -magnitude } else { magnitude })
}

/// Infinity with or without a sign, NaN without, in any case of letters.
fn special(unsigned: &str, signed: &str) -> Option<f64> {
    match unsigned.to_ascii_lowercase().as_str() {
        "inf" | "infinity" => Some(f64::INFINITY),
        "nan" if signed.len() == unsigned.len() => Some(f64::NAN),
        _ => None,
    }
}

/// `1.8p-2`: the mantissa's first 16 significant digits count, of later ones only whether any is not zero.
fn hex_float(text: &str) -> Option<f64> {
    let (mantissa_text, exponent_text) = text.split_once(['p', 'P'])?;
    let (whole, fraction) = mantissa_text.split_once('.').unwrap_or((mantissa_text, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let (mut mantissa, mut inexact, mut exponent) = (0u64, false, 0i64);
    for (index, c) in whole.chars().chain(fraction.chars()).enumerate() {
        let digit = u64::from(c.to_digit(16)?);
        let is_fraction = index >= whole.len();
        if mantissa >> 60 == 0 {
            mantissa = mantissa << 4 | digit;
            exponent -= if is_fraction { 4 } else { 0 };
        } else {
            inexact |= digit != 0;
            exponent += if is_fraction { 0 } else { 4 };
        }
    }
    let (negative, exponent_digits) = split_sign(exponent_text);
    if exponent_digits.is_empty() {
        return None;
    }
    let written = exponent_digits.chars().try_fold(0i64, |value, c| {
        Some((value * 10 + i64::from(c.to_digit(10)?)).min(1_000_000_000))
    })?;
    exponent += if negative { -written } else { written };
    rounded(mantissa, inexact, exponent)
}

/// `mantissa * 2^exponent`, and a bit more if `inexact`, rounded to the nearest float, ties to even.
fn rounded(mantissa: u64, inexact: bool, exponent: i64) -> Option<f64> {
    if mantissa == 0 {
        return Some(0.0);
    }
    let zeros = mantissa.leading_zeros();
    let normal = u128::from(mantissa << zeros);
    let power = exponent + 63 - i64::from(zeros);
    if power > 1023 {
        return None;
    }
    let is_subnormal = power < -1022;
    let kept_bits = if is_subnormal { power + 1022 + 53 } else { 53 };
    if kept_bits < 0 {
        return Some(0.0);
    }
    let dropped_bits = 64 - kept_bits;
    let kept = normal >> dropped_bits;
    let rest = normal & ((1 << dropped_bits) - 1);
    let half = 1u128 << (dropped_bits - 1);
    let up = rest > half || (rest == half && (inexact || kept & 1 == 1));
    let kept = (kept + u128::from(up)) as u64;
    let bits = if is_subnormal {
        kept
    } else {
        // The mantissa's top bit adds one to the exponent field, and so does a carry out of rounding.
        (((power + 1022) as u64) << 52) + kept
    };
    Some(f64::from_bits(bits)).filter(|value| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_in_the_base_of_their_prefix() {
        let cases = [
            ("0", Some(0)),
            ("-0", Some(0)),
            ("+7", Some(7)),
            ("0x_fF", Some(255)),
            ("-0b101", Some(-5)),
            ("0o17", Some(15)),
            ("017", Some(15)),
            ("0_17", Some(15)),
            ("1_000", Some(1000)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-9223372036854775809", None),
            ("18446744073709551616", None),
            ("", None),
            ("-", None),
            ("08", None),
            ("0x", None),
            ("0b2", None),
            ("1__0", None),
            ("_1", None),
            ("1_", None),
            (" 1", None),
            ("1.0", None),
            ("--1", None),
        ];
        for (text, expected) in cases {
            assert_eq!(int(text), expected, "{text:?}");
        }
    }

    #[test]
    fn floats_are_read_as_go_reads_them() {
        let cases = [
            ("1.5", Some(1.5)),
            (".5", Some(0.5)),
            ("5.", Some(5.0)),
            ("-1e3", Some(-1000.0)),
            ("1_0.5e1_0", Some(10.5e10)),
            ("0x1p-2", Some(0.25)),
            ("-0X1.8P1", Some(-3.0)),
            ("0x1p-1074", Some(5e-324)),
            ("0x1p-1075", Some(0.0)),
            ("0x1.8p-1075", Some(5e-324)),
            ("0x1.fffffffffffff7ffp1023", Some(f64::MAX)),
            ("0x1.fffffffffffff8p1023", None),
            ("0x1.00000000000008p0", Some(1.0)),
            (
                "0x1.000000000000080000000000001p0",
                Some(1.0 + f64::EPSILON),
            ),
            ("0x0.00000000000000000000000001p0", Some(2f64.powi(-104))),
            ("0x10000000000000000000000p0", Some(2f64.powi(88))),
            ("inf", Some(f64::INFINITY)),
            ("-Infinity", Some(f64::NEG_INFINITY)),
            ("1e400", None),
            ("1e-400", Some(0.0)),
            ("0x1.8", None),
            ("0xp1", None),
            ("0x1p", None),
            ("1e", None),
            (".", None),
            ("", None),
            ("-nan", None),
            ("1._5", None),
            ("e5", None),
            ("1 ", None),
        ];
        for (text, expected) in cases {
            assert_eq!(float(text), expected, "{text:?}");
        }
        assert!(float("NaN").is_some_and(f64::is_nan));
    }
}
