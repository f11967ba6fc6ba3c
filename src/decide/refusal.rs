//! What the API server says of an object that it refuses, without the values in it: those may come from a row, and the
//! text ends up in conditions, events and logs. The field and the rule stay.

use std::cmp::Reverse;

/// What stands before a value in the API server's validation errors and in those of Go's parsers.
const BEFORE_VALUE: [&str; 6] = [
    "Invalid value: ",
    "Unsupported value: ",
    "Duplicate value: ",
    "Not found: ",
    "parsing time ",
    "parsing ",
];

pub fn without_values(message: &str) -> String {
    let (mut shown, mut rest) = (String::new(), message);
    while let Some(start) = next_value(rest) {
        let (before, value) = rest.split_at(start);
        shown.push_str(before);
        shown.push_str("(value)");
        rest = &value[length(value)..];
    }
    shown + rest
}

/// Where the first value begins; of two markers at one place the longer one stands before it.
fn next_value(text: &str) -> Option<usize> {
    let starts = BEFORE_VALUE
        .iter()
        .filter_map(|marker| Some((text.find(marker)?, Reverse(marker.len()))));
    starts
        .filter(|(at, Reverse(length))| at + length < text.len())
        .min()
        .map(|(at, Reverse(length))| at + length)
}

/// Bytes of the value at the beginning: a quoted text, or anything with its brackets closed, up to what separates it
/// from the explanation or the next error.
fn length(text: &str) -> usize {
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for (at, c) in text.char_indices() {
        if quoted {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => quoted = false,
                _ => continue,
            }
            continue;
        }
        match c {
            '"' => quoted = true,
            '{' | '[' | '(' => depth += 1,
            '}' | ']' | ')' if depth > 0 => depth -= 1,
            // The end of a list of errors.
            ']' => return at,
            ':' | ',' | ' ' if depth == 0 => return at,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_go_and_the_rest_stays() {
        let cases = [
            (
                "a text",
                r#"Service "web" is invalid: spec.type: Unsupported value: "s3cret \": x": supported values: "ClusterIP""#,
                r#"Service "web" is invalid: spec.type: Unsupported value: (value): supported values: "ClusterIP""#,
            ),
            (
                "two errors",
                r#"ConfigMap "x" is invalid: [metadata.name: Invalid value: "a_b": no name, data: Invalid value: "c"]"#,
                r#"ConfigMap "x" is invalid: [metadata.name: Invalid value: (value): no name, data: Invalid value: (value)]"#,
            ),
            (
                "an object",
                r#"spec.selector: Invalid value: {"matchLabels":{"app":"s3, cret: x"}}: field is immutable"#,
                "spec.selector: Invalid value: (value): field is immutable",
            ),
            (
                "a Go value",
                r#"spec.selector: Invalid value: v1.LabelSelector{MatchLabels:map[string]string{"a":"b"}, X:[]int(nil)}: field is immutable"#,
                "spec.selector: Invalid value: (value): field is immutable",
            ),
            (
                "a number",
                "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
                "spec.replicas: Invalid value: (value): must be greater than or equal to 0",
            ),
            (
                "a parser",
                r#"unable to decode: parsing time "s3cret" as "2006-01-02": cannot parse"#,
                r#"unable to decode: parsing time (value) as "2006-01-02": cannot parse"#,
            ),
            (
                "no value",
                r#"namespaces "x" not found"#,
                r#"namespaces "x" not found"#,
            ),
            ("nothing behind it", "Invalid value: ", "Invalid value: "),
            (
                "no end",
                r#"Invalid value: "s3cret"#,
                "Invalid value: (value)",
            ),
        ];
        for (name, message, expected) in cases {
            assert_eq!(without_values(message), expected, "{name}");
        }
    }
}
