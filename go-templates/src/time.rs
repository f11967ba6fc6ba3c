//! A moment with the zone it prints in: Go's `time.Time` without its methods. Reads no clock, and knows no zones.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::Offset;

use crate::format;

/// A `time.Time`. Times are equal as Go's are under `==`: at the same moment, in the same zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Time {
    /// The moment itself.
    pub moment: Timestamp,
    /// In which zone it prints.
    pub zone: Zone,
}

/// How far a zone is from UTC at some moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    /// Positive to the east.
    pub offset: Offset,
    /// Such as `CET`; empty where only the offset is known.
    pub name: Arc<str>,
}

impl Time {
    /// A time in UTC.
    pub fn utc(moment: Timestamp) -> Time {
        Time {
            moment,
            zone: Zone::utc(),
        }
    }
}

/// As Go's `String` does.
impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format::time::string(self))
    }
}

impl Zone {
    /// UTC.
    pub fn utc() -> Zone {
        Zone {
            offset: Offset::UTC,
            name: Arc::from("UTC"),
        }
    }
}
