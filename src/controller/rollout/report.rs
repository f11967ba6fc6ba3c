//! What the release loop writes for people: the statuses of hub and forms, and events for what a person wants to know.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::api::conditions::{self, Condition, ConditionReason, ConditionState, kstatus};
use crate::api::events::EventReason;
use crate::api::form::{FormRolloutStatus, FormStatus, Phase};
use crate::cluster::catalog::Form;
use crate::cluster::clock::{self, Instant};
use crate::cluster::events::About;
use crate::cluster::objects::ApiError;
use crate::controller::World;
use crate::controller::rollout::refused::{CONFLICTS_MAX, LASTING};
use crate::controller::rollout::snapshot::View;
use crate::controller::rollout::{Pass, REQUESTS_MAX, RolloutReconciler};
use crate::decide::child::ObjectKey;
use crate::decide::node::digest::NodeDigest;
use crate::decide::rollout::Plan;
use crate::decide::rollout::history::{self, Reverted};
use crate::decide::rollout::not_reached;
use crate::decide::rollout::reason::{Names, Reason};
use crate::decide::rollout::status::{Force, FormState, ROLLOUT_COMPLETE, windows};
use crate::decide::shared::backoff::Backoff;

/// A form's status is written at once when its phase changes, its counts at most this often.
const FORM_STATUS_EVERY: Duration = Duration::from_secs(1);
const HUB_STATUS_EVERY: Duration = Duration::from_secs(1);
/// Between two tries to set a failed form back.
const REVERT_EVERY: Duration = Duration::from_secs(30);

/// When the statuses were written last.
#[derive(Default)]
pub struct Written {
    forms: BTreeMap<String, Turn>,
    hub: Turn,
    /// Forms that are gone, whose nodes wait.
    formless: BTreeSet<String>,
}

/// The writes of one object's status.
#[derive(Default)]
struct Turn {
    last: Option<Instant>,
    /// How many failed in a row.
    failed: u32,
    /// How many of a form met another version of it, in a row.
    conflicts: u32,
    /// When the form was set back last, or could not be.
    reverted: Option<Instant>,
    /// Of a form, by its uid: what its status was before a write of which nobody knows whether it went through. What changed
    /// since is to be told.
    untold: Option<(String, FormStatus)>,
}

impl Turn {
    /// How long the next one has to wait; `every` is the time between two that go through.
    fn wait(&self, every: Duration) -> Option<Duration> {
        let every = match self.failed {
            0 => every,
            times => Backoff::RELEASE.after(times),
        };
        let since = self.last?.elapsed();
        (since < every).then(|| every - since)
    }

    /// What the form was when its events were told last, if that is not known to be what its status says now.
    fn take_untold(&mut self, form: &Form) -> Option<FormStatus> {
        let (uid, before) = self.untold.take()?;
        (uid == form.uid).then_some(before)
    }

    /// Takes how a write ended. That it fails is no reason to leave the rest undone; once it lasts, it is told.
    fn note(&mut self, world: &World, about: &About, ended: Result<(), ApiError>) {
        self.last = Some(clock::instant());
        let Err(error) = ended else {
            self.failed = 0;
            return;
        };
        self.failed = self.failed.saturating_add(1);
        let text = format!(
            "the status cannot be written, and is not up to date: {error}; it is tried again, at the latest after 30 s"
        );
        tracing::warn!(object = %about.key, text);
        if self.failed == LASTING {
            world.events.tell(about, EventReason::StatusRefused, text);
        }
    }
}

impl RolloutReconciler<'_> {
    /// `forms`: those whose statuses may be written.
    pub async fn write_statuses(
        &self,
        pass: &Pass<'_>,
        forms: &[Arc<Form>],
        written: &mut Written,
    ) -> Option<Duration> {
        let hub = pass.hub;
        let forms = self.write_forms(forms, pass.plan, written).await;
        let nodes = self.memory.views.nodes();
        let ready = nodes.iter().filter(|node| node.is_ready).count() as i32;
        let is_late = |node: &View| pass.plan.failed.contains(&*node.digest.key.name);
        let failed = nodes.iter().filter(|node| node.has_failed || is_late(node));
        let failed = failed.count() as i32;
        if (hub.status.ready, hub.status.failed) == (Some(ready), Some(failed)) {
            return forms;
        }
        if let Some(wait) = written.hub.wait(HUB_STATUS_EVERY) {
            return Some(forms.map_or(wait, |other| other.min(wait)));
        }
        let patch = json!({"status": {"ready": ready, "failed": failed}});
        let key = ObjectKey::own("LynqHub", &self.key.0, &self.key.1);
        let ended = self.world.objects.merge_status(&key, &patch).await;
        let ended = ended.map(|object| drop(self.world.hubs.learn(&object)));
        let about = About::new("LynqHub", &hub.namespace, &hub.name, &hub.uid);
        written.hub.note(self.world, &about, ended);
        let failed = written.hub.wait(Duration::ZERO);
        forms.into_iter().chain(failed).min()
    }

    /// Writes the statuses of the forms; returns when to come back for one that was written a moment ago. `planned`: those
    /// that the plan is about.
    pub async fn write_forms(
        &self,
        planned: &[Arc<Form>],
        plan: &Plan,
        written: &mut Written,
    ) -> Option<Duration> {
        self.note_formless(plan, written);
        let forms = self.world.forms_of(&self.key);
        written
            .forms
            .retain(|name, _| forms.iter().any(|form| form.name == *name));
        let edited = self.memory.views.nodes().iter();
        let edited = edited.filter(|node| node.runs_edit);
        let edited = edited_of(edited.map(|node| node.digest.as_ref()));
        let hub = self.world.hubs.get(&self.key.0, &self.key.1);
        let of_hub = hub.as_ref().map(|hub| hub.status.conditions.as_slice());
        let mut again: Option<Duration> = None;
        let (mut due, mut reverted) = (vec![], vec![]);
        for form in forms {
            // One that was made anew meanwhile is another.
            if !planned.iter().any(|planned| planned.uid == form.uid) {
                continue;
            }
            let state = plan.forms.get(&form.name);
            if let Some(state) = state {
                self.world.metrics.rollout(&self.key, &form.name, state);
            }
            let error = self.invalid(&form);
            let of_form = edited.get(&form.name);
            let with_edited = of_form.and_then(|names| Some(state?.clone().with_edited(names)));
            let told = with_edited.as_ref().or(state);
            let of_hub = of_hub.unwrap_or_default();
            let status = form_status(&form, told, error, of_hub, clock::now());
            let turn = written.forms.entry(form.name.clone()).or_default();
            if let Some(to) = self.reverts(&form, &status) {
                let waited = turn.reverted.map_or(REVERT_EVERY, |at| at.elapsed());
                let mut wait = REVERT_EVERY.saturating_sub(waited);
                if wait.is_zero() {
                    turn.reverted = Some(clock::instant());
                    reverted.push((form.clone(), to.to_owned()));
                    wait = REVERT_EVERY;
                }
                again = again.into_iter().chain([wait]).min();
            }
            if status == form.status {
                turn.conflicts = 0;
                if let Some(before) = turn.take_untold(&form) {
                    self.announce(&form, &before, &status, state);
                }
                continue;
            }
            let phase = |status: &FormStatus| status.rollout.as_ref().map(|r| r.phase);
            let urgent = phase(&status) != phase(&form.status)
                || reason(&status) != reason(&form.status)
                || valid(&status) != valid(&form.status)
                || form.status.observed_generation != status.observed_generation;
            let every = match urgent {
                true => Duration::ZERO,
                false => FORM_STATUS_EVERY,
            };
            if let Some(wait) = turn.wait(every) {
                again = Some(again.map_or(wait, |other| other.min(wait)));
                continue;
            }
            due.push((form, status, state));
        }
        for some in due.chunks(REQUESTS_MAX) {
            let sent = some
                .iter()
                .map(|(form, status, _)| self.write_form(form, status));
            for ((form, status, state), ended) in some.iter().zip(join_all(sent).await) {
                let about = About::new("LynqForm", &form.namespace, &form.name, &form.uid);
                let turn = written.forms.entry(form.name.clone()).or_default();
                match &ended {
                    Ok(()) => {
                        let before = turn.take_untold(form);
                        let before = before.unwrap_or_else(|| form.status.clone());
                        self.announce(form, &before, status, *state);
                    }
                    Err(ApiError::Unavailable(_)) => {
                        let before = turn.take_untold(form);
                        let before = before.unwrap_or_else(|| form.status.clone());
                        turn.untold = Some((form.uid.clone(), before));
                    }
                    // The event of what somebody else wrote brings us back; this is for the case that it has come already.
                    Err(ApiError::Conflict(_)) if turn.conflicts < CONFLICTS_MAX => {
                        turn.conflicts += 1;
                        again = again.into_iter().chain([FORM_STATUS_EVERY]).min();
                        continue;
                    }
                    Err(_) => {}
                }
                if !matches!(ended, Err(ApiError::Conflict(_))) {
                    turn.conflicts = 0;
                }
                turn.note(self.world, &about, ended);
                again = again.into_iter().chain(turn.wait(Duration::ZERO)).min();
            }
        }
        self.world.forms_told.notify_waiters();
        for (form, to) in reverted {
            if let Err(error) = self.revert(&form, &to).await {
                let text = format!(
                    "the form cannot be set back to revision {to} (rollout.onFailure: Revert): {error}; it is tried again after {} s",
                    REVERT_EVERY.as_secs()
                );
                tracing::warn!(form = form.name, text);
                let about = About::new("LynqForm", &form.namespace, &form.name, &form.uid);
                (self.world.events).tell(&about, EventReason::RolloutReverted, text);
            }
        }
        again
    }

    /// The revision that the form is set back to: it has failed, and its status says so.
    fn reverts<'a>(&self, form: &'a Form, status: &'a FormStatus) -> Option<&'a str> {
        let spec = form.spec.as_ref().ok()?;
        let reverted = Reverted::of(&form.annotations).map(|reverted| reverted.from);
        let decisions = &self.world.decisions;
        let to =
            |status: &'a FormStatus| decisions.reverts_to(spec, form.generation, status, reverted);
        to(status).and(to(&form.status))
    }

    /// A form that is gone has no status, so that what waits for it is told on the hub.
    fn note_formless(&self, plan: &Plan, written: &mut Written) {
        let mut formless: BTreeMap<&str, (&Reason, Vec<&Arc<str>>)> = BTreeMap::new();
        let hub = self.world.hubs.get(&self.key.0, &self.key.1);
        // Where the hub is gone too, nobody is left to tell.
        for (name, reason) in plan.waiting.iter().filter(|_| hub.is_some()) {
            if let Reason::NoForm { form, .. } = &**reason {
                let of_form = formless.entry(form).or_insert_with(|| (&**reason, vec![]));
                of_form.1.push(name);
            }
        }
        let now: BTreeSet<String> = formless.keys().map(|form| (*form).to_owned()).collect();
        // A form that is another hub's by now has its metrics there.
        let is_elsewhere = |form: &str| {
            let form = self.world.forms.get(&self.key.0, form);
            form.is_some_and(|form| form.hub_id != self.key.1)
        };
        for form in written.formless.difference(&now) {
            if !plan.forms.contains_key(form) && !is_elsewhere(form) {
                self.world.metrics.forget(&self.key.0, form);
            }
        }
        for (form, (reason, waiting)) in &formless {
            if !is_elsewhere(form) {
                let (code, count) = (reason.code(), waiting.len() as i64);
                (self.world.metrics).formless(&self.key, form, code, count);
            }
            if let Some(hub) = hub.as_ref().filter(|_| !written.formless.contains(*form)) {
                let about = About::new("LynqHub", &hub.namespace, &hub.name, &hub.uid);
                let names = Names::of(waiting.iter().copied());
                let text = format!("held: {names}: {}", reason.advice());
                let reason = EventReason::Of(reason.word());
                self.world.events.tell(&about, reason, text);
            }
        }
        written.formless = now;
    }

    async fn write_form(&self, form: &Form, status: &FormStatus) -> Result<(), ApiError> {
        self.record(form, status).await?;
        // A form that was deleted and made anew meanwhile must not inherit it.
        let version = json!({"resourceVersion": form.resource_version});
        let mut patch = json!({"metadata": version, "status": status});
        // A merge patch must name what it takes away.
        patch["status"]
            .as_object_mut()
            .map(|fields| fields.entry("rollout").or_insert(Value::Null));
        if let Some(Value::Object(rollout)) = patch.pointer_mut("/status/rollout") {
            for field in [
                "waiting",
                "window",
                "deadline",
                "wavesDone",
                "wavesLeft",
                "startTime",
                "completionTime",
                "estimatedCompletion",
                "message",
            ] {
                rollout.entry(field).or_insert(Value::Null);
            }
        }
        let key = ObjectKey::own("LynqForm", &form.namespace, &form.name);
        let object = self.world.objects.merge_status(&key, &patch).await?;
        self.world.forms.learn(&object);
        Ok(())
    }

    fn windows(&self, form: &Form, force: Option<Force>) -> String {
        let own = form
            .spec
            .as_ref()
            .ok()
            .and_then(|spec| spec.rollout.as_ref());
        let hub = self.world.hubs.get(&self.key.0, &self.key.1);
        let hub = hub.and_then(|hub| Some(hub.spec.as_ref().ok()?.rollout.as_ref()?.max_skew));
        let own = own.map(|own| own.max_skew).unwrap_or_default();
        windows(force, own, hub.unwrap_or_default())
    }

    /// Why the form cannot be rendered, if it cannot.
    fn invalid(&self, form: &Form) -> Option<(ConditionReason, String)> {
        let (namespace, name) = &self.key;
        if let Err(error) = &form.spec {
            return Some((ConditionReason::ValidationFailed, error.clone()));
        }
        let Some(hub) = self.world.hubs.get(namespace, name) else {
            return Some((
                ConditionReason::HubNotFound,
                format!(
                    "there is no LynqHub {name:?} in namespace {namespace}; create it, or delete this form"
                ),
            ));
        };
        if hub.deleting {
            let text = format!(
                "LynqHub {name:?} is being deleted: nothing of this form is rendered or released any more, and its nodes go with the hub. If it does not go, see its finalizers (kubectl describe lynqhub {name})"
            );
            return Some((ConditionReason::HubGoing, text));
        }
        if let Err(error) = &hub.spec {
            return Some((
                ConditionReason::HubInvalid,
                format!("LynqHub {name:?}: {error}"),
            ));
        }
        let rendered = self.world.rendered.lock();
        let error = rendered
            .get(&(form.namespace.clone(), form.name.clone()))?
            .error
            .clone()?;
        Some((
            ConditionReason::ValidationFailed,
            format!("{error}. Until this is corrected, the form's nodes stay as they are"),
        ))
    }

    /// Events for what a person wants to know: a rollout that ends, halts, or a form that is not valid.
    fn announce(
        &self,
        form: &Form,
        before: &FormStatus,
        status: &FormStatus,
        state: Option<&FormState>,
    ) {
        let about = About::new("LynqForm", &form.namespace, &form.name, &form.uid);
        let phase = |status: &FormStatus| status.rollout.as_ref().map(|r| r.phase);
        let message = status
            .rollout
            .as_ref()
            .map(|r| r.message.clone())
            .unwrap_or_default();
        let failed = |status: &FormStatus| status.rollout.as_ref().map(|r| r.failed_nodes);
        // One node after the other passes its deadline; the first event has not all of their names.
        let more_failed = phase(status) == Some(Phase::Failed) && failed(status) > failed(before);
        let began = |status: &FormStatus| status.rollout.as_ref().and_then(|r| r.start_time);
        // What failed before may halt a new rollout at once.
        let is_other = phase(status) != phase(before) || began(status) != began(before);
        if is_other || more_failed {
            match phase(status) {
                Some(Phase::Failed) => {
                    if is_other {
                        self.world.metrics.halted(&self.key, &form.name);
                    }
                    self.world
                        .events
                        .tell(&about, EventReason::RolloutHalted, message)
                }
                // What broke by itself, and is ready again, was no rollout.
                Some(Phase::Complete) if completed(status) != completed(before) => self
                    .world
                    .events
                    .tell(&about, EventReason::RolloutComplete, message),
                Some(Phase::Complete | Phase::InProgress | Phase::Paused | Phase::Idle) | None => {}
            }
        }
        let resumed = phase(before) == Some(Phase::Failed) && began(status) == began(before);
        if has_started(status)
            && !has_started(before)
            && !resumed
            && let Some(state) = state
        {
            let go = match state.blocked {
                Some(Reason::Paused { .. }) => "wait: rollout.paused is set",
                _ => "are released",
            };
            let windows = self.windows(form, state.force);
            let note = format!("nodes with changed content {go}; {windows}");
            self.world
                .events
                .tell(&about, EventReason::RolloutStarted, note);
        }
        if is_stalled(status) && !is_stalled(before) {
            self.world.metrics.halted(&self.key, &form.name);
            let rollout = status.rollout.as_ref();
            let text = rollout.map(|rollout| rollout.message.clone());
            self.world.events.tell(
                &about,
                EventReason::RolloutStalled,
                text.unwrap_or_default(),
            );
        }
        // A tenant that flaps would else be told at every turn.
        let news = |status| match reason(status) {
            Some(ConditionReason::Soaking) => Some(ConditionReason::WindowFull),
            word => word,
        };
        if news(status) != news(before)
            && let Some(blocked) = state.and_then(|state| state.blocked.as_ref())
        {
            // Each change has this reason for a moment; what keeps it longer has events of its own.
            let is_brief = blocked.word() == ConditionReason::NotRendered;
            let (word, told) = (EventReason::Of(blocked.word()), blocked.announcement());
            if !is_brief {
                self.world.events.tell(&about, word, told.to_string());
            }
        }
        if let Some(state) = state
            && is_throttled(state.blocked.as_ref().map(Reason::word))
            && !is_throttled(reason(before))
            && let Some(hub) = self.world.hubs.get(&self.key.0, &self.key.1)
        {
            let about = About::new("LynqHub", &hub.namespace, &hub.name, &hub.uid);
            let note = format!("LynqForm '{}': {}", form.name, state.throttled());
            self.world
                .events
                .tell(&about, EventReason::RolloutThrottled, note);
        }
        if valid(status) != valid(before)
            && let Some(condition) = status.conditions.iter().find(|c| c.type_ == "Valid")
            && let Some(word) = ConditionReason::named(&condition.reason)
        {
            let told = condition.message.to_string();
            self.world.events.tell(&about, EventReason::Of(word), told);
        }
    }
}

/// The nodes of each form that run content which was changed since the hub wrote it.
fn edited_of<'a>(nodes: impl Iterator<Item = &'a NodeDigest>) -> BTreeMap<String, Vec<String>> {
    let mut edited: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for node in nodes.filter(|node| node.runs_edit()) {
        let of_form = edited.entry(node.form.clone()).or_default();
        of_form.push(node.key.name.to_string());
    }
    edited
}

/// Nothing of a form that is not valid is on its way, nor is what broke by itself after its rollout.
fn has_started(status: &FormStatus) -> bool {
    let rollout = status.rollout.as_ref();
    let goes = rollout.is_some_and(|r| {
        matches!(r.phase, Phase::InProgress | Phase::Paused) && r.completion_time.is_none()
    });
    goes && conditions::is_true(&status.conditions, "Valid")
}

fn completed(status: &FormStatus) -> Option<Timestamp> {
    status.rollout.as_ref()?.completion_time
}

fn is_stalled(status: &FormStatus) -> bool {
    let stalled = |c: &conditions::Condition| {
        c.type_ == ROLLOUT_COMPLETE && c.reason == ConditionReason::Stalled.as_str()
    };
    status.conditions.iter().any(stalled)
}

/// Whether its nodes wait for a window, by the word why they wait.
fn is_throttled(word: Option<ConditionReason>) -> bool {
    matches!(
        word,
        Some(
            ConditionReason::WindowFull
                | ConditionReason::HubWindowFull
                | ConditionReason::DomainFull
                | ConditionReason::Soaking
        )
    )
}

/// Why its nodes wait, in a word.
fn reason(status: &FormStatus) -> Option<ConditionReason> {
    let condition = status.conditions.iter().find(|c| c.type_ == "Held");
    ConditionReason::named(&condition?.reason)
}

/// Whether the form is valid, and why not.
fn valid(status: &FormStatus) -> Option<(&str, &str)> {
    let condition = status.conditions.iter().find(|c| c.type_ == "Valid");
    condition.map(|c| (c.status.as_str(), c.message.as_str()))
}

/// `state` is absent for a form whose spec cannot be read: its counts stay as they were, but what they counted may have changed.
fn form_status(
    form: &Form,
    state: Option<&FormState>,
    error: Option<(ConditionReason, String)>,
    of_hub: &[Condition],
    now: Timestamp,
) -> FormStatus {
    let mut status = form.status.clone();
    let (mut states, mut generation) = (vec![], form.generation);
    if let Some(state) = state {
        generation = state.rollout.target_generation;
        status.observed_generation = Some(generation);
        status.total_nodes = Some(state.total_nodes);
        status.ready_nodes = Some(state.ready_nodes);
        // The planner calls a form stalled only while the status has the start of its rollout.
        let told = form.spec.as_ref().is_ok_and(|spec| spec.rollout.is_some())
            || state.is_told()
            || state.stalled.is_some();
        status.rollout = told.then(|| state.rollout.clone());
        if let Some(rollout) = &mut status.rollout {
            not_reached::add_cause(&mut rollout.waiting, error.as_ref(), of_hub);
        }
        states.clone_from(&state.conditions);
        if let Some(rollout) = &status.rollout {
            not_reached::tell_held(&rollout.waiting, &mut states);
        }
        if let (Ok(spec), None) = (&form.spec, &error)
            && generation == form.generation
        {
            let phase = state.rollout.phase;
            history::named(form.owner(), spec, &form.status, phase, &mut status);
        }
        let (reverted, before) = (Reverted::of(&form.annotations), &form.status);
        history::tell_reverted(reverted, &form.name, before, &mut status, &mut states);
    }
    // Nobody makes a node of it, or changes one, whatever there is to read of them.
    if let Some((ConditionReason::HubNotFound, text)) = &error {
        let complete = states.iter_mut().find(|s| s.type_ == ROLLOUT_COMPLETE);
        let rollout = status.rollout.as_mut().map(|rollout| &mut rollout.message);
        let messages = rollout.into_iter().chain(complete.map(|s| &mut s.message));
        messages.for_each(|message| message.clone_from(text));
    }
    if let (None, Some((reason, text))) = (state, &error) {
        states.push(ConditionState::new(ROLLOUT_COMPLETE, false, *reason, text));
        let over = |r: &&mut FormRolloutStatus| matches!(r.phase, Phase::Complete | Phase::Idle);
        if let Some(rollout) = status.rollout.as_mut().filter(over) {
            rollout.phase = Phase::InProgress;
            rollout.message.clone_from(text);
        }
    }
    let valid = match error {
        None => ConditionState::new(
            "Valid",
            true,
            ConditionReason::ValidationPassed,
            "All validations passed",
        ),
        Some((reason, message)) => ConditionState::new("Valid", false, reason, message),
    };
    states.push(valid);
    conditions::merge(&mut status.conditions, &states, Some(generation), now);
    kstatus::summarize_form(&mut status.conditions, now);
    status
}
