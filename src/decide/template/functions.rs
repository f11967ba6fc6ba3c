//! The table of template functions, shared by the Go and the Jinja engine: one file per family. No function reads a clock, the environment, a file or the network.

mod arguments;
mod builtin;
mod case;
mod cast;
mod certificates;
mod compare;
mod crypto;
mod defaults;
mod dicts;
mod encoding;
mod floats;
mod hashes;
mod integers;
mod json;
mod lists;
mod lynq;
mod merge;
pub mod methods;
mod paths;
mod quoting;
mod random;
mod reflection;
mod refused;
mod regex;
mod semver;
mod splitting;
mod strings;
mod time;
mod url;
mod wrapping;

#[cfg(test)]
mod tests;

pub use refused::{names as refused_names, refusal};

use std::collections::BTreeMap;
use std::mem::size_of;
use std::sync::{Arc, LazyLock};

use thiserror::Error;

use crate::decide::template::budget::{Budget, LimitError};
use crate::decide::template::facts::{Facts, Place};
use crate::decide::template::format;
use crate::decide::template::signature::{Param, Signature};
use crate::decide::template::value::{Dict, Element, List, Text, Value};

/// The families, in no order that matters. A new family is a file and a line here.
const FAMILIES: &[&[Function]] = &[
    builtin::FUNCTIONS,
    case::FUNCTIONS,
    certificates::FUNCTIONS,
    compare::FUNCTIONS,
    crypto::FUNCTIONS,
    defaults::FUNCTIONS,
    dicts::FUNCTIONS,
    encoding::FUNCTIONS,
    floats::FUNCTIONS,
    hashes::FUNCTIONS,
    integers::FUNCTIONS,
    json::FUNCTIONS,
    lists::FUNCTIONS,
    lynq::FUNCTIONS,
    merge::FUNCTIONS,
    paths::FUNCTIONS,
    quoting::FUNCTIONS,
    random::FUNCTIONS,
    reflection::FUNCTIONS,
    regex::FUNCTIONS,
    semver::FUNCTIONS,
    splitting::FUNCTIONS,
    strings::FUNCTIONS,
    time::FUNCTIONS,
    url::FUNCTIONS,
    wrapping::FUNCTIONS,
];

/// One function of the table.
#[derive(Debug)]
pub struct Function {
    pub name: &'static str,
    pub signature: Signature,
    call: fn(&mut Context, &[Value]) -> Outcome,
}

pub type Outcome = Result<Value, FunctionError>;

/// Why a function gave no value. The engines add the function's name and the place.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FunctionError {
    #[error("{0}")]
    Message(String),
    #[error(transparent)]
    Limit(#[from] LimitError),
}

impl FunctionError {
    pub fn new(message: impl Into<String>) -> FunctionError {
        FunctionError::Message(message.into())
    }
}

impl Function {
    const fn new(
        name: &'static str,
        signature: Signature,
        call: fn(&mut Context, &[Value]) -> Outcome,
    ) -> Function {
        Function {
            name,
            signature,
            call,
        }
    }

    /// Calls the function with arguments that match its signature; charges for their size first.
    pub fn invoke(&self, context: &mut Context, args: &[Value]) -> Outcome {
        let work: usize = args.iter().map(size).sum();
        context.budget.spend_steps(work as u64 / ITEMS_PER_STEP)?;
        (self.call)(context, args)
    }
}

/// How many items a function looks at for one step. A byte counts for a quarter of an item.
const ITEMS_PER_STEP: u64 = 64;

/// How many items a function may look at.
fn size(value: &Value) -> usize {
    match value {
        Value::Str(text) => text.len() / 4,
        Value::List(list) => list.len(),
        Value::Dict(dict) => dict.len(),
        _ => 1,
    }
}

/// The function of that name, if there is one.
pub fn lookup(name: &str) -> Option<&'static Function> {
    static BY_NAME: LazyLock<BTreeMap<&str, &Function>> =
        LazyLock::new(|| all().map(|function| (function.name, function)).collect());
    BY_NAME.get(name).copied()
}

/// Every function of the table.
pub fn all() -> impl Iterator<Item = &'static Function> {
    FAMILIES.iter().copied().flatten()
}

/// A typed value as the type that the parameter wants; any other value as it is. `None` if it does not fit.
pub fn fit_typed(value: &Value, param: Param) -> Option<Value> {
    match value {
        Value::Typed(typed) => typed.for_param(param),
        other => Some(other.clone()),
    }
}

/// A context at rest: without the values of a rendering, so that it can cross threads.
#[derive(Debug)]
pub struct Suspended {
    pub budget: Budget,
    facts: Option<(Arc<Facts>, Place)>,
    draws: u64,
}

/// What one rendering may use and know besides its variables.
#[derive(Debug)]
pub struct Context {
    pub budget: Budget,
    facts: Option<(Arc<Facts>, Place)>,
    /// How many random values this rendering has drawn: the next one differs.
    draws: u64,
    /// Dicts that were changed after they were made: every cycle goes through one of them.
    changed: Vec<Dict>,
}

impl Context {
    pub fn new(budget: Budget) -> Context {
        Context {
            budget,
            facts: None,
            draws: 0,
            changed: Vec::new(),
        }
    }

    /// A context in which random functions and `now` have an answer.
    pub fn with_facts(budget: Budget, facts: Arc<Facts>, place: Place) -> Context {
        let mut context = Context::new(budget);
        context.facts = Some((facts, place));
        context
    }

    pub fn suspend(mut self) -> Suspended {
        Suspended {
            budget: self.budget.clone(),
            facts: self.facts.take(),
            draws: self.draws,
        }
    }

    pub fn resume(suspended: Suspended) -> Context {
        Context {
            budget: suspended.budget,
            facts: suspended.facts,
            draws: suspended.draws,
            changed: Vec::new(),
        }
    }

    /// Sets an entry of a dict that others may share.
    fn insert(&mut self, dict: &Dict, key: Text, value: Value) -> Result<(), LimitError> {
        if !dict.contains(&key) {
            let first = if dict.is_empty() { NODE_BYTES } else { 0 };
            self.budget.spend_memory(entry_bytes(&key) + first)?;
        }
        if matches!(value, Value::List(_) | Value::Dict(_)) {
            self.budget.spend_memory(size_of::<Dict>() as u64)?;
            self.changed.push(dict.clone());
        }
        dict.insert(key, value);
        Ok(())
    }

    /// Charges for bytes about to be made.
    fn reserve(&mut self, bytes: usize) -> Result<(), LimitError> {
        self.budget.spend_memory(bytes as u64)
    }

    /// Charges for list items about to be made.
    fn reserve_items(&mut self, count: usize) -> Result<(), LimitError> {
        self.budget.spend_steps(count as u64 / ITEMS_PER_STEP)?;
        self.reserve(count.saturating_mul(size_of::<Value>()))
    }

    /// A string no larger than a few times the arguments it was made of, which were charged for.
    fn string(&mut self, bytes: impl AsRef<[u8]>) -> Outcome {
        let bytes = bytes.as_ref();
        self.reserve(bytes.len())?;
        Ok(Value::str(bytes))
    }

    /// A list whose items were charged for, or are no more than the arguments had.
    fn list(&mut self, items: Vec<Value>) -> Outcome {
        self.reserve_items(items.len())?;
        Ok(Value::List(List::new(Element::Any, items)))
    }

    /// The items of a list, charged for as a copy.
    fn items(&mut self, list: &List) -> Result<Vec<Value>, LimitError> {
        self.reserve_items(list.len())?;
        Ok(list.items())
    }

    /// A `map[string]interface {}` whose entries are no more than the arguments had.
    fn dict(&mut self, entries: BTreeMap<Text, Value>) -> Outcome {
        self.reserve_entries(entries.keys())?;
        Ok(Value::Dict(Dict::new(entries)))
    }

    fn reserve_entries<'k>(
        &mut self,
        keys: impl Iterator<Item = &'k Text>,
    ) -> Result<(), LimitError> {
        let mut keys = keys.peekable();
        let first = keys.peek().map_or(0, |_| NODE_BYTES);
        let bytes: u64 = keys.map(entry_bytes).sum();
        self.budget.spend_memory(bytes + first)
    }

    /// The value as `%v` prints it.
    fn text(&mut self, value: &Value) -> Result<Text, LimitError> {
        format::text(value, &mut self.budget)
    }
}

/// What a dict takes that is not empty: room for eleven entries, as its tree makes it.
const NODE_BYTES: u64 = 11 * size_of::<(Text, Value)>() as u64;

/// What an entry of a dict takes, its value's own contents aside.
fn entry_bytes(key: &Text) -> u64 {
    (size_of::<(Text, Value)>() + key.len()) as u64
}

impl Drop for Context {
    fn drop(&mut self) {
        for dict in self.changed.drain(..) {
            dict.clear();
        }
    }
}
