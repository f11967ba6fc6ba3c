//! An object other than the pods that must be ready before each step of a partition, such as the StatefulSet's owner.

use serde::Deserialize;
use serde_json::Value;

use crate::api::names;
use crate::api::resource::ReadyProbe;
use crate::decide::child::{Kind, ObjectKey};
use crate::decide::partition::annotation;
use crate::decide::readiness::probe::{Probe, unmet};

/// The annotation. Without a name it is the StatefulSet's owner.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Text {
    api_version: Option<String>,
    kind: Option<String>,
    name: Option<String>,
    cel: Option<String>,
    json_path: Option<String>,
    expected_value: Option<String>,
}

/// An object of the StatefulSet's namespace, and how to see whether it is ready.
pub struct OfWhole {
    pub key: ObjectKey,
    probe: Probe,
}

impl OfWhole {
    /// None if the StatefulSet has no such annotation; an error if the annotation is invalid.
    pub fn of(stateful_set: &Value) -> Option<Result<Self, String>> {
        let text = annotation(stateful_set, names::PARTITION_PROBE)?;
        let read = Self::read(text, stateful_set);
        Some(read.map_err(|why| {
            format!(
                "the annotation {} cannot be used: {why}",
                names::PARTITION_PROBE
            )
        }))
    }

    fn read(text: &str, stateful_set: &Value) -> Result<Self, String> {
        let text: Text = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let owners = stateful_set["metadata"]["ownerReferences"].as_array();
        let owner = owners
            .into_iter()
            .flatten()
            .find(|owner| owner["controller"] == true);
        let of_owner = |field: &str| Some(owner?[field].as_str()?.to_owned());
        let (api_version, kind, name) = match (text.api_version, text.kind, text.name) {
            (Some(api_version), Some(kind), Some(name)) => (api_version, kind, name),
            (None, None, None) => of_owner("apiVersion")
                .zip(of_owner("kind"))
                .zip(of_owner("name"))
                .map(|((api_version, kind), name)| (api_version, kind, name))
                .ok_or("no controller owns the StatefulSet; name apiVersion, kind and name of the object to look at")?,
            _ => return Err("give apiVersion, kind and name, or none of them".to_owned()),
        };
        let probe = ReadyProbe {
            cel: text.cel,
            json_path: text.json_path,
            expected_value: text.expected_value,
        };
        let namespace = stateful_set["metadata"]["namespace"]
            .as_str()
            .unwrap_or_default();
        Ok(OfWhole {
            key: ObjectKey {
                kind: Kind { api_version, kind }.into(),
                namespace: namespace.into(),
                name,
            },
            probe: Probe::parse(&probe)?,
        })
    }

    /// Why the object is not ready.
    pub fn unmet(&self, object: &Value) -> Option<String> {
        let why = unmet(&self.probe, object)?;
        Some(format!("{} is not ready: {why}", self.key))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asked(annotation: &Value, owner: &Value) -> Result<OfWhole, String> {
        let object = json!({"metadata": {
            "name": "db", "namespace": "a", "annotations": {names::PARTITION_PROBE: annotation.to_string()},
            "ownerReferences": [owner],
        }});
        OfWhole::of(&object).expect("it asks")
    }

    #[test]
    fn the_owner_or_a_named_object_is_looked_at() {
        let owner = json!({"apiVersion": "moco.cybozu.com/v1beta2", "kind": "MySQLCluster", "name": "db", "controller": true});
        let cel = "object.status.healthy == true";
        let of_owner = asked(&json!({"cel": cel}), &owner).unwrap();
        assert_eq!(of_owner.key.to_string(), "MySQLCluster/a/db");
        assert_eq!(of_owner.unmet(&json!({"status": {"healthy": true}})), None);
        let why = "MySQLCluster/a/db is not ready: object.status.healthy == true is false";
        assert_eq!(
            of_owner
                .unmet(&json!({"status": {"healthy": false}}))
                .as_deref(),
            Some(why)
        );
        let named = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "jsonPath": ".data.ok", "expectedValue": "yes"});
        assert_eq!(
            asked(&named, &json!({})).unwrap().key.to_string(),
            "ConfigMap/a/c"
        );
        for (annotation, owner, said) in [
            (
                json!({"cel": cel}),
                json!({}),
                "no controller owns the StatefulSet",
            ),
            (
                json!({"cel": cel, "kind": "A"}),
                owner.clone(),
                "give apiVersion, kind and name",
            ),
            (json!({"cell": cel}), owner.clone(), "unknown field `cell`"),
            (json!({}), owner, "give cel, or jsonPath"),
        ] {
            let error = asked(&annotation, &owner).err().unwrap();
            assert!(
                error.contains(said) && error.contains(names::PARTITION_PROBE),
                "{error}"
            );
        }
    }
}
