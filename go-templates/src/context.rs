//! The state of one rendering: its budget, its facts, and the dicts that it changed. Reads no clock and generates no randomness.

use std::collections::BTreeMap;
use std::mem::size_of;
use std::sync::Arc;

use crate::budget::{Budget, LimitError};
use crate::facts::{Facts, Place};
use crate::format;
use crate::functions::Outcome;
use crate::value::{Dict, Element, List, Text, Value};

/// How many items a function looks at for one step. A byte counts for a quarter of an item.
pub(crate) const ITEMS_PER_STEP: u64 = 64;

/// A context at rest: without the values of a rendering, so that it can cross threads.
#[derive(Debug)]
pub struct Suspended {
    /// The rest of the limits.
    pub budget: Budget,
    facts: Arc<Facts>,
    place: Place,
    draws: u64,
}

/// The budget and the facts of one rendering. The default has the default limits and no facts.
#[derive(Debug)]
pub struct Context {
    /// The rest of the limits.
    pub budget: Budget,
    pub(crate) facts: Arc<Facts>,
    pub(crate) place: Place,
    /// How many random values this rendering has drawn: the next one differs.
    pub(crate) draws: u64,
    /// Dicts that were changed after their creation: every reference cycle contains one of them.
    changed: Vec<Dict>,
}

impl Default for Context {
    fn default() -> Context {
        Context::new(Budget::default())
    }
}

impl Context {
    /// A context in which random functions and `now` are errors.
    pub fn new(budget: Budget) -> Context {
        Context::with_facts(budget, Arc::default(), Place::default())
    }

    /// A context in which random functions and `now` have an answer.
    pub fn with_facts(budget: Budget, facts: Arc<Facts>, place: Place) -> Context {
        Context {
            budget,
            facts,
            place,
            draws: 0,
            changed: Vec::new(),
        }
    }

    /// Puts the context to rest, between two calls of functions.
    pub fn suspend(mut self) -> Suspended {
        Suspended {
            budget: self.budget.clone(),
            facts: self.facts.clone(),
            place: std::mem::take(&mut self.place),
            draws: self.draws,
        }
    }

    /// Resumes a suspended context.
    pub fn resume(suspended: Suspended) -> Context {
        Context {
            budget: suspended.budget,
            facts: suspended.facts,
            place: suspended.place,
            draws: suspended.draws,
            changed: Vec::new(),
        }
    }

    /// Sets an entry of a dict that others may share.
    pub(crate) fn insert(
        &mut self,
        dict: &Dict,
        key: Text,
        value: Value,
    ) -> Result<(), LimitError> {
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
    pub fn reserve(&mut self, bytes: usize) -> Result<(), LimitError> {
        self.budget.spend_memory(bytes as u64)
    }

    /// Charges for list items about to be made.
    pub fn reserve_items(&mut self, count: usize) -> Result<(), LimitError> {
        self.budget.spend_steps(count as u64 / ITEMS_PER_STEP)?;
        self.reserve(count.saturating_mul(size_of::<Value>()))
    }

    /// A string no larger than a few times the arguments it was made of, which were charged for.
    pub fn string(&mut self, bytes: impl AsRef<[u8]>) -> Outcome {
        let bytes = bytes.as_ref();
        self.reserve(bytes.len())?;
        Ok(Value::str(bytes))
    }

    /// A list whose items were charged for, or are no more than the arguments had.
    pub fn list(&mut self, items: Vec<Value>) -> Outcome {
        self.reserve_items(items.len())?;
        Ok(Value::List(List::new(Element::Any, items)))
    }

    /// The items of a list, charged for as a copy.
    pub fn items(&mut self, list: &List) -> Result<Vec<Value>, LimitError> {
        self.reserve_items(list.len())?;
        Ok(list.items())
    }

    /// A `map[string]interface {}` whose entries are no more than the arguments had.
    pub fn dict(&mut self, entries: BTreeMap<Text, Value>) -> Outcome {
        self.reserve_entries(entries.keys())?;
        Ok(Value::Dict(Dict::new(entries)))
    }

    pub(crate) fn reserve_entries<'k>(
        &mut self,
        keys: impl Iterator<Item = &'k Text>,
    ) -> Result<(), LimitError> {
        let mut keys = keys.peekable();
        let first = keys.peek().map_or(0, |_| NODE_BYTES);
        let bytes: u64 = keys.map(entry_bytes).sum();
        self.budget.spend_memory(bytes + first)
    }

    /// The value as `%v` prints it.
    pub fn text(&mut self, value: &Value) -> Result<Text, LimitError> {
        format::text(value, &mut self.budget)
    }
}

/// The size of a dict with at least one entry: its tree allocates room for eleven.
const NODE_BYTES: u64 = 11 * size_of::<(Text, Value)>() as u64;

/// The size of an entry of a dict, without its value's own contents.
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
