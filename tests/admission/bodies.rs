//! Requests that no API server sends, over real TLS: each gets an error or a denial, none opens the gate, and the
//! operator goes on.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::tls::Client;
use super::*;
use crate::operator::Operator;

const PATHS: [&str; 2] = [
    "/mutate-operator-lynq-sh-v1-lynqnode",
    "/validate-operator-lynq-sh-v1-lynqnode",
];
const JSON: &str = "Content-Type: application/json\r\n";
/// Stands in every body; nothing that is said or logged may repeat it.
const CANARY: &str = "canary-7f3a91";

/// What a request must get.
enum Wanted {
    /// An HTTP error whose text says this.
    Error(u16, &'static str),
    /// An answer to this uid that refuses with this code, and says this.
    Denied(u16, &'static str),
    /// An answer to this uid that allows without a patch.
    Allowed,
}
use Wanted::{Allowed, Denied, Error};

fn review(request: Value) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
}

/// A creation of a node without content; `change` makes it wrong.
fn request(change: impl FnOnce(&mut Value)) -> String {
    let mut request = json!({
        "uid": "u-1", "operation": "CREATE", "userInfo": {"username": "alice"},
        "object": {
            "apiVersion": "operator.lynq.sh/v1", "kind": "LynqNode",
            "metadata": {"name": "n", "namespace": "default", "labels": {"canary": CANARY}},
            "spec": {"uid": "u", "templateRef": "web"},
        },
    });
    change(&mut request);
    review(request).to_string()
}

/// The operator is the process that it was, and ready.
async fn assert_unharmed(operator: &Operator, pid: u32) -> Result<()> {
    operator.ready().await?;
    assert_eq!(operator.process.id(), Some(pid), "the same process");
    Ok(())
}

async fn client() -> Result<(&'static Operator, u32, Client)> {
    let (cluster, operator) = operator::shared().await?;
    let client = Client::new(cluster.admin().await?, operator.webhook_port).await?;
    let pid = operator.process.id().context("it runs")?;
    Ok((operator, pid, client))
}

async fn check(client: &Client, name: &str, body: &[u8], wanted: &Wanted) -> Result<()> {
    for path in PATHS {
        let (status, text) = client.post(path, JSON, body).await?;
        let at = format!("{name} to {path}: {status} {text}");
        assert!(!text.contains(CANARY), "{at}");
        match wanted {
            Error(code, said) => {
                assert_eq!(status, *code, "{at}");
                assert!(text.contains(said), "{at}");
            }
            Denied(code, said) => {
                assert_eq!(status, 200, "{at}");
                let response = serde_json::from_str::<Value>(&text)?["response"].take();
                assert_eq!(response["uid"], "u-1", "{at}");
                assert_eq!(response["allowed"], false, "{at}");
                assert_eq!(response["status"]["code"], *code, "{at}");
                let message = response["status"]["message"].as_str().unwrap_or_default();
                assert!(message.contains(said), "{at}");
            }
            Allowed => {
                assert_eq!(status, 200, "{at}");
                let response = serde_json::from_str::<Value>(&text)?["response"].take();
                assert_eq!(response, json!({"uid": "u-1", "allowed": true}), "{at}");
            }
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_admission_review_gets_an_http_error() -> Result<()> {
    let (operator, pid, client) = client().await?;
    let good = request(|_| {});
    let without =
        |field: &str| request(|request| drop(request.as_object_mut().unwrap().remove(field)));
    for (name, body, wanted) in [
        ("empty", String::new(), Error(400, "not an AdmissionReview")),
        (
            "truncated",
            good[..good.len() / 2].to_owned(),
            Error(400, "Eof error at line 1"),
        ),
        (
            "two documents",
            format!("{good}{good}"),
            Error(400, "not an AdmissionReview"),
        ),
        (
            "a byte order mark",
            format!("\u{feff}{good}"),
            Error(400, "not an AdmissionReview"),
        ),
        (
            "text",
            CANARY.to_owned(),
            Error(400, "not an AdmissionReview"),
        ),
        (
            "a list",
            "[]".to_owned(),
            Error(400, "not an AdmissionReview"),
        ),
        (
            "null",
            "null".to_owned(),
            Error(400, "not an AdmissionReview"),
        ),
        (
            "an empty object",
            "{}".to_owned(),
            Error(
                400,
                "the body is ? ?, not admission.k8s.io/v1 AdmissionReview",
            ),
        ),
        (
            "another kind",
            good.replace("AdmissionReview", "Pod"),
            Error(400, "Pod, not admission.k8s.io/v1 AdmissionReview"),
        ),
        (
            "v1beta1",
            good.replace("k8s.io/v1", "k8s.io/v1beta1"),
            Error(400, "v1beta1 AdmissionReview, not"),
        ),
        (
            "no request",
            review(Value::Null).to_string(),
            Error(400, "no request with a uid"),
        ),
        (
            "a request that is text",
            review(json!("u-1")).to_string(),
            Error(400, "not an AdmissionReview"),
        ),
        (
            "no uid",
            without("uid"),
            Error(400, "no request with a uid"),
        ),
        (
            "an empty uid",
            request(|r| r["uid"] = json!("")),
            Error(400, "no request with a uid"),
        ),
        (
            "a huge uid",
            request(|r| r["uid"] = json!("u".repeat(100_000))),
            Error(400, "no request with a uid"),
        ),
        (
            "a number as uid",
            request(|r| r["uid"] = json!(7)),
            Error(400, "not an AdmissionReview"),
        ),
        (
            "two requests",
            good.replace("\"request\":", "\"request\":{\"uid\":\"u-2\"},\"request\":"),
            Error(400, "not an AdmissionReview"),
        ),
    ] {
        check(&client, name, body.as_bytes(), &wanted).await?;
    }
    // gzip is not unpacked: 64 bytes could become gigabytes.
    check(
        &client,
        "gzip",
        b"\x1f\x8b\x08\x00",
        &Error(400, "not an AdmissionReview"),
    )
    .await?;
    check(
        &client,
        "not UTF-8",
        b"{\"kind\":\"\xff\"}",
        &Error(400, "not an AdmissionReview"),
    )
    .await?;
    for (name, header) in [
        ("no content type", ""),
        ("another content type", "Content-Type: text/yaml\r\n"),
        ("a content type that is no text", "Content-Type: \u{fc}\r\n"),
    ] {
        let (status, text) = client.post(PATHS[0], header, good.as_bytes()).await?;
        assert_eq!(status, 415, "{name}: {text}");
    }
    let (status, _) = client.post("/elsewhere", JSON, good.as_bytes()).await?;
    assert_eq!(status, 404);
    let log = std::fs::read_to_string(operator.process.log())?;
    assert!(!log.contains(CANARY), "a body was logged");
    assert_unharmed(operator, pid).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_cannot_be_judged_is_denied_by_its_uid() -> Result<()> {
    let (operator, pid, client) = client().await?;
    let deep = |levels: usize| {
        let value = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        request(|r| r["object"]["spec"]["x"] = json!("DEEP")).replace("\"DEEP\"", &value)
    };
    let deep_manifest = |levels: usize| {
        let value = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        let odd = json!([{"id": "odd", "spec": {"x": "DEEP"}}]);
        request(|r| r["object"]["spec"]["manifests"] = odd).replace("\"DEEP\"", &value)
    };
    let raw = |value: &str| {
        request(|r| r["object"]["spec"]["x"] = json!("RAW")).replace("\"RAW\"", value)
    };
    for (name, body, wanted) in [
        (
            "no object",
            request(|r| r["object"] = Value::Null),
            Denied(400, "without the object"),
        ),
        (
            "no operation",
            request(|r| drop(r.as_object_mut().unwrap().remove("operation"))),
            Denied(400, "cannot read the request"),
        ),
        (
            "an operation that is none",
            request(|r| r["operation"] = json!("create")),
            Denied(400, "operation"),
        ),
        (
            "an operation of another type",
            request(|r| r["operation"] = json!(7)),
            Denied(400, "cannot read the request"),
        ),
        (
            "UPDATE without the old object",
            request(|r| r["operation"] = json!("UPDATE")),
            Denied(400, "without the old object"),
        ),
        (
            "a subresource that there is none of",
            request(|r| r["subResource"] = json!("scale")),
            Denied(400, "subresource"),
        ),
        (
            "10,000 levels",
            deep(10_000),
            Denied(400, "nested too deeply"),
        ),
        ("128 levels", deep(128), Denied(400, "nested too deeply")),
        (
            "65 levels in a manifest",
            deep_manifest(64),
            Denied(
                400,
                "resource \"odd\" in manifests is nested too deeply: a manifest may have 64 levels",
            ),
        ),
        (
            "1e999",
            raw("1e999"),
            Denied(400, "cannot read the request"),
        ),
        (
            "a lone surrogate",
            raw(r#""\ud800""#),
            Denied(400, "cannot read the request"),
        ),
        (
            "a user of another type",
            request(|r| r["userInfo"] = json!("alice")),
            Denied(400, "cannot read the request"),
        ),
    ] {
        check(&client, name, body.as_bytes(), &wanted).await?;
    }
    for (name, body) in [
        ("DELETE", request(|r| r["operation"] = json!("DELETE"))),
        ("CONNECT", request(|r| r["operation"] = json!("CONNECT"))),
        ("a status", request(|r| r["subResource"] = json!("status"))),
    ] {
        check(&client, name, body.as_bytes(), &Allowed).await?;
    }
    assert_unharmed(operator, pid).await
}

/// What is odd but can be read is judged like anything else: held, with its own text back byte for byte.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_content_is_held_like_any_other() -> Result<()> {
    let (operator, pid, client) = client().await?;
    let raw = |value: &str| {
        let odd = json!([{"id": "odd", "spec": {"x": "RAW"}}]);
        request(|r| r["object"]["spec"]["manifests"] = odd).replace("\"RAW\"", value)
    };
    for (name, body) in [
        (
            "60 levels",
            raw(&format!("{}{}", "[".repeat(60), "]".repeat(60))),
        ),
        ("20 digits", raw("12345678901234567890")),
        ("2^63", raw("9223372036854775808")),
        ("duplicate keys", raw(r#"{"a":1,"a":2}"#)),
        ("odd keys", raw(r#"{"":1,"__proto__":2,"a/b~c":3}"#)),
        (
            "a key of 500 KB",
            raw(&format!("{{{:?}:1}}", "k".repeat(500_000))),
        ),
        (
            "unicode",
            raw("\"\u{202e}\u{200b}\u{feff}\u{2028}e\u{301}\""),
        ),
        (
            "resources that are none",
            request(|r| r["object"]["spec"]["jobs"] = json!([7, null, "x", []])),
        ),
        (
            "metadata of another type",
            request(|r| r["object"]["metadata"]["annotations"] = json!(["x"])),
        ),
    ] {
        let (status, text) = client.post(PATHS[0], JSON, body.as_bytes()).await?;
        let at = format!("{name}: {status} {text}");
        assert_eq!(status, 200, "{at}");
        let response = serde_json::from_str::<Value>(&text)?["response"].take();
        assert_eq!(response["uid"], "u-1", "{at}");
        if response["allowed"] == true {
            assert_eq!(response["patchType"], "JSONPatch", "{at}");
        }
    }
    assert_unharmed(operator, pid).await
}

/// The largest review that an API server could send is judged; one byte more than the limit is not read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_size_of_a_body_is_limited() -> Result<()> {
    const LIMIT: usize = 7 * 1024 * 1024;
    let (operator, pid, client) = client().await?;
    let padded = |size: usize| {
        let body = request(|_| {});
        let padding = size - body.len();
        body + &" ".repeat(padding)
    };
    let (status, text) = client
        .post(PATHS[0], JSON, padded(LIMIT).as_bytes())
        .await?;
    assert_eq!(status, 200, "{text}");
    let (status, text) = client
        .post(PATHS[0], JSON, padded(LIMIT + 1).as_bytes())
        .await?;
    assert_eq!(status, 413, "{text}");
    assert!(text.contains("7340032 bytes"), "{text}");
    // Content of this size is refused by the gate itself, with the reason.
    for size in [1_500_000, 3_000_000] {
        let large = json!([{"id": "big", "spec": {"x": "x".repeat(size)}}]);
        let body = request(|r| r["object"]["spec"]["manifests"] = large);
        let denied = Denied(413, "the largest resource is \"big\" in manifests");
        let (status, text) = client.post(PATHS[0], JSON, body.as_bytes()).await?;
        assert_eq!(status, 200, "{size}");
        check(&client, "too large", body.as_bytes(), &denied).await?;
        assert!(text.len() < 5_000, "{} bytes", text.len());
    }
    assert_unharmed(operator, pid).await
}
