//! Tracks the resources and output of one rendering. The template's context holds it under a name that no template can write.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use go_templates::value::Typed;
use go_templates::{Budget, Context, FunctionError, LimitError, Outcome, Suspended};
use minijinja::value::Object;
use minijinja::{Error, ErrorKind, State, Value};

use crate::decide::template::jinja::library::undefined;

/// No identifier, so that a template can neither read nor replace it.
pub const NAME: &str = " meter";

/// Typed values that one rendering remembers; it treats further ones as plain numbers.
const TYPED_MAX: usize = 1000;

#[derive(Debug, Clone)]
pub struct Meter(Arc<Mutex<Used>>);

impl Object for Meter {}

#[derive(Debug)]
struct Used {
    /// Away while a function runs.
    context: Option<Suspended>,
    /// The results of `int`, `float` and `bool`: to Jinja these are plain numbers, so that it can calculate with them.
    typed: Vec<Typed>,
    /// The last typed value that was written, and its text.
    written: Option<(Typed, String)>,
    limit: Option<LimitError>,
    /// The function that last got an undefined argument.
    missed: Option<&'static str>,
}

impl Meter {
    pub fn new(context: Context) -> Meter {
        Meter(Arc::new(Mutex::new(Used {
            context: Some(context.suspend()),
            typed: Vec::new(),
            written: None,
            limit: None,
            missed: None,
        })))
    }

    /// The meter of the template that is being rendered.
    pub fn of(state: &State) -> Result<Meter, Error> {
        state
            .lookup(NAME)
            .and_then(|value| value.downcast_object_ref::<Meter>().cloned())
            .ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "no rendering is running"))
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls a function of the table without holding the lock.
    pub fn call(&self, function: impl FnOnce(&mut Context) -> Outcome) -> Result<Outcome, Error> {
        let suspended = self.used().context.take();
        let Some(suspended) = suspended else {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                "a function is running",
            ));
        };
        let mut context = Context::resume(suspended);
        let outcome = function(&mut context);
        self.used().context = Some(context.suspend());
        Ok(outcome)
    }

    /// Charges the budget; fails if a limit is reached.
    pub fn spend(
        &self,
        charge: impl FnOnce(&mut Budget) -> Result<(), LimitError>,
    ) -> Result<(), Error> {
        let mut used = self.used();
        let Some(context) = &mut used.context else {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                "a function is running",
            ));
        };
        let charged = charge(&mut context.budget);
        drop(used);
        charged.map_err(|limit| self.stopped(limit))
    }

    /// Records a limit that was reached, and returns its error.
    pub fn stopped(&self, limit: LimitError) -> Error {
        self.used().limit = Some(limit);
        Error::new(ErrorKind::InvalidOperation, limit.to_string())
    }

    pub fn failed(&self, name: &str, error: FunctionError) -> Error {
        match error {
            FunctionError::Limit(limit) => self.stopped(limit),
            FunctionError::Message(message) => Error::new(
                ErrorKind::InvalidOperation,
                format!("error calling {name}: {message}"),
            ),
        }
    }

    /// Records the function, and returns the error for its undefined argument.
    pub fn undefined_argument(&self, function: &'static str, argument: &Value) -> Error {
        self.used().missed = Some(function);
        undefined(argument)
    }

    pub fn missed(&self) -> Option<&'static str> {
        self.used().missed
    }

    pub fn limit(&self) -> Option<LimitError> {
        self.used().limit
    }

    pub fn remember(&self, typed: Typed) {
        let mut used = self.used();
        if used.typed.len() < TYPED_MAX && !used.typed.contains(&typed) {
            used.typed.push(typed);
        }
    }

    /// The text of a number or boolean about to be written, if it is a typed value.
    pub fn typed_text(&self, value: Typed) -> Option<String> {
        let mut used = self.used();
        used.typed.contains(&value).then(|| {
            let text = value.text();
            used.written = Some((value, text.clone()));
            text
        })
    }

    /// The typed value, if the whole output is one.
    pub fn typed_output(&self, output: &str) -> Option<Typed> {
        let used = self.used();
        let (typed, text) = used.written.as_ref()?;
        (text == output).then_some(*typed)
    }
}
