//! Every decision of lynqgate: synchronous, deterministic, without clock, network, environment or randomness.
//!
//! A decision takes one immutable snapshot, and `now` where time matters, and returns a plan that leaves nothing to
//! choose to the shell that carries it out.

pub mod admission;
pub mod backoff;
pub mod child;
pub mod content;
pub mod desired;
pub mod election;
pub mod explain;
pub mod findings;
pub mod gate;
pub mod graph;
pub mod hosts;
pub mod hub_sync;
pub mod identifier;
pub mod installation;
pub mod maintenance;
pub mod marker;
pub mod near;
pub mod node;
pub mod node_plan;
pub mod partition;
pub mod path;
#[cfg(test)]
mod planted;
pub mod readiness;
pub mod refusal;
pub mod render;
pub mod replay;
pub mod review;
pub mod rollout;
pub mod rows;
pub mod schema;
pub mod takeover;
pub mod template;
pub mod version;
