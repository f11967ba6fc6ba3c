//! What listens: the admission webhooks, the metrics and the state of the releases over TLS, and the probes. Decides nothing; `decide` answers.

pub mod access;
pub mod files;
pub mod metrics;
pub mod probes;
pub mod state;
pub mod tls;
pub mod webhook;
