//! What a template may know besides its variables: when its row was first seen, and the secret that makes random values repeatable. Draws nothing itself.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

/// What is known of one row and one resource.
#[derive(Debug, Clone)]
pub struct Facts {
    /// What `now` gives.
    pub first_seen: Timestamp,
    pub seed: Seed,
}

/// The hub's secret, with the row and the resource that random values are drawn for.
#[derive(Clone)]
pub struct Seed {
    /// Secret: whoever knows it can compute every generated password.
    pub key: [u8; 32],
    pub uid: String,
    pub resource_id: String,
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seed")
            .field("uid", &self.uid)
            .field("resource_id", &self.resource_id)
            .finish_non_exhaustive()
    }
}

/// The template being rendered.
#[derive(Debug, Clone)]
pub struct Place {
    /// Where in the resource it stands, such as `spec.stringData.password`.
    pub path: String,
    pub text: Arc<str>,
}
