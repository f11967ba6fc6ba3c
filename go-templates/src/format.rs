//! Values as Go's fmt prints them. Charges what it writes to the budget, so that shared or cyclic values end with a limit.

pub mod float;
pub mod number;
pub mod printf;
pub mod time;
pub mod verb;

use std::sync::Arc;

use crate::budget::{Budget, LimitError};
use crate::value::{Text, Value};

use verb::Formatter;

/// Appends a value as `%v` prints it, charged to the output of the rendering.
pub fn print_value(
    value: &Value,
    out: &mut Vec<u8>,
    budget: &mut Budget,
) -> Result<(), LimitError> {
    let mut writer = Writer {
        out,
        budget,
        charge: Budget::spend_output,
    };
    Formatter::new(&mut writer).value(value)
}

/// A value as `%v` prints it, charged to the memory of the rendering.
pub fn text(value: &Value, budget: &mut Budget) -> Result<Text, LimitError> {
    match value {
        Value::Str(text) => Ok(text.clone()),
        _ => {
            let mut out = Vec::new();
            Formatter::new(&mut Writer::in_memory(&mut out, budget)).value(value)?;
            Ok(Arc::from(out))
        }
    }
}

/// Values one after the other, as `print` joins them: a space between two that are not strings.
pub fn sprint(values: &[Value], budget: &mut Budget) -> Result<Vec<u8>, LimitError> {
    let mut out = Vec::new();
    let mut writer = Writer::in_memory(&mut out, budget);
    let mut string_before = true;
    for (index, value) in values.iter().enumerate() {
        let is_string = matches!(value, Value::Str(_));
        if index > 0 && !is_string && !string_before {
            writer.push(b" ")?;
        }
        Formatter::new(&mut writer).value(value)?;
        string_before = is_string;
    }
    Ok(out)
}

/// Values with a space between each two and a newline at the end, as `println` joins them.
pub fn sprintln(values: &[Value], budget: &mut Budget) -> Result<Vec<u8>, LimitError> {
    let mut out = Vec::new();
    let mut writer = Writer::in_memory(&mut out, budget);
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            writer.push(b" ")?;
        }
        Formatter::new(&mut writer).value(value)?;
    }
    writer.push(b"\n")?;
    Ok(out)
}

/// A buffer that charges bytes before it stores them.
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    pub budget: &'a mut Budget,
    charge: fn(&mut Budget, u64) -> Result<(), LimitError>,
}

impl<'a> Writer<'a> {
    pub fn in_memory(out: &'a mut Vec<u8>, budget: &'a mut Budget) -> Writer<'a> {
        Writer {
            out,
            budget,
            charge: Budget::spend_memory,
        }
    }

    pub fn push(&mut self, bytes: &[u8]) -> Result<(), LimitError> {
        (self.charge)(self.budget, bytes.len() as u64)?;
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    pub fn repeat(&mut self, byte: u8, count: usize) -> Result<(), LimitError> {
        (self.charge)(self.budget, count as u64)?;
        self.out.resize(self.out.len() + count, byte);
        Ok(())
    }
}
