//! Parses a pattern as Go's regexp/syntax does: accepts and rejects the same, with the same messages. Builds the library's
//! internal form directly, so that the library's own syntax never shows.

mod class;
mod escape;

use regex_syntax::hir::{Capture, Class, ClassUnicode, ClassUnicodeRange, Hir, Look, Repetition};
use thiserror::Error;

use crate::budget::{Budget, LimitError};
use crate::functions::FunctionError;

/// How far groups and repeats may nest. Go allows 1,000; each level takes stack when a pattern is compiled.
const HEIGHT_MAX: u32 = 200;
/// Go's limit of a repeat count, with nested counts multiplied.
const REPEATS_MAX: u32 = 1000;

/// A pattern that Go would not compile, in Go's words.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("error parsing regexp: {what}: `{part}`")]
pub struct SyntaxError {
    what: &'static str,
    part: String,
}

fn refused<T>(what: &'static str, part: &str) -> Result<T, Stop> {
    Err(Stop::Syntax(SyntaxError {
        what,
        part: part.to_owned(),
    }))
}

/// Why parsing stopped.
#[derive(Debug)]
pub enum Stop {
    Syntax(SyntaxError),
    Limit(LimitError),
}

impl From<LimitError> for Stop {
    fn from(limit: LimitError) -> Stop {
        Stop::Limit(limit)
    }
}

impl From<Stop> for FunctionError {
    fn from(stop: Stop) -> FunctionError {
        match stop {
            Stop::Syntax(error) => FunctionError::new(error.to_string()),
            Stop::Limit(limit) => limit.into(),
        }
    }
}

/// A parsed pattern.
#[derive(Debug)]
pub struct Syntax {
    pub hir: Hir,
    /// The names of groups, by their number; empty for those without.
    pub names: Vec<String>,
}

pub fn parse(pattern: &[u8], budget: &mut Budget) -> Result<Syntax, Stop> {
    let text = match std::str::from_utf8(pattern) {
        Ok(text) => text,
        Err(error) => {
            let rest = String::from_utf8_lossy(&pattern[error.valid_up_to()..]);
            return refused("invalid UTF-8", &rest);
        }
    };
    Parser {
        pattern: text,
        rest: text,
        budget,
        frames: vec![Frame::default()],
        names: vec![String::new()],
    }
    .run()
}

/// The flags of `(?i)` and the like.
#[derive(Debug, Clone, Copy, Default)]
struct Flags {
    fold_case: bool,
    multi_line: bool,
    dot_matches_newline: bool,
    swap_greed: bool,
}

/// The state of an open group.
#[derive(Debug, Default)]
struct Frame {
    /// The number of the group, if it has one.
    group: Option<u32>,
    /// The flags in it; those outside are the frame's below.
    flags: Flags,
    /// The branches before the last `|`.
    branches: Vec<Item>,
    items: Vec<Item>,
}

#[derive(Debug)]
struct Item {
    hir: Hir,
    height: u32,
    /// How many copies of its innermost part the counts in it make.
    copies: u32,
}

impl Item {
    fn leaf(hir: Hir) -> Item {
        Item {
            hir,
            height: 0,
            copies: 1,
        }
    }
}

struct Parser<'p, 'b> {
    pattern: &'p str,
    rest: &'p str,
    budget: &'b mut Budget,
    /// The innermost last; never empty.
    frames: Vec<Frame>,
    names: Vec<String>,
}

impl<'p> Parser<'p, '_> {
    fn run(mut self) -> Result<Syntax, Stop> {
        // The last operator, with the rest of the pattern after it.
        let mut last_repeat = None;
        while let Some(c) = self.rest.chars().next() {
            self.budget.spend_steps(1)?;
            self.budget.spend_memory(size_of::<Item>() as u64)?;
            let here = self.rest;
            let mut repeat = None;
            match c {
                '*' | '+' | '?' => {
                    self.rest = &here[1..];
                    let (min, max) = match c {
                        '*' => (0, None),
                        '+' => (1, None),
                        _ => (0, Some(1)),
                    };
                    self.repeat(min, max, here, last_repeat)?;
                    repeat = Some(here);
                }
                '{' => match counts(here) {
                    Some((min, max, rest)) => {
                        self.rest = rest;
                        let too_many = min > REPEATS_MAX || max.is_some_and(|n| n > REPEATS_MAX);
                        if too_many || max.is_some_and(|max| min > max) {
                            return refused("invalid repeat count", before(here, rest));
                        }
                        self.repeat(min, max, here, last_repeat)?;
                        repeat = Some(here);
                    }
                    None => self.literal_here('{'),
                },
                '(' if here.starts_with("(?") => self.open_special()?,
                '(' => {
                    self.rest = &here[1..];
                    self.open_group(String::new());
                }
                '|' => {
                    self.rest = &here[1..];
                    let branch = self.branch()?;
                    self.frame().branches.push(branch);
                }
                ')' => {
                    self.rest = &here[1..];
                    self.close()?;
                }
                '^' => {
                    let line = self.flags().multi_line;
                    self.look_here(if line { Look::StartLF } else { Look::Start }, 1);
                }
                '$' => {
                    let line = self.flags().multi_line;
                    self.look_here(if line { Look::EndLF } else { Look::End }, 1);
                }
                '.' => {
                    self.rest = &here[1..];
                    let mut newline = ClassUnicode::empty();
                    if !self.flags().dot_matches_newline {
                        newline.push(ClassUnicodeRange::new('\n', '\n'));
                    }
                    newline.negate();
                    self.class(newline)?;
                }
                '[' => self.bracket()?,
                '\\' => self.backslash()?,
                c => self.literal_here(c),
            }
            last_repeat = repeat;
        }
        let whole = self.finished_frame()?;
        match self.frames.len() {
            1 => Ok(Syntax {
                hir: whole.hir,
                names: self.names,
            }),
            _ => refused("missing closing )", self.pattern),
        }
    }

    fn frame(&mut self) -> &mut Frame {
        if self.frames.is_empty() {
            self.frames.push(Frame::default());
        }
        let innermost = self.frames.len() - 1;
        &mut self.frames[innermost]
    }

    fn flags(&mut self) -> Flags {
        self.frame().flags
    }

    fn push(&mut self, hir: Hir) {
        self.frame().items.push(Item::leaf(hir));
    }

    fn look_here(&mut self, look: Look, bytes: usize) {
        self.rest = &self.rest[bytes..];
        self.push(Hir::look(look));
    }

    fn literal_here(&mut self, c: char) {
        self.rest = &self.rest[c.len_utf8()..];
        self.literal(c);
    }

    fn literal(&mut self, c: char) {
        let hir = if self.flags().fold_case {
            let mut class = ClassUnicode::new([ClassUnicodeRange::new(c, c)]);
            class.case_fold_simple();
            Hir::class(Class::Unicode(class))
        } else {
            Hir::literal(c.encode_utf8(&mut [0; 4]).as_bytes())
        };
        self.push(hir);
    }

    /// Charges for a class by the number of its ranges.
    fn class(&mut self, class: ClassUnicode) -> Result<(), Stop> {
        let ranges = class.ranges().len() as u64;
        self.budget.spend_steps(ranges / 64)?;
        self.budget.spend_memory(ranges * 16)?;
        self.push(Hir::class(Class::Unicode(class)));
        Ok(())
    }

    /// Repeats the last item. `here` begins with the operator, and `last` with the one before it, if it was one.
    fn repeat(
        &mut self,
        min: u32,
        max: Option<u32>,
        here: &'p str,
        last: Option<&'p str>,
    ) -> Result<(), Stop> {
        let is_lazy = self.rest.starts_with('?');
        if is_lazy {
            self.rest = &self.rest[1..];
        }
        let rest = self.rest;
        if let Some(last) = last {
            return refused("invalid nested repetition operator", before(last, rest));
        }
        let pattern = self.pattern;
        let frame = self.frame();
        let Some(item) = frame.items.pop() else {
            return refused(
                "missing argument to repetition operator",
                before(here, rest),
            );
        };
        let is_counted = here.starts_with('{');
        let copies = match max.unwrap_or(min) {
            0 if max == Some(0) => 1,
            count if is_counted => item.copies.saturating_mul(count.max(1)),
            _ => item.copies,
        };
        if copies > REPEATS_MAX {
            return refused("invalid repeat count", before(here, rest));
        }
        let greedy = is_lazy == frame.flags.swap_greed;
        let hir = Hir::repetition(Repetition {
            min,
            max,
            greedy,
            sub: Box::new(item.hir),
        });
        let item = Item {
            hir,
            height: item.height + 1,
            copies,
        };
        if item.height > HEIGHT_MAX {
            return refused("expression nests too deeply", pattern);
        }
        frame.items.push(item);
        Ok(())
    }

    fn open(&mut self, group: Option<u32>, flags: Flags) {
        self.frames.push(Frame {
            group,
            flags,
            ..Frame::default()
        });
    }

    fn open_group(&mut self, name: String) {
        let group = self.names.len() as u32;
        self.names.push(name);
        let flags = self.flags();
        self.open(Some(group), flags);
    }

    /// `(?P<name>`, `(?<name>`, `(?flags)` or `(?flags:`.
    fn open_special(&mut self) -> Result<(), Stop> {
        let here = self.rest;
        let is_named = here.starts_with("(?P<") || here.starts_with("(?<");
        let long_enough = here.len() > if here.starts_with("(?P") { 4 } else { 3 };
        if is_named && long_enough {
            let Some(end) = here.find('>') else {
                return refused("invalid named capture", here);
            };
            let start = here.find('<').unwrap_or(0) + 1;
            let name = &here[start..end];
            let is_word = |c: char| c == '_' || c.is_ascii_alphanumeric();
            if name.is_empty() || !name.chars().all(is_word) {
                return refused("invalid named capture", &here[..=end]);
            }
            self.rest = &here[end + 1..];
            self.open_group(name.to_owned());
            return Ok(());
        }
        let mut flags = self.flags();
        let (mut on, mut is_flag_due) = (true, false);
        let mut at = 2;
        for c in here[2..].chars() {
            at += c.len_utf8();
            let flag = match c {
                'i' => &mut flags.fold_case,
                'm' => &mut flags.multi_line,
                's' => &mut flags.dot_matches_newline,
                'U' => &mut flags.swap_greed,
                '-' if on => {
                    (on, is_flag_due) = (false, true);
                    continue;
                }
                ':' if !is_flag_due => {
                    self.rest = &here[at..];
                    self.open(None, flags);
                    return Ok(());
                }
                ')' if !is_flag_due => {
                    self.rest = &here[at..];
                    self.frame().flags = flags;
                    return Ok(());
                }
                _ => break,
            };
            (*flag, is_flag_due) = (on, false);
        }
        refused("invalid or unsupported Perl syntax", &here[..at])
    }

    fn close(&mut self) -> Result<(), Stop> {
        let inner = self.finished_frame()?;
        let Some(frame) = self.frames.pop().filter(|_| !self.frames.is_empty()) else {
            return refused("unexpected )", self.pattern);
        };
        let item = match frame.group {
            Some(index) => Item {
                hir: Hir::capture(Capture {
                    index,
                    name: None,
                    sub: Box::new(inner.hir),
                }),
                height: inner.height + 1,
                copies: inner.copies,
            },
            None => inner,
        };
        if item.height > HEIGHT_MAX {
            return refused("expression nests too deeply", self.pattern);
        }
        self.frame().items.push(item);
        Ok(())
    }

    /// The items since the last `|` as one.
    fn branch(&mut self) -> Result<Item, Stop> {
        let items = std::mem::take(&mut self.frame().items);
        self.joined(items, Hir::concat)
    }

    /// All branches of the innermost frame as one.
    fn finished_frame(&mut self) -> Result<Item, Stop> {
        let last = self.branch()?;
        let mut branches = std::mem::take(&mut self.frame().branches);
        branches.push(last);
        self.joined(branches, Hir::alternation)
    }

    fn joined(&self, items: Vec<Item>, join: fn(Vec<Hir>) -> Hir) -> Result<Item, Stop> {
        let height = items.iter().map(|item| item.height + 1).max();
        let copies = items.iter().map(|item| item.copies).max();
        // A single item does not nest deeper by being joined.
        let single = items.len() == 1;
        let height = height.unwrap_or(0) - u32::from(single);
        if height > HEIGHT_MAX {
            return refused("expression nests too deeply", self.pattern);
        }
        Ok(Item {
            hir: join(items.into_iter().map(|item| item.hir).collect()),
            height,
            copies: copies.unwrap_or(1),
        })
    }
}

/// The part of `here` before `rest`, which is its end.
fn before<'p>(here: &'p str, rest: &str) -> &'p str {
    &here[..here.len() - rest.len()]
}

/// `{2}`, `{2,}`, `{2,5}` and what follows; anything else in braces is text.
fn counts(here: &str) -> Option<(u32, Option<u32>, &str)> {
    let (min, rest) = count(here.strip_prefix('{')?)?;
    if let Some(rest) = rest.strip_prefix('}') {
        return Some((min, Some(min), rest));
    }
    let rest = rest.strip_prefix(',')?;
    if let Some(rest) = rest.strip_prefix('}') {
        return Some((min, None, rest));
    }
    let (max, rest) = count(rest)?;
    Some((min, Some(max), rest.strip_prefix('}')?))
}

/// A number without leading zeros; one that is too large is too large to repeat.
fn count(text: &str) -> Option<(u32, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit());
    let (digits, rest) = text.split_at(end.unwrap_or(text.len()));
    if digits.is_empty() || (digits.len() > 1 && digits.starts_with('0')) {
        return None;
    }
    Some((digits.parse().unwrap_or(u32::MAX), rest))
}
