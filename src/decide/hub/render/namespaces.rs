//! Which namespaces a form may reach. What the form itself spells out it may name; where a template, and so a row, chooses, it
//! must match what the template itself spells out (`team-{{ .uid }}` allows `team-*`), or be one that the form creates for that
//! row, or that `allowedNamespaces` lists. Reserved ones must be listed by their full names.

use std::collections::BTreeMap;

use crate::api::resource::Resource;
use crate::decide::child::kind_of;
use crate::decide::shared::fields::text_at;

/// Namespaces that the row's own resources create, and the ids of those.
pub fn created<'a>(resources: impl Iterator<Item = &'a Resource>) -> BTreeMap<String, String> {
    let namespaces = resources.filter(|resource| is_namespace(resource));
    let mut created = BTreeMap::new();
    for resource in namespaces {
        // `complete` reports a second one of the same name.
        let id = created.entry(name_of(resource));
        id.or_insert_with(|| resource.id.clone());
    }
    created
}

fn is_namespace(resource: &Resource) -> bool {
    let kind = kind_of(&resource.spec);
    kind.api_version == "v1" && kind.kind == "Namespace"
}

fn name_of(resource: &Resource) -> String {
    match resource.name_template.as_str() {
        "" => text_at(&resource.spec, "/metadata/name").to_owned(),
        name => name.to_owned(),
    }
}

/// A resource's namespace; empty for the node's own.
pub fn of(resource: &Resource) -> String {
    match resource.target_namespace.as_str() {
        "" => text_at(&resource.spec, "/metadata/namespace").to_owned(),
        namespace => namespace.to_owned(),
    }
}

/// The pattern of a template: its literal text, with `*` for each action. None if no letter or digit is left, because a row could
/// then select any namespace, or if an action has no end.
pub fn pattern(template: &str) -> Option<String> {
    const ACTIONS: [(&str, &str); 3] = [("{{", "}}"), ("{%", "%}"), ("{#", "#}")];
    let (mut pattern, mut rest) = (String::new(), template);
    loop {
        let starts = ACTIONS.iter();
        let starts = starts.filter_map(|(start, end)| Some((rest.find(start)?, end)));
        let Some((at, end)) = starts.min() else {
            pattern += rest;
            let says = pattern.contains(|c: char| c.is_ascii_alphanumeric());
            return says.then_some(pattern);
        };
        pattern += &rest[..at];
        pattern += "*";
        // Both signs of the start, so that `{{}}` ends where it does.
        rest = &rest[at + 2..];
        rest = &rest[rest.find(end)? + end.len()..];
    }
}

/// The namespaces that a form's templates may select.
pub struct Allowed<'a> {
    /// `allowedNamespaces`.
    pub listed: &'a [String],
    /// The operator's own namespace, where it is known.
    pub own: &'a str,
}

/// Kubernetes' own namespaces, `default` and the operator's: no pattern is meant to match them.
pub fn is_reserved(namespace: &str, own: &str) -> bool {
    namespace.starts_with("kube-") || namespace == "default" || namespace == own
}

impl Allowed<'_> {
    /// Reserved, and not listed by its full name.
    fn is_barred(&self, namespace: &str) -> bool {
        is_reserved(namespace, self.own) && !self.listed.iter().any(|listed| listed == namespace)
    }

    /// Returns the resource if its namespace, selected by a template with this pattern, is allowed. `shown` redacts the namespace
    /// for the error.
    pub fn reach(
        &self,
        mut resource: Resource,
        pattern: Option<&str>,
        created: &BTreeMap<String, String>,
        shown: impl Fn(&str) -> String,
    ) -> Result<Resource, String> {
        let namespace = of(&resource);
        if namespace.is_empty() {
            return Ok(resource);
        }
        if self.is_barred(&namespace) {
            return Err(format!("targetNamespace: {}", barred(&shown(&namespace))));
        }
        let mut patterns = self.listed.iter().map(String::as_str).chain(pattern);
        if patterns.any(|pattern| matches(pattern, &namespace)) {
            return Ok(resource);
        }
        let Some(id) = created.get(&namespace) else {
            let written = pattern.map_or_else(String::new, |pattern| {
                format!(" match its own text ({pattern:?}),")
            });
            return Err(format!(
                "targetNamespace: the template leads to namespace {:?}, which must{written} be created by this form for the row, or \
                 match allowedNamespaces. Add it there, or correct the row's value",
                shown(&namespace)
            ));
        };
        // The row may have named an existing namespace: that is a conflict, and nothing is created in it, unless the form has
        // conflictPolicy: Force.
        if *id != resource.id {
            resource.namespace_from.clone_from(id);
        }
        Ok(resource)
    }

    /// Returns the resource if its name, selected by a template, is allowed: with conflictPolicy: Force it could take over the
    /// namespace of that name.
    pub fn create(
        &self,
        resource: Resource,
        shown: impl Fn(&str) -> String,
    ) -> Result<Resource, String> {
        let name = name_of(&resource);
        match is_namespace(&resource) && self.is_barred(&name) {
            true => Err(format!("nameTemplate: {}", barred(&shown(&name)))),
            false => Ok(resource),
        }
    }
}

fn barred(shown: &str) -> String {
    format!(
        "the template leads to namespace {shown:?}, which is reserved. List that name itself in allowedNamespaces, or correct the row's \
         value"
    )
}

/// `*` matches any text, also an empty one.
pub fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::decide::hub::render::CompiledForm;

    fn resource(id: &str, kind: &str, name: &str, namespace: &str) -> Resource {
        let spec = json!({"apiVersion": "v1", "kind": kind});
        let resource =
            json!({"id": id, "nameTemplate": name, "targetNamespace": namespace, "spec": spec});
        serde_json::from_value(resource).expect("a resource")
    }

    /// A row may name an existing namespace that belongs to others.
    #[test]
    fn what_goes_into_a_created_namespace_waits_for_it() {
        let all = [
            resource("ns", "Namespace", "acme", ""),
            resource("again", "Namespace", "acme", ""),
        ];
        let created = created(all.iter());
        let reached = |namespace: &str| {
            let secret = resource("secret", "Secret", "s", namespace);
            let allowed = Allowed {
                listed: &["t-*".to_owned()],
                own: "",
            };
            allowed.reach(secret, None, &created, str::to_owned)
        };
        let from = |namespace: &str| reached(namespace).map(|resource| resource.namespace_from);
        assert_eq!(from("acme"), Ok("ns".to_owned()));
        assert_eq!(from("t-acme"), Ok(String::new()));
        assert_eq!(from(""), Ok(String::new()));
        assert!(from("kube-system").unwrap_err().contains("kube-system"));
    }

    #[test]
    fn a_namespace_that_waits_for_what_is_in_it_is_found() {
        let form = json!({"hubId": "h", "manifests": [
            {"id": "ns", "nameTemplate": "{{ .uid }}", "dependIds": ["secret"], "spec": {"apiVersion": "v1", "kind": "Namespace"}},
            {"id": "secret", "nameTemplate": "s", "targetNamespace": "{{ .uid }}", "spec": {"apiVersion": "v1", "kind": "Secret"}},
        ]});
        let form = CompiledForm::parse("web", &serde_json::from_value(form).unwrap()).unwrap();
        let mut ns = resource("ns", "Namespace", "acme", "");
        ns.depend_ids.push("secret".to_owned());
        let mut secret = resource("secret", "Secret", "s", "acme");
        assert!(!form.is_circular(&[Ok(ns.clone()), Ok(secret.clone())]));
        secret.namespace_from = "ns".to_owned();
        assert!(form.is_circular(&[Ok(ns), Ok(secret)]));
    }

    #[test]
    fn what_a_template_spells_out_is_its_pattern() {
        for (template, expected) in [
            ("{{ .uid }}-ns", Some("*-ns")),
            ("team-{{ .team }}", Some("team-*")),
            ("t-{{ .a }}-{{ .b }}-x", Some("t-*-*-x")),
            ("{{.a}}{{.b}}x", Some("**x")),
            ("{{ .uid }}", None),
            // Templates without any text that restricts a row.
            ("{{ .a }}-{{ .b }}", None),
            ("{{- .a -}}", None),
            ("{{}}a", Some("*a")),
            (
                "{% if uid %}a{% endif %}-{{ uid }}{# note #}",
                Some("*a*-**"),
            ),
            // All branches must match: no namespace matches both.
            (
                "{{ if .a }}kube-system{{ else }}t-1{{ end }}",
                Some("*kube-system*t-1*"),
            ),
            // The first end counts, even inside a string: the rest of the action matches no name.
            (r#"t-{{ "}}" }}"#, Some(r#"t-*" }}"#)),
            ("t-{{ .a", None),
        ] {
            assert_eq!(pattern(template).as_deref(), expected, "{template}");
        }
    }

    #[test]
    fn a_pattern_never_leads_to_a_reserved_namespace() {
        let reached = |namespace: &str, pattern: Option<&str>, listed: &[&str]| {
            let listed: Vec<String> = listed.iter().map(ToString::to_string).collect();
            let allowed = Allowed {
                listed: &listed,
                own: "lynq-system",
            };
            let ns = resource("ns", "Namespace", namespace, "");
            let created = created([ns.clone()].iter());
            let secret = resource("secret", "Secret", "s", namespace);
            let reached = allowed.reach(secret, pattern, &created, str::to_owned);
            let makes = allowed.create(ns, str::to_owned);
            assert_eq!(reached.is_ok(), makes.is_ok(), "{namespace}");
            match reached {
                Ok(_) => true,
                Err(why) => {
                    assert!(why.contains("which is reserved. List that name"), "{why}");
                    false
                }
            }
        };
        for namespace in ["kube-system", "kube-x", "default", "lynq-system"] {
            for (pattern, listed, expected) in [
                (None, &[][..], false),
                (Some("*e*"), &["*"], false),
                (None, &["kube-*", "def*", "lynq-*"], false),
                (None, &[namespace], true),
            ] {
                let found = reached(namespace, pattern, listed);
                assert_eq!(found, expected, "{namespace} {pattern:?} {listed:?}");
            }
        }
        assert!(reached("lynq-systems", Some("lynq-*"), &[]));
        assert!(reached("defaults", None, &[]), "it is created");
    }

    #[test]
    fn what_neither_the_template_nor_the_list_matches_is_refused() {
        let allowed = Allowed {
            listed: &["x-*".to_owned()],
            own: "",
        };
        let reached = |pattern: Option<&str>, namespace: &str| {
            let secret = resource("secret", "Secret", "s", namespace);
            let created = BTreeMap::new();
            allowed
                .reach(secret, pattern, &created, str::to_owned)
                .map(drop)
        };
        assert_eq!(reached(Some("team-*"), "team-a"), Ok(()));
        assert_eq!(reached(Some("team-*"), "x-a"), Ok(()));
        assert_eq!(
            reached(Some("team-*"), "prod").unwrap_err(),
            "targetNamespace: the template leads to namespace \"prod\", which must match its own text (\"team-*\"), be created by this \
             form for the row, or match allowedNamespaces. Add it there, or correct the row's value"
        );
        assert!(
            reached(None, "team-a")
                .unwrap_err()
                .contains("which must be created by this form")
        );
    }

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, text, expected) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("", "a", false),
            ("*", "a", true),
            ("t-*", "t-acme", true),
            ("t-*", "x-t-acme", false),
            ("*-dev", "a-dev", true),
            ("*-dev", "a-dev-b", false),
            ("t-*-*-dev", "t-a-b-dev", true),
            ("t-*-*-dev", "t-a-dev", false),
            ("a*a", "a", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }
}
