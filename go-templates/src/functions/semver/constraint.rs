//! Version ranges: alternatives of conditions that must all hold. A prerelease is allowed only if a condition names one.

use std::cmp::Ordering;

use crate::version::{Version, prerelease_order};

/// Conditions, joined by `||` outside and by commas or spaces inside.
#[derive(Debug)]
pub struct Constraints(Vec<Vec<Condition>>);

#[derive(Debug)]
struct Condition {
    operator: Operator,
    version: Version,
    /// How many of the three numbers are given, from the left; the others are wildcards or not there.
    given: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Greater,
    Less,
    GreaterOrEqual,
    LessOrEqual,
    Tilde,
    Caret,
}

/// An operator follows those that it is a prefix of.
const OPERATORS: [(&str, Operator); 11] = [
    ("!=", Operator::NotEqual),
    (">=", Operator::GreaterOrEqual),
    ("=>", Operator::GreaterOrEqual),
    ("<=", Operator::LessOrEqual),
    ("=<", Operator::LessOrEqual),
    ("~>", Operator::Tilde),
    ("=", Operator::Equal),
    (">", Operator::Greater),
    ("<", Operator::Less),
    ("~", Operator::Tilde),
    ("^", Operator::Caret),
];

/// The longest text with ranges, in bytes.
pub const TEXT_MAX_BYTES: usize = 1024;

impl Constraints {
    pub fn parse(text: &str) -> Result<Constraints, String> {
        if text.len() > TEXT_MAX_BYTES {
            return Err(format!(
                "the ranges have {} bytes, and may have {TEXT_MAX_BYTES}; make them fewer",
                text.len()
            ));
        }
        let text = without_hyphens(text);
        text.split("||")
            .map(conditions)
            .collect::<Result<_, _>>()
            .map(Constraints)
    }

    pub fn allow(&self, version: &Version) -> bool {
        let Constraints(alternatives) = self;
        alternatives
            .iter()
            .any(|conditions| conditions.iter().all(|condition| condition.holds(version)))
    }
}

impl Condition {
    fn holds(&self, version: &Version) -> bool {
        let bound = &self.version;
        let is_unwanted_prerelease = !version.prerelease.is_empty() && bound.prerelease.is_empty();
        let order = version.precedence(bound);
        let same = |numbers: usize| same_numbers(version, bound, numbers);
        if self.operator == Operator::NotEqual {
            return match self.given {
                3 => order != Ordering::Equal,
                _ if is_unwanted_prerelease => false,
                0 => order != Ordering::Equal,
                // With a wildcard as patch, prereleases are still compared.
                2 => {
                    let pre = prerelease_order(&version.prerelease, &bound.prerelease);
                    !same(2) || pre != Ordering::Equal
                }
                _ => !same(1),
            };
        }
        if is_unwanted_prerelease {
            return false;
        }
        match self.operator {
            Operator::Equal if self.given == 3 => order == Ordering::Equal,
            Operator::Equal | Operator::Tilde => self.holds_tilde(version),
            Operator::Caret => self.holds_caret(version),
            Operator::Greater => match self.given {
                0 | 3 => order == Ordering::Greater,
                // Behind all that the wildcard stands for.
                2 => (version.major, version.minor) > (bound.major, bound.minor),
                _ => version.major > bound.major,
            },
            Operator::Less => order == Ordering::Less,
            Operator::GreaterOrEqual => order != Ordering::Less,
            Operator::LessOrEqual => match self.given {
                3 => order != Ordering::Greater,
                2 => (version.major, version.minor) <= (bound.major, bound.minor),
                1 => version.major <= bound.major,
                _ => version.major == 0 && version.minor == 0,
            },
            Operator::NotEqual => false,
        }
    }

    /// The patch may be higher, and what is a wildcard.
    fn holds_tilde(&self, version: &Version) -> bool {
        let bound = &self.version;
        if version.precedence(bound) == Ordering::Less {
            return false;
        }
        let is_zero = (bound.major, bound.minor, bound.patch) == (0, 0, 0);
        if is_zero && matches!(self.given, 0 | 3) {
            return true;
        }
        same_numbers(version, bound, if self.given == 1 { 1 } else { 2 })
    }

    /// All numbers to the right of the first non-zero one may be higher.
    fn holds_caret(&self, version: &Version) -> bool {
        let bound = &self.version;
        if version.precedence(bound) == Ordering::Less {
            return false;
        }
        if bound.major > 0 || self.given == 1 {
            same_numbers(version, bound, 1)
        } else if bound.minor > 0 || self.given == 2 {
            same_numbers(version, bound, 2)
        } else {
            same_numbers(version, bound, 3)
        }
    }
}

/// Whether the first so many of the three numbers are the same.
fn same_numbers(left: &Version, right: &Version, count: usize) -> bool {
    let numbers = |version: &Version| [version.major, version.minor, version.patch];
    numbers(left)[..count] == numbers(right)[..count]
}

fn is_space(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\x0c' | '\r' | ' ')
}

fn trim_space(text: &str) -> &str {
    text.trim_start_matches(is_space)
}

/// Conditions with spaces or a comma between them.
fn conditions(text: &str) -> Result<Vec<Condition>, String> {
    let improper = || format!("improper constraint: {text}");
    let mut found = Vec::new();
    let mut rest = trim_space(text);
    loop {
        let operator = OPERATORS.iter().find(|(sign, _)| rest.starts_with(sign));
        let (operator, after) = match operator {
            Some((sign, operator)) => (*operator, trim_space(&rest[sign.len()..])),
            None => (Operator::Equal, rest),
        };
        let bound = bound(after).ok_or_else(improper)?;
        found.push(condition(operator, &bound)?);
        let behind = &after[bound.size..];
        rest = trim_space(behind);
        if rest.is_empty() {
            return Ok(found);
        }
        rest = match rest.strip_prefix(',') {
            Some(rest) => trim_space(rest),
            None if rest.len() < behind.len() => rest,
            None => return Err(improper()),
        };
    }
}

/// The version of a condition as it was written.
struct Bound<'t> {
    whole: &'t str,
    size: usize,
    numbers: [&'t str; 3],
    /// With its hyphen.
    prerelease: &'t str,
}

/// Numbers and wildcards, a prerelease, metadata: as much as the text begins with.
fn bound(text: &str) -> Option<Bound<'_>> {
    let is_number = |c: char| c.is_ascii_digit() || matches!(c, 'x' | 'X' | '*' | '|');
    let mut rest = text.strip_prefix('v').unwrap_or(text);
    let mut numbers = [""; 3];
    for (index, number) in numbers.iter_mut().enumerate() {
        let after = match index {
            0 => Some(rest),
            _ => rest.strip_prefix('.'),
        };
        let Some(after) = after.filter(|after| after.starts_with(is_number)) else {
            break;
        };
        let end = after.find(|c| !is_number(c)).unwrap_or(after.len());
        (*number, rest) = after.split_at(end);
    }
    if numbers[0].is_empty() {
        return None;
    }
    let (prerelease, rest) = identifiers(rest, '-');
    let (_, rest) = identifiers(rest, '+');
    let size = text.len() - rest.len();
    Some(Bound {
        whole: &text[..size],
        size,
        numbers,
        prerelease,
    })
}

/// `sign` and words with points between them, as much as the text begins with.
fn identifiers(text: &str, sign: char) -> (&str, &str) {
    let mut size = 0;
    let mut next = sign;
    while let Some(after) = text[size..].strip_prefix(next) {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let word = after.find(|c| !is_allowed(c)).unwrap_or(after.len());
        if word == 0 {
            break;
        }
        size += 1 + word;
        next = '.';
    }
    text.split_at(size)
}

fn condition(operator: Operator, bound: &Bound) -> Result<Condition, String> {
    let is_wild = |number: &&str| matches!(*number, "" | "x" | "X" | "*");
    let given = bound.numbers.iter().position(is_wild).unwrap_or(3);
    let [major, minor, _] = bound.numbers;
    let pre = bound.prerelease;
    let text = match given {
        0 => format!("0.0.0{pre}"),
        1 => format!("{major}.0.0{pre}"),
        2 => format!("{major}.{minor}.0{pre}"),
        _ => bound.whole.to_owned(),
    };
    let version = Version::parse(&text).map_err(|_| "constraint Parser Error".to_owned())?;
    Ok(Condition {
        operator,
        version,
        given,
    })
}

/// `1.2 - 1.4` as `>= 1.2, <= 1.4`.
fn without_hyphens(text: &str) -> String {
    let mut ranges = Vec::new();
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        match hyphen_range(&text[at..]) {
            Some((size, rewritten)) => {
                ranges.push((&text[at..at + size], rewritten));
                at += size;
            }
            None => at += c.len_utf8(),
        }
    }
    ranges
        .into_iter()
        .fold(text.to_owned(), |text, (range, rewritten)| {
            text.replacen(range, &rewritten, 1)
        })
}

/// The size of the range that the text begins with, with the space around it, and the same as two conditions.
fn hyphen_range(text: &str) -> Option<(usize, String)> {
    let start = trim_space(text);
    let low = bound(start)?;
    let after = &start[low.size..];
    let hyphen = trim_space(after)
        .strip_prefix('-')
        .filter(|_| after.starts_with(is_space))?;
    let end = trim_space(hyphen);
    let high = bound(end).filter(|_| hyphen.starts_with(is_space))?;
    let rest = trim_space(&end[high.size..]);
    let rewritten = format!(">= {}, <= {}", low.whole, high.whole);
    Some((text.len() - rest.len(), rewritten))
}
