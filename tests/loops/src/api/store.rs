//! What is stored: objects by kind, each write with a version of its own, and the log of all of them.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use hyper::body::Bytes;
use serde_json::{Value, json};

/// A kind that is served.
#[derive(Debug)]
pub struct Kind {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub namespaced: bool,
    pub has_status: bool,
}

const fn kind(
    (group, version): (&'static str, &'static str),
    (kind, plural): (&'static str, &'static str),
    (namespaced, has_status): (bool, bool),
) -> Kind {
    Kind {
        group,
        version,
        kind,
        plural,
        namespaced,
        has_status,
    }
}

const LYNQ: (&str, &str) = ("operator.lynq.sh", "v1");

pub const NODE: usize = 0;
pub const HUB: usize = 1;
pub const FORM: usize = 2;
pub const DEPLOYMENT: usize = 3;
pub const CONFIG_MAP: usize = 4;
pub const EVENT: usize = 5;
pub const LEASE: usize = 6;

pub static KINDS: [Kind; 11] = [
    kind(LYNQ, ("LynqNode", "lynqnodes"), (true, true)),
    kind(LYNQ, ("LynqHub", "lynqhubs"), (true, true)),
    kind(LYNQ, ("LynqForm", "lynqforms"), (true, true)),
    kind(("apps", "v1"), ("Deployment", "deployments"), (true, true)),
    kind(("", "v1"), ("ConfigMap", "configmaps"), (true, false)),
    kind(("events.k8s.io", "v1"), ("Event", "events"), (true, false)),
    kind(
        ("coordination.k8s.io", "v1"),
        ("Lease", "leases"),
        (true, false),
    ),
    kind(
        ("apps", "v1"),
        ("StatefulSet", "statefulsets"),
        (true, true),
    ),
    kind(("", "v1"), ("Namespace", "namespaces"), (false, true)),
    kind(("", "v1"), ("Secret", "secrets"), (true, false)),
    kind(("", "v1"), ("Pod", "pods"), (true, true)),
];

impl Kind {
    pub fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }
}

/// One version of an object.
#[derive(Debug)]
pub struct Object {
    pub value: Value,
    text: OnceLock<Bytes>,
}

impl Object {
    fn new(value: Value) -> Arc<Self> {
        let text = OnceLock::new();
        Arc::new(Object { value, text })
    }

    /// As it is sent; written once, for it is sent often.
    pub fn text(&self) -> Bytes {
        let text = || Bytes::from(self.value.to_string());
        self.text.get_or_init(text).clone()
    }

    pub fn text_of(&self, field: &str) -> &str {
        self.value["metadata"][field].as_str().unwrap_or_default()
    }

    pub fn uid(&self) -> &str {
        self.text_of("uid")
    }

    pub fn version(&self) -> &str {
        self.text_of("resourceVersion")
    }
}

/// Namespace and name.
pub type Key = (String, String);

#[derive(Clone, Debug)]
pub struct Event {
    pub revision: u64,
    pub key: Key,
    pub object: Arc<Object>,
    pub before: Option<Arc<Object>>,
    pub deleted: bool,
}

#[derive(Debug, Default)]
pub struct Store {
    pub revision: u64,
    uids: u64,
    objects: [BTreeMap<Key, Arc<Object>>; KINDS.len()],
    /// By kind.
    pub log: [Vec<Event>; KINDS.len()],
}

impl Store {
    pub fn get(&self, kind: usize, key: &Key) -> Option<Arc<Object>> {
        self.objects[kind].get(key).cloned()
    }

    pub fn all(&self, kind: usize) -> &BTreeMap<Key, Arc<Object>> {
        &self.objects[kind]
    }

    /// The objects of a kind as they were after the first `events` of its log, and at which revision that was.
    pub fn at(&self, kind: usize, events: usize) -> (BTreeMap<Key, Arc<Object>>, u64) {
        let log = &self.log[kind];
        let Some(next) = log.get(events) else {
            return (self.objects[kind].clone(), self.revision);
        };
        let mut all = BTreeMap::new();
        for event in &log[..events] {
            match event.deleted {
                true => all.remove(&event.key),
                false => all.insert(event.key.clone(), event.object.clone()),
            };
        }
        (all, next.revision - 1)
    }

    /// What is new of an object that is created.
    pub fn born(&mut self, value: &mut Value, now: &str) {
        self.uids += 1;
        value["metadata"]["uid"] = format!("uid-{}", self.uids).into();
        value["metadata"]["creationTimestamp"] = now.into();
        value["metadata"]["generation"] = 1.into();
    }

    /// Stores the object, unless it is as it was.
    pub fn put(&mut self, kind: usize, key: &Key, mut value: Value) -> Arc<Object> {
        let before = self.get(kind, key);
        if let Some(before) = &before {
            if before.value == value {
                return before.clone();
            }
            if before.value["spec"] != value["spec"] {
                let generation = before.value["metadata"]["generation"].as_i64();
                value["metadata"]["generation"] = json!(generation.unwrap_or_default() + 1);
            }
        }
        self.revision += 1;
        value["metadata"]["resourceVersion"] = self.revision.to_string().into();
        let object = Object::new(value);
        self.objects[kind].insert(key.clone(), object.clone());
        self.log[kind].push(Event {
            revision: self.revision,
            key: key.clone(),
            object: object.clone(),
            before,
            deleted: false,
        });
        object
    }

    pub fn remove(&mut self, kind: usize, key: &Key) -> Option<Arc<Object>> {
        let before = self.objects[kind].remove(key)?;
        self.revision += 1;
        let mut value = before.value.clone();
        value["metadata"]["resourceVersion"] = self.revision.to_string().into();
        let object = Object::new(value);
        self.log[kind].push(Event {
            revision: self.revision,
            key: key.clone(),
            object: object.clone(),
            before: Some(before),
            deleted: true,
        });
        Some(object)
    }
}
