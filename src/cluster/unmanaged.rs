//! The names of objects without our label, which no watch here delivers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::api::names;
use crate::cluster::clock::{self, Instant};
use crate::cluster::objects::Objects;
use crate::cluster::vital;
use crate::decide::child::{Kind, ObjectKey};

/// How long a list counts as current. An object that a user creates meanwhile meets the same race as between a read and the write
/// after it.
const BELIEVED: Duration = Duration::from_secs(2);
/// A list is cheaper than more reads of single objects than this.
const READS_MAX: u32 = 8;

/// Clones are cheap and share one state.
#[derive(Clone, Default)]
pub struct Unmanaged {
    lists: Arc<vital::Mutex<BTreeMap<(Kind, String), Place>>>,
}

/// The reads of a kind in a namespace.
struct Place {
    began: Instant,
    list: Arc<tokio::sync::Mutex<List>>,
}

#[derive(Default)]
struct List {
    reads: u32,
    names: Option<BTreeSet<String>>,
}

impl Unmanaged {
    /// Whether a list has shown that no object of this name without our label exists. If false, read the object.
    pub async fn lacks(&self, objects: &Objects, key: &ObjectKey) -> bool {
        let list = self.list(key);
        let mut list = list.lock().await;
        if list.names.is_none() {
            list.reads += 1;
            if list.reads <= READS_MAX {
                return false;
            }
            let mut names = BTreeSet::new();
            let labels = format!("!{}", names::LABEL_MANAGED);
            let listed = objects.metadata(&key.kind, &key.namespace, &labels, |name, _| {
                names.insert(name.to_owned());
            });
            match listed.await {
                Ok(()) => list.names = Some(names),
                Err(error) => {
                    tracing::debug!(kind = %key.kind, %error, "each object is read: the list failed");
                    return false;
                }
            }
        }
        list.names
            .as_ref()
            .is_some_and(|names| !names.contains(&key.name))
    }

    fn list(&self, key: &ObjectKey) -> Arc<tokio::sync::Mutex<List>> {
        let now = clock::instant();
        let mut lists = self.lists.lock();
        let of = ((*key.kind).clone(), key.namespace.to_string());
        let is_believed = |place: &Place| now - place.began < BELIEVED;
        if let Some(place) = lists.get(&of).filter(|place| is_believed(place)) {
            return place.list.clone();
        }
        lists.retain(|_, place| is_believed(place));
        let place = lists.entry(of).or_insert_with(|| Place {
            began: now,
            list: Arc::default(),
        });
        place.list.clone()
    }
}
