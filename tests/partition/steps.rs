//! A witness of partitions: every event of the StatefulSets and pods of a namespace in the order in which they were stored, judged
//! without any code of the product.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use kube::api::{DynamicObject, ListParams, WatchEvent, WatchParams};
use serde_json::Value;

use crate::tenants::Fleet;

pub struct Witness {
    seen: Arc<Mutex<BTreeMap<u64, Event>>>,
}

#[derive(Clone)]
struct Event {
    object: Value,
    gone: bool,
}

impl Witness {
    /// Sees what happens from here on.
    pub async fn start(fleet: &Fleet) -> Result<Self> {
        let seen: Arc<Mutex<BTreeMap<u64, Event>>> = Arc::default();
        for kind in ["StatefulSet", "Pod"] {
            let api = fleet.api(kind);
            let list = api.list(&ListParams::default()).await?;
            for item in list.items {
                note(&seen, item, false)?;
            }
            let from = list.metadata.resource_version.context("a version")?;
            let seen = seen.clone();
            tokio::spawn(async move {
                let mut from = from;
                while let Ok(events) = api.watch(&WatchParams::default(), &from).await {
                    let mut events = events.boxed();
                    while let Some(Ok(event)) = events.next().await {
                        let (object, gone) = match event {
                            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                                (object, false)
                            }
                            WatchEvent::Deleted(object) => (object, true),
                            WatchEvent::Bookmark(_) | WatchEvent::Error(_) => continue,
                        };
                        if let Some(version) = &object.metadata.resource_version {
                            from.clone_from(version);
                        }
                        let _ = note(&seen, object, gone);
                    }
                }
            });
        }
        Ok(Witness { seen })
    }

    /// Judges every step so far; returns the partitions of the StatefulSet, and how many of its pods were not ready at most.
    pub fn judge(&self, name: &str) -> Result<(Vec<i64>, usize)> {
        let seen = self.seen.lock().expect("nobody panics with it").clone();
        let mut world = World::default();
        let (mut partitions, mut most) = (vec![], 0);
        for (version, event) in seen {
            let before = world.partition(name);
            world.take(&event);
            let after = world.partition(name);
            if before != after {
                partitions.extend(after);
            }
            if let (Some(before), Some(after)) = (before, after)
                && after < before
            {
                world
                    .judge(name, before, after)
                    .with_context(|| format!("the step from {before} to {after} at {version}"))?;
            }
            let now = world.not_ready(name);
            most = most.max(now);
        }
        Ok((partitions, most))
    }
}

fn note(seen: &Mutex<BTreeMap<u64, Event>>, object: DynamicObject, gone: bool) -> Result<()> {
    let version = object
        .metadata
        .resource_version
        .as_deref()
        .context("a version")?
        .parse()?;
    let object = serde_json::to_value(object)?;
    seen.lock()
        .expect("nobody panics with it")
        .insert(version, Event { object, gone });
    Ok(())
}

#[derive(Default)]
struct World {
    sets: BTreeMap<String, Value>,
    pods: BTreeMap<String, Value>,
}

impl World {
    fn take(&mut self, event: &Event) {
        let name = event.object["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let all = if event.object["spec"]["serviceName"].is_string() {
            &mut self.sets
        } else {
            &mut self.pods
        };
        match event.gone {
            true => all.remove(&name),
            false => all.insert(name, event.object.clone()),
        };
    }

    fn partition(&self, name: &str) -> Option<i64> {
        self.sets
            .get(name)?
            .pointer("/spec/updateStrategy/rollingUpdate/partition")?
            .as_i64()
    }

    fn replicas(&self, name: &str) -> i64 {
        self.sets
            .get(name)
            .and_then(|set| set["spec"]["replicas"].as_i64())
            .unwrap_or(0)
    }

    fn pod(&self, name: &str, index: i64) -> Option<&Value> {
        let start = self.sets.get(name)?["spec"]["ordinals"]["start"]
            .as_i64()
            .unwrap_or(0);
        self.pods.get(&format!("{name}-{}", start + index))
    }

    fn is_ready(&self, name: &str, index: i64) -> bool {
        self.pod(name, index).is_some_and(|pod| {
            let conditions = pod["status"]["conditions"].as_array();
            let ready = conditions
                .into_iter()
                .flatten()
                .any(|c| c["type"] == "Ready" && c["status"] == "True");
            ready && pod["metadata"]["deletionTimestamp"].is_null()
        })
    }

    fn is_updated(&self, name: &str, index: i64) -> bool {
        let revision = &self.sets[name]["status"]["updateRevision"];
        self.pod(name, index)
            .is_some_and(|pod| pod["metadata"]["labels"]["controller-revision-hash"] == *revision)
    }

    fn not_ready(&self, name: &str) -> usize {
        (0..self.replicas(name))
            .filter(|index| !self.is_ready(name, *index))
            .count()
    }

    /// Released are one pod that is not updated, and others that are; all that were released before are updated, and all others ready.
    fn judge(&self, name: &str, before: i64, after: i64) -> Result<()> {
        let replicas = self.replicas(name);
        let ready: Vec<bool> = (0..replicas)
            .map(|index| self.is_ready(name, index))
            .collect();
        let updated: Vec<bool> = (0..replicas)
            .map(|index| self.is_updated(name, index))
            .collect();
        let told = format!("ready {ready:?}, updated {updated:?}");
        if !ready.contains(&true) {
            return Ok(());
        }
        let released: Vec<i64> = (after..before.min(replicas))
            .filter(|index| !self.is_updated(name, *index))
            .collect();
        ensure!(released.len() <= 1, "released {released:?}: {told}");
        for index in 0..replicas {
            let is_target = released.contains(&index);
            ensure!(
                is_target || self.is_ready(name, index),
                "pod {index} is not ready: {told}"
            );
            ensure!(
                index < before || self.is_updated(name, index),
                "pod {index} is not updated: {told}"
            );
        }
        Ok(())
    }
}
