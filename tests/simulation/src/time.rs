//! The time of the simulation: tokio's paused clock, from a fixed moment on.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// 2026-01-01T00:00:00Z
const EPOCH: i64 = 1_767_225_600;

#[derive(Clone, Copy, Debug)]
pub struct Clock {
    pub start: Instant,
}

impl Clock {
    pub fn start() -> Self {
        Clock {
            start: Instant::now(),
        }
    }

    /// In milliseconds.
    pub fn elapsed(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    /// By a wall clock that is so many milliseconds ahead.
    pub fn now(&self, ahead: i64) -> Timestamp {
        let epoch = Timestamp::from_second(EPOCH).expect("a time");
        let millis = self.elapsed() as i64 + ahead;
        epoch
            .checked_add(SignedDuration::from_millis(millis))
            .expect("a time")
    }

    /// As the API server stamps it.
    pub fn stamp(&self) -> String {
        self.now(0).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }
}
