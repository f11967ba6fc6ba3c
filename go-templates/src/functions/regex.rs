//! Regular expressions with Go's syntax and results. The sizes of pattern and text bound the time: the search never backtracks.

mod program;
mod syntax;

use std::borrow::Cow;

use crate::context::Context;
use crate::functions::arguments::{int, text};
use crate::functions::{Function, FunctionError, Outcome};
use crate::quote::quote;
use crate::runes;
use crate::signature::Param::{Int, Str};
use crate::signature::Signature;
use crate::value::{Element, List, Value};

use program::{Program, Search, Wanted};

const TWO: Signature = Signature::exactly(&[Str, Str]);
const COUNTED: Signature = Signature::exactly(&[Str, Str, Int]);
const THREE: Signature = Signature::exactly(&[Str, Str, Str]);

pub const FUNCTIONS: &[Function] = &[
    Function::new("mustRegexFind", TWO, |context, args| {
        find(context, args, compiled)
    }),
    Function::new("mustRegexFindAll", COUNTED, |context, args| {
        find_all(context, args, compiled)
    }),
    Function::new("mustRegexMatch", TWO, is_match),
    Function::new("mustRegexReplaceAll", THREE, |context, args| {
        replace_all(context, args, compiled)
    }),
    Function::new("mustRegexReplaceAllLiteral", THREE, |context, args| {
        replace_all_literal(context, args, compiled)
    }),
    Function::new("mustRegexSplit", COUNTED, |context, args| {
        split(context, args, compiled)
    }),
    Function::new("regexFind", TWO, |context, args| {
        find(context, args, compiled_or_panic)
    }),
    Function::new("regexFindAll", COUNTED, |context, args| {
        find_all(context, args, compiled_or_panic)
    }),
    Function::new("regexMatch", TWO, |context, args| {
        match is_match(context, args) {
            // As upstream, an invalid pattern matches nothing.
            Err(FunctionError::Message(message)) if message.starts_with(SYNTAX_ERROR) => {
                Ok(Value::Bool(false))
            }
            outcome => outcome,
        }
    }),
    Function::new("regexQuoteMeta", Signature::exactly(&[Str]), quote_meta),
    Function::new("regexReplaceAll", THREE, |context, args| {
        replace_all(context, args, compiled_or_panic)
    }),
    Function::new("regexReplaceAllLiteral", THREE, |context, args| {
        replace_all_literal(context, args, compiled_or_panic)
    }),
    Function::new("regexSplit", COUNTED, |context, args| {
        split(context, args, compiled_or_panic)
    }),
];

/// The start of an error message about a pattern.
const SYNTAX_ERROR: &str = "error parsing regexp: ";

type Compile = fn(&mut Context, &[u8], Wanted) -> Result<Program, FunctionError>;

fn compiled(
    context: &mut Context,
    pattern: &[u8],
    wanted: Wanted,
) -> Result<Program, FunctionError> {
    Program::compile(pattern, wanted, &mut context.budget)
}

/// With the message of a Go panic, which quotes the whole pattern.
fn compiled_or_panic(
    context: &mut Context,
    pattern: &[u8],
    wanted: Wanted,
) -> Result<Program, FunctionError> {
    compiled(context, pattern, wanted).map_err(|error| match error {
        FunctionError::Message(message) if message.starts_with(SYNTAX_ERROR) => {
            FunctionError::Message(format!(
                "regexp: Compile({}): {message}",
                raw_quote(pattern)
            ))
        }
        other => other,
    })
}

/// In backquotes if a Go literal can hold it so.
fn raw_quote(pattern: &[u8]) -> String {
    let fits = |c: char| !matches!(c, '`' | '\u{feff}' | '\x7f') && (c == '\t' || !c.is_control());
    match std::str::from_utf8(pattern) {
        Ok(text) if text.chars().all(fits) => format!("`{text}`"),
        _ => quote(pattern),
    }
}

/// A text as the search sees it: an invalid byte counts as one character, as in Go.
struct Haystack<'t> {
    bytes: &'t [u8],
    text: Cow<'t, str>,
    /// For each byte of `text`, where it is in `bytes`; empty if they are the same.
    origins: Vec<usize>,
}

impl<'t> Haystack<'t> {
    fn new(context: &mut Context, bytes: &'t [u8]) -> Result<Haystack<'t>, FunctionError> {
        if let Ok(text) = std::str::from_utf8(bytes) {
            return Ok(Haystack {
                bytes,
                text: Cow::Borrowed(text),
                origins: Vec::new(),
            });
        }
        context.reserve(bytes.len().saturating_mul(3 * (1 + size_of::<usize>())))?;
        let (mut text, mut origins) = (String::new(), Vec::new());
        for (at, c, _) in runes::runes(bytes) {
            text.push(c);
            origins.resize(text.len(), at);
        }
        origins.push(bytes.len());
        Ok(Haystack {
            bytes,
            text: Cow::Owned(text),
            origins,
        })
    }

    fn slice(&self, start: usize, end: usize) -> &'t [u8] {
        let origin = |at: usize| self.origins.get(at).copied().unwrap_or(at);
        &self.bytes[origin(start)..origin(end)]
    }

    fn len(&self) -> usize {
        self.text.len()
    }

    /// Where the character behind the one at `at` begins.
    fn after(&self, at: usize) -> usize {
        let width = self.text[at..].chars().next().map_or(1, char::len_utf8);
        at + width
    }
}

/// Begin and end of a match, and of its groups.
type Ends = Vec<Option<usize>>;

fn whole(ends: &Ends) -> (usize, usize) {
    let end = |index: usize| ends.get(index).copied().flatten().unwrap_or(0);
    (end(0), end(1))
}

fn is_match(context: &mut Context, args: &[Value]) -> Outcome {
    let program = compiled(context, text(args, 0)?, Wanted::Match)?;
    let haystack = Haystack::new(context, text(args, 1)?)?;
    let mut search = Search::new(&program, &mut context.budget)?;
    let found = program.find(&haystack.text, 0, &mut search, &mut context.budget)?;
    Ok(Value::Bool(found.is_some()))
}

fn find(context: &mut Context, args: &[Value], compile: Compile) -> Outcome {
    let program = compile(context, text(args, 0)?, Wanted::Match)?;
    let haystack = Haystack::new(context, text(args, 1)?)?;
    let mut search = Search::new(&program, &mut context.budget)?;
    match program.find(&haystack.text, 0, &mut search, &mut context.budget)? {
        Some(ends) => {
            let (start, end) = whole(&ends);
            context.string(haystack.slice(start, end))
        }
        None => Ok(Value::str("")),
    }
}

/// The matches that do not overlap, at most `limit`. One that is empty does not follow right behind another.
fn matches(
    context: &mut Context,
    program: &Program,
    haystack: &Haystack,
    limit: i64,
) -> Result<Vec<(usize, usize)>, FunctionError> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut search = Search::new(program, &mut context.budget)?;
    let mut found = Vec::new();
    let (mut at, mut last_end) = (0, None);
    while found.len() < limit && at <= haystack.len() {
        let Some(ends) = program.find(&haystack.text, at, &mut search, &mut context.budget)? else {
            break;
        };
        let (start, end) = whole(&ends);
        let is_empty_here = end == at;
        at = if is_empty_here {
            haystack.after(at)
        } else {
            end
        };
        if !(is_empty_here && last_end == Some(start)) {
            context.reserve_items(1)?;
            found.push((start, end));
        }
        last_end = Some(end);
    }
    Ok(found)
}

fn strings(context: &mut Context, parts: Vec<&[u8]>) -> Outcome {
    context.reserve_items(parts.len())?;
    // Each part is a string of its own, which takes more than its bytes.
    context.reserve(parts.iter().map(|part| part.len() + 16).sum())?;
    let items = parts.into_iter().map(Value::str).collect();
    Ok(Value::List(List::new(Element::Str, items)))
}

fn find_all(context: &mut Context, args: &[Value], compile: Compile) -> Outcome {
    let program = compile(context, text(args, 0)?, Wanted::Match)?;
    let haystack = Haystack::new(context, text(args, 1)?)?;
    let found = matches(context, &program, &haystack, int(args, 2)?)?;
    if found.is_empty() {
        return Ok(Value::List(List::nil(Element::Str)));
    }
    let parts = found
        .iter()
        .map(|(start, end)| haystack.slice(*start, *end));
    strings(context, parts.collect())
}

/// The parts between the matches; with a `limit`, the last part is the rest of the text.
fn split(context: &mut Context, args: &[Value], compile: Compile) -> Outcome {
    let (pattern, limit) = (text(args, 0)?, int(args, 2)?);
    let program = compile(context, pattern, Wanted::Match)?;
    if limit == 0 {
        return Ok(Value::List(List::nil(Element::Str)));
    }
    let haystack = Haystack::new(context, text(args, 1)?)?;
    if !pattern.is_empty() && haystack.len() == 0 {
        return strings(context, vec![b""]);
    }
    let separators = matches(context, &program, &haystack, limit)?;
    let parts_max = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut parts = Vec::new();
    let (mut start, mut end) = (0, 0);
    for (from, to) in separators {
        if parts.len() >= parts_max - 1 {
            break;
        }
        end = from;
        // An empty match at the beginning parts nothing.
        if to != 0 {
            parts.push(haystack.slice(start, end));
        }
        start = to;
    }
    if end != haystack.len() {
        parts.push(haystack.slice(start, haystack.len()));
    }
    strings(context, parts)
}

fn replace_all(context: &mut Context, args: &[Value], compile: Compile) -> Outcome {
    let template = text(args, 2)?;
    if !template.contains(&b'$') {
        return replace_all_literal(context, args, compile);
    }
    let program = compile(context, text(args, 0)?, Wanted::Groups)?;
    let haystack = Haystack::new(context, text(args, 1)?)?;
    replaced(context, &program, &haystack, |context, ends, out| {
        expand(context, template, &program, &haystack, ends, out)
    })
}

fn replace_all_literal(context: &mut Context, args: &[Value], compile: Compile) -> Outcome {
    let replacement = text(args, 2)?;
    let program = compile(context, text(args, 0)?, Wanted::Match)?;
    let haystack = Haystack::new(context, text(args, 1)?)?;
    replaced(context, &program, &haystack, |context, _, out| {
        append(context, out, replacement)
    })
}

fn append(context: &mut Context, out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), FunctionError> {
    context.reserve(bytes.len())?;
    out.extend_from_slice(bytes);
    Ok(())
}

fn replaced(
    context: &mut Context,
    program: &Program,
    haystack: &Haystack,
    replace: impl Fn(&mut Context, &Ends, &mut Vec<u8>) -> Result<(), FunctionError>,
) -> Outcome {
    let mut search = Search::new(program, &mut context.budget)?;
    let mut out = Vec::new();
    let (mut at, mut copied) = (0, 0);
    while at <= haystack.len() {
        let Some(ends) = program.find(&haystack.text, at, &mut search, &mut context.budget)? else {
            break;
        };
        let (start, end) = whole(&ends);
        append(context, &mut out, haystack.slice(copied, start))?;
        if end > copied || start == 0 {
            replace(context, &ends, &mut out)?;
        }
        copied = end;
        // Advance by at least one character.
        at = if end > at {
            end.max(haystack.after(at))
        } else {
            haystack.after(at)
        };
    }
    append(context, &mut out, haystack.slice(copied, haystack.len()))?;
    Ok(Value::str(out))
}

/// Writes a replacement with its `$1`, `${1}`, `$name` and `${name}`; a group that took no part writes nothing.
fn expand(
    context: &mut Context,
    template: &[u8],
    program: &Program,
    haystack: &Haystack,
    ends: &Ends,
    out: &mut Vec<u8>,
) -> Result<(), FunctionError> {
    let mut rest = template;
    while let Some(at) = rest.iter().position(|byte| *byte == b'$') {
        context.budget.spend_steps(1)?;
        append(context, out, &rest[..at])?;
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix(b"$") {
            append(context, out, b"$")?;
            rest = after;
            continue;
        }
        let Some((name, after)) = reference(rest) else {
            append(context, out, b"$")?;
            continue;
        };
        rest = after;
        let group = |number: usize| {
            let end = |index: usize| ends.get(index).copied().flatten();
            Some((end(2 * number)?, end(2 * number + 1)?))
        };
        let found = match number(name) {
            Some(number) => group(number),
            None => program.groups_named(name).find_map(group),
        };
        if let Some((start, end)) = found {
            append(context, out, haystack.slice(start, end))?;
        }
    }
    append(context, out, rest)
}

/// The name behind a dollar sign, and what follows it.
fn reference(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let inner = text.strip_prefix(b"{").unwrap_or(text);
    let is_word = |c: char| c == '_' || runes::is_letter(c) || runes::is_digit(c);
    let end = runes::runes(inner).find(|(_, c, _)| !is_word(*c));
    let (name, rest) = inner.split_at(end.map_or(inner.len(), |(at, ..)| at));
    if name.is_empty() {
        return None;
    }
    match inner.len() == text.len() {
        true => Some((name, rest)),
        false => Some((name, rest.strip_prefix(b"}")?)),
    }
}

/// The number of a group; any other text is a name.
fn number(name: &[u8]) -> Option<usize> {
    let is_plain = name.iter().all(u8::is_ascii_digit) && (name.len() == 1 || name[0] != b'0');
    let digits = std::str::from_utf8(name).ok().filter(|_| is_plain)?;
    digits.parse().ok().filter(|number| *number < 1_000_000_000)
}

/// Escapes each character that has a meaning in a pattern.
fn quote_meta(context: &mut Context, args: &[Value]) -> Outcome {
    let whole = text(args, 0)?;
    context.reserve(whole.len())?;
    let mut out = Vec::with_capacity(whole.len());
    for byte in whole.iter() {
        if b"\\.+*?()|[]{}^$".contains(byte) {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    context.string(out)
}
