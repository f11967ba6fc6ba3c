//! Merges and copies dicts. Changes the first dict in place; as upstream, nested dicts that it lacks become shared with the
//! source.

use std::collections::BTreeMap;

use crate::context::Context;
use crate::functions::arguments::{NIL_POINTER, any, dict as dict_of};
use crate::functions::cast::is_empty;
use crate::functions::{Function, FunctionError, Outcome};
use crate::signature::Param::{Any, Dict as DictParam};
use crate::signature::Signature;
use crate::value::{Dict, Element, List, Text, Value};

const DICTS: Signature = Signature::at_least(&[DictParam], DictParam);
const ONE: Signature = Signature::exactly(&[Any]);

pub const FUNCTIONS: &[Function] = &[
    Function::new("deepCopy", ONE, deep_copy),
    Function::new("merge", DICTS, |context, args| merge(context, args, false)),
    Function::new("mergeOverwrite", DICTS, |context, args| {
        merge(context, args, true)
    }),
    Function::new("mustDeepCopy", ONE, deep_copy),
    Function::new("mustMerge", DICTS, |context, args| {
        merge(context, args, false)
    }),
    Function::new("mustMergeOverwrite", DICTS, |context, args| {
        merge(context, args, true)
    }),
];

fn merge(context: &mut Context, args: &[Value], overwrite: bool) -> Outcome {
    let target = match dict_of(args, 0)? {
        Some(target) => target.clone(),
        None => Dict::new(BTreeMap::new()),
    };
    for index in 1..args.len() {
        if let Some(source) = dict_of(args, index)? {
            merge_into(context, &target, source, overwrite)?;
        }
    }
    Ok(Value::Dict(target))
}

fn merge_into(
    context: &mut Context,
    target: &Dict,
    source: &Dict,
    overwrite: bool,
) -> Result<(), FunctionError> {
    context.budget.enter()?;
    context.reserve_items(source.len())?;
    context.budget.spend_steps(source.len() as u64)?;
    for (key, new) in source.entries() {
        let old = target.get(&key);
        let put = |context: &mut Context, new| put(context, target, key, new, source.element());
        if matches!(new, Value::Nil) {
            if overwrite {
                put(context, new)?;
            }
            continue;
        }
        if let (Value::Dict(new), Some(Value::Dict(old))) = (&new, &old) {
            merge_into(context, old, new, overwrite)?;
        }
        let old_is_empty = old.as_ref().is_none_or(is_empty);
        let is_container = matches!(new, Value::Dict(_) | Value::List(_));
        let replaces = match (&new, old_is_empty) {
            (_, true) => true,
            (Value::List(_), false) => overwrite,
            _ => overwrite && !is_container,
        };
        if replaces {
            put(context, new)?;
        }
    }
    context.budget.leave();
    Ok(())
}

/// A dict of strings takes nothing from a dict of anything, not even strings.
fn put(
    context: &mut Context,
    target: &Dict,
    key: Text,
    value: Value,
    from: Element,
) -> Result<(), FunctionError> {
    if target.element() == Element::Str && from != Element::Str {
        return Err(FunctionError::new(
            "reflect.Value.SetMapIndex: value of type interface {} is not assignable to type string",
        ));
    }
    Ok(context.insert(target, key, value)?)
}

fn deep_copy(context: &mut Context, args: &[Value]) -> Outcome {
    match any(args, 0) {
        Value::Nil => Err(FunctionError::new(NIL_POINTER)),
        other => copy(context, other),
    }
}

fn copy(context: &mut Context, value: &Value) -> Outcome {
    context.budget.spend_steps(1)?;
    match value {
        Value::List(list) if list.is_nil() => Ok(value.clone()),
        Value::List(list) => {
            context.budget.enter()?;
            let mut items = context.items(list)?;
            for item in &mut items {
                *item = copy(context, item)?;
            }
            context.budget.leave();
            Ok(Value::List(List::new(list.element(), items)))
        }
        Value::Dict(dict) => {
            context.budget.enter()?;
            context.reserve_entries(dict.keys().iter())?;
            let mut entries = BTreeMap::new();
            for (key, item) in dict.entries() {
                entries.insert(key, copy(context, &item)?);
            }
            context.budget.leave();
            Ok(Value::Dict(match dict.element() {
                Element::Str => Dict::of_strings(entries),
                _ => Dict::new(entries),
            }))
        }
        other => Ok(other.clone()),
    }
}
