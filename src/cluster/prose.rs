//! Reads what only the prose of the API server's errors says. All else comes from the fields of the status. A new release of
//! Kubernetes may change these sentences, so `tests/errors.rs` provokes them from a real API server.

use crate::api::names;

/// Whether a webhook other than ours rejected the request. A webhook may choose any code and reason, and no field of the status
/// names it.
pub fn is_denied(message: &str) -> bool {
    let webhook = message
        .strip_prefix("admission webhook \"")
        .and_then(|rest| rest.split_once("\" denied the request"));
    webhook.is_some_and(|(name, _)| {
        name != names::MUTATING_WEBHOOK && name != names::VALIDATING_WEBHOOK
    })
}

/// Whether the error is about a webhook: a rejection, or that the webhook does not support dry runs.
pub fn is_webhooks(message: &str) -> bool {
    message.starts_with("admission webhook \"")
}

/// Whether a validation error is about a field that cannot be changed on the object that is there. Its cause is only that a value
/// is invalid or forbidden.
pub fn is_immutable(why: &str) -> bool {
    [
        "immutable",
        "may not change once set",
        "updates to statefulset spec",
    ]
    .iter()
    .any(|words| why.contains(*words))
}

/// The error of server-side apply about a manifest that does not have the shape of its kind. Its status has code 500, like a
/// fault of the server, and neither a reason nor causes. None for any other error.
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
    // The API server prints a text of several lines as it is: a line that is not a field's path continues the text.
    let is_path = |line: &str| line.starts_with("  .") || line.starts_with("  [");
    let lines = why.lines().filter(|line| *line != "errors:").enumerate();
    let own = lines.filter(|(n, line)| *n == 0 || is_path(line));
    let lines: Vec<String> = own.map(|(_, line)| kind_of_value(line.trim())).collect();
    Some(lines.join("; "))
}

/// Shortens a value to its kind: the API server prints in full an object or list that stands where a scalar belongs.
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
        assert!(is_webhooks(
            "admission webhook \"x.example.com\" does not support dry run"
        ));
        let policy = "configmaps \"x\" is forbidden: ValidatingAdmissionPolicy 'x' denied request";
        assert!(!is_webhooks(policy));
    }

    #[test]
    fn a_field_that_cannot_be_changed_is_told_from_one_that_is_wrong() {
        for (why, immutable) in [
            (
                "spec.selector: Invalid value: (value): field is immutable",
                true,
            ),
            (
                "data: Forbidden: field is immutable when `immutable` is set",
                true,
            ),
            (
                "spec.clusterIPs[0]: Invalid value: (value): may not change once set",
                true,
            ),
            (
                "spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals' are forbidden",
                true,
            ),
            (
                "spec.replicas: Invalid value: (value): must be greater than or equal to 0",
                false,
            ),
        ] {
            assert_eq!(is_immutable(why), immutable, "{why}");
        }
    }

    #[test]
    fn a_misfit_is_told_from_a_fault_of_the_server() {
        let cases = [
            (
                "failed to create typed patch object (ns/web; apps/v1, Kind=Deployment): .spec.replicas: expected numeric \
                 (int or float), got string",
                Some(".spec.replicas: expected numeric (int or float), got string"),
            ),
            (
                "failed to convert new object (ns/web; /v1, Kind=Secret) to proper version: unable to convert unstructured \
                 object to /v1, Kind=Secret: error decoding from json: illegal base64 data at input byte 6",
                Some("illegal base64 data at input byte 6"),
            ),
            (
                "failed to create typed patch object (ns/web; /v1, Kind=ConfigMap): errors:\n  .data.x: expected string, got \
                 &value.valueUnstructured{Value:[]interface {}{\"s3cret, got &x\\ny\"}}\n  .data.y: expected string, got \
                 &value.valueUnstructured{Value:map[string]interface {}{\"y\":\"s3cret\"}}",
                Some(
                    ".data.x: expected string, got a list; .data.y: expected \
                     string, got a map",
                ),
            ),
            (
                "failed to create typed patch object (ns/web; apps/v1, Kind=Deployment): errors:\n  .spec.paused: expected \
                 boolean, got &{a\ns3cret}\n  .spec.replicas: expected numeric (int or float), got string",
                Some(
                    ".spec.paused: expected boolean, got something else; .spec.replicas: \
                     expected numeric (int or float), got string",
                ),
            ),
            ("etcdserver: request timed out", None),
        ];
        for (message, expected) in cases {
            assert_eq!(misfit(message).as_deref(), expected);
        }
    }
}
