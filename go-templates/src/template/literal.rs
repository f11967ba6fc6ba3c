//! Go's literals: quoted strings, characters and numbers, with the message for what Go refuses. Knows nothing of templates.

use crate::number::{float, int, uint};
use crate::quote::quote;

/// Go's error for a malformed string or character.
const SYNTAX: &str = "invalid syntax";

/// A number or character constant under every type that can hold it, as Go's untyped constants are.
#[derive(Debug, Clone, PartialEq)]
pub struct Number {
    /// As written, for messages.
    pub text: String,
    pub int: Option<i64>,
    pub uint: Option<u64>,
    pub float: Option<f64>,
}

/// The value of a constant where no type is asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Ideal {
    Int(i64),
    Float(f64),
    /// Written as an integer, above the largest `int`.
    Overflow,
}

impl Number {
    /// The spelling decides: a point or exponent makes a float. A signed hexadecimal integer with an `E` among its
    /// digits is a float too, since Go looks for the `0x` at the very beginning only.
    pub fn ideal(&self) -> Ideal {
        let is_hex_int = (self.text.starts_with("0x") || self.text.starts_with("0X"))
            && !self.text.contains(['p', 'P']);
        let is_char = self.text.starts_with('\'');
        let looks_float = !is_hex_int && !is_char && self.text.contains(['.', 'e', 'E', 'p', 'P']);
        match (self.float, self.int) {
            (Some(float), _) if looks_float => Ideal::Float(float),
            (_, Some(int)) => Ideal::Int(int),
            _ => Ideal::Overflow,
        }
    }
}

/// The bytes of a quoted or raw string literal, quotes included in `literal`.
pub fn unquote(literal: &str) -> Result<Vec<u8>, &'static str> {
    if let Some(raw) = literal.strip_prefix('`') {
        let raw = raw.strip_suffix('`').ok_or(SYNTAX)?;
        return Ok(raw.bytes().filter(|byte| *byte != b'\r').collect());
    }
    let inner = literal
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .ok_or(SYNTAX)?;
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while !rest.is_empty() {
        let (unit, after) = unescape(rest, '"').ok_or(SYNTAX)?;
        match unit {
            Unit::Byte(byte) => bytes.push(byte),
            Unit::Char(c) => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
        rest = after;
    }
    Ok(bytes)
}

/// A character constant such as `'a'`, quotes included in `literal`.
pub fn character(literal: &str) -> Result<Number, String> {
    let inner = literal.strip_prefix('\'').ok_or(SYNTAX)?;
    let (unit, after) = unescape(inner, '\'').ok_or(SYNTAX)?;
    if after != "'" {
        return Err(format!("malformed character constant: {literal}"));
    }
    let value = match unit {
        Unit::Byte(byte) => u32::from(byte),
        Unit::Char(c) => u32::from(c),
    };
    Ok(Number {
        text: literal.to_owned(),
        int: Some(i64::from(value)),
        uint: Some(u64::from(value)),
        float: Some(f64::from(value)),
    })
}

/// One character of a literal: `\xff` and `\377` stand for a byte, everything else for a code point.
enum Unit {
    Byte(u8),
    Char(char),
}

/// Takes one character or escape from the front of `text`, which stands between `quote`s.
fn unescape(text: &str, quote: char) -> Option<(Unit, &str)> {
    let mut chars = text.chars();
    let first = chars.next()?;
    if first == quote {
        return None;
    }
    if first != '\\' {
        return Some((Unit::Char(first), chars.as_str()));
    }
    let unit = match chars.next()? {
        'a' => Unit::Char('\u{7}'),
        'b' => Unit::Char('\u{8}'),
        'f' => Unit::Char('\u{c}'),
        'n' => Unit::Char('\n'),
        'r' => Unit::Char('\r'),
        't' => Unit::Char('\t'),
        'v' => Unit::Char('\u{b}'),
        '\\' => Unit::Char('\\'),
        c if c == quote => Unit::Char(c),
        'x' => Unit::Byte(u8::try_from(digits(&mut chars, 16, 2, 0)?).ok()?),
        'u' => Unit::Char(char::from_u32(digits(&mut chars, 16, 4, 0)?)?),
        'U' => Unit::Char(char::from_u32(digits(&mut chars, 16, 8, 0)?)?),
        c => {
            let first = c.to_digit(8)?;
            Unit::Byte(u8::try_from(digits(&mut chars, 8, 2, first)?).ok()?)
        }
    };
    Some((unit, chars.as_str()))
}

/// Exactly `count` digits, after those already in `value`.
fn digits(chars: &mut std::str::Chars<'_>, base: u32, count: usize, value: u32) -> Option<u32> {
    (0..count).try_fold(value, |value, _| {
        value
            .checked_mul(base)?
            .checked_add(chars.next()?.to_digit(base)?)
    })
}

/// An integer or float constant, sign included.
pub fn number(text: &str) -> Result<Number, String> {
    if text.strip_suffix('i').and_then(float).is_some() {
        return Err(imaginary(text));
    }
    let mut number = Number {
        text: text.to_owned(),
        int: int(text),
        uint: uint(text),
        float: None,
    };
    if number.int == Some(0) {
        number.uint = Some(0);
    }
    if let Some(int) = number.int {
        number.float = Some(int as f64);
    } else if let Some(uint) = number.uint {
        number.float = Some(uint as f64);
    } else if let Some(float) = float(text) {
        if !text.contains(['.', 'e', 'E', 'p', 'P']) {
            return Err(format!("integer overflow: {}", quote(text.as_bytes())));
        }
        number.float = Some(float);
        number.int = whole(float, -(2f64.powi(63)), 2f64.powi(63)).map(|float| float as i64);
        number.uint = whole(float, 0.0, 2f64.powi(64)).map(|float| float as u64);
    } else {
        return Err(format!("illegal number syntax: {}", quote(text.as_bytes())));
    }
    Ok(number)
}

/// The message for `1i` and `1+2i`: Go takes them, but no function does.
pub fn imaginary(text: &str) -> String {
    let quoted = quote(text.as_bytes());
    format!("imaginary numbers are not supported: {quoted}")
}

/// `float` if it has no fraction and lies in `from..to`.
fn whole(float: f64, from: f64, to: f64) -> Option<f64> {
    (float.trunc() == float && from <= float && float < to).then_some(float)
}
