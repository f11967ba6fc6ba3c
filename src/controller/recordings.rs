//! What the last pass of each hub's release loop saw: one snapshot a hub, which the next pass replaces.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cluster::clock;
use crate::cluster::nodes::HubKey;
use crate::cluster::vital::Mutex;
use crate::decide::rollout::Snapshot;
use crate::decide::rollout::replay::Recording;

/// None until this process leads.
#[derive(Default)]
pub struct Recordings(Mutex<Option<BTreeMap<HubKey, Arc<Recording>>>>);

impl Recordings {
    /// This process leads now.
    pub fn begin(&self) {
        self.0.lock().get_or_insert_default();
    }

    /// Keeps the snapshot that is planned next.
    pub fn keep(&self, (namespace, name): &HubKey, snapshot: Snapshot) -> Arc<Recording> {
        let recording = Arc::new(Recording {
            namespace: namespace.clone(),
            name: name.clone(),
            now: clock::now(),
            snapshot,
        });
        let key = (namespace.clone(), name.clone());
        let mut all = self.0.lock();
        let before = all.get_or_insert_default().insert(key, recording.clone());
        // To drop 10,000 nodes takes a while.
        drop(all);
        drop(before);
        recording
    }

    pub fn forget(&self, hub: &HubKey) {
        if let Some(all) = self.0.lock().as_mut() {
            all.remove(hub);
        }
    }

    /// By hub; None in a replica that does not lead.
    pub fn all(&self) -> Option<Vec<Arc<Recording>>> {
        Some(self.0.lock().as_ref()?.values().cloned().collect())
    }
}
