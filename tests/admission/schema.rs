//! What the API server makes of odd JSON on its way into storage: the hash that the gate took is that of what is stored.

use anyhow::{Context, Result};
use lynqgate::decide::shared::content;
use serde_json::{Value, json};

use super::*;

/// Sends a body as it is, which no client library would.
async fn post(kube: &kube::Client, namespace: &str, body: &str) -> Result<Value, kube::Error> {
    let url = format!("/apis/operator.lynq.sh/v1/namespaces/{namespace}/lynqnodes");
    let request = http::Request::post(url)
        .header("content-type", "application/json")
        .body(body.as_bytes().to_vec())
        .expect("a request");
    kube.request(request).await
}

/// A live node of a kind that the cluster does not have, with this value in it.
fn body(namespace: &str, name: &str, value: &str) -> String {
    format!(
        r#"{{"apiVersion":"operator.lynq.sh/v1","kind":"LynqNode","metadata":{{"name":"{name}","namespace":"{namespace}","annotations":{{"{FORCE}":"true"}}}},
        "spec":{{"uid":"{name}","templateRef":"no-form","manifests":[{{"id":"odd","nameTemplate":"odd","spec":{{"apiVersion":"odd.example.com/v1","kind":"Odd","value":{value}}}}}]}}}}"#
    )
}

/// Numbers, keys and texts at the edges of JSON: stored with true hashes, and a write that changes no content later is
/// no change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hashes_are_true_of_what_is_stored() -> Result<()> {
    let nodes = Nodes::new("odd").await?;
    let kube = nodes.cluster.admin().await?;
    for (i, (name, value)) in [
        ("minus zero", "-0"),
        ("minus zero as a double", "-0.0"),
        ("a double without fraction", "1.0"),
        ("an exponent", "1e3"),
        ("the largest i64", "9223372036854775807"),
        ("the smallest i64", "-9223372036854775808"),
        ("2^63", "9223372036854775808"),
        ("20 digits", "12345678901234567890"),
        ("more than u64", "123456789012345678901234567890"),
        ("a sum of doubles", "0.30000000000000004"),
        ("a large double", "1.7976931348623157e308"),
        ("a small double", "5e-324"),
        ("1e21, where Go's notation changes", "1e21"),
        ("1e-7, where Go's notation changes", "0.0000001"),
        ("a duplicate key", r#"{"a":1,"a":2}"#),
        ("odd keys", r#"{"":1,"__proto__":2,"a/b~c":3,"$ref":4}"#),
        (
            "nulls and empty values",
            r#"{"a":null,"b":[],"c":{},"d":""}"#,
        ),
        ("composed and decomposed", "[\"\u{e9}\",\"e\u{301}\"]"),
        (
            "right to left, zero width",
            "\"\u{202e}a\u{200b}b\u{feff}\"",
        ),
        ("line separators", "\"\u{2028}\u{2029}<>&\""),
        ("a lone surrogate", r#""\ud800""#),
        ("a surrogate pair", r#""\ud83d\ude00""#),
        ("control characters", r#""\u0000\u001f\u007f""#),
        (
            "60 levels",
            &format!("{}{}", "[".repeat(60), "]".repeat(60)),
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let node = format!("n{i}");
        let created = post(
            &kube,
            &nodes.namespace,
            &body(&nodes.namespace, &node, value),
        )
        .await
        .with_context(|| name.to_owned())?;
        assert!(!is_held(&created), "{name}");
        let mut stored = nodes.get(&node).await?;
        for _ in 0..2 {
            let hash = content::hash(stored.get("spec"));
            assert_eq!(annotation(&stored, LIVE), hash.as_str(), "{name}");
            assert_eq!(annotation(&stored, DESIRED), hash.as_str(), "{name}");
            // No longer forced, so that a change would be held.
            stored = merge(&nodes.admin, &node, &annotate(FORCE, Value::Null)).await?;
        }
    }
    Ok(())
}

/// Two integers that are one double are two contents; a double without fraction is the integer that it is stored as.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn integers_are_compared_exactly() -> Result<()> {
    let nodes = Nodes::new("integers").await?;
    let content = |value: Value| json!({"manifests": [{"id": "odd", "nameTemplate": "odd", "spec": {"apiVersion": "odd.example.com/v1", "kind": "Odd", "value": value}}]});
    nodes
        .create_live("n", content(json!(9_007_199_254_740_992_i64)))
        .await?;
    for (value, held) in [
        (json!(9_007_199_254_740_993_i64), true),
        (json!(9_007_199_254_740_992_i64), false),
    ] {
        let written = merge(&nodes.admin, "n", &json!({"spec": content(value.clone())})).await?;
        assert_eq!(is_held(&written), held, "{value}");
    }
    nodes.create_live("m", content(json!(1))).await?;
    for (value, held) in [(json!(1.0), false), (json!(1.5), true)] {
        let written = merge(&nodes.admin, "m", &json!({"spec": content(value.clone())})).await?;
        assert_eq!(is_held(&written), held, "{value}");
    }
    Ok(())
}

/// Content that the gate cannot read is refused with the reason, not with an internal error of the API server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn content_nested_too_deeply_is_refused_with_the_reason() -> Result<()> {
    let nodes = Nodes::new("deep").await?;
    let kube = nodes.cluster.admin().await?;
    for depth in [130, 5_000] {
        let value = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let (code, message) = refusal(
            post(
                &kube,
                &nodes.namespace,
                &body(&nodes.namespace, "n", &value),
            )
            .await,
        )?;
        assert_eq!(code, 400, "{message}");
        assert!(message.contains("nested too deeply"), "{message}");
    }
    Ok(())
}
