//! Formats integers in any base, characters, and bytes in hexadecimal, with the effect of flags. Pads only with zeros.

use crate::format::verb::Flags;
use crate::quote;
use crate::runes;

/// An integer with its sign and prefix, filled up with zeros as flags, width and precision say.
pub fn integer(magnitude: u64, negative: bool, base: u32, verb: char, flags: &Flags) -> String {
    if flags.precision == Some(0) && magnitude == 0 {
        return String::new();
    }
    let digits = match (base, verb) {
        (2, _) => format!("{magnitude:b}"),
        (8, _) => format!("{magnitude:o}"),
        (16, 'X') => format!("{magnitude:X}"),
        (16, _) => format!("{magnitude:x}"),
        _ => magnitude.to_string(),
    };
    let sign = match (negative, flags.plus, flags.space) {
        (true, ..) => "-",
        (_, true, _) => "+",
        (_, _, true) => " ",
        _ => "",
    };
    let digits_min = match (flags.precision, flags.width) {
        (Some(precision), _) => precision,
        (None, Some(width)) if flags.zero && !flags.minus => width.saturating_sub(sign.len()),
        _ => 0,
    };
    let zeros = "0".repeat(digits_min.saturating_sub(digits.len()));
    let prefix = match base {
        _ if verb == 'O' => "0o",
        2 if flags.sharp => "0b",
        8 if flags.sharp && zeros.is_empty() && !digits.starts_with('0') => "0",
        16 if flags.sharp && verb == 'X' => "0X",
        16 if flags.sharp => "0x",
        _ => "",
    };
    // `%#O` has both prefixes.
    let octal = match base {
        8 if verb == 'O' && flags.sharp && zeros.is_empty() && !digits.starts_with('0') => "0",
        _ => "",
    };
    format!("{sign}{prefix}{octal}{zeros}{digits}")
}

/// The character of that number, or the one that stands for no character.
pub fn character(number: u64) -> char {
    u32::try_from(number)
        .ok()
        .and_then(char::from_u32)
        .unwrap_or(runes::ERROR)
}

/// A character constant: `'x'`.
pub fn quoted_character(c: char, ascii: bool) -> String {
    let in_string = match ascii {
        true => quote_to_ascii(c.encode_utf8(&mut [0; 4]).as_bytes()),
        false => quote::quote(c.encode_utf8(&mut [0; 4]).as_bytes()),
    };
    let inner = &in_string[1..in_string.len() - 1];
    match c {
        '"' => "'\"'".to_owned(),
        '\'' => r"'\''".to_owned(),
        _ => format!("'{inner}'"),
    }
}

/// Quotes as [`quote::quote`] does, with an escape for everything that is not ASCII.
pub fn quote_to_ascii(bytes: &[u8]) -> String {
    let mut quoted = String::with_capacity(bytes.len() + 2);
    for c in quote::quote(bytes).chars() {
        match u32::from(c) {
            0..0x80 => quoted.push(c),
            code @ 0x80..0x1_0000 => quoted.push_str(&format!("\\u{code:04x}")),
            code => quoted.push_str(&format!("\\U{code:08x}")),
        }
    }
    quoted
}

/// `U+0041`, and with `#` the character itself behind it.
pub fn unicode(number: u64, flags: &Flags) -> String {
    let digits_min = flags.precision.unwrap_or(0).max(4);
    let code = format!("U+{number:0digits_min$X}", digits_min = digits_min.min(64));
    let code = match digits_min {
        0..=64 => code,
        _ => code.replacen("U+", &format!("U+{}", "0".repeat(digits_min - 64)), 1),
    };
    let shown = u32::try_from(number).ok().and_then(char::from_u32);
    match shown.filter(|c| flags.sharp && quote::is_printable(*c)) {
        Some(c) => format!("{code} '{c}'"),
        None => code,
    }
}

/// Two digits a byte; a space flag separates them, a sharp flag marks each group with `0x`.
pub fn hexadecimal(bytes: &[u8], upper: bool, flags: &Flags) -> String {
    let mut text = String::new();
    for (index, byte) in bytes.iter().enumerate() {
        if flags.space && index > 0 {
            text.push(' ');
        }
        if flags.sharp && (flags.space || index == 0) {
            text.push_str(if upper { "0X" } else { "0x" });
        }
        text.push_str(&match upper {
            true => format!("{byte:02X}"),
            false => format!("{byte:02x}"),
        });
    }
    text
}

/// The sharp flag of floats: always a point, and trailing zeros up to the precision. `signed` has its sign.
pub fn with_point(signed: &str, form: u8, precision: Option<usize>) -> String {
    let counts_digits = matches!(form, b'g' | b'G' | b'x');
    let mut missing = match counts_digits {
        true => precision.unwrap_or(6) as i64,
        false => 0,
    };
    let tail_start = match form {
        b'x' | b'X' => signed.find(['p', 'P']),
        _ => signed.find(['e', 'E']),
    };
    let (number, tail) = signed.split_at(tail_start.unwrap_or(signed.len()));
    let mut significant = false;
    for c in number.chars().skip(1).filter(|c| *c != '.') {
        significant |= c != '0';
        missing -= i64::from(significant);
    }
    let mut text = number.to_owned();
    if !number.contains('.') {
        if number.len() == 2 && number.ends_with('0') {
            missing -= 1;
        }
        text.push('.');
    }
    text.push_str(&"0".repeat(missing.max(0) as usize));
    text.push_str(tail);
    text
}
