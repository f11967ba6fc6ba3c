//! Go's own functions: lengths, indexes, printing and escaping. Comparisons are elsewhere, `and` and `or` are the evaluator's.

use crate::context::Context;
use crate::format::printf::sprintf;
use crate::format::{sprint, sprintln};
use crate::functions::arguments::{any, text};
use crate::functions::{Function, FunctionError, Outcome};
use crate::quote::is_printable;
use crate::runes;
use crate::signature::Param::{Any, Reflect, Str};
use crate::signature::Signature;
use crate::value::{Element, Value};

pub const FUNCTIONS: &[Function] = &[
    Function::new("call", Signature::at_least(&[Reflect], Reflect), call),
    Function::new("html", Signature::at_least(&[], Any), html),
    Function::new("index", Signature::at_least(&[Reflect], Reflect), index),
    Function::new("js", Signature::at_least(&[], Any), js),
    Function::new("len", Signature::exactly(&[Reflect]), len),
    Function::new("not", Signature::exactly(&[Reflect]), not),
    Function::new("print", Signature::at_least(&[], Any), print),
    Function::new("printf", Signature::at_least(&[Str], Any), printf),
    Function::new("println", Signature::at_least(&[], Any), println),
    Function::new("urlquery", Signature::at_least(&[], Any), urlquery),
];

/// No value here is a function.
fn call(_: &mut Context, args: &[Value]) -> Outcome {
    Err(FunctionError::new(match any(args, 0) {
        Value::Nil => "call of nil".to_owned(),
        other => format!("non-function of type {}", other.type_name()),
    }))
}

fn len(_: &mut Context, args: &[Value]) -> Outcome {
    let length = match any(args, 0) {
        Value::Str(text) => text.len(),
        Value::List(list) => list.len(),
        Value::Dict(dict) => dict.len(),
        Value::Nil => {
            return Err(FunctionError::new(
                "reflect: call of reflect.Value.Type on zero Value",
            ));
        }
        // Go looks behind the pointer.
        other => {
            return Err(FunctionError::new(format!(
                "len of type {}",
                other.type_name().trim_start_matches('*')
            )));
        }
    };
    Ok(Value::Int(length as i64))
}

fn index(_: &mut Context, args: &[Value]) -> Outcome {
    let mut item = any(args, 0).clone();
    if matches!(item, Value::Nil) {
        return Err(FunctionError::new("index of untyped nil"));
    }
    for index in args.iter().skip(1) {
        item = index_once(&item, &index.plain())?;
    }
    Ok(item)
}

fn index_once(item: &Value, index: &Value) -> Outcome {
    match item {
        Value::Str(text) => {
            let at = position(index, text.len(), "string")?;
            Ok(text.get(at).map_or(Value::Nil, |byte| Value::Uint8(*byte)))
        }
        Value::List(list) => {
            let at = position(index, list.len(), "slice")?;
            Ok(list.get(at).unwrap_or(Value::Nil))
        }
        Value::Dict(dict) => match index {
            Value::Str(key) => Ok(match dict.get(key) {
                Some(value) => value,
                None if dict.element() == Element::Str => Value::str(""),
                None => Value::Nil,
            }),
            Value::Nil => Err(FunctionError::new("value is nil; should be of type string")),
            other => Err(FunctionError::new(format!(
                "value has type {}; should be string",
                other.type_name()
            ))),
        },
        Value::Nil => Err(FunctionError::new("index of nil pointer")),
        other => Err(FunctionError::new(format!(
            "can't index item of type {}",
            other.type_name()
        ))),
    }
}

fn position(index: &Value, len: usize, what: &str) -> Result<usize, FunctionError> {
    let number = match index {
        Value::Int(n) | Value::Int64(n) => *n,
        Value::Named(named) => named.number(),
        Value::Uint8(n) => i64::from(*n),
        Value::Uint64(n) => *n as i64,
        Value::Nil => return Err(FunctionError::new("cannot index slice/array with nil")),
        other => {
            return Err(FunctionError::new(format!(
                "cannot index slice/array with type {}",
                other.type_name()
            )));
        }
    };
    match usize::try_from(number) {
        Ok(at) if at < len => Ok(at),
        Ok(at) if at == len => Err(FunctionError::new(format!(
            "reflect: {what} index out of range"
        ))),
        _ => Err(FunctionError::new(format!("index out of range: {number}"))),
    }
}

fn not(_: &mut Context, args: &[Value]) -> Outcome {
    Ok(Value::Bool(!any(args, 0).truth()))
}

fn print(context: &mut Context, args: &[Value]) -> Outcome {
    Ok(Value::str(sprint(args, &mut context.budget)?))
}

fn println(context: &mut Context, args: &[Value]) -> Outcome {
    Ok(Value::str(sprintln(args, &mut context.budget)?))
}

fn printf(context: &mut Context, args: &[Value]) -> Outcome {
    let format = text(args, 0)?;
    let printed = sprintf(format, &args[1..], &mut context.budget)?;
    Ok(Value::str(printed))
}

/// What the escaping functions escape: the arguments as the template would print them.
fn printed(context: &mut Context, args: &[Value]) -> Result<Vec<u8>, FunctionError> {
    let shown: Vec<Value> = args
        .iter()
        .map(|value| match value {
            Value::Nil => Value::str("<no value>"),
            other => other.clone(),
        })
        .collect();
    Ok(sprint(&shown, &mut context.budget)?)
}

fn html(context: &mut Context, args: &[Value]) -> Outcome {
    let plain = printed(context, args)?;
    context.reserve(plain.len() * 5)?;
    let mut escaped = Vec::with_capacity(plain.len());
    for byte in plain {
        match byte {
            0 => escaped.extend_from_slice("\u{fffd}".as_bytes()),
            b'"' => escaped.extend_from_slice(b"&#34;"),
            b'\'' => escaped.extend_from_slice(b"&#39;"),
            b'&' => escaped.extend_from_slice(b"&amp;"),
            b'<' => escaped.extend_from_slice(b"&lt;"),
            b'>' => escaped.extend_from_slice(b"&gt;"),
            other => escaped.push(other),
        }
    }
    Ok(Value::str(escaped))
}

fn js(context: &mut Context, args: &[Value]) -> Outcome {
    let plain = printed(context, args)?;
    context.reserve(plain.len() * 6)?;
    let mut escaped = Vec::with_capacity(plain.len());
    for (at, c, size) in runes::runes(&plain) {
        match c {
            '\\' => escaped.extend_from_slice(b"\\\\"),
            '\'' => escaped.extend_from_slice(b"\\'"),
            '"' => escaped.extend_from_slice(b"\\\""),
            '<' | '>' | '&' | '=' | '\0'..' ' => {
                escaped.extend_from_slice(format!("\\u{:04X}", u32::from(c)).as_bytes());
            }
            _ if c.is_ascii() || is_printable(c) => {
                escaped.extend_from_slice(&plain[at..at + size])
            }
            _ => escaped.extend_from_slice(format!("\\u{:04X}", u32::from(c)).as_bytes()),
        }
    }
    Ok(Value::str(escaped))
}

fn urlquery(context: &mut Context, args: &[Value]) -> Outcome {
    let plain = printed(context, args)?;
    context.reserve(plain.len() * 3)?;
    let mut escaped = Vec::with_capacity(plain.len());
    for byte in plain {
        match byte {
            b' ' => escaped.push(b'+'),
            b'-' | b'_' | b'.' | b'~' => escaped.push(byte),
            _ if byte.is_ascii_alphanumeric() => escaped.push(byte),
            _ => escaped.extend_from_slice(format!("%{byte:02X}").as_bytes()),
        }
    }
    Ok(Value::str(escaped))
}
