//! What listens: the admission webhooks and the metrics over TLS, and the probes. Decides nothing; `decide` answers.

pub mod files;
pub mod metrics;
pub mod probes;
pub mod tls;
pub mod webhook;
