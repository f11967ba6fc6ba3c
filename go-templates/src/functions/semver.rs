//! Versions, and the ranges that Masterminds/semver reads: `^1.2`, `~1.2`, `1.x`, `1.2 - 1.4`, `>=1, <2 || 3`.

mod constraint;
mod methods;

use std::sync::Arc;

use crate::context::Context;
use crate::functions::arguments::text;
use crate::functions::{Function, FunctionError};
use crate::runes;
use crate::signature::Param::Str;
use crate::signature::Signature;
use crate::value::Value;
use crate::version::Version;

pub use methods::{OF_POINTER, OF_VERSION};

use constraint::{Constraints, TEXT_MAX_BYTES};

pub const FUNCTIONS: &[Function] = &[
    Function::new("semver", Signature::exactly(&[Str]), |context, args| {
        let version = version(context, text(args, 0)?)?;
        Ok(Value::Version(Arc::new(version)))
    }),
    Function::new(
        "semverCompare",
        Signature::exactly(&[Str, Str]),
        |context, args| {
            let ranges = text(args, 0)?;
            // A hyphen range may be searched for from each byte of the text.
            let bytes = ranges.len().min(TEXT_MAX_BYTES) as u64;
            context.budget.spend_steps(bytes * bytes / 256)?;
            context.reserve(ranges.len().saturating_mul(size_of::<Version>()))?;
            let constraints =
                Constraints::parse(&runes::to_utf8(ranges.to_vec())).map_err(FunctionError::new)?;
            let version = version(context, text(args, 1)?)?;
            Ok(Value::Bool(constraints.allow(&version)))
        },
    ),
];

fn version(context: &mut Context, text: &[u8]) -> Result<Version, FunctionError> {
    context.reserve(text.len().saturating_mul(4))?;
    Version::parse(&runes::to_utf8(text.to_vec()))
        .map_err(|error| FunctionError::new(error.to_string()))
}
