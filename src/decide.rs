//! Every decision of lynqgate: synchronous, deterministic, without clock, network, environment or randomness.
//!
//! A decision takes one immutable snapshot, and `now` where time matters, and returns a plan that leaves nothing to
//! choose to the shell that carries it out.

pub mod content;
pub mod gate;
pub mod review;
pub mod rollout;
pub mod version;
