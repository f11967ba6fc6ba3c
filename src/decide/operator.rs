//! lynqgate itself: which replica leads which shard, which namespaces it watches, and whether what must be installed is as lynqgate
//! needs it.

pub mod check;
pub mod election;
pub mod installation;
pub mod shards;
pub mod watched;
