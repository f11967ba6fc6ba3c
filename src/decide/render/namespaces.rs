//! Which namespaces a form may reach. What the form itself spells out it may name; where a template, and so a row, chooses, it
//! must be one that the form creates for that row, or that `allowedNamespaces` lists.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::api::resource::Resource;
use crate::decide::child::kind_of;

/// Namespaces that the row's own resources create, and the ids of those.
pub fn created<'a>(resources: impl Iterator<Item = &'a Resource>) -> BTreeMap<String, String> {
    let namespaces = resources.filter(|resource| {
        let kind = kind_of(&resource.spec);
        kind.api_version == "v1" && kind.kind == "Namespace"
    });
    let mut created = BTreeMap::new();
    for resource in namespaces {
        // A second one of the same name is an error of its own.
        let id = created.entry(name_of(resource));
        id.or_insert_with(|| resource.id.clone());
    }
    created
}

fn name_of(resource: &Resource) -> String {
    match resource.name_template.as_str() {
        "" => text(&resource.spec, "/metadata/name"),
        name => name.to_owned(),
    }
}

/// Where a resource goes; empty for the node's own namespace.
pub fn of(resource: &Resource) -> String {
    match resource.target_namespace.as_str() {
        "" => text(&resource.spec, "/metadata/namespace"),
        namespace => namespace.to_owned(),
    }
}

fn text(spec: &Value, pointer: &str) -> String {
    let value = spec.pointer(pointer).and_then(Value::as_str);
    value.unwrap_or_default().to_owned()
}

/// The resource, whose namespace a template chose, or why that may not lead there; `shown` says of it what everybody may
/// read.
pub fn reach(
    mut resource: Resource,
    created: &BTreeMap<String, String>,
    allowed: &[String],
    shown: impl Fn(&str) -> String,
) -> Result<Resource, String> {
    let namespace = of(&resource);
    if namespace.is_empty() || allowed.iter().any(|pattern| matches(pattern, &namespace)) {
        return Ok(resource);
    }
    let Some(id) = created.get(&namespace) else {
        return Err(format!(
            "targetNamespace: a template may lead to a namespace that this form creates for the row, or that the form's \
             allowedNamespaces lists, but not to {:?}",
            shown(&namespace)
        ));
    };
    // The row may have given it the name of one that is there already: then it is a conflict, unless the form's author says
    // conflictPolicy: Force, and nothing goes there.
    if *id != resource.id {
        resource.namespace_from.clone_from(id);
    }
    Ok(resource)
}

/// `*` stands for any text, also for none.
fn matches(pattern: &str, text: &str) -> bool {
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
    use crate::decide::render::CompiledForm;

    fn resource(id: &str, kind: &str, name: &str, namespace: &str) -> Resource {
        let spec = json!({"apiVersion": "v1", "kind": kind});
        let resource =
            json!({"id": id, "nameTemplate": name, "targetNamespace": namespace, "spec": spec});
        serde_json::from_value(resource).expect("a resource")
    }

    /// A row may say the name of a namespace that is there already, and somebody else's.
    #[test]
    fn what_goes_into_a_created_namespace_waits_for_it() {
        let all = [
            resource("ns", "Namespace", "acme", ""),
            resource("again", "Namespace", "acme", ""),
        ];
        let created = created(all.iter());
        let reached = |namespace: &str| {
            let secret = resource("secret", "Secret", "s", namespace);
            reach(secret, &created, &["t-*".to_owned()], str::to_owned)
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
