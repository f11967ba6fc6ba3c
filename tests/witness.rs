//! The independent witness of the window: a client of its own that watches the Deployments, and nothing of lynqgate's.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt};

/// What was seen so far. Creations count as well: a Deployment is not rolled out until it first is.
#[derive(Debug, Default)]
pub struct Seen {
    /// Deployments that are not rolled out.
    open: BTreeMap<String, Open>,
    pub peak: usize,
    /// The generations at the first list: what has another one was changed since.
    at_first: BTreeMap<String, Option<i64>>,
    /// The most that had been changed since the first list and were not rolled out.
    pub peak_of_changed: usize,
    /// Sum of the times that Deployments were not rolled out.
    pub not_ready: Duration,
    pub first: Option<Instant>,
    pub last: Option<Instant>,
    /// How many times a Deployment was rolled out after it had not been.
    pub rolled_out: usize,
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
    pub async fn start(client: kube::Client, namespace: &str) -> Witness {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (listed, wait) = tokio::sync::oneshot::channel();
        let (store, api) = (
            seen.clone(),
            Api::<Deployment>::namespaced(client, namespace),
        );
        let task = tokio::spawn(async move {
            let mut listed = Some(listed);
            let mut events = watcher(api, watcher::Config::default()).boxed();
            while let Some(event) = events.next().await {
                let now = Instant::now();
                let mut seen = store.lock().expect("the witness's lock");
                match event.expect("the witness's watch") {
                    Event::InitApply(deployment) => {
                        let generation = deployment.metadata.generation;
                        // A watch that lists once more begins nothing anew.
                        seen.at_first
                            .entry(deployment.name_any())
                            .or_insert(generation);
                        seen.put(&deployment, now);
                    }
                    Event::Apply(deployment) => seen.put(&deployment, now),
                    Event::Delete(deployment) => drop(seen.open.remove(&deployment.name_any())),
                    Event::InitDone => drop(listed.take().map(|listed| listed.send(()))),
                    Event::Init => {}
                }
            }
        });
        wait.await.expect("the witness's first list");
        Witness { seen, task }
    }

    /// Ends the watch, which must have seen everything until now.
    pub fn end(self) -> Seen {
        assert!(!self.task.is_finished(), "the witness's watch ended early");
        self.task.abort();
        std::mem::take(&mut *self.seen.lock().expect("the witness's lock"))
    }
}

impl Seen {
    fn put(&mut self, deployment: &Deployment, now: Instant) {
        let name = deployment.name_any();
        if is_rolled_out(deployment) {
            if let Some(open) = self.open.remove(&name) {
                self.not_ready += now - open.since;
                self.last = Some(now);
                self.rolled_out += 1;
            }
        } else {
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

/// As `kubectl rollout status` says it.
fn is_rolled_out(deployment: &Deployment) -> bool {
    let wanted = deployment
        .spec
        .as_ref()
        .and_then(|spec| spec.replicas)
        .unwrap_or(1);
    let Some(status) = &deployment.status else {
        return false;
    };
    status.observed_generation == deployment.metadata.generation
        && status.updated_replicas.unwrap_or(0) == wanted
        && status.replicas.unwrap_or(0) == wanted
        && status.available_replicas.unwrap_or(0) == wanted
}
