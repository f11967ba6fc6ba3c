//! Splits a string into words as xstrings does, for snake and kebab case. Knows no language.

use crate::runes;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Nothing,
    Invalid,
    Number,
    /// Begins with a capital.
    Capital,
    /// Small letters, or letters of a script without case.
    Small,
    Separator,
    Punctuation,
    Other,
}

pub fn is_separator(c: char) -> bool {
    matches!(c, '-' | '_') || runes::is_space(c)
}

/// Letters that make up words; Chinese characters do not.
fn is_alphabet(c: char) -> bool {
    let is_cjk = matches!(c,
        '\u{3400}'..='\u{4d85}' | '\u{4e00}'..='\u{9fcc}' | '\u{20000}'..='\u{2b81d}');
    runes::is_letter(c) && !is_cjk
}

/// The words in small letters with a separator between them; digits join the letters around them by xstrings' rules.
pub fn separated(text: &[u8], separator: char) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + text.len() / 4);
    if text.is_empty() {
        return out;
    }
    let mut words = Words { rest: text };
    let (mut kind, mut word) = words.next();
    while !words.rest.is_empty() {
        if kind != Kind::Separator {
            lower(&mut out, kind, word, separator);
        }
        let (before, last) = (kind, word);
        (kind, word) = words.next();
        match before {
            Kind::Number => {
                while matches!(kind, Kind::Small | Kind::Number) {
                    lower(&mut out, kind, word, separator);
                    (kind, word) = words.next();
                }
                separate(&mut out, kind, separator, true);
            }
            Kind::Separator => lower(&mut out, before, last, separator),
            Kind::Punctuation => {}
            _ if kind != Kind::Number => separate(&mut out, kind, separator, false),
            _ if words.rest.is_empty() => {}
            _ => {
                let number = word;
                (kind, word) = words.next();
                if kind != Kind::Small {
                    // A number without small letters behind it belongs to the word before.
                    lower(&mut out, Kind::Number, number, separator);
                    separate(&mut out, kind, separator, false);
                    continue;
                }
                runes::push(&mut out, separator);
                lower(&mut out, Kind::Number, number, separator);
                while matches!(kind, Kind::Small | Kind::Number) {
                    lower(&mut out, kind, word, separator);
                    (kind, word) = words.next();
                }
                separate(&mut out, kind, separator, true);
            }
        }
    }
    lower(&mut out, kind, word, separator);
    out
}

/// Adds a separator before a word that does not begin with one.
fn separate(out: &mut Vec<u8>, kind: Kind, separator: char, after_number: bool) {
    let nothing = after_number && matches!(kind, Kind::Nothing | Kind::Invalid);
    if !nothing && !matches!(kind, Kind::Separator | Kind::Punctuation) {
        runes::push(out, separator);
    }
}

fn lower(out: &mut Vec<u8>, kind: Kind, word: &[u8], separator: char) {
    if !matches!(kind, Kind::Capital | Kind::Separator) {
        out.extend_from_slice(word);
        return;
    }
    for (_, c, _) in runes::runes(word) {
        runes::push(
            out,
            match c {
                _ if is_separator(c) => separator,
                _ if runes::is_upper(c) => runes::lower(c),
                _ => c,
            },
        );
    }
}

struct Words<'t> {
    rest: &'t [u8],
}

impl<'t> Words<'t> {
    /// The next word and its kind.
    fn next(&mut self) -> (Kind, &'t [u8]) {
        let text = self.rest;
        if text.is_empty() {
            return (Kind::Nothing, text);
        }
        let (first, size) = valid_rune(text, None);
        let Some(first) = first else {
            self.rest = &text[size..];
            return (Kind::Invalid, &text[..size]);
        };
        let (kind, end) = if is_separator(first) {
            (Kind::Separator, run(text, size, first, is_separator))
        } else if runes::is_punctuation(first) {
            (
                Kind::Punctuation,
                run(text, size, first, runes::is_punctuation),
            )
        } else if runes::is_upper(first) {
            (Kind::Capital, capital(text, size, first))
        } else if is_alphabet(first) {
            (Kind::Small, run(text, size, first, is_small))
        } else if runes::is_number(first) {
            (Kind::Number, run(text, size, first, runes::is_number))
        } else {
            (Kind::Other, run(text, size, first, is_other))
        };
        self.rest = &text[end..];
        (kind, &text[..end])
    }
}

fn is_small(c: char) -> bool {
    is_alphabet(c) && !runes::is_upper(c)
}

fn is_other(c: char) -> bool {
    !is_separator(c) && !is_alphabet(c) && !runes::is_number(c) && !runes::is_punctuation(c)
}

/// The end of the run of characters that belong together, from `end` on.
fn run(text: &[u8], mut end: usize, first: char, belongs: fn(char) -> bool) -> usize {
    let mut before = first;
    while let Some((c, next)) = following(text, end, before, belongs) {
        before = c;
        end = next;
    }
    end
}

/// The character at `at`, if it belongs, and where the next begins.
fn following(
    text: &[u8],
    at: usize,
    before: char,
    belongs: fn(char) -> bool,
) -> Option<(char, usize)> {
    if at == text.len() {
        return None;
    }
    let (c, size) = valid_rune(&text[at..], Some(before));
    c.filter(|c| belongs(*c)).map(|c| (c, at + size))
}

/// `HTTPServer` ends before the `S`, `Server` at its end.
fn capital(text: &[u8], size: usize, first: char) -> usize {
    if let Some((second, end)) = following(text, size, first, is_small) {
        return run(text, end, second, is_small);
    }
    let (mut last, mut last_start, mut end) = (first, 0, size);
    while let Some((c, next)) = following(text, end, last, runes::is_upper) {
        (last, last_start, end) = (c, end, next);
    }
    let small_follows = following(text, end, last, is_alphabet).is_some();
    if small_follows && last_start > 0 {
        last_start
    } else {
        end
    }
}

/// The next character, together with the invalid bytes before it. If there is none, `before` is taken again.
fn valid_rune(text: &[u8], before: Option<char>) -> (Option<char>, usize) {
    let mut skipped = 0;
    while let Some((c, size)) = runes::decode(&text[skipped..]) {
        skipped += size;
        if c != runes::ERROR {
            return (Some(c), skipped);
        }
    }
    (before, skipped)
}
