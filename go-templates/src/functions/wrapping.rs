//! Breaks lines at spaces. Widths are bytes, as upstream counts them.

use crate::context::Context;
use crate::functions::arguments::{int, text};
use crate::functions::{Function, Outcome};
use crate::signature::Param::{Int, Str};
use crate::signature::Signature;
use crate::value::Value;

pub const FUNCTIONS: &[Function] = &[
    Function::new("wrap", Signature::exactly(&[Int, Str]), |context, args| {
        let (width, whole) = (int(args, 0)?, text(args, 1)?);
        wrapped(context, whole, width, b"\n", false)
    }),
    Function::new(
        "wrapWith",
        Signature::exactly(&[Int, Str, Str]),
        |context, args| {
            let (width, newline, whole) = (int(args, 0)?, text(args, 1)?, text(args, 2)?);
            let newline: &[u8] = if newline.is_empty() { b"\n" } else { newline };
            wrapped(context, whole, width, newline, true)
        },
    ),
];

/// Lines of at most `width` bytes; a longer word is cut, or left whole.
fn wrapped(
    context: &mut Context,
    whole: &[u8],
    width: i64,
    newline: &[u8],
    cuts_words: bool,
) -> Outcome {
    let width = usize::try_from(width.max(1)).unwrap_or(usize::MAX);
    let lines_max = whole.len() / width.min(whole.len().max(1)) + whole.len();
    context.reserve(
        whole
            .len()
            .saturating_add(lines_max.saturating_mul(newline.len())),
    )?;
    let mut lines = Vec::new();
    let mut at = 0;
    while whole.len() - at > width {
        if whole[at] == b' ' {
            at += 1;
            continue;
        }
        let window = &whole[at..=at + width];
        let (end, next) = match window.iter().rposition(|byte| *byte == b' ') {
            Some(space) => (at + space, at + space + 1),
            None if cuts_words => (at + width, at + width),
            None => match whole[at + width..].iter().position(|byte| *byte == b' ') {
                Some(space) => (at + width + space, at + width + space + 1),
                None => break,
            },
        };
        lines.extend_from_slice(&whole[at..end]);
        lines.extend_from_slice(newline);
        at = next;
    }
    lines.extend_from_slice(&whole[at..]);
    Ok(Value::str(lines))
}
