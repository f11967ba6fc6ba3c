//! The workloads whose pods a change restarts.

use std::collections::BTreeMap;

use crate::api::resource::Resource;
use crate::decide::admission::trial::counted;
use crate::decide::child::{NodeKey, ObjectKey, kind_of};
use crate::decide::shared::content;

/// Those of the rows tried so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Restarts {
    by_kind: BTreeMap<String, usize>,
    /// Workloads of nodes whose live content is not the old one: only the nodes show what it is.
    in_doubt: BTreeMap<NodeKey, Vec<Workload>>,
}

#[derive(Clone, Debug, PartialEq)]
struct Workload {
    id: String,
    kind: String,
    /// A hash of its pods' template.
    pods: String,
}

/// The objects that a rendering names.
type Named<'a> = &'a [(ObjectKey, Resource)];

impl Restarts {
    /// `live`: the live content.
    pub fn add(&mut self, live: Named, new: Named) {
        self.count(workloads(of(new)), of(live));
    }

    pub fn add_in_doubt(&mut self, node: &NodeKey, new: Named) {
        let workloads: Vec<Workload> = workloads(of(new)).collect();
        if !workloads.is_empty() {
            self.in_doubt.insert(node.clone(), workloads);
        }
    }

    /// Adds those of another row.
    pub fn merge(&mut self, row: Restarts) {
        for (kind, count) in row.by_kind {
            *self.by_kind.entry(kind).or_default() += count;
        }
        self.in_doubt.extend(row.in_doubt);
    }

    /// The nodes to read for their live content. Until then, assume that all their workloads restart.
    pub fn looks(&self) -> impl Iterator<Item = &NodeKey> {
        self.in_doubt.keys()
    }

    /// `live`: the node's live content.
    pub fn settle<'a>(&mut self, node: &NodeKey, live: impl Iterator<Item = &'a Resource>) {
        let workloads = self.in_doubt.remove(node).unwrap_or_default();
        self.count(workloads, live);
    }

    /// A workload that the live content does not name does not exist yet, so it does not restart.
    fn count<'a>(
        &mut self,
        new: impl IntoIterator<Item = Workload>,
        live: impl Iterator<Item = &'a Resource>,
    ) {
        let live = BTreeMap::from_iter(workloads(live).map(|of| (of.id, of.pods)));
        for Workload { id, kind, pods } in new {
            if live.get(&id).is_some_and(|of_live| *of_live != pods) {
                *self.by_kind.entry(kind).or_default() += 1;
            }
        }
    }

    pub fn told(&self) -> impl Iterator<Item = String> {
        let mut all = self.by_kind.clone();
        for unseen in self.in_doubt.values().flatten() {
            *all.entry(unseen.kind.clone()).or_default() += 1;
        }
        let all = all.into_iter();
        all.map(|(kind, n)| format!("up to {} restart", counted(n, &kind)))
    }
}

fn of(named: Named<'_>) -> impl Iterator<Item = &Resource> {
    named.iter().map(|(_, resource)| resource)
}

fn workloads<'a>(all: impl Iterator<Item = &'a Resource>) -> impl Iterator<Item = Workload> {
    all.filter_map(|resource| {
        let kind = kind_of(&resource.spec).kind;
        let is_workload = ["Deployment", "StatefulSet", "DaemonSet"].contains(&kind.as_str());
        is_workload.then(|| Workload {
            id: resource.id.clone(),
            pods: content::hash_value(&resource.spec["spec"]["template"]),
            kind,
        })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn app(image: &str) -> (ObjectKey, Resource) {
        let pods = json!({"containers": [{"image": image}]});
        let app = json!({"id": "app", "spec": {
            "apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": pods},
        }});
        let app: Resource = serde_json::from_value(app).expect("a resource");
        (ObjectKey::own("Deployment", "tenants", "app"), app)
    }

    #[test]
    fn a_workload_restarts_whose_pods_are_others_than_what_runs() {
        let told = |restarts: &Restarts| restarts.told().next().unwrap_or_default();
        let mut restarts = Restarts::default();
        restarts.add(&[app("web:1")], &[app("web:1")]);
        restarts.add(&[], &[app("web:1")]);
        assert_eq!(told(&restarts), "");
        restarts.add(&[app("web:1")], &[app("web:2")]);
        assert_eq!(told(&restarts), "up to 1 Deployment restart");
        let nodes = ["a", "b", "c"].map(|name| NodeKey::new("tenants", name));
        for node in &nodes {
            restarts.add_in_doubt(node, &[app("web:2")]);
        }
        assert_eq!(told(&restarts), "up to 4 Deployments restart");
        restarts.settle(&nodes[0], of(&[app("web:2")]));
        restarts.settle(&nodes[1], of(&[]));
        assert_eq!(told(&restarts), "up to 2 Deployments restart");
        restarts.settle(&nodes[2], of(&[app("web:3")]));
        assert_eq!(told(&restarts), "up to 2 Deployments restart");
    }
}
