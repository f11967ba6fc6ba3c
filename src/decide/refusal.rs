//! What the API server says of an object that it refuses, made fit for conditions, events and logs: without the values in
//! it, which may come from a row, and without the steps of its own work. The field and the rule stay.

use std::cmp::Reverse;

use crate::api::names;
use crate::decide::template::public::Known;

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
    let known = Known::of(&[known, &[DEFAULT_KEYS]].concat());
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
fn without_keys(text: &str, known: &Known) -> String {
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

/// Whether a webhook other than ours has refused the request: it may have chosen any code, which means nothing then.
pub fn is_denied(message: &str) -> bool {
    let webhook = message
        .strip_prefix("admission webhook \"")
        .and_then(|rest| rest.split_once("\" denied the request"));
    webhook.is_some_and(|(name, _)| {
        name != names::MUTATING_WEBHOOK && name != names::VALIDATING_WEBHOOK
    })
}

/// Whether a webhook had its say, be it a denial, or that it takes no dry runs.
pub fn is_webhooks(message: &str) -> bool {
    message.starts_with("admission webhook \"")
}

/// What is wrong, without the object that it is said of: who reads it knows that already.
pub fn bare(message: &str) -> &str {
    let misfit = message.strip_prefix(MISFIT);
    let misfit = misfit.and_then(|why| why.strip_suffix(CORRECT));
    let invalid = || message.split_once("\" is invalid: ").map(|(_, why)| why);
    misfit.or_else(invalid).unwrap_or(message)
}

const MISFIT: &str = "the manifest does not fit its kind: ";
const CORRECT: &str = "; correct the template";

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
    // A text of more than one line is printed as it is: what is no path of a field is the rest of one.
    let is_path = |line: &str| line.starts_with("  .") || line.starts_with("  [");
    let lines = why.lines().filter(|line| *line != "errors:").enumerate();
    let own = lines.filter(|(n, line)| *n == 0 || is_path(line));
    let lines: Vec<String> = own.map(|(_, line)| kind_of_value(line.trim())).collect();
    let why = lines.join("; ");
    Some(format!("{MISFIT}{why}{CORRECT}"))
}

/// What was found in the place of something simple is printed whole; its kind is enough.
fn kind_of_value(line: &str) -> String {
    let Some((before, value)) = line.split_once(", got &") else {
        return line.to_owned();
    };
    let kind = match value.split_once("Value:") {
        Some((_, value)) if value.starts_with("map[") => "a map",
        Some((_, value)) if value.starts_with("[]") => "a list",
        Some((_, "true}" | "false}")) => "a boolean",
        Some((_, value)) if value.trim_end_matches('}').parse::<f64>().is_ok() => "a number",
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

    #[test]
    fn what_is_wrong_is_said_without_its_object() {
        for (message, why) in [
            (
                "the manifest does not fit its kind: .a: no; correct the template",
                ".a: no",
            ),
            (
                "Service \"t0-app\" is invalid: spec.x: Required value",
                "spec.x: Required value",
            ),
            ("spec: no", "spec: no"),
        ] {
            assert_eq!(bare(message), why);
        }
        assert!(is_webhooks(
            "admission webhook \"x.example.com\" does not support dry run"
        ));
        let policy = "configmaps \"x\" is forbidden: ValidatingAdmissionPolicy 'x' denied request";
        assert!(!is_webhooks(policy));
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
            (
                "failed to create typed patch object (ns/web; apps/v1, Kind=Deployment): errors:\n  .spec.paused: expected \
                 boolean, got &{a\ns3cret}\n  .spec.replicas: expected numeric (int or float), got string",
                Some(
                    "the manifest does not fit its kind: .spec.paused: expected boolean, got something else; .spec.replicas: \
                     expected numeric (int or float), got string; correct the template",
                ),
            ),
            ("etcdserver: request timed out", None),
        ];
        for (message, expected) in cases {
            assert_eq!(misfit(message).as_deref(), expected);
        }
    }
}
