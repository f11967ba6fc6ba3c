//! The functions of both engines: sprig's, Lynq's own (hosts of URLs, names that fit Kubernetes, conversions to typed leaves),
//! and the names of unsupported ones. Renders nothing.

mod refused;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use go_templates::arguments::{any, text};
use go_templates::value::{Dict, Text, Typed};
use go_templates::{
    Context, Function, FunctionError, Library, Outcome, Param, Signature, Value, hostname, number,
    parse_json,
};

/// Everything that a form's template can call.
pub static LIBRARY: LazyLock<Library> = LazyLock::new(|| {
    let library = Library::sprig().with(OWN.iter().copied());
    refused::reasons().fold(library, |library, (name, why)| library.refusing(name, &why))
});

const ONE: Signature = Signature::exactly(&[Param::Any]);
const TEXT: Signature = Signature::exactly(&[Param::Str]);

/// The length of a Kubernetes label, and of most names.
const NAME_MAX_BYTES: usize = 63;

/// Lynq's additions to sprig, and its replacements of sprig's functions.
const OWN: &[Function] = &[
    Function::new("bool", ONE, bool),
    Function::new("float", ONE, float),
    Function::new("fromJson", TEXT, from_json),
    Function::new("int", ONE, int),
    Function::new("toHost", TEXT, to_host),
    Function::new("trunc63", TEXT, |context, args| {
        let whole = text(args, 0)?;
        context.string(&whole[..whole.len().min(NAME_MAX_BYTES)])
    }),
];

/// The host of a URL without its port; any other text up to its first colon.
fn to_host(context: &mut Context, args: &[Value]) -> Outcome {
    let whole = text(args, 0)?;
    match hostname(whole) {
        Some(host) => context.string(host),
        None => {
            let before_colon = whole.split(|byte| *byte == b':').next();
            context.string(before_colon.unwrap_or_default())
        }
    }
}

/// As `mustFromJson`, but what is no JSON gives an empty dict.
fn from_json(context: &mut Context, args: &[Value]) -> Outcome {
    match parse_json(context, text(args, 0)?) {
        Err(FunctionError::Message(_)) => Ok(Value::Dict(Dict::new(BTreeMap::new()))),
        other => other,
    }
}

/// A decimal integer, or a float without its fraction; 0 for anything else.
fn int(context: &mut Context, args: &[Value]) -> Outcome {
    let number = match any(args, 0).plain() {
        Value::Int(n) | Value::Int64(n) => n,
        Value::Bool(b) => i64::from(b),
        Value::Float(f) => number::float_to_int(f),
        other => {
            let text = context.text(&other)?;
            let text = std::str::from_utf8(&text).unwrap_or_default();
            match text.parse::<i64>() {
                Ok(n) => n,
                Err(_) => parsed_float(text).map_or(0, number::float_to_int),
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

/// True for a word that means yes, in any case; otherwise false.
fn bool(context: &mut Context, args: &[Value]) -> Outcome {
    let text: Text = match any(args, 0).plain() {
        Value::Bool(b) => return Ok(Value::Typed(Typed::Bool(b))),
        other => context.text(&other)?,
    };
    let word = text.to_ascii_lowercase();
    let yes: [&[u8]; 6] = [b"true", b"1", b"yes", b"on", b"t", b"y"];
    Ok(Value::Typed(Typed::Bool(yes.contains(&&word[..]))))
}
