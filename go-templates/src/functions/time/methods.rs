//! The methods of Go's times, durations, months and weekdays, without those that return bytes or zones.

use jiff::civil::DateTime;
use jiff::{SignedDuration, Timestamp};

use crate::context::Context;
use crate::duration;
use crate::format::time::{format, go_string, string};
use crate::functions::arguments::{any, int};
use crate::functions::time::{later, layout_at, parse, time};
use crate::functions::{Function, FunctionError, Outcome};
use crate::named::Named;
use crate::signature::Param::{Int, Named as Type, Str};
use crate::signature::Signature;
use crate::time::{Time, Zone};
use crate::value::Value;

const NONE: Signature = Signature::exactly(&[]);
const TIME: Signature = Signature::exactly(&[Type("time.Time")]);
const DURATION: Signature = Signature::exactly(&[Type("time.Duration")]);

/// The civil time in the time's own zone.
macro_rules! civil {
    ($name:literal, $field:ident) => {
        Function::new($name, NONE, |_, args| {
            let time = time(args, 0)?;
            let civil = time.zone.offset.to_datetime(time.moment);
            Ok(Value::Int(civil.$field().into()))
        })
    };
}

pub const OF_TIME: &[Function] = &[
    Function::new("Add", DURATION, |_, args| {
        later(time(args, 0)?, nanoseconds(args, 1)?)
    }),
    Function::new(
        "AddDate",
        Signature::exactly(&[Int, Int, Int]),
        |_, args| add_date(time(args, 0)?, int(args, 1)?, int(args, 2)?, int(args, 3)?),
    ),
    Function::new("After", TIME, |_, args| {
        Ok(Value::Bool(time(args, 0)?.moment > time(args, 1)?.moment))
    }),
    Function::new("Before", TIME, |_, args| {
        Ok(Value::Bool(time(args, 0)?.moment < time(args, 1)?.moment))
    }),
    Function::new("Compare", TIME, |_, args| {
        let order = time(args, 0)?.moment.cmp(&time(args, 1)?.moment);
        Ok(Value::Int(order as i64))
    }),
    civil!("Day", day),
    Function::new("Equal", TIME, |_, args| {
        Ok(Value::Bool(time(args, 0)?.moment == time(args, 1)?.moment))
    }),
    Function::new("Format", Signature::exactly(&[Str]), |context, args| {
        let layout = layout_at(args, 1)?;
        context.reserve(layout.len() * 4)?;
        context.string(format(time(args, 0)?, &layout))
    }),
    Function::new("GoString", NONE, |context, args| {
        context.string(go_string(time(args, 0)?))
    }),
    civil!("Hour", hour),
    // Only zones of the database have one, and no time here is in one of those.
    Function::new("IsDST", NONE, |_, args| {
        time(args, 0).map(|_| Value::Bool(false))
    }),
    Function::new("IsZero", NONE, |_, args| {
        Ok(Value::Bool(time(args, 0)?.moment == parse::year_one()))
    }),
    Function::new("Local", NONE, utc),
    civil!("Minute", minute),
    Function::new("Month", NONE, |_, args| {
        let time = time(args, 0)?;
        let civil = time.zone.offset.to_datetime(time.moment);
        Ok(Value::Named(Named::Month(civil.month().into())))
    }),
    civil!("Nanosecond", subsec_nanosecond),
    Function::new("Round", DURATION, |_, args| {
        let (time, unit) = (time(args, 0)?, nanoseconds(args, 1)?);
        let rest = rest(time, unit);
        match rest.unsigned_abs() * 2 < unit.unsigned_abs() {
            _ if unit <= 0 => Ok(Value::Time(time.clone())),
            true => later(time, -rest),
            false => later(time, unit - rest),
        }
    }),
    civil!("Second", second),
    Function::new("String", NONE, |context, args| {
        context.string(string(time(args, 0)?))
    }),
    Function::new("Sub", TIME, |_, args| {
        let between = time(args, 0)?.moment.as_nanosecond() - time(args, 1)?.moment.as_nanosecond();
        let between = between.clamp(i128::from(i64::MIN), i128::from(i64::MAX));
        Ok(Value::Named(Named::Duration(between as i64)))
    }),
    Function::new("Truncate", DURATION, |_, args| {
        let (time, unit) = (time(args, 0)?, nanoseconds(args, 1)?);
        match unit <= 0 {
            true => Ok(Value::Time(time.clone())),
            false => later(time, -rest(time, unit)),
        }
    }),
    Function::new("UTC", NONE, utc),
    Function::new("Unix", NONE, |_, args| since_1970(args, 1_000_000_000)),
    Function::new("UnixMicro", NONE, |_, args| since_1970(args, 1_000)),
    Function::new("UnixMilli", NONE, |_, args| since_1970(args, 1_000_000)),
    Function::new("UnixNano", NONE, |_, args| since_1970(args, 1)),
    Function::new("Weekday", NONE, |_, args| {
        let time = time(args, 0)?;
        let civil = time.zone.offset.to_datetime(time.moment);
        let day = civil.weekday().to_sunday_zero_offset();
        Ok(Value::Named(Named::Weekday(day.into())))
    }),
    civil!("Year", year),
    civil!("YearDay", day_of_year),
];

pub const OF_DURATION: &[Function] = &[
    Function::new("Abs", NONE, |_, args| {
        of_duration(nanoseconds(args, 0)?.saturating_abs())
    }),
    Function::new("Hours", NONE, |_, args| in_units(args, duration::HOUR)),
    Function::new("Microseconds", NONE, |_, args| {
        Ok(Value::Int64(nanoseconds(args, 0)? / 1_000))
    }),
    Function::new("Milliseconds", NONE, |_, args| {
        Ok(Value::Int64(nanoseconds(args, 0)? / 1_000_000))
    }),
    Function::new("Minutes", NONE, |_, args| in_units(args, duration::MINUTE)),
    Function::new("Nanoseconds", NONE, |_, args| {
        Ok(Value::Int64(nanoseconds(args, 0)?))
    }),
    Function::new("Round", DURATION, |_, args| {
        let (amount, unit) = (nanoseconds(args, 0)?, nanoseconds(args, 1)?);
        of_duration(duration::rounded(amount, unit))
    }),
    Function::new("Seconds", NONE, |_, args| in_units(args, duration::SECOND)),
    Function::new("Truncate", DURATION, |_, args| {
        let (amount, unit) = (nanoseconds(args, 0)?, nanoseconds(args, 1)?);
        of_duration(if unit <= 0 {
            amount
        } else {
            amount - amount % unit
        })
    }),
];

/// The methods that months, weekdays and durations share.
pub const NAMED: &[Function] = &[Function::new("String", NONE, |context, args| {
    match any(args, 0) {
        Value::Named(named) => context.string(named.text()),
        other => Err(mismatch(other, "a name")),
    }
})];

fn mismatch(value: &Value, wanted: &str) -> FunctionError {
    FunctionError::new(format!(
        "wrong type for value; expected {wanted}; got {}",
        value.type_name()
    ))
}

fn nanoseconds(args: &[Value], index: usize) -> Result<i64, FunctionError> {
    match any(args, index) {
        Value::Named(Named::Duration(nanoseconds)) => Ok(*nanoseconds),
        other => Err(mismatch(other, "time.Duration")),
    }
}

fn of_duration(nanoseconds: i64) -> Outcome {
    Ok(Value::Named(Named::Duration(nanoseconds)))
}

/// As upstream, divides whole units and the rest separately, so that a large value loses little precision.
fn in_units(args: &[Value], unit: i64) -> Outcome {
    let amount = nanoseconds(args, 0)?;
    let (whole, rest) = (amount / unit, amount % unit);
    Ok(Value::Float(whole as f64 + rest as f64 / unit as f64))
}

/// Local time is UTC.
fn utc(_: &mut Context, args: &[Value]) -> Outcome {
    Ok(Value::time(Time::utc(time(args, 0)?.moment)))
}

/// The lower 64 bits of what may be more.
fn since_1970(args: &[Value], unit: i128) -> Outcome {
    let nanoseconds = time(args, 0)?.moment.as_nanosecond();
    Ok(Value::Int64(nanoseconds.div_euclid(unit) as i64))
}

/// How long the last multiple of a unit was ago, counted from the year 1.
fn rest(time: &Time, unit: i64) -> i64 {
    let since = time.moment.as_nanosecond() - parse::year_one().as_nanosecond();
    match unit {
        ..=0 => 0,
        unit => since.rem_euclid(unit.into()) as i64,
    }
}

/// A day that the month does not have is one of the next month.
fn add_date(time: &Time, years: i64, months: i64, days: i64) -> Outcome {
    let outside = || FunctionError::new(parse::OUTSIDE);
    let Time { moment, zone } = time;
    let civil = zone.offset.to_datetime(*moment);
    let months = (i128::from(civil.year()) + i128::from(years)) * 12
        + i128::from(civil.month() - 1)
        + i128::from(months);
    let year = i16::try_from(months.div_euclid(12)).map_err(|_| outside())?;
    let month = months.rem_euclid(12) as i8 + 1;
    let first = civil
        .with()
        .day(1)
        .year(year)
        .month(month)
        .build()
        .map_err(|_| outside())?;
    let first = at(first, zone).ok_or_else(outside)?;
    let days = i128::from(days) + i128::from(civil.day() - 1);
    let seconds = i64::try_from(days * 86_400).map_err(|_| outside())?;
    let moment = first
        .checked_add(SignedDuration::from_secs(seconds))
        .map_err(|_| outside())?;
    Ok(Value::time(Time {
        moment,
        zone: zone.clone(),
    }))
}

fn at(civil: DateTime, zone: &Zone) -> Option<Timestamp> {
    zone.offset.to_timestamp(civil).ok()
}
