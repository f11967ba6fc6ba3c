//! The one integration binary: real control plane, real database, the real program.

mod cluster;
mod datasource;
mod forms;
mod operator;
mod process;
mod readiness;
mod rollout;
mod tenants;
mod witness;
