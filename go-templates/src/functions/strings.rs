//! Strings: trimming, cutting, searching, replacing. Positions and lengths are bytes, as in Go.

use crate::context::Context;
use crate::functions::arguments::{int, text};
use crate::functions::{Function, FunctionError, Outcome};
use crate::runes;
use crate::signature::Param::{Int, Str};
use crate::signature::Signature;
use crate::value::Value;

const ONE: Signature = Signature::exactly(&[Str]);
const TWO: Signature = Signature::exactly(&[Str, Str]);
const CUT: Signature = Signature::exactly(&[Int, Str]);

pub const FUNCTIONS: &[Function] = &[
    Function::new("trim", ONE, trim),
    Function::new("trimAll", TWO, trim_all),
    Function::new("trimall", TWO, trim_all),
    Function::new("trimPrefix", TWO, trim_prefix),
    Function::new("trimSuffix", TWO, trim_suffix),
    Function::new("nospace", ONE, nospace),
    Function::new("trunc", CUT, trunc),
    Function::new("substr", Signature::exactly(&[Int, Int, Str]), substr),
    Function::new("abbrev", CUT, abbrev),
    Function::new(
        "abbrevboth",
        Signature::exactly(&[Int, Int, Str]),
        abbrevboth,
    ),
    Function::new("initials", ONE, initials),
    Function::new("repeat", CUT, repeat),
    Function::new("replace", Signature::exactly(&[Str, Str, Str]), replace),
    Function::new("contains", TWO, |_, args| {
        let (part, whole) = (text(args, 0)?, text(args, 1)?);
        Ok(Value::Bool(find(whole, part).is_some()))
    }),
    Function::new("hasPrefix", TWO, |_, args| {
        Ok(Value::Bool(text(args, 1)?.starts_with(text(args, 0)?)))
    }),
    Function::new("hasSuffix", TWO, |_, args| {
        Ok(Value::Bool(text(args, 1)?.ends_with(text(args, 0)?)))
    }),
    Function::new("plural", Signature::exactly(&[Str, Str, Int]), |_, args| {
        let chosen = if int(args, 2)? == 1 { 0 } else { 1 };
        Ok(Value::Str(text(args, chosen)?.clone()))
    }),
];

fn trim(context: &mut Context, args: &[Value]) -> Outcome {
    let trimmed = trim_while(text(args, 0)?, runes::is_space);
    context.string(trimmed)
}

/// Takes away every character of the first string at both ends of the second.
fn trim_all(context: &mut Context, args: &[Value]) -> Outcome {
    let cut: Vec<char> = runes::runes(text(args, 0)?).map(|(_, c, _)| c).collect();
    context.budget.spend_steps(cut.len() as u64)?;
    let whole = text(args, 1)?;
    let work = cut.len().saturating_mul(whole.len()) as u64 / 64;
    context.budget.spend_steps(work)?;
    let trimmed = trim_while(whole, |c| cut.contains(&c));
    context.string(trimmed)
}

fn trim_while(mut bytes: &[u8], gone: impl Fn(char) -> bool) -> &[u8] {
    while let Some((c, size)) = runes::decode(bytes) {
        if !gone(c) {
            break;
        }
        bytes = &bytes[size..];
    }
    while let Some((c, size)) = runes::decode_last(bytes) {
        if !gone(c) {
            break;
        }
        bytes = &bytes[..bytes.len() - size];
    }
    bytes
}

fn trim_prefix(context: &mut Context, args: &[Value]) -> Outcome {
    let (prefix, whole) = (text(args, 0)?, text(args, 1)?);
    context.string(whole.strip_prefix(&prefix[..]).unwrap_or(whole))
}

fn trim_suffix(context: &mut Context, args: &[Value]) -> Outcome {
    let (suffix, whole) = (text(args, 0)?, text(args, 1)?);
    context.string(whole.strip_suffix(&suffix[..]).unwrap_or(whole))
}

/// Without white space. Where there was any, every byte is taken for a character of its own, as upstream does.
fn nospace(context: &mut Context, args: &[Value]) -> Outcome {
    let whole = text(args, 0)?;
    let kept: String = whole
        .iter()
        .map(|byte| char::from(*byte))
        .filter(|c| !runes::is_space(*c))
        .collect();
    if kept.chars().count() == whole.len() {
        return Ok(Value::Str(whole.clone()));
    }
    context.string(kept)
}

fn trunc(context: &mut Context, args: &[Value]) -> Outcome {
    let (count, whole) = (int(args, 0)?, text(args, 1)?);
    let keep = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    context.string(match count {
        0.. => &whole[..keep.min(whole.len())],
        _ => &whole[whole.len() - keep.min(whole.len())..],
    })
}

fn substr(context: &mut Context, args: &[Value]) -> Outcome {
    let (start, end, whole) = (int(args, 0)?, int(args, 1)?, text(args, 2)?);
    let len = whole.len() as i64;
    let out_of_range = |bounds: String| {
        FunctionError::new(format!("runtime error: slice bounds out of range {bounds}"))
    };
    let (from, to) = if start < 0 {
        match end {
            0.. if end <= len => (0, end),
            0.. => return Err(out_of_range(format!("[:{end}] with length {len}"))),
            _ => return Err(out_of_range(format!("[:{end}]"))),
        }
    } else {
        let end = if end < 0 || end > len { len } else { end };
        (start, end)
    };
    if from > to {
        return Err(out_of_range(format!("[{from}:{to}]")));
    }
    context.string(&whole[from as usize..to as usize])
}

fn abbrev(context: &mut Context, args: &[Value]) -> Outcome {
    let (width, whole) = (int(args, 0)?, text(args, 1)?);
    match usize::try_from(width) {
        Ok(width @ 4..) => context.string(abbreviated(whole, 0, width)),
        _ => Ok(Value::Str(whole.clone())),
    }
}

fn abbrevboth(context: &mut Context, args: &[Value]) -> Outcome {
    let (left, right, whole) = (int(args, 0)?, int(args, 1)?, text(args, 2)?);
    if right < 4 || (left > 0 && right < 7) {
        return Ok(Value::Str(whole.clone()));
    }
    let width = usize::try_from(right).unwrap_or(usize::MAX);
    context.string(abbreviated(whole, left, width))
}

/// At most `width` bytes, with dots for what is left out; the byte at `offset` is among what is shown.
fn abbreviated(whole: &[u8], offset: i64, width: usize) -> Vec<u8> {
    const DOTS: &[u8] = b"...";
    if whole.len() <= width {
        return whole.to_vec();
    }
    let room = width - DOTS.len();
    let offset = match usize::try_from(offset) {
        Ok(offset) => offset.min(whole.len() - room),
        Err(_) => 0,
    };
    if offset <= 4 {
        return [&whole[..room], DOTS].concat();
    }
    if width < 7 {
        return Vec::new();
    }
    if offset + room < whole.len() {
        let rest = abbreviated(&whole[offset..], 0, room);
        return [DOTS, &rest].concat();
    }
    [DOTS, &whole[whole.len() - room..]].concat()
}

/// The first byte of every word, each as a character of its own.
fn initials(context: &mut Context, args: &[Value]) -> Outcome {
    let mut found = String::new();
    let mut after_gap = true;
    for byte in text(args, 0)?.iter() {
        let c = char::from(*byte);
        let is_gap = runes::is_space(c);
        if after_gap && !is_gap {
            found.push(c);
        }
        after_gap = is_gap;
    }
    context.string(found)
}

fn repeat(context: &mut Context, args: &[Value]) -> Outcome {
    let (count, whole) = (int(args, 0)?, text(args, 1)?);
    let Ok(count) = usize::try_from(count) else {
        return Err(FunctionError::new("strings: negative Repeat count"));
    };
    context.reserve(whole.len().saturating_mul(count))?;
    if whole.is_empty() {
        return Ok(Value::str(""));
    }
    Ok(Value::str(whole.repeat(count)))
}

fn replace(context: &mut Context, args: &[Value]) -> Outcome {
    let (old, new, whole) = (text(args, 0)?, text(args, 1)?, text(args, 2)?);
    if old == new {
        return Ok(Value::Str(whole.clone()));
    }
    let grown = |places: usize| {
        let removed = places.saturating_mul(old.len());
        whole
            .len()
            .saturating_sub(removed)
            .saturating_add(places.saturating_mul(new.len()))
    };
    let places = match old.is_empty() {
        true => runes::count(whole) + 1,
        false => occurrences(whole, old).count(),
    };
    context.reserve(grown(places))?;
    let mut replaced = Vec::with_capacity(grown(places));
    if old.is_empty() {
        for (at, _, size) in runes::runes(whole) {
            replaced.extend_from_slice(new);
            replaced.extend_from_slice(&whole[at..at + size]);
        }
        replaced.extend_from_slice(new);
        return Ok(Value::str(replaced));
    }
    let mut rest = 0;
    for at in occurrences(whole, old) {
        replaced.extend_from_slice(&whole[rest..at]);
        replaced.extend_from_slice(new);
        rest = at + old.len();
    }
    replaced.extend_from_slice(&whole[rest..]);
    Ok(Value::str(replaced))
}

/// Where `part` begins in `whole`.
pub fn find(whole: &[u8], part: &[u8]) -> Option<usize> {
    memchr::memmem::find(whole, part)
}

/// The positions of all non-overlapping occurrences of `part`, which must not be empty.
pub fn occurrences<'b>(whole: &'b [u8], part: &'b [u8]) -> impl Iterator<Item = usize> + 'b {
    memchr::memmem::find_iter(whole, part)
}
