//! What the API server says of an object that it refuses, made fit for conditions, events and logs: without the values in
//! it, which may come from a row. The field and the rule stay.

use std::cmp::Reverse;

use crate::decide::template::public::PublicWords;

/// What stands before a value in the API server's validation errors and in those of Go's parsers.
const BEFORE_VALUE: [&str; 7] = [
    "Invalid value: ",
    "Unsupported value: ",
    "Duplicate value: ",
    "Not found: ",
    "parsing time ",
    "parsing ",
    "cannot unmarshal number ",
];

/// The API server fills them in as keys of lists: no row needs to have said them.
const DEFAULT_KEYS: &str = "TCP UDP SCTP";

/// `known` are texts that everybody may read: of the keys of lists, which say where in an object it is, their words stay.
pub fn without_values(message: &str, known: &[&str]) -> String {
    let known = PublicWords::of(&[known, &[DEFAULT_KEYS]].concat());
    // What a claim's specification was and is to be, line by line: values throughout.
    let message = match message.split_once("@@ -") {
        Some((before, _)) => before.trim_end(),
        None => message,
    };
    let message = &without_keys(message, &known);
    let (mut shown, mut rest, mut values) = (String::new(), message.as_str(), vec![]);
    while let Some(start) = next_value(rest) {
        let (before, value) = rest.split_at(start);
        shown.push_str(&known.without(before, &values));
        shown.push_str("(value)");
        let (value, after) = value.split_at(length(value));
        // The explanation behind it may repeat it, whole or in parts.
        values.push(value);
        rest = after;
    }
    shown + &known.without(rest, &values)
}

/// The same with no more in the keys of lists (`containers[name="app"]`) than the words that are known.
fn without_keys(text: &str, known: &PublicWords) -> String {
    let (mut shown, mut rest) = (String::new(), text);
    while let Some(open) = rest.find('[') {
        let (before, after) = rest.split_at(open + 1);
        shown.push_str(before);
        rest = after;
        while let Some((name, value)) = next_key(rest) {
            shown.push_str(name);
            shown.push_str(&known.shown(value));
            rest = &rest[name.len() + value.len()..];
            if let Some(after) = rest.strip_prefix(',') {
                shown.push(',');
                rest = after;
            }
        }
    }
    shown + rest
}

/// The name of a key of a list up to its value, and the value; a list of plain values has keys without a name.
fn next_key(text: &str) -> Option<(&str, &str)> {
    let name = text.find(|c: char| !c.is_ascii_alphanumeric())? + 1;
    let (name, value) = text.split_at_checked(name)?;
    let end = match value.starts_with('"') {
        true => length(value),
        false => value.find([',', ']'])?,
    };
    let value = &value[..end];
    let is_value = value.starts_with('"')
        || ["true", "false", "null"].contains(&value)
        || value.parse::<f64>().is_ok();
    (name.ends_with('=') && is_value).then_some((name, value))
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
            // The name of a Go type: `map[string]interface {}{...}`.
            ' ' if text[at..].starts_with(" {") => {}
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
                "a difference",
                "spec: Forbidden: spec is immutable for bound claims\n@@ -1,2 +1,2 @@\n {\n- \"a\"\n+ \"b\"",
                "spec: Forbidden: spec is immutable for bound claims",
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
            (
                "a Go value of another",
                r#"spec.x[1]: Duplicate value: map[string]interface {}{"name":"s3cret"}"#,
                "spec.x[1]: Duplicate value: (value)",
            ),
            (
                "a number that does not fit",
                "json: cannot unmarshal number 1234567890123 into Go struct field DeploymentSpec.spec.replicas of type int32",
                "json: cannot unmarshal number (value) into Go struct field DeploymentSpec.spec.replicas of type int32",
            ),
            (
                "a value that its explanation repeats",
                r#"spec.schedule: Invalid value: "s3cret": expected exactly 5 fields, found 1: [s3cret]"#,
                "spec.schedule: Invalid value: (value): expected exactly 5 fields, found 1: […]",
            ),
            (
                "one that is repeated bare",
                r#"[spec.timeZone: Invalid value: "Mars/s3cret": unknown time zone Mars/s3cret, spec.x: Required value]"#,
                "[spec.timeZone: Invalid value: (value): unknown time zone …, spec.x: Required value]",
            ),
            (
                "one that is repeated in parts",
                r#"spec.schedule: Invalid value: "* * * s3cret-x *": failed to parse int from s3cret: strconv.Atoi: parsing "s3cret": invalid syntax"#,
                "spec.schedule: Invalid value: (value): failed to parse int from …: strconv.Atoi: parsing (value): invalid syntax",
            ),
            (
                "an explanation that has other values",
                r#"spec.type: Unsupported value: "clusterIP": supported values: "ClusterIP", "NodePort""#,
                r#"spec.type: Unsupported value: (value): supported values: "ClusterIP", "NodePort""#,
            ),
            ("nothing behind it", "Invalid value: ", "Invalid value: "),
            (
                "no end",
                r#"Invalid value: "s3cret"#,
                "Invalid value: (value)",
            ),
        ];
        for (name, message, expected) in cases {
            assert_eq!(without_values(message, &[]), expected, "{name}");
        }
    }

    #[test]
    fn keys_of_lists_keep_what_everybody_may_read() {
        let form = r#"{"containers":[{"name":"app","ports":[{"containerPort":8080}],"env":[{"name":"{{ .pw }}"}]}]}"#;
        let cases = [
            (
                "a field",
                r#".spec.ports[port="s3cret",protocol="TCP"].port: expected numeric (int or float), got string"#,
                r#".spec.ports[port="…",protocol="TCP"].port: expected numeric (int or float), got string"#,
            ),
            (
                "two of one key",
                r#".containers[name="app"].env: duplicate entries for key [name="s3cret \"] s4cret"]"#,
                r#".containers[name="app"].env: duplicate entries for key [name="… \"] …"]"#,
            ),
            (
                "conflicts",
                "Apply failed with 2 conflicts: conflicts with \"kubectl\" using apps/v1:\n\
                 - .containers[name=\"s3cret\"].env[name=\"s3cret\"].value\n\
                 - .containers[name=\"acme-app\"].ports[containerPort=8080,protocol=\"TCP\"].name",
                "Apply failed with 2 conflicts: conflicts with \"kubectl\" using apps/v1:\n\
                 - .containers[name=\"…\"].env[name=\"…\"].value\n\
                 - .containers[name=\"acme-app\"].ports[containerPort=8080,protocol=\"TCP\"].name",
            ),
            (
                "numbers, and a list of plain values",
                r#".x[a=-12345,b=true,c=null]: no, .metadata.finalizers[="s3cret.io/x"]: no"#,
                r#".x[a=-…,b=…,c=…]: no, .metadata.finalizers[="…"]: no"#,
            ),
            (
                "a marker of a value in a key",
                r#".x[name="s3cret Invalid value: s3cret"].y: no"#,
                r#".x[name="… Invalid value: (value)"#,
            ),
            ("no end", r#".x[name="s3cret"#, r#".x[name="…"#),
            (
                "indices and texts",
                r#"spec.x[0].y[a]: [b=c]"#,
                r#"spec.x[0].y[a]: [b=c]"#,
            ),
        ];
        for (name, message, expected) in cases {
            let told = without_values(message, &[form, "acme-web"]);
            assert_eq!(told, expected, "{name}");
        }
        assert_eq!(without_values(r#".x[name="app"]"#, &[]), r#".x[name="…"]"#);
        let said = r#"Invalid value: "every day": found 2: [every day]"#;
        let told = without_values(said, &[r#"{"schedule":"every day"}"#]);
        assert_eq!(
            told, "Invalid value: (value): found 2: [every day]",
            "the form says it"
        );
    }
}
