//! A LynqNode as the gate reads it: its metadata as values, its contents as text of which only the hash is made. What no decision
//! reads is skipped.

use std::borrow::Cow;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess};
use serde_json::{Map, Value};

use crate::decide::admission::review::{Reviewed, metadata};
use crate::decide::gate::{annotation, bears_a_hold};
use crate::decide::shared::content::lists::{Content, Lists};
use crate::decide::shared::fields::{Fields, Object};

/// A LynqNode as it was sent.
#[derive(Clone, Debug)]
pub struct Sent<'a> {
    object: Value,
    lists: Lists<'a>,
    released: Option<Lists<'a>>,
}

/// A LynqNode with the hashes of its contents.
#[derive(Clone, Debug)]
pub struct Node<'a> {
    /// Everything but the contents; status and managed fields may be missing.
    pub object: &'a Value,
    pub content: Content<'a>,
    /// `spec.released`
    pub released: Option<Content<'a>>,
}

/// The stored node, where there is one, and the written one.
pub type Nodes<'a> = (Option<Node<'a>>, Node<'a>);

impl<'a> Node<'a> {
    pub fn both(
        old: Option<&'a Sent<'a>>,
        new: &'a Sent<'a>,
    ) -> Result<Nodes<'a>, serde_json::Error> {
        let read = |sent: &'a Sent<'a>, stored: Option<&Node>| {
            let Sent {
                object,
                lists,
                released,
            } = sent;
            Node::read(object, lists.clone(), released.clone(), stored)
        };
        let old = old.map(|old| read(old, None)).transpose()?;
        let new = read(new, old.as_ref())?;
        Ok((old, new))
    }

    /// Of an object that was read as a value.
    pub fn of(object: &'a Value) -> Self {
        let spec = object.get("spec");
        let released = spec.and_then(|spec| spec.get("released"));
        let released = released.filter(|released| released.is_object());
        let of_released = released.map(|_| Lists::of(released));
        let read = Node::read(object, Lists::of(spec), of_released, None);
        read.expect("what was read once can be read again")
    }

    /// A list that the stored node has, too, or that is live as it is desired, is not read once more.
    fn read(
        object: &'a Value,
        lists: Lists<'a>,
        released: Option<Lists<'a>>,
        stored: Option<&Node>,
    ) -> Result<Self, serde_json::Error> {
        let of_stored = stored.map(|stored| [Some(&stored.content), stored.released.as_ref()]);
        let of_stored = || of_stored.into_iter().flatten().flatten();
        let released = released.map(|lists| Content::read(lists, of_stored()));
        let released = released.transpose()?;
        let content = Content::read(lists, of_stored().chain(&released))?;
        Ok(Node {
            object,
            content,
            released,
        })
    }

    pub fn annotation(&self, name: &str) -> Option<&'a str> {
        annotation(self.object, name)
    }

    /// Whatever it is.
    pub fn has_released(&self) -> bool {
        self.released.is_some() || self.object.pointer("/spec/released").is_some()
    }

    pub fn has_spec(&self) -> bool {
        self.object.get("spec").is_some_and(|spec| !spec.is_null())
    }

    pub fn bears_a_hold(&self) -> bool {
        self.released.is_some() || bears_a_hold(self.object)
    }
}

impl<'de> Reviewed<'de> for Sent<'de> {
    fn object(&self) -> &Value {
        &self.object
    }
}

impl<'de> Deserialize<'de> for Sent<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Object(Parts { fields, spec }) = Object::deserialize(deserializer)?;
        Ok(Sent {
            object: fields.into(),
            lists: spec.lists,
            released: spec.released,
        })
    }
}

#[derive(Default)]
struct Parts<'a> {
    /// The metadata, and what the spec has beside contents.
    fields: Map<String, Value>,
    spec: Spec<'a>,
}

impl<'de> Fields<'de> for Parts<'de> {
    fn field<A: MapAccess<'de>>(
        &mut self,
        name: Cow<'de, str>,
        value: &mut A,
    ) -> Result<(), A::Error> {
        let field: Value = match &*name {
            "metadata" => metadata(value)?,
            "spec" => {
                let spec = value.next_value::<Option<Object<Spec>>>()?;
                self.spec = Spec::default();
                match spec {
                    None => Value::Null,
                    Some(Object(spec)) => {
                        self.spec = spec;
                        std::mem::take(&mut self.spec.fields).into()
                    }
                }
            }
            _ => return value.next_value().map(|IgnoredAny| ()),
        };
        self.fields.insert(name.into_owned(), field);
        Ok(())
    }
}

#[derive(Default)]
struct Spec<'a> {
    lists: Lists<'a>,
    released: Option<Lists<'a>>,
    fields: Map<String, Value>,
}

impl<'de> Fields<'de> for Spec<'de> {
    fn field<A: MapAccess<'de>>(
        &mut self,
        name: Cow<'de, str>,
        value: &mut A,
    ) -> Result<(), A::Error> {
        if self.lists.take(&name, value)? {
            return Ok(());
        }
        let field: Value = match &*name {
            "released" => {
                let released = value.next_value::<Option<Object<Lists>>>()?;
                self.released = released.map(|Object(lists)| lists);
                // That it is there counts, also as null.
                Value::Null
            }
            _ => value.next_value()?,
        };
        self.fields.insert(name.into_owned(), field);
        Ok(())
    }
}
