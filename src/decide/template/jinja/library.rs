//! The function table as Jinja's filters and functions, a few of Jinja's own filters, and the output of values. If both have a
//! name (`list`, `split`, `slice`, `indent`, `min`, `max`), the table's function wins.

use std::fmt::{self, Write};
use std::mem::size_of;
use std::sync::Arc;

use go_templates::value::{Named, Typed, Value as TableValue};
use go_templates::{Budget, Context, Function, FunctionError, LimitError, Outcome, Param};
use minijinja::value::{Object, ObjectRepr, Rest, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, Output, State, Value, filters, tests};

use crate::decide::template::functions::LIBRARY;
use crate::decide::template::jinja::convert::{from_jinja, to_jinja};
use crate::decide::template::jinja::meter::Meter;
use crate::decide::template::jinja::operators;

/// Functions that accept an undefined variable and replace it by another value.
const TAKE_UNDEFINED: [&str; 6] = ["all", "any", "coalesce", "default", "empty", "ternary"];

/// The most items that `range` returns.
const RANGE_MAX: usize = 10_000;

pub fn add_to(environment: &mut Environment<'static>) {
    for function in LIBRARY
        .functions()
        .filter(|function| function.name != "call")
    {
        add_function(
            environment,
            function.name,
            move |state: &mut State, args: Rest<Value>| call(state, function, None, &args.0),
        );
        environment.add_filter(
            function.name,
            move |state: &mut State, mut args: Rest<Value>| {
                // A piped value is the last argument, as in Go.
                if !args.is_empty() {
                    args.rotate_left(1);
                }
                call(state, function, None, &args.0)
            },
        );
    }
    for name in LIBRARY.refused() {
        let refuse = move |_: Rest<Value>| -> Result<Value, Error> {
            let refusal = LIBRARY.refusal(name).unwrap_or_default();
            Err(Error::new(ErrorKind::InvalidOperation, refusal))
        };
        add_function(environment, name, refuse);
        environment.add_filter(name, refuse);
    }
    add_function(environment, "call", call_nothing);
    environment.add_filter("call", call_nothing);
    add_logic(environment);
    add_own_filters(environment);
    add_tests(environment);
    let range = Value::from_function(range);
    add_function(
        environment,
        "range",
        move |state: &mut State, args: Rest<ValueOrKwargs>| {
            call_own(state, "range", &range, &args.into_values())
        },
    );
    environment.add_filter(operators::VARIABLE, |value: Value| {
        match value.downcast_object_ref::<Callable>() {
            Some(_) => Value::UNDEFINED,
            None => value,
        }
    });
    environment.set_formatter(write_value);
    operators::add_to(environment);
}

/// Whether templates can call something of this name.
pub fn is_function(name: &str) -> bool {
    name == "range" || LIBRARY.get(name).is_some() || LIBRARY.refusal(name).is_some()
}

/// Adds what templates call by its name.
fn add_function<F, Rv, Args>(environment: &mut Environment<'static>, name: &'static str, f: F)
where
    F: minijinja::functions::Function<Rv, Args>,
    Rv: minijinja::value::FunctionResult,
    Args: for<'a> minijinja::value::FunctionArgs<'a>,
{
    let function = Value::from_function(f);
    environment.add_global(name, Value::from_object(Callable(function)));
}

/// A function as a value. If a template does not call it, it means a variable that the row lacks.
struct Callable(Value);

impl fmt::Debug for Callable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("function")
    }
}

impl Object for Callable {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn call(self: &Arc<Self>, state: &mut State, args: &[Value]) -> Result<Value, Error> {
        self.0.call(state, args)
    }
}

/// `call` calls a value in Go, but no value here is a function.
fn call_nothing(_: Rest<Value>) -> Result<Value, Error> {
    Err(Error::new(
        ErrorKind::InvalidOperation,
        "error calling call: no value is a function; use the function's name",
    ))
}

/// `and` and `or` as filters, because Jinja has them as operators. As in Go, they return the argument that decides, or else the
/// last.
fn add_logic(environment: &mut Environment<'static>) {
    for (name, decides) in [("and", false), ("or", true)] {
        environment.add_filter(name, move |state: &mut State, args: Rest<Value>| {
            let mut args = args.0;
            all_defined(&Meter::of(state)?, name, &args)?;
            let piped = args.len().min(1);
            args.rotate_left(piped);
            let deciding = args.iter().position(|arg| arg.is_true() == decides);
            let at = deciding.unwrap_or(args.len().saturating_sub(1));
            Ok::<Value, Error>(args.into_iter().nth(at).unwrap_or_default())
        });
    }
}

/// The error for an undefined value. minijinja adds what the value was.
pub fn undefined(value: &Value) -> Error {
    let error = value.get_attr("").err();
    error.unwrap_or_else(|| ErrorKind::UndefinedError.into())
}

fn all_defined(meter: &Meter, function: &'static str, args: &[Value]) -> Result<(), Error> {
    let missing = args.iter().find(|arg| arg.is_undefined());
    missing.map_or(Ok(()), |arg| Err(meter.undefined_argument(function, arg)))
}

/// Calls one of Jinja's own functions, whose errors do not name it.
fn call_own(
    state: &mut State,
    name: &'static str,
    function: &Value,
    args: &[Value],
) -> Result<Value, Error> {
    let meter = Meter::of(state)?;
    all_defined(&meter, name, args)?;
    function
        .call(state, args)
        .map_err(|error| match error.detail() {
            Some(detail) => Error::new(error.kind(), format!("error calling {name}: {detail}")),
            // minijinja still adds which nested value is undefined.
            None if error.kind() == ErrorKind::UndefinedError => error,
            None => Error::new(error.kind(), format!("error calling {name}")),
        })
}

/// Jinja's filters whose result is no larger than their input. The table's functions win over them.
fn add_own_filters(environment: &mut Environment<'static>) {
    let own = [
        ("abs", Value::from_function(filters::abs)),
        ("attr", Value::from_function(filters::attr)),
        ("capitalize", Value::from_function(filters::capitalize)),
        ("count", Value::from_function(filters::length)),
        ("dictsort", Value::from_function(filters::dictsort)),
        ("length", Value::from_function(filters::length)),
        ("lines", Value::from_function(filters::lines)),
        ("map", Value::from_function(filters::map)),
        ("reject", Value::from_function(filters::reject)),
        ("rejectattr", Value::from_function(filters::rejectattr)),
        ("select", Value::from_function(filters::select)),
        ("selectattr", Value::from_function(filters::selectattr)),
        ("sort", Value::from_function(filters::sort)),
        ("sum", Value::from_function(filters::sum)),
        ("unique", Value::from_function(filters::unique)),
    ];
    for (name, filter) in own {
        environment.add_filter(name, move |state: &mut State, args: Rest<ValueOrKwargs>| {
            let args = args.into_values();
            let work: usize = args.iter().map(|arg| arg.len().unwrap_or(1)).sum();
            let meter = Meter::of(state)?;
            meter.spend(|budget| {
                budget.spend_steps(work as u64)?;
                budget.spend_memory((work * size_of::<Value>()) as u64)
            })?;
            for arg in &args {
                let steps = operators::read(&meter, arg)?;
                // These filters compare: they read each value about log2(n) times.
                if ["dictsort", "sort", "unique"].contains(&name) {
                    let halved = u64::from(work.max(1).ilog2());
                    meter.spend(|budget| budget.spend_steps(steps.saturating_mul(halved)))?;
                }
            }
            call_own(state, name, &filter, &args)
        });
    }
    // The table's `default` with Jinja's second argument, which says whether an empty value counts as missing. In the table it
    // always does.
    environment.add_filter("default", |state: &mut State, args: Rest<Value>| {
        let [value, instead, flag] = args.0.as_slice() else {
            let mut args = args.0;
            let piped = args.len().min(1);
            args.rotate_left(piped);
            let function = LIBRARY.get("default").expect("it is in the table");
            return call(state, function, None, &args);
        };
        let is_missing = match flag.is_true() {
            true => value.is_undefined() || !value.is_true(),
            false => value.is_undefined(),
        };
        Ok(if is_missing {
            instead.clone()
        } else {
            value.clone()
        })
    });
    environment.add_filter("d", |state: &mut State, args: Rest<Value>| {
        state.apply_filter("default", &args.0)
    });
    let string = |state: &mut State, value: Value| shown(&Meter::of(state)?, &value);
    for (name, filter) in [
        ("items", Value::from_function(items)),
        ("string", Value::from_function(string)),
    ] {
        environment.add_filter(name, move |state: &mut State, args: Rest<ValueOrKwargs>| {
            call_own(state, name, &filter, &args.into_values())
        });
    }
}

/// The tests that follow `is`.
fn add_tests(environment: &mut Environment<'static>) {
    for (name, test) in [
        ("boolean", Value::from_function(tests::is_boolean)),
        ("defined", Value::from_function(tests::is_defined)),
        ("divisibleby", Value::from_function(tests::is_divisibleby)),
        ("endingwith", Value::from_function(tests::is_endingwith)),
        ("eq", Value::from_function(tests::is_eq)),
        ("even", Value::from_function(tests::is_even)),
        ("false", Value::from_function(tests::is_false)),
        ("float", Value::from_function(tests::is_float)),
        ("ge", Value::from_function(tests::is_ge)),
        ("gt", Value::from_function(tests::is_gt)),
        ("in", Value::from_function(tests::is_in)),
        ("integer", Value::from_function(tests::is_integer)),
        ("iterable", Value::from_function(tests::is_iterable)),
        ("le", Value::from_function(tests::is_le)),
        ("lower", Value::from_function(tests::is_lower)),
        ("lt", Value::from_function(tests::is_lt)),
        ("mapping", Value::from_function(tests::is_mapping)),
        ("ne", Value::from_function(tests::is_ne)),
        ("none", Value::from_function(tests::is_none)),
        ("number", Value::from_function(tests::is_number)),
        ("odd", Value::from_function(tests::is_odd)),
        ("sequence", Value::from_function(tests::is_sequence)),
        ("startingwith", Value::from_function(tests::is_startingwith)),
        ("string", Value::from_function(tests::is_string)),
        ("true", Value::from_function(tests::is_true)),
        ("undefined", Value::from_function(tests::is_undefined)),
        ("upper", Value::from_function(tests::is_upper)),
    ] {
        environment.add_test(name, move |state: &mut State, args: Rest<Value>| {
            let meter = Meter::of(state)?;
            for arg in &args.0 {
                operators::read(&meter, arg)?;
            }
            test.call(state, &args.0)
        });
    }
}

/// The entries of a dict, each a list of key and value.
fn items(state: &mut State, dict: Value) -> Result<Vec<Value>, Error> {
    let count = dict.len().unwrap_or(0);
    let meter = Meter::of(state)?;
    meter.spend(|budget| budget.spend_steps(count as u64))?;
    operators::read(&meter, &dict)?;
    let mut items = Vec::new();
    for key in dict.try_iter()? {
        let item = dict.get_item(&key)?;
        items.push(Value::from(vec![key, item]));
    }
    Ok(items)
}

/// `range(stop)`, `range(start, stop)`, `range(start, stop, step)`.
fn range(
    state: &mut State,
    first: i64,
    second: Option<i64>,
    step: Option<i64>,
) -> Result<Vec<i64>, Error> {
    let (start, stop) = second.map_or((0, first), |stop| (first, stop));
    let step = step.unwrap_or(1);
    let refused = |message: &str| Err(Error::new(ErrorKind::InvalidOperation, message.to_owned()));
    if step == 0 {
        return refused("the step of a range cannot be 0");
    }
    let distance = (i128::from(stop) - i128::from(start)) * i128::from(step.signum());
    let count = distance
        .max(0)
        .unsigned_abs()
        .div_ceil(u128::from(step.unsigned_abs()));
    if count > RANGE_MAX as u128 {
        return refused("a range has more than 10000 items");
    }
    Meter::of(state)?.spend(|budget| budget.spend_steps(count as u64))?;
    Ok((0..count as i64)
        .map(|index| start + index * step)
        .collect())
}

/// Calls a function of the table, or a method of `receiver`, with Jinja's values.
pub fn call(
    state: &mut State,
    function: &Function,
    receiver: Option<TableValue>,
    args: &[Value],
) -> Result<Value, Error> {
    let meter = Meter::of(state)?;
    if !TAKE_UNDEFINED.contains(&function.name) {
        all_defined(&meter, function.name, args)?;
    }
    let outcome = meter.call(|context| {
        let mut values: Vec<TableValue> = receiver.into_iter().collect();
        values.extend(fitted(context, function, args)?);
        context.budget.spend_steps(1)?;
        function.invoke(context, &values)
    })?;
    let value = outcome.map_err(|error| meter.failed(function.name, error))?;
    to_jinja(&value, &meter)
}

/// The arguments under the types that the function wants, or why they do not fit.
fn fitted(
    context: &mut Context,
    function: &Function,
    args: &[Value],
) -> Result<Vec<TableValue>, FunctionError> {
    let signature = &function.signature;
    let (least, given) = (signature.fixed.len(), args.len());
    let wanted = match signature.variadic {
        Some(_) if given < least => format!("at least {least}"),
        None if given != least => least.to_string(),
        _ => String::new(),
    };
    if !wanted.is_empty() {
        return Err(FunctionError::new(format!(
            "wrong number of args: want {wanted} got {given}"
        )));
    }
    let mut values = Vec::with_capacity(given);
    for (index, arg) in args.iter().enumerate() {
        let value = from_jinja(arg, &mut context.budget)?;
        let param = signature.param(index).unwrap_or(Param::Any);
        values.push(fitted_value(value, param)?);
    }
    Ok(values)
}

/// Jinja has one integer type, and accepts an integer where a float is expected.
fn fitted_value(value: TableValue, param: Param) -> Outcome {
    Ok(match (value, param) {
        (TableValue::Int(n), Param::Int64) => TableValue::Int64(n),
        (TableValue::Int(n), Param::Uint32) if u32::try_from(n).is_ok() => {
            TableValue::Uint64(n.unsigned_abs())
        }
        (TableValue::Int(n), Param::Float64) => TableValue::Float(n as f64),
        (TableValue::Int(n), Param::Named("time.Duration")) => {
            TableValue::Named(Named::Duration(n))
        }
        (TableValue::Nil, param) if param.takes_nil() => TableValue::Nil,
        (value, param) if param.takes_type(value.type_name()) => value,
        (value, param) => {
            return Err(FunctionError::new(format!(
                "wrong type for value; expected {}; got {}",
                param.go_name(),
                value.type_name()
            )));
        }
    })
}

/// The output of a value in `{{ … }}`.
fn write_value(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    if value.is_undefined() {
        return Err(undefined(value));
    }
    let meter = Meter::of(state)?;
    let mut bounded = Bounded {
        out,
        meter: &meter,
        charge: |budget, bytes| budget.spend_output(bytes),
        error: None,
    };
    let typed = typed_of(value).and_then(|typed| meter.typed_text(typed));
    let written = match typed {
        Some(text) => bounded.write_str(&text),
        None => bounded.write_value(value),
    };
    bounded.finish(written)
}

fn typed_of(value: &Value) -> Option<Typed> {
    match value.kind() {
        ValueKind::Bool => Some(Typed::Bool(value.is_true())),
        ValueKind::Number if value.is_integer() => value.as_i64().map(Typed::Int),
        ValueKind::Number => f64::try_from(value.clone()).ok().map(Typed::Float),
        _ => None,
    }
}

/// The value's output as text, charged as memory.
pub fn shown(meter: &Meter, value: &Value) -> Result<String, Error> {
    if value.is_undefined() {
        return Err(undefined(value));
    }
    let mut text = String::new();
    let mut bounded = Bounded {
        out: &mut text,
        meter,
        charge: |budget, bytes| budget.spend_memory(bytes),
        error: None,
    };
    let written = bounded.write_value(value);
    bounded.finish(written)?;
    Ok(text)
}

type Charge = fn(&mut Budget, u64) -> Result<(), LimitError>;

/// Text charged piece by piece, before it is kept: a value can be far larger when written than in memory.
struct Bounded<'b, W: ?Sized> {
    out: &'b mut W,
    meter: &'b Meter,
    charge: Charge,
    error: Option<Error>,
}

impl<W: Write> Bounded<'_, W> {
    /// As minijinja writes it, but `true` and `false` as Kubernetes does.
    fn write_value(&mut self, value: &Value) -> fmt::Result {
        match (value.kind(), value.as_str()) {
            (ValueKind::Bool, _) => write!(self, "{}", value.is_true()),
            (_, Some(text)) => self.write_str(text),
            _ => write!(self, "{value}"),
        }
    }

    fn finish(self, written: fmt::Result) -> Result<(), Error> {
        match (written, self.error) {
            (_, Some(error)) => Err(error),
            (Err(error), None) => Err(Error::from(error)),
            (Ok(()), None) => Ok(()),
        }
    }
}

impl<W: Write> Write for Bounded<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let charge = self.charge;
        match self.meter.spend(|budget| charge(budget, text.len() as u64)) {
            Ok(()) => self.out.write_str(text),
            Err(error) => {
                self.error = Some(error);
                Err(fmt::Error)
            }
        }
    }
}
