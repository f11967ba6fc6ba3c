//! Why a template did not parse or render. Decides nothing.

use thiserror::Error;

use crate::budget::Limit;

/// Why a template did not parse or render. It prints as Go's error does, name and place included.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct TemplateError {
    /// The template's name.
    pub template: String,
    /// Counted from 1.
    pub line: Option<u32>,
    /// In bytes, the first is 0.
    pub column: Option<u32>,
    /// For a user, with name and place in it.
    pub message: String,
    /// The limit that ended the rendering, if one did.
    pub limit: Option<Limit>,
    /// The function that the template names and the library does not have, if that is why.
    pub unknown_function: Option<String>,
}
