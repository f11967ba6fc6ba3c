//! The revisions of a form: what is written when the form changes and when its rollout is complete, and how a form is set
//! back to one. As with a StatefulSet, each is a ControllerRevision that the form owns, so that it goes with the form.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::api::conditions::{self, ConditionReason, ConditionState, kstatus};
use crate::api::form::{FormSpec, FormStatus, Phase};
use crate::api::policy::{OnFailure, Rollout};
use crate::api::{names, stamp};
use crate::decide::child::{Kind, ObjectKey};
use crate::decide::rollout::reason::Advice;
use crate::decide::rollout::status::ROLLOUT_COMPLETE;
use crate::decide::shared::content;

/// Digits of the hash in a revision's name.
const DIGITS: usize = 10;
/// Bytes of the form's name in it: an object's name has at most 253.
const NAME_MAX: usize = 240;

/// A ControllerRevision, as far as it is read.
#[derive(Clone, Debug, PartialEq)]
pub struct Revision {
    pub name: String,
    /// The newest has the highest.
    pub number: i64,
    /// When the form had this content first, and when its rollout was complete last.
    pub created: Option<Timestamp>,
    pub completed: Option<Timestamp>,
    /// The form's spec without `rollout`.
    pub content: Value,
}

impl Revision {
    pub fn of(object: &Value) -> Revision {
        let metadata = &object["metadata"];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let time = |value: &Value| stamp::parse(value.as_str()?);
        Revision {
            name: text(&metadata["name"]).unwrap_or_default(),
            number: object["revision"].as_i64().unwrap_or_default(),
            created: time(&metadata["creationTimestamp"]),
            completed: time(&metadata["annotations"][names::COMPLETED_AT]),
            content: object["data"].clone(),
        }
    }
}

/// The form that revisions are of.
#[derive(Clone, Copy)]
pub struct Owner<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    pub uid: &'a str,
}

pub fn key(namespace: &str, name: &str) -> ObjectKey {
    let kind = Kind {
        api_version: "apps/v1".to_owned(),
        kind: "ControllerRevision".to_owned(),
    };
    ObjectKey {
        kind: kind.into(),
        namespace: namespace.into(),
        name: name.to_owned(),
    }
}

/// Selects the revisions of a form.
pub fn selector(form_uid: &str) -> String {
    format!("{}={form_uid}", names::LABEL_FORM_UID)
}

impl Owner<'_> {
    /// The name of the revision with the content of this spec. A form that was deleted and made again has others.
    pub fn revision_of(&self, spec: &FormSpec) -> String {
        let hash = content::hash_value(&json!([self.uid, content_of(spec)]));
        let end = self.name.floor_char_boundary(NAME_MAX);
        format!("{}-{}", &self.name[..end], &hash[..DIGITS])
    }
}

fn content_of(spec: &FormSpec) -> Value {
    let mut content = serde_json::to_value(spec).unwrap_or_default();
    if let Some(fields) = content.as_object_mut() {
        fields.remove("rollout");
    }
    content
}

/// Names the revisions in the form's new status. `before`: as it was written last, so that nothing is hashed while the generation
/// stays. `phase`: of the rollout of this generation.
pub fn named(
    owner: Owner,
    spec: &FormSpec,
    before: &FormStatus,
    phase: Phase,
    status: &mut FormStatus,
) {
    let same = before.observed_generation == status.observed_generation;
    if !same || before.update_revision.is_none() {
        status.update_revision = Some(owner.revision_of(spec));
    }
    if phase == Phase::Complete {
        status.current_revision.clone_from(&status.update_revision);
    }
}

/// What is written so that the newest revision is there.
#[derive(Clone, Debug, PartialEq)]
pub enum Recorded {
    There,
    Create(Value),
    /// A merge patch: it is an older one that gets the highest number.
    Renumber(Value),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    pub newest: Recorded,
    /// Names of those beyond the limit: the ones that never completed, then the oldest.
    pub delete: Vec<String>,
}

/// `there`: the form's revisions. `status` names those that stay in any case.
pub fn record(owner: Owner, spec: &FormSpec, status: &FormStatus, there: &[Revision]) -> Recording {
    let name = status.update_revision.as_deref().unwrap_or_default();
    let last = there.iter().map(|revision| revision.number).max();
    let number = last.unwrap_or_default() + 1;
    let newest = match there.iter().find(|revision| revision.name == name) {
        None => Recorded::Create(json!({
            "apiVersion": "apps/v1", "kind": "ControllerRevision",
            "metadata": {
                "namespace": owner.namespace, "name": name,
                "labels": {names::LABEL_FORM_UID: owner.uid},
                "ownerReferences": [{
                    "apiVersion": format!("{}/{}", names::GROUP, names::VERSION), "kind": "LynqForm",
                    "name": owner.name, "uid": owner.uid, "controller": true, "blockOwnerDeletion": false,
                }],
            },
            "revision": number,
            "data": content_of(spec),
        })),
        Some(revision) if Some(revision.number) != last => {
            Recorded::Renumber(json!({"revision": number}))
        }
        Some(_) => Recorded::There,
    };
    let default = Rollout::default();
    let policy = spec.rollout.as_ref().unwrap_or(&default);
    let limit = policy.revision_history_limit as usize;
    let all = there.len() + usize::from(matches!(newest, Recorded::Create(_)));
    let stays = |revision: &&Revision| {
        let named = [&status.update_revision, &status.current_revision];
        named
            .into_iter()
            .flatten()
            .any(|name| *name == revision.name)
    };
    let mut first: Vec<&Revision> = there.iter().filter(|r| !stays(r)).collect();
    first.sort_by_key(|revision| (revision.completed.is_some(), revision.number));
    let surplus = first.into_iter().take(all.saturating_sub(limit));
    Recording {
        newest,
        delete: surplus.map(|revision| revision.name.clone()).collect(),
    }
}

/// A merge patch of a revision whose rollout is complete.
pub fn completed(now: Timestamp) -> Value {
    json!({"metadata": {"annotations": {names::COMPLETED_AT: stamp::format(now)}}})
}

/// A merge patch that sets a form back to the content of a revision and leaves its policy alone. `spec`: as it is now. All
/// fields are lists or plain values, which a merge patch replaces whole.
pub fn set_back(spec: &Value, content: &Value) -> Value {
    let now = spec.as_object().into_iter().flatten();
    let now = now.map(|(field, _)| (field.clone(), Value::Null));
    let mut fields: Map<String, Value> = now.filter(|(field, _)| field != "rollout").collect();
    let content = content.as_object().into_iter().flatten();
    fields.extend(content.map(|(field, value)| (field.clone(), value.clone())));
    json!({"spec": fields})
}

/// What the annotation [`names::REVERTED`] of a form says: the operator took `from` back, and set the form back to `to`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reverted<'a> {
    pub from: &'a str,
    /// None where the annotation names one revision only: then nobody knows whether the form is still what it was set back to.
    pub to: Option<&'a str>,
}

impl<'a> Reverted<'a> {
    pub fn of(annotations: &'a BTreeMap<String, String>) -> Option<Self> {
        let value = annotations.get(names::REVERTED)?.as_str();
        let (from, to) = match value.split_once('/') {
            Some((from, to)) => (from, Some(to)),
            None => (value, None),
        };
        Some(Reverted { from, to })
    }

    /// Whether the form is still what the operator set it back to: its revision is `to`, and has been since it was `from`. A
    /// person who comes back to `to` later takes nothing back. `before`: the status as it was written last.
    fn lasts(self, before: &FormStatus, now: &FormStatus) -> bool {
        let is = |status: &FormStatus, name: &str| status.update_revision.as_deref() == Some(name);
        let is_told = conditions::is_true(&before.conditions, kstatus::REVERTED);
        self.to.is_some_and(|to| is(now, to)) && (is_told || is(before, self.from))
    }

    fn advice(self, form: &str, complete: bool) -> Advice {
        let Reverted { from, to } = self;
        let to = to.unwrap_or_default();
        let back = match complete {
            true => format!("every node runs revision {to}"),
            false => format!("the nodes go back to revision {to}"),
        };
        Advice {
            why: format!("revision {from} failed, and lynqgate took it back; {back}"),
            next: after_revert(form),
        }
    }
}

/// The value of the annotation.
impl fmt::Display for Reverted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.from)?;
        self.to.map_or(Ok(()), |to| write!(f, "/{to}"))
    }
}

/// What is left to do once a change was taken back.
pub fn after_revert(form: &str) -> String {
    format!(
        "correct the change and apply it (with kubectl apply --server-side --force-conflicts); or keep what runs: kubectl annotate \
         lynqform {form} {}-",
        names::REVERTED
    )
}

/// Brings the condition Reverted of a form to its new status: in `states` where it is True, and out of `status` where it is not.
/// `states`: the others. `before`: the status as it was written last.
pub fn tell_reverted(
    reverted: Option<Reverted>,
    form: &str,
    before: &FormStatus,
    status: &mut FormStatus,
    states: &mut Vec<ConditionState>,
) {
    let Some(reverted) = reverted.filter(|reverted| reverted.lasts(before, status)) else {
        status
            .conditions
            .retain(|told| told.type_ != *kstatus::REVERTED);
        return;
    };
    let is_complete = |state: &ConditionState| state.type_ == ROLLOUT_COMPLETE && state.status;
    let advice = reverted.advice(form, states.iter().any(is_complete));
    let reason = ConditionReason::Reverted;
    let told = ConditionState::new(kstatus::REVERTED, true, reason, advice.to_string());
    states.push(told);
}

/// What a revision is to its form, for `lynqgate history`. `now`: the name of the revision that the form's spec is.
pub fn state(
    revision: &Revision,
    status: &FormStatus,
    reverted: Option<Reverted>,
    now: Option<&str>,
) -> &'static str {
    let is = |name: &Option<String>| name.as_deref() == Some(&*revision.name);
    let (is_now, is_current) = (now == Some(&*revision.name), is(&status.current_revision));
    let rollout = status.rollout.as_ref();
    let failed = rollout.is_some_and(|rollout| rollout.phase == Phase::Failed);
    match () {
        () if is_now && is(&status.update_revision) && failed => "halted",
        () if is_now && is_current => "current",
        () if is_now => "being rolled out",
        () if is_current => "complete last",
        () if reverted.is_some_and(|it| it.from == revision.name) => "failed, taken back",
        () if revision.completed.is_none() => "did not complete",
        () => "",
    }
}

/// The revision that the operator sets a failed form back to, if it does: the one that all nodes ran last. `generation`: of the
/// spec. `reverted`: the revision that it took back last.
pub fn reverts_to<'a>(
    spec: &FormSpec,
    generation: i64,
    status: &'a FormStatus,
    reverted: Option<&str>,
) -> Option<&'a str> {
    let policy = spec.rollout.as_ref()?;
    let asked = policy.on_failure == OnFailure::Revert && !policy.paused;
    if status.observed_generation != Some(generation) {
        return None;
    }
    let rollout = status.rollout.as_ref()?;
    // One of the failed nodes runs this content: a correction is not taken back for what failed before it.
    let failed = rollout.phase == Phase::Failed && rollout.failed_nodes > rollout.unwritten_nodes;
    let (current, update) = (
        status.current_revision.as_deref()?,
        status.update_revision.as_deref()?,
    );
    let again = reverted == Some(update);
    (asked && failed && !again && current != update).then_some(current)
}

/// The revision that `lynqgate undo` sets a form back to: that number, else the one that was complete last. `now`: the name of
/// the revision that the form's spec is.
pub fn undone<'a>(
    there: &'a [Revision],
    now: Option<&str>,
    to: Option<i64>,
) -> Option<&'a Revision> {
    match to {
        Some(number) => there.iter().find(|revision| revision.number == number),
        None => {
            let others = there.iter().filter(|revision| Some(&*revision.name) != now);
            let complete = others.filter(|revision| revision.completed.is_some());
            complete.max_by_key(|revision| (revision.completed, revision.number))
        }
    }
}

#[cfg(test)]
mod tests;
