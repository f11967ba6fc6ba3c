//! Values in place of missing ones, by sprig's own idea of emptiness.

use crate::context::Context;
use crate::functions::arguments::{any, boolean};
use crate::functions::cast::is_empty;
use crate::functions::{Function, FunctionError, Outcome};
use crate::runes;
use crate::signature::Param::{Any, Bool, Str};
use crate::signature::Signature;
use crate::value::Value;

pub const FUNCTIONS: &[Function] = &[
    Function::new("all", Signature::at_least(&[], Any), |_, args| {
        Ok(Value::Bool(!args.iter().any(is_empty)))
    }),
    Function::new("any", Signature::at_least(&[], Any), |_, args| {
        Ok(Value::Bool(!args.iter().all(is_empty)))
    }),
    Function::new("coalesce", Signature::at_least(&[], Any), coalesce),
    Function::new("default", Signature::at_least(&[Any], Any), default),
    Function::new("empty", Signature::exactly(&[Any]), |_, args| {
        Ok(Value::Bool(is_empty(any(args, 0))))
    }),
    Function::new("fail", Signature::exactly(&[Str]), fail),
    Function::new("hello", Signature::exactly(&[]), |_, _| {
        Ok(Value::str("Hello!"))
    }),
    Function::new("ternary", Signature::exactly(&[Any, Any, Bool]), ternary),
];

/// `default "y" .x`: the first argument stands in for an empty second one.
fn default(_: &mut Context, args: &[Value]) -> Outcome {
    match args.get(1) {
        Some(given) if !is_empty(given) => Ok(given.clone()),
        _ => Ok(any(args, 0).clone()),
    }
}

fn coalesce(_: &mut Context, args: &[Value]) -> Outcome {
    let first = args.iter().find(|value| !is_empty(value));
    Ok(first.cloned().unwrap_or(Value::Nil))
}

fn ternary(_: &mut Context, args: &[Value]) -> Outcome {
    let chosen = if boolean(args, 2)? { 0 } else { 1 };
    Ok(any(args, chosen).clone())
}

fn fail(_: &mut Context, args: &[Value]) -> Outcome {
    let message = match any(args, 0) {
        Value::Str(text) => runes::to_utf8(text.to_vec()),
        _ => String::new(),
    };
    Err(FunctionError::new(message))
}
