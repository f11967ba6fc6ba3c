//! Parses and builds URLs as Go's net/url does, which differs from browsers.

mod escape;
mod parse;

use std::collections::BTreeMap;

use crate::context::Context;
use crate::functions::arguments::{NIL_POINTER, dict, text};
use crate::functions::{Function, FunctionError, Outcome};
use crate::signature::Param::{Dict, Str};
use crate::signature::Signature;
use crate::value::{self, Text, Value};

use parse::Url;
pub use parse::hostname;

pub const FUNCTIONS: &[Function] = &[
    Function::new("urlJoin", Signature::exactly(&[Dict]), url_join),
    Function::new("urlParse", Signature::exactly(&[Str]), url_parse),
];

/// The parts of a URL as a dict; a missing part is empty.
fn url_parse(context: &mut Context, args: &[Value]) -> Outcome {
    let whole = text(args, 0)?;
    context.reserve(whole.len().saturating_mul(4))?;
    let url = Url::parse(whole)
        .map_err(|error| FunctionError::new(format!("unable to parse url: {error}")))?;
    let parts = [
        ("scheme", url.scheme.clone()),
        ("host", url.host.clone()),
        ("hostname", url.hostname().to_vec()),
        ("path", url.path.clone()),
        ("query", url.query.clone()),
        ("opaque", url.opaque.clone()),
        ("fragment", url.fragment.clone()),
        ("userinfo", url.userinfo()),
    ];
    let entries = parts.map(|(name, part)| (Text::from(name.as_bytes()), Value::str(part)));
    context.dict(BTreeMap::from(entries))
}

/// The URL of such a dict.
fn url_join(context: &mut Context, args: &[Value]) -> Outcome {
    let parts = dict(args, 0)?;
    let mut part = |name: &str| part(context, parts, name);
    let mut url = Url {
        scheme: part("scheme")?,
        host: part("host")?,
        path: part("path")?,
        query: part("query")?,
        opaque: part("opaque")?,
        fragment: part("fragment")?,
        user: None,
    };
    let userinfo = part("userinfo")?;
    if !userinfo.is_empty() {
        let around =
            Url::parse(&[b"proto://", &userinfo[..], b"@host"].concat()).map_err(|error| {
                FunctionError::new(format!("unable to parse userinfo in dict: {error}"))
            })?;
        url.user = around.user;
    }
    context.string(url.text())
}

/// A part of the dict; charged as long as escapes could make it.
fn part(
    context: &mut Context,
    parts: Option<&value::Dict>,
    name: &str,
) -> Result<Vec<u8>, FunctionError> {
    let part = match parts.and_then(|parts| parts.get(name.as_bytes())) {
        None => return Ok(Vec::new()),
        Some(Value::Str(part)) => part.to_vec(),
        Some(Value::Typed(typed)) => typed.text().into_bytes(),
        Some(Value::Nil) => return Err(FunctionError::new(NIL_POINTER)),
        Some(other) => {
            return Err(FunctionError::new(format!(
                "unable to parse {name} key, must be of type string, but {} found",
                other.kind().name()
            )));
        }
    };
    context.reserve(part.len().saturating_mul(4))?;
    Ok(part)
}
