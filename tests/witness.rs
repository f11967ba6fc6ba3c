//! The independent witness of the window, for the tests, the bench and the demo: a client of its own that watches the tenants'
//! Deployments. It asks nothing of lynqgate and believes nothing that lynqgate says.

// Each of them uses a part of it.
#![allow(dead_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};

/// One Deployment as it was last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sight {
    pub image: String,
    pub rolled_out: bool,
}

impl Sight {
    pub fn of(deployment: &Deployment) -> Sight {
        Sight {
            image: image(deployment),
            rolled_out: is_rolled_out(deployment),
        }
    }
}

/// What was seen so far. Creations count as well: a Deployment is not rolled out until it first is.
#[derive(Debug, Default)]
pub struct Seen {
    deployments: BTreeMap<String, Sight>,
    /// Deployments that are not rolled out.
    open: BTreeMap<String, Open>,
    /// The most of them at the same moment.
    pub peak: usize,
    /// The generations at the first list: what has another one was changed since.
    at_first: BTreeMap<String, Option<i64>>,
    /// The most that had been changed since the first list and were not rolled out.
    pub peak_of_changed: usize,
    /// Each change of a Deployment's image, in the order in which they happened: name and new image.
    changes: Vec<(String, String)>,
    /// Sum of the times that Deployments were not rolled out.
    pub not_ready: Duration,
    pub first: Option<Instant>,
    pub last: Option<Instant>,
    /// How many times a Deployment was rolled out after it had not been.
    pub rolled_out: usize,
    /// What a list names is compared with what was known: a deletion may have happened between two watches.
    listed: BTreeSet<String>,
    lists: usize,
}

#[derive(Debug)]
struct Open {
    since: Instant,
    /// Since the first list.
    changed: bool,
}

pub struct Witness {
    seen: Arc<Mutex<Seen>>,
    task: tokio::task::JoinHandle<()>,
}

impl Witness {
    /// Watches the Deployments of the namespace; returns once it has seen those that are there.
    pub async fn start(client: Client, namespace: &str) -> Result<Witness> {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (listed, first_list) = tokio::sync::oneshot::channel();
        let api = Api::<Deployment>::namespaced(client, namespace);
        let mut events = watcher(api, watcher::Config::default())
            .default_backoff()
            .boxed();
        let (mut listed, store) = (Some(listed), seen.clone());
        let task = tokio::spawn(async move {
            while let Some(event) = events.next().await {
                // After an error the watch goes on from where it was, or lists again, and then it counts.
                let Ok(event) = event else { continue };
                let is_listed = matches!(event, Event::InitDone);
                store.lock().expect("the witness's lock").learn(event);
                if is_listed {
                    let _ = listed.take().map(|listed| listed.send(()));
                }
            }
        });
        first_list
            .await
            .context("the witness's watch of the Deployments did not start")?;
        Ok(Witness { seen, task })
    }

    pub fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("the witness's lock")
    }

    /// Ends the watch, which must have seen everything until now.
    pub fn end(self) -> Seen {
        assert!(!self.task.is_finished(), "the witness's watch ended early");
        self.task.abort();
        let seen = std::mem::take(&mut *self.seen());
        assert!(!seen.has_gap(), "the witness's watch was interrupted");
        seen
    }
}

impl Seen {
    fn learn(&mut self, event: Event<Deployment>) {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(deployment) => {
                let name = deployment.name_any();
                // A watch that lists once more begins nothing anew.
                let at_first = self.at_first.entry(name.clone());
                at_first.or_insert(deployment.metadata.generation);
                self.listed.insert(name);
                self.put(&deployment);
            }
            Event::InitDone => {
                self.lists += 1;
                let listed = std::mem::take(&mut self.listed);
                self.deployments.retain(|name, _| listed.contains(name));
                self.open.retain(|name, _| listed.contains(name));
            }
            Event::Apply(deployment) => self.put(&deployment),
            Event::Delete(deployment) => {
                let name = deployment.name_any();
                self.deployments.remove(&name);
                self.open.remove(&name);
            }
        }
    }

    fn put(&mut self, deployment: &Deployment) {
        let (name, sight, now) = (deployment.name_any(), Sight::of(deployment), Instant::now());
        let before = self.deployments.insert(name.clone(), sight.clone());
        if before.is_none_or(|before| before.image != sight.image) {
            self.changes.push((name.clone(), sight.image));
        }
        if sight.rolled_out {
            if let Some(open) = self.open.remove(&name) {
                self.not_ready += now - open.since;
                self.last = Some(now);
                self.rolled_out += 1;
            }
            return;
        }
        let changed = self.at_first.get(&name) != Some(&deployment.metadata.generation);
        let open = self.open.entry(name).or_insert(Open {
            since: now,
            changed,
        });
        open.changed |= changed;
        self.first.get_or_insert(now);
        self.peak = self.peak.max(self.open.len());
        let changed = self.open.values().filter(|open| open.changed).count();
        self.peak_of_changed = self.peak_of_changed.max(changed);
    }

    /// How many are not rolled out now.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// How many are rolled out with this image.
    pub fn with_image(&self, image: &str) -> usize {
        let is_it = |sight: &&Sight| sight.rolled_out && sight.image == image;
        self.deployments.values().filter(is_it).count()
    }

    /// The Deployments that got this image, in order.
    pub fn order_of(&self, image: &str) -> Vec<String> {
        let changes = self.changes.iter().filter(|(_, new)| new == image);
        changes.map(|(name, _)| name.clone()).collect()
    }

    /// Whether a watch had to be replaced by a list: what was between them was not seen.
    pub fn has_gap(&self) -> bool {
        self.lists > 1
    }

    /// From the first Deployment that changed to the last that was rolled out.
    pub fn duration(&self) -> Duration {
        self.last
            .zip(self.first)
            .map(|(last, first)| last - first)
            .unwrap_or_default()
    }

    /// The shortest time in which a window of this width could have done the same.
    pub fn ideal(&self, window: usize) -> Duration {
        self.not_ready / window as u32
    }
}

fn image(deployment: &Deployment) -> String {
    let pod = deployment
        .spec
        .as_ref()
        .and_then(|spec| spec.template.spec.as_ref());
    pod.and_then(|pod| pod.containers.first())
        .and_then(|container| container.image.clone())
        .unwrap_or_default()
}

/// As `kubectl rollout status` says it: every replica is of the newest template and available, and none is older.
fn is_rolled_out(deployment: &Deployment) -> bool {
    let spec = deployment.spec.as_ref();
    let wanted = spec.and_then(|spec| spec.replicas).unwrap_or(1);
    let Some(status) = &deployment.status else {
        return false;
    };
    status.observed_generation == deployment.metadata.generation
        && status.updated_replicas.unwrap_or(0) == wanted
        && status.replicas.unwrap_or(0) == wanted
        && status.available_replicas.unwrap_or(0) == wanted
}
