//! Kinds of objects, as manifests name them.

use std::fmt;

/// apiVersion and kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind {
    pub api_version: String,
    pub kind: String,
}

impl Kind {
    pub fn new(api_version: &str, kind: &str) -> Self {
        Kind {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        }
    }

    /// Whether it is the same kind, in whatever version.
    pub fn is_same(&self, other: &Kind) -> bool {
        self.kind == other.kind && self.group() == other.group()
    }

    /// Why no API server can have this kind: in the path of a request it would address another resource. The text does not quote
    /// it, because it may be a row's value.
    pub fn impossible(&self) -> Option<String> {
        let word = |text: &str, more: &str| {
            let fits = |c: char| c.is_ascii_alphanumeric() || more.contains(c);
            !text.is_empty() && text.chars().all(fits)
        };
        let version = match self.api_version.split_once('/') {
            None => word(&self.api_version, ""),
            Some((group, version)) => {
                group.split('.').all(|label| word(label, "-")) && word(version, "")
            }
        };
        let wrong = !(version && word(&self.kind, ""));
        wrong.then(|| {
            "its apiVersion or kind cannot be one (it must be like apps/v1 and Deployment); correct its template, or the row's value"
                .to_owned()
        })
    }

    /// Whether this is Kubernetes' Job, which completes and may then be deleted.
    pub fn is_job(&self) -> bool {
        (self.group(), self.kind.as_str()) == ("batch", "Job")
    }

    /// What is lost for good if an object of this kind is deleted.
    pub fn holds(&self) -> Option<&'static str> {
        match (self.group(), self.kind.as_str()) {
            ("", "PersistentVolumeClaim") => Some("the data in it"),
            ("", "Namespace") => Some("all objects in it"),
            ("apiextensions.k8s.io", "CustomResourceDefinition") => Some("all objects of its kind"),
            _ => None,
        }
    }

    pub fn is_stateful_set(&self) -> bool {
        (self.group(), self.kind.as_str()) == ("apps", "StatefulSet")
    }

    pub fn is_namespace(&self) -> bool {
        (self.group(), self.kind.as_str()) == ("", "Namespace")
    }

    /// A custom resource, by its group: those of Kubernetes itself have no dot, or end in `.k8s.io`.
    pub fn is_custom(&self) -> bool {
        let group = self.group();
        let of_project = group.strip_suffix(".k8s.io");
        let is_own =
            of_project.is_some_and(|name| !name.contains('.') || name == "rbac.authorization");
        group.contains('.') && !is_own
    }

    /// The word for the kind in what a user reads: that of a custom resource ends with its group.
    pub fn called(&self) -> String {
        match self.is_custom() {
            true => format!("{}.{}", self.kind, self.group()),
            false => self.kind.clone(),
        }
    }

    /// Whether a user may mean this kind by a word: its name or its plural in any case, alone or followed by a dot and the group.
    pub fn is_called(&self, plural: &str, word: &str) -> bool {
        let (name, group) = match word.split_once('.') {
            Some((name, group)) => (name, Some(group)),
            None => (word, None),
        };
        let is_named = self.kind.eq_ignore_ascii_case(name) || plural.eq_ignore_ascii_case(name);
        is_named && group.is_none_or(|group| group == self.group())
    }

    pub fn group(&self) -> &str {
        self.api_version
            .split_once('/')
            .map_or("", |(group, _)| group)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.api_version, self.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn custom_resources_are_told_by_their_group() {
        let is_custom = |api_version: &str| {
            let kind = Kind {
                api_version: api_version.into(),
                kind: "Kind".into(),
            };
            kind.is_custom()
        };
        for own in [
            "v1",
            "apps/v1",
            "networking.k8s.io/v1",
            "rbac.authorization.k8s.io/v1",
        ] {
            assert!(!is_custom(own), "{own}");
        }
        for custom in [
            "example.com/v1",
            "postgresql.cnpg.io/v1",
            "snapshot.storage.k8s.io/v1",
            "cluster.x-k8s.io/v1beta1",
        ] {
            assert!(is_custom(custom), "{custom}");
        }
    }

    #[test]
    fn a_kind_is_known_by_its_name_its_plural_and_its_group() {
        let certificate = Kind::new("cert-manager.io/v1", "Certificate");
        assert_eq!(certificate.called(), "Certificate.cert-manager.io");
        assert_eq!(Kind::new("apps/v1", "Deployment").called(), "Deployment");
        for (word, expected) in [
            ("Certificate", true),
            ("certificates", true),
            ("CERTIFICATE.cert-manager.io", true),
            ("certificates.cert-manager.io", true),
            ("certificates.example.com", false),
            ("cert", false),
            ("", false),
            (".cert-manager.io", false),
        ] {
            let found = certificate.is_called("certificates", word);
            assert_eq!(found, expected, "{word}");
        }
    }

    #[test]
    fn what_no_api_server_can_have_is_told() {
        let possible = |api_version: &str, kind: &str| {
            let kind = Kind {
                api_version: api_version.into(),
                kind: kind.into(),
            };
            kind.impossible().is_none()
        };
        for good in [
            "v1",
            "apps/v1",
            "operator.lynq.sh/v1beta1",
            "a-b.example.com/v2",
        ] {
            assert!(possible(good, "Kind"), "{good}");
        }
        for bad in [
            "",
            "/v1",
            "apps/",
            "apps/v1 ",
            "apps/v1/x",
            "a..b/v1",
            "../v1",
            "./v1",
            "a/v1?x",
            "a#/v1",
            "s3cr3t plan!/v1",
            "ä/v1",
        ] {
            assert!(!possible(bad, "Kind"), "{bad}");
        }
        assert!(!possible("v1", "") && !possible("v1", "Pod/x"));
    }
}
