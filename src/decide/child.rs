//! Child objects: what the cache keeps of each, which node owns it, and how a resource becomes its manifest.

pub mod departed;
mod elements;
pub mod fields;
mod ignored;
pub mod kind;
pub mod managers;
pub mod orphan;
pub mod schema;
pub mod secret;
pub mod texts;
pub mod tie;

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::api::names;
use crate::api::resource::{CreationPolicy, PatchStrategy, Resource};
pub use crate::decide::child::kind::Kind;
pub use crate::decide::child::managers::fields_hash;
use crate::decide::child::tie::Tie;
use crate::decide::partition;
use crate::decide::readiness::{Readiness, is_completed_job, readiness};
use crate::decide::shared::content::{hash_number, hash_value};
use crate::decide::shared::fields::{at, text_at};

/// The scope of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Namespaced,
    Cluster,
}

/// One object of the cluster; the namespace is empty for cluster-scoped kinds. What many objects have in common is behind an
/// `Arc`, so that a cache can share it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    pub kind: Arc<Kind>,
    pub namespace: Arc<str>,
    pub name: String,
}

impl ObjectKey {
    /// The key of a hub, a form or a node.
    pub fn own(kind: &str, namespace: &str, name: &str) -> Self {
        let kind = Kind {
            api_version: format!("{}/{}", names::GROUP, names::VERSION),
            kind: kind.to_owned(),
        };
        ObjectKey {
            kind: kind.into(),
            namespace: namespace.into(),
            name: name.to_owned(),
        }
    }

    /// Whether both keys name the same object, in any version of its kind.
    pub fn is_same(&self, other: &ObjectKey) -> bool {
        self.kind.is_same(&other.kind)
            && self.namespace == other.namespace
            && self.name == other.name
    }

    /// Why no object can have this name or namespace: in the path of a request it would address another resource.
    pub fn impossible(&self) -> Option<String> {
        for (what, text, may_be_empty) in [
            ("name", &*self.name, false),
            ("namespace", &*self.namespace, true),
        ] {
            let strange = |c: char| "/%?#\\".contains(c) || c.is_whitespace() || c.is_control();
            let dots = text == "." || text == "..";
            if dots || text.contains(strange) || (text.is_empty() && !may_be_empty) {
                return Some(format!(
                    "{text:?} cannot be the {what} of an object; correct its template, or the row's value"
                ));
            }
        }
        None
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ObjectKey {
            kind,
            namespace,
            name,
        } = self;
        match &**namespace {
            "" => write!(f, "{}/{name}", kind.kind),
            namespace => write!(f, "{}/{namespace}/{name}", kind.kind),
        }
    }
}

/// A LynqNode as its children name it. Clones share the texts, because many maps have a key for each node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeKey {
    /// Empty where only an owner reference of a cluster-scoped object names it.
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl NodeKey {
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        NodeKey {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.namespace {
            "" => f.write_str(&self.name),
            namespace => write!(f, "{namespace}/{}", self.name),
        }
    }
}

/// The owner of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// A LynqNode's; the uid is known where an owner reference says it.
    Node {
        key: NodeKey,
        uid: Option<String>,
    },
    /// Another controller's, as `Kind name`.
    Other(String),
    Nobody,
}

/// The digest of a child object that the cache keeps, so that memory grows with the number of objects and not with their size.
/// Values that many objects share are behind an `Arc`, so that the cache can store them once.
#[derive(Clone, Debug, PartialEq)]
pub struct Child {
    pub uid: String,
    pub resource_version: String,
    /// Changes with every write except one of the status.
    pub written: u64,
    pub owner: Arc<Owner>,
    /// Hash of the resource that was last applied.
    pub applied_hash: Option<Arc<str>>,
    /// Hash of the set of fields that lynqgate owns by any kind of write. It changes when another manager takes one over.
    pub fields_hash: Arc<str>,
    /// The same of server-side applies alone, as older versions kept it.
    pub applied_fields_hash: Arc<str>,
    /// The set of fields that lynqgate owns, as JSON, without those that tie the object to its node.
    pub owned: Arc<str>,
    /// It shows that we applied it.
    pub marked: bool,
    pub once: bool,
    pub orphaned: bool,
    /// The node that orphaned the object, if known.
    pub orphaned_from: Option<String>,
    pub retain: bool,
    pub deleting: bool,
    /// The finalizers that hold up its deletion; empty if it is not being deleted.
    pub finalizers: Vec<String>,
    pub readiness: Arc<Readiness>,
    /// It is a Job that has completed, so it may be deleted at any time.
    pub completed: bool,
    /// When an apply of ours last changed something, by the API server's clock.
    pub applied_at: Option<Timestamp>,
    /// When lynqgate last lowered its partition, by the same clock.
    pub stepped_at: Option<Timestamp>,
}

impl Child {
    /// Equal except for the resourceVersion.
    pub fn is_like(&self, other: &Child) -> bool {
        let resource_version = other.resource_version.clone();
        let this = self.clone();
        let same_version = Child {
            resource_version,
            ..this
        };
        same_version == *other
    }

    pub fn of(object: &Value) -> Self {
        let text = |place: &str| at(object, place).and_then(Value::as_str);
        let deleting = text("/metadata/deletionTimestamp").is_some();
        let finalizers = object["metadata"]["finalizers"].as_array();
        let finalizers = finalizers.into_iter().flatten().filter_map(Value::as_str);
        let annotation = |name: &str| object["metadata"]["annotations"][name].as_str();
        Child {
            uid: text("/metadata/uid").unwrap_or_default().to_owned(),
            resource_version: text("/metadata/resourceVersion")
                .unwrap_or_default()
                .to_owned(),
            written: written(object),
            owner: owner(object).into(),
            applied_hash: annotation(names::APPLIED_HASH).map(Arc::from),
            fields_hash: fields_hash(object).into(),
            applied_fields_hash: managers::applied_fields_hash(object).into(),
            owned: managers::owned(object).to_string().into(),
            marked: managers::is_marked(object),
            once: annotation(names::CREATED_ONCE) == Some(names::TRUE),
            orphaned: object["metadata"]["labels"][names::LABEL_ORPHANED] == names::TRUE,
            orphaned_from: annotation(names::ORPHANED_FROM).map(str::to_owned),
            retain: annotation(names::DELETION_POLICY) == Some("Retain"),
            deleting,
            finalizers: finalizers.filter(|_| deleting).map(str::to_owned).collect(),
            readiness: readiness(object).into(),
            completed: is_completed_job(object),
            applied_at: applied_at(object),
            stepped_at: managers::written_at(object, names::PARTITION_MANAGER),
        }
    }

    /// The node that owns the object.
    pub fn node(&self) -> Option<&NodeKey> {
        match &*self.owner {
            Owner::Node { key, .. } => Some(key),
            Owner::Other(_) | Owner::Nobody => None,
        }
    }

    /// Whether the object's annotation has this deletion policy and, to be retained, it has no owner reference by which the
    /// garbage collector would delete it.
    pub fn follows(&self, retain: bool) -> bool {
        let by_reference = matches!(*self.owner, Owner::Node { uid: Some(_), .. });
        self.retain == retain && !(retain && by_reference)
    }
}

/// Counts writes of every patchStrategy.
fn applied_at(object: &Value) -> Option<Timestamp> {
    let created = object["metadata"]["creationTimestamp"].as_str();
    managers::written_at(object, names::FIELD_MANAGER).or_else(|| created?.parse().ok())
}

/// The generation counts changes of the spec, but not of the metadata. An object without one falls back to its resourceVersion.
fn written(object: &Value) -> u64 {
    let metadata = &object["metadata"];
    let version = match &metadata["generation"] {
        Value::Null => &metadata["resourceVersion"],
        generation => generation,
    };
    let fields = ["labels", "annotations", "ownerReferences", "finalizers"];
    hash_number(&json!([version, fields.map(|field| &metadata[field])]))
}

pub fn key_of(object: &Value) -> ObjectKey {
    let text = |place: &str| text_at(object, place).to_owned();
    ObjectKey {
        kind: Kind {
            api_version: text("/apiVersion"),
            kind: text("/kind"),
        }
        .into(),
        namespace: text("/metadata/namespace").into(),
        name: text("/metadata/name"),
    }
}

/// Reads the owner from the metadata.
pub fn owner(object: &Value) -> Owner {
    let metadata = &object["metadata"];
    let controller = metadata["ownerReferences"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|reference| reference["controller"] == true);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if let Some(reference) = controller {
        let is_node = reference["kind"] == "LynqNode"
            && text(&reference["apiVersion"]).starts_with(names::GROUP);
        if !is_node {
            return Owner::Other(format!(
                "{} {}",
                text(&reference["kind"]),
                text(&reference["name"])
            ));
        }
        // Lynq also put owner references to its nodes on cluster-scoped objects. A label that lynqgate adds names the node's
        // namespace.
        let namespace = match &metadata["namespace"] {
            Value::Null => &metadata["labels"][names::LABEL_NODE_NAMESPACE],
            namespace => namespace,
        };
        let key = NodeKey::new(text(namespace), text(&reference["name"]));
        return Owner::Node {
            key,
            uid: Some(text(&reference["uid"])),
        };
    }
    match metadata["labels"][names::LABEL_NODE].as_str() {
        Some(name) if metadata["labels"][names::LABEL_ORPHANED].is_null() => {
            let namespace = metadata["labels"][names::LABEL_NODE_NAMESPACE]
                .as_str()
                .map_or_else(|| text(&metadata["namespace"]), str::to_owned);
            Owner::Node {
                key: NodeKey::new(namespace, name),
                uid: None,
            }
        }
        _ => Owner::Nobody,
    }
}

/// The key of a resource's object. Its namespace defaults to the node's.
pub fn object_key(resource: &Resource, node: &NodeKey, scope: Scope) -> ObjectKey {
    let text = |place: &str| Some(text_at(&resource.spec, place)).filter(|text| !text.is_empty());
    let name = if resource.name_template.is_empty() {
        text("/metadata/name").unwrap_or_default()
    } else {
        &resource.name_template
    };
    let namespace = match scope {
        Scope::Cluster => "",
        Scope::Namespaced if !resource.target_namespace.is_empty() => &resource.target_namespace,
        Scope::Namespaced => text("/metadata/namespace").unwrap_or(&node.namespace),
    };
    ObjectKey {
        kind: kind_of(&resource.spec).into(),
        namespace: namespace.into(),
        name: name.to_owned(),
    }
}

pub fn kind_of(manifest: &Value) -> Kind {
    let text = |field: &str| manifest[field].as_str().unwrap_or_default().to_owned();
    Kind {
        api_version: text("apiVersion"),
        kind: text("kind"),
    }
}

/// Whether the object is a StatefulSet that deletes its PersistentVolumeClaims when it is deleted.
pub fn deletes_claims(object: &Value) -> bool {
    let policy = &object["spec"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"];
    kind_of(object).is_stateful_set() && policy == "Delete"
}

/// Whether `new` may have fewer replicas and delete the claims of those it removes. An unrendered template may give any number.
pub fn sheds_claims(old: &Resource, new: &Resource) -> bool {
    let policy = &new.spec["spec"]["persistentVolumeClaimRetentionPolicy"]["whenScaled"];
    if !kind_of(&new.spec).is_stateful_set() || policy.is_null() || policy == "Retain" {
        return false;
    }
    let replicas = |resource: &Resource| match ignored::without(resource)["spec"]["replicas"].take()
    {
        Value::Null => json!(1),
        replicas => replicas,
    };
    let (old, new) = (replicas(old), replicas(new));
    match (old.as_i64(), new.as_i64()) {
        (Some(old), Some(new)) => new < old,
        _ => old != new,
    }
}

/// Hash of everything of a resource that ends up in its object. Fields that are left to others do not count, so that a
/// change of theirs is no reason to apply.
pub fn applied_hash(resource: &Resource) -> String {
    let mut parts = vec![
        ignored::without(resource),
        json!(resource.name_template),
        json!(resource.target_namespace),
        json!(resource.labels_template),
        json!(resource.annotations_template),
        json!(resource.deletion_policy),
        json!(resource.patch_strategy),
        json!(resource.creation_policy),
    ];
    // A default adds no part, so that upgrading lynqgate does not change the hashes of existing objects.
    parts.extend(resource.ready_probe.as_ref().map(|probe| json!(probe)));
    parts.extend((!resource.partition_gate).then(|| json!({"partitionGate": false})));
    hash_value(&json!(parts))
}

/// The Deployment controller's revision counter. If a replace removed it, the controller would write it again each time.
const REVISION: &str = "deployment.kubernetes.io/revision";

/// The object to apply. Fields that the resource ignores keep their value from `live`, the object in the cluster, if it exists.
pub fn manifest(
    resource: &Resource,
    node: &NodeKey,
    node_uid: &str,
    scope: Scope,
    live: Option<&Value>,
) -> Value {
    let mut object = secret::fold(resource.spec.clone());
    if let Some(live) = live {
        ignored::keep(&mut object, resource, live);
    }
    let key = object_key(resource, node, scope);
    let mut labels = texts(&object, "labels");
    let mut annotations = texts(&object, "annotations");
    labels.extend(
        resource
            .labels_template
            .iter()
            .map(|(k, v)| (k.clone(), v.as_str().into())),
    );
    annotations.extend(
        resource
            .annotations_template
            .iter()
            .map(|(k, v)| (k.clone(), v.as_str().into())),
    );
    if resource.patch_strategy == PatchStrategy::Replace
        && let Some(revision) = live.map(|live| &live["metadata"]["annotations"][REVISION])
        && !revision.is_null()
    {
        annotations.insert(REVISION.into(), revision.clone());
    }
    annotations.insert(names::APPLIED_HASH.into(), applied_hash(resource).into());
    if resource.creation_policy == CreationPolicy::Once {
        annotations.insert(names::CREATED_ONCE.into(), names::TRUE.into());
    }
    annotations.remove(names::READY_PROBE);
    if let Some(probe) = &resource.ready_probe {
        annotations.insert(names::READY_PROBE.into(), json!(probe).to_string().into());
    }
    labels.remove(names::PARTITION_GATE);
    if key.kind.is_stateful_set() {
        if resource.partition_gate {
            partition::leave_out(&mut object);
        } else {
            labels.insert(names::PARTITION_GATE.into(), "false".into());
        }
    }
    let mut metadata = Map::from_iter([("name".to_owned(), Value::from(key.name))]);
    if scope == Scope::Namespaced {
        metadata.insert("namespace".into(), (*key.namespace).into());
    }
    let finalizers = object.pointer("/metadata/finalizers");
    if let Some(finalizers) = finalizers.filter(|f| f.as_array().is_some_and(|f| !f.is_empty())) {
        metadata.insert("finalizers".into(), finalizers.clone());
    }
    let tie = tie(resource, node, node_uid, &key.namespace);
    tie.add_to(&mut metadata, &mut labels, &mut annotations);
    metadata.insert("labels".into(), labels.into());
    metadata.insert("annotations".into(), annotations.into());
    if let Some(fields) = object.as_object_mut() {
        fields.insert("metadata".into(), metadata.into());
        fields.remove("status");
    }
    object
}

/// How the object of a resource is tied to its node.
pub fn tie<'a>(
    resource: &Resource,
    node: &'a NodeKey,
    node_uid: &'a str,
    namespace: &'a str,
) -> Tie<'a> {
    Tie {
        node,
        node_uid,
        namespace,
        policy: resource.deletion_policy,
    }
}

fn texts(object: &Value, field: &str) -> Map<String, Value> {
    object["metadata"][field]
        .as_object()
        .cloned()
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
