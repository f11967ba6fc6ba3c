//! Every decision of lynqgate: synchronous, deterministic, without clock, network, environment or randomness.
//!
//! A decision takes one immutable snapshot, and `now` where time matters, and returns a plan that leaves nothing to
//! choose to the shell that carries it out.

/// Whether a hub or a form may be stored, and what its author is warned of.
pub mod admission;
/// Which field manager applies which fields of a child object, whose the object is, and what of it is kept.
pub mod child;
/// Which content of a LynqNode is live, and which is held.
pub mod gate;
/// Which rows are usable, what a form makes of them, and which LynqNodes are written and deleted.
pub mod hub;
/// When a Kubernetes node under a Lease is drained, and which pods are evicted.
pub mod maintenance;
/// Which resources of a LynqNode are applied and deleted next, and what its status says.
pub mod node;
/// Which replica of lynqgate leads, and whether lynqgate is installed as it must be.
pub mod operator;
/// Which pod of a StatefulSet is updated next, and which revision is held above its partition.
pub mod partition;
/// Whether an object is ready, and what it waits for.
pub mod readiness;
/// What goes into a report for support, and what of it is redacted.
pub mod report;
/// Which held LynqNodes are released next, and why the rest waits.
pub mod rollout;
/// What several of the modules above use: hashes, paths, retries.
pub mod shared;
/// What a template makes of its inputs, under which limits.
pub mod template;
