//! Checks a form by itself, without rows or objects: whether it can be rendered.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::api::form::FormSpec;
use crate::api::policy::{Creation, Domain, Group, OnFailure, Skew, SkewCounts, WINDOW_MAX};
use crate::api::resource::{OnImmutable, Resource};
use crate::api::{names, stamp};
use crate::decide::admission::trial::deletions::{self, TakenAway};
use crate::decide::admission::trial::live::runs_everywhere;
use crate::decide::admission::{Verdict, misspelled};
use crate::decide::child::kind_of;
use crate::decide::hub::render::CompiledForm;
use crate::decide::rollout::is_ungated;
use crate::decide::shared::content;

/// The verdict on a form, and the change to try.
pub struct Judged {
    pub verdict: Verdict,
    /// None if the form is rejected, or renders as before.
    pub change: Option<Change>,
}

/// A change to try on the rows.
#[derive(Clone)]
pub struct Change {
    pub spec: Arc<FormSpec>,
    pub new: Arc<CompiledForm>,
    /// None for a new form, and for one that could not be rendered before.
    pub old: Option<Arc<CompiledForm>>,
    /// The resources that the templates no longer have and that may hold data, if they concern so many tenants that a
    /// confirmation is required.
    pub taken_away: Vec<TakenAway>,
    /// The number of nodes in the form's status.
    pub nodes: usize,
}

impl Change {
    /// The same change, whose templates must not select the operator's own namespace.
    pub fn sparing(self, own_namespace: &str) -> Self {
        let sparing = |form: Arc<CompiledForm>| {
            let form = Arc::into_inner(form).expect("nobody else has it yet");
            Arc::new(form.sparing(own_namespace))
        };
        Change {
            new: sparing(self.new),
            old: self.old.map(sparing),
            ..self
        }
    }
}

pub fn judge(old: Option<&Value>, new: &Value, now: Timestamp) -> Judged {
    let name = new["metadata"]["name"].as_str().unwrap_or("form");
    let spec = &new["spec"];
    let mut warnings = misspelled(new);
    warnings.extend(resumes_later(new, now));
    let (denied, change) = match read(name, spec) {
        // An invalid stored form may still lose a finalizer or get a label.
        _ if old.is_some_and(|old| old["spec"] == *spec) => (None, None),
        Ok((spec, compiled)) => {
            let taken_away = old.map(|old| taken_away(old, &spec)).unwrap_or_default();
            let nodes = old.and_then(total_nodes).unwrap_or_default();
            let old = old.and_then(|old| read(name, &old["spec"]).ok());
            // A user who only pauses a rollout at night needs no right to create what the form creates.
            let same = old.as_ref().is_some_and(|(old, _)| old.renders_like(&spec));
            let opened = old.as_ref().is_some_and(|(old, _)| !is_open(old)) && is_open(&spec);
            warnings.extend(opened.then(|| OPENED.to_owned()));
            warnings.extend(never_reverts(&spec));
            warnings.extend(never_halts(&spec));
            warnings.extend(too_wide(&spec));
            warnings.extend(waits_for_its_group(&spec));
            warnings.extend(names_a_partition(&spec));
            let change = Change {
                spec: Arc::new(spec),
                new: Arc::new(compiled),
                old: old.map(|(_, compiled)| Arc::new(compiled)),
                taken_away,
                nodes,
            };
            (None, (!same).then_some(change))
        }
        Err(why) => (Some(why), None),
    };
    Judged {
        verdict: Verdict { denied, warnings },
        change,
    }
}

fn total_nodes(form: &Value) -> Option<usize> {
    let nodes = form["status"]["totalNodes"].as_u64()?;
    usize::try_from(nodes).ok()
}

fn taken_away(old: &Value, new: &FormSpec) -> Vec<TakenAway> {
    let few = total_nodes(old).is_some_and(|nodes| !deletions::is_asked(nodes));
    let spec = FormSpec::deserialize(&old["spec"]).ok().filter(|_| !few);
    let taken_away = |spec| deletions::taken_away(&spec, new, runs_everywhere(old));
    spec.map(taken_away).unwrap_or_default()
}

/// Warns about a change that opens the window: a user who sets 0 at night may mean to stop a rollout.
const OPENED: &str = "without a maxSkew, an order or a pause everything of this form that is held goes live at once, unless \
                      the hub has a maxSkew. To stop a rollout, set rollout.paused: true";

/// A user who writes local time with a Z would wait for hours.
fn resumes_later(form: &Value, now: Timestamp) -> Option<String> {
    let text = form["metadata"]["annotations"][names::RESUME].as_str()?;
    let at = stamp::parse(text).filter(|at| *at > now)?;
    Some(format!(
        "{}: {} is still to come: until then it resumes nothing; it is {} now",
        names::RESUME,
        stamp::format(at),
        stamp::format(now)
    ))
}

/// What goes live without a window takes no slot, and so never counts as failed.
fn never_reverts(spec: &FormSpec) -> Option<String> {
    let asked = spec.rollout.as_ref()?.on_failure == OnFailure::Revert;
    (asked && is_open(spec)).then(|| {
        "rollout.onFailure: Revert does nothing without a window: set rollout.maxSkew (unless the hub has one)"
            .to_owned()
    })
}

/// Failed nodes fill the window, so at most as many fail as the window is wide.
fn never_halts(spec: &FormSpec) -> Option<String> {
    let policy = spec.rollout.as_ref()?;
    let (allowed, window) = match (policy.max_failures?, policy.max_skew) {
        (Skew::Count(allowed), Skew::Count(window)) if window > 0 => (allowed, window),
        (Skew::Percent(allowed), Skew::Percent(window)) => (allowed.into(), window.into()),
        _ => return None,
    };
    let never = policy.skew_counts == SkewCounts::All && allowed > window;
    never.then(|| {
        "rollout.maxFailures is more than rollout.maxSkew: failed nodes fill the window before they halt the rollout, which then stalls \
         (reason Stalled, phase InProgress) instead of failing"
            .to_owned()
    })
}

/// A wider window would need a larger ledger.
fn too_wide(spec: &FormSpec) -> Option<String> {
    let Skew::Count(window) = spec.rollout.as_ref()?.max_skew else {
        return None;
    };
    (window as usize > WINDOW_MAX).then(|| {
        format!(
            "rollout.maxSkew {window}: no more than {WINDOW_MAX} nodes go at a time all the same, for the hub's ledger has room for so many"
        )
    })
}

/// A user who wants new nodes at once would not know why they wait.
fn waits_for_its_group(spec: &FormSpec) -> Option<String> {
    let policy = spec.rollout.as_ref()?;
    let in_vain = policy.creation == Creation::Immediate && !policy.order.is_empty();
    in_vain.then(|| {
        "rollout.creation: Immediate has no effect beside a rollout.order: new nodes wait for their group's turn and a slot"
            .to_owned()
    })
}

/// Whether the form itself holds no change back.
fn is_open(spec: &FormSpec) -> bool {
    let policy = spec.rollout.clone().unwrap_or_default();
    is_ungated(&policy, Skew::Count(0), false)
}

fn read(name: &str, spec: &Value) -> Result<(FormSpec, CompiledForm), String> {
    if spec["hubId"].as_str().unwrap_or_default().is_empty() {
        return Err("hubId is required".to_owned());
    }
    content::check_size(Some(spec)).map_err(|error| error.to_string())?;
    content::check_depth(Some(spec)).map_err(|error| error.to_string())?;
    let parsed: FormSpec =
        serde_json::from_value(spec.clone()).map_err(|error| format!("spec: {error}"))?;
    if let Some(broken) = broken_rule(&parsed) {
        return Err(broken);
    }
    if let Some(lossy) = recreates_with_loss(&parsed) {
        return Err(lossy);
    }
    if let Some(odd) = gates_no_partition(&parsed) {
        return Err(odd);
    }
    let compiled = CompiledForm::parse(name, &parsed).map_err(|error| error.to_string())?;
    Ok((parsed, compiled))
}

/// The CRD's rules about more than one field. The API server checks them before; `lynqgate render` does not.
fn broken_rule(spec: &FormSpec) -> Option<String> {
    let rollout = spec.rollout.as_ref()?;
    let is_odd = |group: &Group| group.when.is_some() != group.match_labels.is_empty();
    if let Some(number) = rollout.order.iter().position(is_odd) {
        let text = format!("spec.rollout.order[{number}]: give either when or matchLabels");
        return Some(text);
    }
    let is_odd = |domain: &Domain| domain.label.is_some() == domain.variable.is_some();
    let number = rollout.domains.iter().position(is_odd)?;
    let text = format!("spec.rollout.domains[{number}]: give either label or variable");
    Some(text)
}

/// `partitionGate` on another kind, where it has no effect.
fn gates_no_partition(spec: &FormSpec) -> Option<String> {
    let odd = |resource: &&Resource| {
        !resource.partition_gate && !kind_of(&resource.spec).is_stateful_set()
    };
    let resource = spec.content.iter().find(odd)?;
    Some(format!(
        "resource '{}' ({}): partitionGate is for StatefulSets; remove it",
        resource.id,
        kind_of(&resource.spec).kind
    ))
}

/// A user who sets a partition would not know why it has no effect.
fn names_a_partition(spec: &FormSpec) -> Option<String> {
    let names_it = |resource: &&Resource| {
        let partition = resource
            .spec
            .pointer("/spec/updateStrategy/rollingUpdate/partition");
        resource.partition_gate
            && kind_of(&resource.spec).is_stateful_set()
            && partition.is_some_and(|partition| *partition != 0)
    };
    let resource = spec.content.iter().find(names_it)?;
    Some(format!(
        "resource '{}': lynqgate moves the partition of this StatefulSet itself, and ignores the one in the manifest; to set it yourself, \
         set partitionGate: false on the resource",
        resource.id
    ))
}

/// `onImmutable: Recreate` on a kind whose deletion loses data.
fn recreates_with_loss(spec: &FormSpec) -> Option<String> {
    let lossy = |resource: &Resource| {
        let kind = kind_of(&resource.spec);
        let lost = kind.holds()?;
        (resource.on_immutable == OnImmutable::Recreate).then(|| {
            format!(
                "resource '{}' ({}): onImmutable: Recreate would delete {lost}. Remove it; to change an immutable field, give the \
                 resource another nameTemplate and move what it holds",
                resource.id, kind.kind
            )
        })
    };
    spec.content.iter().find_map(lossy)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn form(spec: Value) -> Value {
        json!({"metadata": {"name": "web"}, "spec": spec})
    }

    fn map(id: &str, extra: Value) -> Value {
        let mut map = json!({"id": id, "nameTemplate": "{{ .uid }}-x", "spec": {"apiVersion": "v1", "kind": "ConfigMap"}});
        map.as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        map
    }

    fn said(spec: Value) -> String {
        judge(None, &form(spec), NOW)
            .verdict
            .denied
            .unwrap_or_default()
    }

    #[test]
    fn what_is_wrong_is_said_in_lynqs_words() {
        let of = |maps: Value| json!({"hubId": "h", "configMaps": maps});
        assert_eq!(said(of(json!([map("a", json!({}))]))), "");
        for (spec, words) in [
            (json!({"configMaps": []}), "hubId is required"),
            (json!({"hubId": ""}), "hubId is required"),
            (
                json!({"hubId": "h", "configMaps": [map("a", json!({}))], "manifests": [map("a", json!({}))]}),
                "duplicate resource IDs found: [a]",
            ),
            (
                of(json!([map("", json!({}))])),
                "resource must have a non-empty ID",
            ),
            (
                of(json!([map("x", json!({"dependIds": ["y"]}))])),
                "dependency validation failed: resource 'x' depends on non-existent resource 'y'",
            ),
            (
                of(json!([
                    map("x", json!({"dependIds": ["y"]})),
                    map("y", json!({"dependIds": ["x"]}))
                ])),
                "dependency validation failed: circular dependency detected: x -> y -> x",
            ),
            (
                of(json!([map("a", json!({"nameTemplate": "{{ f .uid }}"}))])),
                "template validation failed: invalid NameTemplate in resource 'a': failed to parse template: template: web:1: function \"f\" not defined",
            ),
            (
                of(json!([map("a", json!({"ignoreFields": ["$.a["]}))])),
                "ignoreFields validation failed: invalid ignoreFields in resource 'a': invalid JSONPath \"$.a[\": at 5: it ends too early; write it like $.spec.replicas",
            ),
            (
                of(json!([map("a", json!({"ignoreFields": ["$.kind"]}))])),
                "ignoreFields validation failed: invalid ignoreFields in resource 'a': invalid JSONPath \"$.kind\": it can match kind",
            ),
            (
                of(json!([map(
                    "a",
                    json!({"readyProbe": {"cel": "object.a +"}})
                )])),
                "invalid readyProbe in resource 'a': cel: ",
            ),
            (
                json!({"hubId": "h", "configMaps": [map("a", json!({}))], "rollout": {"order": [
                    {"name": "a", "when": "{{ true }}"}, {"name": "b", "matchLabels": {"a": "b"}},
                    {"name": "c", "when": "{{ true }}", "matchLabels": {"a": "b"}},
                ]}}),
                "spec.rollout.order[2]: give either when or matchLabels",
            ),
            (
                json!({"hubId": "h", "configMaps": [map("a", json!({}))], "rollout": {"order": [{"name": "a"}]}}),
                "spec.rollout.order[0]: give either when or matchLabels",
            ),
            (
                json!({"hubId": "h", "configMaps": [map("a", json!({}))], "rollout": {"maxSkew": "0%"}}),
                "0% would release nothing; to stop a rollout set paused: true",
            ),
            (
                json!({"hubId": "h", "configMaps": [map("a", json!({}))], "rollout": {"maxFailures": "10 %"}}),
                "neither a number nor a percentage from 1% to 100%",
            ),
            (
                of(json!([map(
                    "a",
                    json!({"readyProbe": {"cel": "true", "jsonPath": "$.a"}})
                )])),
                "invalid readyProbe in resource 'a': give cel, or jsonPath and expectedValue",
            ),
            (
                of(json!([map(
                    "a",
                    json!({"onImmutable": "Recreate", "spec": {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}})
                )])),
                "resource 'a' (PersistentVolumeClaim): onImmutable: Recreate would delete the data in it. Remove it; to change an immutable \
                 field, give the resource another nameTemplate and move what it holds",
            ),
            (
                of(json!([map("a", json!({"waitForReady": "no"}))])),
                "spec: invalid type: string \"no\", expected a boolean",
            ),
            (
                of(json!([map(
                    "a",
                    json!({"spec": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "x".repeat(700_000)}}})
                )])),
                "the largest resource is \"a\" in configMaps",
            ),
        ] {
            let said = said(spec);
            assert!(said.contains(words), "{words:?} is not in {said:?}");
        }
    }

    #[test]
    fn who_opens_the_window_is_told() {
        let of = |rollout: Value| {
            form(json!({"hubId": "h", "configMaps": [map("a", json!({}))], "rollout": rollout}))
        };
        let told = |old: Value, new: Value| {
            let judged = judge(Some(&of(old)), &of(new), NOW);
            judged.verdict.warnings == [OPENED]
        };
        assert!(told(json!({"maxSkew": 3}), json!({"maxSkew": 0})));
        assert!(told(json!({"maxSkew": 3}), json!({})));
        assert!(told(json!({"paused": true}), json!({"paused": false})));
        assert!(!told(
            json!({"maxSkew": 3}),
            json!({"maxSkew": 0, "paused": true})
        ));
        assert!(!told(json!({}), json!({"maxSkew": 0})));
    }

    #[test]
    fn what_would_not_do_what_it_says_is_told() {
        let told = |rollout: Value, resume: &str| {
            let mut form = form(
                json!({"hubId": "h", "configMaps": [map("a", json!({}))], "rollout": rollout}),
            );
            form["metadata"]["annotations"] = json!({names::RESUME: resume});
            judge(None, &form, NOW).verdict.warnings.join("\n")
        };
        let past = "1969-12-31T23:00:00Z";
        for rollout in [
            json!({"maxSkew": 3, "maxFailures": 3}),
            json!({"maxSkew": 0, "maxFailures": 3}),
            json!({"maxSkew": "10%", "maxFailures": 30}),
            json!({"maxSkew": 3, "maxFailures": 4, "skewCounts": "Released"}),
        ] {
            assert_eq!(told(rollout, past), "");
        }
        for rollout in [
            json!({"maxSkew": 3, "maxFailures": 4}),
            json!({"maxSkew": "10%", "maxFailures": "20%"}),
        ] {
            assert!(told(rollout, past).contains("(reason Stalled, "));
        }
        let order = json!([{"name": "first", "when": "{{ true }}"}]);
        for (creation, order, is_told) in [
            ("Immediate", &order, true),
            ("Gated", &order, false),
            ("Immediate", &json!([]), false),
        ] {
            let told = told(
                json!({"maxSkew": 1, "creation": creation, "order": order}),
                past,
            );
            let said = told
                .starts_with("rollout.creation: Immediate has no effect beside a rollout.order");
            assert_eq!(said, is_told, "{told}");
        }
        let revert = "rollout.onFailure: Revert does nothing without a window";
        let first = [json!({"name": "first", "when": "{{ true }}"})];
        for (rollout, is_told) in [
            (json!({"onFailure": "Revert"}), true),
            (json!({"onFailure": "Halt"}), false),
            (json!({"onFailure": "Revert", "maxSkew": 1}), false),
            (json!({"onFailure": "Revert", "order": first}), false),
            (
                json!({"onFailure": "Revert", "domains": [{"variable": "shard", "maxSkew": 1}]}),
                false,
            ),
        ] {
            let told = told(rollout, past);
            assert_eq!(told.starts_with(revert), is_told, "{told}");
        }
        assert_eq!(told(json!({"maxSkew": 1000}), past), "");
        let wide = told(json!({"maxSkew": 1001}), past);
        assert!(wide.contains("no more than 1000 nodes"), "{wide}");
        let later = told(json!({}), "1970-01-01T02:00:00Z");
        assert!(later.contains("1970-01-01T02:00:00"), "{later}");
    }

    #[test]
    fn a_partition_is_lynqgates_or_the_manifests() {
        let of = |kind: [&str; 2], more: Value| {
            let strategy = json!({"rollingUpdate": {"partition": 2}});
            let spec = json!({"apiVersion": kind[0], "kind": kind[1], "spec": {"updateStrategy": strategy}});
            let mut resource = map("db", json!({"spec": spec}));
            let more = more.as_object().unwrap().clone();
            resource.as_object_mut().unwrap().extend(more);
            let spec = json!({"hubId": "h", "statefulSets": [resource]});
            judge(None, &form(spec), NOW).verdict
        };
        let (set, kruise) = (
            ["apps/v1", "StatefulSet"],
            ["apps.kruise.io/v1beta1", "StatefulSet"],
        );
        let warned = of(set, json!({})).warnings.join("\n");
        assert!(
            warned.contains("ignores the one in the manifest"),
            "{warned}"
        );
        let own = json!({"partitionGate": false});
        for verdict in [of(set, own.clone()), of(kruise, json!({}))] {
            assert_eq!((verdict.denied, verdict.warnings), (None, vec![]));
        }
        let denied = of(kruise, own).denied.unwrap();
        assert!(
            denied.contains("partitionGate is for StatefulSets"),
            "{denied}"
        );
    }

    #[test]
    fn what_is_stored_already_is_not_judged_again() {
        let bad = form(json!({"hubId": ""}));
        let again = judge(Some(&bad), &bad, NOW);
        assert!(again.verdict.denied.is_none() && again.change.is_none());
        // A form that could never be rendered can be corrected.
        let good = form(json!({"hubId": "h", "configMaps": [map("a", json!({}))]}));
        let mended = judge(Some(&bad), &good, NOW).change.unwrap();
        assert!(mended.old.is_none());
        assert!(judge(Some(&good), &good, NOW).change.is_none());
    }
}
