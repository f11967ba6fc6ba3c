//! What the operator may do with the objects of the kinds that forms use.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::form::FormSpec;
use crate::api::names;
use crate::decide::admission::rights::{TargetNamespace, VERBS, of_form, rule};
use crate::decide::child::{Kind, Scope};
use crate::decide::operator::check::{Finding, listed};

/// Where a kind is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Used {
    pub forms: BTreeSet<String>,
    /// An empty name stands for all namespaces: a template chooses.
    pub namespaces: BTreeSet<String>,
}

/// What the API server says about one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rights {
    Complete,
    Missing {
        group: String,
        plural: String,
        verbs: BTreeSet<&'static str>,
    },
    /// The API server does not have the kind.
    Unserved,
}

/// The kinds of the forms, which are in the namespace `home`. A kind that a template chooses is left out.
pub fn used(forms: &[(&str, &FormSpec)], home: &str) -> BTreeMap<Kind, Used> {
    let mut kinds: BTreeMap<Kind, Used> = BTreeMap::new();
    for (form, spec) in forms {
        for right in of_form(spec) {
            let Some(kind) = right.kind else {
                continue;
            };
            let used = kinds.entry(kind).or_default();
            used.forms.insert((*form).to_owned());
            used.namespaces.insert(match right.namespace {
                TargetNamespace::Home => home.to_owned(),
                TargetNamespace::Namespace(name) => name,
                TargetNamespace::Matching(_) | TargetNamespace::Any => String::new(),
            });
        }
    }
    kinds
}

/// The verbs to ask for, each with its namespace; an empty one stands for all. lynqgate watches objects of all namespaces.
pub fn questions(used: &Used, scope: Scope) -> BTreeSet<(&'static str, String)> {
    let everywhere = scope == Scope::Cluster || used.namespaces.contains("");
    let mut questions = BTreeSet::new();
    for verb in VERBS {
        if everywhere || ["list", "watch"].contains(&verb) {
            questions.insert((verb, String::new()));
            continue;
        }
        let namespaces = used.namespaces.iter();
        questions.extend(namespaces.map(|namespace| (verb, namespace.clone())));
    }
    questions
}

/// `operator`: its user name. `home`: the namespace of the forms.
pub fn findings(operator: &str, home: &str, kinds: &[(Kind, Used, Rights)]) -> Vec<Finding> {
    let object = format!("User {operator}");
    let faults = kinds
        .iter()
        .filter_map(|(kind, used, rights)| fault(&object, kind, used, rights));
    let mut findings: Vec<Finding> = faults.collect();
    if findings.is_empty() {
        let said = match kinds.len() {
            0 => format!("no form in namespace {home} needs rights"),
            1 => format!("it has all rights on the kind that the forms in namespace {home} use"),
            count => {
                format!(
                    "it has all rights on the {count} kinds that the forms in namespace {home} use"
                )
            }
        };
        findings.push(Finding::ok(object, said));
    }
    findings
}

fn fault(object: &str, kind: &Kind, used: &Used, rights: &Rights) -> Option<Finding> {
    let forms = listed(&Vec::from_iter(&used.forms));
    match rights {
        Rights::Complete => None,
        Rights::Unserved => Some(Finding::warning(
            format!("Kind {kind}"),
            format!("the API server does not have it (used by form {forms})"),
            "Install its CustomResourceDefinition, unless the form itself does",
        )),
        Rights::Missing {
            group,
            plural,
            verbs,
        } => {
            let name = match group.as_str() {
                "" => plural.clone(),
                group => format!("{plural}.{group}"),
            };
            let lacks = match verbs.len() {
                count if count == VERBS.len() => format!("it has no rights on {name}"),
                _ => format!(
                    "it may not {} {name}",
                    Vec::from_iter(verbs.iter().copied()).join(", ")
                ),
            };
            Some(Finding::failed(
                object,
                format!("{lacks} (used by form {forms})"),
                format!(
                    "Add this rule to a ClusterRole with the label {}=true: {{{}}}",
                    names::AGGREGATE_TO_TENANTS,
                    rule(group, plural)
                ),
            ))
        }
    }
}

/// The user may not ask; `why` is the API server's text.
pub fn unasked(operator: &str, why: &str) -> Finding {
    Finding::warning(
        format!("User {operator}"),
        format!(
            "its rights were not checked, because you may not create SubjectAccessReviews: {why}"
        ),
        "Let an administrator run lynqgate check",
    )
}

/// The user may not list the forms of the namespace.
pub fn unread(home: &str, why: &str) -> Finding {
    Finding::unread(format!("LynqForms of namespace {home}"), why)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::decide::operator::check::tests::line;

    fn form() -> FormSpec {
        let spec = json!({"hubId": "h", "manifests": [
            {"id": "a", "spec": {"apiVersion": "v1", "kind": "Secret"}},
            {"id": "b", "targetNamespace": "x", "spec": {"apiVersion": "v1", "kind": "Secret"}},
            {"id": "c", "targetNamespace": "{{ .uid }}", "spec": {"apiVersion": "apps/v1", "kind": "Deployment"}},
            {"id": "d", "spec": {"apiVersion": "v1", "kind": "{{ .kind }}"}},
        ]});
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn each_kind_is_asked_about_where_it_is_used() {
        let spec = form();
        let kinds = used(&[("web", &spec), ("api", &spec)], "home");
        let names: Vec<String> = kinds.keys().map(ToString::to_string).collect();
        assert_eq!(names, ["apps/v1 Deployment", "v1 Secret"]);
        let secret = &kinds[&Kind::new("v1", "Secret")];
        assert_eq!(Vec::from_iter(&secret.forms), ["api", "web"]);
        let asked = |kind: &str, scope: Scope, verb: &str| {
            let (_, used) = kinds.iter().find(|(k, _)| k.kind == kind).unwrap();
            let questions = questions(used, scope).into_iter();
            let places = questions.filter(|(asked, _)| *asked == verb);
            places.map(|(_, namespace)| namespace).collect::<Vec<_>>()
        };
        assert_eq!(asked("Secret", Scope::Namespaced, "create"), ["home", "x"]);
        assert_eq!(asked("Secret", Scope::Namespaced, "watch"), [""]);
        assert_eq!(asked("Secret", Scope::Cluster, "create"), [""]);
        assert_eq!(asked("Deployment", Scope::Namespaced, "delete"), [""]);
    }

    #[test]
    fn a_missing_right_names_the_rule() {
        let said = |all: Vec<(Kind, Rights)>| {
            let forms = BTreeSet::from(["web".to_owned()]);
            let kinds = all.into_iter().map(|(kind, rights)| {
                let used = Used {
                    forms: forms.clone(),
                    namespaces: BTreeSet::new(),
                };
                (kind, used, rights)
            });
            let findings = findings("ns:me", "home", &Vec::from_iter(kinds));
            Vec::from_iter(findings.iter().map(line))
        };
        let missing = |verbs: &[&'static str]| Rights::Missing {
            group: "example.com".to_owned(),
            plural: "widgets".to_owned(),
            verbs: verbs.iter().copied().collect(),
        };
        let secret = || (Kind::new("v1", "Secret"), Rights::Complete);
        let widget = || Kind::new("example.com/v1", "Widget");
        assert_eq!(
            said(vec![]),
            ["ok User ns:me: no form in namespace home needs rights"]
        );
        assert_eq!(
            said(vec![secret()]),
            ["ok User ns:me: it has all rights on the kind that the forms in namespace home use"]
        );
        let rule = "Add this rule to a ClusterRole with the label rbac.lynq.sh/aggregate-to-tenants=true: {apiGroups: \
                    [\"example.com\"], resources: [\"widgets\"], verbs: [get, list, watch, create, patch, update, delete]}";
        assert_eq!(
            said(vec![secret(), (widget(), missing(&["create", "patch"]))]),
            [format!(
                "failed User ns:me: it may not create, patch widgets.example.com (used by form web). {rule}"
            )]
        );
        assert_eq!(
            said(vec![(widget(), missing(&VERBS))]),
            [format!(
                "failed User ns:me: it has no rights on widgets.example.com (used by form web). {rule}"
            )]
        );
        assert_eq!(
            said(vec![(widget(), Rights::Unserved)]),
            [
                "warning Kind example.com/v1 Widget: the API server does not have it (used by form web). Install its \
                 CustomResourceDefinition, unless the form itself does"
            ]
        );
    }
}
