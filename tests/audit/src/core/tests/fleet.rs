//! A fleet on paper: objects as they are stored, changed step by step as lynqgate and its users would. It judges nothing.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::core::finish::Conclusion;
use crate::core::{Audit, Change, Input, Options};
use crate::kinds::{Key, Kind};

pub struct Fleet {
    pub audit: Audit,
    objects: BTreeMap<Key, (u64, Value)>,
    revision: u64,
    now: i64,
}

const START: i64 = 1_800_000_000_000;

pub fn hub() -> Key {
    Key::new(Kind::Hub, "ns", "hub")
}

pub fn form(name: &str) -> Key {
    Key::new(Kind::Form, "ns", name)
}

pub fn node(name: &str) -> Key {
    Key::new(Kind::Node, "ns", name)
}

pub fn deployment(name: &str) -> Key {
    Key::new(Kind::Deployment, "ns", &format!("{name}-app"))
}

pub fn namespace() -> Key {
    Key::new(Kind::Namespace, "", "ns")
}

pub fn hash(name: &str, image: &str) -> String {
    format!("1:{name}-{image}")
}

impl Fleet {
    /// Nodes `n0`, `n1`, ... of the form `web`, settled on `web:1`, under a window.
    pub fn new(nodes: usize, max_skew: u64) -> Fleet {
        Fleet::with(nodes, max_skew, Options::default())
    }

    pub fn with(nodes: usize, max_skew: u64, options: Options) -> Fleet {
        let mut fleet = Fleet {
            audit: Audit::new(options),
            objects: BTreeMap::new(),
            revision: 100,
            now: START,
        };
        let mut there = vec![
            (
                hub(),
                json!({"metadata": {"uid": "hub"}, "spec": {"source": {"syncInterval": "1s"}}, "status": {"rollout": {"slots": []}}}),
            ),
            (
                form("web"),
                json!({"metadata": {"generation": 1}, "spec": {"hubId": "hub", "rollout": {"maxSkew": max_skew}}}),
            ),
        ];
        for name in (0..nodes).map(|i| format!("n{i}")) {
            there.push((node(&name), settled_node(&name, "web")));
            there.push((deployment(&name), deployment_of(&name, "web:1", true)));
        }
        for (key, object) in there {
            fleet.revision += 1;
            fleet.objects.insert(key, (fleet.revision, object));
        }
        fleet.baseline();
        fleet
    }

    /// All there is, as a source sends it when it begins, or after a gap.
    pub fn baseline(&mut self) {
        let objects = self
            .objects
            .iter()
            .map(|(key, (revision, object))| (key.clone(), *revision, object.clone()));
        let input = Input::Baseline {
            revision: self.revision,
            at: self.at(),
            kinds: Kind::all().collect(),
            objects: objects.collect(),
        };
        self.audit.observe(input);
    }

    pub fn gap(&mut self) {
        self.audit.observe(Input::Gap {
            why: "compacted".to_owned(),
        });
    }

    /// Writes that the audit does not see.
    pub fn unseen(&mut self, writes: impl FnOnce(&mut Fleet)) {
        let blind = Audit::new(Options::default());
        let audit = std::mem::replace(&mut self.audit, blind);
        writes(self);
        self.audit = audit;
    }

    pub fn finish(self) -> Conclusion {
        let at = self.at();
        self.audit.finish(at)
    }

    fn at(&self) -> Timestamp {
        Timestamp::from_millisecond(self.now).expect("a time")
    }

    pub fn wait(&mut self, seconds: i64) {
        self.now += seconds * 1000;
    }

    /// So many seconds in which others write, so that the stream goes on.
    pub fn pass(&mut self, seconds: i64) {
        for _ in 0..seconds {
            self.wait(1);
            self.edit(&hub(), |_| {});
        }
    }

    /// The form's status says that its rollout is complete, or not, as of this generation.
    pub fn says_complete(&mut self, is: bool, observed: u64) {
        self.edit(&form("web"), |form| {
            let status = if is { "True" } else { "False" };
            form["status"] = json!({"conditions": [
                {"type": "RolloutComplete", "status": status, "observedGeneration": observed}]});
        });
    }

    pub fn version(&self, key: &Key) -> u64 {
        self.objects[key].0
    }

    pub fn put(&mut self, key: Key, object: Value) {
        self.revision += 1;
        self.now += 10;
        let created = self
            .objects
            .insert(key.clone(), (self.revision, object.clone()))
            .is_none();
        let (revision, at) = (self.revision, self.at());
        self.audit.observe(Input::Change(Change {
            revision,
            at,
            key,
            created,
            object: Some(object),
        }));
    }

    pub fn edit(&mut self, key: &Key, edit: impl FnOnce(&mut Value)) {
        let mut object = self.objects[key].1.clone();
        edit(&mut object);
        self.put(key.clone(), object);
    }

    pub fn remove(&mut self, key: &Key) {
        self.revision += 1;
        self.objects.remove(key);
        let (revision, at) = (self.revision, self.at());
        self.audit.observe(Input::Change(Change {
            revision,
            at,
            key: key.clone(),
            created: false,
            object: None,
        }));
    }

    pub fn policy(&mut self, rollout: Value) {
        self.edit(&form("web"), |form| form["spec"]["rollout"] = rollout);
    }

    /// The gate holds an edit.
    pub fn hold(&mut self, names: &[&str], image: &str) {
        for name in names {
            self.edit(&node(name), |node| {
                let live = annotations(node)["lynq.sh/live-hash"].clone();
                if annotations(node)["lynq.sh/desired-hash"] == live {
                    node["spec"]["released"] = json!({"deployments": node["spec"]["deployments"]});
                }
                node["spec"]["deployments"] = json!([resource(name, image)]);
                annotations(node)["lynq.sh/desired-hash"] = hash(name, image).into();
                node["status"] = json!({"conditions": [{"type": "Held", "status": "True", "reason": "WindowFull"}]});
            });
        }
    }

    /// One ledger write: these nodes have slots for what they desire, at the versions that they have now.
    pub fn slots(&mut self, names: &[&str]) {
        let slots: Vec<Value> = names.iter().map(|name| self.slot(name)).collect();
        self.edit(&hub(), |hub| {
            hub["status"]["rollout"]["slots"] = slots.into()
        });
    }

    /// A backup that restores the hub has no status.
    pub fn lose_ledger(&mut self) {
        self.edit(&hub(), |hub| hub["status"] = json!({}));
    }

    pub fn slot(&self, name: &str) -> Value {
        let (version, node) = &self.objects[&node(name)];
        json!({
            "node": name, "uid": node["metadata"]["uid"], "form": node["spec"]["templateRef"],
            "hash": node["metadata"]["annotations"]["lynq.sh/desired-hash"], "resourceVersion": version.to_string(),
        })
    }

    pub fn release(&mut self, names: &[&str]) {
        for name in names {
            self.let_go(name, "lynq.sh/release");
        }
    }

    /// The operator lets it go without a slot.
    pub fn ungate(&mut self, name: &str) {
        self.let_go(name, "lynq.sh/ungated");
    }

    fn let_go(&mut self, name: &str, marked: &str) {
        let version = self.version(&node(name));
        self.edit(&node(name), |node| {
            let desired = annotations(node)["lynq.sh/desired-hash"].clone();
            let marker = format!("{}/{version}", desired.as_str().expect("a hash"));
            annotations(node)[marked] = marker.into();
            go_live(node);
        });
    }

    /// The node controller applies an image, and the rollout has only begun.
    pub fn apply(&mut self, name: &str, image: &str) {
        self.put(deployment(name), deployment_of(name, image, false));
    }

    pub fn ready(&mut self, name: &str) {
        self.edit(&deployment(name), |object| {
            *object = with_status(object.clone(), true)
        });
    }

    /// Somebody else writes the image into the object, and owns it from then on, as well as another field of the container.
    pub fn take_over(&mut self, name: &str, image: &str) {
        self.edit(&deployment(name), |object| {
            let container = &mut object["spec"]["template"]["spec"]["containers"][0];
            container["image"] = image.into();
            container["imagePullPolicy"] = "Always".into();
            let all = &mut object["metadata"]["managedFields"];
            let ours = &mut all[0]["fieldsV1"]["f:spec"]["f:template"]["f:spec"]["f:containers"];
            let ours = ours["k:{\"name\":\"app\"}"]
                .as_object_mut()
                .expect("fields");
            ours.remove("f:image");
            let theirs = json!({"k:{\"name\":\"app\"}": {"f:image": {}, "f:imagePullPolicy": {}}});
            all.as_array_mut().expect("managers").push(json!({
                "manager": "bad", "operation": "Update",
                "fieldsV1": {"f:spec": {"f:template": {"f:spec": {"f:containers": theirs}}}},
            }));
        });
    }

    /// From the slot to the settled node, with the slots of others beside.
    pub fn roll_out(&mut self, names: &[&str], image: &str) {
        self.hold(names, image);
        self.slots(names);
        self.release(names);
        for name in names {
            self.apply(name, image);
            self.ready(name);
        }
        self.slots(&[]);
    }
}

pub fn annotations(object: &mut Value) -> &mut Value {
    &mut object["metadata"]["annotations"]
}

/// What is desired goes live.
pub fn go_live(node: &mut Value) {
    let desired = annotations(node)["lynq.sh/desired-hash"].clone();
    annotations(node)["lynq.sh/live-hash"] = desired;
    node["spec"]
        .as_object_mut()
        .expect("a spec")
        .remove("released");
    node["status"] = json!({});
}

pub fn settled_node(name: &str, form: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "ns", "uid": format!("uid-{name}"), "labels": {"lynq.sh/hub": "hub"},
            "annotations": {"lynq.sh/desired-hash": hash(name, "web:1"), "lynq.sh/live-hash": hash(name, "web:1")},
        },
        "spec": {"uid": name, "templateRef": form, "deployments": [resource(name, "web:1")]},
    })
}

/// `+` in an image stands for a second container beside it.
pub fn resource(name: &str, image: &str) -> Value {
    let manifest = json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": pods(image)});
    json!({"id": "app", "nameTemplate": format!("{name}-app"), "spec": manifest})
}

fn pods(image: &str) -> Value {
    let mut containers = vec![json!({"name": "app", "image": image.trim_end_matches('+')})];
    if image.ends_with('+') {
        containers.push(json!({"name": "side", "image": "side:1"}));
    }
    json!({"replicas": 1, "template": {"spec": {"containers": containers}}})
}

pub fn deployment_of(name: &str, image: &str, ready: bool) -> Value {
    let mut owned = json!({"k:{\"name\":\"app\"}": {".": {}, "f:name": {}, "f:image": {}}});
    if image.ends_with('+') {
        owned["k:{\"name\":\"side\"}"] = json!({".": {}, "f:name": {}, "f:image": {}});
    }
    let object = json!({
        "metadata": {
            "name": format!("{name}-app"), "namespace": "ns", "generation": 1,
            "ownerReferences": [{"apiVersion": "operator.lynq.sh/v1", "kind": "LynqNode", "name": name}],
            "managedFields": [{"manager": "lynq-operator", "operation": "Apply", "fieldsV1": {
                "f:metadata": {"f:labels": {"f:a": {}}},
                "f:spec": {"f:replicas": {}, "f:template": {"f:spec": {"f:containers": owned}}},
            }}],
        },
        "spec": pods(image),
    });
    with_status(object, ready)
}

fn with_status(mut object: Value, ready: bool) -> Value {
    let available = i64::from(ready);
    object["status"] = json!({"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "availableReplicas": available});
    object
}
