//! sprig's casts and its own idea of emptiness: what a value counts as, whatever its type. Fails only on a limit.

use std::sync::Arc;

use crate::budget::{Budget, LimitError};
use crate::context::Context;
use crate::number;
use crate::value::{List, Text, Value};

/// Whether `default` would replace the value. A typed value counts as given, whatever it holds.
pub fn is_empty(value: &Value) -> bool {
    match value {
        Value::Time(_) | Value::Version(_) | Value::Certificate(_) | Value::Typed(_) => false,
        other => !other.truth(),
    }
}

/// A number as `int64`; 0 for what is none.
pub fn to_int(value: &Value) -> i64 {
    match value.plain() {
        Value::Int(n) | Value::Int64(n) => n,
        Value::Uint8(n) => i64::from(n),
        Value::Uint64(n) => n as i64,
        Value::Float(f) => number::float_to_int(f),
        Value::Bool(b) => i64::from(b),
        Value::Str(text) => std::str::from_utf8(&text)
            .ok()
            .and_then(number::int)
            .unwrap_or(0),
        _ => 0,
    }
}

/// A number as `float64`; 0 for what is none.
pub fn to_float(value: &Value) -> f64 {
    match value.plain() {
        Value::Int(n) | Value::Int64(n) => n as f64,
        Value::Uint8(n) => f64::from(n),
        Value::Uint64(n) => n as f64,
        Value::Float(f) => f,
        Value::Bool(b) => f64::from(u8::from(b)),
        Value::Str(text) => std::str::from_utf8(&text)
            .ok()
            .and_then(number::float)
            .unwrap_or(0.0),
        _ => 0.0,
    }
}

/// A string as it is, anything else as `%v` prints it.
pub fn to_text(context: &mut Context, value: &Value) -> Result<Text, LimitError> {
    context.text(value)
}

/// The strings of a list, nils left out; a single value is a list of itself.
pub fn to_texts(context: &mut Context, value: &Value) -> Result<Vec<Text>, LimitError> {
    let items = match value {
        Value::List(list) => context.items(list)?,
        Value::Nil => return Ok(Vec::new()),
        other => return Ok(vec![context.text(other)?]),
    };
    items
        .iter()
        .filter(|item| !matches!(item, Value::Nil))
        .map(|item| context.text(item))
        .collect()
}

/// Go's `reflect.DeepEqual`: types count, and a nil list is no empty list.
pub fn deep_equal(left: &Value, right: &Value, budget: &mut Budget) -> Result<bool, LimitError> {
    budget.spend_steps(1)?;
    match (left.plain(), right.plain()) {
        (Value::Nil, Value::Nil) => Ok(true),
        (Value::Bool(a), Value::Bool(b)) => Ok(a == b),
        (Value::Int(a), Value::Int(b)) | (Value::Int64(a), Value::Int64(b)) => Ok(a == b),
        (Value::Uint8(a), Value::Uint8(b)) => Ok(a == b),
        (Value::Uint64(a), Value::Uint64(b)) => Ok(a == b),
        (Value::Float(a), Value::Float(b)) => Ok(a == b),
        (Value::Time(a), Value::Time(b)) => Ok(a == b),
        (Value::Version(a), Value::Version(b)) => Ok(a == b),
        (Value::Named(a), Value::Named(b)) => Ok(a == b),
        (Value::Certificate(a), Value::Certificate(b)) => Ok(a == b),
        (Value::Str(a), Value::Str(b)) => {
            budget.spend_steps(a.len().min(b.len()) as u64 / 64)?;
            Ok(Arc::ptr_eq(&a, &b) || a == b)
        }
        (Value::List(a), Value::List(b)) => equal_lists(&a, &b, budget),
        (Value::Dict(a), Value::Dict(b)) => {
            if a.element() != b.element() || a.len() != b.len() {
                return Ok(false);
            }
            if a.same(&b) {
                return Ok(true);
            }
            budget.enter()?;
            budget.spend_steps(a.len() as u64)?;
            for (key, value) in a.entries() {
                match b.get(&key) {
                    Some(other) if deep_equal(&value, &other, budget)? => {}
                    _ => {
                        budget.leave();
                        return Ok(false);
                    }
                }
            }
            budget.leave();
            Ok(true)
        }
        _ => Ok(false),
    }
}

fn equal_lists(left: &List, right: &List, budget: &mut Budget) -> Result<bool, LimitError> {
    if left.element() != right.element()
        || left.is_nil() != right.is_nil()
        || left.len() != right.len()
    {
        return Ok(false);
    }
    if left.same(right) {
        return Ok(true);
    }
    budget.enter()?;
    let mut equal = true;
    let mut index = 0;
    while let (true, Some(a), Some(b)) = (equal, left.get(index), right.get(index)) {
        equal = deep_equal(&a, &b, budget)?;
        index += 1;
    }
    budget.leave();
    Ok(equal)
}
