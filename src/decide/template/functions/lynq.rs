//! Lynq's own functions: hosts of URLs, names that fit Kubernetes, and conversions that make a leaf typed.

use crate::decide::template::functions::arguments::{any, text};
use crate::decide::template::functions::cast::float_to_int;
use crate::decide::template::functions::url;
use crate::decide::template::functions::{Context, Function, Outcome};
use crate::decide::template::number;
use crate::decide::template::signature::Param::{Any, Str};
use crate::decide::template::signature::Signature;
use crate::decide::template::value::{Text, Typed, Value};

const ONE: Signature = Signature::exactly(&[Any]);
const TEXT: Signature = Signature::exactly(&[Str]);

/// The length of a Kubernetes label, and of most names.
const NAME_MAX_BYTES: usize = 63;

pub const FUNCTIONS: &[Function] = &[
    Function::new("bool", ONE, bool),
    Function::new("float", ONE, float),
    Function::new("int", ONE, int),
    Function::new("toHost", TEXT, to_host),
    Function::new("trunc63", TEXT, |context, args| {
        let whole = text(args, 0)?;
        context.string(&whole[..whole.len().min(NAME_MAX_BYTES)])
    }),
];

/// The host of a URL without its port; what is no URL with a host is cut at its first colon.
fn to_host(context: &mut Context, args: &[Value]) -> Outcome {
    let whole = text(args, 0)?;
    match url::hostname(whole) {
        Some(host) => context.string(host),
        None => {
            let before_colon = whole.split(|byte| *byte == b':').next();
            context.string(before_colon.unwrap_or_default())
        }
    }
}

/// A decimal integer, or a float without its fraction; 0 for anything else.
fn int(context: &mut Context, args: &[Value]) -> Outcome {
    let number = match any(args, 0).plain() {
        Value::Int(n) | Value::Int64(n) => n,
        Value::Bool(b) => i64::from(b),
        Value::Float(f) => float_to_int(f),
        other => {
            let text = context.text(&other)?;
            let text = std::str::from_utf8(&text).unwrap_or_default();
            match text.parse::<i64>() {
                Ok(n) => n,
                Err(_) => parsed_float(text).map_or(0, float_to_int),
            }
        }
    };
    Ok(Value::Typed(Typed::Int(number)))
}

fn float(context: &mut Context, args: &[Value]) -> Outcome {
    let number = match any(args, 0).plain() {
        Value::Int(n) | Value::Int64(n) => n as f64,
        Value::Float(f) => f,
        other => {
            let text = context.text(&other)?;
            let text = std::str::from_utf8(&text).unwrap_or_default();
            parsed_float(text).unwrap_or(0.0)
        }
    };
    Ok(Value::Typed(Typed::Float(number)))
}

fn parsed_float(text: &str) -> Option<f64> {
    number::float(text)
}

/// The words for yes, in any case; everything else means no.
fn bool(context: &mut Context, args: &[Value]) -> Outcome {
    let text: Text = match any(args, 0).plain() {
        Value::Bool(b) => return Ok(Value::Typed(Typed::Bool(b))),
        other => context.text(&other)?,
    };
    let word = text.to_ascii_lowercase();
    let yes: [&[u8]; 6] = [b"true", b"1", b"yes", b"on", b"t", b"y"];
    Ok(Value::Typed(Typed::Bool(yes.contains(&&word[..]))))
}
