//! What the operator may do with the objects of the kinds that forms use.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::form::FormSpec;
use crate::api::names;
use crate::decide::admission::rights::{TargetNamespace, VERBS, lacks, of_form, rule};
use crate::decide::child::{Kind, Scope};
use crate::decide::operator::check::{Finding, listed};
use crate::decide::operator::watched::WatchedNamespaces;

/// What adds a namespace to the watched ones.
const WATCH_IT: &str =
    "Add it to --watch-namespaces (docs/OPERATING.md, \"Watch some namespaces only\")";

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
    /// It is used in namespaces that the operator does not watch.
    Unwatched(Vec<String>),
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

/// The namespaces in which a kind of this scope is used, and which the operator does not watch.
pub fn unwatched(used: &Used, scope: Scope, watched: &WatchedNamespaces) -> Vec<String> {
    let is_unwatched = |namespace: &&String| {
        scope == Scope::Namespaced && !namespace.is_empty() && !watched.has(namespace)
    };
    used.namespaces
        .iter()
        .filter(is_unwatched)
        .cloned()
        .collect()
}

/// The verbs to ask for, each with its namespace; an empty one stands for all. lynqgate watches objects of all watched namespaces.
pub fn questions(
    used: &Used,
    scope: Scope,
    watched: &WatchedNamespaces,
) -> BTreeSet<(&'static str, String)> {
    let everywhere = scope == Scope::Cluster || used.namespaces.contains("");
    let mut questions = BTreeSet::new();
    for verb in VERBS {
        if everywhere || ["list", "watch"].contains(&verb) {
            let places = watched.places(scope).into_iter();
            questions.extend(places.map(|place| (verb, place.to_owned())));
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
        Rights::Unwatched(namespaces) => Some(Finding::failed(
            format!("Namespace {}", listed(namespaces)),
            format!(
                "lynqgate does not watch it, and applies no {} there (used by form {forms})",
                kind.kind
            ),
            WATCH_IT,
        )),
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
            let lacks = lacks(group, plural, &Vec::from_iter(verbs.iter().copied()));
            Some(Finding::failed(
                object,
                format!("it {lacks} (used by form {forms})"),
                format!(
                    "Add this rule to a ClusterRole with the label {}=true: {{{}}}",
                    names::AGGREGATE_TO_TENANTS,
                    rule(group, plural)
                ),
            ))
        }
    }
}

/// For a namespace of forms that the operator does not watch.
pub fn home_unwatched(home: &str) -> Finding {
    let said = "lynqgate does not watch it, so it does nothing about its hubs, forms and nodes";
    Finding::failed(format!("Namespace {home}"), said, WATCH_IT)
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
        let all = WatchedNamespaces::default();
        let some = WatchedNamespaces::of(["home", "x", "y"].map(str::to_owned));
        let used = |kind: &str| kinds.iter().find(|(k, _)| k.kind == kind).unwrap().1;
        let asked = |kind: &str, scope: Scope, verb: &str, watched: &WatchedNamespaces| {
            let questions = questions(used(kind), scope, watched).into_iter();
            let places = questions.filter(|(asked, _)| *asked == verb);
            Vec::from_iter(places.map(|(_, namespace)| namespace)).join(" ")
        };
        let (namespaced, cluster) = (Scope::Namespaced, Scope::Cluster);
        for (kind, scope, verb, of_all, of_some) in [
            ("Secret", namespaced, "create", "home x", "home x"),
            ("Secret", namespaced, "watch", "", "home x y"),
            ("Secret", cluster, "create", "", ""),
            ("Deployment", namespaced, "delete", "", "home x y"),
        ] {
            assert_eq!(asked(kind, scope, verb, &all), of_all, "{kind} {verb}");
            assert_eq!(asked(kind, scope, verb, &some), of_some, "{kind} {verb}");
        }
        let few = WatchedNamespaces::of(["home".to_owned()]);
        assert_eq!(unwatched(used("Secret"), namespaced, &few), ["x"]);
        assert!(unwatched(used("Secret"), cluster, &few).is_empty());
        assert!(unwatched(used("Deployment"), namespaced, &few).is_empty());
        assert!(unwatched(used("Secret"), namespaced, &all).is_empty());
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
        let unwatched = Rights::Unwatched(vec!["x".to_owned()]);
        assert_eq!(
            said(vec![(widget(), unwatched)]),
            [
                "failed Namespace x: lynqgate does not watch it, and applies no Widget there (used by form web). Add it to \
                 --watch-namespaces (docs/OPERATING.md, \"Watch some namespaces only\")"
            ]
        );
        assert_eq!(
            line(&home_unwatched("y")),
            "failed Namespace y: lynqgate does not watch it, so it does nothing about its hubs, forms and nodes. Add it to \
             --watch-namespaces (docs/OPERATING.md, \"Watch some namespaces only\")"
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
