//! Whether lynqgate deletes an object that the API server does not change, and creates it again: `onImmutable: Recreate`.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::api::resource::{CreationPolicy, OnImmutable, Resource};
use crate::decide::child::{Child, Kind, ObjectKey, applied_hash, deletes_claims, kind_of};
use crate::decide::node::digest::NodeDigest;
use crate::decide::node::plan::ownership::is_ours;
use crate::decide::node::plan::status::delete_command;

/// Whether the objects that a deleted object owns, such as its pods, stay or are deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dependents {
    Stay,
    Go,
}

/// Whether the resource allows it, and no data would be lost with the object.
pub fn is_wanted(resource: &Resource) -> bool {
    resource.on_immutable == OnImmutable::Recreate
        && resource.creation_policy == CreationPolicy::WhenNeeded
        && kind_of(&resource.spec).holds().is_none()
}

/// Whether this object may be recreated after the API server has rejected its change. Only a rollout recreates, because only a
/// rollout has a window. An object that this content was already applied to, or whose node was ready with it, has drifted
/// instead.
pub fn is_due(resource: &Resource, node: &NodeDigest, child: &Child) -> bool {
    let was_applied = child.applied_hash.as_deref() == Some(&*applied_hash(resource));
    is_wanted(resource)
        && is_ours(child, node)
        && !child.deleting
        && !was_applied
        && !node.was_rolled_out()
}

/// The consequences of recreating an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recreation {
    pub dependents: Dependents,
    /// What would be lost with the object, in which case it is not recreated.
    pub loss: Option<&'static str>,
}

impl Recreation {
    /// A new StatefulSet adopts the existing pods if it has the same selector and claims; any other object is deleted with its
    /// dependents. `new` is the object to create.
    pub fn of(kind: &Kind, live: &Value, new: &Value) -> Self {
        let claims = |object: &Value| -> BTreeSet<String> {
            let claims = object["spec"]["volumeClaimTemplates"].as_array();
            let names = claims.into_iter().flatten();
            let names = names.filter_map(|claim| claim["metadata"]["name"].as_str());
            names.map(str::to_owned).collect()
        };
        let selects_the_same = live["spec"]["selector"] == new["spec"]["selector"];
        let adopts = kind.is_stateful_set() && selects_the_same && claims(live) == claims(new);
        let finalizers = live["metadata"]["finalizers"].as_array();
        let has_finalizer = finalizers.is_some_and(|all| !all.is_empty());
        let loss = if !adopts && deletes_claims(live) {
            Some("its PersistentVolumeClaims would go with it (whenDeleted: Delete)")
        } else if kind.is_custom() && has_finalizer {
            Some("it has a finalizer, so its controller would delete what it created for it")
        } else {
            None
        };
        Recreation {
            dependents: if adopts {
                Dependents::Stay
            } else {
                Dependents::Go
            },
            loss,
        }
    }
}

/// The fields of a StatefulSet's spec that the API server allows to change.
const CHANGEABLE: [&str; 7] = [
    "minReadySeconds",
    "ordinals",
    "persistentVolumeClaimRetentionPolicy",
    "replicas",
    "revisionHistoryLimit",
    "template",
    "updateStrategy",
];

/// Names the changed immutable fields of a workload, because the API server does not: for a StatefulSet it lists only the mutable
/// ones, and for a label removed from another selector it says that the pods lack it. None for other kinds.
pub fn immutable(kind: &Kind, live: &Value, new: &Value) -> Option<String> {
    let fields = live["spec"].as_object();
    let fields = fields.filter(|_| kind.group() == "apps")?;
    let is_fixed = |name: &str| match kind.is_stateful_set() {
        true => !CHANGEABLE.contains(&name),
        false => name == "selector",
    };
    let others = fields
        .iter()
        .filter(|(name, value)| is_fixed(name) && new["spec"][name.as_str()] != **value);
    let others: Vec<String> = others.map(|(name, _)| format!("spec.{name}")).collect();
    (!others.is_empty()).then(|| format!("{}: field is immutable", others.join(", ")))
}

/// The effect while the object does not exist, for people.
pub fn meanwhile(kind: &Kind, dependents: Dependents) -> &'static str {
    match (dependents, kind.group(), kind.kind.as_str()) {
        (Dependents::Stay, ..) => "its pods stay",
        (_, "apps", _) | (_, "batch", "Job") => "its pods go meanwhile",
        _ => "it is missing meanwhile",
    }
}

/// What somebody can do about an object with a field that cannot be changed.
pub fn by_hand(key: &ObjectKey) -> String {
    let (kind, delete) = (&key.kind, delete_command(key));
    match () {
        () if kind.holds().is_some() => {
            "give it another nameTemplate, and move what it holds".to_owned()
        }
        () if kind.is_job() => format!(
            "put a version into its nameTemplate, so that another Job runs; or delete it, and lynqgate runs it again: {delete}"
        ),
        () if kind.is_stateful_set() => format!(
            "delete it without its pods, and lynqgate creates it again: {delete} --cascade=orphan; or give it another nameTemplate"
        ),
        () => format!(
            "delete it, and lynqgate creates it again: {delete}; or give it another nameTemplate"
        ),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::api::conditions::{self, ConditionReason, ConditionState};
    use crate::decide::child::Owner;
    use crate::decide::shared::content;

    fn resource(kind: [&str; 2], extra: &Value) -> Resource {
        let mut resource = json!({
            "id": "app", "nameTemplate": "acme-app", "onImmutable": "Recreate", "spec": {"apiVersion": kind[0], "kind": kind[1]},
        });
        let extra = extra.as_object().expect("fields").clone();
        resource.as_object_mut().expect("fields").extend(extra);
        serde_json::from_value(resource).expect("a resource")
    }

    const DEPLOYMENT: [&str; 2] = ["apps/v1", "Deployment"];

    /// With live content that was rolled out, or not.
    fn node(rolled: bool) -> NodeDigest {
        let spec = json!({"hubId": "tenants", "uid": "acme"});
        let hash = content::hash(Some(&spec));
        let rolled = ConditionState::new("Rolled", rolled, ConditionReason::Rolled, "");
        let mut all = vec![];
        conditions::merge(&mut all, &[rolled], Some(1), Timestamp::UNIX_EPOCH);
        let object = json!({
            "metadata": {"namespace": "tenants", "name": "acme-web", "uid": "node-uid", "annotations": {
                "lynq.sh/desired-hash": hash.as_str(), "lynq.sh/live-hash": hash.as_str(),
            }},
            "spec": spec,
            "status": {"observedHash": hash.as_str(), "conditions": all},
        });
        NodeDigest::of(&object, None)
    }

    fn child(hash: &str, owner: &str) -> Child {
        Child::of(&json!({"metadata": {
            "uid": "u", "namespace": "tenants", "annotations": {"lynq.sh/applied-hash": hash}, "ownerReferences": [{
                "apiVersion": "operator.lynq.sh/v1", "kind": "LynqNode", "name": "acme-web", "uid": owner, "controller": true,
            }],
        }}))
    }

    #[test]
    fn only_a_rollout_recreates_and_only_what_is_the_nodes_own() {
        let app = resource(DEPLOYMENT, &json!({}));
        let (rolling, settled) = (node(false), node(true));
        let old = child("of the content before", "node-uid");
        assert!(matches!(*old.owner, Owner::Node { .. }));
        assert!(is_due(&app, &rolling, &old));
        assert!(!is_due(&app, &settled, &old), "settled");
        let applied = child(&applied_hash(&app), "node-uid");
        assert!(!is_due(&app, &rolling, &applied), "drift");
        let of_another = child("of the content before", "another-uid");
        assert!(!is_due(&app, &rolling, &of_another), "somebody else's");
        let going = Child {
            deleting: true,
            ..old.clone()
        };
        assert!(!is_due(&app, &rolling, &going), "it goes already");
    }

    #[test]
    fn nothing_is_recreated_unasked_or_with_a_loss() {
        for (kind, extra, wanted) in [
            (DEPLOYMENT, json!({}), true),
            (DEPLOYMENT, json!({"onImmutable": "Refuse"}), false),
            (DEPLOYMENT, json!({"creationPolicy": "Once"}), false),
            (["example.com/v1", "Namespace"], json!({}), true),
            (["v1", "Namespace"], json!({}), false),
            (["v1", "PersistentVolumeClaim"], json!({}), false),
            (
                ["apiextensions.k8s.io/v1", "CustomResourceDefinition"],
                json!({}),
                false,
            ),
        ] {
            let resource = resource(kind, &extra);
            assert_eq!(is_wanted(&resource), wanted, "{kind:?}, {extra}");
        }
    }

    #[test]
    fn what_is_not_recreated_is_deleted_by_hand() {
        for (kind, said) in [
            (
                DEPLOYMENT,
                "delete it, and lynqgate creates it again: kubectl delete deployment.apps acme-app -n tenants; or give it another \
                 nameTemplate",
            ),
            (
                ["apps/v1", "StatefulSet"],
                "delete it without its pods, and lynqgate creates it again: kubectl delete statefulset.apps acme-app -n tenants \
                 --cascade=orphan; or give it another nameTemplate",
            ),
            (
                ["batch/v1", "Job"],
                "put a version into its nameTemplate, so that another Job runs; or delete it, and lynqgate runs it again: kubectl delete \
                 job.batch acme-app -n tenants",
            ),
            (
                ["v1", "PersistentVolumeClaim"],
                "give it another nameTemplate, and move what it holds",
            ),
        ] {
            let key = ObjectKey {
                kind: Kind::new(kind[0], kind[1]).into(),
                namespace: "tenants".into(),
                name: "acme-app".to_owned(),
            };
            assert_eq!(by_hand(&key), said);
        }
    }

    #[test]
    fn pods_stay_where_the_next_object_adopts_them() {
        let set = ["apps/v1", "StatefulSet"];
        let spec = |app: &str, claim: &str, size: &str| {
            let claim = json!({"metadata": {"name": claim}, "spec": {"resources": {"requests": {"storage": size}}}});
            json!({"spec": {"selector": {"matchLabels": {"app": app}}, "volumeClaimTemplates": [claim]}})
        };
        let larger = spec("a", "data", "2Gi");
        for (kind, new, expected, said) in [
            (set, &larger, Dependents::Stay, "its pods stay"),
            (
                set,
                &spec("b", "data", "1Gi"),
                Dependents::Go,
                "its pods go meanwhile",
            ),
            (
                set,
                &spec("a", "logs", "1Gi"),
                Dependents::Go,
                "its pods go meanwhile",
            ),
            (DEPLOYMENT, &larger, Dependents::Go, "its pods go meanwhile"),
            (
                ["batch/v1", "Job"],
                &larger,
                Dependents::Go,
                "its pods go meanwhile",
            ),
            (
                ["v1", "Service"],
                &larger,
                Dependents::Go,
                "it is missing meanwhile",
            ),
        ] {
            let kind = kind_of(&json!({"apiVersion": kind[0], "kind": kind[1]}));
            let found = Recreation::of(&kind, &spec("a", "data", "1Gi"), new).dependents;
            assert_eq!(
                (found, meanwhile(&kind, found)),
                (expected, said),
                "{kind}, {new}"
            );
        }
    }

    #[test]
    fn what_would_take_data_along_is_not_recreated() {
        let kind = |api_version: &str, kind: &str| {
            kind_of(&json!({"apiVersion": api_version, "kind": kind}))
        };
        let set = kind("apps/v1", "StatefulSet");
        let of = |app: &str, size: &str| {
            json!({
                "apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {
                    "selector": {"matchLabels": {"app": app}}, "replicas": 1,
                    "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete"},
                    "volumeClaimTemplates": [{"metadata": {"name": "data"}, "size": size}],
                },
            })
        };
        let (live, larger, other) = (of("a", "1Gi"), of("a", "2Gi"), of("b", "1Gi"));
        assert_eq!(
            Recreation::of(&set, &live, &larger).loss,
            None,
            "its claims stay"
        );
        assert!(Recreation::of(&set, &live, &other).loss.is_some());
        let said = |new: &Value| immutable(&set, &live, new);
        let field = |name: &str| Some(format!("spec.{name}: field is immutable"));
        assert_eq!(said(&larger), field("volumeClaimTemplates"));
        assert_eq!(said(&other), field("selector"));
        assert_eq!(said(&live), None);
        let deployment = kind("apps/v1", "Deployment");
        assert_eq!(immutable(&deployment, &live, &other), field("selector"));
        assert_eq!(immutable(&deployment, &live, &larger), None);

        let custom = kind("example.com/v1", "Cluster");
        let cluster = |finalizers: &[&str]| json!({"metadata": {"finalizers": finalizers}});
        let loss = |kind: &Kind, finalizers: &[&str]| {
            let live = cluster(finalizers);
            Recreation::of(kind, &live, &live).loss
        };
        assert!(loss(&custom, &["example.com/bucket"]).is_some());
        assert_eq!(loss(&custom, &[]), None);
        assert_eq!(loss(&kind("v1", "Service"), &["load-balancer"]), None);
        assert_eq!(immutable(&custom, &live, &larger), None);
    }
}
