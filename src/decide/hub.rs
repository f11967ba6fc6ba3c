//! A hub: from the rows of its data source to the LynqNodes that are written and deleted (`sync`). It must not release any.

pub mod desired;
pub mod findings;
pub mod hosts;
pub mod identifier;
pub mod preview;
pub mod render;
pub mod rows;
pub mod sync;
pub mod tested;
