//! What a form makes the operator create, and in which namespaces, from the form's text alone: neither the rows nor the time may
//! decide which rights its author needs.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::api::form::FormSpec;
use crate::api::names;
use crate::api::resource::{Resource, ResourceArrays};
use crate::decide::child::{Kind, kind_of};
use crate::decide::hub::render::{is_template, namespaces};
use crate::decide::shared::content::lists::Lists;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// None means any kind: a template selects the kind, or the form creates forms or nodes, whose contents depend on the rows.
    pub kind: Option<Kind>,
    pub namespace: TargetNamespace,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TargetNamespace {
    /// The form's own namespace.
    Home,
    Namespace(String),
    /// A template selects the namespace, which must match one of these patterns.
    Matching(BTreeSet<String>),
    /// A template selects the namespace.
    Any,
}

/// What the operator does with the objects of a kind.
pub const VERBS: [&str; 7] = [
    "get", "list", "watch", "create", "patch", "update", "delete",
];

/// The rule of a ClusterRole that gives the operator all of these rights.
pub fn rule(group: &str, plural: &str) -> String {
    let verbs = VERBS.join(", ");
    format!("apiGroups: [{group:?}], resources: [{plural:?}], verbs: [{verbs}]")
}

/// The verbs of [`VERBS`] that the operator lacks, in words that follow its name.
pub fn lacks(group: &str, plural: &str, verbs: &[&str]) -> String {
    let name = match group {
        "" => plural.to_owned(),
        group => format!("{plural}.{group}"),
    };
    match verbs.len() {
        count if count == VERBS.len() => format!("has no rights on {name}"),
        _ => format!("may not {} {name}", verbs.join(", ")),
    }
}

/// The most namespaces in which the author needs the right separately; for more, the author needs it in all namespaces.
const NAMESPACES_MAX: usize = 50;

/// Of the namespaces that there are, those that such patterns lead to; or why the author needs the right in all namespaces.
pub fn reached<'a>(
    patterns: &BTreeSet<String>,
    present: &'a BTreeSet<String>,
) -> Result<Vec<&'a str>, String> {
    let is_reached = |name: &str| {
        let leads = |pattern: &String| namespaces::matches(pattern, name);
        patterns.contains(name)
            || (!namespaces::is_reserved(name, "") && patterns.iter().any(leads))
    };
    let present = present.iter().map(String::as_str);
    let found: Vec<&str> = present.filter(|name| is_reached(name)).collect();
    let shown: Vec<String> = patterns.iter().take(3).map(|p| format!("{p:?}")).collect();
    let shown = shown.join(", ");
    match found.len() {
        0 => Err(format!("no namespace matches {shown} yet")),
        1..=NAMESPACES_MAX => Ok(found),
        more => Err(format!("{more} match {shown}")),
    }
}

pub fn of_form(spec: &FormSpec) -> BTreeSet<Right> {
    of_resources(spec.content.iter(), Some(&spec.allowed_namespaces))
}

/// The rights for a node whose content a user changes directly, instead of its hub.
pub fn of_node(old: Option<&Lists>, new: &Lists) -> BTreeSet<Right> {
    if old.is_some_and(|old| old.is_same(new)) {
        return BTreeSet::new();
    }
    // Content that the type does not accept is never applied.
    let parsed = serde_json::from_value::<ResourceArrays>(new.filled().value()).ok();
    // Neither is a resource that did not render.
    let applied = |content: ResourceArrays| {
        of_resources(
            content
                .iter()
                .filter(|resource| resource.render_error.is_empty()),
            None,
        )
    };
    parsed.map_or_else(BTreeSet::new, applied)
}

/// `allowed`: for a form, `allowedNamespaces`, which limit its templates.
fn of_resources<'a>(
    content: impl Iterator<Item = &'a Resource>,
    allowed: Option<&[String]>,
) -> BTreeSet<Right> {
    let chosen = |template: &str| {
        let listed = allowed.into_iter().flatten().cloned();
        let written = allowed.and_then(|_| namespaces::pattern(template));
        match listed.chain(written).collect::<BTreeSet<_>>() {
            none if none.is_empty() => TargetNamespace::Any,
            patterns => TargetNamespace::Matching(patterns),
        }
    };
    let of_resource = |resource: &Resource| {
        let kind = kind_of(&resource.spec);
        if kind.group() == names::GROUP && ["LynqForm", "LynqNode"].contains(&kind.kind.as_str()) {
            return Right {
                kind: None,
                namespace: TargetNamespace::Any,
            };
        }
        let says = [&kind.kind, &kind.api_version];
        // An invalid kind or apiVersion must not avoid the check.
        let is_fixed =
            !says.into_iter().any(|text| is_template(text)) && kind.impossible().is_none();
        let of_spec = resource.spec.pointer("/metadata/namespace");
        let of_spec = of_spec.and_then(Value::as_str);
        let namespace = match resource.target_namespace.as_str() {
            "" => of_spec.unwrap_or_default(),
            namespace => namespace,
        };
        Right {
            kind: is_fixed.then_some(kind),
            namespace: match namespace {
                "" => TargetNamespace::Home,
                text if is_template(text) => chosen(text),
                text => TargetNamespace::Namespace(text.to_owned()),
            },
        }
    };
    content.map(of_resource).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_template_says_may_be_anything() {
        let spec = json!({"hubId": "h", "manifests": [
            {"id": "a", "spec": {"apiVersion": "v1", "kind": "Secret"}},
            {"id": "b", "targetNamespace": "kube-system", "spec": {"apiVersion": "v1", "kind": "Secret"}},
            {"id": "c", "spec": {"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "x"}}},
            {"id": "d", "targetNamespace": "t-{{ .uid }}", "spec": {"apiVersion": "v1", "kind": "Secret"}},
            {"id": "i", "targetNamespace": "{{ .uid }}", "spec": {"apiVersion": "v1", "kind": "Secret"}},
            {"id": "e", "spec": {"apiVersion": "v1", "kind": "{{ .kind }}"}},
            {"id": "g", "targetNamespace": "{# #}", "spec": {"apiVersion": "v1", "kind": "Secret{# #}"}},
            {"id": "h", "targetNamespace": "h", "spec": {"apiVersion": "v1", "kind": "Sec ret"}},
            {"id": "f", "spec": {"apiVersion": "operator.lynq.sh/v1", "kind": "LynqForm"}},
        ]});
        let needed = of_form(&serde_json::from_value(spec).unwrap());
        let secret = |namespace| Right {
            kind: Some(Kind {
                api_version: "v1".into(),
                kind: "Secret".into(),
            }),
            namespace,
        };
        let any = |namespace| Right {
            kind: None,
            namespace,
        };
        let named = |name: &str| secret(TargetNamespace::Namespace(name.into()));
        let expected = [
            any(TargetNamespace::Home),
            any(TargetNamespace::Any),
            any(TargetNamespace::Namespace("h".into())),
            secret(TargetNamespace::Home),
            named("kube-system"),
            named("x"),
            secret(TargetNamespace::Matching(BTreeSet::from(
                ["t-*".to_owned()],
            ))),
            secret(TargetNamespace::Any),
        ];
        assert_eq!(needed, BTreeSet::from(expected));
        let node = json!({"spec": {"uid": "a", "configMaps": [
            {"id": "a", "targetNamespace": "{{ .x }}", "spec": {}, "renderError": "no x"},
            {"id": "b", "spec": {"apiVersion": "v1", "kind": "Secret"}},
        ]}});
        assert_eq!(
            of_node(None, &Lists::of(node.get("spec"))),
            BTreeSet::from([secret(TargetNamespace::Home)])
        );
    }

    #[test]
    fn a_pattern_asks_for_what_matches_now() {
        let present = ["kube-system", "team-a", "team-b", "prod", "default"];
        let mut present: BTreeSet<String> = present.map(str::to_owned).into();
        let reached = |patterns: &[&str], present: &BTreeSet<String>| {
            let patterns = patterns.iter().map(ToString::to_string).collect();
            let found = reached(&patterns, present);
            found.map(|found| found.join(" "))
        };
        assert_eq!(
            reached(&["team-*"], &present),
            Ok("team-a team-b".to_owned())
        );
        assert_eq!(
            reached(&["*", "kube-system"], &present),
            Ok("kube-system prod team-a team-b".to_owned())
        );
        let none = Err("no namespace matches \"x-*\" yet".to_owned());
        assert_eq!(reached(&["x-*"], &present), none);
        present.extend((0..49).map(|i| format!("team-{i}")));
        let many = Err("51 match \"team-*\"".to_owned());
        assert_eq!(reached(&["team-*"], &present), many);
    }
}
