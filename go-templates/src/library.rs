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
    /// No function at all.
    pub fn empty() -> Library {
        Library::default()
    }

    /// Go's functions and sprig's, without those that ask the machine or the network (`env`, `expandenv`,
    /// `getHostByName`) and those whose salt or key is new each time (`bcrypt`, `htpasswd`, `genPrivateKey`, `genCA`,
    /// `genSignedCert` and the like).
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

    /// Without a function, whose name then has an error of its own: `function NAME is refused: WHY`.
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

    /// Why there is no function of that name; `None` if it is there, or simply unknown.
    pub fn refusal(&self, name: &str) -> Option<&str> {
        self.refused.get(name).map(String::as_str)
    }

    /// Every name that is refused, sorted.
    pub fn refused(&self) -> impl Iterator<Item = &'static str> {
        self.refused.keys().copied()
    }
}
