//! Integers: arithmetic that wraps as Go's does, and ranges. Everything that is no number counts as 0.

use crate::context::Context;
use crate::functions::arguments::{any, int, text};
use crate::functions::cast::to_int;
use crate::functions::{Function, FunctionError, Outcome};
use crate::signature::Param::{Any, Int, Str};
use crate::signature::Signature;
use crate::value::{Element, List, Value};

const ONE: Signature = Signature::exactly(&[Any]);
const TWO: Signature = Signature::exactly(&[Any, Any]);
const SOME: Signature = Signature::at_least(&[Any], Any);

pub const FUNCTIONS: &[Function] = &[
    Function::new("add", Signature::at_least(&[], Any), |_, args| {
        let sum = args.iter().map(to_int).fold(0, i64::wrapping_add);
        Ok(Value::Int64(sum))
    }),
    Function::new("add1", ONE, |_, args| {
        Ok(Value::Int64(to_int(any(args, 0)).wrapping_add(1)))
    }),
    Function::new("sub", TWO, |_, args| {
        let (left, right) = operands(args);
        Ok(Value::Int64(left.wrapping_sub(right)))
    }),
    Function::new("mul", SOME, |_, args| {
        let product = args.iter().map(to_int).fold(1, i64::wrapping_mul);
        Ok(Value::Int64(product))
    }),
    Function::new("div", TWO, |_, args| {
        let (left, right) = divisible(args)?;
        Ok(Value::Int64(left.wrapping_div(right)))
    }),
    Function::new("mod", TWO, |_, args| {
        let (left, right) = divisible(args)?;
        Ok(Value::Int64(left.wrapping_rem(right)))
    }),
    Function::new("max", SOME, largest),
    Function::new("biggest", SOME, largest),
    Function::new("min", SOME, |_, args| {
        Ok(Value::Int64(args.iter().map(to_int).min().unwrap_or(0)))
    }),
    Function::new("int", ONE, |_, args| Ok(Value::Int(to_int(any(args, 0))))),
    Function::new("int64", ONE, |_, args| {
        Ok(Value::Int64(to_int(any(args, 0))))
    }),
    Function::new("atoi", Signature::exactly(&[Str]), atoi),
    Function::new("toDecimal", ONE, to_decimal),
    Function::new("until", Signature::exactly(&[Int]), until),
    Function::new(
        "untilStep",
        Signature::exactly(&[Int, Int, Int]),
        until_step,
    ),
    Function::new("seq", Signature::at_least(&[], Int), seq),
];

fn operands(args: &[Value]) -> (i64, i64) {
    (to_int(any(args, 0)), to_int(any(args, 1)))
}

fn divisible(args: &[Value]) -> Result<(i64, i64), FunctionError> {
    match operands(args) {
        (_, 0) => Err(FunctionError::new("runtime error: integer divide by zero")),
        other => Ok(other),
    }
}

fn largest(_: &mut Context, args: &[Value]) -> Outcome {
    Ok(Value::Int64(args.iter().map(to_int).max().unwrap_or(0)))
}

/// Accepts only a decimal number; saturates if it is too large.
fn atoi(_: &mut Context, args: &[Value]) -> Outcome {
    let text = std::str::from_utf8(text(args, 0)?).unwrap_or_default();
    Ok(Value::Int(
        in_base(text, 10).unwrap_or_else(|| saturated(text, 10)),
    ))
}

/// Digits with an optional sign.
fn in_base(text: &str, base: u32) -> Option<i64> {
    // Rust reads what Go reads here: a sign and digits, no underscores.
    i64::from_str_radix(text, base).ok()
}

/// Go's Atoi gives the nearest number with its range error, and sprig drops the error.
fn saturated(text: &str, base: u32) -> i64 {
    let (negative, digits) = match text.as_bytes() {
        [b'-', ..] => (true, &text[1..]),
        [b'+', ..] => (false, &text[1..]),
        _ => (false, text),
    };
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(base)) {
        0
    } else if negative {
        i64::MIN
    } else {
        i64::MAX
    }
}

/// Reads octal digits, as file modes are written.
fn to_decimal(context: &mut Context, args: &[Value]) -> Outcome {
    let text = context.text(any(args, 0))?;
    let number = std::str::from_utf8(&text)
        .ok()
        .and_then(|text| in_base(text, 8));
    Ok(Value::Int64(number.unwrap_or(0)))
}

fn until(context: &mut Context, args: &[Value]) -> Outcome {
    let count = int(args, 0)?;
    numbers(context, 0, count, if count < 0 { -1 } else { 1 })
}

fn until_step(context: &mut Context, args: &[Value]) -> Outcome {
    numbers(context, int(args, 0)?, int(args, 1)?, int(args, 2)?)
}

fn numbers(context: &mut Context, start: i64, stop: i64, step: i64) -> Outcome {
    let items = range(context, start, stop, step)?;
    Ok(Value::List(List::new(
        Element::Int,
        items.into_iter().map(Value::Int).collect(),
    )))
}

/// From `start` until before `stop`, none if the step leads away from it; charged for before it is made.
fn range(
    context: &mut Context,
    start: i64,
    stop: i64,
    step: i64,
) -> Result<Vec<i64>, FunctionError> {
    let leads_there = if stop < start { step < 0 } else { step > 0 };
    if !leads_there {
        return Ok(Vec::new());
    }
    let distance = (i128::from(stop) - i128::from(start)).unsigned_abs();
    let count = distance.div_ceil(u128::from(step.unsigned_abs()));
    context.reserve_items(usize::try_from(count).unwrap_or(usize::MAX))?;
    let step = i128::from(step);
    Ok((0..count as i128)
        .map(|index| (i128::from(start) + index * step) as i64)
        .collect())
}

/// Like the command: `seq LAST`, `seq FIRST LAST`, `seq FIRST STEP LAST`, as text.
fn seq(context: &mut Context, args: &[Value]) -> Outcome {
    let (start, step, end) = match args.len() {
        1 => (1, None, int(args, 0)?),
        2 => (int(args, 0)?, None, int(args, 1)?),
        3 => (int(args, 0)?, Some(int(args, 1)?), int(args, 2)?),
        _ => return Ok(Value::str("")),
    };
    let direction = if end < start { -1 } else { 1 };
    if end < start && step.is_some_and(|step| step > 0) {
        return Ok(Value::str(""));
    }
    let stop = end.wrapping_add(direction);
    let items = range(context, start, stop, step.unwrap_or(direction))?;
    // Each word is a string of its own until they are joined.
    context.reserve_items(items.len() * 2)?;
    let words: Vec<String> = items.iter().map(i64::to_string).collect();
    context.string(words.join(" "))
}
