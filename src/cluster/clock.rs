//! The clocks. Only the shells read them: `decide` gets the time as an argument.

use jiff::Timestamp;
pub use tokio::time::Instant;

use crate::cluster::process;

/// By the wall clock, which other machines read too, and which may jump.
pub fn now() -> Timestamp {
    process::simulated().map_or_else(Timestamp::now, |process| process.wall_clock())
}

/// By the clock that never goes back.
pub fn instant() -> Instant {
    Instant::now()
}
