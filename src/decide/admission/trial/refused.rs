//! The API server's results for the resources that were tried, for the form's author.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::api::names;
use crate::decide::admission::trial::sample::Sample;
use crate::decide::admission::trial::{counted, plural};
use crate::decide::child::managers;
use crate::decide::node::plan::recreate::{self, Recreation};

/// The most resources that a response names.
const RESOURCES_SHOWN: usize = 3;
/// The longest text of a single resource, and of each of several: the advice follows it.
const ONE_CHARS_MAX: usize = 700;
const EACH_CHARS_MAX: usize = 240;

/// The result for one resource.
#[derive(Clone, Debug, PartialEq)]
pub enum TrialOutcome {
    Good,
    /// No API server with these kinds would ever accept the object; with the reason.
    Refused(String),
    /// The API server would accept it as a new object, but rejects the change of the existing one; with the reason, and what
    /// recreating it means.
    Fixed(String, Recreation),
    /// lynqgate does not watch its namespace; with the reason.
    Unwatched(String),
    /// The API server may accept it later; with the reason why not now.
    NotNow(String),
    /// The resource was not tried; with the reason.
    Untried(&'static str),
}

/// All results.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    tried: usize,
    unwatched: Vec<Finding>,
    refused: Vec<Finding>,
    recreated: Vec<Finding>,
    not_now: Vec<Finding>,
    /// The number of untried resources for each reason.
    untried: Vec<(&'static str, usize)>,
}

#[derive(Clone, Debug, PartialEq)]
struct Finding {
    id: String,
    /// The complete text, for people.
    text: String,
}

/// Why something was not tried.
pub const NO_TIME: &str = "timed out";
pub const OWN_KIND: &str = "the form itself installs their kind";

impl Findings {
    pub fn add(&mut self, sample: &Sample, found: TrialOutcome) {
        self.tried += usize::from(!matches!(found, TrialOutcome::Untried(_)));
        match found {
            TrialOutcome::Good => {}
            TrialOutcome::Refused(why) => add(&mut self.refused, sample, of_row(sample, &why)),
            TrialOutcome::Fixed(why, recreation)
                if recreate::is_wanted(&sample.resource) && recreation.loss.is_none() =>
            {
                let kind = sample.kind();
                let text = format!(
                    "lynqgate deletes the {} of resource '{}' and creates it again when the node is released (onImmutable: Recreate); \
                     {}: {why}",
                    kind.kind,
                    sample.resource.id,
                    recreate::meanwhile(&kind, recreation.dependents)
                );
                add(&mut self.recreated, sample, text);
            }
            TrialOutcome::Fixed(why, recreation) => {
                let why = format!(
                    "{why}. That field cannot change on an existing object: {}",
                    ways_out(sample, &recreation)
                );
                add(&mut self.refused, sample, of_row(sample, &why));
            }
            TrialOutcome::Unwatched(why) => add(&mut self.unwatched, sample, of_row(sample, &why)),
            TrialOutcome::NotNow(why) => add(&mut self.not_now, sample, of_row(sample, &why)),
            TrialOutcome::Untried(why) => {
                match self.untried.iter_mut().find(|(known, _)| *known == why) {
                    Some((_, count)) => *count += 1,
                    None => self.untried.push((why, 1)),
                }
            }
        }
    }

    /// Why the form is not to be stored; None where lynqgate applies all of it, and the API server takes that.
    pub fn refused(&self) -> Option<String> {
        let (who, named) = self.refusals().into_iter().next()?;
        let end = if named.ends_with('?') { "" } else { "." };
        Some(format!(
            "{who} refuses {named}{end} Correct the form or the row; to store it as it is, annotate it with {}=\"{}\": these \
             resources then fail when their nodes are released",
            names::ALLOW_RENDER_ERRORS,
            names::TRUE
        ))
    }

    /// Who rejects resources, and which.
    fn refusals(&self) -> Vec<(&'static str, String)> {
        let all = [
            ("lynqgate", named(&self.unwatched)),
            ("the API server", named(&self.refused)),
        ];
        let all = all.into_iter();
        all.filter_map(|(who, named)| Some((who, named?))).collect()
    }

    /// `allowed`: rejected resources are stored anyway. `nodes`: the number of existing nodes that the change reaches, if all
    /// rows were tried.
    pub fn warnings(&self, allowed: bool, nodes: usize) -> Vec<String> {
        let refused = self.refusals().into_iter().filter(|_| allowed);
        let refused = refused.map(|(who, named)| format!("{who} refuses {named}"));
        let not_now = named(&self.not_now).map(|named| format!("cannot be applied now: {named}"));
        let recreated = self.recreated.iter().map(|finding| {
            let nodes = counted(nodes, "node");
            format!("up to {nodes}: {}", finding.text)
        });
        let untried = self.untried.iter().map(|(why, count)| {
            format!(
                "{} of {} not tried on the API server: {why}",
                count,
                counted(self.tried + self.untried_count(), "resource")
            )
        });
        let first = refused.chain(recreated);
        first.chain(not_now).chain(untried).collect()
    }

    fn untried_count(&self) -> usize {
        self.untried.iter().map(|(_, count)| count).sum()
    }
}

/// One cause for each resource, that of the first row.
fn add(findings: &mut Vec<Finding>, sample: &Sample, text: String) {
    let id = &sample.resource.id;
    if findings.iter().any(|finding| finding.id == *id) {
        return;
    }
    let id = id.clone();
    findings.push(Finding { id, text });
}

fn of_row(sample: &Sample, why: &str) -> String {
    let (id, kind, row) = (&sample.resource.id, &sample.kind().kind, &sample.row);
    let why = why.trim_end_matches('.');
    format!("resource '{id}' ({kind}, row {row}): {why}")
}

fn named(findings: &[Finding]) -> Option<String> {
    let (first, rest) = findings.split_first()?;
    if rest.is_empty() {
        return Some(cut(&first.text, ONE_CHARS_MAX));
    }
    let shown = findings.iter().take(RESOURCES_SHOWN);
    let shown: Vec<String> = shown
        .map(|finding| cut(&finding.text, EACH_CHARS_MAX))
        .collect();
    let more = match findings.len() - shown.len() {
        0 => String::new(),
        more => {
            let ids: BTreeSet<&str> = findings[shown.len()..]
                .iter()
                .map(|finding| finding.id.as_str())
                .collect();
            let ids: Vec<&str> = ids.into_iter().take(RESOURCES_SHOWN).collect();
            format!(
                "; and {more} more {}: {}",
                plural(more, "resource"),
                ids.join(", ")
            )
        }
    };
    Some(format!("{}{more}", shown.join("; ")))
}

fn cut(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        None => text.to_owned(),
        Some((end, _)) => format!("{} […]", &text[..end]),
    }
}

/// How to change a field that is immutable.
fn ways_out(sample: &Sample, recreation: &Recreation) -> String {
    let kind = sample.kind();
    let claims = sample.resource.spec["spec"]["volumeClaimTemplates"].as_array();
    let name = match kind.kind.as_str() {
        _ if kind.is_job() => "put a version into its nameTemplate, so that another Job runs",
        "PersistentVolumeClaim" => {
            "give it another nameTemplate and move what it holds; only the requested size may grow"
        }
        _ if kind.holds().is_some() => "give it another nameTemplate and move what it holds",
        _ if claims.is_some_and(|claims| !claims.is_empty()) => {
            "give it another nameTemplate (its pods then get new, empty volumes)"
        }
        _ => "give it another nameTemplate",
    };
    match recreation.loss {
        _ if kind.holds().is_some() => name.to_owned(),
        Some(loss) => format!("{name}. lynqgate does not recreate it: {loss}"),
        None => format!(
            "{name}; or set onImmutable: Recreate on the resource: lynqgate then deletes the {} and creates it again as each node is \
             released ({})",
            kind.kind,
            recreate::meanwhile(&kind, recreation.dependents)
        ),
    }
}

/// Why the API server rejects an object that it would accept alone: fields of other managers conflict with the change.
pub fn beside_others(why: &str, live: &Value) -> String {
    let others = managers::entries(live)
        .filter(|entry| entry["subresource"].is_null())
        .filter_map(|entry| entry["manager"].as_str())
        .filter(|manager| *manager != names::FIELD_MANAGER);
    let others: BTreeSet<String> = others.map(|manager| format!("{manager:?}")).collect();
    let others = Vec::from_iter(others).join(", ");
    format!(
        "{why}. Fields that another field manager ({others}) owns do not fit with this change: set patchStrategy: replace on the resource, which \
         removes them, or remove them yourself (kubectl edit)"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::resource::OnImmutable;
    use crate::decide::child::NodeKey;
    use crate::decide::node::plan::recreate::Dependents;

    fn sample(id: &str, kind: &str) -> Sample {
        let (version, kind) = kind.rsplit_once('/').unwrap_or(("v1", kind));
        let resource = json!({"id": id, "spec": {"apiVersion": version, "kind": kind}});
        Sample {
            row: "acme".into(),
            node: NodeKey::new("tenants", "acme-web"),
            resource: serde_json::from_value(resource).unwrap(),
            brings_kind: false,
            makes_namespace: false,
        }
    }

    const NEXT: &str = ". Correct the form or the row; to store it as it is, annotate it with lynq.sh/allow-render-errors=\"true\": \
                        these resources then fail when their nodes are released";

    #[test]
    fn each_refused_resource_is_named_once_with_its_cause() {
        let mut all = Findings::default();
        assert_eq!((all.refused(), all.warnings(false, 4)), (None, vec![]));
        all.add(&sample("map", "ConfigMap"), TrialOutcome::Good);
        assert_eq!((all.refused(), all.warnings(false, 4)), (None, vec![]));
        let refuse = |all: &mut Findings, id: &str| {
            let why = format!("spec.{id}: unknown field");
            all.add(&sample(id, "Deployment"), TrialOutcome::Refused(why));
        };
        refuse(&mut all, "app");
        refuse(&mut all, "app");
        let one =
            "the API server refuses resource 'app' (Deployment, row acme): spec.app: unknown field";
        assert_eq!(all.refused().unwrap(), format!("{one}{NEXT}"));
        assert_eq!(all.warnings(true, 4), [one]);
        assert_eq!(all.warnings(false, 4), Vec::<String>::new());
        for id in ["b", "c", "d", "e"] {
            refuse(&mut all, id);
        }
        let said = all.refused().unwrap();
        assert!(said.contains("; resource 'c' (Deployment, row acme): spec.c: unknown field; and 2 more resources: d, e. "), "{said}");
        assert!(said.chars().count() < crate::decide::admission::review::MESSAGE_MAX);
    }

    #[test]
    fn what_lynqgate_itself_does_not_apply_is_named_first() {
        let mut all = Findings::default();
        let unknown = TrialOutcome::Refused("spec: unknown field".to_owned());
        all.add(&sample("app", "Deployment"), unknown);
        let unwatched = "lynqgate does not watch namespace \"x\"".to_owned();
        all.add(
            &sample("map", "ConfigMap"),
            TrialOutcome::Unwatched(unwatched),
        );
        let map = "lynqgate refuses resource 'map' (ConfigMap, row acme): lynqgate does not watch namespace \"x\"";
        assert_eq!(all.refused().unwrap(), format!("{map}{NEXT}"));
        let app =
            "the API server refuses resource 'app' (Deployment, row acme): spec: unknown field";
        assert_eq!(all.warnings(true, 4), [map, app]);
        assert_eq!(all.warnings(false, 4), Vec::<String>::new());
    }

    #[test]
    fn what_may_be_taken_another_time_is_a_warning() {
        let mut all = Findings::default();
        let why = "exceeded quota: small".to_owned();
        all.add(&sample("app", "Deployment"), TrialOutcome::NotNow(why));
        for id in ["b", "c"] {
            all.add(&sample(id, "Widget"), TrialOutcome::Untried(OWN_KIND));
        }
        all.add(&sample("d", "ConfigMap"), TrialOutcome::Untried(NO_TIME));
        assert_eq!(all.refused(), None);
        assert_eq!(
            all.warnings(false, 4),
            [
                "cannot be applied now: resource 'app' (Deployment, row acme): exceeded quota: small",
                "2 of 4 resources not tried on the API server: the form itself installs their kind",
                "1 of 4 resources not tried on the API server: timed out",
            ]
        );
    }

    #[test]
    fn what_cannot_be_changed_has_a_way_out() {
        let said = |kind: &str| {
            let mut all = Findings::default();
            let why = "spec.selector: field is immutable".to_owned();
            let dependents = match kind {
                "apps/v1/StatefulSet" => Dependents::Stay,
                _ => Dependents::Go,
            };
            let loss = (kind == "example.com/v1/Cluster").then_some("it has a finalizer");
            let recreation = Recreation { dependents, loss };
            all.add(&sample("app", kind), TrialOutcome::Fixed(why, recreation));
            all.refused().unwrap()
        };
        for (kind, words) in [
            (
                "apps/v1/Deployment",
                "object: give it another nameTemplate; or set onImmutable: Recreate on the resource: lynqgate then deletes the \
                 Deployment and creates it again as each node is released (its pods go meanwhile)",
            ),
            (
                "apps/v1/StatefulSet",
                "deletes the StatefulSet and creates it again as each node is released (its pods stay)",
            ),
            (
                "batch/v1/Job",
                "object: put a version into its nameTemplate",
            ),
            (
                "v1/PersistentVolumeClaim",
                "move what it holds; only the requested size may grow",
            ),
            ("v1/Namespace", "move what it holds. Correct"),
            (
                "example.com/v1/Cluster",
                "nameTemplate. lynqgate does not recreate it: it has a finalizer. Correct",
            ),
        ] {
            let said = said(kind);
            assert!(said.contains(words) && said.ends_with(NEXT), "{said}");
        }
    }

    #[test]
    fn other_managers_of_an_object_are_named() {
        let managed = json!([
            {"manager": "kubectl-patch"}, {"manager": "lynq-operator"}, {"manager": "kubelet", "subresource": "status"},
        ]);
        let said = beside_others("spec: no", &json!({"metadata": {"managedFields": managed}}));
        assert!(
            said.starts_with(
                "spec: no. Fields that another field manager (\"kubectl-patch\") owns"
            ),
            "{said}"
        );
    }

    #[test]
    fn what_is_recreated_is_a_warning_and_no_refusal() {
        let mut all = Findings::default();
        for (id, kind) in [
            ("db", "apps/v1/StatefulSet"),
            ("data", "v1/PersistentVolumeClaim"),
        ] {
            let mut sample = sample(id, kind);
            sample.resource.on_immutable = OnImmutable::Recreate;
            let why = "spec: Forbidden: no".to_owned();
            let recreation = Recreation {
                dependents: Dependents::Stay,
                loss: None,
            };
            all.add(&sample, TrialOutcome::Fixed(why, recreation));
        }
        assert_eq!(
            all.warnings(false, 4),
            [
                "up to 4 nodes: lynqgate deletes the StatefulSet of resource 'db' and creates it again when the node is released \
                 (onImmutable: Recreate); its pods stay: spec: Forbidden: no"
            ]
        );
        let refused = all.refused().unwrap_or_default();
        assert!(
            refused.starts_with("the API server refuses resource 'data' "),
            "{refused}"
        );
    }
}
