//! Before an apply: what left the form, and what the API server had filled in beside it, becomes ours, so that the apply takes it away.

use serde_json::{Value, json};

use crate::api::resource::{ConflictPolicy, Resource};
use crate::cluster::objects::{ApiError, Objects};
use crate::decide::child::{ObjectKey, departed};

/// Status updates of controllers come in between.
const TRIES: u32 = 5;

pub struct Departing<'a> {
    pub objects: &'a Objects,
    pub resource: &'a Resource,
    pub key: &'a ObjectKey,
    pub live: &'a Value,
    /// What will be applied.
    pub object: &'a Value,
}

impl Departing<'_> {
    /// Returns the fields that go. Nothing of the object itself changes by this, so that nothing restarts before the apply; and if
    /// that never comes, the next one takes the same away.
    pub async fn make_ours(&self) -> Result<Value, ApiError> {
        let mut live = self.live.clone();
        for _ in 0..TRIES {
            let gone = self.departed(&live).await?;
            let force = self.resource.conflict_policy == ConflictPolicy::Force;
            let entries = departed::made_ours(&live, &gone, force);
            let entries = entries
                .map_err(|others| ApiError::Conflict(self.objects.told(&others.to_string())))?;
            let Some(entries) = entries.filter(|_| !self.objects.is_dry_run()) else {
                return Ok(gone);
            };
            let version = &live["metadata"]["resourceVersion"];
            let patch = json!([
                {"op": "replace", "path": "/metadata/managedFields", "value": entries},
                {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
            ]);
            let patch = serde_json::from_value(patch).expect("a JSON patch");
            match self.objects.json_patch(self.key, patch).await {
                Ok(_) => return Ok(gone),
                Err(ApiError::Conflict(_)) => live = self.objects.get(self.key).await?,
                Err(error) => return Err(error),
            }
        }
        Err(ApiError::Unavailable(
            "the object changes too often".to_owned(),
        ))
    }

    /// Where the API server makes no object of the manifest, not even a new one, what it says of that is found by the apply.
    async fn departed(&self, live: &Value) -> Result<Value, ApiError> {
        let Some(new) = self.new_one(self.object, live).await? else {
            return Ok(departed::unnamed(live, self.object, self.resource));
        };
        let mut before = departed::applied_before(live);
        let mut old = self.new_one(&before, live).await?;
        if old.is_none() {
            before = departed::named_before(live, &new);
            old = self.new_one(&before, live).await?;
        }
        let old = old.unwrap_or(before);
        Ok(departed::departed(
            live,
            (&old, &new),
            self.object,
            self.resource,
        ))
    }

    async fn new_one(&self, manifest: &Value, live: &Value) -> Result<Option<Value>, ApiError> {
        let manifest = departed::of_a_new_one(manifest, live);
        let name = manifest["metadata"]["name"].as_str().unwrap_or_default();
        let key = ObjectKey {
            name: name.to_owned(),
            ..self.key.clone()
        };
        match self.objects.dry_run().apply(&key, &manifest, true).await {
            Ok(new) => Ok(Some(new)),
            Err(error @ ApiError::Unavailable(_)) => Err(error),
            Err(_) => Ok(None),
        }
    }
}
