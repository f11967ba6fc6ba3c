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
    namespaces
        .map(|resource| (name_of(resource), resource.id.clone()))
        .collect()
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
    // The row may have given it the name of one that is there already: then it is not created, and nothing goes there.
    if *id != resource.id {
        if !resource.depend_ids.contains(id) {
            resource.depend_ids.push(id.clone());
        }
        resource.skip_on_dependency_failure = true;
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
    use super::*;

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
