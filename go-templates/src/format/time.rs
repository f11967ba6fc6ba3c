//! Times under Go's layouts (`2006-01-02 15:04:05`). Parses nothing but layouts.

use jiff::civil::DateTime;

use crate::duration;
use crate::time::{Time, Zone};

/// As Go's `Time.String` prints a time without a monotonic reading.
pub fn string(time: &Time) -> String {
    format(time, "2006-01-02 15:04:05.999999999 -0700 MST")
}

/// As Go's JSON writes a time.
pub fn rfc3339(time: &Time) -> String {
    format(time, "2006-01-02T15:04:05.999999999Z07:00")
}

/// As Go writes a time in Go's syntax. The name of a zone with nothing but an offset is empty.
pub fn go_string(time: &Time) -> String {
    let civil = time.zone.offset.to_datetime(time.moment);
    let month = MONTHS[usize::from(civil.month().unsigned_abs() - 1)];
    let zone = match &*time.zone.name {
        "UTC" => "time.UTC".to_owned(),
        name => format!("time.Location({})", duration::quote(name.as_bytes())),
    };
    format!(
        "time.Date({}, time.{month}, {}, {}, {}, {}, {}, {zone})",
        civil.year(),
        civil.day(),
        civil.hour(),
        civil.minute(),
        civil.second(),
        civil.subsec_nanosecond()
    )
}

/// The time under a layout; what is no element of a layout stays as it is.
pub fn format(time: &Time, layout: &str) -> String {
    let civil = time.zone.offset.to_datetime(time.moment);
    let mut text = String::new();
    let mut rest = layout;
    while !rest.is_empty() {
        let (prefix, element, after) = next_element(rest);
        text.push_str(prefix);
        if let Some((_, element)) = element {
            text.push_str(&show(element, civil, &time.zone));
        }
        rest = after;
    }
    text
}

/// The text before the first element of a layout, that element with its own text, and what follows it.
pub fn next_element(layout: &str) -> (&str, Option<(&str, Element)>, &str) {
    let mut at = 0;
    while let Some(c) = layout[at..].chars().next() {
        if let Some((element, size)) = element(&layout[at..]) {
            let (text, after) = layout[at..].split_at(size);
            return (&layout[..at], Some((text, element)), after);
        }
        at += c.len_utf8();
    }
    (layout, None, "")
}

/// One element of a layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    LongMonth,
    Month,
    NumberMonth,
    ZeroMonth,
    LongWeekday,
    Weekday,
    Day,
    SpaceDay,
    ZeroDay,
    SpaceYearDay,
    ZeroYearDay,
    Hour,
    Hour12,
    ZeroHour12,
    Minute,
    ZeroMinute,
    Second,
    ZeroSecond,
    LongYear,
    Year,
    UpperNoon,
    LowerNoon,
    ZoneName,
    Offset(OffsetForm),
    /// The separator, the number of digits, and whether trailing zeros are kept.
    Fraction(char, usize, bool),
}

/// How an offset from UTC is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffsetForm {
    /// Whether UTC is written as `Z`.
    pub z: bool,
    pub colons: bool,
    /// Hours, minutes, seconds: how many of them.
    pub parts: usize,
}

const fn offset(z: bool, colons: bool, parts: usize) -> Element {
    Element::Offset(OffsetForm { z, colons, parts })
}

/// Elements by their text; of those that begin alike, the longer stands first.
const ELEMENTS: &[(&str, Element)] = &[
    ("January", Element::LongMonth),
    ("Monday", Element::LongWeekday),
    ("MST", Element::ZoneName),
    ("002", Element::ZeroYearDay),
    ("01", Element::ZeroMonth),
    ("02", Element::ZeroDay),
    ("03", Element::ZeroHour12),
    ("04", Element::ZeroMinute),
    ("05", Element::ZeroSecond),
    ("06", Element::Year),
    ("15", Element::Hour),
    ("1", Element::NumberMonth),
    ("2006", Element::LongYear),
    ("2", Element::Day),
    ("__2", Element::SpaceYearDay),
    ("_2", Element::SpaceDay),
    ("3", Element::Hour12),
    ("4", Element::Minute),
    ("5", Element::Second),
    ("PM", Element::UpperNoon),
    ("pm", Element::LowerNoon),
    ("-070000", offset(false, false, 3)),
    ("-07:00:00", offset(false, true, 3)),
    ("-0700", offset(false, false, 2)),
    ("-07:00", offset(false, true, 2)),
    ("-07", offset(false, false, 1)),
    ("Z070000", offset(true, false, 3)),
    ("Z07:00:00", offset(true, true, 3)),
    ("Z0700", offset(true, false, 2)),
    ("Z07:00", offset(true, true, 2)),
    ("Z07", offset(true, false, 1)),
];

/// The element that `layout` begins with, and its length.
fn element(layout: &str) -> Option<(Element, usize)> {
    if let Some(fraction) = fraction(layout) {
        return Some(fraction);
    }
    // `_2006` is a literal underscore followed by the year.
    if layout.starts_with("_2006") {
        return None;
    }
    let listed = ELEMENTS.iter().find(|(text, _)| layout.starts_with(text));
    if let Some((text, element)) = listed {
        return Some((*element, text.len()));
    }
    // `Jan` and `Mon` count only as whole words.
    let name = match layout.get(..3)? {
        "Jan" => Element::Month,
        "Mon" => Element::Weekday,
        _ => return None,
    };
    let goes_on = layout[3..].starts_with(|c: char| c.is_ascii_lowercase());
    (!goes_on).then_some((name, 3))
}

/// `.000` or `,999`, unless another digit follows.
fn fraction(layout: &str) -> Option<(Element, usize)> {
    let mut chars = layout.chars();
    let separator = chars.next().filter(|c| matches!(c, '.' | ','))?;
    let digit = chars.next().filter(|c| matches!(c, '0' | '9'))?;
    let digits = layout[1..].chars().take_while(|c| *c == digit).count();
    let followed = layout[1 + digits..].starts_with(|c: char| c.is_ascii_digit());
    let element = Element::Fraction(separator, digits, digit == '0');
    (!followed).then_some((element, 1 + digits))
}

pub const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Go counts them from Sunday.
pub const WEEKDAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

fn show(element: Element, time: DateTime, zone: &Zone) -> String {
    let month = MONTHS[usize::from(time.month().unsigned_abs() - 1)];
    let hour12 = match time.hour() % 12 {
        0 => 12,
        hour => hour,
    };
    match element {
        Element::LongMonth => month.to_owned(),
        Element::Month => month[..3].to_owned(),
        Element::NumberMonth => time.month().to_string(),
        Element::ZeroMonth => format!("{:02}", time.month()),
        Element::LongWeekday => weekday(time).to_owned(),
        Element::Weekday => weekday(time)[..3].to_owned(),
        Element::Day => time.day().to_string(),
        Element::SpaceDay => format!("{:2}", time.day()),
        Element::ZeroDay => format!("{:02}", time.day()),
        Element::SpaceYearDay => format!("{:3}", time.day_of_year()),
        Element::ZeroYearDay => format!("{:03}", time.day_of_year()),
        Element::Hour => format!("{:02}", time.hour()),
        Element::Hour12 => hour12.to_string(),
        Element::ZeroHour12 => format!("{hour12:02}"),
        Element::Minute => time.minute().to_string(),
        Element::ZeroMinute => format!("{:02}", time.minute()),
        Element::Second => time.second().to_string(),
        Element::ZeroSecond => format!("{:02}", time.second()),
        Element::LongYear if time.year() < 0 => format!("-{:04}", time.year().unsigned_abs()),
        Element::LongYear => format!("{:04}", time.year()),
        Element::Year => format!("{:02}", time.year().rem_euclid(100)),
        Element::UpperNoon => if time.hour() < 12 { "AM" } else { "PM" }.to_owned(),
        Element::LowerNoon => if time.hour() < 12 { "am" } else { "pm" }.to_owned(),
        Element::ZoneName if zone.name.is_empty() => {
            let plain = OffsetForm {
                z: false,
                colons: false,
                parts: 2,
            };
            offset_text(zone.offset.seconds(), plain)
        }
        Element::ZoneName => zone.name.to_string(),
        Element::Offset(form) => offset_text(zone.offset.seconds(), form),
        Element::Fraction(separator, digits, keeps_zeros) => {
            let nanoseconds = format!("{:09}{}", time.subsec_nanosecond(), "0".repeat(digits));
            let digits = &nanoseconds[..digits];
            let digits = if keeps_zeros {
                digits
            } else {
                digits.trim_end_matches('0')
            };
            if digits.is_empty() {
                String::new()
            } else {
                format!("{separator}{digits}")
            }
        }
    }
}

fn weekday(time: DateTime) -> &'static str {
    let index = time.weekday().to_sunday_zero_offset();
    WEEKDAYS[usize::from(index.unsigned_abs())]
}

fn offset_text(seconds: i32, form: OffsetForm) -> String {
    if form.z && seconds == 0 {
        return "Z".to_owned();
    }
    // The minutes decide on the sign, as upstream.
    let sign = if seconds / 60 < 0 { '-' } else { '+' };
    let magnitude = seconds.abs();
    let parts = [magnitude / 3600, magnitude / 60 % 60, magnitude % 60];
    let parts: Vec<String> = parts.iter().map(|part| format!("{part:02}")).collect();
    let separator = if form.colons { ":" } else { "" };
    format!("{sign}{}", parts[..form.parts].join(separator))
}
