//! lynqgate: one set of Kubernetes resources per database row, changed a few rows at a time.
//!
//! The layers, lowest first; each may use only those before it (`tests/tidy.rs` holds this):
//! `api` has the nouns, `decide` every decision (pure), `cluster` and `datasource` talk to the world,
//! `controller` and `server` are shells of observe, decide, act, and `cli` starts them.

// `expect` says why it cannot fail.
#![warn(clippy::unwrap_used)]

pub mod api;
pub mod cli;
pub mod cluster;
pub mod controller;
pub mod datasource;
// The bans of clippy.toml; the tests beside the decisions may do more.
#[cfg_attr(
    not(test),
    forbid(
        clippy::disallowed_macros,
        clippy::disallowed_methods,
        clippy::disallowed_types
    )
)]
pub mod decide;
pub mod server;

/// The gate makes and drops thousands of small values for each request, and musl's own allocator, which a static program
/// would have, takes a lock for each.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
