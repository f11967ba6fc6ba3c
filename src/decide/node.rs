//! A LynqNode: what is kept of it in memory (`digest`), what is done next for it (`plan`), in which order (`graph`), and what
//! happens to the objects that another operator left (`takeover`).

pub mod diff;
pub mod digest;
pub mod graph;
pub mod plan;
pub mod takeover;
