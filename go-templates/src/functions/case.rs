//! Upper, lower, title, camel, snake and kebab case, character by character as Go maps them.

use crate::context::Context;
use crate::functions::arguments::text;
use crate::functions::{Function, FunctionError, Outcome};
use crate::runes;
use crate::signature::Param::Str;
use crate::signature::Signature;
use crate::value::{Text, Value};

mod words;

const ONE: Signature = Signature::exactly(&[Str]);

pub const FUNCTIONS: &[Function] = &[
    Function::new("upper", ONE, |context, args| {
        context.string(runes::map(text(args, 0)?, runes::upper))
    }),
    Function::new("lower", ONE, |context, args| {
        context.string(runes::map(text(args, 0)?, runes::lower))
    }),
    Function::new("title", ONE, title),
    Function::new("untitle", ONE, untitle),
    Function::new("swapcase", ONE, swapcase),
    Function::new("camelcase", ONE, camelcase),
    Function::new("snakecase", ONE, |context, args| {
        let text = looked_at(context, args)?;
        context.string(words::separated(text, '_'))
    }),
    Function::new("kebabcase", ONE, |context, args| {
        let text = looked_at(context, args)?;
        context.string(words::separated(text, '-'))
    }),
];

/// Charges for a text that is processed character by character, which costs more than the bytes of the result.
fn looked_at<'a>(context: &mut Context, args: &'a [Value]) -> Result<&'a Text, FunctionError> {
    const BYTES_PER_STEP: u64 = 16;
    let bytes = text(args, 0)?;
    context
        .budget
        .spend_steps(bytes.len() as u64 / BYTES_PER_STEP)?;
    Ok(bytes)
}

/// Maps each character with a state from the preceding ones.
fn map_with<S>(bytes: &[u8], mut state: S, to: impl Fn(&mut S, char) -> char) -> Vec<u8> {
    let mut mapped = Vec::with_capacity(bytes.len());
    for (_, c, _) in runes::runes(bytes) {
        runes::push(&mut mapped, to(&mut state, c));
    }
    mapped
}

/// The first letter of every word in title case.
fn title(context: &mut Context, args: &[Value]) -> Outcome {
    let text = looked_at(context, args)?;
    context.string(map_with(text, ' ', |before, c| {
        let starts_word = separates(*before);
        *before = c;
        if starts_word { runes::title(c) } else { c }
    }))
}

fn separates(c: char) -> bool {
    if c.is_ascii() {
        return !c.is_ascii_alphanumeric() && c != '_';
    }
    !runes::is_letter(c) && !runes::is_digit(c) && runes::is_space(c)
}

/// The first letter of every word in lower case.
fn untitle(context: &mut Context, args: &[Value]) -> Outcome {
    let text = looked_at(context, args)?;
    context.string(map_with(text, true, |starts_word, c| {
        if runes::is_space(c) {
            *starts_word = true;
            return c;
        }
        if std::mem::take(starts_word) {
            runes::lower(c)
        } else {
            c
        }
    }))
}

fn swapcase(context: &mut Context, args: &[Value]) -> Outcome {
    let text = looked_at(context, args)?;
    context.string(map_with(text, true, |after_space, c| {
        if runes::is_upper(c) || runes::is_title(c) {
            *after_space = false;
            runes::lower(c)
        } else if runes::is_lower(c) {
            let starts_word = std::mem::take(after_space);
            if starts_word {
                runes::title(c)
            } else {
                runes::upper(c)
            }
        } else {
            *after_space = runes::is_space(c);
            c
        }
    }))
}

/// Words joined, each with a capital; separators at the beginning stay, as does one of several in a row.
fn camelcase(context: &mut Context, args: &[Value]) -> Outcome {
    let whole = looked_at(context, args)?;
    context.reserve(whole.len() * size_of::<char>())?;
    let chars: Vec<char> = runes::runes(whole).map(|(_, c, _)| c).collect();
    let leading = chars
        .iter()
        .take_while(|c| words::is_separator(**c))
        .count();
    let (separators, rest) = chars.split_at(leading);
    let mut camel: String = separators.iter().collect();
    let Some((first, rest)) = rest.split_first() else {
        // Upstream writes the last of nothing but separators twice.
        camel.extend(separators.last());
        return context.string(camel);
    };
    let mut pending = runes::upper(*first);
    for c in rest {
        match (words::is_separator(*c), words::is_separator(pending)) {
            (true, true) => {
                camel.push(pending);
                pending = *c;
            }
            (_, true) => pending = runes::upper(*c),
            _ => {
                camel.push(pending);
                pending = runes::lower(*c);
            }
        }
    }
    camel.push(pending);
    context.string(camel)
}
