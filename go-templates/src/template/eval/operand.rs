//! Commands, operands, field chains and constants: where a value comes from. Calls no function itself.

use std::mem;

use crate::error::TemplateError;
use crate::functions::methods::{Member, member};
use crate::quote::quote;
use crate::template::ast::{Command, Operand, Term};
use crate::template::eval::Machine;
use crate::template::eval::place::Place;
use crate::template::eval::slot::Slot;
use crate::template::literal::{Ideal, Number};
use crate::value::Value;

/// The inputs of a field that may be a method: its arguments, and the piped value.
#[derive(Default)]
pub(super) struct Given<'t> {
    args: &'t [Operand],
    piped: Option<Value>,
}

impl Given<'_> {
    fn is_something(&self) -> bool {
        !self.args.is_empty() || self.piped.is_some()
    }
}

impl<'t> Machine<'t, '_> {
    /// One command of a pipeline; `piped` is the value of the one before it, which becomes its last argument.
    pub(super) fn command(
        &mut self,
        command: &'t Command,
        dot: &Slot,
        piped: Option<Value>,
    ) -> Result<Slot, TemplateError> {
        self.spend_step()?;
        let first = &command.first;
        let has_args = !command.args.is_empty() || piped.is_some();
        match &first.term {
            Term::Function(callee) => {
                self.frame.at = Place::Operand(first);
                let place = Place::Command(command);
                let value = self.call(callee, place, &command.args, dot, piped)?;
                return Ok(Slot::plain(value));
            }
            // Go's error still has the previous position when it rejects arguments of a parenthesis.
            Term::Pipe(_) => self.refuse_args(first, has_args)?,
            Term::Field(_) | Term::Variable { .. } | Term::Chain { .. } => {}
            Term::Dot | Term::Nil | Term::Bool(_) | Term::Number(_) | Term::Quoted(_) => {
                self.frame.at = Place::Operand(first);
                self.refuse_args(first, has_args)?;
            }
        }
        if let Term::Nil = first.term {
            return Err(self.fail("nil is not a command".to_owned()));
        }
        let args = &command.args[..];
        let slot = self.operand(first, dot, Given { args, piped })?;
        if let Term::Variable { fields, .. } = &first.term
            && fields.is_empty()
        {
            self.refuse_args(first, has_args)?;
        }
        Ok(slot)
    }

    fn refuse_args(&self, first: &Operand, has_args: bool) -> Result<(), TemplateError> {
        if has_args {
            return Err(self.fail(format!("can't give argument to non-function {first}")));
        }
        Ok(())
    }

    /// The value of an operand where no type is asked for. `given` is for the last field.
    pub(super) fn operand(
        &mut self,
        operand: &'t Operand,
        dot: &Slot,
        given: Given<'t>,
    ) -> Result<Slot, TemplateError> {
        match &operand.term {
            Term::Dot => Ok(dot.clone()),
            Term::Nil => Ok(Slot::plain(Value::Nil)),
            Term::Bool(value) => Ok(Slot::plain(Value::Bool(*value))),
            Term::Number(number) => self.ideal(operand, number).map(Slot::plain),
            Term::Quoted(quoted) => Ok(Slot::plain(Value::Str(quoted.text.clone()))),
            Term::Pipe(pipe) => {
                self.enter()?;
                let value = self.pipeline(pipe, dot)?;
                self.leave();
                Ok(Slot::plain(value))
            }
            Term::Function(callee) => {
                self.frame.at = Place::Operand(operand);
                let value = self.call(callee, Place::Operand(operand), &[], dot, None)?;
                Ok(Slot::plain(value))
            }
            Term::Field(fields) => {
                self.frame.at = Place::Operand(operand);
                self.fields(operand, dot.clone(), fields, dot, given)
            }
            Term::Variable { name, fields } => {
                self.frame.at = Place::Operand(operand);
                let index = self.find_variable(name)?;
                let slot = self.frame.variables[index].1.clone();
                self.fields(operand, slot, fields, dot, given)
            }
            Term::Chain { base, fields } => {
                self.frame.at = Place::Operand(operand);
                let slot = self.operand(base, dot, Given::default())?;
                self.fields(operand, slot, fields, dot, given)
            }
        }
    }

    /// Follows `.a.b`, as `operand` writes it, from a value; only the last field can have arguments.
    fn fields(
        &mut self,
        operand: &'t Operand,
        mut slot: Slot,
        fields: &[String],
        dot: &Slot,
        mut given: Given<'t>,
    ) -> Result<Slot, TemplateError> {
        for (index, name) in fields.iter().enumerate() {
            let given = match index + 1 == fields.len() {
                true => mem::take(&mut given),
                false => Given::default(),
            };
            slot = self.field(operand, slot, name, dot, given)?;
        }
        Ok(slot)
    }

    fn field(
        &mut self,
        operand: &'t Operand,
        slot: Slot,
        name: &str,
        dot: &Slot,
        given: Given<'t>,
    ) -> Result<Slot, TemplateError> {
        let has_args = given.is_something();
        let message = match &slot.value {
            Value::Nil if slot.boxed => {
                format!("nil pointer evaluating {}.{name}", slot.type_name())
            }
            Value::Nil => format!("nil data; no entry for key {}", quote(name.as_bytes())),
            Value::Dict(_) if has_args => format!("{name} is not a method but has arguments"),
            Value::Dict(dict) => match dict.get(name.as_bytes()) {
                Some(value) => return Ok(Slot::element(value, dict.element())),
                None => format!("map has no entry for key {}", quote(name.as_bytes())),
            },
            value => match member(value, name) {
                Some(Member::Method(method)) => {
                    let (args, piped) = (given.args, given.piped);
                    let receiver = Some(slot.value);
                    let place = Place::Operand(operand);
                    self.spend_step()?;
                    let value = self.call_function(method, place, receiver, args, dot, piped)?;
                    return Ok(Slot::plain(value));
                }
                Some(Member::Field(_)) if has_args => {
                    format!("{name} has arguments but cannot be invoked as function")
                }
                Some(Member::Field(value)) => return Ok(Slot::plain(value)),
                Some(Member::Unusable(why)) => why,
                None => format!("can't evaluate field {name} in type {}", slot.type_name()),
            },
        };
        Err(self.fail(message))
    }

    /// A number without an expected type.
    pub(super) fn ideal(
        &mut self,
        operand: &'t Operand,
        number: &Number,
    ) -> Result<Value, TemplateError> {
        self.frame.at = Place::Operand(operand);
        match number.ideal() {
            Ideal::Int(int) => Ok(Value::Int(int)),
            Ideal::Float(float) => Ok(Value::Float(float)),
            Ideal::Overflow => Err(self.fail(format!("{} overflows int", number.text))),
        }
    }
}
