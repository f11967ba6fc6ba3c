//! Dicts with string keys. `set` and `unset` change the dict for all who share it.

use std::collections::BTreeMap;

use crate::context::Context;
use crate::functions::arguments::{any, dict as dict_of, text};
use crate::functions::cast::to_text;
use crate::functions::{Function, FunctionError, Outcome};
use crate::signature::Param::{Any, Dict as DictParam, Str};
use crate::signature::Signature;
use crate::value::{Dict, Element, List, Text, Value};

pub const FUNCTIONS: &[Function] = &[
    Function::new("dict", Signature::at_least(&[], Any), dict),
    Function::new("dig", Signature::at_least(&[], Any), dig),
    Function::new("get", Signature::exactly(&[DictParam, Str]), get),
    Function::new(
        "hasKey",
        Signature::exactly(&[DictParam, Str]),
        |_, args| {
            let key = text(args, 1)?;
            Ok(Value::Bool(
                dict_of(args, 0)?.is_some_and(|dict| dict.contains(key)),
            ))
        },
    ),
    Function::new("keys", Signature::at_least(&[], DictParam), keys),
    Function::new(
        "omit",
        Signature::at_least(&[DictParam], Str),
        |context, args| chosen(context, args, false),
    ),
    Function::new(
        "pick",
        Signature::at_least(&[DictParam], Str),
        |context, args| chosen(context, args, true),
    ),
    Function::new("pluck", Signature::at_least(&[Str], DictParam), pluck),
    Function::new("set", Signature::exactly(&[DictParam, Str, Any]), set),
    Function::new("unset", Signature::exactly(&[DictParam, Str]), unset),
    Function::new("values", Signature::exactly(&[DictParam]), values),
];

/// Keys and values in turn; a key at the end without a value gets an empty string.
fn dict(context: &mut Context, args: &[Value]) -> Outcome {
    let mut entries: BTreeMap<Text, Value> = BTreeMap::new();
    for pair in args.chunks(2) {
        let key = to_text(context, any(pair, 0))?;
        let value = pair.get(1).cloned().unwrap_or_else(|| Value::str(""));
        entries.insert(key, value);
    }
    context.dict(entries)
}

fn get(_: &mut Context, args: &[Value]) -> Outcome {
    let key = text(args, 1)?;
    let found = dict_of(args, 0)?.and_then(|dict| dict.get(key));
    Ok(found.unwrap_or_else(|| Value::str("")))
}

fn set(context: &mut Context, args: &[Value]) -> Outcome {
    let Some(dict) = dict_of(args, 0)? else {
        return Err(FunctionError::new("assignment to entry in nil map"));
    };
    context.insert(dict, text(args, 1)?.clone(), any(args, 2).clone())?;
    Ok(Value::Dict(dict.clone()))
}

fn unset(_: &mut Context, args: &[Value]) -> Outcome {
    let key = text(args, 1)?;
    let Some(dict) = dict_of(args, 0)? else {
        return Ok(Value::Dict(Dict::new(BTreeMap::new())));
    };
    dict.remove(key);
    Ok(Value::Dict(dict.clone()))
}

/// Sorted within each dict, where Go's order changes from run to run.
fn keys(context: &mut Context, args: &[Value]) -> Outcome {
    let mut items = Vec::new();
    for index in 0..args.len() {
        if let Some(dict) = dict_of(args, index)? {
            context.reserve_items(dict.len())?;
            items.extend(dict.keys().into_iter().map(Value::Str));
        }
    }
    Ok(Value::List(List::new(Element::Str, items)))
}

/// In the order of the keys, where Go's order changes from run to run.
fn values(context: &mut Context, args: &[Value]) -> Outcome {
    let entries = match dict_of(args, 0)? {
        Some(dict) => {
            context.reserve_items(dict.len())?;
            dict.entries()
        }
        None => Vec::new(),
    };
    let items = entries.into_iter().map(|(_, value)| value).collect();
    Ok(Value::List(List::new(Element::Any, items)))
}

fn pluck(context: &mut Context, args: &[Value]) -> Outcome {
    let key = text(args, 0)?;
    let mut items = Vec::new();
    for index in 1..args.len() {
        items.extend(dict_of(args, index)?.and_then(|dict| dict.get(key)));
    }
    context.list(items)
}

/// A new dict with the named entries, or with all others.
fn chosen(context: &mut Context, args: &[Value], named: bool) -> Outcome {
    let mut names: Vec<&Text> = Vec::new();
    for index in 1..args.len() {
        names.push(text(args, index)?);
    }
    names.sort();
    let entries = match dict_of(args, 0)? {
        Some(dict) => {
            context.reserve_items(dict.len())?;
            dict.entries()
        }
        None => Vec::new(),
    };
    let kept = entries
        .into_iter()
        .filter(|(key, _)| names.binary_search(&key).is_ok() == named)
        .collect();
    context.dict(kept)
}

/// `dig KEY… DEFAULT DICT`: the value under a path of keys.
fn dig(_: &mut Context, args: &[Value]) -> Outcome {
    let [path @ .., default, root] = args else {
        return Err(FunctionError::new("dig needs at least three arguments"));
    };
    if path.is_empty() {
        return Err(FunctionError::new("dig needs at least three arguments"));
    }
    let mut dict = plain_dict(root)?;
    let mut keys = Vec::new();
    for key in path {
        match key {
            Value::Str(key) => keys.push(key),
            other => return Err(not_a(other, "string")),
        }
    }
    let (last, inner) = match keys.split_last() {
        Some(split) => split,
        None => return Ok(default.clone()),
    };
    for key in inner {
        match dict.get(key) {
            Some(value) => dict = plain_dict(&value)?,
            None => return Ok(default.clone()),
        }
    }
    Ok(dict.get(last).unwrap_or_else(|| default.clone()))
}

fn plain_dict(value: &Value) -> Result<Dict, FunctionError> {
    match value {
        Value::Dict(dict) if dict.element() == Element::Any => Ok(dict.clone()),
        other => Err(not_a(other, "map[string]interface {}")),
    }
}

fn not_a(value: &Value, wanted: &str) -> FunctionError {
    let found = match value {
        Value::Nil => "nil",
        other => other.type_name(),
    };
    FunctionError::new(format!(
        "interface conversion: interface {{}} is {found}, not {wanted}"
    ))
}
