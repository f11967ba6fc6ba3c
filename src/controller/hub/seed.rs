//! The secret that random template functions draw from: made once for each hub, never shown, and kept when the hub goes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::api::names;
use crate::cluster::catalog::Hub;
use crate::cluster::objects::{ApiError, Objects};
use crate::cluster::process;
use crate::controller::World;
use crate::controller::hub::source::{secret_bytes, secret_key};
use crate::decide::child::ObjectKey;

/// The seed of the hub, so that no sync changes a password. Nobody owns its Secret: a hub that is made again under the same name
/// finds it.
pub async fn seed(world: &World, hub: &Hub) -> Result<[u8; 32], ApiError> {
    let key = key_of(&hub.namespace, &hub.name);
    let create = async |data: Value| {
        let object = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": key.name, "namespace": key.namespace, "labels": {names::LABEL_HUB: hub.name}},
            "immutable": true,
            "data": data,
        });
        match world.objects.create(&key, &object).await {
            Err(ApiError::Conflict(_)) => world.objects.get(&key).await,
            other => other,
        }
    };
    let secret = match world.objects.get(&key).await {
        Ok(secret) => match kept(&secret, &hub.name) {
            None => secret,
            Some(patch) => match world.objects.merge(&key, &patch).await {
                // It went with an earlier hub, its owner, just now.
                Err(ApiError::NotFound(_)) => create(secret["data"].clone()).await?,
                patched => patched?,
            },
        },
        Err(ApiError::NotFound(_)) => {
            let mut fresh = [0_u8; 32];
            if !process::random(&mut fresh) {
                let why = "the system gives no random numbers";
                return Err(ApiError::Unavailable(why.to_owned()));
            }
            create(json!({"seed": STANDARD.encode(fresh)})).await?
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

/// What takes a hub's owner reference off the Secret, which earlier versions set, and labels it with its hub.
fn kept(secret: &Value, hub: &str) -> Option<Value> {
    let metadata = &secret["metadata"];
    let owners = metadata["ownerReferences"].as_array();
    let owners = owners.into_iter().flatten();
    // What else may own it, such as what brings Secrets out of a vault, goes on to.
    let others: Vec<&Value> = owners.clone().filter(|o| o["kind"] != "LynqHub").collect();
    let is_kept = others.len() == owners.count() && metadata["labels"][names::LABEL_HUB] == hub;
    let version = &metadata["resourceVersion"];
    let patch = json!({
        "resourceVersion": version, "ownerReferences": others, "labels": {names::LABEL_HUB: hub},
    });
    (!is_kept).then(|| json!({"metadata": patch}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_nobodys_and_names_its_hub() {
        let hub = json!({"kind": "LynqHub", "name": "tenants", "uid": "gone"});
        let vault = json!({"kind": "ExternalSecret", "name": "seeds", "uid": "v"});
        let secret = |owners: &[&Value], labels: Value| json!({"metadata": {"resourceVersion": "7", "ownerReferences": owners, "labels": labels}});
        let labelled = json!({"lynq.sh/hub": "tenants"});
        let patch = |owners: &[&Value]| {
            let metadata =
                json!({"resourceVersion": "7", "ownerReferences": owners, "labels": labelled});
            Some(json!({"metadata": metadata}))
        };
        let unlabelled = || json!({"team": "blue"});
        for (name, secret, expected) in [
            (
                "as it is made",
                json!({"metadata": {"labels": labelled}}),
                None,
            ),
            ("another's", secret(&[&vault], labelled.clone()), None),
            ("a hub's", secret(&[&hub], unlabelled()), patch(&[])),
            (
                "both",
                secret(&[&vault, &hub], unlabelled()),
                patch(&[&vault]),
            ),
            (
                "copied",
                secret(&[], json!({"lynq.sh/hub": "old"})),
                patch(&[]),
            ),
        ] {
            assert_eq!(kept(&secret, "tenants"), expected, "{name}");
        }
    }
}
