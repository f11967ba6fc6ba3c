//! Whether a stored object says what a manifest says, though the API server has filled in defaults and rewritten
//! quantities. Pure. Where it is unsure it must say no only if the two mean different things.

use serde_json::{Map, Value};

/// Fields whose values are quantities, or hold them: `1000m` and `1` are the same there, and only there.
const QUANTITIES: [&str; 8] = [
    "resources",
    "limits",
    "requests",
    "sizeLimit",
    "capacity",
    "hard",
    "storage",
    "divisor",
];

/// True when everything that `wanted` names stands in `found`. More may stand there: defaults, or what others added.
pub fn says(wanted: &Value, found: Option<&Value>, quantity: bool) -> bool {
    let Some(found) = found else {
        return is_empty(wanted);
    };
    match (wanted, found) {
        (Value::Null, _) => true,
        (Value::Object(wanted), Value::Object(found)) => wanted
            .iter()
            .all(|(name, value)| says(value, found.get(name), quantity || is_quantity(name))),
        (Value::Array(wanted), Value::Array(found)) => list_says(wanted, found, quantity),
        (wanted, found) => wanted == found || same_scalar(wanted, found, quantity),
    }
}

pub fn is_quantity(field: &str) -> bool {
    QUANTITIES.contains(&field)
}

fn list_says(wanted: &[Value], found: &[Value], quantity: bool) -> bool {
    let is_keyed = wanted.iter().all(Value::is_object) && !wanted.is_empty();
    if !is_keyed {
        return wanted.len() == found.len()
            && wanted
                .iter()
                .zip(found)
                .all(|(w, f)| says(w, Some(f), quantity));
    }
    let name = |item: &Value| item.get("name").and_then(Value::as_str).map(str::to_owned);
    wanted.iter().all(|item| match name(item) {
        Some(wanted_name) if found.iter().any(|f| name(f).is_some()) => found
            .iter()
            .filter(|f| name(f).as_ref() == Some(&wanted_name))
            .any(|f| says(item, Some(f), quantity)),
        _ => found.iter().any(|f| says(item, Some(f), quantity)),
    })
}

/// What the API server leaves out when it stores an object.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(n) => n.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
    }
}

fn same_scalar(one: &Value, other: &Value, quantity: bool) -> bool {
    match (one, other) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        _ if quantity => {
            let (a, b) = (quantity_of(one), quantity_of(other));
            a.is_some() && a == b
        }
        _ => false,
    }
}

/// In nano-units, so that `0.1` and `100m` meet exactly. None for what is no quantity.
fn quantity_of(value: &Value) -> Option<i128> {
    let text = match value {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        _ => return None,
    };
    let at = text
        .find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | '+' | '-'))
        .unwrap_or(text.len());
    let (digits, suffix) = text.split_at(at);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let mut number: i128 = format!("{whole}{fraction}").parse().ok()?;
    let mut scale = -i32::try_from(fraction.len()).ok()?;
    let binary = match suffix {
        "Ki" => 1,
        "Mi" => 2,
        "Gi" => 3,
        "Ti" => 4,
        "Pi" => 5,
        "Ei" => 6,
        _ => 0,
    };
    scale += match suffix {
        "n" => -9,
        "u" => -6,
        "m" => -3,
        "" => 0,
        "k" => 3,
        "M" => 6,
        "G" => 9,
        "T" => 12,
        "P" => 15,
        "E" => 18,
        _ if binary > 0 => 0,
        _ => suffix.strip_prefix(['e', 'E'])?.parse().ok()?,
    };
    number = number.checked_mul(1024i128.checked_pow(binary)?)?;
    let nano = scale + 9;
    if nano >= 0 {
        number.checked_mul(10i128.checked_pow(nano as u32)?)
    } else {
        number.checked_div(10i128.checked_pow(nano.unsigned_abs())?)
    }
}

/// One text for equal values, whatever the order of their keys.
pub fn canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(fields) => canonical_fields(fields, out),
        Value::Array(list) => {
            out.push('[');
            for item in list {
                canonical(item, out);
                out.push(',');
            }
            out.push(']');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

fn canonical_fields(fields: &Map<String, Value>, out: &mut String) {
    let mut names: Vec<&String> = fields.keys().collect();
    names.sort();
    out.push('{');
    for name in names {
        out.push_str(&Value::from(name.as_str()).to_string());
        out.push(':');
        canonical(&fields[name], out);
        out.push(',');
    }
    out.push('}');
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn defaults_and_quantities_are_no_difference_but_values_are() {
        for (name, wanted, found, same) in [
            (
                "a default was added",
                json!({"a": 1}),
                json!({"a": 1, "b": 2}),
                true,
            ),
            ("another value", json!({"a": 1}), json!({"a": 2}), false),
            ("a field is missing", json!({"a": 1}), json!({}), false),
            (
                "an empty field was left out",
                json!({"a": "", "b": {}, "c": null, "d": 0}),
                json!({}),
                true,
            ),
            (
                "milli",
                json!({"resources": {"limits": {"cpu": "0.5"}}}),
                json!({"resources": {"limits": {"cpu": "500m"}}}),
                true,
            ),
            (
                "a number",
                json!({"limits": {"cpu": 1}}),
                json!({"limits": {"cpu": "1"}}),
                true,
            ),
            (
                "binary",
                json!({"limits": {"memory": "1024Mi"}}),
                json!({"limits": {"memory": "1Gi"}}),
                true,
            ),
            (
                "exponent",
                json!({"limits": {"memory": "1e3"}}),
                json!({"limits": {"memory": "1k"}}),
                true,
            ),
            (
                "another quantity",
                json!({"limits": {"cpu": "0.5"}}),
                json!({"limits": {"cpu": "501m"}}),
                false,
            ),
            (
                "no quantity",
                json!({"env": "1"}),
                json!({"env": "1.0"}),
                false,
            ),
            (
                "a list by name",
                json!([{"name": "b", "v": 1}]),
                json!([{"name": "a"}, {"name": "b", "v": 1, "w": 2}]),
                true,
            ),
            (
                "another of that name",
                json!([{"name": "b", "v": 1}]),
                json!([{"name": "a", "v": 1}, {"name": "b", "v": 2}]),
                false,
            ),
            (
                "ports",
                json!([{"port": 80}]),
                json!([{"port": 80, "protocol": "TCP"}]),
                true,
            ),
            (
                "arguments in another order",
                json!(["a", "b"]),
                json!(["b", "a"]),
                false,
            ),
            ("fewer arguments", json!(["a"]), json!(["a", "b"]), false),
        ] {
            assert_eq!(says(&wanted, Some(&found), false), same, "{name}");
        }
    }
}
