//! The namespaces that the operator watches: all, or those that `--watch-namespaces` names. It lists, watches and applies objects of
//! tenants in no others.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::names;
use crate::decide::child::{ObjectKey, Scope};

/// The default is all. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchedNamespaces(Option<Arc<BTreeSet<String>>>);

impl WatchedNamespaces {
    /// Without names, all.
    pub fn of(given: impl IntoIterator<Item = String>) -> Self {
        let given = BTreeSet::from_iter(given);
        WatchedNamespaces((!given.is_empty()).then(|| Arc::new(given)))
    }

    /// None if all namespaces are watched.
    pub fn names(&self) -> Option<&BTreeSet<String>> {
        self.0.as_deref()
    }

    pub fn is_all(&self) -> bool {
        self.0.is_none()
    }

    pub fn has(&self, namespace: &str) -> bool {
        self.names().is_none_or(|given| given.contains(namespace))
    }

    /// The namespaces that are listed and watched one by one, so that all objects of a kind are seen. An empty name stands for the
    /// whole cluster.
    pub fn places(&self, scope: Scope) -> Vec<&str> {
        match (self.names(), scope) {
            (Some(given), Scope::Namespaced) => given.iter().map(String::as_str).collect(),
            _ => vec![""],
        }
    }

    /// Why the operator does not apply an object of this key. `shown` redacts the name of the namespace.
    pub fn refusal(&self, key: &ObjectKey, shown: impl FnOnce(&str) -> String) -> Option<String> {
        let namespace = &*key.namespace;
        if namespace.is_empty() || self.has(namespace) {
            return None;
        }
        Some(format!(
            "lynqgate does not watch namespace {:?}, so it applies nothing there; add it to --watch-namespaces, or correct targetNamespace",
            shown(namespace)
        ))
    }

    /// The namespaceSelector of the webhooks; None if they hold writes in all namespaces.
    pub fn selector(&self) -> Option<Value> {
        let given = self.names()?;
        let is_one = json!({"key": names::NAMESPACE_NAME, "operator": "In", "values": given});
        Some(json!({"matchExpressions": [is_one]}))
    }

    /// The namespaces that such a selector names, in any order; None for another selector.
    pub fn selected_by(selector: &Value) -> Option<Self> {
        let [is_one] = selector["matchExpressions"].as_array()?.as_slice() else {
            return None;
        };
        let values = is_one["values"].as_array()?.iter();
        let given = values.map(|name| name.as_str().map(str::to_owned));
        let given: BTreeSet<String> = given.collect::<Option<_>>()?;
        let by_name = is_one["key"] == names::NAMESPACE_NAME && is_one["operator"] == "In";
        let is_such = by_name && selector["matchLabels"].is_null() && !given.is_empty();
        is_such.then(|| WatchedNamespaces::of(given))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::child::Kind;

    fn watched(names: &[&str]) -> WatchedNamespaces {
        WatchedNamespaces::of(names.iter().map(|name| (*name).to_owned()))
    }

    #[test]
    fn each_watched_namespace_is_listed_by_itself() {
        let (all, two) = (watched(&[]), watched(&["b", "a", "b"]));
        for (watched, scope, places) in [
            (&all, Scope::Namespaced, vec![""]),
            (&all, Scope::Cluster, vec![""]),
            (&two, Scope::Namespaced, vec!["a", "b"]),
            (&two, Scope::Cluster, vec![""]),
        ] {
            assert_eq!(watched.places(scope), places, "{watched:?} {scope:?}");
        }
        assert!(all.is_all() && !two.is_all());
        assert_eq!(all, WatchedNamespaces::default());
        assert_eq!(all.selector(), None);
        let selector = json!({"matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["a", "b"]},
        ]});
        assert_eq!(two.selector(), Some(selector.clone()));
        assert_eq!(WatchedNamespaces::selected_by(&selector), Some(two));
        for (place, value) in [
            ("/matchExpressions/0/operator", json!("NotIn")),
            ("/matchExpressions/0/key", json!("team")),
            ("/matchExpressions/0/values", json!([])),
            ("/matchExpressions", json!([])),
        ] {
            let mut other = selector.clone();
            *other.pointer_mut(place).unwrap() = value;
            assert_eq!(WatchedNamespaces::selected_by(&other), None, "{place}");
        }
        assert_eq!(WatchedNamespaces::selected_by(&Value::Null), None);
    }

    #[test]
    fn nothing_is_applied_outside_of_the_watched_namespaces() {
        let refusal = |watched: &WatchedNamespaces, namespace: &str| {
            let key = ObjectKey {
                kind: Kind::new("v1", "ConfigMap").into(),
                namespace: namespace.into(),
                name: "map".to_owned(),
            };
            watched.refusal(&key, str::to_uppercase)
        };
        let (all, one) = (watched(&[]), watched(&["a"]));
        assert_eq!(refusal(&all, "b"), None);
        assert_eq!(refusal(&one, "a"), None);
        assert_eq!(refusal(&one, ""), None, "RBAC answers for the cluster");
        assert_eq!(
            refusal(&one, "b").as_deref(),
            Some(
                "lynqgate does not watch namespace \"B\", so it applies nothing there; add it to --watch-namespaces, or correct \
                 targetNamespace"
            )
        );
    }
}
