//! Checks names, namespaces and labels as the API server does. The API server's own error would come only when each node is
//! released, and would show every reader the whole value.

use serde_json::Value;

use crate::api::resource::Resource;
use crate::decide::hub::render::namespaces;
use crate::decide::hub::rows::names::NAME_CHARS_MAX;
use crate::decide::hub::rows::uid::is_subdomain;
use crate::decide::shared::fields::at;

/// Cluster-scoped kinds of Kubernetes' own groups.
const WITHOUT_NAMESPACE: [&str; 3] = ["Namespace", "Node", "PersistentVolume"];

const OWN_LABELS: &str = "/metadata/labels";
const PODS_LABELS: &str = "/spec/template/metadata/labels";

/// The longest label value, and the longest last part of a key.
const LABEL_CHARS_MAX: usize = 63;

/// A field, its value, and the rule that this breaks; `object` by group, kind and name.
pub fn broken(resource: &Resource, object: (&str, &str, &str)) -> Option<(String, String, String)> {
    let (group, kind, name) = object;
    let found = |field: &str, value: &str, rule: &str| {
        Some((field.to_owned(), value.to_owned(), rule.to_owned()))
    };
    if let Some(rule) = broken_name(group, kind, name) {
        return found("nameTemplate", name, &format!("is no name: {rule}"));
    }
    let namespace = namespaces::of(resource);
    // A cluster-scoped object's namespace does not matter, and the scope of custom kinds is unknown here.
    let has_namespace = is_builtin(group, kind) && !WITHOUT_NAMESPACE.contains(&kind);
    if has_namespace && !namespace.is_empty() && !is_label_name(&namespace) {
        let rule = "is no namespace: it may have 63 characters, lower case letters, digits and '-', and begins and ends with a letter or digit";
        return found("targetNamespace", &namespace, rule);
    }
    let templates = resource.labels_template.iter();
    let templates =
        templates.map(|(key, value)| (format!("labelsTemplate[{key}]"), value.as_str()));
    let mut places = vec![OWN_LABELS];
    if is_builtin(group, kind) {
        places.push(PODS_LABELS);
    }
    let of_spec = places.into_iter().flat_map(|place| {
        let labels = at(&resource.spec, place).and_then(Value::as_object);
        let path = format!("spec{}", place.replace('/', "."));
        labels
            .into_iter()
            .flatten()
            // `labelsTemplate` overrides the object's own labels.
            .filter(move |(key, _)| {
                place != OWN_LABELS || !resource.labels_template.contains_key(*key)
            })
            .filter_map(move |(key, value)| Some((format!("{path}[{key}]"), value.as_str()?)))
    });
    if let Some((field, key)) = broken_key(resource, is_builtin(group, kind)) {
        let rule = "is no key: it may have 63 characters, letters, digits, '-', '_' and '.', begins and ends with a letter or digit, and before it \
                    a domain and '/'; and it is no template";
        return found(field, key, rule);
    }
    let (field, value) = templates
        .chain(of_spec)
        .find(|(_, value)| !is_label_value(value))?;
    let rule = "is no label: it may have 63 characters, letters, digits, '-', '_' and '.', and begins and ends with a letter or digit";
    found(&field, value, rule)
}

/// A label or annotation whose key the API server rejects.
fn broken_key(resource: &Resource, has_pods: bool) -> Option<(&'static str, &str)> {
    let of_spec = |place: &str| {
        let all = at(&resource.spec, place).and_then(Value::as_object);
        all.into_iter().flat_map(|all| all.keys()).collect()
    };
    let of_pods = |place| if has_pods { of_spec(place) } else { vec![] };
    let labels = [
        ("labelsTemplate", resource.labels_template.keys().collect()),
        ("spec.metadata.labels", of_spec(OWN_LABELS)),
        ("spec.spec.template.metadata.labels", of_pods(PODS_LABELS)),
    ];
    let annotations = [
        (
            "annotationsTemplate",
            resource.annotations_template.keys().collect(),
        ),
        (
            "spec.metadata.annotations",
            of_spec("/metadata/annotations"),
        ),
        (
            "spec.spec.template.metadata.annotations",
            of_pods("/spec/template/metadata/annotations"),
        ),
    ];
    // The domain before an annotation may have capitals.
    let all_lower = |key: &str| is_key(&key.to_lowercase());
    first_but(labels, is_key).or_else(|| first_but(annotations, all_lower))
}

fn first_but<'a>(
    all: [(&'static str, Vec<&'a String>); 3],
    good: fn(&str) -> bool,
) -> Option<(&'static str, &'a str)> {
    all.into_iter().find_map(|(field, keys)| {
        let broken = keys.into_iter().find(|key| !good(key))?;
        Some((field, broken.as_str()))
    })
}

/// Kubernetes' `IsQualifiedName`.
fn is_key(text: &str) -> bool {
    let (domain, name) = match text.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, text),
    };
    let is_domain = |domain: &str| domain.len() <= NAME_CHARS_MAX && is_subdomain(domain);
    domain.is_none_or(is_domain) && !name.is_empty() && is_label_value(name)
}

fn is_builtin(group: &str, kind: &str) -> bool {
    match group {
        "" | "apps" | "autoscaling" | "batch" => true,
        "networking.k8s.io" => matches!(kind, "Ingress" | "NetworkPolicy"),
        _ => false,
    }
}

/// The rule for names that the object breaks: of a built-in kind, or of any kind (such as a PodDisruptionBudget).
fn broken_name(group: &str, kind: &str, name: &str) -> Option<&'static str> {
    match name {
        _ if name.len() > NAME_CHARS_MAX => Some("it may have 253 characters"),
        _ if is_builtin(group, kind) && !is_subdomain(name) => Some(
            "it may have lower case letters, digits, '-' and '.', and begins and ends, also around each '.', with a letter or digit",
        ),
        _ if group.is_empty()
            && ["Namespace", "Service"].contains(&kind)
            && (name.contains('.') || name.len() > LABEL_CHARS_MAX) =>
        {
            Some("it may have 63 characters, and no '.'")
        }
        "." | ".." => Some("it would be a path"),
        _ if name.contains(['/', '%']) => Some("it may not have '/' and '%'"),
        _ => None,
    }
}

/// Kubernetes' `IsDNS1123Label`.
fn is_label_name(text: &str) -> bool {
    text.len() <= LABEL_CHARS_MAX && is_subdomain(text) && !text.contains('.')
}

/// Kubernetes' `IsValidLabelValue`.
fn is_label_value(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let outer = |byte: Option<u8>| byte.is_none_or(|byte| byte.is_ascii_alphanumeric());
    text.len() <= LABEL_CHARS_MAX
        && text.bytes().all(inner)
        && outer(text.bytes().next())
        && outer(text.bytes().last())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_an_api_server_would_not_take_is_found_by_its_field() {
        let long = "a".repeat(64);
        let cases = [
            (
                "a sound one",
                json!({"labelsTemplate": {"plan": "Pro_1.x"}, "targetNamespace": "a-1"}),
                None,
            ),
            (
                "an empty label",
                json!({"labelsTemplate": {"plan": ""}}),
                None,
            ),
            (
                "a label with a space",
                json!({"labelsTemplate": {"plan": "Pro Plan"}}),
                Some("labelsTemplate[plan]"),
            ),
            (
                "one that ends with a dash",
                json!({"labelsTemplate": {"plan": "pro-"}}),
                Some("labelsTemplate[plan]"),
            ),
            (
                "too long a label",
                json!({"labelsTemplate": {"plan": long}}),
                Some("labelsTemplate[plan]"),
            ),
            (
                "a label of the pods",
                json!({"spec": {"spec": {"template": {"metadata": {"labels": {"app": "a@b"}}}}}}),
                Some("spec.spec.template.metadata.labels[app]"),
            ),
            (
                "a key with a space",
                json!({"labelsTemplate": {"a b": "1"}}),
                Some("labelsTemplate"),
            ),
            (
                "a key that is a template",
                json!({"annotationsTemplate": {"{{ .uid }}": "any text"}}),
                Some("annotationsTemplate"),
            ),
            (
                "keys with a domain",
                json!({"annotationsTemplate": {"nginx.ingress.kubernetes.io/rewrite-target": "/$2"}}),
                None,
            ),
            (
                "a label's domain with a capital",
                json!({"labelsTemplate": {"Example.com/a": "1"}}),
                Some("labelsTemplate"),
            ),
            (
                "an annotation's",
                json!({"annotationsTemplate": {"Example.com/a": "1"}}),
                None,
            ),
            (
                "a key of the pods",
                json!({"spec": {"spec": {"template": {"metadata": {"labels": {"a b": "c"}}}}}}),
                Some("spec.spec.template.metadata.labels"),
            ),
            (
                "a key with two slashes",
                json!({"spec": {"metadata": {"annotations": {"a/b/c": "1"}}}}),
                Some("spec.metadata.annotations"),
            ),
            (
                "one that the template overrules",
                json!({"labelsTemplate": {"app": "a"}, "spec": {"metadata": {"labels": {"app": "a b"}}}}),
                None,
            ),
            (
                "one that is no text",
                json!({"spec": {"metadata": {"labels": {"app": 1}}}}),
                None,
            ),
            (
                "a namespace with a dot",
                json!({"targetNamespace": "a.b"}),
                Some("targetNamespace"),
            ),
            (
                "too long a namespace",
                json!({"targetNamespace": long}),
                Some("targetNamespace"),
            ),
            (
                "a namespace of the manifest",
                json!({"spec": {"metadata": {"namespace": "A"}}}),
                Some("targetNamespace"),
            ),
        ];
        for (what, mut given, expected) in cases {
            given["id"] = json!("app");
            let spec = given.as_object_mut().unwrap().entry("spec");
            spec.or_insert_with(|| json!({}));
            let resource: Resource = serde_json::from_value(given).unwrap();
            let found = broken(&resource, ("apps", "Deployment", "web"));
            assert_eq!(found.map(|found| found.0).as_deref(), expected, "{what}");
        }
    }
}
