//! The methods of Masterminds' versions, without those that decode into a version.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::context::Context;
use crate::functions::arguments::{NIL_POINTER, any, text};
use crate::functions::{Function, FunctionError, Outcome};
use crate::runes;
use crate::signature::Param::{Named, Str};
use crate::signature::Signature;
use crate::value::Value;
use crate::version::{Version, VersionError};

const NONE: Signature = Signature::exactly(&[]);
const TEXT: Signature = Signature::exactly(&[Str]);
const VERSION: Signature = Signature::exactly(&[Named("*semver.Version")]);

/// Of every version.
pub const OF_VERSION: &[Function] = &[
    Function::new("IncMajor", NONE, |_, args| incremented(args, 0)),
    Function::new("IncMinor", NONE, |_, args| incremented(args, 1)),
    Function::new("IncPatch", NONE, |_, args| incremented(args, 2)),
    Function::new("Major", NONE, |_, args| {
        Ok(Value::Uint64(version(args, 0)?.major))
    }),
    Function::new("Metadata", NONE, |context, args| {
        context.string(&version(args, 0)?.metadata)
    }),
    Function::new("Minor", NONE, |_, args| {
        Ok(Value::Uint64(version(args, 0)?.minor))
    }),
    Function::new("Patch", NONE, |_, args| {
        Ok(Value::Uint64(version(args, 0)?.patch))
    }),
    Function::new("Prerelease", NONE, |context, args| {
        context.string(&version(args, 0)?.prerelease)
    }),
    Function::new("SetMetadata", TEXT, |context, args| {
        let text = text(args, 1)?;
        context.reserve(text.len().saturating_mul(4))?;
        made(version(args, 0)?.with_metadata(&runes::to_utf8(text.to_vec())))
    }),
    Function::new("SetPrerelease", TEXT, |context, args| {
        let text = text(args, 1)?;
        context.reserve(text.len().saturating_mul(4))?;
        made(version(args, 0)?.with_prerelease(&runes::to_utf8(text.to_vec())))
    }),
    Function::new("String", NONE, string),
    Function::new("Value", NONE, string),
];

/// Of one that was parsed, and so is a pointer to Go.
pub const OF_POINTER: &[Function] = &[
    Function::new("Compare", VERSION, |_, args| {
        Ok(Value::Int(order(args)? as i64))
    }),
    Function::new("Equal", VERSION, |_, args| {
        Ok(Value::Bool(order(args)? == Ordering::Equal))
    }),
    Function::new("GreaterThan", VERSION, |_, args| {
        Ok(Value::Bool(order(args)? == Ordering::Greater))
    }),
    Function::new("LessThan", VERSION, |_, args| {
        Ok(Value::Bool(order(args)? == Ordering::Less))
    }),
    Function::new("Original", NONE, |context, args| {
        context.string(&version(args, 0)?.original)
    }),
];

fn string(context: &mut Context, args: &[Value]) -> Outcome {
    context.string(version(args, 0)?.to_string())
}

fn version(args: &[Value], index: usize) -> Result<&Version, FunctionError> {
    match any(args, index) {
        Value::Version(version) => Ok(version),
        Value::Nil => Err(FunctionError::new(NIL_POINTER)),
        other => Err(FunctionError::new(format!(
            "wrong type for value; expected *semver.Version; got {}",
            other.type_name()
        ))),
    }
}

fn order(args: &[Value]) -> Result<Ordering, FunctionError> {
    Ok(version(args, 0)?.precedence(version(args, 1)?))
}

fn incremented(args: &[Value], place: usize) -> Outcome {
    Ok(Value::Version(Arc::new(
        version(args, 0)?.incremented(place),
    )))
}

fn made(version: Result<Version, VersionError>) -> Outcome {
    match version {
        Ok(version) => Ok(Value::Version(Arc::new(version))),
        Err(error) => Err(FunctionError::new(error.to_string())),
    }
}
