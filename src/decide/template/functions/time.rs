//! The time of a row and its text. `now` is when the row was first seen: it does not move, so nothing rendered with it does.

use jiff::Timestamp;

use crate::decide::template::format::time::format;
use crate::decide::template::functions::arguments::{any, text};
use crate::decide::template::functions::{Context, Function, FunctionError, Outcome};
use crate::decide::template::runes;
use crate::decide::template::signature::Param::{Any, Str};
use crate::decide::template::signature::Signature;
use crate::decide::template::value::Value;

pub const FUNCTIONS: &[Function] = &[
    Function::new("date", Signature::exactly(&[Str, Any]), |context, args| {
        let layout = runes::to_utf8(text(args, 0)?.to_vec());
        formatted(context, &layout, any(args, 1))
    }),
    Function::new("htmlDate", Signature::exactly(&[Any]), |context, args| {
        formatted(context, "2006-01-02", any(args, 0))
    }),
    Function::new("now", Signature::exactly(&[]), |context, _| {
        first_seen(context).map(Value::Time)
    }),
];

fn first_seen(context: &Context) -> Result<Timestamp, FunctionError> {
    match &context.facts {
        Some((facts, _)) => Ok(facts.first_seen),
        None => Err(FunctionError::new(
            "the time at which the row was first seen is not known here",
        )),
    }
}

/// A time, or seconds since 1970; anything else counts as `now`.
fn formatted(context: &mut Context, layout: &str, value: &Value) -> Outcome {
    let timestamp = match value.plain() {
        Value::Time(timestamp) => timestamp,
        Value::Int(seconds) | Value::Int64(seconds) => Timestamp::from_second(seconds)
            .map_err(|_| FunctionError::new(format!("{seconds} seconds are no date")))?,
        _ => first_seen(context)?,
    };
    context.reserve(layout.len() * 4)?;
    context.string(format(timestamp, layout))
}
