//! The functions of Go and of sprig, one file per family. No function reads a clock, the environment, a file or the network.

pub mod arguments;
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
pub mod json;
mod lists;
mod merge;
pub mod methods;
mod paths;
mod quoting;
mod random;
mod reflection;
mod regex;
mod semver;
mod splitting;
mod strings;
mod time;
pub mod url;
mod wrapping;

#[cfg(test)]
mod tests;

use thiserror::Error;

use crate::budget::LimitError;
use crate::context::{Context, ITEMS_PER_STEP};
use crate::signature::{Param, Signature};
use crate::value::Value;

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

/// A function that templates can call.
#[derive(Debug, Clone, Copy)]
pub struct Function {
    /// Its name in templates.
    pub name: &'static str,
    /// Its parameters. The engine checks each call against them before the function runs.
    pub signature: Signature,
    call: fn(&mut Context, &[Value]) -> Outcome,
}

/// The result of a function.
pub type Outcome = Result<Value, FunctionError>;

/// Why a function gave no value. The engines add the function's name and the place.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FunctionError {
    /// What is wrong, for the template's author.
    #[error("{0}")]
    Message(String),
    /// It would have taken more than the budget has left.
    #[error(transparent)]
    Limit(#[from] LimitError),
}

impl FunctionError {
    /// An error with this message.
    pub fn new(message: impl Into<String>) -> FunctionError {
        FunctionError::Message(message.into())
    }
}

impl Function {
    /// A function that `call` carries out. It gets as many arguments as the signature says, of its types, what is piped
    /// last; [`arguments`] reads them. It must charge the context for what it makes and for loops beyond its arguments.
    pub const fn new(
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

/// How many items a function may read from the value.
fn size(value: &Value) -> usize {
    match value {
        Value::Str(text) => text.len() / 4,
        Value::List(list) => list.len(),
        Value::Dict(dict) => dict.len(),
        _ => 1,
    }
}

/// Every function of Go and of sprig that is here.
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
