//! The parts of an object that a review reads.

use std::borrow::Cow;
use std::ops::Deref;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess};
use serde_json::{Map, Value};

use crate::decide::shared::fields::{Fields, Object};

pub trait Reviewed<'de>: Deserialize<'de> {
    /// The object, as far as it was parsed into a value.
    fn object(&self) -> &Value;
}

/// All of an object that any decision reads.
#[derive(Clone, Debug)]
pub struct ObjectValue(Value);

impl Deref for ObjectValue {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.0
    }
}

impl<'de> Reviewed<'de> for ObjectValue {
    fn object(&self) -> &Value {
        self
    }
}

impl<'de> Deserialize<'de> for ObjectValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Object(ObjectFields(fields)) = Object::deserialize(deserializer)?;
        Ok(ObjectValue(fields.into()))
    }
}

#[derive(Default)]
struct ObjectFields(Map<String, Value>);

impl<'de> Fields<'de> for ObjectFields {
    fn field<A: MapAccess<'de>>(
        &mut self,
        name: Cow<'de, str>,
        value: &mut A,
    ) -> Result<(), A::Error> {
        let field: Value = match &*name {
            "metadata" => metadata(value)?,
            _ => value.next_value()?,
        };
        self.0.insert(name.into_owned(), field);
        Ok(())
    }
}

/// An object's metadata without `managedFields`, which may be as long as the object, and which no decision of a webhook reads.
pub fn metadata<'de, A: MapAccess<'de>>(value: &mut A) -> Result<Value, A::Error> {
    let Object(Metadata(metadata)) = value.next_value()?;
    Ok(metadata.into())
}

#[derive(Default)]
struct Metadata(Map<String, Value>);

impl<'de> Fields<'de> for Metadata {
    fn field<A: MapAccess<'de>>(
        &mut self,
        name: Cow<'de, str>,
        value: &mut A,
    ) -> Result<(), A::Error> {
        if name == "managedFields" {
            return value.next_value().map(|IgnoredAny| ());
        }
        self.0.insert(name.into_owned(), value.next_value()?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::decide::admission::review::{Request, read};

    #[test]
    fn managed_fields_are_skipped() {
        let body = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "u", "operation": "UPDATE",
                "object": {"kind": "X", "metadata": {"name": "x", "managedFields": [{"manager": "y"}]}},
            },
        });
        let body = body.to_string();
        let request: Request = read(body.as_bytes()).unwrap();
        let expected = json!({"kind": "X", "metadata": {"name": "x"}});
        assert_eq!(request.object.as_deref(), Some(&expected));
    }
}
