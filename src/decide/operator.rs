//! lynqgate itself: which replica leads, and whether what must be installed is as lynqgate needs it.

pub mod election;
pub mod installation;
