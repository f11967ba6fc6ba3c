//! An API server in memory: objects with versions, admission, watches. It knows nothing of faults, operators or invariants.

pub mod fields;
pub mod patch;
pub mod requests;
pub mod store;
mod validation;
