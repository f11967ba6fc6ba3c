//! Inputs of a template besides its variables: the time, and the seed that makes random values repeatable. Generates no values
//! itself.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

/// The time and the seed of a rendering. A missing fact is an error message, which the functions that need it return.
///
/// Both are missing by default.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The result of `now`, and the time from which `ago` counts.
    pub now: Result<Timestamp, &'static str>,
    /// The seed of random functions.
    pub seed: Result<Seed, &'static str>,
}

impl Default for Facts {
    fn default() -> Facts {
        Facts {
            now: Err("no time was given to the rendering"),
            seed: Err("no seed for random values was given to the rendering"),
        }
    }
}

/// A secret, and what tells the values that are drawn from it from those of others with the same secret.
///
/// Two renderings with the same seed, place and order of calls draw the same values, in every release of this crate.
#[derive(Clone)]
pub struct Seed {
    /// With it, every generated password can be computed.
    pub(crate) key: [u8; 32],
    pub(crate) scope: Vec<Vec<u8>>,
}

impl Seed {
    /// `key` is secret. `scope` names what the values are for, such as a user and a document: each list of parts draws
    /// other values.
    pub fn new<P: AsRef<[u8]>>(key: [u8; 32], scope: impl IntoIterator<Item = P>) -> Seed {
        let parts = scope.into_iter().map(|part| part.as_ref().to_vec());
        Seed {
            key,
            scope: parts.collect(),
        }
    }
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scope = self.scope.iter().map(|part| String::from_utf8_lossy(part));
        f.debug_struct("Seed")
            .field("scope", &scope.collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// Which template is rendered: each place draws random values of its own.
#[derive(Debug, Clone)]
pub struct Place {
    /// Where in a larger document the template stands, such as `spec.password`.
    pub path: String,
    /// The template's text, so that an edit changes the values.
    pub text: Arc<str>,
}

impl Default for Place {
    fn default() -> Place {
        Place {
            path: String::new(),
            text: Arc::from(""),
        }
    }
}
