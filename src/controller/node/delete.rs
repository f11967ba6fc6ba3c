//! The end of a node: takes its objects down, in an order that is decided elsewhere, and lets the node go after them.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::api::events::EventReason;
use crate::api::names;
use crate::cluster::clock;
use crate::cluster::events::About;
use crate::cluster::objects::ApiError;
use crate::controller::node::kinds::Kinds;
use crate::controller::node::takeover::not_taken_over;
use crate::controller::node::{LASTING, NodeReconciler};
use crate::decide::child::{Child, ObjectKey};
use crate::decide::node::digest::{Facts, NodeDigest};
use crate::decide::node::plan;
use crate::decide::node::plan::status;
use crate::decide::shared::backoff::Backoff;

/// Most objects go within moments, and a status for each that goes would cost more than it tells.
const TOLD_EVERY: SignedDuration = SignedDuration::from_secs(5);

impl NodeReconciler<'_> {
    /// Takes the node's objects down, and lets the node go when none is left.
    pub async fn delete(&mut self, node: &NodeDigest) -> Result<Option<Timestamp>, ApiError> {
        let record = self.record(node);
        let lasting = self.memory.failures >= LASTING;
        let Some(kinds) = Kinds::of(self.world, node, &record, lasting).await? else {
            return Ok(None);
        };
        let of = |facts: &Facts| kinds.key(facts).ok();
        let mut again = clock::now().checked_add(Backoff::NO_EVENT.first).ok();
        let not_taken_over = loop {
            let not_taken_over = not_taken_over(self.world, node).await?;
            let children = self.world.children.of_node(&self.key).into_iter();
            let mut children: BTreeMap<ObjectKey, Child> = children
                .map(|(key, child)| (key, (*child).clone()))
                .collect();
            // As they were read just now.
            children.extend(not_taken_over.children.clone());
            let left = &not_taken_over.named;
            let deletion = plan::plan_deletion(node, &children, &record, left, of);
            let mut all = true;
            for (key, how) in &deletion.take_down {
                if let Some(at) = self.put_off_until(key) {
                    all = false;
                    again = again.min(Some(at));
                    continue;
                }
                let child = &children[key];
                all &= self
                    .take_down(node, (key, child), *how, names::NODE_DELETED)
                    .await?;
            }
            if !deletion.pending {
                break not_taken_over;
            }
            if !all {
                let stay = deletion.take_down.iter();
                let mut stay = stay.filter_map(|(key, _)| self.memory.left_over.get(key));
                let told = stay.find(|left| left.told);
                if let Some(why) = told.map(|left| left.message.clone()) {
                    self.tell_stays(node, &format!("it is being deleted: {why}"))
                        .await?;
                }
                return Ok(again);
            }
            // What has finalizers of its own goes later; its event brings us back.
            if deletion.take_down.is_empty() {
                let now = clock::now();
                let since = *self.memory.waits_since.get_or_insert(now);
                let tell_at = since.checked_add(TOLD_EVERY).unwrap_or(now);
                if tell_at > now {
                    return Ok(again.min(Some(tell_at)));
                }
                let why = status::waits_for(&deletion.going);
                self.tell_stays(node, &why).await?;
                self.memory.waits_since = Some(now);
                return Ok(again);
            }
            self.memory.waits_since = None;
        };
        let mut recorded = record.kinds().iter();
        let unseen = recorded.find(|kind| kinds.unlisted.contains(*kind));
        let unlisted = unseen.map(|kind| {
            format!(
                "the lynqnode stays until its objects of kind {kind} are gone, which the operator cannot list: see that the \
                 API server serves them, and that the operator may get, list, watch and delete them"
            )
        });
        let outside = kinds.outside.as_ref().map(|object| {
            format!(
                "the lynqnode stays until {object} is gone, which is in a namespace that lynqgate does not watch: add the namespace \
                 to --watch-namespaces, so that lynqgate deletes the object"
            )
        });
        let unread = not_taken_over.unread.first().map(|why| {
            format!(
                "the lynqnode stays until lynqgate knows which objects Lynq created for it: {why}"
            )
        });
        if let Some(text) = outside.or(unlisted).or(unread) {
            tracing::warn!(node = %node.key, text);
            let about = About::new("LynqNode", &node.key.namespace, &node.key.name, &node.uid);
            self.tell_stays(node, &text).await?;
            self.world
                .events
                .tell(&about, EventReason::CleanupPartialFailure, text);
            return Ok(again);
        }
        if let (Some(what), true) = (not_taken_over.unclear.first(), node.has_finalizer) {
            let more = match not_taken_over.unclear.len() {
                1 => String::new(),
                all => format!(" (and {} more)", all - 1),
            };
            let text = format!(
                "lynqgate cannot find the object that Lynq recorded as {what}{more}. If it exists, it stays: delete it by hand"
            );
            tracing::warn!(node = %node.key, text);
            let about = About::new("LynqNode", &node.key.namespace, &node.key.name, &node.uid);
            self.world
                .events
                .tell(&about, EventReason::CleanupPartialFailure, text);
        }
        self.let_go(node).await?;
        Ok(None)
    }

    /// Nobody should take for ready what is only still there.
    async fn tell_stays(&self, node: &NodeDigest, why: &str) -> Result<(), ApiError> {
        let status = status::going(node, why, clock::now());
        if *node.status != status {
            let patch = json!({"metadata": {"resourceVersion": node.resource_version}, "status": {"readyResources": status.ready_resources, "conditions": status.conditions}});
            match self.world.objects.merge_status(&self.own(), &patch).await {
                Ok(written) => drop(self.world.nodes.learn(&written)),
                Err(ApiError::NotFound(_) | ApiError::Conflict(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn let_go(&self, node: &NodeDigest) -> Result<(), ApiError> {
        if !node.has_finalizer {
            let why = "it is being deleted, and its objects are gone, or left behind as their deletionPolicy says; something \
                       else keeps it: see its metadata.finalizers";
            return self.tell_stays(node, why).await;
        }
        let object = self.world.objects.get(&self.own()).await?;
        let position = object["metadata"]["finalizers"]
            .as_array()
            .and_then(|all| all.iter().position(|f| f == names::NODE_FINALIZER));
        if let Some(position) = position.filter(|_| object["metadata"]["uid"] == node.uid.as_str())
        {
            let path = format!("/metadata/finalizers/{position}");
            let patch = json!([{"op": "test", "path": path, "value": names::NODE_FINALIZER}, {"op": "remove", "path": path}]);
            let patch = serde_json::from_value(patch).expect("a JSON patch");
            self.world.objects.json_patch(&self.own(), patch).await?;
            let about = About::new("LynqNode", &node.key.namespace, &node.key.name, &node.uid);
            let text = "its objects are gone, or left behind as their deletionPolicy says";
            self.world
                .events
                .tell(&about, EventReason::LynqNodeDeleted, text);
        }
        Ok(())
    }
}
