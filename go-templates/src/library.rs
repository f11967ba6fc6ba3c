//! Which functions templates can call: Go's and sprig's, and those that the embedder adds, replaces or refuses. Calls none.

use std::collections::BTreeMap;

use crate::functions::{self, Function};

/// A set of functions by their names. A template is parsed against one.
///
/// `and` and `or`, which stop early, belong to the language: no library has them, and none can replace them.
#[derive(Debug, Clone, Default)]
pub struct Library {
    functions: BTreeMap<&'static str, Function>,
    refused: BTreeMap<&'static str, String>,
}

impl Library {
    /// A library without functions.
    pub fn empty() -> Library {
        Library::default()
    }

    /// Go's and sprig's functions, without those that read from the machine or the network (`env`, `expandenv`, `getHostByName`),
    /// and those with a new salt or key at each call (`bcrypt`, `htpasswd`, `genPrivateKey`, `genCA`, `genSignedCert` and the
    /// like).
    pub fn sprig() -> Library {
        Library::empty().with(functions::all().copied())
    }

    /// With these functions too; each takes the place of one with its name.
    pub fn with(mut self, functions: impl IntoIterator<Item = Function>) -> Library {
        let named = functions
            .into_iter()
            .map(|function| (function.name, function));
        self.functions.extend(named);
        self
    }

    /// Removes a function and gives its name an error of its own: `function NAME is refused: WHY`.
    pub fn refusing(mut self, name: &'static str, why: &str) -> Library {
        self.functions.remove(name);
        let message = format!("function {name} is refused: {why}");
        self.refused.insert(name, message);
        self
    }

    /// The function of that name, if there is one.
    pub fn get(&self, name: &str) -> Option<&Function> {
        self.functions.get(name)
    }

    /// Every function, sorted by name.
    pub fn functions(&self) -> impl Iterator<Item = &Function> {
        self.functions.values()
    }

    /// Why the function is refused; `None` if it exists, or is unknown.
    pub fn refusal(&self, name: &str) -> Option<&str> {
        self.refused.get(name).map(String::as_str)
    }

    /// The names of refused functions, sorted.
    pub fn refused(&self) -> impl Iterator<Item = &'static str> {
        self.refused.keys().copied()
    }
}
