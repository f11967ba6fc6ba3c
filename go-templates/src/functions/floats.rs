//! Floats. The arithmetic is decimal and exact, as upstream, so that 0.1 and 0.2 make 0.3; what has no end ends at 16 decimals.

mod decimal;

use crate::context::Context;
use crate::functions::arguments::{any, int};
use crate::functions::cast::to_float;
use crate::functions::{Function, FunctionError, Outcome};
use crate::signature::Param::{Any, Float64, Int};
use crate::signature::Signature;
use crate::value::Value;

use decimal::Decimal;

const ONE: Signature = Signature::exactly(&[Any]);
const SOME: Signature = Signature::at_least(&[Any], Any);

pub const FUNCTIONS: &[Function] = &[
    Function::new("add1f", ONE, |context, args| {
        let one = [any(args, 0).clone(), Value::Int(1)];
        folded(context, &one, |sum, next| Ok(sum.plus(next)))
    }),
    Function::new("addf", Signature::at_least(&[], Any), |context, args| {
        folded(context, args, |sum, next| Ok(sum.plus(next)))
    }),
    Function::new("ceil", ONE, |_, args| {
        Ok(Value::Float(to_float(any(args, 0)).ceil()))
    }),
    Function::new("divf", SOME, |context, args| {
        folded(context, args, |quotient, next| {
            quotient
                .divided_by(next)
                .ok_or_else(|| FunctionError::new("decimal division by 0"))
        })
    }),
    Function::new("float64", ONE, |_, args| {
        Ok(Value::Float(to_float(any(args, 0))))
    }),
    Function::new("floor", ONE, |_, args| {
        Ok(Value::Float(to_float(any(args, 0)).floor()))
    }),
    Function::new("maxf", SOME, |_, args| {
        Ok(Value::Float(extreme(
            args,
            |a, b| a > b,
            f64::is_sign_negative,
        )))
    }),
    Function::new("minf", SOME, |_, args| {
        Ok(Value::Float(extreme(
            args,
            |a, b| a < b,
            f64::is_sign_positive,
        )))
    }),
    Function::new("mulf", SOME, |context, args| {
        folded(context, args, |product, next| Ok(product.times(next)))
    }),
    Function::new("round", Signature::at_least(&[Any, Int], Float64), round),
    Function::new("subf", SOME, |context, args| {
        folded(context, args, |difference, next| Ok(difference.minus(next)))
    }),
];

/// The arguments from left to right. None make 0.
fn folded(
    context: &mut Context,
    args: &[Value],
    join: fn(&Decimal, &Decimal) -> Result<Decimal, FunctionError>,
) -> Outcome {
    let mut result: Option<Decimal> = None;
    for arg in args {
        let next = decimal(context, arg)?;
        let joined = match &result {
            None => next,
            Some(before) => {
                // An upper bound of the result's size.
                let bytes = before.bytes() + next.bytes();
                context.reserve(bytes)?;
                context.budget.spend_steps(bytes as u64 / 16)?;
                join(before, &next)?
            }
        };
        result = Some(joined);
    }
    Ok(Value::Float(
        result.map_or(0.0, |decimal| decimal.to_float()),
    ))
}

fn decimal(context: &mut Context, value: &Value) -> Result<Decimal, FunctionError> {
    let float = to_float(value);
    if let Some(decimal) = Decimal::from_float(float) {
        return Ok(decimal);
    }
    let shown = context.text(&Value::Float(float))?;
    let shown = String::from_utf8_lossy(&shown);
    Err(FunctionError::new(format!(
        "Cannot create a Decimal from {shown}"
    )))
}

/// The largest or smallest float. NaN wins over all but an unlimited one, and of two zeros the one whose sign is not `weaker`.
fn extreme(args: &[Value], beats: fn(f64, f64) -> bool, weaker: fn(f64) -> bool) -> f64 {
    let mut floats = args.iter().map(to_float);
    let first = floats.next().unwrap_or(0.0);
    floats.fold(first, |best, next| {
        let is_unlimited = |float: f64| float.is_infinite() && beats(float, 0.0);
        if is_unlimited(best) || is_unlimited(next) {
            return if is_unlimited(best) { best } else { next };
        }
        let wins = next.is_nan() || beats(next, best) || (next == best && weaker(best));
        if wins && !best.is_nan() { next } else { best }
    })
}

/// Rounds to so many decimals. A positive rest is rounded up from `0.5`, or from the third argument; a negative number always
/// down.
fn round(_: &mut Context, args: &[Value]) -> Outcome {
    let (value, places) = (to_float(any(args, 0)), int(args, 1)?);
    let up_from = match any(args, 2) {
        Value::Float(float) => *float,
        _ => 0.5,
    };
    let power = power_of_ten(places);
    let shifted = power * value;
    let whole = if shifted % 1.0 >= up_from {
        shifted.ceil()
    } else {
        shifted.floor()
    };
    Ok(Value::Float(whole / power))
}

/// Ten to the power of `exponent`, with the last bits that Go's multiplication leaves.
fn power_of_ten(exponent: i64) -> f64 {
    if exponent.unsigned_abs() > 400 {
        return if exponent < 0 { 0.0 } else { f64::INFINITY };
    }
    // 10 is 0.625 times 2 to the power of 4. Fraction and exponent are multiplied apart.
    let (mut square, mut square_exponent) = (0.625, 4i32);
    let (mut fraction, mut binary) = (1.0, 0i32);
    let mut bits = exponent.unsigned_abs();
    while bits != 0 {
        if bits & 1 == 1 {
            fraction *= square;
            binary += square_exponent;
        }
        square *= square;
        square_exponent *= 2;
        if square < 0.5 {
            square += square;
            square_exponent -= 1;
        }
        bits >>= 1;
    }
    if exponent < 0 {
        (fraction, binary) = (1.0 / fraction, -binary);
    }
    // In two parts: one power of two may be too small or too large, and a small result is rounded once.
    fraction * 2f64.powi(binary / 2) * 2f64.powi(binary - binary / 2)
}
