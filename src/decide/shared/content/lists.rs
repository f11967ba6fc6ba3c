//! Content as text: the lists of a node's spec as they are written, of which only the hash is made.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::de::{IgnoredAny, MapAccess};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::canonical::{CanonicalList, ListsDigest};
use super::{DEPTH_MAX, Hash, SIZE_MAX, TooDeep, TooLarge, check_depth, check_size, has_template};
use crate::api::resource::ARRAYS;
use crate::decide::shared::fields::Fields;

/// JSON as it is written. The API server writes what is the same in the same way.
pub type RawJson<'a> = Cow<'a, RawValue>;

/// The resource arrays that are there, by name.
#[derive(Clone, Debug, Default)]
pub struct Lists<'a>(BTreeMap<&'static str, RawJson<'a>>);

impl<'a> Lists<'a> {
    /// Those of a node's spec, or of its `released`.
    pub fn of(spec: Option<&Value>) -> Self {
        let list = |array: &'static str| Some((array, text_of(spec?.get(array)?)));
        Lists(ARRAYS.into_iter().filter_map(list).collect())
    }

    /// Takes the field if it is one of the arrays.
    pub fn take<A: MapAccess<'a>>(&mut self, name: &str, value: &mut A) -> Result<bool, A::Error> {
        let Some(array) = ARRAYS.into_iter().find(|array| *array == name) else {
            return Ok(false);
        };
        let text: &RawValue = value.next_value()?;
        self.0.insert(array, Cow::Borrowed(text));
        Ok(true)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &RawJson<'a>)> {
        self.0.iter().map(|(array, text)| (*array, text))
    }

    pub fn get(&self, array: &str) -> Option<&RawJson<'a>> {
        self.0.get(array)
    }

    /// Those that are not empty.
    pub fn filled(&self) -> Self {
        let filled = self.0.iter().filter(|(_, text)| !is_empty(text.get()));
        Lists(filled.map(|(array, text)| (*array, text.clone())).collect())
    }

    /// True when they are the very same text: cheaper than two hashes, which may be equal even where this is false.
    pub fn is_same(&self, other: &Lists) -> bool {
        self.0.len() == other.0.len()
            && self
                .0
                .iter()
                .zip(&other.0)
                .all(|((name, one), (other_name, other))| {
                    name == other_name && one.get() == other.get()
                })
    }

    /// True when they are the same values.
    pub fn is_equal(&self, other: &Lists) -> bool {
        self.is_same(other) || self.value() == other.value()
    }

    pub fn text(&self) -> RawJson<'static> {
        Cow::Owned(to_raw_value(&self.0).expect("texts can be written"))
    }

    /// Of lists that were read before, to make their hash.
    pub fn value(&self) -> Value {
        let read = |(array, text): (&&str, &RawJson)| {
            let value = serde_json::from_str(text.get()).expect("it was read before");
            ((*array).to_owned(), value)
        };
        Value::Object(self.0.iter().map(read).collect())
    }
}

pub fn text_of(value: &Value) -> RawJson<'static> {
    Cow::Owned(to_raw_value(value).expect("a value can be written"))
}

/// Whether it is null, or a list, an object or a text with nothing in it.
pub fn is_empty(text: &str) -> bool {
    let between = |open: char, close: char| {
        let rest = text.strip_prefix(open);
        rest.is_some_and(|rest: &str| rest.trim_start().starts_with(close))
    };
    matches!(text, "null" | "\"\"") || between('[', ']') || between('{', '}')
}

impl<'de> Fields<'de> for Lists<'de> {
    fn field<A: MapAccess<'de>>(
        &mut self,
        name: Cow<'de, str>,
        value: &mut A,
    ) -> Result<(), A::Error> {
        match self.take(&name, value)? {
            true => Ok(()),
            false => value.next_value().map(|IgnoredAny| ()),
        }
    }
}

/// Lists that were read once, to make their hash.
#[derive(Clone, Debug)]
pub struct Content<'a> {
    pub lists: Lists<'a>,
    pub hash: Hash,
    canonical: BTreeMap<&'static str, Arc<CanonicalList>>,
}

impl<'a> Content<'a> {
    /// A list that one of the known contents has, too, is not read again.
    pub fn read<'k>(
        lists: Lists<'a>,
        known: impl IntoIterator<Item = &'k Content<'k>>,
    ) -> Result<Self, serde_json::Error> {
        let known: Vec<&Content> = known.into_iter().collect();
        if let Some(known) = known.iter().find(|known| known.lists.is_same(&lists)) {
            return Ok(Content {
                lists,
                hash: known.hash.clone(),
                canonical: known.canonical.clone(),
            });
        }
        let mut canonical = BTreeMap::new();
        let mut digest = ListsDigest::default();
        for (array, text) in lists.iter() {
            if !text.get().starts_with('[') {
                // No content, but to be read all the same.
                serde_json::from_str::<Value>(text.get())?;
                continue;
            }
            let known = known.iter().find_map(|known| known.canonical(array, text));
            let list = match known {
                Some(list) => list,
                None => Arc::new(CanonicalList::read(array, text.get())?),
            };
            digest.add(&list);
            canonical.insert(array, list);
        }
        Ok(Content {
            lists,
            hash: Hash::of(digest),
            canonical,
        })
    }

    /// The list in canonical form, if this content has it in this text.
    fn canonical(&self, array: &str, text: &RawJson) -> Option<Arc<CanonicalList>> {
        let own = self.lists.get(array)?;
        let is_same = own.get() == text.get();
        is_same.then(|| self.canonical.get(array).cloned())?
    }

    pub fn is_empty(&self) -> bool {
        self.lists.0.values().all(|text| is_empty(text.get()))
    }

    pub fn check_size(&self) -> Result<(), TooLarge> {
        // No character of JSON is encoded in more than six.
        let size: usize = self.lists.0.values().map(|text| text.get().len()).sum();
        match 6 * size > SIZE_MAX {
            true => check_size(Some(&self.lists.value())),
            false => Ok(()),
        }
    }

    pub fn check_depth(&self) -> Result<(), TooDeep> {
        // The resource around the manifest is one level more.
        let is_too_deep = |list: &Arc<CanonicalList>| list.levels > DEPTH_MAX + 1;
        match self.canonical.values().any(is_too_deep) {
            true => check_depth(Some(&self.lists.value())),
            false => Ok(()),
        }
    }

    pub fn has_template(&self) -> bool {
        has_template(Some(&self.lists.value()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::decide::shared::content;
    use crate::decide::shared::fields::Object;

    fn lists(text: &str) -> Lists<'_> {
        let Object(lists) = serde_json::from_str(text).unwrap();
        lists
    }

    fn read(text: &str) -> Content<'_> {
        Content::read(lists(text), []).unwrap()
    }

    #[test]
    fn text_hashes_like_its_value() {
        for text in [
            r#"{}"#,
            r#"{"jobs": null, "secrets": [], "uid": "a"}"#,
            r#"{"jobs": [{"spec": {"b": 1.0, "a": [-0, 1e2, 1e300, 18446744073709551615]}, "id": "\u0041\"\\"}, 7, {"id": ""}]}"#,
            r#"{"jobs": [{"id": "y", "timeoutSeconds": 300, "patchStrategy": "apply", "dependIds": []}, {"id": "x"}]}"#,
            r##"{"jobs": [{"id": "y", "id": "x", "timeoutSeconds": 7, "timeoutSeconds": 300, "spec": {"b": 1, "a": 2, "b": 3, "\"": 0, "!": 0, "#": 0}}]}"##,
        ] {
            let value: Value = serde_json::from_str(text).unwrap();
            assert_eq!(read(text).hash, content::hash(Some(&value)), "{text}");
        }
    }

    #[test]
    fn empty_is_what_has_nothing_in_it() {
        for (text, empty) in [
            ("null", true),
            ("[ ]", true),
            ("{}", true),
            ("\"\"", true),
            ("\" \"", false),
            ("[[]]", false),
            ("0", false),
        ] {
            assert_eq!(is_empty(text), empty, "{text}");
        }
    }

    #[test]
    fn what_is_known_is_not_read_again() {
        let text = r#"{"jobs": [{"id": "x", "spec": {"a": 1e999}}]}"#;
        let lists = lists(text);
        assert!(Content::read(lists.clone(), []).is_err(), "it cannot be");
        let known = Content {
            lists: lists.clone(),
            ..read("{}")
        };
        assert_eq!(Content::read(lists, [&known]).unwrap().hash, known.hash);

        let text = |image: &str| {
            format!(
                r#"{{"deployments": [{{"id": "app", "spec": {{"image": "{image}"}}}}], "services": [{{"id": "app", "spec": {{}}}}]}}"#
            )
        };
        let (stored, written) = (text("web:1"), text("web:2"));
        let known = read(&stored);
        let content = Content::read(self::lists(&written), [&known]).unwrap();
        assert_eq!(content.hash, read(&written).hash);
        let is_shared = |array| Arc::ptr_eq(&content.canonical[array], &known.canonical[array]);
        assert_eq!(["deployments", "services"].map(is_shared), [false, true]);
    }

    #[test]
    fn limits_hold_for_text() {
        let deep = |levels: usize| {
            let (open, close) = ("[".repeat(levels), "]".repeat(levels));
            format!(r#"{{"jobs":[{{"id":"x","spec":{{"a":{open}{close}}}}}]}}"#)
        };
        assert_eq!(read(&deep(DEPTH_MAX - 1)).check_depth(), Ok(()));
        let too_deep = read(&deep(DEPTH_MAX)).check_depth().unwrap_err();
        assert_eq!((too_deep.array, too_deep.id.as_str()), ("jobs", "x"));
        let deeper = deep(1_000);
        let unread = lists(&deeper);
        assert!(
            Content::read(unread, []).is_err(),
            "deeper than serde_json reads"
        );
        let large = |length: usize| {
            let text = "<".repeat(length);
            json!({"jobs": [{"id": "x", "spec": {"a": text}}]}).to_string()
        };
        assert_eq!(read(&large(100_000)).check_size(), Ok(()));
        assert!(read(&large(110_000)).check_size().is_err());
    }

    proptest! {
        /// Twins, orders, spaces: what a text means is what its value means.
        #[test]
        fn any_text_hashes_like_its_value(
            fields in prop::collection::vec(("[a-c\"]{0,2}|id|timeoutSeconds", "[0-9]|300|null|\"é?\"|\\[\\]|\\{ \"b\":1, \"a\" :2\\}|-?[0-9]\\.[0-9]e-?[0-9]{1,2}"), 0..6),
        ) {
            let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{} :{value}", json!(name))).collect();
            let text = format!(r#"{{"jobs":[{{{0}}}, {{"id":"x","spec":{{{0}}}}}]}}"#, fields.join(", "));
            let value: Value = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(read(&text).hash, content::hash(Some(&value)), "{}", text);
        }
    }
}
