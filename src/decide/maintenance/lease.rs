//! Reads and builds the Lease of a Kubernetes node's maintenance. It does not decide when to write one.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::api::names;
use crate::decide::maintenance::PADDING;
use crate::decide::maintenance::node::KubernetesNode;

/// Between the names of LynqNodes.
const SEPARATOR: &str = ",";
pub const API_VERSION: &str = "coordination.k8s.io/v1";

/// The period for which a Lease is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    pub acquired: Timestamp,
    pub renewed: Timestamp,
    pub duration_seconds: i32,
}

impl Times {
    pub fn from(now: Timestamp, interval_seconds: i32) -> Self {
        Times {
            acquired: now,
            renewed: now,
            duration_seconds: interval_seconds.saturating_add(PADDING.as_secs() as i32),
        }
    }

    pub fn end(&self) -> Timestamp {
        let duration = SignedDuration::from_secs(self.duration_seconds.into());
        self.acquired
            .saturating_add(duration)
            .unwrap_or(Timestamp::MAX)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub resource_version: String,
    /// Empty: not held.
    pub holder: String,
    pub duration_seconds: i32,
    pub acquired: Option<Timestamp>,
    pub renewed: Option<Timestamp>,
    pub transitions: i32,
    /// The Kubernetes node was schedulable when its maintenance began: it is uncordoned at the end.
    pub was_schedulable: bool,
    /// The uid of the Kubernetes node that owns the Lease, if one does.
    pub owner: Option<String>,
    /// The LynqNodes whose pods were evicted in this maintenance, or in the last one if none is open.
    pub tenants: BTreeSet<String>,
}

/// The Lease to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseWrite {
    /// The resourceVersion to overwrite. None: create the Lease.
    pub over: Option<String>,
    pub holder: String,
    pub times: Times,
    pub transitions: i32,
    pub was_schedulable: bool,
    /// None: keep the owner.
    pub owner: Option<(String, String)>,
    /// None: keep the tenants.
    pub tenants: Option<BTreeSet<String>>,
}

impl Lease {
    pub fn of(object: &Value) -> Self {
        let (metadata, spec) = (&object["metadata"], &object["spec"]);
        let time = |field: &str| spec[field].as_str()?.parse().ok();
        let number = |field: &str| spec[field].as_i64().unwrap_or_default() as i32;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut owners = metadata["ownerReferences"].as_array().into_iter().flatten();
        let owner = owners.find(|owner| owner["kind"] == "Node" && owner["apiVersion"] == "v1");
        let tenants = metadata["annotations"][names::MAINTENANCE_TENANTS]
            .as_str()
            .into_iter();
        Lease {
            resource_version: text(&metadata["resourceVersion"]),
            holder: text(&spec["holderIdentity"]),
            duration_seconds: number("leaseDurationSeconds"),
            acquired: time("acquireTime"),
            renewed: time("renewTime"),
            transitions: number("leaseTransitions"),
            was_schedulable: metadata["annotations"][names::WAS_SCHEDULABLE] == names::TRUE,
            owner: owner.map(|owner| text(&owner["uid"])),
            tenants: tenants
                .flat_map(|all| all.split(SEPARATOR))
                .map(str::to_owned)
                .collect(),
        }
    }

    /// A Lease without an acquireTime counts as expired.
    pub fn times(&self) -> Times {
        let acquired = self.acquired.unwrap_or(Timestamp::UNIX_EPOCH);
        Times {
            acquired,
            renewed: self.renewed.unwrap_or(acquired),
            duration_seconds: self.duration_seconds,
        }
    }

    /// This holder's maintenance has begun and not ended, even if its window is over.
    pub fn is_open(&self, holder: &str) -> bool {
        self.holder == holder && self.duration_seconds > 0
    }

    /// Until when another holder has the Lease. A renewal in the future comes from a clock that is ahead, and counts too.
    pub fn held_by_another_until(&self, holder: &str, now: Timestamp) -> Option<Timestamp> {
        let times = self.times();
        let until = times.end().max(times.renewed);
        let is_anothers = !self.holder.is_empty() && self.holder != holder;
        (is_anothers && now < until).then_some(until)
    }

    pub fn is_of_former(&self, node: &KubernetesNode) -> bool {
        self.owner.as_ref().is_some_and(|owner| *owner != node.uid)
    }

    pub fn creation(holder: &str, node: &KubernetesNode, times: Times) -> LeaseWrite {
        LeaseWrite {
            over: None,
            holder: holder.to_owned(),
            times,
            transitions: 1,
            was_schedulable: !node.unschedulable,
            owner: Some((node.name.clone(), node.uid.clone())),
            tenants: Some(BTreeSet::new()),
        }
    }

    /// The Lease with these LynqNodes added; None if it has them all.
    pub fn with_tenants(&self, more: &BTreeSet<String>) -> Option<LeaseWrite> {
        (!more.is_subset(&self.tenants)).then(|| LeaseWrite {
            tenants: Some(self.tenants.union(more).cloned().collect()),
            ..self.kept()
        })
    }

    /// As it is, for this holder. What an open Lease remembers stays: the Kubernetes node may be cordoned because of it.
    pub fn renewal(&self, holder: &str, node: &KubernetesNode) -> LeaseWrite {
        let remembers = self.duration_seconds > 0 && self.was_schedulable;
        LeaseWrite {
            over: Some(self.resource_version.clone()),
            holder: holder.to_owned(),
            times: self.times(),
            transitions: self.transitions,
            was_schedulable: !node.unschedulable || remembers,
            owner: Some((node.name.clone(), node.uid.clone())),
            tenants: None,
        }
    }

    pub fn remembering(&self, node: &KubernetesNode) -> LeaseWrite {
        LeaseWrite {
            was_schedulable: true,
            ..self.renewal(&self.holder, node)
        }
    }

    /// Ends the maintenance.
    pub fn reset(&self, now: Timestamp) -> LeaseWrite {
        LeaseWrite {
            times: Times {
                duration_seconds: 0,
                renewed: now,
                ..self.times()
            },
            was_schedulable: false,
            owner: None,
            ..self.kept()
        }
    }

    /// Renews an expired Lease, so that the maintenance can be ended under it.
    pub fn revived(&self, now: Timestamp) -> LeaseWrite {
        LeaseWrite {
            times: Times::from(now, 0),
            ..self.kept()
        }
    }

    fn kept(&self) -> LeaseWrite {
        LeaseWrite {
            over: Some(self.resource_version.clone()),
            holder: self.holder.clone(),
            times: self.times(),
            transitions: self.transitions,
            was_schedulable: self.was_schedulable,
            owner: None,
            tenants: None,
        }
    }
}

impl LeaseWrite {
    /// A whole object to create, or else a merge patch.
    pub fn object(&self, namespace: &str, name: &str) -> Value {
        let time = |at: Timestamp| at.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
        let remembers = self.was_schedulable.then_some(names::TRUE);
        // The API server rejects a duration of 0; an absent one means the same.
        let duration = (self.times.duration_seconds > 0).then_some(self.times.duration_seconds);
        let mut object = json!({
            "apiVersion": API_VERSION,
            "kind": "Lease",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "annotations": {names::WAS_SCHEDULABLE: remembers},
            },
            "spec": {
                "holderIdentity": self.holder,
                "leaseDurationSeconds": duration,
                "acquireTime": time(self.times.acquired),
                "renewTime": time(self.times.renewed),
                "leaseTransitions": self.transitions,
            },
        });
        let metadata = &mut object["metadata"];
        if let Some(version) = &self.over {
            metadata["resourceVersion"] = version.as_str().into();
        } else if remembers.is_none() {
            metadata["annotations"] = json!({});
        }
        if let Some(tenants) = &self.tenants {
            let all: Vec<&str> = tenants.iter().map(String::as_str).collect();
            let all = (!all.is_empty()).then(|| all.join(SEPARATOR));
            if all.is_some() || self.over.is_some() {
                metadata["annotations"][names::MAINTENANCE_TENANTS] = json!(all);
            }
        }
        if let Some((name, uid)) = &self.owner {
            let owner = json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid});
            metadata["ownerReferences"] = json!([owner]);
        }
        object
    }
}
