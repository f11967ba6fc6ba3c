//! Lists. Every function gives a new list; items that are lists or dicts themselves stay shared.

use crate::context::Context;
use crate::functions::arguments::{any, int, list as list_of};
use crate::functions::cast::{deep_equal, is_empty, to_int};
use crate::functions::{Function, FunctionError, Outcome};
use crate::signature::Param::{Any, Int};
use crate::signature::Signature;
use crate::value::{Element, List, Value};

const ONE: Signature = Signature::exactly(&[Any]);
const TWO: Signature = Signature::exactly(&[Any, Any]);
const SOME: Signature = Signature::at_least(&[Any], Any);

/// The `must` names differ only in how Go raises the same error.
pub const FUNCTIONS: &[Function] = &[
    Function::new("append", TWO, append),
    Function::new("chunk", Signature::exactly(&[Int, Any]), chunk),
    Function::new("compact", ONE, compact),
    Function::new("concat", Signature::at_least(&[], Any), concat),
    Function::new("first", ONE, first),
    Function::new("has", TWO, has),
    Function::new("initial", ONE, initial),
    Function::new("last", ONE, last),
    Function::new("list", Signature::at_least(&[], Any), list),
    Function::new("mustAppend", TWO, append),
    Function::new("mustChunk", Signature::exactly(&[Int, Any]), chunk),
    Function::new("mustCompact", ONE, compact),
    Function::new("mustFirst", ONE, first),
    Function::new("mustHas", TWO, has),
    Function::new("mustInitial", ONE, initial),
    Function::new("mustLast", ONE, last),
    Function::new("mustPrepend", TWO, prepend),
    Function::new("mustPush", TWO, append),
    Function::new("mustRest", ONE, rest),
    Function::new("mustReverse", ONE, reverse),
    Function::new("mustSlice", SOME, slice),
    Function::new("mustUniq", ONE, uniq),
    Function::new("mustWithout", SOME, without),
    Function::new("prepend", TWO, prepend),
    Function::new("push", TWO, append),
    Function::new("rest", ONE, rest),
    Function::new("reverse", ONE, reverse),
    Function::new("slice", SOME, slice),
    Function::new("tuple", Signature::at_least(&[], Any), list),
    Function::new("uniq", ONE, uniq),
    Function::new("without", SOME, without),
];

fn list(context: &mut Context, args: &[Value]) -> Outcome {
    context.list(args.to_vec())
}

fn append(context: &mut Context, args: &[Value]) -> Outcome {
    let mut items = context.items(list_of(any(args, 0), "Cannot push on type")?)?;
    items.push(any(args, 1).clone());
    Ok(Value::List(List::new(Element::Any, items)))
}

fn prepend(context: &mut Context, args: &[Value]) -> Outcome {
    let mut items = context.items(list_of(any(args, 0), "Cannot prepend on type")?)?;
    items.insert(0, any(args, 1).clone());
    Ok(Value::List(List::new(Element::Any, items)))
}

fn concat(context: &mut Context, args: &[Value]) -> Outcome {
    let mut all = Vec::new();
    for value in args {
        match value {
            Value::List(list) => all.append(&mut context.items(list)?),
            Value::Nil => list_of(value, "").map(|_| ())?,
            other => {
                return Err(FunctionError::new(format!(
                    "Cannot concat type {} as list",
                    other.kind().name()
                )));
            }
        }
    }
    Ok(Value::List(match all.is_empty() {
        true => List::nil(Element::Any),
        false => List::new(Element::Any, all),
    }))
}

fn first(_: &mut Context, args: &[Value]) -> Outcome {
    let list = list_of(any(args, 0), "Cannot find first on type")?;
    Ok(list.get(0).unwrap_or(Value::Nil))
}

fn last(_: &mut Context, args: &[Value]) -> Outcome {
    let list = list_of(any(args, 0), "Cannot find last on type")?;
    let index = list.len().checked_sub(1);
    Ok(index
        .and_then(|index| list.get(index))
        .unwrap_or(Value::Nil))
}

fn rest(context: &mut Context, args: &[Value]) -> Outcome {
    let list = list_of(any(args, 0), "Cannot find rest on type")?;
    if list.is_empty() {
        return Ok(Value::List(List::nil(Element::Any)));
    }
    let items = context.items(list)?.split_off(1);
    Ok(Value::List(List::new(Element::Any, items)))
}

fn initial(context: &mut Context, args: &[Value]) -> Outcome {
    let list = list_of(any(args, 0), "Cannot find initial on type")?;
    let mut items = context.items(list)?;
    if items.pop().is_none() {
        return Ok(Value::List(List::nil(Element::Any)));
    }
    Ok(Value::List(List::new(Element::Any, items)))
}

fn reverse(context: &mut Context, args: &[Value]) -> Outcome {
    let mut items = context.items(list_of(any(args, 0), "Cannot find reverse on type")?)?;
    items.reverse();
    Ok(Value::List(List::new(Element::Any, items)))
}

fn compact(context: &mut Context, args: &[Value]) -> Outcome {
    let mut items = context.items(list_of(any(args, 0), "Cannot compact on type")?)?;
    items.retain(|item| !is_empty(item));
    Ok(Value::List(List::new(Element::Any, items)))
}

fn uniq(context: &mut Context, args: &[Value]) -> Outcome {
    let items = context.items(list_of(any(args, 0), "Cannot find uniq on type")?)?;
    let mut kept = Vec::new();
    for item in items {
        if !is_among(context, &kept, &item)? {
            kept.push(item);
        }
    }
    Ok(Value::List(List::new(Element::Any, kept)))
}

fn without(context: &mut Context, args: &[Value]) -> Outcome {
    let items = context.items(list_of(any(args, 0), "Cannot find without on type")?)?;
    let mut kept = Vec::new();
    for item in items {
        if !is_among(context, args.get(1..).unwrap_or_default(), &item)? {
            kept.push(item);
        }
    }
    Ok(Value::List(List::new(Element::Any, kept)))
}

fn is_among(context: &mut Context, items: &[Value], wanted: &Value) -> Result<bool, FunctionError> {
    for item in items {
        if deep_equal(wanted, item, &mut context.budget)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn has(context: &mut Context, args: &[Value]) -> Outcome {
    if matches!(any(args, 1), Value::Nil) {
        return Ok(Value::Bool(false));
    }
    let items = context.items(list_of(any(args, 1), "Cannot find has on type")?)?;
    Ok(Value::Bool(is_among(context, &items, any(args, 0))?))
}

/// `slice LIST FROM TO`; the same type of list as it was given.
fn slice(context: &mut Context, args: &[Value]) -> Outcome {
    let list = list_of(any(args, 0), "list should be type of slice or array but")?;
    let len = list.len();
    if len == 0 {
        return Ok(Value::Nil);
    }
    let bound = |index: usize, default: usize| match args.get(index) {
        None => Some(default),
        Some(value) => usize::try_from(to_int(value)).ok(),
    };
    match (bound(1, 0), bound(2, len)) {
        (Some(from), Some(to)) if from <= to && to <= len => {
            let mut items = context.items(list)?;
            items.truncate(to);
            let items = items.split_off(from);
            Ok(Value::List(List::new(list.element(), items)))
        }
        _ => Err(FunctionError::new(
            "reflect.Value.Slice: slice index out of bounds",
        )),
    }
}

/// Lists of `size` items each, the last with what is left.
fn chunk(context: &mut Context, args: &[Value]) -> Outcome {
    let size = int(args, 0)?;
    let list = list_of(any(args, 1), "Cannot chunk type")?;
    let len = list.len();
    let size = match usize::try_from(size) {
        Ok(size) if size > 0 => size,
        // Upstream's arithmetic: a negative size gives one chunk, none, or a slice of negative length.
        _ if size < -1 && len == 1 => 1,
        _ if len > 1 && len as u64 - 1 <= size.wrapping_neg() as u64 => {
            return Ok(Value::List(List::new(Element::List, Vec::new())));
        }
        _ => {
            return Err(FunctionError::new(
                "runtime error: makeslice: len out of range",
            ));
        }
    };
    context.reserve_items(len.div_ceil(size).saturating_mul(2))?;
    let chunks = context
        .items(list)?
        .chunks(size)
        .map(|chunk| Value::List(List::new(Element::Any, chunk.to_vec())))
        .collect();
    Ok(Value::List(List::new(Element::List, chunks)))
}
