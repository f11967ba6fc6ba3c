//! Reads the fields of an object for the rules. It never judges a count, and it must not panic or guess:
//! what is missing or of the wrong type is absent.

use jiff::Timestamp;
use serde_json::Value;

use crate::api::names;
use crate::decide::readiness::Reason;

pub(super) struct Object<'a> {
    value: &'a Value,
}

/// One entry of `status.conditions`.
pub(super) struct Condition<'a> {
    value: &'a Value,
}

impl<'a> Object<'a> {
    pub(super) fn new(value: &'a Value) -> Self {
        Self { value }
    }

    pub(super) fn name(&self) -> String {
        self.text("/metadata/name")
            .unwrap_or("(no name)")
            .to_owned()
    }

    pub(super) fn value(&self) -> &'a Value {
        self.value
    }

    pub(super) fn annotation(&self, name: &str) -> Option<&'a str> {
        self.value["metadata"]["annotations"][name].as_str()
    }

    pub(super) fn kind(&self) -> Option<&'a str> {
        self.text("/kind").filter(|kind| !kind.is_empty())
    }

    /// The API group without its version; the core group is "".
    pub(super) fn group(&self) -> Option<&'a str> {
        let version = self
            .text("/apiVersion")
            .filter(|version| !version.is_empty())?;
        Some(version.split_once('/').map_or("", |(group, _)| group))
    }

    pub(super) fn get(&self, pointer: &str) -> Option<&'a Value> {
        self.value.pointer(pointer).filter(|value| !value.is_null())
    }

    pub(super) fn has(&self, pointer: &str) -> bool {
        self.get(pointer).is_some()
    }

    pub(super) fn text(&self, pointer: &str) -> Option<&'a str> {
        self.get(pointer)?.as_str()
    }

    pub(super) fn flag(&self, pointer: &str) -> bool {
        self.get(pointer).and_then(Value::as_bool).unwrap_or(false)
    }

    pub(super) fn list(&self, pointer: &str) -> &'a [Value] {
        self.get(pointer)
            .and_then(Value::as_array)
            .map_or(&[], Vec::as_slice)
    }

    /// A number of pods, completions or seconds: a non-negative int32 of the API.
    pub(super) fn count(&self, pointer: &str) -> Option<u32> {
        let number = self.get(pointer)?.as_u64()?;
        u32::try_from(number)
            .ok()
            .filter(|number| *number <= i32::MAX.unsigned_abs())
    }

    /// A number of the status, 0 if absent, because the API server omits zeros.
    pub(super) fn status_count(&self, field: &str) -> u32 {
        self.count(&format!("/status/{field}")).unwrap_or(0)
    }

    /// `spec.replicas`, or the API's default.
    pub(super) fn replicas(&self) -> u32 {
        self.count("/spec/replicas").unwrap_or(1)
    }

    /// 0 if the kind has no generation.
    fn generation(&self) -> i64 {
        self.get("/metadata/generation")
            .and_then(Value::as_i64)
            .unwrap_or(0)
    }

    /// None if there is nothing to compare with a generation.
    fn observed_generation(&self) -> Option<i64> {
        self.get("/status/observedGeneration").and_then(number)
    }

    /// Why the status may not be of this generation, for kinds whose controller always reports the generation.
    pub(super) fn unobserved(&self) -> Option<Reason> {
        let observed = self.observed_generation();
        (observed != Some(self.generation())).then(|| Reason::NotObserved {
            name: self.name(),
            generation: self.generation(),
            observed,
        })
    }

    pub(super) fn reports_generation(&self) -> bool {
        self.has("/metadata/generation") && self.observed_generation().is_some()
    }

    /// As `unobserved`, for kinds whose controller may not report the generation.
    pub(super) fn unobserved_if_reported(&self) -> Option<Reason> {
        self.reports_generation().then(|| self.unobserved())?
    }

    /// Why a status without a generation may be of the previous spec: its last write is not newer than our last apply. The API
    /// server records these times in whole seconds.
    pub(super) fn may_be_old(&self) -> Option<Reason> {
        // Before the first generation there was no other spec.
        if self.generation() <= 1 {
            return None;
        }
        let entries = || self.list("/metadata/managedFields").iter();
        let time = |entry: &Value| entry["time"].as_str()?.parse::<Timestamp>().ok();
        let ours = |entry: &&Value| {
            entry["manager"] == names::FIELD_MANAGER && entry["subresource"].is_null()
        };
        let of_status = |entry: &&Value| !entry["fieldsV1"]["f:status"].is_null();
        let applied = entries().filter(ours).filter_map(time).max()?;
        let told = entries().filter(of_status).filter_map(time).max();
        told.is_none_or(|told| told <= applied)
            .then(|| Reason::StatusMayBeOld { name: self.name() })
    }

    pub(super) fn conditions(&self) -> impl Iterator<Item = Condition<'a>> + use<'a> {
        self.list("/status/conditions")
            .iter()
            .map(|value| Condition { value })
    }

    pub(super) fn condition(&self, kind: &str) -> Option<Condition<'a>> {
        self.conditions().find(|condition| condition.kind() == kind)
    }

    /// Why a condition that must be True is not; None if it is True.
    pub(super) fn not_true(&self, kind: &str) -> Option<Reason> {
        match self.condition(kind) {
            Some(condition) => self.condition_not_true(&condition),
            None => Some(Reason::ConditionMissing {
                name: self.name(),
                condition: kind.to_owned(),
            }),
        }
    }

    /// A condition that speaks of another generation says nothing about this one, not even that it is not True.
    pub(super) fn condition_not_true(&self, condition: &Condition<'a>) -> Option<Reason> {
        if let Some(observed) = condition.observed_generation()
            && observed != self.generation()
        {
            return Some(Reason::ConditionOutdated {
                name: self.name(),
                condition: condition.kind().to_owned(),
                generation: self.generation(),
                observed,
            });
        }
        (!condition.is_true()).then(|| Reason::ConditionNotTrue {
            name: self.name(),
            condition: condition.kind().to_owned(),
            status: condition.status().to_owned(),
            reason: condition.reason().to_owned(),
            message: condition.message(),
        })
    }
}

impl<'a> Condition<'a> {
    pub(super) fn new(value: &'a Value) -> Self {
        Self { value }
    }

    fn text(&self, field: &str) -> &'a str {
        self.value.get(field).and_then(Value::as_str).unwrap_or("")
    }

    pub(super) fn kind(&self) -> &'a str {
        self.text("type")
    }

    pub(super) fn status(&self) -> &'a str {
        self.text("status")
    }

    pub(super) fn is_true(&self) -> bool {
        self.status() == "True"
    }

    pub(super) fn reason(&self) -> &'a str {
        self.text("reason")
    }

    pub(super) fn message(&self) -> String {
        self.text("message").to_owned()
    }

    pub(super) fn observed_generation(&self) -> Option<i64> {
        self.value.get("observedGeneration").and_then(number)
    }
}

/// Some controllers write their generations as strings. One that is no number (a hash, or empty) counts as absent.
fn number(value: &Value) -> Option<i64> {
    match value {
        Value::String(text) => text.trim().parse().ok(),
        value => value.as_i64(),
    }
}
