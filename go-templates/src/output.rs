//! The output of one rendering, and whether it is a single typed value. Charges every byte to the budget before it stores it.

use crate::budget::{Budget, LimitError};
use crate::format;
use crate::runes;
use crate::value::{Typed, Value};

/// The result of a rendering while it is written.
#[derive(Debug, Default)]
pub struct Output {
    bytes: Vec<u8>,
    /// The typed value written, as long as nothing else was.
    only: Option<Typed>,
}

impl Output {
    /// Writes literal text of the template.
    pub(crate) fn write_text(
        &mut self,
        text: &[u8],
        budget: &mut Budget,
    ) -> Result<(), LimitError> {
        if text.is_empty() {
            return Ok(());
        }
        budget.spend_output(text.len() as u64)?;
        self.bytes.extend_from_slice(text);
        self.only = None;
        Ok(())
    }

    /// Writes the value of an action.
    pub(crate) fn write_value(
        &mut self,
        value: &Value,
        budget: &mut Budget,
    ) -> Result<(), LimitError> {
        match value {
            Value::Nil => return self.write_text(b"<no value>", budget),
            Value::Str(text) => return self.write_text(text, budget),
            _ => {}
        }
        let was_empty = self.bytes.is_empty();
        format::print_value(value, &mut self.bytes, budget)?;
        self.only = match value {
            Value::Typed(typed) if was_empty => Some(*typed),
            _ => None,
        };
        Ok(())
    }

    /// The output, which need not be UTF-8.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The text, with every byte that is not UTF-8 replaced by `U+FFFD`.
    pub fn into_text(self) -> String {
        self.finish().0
    }

    /// The text as [`Output::into_text`] has it, and the typed value if it is all that was written.
    pub fn finish(self) -> (String, Option<Typed>) {
        (runes::to_utf8(self.bytes), self.only)
    }
}
