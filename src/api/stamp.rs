//! Points in time as they stand in annotations: RFC 3339, UTC, milliseconds.

use jiff::{SignedDuration, Timestamp};

/// `2026-03-01T12:00:00.000Z`
pub fn format(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

/// The same point without what is finer than a millisecond.
pub fn millis(at: Timestamp) -> Timestamp {
    Timestamp::from_millisecond(at.as_millisecond()).unwrap_or(at)
}

/// Any RFC 3339 text; None where it is none.
pub fn parse(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

/// A stamp for `now` that differs from `old` and is later: two states of one object never share a stamp, even where
/// clocks of replicas disagree.
pub fn after(old: Option<&str>, now: Timestamp) -> String {
    let earliest = old
        .and_then(parse)
        .and_then(|at| at.checked_add(SignedDuration::from_millis(1)).ok());
    format(earliest.map_or(now, |earliest| now.max(earliest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_round_trip_and_only_grow() {
        let noon: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
        assert_eq!(format(noon), "2026-03-01T12:00:00.000Z");
        assert_eq!(parse(&format(noon)), Some(noon));
        assert_eq!(
            after(Some("2026-03-01T12:00:05.000Z"), noon),
            "2026-03-01T12:00:05.001Z"
        );
        assert_eq!(after(Some("no time"), noon), "2026-03-01T12:00:00.000Z");
    }
}
