//! The record of what was applied for a node, in its status. lynqgate deletes only recorded objects: anyone can put labels, owner
//! references and annotations on an object, or copy them, but only lynqgate writes the status. The record also lists completed
//! Jobs, whose deletion must not count as drift.

use std::collections::BTreeMap;

use crate::api::node::NodeStatus;
use crate::decide::child::{Child, Kind, ObjectKey};
use crate::decide::node::digest::{Facts, NodeDigest};
use crate::decide::node::graph::State;
use crate::decide::node::plan::ownership::{is_ours, was_ours};
use crate::decide::node::plan::{ObservedResource, ResourceOutcome, Rest};
use crate::decide::operator::watched::WatchedNamespaces;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// Sorted entries of the form `Kind/namespace/name@id`.
    entries: Vec<String>,
    /// Of the entries, which have no apiVersion. Sorted.
    kinds: Vec<Kind>,
    /// The hash of each completed Job, by the id of its resource.
    completed: BTreeMap<String, String>,
}

impl Record {
    pub fn of(status: &NodeStatus) -> Self {
        let kinds = status.applied_kinds.iter().filter_map(|text| {
            let (api_version, kind) = text.split_once(' ')?;
            Some(Kind {
                api_version: api_version.to_owned(),
                kind: kind.to_owned(),
            })
        });
        let completed = status.completed_jobs.iter().filter_map(|text| {
            let (id, hash) = text.rsplit_once('@')?;
            Some((id.to_owned(), hash.to_owned()))
        });
        let mut record = Record {
            completed: completed.collect(),
            ..Record::default()
        };
        let entries = status.applied_resources.iter().cloned();
        entries.for_each(|entry| insert(&mut record.entries, entry));
        kinds.for_each(|kind| insert(&mut record.kinds, kind));
        record
    }

    /// For `status.appliedResources` and `status.appliedKinds`.
    pub fn texts(&self) -> (Vec<String>, Vec<String>) {
        let kinds = self.kinds.iter().map(Kind::to_string);
        (self.entries.clone(), kinds.collect())
    }

    /// For `status.completedJobs`.
    pub fn completed_texts(&self) -> Vec<String> {
        let completed = self.completed.iter();
        completed.map(|(id, hash)| format!("{id}@{hash}")).collect()
    }

    /// Whether it is a Job that has run: with its present content, or ever where it is to run once.
    pub fn has_run(&self, facts: &Facts) -> bool {
        let completed = self.completed.get(&facts.id);
        let is_it = |hash: &String| facts.once || **hash == *facts.hash;
        facts.kind.is_job() && completed.is_some_and(is_it)
    }

    /// Records a completed Job from its object.
    pub fn note(&mut self, node: &NodeDigest, facts: &Facts, child: &Child) {
        let current = child.applied_hash.as_ref() == Some(&facts.hash);
        if child.completed && is_ours(child, node) && (current || (facts.once && child.once)) {
            self.completed
                .insert(facts.id.clone(), facts.hash.to_string());
        }
    }

    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    pub fn add(&mut self, facts: &Facts) {
        let Facts {
            namespace,
            name,
            declared,
            ..
        } = facts;
        let (kind, id) = (&declared.kind, &declared.id);
        let entry = format!("{}/{namespace}/{name}@{id}", kind.kind);
        insert(&mut self.entries, entry);
        insert(&mut self.kinds, (**kind).clone());
    }

    pub fn names(&self, key: &ObjectKey) -> bool {
        let of_kind = || self.kinds.iter().filter(|kind| kind.kind == key.kind.kind);
        // Lynq's record has no groups.
        let known = of_kind().next().is_none() || of_kind().any(|kind| kind.is_same(&key.kind));
        known && self.entries_of(key).next().is_some()
    }

    /// The first recorded object of a namespaced kind in a namespace that is not watched. Whether it exists is not known.
    pub fn outside(&self, kind: &Kind, watched: &WatchedNamespaces) -> Option<&str> {
        if watched.is_all() {
            return None;
        }
        let beginning = format!("{}/", kind.kind);
        let is_outside = |entry: &&String| {
            let rest = entry.strip_prefix(&beginning);
            let named = rest.and_then(|rest| rest.split_once('/'));
            named.is_some_and(|(namespace, _)| !watched.has(namespace))
        };
        let found = self.entries.iter().find(is_outside)?;
        let object = found.rsplit_once('@').map(|(object, _)| object);
        Some(object.unwrap_or(found))
    }

    /// An entry has a namespace even for a cluster-scoped object.
    fn entries_of(&self, key: &ObjectKey) -> impl Iterator<Item = &String> {
        let beginning = format!("{}/", key.kind.kind);
        self.entries.iter().filter(move |entry| {
            let named = entry
                .strip_prefix(&beginning)
                .and_then(|rest| rest.split_once('/'))
                .filter(|(namespace, _)| key.namespace.is_empty() || **namespace == *key.namespace)
                .and_then(|(_, rest)| rest.strip_prefix(&key.name));
            named.is_some_and(|id| id.starts_with('@'))
        })
    }

    /// The next record: what is applied, and what was applied and still exists or may exist.
    pub fn next(
        &self,
        node: &NodeDigest,
        (seen, outcomes): (&[ObservedResource], &[ResourceOutcome]),
        rest: &Rest,
    ) -> Record {
        let mut next = Record::default();
        for (seen, outcome) in seen.iter().zip(outcomes) {
            if let Some(hash) = self.completed.get(&seen.facts.id) {
                let id = seen.facts.id.clone();
                next.completed.insert(id, hash.clone());
            }
            // A Job that has run is ready without an object.
            let applied = seen.child.is_some()
                && matches!(outcome.state, State::Ready | State::Waiting | State::Failed);
            let recorded = self.names(&key_of(seen.facts));
            let there = |child| recorded && was_ours(child, node, recorded);
            if applied || seen.child.is_some_and(there) {
                next.add(seen.facts);
            }
        }
        let others = rest.others.iter();
        for (key, _) in others.filter(|(_, child)| is_ours(child, node)) {
            next.keep(self.entries_of(key), &key.kind);
        }
        for kind in &rest.unlisted {
            let beginning = format!("{}/", kind.kind);
            let of_kind = self.entries.iter();
            next.keep(of_kind.filter(|entry| entry.starts_with(&beginning)), kind);
        }
        next
    }

    fn keep<'a>(&mut self, entries: impl Iterator<Item = &'a String>, kind: &Kind) {
        for entry in entries {
            insert(&mut self.entries, entry.clone());
            insert(&mut self.kinds, kind.clone());
        }
    }
}

/// Inserts into a sorted list without duplicates.
fn insert<T: Ord>(sorted: &mut Vec<T>, value: T) {
    if let Err(at) = sorted.binary_search(&value) {
        sorted.insert(at, value);
    }
}

pub fn key_of(facts: &Facts) -> ObjectKey {
    ObjectKey {
        kind: facts.kind.clone(),
        namespace: facts.namespace.clone(),
        name: facts.name.clone(),
    }
}
