//! A moment with the zone it prints in: Go's `time.Time` without its methods. Reads no clock, and knows no zones.

use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::Offset;

/// A `time.Time`. Times are equal as Go's are under `==`: at the same moment, in the same zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Time {
    pub moment: Timestamp,
    pub zone: Zone,
}

/// How far a zone is from UTC at some moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    pub offset: Offset,
    /// Such as `CET`; empty where only the offset is known.
    pub name: Arc<str>,
}

impl Time {
    pub fn utc(moment: Timestamp) -> Time {
        Time {
            moment,
            zone: Zone::utc(),
        }
    }
}

impl Zone {
    pub fn utc() -> Zone {
        Zone {
            offset: Offset::UTC,
            name: Arc::from("UTC"),
        }
    }
}
