//! Objects that should not be there any more and that the API server does not let go.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::api::events::EventReason;
use crate::cluster::clock::{self, Instant};
use crate::cluster::events::About;
use crate::cluster::objects::ApiError;
use crate::controller::node::{LASTING, NodeReconciler, apply};
use crate::decide::child::{Child, ObjectKey};
use crate::decide::node::digest::NodeDigest;
use crate::decide::node::plan::{NodePlan, TakeDown};
use crate::decide::shared::backoff::Backoff;

pub type LeftOvers = BTreeMap<ObjectKey, LeftOver>;

/// Why an object is still there that should not be, and when it is tried again to take it down.
pub struct LeftOver {
    pub message: String,
    retry_at: Instant,
    /// How often in a row it was tried.
    times: u32,
    /// There was an event.
    pub told: bool,
}

impl NodeReconciler<'_> {
    pub fn put_off_until(&self, key: &ObjectKey) -> Option<Timestamp> {
        let left = self.memory.left_over.get(key)?;
        let wait = left.retry_at.saturating_duration_since(clock::instant());
        let wait = SignedDuration::try_from(wait).ok()?;
        // What may be tried now is not put off, not even to this very moment.
        (!wait.is_zero()).then(|| clock::now().checked_add(wait).ok())?
    }

    /// What was refused a moment ago is not tried again at once; returns when it is.
    pub fn put_off_left_over(&self, plan: &mut NodePlan) -> Option<Timestamp> {
        let (mut first, mut messages) = (None::<Timestamp>, vec![]);
        plan.take_down.retain(|(key, _)| {
            let Some(until) = self.put_off_until(key) else {
                return true;
            };
            first = first.into_iter().chain([until]).min();
            messages.push(self.memory.left_over[key].message.clone());
            false
        });
        plan.left_over = messages;
        first
    }

    /// Takes an object down. That it is refused, or fails again and again, is told, and no reason to leave the rest undone;
    /// false then.
    pub async fn take_down(
        &mut self,
        node: &NodeDigest,
        (key, child): (&ObjectKey, &Child),
        how: TakeDown,
        why: &str,
    ) -> Result<bool, ApiError> {
        let taken = apply::take_down(self.world, node, key, child, how, why).await;
        let Err(error) = taken else {
            self.memory.left_over.remove(key);
            return Ok(true);
        };
        let message = format!(
            "{} {} cannot be taken down: {error}; it is tried again",
            key.kind.kind, key.name
        );
        let before = self.memory.left_over.remove(key);
        let times = before
            .as_ref()
            .map_or(1, |before| before.times.saturating_add(1));
        let told =
            matches!(error, ApiError::Refused(_) | ApiError::Invalid { .. }) || times >= LASTING;
        let said = before.filter(|before| before.told && before.message == message);
        if told && said.is_none() {
            let about = About::new("LynqNode", &node.key.namespace, &node.key.name, &node.uid);
            tracing::warn!(node = %node.key, message);
            self.world
                .events
                .tell(&about, EventReason::DeletionFailed, message.clone());
        }
        let wait = match told {
            true => Backoff::NO_EVENT.first,
            false => Duration::ZERO,
        };
        let left = LeftOver {
            message,
            retry_at: clock::instant() + wait,
            times,
            told,
        };
        self.memory.left_over.insert(key.clone(), left);
        // The first times it may be an accident: the whole look is made again.
        if told { Ok(false) } else { Err(error) }
    }
}
