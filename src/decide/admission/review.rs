//! AdmissionReview: how a request body is read and how the answer is written. Decides nothing about objects.

mod object;

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use memchr::memchr_iter;
pub use object::{ObjectValue, Reviewed, metadata};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::decide::shared::content::DEPTH_MAX;

/// The parts of an `admission.k8s.io/v1` AdmissionRequest that decisions use; `O` has the parts of the object.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", bound = "O: Reviewed<'de>")]
pub struct Request<O = ObjectValue> {
    pub uid: String,
    pub operation: String,
    #[serde(default)]
    pub sub_resource: String,
    #[serde(default)]
    pub user_info: UserInfo,
    pub object: Option<O>,
    pub old_object: Option<O>,
    /// Of the operation itself.
    #[serde(default)]
    pub options: Value,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub struct UserInfo {
    #[serde(default)]
    pub username: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    groups: Vec<String>,
    #[serde(default)]
    extra: Value,
}

impl UserInfo {
    /// A user of this name, in the groups that every user and every service account is in.
    pub fn named(username: &str) -> Self {
        let mut groups = vec!["system:authenticated".to_owned()];
        let account = username.strip_prefix("system:serviceaccount:");
        if let Some((namespace, _)) = account.and_then(|account| account.split_once(':')) {
            groups.push("system:serviceaccounts".to_owned());
            groups.push(format!("system:serviceaccounts:{namespace}"));
        }
        UserInfo {
            username: username.to_owned(),
            groups,
            ..UserInfo::default()
        }
    }

    /// A SubjectAccessReview that asks whether the user has this right; `right` is its resource attributes.
    pub fn review(&self, right: Value) -> Value {
        let mut spec = json!({"user": self.username, "resourceAttributes": right});
        for (field, value, given) in [
            ("uid", json!(self.uid), !self.uid.is_empty()),
            ("groups", json!(self.groups), !self.groups.is_empty()),
            ("extra", self.extra.clone(), self.extra.is_object()),
        ] {
            if given {
                spec[field] = value;
            }
        }
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec})
    }
}

/// A body that cannot be judged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("the body is not an AdmissionReview: {0}")]
    NotJson(String),
    #[error("the body is {found}, not admission.k8s.io/v1 AdmissionReview")]
    WrongKind { found: String },
    #[error("the AdmissionReview has no request with a uid of 1 to {UID_MAX} characters")]
    NoUid,
    /// The only variant with a uid, and so with an AdmissionReview as the answer; the others get HTTP 400.
    #[error("lynqgate cannot read the request: {reason}")]
    Request { uid: String, reason: String },
}

const UID_MAX: usize = 256;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review<R> {
    #[serde(default)]
    api_version: Value,
    #[serde(default)]
    kind: Value,
    // Present even as null.
    request: Option<R>,
}

/// The only part of a request that is read if the rest is invalid or nested too deep.
#[derive(Deserialize)]
struct Addressed {
    #[serde(default)]
    uid: String,
}

/// serde_json reads fewer levels than this.
const LEVELS_MAX: usize = 128;

/// A map of serde_json has room for 11 values in its first allocation.
const MAP: usize = 640;
/// A value of a list, or of a large map.
const VALUE: usize = 96;
const TEXT: usize = 32;

/// An upper bound of [`weight`] that is many times faster, because it also counts inside strings.
pub fn weight_max(json: &[u8]) -> usize {
    let all = |byte| memchr_iter(byte, json).count();
    let values = all(b'[') + all(b',');
    json.len() + MAP * all(b'{') + VALUE * values + TEXT / 2 * all(b'"')
}

/// The approximate bytes of memory that JSON takes once it is parsed: up to a hundred times its size, for a body of a few
/// megabytes.
pub fn weight(json: &[u8]) -> usize {
    let weigh = |byte| match byte {
        b'{' => MAP,
        b'[' | b',' => VALUE,
        b'"' => TEXT / 2,
        _ => 0,
    };
    json.len() + outside_texts(json).map(weigh).sum::<usize>()
}

fn depth(json: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    for byte in outside_texts(json) {
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// The bytes of JSON that are in no text, and the quotes around those.
fn outside_texts(json: &[u8]) -> impl Iterator<Item = u8> {
    let (mut in_text, mut escaped) = (false, false);
    json.iter().copied().filter(move |byte| {
        let inside = in_text;
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_text,
            b'"' => in_text = !in_text,
            _ => {}
        }
        !inside || !in_text
    })
}

/// Parses the body. Returns an error without a uid only if the body certainly has no usable one.
pub fn read<'a, O: Reviewed<'a>>(body: &'a [u8]) -> Result<Request<O>, Malformed> {
    let error = match serde_json::from_slice::<Review<Request<O>>>(body) {
        Ok(review) => return addressed(review, |request| &request.uid),
        Err(error) => error,
    };
    let Ok(review) = serde_json::from_slice::<Review<Addressed>>(body) else {
        return Err(Malformed::NotJson(position(&error)));
    };
    let request = addressed(review, |request| &request.uid)?;
    Err(unreadable(request.uid, body, &error))
}

/// The error for a request with a part that could not be parsed.
pub fn unreadable(uid: String, body: &[u8], error: &serde_json::Error) -> Malformed {
    let reason = match depth(body) >= LEVELS_MAX {
        true => format!(
            "it is nested too deeply: a manifest may have {DEPTH_MAX} levels, itself included"
        ),
        false => position(error),
    };
    Malformed::Request { uid, reason }
}

fn addressed<R>(review: Review<R>, uid: impl Fn(&R) -> &String) -> Result<R, Malformed> {
    if review.api_version != "admission.k8s.io/v1" || review.kind != "AdmissionReview" {
        let shown = |value: &Value| {
            value
                .as_str()
                .unwrap_or("?")
                .chars()
                .take(60)
                .collect::<String>()
        };
        return Err(Malformed::WrongKind {
            found: format!("{} {}", shown(&review.api_version), shown(&review.kind)),
        });
    }
    review
        .request
        .filter(|request| (1..=UID_MAX).contains(&uid(request).len()))
        .ok_or(Malformed::NoUid)
}

/// Shows only the category and position of the error: its text may quote the body.
fn position(error: &serde_json::Error) -> String {
    let kind = error.classify();
    format!(
        "{kind:?} error at line {} column {}",
        error.line(),
        error.column()
    )
}

/// The part of an object that does not have the shape that the API server gives every object before it calls webhooks. Such an
/// object can be neither decided on nor patched.
pub fn misshapen(object: &Value) -> Option<&'static str> {
    let (metadata, spec) = (&object["metadata"], &object["spec"]);
    let texts = match &metadata["annotations"] {
        Value::Object(all) => all.values().all(Value::is_string),
        other => other.is_null(),
    };
    if !metadata.is_object() {
        Some("metadata")
    } else if !texts {
        Some("metadata.annotations")
    } else if !(spec.is_object() || spec.is_null()) {
        Some("spec")
    } else {
        None
    }
}

/// The status of a rejection, as the API server's client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DenialStatus {
    /// The operation is not allowed.
    Forbidden,
    /// The object has changed: the client must read it again.
    Conflict,
    TooLarge,
    /// The request cannot be judged.
    BadRequest,
}

impl DenialStatus {
    fn status(self) -> (u16, &'static str) {
        match self {
            DenialStatus::Forbidden => (403, "Forbidden"),
            DenialStatus::Conflict => (409, "Conflict"),
            DenialStatus::TooLarge => (413, "RequestEntityTooLarge"),
            DenialStatus::BadRequest => (400, "BadRequest"),
        }
    }
}

/// The answer to one request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// Why the request is rejected; None allows it.
    pub denied: Option<(DenialStatus, String)>,
    /// A JSON patch; empty for none.
    pub patch: String,
    pub warnings: Vec<String>,
    /// For the API server's audit log: name (without prefix) and value.
    pub audit: Vec<(&'static str, String)>,
}

impl Answer {
    pub fn allow() -> Self {
        Answer::default()
    }

    pub fn deny(refusal: DenialStatus, message: impl Into<String>) -> Self {
        Answer {
            denied: Some((refusal, message.into())),
            ..Answer::default()
        }
    }

    /// The response body. Omits an empty patch together with its type, because the API server rejects one without the other.
    pub fn body(&self, uid: &str) -> String {
        let status = self.denied.as_ref().map(|(refusal, message)| {
            let (code, reason) = refusal.status();
            json!({"code": code, "reason": reason, "message": plain(message, MESSAGE_MAX)})
        });
        // Base64 has nothing to escape, and a patch may be long.
        let quoted = |patch: &str| RawValue::from_string(format!("\"{}\"", STANDARD.encode(patch)));
        let patch = (status.is_none() && !self.patch.is_empty())
            .then(|| quoted(&self.patch).expect("base64 is text of JSON"));
        let warnings = self.warnings.iter().take(WARNINGS_MAX);
        let response = Response {
            uid,
            allowed: status.is_none(),
            status,
            patch_type: patch.as_ref().map(|_| "JSONPatch"),
            patch,
            warnings: warnings
                .map(|warning| plain(warning, WARNING_MAX))
                .collect(),
            audit_annotations: self
                .audit
                .iter()
                .map(|(name, value)| (*name, &**value))
                .collect(),
        };
        let answered = Answered {
            api_version: "admission.k8s.io/v1",
            kind: "AdmissionReview",
            response,
        };
        serde_json::to_string(&answered).expect("an answer can be written")
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answered<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: Response<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    audit_annotations: BTreeMap<&'static str, &'a str>,
}

pub const MESSAGE_MAX: usize = 1_000;
/// If all warnings together exceed 4,096 characters, the API server cuts each one after this many, even inside a word.
pub const WARNING_MAX: usize = 256;
const WARNINGS_MAX: usize = 5;

/// Makes one line of printable text, because warnings are sent in an HTTP header. Truncates a long text after a word, and marks
/// that.
fn plain(text: &str, chars_max: usize) -> String {
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    let text: String = text.chars().map(printable).collect();
    let Some((room, _)) = text.char_indices().nth(chars_max - 1) else {
        return text;
    };
    if text[room..].chars().nth(1).is_none() {
        return text;
    }
    let start = &text[..room];
    let is_whole = text[room..].starts_with([' ', ',', ';', ':']);
    let words = match start.rsplit_once(' ') {
        Some((words, last)) if !is_whole && last.chars().count() <= WORD_MAX => words,
        _ => start,
    };
    let words = words.trim_end_matches([' ', ',', ';', ':', '(']);
    format!("{words}…")
}

/// Longer words may be cut.
const WORD_MAX: usize = 63;

#[cfg(test)]
mod tests {
    use super::*;

    fn said(answer: &Answer) -> Value {
        serde_json::from_str(&answer.body("u")).unwrap()
    }

    #[test]
    fn a_service_account_is_in_the_groups_of_its_namespace() {
        let groups = |username: &str| {
            let review = UserInfo::named(username).review(json!({"verb": "get"}));
            assert_eq!(review["spec"]["user"], username);
            review["spec"]["groups"].clone()
        };
        assert_eq!(groups("alice"), json!(["system:authenticated"]));
        assert_eq!(
            groups("system:serviceaccount:ns:me"),
            json!([
                "system:authenticated",
                "system:serviceaccounts",
                "system:serviceaccounts:ns"
            ])
        );
    }

    #[test]
    fn bodies_without_a_request_to_answer_are_malformed() {
        let good = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE"}}"#;
        assert_eq!(read::<ObjectValue>(good.as_bytes()).unwrap().uid, "u");
        for (name, body, said) in [
            ("empty", "", "Eof error"),
            ("truncated", &good[..40], "Eof error"),
            ("two documents", &format!("{good}{good}"), "Syntax error"),
            (
                "byte order mark",
                &format!("\u{feff}{good}"),
                "Syntax error",
            ),
            (
                "v1beta1",
                &good.replace("io/v1", "io/v1beta1"),
                "v1beta1 AdmissionReview, not",
            ),
            (
                "another kind",
                &good.replace("AdmissionReview", "Pod"),
                "Pod, not",
            ),
            (
                "no request",
                r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#,
                "no request with a uid",
            ),
            (
                "empty uid",
                &good.replace("\"u\"", "\"\""),
                "no request with a uid",
            ),
            (
                "huge uid",
                &good.replace("\"u\"", &format!("{:?}", "u".repeat(300))),
                "no request with a uid",
            ),
            ("a number as uid", &good.replace("\"u\"", "7"), "Data error"),
            (
                "two uids",
                &good.replace("\"uid\"", "\"uid\":\"v\",\"uid\""),
                "Data error",
            ),
        ] {
            let error = read::<ObjectValue>(body.as_bytes())
                .unwrap_err()
                .to_string();
            assert!(error.contains(said), "{name}: {error}");
        }
    }

    #[test]
    fn what_is_in_a_text_weighs_only_its_length() {
        for (json, values) in [
            ("[]", 96),
            (r#"{"a":[1,2]}"#, 640 + 2 * 96 + 32),
            (r#"["{[,\"{[,\\",7]"#, 2 * 96 + 32),
            ("\"no end {{{", 16),
        ] {
            assert_eq!(weight(json.as_bytes()), json.len() + values, "{json}");
            assert!(weight_max(json.as_bytes()) >= json.len() + values, "{json}");
        }
        assert_eq!(depth(br#"{"a":[{"[[":1},[[]]],"b":[]}"#), 4);
    }

    #[test]
    fn a_request_with_a_uid_can_be_answered_whatever_else_is_wrong_with_it() {
        let of = |object: &str| {
            format!(
                r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u","operation":"CREATE","object":{object}}}}}"#
            )
        };
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        for (name, body, said) in [
            ("nested too deeply", of(&deep), "nested too deeply"),
            ("a lone surrogate", of(r#""\ud800""#), "Syntax error"),
            ("a number out of range", of("1e999"), "Syntax error"),
            (
                "an operation of another type",
                of("{}").replace("\"CREATE\"", "7"),
                "Data error",
            ),
        ] {
            let error = read::<ObjectValue>(body.as_bytes()).unwrap_err();
            let Malformed::Request { uid, reason } = &error else {
                panic!("{name}: {error}");
            };
            assert_eq!(uid, "u", "{name}");
            assert!(reason.contains(said), "{name}: {reason}");
        }
    }

    #[test]
    fn what_cannot_be_patched_is_named() {
        for (object, what) in [
            (json!("x"), Some("metadata")),
            (json!({}), Some("metadata")),
            (json!({"metadata": []}), Some("metadata")),
            (
                json!({"metadata": {"annotations": "x"}}),
                Some("metadata.annotations"),
            ),
            (
                json!({"metadata": {"annotations": {"x": 1}}}),
                Some("metadata.annotations"),
            ),
            (json!({"metadata": {}, "spec": []}), Some("spec")),
            (json!({"metadata": {}, "spec": null}), None),
            (json!({"metadata": {"annotations": {}}, "spec": {}}), None),
        ] {
            assert_eq!(misshapen(&object), what, "{object}");
        }
    }

    #[test]
    fn an_allowed_answer_without_patch_has_no_patch_type() {
        let body = said(&Answer::allow());
        assert_eq!(body["response"], json!({"uid": "u", "allowed": true}));
    }

    #[test]
    fn texts_are_one_bounded_line() {
        let answer = Answer {
            warnings: vec!["a\nb\u{7}".into(), "x".repeat(5_000)],
            ..Answer::deny(DenialStatus::Forbidden, "c\r\nd")
        };
        let body = said(&answer);
        assert_eq!(body["response"]["warnings"][0], "a b ");
        let long = body["response"]["warnings"][1].as_str().unwrap();
        assert_eq!(long.chars().count(), WARNING_MAX);
        assert_eq!(body["response"]["status"]["message"], "c  d");
    }

    #[test]
    fn what_is_too_long_ends_with_a_word() {
        for (text, told) in [
            ("", ""),
            ("invalid char", "invalid char"),
            ("invalid chars", "invalid…"),
            ("row b: inv chars", "row b: inv…"),
            ("rows abc, d, e", "rows abc, d…"),
            ("it fails: because", "it fails…"),
            ("späte wörter ü", "späte…"),
        ] {
            assert_eq!(plain(text, 12), told, "{text}");
        }
        assert_eq!(plain(&"x".repeat(100), 80), "x".repeat(79) + "…");
    }
}
