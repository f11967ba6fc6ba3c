//! A LynqNode: its digest in memory (`digest`), the next steps of the node controller (`plan`) and their order (`graph`), the
//! takeover of objects that another operator left (`takeover`), and its content for people (`diff`) and tests (`golden`).

pub mod diff;
pub mod digest;
pub mod golden;
pub mod graph;
pub mod plan;
pub mod takeover;
