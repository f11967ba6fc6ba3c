//! Times out of texts under Go's layouts. Where a text names no zone, it is in UTC.

use std::sync::Arc;

use jiff::civil::{Date, DateTime, date};
use jiff::tz::Offset;
use jiff::{SignedDuration, Timestamp};

use crate::duration::quote;
use crate::format::time::{Element, MONTHS, OffsetForm, WEEKDAYS, next_element};
use crate::time::{Time, Zone};

/// The error for a time outside the supported range.
pub const OUTSIDE: &str =
    "the time would be outside the years -9999 to 9999, whose last day is December 30th";

/// Go's zero time.
pub fn year_one() -> Timestamp {
    let midnight = date(1, 1, 1).at(0, 0, 0, 0);
    Offset::UTC.to_timestamp(midnight).unwrap_or(Timestamp::MIN)
}

/// Parses `value` by `layout`, or returns Go's error.
pub fn time(layout: &str, value: &str) -> Result<Time, String> {
    let mut found = Found::default();
    let (mut layout_left, mut rest) = (layout, value);
    loop {
        let (prefix, element, after) = next_element(layout_left);
        let mismatch = |part: &str, element: &str| {
            let [value, layout, part, element] = [value, layout, part, element].map(quoted);
            format!("parsing time {value} as {layout}: cannot parse {part} as {element}")
        };
        let wrong = |what: &str| format!("parsing time {}{what}", quoted(value));
        rest = skip(rest, prefix).map_err(|part| mismatch(part, prefix))?;
        let Some((text, element)) = element else {
            if !rest.is_empty() {
                let rest = quoted(rest);
                return Err(wrong(&format!(": extra text: {rest}")));
            }
            return found.time().map_err(|what| wrong(&format!(": {what}")));
        };
        layout_left = after;
        match found.read(element, rest, layout_left) {
            Ok(after) => rest = after,
            Err(Wrong::Form) => return Err(mismatch(rest, text)),
            Err(Wrong::Range(what)) => return Err(wrong(&format!(": {what} out of range"))),
        }
    }
}

/// No more of a text than an error needs: each of its bytes may become several.
fn quoted(text: &str) -> String {
    const SHOWN_MAX_BYTES: usize = 512;
    quote(&text.as_bytes()[..text.floor_char_boundary(SHOWN_MAX_BYTES)])
}

/// Spaces of the layout stand for any number of spaces; the rest where they part is the error.
fn skip<'v>(mut value: &'v str, prefix: &str) -> Result<&'v str, &'v str> {
    let mut prefix = prefix;
    while let Some(c) = prefix.chars().next() {
        if c == ' ' {
            if !value.is_empty() && !value.starts_with(' ') {
                return Err(value);
            }
            prefix = prefix.trim_start_matches(' ');
            value = value.trim_start_matches(' ');
            continue;
        }
        value = value.strip_prefix(c).ok_or(value)?;
        prefix = &prefix[c.len_utf8()..];
    }
    Ok(value)
}

/// Why a value does not fit an element.
enum Wrong {
    Form,
    Range(&'static str),
}

/// The parts of the time parsed so far.
#[derive(Default)]
struct Found {
    year: i16,
    month: Option<i8>,
    day: Option<i16>,
    year_day: Option<i16>,
    hour: i16,
    minute: i16,
    second: i16,
    nanosecond: i32,
    /// Whether it is the second half of the day, where a text says so.
    is_afternoon: Option<bool>,
    is_utc: bool,
    offset_seconds: Option<i32>,
    zone: String,
}

impl Found {
    /// Reads one element from the beginning of `value` and gives the rest. `layout` is what follows the element.
    fn read<'v>(
        &mut self,
        element: Element,
        value: &'v str,
        layout: &str,
    ) -> Result<&'v str, Wrong> {
        let within = |number: i16, least: i16, most: i16, what: &'static str| match (least..=most)
            .contains(&number)
        {
            true => Ok(number),
            false => Err(Wrong::Range(what)),
        };
        let rest;
        match element {
            Element::Year => {
                (self.year, rest) = digits(value, 2)?;
                self.year += if self.year >= 69 { 1900 } else { 2000 };
            }
            Element::LongYear => (self.year, rest) = digits(value, 4)?,
            Element::Month | Element::LongMonth => {
                let is_long = element == Element::LongMonth;
                let (index, after) = name(value, &MONTHS, is_long)?;
                (self.month, rest) = (Some(index as i8 + 1), after);
            }
            Element::NumberMonth | Element::ZeroMonth => {
                let (month, after) = number(value, element == Element::ZeroMonth)?;
                (self.month, rest) = (Some(within(month, 1, 12, "month")? as i8), after);
            }
            Element::Weekday | Element::LongWeekday => {
                rest = name(value, &WEEKDAYS, element == Element::LongWeekday)?.1;
            }
            Element::Day | Element::SpaceDay | Element::ZeroDay => {
                let padded = element == Element::SpaceDay;
                let value = value.strip_prefix(' ').filter(|_| padded).unwrap_or(value);
                let (day, after) = number(value, element == Element::ZeroDay)?;
                (self.day, rest) = (Some(day), after);
            }
            Element::SpaceYearDay | Element::ZeroYearDay => {
                let (day, after) = year_day(value, element == Element::ZeroYearDay)?;
                (self.year_day, rest) = (Some(day), after);
            }
            Element::Hour => {
                (self.hour, rest) = number(value, false)?;
                within(self.hour, 0, 23, "hour")?;
            }
            Element::Hour12 | Element::ZeroHour12 => {
                (self.hour, rest) = number(value, element == Element::ZeroHour12)?;
                within(self.hour, 0, 12, "hour")?;
            }
            Element::Minute | Element::ZeroMinute => {
                (self.minute, rest) = number(value, element == Element::ZeroMinute)?;
                within(self.minute, 0, 59, "minute")?;
            }
            Element::Second | Element::ZeroSecond => {
                let (second, after) = number(value, element == Element::ZeroSecond)?;
                self.second = within(second, 0, 59, "second")?;
                // A fraction may follow even where the layout has none.
                let (_, next, _) = next_element(layout);
                let is_due = matches!(next, Some((_, Element::Fraction(..))));
                rest = if is_due { after } else { self.fraction(after) };
            }
            Element::UpperNoon => rest = self.noon(value, ["AM", "PM"])?,
            Element::LowerNoon => rest = self.noon(value, ["am", "pm"])?,
            Element::Fraction(_, count, true) => {
                let text = value.get(..=count).ok_or(Wrong::Form)?;
                let is_fraction = text.starts_with(['.', ','])
                    && text[1..].bytes().all(|digit| digit.is_ascii_digit());
                if !is_fraction {
                    return Err(Wrong::Form);
                }
                self.fraction(text);
                rest = &value[count + 1..];
            }
            Element::Fraction(_, _, false) => rest = self.fraction(value),
            Element::Offset(form) => rest = self.offset(form, value)?,
            Element::ZoneName => rest = self.zone_name(value)?,
        }
        Ok(rest)
    }

    /// Parses `.` or `,` and digits, up to nanoseconds; the fraction may be absent.
    fn fraction<'v>(&mut self, value: &'v str) -> &'v str {
        let Some(digits) = value.strip_prefix(['.', ',']) else {
            return value;
        };
        let end = digits.find(|c: char| !c.is_ascii_digit());
        let (digits, rest) = digits.split_at(end.unwrap_or(digits.len()));
        if digits.is_empty() {
            return value;
        }
        let nine: String = digits.chars().chain("000000000".chars()).take(9).collect();
        self.nanosecond = nine.parse().unwrap_or(0);
        rest
    }

    fn noon<'v>(&mut self, value: &'v str, words: [&str; 2]) -> Result<&'v str, Wrong> {
        for (word, is_afternoon) in words.into_iter().zip([false, true]) {
            if let Some(rest) = value.strip_prefix(word) {
                self.is_afternoon = Some(is_afternoon);
                return Ok(rest);
            }
        }
        Err(Wrong::Form)
    }

    /// `+07`, `+0700`, `+07:00`, with seconds if the layout has them; `Z` where the layout begins with it.
    fn offset<'v>(&mut self, form: OffsetForm, value: &'v str) -> Result<&'v str, Wrong> {
        if let Some(rest) = value.strip_prefix('Z').filter(|_| form.z) {
            self.is_utc = true;
            return Ok(rest);
        }
        let sign = match value.as_bytes().first() {
            Some(b'+') => 1,
            Some(b'-') => -1,
            _ => return Err(Wrong::Form),
        };
        let mut rest = &value[1..];
        let mut parts = [0; 3];
        for (index, part) in parts.iter_mut().enumerate().take(form.parts) {
            if index > 0 && form.colons {
                rest = rest.strip_prefix(':').ok_or(Wrong::Form)?;
            }
            let (number, after) = digits(rest, 2)?;
            (*part, rest) = (i32::from(number), after);
        }
        let [hours, minutes, seconds] = parts;
        let limits = [
            (hours, 24, "time zone offset hour"),
            (minutes, 60, "time zone offset minute"),
            (seconds, 60, "time zone offset second"),
        ];
        for (number, most, what) in limits {
            if number > most {
                return Err(Wrong::Range(what));
            }
        }
        self.offset_seconds = Some(sign * ((hours * 60 + minutes) * 60 + seconds));
        Ok(rest)
    }

    fn zone_name<'v>(&mut self, value: &'v str) -> Result<&'v str, Wrong> {
        if let Some(rest) = value.strip_prefix("UTC") {
            self.is_utc = true;
            return Ok(rest);
        }
        let size = abbreviation(value).ok_or(Wrong::Form)?;
        let (name, rest) = value.split_at(size);
        name.clone_into(&mut self.zone);
        Ok(rest)
    }

    /// Combines the parsed parts.
    fn time(self) -> Result<Time, String> {
        let hour = match self.is_afternoon {
            Some(true) if self.hour < 12 => self.hour + 12,
            Some(false) if self.hour == 12 => 0,
            _ => self.hour,
        };
        let day = self.date()?;
        let civil: DateTime = day.at(
            hour as i8,
            self.minute as i8,
            self.second as i8,
            self.nanosecond,
        );
        let outside = || OUTSIDE.to_owned();
        let written = Offset::UTC.to_timestamp(civil).map_err(|_| outside())?;
        if self.is_utc {
            return Ok(Time::utc(written));
        }
        let gmt = self.zone.strip_prefix("GMT");
        let gmt_hours: i32 = gmt.map_or(0, |hours| hours.parse().unwrap_or(0));
        let (seconds, moment) = match self.offset_seconds {
            Some(seconds) => {
                let back = SignedDuration::from_secs(-i64::from(seconds));
                (seconds, written.checked_add(back).map_err(|_| outside())?)
            }
            // A name alone says how the time prints, and the clock is taken as that of UTC, even behind `GMT+3`.
            None => (gmt_hours * 3600, written),
        };
        if seconds == 0 && self.zone.is_empty() {
            return Ok(Time::utc(moment));
        }
        Ok(Time {
            moment,
            zone: Zone {
                offset: Offset::from_seconds(seconds).map_err(|_| outside())?,
                name: Arc::from(self.zone),
            },
        })
    }

    fn date(&self) -> Result<Date, String> {
        let (mut month, mut day) = (self.month, self.day);
        if let Some(year_day) = self.year_day {
            let first = date(self.year, 1, 1);
            let found = (1..=first.days_in_year()).contains(&year_day).then(|| {
                first.checked_add(SignedDuration::from_hours(24 * i64::from(year_day - 1)))
            });
            let Some(Ok(found)) = found else {
                return Err("day-of-year out of range".to_owned());
            };
            if month.is_some_and(|month| month != found.month()) {
                return Err("day-of-year does not match month".to_owned());
            }
            if day.is_some_and(|day| day != i16::from(found.day())) {
                return Err("day-of-year does not match day".to_owned());
            }
            (month, day) = (Some(found.month()), Some(i16::from(found.day())));
        }
        let day = i8::try_from(day.unwrap_or(1)).unwrap_or(0);
        Date::new(self.year, month.unwrap_or(1), day).map_err(|_| "day out of range".to_owned())
    }
}

/// Exactly `count` digits.
fn digits(value: &str, count: usize) -> Result<(i16, &str), Wrong> {
    let text = value.get(..count).ok_or(Wrong::Form)?;
    let is_number = text.bytes().all(|digit| digit.is_ascii_digit());
    let number = text.parse().ok().filter(|_| is_number);
    Ok((number.ok_or(Wrong::Form)?, &value[count..]))
}

/// One or two digits, or exactly two.
fn number(value: &str, exactly_two: bool) -> Result<(i16, &str), Wrong> {
    match digits(value, 2) {
        Err(_) if !exactly_two => digits(value, 1),
        found => found,
    }
}

/// One to three digits, up to two of them spaces; or exactly three.
fn year_day(value: &str, exactly_three: bool) -> Result<(i16, &str), Wrong> {
    if exactly_three {
        return digits(value, 3);
    }
    let value = value.strip_prefix(' ').unwrap_or(value);
    let value = value.strip_prefix(' ').unwrap_or(value);
    digits(value, 3)
        .or_else(|_| digits(value, 2))
        .or_else(|_| digits(value, 1))
}

/// Which of the names the value begins with, whole or its first three letters, in any case.
fn name<'v>(value: &'v str, names: &[&str], is_long: bool) -> Result<(usize, &'v str), Wrong> {
    let found = names.iter().enumerate().find_map(|(index, name)| {
        let name = if is_long { name } else { &name[..3] };
        let head = value.get(..name.len())?;
        head.eq_ignore_ascii_case(name)
            .then_some((index, &value[name.len()..]))
    });
    found.ok_or(Wrong::Form)
}

/// How long the abbreviation of a zone is that the value begins with: three to five capitals, or an offset.
fn abbreviation(value: &str) -> Option<usize> {
    let bytes = value.as_bytes();
    if bytes.len() < 3 {
        return None;
    }
    if value.starts_with("ChST") || value.starts_with("MeST") {
        return Some(4);
    }
    if let Some(after) = value.strip_prefix("GMT") {
        return Some(3 + signed_hours(after).unwrap_or(0));
    }
    if matches!(bytes[0], b'+' | b'-') {
        return signed_hours(value);
    }
    let capitals = bytes.iter().take(6).take_while(|c| c.is_ascii_uppercase());
    match capitals.count() {
        3 => Some(3),
        4 if bytes[3] == b'T' || value.starts_with("WITA") => Some(4),
        5 if bytes[4] == b'T' => Some(5),
        _ => None,
    }
}

/// The length of a sign and hours below 24.
fn signed_hours(value: &str) -> Option<usize> {
    let digits = value.strip_prefix(['+', '-'])?;
    let end = digits.find(|c: char| !c.is_ascii_digit());
    let digits = &digits[..end.unwrap_or(digits.len())];
    let hours: u64 = digits.parse().ok()?;
    (hours < 24).then_some(1 + digits.len())
}
