//! Go's [text/template](https://pkg.go.dev/text/template) and [sprig](https://masterminds.github.io/sprig/)'s functions: the same
//! results and the same messages, byte for byte.
//!
//! ```
//! use go_templates::{Context, Library, Template, Value};
//!
//! let library = Library::sprig();
//! let template = Template::parse(&library, "greeting", "Hello {{ .name | upper }}!")?;
//! let variables = Value::dict([("name", Value::str("world"))]);
//! let output = template.render(&variables, &mut Context::default())?;
//! assert_eq!(output.into_text(), "Hello WORLD!");
//! # Ok::<(), go_templates::TemplateError>(())
//! ```
//!
//! A template that is invalid, or that reads a missing value, fails with Go's message:
//!
//! ```
//! # use go_templates::{Context, Library, Template, Value};
//! let template = Template::parse(&Library::sprig(), "t", "{{ .nope }}")?;
//! let error = template.render(&Value::dict([]), &mut Context::default()).unwrap_err();
//! assert_eq!(
//!     error.to_string(),
//!     r#"template: t:1:3: executing "t" at <.nope>: map has no entry for key "nope""#
//! );
//! # Ok::<(), go_templates::TemplateError>(())
//! ```
//!
//! The embedder passes in what a rendering depends on: the functions ([`Library`]), the limits ([`Budget`]), the time and the
//! seed for random values ([`Facts`]). Nothing here reads a clock, draws chance or does I/O: the same input gives the same
//! output on every machine.

// `expect` says why it cannot fail.
#![warn(clippy::unwrap_used)]
// The bans of clippy.toml; the tests may do more.
#![cfg_attr(
    not(test),
    forbid(
        clippy::disallowed_macros,
        clippy::disallowed_methods,
        clippy::disallowed_types
    )
)]

mod budget;
mod context;
mod duration;
mod error;
mod facts;
mod format;
mod functions;
mod library;
mod named;
pub mod number;
mod output;
#[cfg(test)]
mod planted;
mod quote;
mod runes;
mod signature;
mod template;
mod time;
pub mod value;
mod version;

pub use budget::{Budget, Limit, LimitError, Limits, SharedBudget, SharedLimits, Sharers};
pub use context::{Context, Suspended};
pub use error::TemplateError;
pub use facts::{Facts, Place, Seed};
pub use functions::json::parse_json;
pub use functions::url::hostname;
pub use functions::{Function, FunctionError, Outcome, arguments, methods};
pub use library::Library;
pub use output::Output;
pub use runes::to_utf8;
pub use signature::{Param, Signature};
pub use template::Template;
pub use value::Value;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
