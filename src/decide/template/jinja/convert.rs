//! Values of the table as Jinja's and back. Lists and dicts are copied, and charged for: they are not shared with the template.

use std::collections::BTreeMap;
use std::fmt;
use std::mem::size_of;
use std::sync::Arc;

use go_templates::methods::{Member, member};
use go_templates::value::{Dict, Element, List, Named, Text, Time, Typed, Value, Version};
use go_templates::{Budget, Context, FunctionError, LimitError, to_utf8};
use minijinja::value::{Object, ObjectRepr, ValueKind};
use minijinja::{Error, ErrorKind, State};

use crate::decide::template::jinja::library::call;
use crate::decide::template::jinja::meter::Meter;

/// A value with methods inside a Jinja template. Those without arguments are its attributes, too.
#[derive(Debug)]
enum Own {
    Time(Time),
    Version(Arc<Version>),
    Named(Named),
}

impl Own {
    fn value(&self) -> Value {
        match self {
            Own::Time(time) => Value::time(time.clone()),
            Own::Version(version) => Value::Version(version.clone()),
            Own::Named(named) => Value::Named(*named),
        }
    }
}

impl Object for Own {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &minijinja::Value) -> Option<minijinja::Value> {
        let value = self.value();
        let Some(Member::Method(method)) = member(&value, key.as_str()?) else {
            return None;
        };
        if !method.signature.fixed.is_empty() {
            return None;
        }
        // The default budget is enough: no result is longer than the value itself.
        let mut context = Context::new(Budget::default());
        single(&method.invoke(&mut context, &[value]).ok()?)
    }

    fn call_method(
        self: &Arc<Self>,
        state: &mut State<'_, '_>,
        method: &str,
        args: &[minijinja::Value],
    ) -> Result<minijinja::Value, Error> {
        let value = self.value();
        match member(&value, method) {
            Some(Member::Method(method)) => call(state, method, Some(value), args),
            Some(Member::Unusable(why)) => Err(Error::new(ErrorKind::InvalidOperation, why)),
            _ => Err(ErrorKind::UnknownMethod.into()),
        }
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &**self {
            Own::Time(time) => write!(f, "{time}"),
            Own::Version(version) => write!(f, "{version}"),
            Own::Named(named) => f.write_str(&named.text()),
        }
    }
}

/// Converts a value other than a list, a dict or a typed value.
fn single(value: &Value) -> Option<minijinja::Value> {
    Some(match value {
        Value::Nil => minijinja::Value::from(()),
        Value::Bool(b) => (*b).into(),
        Value::Int(n) | Value::Int64(n) => (*n).into(),
        Value::Uint8(n) => i64::from(*n).into(),
        Value::Uint64(n) => (*n).into(),
        // JSON's numbers are floats here, and `5432.0` is no port.
        Value::Float(f) if f.fract() == 0.0 && f.abs() < 2f64.powi(53) => (*f as i64).into(),
        Value::Float(f) => (*f).into(),
        Value::Str(text) => to_utf8(text.to_vec()).into(),
        Value::Time(time) => minijinja::Value::from_object(Own::Time(Time::clone(time))),
        Value::Version(version) => minijinja::Value::from_object(Own::Version(version.clone())),
        Value::Named(named) => minijinja::Value::from_object(Own::Named(*named)),
        Value::Certificate(certificate) => {
            let fields = certificate.fields().into_iter();
            let texts = fields.map(|(name, text)| (name, to_utf8(text.to_vec())));
            minijinja::Value::from_pairs(texts.collect::<BTreeMap<_, _>>())
        }
        Value::List(_) | Value::Dict(_) | Value::Typed(_) => return None,
    })
}

/// Converts a value of the table to Jinja's.
pub fn to_jinja(value: &Value, meter: &Meter) -> Result<minijinja::Value, Error> {
    meter.spend(|budget| budget.spend_steps(1))?;
    Ok(match value {
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
                .map(|(key, item)| Ok((to_utf8(key.to_vec()), to_jinja(item, meter)?)));
            let entries: BTreeMap<String, minijinja::Value> =
                entries.collect::<Result<_, Error>>()?;
            meter.spend(leave)?;
            minijinja::Value::from_pairs(entries)
        }
        other => single(other).unwrap_or_default(),
    })
}

/// Converts a Jinja value to the table's. An undefined value becomes nil.
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

/// The value inside an object that a function returned.
fn own_object(value: &minijinja::Value) -> Result<Value, FunctionError> {
    match value.downcast_object_ref::<Own>() {
        Some(own) => Ok(own.value()),
        None => Err(FunctionError::new(format!(
            "a {} is no value for a function",
            value.kind()
        ))),
    }
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

/// Charges for one more level of nesting with so many items.
fn reserve(budget: &mut Budget, items: usize) -> Result<(), LimitError> {
    budget.enter()?;
    budget.spend_memory(items.saturating_mul(size_of::<Value>()) as u64)
}

fn leave(budget: &mut Budget) -> Result<(), LimitError> {
    budget.leave();
    Ok(())
}

/// The error of an operator that does not support its operands.
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
