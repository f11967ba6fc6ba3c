//! Reads objects field by field, so that unused fields are not built, and finds fields by their place.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

/// The value at a place such as `/metadata/name`. The names must have no escapes: serde_json's `pointer` handles them, and copies
/// each name twice for it.
pub fn at<'a>(object: &'a Value, place: &str) -> Option<&'a Value> {
    let mut names = place.split('/').skip(1);
    names.try_fold(object, |value, name| value.get(name))
}

/// The text at a place; empty if there is none.
pub fn text_at<'a>(object: &'a Value, place: &str) -> &'a str {
    at(object, place)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The name of a field; borrowed where it has no escapes.
#[derive(serde::Deserialize)]
pub struct Name<'a>(#[serde(borrow)] pub Cow<'a, str>);

/// What is made of an object's fields.
pub trait Fields<'de>: Default {
    /// Takes or skips the field's value. Of twins the last one counts.
    fn field<A: MapAccess<'de>>(
        &mut self,
        name: Cow<'de, str>,
        value: &mut A,
    ) -> Result<(), A::Error>;
}

/// An object; nothing else is taken for one.
pub struct Object<T>(pub T);

impl<'de, T: Fields<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Reader(PhantomData))
    }
}

struct Reader<T>(PhantomData<T>);

impl<'de, T: Fields<'de>> Visitor<'de> for Reader<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = T::default();
        while let Some(Name(name)) = map.next_key()? {
            fields.field(name, &mut map)?;
        }
        Ok(Object(fields))
    }
}
