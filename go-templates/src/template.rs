//! Go's template language, as text/template of Go 1.26 reads and runs it with `missingkey=error`. Functions come from a library.

use std::collections::BTreeMap;

use crate::context::Context;
use crate::error::TemplateError;
use crate::library::Library;
use crate::output::Output;
use crate::template::ast::List;
use crate::value::Value;

mod ast;
mod eval;
mod lex;
mod literal;
mod parse;
#[cfg(test)]
mod tests;

/// A parsed template: parse once, render as often as needed, from any thread.
#[derive(Debug)]
pub struct Template {
    name: String,
    /// Byte offset at which each line begins.
    line_starts: Vec<usize>,
    /// Every template that the text defines, this one included.
    definitions: BTreeMap<String, List>,
}

impl Template {
    /// Parses `text`. An unknown function or variable is an error even in code that never runs; a call of an undefined template
    /// is not.
    pub fn parse(library: &Library, name: &str, text: &str) -> Result<Template, TemplateError> {
        let definitions = parse::parse(library, name, text)?;
        let after_newlines = text.match_indices('\n').map(|(index, _)| index + 1);
        Ok(Template {
            name: name.to_owned(),
            line_starts: std::iter::once(0).chain(after_newlines).collect(),
            definitions,
        })
    }

    /// Renders the template with `variables` as its dot, which is usually a dict. A template can change the dict (`set`, `unset`,
    /// `merge`), so pass a new one to each rendering. After an error the context's budget cannot be used again.
    pub fn render(
        &self,
        variables: &Value,
        context: &mut Context,
    ) -> Result<Output, TemplateError> {
        eval::render(self, variables, context)
    }

    /// Lines count from 1, columns are bytes and count from 0, as in Go's messages.
    fn line_and_column(&self, pos: usize) -> (usize, usize) {
        let line = self.line_starts.partition_point(|start| *start <= pos);
        (line, pos - self.line_starts[line - 1])
    }
}
