//! The secret that random template functions draw from: made once for each hub, and never shown.

use serde_json::{Value, json};

use crate::api::names;
use crate::cluster::catalog::Hub;
use crate::cluster::objects::{ApiError, Objects};
use crate::controller::World;
use crate::controller::hub::source::{secret_bytes, secret_key};
use crate::decide::child::ObjectKey;

/// The secret that random template functions draw from: made once for each hub, so that no sync changes a password.
pub async fn seed(world: &World, hub: &Hub) -> Result<[u8; 32], ApiError> {
    use base64::Engine;
    let key = key_of(&hub.namespace, &hub.name);
    let owner = json!({
        "apiVersion": format!("{}/{}", names::GROUP, names::VERSION), "kind": "LynqHub", "name": hub.name, "uid": hub.uid,
    });
    let secret = match world.objects.get(&key).await {
        Ok(secret) => owned(world, &key, secret, &owner).await?,
        Err(ApiError::NotFound(_)) => {
            let mut fresh = [0_u8; 32];
            let provider = rustls::crypto::aws_lc_rs::default_provider();
            provider
                .secure_random
                .fill(&mut fresh)
                .map_err(|_| ApiError::Unavailable("the system gives no random numbers".into()))?;
            let object = json!({
                "apiVersion": "v1", "kind": "Secret",
                "metadata": {"name": key.name, "namespace": key.namespace, "ownerReferences": [owner]},
                "immutable": true,
                "data": {"seed": base64::engine::general_purpose::STANDARD.encode(fresh)},
            });
            match world.objects.create(&key, &object).await {
                Err(ApiError::Conflict(_)) => world.objects.get(&key).await?,
                other => other?,
            }
        }
        Err(error) => return Err(error),
    };
    bytes_of(&secret).ok_or_else(|| {
        ApiError::Refused(format!(
            "Secret {:?} has no 32 bytes under key \"seed\", from which the templates' random values are made; restore \
             it, or delete it: then they all change",
            key.name
        ))
    })
}

/// The same for whoever makes none; None where there is none yet.
pub async fn known(
    objects: &Objects,
    namespace: &str,
    hub: &str,
) -> Result<Option<[u8; 32]>, ApiError> {
    match objects.get(&key_of(namespace, hub)).await {
        Ok(secret) => Ok(bytes_of(&secret)),
        Err(ApiError::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn key_of(namespace: &str, hub: &str) -> ObjectKey {
    secret_key(namespace, &format!("{hub}-lynq-seed"))
}

fn bytes_of(secret: &Value) -> Option<[u8; 32]> {
    let bytes = secret_bytes(secret, "seed")?;
    bytes.try_into().ok()
}

/// A hub made anew, by hand or out of a backup, finds the Secret of the one before it, which the garbage collector is about to
/// delete: with it every random value of the fleet would go.
async fn owned(
    world: &World,
    key: &ObjectKey,
    secret: Value,
    hub: &Value,
) -> Result<Value, ApiError> {
    let metadata = &secret["metadata"];
    let known = metadata["ownerReferences"].as_array();
    let known = known.into_iter().flatten();
    if known.clone().any(|owner| owner["uid"] == hub["uid"]) {
        return Ok(secret);
    }
    // What else may own it, such as what brings Secrets out of a vault, goes on to.
    let others = known.filter(|owner| owner["kind"] != "LynqHub");
    let owners: Vec<&Value> = others.chain([hub]).collect();
    let version = &metadata["resourceVersion"];
    let patch = json!({"metadata": {"resourceVersion": version, "ownerReferences": owners}});
    match world.objects.merge(key, &patch).await {
        Err(ApiError::NotFound(_)) => {
            let metadata =
                json!({"name": key.name, "namespace": key.namespace, "ownerReferences": owners});
            let anew = json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "immutable": true, "data": secret["data"],
            });
            world.objects.create(key, &anew).await
        }
        other => other,
    }
}
