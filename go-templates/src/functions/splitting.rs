//! Strings into lists and lists into strings.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::context::Context;
use crate::functions::arguments::{any, int, text};
use crate::functions::cast::to_texts;
use crate::functions::strings::occurrences;
use crate::functions::{Function, FunctionError, Outcome};
use crate::runes;
use crate::signature::Param::{Any, Int, Str};
use crate::signature::Signature;
use crate::value::{Dict, Element, List, Text, Value};

pub const FUNCTIONS: &[Function] = &[
    Function::new("join", Signature::exactly(&[Str, Any]), join),
    Function::new("sortAlpha", Signature::exactly(&[Any]), sort_alpha),
    Function::new("split", Signature::exactly(&[Str, Str]), |context, args| {
        let parts = parts(context, text(args, 1)?, text(args, 0)?, -1)?;
        numbered(context, parts)
    }),
    Function::new(
        "splitList",
        Signature::exactly(&[Str, Str]),
        |context, args| {
            let parts = parts(context, text(args, 1)?, text(args, 0)?, -1)?;
            let items = parts.into_iter().map(Value::Str).collect();
            Ok(Value::List(List::new(Element::Str, items)))
        },
    ),
    Function::new(
        "splitn",
        Signature::exactly(&[Str, Int, Str]),
        |context, args| {
            let parts = parts(context, text(args, 2)?, text(args, 0)?, int(args, 1)?)?;
            numbered(context, parts)
        },
    ),
];

fn join(context: &mut Context, args: &[Value]) -> Outcome {
    let separator = text(args, 0)?;
    let texts = to_texts(context, any(args, 1))?;
    let bytes: usize = texts.iter().map(|text| text.len()).sum();
    context.reserve(bytes.saturating_add(texts.len().saturating_mul(separator.len())))?;
    Ok(Value::str(texts.join(&separator[..])))
}

/// As upstream, sorts a list of strings in place, for all who share it.
fn sort_alpha(context: &mut Context, args: &[Value]) -> Outcome {
    let value = any(args, 0);
    let mut texts = to_texts(context, value)?;
    context.budget.spend_steps(texts.len() as u64)?;
    texts.sort();
    let items: Vec<Value> = texts.into_iter().map(Value::Str).collect();
    match value {
        Value::List(list) if list.element() == Element::Str => {
            list.replace(items);
            Ok(value.clone())
        }
        Value::Nil => Ok(Value::List(List::new(
            Element::Str,
            vec![Value::str("<nil>")],
        ))),
        _ => Ok(Value::List(List::new(Element::Str, items))),
    }
}

/// The parts between separators, at most `limit` of them unless it is negative. An empty separator parts every character.
fn parts(
    context: &mut Context,
    whole: &[u8],
    separator: &[u8],
    limit: i64,
) -> Result<Vec<Text>, FunctionError> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if limit == 0 || (whole.is_empty() && separator.is_empty()) {
        return Ok(Vec::new());
    }
    let ends = || -> Box<dyn Iterator<Item = usize> + '_> {
        match separator.is_empty() {
            true => Box::new(runes::runes(whole).map(|(at, ..)| at).skip(1)),
            false => Box::new(occurrences(whole, separator)),
        }
    };
    let count = ends().take(limit - 1).count() + 1;
    context.reserve_items(count)?;
    // Each part is a string of its own, which takes more than its bytes.
    context.reserve(whole.len() + count * size_of::<Text>())?;
    let mut parts = Vec::with_capacity(count);
    let mut start = 0;
    for end in ends().take(count - 1) {
        parts.push(Arc::from(&whole[start..end]));
        start = end + separator.len();
    }
    parts.push(Arc::from(&whole[start..]));
    Ok(parts)
}

/// A dict with the keys `_0`, `_1`, …
fn numbered(context: &mut Context, parts: Vec<Text>) -> Outcome {
    context.reserve_items(parts.len() * 4)?;
    let entries: BTreeMap<Text, Value> = parts
        .into_iter()
        .enumerate()
        .map(|(index, part)| {
            (
                Text::from(format!("_{index}").into_bytes()),
                Value::Str(part),
            )
        })
        .collect();
    Ok(Value::Dict(Dict::of_strings(entries)))
}
