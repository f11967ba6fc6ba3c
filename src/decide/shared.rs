//! What several groups of decisions use. A module that only one group uses belongs there.

pub mod backoff;
pub mod content;
pub mod fields;
pub mod near;
pub mod parallel;
pub mod path;
#[cfg(test)]
pub mod planted;
pub mod refusal;
pub mod version;
