//! Classifies a failed request by what its caller can do about it, from the reason and the causes in the API server's status.

use std::error::Error;

use kube::core::Status;
use kube::core::response::{StatusCause, reason};

use crate::cluster::prose::{is_denied, is_immutable, is_webhooks, misfit};
use crate::decide::shared::refusal::without_values;

/// The reason of a cause: another manager owns the field that an apply would change.
const OF_ANOTHER_MANAGER: &str = "FieldManagerConflict";
/// The reasons with which the API server says that it could not answer, or cannot answer now.
const OF_A_FAULT: [&str; 5] = [
    reason::TIMEOUT,
    reason::SERVER_TIMEOUT,
    reason::TOO_MANY_REQUESTS,
    reason::INTERNAL_ERROR,
    reason::SERVICE_UNAVAILABLE,
];
/// No update can change a uid: if this field is invalid, another object now has the name.
const UID: &str = "metadata.uid";

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// The object does not exist, or its namespace does not.
    #[error("{0}")]
    NotFound(String),
    /// The object has changed since it was read, or another object now has its name.
    #[error("{0}")]
    Conflict(String),
    /// Other managers own fields that the apply would change; the text says which.
    #[error("{0}")]
    FieldsTaken(String),
    /// The API server, an admission webhook or RBAC refuses it; the text says why.
    #[error("{0}")]
    Refused(String),
    /// As `Refused`, but the cause is in the request: a retry fails again. `why` is the cause without the object's name.
    #[error("{text}")]
    Invalid { text: String, why: String },
    /// The API server may or may not have carried out the request.
    #[error("{0}")]
    Unavailable(String),
}

impl From<kube::Error> for ApiError {
    fn from(error: kube::Error) -> Self {
        ApiError::of(error, &[])
    }
}

impl ApiError {
    /// Whether a retry of the same request may succeed.
    pub fn may_pass(&self) -> bool {
        matches!(self, ApiError::Unavailable(_) | ApiError::Conflict(_))
    }

    /// Whether the API server would take the object if there were none of its name: a field of it cannot be changed.
    pub fn is_immutable(&self) -> bool {
        matches!(self, ApiError::Invalid { why, .. } if is_immutable(why))
    }

    /// `known` are texts that the message may quote: every reader may see them.
    pub fn of(error: kube::Error, known: &[&str]) -> Self {
        let kube::Error::Api(status) = error else {
            return ApiError::Unavailable(unanswered(&error));
        };
        let message = without_values(&status.message, known);
        let reason = reason_of(&status);
        let is_absence = reason == reason::NOT_FOUND;
        let is_conflict = [reason::CONFLICT, reason::ALREADY_EXISTS].contains(&reason);
        if (is_absence || is_conflict) && is_denied(&message) {
            ApiError::Refused(message)
        } else if is_absence {
            ApiError::NotFound(message)
        } else if has_cause(&status, |cause| cause.reason == OF_ANOTHER_MANAGER) {
            ApiError::FieldsTaken(message)
        } else if is_conflict || has_cause(&status, |cause| cause.field == UID) {
            ApiError::Conflict(message)
        } else if let Some(why) = misfit(&message) {
            let text = format!("the manifest does not fit its kind: {why}; correct the template");
            ApiError::Invalid { text, why }
        } else if OF_A_FAULT.contains(&reason) {
            ApiError::Unavailable(format!("{message} ({})", status.code))
        } else if is_of_object(&status) {
            let why = without_values(&why_invalid(&status), known);
            ApiError::Invalid { text: message, why }
        } else {
            ApiError::Refused(message)
        }
    }
}

/// What a request says that got no answer: the innermost error, for the layers above the connection add only less specific words.
pub fn unanswered(error: &kube::Error) -> String {
    let mut cause: &dyn Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    match error {
        kube::Error::Service(_) | kube::Error::HyperError(_) => {
            format!("the API server does not answer: {cause}")
        }
        error => error.to_string(),
    }
}

/// Falls back to the HTTP code without a reason of Kubernetes, as for a path that is not served, or from a proxy. (The methods of
/// kube's `Status` ignore the code.)
fn reason_of(status: &Status) -> &str {
    match status.code {
        _ if reason::is_known(&status.reason) => &status.reason,
        404 => reason::NOT_FOUND,
        409 => reason::CONFLICT,
        408 | 429 | 500..=599 => reason::SERVICE_UNAVAILABLE,
        _ => reason::UNKNOWN,
    }
}

/// Whether a rule of the API server for the kind refused the object. A policy names no field; a webhook may answer anything.
fn is_of_object(status: &Status) -> bool {
    let by_rule = match status.reason.as_str() {
        reason::INVALID => has_cause(status, |cause| !cause.field.is_empty()),
        reason::BAD_REQUEST => true,
        _ => false,
    };
    by_rule && !is_webhooks(&status.message)
}

/// Lists each invalid field with its error.
fn why_invalid(status: &Status) -> String {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let each = causes.map(|cause| format!("{}: {}", cause.field, cause.message));
    match each.collect::<Vec<_>>().as_slice() {
        [] => status.message.clone(),
        all => all.join(", "),
    }
}

fn has_cause(status: &Status, is_it: impl Fn(&StatusCause) -> bool) -> bool {
    let details = status.details.iter();
    details.flat_map(|details| &details.causes).any(is_it)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(status: Value) -> ApiError {
        let status: Status = serde_json::from_value(status).expect("a status");
        ApiError::of(kube::Error::Api(Box::new(status)), &[])
    }

    #[test]
    fn the_reason_and_the_causes_count_and_the_code_where_there_is_none() {
        let text = || "x".to_owned();
        let uid = json!({"causes": [{"reason": "FieldValueInvalid", "field": "metadata.uid"}]});
        let taken = json!({"causes": [{"reason": "FieldManagerConflict", "field": ".data.a"}]});
        let webhook = "admission webhook \"other.example.com\" denied the request: no";
        let misfit = "failed to create typed patch object (a/b; v1, Kind=X): .c: expected list";
        for (status, expected) in [
            (
                json!({"code": 404, "reason": "NotFound", "message": "x"}),
                ApiError::NotFound(text()),
            ),
            (
                json!({"code": 404, "reason": "Failed to parse error data", "message": "x"}),
                ApiError::NotFound(text()),
            ),
            (
                json!({"code": 409, "reason": "Conflict", "message": "x"}),
                ApiError::Conflict(text()),
            ),
            (
                json!({"code": 409, "reason": "AlreadyExists", "message": "x"}),
                ApiError::Conflict(text()),
            ),
            (
                json!({"code": 409, "reason": "Conflict", "message": "x", "details": taken}),
                ApiError::FieldsTaken(text()),
            ),
            (
                json!({"code": 422, "reason": "Invalid", "message": "x", "details": uid}),
                ApiError::Conflict(text()),
            ),
            (
                json!({"code": 422, "reason": "Invalid", "message": "x"}),
                ApiError::Refused(text()),
            ),
            (
                json!({"code": 422, "reason": "Invalid", "message": "x", "details": {"causes": [
                    {"field": "spec.x", "message": "Invalid value: \"s3cret\": too long"}, {"field": "spec.y", "message": "Required value"},
                ]}}),
                ApiError::Invalid {
                    text: text(),
                    why: "spec.x: Invalid value: (value): too long, spec.y: Required value".to_owned(),
                },
            ),
            (
                json!({"code": 400, "reason": "BadRequest", "message": "x"}),
                ApiError::Invalid {
                    text: text(),
                    why: text(),
                },
            ),
            (
                json!({"code": 404, "reason": "NotFound", "message": webhook}),
                ApiError::Refused(webhook.to_owned()),
            ),
            (
                json!({"code": 500, "reason": "Forbidden", "message": "x"}),
                ApiError::Refused(text()),
            ),
            (
                json!({"code": 429, "reason": "TooManyRequests", "message": "x"}),
                ApiError::Unavailable("x (429)".to_owned()),
            ),
            (
                json!({"code": 502, "message": "x"}),
                ApiError::Unavailable("x (502)".to_owned()),
            ),
            (
                json!({"code": 500, "message": misfit}),
                ApiError::Invalid {
                    text: "the manifest does not fit its kind: .c: expected list; correct the template"
                        .to_owned(),
                    why: ".c: expected list".to_owned(),
                },
            ),
        ] {
            assert_eq!(of(status.clone()), expected, "{status}");
        }
    }
}
