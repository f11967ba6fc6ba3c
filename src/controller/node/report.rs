//! Writes the status of a node: no sooner than it is worth a write, and what it says is decided elsewhere.

use futures::future::join;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::api::conditions::{self, Condition};
use crate::api::events::EventReason;
use crate::api::names;
use crate::api::node::NodeStatus;
use crate::api::stamp;
use crate::cluster::events::About;
use crate::cluster::objects::ApiError;
use crate::controller::node::NodeReconciler;
use crate::controller::node::confirm::confirm_ready;
use crate::controller::rollout::confirm::Reading;
use crate::decide::node::digest::NodeDigest;
use crate::decide::node::plan::status;
use crate::decide::node::plan::status::Hold;
use crate::decide::rollout::{Live, Way};

/// Many workloads are ready by then, and their nodes need one status for a release in place of two.
const PROGRESS_PATIENCE: SignedDuration = SignedDuration::from_secs(2);

/// What the loop remembers of its status writes.
#[derive(Default)]
pub struct ReportMemory {
    written: Option<Timestamp>,
    /// Since when there is something new of the hold that is not worth a write.
    hold_since: Option<Timestamp>,
    /// When it is worth one all the same.
    hold_at: Option<Timestamp>,
    /// Since when the status of a new release would say only that its workloads are not ready yet.
    progress_since: Option<Timestamp>,
    forced: bool,
    /// An event has said that it is forced.
    told_forced: bool,
    /// It was held when it was looked at last, and since when.
    held: Option<Option<Timestamp>>,
}

impl ReportMemory {
    /// Whoever let it go by force has counted that.
    pub fn went_by_force(&mut self) {
        (self.forced, self.held) = (true, None);
    }
}

impl NodeReconciler<'_> {
    /// Somebody goes past the window on purpose: that is worth an event.
    pub fn note_forced(&mut self, node: &NodeDigest) {
        let is_heeded = node.forced && !node.held();
        if is_heeded && !self.memory.report.told_forced {
            let about = About::new("LynqNode", &node.key.namespace, &node.key.name, &node.uid);
            let force = names::FORCE_ROLLOUT;
            let note = format!(
                "{force} is on it: its changes go live at once, past the window, until you remove it"
            );
            self.world.events.tell(&about, EventReason::Forced, note);
        }
        self.memory.report.told_forced = is_heeded;
        let was_forced = std::mem::replace(&mut self.memory.report.forced, node.forced);
        let held = node
            .held()
            .then(|| stamp::parse(node.held_since.as_deref()?));
        let before = std::mem::replace(&mut self.memory.report.held, held);
        // Only the gate saw that go. What the hub writes to a forced one is counted there.
        let by_force = node.forced && !was_forced;
        if let Some(since) = before.filter(|_| by_force && !node.held()) {
            let hub = node.hub_key();
            let metrics = &self.world.metrics;
            metrics.released(&hub, &node.form, Way::Forced, since);
        }
    }

    /// Why the node is held, if the release planner has said so.
    pub fn hold(&mut self, node: &NodeDigest, now: Timestamp) -> Option<Hold> {
        let hold = self.world.hold_of(node);
        let memory = &mut self.memory.report;
        let patience = status::patience(hold, status::told_hold(&node.status));
        // Where what runs is not known, the window waits for the status.
        if node.held() && node.live != Live::Unknown && !patience.is_zero() {
            let since = *memory.hold_since.get_or_insert(now);
            memory.hold_at = since.checked_add(patience).ok();
        } else {
            (memory.hold_since, memory.hold_at) = (None, None);
        }
        hold
    }

    /// Writes the status when it is due; returns when it will be, if not yet.
    pub async fn report(
        &mut self,
        node: &NodeDigest,
        mut new: NodeStatus,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, ApiError> {
        let not_taken_over = node.is_not_taken_over();
        if not_taken_over {
            new.applied_resources
                .clone_from(&node.status.applied_resources);
            new.applied_kinds.clone_from(&node.status.applied_kinds);
        }
        let memory = &self.memory.report;
        let due = status::due(&node.status, &new, memory.written, memory.hold_at, now);
        let Some(due) = due else {
            return Ok(None);
        };
        if due > now {
            return Ok(Some(due));
        }
        let memory = &mut self.memory.report;
        if status::is_only_progress(&node.status, &new) {
            // A clock that went back must not put it off for long.
            let since = memory.progress_since.unwrap_or(now).min(now);
            memory.progress_since = Some(since);
            let at = since.checked_add(PROGRESS_PATIENCE).unwrap_or(now);
            if at > now {
                return Ok(Some(at));
            }
        }
        // What another process has seen since stays.
        if new.landed_release == node.status.landed_release {
            new.landed_release = None;
        }
        // The release loop's own.
        (new.slot_given_up, new.freed_release) = (None, None);
        let mut told = json!(new);
        // A patch must name what it takes away.
        for field in [
            "observedHash",
            "observedStartTime",
            "skippedResourceIds",
            "appliedResources",
            "appliedKinds",
            "completedJobs",
            "appliedFieldsHash",
        ] {
            if told.get(field).is_none() {
                told[field] = Value::Null;
            }
        }
        // The hub may have completed what Lynq recorded.
        if not_taken_over && let Some(status) = told.as_object_mut() {
            status.remove("appliedResources");
            status.remove("appliedKinds");
        }
        // Its slot is free once both are done: the workloads are read while the status is written.
        let (written, reading) = join(
            self.write_status(node, &told),
            self.read_ready(node, &new.conditions),
        )
        .await;
        let learnt = self.world.nodes.learn(&written?);
        let same_release =
            (&learnt.uid, &learnt.live, &learnt.start) == (&node.uid, &node.live, &node.start);
        if let Some(reading) = reading.filter(|_| same_release) {
            reading.confirms(&learnt);
        }
        if let Some(news) = status::edit_news(&node.status, &new) {
            let about = About::new("LynqNode", &node.key.namespace, &node.key.name, &node.uid);
            let events = &self.world.events;
            events.tell(&about, EventReason::Edited, news.to_owned());
        }
        let memory = &mut self.memory.report;
        (memory.written, memory.hold_since, memory.progress_since) = (Some(now), None, None);
        self.world.rollout_queue.add(node.hub_key());
        Ok(None)
    }

    /// The live read for a node whose slot is free once its new status has these conditions; None if its workloads are not
    /// ready. Then, as without a read, the release loop reads them itself.
    async fn read_ready(&self, node: &NodeDigest, conditions: &[Condition]) -> Option<Reading<'_>> {
        let hub = self.world.hubs.get(&node.key.namespace, &node.hub)?;
        let mut slots = hub.status.rollout.iter().flat_map(|rollout| &rollout.slots);
        let slot = slots.find(|slot| slot.uid == node.uid)?;
        if slot.min_ready_seconds > 0 || !conditions::is_true(conditions, "Rolled") {
            return None;
        }
        let reading = Reading::begin(self.world, node);
        let is_ready = confirm_ready(self.world, node).await.unwrap_or(false);
        is_ready.then_some(reading)
    }

    /// Writes to the status of this very node: one that was deleted and made again meanwhile must not inherit it.
    pub async fn write_status(&self, node: &NodeDigest, told: &Value) -> Result<Value, ApiError> {
        let (objects, key) = (&self.world.objects, self.own());
        if *node.status != NodeStatus::default() {
            return objects.patch_status(&key, &node.uid, told).await;
        }
        // There may be no status yet that a patch could go to.
        let version = json!({"resourceVersion": node.resource_version});
        let patch = json!({"metadata": version, "status": told});
        objects.merge_status(&key, &patch).await
    }
}
