//! Arguments under the types that a signature promises. A broken promise is an error, never a panic.

use crate::functions::FunctionError;
use crate::value::{Dict, List, Text, Value};

/// Go's message for reading through a nil.
pub const NIL_POINTER: &str = "runtime error: invalid memory address or nil pointer dereference";

/// The argument, or nil if it is missing.
pub fn any(args: &[Value], index: usize) -> &Value {
    args.get(index).unwrap_or(const { &Value::Nil })
}

/// A `string`.
pub fn text(args: &[Value], index: usize) -> Result<&Text, FunctionError> {
    match any(args, index) {
        Value::Str(text) => Ok(text),
        other => Err(mismatch(other, "string")),
    }
}

/// An `int` or `int64`.
pub fn int(args: &[Value], index: usize) -> Result<i64, FunctionError> {
    match any(args, index) {
        Value::Int(n) | Value::Int64(n) => Ok(*n),
        other => Err(mismatch(other, "int")),
    }
}

/// A `uint32`; the lower bits of a larger number.
pub fn uint32(args: &[Value], index: usize) -> Result<u32, FunctionError> {
    match any(args, index) {
        Value::Uint64(n) => Ok(*n as u32),
        other => Err(mismatch(other, "uint32")),
    }
}

/// A `bool`.
pub fn boolean(args: &[Value], index: usize) -> Result<bool, FunctionError> {
    match any(args, index) {
        Value::Bool(b) => Ok(*b),
        other => Err(mismatch(other, "bool")),
    }
}

/// A dict, or `None` for a nil one.
pub fn dict(args: &[Value], index: usize) -> Result<Option<&Dict>, FunctionError> {
    match any(args, index) {
        Value::Dict(dict) => Ok(Some(dict)),
        Value::Nil => Ok(None),
        other => Err(mismatch(other, "map[string]interface {}")),
    }
}

/// A list, for a function that accepts any value and reports the error itself: `complaint` precedes the value's kind.
pub fn list<'v>(value: &'v Value, complaint: &str) -> Result<&'v List, FunctionError> {
    match value {
        Value::List(list) => Ok(list),
        Value::Nil => Err(FunctionError::new(NIL_POINTER)),
        other => Err(FunctionError::new(format!(
            "{complaint} {}",
            other.kind().name()
        ))),
    }
}

fn mismatch(value: &Value, wanted: &str) -> FunctionError {
    FunctionError::new(format!(
        "wrong type for value; expected {wanted}; got {}",
        value.type_name()
    ))
}
