//! Values as text: quotes, indentation, concatenation.

use std::sync::Arc;

use crate::context::Context;
use crate::functions::arguments::{any, int, text};
use crate::functions::cast::{to_text, to_texts};
use crate::functions::{Function, FunctionError, Outcome};
use crate::quote::quote;
use crate::signature::Param::{Any, Int, Str};
use crate::signature::Signature;
use crate::value::{Element, List, Value};

const SOME: Signature = Signature::at_least(&[], Any);

pub const FUNCTIONS: &[Function] = &[
    Function::new("cat", SOME, cat),
    Function::new(
        "indent",
        Signature::exactly(&[Int, Str]),
        |context, args| indented(context, args, ""),
    ),
    Function::new(
        "nindent",
        Signature::exactly(&[Int, Str]),
        |context, args| indented(context, args, "\n"),
    ),
    Function::new("quote", SOME, |context, args| {
        joined(context, args, |text| quote(text).into_bytes())
    }),
    Function::new("squote", SOME, |context, args| {
        joined(context, args, |text| [b"'", text, b"'"].concat())
    }),
    Function::new("toString", Signature::exactly(&[Any]), |context, args| {
        Ok(Value::Str(to_text(context, any(args, 0))?))
    }),
    Function::new("toStrings", Signature::exactly(&[Any]), to_strings),
];

/// All values except nil, separated by spaces.
fn joined(context: &mut Context, args: &[Value], show: impl Fn(&[u8]) -> Vec<u8>) -> Outcome {
    let mut shown = Vec::new();
    for value in args.iter().filter(|value| !matches!(value, Value::Nil)) {
        let text = to_text(context, value)?;
        // An escape takes up to four bytes for one, and quotes two.
        context.reserve(text.len() * 4 + 2)?;
        shown.push(show(&text));
    }
    Ok(Value::str(shown.join(&b' ')))
}

fn cat(context: &mut Context, args: &[Value]) -> Outcome {
    joined(context, args, <[u8]>::to_vec)
}

fn indented(context: &mut Context, args: &[Value], before: &str) -> Outcome {
    let (spaces, whole) = (int(args, 0)?, text(args, 1)?);
    let Ok(spaces) = usize::try_from(spaces) else {
        return Err(FunctionError::new("strings: negative Repeat count"));
    };
    let lines = whole.split(|byte| *byte == b'\n').count();
    context.reserve(
        lines
            .saturating_mul(spaces)
            .saturating_add(whole.len() + before.len()),
    )?;
    let padding = vec![b' '; spaces];
    let mut indented = before.as_bytes().to_vec();
    for (index, line) in whole.split(|byte| *byte == b'\n').enumerate() {
        if index > 0 {
            indented.push(b'\n');
        }
        indented.extend_from_slice(&padding);
        indented.extend_from_slice(line);
    }
    Ok(Value::Str(Arc::from(indented)))
}

fn to_strings(context: &mut Context, args: &[Value]) -> Outcome {
    let value = any(args, 0);
    if let Value::List(list) = value
        && list.element() == Element::Str
    {
        return Ok(value.clone());
    }
    let texts = to_texts(context, value)?;
    let items = texts.into_iter().map(Value::Str).collect();
    Ok(Value::List(List::new(Element::Str, items)))
}
