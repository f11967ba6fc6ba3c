//! Events for what becomes of a node's resources: one for each piece of news, not for each attempt.

use std::sync::Arc;

use jiff::Timestamp;

use crate::api::events::EventReason;
use crate::cluster::clock;
use crate::cluster::events::About;
use crate::cluster::objects::ApiError;
use crate::controller::World;
use crate::controller::node::{NodeReconciler, ResourceMemory};
use crate::decide::node::digest::{Facts, NodeDigest};
use crate::decide::node::graph::State;
use crate::decide::node::plan::news::Trouble;
use crate::decide::node::plan::{self, Failure, FailureKind, NodePlan, Premise, StepKind, news};
use crate::decide::shared::backoff::Backoff;

impl NodeReconciler<'_> {
    /// Events for what became of its resources. Also for what failed without a request: a kind that is not there, an object that
    /// is somebody else's.
    pub fn note_outcomes(&mut self, node: &NodeDigest, plan: &NodePlan, now: Timestamp) {
        let applied = std::mem::take(&mut self.memory.applied);
        for (facts, outcome) in node.facts.iter().zip(&plan.outcomes) {
            let failed = outcome.state == State::ApplyFailed && outcome.step == StepKind::Go;
            let memory = self.memory.resource_mut(&facts.id);
            // That it goes on is news when something is written.
            let said = |trouble: &&Trouble| {
                !matches!(trouble, Trouble::Proceeded { .. }) || applied.contains(&facts.id)
            };
            if memory.trouble != outcome.trouble
                && let Some(trouble) = outcome.trouble.as_ref().filter(said)
            {
                let (reason, text) = trouble.event(&facts.id, &outcome.message);
                warn(self.world, node, reason, text);
            }
            memory.trouble.clone_from(&outcome.trouble);
            let known = memory.failure.as_ref().map(|failure| &failure.message);
            // The hub speaks of what does not render.
            if !failed || facts.render_error.is_some() || known == Some(&outcome.message) {
                continue;
            }
            let failure = Failure {
                kind: match outcome.conflict {
                    true => FailureKind::Conflict,
                    false => FailureKind::Refused,
                },
                message: outcome.message.clone(),
                retry_at: now,
                premise: Premise::default(),
            };
            fail(memory, self.world, node, facts, failure);
        }
        if applied.is_empty() {
            return;
        }
        let ids = node.facts.iter().map(|facts| facts.id.as_str());
        let done: Vec<&str> = ids.filter(|id| applied.contains(*id)).collect();
        let failed: Vec<&str> = (node.facts.iter().zip(&plan.outcomes))
            .filter(|(_, outcome)| {
                outcome.state == State::ApplyFailed && outcome.step == StepKind::Go
            })
            .map(|(facts, _)| facts.id.as_str())
            .collect();
        let (reason, text) = news::applied(&node.form, &done, &failed);
        match failed.is_empty() {
            true => self.world.events.tell(&about(node), reason, text),
            false => warn(self.world, node, reason, text),
        }
    }
}

fn about(node: &NodeDigest) -> About {
    About::new("LynqNode", &node.key.namespace, &node.key.name, &node.uid)
}

fn warn(world: &World, node: &NodeDigest, reason: EventReason, text: String) {
    tracing::warn!(node = %node.key, reason = reason.as_str(), text);
    world.events.tell(&about(node), reason, text);
}

/// Takes how an apply ended: with the hash of the fields that we own now, with a deleted object (None), or in an error.
pub fn note(
    memory: &mut ResourceMemory,
    world: &World,
    node: &NodeDigest,
    facts: &Facts,
    premise: Premise,
    result: Result<Option<String>, ApiError>,
) {
    let now = clock::now();
    let error = match result {
        Ok(fields_hash) => {
            memory.failure = None;
            memory.failures = 0;
            if fields_hash.is_none() {
                return;
            }
            memory.fields_hash = fields_hash.map(Arc::from);
            memory.applies.note(now);
            memory.was_ready = false;
            memory.waiting_since = Some(now);
            return;
        }
        Err(error) => error,
    };
    memory.failures = memory.failures.saturating_add(1);
    let wait = Backoff::APPLY.after(memory.failures);
    let kind = match error {
        ApiError::Conflict(_) | ApiError::FieldsTaken(_) => FailureKind::Conflict,
        ApiError::NotFound(_)
        | ApiError::Refused(_)
        | ApiError::Invalid { .. }
        | ApiError::Unavailable(_) => FailureKind::Refused,
    };
    let failure = Failure {
        kind,
        message: error.to_string(),
        retry_at: now.checked_add(wait).unwrap_or(now),
        premise,
    };
    fail(memory, world, node, facts, failure);
}

/// Remembers the failure; one event for each new way to fail, not for each attempt.
fn fail(
    memory: &mut ResourceMemory,
    world: &World,
    node: &NodeDigest,
    facts: &Facts,
    failure: Failure,
) {
    if failure.kind == FailureKind::Conflict {
        let mut conflicts = world.conflicts.lock();
        let of_node = conflicts.entry(node.key.clone()).or_default();
        *of_node
            .entry((facts.kind.kind.clone(), facts.conflict_policy))
            .or_default() += 1;
    }
    if memory.failure.as_ref().map(|f| &f.message) != Some(&failure.message) {
        let reason = match failure.kind {
            FailureKind::Conflict => EventReason::ResourceConflict,
            FailureKind::Refused => EventReason::ApplyFailed,
        };
        let object = plan::status::named(facts);
        let text = format!("Resource {:?}, {object}: {}", facts.id, failure.message);
        warn(world, node, reason, text);
    }
    memory.failure = Some(Box::new(failure));
}
