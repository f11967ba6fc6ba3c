//! A few texts by their names, as they are kept of very many objects or rows: without a map's empty places, and with names that
//! can be shared.

use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Texts(Box<[(Arc<str>, Box<str>)]>);

impl Texts {
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter()
            .find(|(known, _)| *known == name)
            .map(|(_, text)| text)
    }

    /// By name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, text)| (&**name, &**text))
    }
}

/// Of several texts of one name the last counts.
impl FromIterator<(Arc<str>, Box<str>)> for Texts {
    fn from_iter<I: IntoIterator<Item = (Arc<str>, Box<str>)>>(texts: I) -> Self {
        let sorted: BTreeMap<Arc<str>, Box<str>> = texts.into_iter().collect();
        Texts(sorted.into_iter().collect())
    }
}

impl From<BTreeMap<String, String>> for Texts {
    fn from(texts: BTreeMap<String, String>) -> Self {
        let all = texts.into_iter();
        all.map(|(name, text)| (name.into(), text.into())).collect()
    }
}
