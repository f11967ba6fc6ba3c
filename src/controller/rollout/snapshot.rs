//! The planner's view of a hub, from the objects as they are known: by the loops' caches, or by one reading of `explain`.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::api::form::FormSpec;
use crate::api::names;
use crate::api::stamp;
use crate::cluster::catalog::{Form, Hub};
use crate::controller::Rendered;
use crate::decide::hub::desired::Lack;
use crate::decide::hub::rows::names::uid_of;
use crate::decide::hub::sync::{self, rows_hash};
use crate::decide::node::digest::NodeDigest;
use crate::decide::rollout::{self, Snapshot};

pub struct SnapshotInputs<'a> {
    pub hub: Option<&'a Hub>,
    /// The hub's.
    pub forms: &'a [Arc<Form>],
    pub nodes: &'a [Arc<NodeDigest>],
    /// What the hub loop made of each form, by namespace and name; without it the forms' own statuses tell.
    pub rendered: &'a BTreeMap<(String, String), Rendered>,
}

pub fn of(seen: &SnapshotInputs) -> Snapshot {
    let spec = seen.hub.and_then(|hub| hub.spec.as_ref().ok());
    let rows_hash = spec.map(|spec| rows_hash(spec));
    let mut of_form: BTreeMap<&str, Vec<&NodeDigest>> = BTreeMap::new();
    for node in seen.nodes {
        of_form.entry(&node.form).or_default().push(node);
    }
    let view = |form: &Arc<Form>| {
        let nodes = of_form.get(form.name.as_str());
        let nodes = nodes.map(Vec::as_slice).unwrap_or_default();
        let view = form_view(form, seen, nodes, &rows_hash)?;
        Some((form.name.clone(), view))
    };
    let forms: BTreeMap<String, rollout::Form> = seen.forms.iter().filter_map(view).collect();
    let node_view = |node: &Arc<NodeDigest>| {
        let policy = forms.get(&node.form).map(|form| &form.policy);
        let of_form = (node.key.namespace.clone(), node.form.clone());
        let desired = seen.rendered.get(&of_form);
        let desired = desired.and_then(|rendered| rendered.desired.as_ref());
        let mut view = node.for_rollout(policy);
        if let Some(desired) = desired {
            let name = &node.key.name;
            view.unwanted = desired.is_unwanted(name);
            if let Some(policy) = policy.filter(|policy| !policy.order.is_empty())
                && let Some(of_row) = desired.group_of(name)
            {
                view.group = policy.group_of(&node.labels, of_row);
            }
        }
        (node.key.name.clone(), view)
    };
    Snapshot {
        resource_version: seen
            .hub
            .map(|hub| hub.resource_version.clone())
            .unwrap_or_default(),
        slots: seen
            .hub
            .and_then(|hub| hub.status.rollout.clone())
            .map(|rollout| rollout.slots)
            .unwrap_or_default(),
        ledger_lost: seen.hub.is_some_and(|hub| hub.status.rollout.is_none()),
        hub_skew: seen
            .hub
            .and_then(|hub| hub.spec.as_ref().ok()?.rollout.as_ref())
            .map(|rollout| rollout.max_skew)
            .unwrap_or_default(),
        nodes: seen.nodes.iter().map(node_view).collect(),
        forced: seen.hub.is_some_and(|hub| is_forced(&hub.annotations)),
        forms,
        ..Snapshot::default()
    }
}

/// None for a form whose spec cannot be read: it has no window that is known, and its nodes are not released. `nodes`: those of
/// the form.
fn form_view(
    form: &Form,
    seen: &SnapshotInputs,
    nodes: &[&NodeDigest],
    rows_hash: &Option<String>,
) -> Option<rollout::Form> {
    let spec = form.spec.as_ref().ok()?;
    let known = seen
        .rendered
        .get(&(form.namespace.clone(), form.name.clone()));
    let rendered_generation = known
        .map(|rendered| rendered.generation)
        .or(form.status.observed_generation)
        .unwrap_or_default();
    let outdated = match known {
        // Not yet looked at by this process. Where nodes wait, an order needs more than that the form is the same: the last
        // sync may have ended half way, with what the rows say now on some of the nodes.
        None => {
            let waits = || nodes.iter().any(|node| node.held() && !node.deleting);
            rendered_generation != form.generation || (is_ordered(spec) && waits())
        }
        Some(known) => {
            let rendered = known.spec.as_ref();
            !rendered.is_some_and(|rendered| spec.renders_like(rendered))
        }
    };
    // Of what another process rendered, the hub's status tells.
    let told = || seen.hub?.status.rows_hash.clone();
    let rendered_from = match known {
        Some(known) => known.rows_hash.clone(),
        None => told(),
    };
    let other_rows = rendered_from != *rows_hash;
    let is_sound = |hub: &&Hub| !hub.deleting && hub.spec.is_ok();
    let is_sound = seen.hub.filter(is_sound).is_some();
    let desired = known.and_then(|rendered| rendered.desired.as_ref());
    let desired = desired.filter(|_| is_sound);
    let Lack { unwritten, absent } = match (known, desired) {
        (Some(known), Some(desired)) => desired.lack(nodes.iter().copied(), &known.unwritten),
        (known, _) => Lack {
            unwritten: known
                .map(|known| known.unwritten.clone())
                .unwrap_or_default(),
            ..Lack::default()
        },
    };
    let policy = spec.rollout.clone().unwrap_or_default();
    let group_of = |(name, group): (String, Option<usize>)| {
        let labels = sync::labels(&form.hub_id, uid_of(&name, &form.name));
        let group = policy.group_of(&labels.into(), group);
        (name, group)
    };
    let absent = absent.into_iter().map(group_of).collect();
    Some(rollout::Form {
        policy,
        rendered_generation,
        same_since: known.map_or(rendered_generation, |rendered| rendered.same_since),
        unwritten,
        unwritten_before: 0,
        absent,
        // Without a sound hub nobody renders it.
        outdated: outdated || other_rows || !is_sound,
        forced: is_forced(&form.annotations),
        resumed_at: form
            .annotations
            .get(names::RESUME)
            .and_then(|text| stamp::parse(text)),
        previous: form.status.rollout.clone(),
    })
}

fn is_ordered(spec: &FormSpec) -> bool {
    spec.rollout.as_ref().is_some_and(|r| !r.order.is_empty())
}

pub fn is_forced(annotations: &BTreeMap<String, String>) -> bool {
    annotations
        .get(names::FORCE_ROLLOUT)
        .is_some_and(|value| value == names::TRUE)
}
