//! Go's comparisons. Values of different kinds are not compared: that is an error.

use std::sync::Arc;

use crate::context::Context;
use crate::format::Writer;
use crate::format::verb::Formatter;
use crate::functions::arguments::any;
use crate::functions::{Function, FunctionError};
use crate::runes;
use crate::signature::Param::Reflect;
use crate::signature::Signature;
use crate::value::{Kind, Text, Value};

const TWO: Signature = Signature::exactly(&[Reflect, Reflect]);

pub const FUNCTIONS: &[Function] = &[
    Function::new("eq", Signature::at_least(&[Reflect], Reflect), |c, args| {
        Ok(Value::Bool(equal(c, args)?))
    }),
    Function::new("ne", TWO, |c, args| Ok(Value::Bool(!equal(c, args)?))),
    Function::new("lt", TWO, |_, args| Ok(Value::Bool(less(args)?))),
    Function::new("le", TWO, |c, args| {
        Ok(Value::Bool(less_or_equal(c, args)?))
    }),
    Function::new("gt", TWO, |c, args| {
        Ok(Value::Bool(!less_or_equal(c, args)?))
    }),
    Function::new("ge", TWO, |_, args| Ok(Value::Bool(!less(args)?))),
];

/// A value by its basic kind for comparisons.
enum Basic {
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    Str(Text),
    Other,
}

fn basic(value: &Value) -> Basic {
    match value {
        Value::Bool(b) => Basic::Bool(*b),
        Value::Int(n) | Value::Int64(n) => Basic::Int(*n),
        Value::Named(named) => Basic::Int(named.number()),
        Value::Uint8(n) => Basic::Uint(u64::from(*n)),
        Value::Uint64(n) => Basic::Uint(*n),
        Value::Float(f) => Basic::Float(*f),
        Value::Str(text) => Basic::Str(text.clone()),
        _ => Basic::Other,
    }
}

/// Whether the first argument equals one of the others.
fn equal(context: &mut Context, args: &[Value]) -> Result<bool, FunctionError> {
    if args.len() < 2 {
        return Err(FunctionError::new("missing argument for comparison"));
    }
    let first = any(args, 0).plain();
    for other in &args[1..] {
        if equal_two(context, &first, &other.plain())? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn equal_two(context: &mut Context, left: &Value, right: &Value) -> Result<bool, FunctionError> {
    match (basic(left), basic(right)) {
        (Basic::Bool(a), Basic::Bool(b)) => Ok(a == b),
        (Basic::Int(a), Basic::Int(b)) => Ok(a == b),
        (Basic::Uint(a), Basic::Uint(b)) => Ok(a == b),
        (Basic::Int(a), Basic::Uint(b)) | (Basic::Uint(b), Basic::Int(a)) => {
            Ok(u64::try_from(a) == Ok(b))
        }
        (Basic::Float(a), Basic::Float(b)) => Ok(a == b),
        (Basic::Str(a), Basic::Str(b)) => Ok(a == b),
        (Basic::Other, Basic::Other) => equal_others(context, left, right),
        _ if left.kind() == Kind::Invalid || right.kind() == Kind::Invalid => Ok(false),
        _ => Err(incompatible(left, right)),
    }
}

/// Lists, dicts, pointers and structs. Only nil, pointers and structs can be compared; a parsed version is a pointer, so it is
/// equal only to itself.
fn equal_others(context: &mut Context, left: &Value, right: &Value) -> Result<bool, FunctionError> {
    let nil = |value: &Value| match value {
        Value::Nil => true,
        Value::List(list) => list.is_nil(),
        _ => false,
    };
    let has_invalid = left.kind() == Kind::Invalid || right.kind() == Kind::Invalid;
    if left.kind() != right.kind() && !has_invalid {
        return Err(FunctionError::new(format!(
            "non-comparable types {}: {}, {}: {}",
            shown(context, left, 's')?,
            left.type_name(),
            right.type_name(),
            shown(context, right, 'v')?,
        )));
    }
    if nil(left) || nil(right) {
        return Ok(nil(left) == nil(right));
    }
    match (left, right) {
        (Value::Time(a), Value::Time(b)) => Ok(a == b),
        (Value::Version(a), Value::Version(b)) if a.derived && b.derived => Ok(a == b),
        (Value::Version(a), Value::Version(b)) => Ok(Arc::ptr_eq(a, b)),
        (Value::Certificate(a), Value::Certificate(b)) => Ok(a == b),
        _ if right.kind() == Kind::Struct => Ok(false),
        _ => Err(FunctionError::new(format!(
            "non-comparable type {}: {}",
            shown(context, right, 's')?,
            right.type_name()
        ))),
    }
}

fn shown(context: &mut Context, value: &Value, verb: char) -> Result<String, FunctionError> {
    let mut out = Vec::new();
    Formatter::new(&mut Writer::in_memory(&mut out, &mut context.budget)).argument(value, verb)?;
    Ok(runes::to_utf8(out))
}

fn less(args: &[Value]) -> Result<bool, FunctionError> {
    let (left, right) = (any(args, 0).plain(), any(args, 1).plain());
    match (basic(&left), basic(&right)) {
        (Basic::Other, _) | (_, Basic::Other) | (Basic::Bool(_), Basic::Bool(_)) => {
            Err(FunctionError::new("invalid type for comparison"))
        }
        (Basic::Int(a), Basic::Int(b)) => Ok(a < b),
        (Basic::Uint(a), Basic::Uint(b)) => Ok(a < b),
        (Basic::Int(a), Basic::Uint(b)) => Ok(u64::try_from(a).map_or(true, |a| a < b)),
        (Basic::Uint(a), Basic::Int(b)) => Ok(u64::try_from(b).is_ok_and(|b| a < b)),
        (Basic::Float(a), Basic::Float(b)) => Ok(a < b),
        (Basic::Str(a), Basic::Str(b)) => Ok(a < b),
        _ => Err(incompatible(&left, &right)),
    }
}

fn less_or_equal(context: &mut Context, args: &[Value]) -> Result<bool, FunctionError> {
    Ok(less(args)? || equal(context, args)?)
}

fn incompatible(left: &Value, right: &Value) -> FunctionError {
    FunctionError::new(format!(
        "incompatible types for comparison: {} and {}",
        left.type_name(),
        right.type_name()
    ))
}
