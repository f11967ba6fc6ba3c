//! The hubs and forms of the cluster, whole: there are few of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch::{Receiver, Sender, channel};

use crate::api::form::{FormSpec, FormStatus};
use crate::api::hub::{HubSpec, HubStatus};
use crate::cluster::gone::Gone;
use crate::cluster::vital::RwLock;
use crate::cluster::watch::Change;
use crate::decide::version;

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

/// All objects of one kind. Cheap to clone; all clones are one store.
pub struct Catalog<Spec, Status> {
    entries: Arc<RwLock<Entries<Spec, Status>>>,
    listed: (Arc<Sender<bool>>, Receiver<bool>),
}

type Key = (String, String);

struct Entries<Spec, Status> {
    all: BTreeMap<Key, Shared<Spec, Status>>,
    /// As the last event had them. What a reply has taught before its event is news all the same: else an edit of a user
    /// that comes with a reply of ours would wake nobody.
    told: BTreeMap<Key, Shared<Spec, Status>>,
    /// While the watch lists anew: what it has not named yet.
    unseen: Option<Vec<Key>>,
    gone: Gone,
}

impl<Spec, Status> Clone for Catalog<Spec, Status> {
    fn clone(&self) -> Self {
        Catalog {
            entries: self.entries.clone(),
            listed: self.listed.clone(),
        }
    }
}

impl<Spec, Status> Default for Catalog<Spec, Status> {
    fn default() -> Self {
        let (sender, receiver) = channel(false);
        let entries = Entries {
            all: BTreeMap::new(),
            told: BTreeMap::new(),
            unseen: None,
            gone: Gone::default(),
        };
        Catalog {
            entries: Arc::new(RwLock::new(entries)),
            listed: (Arc::new(sender), receiver),
        }
    }
}

/// One object before and after an event; either may be absent.
pub type Changed<Spec, Status> = (Option<Shared<Spec, Status>>, Option<Shared<Spec, Status>>);

impl<Spec: DeserializeOwned, Status: DeserializeOwned + Default> Catalog<Spec, Status> {
    pub fn get(&self, namespace: &str, name: &str) -> Option<Shared<Spec, Status>> {
        self.entries
            .read()
            .all
            .get(&(namespace.to_owned(), name.to_owned()))
            .cloned()
    }

    pub fn all(&self) -> Vec<Shared<Spec, Status>> {
        let entries = self.entries.read();
        entries.all.values().cloned().collect()
    }

    pub fn in_namespace(&self, namespace: &str) -> Vec<Shared<Spec, Status>> {
        let entries = self.entries.read();
        entries
            .all
            .range((namespace.to_owned(), String::new())..)
            .take_while(|((ns, _), _)| ns == namespace)
            .map(|(_, e)| e.clone())
            .collect()
    }

    /// Until the first list is complete.
    pub async fn wait_listed(&self) {
        let mut listed = self.listed.1.clone();
        // The sender lives as long as this store.
        let _ = listed.wait_for(|listed| *listed).await;
    }

    /// Takes an object that a write returned. One that is gone since stays gone.
    pub fn learn(&self, object: &Value) -> Shared<Spec, Status> {
        let entry = Arc::new(Entry::of(object));
        let mut entries = self.entries.write();
        if entries.gone.has(&entry.uid, &entry.resource_version) {
            return entry;
        }
        entries.put(entry)
    }

    /// Drops those of the known ones that a list does not have which began after they were known; returns them.
    pub fn without(
        &self,
        known: &[Shared<Spec, Status>],
        listed: &BTreeSet<String>,
    ) -> Vec<Shared<Spec, Status>> {
        let mut entries = self.entries.write();
        let missing = known.iter().filter(|entry| !listed.contains(&entry.uid));
        let mut dropped = vec![];
        for entry in missing {
            entries.gone.deleted(&entry.uid);
            let key = (entry.namespace.clone(), entry.name.clone());
            if entries
                .all
                .get(&key)
                .is_some_and(|now| now.uid == entry.uid)
            {
                dropped.extend(entries.remove(&key));
            }
        }
        dropped
    }

    /// Takes a watch event; returns what changed since the one before it.
    pub fn change(&self, change: Change) -> Vec<Changed<Spec, Status>> {
        let mut entries = self.entries.write();
        match change {
            Change::Restarted => {
                entries.unseen = Some(entries.all.keys().cloned().collect());
                vec![]
            }
            Change::Applied(object) => {
                let entry: Entry<Spec, Status> = Entry::of(&object);
                let key = (entry.namespace.clone(), entry.name.clone());
                if let Some(unseen) = &mut entries.unseen {
                    unseen.retain(|seen| *seen != key);
                }
                entries.gone.back(&entry.uid);
                if let Some(known) = entries.all.get(&key).filter(|k| k.uid != entry.uid) {
                    let before = known.uid.clone();
                    entries.gone.deleted(&before);
                }
                let entry = Arc::new(entry);
                entries.put(entry.clone());
                let before = entries.told.insert(key, entry.clone());
                vec![(before, Some(entry))]
            }
            Change::Deleted(object) => {
                let entry: Entry<Spec, Status> = Entry::of(&object);
                let key = (entry.namespace, entry.name);
                entries.gone.deleted(&entry.uid);
                match entries
                    .all
                    .get(&key)
                    .is_some_and(|known| known.uid == entry.uid)
                {
                    true => vec![(entries.remove(&key), None)],
                    false => vec![],
                }
            }
            Change::Refused(_) => vec![],
            Change::Listed => {
                let gone = entries.unseen.take().unwrap_or_default();
                let mut changed = vec![];
                for key in gone {
                    if let Some(entry) = entries.remove(&key) {
                        entries.gone.deleted(&entry.uid);
                        changed.push((Some(entry), None));
                    }
                }
                drop(entries);
                self.listed.0.send_replace(true);
                changed
            }
        }
    }
}

impl<Spec, Status> Entries<Spec, Status> {
    fn remove(&mut self, key: &Key) -> Option<Shared<Spec, Status>> {
        self.told.remove(key);
        self.all.remove(key)
    }

    /// What holds now: events and replies of our own writes come in any order.
    fn put(&mut self, entry: Shared<Spec, Status>) -> Shared<Spec, Status> {
        let key = (entry.namespace.clone(), entry.name.clone());
        if let Some(old) = self.all.get(&key)
            && old.uid == entry.uid
            && version::is_newer(&old.resource_version, &entry.resource_version)
        {
            return old.clone();
        }
        self.all.insert(key, entry.clone());
        entry
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The loop's own reply may bring a user's edit before the watch does; the hub loop must hear of it all the same.
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
                .map(|(before, now)| (of(before), of(now)))
                .collect::<Vec<_>>()
        };
        assert_eq!(generations("1", 1), [(None, Some(1))]);
        forms.learn(&form("3", 2));
        assert_eq!(generations("2", 2), [(Some(1), Some(2))]);
        assert_eq!(generations("3", 2), [(Some(2), Some(2))]);
    }

    #[test]
    fn a_late_reply_does_not_bring_back_whom_another_follows() {
        let forms: Catalog<FormSpec, FormStatus> = Catalog::default();
        let form = |uid: &str, version: &str| json!({"metadata": {"namespace": "shop", "name": "web", "uid": uid, "resourceVersion": version}});
        forms.change(Change::Applied(form("a", "1")));
        forms.change(Change::Applied(form("b", "4")));
        forms.learn(&form("a", "2"));
        assert_eq!(forms.get("shop", "web").expect("a new one").uid, "b");
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
        forms.learn(&form("made anew", "e", "2"));
        let listed = BTreeSet::from(["a".to_owned(), "e".to_owned()]);
        let dropped = forms.without(&known, &listed);
        let names = |of: &[Arc<Form>]| of.iter().map(|f| f.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&dropped), ["goes"]);
        assert_eq!(names(&forms.all()), ["comes", "made anew", "stays"]);
        forms.learn(&form("goes", "b", "1"));
        assert!(forms.get("shop", "goes").is_none());
    }

    #[test]
    fn a_late_reply_does_not_bring_back_what_is_gone() {
        let forms: Catalog<FormSpec, FormStatus> = Catalog::default();
        let form = |uid: &str, version: &str| json!({"metadata": {"namespace": "shop", "name": "web", "uid": uid, "resourceVersion": version}});
        forms.change(Change::Applied(form("a", "1")));
        forms.change(Change::Deleted(form("a", "3")));
        forms.learn(&form("a", "2"));
        assert!(forms.get("shop", "web").is_none());
        forms.change(Change::Applied(form("b", "4")));
        forms.learn(&form("a", "2"));
        assert_eq!(forms.get("shop", "web").expect("a new one").uid, "b");
        forms.change(Change::Restarted);
        forms.change(Change::Listed);
        forms.learn(&form("b", "4"));
        assert!(forms.get("shop", "web").is_none(), "a list without it");
        forms.change(Change::Applied(form("b", "4")));
        forms.learn(&form("b", "5"));
        let back = forms.get("shop", "web").expect("the list was old");
        assert_eq!(back.resource_version, "5");
    }
}
