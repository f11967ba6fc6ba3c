//! What the API server says of an object that it refuses, made fit for conditions, events and logs: without the values in
//! it, which may come from a row, and without the steps of its own work. The field and the rule stay.

use std::cmp::Reverse;

use crate::api::names;

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

/// Whether a webhook other than ours has refused the request: it may have chosen any code, which means nothing then.
pub fn is_denied(message: &str) -> bool {
    let webhook = message
        .strip_prefix("admission webhook \"")
        .and_then(|rest| rest.split_once("\" denied the request"));
    webhook.is_some_and(|(name, _)| {
        name != names::MUTATING_WEBHOOK && name != names::VALIDATING_WEBHOOK
    })
}

/// What server-side apply says of a manifest that is no object of its kind, with the status 500; None for anything else.
pub fn misfit(message: &str) -> Option<String> {
    let why = if message.starts_with("failed to create typed patch object (") {
        message.split_once("): ")?.1
    } else if message.starts_with("failed to convert new object (") {
        let (_, why) = message.split_once(" to proper version: ")?;
        why.rsplit_once("error decoding from json: ")
            .map_or(why, |(_, why)| why)
    } else {
        return None;
    };
    let lines: Vec<String> = why
        .lines()
        .map(str::trim)
        .filter(|line| *line != "errors:")
        .map(kind_of_value)
        .collect();
    let why = lines.join("; ");
    Some(format!(
        "the manifest does not fit its kind: {why}; correct the template"
    ))
}

/// What was found in the place of something simple is printed whole; its kind is enough.
fn kind_of_value(line: &str) -> String {
    let Some((before, value)) = line.split_once(", got &") else {
        return line.to_owned();
    };
    let kind = match value.split_once("Value:") {
        Some((_, value)) if value.starts_with("map[") => "a map",
        Some((_, value)) if value.starts_with("[]") => "a list",
        _ => "something else",
    };
    format!("{before}, got {kind}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_is_no_conflict_and_no_absence_unless_it_is_ours() {
        for (message, denied) in [
            (
                "admission webhook \"quiet.example.com\" denied the request: no",
                true,
            ),
            (
                "admission webhook \"mlynqnode.kb.io\" denied the request: stale release",
                false,
            ),
            ("configmaps \"acme\" not found", false),
            (
                "Operation cannot be fulfilled on lynqnodes.operator.lynq.sh \"acme-web\"",
                false,
            ),
        ] {
            assert_eq!(is_denied(message), denied, "{message}");
        }
    }

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
            (
                "a list that ends with a value",
                "[spec.a: Not found: s3cret]",
                "[spec.a: Not found: (value)]",
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

    #[test]
    fn a_misfit_is_told_from_a_fault_of_the_server() {
        let cases = [
            (
                "failed to create typed patch object (ns/web; apps/v1, Kind=Deployment): .spec.replicas: expected numeric \
                 (int or float), got string",
                Some(
                    "the manifest does not fit its kind: .spec.replicas: expected numeric (int or float), got string; \
                     correct the template",
                ),
            ),
            (
                "failed to convert new object (ns/web; /v1, Kind=Secret) to proper version: unable to convert unstructured \
                 object to /v1, Kind=Secret: error decoding from json: illegal base64 data at input byte 6",
                Some(
                    "the manifest does not fit its kind: illegal base64 data at input byte 6; correct the template",
                ),
            ),
            (
                "failed to create typed patch object (ns/web; /v1, Kind=ConfigMap): errors:\n  .data.x: expected string, got \
                 &value.valueUnstructured{Value:[]interface {}{\"s3cret, got &x\\ny\"}}\n  .data.y: expected string, got \
                 &value.valueUnstructured{Value:map[string]interface {}{\"y\":\"s3cret\"}}",
                Some(
                    "the manifest does not fit its kind: .data.x: expected string, got a list; .data.y: expected \
                     string, got a map; correct the template",
                ),
            ),
            ("etcdserver: request timed out", None),
        ];
        for (message, expected) in cases {
            assert_eq!(misfit(message).as_deref(), expected);
        }
    }
}
