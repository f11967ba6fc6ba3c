//! The one integration binary: real control plane, real database, the real program.

mod admission;
mod architecture;
mod auditor;
mod bad_input;
mod cluster;
mod datasource;
mod dice;
mod fence;
mod forms;
mod hub;
mod idle;
mod install;
mod operator;
mod policy;
mod process;
mod proxy;
mod readiness;
mod relay;
mod rollout;
mod template_functions;
mod tenants;
mod tidy;
mod witness;
mod words;
