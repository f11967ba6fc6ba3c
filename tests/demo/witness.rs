//! The demo's own look at the tenants' Deployments, by a watch of its own: it asks nothing of lynqgate and believes
//! nothing that lynqgate says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use anyhow::{Context, Result};
use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};

/// How many of the tenants have rolled out the wanted image, how many are not rolled out, and how many wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    pub new: usize,
    pub not_ready: usize,
    pub held: usize,
}

/// One Deployment as it was last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sight {
    pub resource_version: String,
    pub image: String,
    pub rolled_out: bool,
}

#[derive(Default)]
pub struct Seen {
    pub deployments: BTreeMap<String, Sight>,
    /// The most Deployments that were not rolled out at the same moment.
    pub peak: usize,
    /// Each change of a Deployment's image, in the order in which they happened: name and new image.
    pub changes: Vec<(String, String)>,
    /// What a list names is compared with what was known: a deletion may have happened between two watches.
    listed: BTreeSet<String>,
    lists: usize,
}

#[derive(Clone)]
pub struct Witness(Arc<Mutex<Seen>>);

impl Witness {
    /// Begins to watch; returns once what is there was seen.
    pub async fn start(client: Client, namespace: &str) -> Result<Witness> {
        let witness = Witness(Arc::default());
        let api = Api::<Deployment>::namespaced(client, namespace);
        let mut events = watcher(api, watcher::Config::default())
            .default_backoff()
            .boxed();
        let (listed, first_list) = tokio::sync::oneshot::channel();
        let mut listed = Some(listed);
        let of_the_task = witness.clone();
        tokio::spawn(async move {
            while let Some(event) = events.next().await {
                // After an error the watch goes on from where it was, or lists again, and then it counts.
                let Ok(event) = event else { continue };
                if matches!(event, Event::InitDone) {
                    let _ = listed.take().map(|listed| listed.send(()));
                }
                of_the_task.seen().learn(event);
            }
        });
        first_list
            .await
            .context("the demo's watch on Deployments did not start")?;
        Ok(witness)
    }

    pub fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().expect("nothing panics while it holds this")
    }
}

impl Seen {
    fn learn(&mut self, event: Event<Deployment>) {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(deployment) => {
                self.listed.insert(deployment.name_any());
                self.apply(&deployment);
            }
            Event::InitDone => {
                self.lists += 1;
                let listed = std::mem::take(&mut self.listed);
                self.deployments.retain(|name, _| listed.contains(name));
            }
            Event::Apply(deployment) => self.apply(&deployment),
            Event::Delete(deployment) => drop(self.deployments.remove(&deployment.name_any())),
        }
    }

    fn apply(&mut self, deployment: &Deployment) {
        let name = deployment.name_any();
        let sight = Sight {
            resource_version: deployment.resource_version().unwrap_or_default(),
            image: image(deployment),
            rolled_out: is_rolled_out(deployment),
        };
        let before = self.deployments.insert(name.clone(), sight);
        let image = &self.deployments[&name].image;
        if before.is_none_or(|before| before.image != *image) {
            self.changes.push((name, image.clone()));
        }
        self.peak = self.peak.max(self.not_ready());
    }

    fn not_ready(&self) -> usize {
        self.deployments
            .values()
            .filter(|sight| !sight.rolled_out)
            .count()
    }

    pub fn tally(&self, image: &str, tenants: usize) -> Tally {
        let new = self
            .deployments
            .values()
            .filter(|sight| sight.rolled_out && sight.image == image)
            .count();
        let not_ready = self.not_ready();
        Tally {
            new,
            not_ready,
            held: tenants.saturating_sub(new + not_ready),
        }
    }

    /// The Deployments that run this image or are about to, by name.
    pub fn with_image(&self, image: &str) -> BTreeMap<String, Sight> {
        self.deployments
            .iter()
            .filter(|(_, sight)| sight.image == image)
            .map(|(name, sight)| (name.clone(), sight.clone()))
            .collect()
    }

    /// The Deployments that got this image, in order.
    pub fn order_of(&self, image: &str) -> Vec<String> {
        self.changes
            .iter()
            .filter(|(_, new)| new == image)
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Whether a watch had to be replaced by a list: what was between them was not seen.
    pub fn has_gap(&self) -> bool {
        self.lists > 1
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

/// As `kubectl rollout status` would say it: every replica is of the newest template and available, and none is older.
fn is_rolled_out(deployment: &Deployment) -> bool {
    let replicas = deployment
        .spec
        .as_ref()
        .and_then(|spec| spec.replicas)
        .unwrap_or(1);
    let Some(status) = &deployment.status else {
        return false;
    };
    status.observed_generation == deployment.metadata.generation
        && status.replicas.unwrap_or_default() == replicas
        && status.updated_replicas.unwrap_or_default() == replicas
        && status.available_replicas.unwrap_or_default() == replicas
}
