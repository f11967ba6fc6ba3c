//! The requests for single nodes that a pass makes: releases, slots that are given up or freed, and reads of what is newer.

use std::time::Duration;

use futures::future::join_all;
use serde_json::json;

use crate::api::events::EventReason;
use crate::api::{names, stamp};
use crate::cluster::events::About;
use crate::cluster::nodes::HubKey;
use crate::cluster::objects::ApiError;
use crate::controller::node::takeover::still_changes_nothing;
use crate::controller::rollout::refused::NotReleased;
use crate::controller::rollout::{REQUESTS_MAX, RolloutReconciler};
use crate::controller::{Said, World};
use crate::decide::child::{NodeKey, ObjectKey};
use crate::decide::node::digest::NodeDigest;
use crate::decide::rollout::{Freed, GiveUp, Live, Release, Way};
use crate::decide::shared::backoff::Backoff;

/// Sends a release, if the hub and its forms still say what it was decided on; an error says why it did not go live.
pub async fn release(
    world: &World,
    hub: &HubKey,
    release: &Release,
    said: &Said,
) -> Result<(), NotReleased> {
    if !world.still_says(hub, said) {
        return Err(NotReleased::Outdated);
    }
    let key = ObjectKey::own("LynqNode", &hub.0, &release.node);
    if release.way == Way::TakenOver {
        let node = NodeKey::new(hub.0.as_str(), release.node.as_str());
        match still_changes_nothing(world, &node).await {
            Ok(true) if world.still_says(hub, said) => {}
            Ok(true) => return Err(NotReleased::Outdated),
            Ok(false) => {
                let why = "its objects have changed since";
                return Err(NotReleased::Conflict(why.to_owned()));
            }
            Err(error) => return Err(NotReleased::Refused(error.to_string())),
        }
    }
    let (marker, value) = release.marker();
    let patch = json!({"metadata": {"resourceVersion": release.resource_version, "annotations": {marker: value}}});
    // The watch may be faster than the reply.
    let before = world
        .nodes
        .get(&NodeKey::new(hub.0.as_str(), release.node.as_str()));
    match world.objects.merge(&key, &patch).await {
        Ok(object) => {
            let node = world.nodes.learn(&object);
            // It counts only if the reply shows it: a gate that is not there answers 200 as well. What is known by now may
            // be newer than the reply.
            let replied = NodeDigest::of(&object, None);
            if !matches!(&replied.live, Live::Hash(hash) if *hash == release.hash) {
                tracing::error!(node = %node.key, "the release was accepted but nothing went live: is the mutating webhook installed?");
                let why = "it was accepted but nothing went live; the mutating webhook may not be installed";
                return Err(NotReleased::Refused(why.to_owned()));
            }
            let held_since = before.and_then(|node| stamp::parse(node.held_since.as_deref()?));
            world
                .metrics
                .released(hub, &node.form, release.way, held_since);
            tracing::info!(node = %node.key, hash = release.hash, way = release.way.code(), "released");
            if release.way == Way::Forced {
                let about = About::new("LynqNode", &node.key.namespace, &node.key.name, &node.uid);
                let note = format!(
                    "went live at once: {} is on its form or hub",
                    names::FORCE_ROLLOUT
                );
                world.events.tell(&about, EventReason::Forced, note);
            }
            world.node_queue.add(node.key.clone());
            Ok(())
        }
        Err(error @ ApiError::Conflict(_)) => {
            // It changed since; the next pass decides on what it is now.
            match world.objects.get(&key).await {
                Ok(object) => {
                    world.nodes.learn(&object);
                    Err(NotReleased::Conflict(error.to_string()))
                }
                Err(error) => Err(NotReleased::Refused(error.to_string())),
            }
        }
        Err(error) => {
            tracing::warn!(node = release.node, %error, "the release did not go through; it is tried again");
            Err(NotReleased::Refused(error.to_string()))
        }
    }
}

impl RolloutReconciler<'_> {
    /// Moves the versions of the nodes whose slots are given up. One that has moved by itself is as good.
    pub(super) async fn give_up(&self, slots: &[GiveUp]) {
        for GiveUp {
            node,
            resource_version,
        } in slots
        {
            let key = ObjectKey::own("LynqNode", &self.key.0, node);
            // What refuses the release may refuse any other write of the object, but hardly its status.
            let patch = json!({"metadata": {"resourceVersion": resource_version}, "status": {"slotGivenUp": resource_version}});
            match self.world.objects.merge_status(&key, &patch).await {
                Ok(object) => drop(self.world.nodes.learn(&object)),
                Err(ApiError::Conflict(_) | ApiError::NotFound(_)) => {}
                Err(error) => {
                    tracing::warn!(node, %error, "an unused slot could not be given up; it is tried again");
                }
            }
        }
    }

    /// A watch that is late, or silent, would keep them waiting. Returns when to come back for those that could not be read.
    pub(super) async fn read_behind(&self, nodes: &[String]) -> Option<Duration> {
        let mut again = None;
        for name in nodes {
            let key = ObjectKey::own("LynqNode", &self.key.0, name);
            match self.world.objects.get(&key).await {
                Ok(object) => {
                    self.world.nodes.learn(&object);
                    self.world.rollout_queue.add(self.key.clone());
                }
                Err(error) => {
                    tracing::warn!(node = name, %error, "what is newer of it could not be read; it is tried again");
                    again = Some(Backoff::RELEASE.first);
                }
            }
        }
        again
    }

    /// Whose word is lost keeps a slot for longer than it must, should the ledger be lost as well.
    pub(super) async fn say_freed(&self, freed: &[Freed]) {
        for some in freed.chunks(REQUESTS_MAX) {
            let said = some.iter().map(|Freed { node, uid, release }| async move {
                let key = NodeKey::new(self.key.0.as_str(), node.as_str());
                let now = self.world.nodes.get(&key);
                // One that was deleted and made again meanwhile must not inherit it.
                let Some(now) = now.filter(|now| now.uid == *uid) else {
                    return;
                };
                let key = ObjectKey::own("LynqNode", &self.key.0, node);
                let version = json!({"resourceVersion": now.resource_version});
                let patch = json!({"metadata": version, "status": {"freedRelease": release}});
                match self.world.objects.merge_status(&key, &patch).await {
                    Ok(object) => drop(self.world.nodes.learn(&object)),
                    Err(error) => {
                        tracing::debug!(node, %error, "that its slot is free was not said")
                    }
                }
            });
            join_all(said).await;
        }
    }
}
