//! What is followed: the kinds, where each is stored and served, and the names on the wire. Judges nothing.

use std::fmt;

/// A kind that the auditor follows. Secrets are not among them: they are not to be read by a witness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Hub,
    Form,
    Node,
    Deployment,
    StatefulSet,
    DaemonSet,
    Job,
    ConfigMap,
    Service,
    Namespace,
    Pod,
}

/// Kind, API group, version, plural, and the directory in etcd below the prefix.
const TABLE: [(Kind, &str, &str, &str, &str, &str); 11] = {
    use Kind::*;
    const LYNQ: &str = "operator.lynq.sh";
    [
        (
            Hub,
            "LynqHub",
            LYNQ,
            "v1",
            "lynqhubs",
            "operator.lynq.sh/lynqhubs",
        ),
        (
            Form,
            "LynqForm",
            LYNQ,
            "v1",
            "lynqforms",
            "operator.lynq.sh/lynqforms",
        ),
        (
            Node,
            "LynqNode",
            LYNQ,
            "v1",
            "lynqnodes",
            "operator.lynq.sh/lynqnodes",
        ),
        (
            Deployment,
            "Deployment",
            "apps",
            "v1",
            "deployments",
            "deployments",
        ),
        (
            StatefulSet,
            "StatefulSet",
            "apps",
            "v1",
            "statefulsets",
            "statefulsets",
        ),
        (
            DaemonSet,
            "DaemonSet",
            "apps",
            "v1",
            "daemonsets",
            "daemonsets",
        ),
        (Job, "Job", "batch", "v1", "jobs", "jobs"),
        (ConfigMap, "ConfigMap", "", "v1", "configmaps", "configmaps"),
        (Service, "Service", "", "v1", "services", "services/specs"),
        (Namespace, "Namespace", "", "v1", "namespaces", "namespaces"),
        (Pod, "Pod", "", "v1", "pods", "pods"),
    ]
};

impl Kind {
    pub fn all() -> impl Iterator<Item = Kind> {
        TABLE.iter().map(|row| row.0)
    }

    fn row(
        self,
    ) -> &'static (
        Kind,
        &'static str,
        &'static str,
        &'static str,
        &'static str,
        &'static str,
    ) {
        &TABLE[self as usize]
    }

    pub fn name(self) -> &'static str {
        self.row().1
    }

    pub fn group(self) -> &'static str {
        self.row().2
    }

    pub fn version(self) -> &'static str {
        self.row().3
    }

    pub fn plural(self) -> &'static str {
        self.row().4
    }

    pub fn etcd_directory(self) -> &'static str {
        self.row().5
    }

    /// One of the three kinds of lynqgate.
    pub fn is_lynq(self) -> bool {
        matches!(self, Kind::Hub | Kind::Form | Kind::Node)
    }

    /// Objects that belong to nodes. A namespace is followed only to know when it goes, and a pod to know whether it is ready, whoever
    /// made them.
    pub fn is_child(self) -> bool {
        !self.is_lynq() && !self.is_optional()
    }

    /// Not every user may see these. Where one matters, the report says that none was seen.
    pub fn is_optional(self) -> bool {
        matches!(self, Kind::Namespace | Kind::Pod)
    }

    /// By apiVersion and kind, as a manifest has them.
    pub fn of_manifest(api_version: &str, kind: &str) -> Option<Kind> {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        Kind::all().find(|k| k.name() == kind && k.group() == group)
    }

    /// By API group and plural, as an audit event has them.
    pub fn of_resource(group: &str, plural: &str) -> Option<Kind> {
        Kind::all().find(|k| k.plural() == plural && k.group() == group)
    }
}

/// One object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub kind: Kind,
    pub namespace: String,
    pub name: String,
}

impl Key {
    /// A namespace is in none, whatever the source says.
    pub fn new(kind: Kind, namespace: &str, name: &str) -> Key {
        let namespace = match kind {
            Kind::Namespace => "",
            _ => namespace,
        };
        Key {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind.name(), self.namespace, self.name)
    }
}

pub const DESIRED_HASH: &str = "lynq.sh/desired-hash";
pub const LIVE_HASH: &str = "lynq.sh/live-hash";
pub const RELEASE: &str = "lynq.sh/release";
pub const UNGATED: &str = "lynq.sh/ungated";
pub const DOMAINS_OF_ROW: &str = "lynq.sh/rollout-domains";
pub const FORCE: &str = "lynq.sh/force-rollout";
pub const PARTITION_GATE: &str = "lynq.sh/partition-gate";
pub const PARTITION_MANAGER: &str = "lynqgate-partition";
pub const HELD_SINCE: &str = "lynq.sh/held-since";
pub const CONFIRM_DELETIONS: &str = "lynq.sh/confirm-deletions";
pub const LABEL_HUB: &str = "lynq.sh/hub";
pub const LABEL_NODE: &str = "lynq.sh/node";
pub const LABEL_NODE_NAMESPACE: &str = "lynq.sh/node-namespace";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_enum() {
        for (at, kind) in Kind::all().enumerate() {
            assert_eq!(kind as usize, at, "{}", kind.name());
        }
        assert_eq!(
            Kind::of_manifest("apps/v1", "Deployment"),
            Some(Kind::Deployment)
        );
        assert_eq!(Kind::of_manifest("v1", "Deployment"), None);
        assert_eq!(Kind::of_resource("", "configmaps"), Some(Kind::ConfigMap));
    }
}
