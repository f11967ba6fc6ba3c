//! JSON as Go's encoding/json writes and reads it: sorted keys, `<>&` escaped, every number a float64.

mod parse;
mod write;

use crate::context::Context;
use crate::functions::arguments::{any, text};
use crate::functions::{Function, FunctionError, Outcome};
use crate::signature::Param::{Any, Str};
use crate::signature::Signature;
use crate::value::Value;

pub use parse::parse_json;
use write::Style;

const ONE: Signature = Signature::exactly(&[Any]);
const TEXT: Signature = Signature::exactly(&[Str]);

pub const FUNCTIONS: &[Function] = &[
    Function::new("fromJson", TEXT, from_json),
    Function::new("mustFromJson", TEXT, |context, args| {
        parse_json(context, text(args, 0)?)
    }),
    Function::new("mustToJson", ONE, |context, args| {
        encoded(context, args, Style::COMPACT)
    }),
    Function::new("mustToPrettyJson", ONE, |context, args| {
        encoded(context, args, Style::PRETTY)
    }),
    Function::new("mustToRawJson", ONE, |context, args| {
        encoded(context, args, Style::RAW)
    }),
    Function::new("toJson", ONE, |context, args| {
        empty_on_error(encoded(context, args, Style::COMPACT))
    }),
    Function::new("toPrettyJson", ONE, |context, args| {
        empty_on_error(encoded(context, args, Style::PRETTY))
    }),
    Function::new("toRawJson", ONE, |context, args| {
        encoded(context, args, Style::RAW)
    }),
];

/// Invalid JSON gives nil.
fn from_json(context: &mut Context, args: &[Value]) -> Outcome {
    match parse_json(context, text(args, 0)?) {
        Err(FunctionError::Message(_)) => Ok(Value::Nil),
        other => other,
    }
}

fn encoded(context: &mut Context, args: &[Value], style: Style) -> Outcome {
    let json = write::write(any(args, 0), style, &mut context.budget)?;
    Ok(Value::str(json))
}

fn empty_on_error(outcome: Outcome) -> Outcome {
    match outcome {
        Err(FunctionError::Message(_)) => Ok(Value::str("")),
        other => other,
    }
}
