//! The fake API server: objects with resourceVersions, compare-and-swap, admission, and a log of events for watches.
//! It knows nothing of operators, faults or invariants.

mod admission;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use lynqgate::api::form::{FormSpec, FormStatus};
use lynqgate::api::hub::Slot;
use lynqgate::api::node::NodeStatus;
use lynqgate::api::policy::Skew;
use lynqgate::decide::node::NodeDigest;
use lynqgate_plants::Plant;
use serde_json::{Value, json};

use crate::witness::Reading;

pub const NAMESPACE: &str = "shop";
pub const HUB: &str = "hub";
pub const OPERATOR: &str = "system:serviceaccount:lynqgate-system:lynqgate";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Node,
    Hub,
    Form,
    Child,
}

pub const KINDS: [Kind; 4] = [Kind::Node, Kind::Hub, Kind::Form, Kind::Child];

#[derive(Debug)]
pub struct Node {
    pub value: Value,
    /// What every process makes of it; made once here because it costs a hash.
    pub digest: Arc<NodeDigest>,
    /// What the witness makes of it; it asks that at every step.
    pub reading: Reading,
}

#[derive(Clone, Debug, Default)]
pub struct Hub {
    pub resource_version: String,
    pub generation: i64,
    pub skew: Skew,
    pub confirmation: Option<String>,
    pub slots: Vec<Slot>,
    /// It has a ledger, be it an empty one.
    pub has_ledger: bool,
    pub counts: (i32, i32),
    /// How many deletions wait for a person, as its status says.
    pub deletions_held: Option<u64>,
    pub forced: bool,
}

#[derive(Clone, Debug)]
pub struct Form {
    pub name: String,
    pub uid: String,
    pub resource_version: String,
    pub generation: i64,
    pub spec: Arc<FormSpec>,
    /// The annotations `force-rollout` and `resume`.
    pub forced: bool,
    pub resumed_at: Option<Timestamp>,
    pub status: FormStatus,
}

/// The one Deployment of a node. What it takes to become ready is in its image.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    pub node: String,
    pub node_uid: String,
    pub uid: String,
    pub resource_version: String,
    pub image: String,
    pub applied_hash: String,
    pub ready: bool,
    /// It has the label by which the operator watches.
    pub labelled: bool,
}

#[derive(Clone, Debug)]
pub enum Object {
    Node(Arc<Node>),
    Hub(Arc<Hub>),
    Form(Arc<Form>),
    Child(Arc<Workload>),
}

#[derive(Clone, Debug)]
pub struct Event {
    pub revision: u64,
    pub name: String,
    pub object: Object,
    pub deleted: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Refused {
    Conflict,
    NotFound,
    Denied(String),
    /// Sent or answered, nobody can tell.
    Unavailable,
}

/// How a write to a LynqNode is admitted.
pub struct Admission<'a> {
    pub user: &'a str,
    pub now: Timestamp,
    /// A later webhook touches the object, so that the gate is asked again.
    pub reinvoked: bool,
    pub mutant: Option<Plant>,
}

#[derive(Default)]
pub struct Cluster {
    pub revision: u64,
    pub nodes: BTreeMap<String, Arc<Node>>,
    pub hub: Arc<Hub>,
    pub forms: BTreeMap<String, Arc<Form>>,
    pub children: BTreeMap<String, Arc<Workload>>,
    /// By kind.
    pub log: [Vec<Event>; 4],
    uids: u64,
}

impl Cluster {
    fn next_version(&mut self) -> String {
        self.revision += 1;
        self.revision.to_string()
    }

    fn next_uid(&mut self) -> String {
        self.uids += 1;
        format!("uid-{}", self.uids)
    }

    fn publish(&mut self, kind: Kind, name: &str, object: Object, deleted: bool) {
        self.log[kind as usize].push(Event {
            revision: self.revision,
            name: name.to_owned(),
            object,
            deleted,
        });
    }

    /// The objects of a kind as they were after the first `events` of its log.
    pub fn at(&self, kind: Kind, events: usize) -> BTreeMap<String, Object> {
        let mut all = BTreeMap::new();
        for event in &self.log[kind as usize][..events] {
            if event.deleted {
                all.remove(&event.name);
            } else {
                all.insert(event.name.clone(), event.object.clone());
            }
        }
        all
    }

    // LynqNodes

    fn store_node(&mut self, name: &str, mut value: Value) -> Arc<Node> {
        let old = self.nodes.get(name);
        if old.is_none_or(|old| old.value["spec"] != value["spec"]) {
            let generation = value["metadata"]["generation"].as_i64().unwrap_or_default();
            value["metadata"]["generation"] = (generation + 1).into();
        }
        let previous = old.map(|old| old.digest.clone());
        value["metadata"]["resourceVersion"] = self.next_version().into();
        let digest = Arc::new(NodeDigest::of(&value, previous.as_deref()));
        let reading = Reading::of(&value);
        let node = Arc::new(Node {
            value,
            digest,
            reading,
        });
        self.nodes.insert(name.to_owned(), node.clone());
        self.publish(Kind::Node, name, Object::Node(node.clone()), false);
        node
    }

    /// A write that no webhook sees.
    pub fn write_past_the_gate(&mut self, name: &str, change: impl FnOnce(&mut Value)) {
        let old = self.nodes.get(name).map(|old| old.value.clone());
        let new_node = || json!({"metadata": {"name": name, "namespace": NAMESPACE}});
        let mut new = old.clone().unwrap_or_else(new_node);
        change(&mut new);
        if old.is_none() {
            new["metadata"]["uid"] = self.next_uid().into();
        }
        if old.as_ref() != Some(&new) {
            self.store_node(name, new);
        }
    }

    /// A create or update of the main resource by way of admission.
    pub fn write_node(
        &mut self,
        name: &str,
        admission: &Admission,
        change: impl FnOnce(&mut Value),
        precondition: Option<&str>,
    ) -> Result<Arc<Node>, Refused> {
        let old = self.nodes.get(name).cloned();
        let mut new = match &old {
            Some(old) => old.value.clone(),
            None => json!({"metadata": {"name": name, "namespace": NAMESPACE}}),
        };
        if let Some(version) = precondition
            && old
                .as_ref()
                .is_none_or(|old| old.digest.resource_version != version)
        {
            return Err(match old {
                Some(_) => Refused::Conflict,
                None => Refused::NotFound,
            });
        }
        change(&mut new);
        if old.is_none() {
            new["metadata"]["uid"] = self.next_uid().into();
        }
        let new = admission::admit(old.as_ref().map(|old| &old.value), new, admission)?;
        match old {
            // What changes nothing is not written.
            Some(old) if old.value == new => Ok(old),
            _ => Ok(self.store_node(name, new)),
        }
    }

    /// Server-side apply of what a hub rendered, by force.
    pub fn apply_node(
        &mut self,
        name: &str,
        object: &Value,
        admission: &Admission,
    ) -> Result<Arc<Node>, Refused> {
        use lynqgate::api::names::UNGATED;
        let owned = |value: &Value| value["metadata"]["applied"] == true;
        self.write_node(
            name,
            admission,
            |new| {
                for field in ["labels", "annotations"] {
                    if new["metadata"][field].is_null() {
                        new["metadata"][field] = json!({});
                    }
                    for (key, value) in object["metadata"][field].as_object().into_iter().flatten()
                    {
                        new["metadata"][field][key] = value.clone();
                    }
                }
                // What an earlier apply named and this one does not is taken away.
                let named = !object["metadata"]["annotations"][UNGATED].is_null();
                if owned(new)
                    && !named
                    && let Some(all) = new["metadata"]["annotations"].as_object_mut()
                {
                    all.remove(UNGATED);
                }
                new["metadata"]["applied"] = named.into();
                new["metadata"]["finalizers"] = object["metadata"]["finalizers"].clone();
                if new["spec"].is_null() {
                    new["spec"] = json!({});
                }
                for (key, value) in object["spec"].as_object().into_iter().flatten() {
                    // Empty arrays stay out of the simulation's objects, to keep them small.
                    if value.as_array().is_some_and(Vec::is_empty) {
                        if let Some(spec) = new["spec"].as_object_mut() {
                            spec.remove(key);
                        }
                    } else {
                        new["spec"][key] = value.clone();
                    }
                }
            },
            None,
        )
    }

    /// The status subresource, by merge patch without a precondition.
    pub fn write_node_status(
        &mut self,
        name: &str,
        status: &NodeStatus,
    ) -> Result<Arc<Node>, Refused> {
        let old = self.nodes.get(name).cloned().ok_or(Refused::NotFound)?;
        let mut status = serde_json::to_value(status).expect("a status is JSON");
        // A merge patch, which takes away what it names only.
        for field in ["landedRelease", "slotGivenUp", "freedRelease"] {
            let stored = &old.value["status"][field];
            if status.get(field).is_none() && !stored.is_null() {
                status[field] = stored.clone();
            }
        }
        if old.value["status"] == status {
            return Ok(old);
        }
        let mut new = old.value.clone();
        new["status"] = status;
        Ok(self.store_node(name, new))
    }

    pub fn give_up_slot(&mut self, name: &str, version: &str) -> Result<Arc<Node>, Refused> {
        let old = self.nodes.get(name).cloned().ok_or(Refused::NotFound)?;
        if old.digest.resource_version != version {
            return Err(Refused::Conflict);
        }
        let mut new = old.value.clone();
        new["status"]["slotGivenUp"] = version.into();
        Ok(self.store_node(name, new))
    }

    pub fn say_freed(&mut self, name: &str, release: &str) -> Result<Arc<Node>, Refused> {
        let old = self.nodes.get(name).cloned().ok_or(Refused::NotFound)?;
        let mut new = old.value.clone();
        new["status"]["freedRelease"] = release.into();
        Ok(self.store_node(name, new))
    }

    pub fn delete_node(&mut self, name: &str, uid: &str) -> Result<(), Refused> {
        let old = self.nodes.get(name).cloned().ok_or(Refused::NotFound)?;
        if old.digest.uid != uid {
            return Err(Refused::Conflict);
        }
        if !old.digest.deleting {
            let mut new = old.value.clone();
            new["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            self.store_node(name, new);
        }
        Ok(())
    }

    /// The last finalizer goes, and the object with it.
    pub fn remove_finalizer(&mut self, name: &str, uid: &str) -> Result<(), Refused> {
        let old = self.nodes.get(name).cloned().ok_or(Refused::NotFound)?;
        if old.digest.uid != uid || !old.digest.deleting {
            return Err(Refused::Conflict);
        }
        self.next_version();
        self.nodes.remove(name);
        self.publish(Kind::Node, name, Object::Node(old), true);
        Ok(())
    }

    // The hub and its ledger

    pub fn write_hub(
        &mut self,
        precondition: Option<&str>,
        change: impl FnOnce(&mut Hub),
    ) -> Result<Arc<Hub>, Refused> {
        if precondition.is_some_and(|version| version != self.hub.resource_version) {
            return Err(Refused::Conflict);
        }
        let mut new = (*self.hub).clone();
        change(&mut new);
        let old = &self.hub;
        let spec_changed = old.skew != new.skew;
        let same = !spec_changed
            && old.confirmation == new.confirmation
            && old.slots == new.slots
            && old.has_ledger == new.has_ledger
            && old.counts == new.counts
            && old.forced == new.forced
            && old.deletions_held == new.deletions_held;
        if same && !old.resource_version.is_empty() {
            return Ok(old.clone());
        }
        new.generation += i64::from(spec_changed);
        new.resource_version = self.next_version();
        self.hub = Arc::new(new);
        self.publish(Kind::Hub, HUB, Object::Hub(self.hub.clone()), false);
        Ok(self.hub.clone())
    }

    // Forms

    pub fn put_form(&mut self, name: &str, spec: FormSpec) {
        let old = self.forms.get(name).cloned();
        if old
            .as_ref()
            .is_some_and(|old| old.spec.renders_like(&spec) && old.spec.rollout == spec.rollout)
        {
            return;
        }
        let form = Form {
            name: name.to_owned(),
            uid: old
                .as_ref()
                .map_or_else(|| self.next_uid(), |old| old.uid.clone()),
            resource_version: self.next_version(),
            generation: old.as_ref().map_or(1, |old| old.generation + 1),
            spec: Arc::new(spec),
            forced: old.as_ref().is_some_and(|old| old.forced),
            resumed_at: old.as_ref().and_then(|old| old.resumed_at),
            status: old.map(|old| old.status.clone()).unwrap_or_default(),
        };
        self.store_form(form);
    }

    pub fn annotate_form(&mut self, name: &str, forced: bool, resumed_at: Option<Timestamp>) {
        if let Some(old) = self.forms.get(name).cloned() {
            let resource_version = self.next_version();
            self.store_form(Form {
                resource_version,
                forced,
                resumed_at,
                ..(*old).clone()
            });
        }
    }

    pub fn write_form_status(
        &mut self,
        name: &str,
        precondition: &str,
        status: FormStatus,
    ) -> Result<Arc<Form>, Refused> {
        let old = self.forms.get(name).cloned().ok_or(Refused::NotFound)?;
        if old.resource_version != precondition {
            return Err(Refused::Conflict);
        }
        if old.status == status {
            return Ok(old);
        }
        let resource_version = self.next_version();
        Ok(self.store_form(Form {
            resource_version,
            status,
            ..(*old).clone()
        }))
    }

    fn store_form(&mut self, form: Form) -> Arc<Form> {
        let form = Arc::new(form);
        self.forms.insert(form.name.clone(), form.clone());
        self.publish(Kind::Form, &form.name, Object::Form(form.clone()), false);
        form
    }

    pub fn delete_form(&mut self, name: &str) {
        if let Some(old) = self.forms.remove(name) {
            self.next_version();
            self.publish(Kind::Form, name, Object::Form(old), true);
        }
    }

    // Workloads, by the name of their node

    pub fn apply_child(
        &mut self,
        node: &str,
        node_uid: &str,
        image: &str,
        applied_hash: &str,
    ) -> Arc<Workload> {
        let old = self.children.get(node).cloned();
        let mut new = match &old {
            Some(old) => (**old).clone(),
            None => Workload {
                node: node.to_owned(),
                node_uid: String::new(),
                uid: self.next_uid(),
                resource_version: String::new(),
                image: String::new(),
                applied_hash: String::new(),
                ready: false,
                labelled: true,
            },
        };
        new.labelled = true;
        new.node_uid = node_uid.to_owned();
        new.applied_hash = applied_hash.to_owned();
        if new.image != image {
            new.image = image.to_owned();
            new.ready = false;
        }
        match old {
            Some(old) if *old == new => old,
            _ => self.store_child(new),
        }
    }

    /// A workload that somebody else made or changed.
    pub fn put_foreign_child(&mut self, node: &str, node_uid: &str, image: &str) -> Arc<Workload> {
        let old = self.children.get(node).cloned();
        let uid = match &old {
            Some(old) => old.uid.clone(),
            None => self.next_uid(),
        };
        let new = Workload {
            node: node.to_owned(),
            node_uid: node_uid.to_owned(),
            uid,
            resource_version: String::new(),
            image: image.to_owned(),
            // By its fields the operator would see that this is no more what it applied.
            applied_hash: String::new(),
            ready: false,
            labelled: old.is_some_and(|old| old.labelled),
        };
        self.store_child(new)
    }

    pub fn label_child(&mut self, node: &str, version: &str) -> Result<Arc<Workload>, Refused> {
        let old = self.children.get(node).cloned().ok_or(Refused::NotFound)?;
        if old.resource_version != version {
            return Err(Refused::Conflict);
        }
        let labelled = true;
        Ok(self.store_child(Workload {
            labelled,
            ..(*old).clone()
        }))
    }

    pub fn set_ready(&mut self, node: &str, ready: bool) {
        if let Some(old) = self.children.get(node).filter(|old| old.ready != ready) {
            let new = (**old).clone();
            self.store_child(Workload { ready, ..new });
        }
    }

    fn store_child(&mut self, mut child: Workload) -> Arc<Workload> {
        child.resource_version = self.next_version();
        let child = Arc::new(child);
        self.children.insert(child.node.clone(), child.clone());
        self.publish(
            Kind::Child,
            &child.node,
            Object::Child(child.clone()),
            false,
        );
        child
    }

    pub fn delete_child(&mut self, node: &str, uid: &str) {
        if self
            .children
            .get(node)
            .is_some_and(|child| child.uid == uid)
            && let Some(old) = self.children.remove(node)
        {
            self.next_version();
            self.publish(Kind::Child, node, Object::Child(old), true);
        }
    }
}
