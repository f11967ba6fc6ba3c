//! What listens: the admission webhook over TLS, and probes and metrics. Decides nothing; `decide` answers.

pub mod probes;
pub mod tls;
pub mod webhook;
