//! Times, durations and zones. `now` is given with the rendering's facts: it does not move, so nothing rendered with it does.

mod methods;
mod parse;
mod zone;

use std::rc::Rc;

use jiff::{SignedDuration, Timestamp};

use crate::context::Context;
use crate::duration;
use crate::format::time::format;
use crate::functions::arguments::{any, text};
use crate::functions::{Function, FunctionError, Outcome};
use crate::runes;
use crate::signature::Param::{Any, Named, Str};
use crate::signature::Signature;
use crate::time::{Time, Zone};
use crate::value::{Typed, Value};

pub use methods::{NAMED, OF_DURATION, OF_TIME};

const ONE: Signature = Signature::exactly(&[Any]);
const TWO_TEXTS: Signature = Signature::exactly(&[Str, Str]);
const ZONED: Signature = Signature::exactly(&[Str, Any, Str]);
const MODIFY: Signature = Signature::exactly(&[Str, Named("time.Time")]);

/// The layout of an HTML date input.
const HTML: &str = "2006-01-02";

pub const FUNCTIONS: &[Function] = &[
    Function::new("ago", ONE, ago),
    Function::new("date", Signature::exactly(&[Str, Any]), |context, args| {
        formatted(context, &layout(args)?, any(args, 1), b"UTC")
    }),
    Function::new("dateInZone", ZONED, date_in_zone),
    Function::new("dateModify", MODIFY, date_modify),
    Function::new("date_in_zone", ZONED, date_in_zone),
    Function::new("date_modify", MODIFY, date_modify),
    Function::new("duration", ONE, |_, args| {
        let seconds = match any(args, 0) {
            Value::Int64(seconds) | Value::Typed(Typed::Int(seconds)) => *seconds,
            Value::Str(text) => duration::whole_number(text),
            _ => 0,
        };
        Ok(Value::str(duration::show(
            seconds.wrapping_mul(duration::SECOND),
        )))
    }),
    Function::new("durationRound", ONE, duration_round),
    Function::new("htmlDate", ONE, |context, args| {
        formatted(context, HTML, any(args, 0), b"UTC")
    }),
    Function::new(
        "htmlDateInZone",
        Signature::exactly(&[Any, Str]),
        |context, args| formatted(context, HTML, any(args, 0), text(args, 1)?),
    ),
    Function::new("mustDateModify", MODIFY, must_date_modify),
    Function::new("mustToDate", TWO_TEXTS, |context, args| {
        read(context, args)?.map_err(FunctionError::new)
    }),
    Function::new("must_date_modify", MODIFY, must_date_modify),
    Function::new("now", Signature::exactly(&[]), |context, _| {
        Ok(Value::time(Time::utc(now(context)?)))
    }),
    Function::new("toDate", TWO_TEXTS, |context, args| {
        match read(context, args)? {
            Ok(time) => Ok(time),
            Err(why) if why.ends_with(parse::OUTSIDE) => Err(FunctionError::new(why)),
            // A value that does not parse gives Go's zero time.
            Err(_) => Ok(Value::time(Time::utc(parse::year_one()))),
        }
    }),
    Function::new(
        "unixEpoch",
        Signature::exactly(&[Named("time.Time")]),
        |_, args| {
            let nanoseconds = time(args, 0)?.moment.as_nanosecond();
            let seconds = nanoseconds.div_euclid(i128::from(duration::SECOND));
            Ok(Value::str(seconds.to_string()))
        },
    ),
];

fn now(context: &Context) -> Result<Timestamp, FunctionError> {
    context.facts.now.map_err(FunctionError::new)
}

fn time(args: &[Value], index: usize) -> Result<&Rc<Time>, FunctionError> {
    match any(args, index) {
        Value::Time(time) => Ok(time),
        other => Err(FunctionError::new(format!(
            "wrong type for value; expected time.Time; got {}",
            other.type_name()
        ))),
    }
}

fn layout(args: &[Value]) -> Result<String, FunctionError> {
    layout_at(args, 0)
}

fn layout_at(args: &[Value], index: usize) -> Result<String, FunctionError> {
    Ok(runes::to_utf8(text(args, index)?.to_vec()))
}

/// A time, or seconds since 1970; anything else counts as `now`.
fn moment(context: &Context, value: &Value) -> Result<Timestamp, FunctionError> {
    match value.plain() {
        Value::Time(time) => Ok(time.moment),
        Value::Int(seconds) | Value::Int64(seconds) => {
            Timestamp::from_second(seconds).map_err(|_| FunctionError::new(parse::OUTSIDE))
        }
        _ => now(context),
    }
}

fn formatted(context: &mut Context, layout: &str, value: &Value, zone: &[u8]) -> Outcome {
    let moment = moment(context, value)?;
    let zone = zone::at(moment, zone, &mut context.budget)?.unwrap_or_else(Zone::utc);
    context.reserve(layout.len() * 4)?;
    context.string(format(&Time { moment, zone }, layout))
}

fn date_in_zone(context: &mut Context, args: &[Value]) -> Outcome {
    formatted(context, &layout(args)?, any(args, 1), text(args, 2)?)
}

/// Parses a text by a layout; the inner error says why it does not parse.
fn read(context: &mut Context, args: &[Value]) -> Result<Result<Value, String>, FunctionError> {
    let (layout, value) = (layout(args)?, runes::to_utf8(text(args, 1)?.to_vec()));
    context.reserve(layout.len() + value.len())?;
    Ok(parse::time(&layout, &value).map(Value::time))
}

/// An invalid duration leaves the time unchanged.
fn date_modify(_: &mut Context, args: &[Value]) -> Outcome {
    let time = time(args, 1)?;
    match duration::parse(text(args, 0)?) {
        Ok(nanoseconds) => later(time, nanoseconds),
        Err(_) => Ok(Value::Time(time.clone())),
    }
}

fn must_date_modify(_: &mut Context, args: &[Value]) -> Outcome {
    let nanoseconds = duration::parse(text(args, 0)?).map_err(FunctionError::new)?;
    later(time(args, 1)?, nanoseconds)
}

fn later(time: &Time, nanoseconds: i64) -> Outcome {
    let moment = time
        .moment
        .checked_add(SignedDuration::from_nanos(nanoseconds));
    match moment {
        Ok(moment) => Ok(Value::time(Time {
            moment,
            zone: time.zone.clone(),
        })),
        Err(_) => Err(FunctionError::new(parse::OUTSIDE)),
    }
}

/// Nanoseconds from a moment to now, at most what a duration can hold.
fn since(context: &Context, moment: Timestamp) -> Result<i64, FunctionError> {
    let nanoseconds = now(context)?.as_nanosecond() - moment.as_nanosecond();
    Ok(nanoseconds.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64)
}

/// How long ago, to the second.
fn ago(context: &mut Context, args: &[Value]) -> Outcome {
    let moment = moment(context, any(args, 0))?;
    let nanoseconds = since(context, moment)?;
    Ok(Value::str(duration::show(duration::rounded(
        nanoseconds,
        duration::SECOND,
    ))))
}

fn duration_round(context: &mut Context, args: &[Value]) -> Outcome {
    let nanoseconds = match any(args, 0) {
        Value::Str(text) => duration::parse(text).unwrap_or(0),
        Value::Int64(nanoseconds) => *nanoseconds,
        Value::Time(time) => since(context, time.moment)?,
        _ => 0,
    };
    Ok(Value::str(duration::largest_unit(nanoseconds)))
}
