//! Taking over what another operator of the same API left, above all Lynq: whose objects are there, and whether the release of a
//! node would change any of them.

pub mod left;

use std::fmt;

use serde_json::Value;

use crate::api::names;
use crate::api::node::NodeStatus;
use crate::decide::child::{Kind, ObjectKey, Scope};

/// The kinds of Lynq's arrays: its record lacks their API groups.
const RECORDED: [(&str, &str); 15] = [
    ("ServiceAccount", "v1"),
    ("Service", "v1"),
    ("ConfigMap", "v1"),
    ("Secret", "v1"),
    ("PersistentVolumeClaim", "v1"),
    ("Namespace", "v1"),
    ("Deployment", "apps/v1"),
    ("StatefulSet", "apps/v1"),
    ("DaemonSet", "apps/v1"),
    ("Job", "batch/v1"),
    ("CronJob", "batch/v1"),
    ("Ingress", "networking.k8s.io/v1"),
    ("NetworkPolicy", "networking.k8s.io/v1"),
    ("PodDisruptionBudget", "policy/v1"),
    ("HorizontalPodAutoscaler", "autoscaling/v2"),
];

/// Whether the node has the row that Lynq writes, as its nodes do until they are taken over.
pub fn bears_lynqs_row(node: &Value) -> bool {
    let annotations = &node["metadata"]["annotations"];
    let mut row = names::LYNQS_ROW.iter();
    row.any(|name| annotations[name].is_string())
}

/// An object that a status names as `Kind/namespace/name@id`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    pub kind: String,
    /// Empty if the record does not have it and Lynq has no array for the kind.
    pub api_versions: Vec<String>,
    pub namespace: String,
    pub name: String,
}

pub fn recorded(status: &NodeStatus) -> Vec<Recorded> {
    let read = |entry: &String| {
        let mut recorded = Recorded::parse(entry.split('@').next()?)?;
        let kind = recorded.kind.as_str();
        let kinds = status.applied_kinds.iter();
        let said = kinds.filter_map(|text| text.strip_suffix(kind)?.strip_suffix(' '));
        let mut api_versions: Vec<String> = said.map(str::to_owned).collect();
        if api_versions.is_empty() {
            let known = RECORDED.iter().find(|(known, _)| *known == kind);
            api_versions.extend(known.map(|(_, api_version)| (*api_version).to_owned()));
        }
        recorded.api_versions = api_versions;
        Some(recorded)
    };
    status.applied_resources.iter().filter_map(read).collect()
}

impl fmt::Display for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.kind, self.namespace, self.name)
    }
}

impl Recorded {
    fn parse(text: &str) -> Option<Recorded> {
        let mut parts = text.splitn(3, '/').map(str::to_owned);
        let (kind, namespace, name) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Recorded {
            kind,
            api_versions: vec![],
            namespace,
            name,
        })
    }

    /// Whether one of these is the object. What has no namespace is recorded with its node's.
    pub fn is_among(&self, keys: &[ObjectKey]) -> bool {
        keys.iter().any(|key| {
            key.kind.kind == self.kind
                && key.name == self.name
                && (key.namespace.is_empty() || *key.namespace == *self.namespace)
        })
    }

    pub fn key(&self, kind: Kind, scope: Scope) -> ObjectKey {
        let namespace = match scope {
            Scope::Cluster => String::new(),
            Scope::Namespaced => self.namespace.clone(),
        };
        let name = self.name.clone();
        ObjectKey {
            kind: kind.into(),
            namespace: namespace.into(),
            name,
        }
    }

    /// Whether the object may be this one: a part of the record that is missing or a template matches anything.
    pub fn may_be(&self, key: &ObjectKey) -> bool {
        let fits = |recorded: &str, name: &str| {
            recorded.is_empty() || recorded.contains("{{") || recorded == name
        };
        key.kind.kind == self.kind
            && fits(&self.name, &key.name)
            && fits(&self.namespace, &key.namespace)
    }

    /// Lynq records the namespace as the form's template, which does not identify an object.
    pub fn is_template(&self) -> bool {
        self.namespace.contains("{{") || self.name.contains("{{")
    }
}

/// What releasing a node would do to one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The fields as JSON pointers. Their values may be secrets.
    Changes {
        object: ObjectKey,
        fields: Vec<String>,
    },
    Makes(ObjectKey),
    /// The object has no owner or is an orphan, and becomes the node's.
    Takes {
        object: ObjectKey,
        orphaned: bool,
        fields: Vec<String>,
    },
    Deletes(ObjectKey),
    /// Its deletionPolicy retains it.
    Leaves(ObjectKey),
    /// Not known, or it would fail.
    Unclear {
        /// An object, or the id of a resource that names none.
        what: String,
        why: String,
    },
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Effect::Changes { object, fields } => write!(f, "{object} changes: {}", shown(fields)),
            Effect::Takes {
                object,
                orphaned,
                fields,
            } => {
                let why = match orphaned {
                    true => "it was left behind as an orphan",
                    false => "it is nobody's, and its conflictPolicy is Force",
                };
                write!(f, "{object} becomes this node's: {why}")?;
                match fields.is_empty() {
                    true => Ok(()),
                    false => write!(f, "; it changes: {}", shown(fields)),
                }
            }
            Effect::Makes(object) => write!(f, "{object} is created"),
            Effect::Deletes(object) => write!(f, "{object} is deleted: the form does not name it"),
            Effect::Leaves(object) => write!(
                f,
                "{object} is left behind, as its deletionPolicy says: the form does not name it"
            ),
            Effect::Unclear { what, why } => write!(f, "{what}: {why}"),
        }
    }
}

fn shown(fields: &[String]) -> String {
    const SHOWN_MAX: usize = 5;
    match fields.len().saturating_sub(SHOWN_MAX) {
        0 => fields.join(", "),
        more => format!("{} and {more} more", fields[..SHOWN_MAX].join(", ")),
    }
}

/// The fields that an apply would change, but for bookkeeping: what the API server counts, and what names the node.
pub fn changed(live: &Value, applied: &Value) -> Vec<String> {
    let difference = json_patch::diff(&substance(live), &substance(applied));
    difference
        .iter()
        .map(|operation| operation.path().to_string())
        .collect()
}

fn substance(object: &Value) -> Value {
    let mut object = object.clone();
    let Some(fields) = object.as_object_mut() else {
        return object;
    };
    fields.remove("status");
    let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) else {
        return object;
    };
    for counted in [
        "managedFields",
        "resourceVersion",
        "generation",
        "ownerReferences",
    ] {
        metadata.remove(counted);
    }
    for texts in ["labels", "annotations"] {
        let left = metadata.get_mut(texts).and_then(Value::as_object_mut);
        let is_empty = left.is_none_or(|left| {
            left.retain(|name, _| !name.starts_with(names::PREFIX));
            left.is_empty()
        });
        if is_empty {
            metadata.remove(texts);
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bookkeeping_is_no_change() {
        let object = |metadata: Value, replicas: u32| {
            let mut object = json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "labels": {"app": "a"}},
                "spec": {"replicas": replicas}, "status": {"replicas": replicas},
            });
            let fields = object["metadata"].as_object_mut().unwrap();
            fields.extend(metadata.as_object().unwrap().clone());
            object
        };
        let left = object(
            json!({"resourceVersion": "5", "annotations": {"lynq.sh/applied-hash": "x", "lynq.sh/apply-start-time": "y"}}),
            1,
        );
        for (name, applied, expected) in [
            (
                "ours",
                object(
                    json!({
                        "resourceVersion": "6", "managedFields": [{}], "ownerReferences": [{}],
                        "labels": {"app": "a", "lynq.sh/managed": "true"}, "annotations": {"lynq.sh/applied-hash": "z"},
                    }),
                    1,
                ),
                vec![],
            ),
            ("a replica", object(json!({}), 2), vec!["/spec/replicas"]),
            (
                "a label",
                object(json!({"labels": {"app": "b"}}), 1),
                vec!["/metadata/labels/app"],
            ),
            (
                "an annotation",
                object(json!({"annotations": {"note": "b"}}), 1),
                vec!["/metadata/annotations"],
            ),
        ] {
            let found = changed(&left, &applied);
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn lynqs_record_names_objects() {
        let status = NodeStatus {
            applied_resources: vec![
                "Deployment/shop/acme-app@app".into(),
                "Namespace/shop/acme@ns".into(),
                "Widget/shop/acme@w".into(),
                "nonsense".into(),
                "ConfigMap/{{ .region }}/acme@c".into(),
            ],
            ..NodeStatus::default()
        };
        let all = recorded(&status);
        let told: Vec<(&str, &str, &str)> = all
            .iter()
            .map(|r| {
                (
                    r.api_versions.first().map_or("", String::as_str),
                    r.kind.as_str(),
                    r.name.as_str(),
                )
            })
            .collect();
        assert_eq!(
            told,
            [
                ("apps/v1", "Deployment", "acme-app"),
                ("v1", "Namespace", "acme"),
                ("", "Widget", "acme"),
                ("v1", "ConfigMap", "acme")
            ]
        );
        let known = NodeStatus {
            applied_kinds: vec!["example.com/v1 Widget".into()],
            ..status
        };
        assert_eq!(recorded(&known)[2].api_versions, ["example.com/v1"]);
        let key = |namespace: &str, name: &str| ObjectKey {
            kind: Kind {
                api_version: "apps/v1".into(),
                kind: "Deployment".into(),
            }
            .into(),
            namespace: namespace.into(),
            name: name.into(),
        };
        assert!(all[3].is_template() && !all[0].is_template());
        assert!(all[0].is_among(&[key("shop", "acme-app")]));
        assert!(!all[0].is_among(&[key("other", "acme-app"), key("shop", "acme-web")]));
    }
}
