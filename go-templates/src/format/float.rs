//! Floats as Go's strconv writes them: `e`, `f`, `g`, `b` and `x`, shortest or to a precision. Pads nothing.

/// The largest precision that changes a digit: a float has no more decimals than this, the rest are zeros.
const PRECISION_MAX: usize = 1100;

/// A float in the form `verb` (one of `eEfgGbxX`), with the shortest digits that read back the same if there is no precision.
pub fn format_float(value: f64, verb: u8, precision: Option<usize>) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    let sign = if value.is_sign_negative() { "-" } else { "" };
    let magnitude = value.abs();
    if magnitude.is_infinite() {
        return if sign.is_empty() { "+Inf" } else { "-Inf" }.to_owned();
    }
    let digits = match verb {
        b'b' => binary(magnitude),
        b'x' | b'X' => hexadecimal(magnitude, precision),
        b'f' => fixed(magnitude, precision),
        b'e' | b'E' => exponential(magnitude, precision),
        _ => general(magnitude, precision),
    };
    if verb.is_ascii_uppercase() {
        format!("{sign}{}", digits.to_ascii_uppercase())
    } else {
        format!("{sign}{digits}")
    }
}

fn fixed(value: f64, precision: Option<usize>) -> String {
    match precision {
        None => {
            let (digits, exponent) = shortest(value);
            without_exponent(&digits, exponent)
        }
        Some(precision) => {
            let exact = precision.min(PRECISION_MAX);
            format!("{value:.exact$}{}", "0".repeat(precision - exact))
        }
    }
}

fn exponential(value: f64, precision: Option<usize>) -> String {
    let (digits, exponent) = match precision {
        None => shortest(value),
        Some(precision) => {
            let exact = precision.min(PRECISION_MAX);
            let (digits, exponent) = significant(&format!("{value:.exact$e}"));
            (digits + &"0".repeat(precision - exact), exponent)
        }
    };
    with_exponent(&digits, exponent)
}

/// An exponent for the very small and for what has more digits before the point than asked for, 6 if nothing was.
fn general(value: f64, precision: Option<usize>) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let wanted = precision.map(|precision| precision.max(1));
    let (digits, exponent) = match wanted {
        None => shortest(value),
        Some(wanted) => significant(&format!("{value:.0$e}", wanted.min(PRECISION_MAX) - 1)),
    };
    let digits = digits.trim_end_matches('0');
    let count = digits.len() as i64;
    let exponent_limit = match wanted {
        None => 6,
        Some(wanted) if wanted as i64 > count && count > i64::from(exponent) => count,
        Some(wanted) => wanted as i64,
    };
    if exponent < -4 || i64::from(exponent) >= exponent_limit {
        with_exponent(digits, exponent)
    } else {
        without_exponent(digits, exponent)
    }
}

/// The fewest digits that read back the same. Of several, Go takes the nearest, and of two as near the even one.
fn shortest(value: f64) -> (String, i32) {
    let (digits, _) = significant(&format!("{value:e}"));
    significant(&format!("{value:.0$e}", digits.len() - 1))
}

/// The digits and the exponent of Rust's `d.ddde±xx`.
fn significant(scientific: &str) -> (String, i32) {
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    (mantissa.replace('.', ""), exponent.parse().unwrap_or(0))
}

fn with_exponent(digits: &str, exponent: i32) -> String {
    let (first, rest) = digits.split_at(1);
    let point = if rest.is_empty() { "" } else { "." };
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{first}{point}{rest}e{sign}{:02}", exponent.abs())
}

fn without_exponent(digits: &str, exponent: i32) -> String {
    if exponent < 0 {
        return format!("0.{}{digits}", "0".repeat((-exponent - 1) as usize));
    }
    let before_point = exponent as usize + 1;
    if digits.len() <= before_point {
        return format!("{digits}{}", "0".repeat(before_point - digits.len()));
    }
    let (whole, fraction) = digits.split_at(before_point);
    format!("{whole}.{fraction}")
}

/// Mantissa and power of two, both in decimal.
fn binary(value: f64) -> String {
    let (mantissa, exponent) = parts(value);
    format!("{mantissa}p{exponent:+}")
}

/// The integer mantissa and the exponent that goes with it.
fn parts(value: f64) -> (u64, i32) {
    let bits = value.to_bits();
    let field = ((bits >> 52) & 0x7ff) as i32;
    let fraction = bits & ((1 << 52) - 1);
    match field {
        0 => (fraction, -1074),
        _ => (fraction | 1 << 52, field - 1075),
    }
}

/// `0x1.8p+00`, rounded to the precision by nearest, ties to even.
fn hexadecimal(value: f64, precision: Option<usize>) -> String {
    let (mut mantissa, mut exponent) = parts(value);
    if mantissa == 0 {
        exponent = 0;
    } else {
        // One digit before the point, and 60 bits after it.
        let shift = mantissa.leading_zeros() as i32 - 3;
        mantissa <<= shift;
        exponent += 60 - shift;
    }
    if let Some(precision) = precision.filter(|precision| *precision < 15) {
        let dropped = 60 - 4 * precision as u32;
        let rest = mantissa & ((1 << dropped) - 1);
        let half = 1 << (dropped - 1);
        mantissa >>= dropped;
        if rest > half || (rest == half && mantissa & 1 == 1) {
            mantissa += 1;
        }
        mantissa <<= dropped;
        if mantissa >> 61 != 0 {
            mantissa >>= 1;
            exponent += 1;
        }
    }
    let first = mantissa >> 60;
    let all = format!("{:015x}", mantissa & ((1 << 60) - 1));
    let fraction = match precision {
        None => all.trim_end_matches('0').to_owned(),
        Some(precision) if precision <= all.len() => all[..precision].to_owned(),
        Some(precision) => format!("{all}{}", "0".repeat(precision - all.len())),
    };
    let point = if fraction.is_empty() { "" } else { "." };
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("0x{first}{point}{fraction}p{sign}{:02}", exponent.abs())
}
