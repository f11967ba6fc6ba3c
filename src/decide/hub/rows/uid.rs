//! The syntax of a uid, the valid uid that a damaged one probably means, and how to show either. No policy here.

use crate::decide::hub::rows::reason::SkipReason;

/// A label value (`lynq.sh/uid`) holds at most this many characters.
pub const UID_CHARS_MAX: usize = 63;

/// Characters of a uid that messages show at most.
pub const SHOWN_CHARS_MAX: usize = 80;

/// A uid is the beginning of the node's name and the value of a label, so it must fit both: an RFC 1123 subdomain
/// of at most 63 characters.
pub fn parse(bytes: &[u8]) -> Result<&str, SkipReason> {
    if bytes.is_empty() {
        return Err(SkipReason::UidEmpty);
    }
    let uid = std::str::from_utf8(bytes).map_err(|_| SkipReason::UidNotText)?;
    if uid != trimmed(uid) {
        return Err(SkipReason::UidSpace);
    }
    let chars = uid.chars().count();
    if chars > UID_CHARS_MAX {
        return Err(SkipReason::UidTooLong {
            chars: chars as u64,
        });
    }
    if !is_subdomain(uid) {
        return Err(SkipReason::UidInvalid);
    }
    Ok(uid)
}

/// The valid uid that these bytes are or, but for case and surrounding white space, would be. Databases compare
/// text that way by default, so `acme`, `ACME` and `acme ` are one tenant to them.
pub fn meant(bytes: &[u8]) -> Option<String> {
    let folded = trimmed(std::str::from_utf8(bytes).ok()?).to_lowercase();
    parse(folded.as_bytes()).ok()?;
    Some(folded)
}

/// ASCII only: escapes control and non-ASCII characters, and truncates to [`SHOWN_CHARS_MAX`].
pub fn shown(bytes: &[u8]) -> String {
    let mut shown = String::new();
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character == ' ' {
                shown.push(' ');
            } else {
                shown.extend(character.escape_default());
            }
            if shown.len() > SHOWN_CHARS_MAX {
                return cut(shown);
            }
        }
        for byte in chunk.invalid() {
            shown.extend(byte.escape_ascii().map(char::from));
            if shown.len() > SHOWN_CHARS_MAX {
                return cut(shown);
            }
        }
    }
    shown
}

fn cut(mut shown: String) -> String {
    const ELLIPSIS: &str = "...";
    shown.truncate(SHOWN_CHARS_MAX - ELLIPSIS.len());
    shown + ELLIPSIS
}

/// NUL counts as white space: fixed-length binary columns are padded with it.
pub(super) fn trimmed(text: &str) -> &str {
    text.trim_matches(|character: char| character.is_whitespace() || character == '\0')
}

/// As Kubernetes' `IsDNS1123Subdomain`, without the limit of length.
pub fn is_subdomain(text: &str) -> bool {
    text.split('.').all(|label| {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !label.is_empty()
            && label.bytes().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validity() {
        let at_limit = "a".repeat(63);
        let over_limit = "a".repeat(64);
        let cases: &[(&str, &[u8], Result<(), SkipReason>)] = &[
            ("plain", b"acme", Ok(())),
            ("one character", b"7", Ok(())),
            ("digits and dashes", b"42-acme-7", Ok(())),
            ("dots", b"a.b.c", Ok(())),
            ("63 characters", at_limit.as_bytes(), Ok(())),
            (
                "64 characters",
                over_limit.as_bytes(),
                Err(SkipReason::UidTooLong { chars: 64 }),
            ),
            ("empty", b"", Err(SkipReason::UidEmpty)),
            ("space before", b" acme", Err(SkipReason::UidSpace)),
            ("space after", b"acme ", Err(SkipReason::UidSpace)),
            ("only spaces", b"  ", Err(SkipReason::UidSpace)),
            ("line break after", b"acme\n", Err(SkipReason::UidSpace)),
            ("padded with NUL", b"acme\0\0", Err(SkipReason::UidSpace)),
            (
                "no-break space",
                "acme\u{a0}".as_bytes(),
                Err(SkipReason::UidSpace),
            ),
            ("upper case", b"Acme", Err(SkipReason::UidInvalid)),
            ("underscore", b"acme_1", Err(SkipReason::UidInvalid)),
            ("space inside", b"ac me", Err(SkipReason::UidInvalid)),
            ("leading dash", b"-acme", Err(SkipReason::UidInvalid)),
            ("trailing dash", b"acme-", Err(SkipReason::UidInvalid)),
            ("trailing dot", b"acme.", Err(SkipReason::UidInvalid)),
            ("empty label", b"a..b", Err(SkipReason::UidInvalid)),
            ("dash before dot", b"a-.b", Err(SkipReason::UidInvalid)),
            ("dash after dot", b"a.-b", Err(SkipReason::UidInvalid)),
            ("plus", b"1e+06", Err(SkipReason::UidInvalid)),
            (
                "not ASCII",
                "m\u{fc}nchen".as_bytes(),
                Err(SkipReason::UidInvalid),
            ),
            (
                "Cyrillic look-alike",
                "\u{430}cme".as_bytes(),
                Err(SkipReason::UidInvalid),
            ),
            ("not UTF-8", b"ac\xffme", Err(SkipReason::UidNotText)),
        ];
        for (name, bytes, expected) in cases {
            assert_eq!(parse(bytes).map(|_| ()), *expected, "{name}");
        }
    }

    #[test]
    fn meaning() {
        let cases: &[(&str, &[u8], Option<&str>)] = &[
            ("valid", b"acme", Some("acme")),
            ("case", b"ACME", Some("acme")),
            ("space", b" acme\t", Some("acme")),
            ("padding", b"acme\0\0", Some("acme")),
            ("empty", b"", None),
            ("blank", b"   ", None),
            ("underscore", b"acme_1", None),
            ("not UTF-8", b"acme\xff", None),
        ];
        for (name, bytes, expected) in cases {
            assert_eq!(meant(bytes).as_deref(), *expected, "{name}");
        }
    }

    #[test]
    fn display() {
        let long = "x".repeat(81);
        let exact = "x".repeat(80);
        let cut = format!("{}...", "x".repeat(77));
        let cases: &[(&str, &[u8], &str)] = &[
            ("plain", b"acme", "acme"),
            ("space stays", b"ac me ", "ac me "),
            ("quote", b"a\"b", "a\\\"b"),
            ("control", b"a\nb\x1b[31m", "a\\nb\\u{1b}[31m"),
            ("right to left", "a\u{202e}b".as_bytes(), "a\\u{202e}b"),
            ("not UTF-8", b"a\xff\xfeb", "a\\xff\\xfeb"),
            ("80 characters", exact.as_bytes(), &exact),
            ("81 characters", long.as_bytes(), &cut),
        ];
        for (name, bytes, expected) in cases {
            assert_eq!(shown(bytes), *expected, "{name}");
        }
    }
}
