//! The partition of StatefulSets: lynqgate releases one pod at a time, and only while all others are ready.

use serde_json::Value;

use super::finding::Rule;
use super::view::owner_of;
use super::{Audit, Stored};
use crate::kinds::{self, Key, Kind};

/// A StatefulSet whose partition lynqgate moves.
#[derive(Clone)]
pub struct Set {
    partition: i64,
    replicas: i64,
    start: i64,
    update_revision: String,
    /// All pods may go, by the StatefulSet's own word.
    forced: bool,
}

impl Set {
    fn of(object: &Value) -> Option<Self> {
        let labels = &object["metadata"]["labels"];
        let spec = &object["spec"];
        let strategy = &spec["updateStrategy"];
        if labels[kinds::PARTITION_GATE] != "true" || strategy["type"] == "OnDelete" {
            return None;
        }
        Some(Set {
            partition: strategy["rollingUpdate"]["partition"].as_i64().unwrap_or(0),
            replicas: spec["replicas"].as_i64().unwrap_or(1),
            start: spec["ordinals"]["start"].as_i64().unwrap_or(0),
            update_revision: text(&object["status"]["updateRevision"]),
            forced: object["metadata"]["annotations"][kinds::FORCE] == "true",
        })
    }
}

/// A pod of a StatefulSet.
pub struct Pod {
    revision: String,
    ready: bool,
}

impl Pod {
    fn of(object: &Value) -> Option<Self> {
        let revision = object["metadata"]["labels"]["controller-revision-hash"].as_str()?;
        let conditions = object["status"]["conditions"].as_array();
        let ready = conditions
            .into_iter()
            .flatten()
            .any(|c| c["type"] == "Ready" && c["status"] == "True");
        Some(Pod {
            revision: revision.to_owned(),
            ready: ready && object["metadata"]["deletionTimestamp"].is_null(),
        })
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Who wrote the partition last.
fn writer(object: &Value) -> Option<&str> {
    let entries = object["metadata"]["managedFields"].as_array()?;
    let owns = |entry: &&Value| {
        let field = "/fieldsV1/f:spec/f:updateStrategy/f:rollingUpdate/f:partition";
        entry.pointer(field).is_some()
    };
    entries.iter().find(owns)?["manager"].as_str()
}

impl Audit {
    pub(super) fn pod_written(&mut self, key: Key, object: Option<&Value>) {
        match object.and_then(Pod::of) {
            Some(pod) => drop(self.pods.insert(key, pod)),
            None => drop(self.pods.remove(&key)),
        }
    }

    /// `judged`: the write before it was seen.
    pub(super) fn set_written(
        &mut self,
        key: &Key,
        revision: u64,
        object: Option<&Value>,
        judged: bool,
    ) {
        let before = self.sets.remove(key);
        let Some((object, now)) = object.and_then(|object| Some((object, Set::of(object)?))) else {
            return;
        };
        if let Some(before) = before
            .map(|stored| stored.it)
            .filter(|before| judged && now.partition < before.partition)
            && writer(object) == Some(kinds::PARTITION_MANAGER)
            && !now.forced
            && !self.is_forced(key, object)
            && let Some(what) = self.wrong_step(key, &before, &now)
        {
            let pods = (0..now.replicas).map(|index| self.shown(key, &now, index));
            let evidence = vec![pods.collect::<Vec<_>>().join(", ")];
            self.violation(Rule::Partition, revision, key, what, evidence);
        }
        self.sets.insert(key.clone(), Stored { revision, it: now });
    }

    /// By its node, its form or its hub.
    fn is_forced(&mut self, key: &Key, object: &Value) -> bool {
        let since = self.now - self.options.lag_ms;
        let node = owner_of(key, object).and_then(|owner| self.nodes.get(&owner));
        let Some((forced, scopes)) = node.map(|node| {
            let node = &node.it;
            (node.view.forced, [node.form.clone(), node.hub.clone()])
        }) else {
            return false;
        };
        forced
            || scopes
                .iter()
                .any(|scope| self.scope(scope).was_forced_since(since))
    }

    /// Without pods in what is followed, nothing is known.
    fn wrong_step(&self, key: &Key, before: &Set, now: &Set) -> Option<String> {
        if !self.seen.contains_key(&Kind::Pod) {
            return None;
        }
        let is_ready = |index: i64| self.pod(key, now, index).is_some_and(|pod| pod.ready);
        let is_updated = |index: i64| {
            self.pod(key, now, index)
                .is_some_and(|pod| pod.revision == before.update_revision)
        };
        // Nothing runs that could break.
        if !(0..now.replicas).any(is_ready) {
            return None;
        }
        let step = format!(
            "its partition was lowered from {} to {}",
            before.partition, now.partition
        );
        let mut released =
            (now.partition..before.partition.min(now.replicas)).filter(|index| !is_updated(*index));
        let target = released.next_back();
        if released.next().is_some() {
            return Some(format!("{step}, which releases more than one pod"));
        }
        let broken = (0..now.replicas)
            .rev()
            .find(|index| Some(*index) != target && !is_ready(*index));
        if let Some(index) = broken {
            return Some(format!(
                "{step} while pod {} is not ready",
                now.start + index
            ));
        }
        let old =
            (before.partition.min(now.replicas)..now.replicas).find(|index| !is_updated(*index));
        old.map(|index| format!("{step} while pod {} is not updated", now.start + index))
    }

    fn pod(&self, key: &Key, set: &Set, index: i64) -> Option<&Pod> {
        let name = format!("{}-{}", key.name, set.start + index);
        self.pods.get(&Key::new(Kind::Pod, &key.namespace, &name))
    }

    fn shown(&self, key: &Key, set: &Set, index: i64) -> String {
        let state = match self.pod(key, set, index) {
            None => "not there".to_owned(),
            Some(pod) => format!(
                "{}, {}",
                if pod.ready { "ready" } else { "not ready" },
                if pod.revision == set.update_revision {
                    "updated"
                } else {
                    "old"
                }
            ),
        };
        format!("{}: {state}", set.start + index)
    }
}
