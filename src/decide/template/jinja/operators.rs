//! Jinja's operators that build larger values from smaller ones, charged to the budget. minijinja's own limit neither memory nor
//! nesting.

use std::mem::size_of;

use minijinja::value::{Rest, Tuple, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value};

use crate::decide::template::jinja::convert::unsupported;
use crate::decide::template::jinja::library::{shown, undefined};
use crate::decide::template::jinja::meter::Meter;

/// The filters that stand for the operators. No template can name them by accident.
pub const ADD: &str = "%add";
pub const MULTIPLY: &str = "%multiply";
pub const CONCAT: &str = "%concat";
pub const SLICE: &str = "%slice";
pub const LIST: &str = "%list";
pub const TUPLE: &str = "%tuple";
pub const MAP: &str = "%map";
/// The filter before an instruction that reads a whole value.
pub const READ: &str = "%read";
/// The filter behind a variable that has a function's name.
pub const VARIABLE: &str = "%variable";

pub fn add_to(environment: &mut Environment<'static>) {
    environment.add_filter(ADD, add);
    environment.add_filter(MULTIPLY, multiply);
    environment.add_filter(CONCAT, concat);
    environment.add_filter(SLICE, slice);
    environment.add_filter(LIST, |state: &mut State, items: Rest<Value>| {
        defined(&items.0)?;
        weigh(&Meter::of(state)?, &items.0)?;
        Ok::<Value, Error>(Value::from(items.0))
    });
    environment.add_filter(TUPLE, |state: &mut State, items: Rest<Value>| {
        defined(&items.0)?;
        weigh(&Meter::of(state)?, &items.0)?;
        Ok::<Value, Error>(Value::from(Tuple::from(items.0)))
    });
    environment.add_filter(MAP, |state: &mut State, pairs: Rest<Value>| {
        defined(&pairs.0)?;
        let meter = Meter::of(state)?;
        weigh(&meter, &pairs.0)?;
        for key in pairs.0.iter().step_by(2) {
            read(&meter, key)?;
        }
        let pairs = pairs.0.chunks_exact(2);
        let pairs = pairs.map(|pair| (pair[0].clone(), pair[1].clone()));
        Ok::<Value, Error>(Value::from_pairs(pairs))
    });
    environment.add_filter(READ, |state: &mut State, value: Value| {
        read(&Meter::of(state)?, &value)?;
        Ok::<Value, Error>(value)
    });
}

/// Charges for reading everything inside a value, as often as it occurs. Returns the steps spent.
pub fn read(meter: &Meter, value: &Value) -> Result<u64, Error> {
    let mut spent = 0;
    let mut spend = |steps: u64| {
        spent += steps;
        meter.spend(|budget| budget.spend_steps(steps))
    };
    let mut inside = vec![value.clone()];
    while let Some(value) = inside.pop() {
        if let Some(text) = value.as_str() {
            spend(text.len() as u64 / 256)?;
            continue;
        }
        let is_map = value.kind() == ValueKind::Map;
        if !is_map && !is_sequence(&value) {
            continue;
        }
        // Charge before the items are collected.
        spend((value.len().unwrap_or(0) as u64).div_ceil(64))?;
        for item in value.try_iter()? {
            if is_map {
                inside.push(value.get_item(&item)?);
            }
            inside.push(item);
        }
    }
    Ok(spent)
}

/// A variable that the row lacks must not roll out inside a list or a dict either.
fn defined(values: &[Value]) -> Result<(), Error> {
    let missing = values.iter().find(|value| value.is_undefined());
    missing.map_or(Ok(()), |value| Err(undefined(value)))
}

fn concat(state: &mut State, left: Value, right: Value) -> Result<Value, Error> {
    let meter = Meter::of(state)?;
    Ok(Value::from(shown(&meter, &left)? + &shown(&meter, &right)?))
}

fn add(state: &mut State, left: Value, right: Value) -> Result<Value, Error> {
    if let (Some(_), Some(_)) = (left.as_str(), right.as_str()) {
        return concat(state, left, right);
    }
    if is_sequence(&left) && is_sequence(&right) {
        let mut items = items_of(state, &left)?;
        items.append(&mut items_of(state, &right)?);
        weigh(&Meter::of(state)?, &items)?;
        return Ok(Value::from(items));
    }
    calculate("+", &left, &right, i128::checked_add, |a, b| a + b)
}

fn multiply(state: &mut State, left: Value, right: Value) -> Result<Value, Error> {
    let (repeated, count) = match (left.as_i64(), right.as_i64()) {
        (None, Some(count)) => (&left, count),
        (Some(count), None) => (&right, count),
        _ => return calculate("*", &left, &right, i128::checked_mul, |a, b| a * b),
    };
    let count = usize::try_from(count).unwrap_or(0);
    let meter = Meter::of(state)?;
    if let Some(text) = repeated.as_str() {
        let bytes = text.len().saturating_mul(count);
        meter.spend(|budget| budget.spend_memory(bytes as u64))?;
        return Ok(Value::from(text.repeat(count)));
    }
    if !is_sequence(repeated) {
        return calculate("*", &left, &right, i128::checked_mul, |a, b| a * b);
    }
    let items = items_of(state, repeated)?;
    let bytes = items
        .len()
        .saturating_mul(count)
        .saturating_mul(size_of::<Value>());
    meter.spend(|budget| budget.spend_memory(bytes as u64))?;
    let repeated: Vec<Value> = std::iter::repeat_n(items, count).flatten().collect();
    weigh(&meter, &repeated)?;
    Ok(Value::from(repeated))
}

/// Calculates with floats if either operand is one, otherwise with integers.
fn calculate(
    operator: &str,
    left: &Value,
    right: &Value,
    integers: fn(i128, i128) -> Option<i128>,
    floats: fn(f64, f64) -> f64,
) -> Result<Value, Error> {
    let is_float = |value: &Value| value.is_number() && !value.is_integer();
    if is_float(left) || is_float(right) {
        return match (f64::try_from(left.clone()), f64::try_from(right.clone())) {
            (Ok(a), Ok(b)) => Ok(Value::from(floats(a, b))),
            _ => Err(unsupported(operator, left, right)),
        };
    }
    match (i128::try_from(left.clone()), i128::try_from(right.clone())) {
        (Ok(a), Ok(b)) => match integers(a, b).map(i64::try_from) {
            Some(Ok(number)) => Ok(Value::from(number)),
            _ => Err(Error::new(
                ErrorKind::InvalidOperation,
                format!("the result of the {operator} operator is too large"),
            )),
        },
        _ if left.is_undefined() => Err(undefined(left)),
        _ if right.is_undefined() => Err(undefined(right)),
        _ => Err(unsupported(operator, left, right)),
    }
}

/// `value[start:stop:step]`, by characters or items, as in Python.
fn slice(
    state: &mut State,
    value: Value,
    start: Option<i64>,
    stop: Option<i64>,
    step: Option<i64>,
) -> Result<Value, Error> {
    let step = step.unwrap_or(1);
    if step == 0 {
        return Err(Error::new(
            ErrorKind::InvalidOperation,
            "cannot slice by step size of 0",
        ));
    }
    if let Some(text) = value.as_str() {
        let meter = Meter::of(state)?;
        meter.spend(|budget| {
            budget.spend_steps(text.len() as u64 / 64)?;
            budget.spend_memory(text.len() as u64 * 5)
        })?;
        let chars: Vec<char> = text.chars().collect();
        let positions = positions(chars.len(), start, stop, step);
        return Ok(Value::from(
            positions.map(|at| chars[at]).collect::<String>(),
        ));
    }
    if value.is_undefined() {
        return Err(undefined(&value));
    }
    if !is_sequence(&value) {
        return Err(Error::new(
            ErrorKind::InvalidOperation,
            format!("a {} cannot be sliced", value.kind()),
        ));
    }
    let items = items_of(state, &value)?;
    let positions = positions(items.len(), start, stop, step);
    Ok(Value::from(
        positions
            .map(|at| items[at].clone())
            .collect::<Vec<Value>>(),
    ))
}

/// The positions that a slice takes, in order.
fn positions(
    len: usize,
    start: Option<i64>,
    stop: Option<i64>,
    step: i64,
) -> Box<dyn Iterator<Item = usize>> {
    let len = len as i64;
    let (low, high) = if step > 0 { (0, len) } else { (-1, len - 1) };
    let clamp = |bound: Option<i64>, default: i64| match bound {
        None => default,
        Some(bound) if bound < 0 => bound.saturating_add(len).clamp(low, high),
        Some(bound) => bound.clamp(low, high),
    };
    let stride = usize::try_from(step.unsigned_abs()).unwrap_or(usize::MAX);
    if step > 0 {
        let range = clamp(start, 0)..clamp(stop, len);
        Box::new(range.map(|at| at as usize).step_by(stride))
    } else {
        let range = clamp(stop, -1) + 1..clamp(start, len - 1) + 1;
        Box::new(range.rev().map(|at| at as usize).step_by(stride))
    }
}

fn is_sequence(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable)
}

/// The items of a sequence, charged for.
fn items_of(state: &mut State, value: &Value) -> Result<Vec<Value>, Error> {
    let meter = Meter::of(state)?;
    let mut items = Vec::new();
    for item in value.try_iter()? {
        meter.spend(|budget| {
            budget.spend_steps(1)?;
            budget.spend_memory(size_of::<Value>() as u64)
        })?;
        items.push(item);
    }
    Ok(items)
}

/// Charges for everything inside the values, however often it is shared, and for their depth: comparing, writing
/// and dropping a value take as long, and as much stack.
fn weigh(meter: &Meter, values: &[Value]) -> Result<(), Error> {
    meter.spend(|budget| {
        budget.enter()?;
        budget.spend_steps(values.len() as u64)?;
        budget.spend_memory(size_of_val(values) as u64)
    })?;
    for value in values {
        if matches!(
            value.kind(),
            ValueKind::Seq | ValueKind::Map | ValueKind::Iterable
        ) {
            let is_map = value.kind() == ValueKind::Map;
            let mut inner: Vec<Value> = value.try_iter()?.collect();
            if is_map {
                let items = inner.iter().map(|key| value.get_item(key));
                inner = items.collect::<Result<_, _>>()?;
            }
            weigh(meter, &inner)?;
        }
    }
    meter.spend(|budget| {
        budget.leave();
        Ok(())
    })
}
