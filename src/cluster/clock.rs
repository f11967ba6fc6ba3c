//! The clocks. Only the shells read them: `decide` gets the time as an argument.

use jiff::Timestamp;
pub use tokio::time::Instant;

use crate::cluster::process;

/// The wall clock, which is comparable between machines, and which may jump.
pub fn now() -> Timestamp {
    process::simulated().map_or_else(Timestamp::now, |process| process.wall_clock())
}

/// The monotonic clock.
pub fn instant() -> Instant {
    Instant::now()
}
