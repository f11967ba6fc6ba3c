//! A LynqNode: its digest in memory (`digest`), the next steps of the node controller (`plan`) and their order (`graph`), and the
//! takeover of objects that another operator left (`takeover`).

pub mod diff;
pub mod digest;
pub mod graph;
pub mod plan;
pub mod takeover;
