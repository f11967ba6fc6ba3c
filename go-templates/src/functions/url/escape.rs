//! Percent signs and what each part of a URL may hold without them.

use crate::quote::quote;

/// A part of a URL that has rules of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Host,
    /// Of an IPv6 address.
    Zone,
    User,
    Path,
    Fragment,
}

/// Whether the byte must not stand there as it is.
fn needs_escape(byte: u8, part: Part) -> bool {
    let allowed: &[u8] = match part {
        Part::Host | Part::Zone => b"!$&'()*+,;=:[]<>\"",
        Part::User => b"$&+,;=",
        Part::Path => b"$&+,/:;=@",
        Part::Fragment => b"$&+,/:;=?@!()*",
    };
    !(byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) || allowed.contains(&byte))
}

pub fn escape(text: &[u8], part: Part) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(text.len());
    for byte in text {
        if needs_escape(*byte, part) {
            escaped.extend(format!("%{byte:02X}").into_bytes());
        } else {
            escaped.push(*byte);
        }
    }
    escaped
}

/// The text without its escapes, or what is wrong with it. A host may escape only what is not ASCII.
pub fn unescape(text: &[u8], part: Part) -> Result<Vec<u8>, String> {
    let is_host = matches!(part, Part::Host | Part::Zone);
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(byte) = rest.first() {
        if *byte != b'%' {
            if is_host && byte.is_ascii() && needs_escape(*byte, part) {
                let shown = quote(&[*byte]);
                return Err(format!("invalid character {shown} in host name"));
            }
            plain.push(*byte);
            rest = &rest[1..];
            continue;
        }
        let wrong = |size: usize| {
            let shown = quote(&rest[..rest.len().min(size)]);
            format!("invalid URL escape {shown}")
        };
        let digit = |at: usize| Some(char::from(*rest.get(at)?).to_digit(16)? as u8);
        let (Some(high), Some(low)) = (digit(1), digit(2)) else {
            return Err(wrong(3));
        };
        let byte = high << 4 | low;
        let refused = match part {
            Part::Host => high < 8 && byte != b'%',
            Part::Zone => !matches!(byte, b'%' | b' ') && needs_escape(byte, Part::Host),
            Part::User | Part::Path | Part::Fragment => false,
        };
        if refused {
            return Err(wrong(3));
        }
        plain.push(byte);
        rest = &rest[3..];
    }
    Ok(plain)
}
