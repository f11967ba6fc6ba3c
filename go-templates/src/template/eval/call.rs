//! Function calls: the number and types of arguments, and `and` and `or`, which stop early. Knows no function except `call` and
//! `len`.

use crate::error::TemplateError;
use crate::format;
use crate::functions::{Function, FunctionError, fit_typed};
use crate::named::Named;
use crate::signature::{Param, Signature};
use crate::template::ast::{Callee, Operand, Term};
use crate::template::eval::Machine;
use crate::template::eval::operand::Given;
use crate::template::eval::place::Place;
use crate::template::eval::slot::Slot;
use crate::value::Value;

/// `and` and `or` take values of any type, and at least one.
const LOGIC: Signature = Signature::at_least(&[Param::Reflect], Param::Reflect);

impl<'t> Machine<'t, '_> {
    /// Calls with `args` and the piped value behind them. `place` is what errors of the function itself name.
    pub(super) fn call(
        &mut self,
        callee: &Callee,
        place: Place<'t>,
        args: &'t [Operand],
        dot: &Slot,
        piped: Option<Value>,
    ) -> Result<Value, TemplateError> {
        self.spend_step()?;
        match callee {
            Callee::And => self.logic("and", false, args, dot, piped),
            Callee::Or => self.logic("or", true, args, dot, piped),
            Callee::Library(function) => {
                self.call_function(function, place, None, args, dot, piped)
            }
        }
    }

    /// The first argument with the truth `ends`, or else the last one. Those behind it are not evaluated.
    fn logic(
        &mut self,
        name: &str,
        ends: bool,
        args: &'t [Operand],
        dot: &Slot,
        piped: Option<Value>,
    ) -> Result<Value, TemplateError> {
        self.check_count(name, &LOGIC, args.len(), piped.is_some())?;
        let mut value = Value::Nil;
        for arg in args {
            value = self.arg(arg, Param::Reflect, dot)?.value;
            if value.truth() == ends {
                return Ok(value);
            }
        }
        Ok(piped.unwrap_or(value))
    }

    /// Calls a function, or a method of `receiver`.
    pub(super) fn call_function(
        &mut self,
        function: &Function,
        place: Place<'t>,
        receiver: Option<Value>,
        args: &'t [Operand],
        dot: &Slot,
        piped: Option<Value>,
    ) -> Result<Value, TemplateError> {
        let signature = &function.signature;
        self.check_count(function.name, signature, args.len(), piped.is_some())?;
        let mut values = Vec::with_capacity(args.len() + 2);
        values.extend(receiver);
        let mut has_nil_interface = false;
        for (index, arg) in args.iter().enumerate() {
            let param = signature.param(index).unwrap_or(Param::Any);
            let slot = self.arg(arg, param, dot)?;
            has_nil_interface |= slot.is_nil_interface();
            values.push(slot.value);
        }
        if let Some(piped) = piped {
            let param = signature.param(args.len()).unwrap_or(Param::Any);
            values.push(self.fit(Slot::plain(piped), param)?.value);
        }
        let outcome = match function.name {
            // Only `len` distinguishes a nil interface from a missing value; for other functions both are `Value::Nil`.
            "len" if has_nil_interface => {
                Err(FunctionError::Message("len of nil pointer".to_owned()))
            }
            "call" => Err(refusal_of_call(args.first(), &values)),
            _ => function.invoke(self.context, &values),
        };
        outcome.map_err(|error| {
            self.frame.at = place;
            match error {
                FunctionError::Message(message) => {
                    self.fail(format!("error calling {}: {message}", function.name))
                }
                FunctionError::Limit(limit) => self.limit(limit),
            }
        })
    }

    fn check_count(
        &self,
        name: &str,
        signature: &Signature,
        args: usize,
        is_piped: bool,
    ) -> Result<(), TemplateError> {
        let wanted = signature.fixed.len();
        let got = args + usize::from(is_piped);
        let wrong = format!("wrong number of args for {name}: want");
        match signature.variadic {
            // Go leaves the piped value out of this count.
            Some(_) if got < wanted => {
                Err(self.fail(format!("{wrong} at least {wanted} got {args}")))
            }
            None if got != wanted => Err(self.fail(format!("{wrong} {wanted} got {got}"))),
            _ => Ok(()),
        }
    }

    /// The value of an argument for a parameter. A constant takes the parameter's type.
    fn arg(&mut self, arg: &'t Operand, param: Param, dot: &Slot) -> Result<Slot, TemplateError> {
        self.frame.at = Place::Operand(arg);
        match &arg.term {
            Term::Nil if param.takes_nil() => Ok(Slot::plain(Value::Nil)),
            Term::Nil => Err(self.fail(format!("cannot assign nil to {}", param.go_name()))),
            Term::Bool(_) | Term::Number(_) | Term::Quoted(_) => {
                self.constant(arg, param).map(Slot::plain)
            }
            _ => {
                let slot = self.operand(arg, dot, Given::default())?;
                self.fit(slot, param)
            }
        }
    }

    fn constant(&mut self, arg: &'t Operand, param: Param) -> Result<Value, TemplateError> {
        let number = match &arg.term {
            Term::Number(number) => Some(number),
            _ => None,
        };
        let (wanted, value) = match param {
            Param::Any | Param::Reflect => {
                return self
                    .operand(arg, &Slot::plain(Value::Nil), Given::default())
                    .map(|slot| slot.value);
            }
            Param::Bool => match arg.term {
                Term::Bool(value) => ("bool", Some(Value::Bool(value))),
                _ => ("bool", None),
            },
            Param::Str => match &arg.term {
                Term::Quoted(quoted) => ("string", Some(Value::Str(quoted.text.clone()))),
                _ => ("string", None),
            },
            Param::Int => ("integer", number.and_then(|n| n.int).map(Value::Int)),
            Param::Int64 => ("integer", number.and_then(|n| n.int).map(Value::Int64)),
            // Go drops the bits that are too many.
            Param::Uint32 => {
                let value = number.and_then(|n| n.uint).map(Value::Uint64);
                ("unsigned integer", value)
            }
            Param::Float64 => ("float", number.and_then(|n| n.float).map(Value::Float)),
            Param::Named("time.Duration") => {
                let value = number.and_then(|n| n.int);
                ("integer", value.map(|n| Value::Named(Named::Duration(n))))
            }
            Param::List | Param::StrList | Param::Dict | Param::StrDict | Param::Named(_) => {
                let type_name = param.go_name();
                return Err(self.fail(format!("can't handle {arg} for arg of type {type_name}")));
            }
        };
        value.ok_or_else(|| self.fail(format!("expected {wanted}; found {arg}")))
    }

    /// The value for a parameter, if Go could assign it.
    fn fit(&mut self, slot: Slot, param: Param) -> Result<Slot, TemplateError> {
        let wanted = param.go_name();
        let fitting = match &slot.value {
            Value::Nil if slot.boxed => {
                let fits = param.takes_type(slot.type_name());
                fits.then_some(Value::Nil)
            }
            Value::Nil if param.takes_nil() => Some(Value::Nil),
            Value::Nil => return Err(self.fail(format!("invalid value; expected {wanted}"))),
            Value::Typed(_) => fit_typed(&slot.value, param),
            value => param.takes_type(value.type_name()).then(|| value.clone()),
        };
        let got = match &slot.value {
            Value::Nil => slot.type_name(),
            value => value.type_name(),
        };
        let boxed = slot.boxed;
        match fitting {
            Some(value) => Ok(Slot { value, boxed }),
            None => Err(self.fail(format!(
                "wrong type for value; expected {wanted}; got {got}"
            ))),
        }
    }

    /// A value as it prints, for a message.
    pub(super) fn text(&mut self, value: &Value) -> Result<String, TemplateError> {
        match format::text(value, &mut self.context.budget) {
            Ok(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
            Err(limit) => Err(self.limit(limit)),
        }
    }
}

/// `call` is for values that are functions, which no template here can have. `first` is its first operand as written.
fn refusal_of_call(first: Option<&Operand>, values: &[Value]) -> FunctionError {
    FunctionError::Message(match values.first() {
        None | Some(Value::Nil) => "call of nil".to_owned(),
        Some(value) => {
            let type_name = value.type_name();
            let name = match (first, value) {
                (Some(operand), _) => operand.to_string(),
                (None, Value::Str(text)) => String::from_utf8_lossy(text).into_owned(),
                (None, _) => format!("<{type_name} Value>"),
            };
            format!("non-function {name} of type {type_name}")
        }
    })
}
