//! Go's quoting (`%q`), and which characters it shows as they are. Does not undo quoting.

use unicode_general_category::{GeneralCategory, get_general_category};

/// Quotes as a Go string literal: invalid UTF-8 and what cannot be shown become escapes.
pub fn quote(bytes: &[u8]) -> String {
    let mut quoted = String::with_capacity(bytes.len() + 2);
    quoted.push('"');
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            quote_char(c, &mut quoted);
        }
        for byte in chunk.invalid() {
            quoted.push_str(&format!("\\x{byte:02x}"));
        }
    }
    quoted.push('"');
    quoted
}

fn quote_char(c: char, quoted: &mut String) {
    let escape = match c {
        '"' => "\\\"",
        '\\' => "\\\\",
        '\u{7}' => "\\a",
        '\u{8}' => "\\b",
        '\u{c}' => "\\f",
        '\n' => "\\n",
        '\r' => "\\r",
        '\t' => "\\t",
        '\u{b}' => "\\v",
        _ if is_printable(c) => return quoted.push(c),
        _ => {
            let number = u32::from(c);
            quoted.push_str(&match number {
                0..0x20 | 0x7f => format!("\\x{number:02x}"),
                0x20..0x1_0000 => format!("\\u{number:04x}"),
                _ => format!("\\U{number:08x}"),
            });
            return;
        }
    };
    quoted.push_str(escape);
}

/// Letters, marks, numbers, punctuation, symbols and the ASCII space: what quoting leaves as it is.
pub fn is_printable(c: char) -> bool {
    use GeneralCategory::{
        Control, Format, LineSeparator, ParagraphSeparator, PrivateUse, SpaceSeparator, Surrogate,
        Unassigned,
    };
    if c.is_ascii() {
        return c == ' ' || c.is_ascii_graphic();
    }
    !matches!(
        get_general_category(c),
        Control
            | Format
            | LineSeparator
            | ParagraphSeparator
            | PrivateUse
            | SpaceSeparator
            | Surrogate
            | Unassigned
    )
}

/// A character for a message: `U+0040 '@'`, or the number alone when it cannot be shown.
pub fn describe(c: char) -> String {
    let number = u32::from(c);
    if is_printable(c) {
        format!("U+{number:04X} '{c}'")
    } else {
        format!("U+{number:04X}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_shown_is_escaped() {
        let cases: [(&[u8], &str); 8] = [
            (b"plain", r#""plain""#),
            (b"\"\\\x07\x08\x0c\n\r\t\x0b", r#""\"\\\a\b\f\n\r\t\v""#),
            (b"\x00\x1f\x7f", r#""\x00\x1f\x7f""#),
            ("größe ✓".as_bytes(), r#""größe ✓""#),
            (
                "\u{a0}\u{200b}\u{2028}\u{feff}".as_bytes(),
                r#""\u00a0\u200b\u2028\ufeff""#,
            ),
            ("\u{e0001}".as_bytes(), r#""\U000e0001""#),
            (b"\xff\xc3(", r#""\xff\xc3(""#),
            ("\u{fffd}".as_bytes(), "\"\u{fffd}\""),
        ];
        for (bytes, expected) in cases {
            assert_eq!(quote(bytes), expected);
        }
    }

    #[test]
    fn a_character_is_described_by_its_number() {
        assert_eq!(describe('@'), "U+0040 '@'");
        assert_eq!(describe('\u{1}'), "U+0001");
        assert_eq!(describe('😀'), "U+1F600 '😀'");
    }
}
