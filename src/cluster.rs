//! The only calls to the API server: requests, watches, leader election, events. No decisions.

pub mod api_error;
pub mod cache;
pub mod catalog;
pub mod children;
pub mod client;
pub mod clock;
pub mod events;
pub mod evictions;
pub mod inventory;
pub mod json_object;
pub mod lease;
pub mod namespaces;
pub mod nodes;
pub mod objects;
pub mod process;
mod prose;
pub mod published;
pub mod queue;
pub mod shallow;
pub mod shared;
pub mod unmanaged;
pub mod vital;
pub mod watch;
