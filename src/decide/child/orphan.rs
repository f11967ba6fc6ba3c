//! Objects that lynqgate left behind with `deletionPolicy: Retain`: which they are, and what goes with one that somebody deletes.

use jiff::Timestamp;
use serde_json::Value;

use crate::api::{names, stamp};
use crate::decide::child::{Kind, ObjectKey};

/// What a StatefulSet deletes with itself if its persistentVolumeClaimRetentionPolicy says so.
pub const CLAIMS: &str = "the data in its PersistentVolumeClaims";

/// An object with the label of orphans, as far as its metadata show.
#[derive(Clone, Debug, PartialEq)]
pub struct Orphan {
    pub key: ObjectKey,
    pub uid: String,
    pub resource_version: String,
    /// When lynqgate left it behind, and why.
    pub since: Option<Timestamp>,
    pub reason: String,
    /// The LynqNode that left it behind, as namespace/name. Lynq does not record it.
    pub left_by: Option<String>,
    pub deleting: bool,
    /// What is lost for good if it is deleted.
    pub lost: Option<&'static str>,
}

/// Selects the objects that are orphans by their labels.
pub fn selector() -> String {
    format!("{}={}", names::LABEL_ORPHANED, names::TRUE)
}

/// The LynqNode that a user names, as namespace/name; `namespace` is that of a bare name.
pub fn node_named(word: &str, namespace: &str) -> String {
    match word.contains('/') {
        true => word.to_owned(),
        false => format!("{namespace}/{word}"),
    }
}

impl Orphan {
    /// None if the object is no orphan.
    pub fn of(kind: &Kind, metadata: &Value) -> Option<Orphan> {
        if metadata["labels"][names::LABEL_ORPHANED] != names::TRUE {
            return None;
        }
        let text = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
        let annotation = |name: &str| metadata["annotations"][name].as_str();
        let finalizers = metadata["finalizers"].as_array();
        let is_cleaned_up = kind.is_custom() && finalizers.is_some_and(|all| !all.is_empty());
        Some(Orphan {
            key: ObjectKey {
                kind: kind.clone().into(),
                namespace: text("namespace").into(),
                name: text("name"),
            },
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            since: annotation(names::ORPHANED_AT).and_then(stamp::parse),
            reason: annotation(names::ORPHANED_REASON)
                .unwrap_or_default()
                .to_owned(),
            left_by: annotation(names::ORPHANED_FROM).map(str::to_owned),
            deleting: metadata["deletionTimestamp"].is_string(),
            lost: kind
                .holds()
                .or(is_cleaned_up.then_some("what its controller keeps for it")),
        })
    }

    /// The object, and what goes with it.
    pub fn named(&self) -> String {
        let ObjectKey {
            kind,
            namespace,
            name,
        } = &self.key;
        let kind = kind.called();
        let named = match &**namespace {
            "" => format!("{kind} {name}"),
            namespace => format!("{kind} {namespace}/{name}"),
        };
        match self.lost {
            Some(lost) => format!("{named}, and {lost}"),
            None => named,
        }
    }

    /// What its deletion does, as the user has to confirm it.
    pub fn deletion(&self) -> String {
        let node = self.left_by.as_deref().unwrap_or("of an unknown name");
        let since = self.since.map(|at| format!(" at {}", stamp::format(at)));
        format!(
            "deletes {}. LynqNode {node} left it behind{}",
            self.named(),
            since.unwrap_or_default()
        )
    }
}

/// What the deletion of all that a node left behind does; their names are shown before.
pub fn deletion_of_all(orphans: &[Orphan], node: &str) -> String {
    let count = match orphans.len() {
        1 => "this object".to_owned(),
        count => format!("these {count} objects"),
    };
    let losing = orphans.iter().filter(|orphan| orphan.lost.is_some());
    let lost = match losing.count() {
        0 => String::new(),
        losing => format!(". {losing} of them cannot be restored without a backup: see above"),
    };
    format!("deletes {count}, which LynqNode {node} left behind{lost}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn metadata(labels: Value, more: Value) -> Value {
        let mut metadata = json!({
            "namespace": "tenants", "name": "acme", "uid": "u", "resourceVersion": "7", "labels": labels,
            "annotations": {
                names::ORPHANED_AT: "2026-03-01T12:00:00.000Z", names::ORPHANED_REASON: names::NODE_DELETED,
                names::ORPHANED_FROM: "tenants/acme-web",
            },
        });
        for (field, value) in more.as_object().expect("an object") {
            metadata[field] = value.clone();
        }
        metadata
    }

    fn orphan(api_version: &str, kind: &str, more: Value) -> Orphan {
        let labels = json!({names::LABEL_ORPHANED: names::TRUE});
        Orphan::of(&Kind::new(api_version, kind), &metadata(labels, more)).expect("an orphan")
    }

    #[test]
    fn an_orphan_has_the_label() {
        let kind = Kind::new("v1", "ConfigMap");
        for (name, labels, expected) in [
            ("an orphan", json!({names::LABEL_ORPHANED: "true"}), true),
            ("none", json!({names::LABEL_MANAGED: "true"}), false),
            ("no more", json!({names::LABEL_ORPHANED: "false"}), false),
            ("no labels", Value::Null, false),
        ] {
            let found = Orphan::of(&kind, &metadata(labels, json!({})));
            assert_eq!(found.is_some(), expected, "{name}");
        }
        // As Lynq leaves it.
        let of_lynq = orphan("v1", "ConfigMap", json!({"annotations": null}));
        assert_eq!(
            (of_lynq.left_by, of_lynq.since, of_lynq.reason.as_str()),
            (None, None, "")
        );
    }

    #[test]
    fn what_goes_with_it_is_told() {
        let finalizers = || json!({"finalizers": ["example.com/x"]});
        let without_namespace = || json!({"namespace": null});
        for (orphan, expected) in [
            (
                orphan("v1", "ConfigMap", finalizers()),
                "ConfigMap tenants/acme",
            ),
            (
                orphan("v1", "PersistentVolumeClaim", json!({})),
                "PersistentVolumeClaim tenants/acme, and the data in it",
            ),
            (
                orphan("v1", "Namespace", without_namespace()),
                "Namespace acme, and all objects in it",
            ),
            (
                orphan("example.com/v1", "Database", json!({})),
                "Database.example.com tenants/acme",
            ),
            (
                orphan("example.com/v1", "Database", finalizers()),
                "Database.example.com tenants/acme, and what its controller keeps for it",
            ),
        ] {
            assert_eq!(orphan.named(), expected);
        }
        let map = || orphan("v1", "ConfigMap", json!({}));
        assert_eq!(
            map().deletion(),
            "deletes ConfigMap tenants/acme. LynqNode tenants/acme-web left it behind at 2026-03-01T12:00:00.000Z"
        );
        let claim = orphan("v1", "PersistentVolumeClaim", json!({}));
        for (orphans, expected) in [
            (
                vec![map()],
                "deletes this object, which LynqNode tenants/acme-web left behind",
            ),
            (
                vec![map(), claim],
                "deletes these 2 objects, which LynqNode tenants/acme-web left behind. 1 of them cannot be restored without a \
                 backup: see above",
            ),
        ] {
            assert_eq!(deletion_of_all(&orphans, "tenants/acme-web"), expected);
        }
    }

    #[test]
    fn a_bare_name_is_one_of_the_namespace() {
        for (word, expected) in [("acme-web", "tenants/acme-web"), ("b/acme", "b/acme")] {
            assert_eq!(node_named(word, "tenants"), expected);
        }
    }
}
