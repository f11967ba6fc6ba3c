//! What the API server has against an object, by its kind's own rules: as much of them as anybody here breaks.

use serde_json::{Value, json};

use crate::api::requests::Refused;
use crate::api::store::{DEPLOYMENT, KINDS, Key};

pub fn check(kind: usize, key: &Key, old: Option<&Value>, new: &Value) -> Result<(), Refused> {
    if kind != DEPLOYMENT {
        return Ok(());
    }
    let (spec, selector) = (&new["spec"], &new["spec"]["selector"]);
    let (field, value, why) = if spec["replicas"].as_i64().is_some_and(|count| count < 0) {
        let why = "must be greater than or equal to 0";
        ("replicas", &spec["replicas"], why)
    } else if old.is_some_and(|old| old["spec"]["selector"] != *selector) {
        ("selector", selector, "field is immutable")
    } else {
        return Ok(());
    };
    let named = format!("{} {:?}", KINDS[kind].kind, key.1);
    let (field, what) = (
        format!("spec.{field}"),
        format!("Invalid value: {value}: {why}"),
    );
    let message = format!("{named} is invalid: {field}: {what}");
    Err(Refused {
        causes: json!([{"reason": "FieldValueInvalid", "message": what, "field": field}]),
        ..Refused::new(422, "Invalid", message)
    })
}
