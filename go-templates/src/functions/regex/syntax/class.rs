//! Classes of characters: brackets, `\pL`, `\d` and `[:alpha:]`. The words are ASCII's, as in RE2.

use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, HirKind};

use crate::functions::regex::syntax::{Parser, Stop, refused};

impl<'p> Parser<'p, '_> {
    /// `[...]`; the first character may be a closing bracket.
    pub(super) fn bracket(&mut self) -> Result<(), Stop> {
        let whole = self.rest;
        self.rest = &whole[1..];
        let is_negated = self.rest.starts_with('^');
        if is_negated {
            self.rest = &self.rest[1..];
        }
        let mut class = ClassUnicode::empty();
        let mut is_first = true;
        while is_first || !self.rest.starts_with(']') {
            is_first = false;
            self.budget.spend_steps(1)?;
            match self.named_class()? {
                Some(named) => self.add(&mut class, named)?,
                None => {
                    let range = self.range(whole)?;
                    self.add(&mut class, range)?;
                }
            }
        }
        self.rest = &self.rest[1..];
        if is_negated {
            class.negate();
        }
        self.class(class)
    }

    fn add(&mut self, class: &mut ClassUnicode, other: ClassUnicode) -> Result<(), Stop> {
        let ranges = class.ranges().len() + other.ranges().len();
        // The union sorts its ranges again.
        self.budget.spend_steps(ranges as u64 / 64)?;
        class.union(&other);
        Ok(())
    }

    /// One character, or two with a hyphen between them.
    fn range(&mut self, whole: &str) -> Result<ClassUnicode, Stop> {
        let here = self.rest;
        let low = self.class_char(whole)?;
        let mut high = low;
        let after_hyphen = self.rest.strip_prefix('-');
        if let Some(rest) = after_hyphen.filter(|rest| !rest.is_empty() && !rest.starts_with(']')) {
            self.rest = rest;
            high = self.class_char(whole)?;
            if high < low {
                let range = &here[..here.len() - self.rest.len()];
                return refused("invalid character class range", range);
            }
        }
        let fold = self.flags().fold_case;
        Ok(folded(from_codes(low, high), fold))
    }

    fn class_char(&mut self, whole: &str) -> Result<u32, Stop> {
        match self.rest.chars().next() {
            None => refused("missing closing ]", whole),
            Some('\\') => self.escape(),
            Some(c) => {
                self.rest = &self.rest[c.len_utf8()..];
                Ok(u32::from(c))
            }
        }
    }

    /// A class with a name, if one stands here: `[:alpha:]` in brackets, `\pL` and `\d` anywhere.
    fn named_class(&mut self) -> Result<Option<ClassUnicode>, Stop> {
        if let Some(inner) = self.rest.strip_prefix("[:")
            && let Some(end) = inner.find(":]")
        {
            let name = &inner[..end];
            let (plain, is_negated) = match name.strip_prefix('^') {
                Some(plain) => (plain, true),
                None => (name, false),
            };
            let Some(ranges) = posix(plain) else {
                return refused("invalid character class range", &self.rest[..end + 4]);
            };
            self.rest = &inner[end + 2..];
            return Ok(Some(self.ascii(ranges, is_negated)));
        }
        self.escaped_class()
    }

    /// `\d`, `\S`, `\pL`, `\P{Greek}`.
    pub(super) fn escaped_class(&mut self) -> Result<Option<ClassUnicode>, Stop> {
        let mut chars = self.rest.chars();
        let (Some('\\'), Some(letter)) = (chars.next(), chars.next()) else {
            return Ok(None);
        };
        let ranges = match letter.to_ascii_lowercase() {
            'd' => DIGIT,
            's' => PERL_SPACE,
            'w' => WORD,
            'p' => return self.unicode_class().map(Some),
            _ => return Ok(None),
        };
        self.rest = &self.rest[2..];
        Ok(Some(self.ascii(ranges, letter.is_ascii_uppercase())))
    }

    fn ascii(&mut self, ranges: &[(char, char)], is_negated: bool) -> ClassUnicode {
        let ranges = ranges
            .iter()
            .map(|(low, high)| ClassUnicodeRange::new(*low, *high));
        let mut class = folded(ClassUnicode::new(ranges), self.flags().fold_case);
        if is_negated {
            class.negate();
        }
        class
    }

    /// `\pL` or `\p{Name}`: a category or a script of Unicode. A capital P or a `^` negates it.
    fn unicode_class(&mut self) -> Result<ClassUnicode, Stop> {
        let here = self.rest;
        let after = &here[2..];
        let (name, rest) = if after.starts_with('{') {
            let Some(end) = here.find('}') else {
                return refused("invalid character class range", here);
            };
            (&here[3..end], &here[end + 1..])
        } else {
            let size = after.chars().next().map_or(0, char::len_utf8);
            after.split_at(size)
        };
        let (plain, is_negated) = match name.strip_prefix('^') {
            Some(plain) => (plain, here.starts_with("\\p")),
            None => (name, here.starts_with("\\P")),
        };
        // Tables of many ranges are looked up and copied.
        self.budget.spend_steps(16)?;
        let Some(class) = table(plain) else {
            let whole = &here[..here.len() - rest.len()];
            return refused("invalid character class range", whole);
        };
        self.rest = rest;
        let mut class = folded(class, self.flags().fold_case);
        if is_negated {
            class.negate();
        }
        Ok(class)
    }
}

fn folded(mut class: ClassUnicode, fold: bool) -> ClassUnicode {
    if fold {
        class.case_fold_simple();
    }
    class
}

/// The characters from `low` to `high`; surrogates are none.
fn from_codes(low: u32, high: u32) -> ClassUnicode {
    let parts = [(low, high.min(0xd7ff)), (low.max(0xe000), high)];
    ClassUnicode::new(parts.into_iter().filter_map(|(low, high)| {
        let (low, high) = (char::from_u32(low)?, char::from_u32(high)?);
        (low <= high).then(|| ClassUnicodeRange::new(low, high))
    }))
}

/// A general category or a script by its name.
fn table(name: &str) -> Option<ClassUnicode> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | ' ');
    if name.is_empty() || !name.chars().all(is_word) {
        return None;
    }
    let by = |property: &str| {
        let hir = regex_syntax::parse(&format!("\\p{{{property}={name}}}")).ok()?;
        match hir.into_kind() {
            HirKind::Class(Class::Unicode(class)) => Some(class),
            _ => None,
        }
    };
    by("gc").or_else(|| by("sc"))
}

const DIGIT: &[(char, char)] = &[('0', '9')];
const PERL_SPACE: &[(char, char)] = &[('\t', '\n'), ('\x0c', '\r'), (' ', ' ')];
const WORD: &[(char, char)] = &[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')];

/// The ranges of a POSIX class.
fn posix(name: &str) -> Option<&'static [(char, char)]> {
    Some(match name {
        "alnum" => &[('0', '9'), ('A', 'Z'), ('a', 'z')],
        "alpha" => &[('A', 'Z'), ('a', 'z')],
        "ascii" => &[('\0', '\x7f')],
        "blank" => &[('\t', '\t'), (' ', ' ')],
        "cntrl" => &[('\0', '\x1f'), ('\x7f', '\x7f')],
        "digit" => DIGIT,
        "graph" => &[('!', '~')],
        "lower" => &[('a', 'z')],
        "print" => &[(' ', '~')],
        "punct" => &[('!', '/'), (':', '@'), ('[', '`'), ('{', '~')],
        "space" => &[('\t', '\r'), (' ', ' ')],
        "upper" => &[('A', 'Z')],
        "word" => WORD,
        "xdigit" => &[('0', '9'), ('A', 'F'), ('a', 'f')],
        _ => return None,
    })
}
