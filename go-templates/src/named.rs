//! Integers to which Go's package time gives types of their own: they print as words, and count as numbers. Holds no clock.

use crate::duration;
use crate::format::time::{MONTHS, WEEKDAYS};
use crate::value::Kind;

/// A number that prints as a word, or as a duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    /// A `time.Month`; January is 1.
    Month(i64),
    /// A `time.Weekday`; Sunday is 0.
    Weekday(i64),
    /// A `time.Duration`, in nanoseconds.
    Duration(i64),
}

impl Named {
    /// Its integer value.
    pub fn number(self) -> i64 {
        match self {
            Named::Month(n) | Named::Weekday(n) | Named::Duration(n) => n,
        }
    }

    /// The kind of that integer.
    pub fn kind(self) -> Kind {
        match self {
            Named::Month(_) | Named::Weekday(_) => Kind::Int,
            Named::Duration(_) => Kind::Int64,
        }
    }

    /// The type as `%T` prints it.
    pub fn type_name(self) -> &'static str {
        match self {
            Named::Month(_) => "time.Month",
            Named::Weekday(_) => "time.Weekday",
            Named::Duration(_) => "time.Duration",
        }
    }

    /// As Go's `String` writes it.
    pub fn text(self) -> String {
        let (names, first, name) = match self {
            Named::Month(_) => (&MONTHS[..], 1, "Month"),
            Named::Weekday(_) => (&WEEKDAYS[..], 0, "Weekday"),
            Named::Duration(nanoseconds) => return duration::show(nanoseconds),
        };
        let number = self.number();
        let index = usize::try_from(number.wrapping_sub(first)).ok();
        match index.and_then(|index| names.get(index)) {
            Some(word) => (*word).to_owned(),
            // Without its sign, as upstream.
            None => format!("%!{name}({})", number as u64),
        }
    }
}
