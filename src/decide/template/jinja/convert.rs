//! Values of the table as Jinja's and back. Lists and dicts are copied, and charged for: they are not shared with the template.

use std::collections::BTreeMap;
use std::fmt;
use std::mem::size_of;
use std::rc::Rc;
use std::sync::Arc;

use minijinja::value::{Object, ObjectRepr, ValueKind};
use minijinja::{Error, ErrorKind};

use crate::decide::template::budget::Budget;
use crate::decide::template::format::time;
use crate::decide::template::functions::FunctionError;
use crate::decide::template::jinja::meter::Meter;
use crate::decide::template::runes;
use crate::decide::template::time::Time;
use crate::decide::template::value::{Dict, Element, List, Text, Typed, Value};
use crate::decide::template::version::{Field, Version};

/// A time inside a Jinja template.
#[derive(Debug)]
struct Moment(Time);

impl Object for Moment {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&time::string(&self.0))
    }
}

/// A version inside a Jinja template, with the fields that it has in Go's.
#[derive(Debug)]
struct Release(Version);

impl Object for Release {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &minijinja::Value) -> Option<minijinja::Value> {
        let value = self.0.field(key.as_str()?)?;
        Some(match value {
            Field::Number(number) => number.into(),
            Field::Text(text) => text.into(),
            Field::Version(version) => minijinja::Value::from_object(Release(version)),
        })
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Jinja's value for the table's.
pub fn to_jinja(value: &Value, meter: &Meter) -> Result<minijinja::Value, Error> {
    meter.spend(|budget| budget.spend_steps(1))?;
    Ok(match value {
        Value::Nil => minijinja::Value::from(()),
        Value::Bool(b) => (*b).into(),
        Value::Int(n) | Value::Int64(n) => (*n).into(),
        Value::Uint8(n) => i64::from(*n).into(),
        Value::Uint64(n) => (*n).into(),
        // JSON's numbers are floats here, and `5432.0` is no port.
        Value::Float(f) if f.fract() == 0.0 && f.abs() < 2f64.powi(53) => (*f as i64).into(),
        Value::Float(f) => (*f).into(),
        Value::Str(text) => runes::to_utf8(text.to_vec()).into(),
        Value::Time(moment) => minijinja::Value::from_object(Moment(Time::clone(moment))),
        Value::Version(version) => minijinja::Value::from_object(Release(Version::clone(version))),
        Value::Typed(typed) => {
            meter.remember(*typed);
            match typed {
                Typed::Float(f) => (*f).into(),
                typed => to_jinja(&typed.plain(), meter)?,
            }
        }
        Value::List(list) => {
            meter.spend(|budget| reserve(budget, list.len()))?;
            let items = list.items();
            let items = items.iter().map(|item| to_jinja(item, meter));
            let items: Vec<minijinja::Value> = items.collect::<Result<_, _>>()?;
            meter.spend(leave)?;
            items.into()
        }
        Value::Dict(dict) => {
            meter.spend(|budget| reserve(budget, dict.len() * 2))?;
            let entries = dict.entries();
            let entries = entries
                .iter()
                .map(|(key, item)| Ok((runes::to_utf8(key.to_vec()), to_jinja(item, meter)?)));
            let entries: BTreeMap<String, minijinja::Value> =
                entries.collect::<Result<_, Error>>()?;
            meter.spend(leave)?;
            minijinja::Value::from_pairs(entries)
        }
    })
}

/// The table's value for Jinja's. An undefined one is nil.
pub fn from_jinja(value: &minijinja::Value, budget: &mut Budget) -> Result<Value, FunctionError> {
    budget.spend_steps(1)?;
    Ok(match value.kind() {
        ValueKind::Undefined | ValueKind::None => Value::Nil,
        ValueKind::Bool => Value::Bool(value.is_true()),
        ValueKind::Number => number(value)?,
        ValueKind::String => Value::str(value.as_str().unwrap_or_default()),
        ValueKind::Bytes => Value::str(value.as_bytes().unwrap_or_default()),
        ValueKind::Seq | ValueKind::Iterable => {
            reserve(budget, value.len().unwrap_or(0))?;
            let mut items = Vec::new();
            for item in value.try_iter().map_err(refused)? {
                items.push(from_jinja(&item, budget)?);
            }
            leave(budget)?;
            Value::List(List::new(Element::Any, items))
        }
        ValueKind::Map => {
            reserve(budget, value.len().unwrap_or(0) * 2)?;
            let mut entries = BTreeMap::new();
            for key in value.try_iter().map_err(refused)? {
                let item = value.get_item(&key).map_err(refused)?;
                let item = from_jinja(&item, budget)?;
                entries.insert(Text::from(key.to_string().into_bytes()), item);
            }
            leave(budget)?;
            Value::Dict(Dict::new(entries))
        }
        _ => own_object(value)?,
    })
}

/// A time or a version that a function gave.
fn own_object(value: &minijinja::Value) -> Result<Value, FunctionError> {
    if let Some(Moment(time)) = value.downcast_object_ref() {
        return Ok(Value::time(time.clone()));
    }
    if let Some(Release(version)) = value.downcast_object_ref() {
        return Ok(Value::Version(Rc::new(version.clone())));
    }
    Err(FunctionError::new(format!(
        "a {} is no value for a function",
        value.kind()
    )))
}

fn number(value: &minijinja::Value) -> Result<Value, FunctionError> {
    if let Some(number) = value.as_i64().filter(|_| value.is_integer()) {
        return Ok(Value::Int(number));
    }
    if let Ok(number) = u64::try_from(value.clone()) {
        return Ok(Value::Uint64(number));
    }
    f64::try_from(value.clone())
        .map(Value::Float)
        .map_err(refused)
}

fn refused(error: Error) -> FunctionError {
    FunctionError::new(error.to_string())
}

/// One level deeper, with room for as many items.
fn reserve(
    budget: &mut Budget,
    items: usize,
) -> Result<(), crate::decide::template::budget::LimitError> {
    budget.enter()?;
    budget.spend_memory(items.saturating_mul(size_of::<Value>()) as u64)
}

fn leave(budget: &mut Budget) -> Result<(), crate::decide::template::budget::LimitError> {
    budget.leave();
    Ok(())
}

/// How an operator that cannot take a value says so.
pub fn unsupported(operator: &str, left: &minijinja::Value, right: &minijinja::Value) -> Error {
    Error::new(
        ErrorKind::InvalidOperation,
        format!(
            "the {operator} operator cannot take {} and {}",
            left.kind(),
            right.kind()
        ),
    )
}
