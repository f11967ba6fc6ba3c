//! What is stored: objects by kind, each write with a version of its own, and the log of all of them.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
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
const AUTHORIZATION: (&str, &str) = ("authorization.k8s.io", "v1");

pub const NODE: usize = 0;
pub const HUB: usize = 1;
pub const FORM: usize = 2;
pub const DEPLOYMENT: usize = 3;
pub const CONFIG_MAP: usize = 4;
pub const EVENT: usize = 5;
pub const LEASE: usize = 6;
pub const STATEFUL_SET: usize = 7;
pub const POD: usize = 10;
pub const KUBERNETES_NODE: usize = 11;

/// Whether who asks may do something; whether somebody may.
pub const OWN_ACCESS_REVIEW: usize = 12;
pub const ACCESS_REVIEW: usize = 13;
pub const CONTROLLER_REVISION: usize = 14;

pub static KINDS: [Kind; 15] = [
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
    kind(("", "v1"), ("Node", "nodes"), (false, true)),
    kind(
        AUTHORIZATION,
        ("SelfSubjectAccessReview", "selfsubjectaccessreviews"),
        (false, false),
    ),
    kind(
        AUTHORIZATION,
        ("SubjectAccessReview", "subjectaccessreviews"),
        (false, false),
    ),
    kind(
        ("apps", "v1"),
        ("ControllerRevision", "controllerrevisions"),
        (true, false),
    ),
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
    pub fn new(value: Value) -> Arc<Self> {
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

/// What happened to the objects of a kind. What is long ago is forgotten.
#[derive(Debug, Default)]
pub struct Log {
    /// How many events are forgotten.
    forgotten: usize,
    events: VecDeque<Event>,
}

/// Events that are remembered at least; twice as many at most.
const REMEMBERED: usize = 400;

impl Log {
    pub fn len(&self) -> usize {
        self.forgotten + self.events.len()
    }

    /// The events from this number on; None where some of them are forgotten.
    pub fn from(&self, number: usize) -> Option<impl Iterator<Item = &Event>> {
        let known = number.checked_sub(self.forgotten)?;
        Some(self.events.range(known.min(self.events.len())..))
    }

    /// The number of the first event after a revision.
    pub fn first_after(&self, revision: u64) -> usize {
        let known = self
            .events
            .partition_point(|event| event.revision <= revision);
        match known {
            0 if self.forgotten > 0 => 0,
            known => self.forgotten + known,
        }
    }

    /// The last event of an object up to a revision.
    pub fn last_of(&self, key: &Key, revision: u64) -> Option<&Event> {
        let mut events = self.events.iter().rev();
        events.find(|event| event.revision <= revision && event.key == *key)
    }

    /// Up to which revision a reader that received all events up to `told` has seen everything; None if it misses no event.
    pub fn seen_until(&self, told: u64) -> Option<u64> {
        match self.first_after(told).checked_sub(self.forgotten) {
            // The log does not have the missed event any more.
            None => Some(told),
            Some(unseen) => Some(self.events.get(unseen)?.revision - 1),
        }
    }

    fn push(&mut self, event: Event) {
        self.events.push_back(event);
        if self.events.len() > 2 * REMEMBERED {
            self.events.drain(..REMEMBERED);
            self.forgotten += REMEMBERED;
        }
    }
}

#[derive(Debug, Default)]
pub struct Store {
    pub revision: u64,
    uids: u64,
    objects: [BTreeMap<Key, Arc<Object>>; KINDS.len()],
    /// By kind.
    pub log: [Log; KINDS.len()],
}

impl Store {
    pub fn get(&self, kind: usize, key: &Key) -> Option<Arc<Object>> {
        self.objects[kind].get(key).cloned()
    }

    pub fn all(&self, kind: usize) -> &BTreeMap<Key, Arc<Object>> {
        &self.objects[kind]
    }

    /// At which revision the objects of a kind were as they were before its last events.
    pub fn before(&self, kind: usize, events: usize) -> u64 {
        let newest = self.log[kind].events.iter().rev();
        let last = newest.take(events).next_back();
        last.map_or(self.revision, |event| event.revision - 1)
    }

    /// The objects of a kind as they were at a revision; None where that is forgotten.
    pub fn at(&self, kind: usize, revision: u64) -> Option<Cow<'_, BTreeMap<Key, Arc<Object>>>> {
        let log = &self.log[kind];
        let later: Vec<_> = log.from(log.first_after(revision))?.collect();
        if later.is_empty() {
            return Some(Cow::Borrowed(&self.objects[kind]));
        }
        let mut all = self.objects[kind].clone();
        for event in later.into_iter().rev() {
            match &event.before {
                None => all.remove(&event.key),
                Some(before) => all.insert(event.key.clone(), before.clone()),
            };
        }
        Some(Cow::Owned(all))
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
