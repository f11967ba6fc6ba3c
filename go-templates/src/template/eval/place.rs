//! The node that is evaluated, for error messages. Evaluates nothing.

use crate::template::ast::{Command, Operand, Pipe, TemplateCall, Text};

#[derive(Clone, Copy)]
pub enum Place<'t> {
    Start,
    Text(&'t Text),
    Pipe(&'t Pipe),
    Command(&'t Command),
    Operand(&'t Operand),
    Call(&'t TemplateCall),
}

impl Place<'_> {
    /// Byte offset in the template.
    pub fn pos(&self) -> usize {
        match self {
            Place::Start => 0,
            Place::Text(text) => text.pos,
            Place::Pipe(pipe) => pipe.pos,
            Place::Command(command) => command.pos,
            Place::Operand(operand) => operand.pos,
            Place::Call(call) => call.pos,
        }
    }

    /// The place as written in the template, but with spaces and quotes in their standard form.
    pub fn source(&self) -> Option<String> {
        match self {
            Place::Start | Place::Text(_) => None,
            Place::Pipe(pipe) => Some(pipe.to_string()),
            Place::Command(command) => Some(command.to_string()),
            Place::Operand(operand) => Some(operand.to_string()),
            Place::Call(call) => Some(call.to_string()),
        }
    }
}
