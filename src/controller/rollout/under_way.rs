//! The requests that a hub's release loop does not wait for: releases, and live reads before slots are freed.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::cluster::process;
use crate::cluster::vital::Mutex;
use crate::controller::Said;
use crate::controller::rollout::confirm::confirm;
use crate::controller::rollout::refused::NotReleased;
use crate::controller::rollout::requests::release;
use crate::controller::rollout::{REQUESTS_MAX, RolloutReconciler};
use crate::decide::rollout::{Confirm, Confirmation, Release};
use crate::decide::shared::backoff::Backoff;

enum Reply {
    Release(Release, Result<(), NotReleased>),
    /// None: the slot is not free.
    Read(Confirm, Option<Confirmation>),
}

/// A reply, or what the request panicked with.
type Ended = Result<Reply, Box<dyn Any + Send>>;

/// If it is dropped, all of them end.
pub struct UnderWay {
    requests: JoinSet<()>,
    /// Of those that have ended since the last pass.
    ended: Arc<Mutex<Vec<Ended>>>,
    releases: Arc<Semaphore>,
    reads: Arc<Semaphore>,
    /// The versions of the nodes that releases without a reply carry, by the nodes' names.
    pub sent: BTreeMap<String, String>,
    /// The slots that are read for.
    read: BTreeSet<Confirm>,
}

impl Default for UnderWay {
    fn default() -> Self {
        let permits = || Arc::new(Semaphore::new(REQUESTS_MAX));
        UnderWay {
            requests: JoinSet::new(),
            ended: Arc::default(),
            releases: permits(),
            reads: permits(),
            sent: BTreeMap::new(),
            read: BTreeSet::new(),
        }
    }
}

impl UnderWay {
    /// Waits until all of them have ended.
    pub async fn end(&mut self) {
        while self.requests.join_next().await.is_some() {}
    }
}

impl RolloutReconciler<'_> {
    /// Sends releases, each as long as the hub and its forms say what it was decided on.
    pub(super) fn release<'a>(
        &mut self,
        releases: impl Iterator<Item = &'a Release>,
        said: &Arc<Said>,
    ) {
        for one in releases {
            let (world, hub) = (self.world.clone(), self.key.clone());
            let (one, said) = (one.clone(), said.clone());
            let sent = (one.node.clone(), one.resource_version.clone());
            self.memory.under_way.sent.extend([sent]);
            let permits = self.memory.under_way.releases.clone();
            self.start(async move {
                let _permit = permits.acquire().await;
                let released = release(&world, &hub, &one, &said).await;
                Reply::Release(one, released)
            });
        }
    }

    /// Live reads for slots that look free, if nothing reads for them yet.
    pub(super) fn read(&mut self, slots: &[Confirm]) {
        for one in slots {
            let awaited = self.world.confirmed.awaits(&self.key, one);
            if awaited || !self.memory.under_way.read.insert(one.clone()) {
                continue;
            }
            let (world, hub, one) = (self.world.clone(), self.key.clone(), one.clone());
            let permits = self.memory.under_way.reads.clone();
            self.start(async move {
                let _permit = permits.acquire().await;
                let confirmation = confirm(&world, &hub, &one).await;
                Reply::Read(one, confirmation)
            });
        }
    }

    fn start(&mut self, request: impl Future<Output = Reply> + Send + 'static) {
        let under_way = &mut self.memory.under_way;
        let (ended, key) = (under_way.ended.clone(), self.key.clone());
        let queue = self.world.rollout_queue.clone();
        process::spawn_in(&mut under_way.requests, async move {
            let reply = AssertUnwindSafe(request).catch_unwind().await;
            let wait = match &reply {
                Ok(Reply::Read(_, None)) => Backoff::RELEASE.first,
                _ => Duration::ZERO,
            };
            ended.lock().push(reply);
            queue.add_after(key, wait);
        });
    }

    /// Takes the replies since the last pass, and returns what live reads confirmed. What a request panicked with is a panic of
    /// this pass.
    pub(super) fn settle(&mut self) -> BTreeSet<Confirmation> {
        let mut confirmed = BTreeSet::new();
        let under_way = &mut self.memory.under_way;
        while under_way.requests.try_join_next().is_some() {}
        let ended = std::mem::take(&mut *under_way.ended.lock());
        for reply in ended {
            match reply {
                Err(panic) => resume_unwind(panic),
                Ok(Reply::Read(slot, confirmation)) => {
                    self.memory.under_way.read.remove(&slot);
                    confirmed.extend(confirmation);
                }
                Ok(Reply::Release(release, released)) => {
                    let sent = &mut self.memory.under_way.sent;
                    // A later one, from a newer version, may have no reply yet.
                    if sent.get(&release.node) == Some(&release.resource_version) {
                        sent.remove(&release.node);
                    }
                    self.remember_refused(&release, released);
                }
            }
        }
        confirmed
    }
}
