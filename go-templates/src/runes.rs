//! Go's view of bytes as characters, and its case mappings of single characters. Locale and context do not exist here.

use std::sync::LazyLock;

use unicode_general_category::GeneralCategory;

/// The categories of the characters that make up most texts.
static ASCII: LazyLock<[GeneralCategory; 128]> = LazyLock::new(|| {
    std::array::from_fn(|code| {
        let c = u8::try_from(code).map(char::from).unwrap_or_default();
        unicode_general_category::get_general_category(c)
    })
});

fn get_general_category(c: char) -> GeneralCategory {
    let known = ASCII.get(u32::from(c) as usize).copied();
    known.unwrap_or_else(|| unicode_general_category::get_general_category(c))
}

/// What stands for a byte that is not part of valid UTF-8.
pub const ERROR: char = char::REPLACEMENT_CHARACTER;

/// The first character of `bytes` and how many bytes it takes. An invalid byte is [`ERROR`] and takes one.
///
/// `None` only for no bytes.
pub fn decode(bytes: &[u8]) -> Option<(char, usize)> {
    let first = *bytes.first()?;
    if first.is_ascii() {
        return Some((char::from(first), 1));
    }
    let valid = (2..=4)
        .filter_map(|len| bytes.get(..len))
        .find_map(|head| std::str::from_utf8(head).ok());
    match valid.and_then(|text| text.chars().next()) {
        Some(c) => Some((c, c.len_utf8())),
        None => Some((ERROR, 1)),
    }
}

/// The last character of `bytes` and how many bytes it takes.
pub fn decode_last(bytes: &[u8]) -> Option<(char, usize)> {
    let last = *bytes.last()?;
    if last.is_ascii() {
        return Some((char::from(last), 1));
    }
    let mut tails = (2..=4).filter_map(|len| bytes.get(bytes.len().checked_sub(len)?..));
    let found = tails.find_map(|tail| decode(tail).filter(|(_, size)| *size == tail.len()));
    Some(found.unwrap_or((ERROR, 1)))
}

/// The characters of `bytes`, each with its offset and size.
pub fn runes(bytes: &[u8]) -> impl Iterator<Item = (usize, char, usize)> {
    let mut offset = 0;
    std::iter::from_fn(move || {
        let (c, size) = decode(&bytes[offset..])?;
        let at = offset;
        offset += size;
        Some((at, c, size))
    })
}

/// The number of characters as Go counts them.
pub fn count(bytes: &[u8]) -> usize {
    runes(bytes).count()
}

pub fn push(out: &mut Vec<u8>, c: char) {
    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

/// The bytes as text; every byte that is not valid becomes `U+FFFD`, as in Go's JSON.
pub fn to_utf8(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|invalid| runes(invalid.as_bytes()).map(|(_, c, _)| c).collect())
}

/// Maps every character, invalid bytes included, as `strings.Map` does.
pub fn map(bytes: &[u8], to: impl Fn(char) -> char) -> Vec<u8> {
    let mut mapped = Vec::with_capacity(bytes.len());
    for (_, c, _) in runes(bytes) {
        push(&mut mapped, to(c));
    }
    mapped
}

/// Upper case, one character for one: `ß` stays as it is.
pub fn upper(c: char) -> char {
    let code = u32::from(c);
    let mapped = match code {
        0x1f80..=0x1f87 | 0x1f90..=0x1f97 | 0x1fa0..=0x1fa7 => code + 8,
        0x1fb3 | 0x1fc3 | 0x1ff3 => code + 9,
        _ => return only(c.to_uppercase()).unwrap_or(c),
    };
    char::from_u32(mapped).unwrap_or(c)
}

pub fn lower(c: char) -> char {
    match c {
        '\u{130}' => 'i',
        _ => only(c.to_lowercase()).unwrap_or(c),
    }
}

/// Title case: upper case, except for digraphs and Georgian letters.
pub fn title(c: char) -> char {
    match c {
        '\u{1c4}'..='\u{1c6}' => '\u{1c5}',
        '\u{1c7}'..='\u{1c9}' => '\u{1c8}',
        '\u{1ca}'..='\u{1cc}' => '\u{1cb}',
        '\u{1f1}'..='\u{1f3}' => '\u{1f2}',
        '\u{10d0}'..='\u{10ff}' => c,
        _ => upper(c),
    }
}

fn only(mut mapped: impl Iterator<Item = char>) -> Option<char> {
    let first = mapped.next();
    match mapped.next() {
        None => first,
        Some(_) => None,
    }
}

pub fn is_letter(c: char) -> bool {
    use GeneralCategory::{
        LowercaseLetter, ModifierLetter, OtherLetter, TitlecaseLetter, UppercaseLetter,
    };
    matches!(
        get_general_category(c),
        UppercaseLetter | LowercaseLetter | TitlecaseLetter | ModifierLetter | OtherLetter
    )
}

pub fn is_upper(c: char) -> bool {
    get_general_category(c) == GeneralCategory::UppercaseLetter
}

pub fn is_lower(c: char) -> bool {
    get_general_category(c) == GeneralCategory::LowercaseLetter
}

pub fn is_title(c: char) -> bool {
    get_general_category(c) == GeneralCategory::TitlecaseLetter
}

/// A decimal digit of any script.
pub fn is_digit(c: char) -> bool {
    get_general_category(c) == GeneralCategory::DecimalNumber
}

pub fn is_number(c: char) -> bool {
    use GeneralCategory::{DecimalNumber, LetterNumber, OtherNumber};
    matches!(
        get_general_category(c),
        DecimalNumber | LetterNumber | OtherNumber
    )
}

pub fn is_punctuation(c: char) -> bool {
    use GeneralCategory::{
        ClosePunctuation, ConnectorPunctuation, DashPunctuation, FinalPunctuation,
        InitialPunctuation, OpenPunctuation, OtherPunctuation,
    };
    matches!(
        get_general_category(c),
        ConnectorPunctuation
            | DashPunctuation
            | OpenPunctuation
            | ClosePunctuation
            | InitialPunctuation
            | FinalPunctuation
            | OtherPunctuation
    )
}

pub fn is_space(c: char) -> bool {
    c.is_whitespace()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_byte_is_one_character_of_one_byte() {
        let cases = [
            ("ascii", &b"a"[..], vec![('a', 1)]),
            ("valid", "é".as_bytes(), vec![('é', 2)]),
            ("cut short", b"\xe4\xb8", vec![(ERROR, 1), (ERROR, 1)]),
            ("stray", b"\xffa", vec![(ERROR, 1), ('a', 1)]),
        ];
        for (name, bytes, expected) in cases {
            let found: Vec<_> = runes(bytes).map(|(_, c, size)| (c, size)).collect();
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn case_is_mapped_one_for_one() {
        let cases = [
            ('ß', 'ß', 'ß', 'ß'),
            ('İ', 'İ', 'i', 'İ'),
            ('ᾀ', 'ᾈ', 'ᾀ', 'ᾈ'),
            ('ǆ', 'Ǆ', 'ǆ', 'ǅ'),
            ('ა', 'Ა', 'ა', 'ა'),
        ];
        for (c, up, low, titled) in cases {
            assert_eq!((upper(c), lower(c), title(c)), (up, low, titled), "{c}");
        }
    }
}
