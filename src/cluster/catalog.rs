//! Caches the hubs and forms of the cluster as whole objects, which is cheap because there are few.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::api::form::{FormSpec, FormStatus};
use crate::api::hub::{HubSpec, HubStatus};
use crate::cluster::cache::{Asked, Cache, Cached, Changed, FirstList, identity};
use crate::cluster::vital::RwLock;
use crate::cluster::watch::Change;
use crate::decide::rollout::explain::FormTold;
use crate::decide::rollout::formless::FoundForm;
use crate::decide::rollout::history::Owner;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// An object with its spec, or why the spec cannot be read.
#[derive(Clone, Debug)]
pub struct Entry<Spec, Status> {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub resource_version: String,
    pub generation: i64,
    pub deleting: bool,
    pub finalizers: Vec<String>,
    pub annotations: BTreeMap<String, String>,
    /// Of a form: the hub that it names, also where the rest of its spec cannot be read.
    pub hub_id: String,
    pub spec: Result<Arc<Spec>, String>,
    pub status: Status,
}

/// An entry is replaced as a whole, never changed.
pub type Shared<Spec, Status> = Arc<Entry<Spec, Status>>;

pub type Hub = Entry<HubSpec, HubStatus>;
pub type Form = Entry<FormSpec, FormStatus>;

impl Form {
    /// The owner of its revisions.
    pub fn owner(&self) -> Owner<'_> {
        Owner {
            namespace: &self.namespace,
            name: &self.name,
            uid: &self.uid,
        }
    }

    /// What its operator reports on it.
    pub fn told(&self) -> FormTold<'_> {
        FormTold {
            name: &self.name,
            generation: self.generation,
            status: &self.status,
        }
    }

    /// The form as a node that names it finds it.
    pub fn found(&self) -> FoundForm<'_> {
        FoundForm {
            hub: &self.hub_id,
            deleting: self.deleting,
            unreadable: self.spec.as_ref().err().map(String::as_str),
        }
    }
}

impl<Spec: DeserializeOwned, Status: DeserializeOwned + Default> Entry<Spec, Status> {
    pub fn of(object: &Value) -> Self {
        let metadata = &object["metadata"];
        let text = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
        Entry {
            namespace: text("namespace"),
            name: text("name"),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            generation: metadata["generation"].as_i64().unwrap_or_default(),
            deleting: !metadata["deletionTimestamp"].is_null(),
            finalizers: serde_json::from_value(metadata["finalizers"].clone()).unwrap_or_default(),
            annotations: serde_json::from_value(metadata["annotations"].clone())
                .unwrap_or_default(),
            hub_id: object["spec"]["hubId"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            spec: spec(&object["spec"]),
            status: serde_json::from_value(object["status"].clone()).unwrap_or_default(),
        }
    }
}

fn spec<Spec: DeserializeOwned>(spec: &Value) -> Result<Arc<Spec>, String> {
    if spec.is_null() {
        return Err("the object has no spec; add one, or delete the object".to_owned());
    }
    serde_json::from_value(spec.clone()).map(Arc::new).map_err(|error| {
        format!("spec cannot be read: {error}; correct it, or install the CustomResourceDefinitions that belong to this operator")
    })
}

impl<Spec, Status> Cached for Entry<Spec, Status> {
    fn uid(&self) -> &str {
        &self.uid
    }

    fn resource_version(&self) -> &str {
        &self.resource_version
    }
}

/// All objects of one kind. Cheap to clone; all clones are one cache.
pub struct Catalog<Spec, Status> {
    inner: Arc<RwLock<Inner<Spec, Status>>>,
    first_list: FirstList,
}

type Key = (String, String);

struct Inner<Spec, Status> {
    entries: Cache<Key, Entry<Spec, Status>>,
    /// Each entry as the last watch event had it. The cache may already have the change from a reply; its event must still be
    /// reported, or a user's edit that arrives with a reply of ours would wake no loop.
    told: BTreeMap<Key, Shared<Spec, Status>>,
}

impl<Spec, Status> Clone for Catalog<Spec, Status> {
    fn clone(&self) -> Self {
        Catalog {
            inner: self.inner.clone(),
            first_list: self.first_list.clone(),
        }
    }
}

impl<Spec, Status> Default for Catalog<Spec, Status> {
    fn default() -> Self {
        let inner = Inner {
            entries: Cache::default(),
            told: BTreeMap::new(),
        };
        Catalog {
            inner: Arc::new(RwLock::new(inner)),
            first_list: FirstList::default(),
        }
    }
}

impl<Spec: DeserializeOwned, Status: DeserializeOwned + Default> Catalog<Spec, Status> {
    pub fn get(&self, namespace: &str, name: &str) -> Option<Shared<Spec, Status>> {
        let key = (namespace.to_owned(), name.to_owned());
        self.inner.read().entries.get(&key).cloned()
    }

    pub fn all(&self) -> Vec<Shared<Spec, Status>> {
        let inner = self.inner.read();
        inner.entries.all().values().cloned().collect()
    }

    pub fn in_namespace(&self, namespace: &str) -> Vec<Shared<Spec, Status>> {
        let inner = self.inner.read();
        let entries = inner.entries.all();
        let all = entries.range((namespace.to_owned(), String::new())..);
        all.take_while(|((ns, _), _)| ns == namespace)
            .map(|(_, entry)| entry.clone())
            .collect()
    }

    /// Until the first list is complete.
    pub async fn wait_listed(&self) {
        self.first_list.wait().await;
    }

    /// Call this before you read a list.
    pub fn asked(&self) -> Asked {
        self.inner.read().entries.asked()
    }

    /// Takes an object that may be new.
    pub fn learn_new(&self, object: &Value, asked: Asked) -> Shared<Spec, Status> {
        self.take(object, Some(asked))
    }

    /// Takes the reply to a request about a cached object.
    pub fn learn(&self, object: &Value) -> Shared<Spec, Status> {
        self.take(object, None)
    }

    fn take(&self, object: &Value, asked: Option<Asked>) -> Shared<Spec, Status> {
        let mut inner = self.inner.write();
        let (key, entry) = inner.entry(object);
        let learnt = inner.entries.learn(key, entry.clone(), asked);
        learnt.and_then(|changed| changed.now).unwrap_or(entry)
    }

    /// Removes those of the `known` entries that a list does not contain, and returns them. The list must have started after
    /// `known` was read.
    pub fn without(
        &self,
        known: &[Shared<Spec, Status>],
        listed: &BTreeSet<String>,
    ) -> Vec<Shared<Spec, Status>> {
        let mut inner = self.inner.write();
        let missing = known.iter().filter(|entry| !listed.contains(&entry.uid));
        missing
            .filter_map(|entry| {
                let key = (entry.namespace.clone(), entry.name.clone());
                let forgotten = inner.entries.forget(&key, &entry.uid);
                forgotten.inspect(|_| drop(inner.told.remove(&key)))
            })
            .collect()
    }

    /// Takes a watch event; returns what changed since the one before it.
    pub fn change(&self, change: Change) -> Vec<Changed<Entry<Spec, Status>>> {
        let mut inner = self.inner.write();
        match change {
            Change::Restarted => inner.entries.restarted(),
            Change::Applied(object) => {
                let (key, entry) = inner.entry(&object);
                inner.entries.applied(key.clone(), entry.clone());
                let before = inner.told.insert(key, entry.clone());
                let now = Some(entry);
                return vec![Changed { before, now }];
            }
            Change::Deleted(object) => {
                let key = key_of(&object);
                let before = inner.entries.deleted(&key, identity(&object));
                return inner.removed(&key, before).into_iter().collect();
            }
            Change::Refused(_) => {}
            Change::Listed => {
                let gone = inner.entries.listed().into_iter();
                let changed = gone.filter_map(|(key, entry)| inner.removed(&key, Some(entry)));
                let changed = changed.collect();
                self.first_list.complete();
                return changed;
            }
        }
        vec![]
    }
}

fn key_of(object: &Value) -> Key {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    (text("namespace").to_owned(), text("name").to_owned())
}

impl<Spec: DeserializeOwned, Status: DeserializeOwned + Default> Inner<Spec, Status> {
    /// Keeps one copy of the spec of a generation: the release loop compares pointers to find out whether a spec changed.
    fn entry(&self, object: &Value) -> (Key, Shared<Spec, Status>) {
        let (key, mut entry) = (key_of(object), Entry::of(object));
        let known = self.entries.get(&key);
        let is_same = |known: &&Shared<Spec, Status>| {
            (&known.uid, known.generation) == (&entry.uid, entry.generation)
        };
        if let Some(known) = known.filter(is_same) {
            entry.spec = known.spec.clone();
        }
        (key, Arc::new(entry))
    }
}

impl<Spec, Status> Inner<Spec, Status> {
    fn removed(
        &mut self,
        key: &Key,
        before: Option<Shared<Spec, Status>>,
    ) -> Option<Changed<Entry<Spec, Status>>> {
        let before = Some(before?);
        self.told.remove(key);
        Some(Changed { before, now: None })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A reply to the loop may carry a user's edit before the watch does; the hub loop must still be notified.
    #[test]
    fn what_a_reply_has_taught_is_still_told() {
        let forms: Catalog<FormSpec, FormStatus> = Catalog::default();
        let form = |version: &str, generation: i64| {
            json!({"metadata": {
                "namespace": "shop", "name": "web", "uid": "a", "resourceVersion": version, "generation": generation,
            }})
        };
        let generations = |version: &str, generation: i64| {
            let changed = forms.change(Change::Applied(form(version, generation)));
            let of = |form: &Option<Arc<Form>>| form.as_ref().map(|form| form.generation);
            changed
                .iter()
                .map(|changed| (of(&changed.before), of(&changed.now)))
                .collect::<Vec<_>>()
        };
        assert_eq!(generations("1", 1), [(None, Some(1))]);
        forms.learn(&form("3", 2));
        assert_eq!(generations("2", 2), [(Some(1), Some(2))]);
        assert_eq!(generations("3", 2), [(Some(2), Some(2))]);
    }

    #[test]
    fn the_spec_of_a_generation_is_kept_once() {
        let forms: Catalog<FormSpec, FormStatus> = Catalog::default();
        let form = |uid: &str, version: &str, generation: i64| {
            json!({
                "metadata": {"namespace": "shop", "name": "web", "uid": uid, "resourceVersion": version, "generation": generation},
                "spec": {"hubId": "tenants"},
            })
        };
        let spec = |form: Arc<Form>| form.spec.clone().unwrap();
        let first = spec(forms.learn_new(&form("a", "1", 1), forms.asked()));
        for (uid, version, generation, is_same) in [
            ("a", "2", 1, true),
            ("a", "3", 2, false),
            ("b", "4", 1, false),
        ] {
            forms.change(Change::Applied(form(uid, version, generation)));
            let now = spec(forms.get("shop", "web").unwrap());
            assert_eq!(Arc::ptr_eq(&first, &now), is_same, "{uid} {version}");
        }
    }

    #[test]
    fn what_a_list_does_not_have_is_gone_unless_it_came_after_it() {
        let forms: Catalog<FormSpec, FormStatus> = Catalog::default();
        let form = |name: &str, uid: &str, version: &str| json!({"metadata": {"namespace": "shop", "name": name, "uid": uid, "resourceVersion": version}});
        for (name, uid) in [("stays", "a"), ("goes", "b"), ("made anew", "c")] {
            forms.change(Change::Applied(form(name, uid, "1")));
        }
        let known = forms.all();
        forms.change(Change::Applied(form("comes", "d", "3")));
        forms.learn_new(&form("made anew", "e", "2"), forms.asked());
        let listed = BTreeSet::from(["a".to_owned(), "e".to_owned()]);
        let dropped = forms.without(&known, &listed);
        let names = |of: &[Arc<Form>]| of.iter().map(|f| f.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&dropped), ["goes"]);
        assert_eq!(names(&forms.all()), ["comes", "made anew", "stays"]);
        forms.learn(&form("goes", "b", "1"));
        assert!(forms.get("shop", "goes").is_none());
    }
}
