//! What only etcd itself can be asked for: by its JSON gateway, past the API server and all of its admission.

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::Cluster;

pub async fn ask(cluster: &Cluster, what: &str, request: &Value) -> Result<Value> {
    let mut config = kube::Config::new(cluster.etcd_url().parse()?);
    config.proxy_url = None;
    let body = request.to_string().into_bytes();
    let request = http::Request::post(format!("/v3/{what}")).body(body)?;
    Ok(kube::Client::try_from(config)?.request(request).await?)
}

/// A custom resource of lynqgate's, as it is stored; None where there is none.
pub async fn read(cluster: &Cluster, key: &str) -> Result<Option<Value>> {
    let found = ask(cluster, "kv/range", &json!({"key": STANDARD.encode(key)})).await?;
    let Some(value) = found["kvs"][0]["value"].as_str() else {
        return Ok(None);
    };
    Ok(Some(serde_json::from_slice(&STANDARD.decode(value)?)?))
}

pub async fn write(cluster: &Cluster, key: &str, object: &str) -> Result<()> {
    let value = STANDARD.encode(object);
    let pair = json!({"key": STANDARD.encode(key), "value": value});
    ask(cluster, "kv/put", &pair).await?;
    Ok(())
}

/// Stores the spec of an object of lynqgate's as if no webhook had been there: as an older version or a restore leaves it.
/// What is there already keeps the rest.
pub async fn store(cluster: &Cluster, object: &Value) -> Result<()> {
    let key = key_of(object)?;
    let stored = match read(cluster, &key).await? {
        Some(mut stored) => {
            let generation = stored["metadata"]["generation"].as_i64().unwrap_or(1) + 1;
            stored["metadata"]["generation"] = generation.into();
            match &object["spec"] {
                Value::Null => drop(stored.as_object_mut().map(|fields| fields.remove("spec"))),
                spec => stored["spec"] = spec.clone(),
            }
            stored
        }
        None => {
            let mut new = object.clone();
            new["metadata"]["generation"] = 1.into();
            new["metadata"]["creationTimestamp"] = format!("{:.0}", Timestamp::now()).into();
            // Any that is nobody else's will do.
            let name = format!("{:024x}", Timestamp::now().as_nanosecond());
            let (a, b) = name.split_at(12);
            new["metadata"]["uid"] = format!("{}-{}-4000-8000-{b}", &a[..8], &a[8..]).into();
            new
        }
    };
    write(cluster, &key, &stored.to_string()).await
}

pub fn key_of(object: &Value) -> Result<String> {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str);
    let plural = text("/kind").context("kind")?.to_lowercase() + "s";
    let namespace = text("/metadata/namespace").context("namespace")?;
    let name = text("/metadata/name").context("name")?;
    Ok(format!(
        "/registry/operator.lynq.sh/{plural}/{namespace}/{name}"
    ))
}
