//! The engine against the results that Go itself gave for the cases under tests, and against hostile templates.

use serde_json::Value as Json;

use crate::budget::{Budget, Limit, Limits};
use crate::context::Context;
use crate::library::Library;
use crate::template::Template;
use crate::value::{Dict, Element, List, Text, Value};

mod hostile;
mod language;

/// Renders with `vars` and the default limits: the output, or the error's text.
fn render(text: &str, vars: &Json) -> Result<Vec<u8>, String> {
    let template =
        Template::parse(&Library::sprig(), "t", text).map_err(|error| error.to_string())?;
    let mut context = Context::new(Budget::default());
    match template.render(&native(vars), &mut context) {
        Ok(output) => Ok(output.bytes().to_vec()),
        Err(error) => Err(error.to_string()),
    }
}

/// Which limit a template runs into, or `None`.
fn limit_of(text: &str, limits: Limits) -> Option<Limit> {
    let template = match Template::parse(&Library::sprig(), "t", text) {
        Ok(template) => template,
        Err(error) => return error.limit,
    };
    let mut context = Context::new(Budget::new(limits));
    let vars = native(&serde_json::json!({"s": "text", "l": [1, 2, 3]}));
    template
        .render(&vars, &mut context)
        .err()
        .and_then(|error| error.limit)
}

/// JSON's values with Go's types. An object with one key that begins with a dollar sign names a type that JSON does
/// not have, as in the oracle.
fn native(json: &Json) -> Value {
    match json {
        Json::Null => Value::Nil,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => match number.as_i64() {
            Some(int) => Value::Int(int),
            None => Value::Float(number.as_f64().unwrap()),
        },
        Json::String(text) => Value::str(text),
        Json::Array(items) => list(Element::Any, items),
        Json::Object(entries) => {
            if let Some((kind, value)) = entries.iter().next()
                && kind.starts_with('$')
            {
                return special(kind, value);
            }
            Value::Dict(Dict::new(
                entries
                    .iter()
                    .map(|(key, value)| (Text::from(key.as_bytes()), native(value)))
                    .collect(),
            ))
        }
    }
}

fn special(kind: &str, json: &Json) -> Value {
    match kind {
        "$int64" => Value::Int64(json.as_i64().unwrap()),
        "$uint64" => Value::Uint64(json.as_u64().unwrap()),
        "$strings" => list(Element::Str, json.as_array().unwrap()),
        "$strmap" => Value::Dict(Dict::of_strings(
            json.as_object()
                .unwrap()
                .iter()
                .map(|(key, value)| (Text::from(key.as_bytes()), native(value)))
                .collect(),
        )),
        other => panic!("the cases use the unknown type {other}"),
    }
}

fn list(element: Element, items: &[Json]) -> Value {
    Value::List(List::new(element, items.iter().map(native).collect()))
}
