//! One sync of a hub: which nodes to write and delete, and what to report about unusable rows.

mod lookup;
mod settled;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::json;

use crate::api::hub::{HubSpec, Source};
use crate::api::policy::{Rollout, Skew};
use crate::api::{names, stamp};
use crate::decide::child::NodeKey;
use crate::decide::hub::desired::{Desired, Wanted};
use crate::decide::hub::findings::{Findings, Subject};
use crate::decide::hub::render::{CompiledForm, RowInputs};
use crate::decide::hub::rows::guard::{Asked, Direction, Held, Verdict, guard};
use crate::decide::hub::rows::{Row, RowHash, Rows};
use crate::decide::hub::sync::lookup::Lookup;
pub use crate::decide::hub::sync::settled::is_settled;
use crate::decide::hub::sync::write::{RowNode, rendered_hash};
use crate::decide::node::diff::alike::first_of;
use crate::decide::node::digest::NodeDigest;
use crate::decide::rollout::order::Natural;
use crate::decide::rollout::{Live, Way};
use crate::decide::shared::content;
use crate::decide::shared::parallel;

/// The parts of the hub that a sync needs.
#[derive(Clone, Debug)]
pub struct Hub {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub skew: Skew,
    pub deletions: Allowance,
    pub creations: Allowance,
    /// The secret that repeatable random values are drawn from.
    pub seed: [u8; 32],
}

/// The hub's limit for deletions or creations in one sync.
#[derive(Clone, Debug, Default)]
pub struct Allowance {
    /// The limit in `spec.guard`.
    pub max: Option<Skew>,
    /// The annotation that confirms a number above the limit.
    pub confirmation: Option<String>,
}

impl Allowance {
    /// Why so many of them wait, if they do.
    pub fn held(&self, direction: Direction, existing: usize, count: usize) -> Option<Held> {
        // Unlike a window, it may be any number.
        let max = self.max.map(|max| match max {
            Skew::Count(count) => count.into(),
            Skew::Percent(percent) => (existing as u64 * u64::from(percent) / 100).max(1),
        });
        let verdict = guard(&Asked {
            direction,
            existing: existing as u64,
            count: count as u64,
            max,
            confirmation: self.confirmation.as_deref(),
        });
        match verdict {
            Verdict::Allow => None,
            Verdict::Held(held) => Some(held),
        }
    }
}

/// What a hub allows of deletions, and of creations. `annotation` reads the hub's annotations.
pub fn allowances(
    spec: &HubSpec,
    annotation: &dyn Fn(&str) -> Option<String>,
) -> (Allowance, Allowance) {
    let guard = spec.guard.as_ref();
    let deletions = Allowance {
        max: guard.and_then(|guard| guard.max_deletions),
        confirmation: annotation(names::CONFIRM_DELETIONS),
    };
    let creations = Allowance {
        max: guard
            .and_then(|guard| guard.max_creations)
            .map(|max| Skew::Count(max.max(0).unsigned_abs())),
        confirmation: annotation(names::CONFIRM_CREATIONS),
    };
    (deletions, creations)
}

/// Changes if and only if the hub would derive other rows from its source.
pub fn rows_hash(spec: &HubSpec) -> String {
    let source = Source {
        sync_interval: String::new(),
        ..spec.source.clone()
    };
    let mut makes = vec![
        json!(source),
        json!(spec.value_mappings),
        json!(spec.extra_value_mappings),
    ];
    let words = [&spec.active_values, &spec.inactive_values];
    if words.iter().any(|words| !words.is_empty()) {
        makes.push(json!(words));
    }
    content::hash_value(&json!(makes))
}

/// The labels of every node.
pub fn labels(hub: &str, uid: &str) -> BTreeMap<String, String> {
    let labels = [(names::LABEL_HUB, hub), (names::LABEL_UID, uid)];
    let owned = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
    BTreeMap::from(owned)
}

/// A form that can be rendered.
#[derive(Clone)]
pub struct Form {
    pub generation: i64,
    pub policy: Rollout,
    /// It, or its hub, is forced.
    pub forced: bool,
    /// As its status says, every node of it was written from this generation.
    pub all_written: bool,
    pub compiled: Arc<CompiledForm>,
}

/// Earlier renderings, by the node's name.
pub type Rendered = BTreeMap<Arc<str>, Arc<CachedRendering>>;

/// A rendering that can be reused.
#[derive(Clone, Debug, PartialEq)]
pub struct CachedRendering {
    source: RenderedFrom,
    /// What `now` was in its templates.
    first_seen: Timestamp,
    /// The result.
    wanted: Wanted,
    /// Ids and errors of resources that did not render.
    errors: Vec<(String, String)>,
}

/// The inputs of a rendering.
#[derive(Clone, Debug, PartialEq)]
struct RenderedFrom {
    form: Arc<str>,
    row: RowHash,
}

impl RenderedFrom {
    fn of(form: &Form, row: &Row) -> Self {
        RenderedFrom {
            form: form.compiled.hash().clone(),
            row: row.hash(),
        }
    }
}

impl CachedRendering {
    /// Whether it is what this form, as it is now, makes of some row.
    fn is_of(&self, form: &Form) -> bool {
        self.source.form == *form.compiled.hash()
    }
}

/// The inputs from which nodes are rendered.
#[derive(Clone)]
pub struct RenderSource {
    pub hub: Hub,
    pub forms: BTreeMap<String, Form>,
    pub rows: Rows,
}

impl RenderSource {
    /// Drops the rows from which nothing is written.
    pub fn keep_written(&mut self, writes: &[NodeWrite]) {
        let written: BTreeSet<&str> = writes.iter().map(|write| write.uid.as_str()).collect();
        let rows = &mut self.rows.rows;
        rows.retain(|uid, _| written.contains(uid.as_str()));
    }

    fn inputs<'a>(&'a self, form: &'a str, row: &'a Row, first_seen: Timestamp) -> RowInputs<'a> {
        RowInputs {
            hub: &self.hub.name,
            form,
            row,
            first_seen,
            seed: self.hub.seed,
        }
    }
}

/// The inputs of one sync.
#[derive(Clone, Copy)]
pub struct SyncInputs<'a> {
    pub source: &'a RenderSource,
    /// Forms that are there but cannot be rendered: their nodes stay as they are.
    pub broken_forms: &'a BTreeSet<String>,
    /// The hub's nodes.
    pub nodes: &'a [Arc<NodeDigest>],
    /// The hub of the node with this key, if it is another hub.
    pub foreign: &'a (dyn Fn(&NodeKey) -> Option<String> + Sync),
    /// The hub of a form of this name, where that is another one.
    pub moved: &'a (dyn Fn(&str) -> Option<String> + Sync),
    pub rendered: &'a Rendered,
}

/// One node to write by server-side apply. Its content is [rendered again](RenderSource::object) when it is written: that of the
/// whole fleet is never there at once.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeWrite {
    pub name: Arc<str>,
    pub form: String,
    pub uid: String,
    /// The reason why the write also releases the node, if it does.
    pub way: Option<Way>,
    /// The node only waits for its release, and is not broken.
    pub waits: bool,
    /// The node's; None for a node that does not exist yet. A write that releases the node names it to the gate.
    resource_version: Option<String>,
    group: Option<usize>,
    first_seen: Timestamp,
}

/// One node to delete.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeDeletion {
    pub name: Arc<str>,
    pub uid: String,
    /// The reason, for people.
    pub reason: String,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// In order: nodes that need a correction, then nodes that the write releases, then the others in the order of their release.
    pub writes: Vec<NodeWrite>,
    pub deletes: Vec<NodeDeletion>,
    /// Deletions that wait for the user.
    pub held: Option<Held>,
    /// Creations that wait for the user.
    pub creations_held: Option<Held>,
    /// The required nodes, by form.
    pub desired: BTreeMap<String, Arc<Desired>>,
    /// Skipped rows, of all forms or of one, and nodes that belong to others.
    pub skipped: Findings,
    /// Resources and nodes that did not render.
    pub render_errors: Findings,
    pub rendered: Rendered,
    /// Form and name of each node that does not get the newest content of its form: the content is too large, or the row is
    /// skipped and the node still has the content of an older form.
    pub unwritten: BTreeSet<(String, Arc<str>)>,
    /// A row that was settled when it was read is not any more: the rows are to be read again.
    pub reread: bool,
}

impl Plan {
    fn complain(&mut self, node: &str, errors: &[(String, String)]) {
        for (id, error) in errors {
            let cause = format!("resource {id:?}: {error}");
            self.render_errors.add(Subject::Node, node, cause);
        }
    }

    /// Returns the node's desired state; None if the node cannot be written.
    fn take(&mut self, target: &RowNode, rendering: RowRendering) -> Option<Wanted> {
        let name = &target.key.name;
        self.complain(name, &rendering.errors);
        self.writes.extend(rendering.write);
        match rendering.node {
            Ok(node) => {
                let wanted = node.wanted.clone();
                self.rendered.insert(name.clone(), node);
                Some(wanted)
            }
            Err(error) => {
                self.render_errors.add(Subject::Node, &**name, error);
                let form = target.form_name.to_owned();
                self.unwritten.insert((form, name.clone()));
                None
            }
        }
    }
}

pub fn plan(seen: &SyncInputs, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    for row in &seen.source.rows.skipped {
        plan.skipped
            .add(Subject::Row, row.name(), row.reason.to_string());
    }
    plan_deletions(seen, &mut plan);
    let lookup = Lookup::of(seen);
    let there = seen.nodes.iter().filter(|node| !node.deleting).count();
    let creations = &seen.source.hub.creations;
    plan.creations_held = creations.held(Direction::Creations, there, lookup.new_nodes());
    let mut desired_nodes = BTreeMap::new();
    for (form_name, form) in &seen.source.forms {
        let desired = plan_form(seen, &mut plan, &lookup, (form_name, form), now);
        desired_nodes.insert(form_name.clone(), desired);
    }
    for node in seen.nodes.iter().filter(|node| !node.deleting) {
        keep(seen, &mut plan, node);
        if let Some(desired) = desired_nodes.get_mut(&node.form) {
            desired.note_seen(node);
        }
    }
    sort(seen, &mut plan.writes, &lookup);
    let desired_nodes = desired_nodes.into_iter();
    plan.desired = desired_nodes
        .map(|(form, nodes)| (form, Arc::new(nodes)))
        .collect();
    plan
}

/// Plans the node of each row, and returns what there should be of the form.
fn plan_form(
    seen: &SyncInputs,
    plan: &mut Plan,
    lookup: &Lookup,
    (form_name, form): (&String, &Form),
    now: Timestamp,
) -> Desired {
    let mut desired = Desired::default();
    let mut targets = vec![];
    // If the condition fails for its row, treat the node as part of the first group.
    let unrendered = |row| Wanted {
        rendered_hash: None,
        group: form
            .compiled
            .group(&seen.source.inputs(form_name, row, now))
            .map_or(Some(0), |(group, _)| group),
    };
    for row in seen.source.rows.rows.values() {
        let (key, node) = lookup.node(row, form_name);
        if let Some(cause) = lookup.collision(&key.name, &row.uid) {
            plan.skipped
                .add(Subject::Row, format!("{:?}", row.uid), cause);
            continue;
        }
        let waits = || plan.creations_held.is_some() && lookup.is_new(row, form_name);
        if node.is_some_and(|node| node.deleting) || waits() {
            plan.unwritten.insert((form_name.clone(), key.name.clone()));
            desired.insert(key.name, unrendered(row));
            continue;
        }
        let foreign = (seen.foreign)(&key);
        if let Some(cause) = taken(&seen.source.hub, foreign, form_name, row, node) {
            plan.unwritten.insert((form_name.clone(), key.name.clone()));
            desired.insert(key.name.clone(), unrendered(row));
            plan.skipped.add(Subject::Node, &*key.name, cause);
            continue;
        }
        targets.push(RowNode {
            form_name,
            form,
            row,
            key,
            node,
        });
    }
    let held = plan.held.is_some();
    let rendered = parallel::map(&targets, |target| RowRendering::of(seen, target, held, now));
    for (target, rendering) in targets.into_iter().zip(rendered) {
        let wanted = plan.take(&target, rendering);
        let unrendered = || unrendered(target.row);
        desired.insert(target.key.name, wanted.unwrap_or_else(unrendered));
    }
    settled::plan(seen, plan, lookup, (form_name, form), &mut desired);
    desired
}

/// Nodes that need a correction first, then nodes that the write releases, then the others in the order of their release.
fn sort(seen: &SyncInputs, writes: &mut [NodeWrite], lookup: &Lookup) {
    writes.sort_by(|a, b| Natural(&a.name).cmp(&Natural(&b.name)));
    writes.sort_by_cached_key(|write| {
        let policy = &seen.source.forms[&write.form].policy;
        let node = lookup.named(&write.name);
        let group = match node {
            Some(node) => policy.group_of(&node.labels, write.group),
            None => policy.group_of(
                &labels(&seen.source.hub.name, &write.uid).into(),
                write.group,
            ),
        };
        let is_broken = node.is_some_and(|node| node.is_broken());
        (!is_broken, write.waits, group)
    });
}

/// Deletes the nodes without a row or a form, or none of them while there are too many.
fn plan_deletions(seen: &SyncInputs, plan: &mut Plan) {
    let gone: Vec<&Arc<NodeDigest>> = seen
        .nodes
        .iter()
        .filter(|node| is_gone(seen, node))
        .collect();
    // One that was never live counts only where it is to go itself: when a table was swapped for another, the new nodes
    // wait, and must not outnumber the old ones until these may go.
    let counts = |node: &&Arc<NodeDigest>| {
        !node.deleting && (node.live != Live::None || is_gone(seen, node))
    };
    let existing = seen.nodes.iter().filter(counts).count();
    let deletions = Direction::Deletions {
        without_form: gone.iter().filter(|node| !has_form(seen, node)).count() as u64,
        unidentified: seen.source.rows.unidentified,
    };
    let allowed = &seen.source.hub.deletions;
    let held = allowed.held(deletions, existing, gone.len());
    plan.held = held.map(|held| named(seen, &gone, held));
    if plan.held.is_none() {
        plan.deletes = gone.iter().map(|node| deletion(seen, node)).collect();
    }
}

/// With the names by which a user sees whether the deletions are intended.
fn named(seen: &SyncInputs, gone: &[&Arc<NodeDigest>], held: Held) -> Held {
    let nodes = gone.iter().map(|node| node.key.name.to_string());
    let nodes: BTreeSet<String> = nodes.collect();
    let forms = gone.iter().filter(|node| !has_form(seen, node));
    let forms: BTreeSet<String> = forms.map(|node| node.form.to_string()).collect();
    Held {
        nodes: first_of(&Vec::from_iter(nodes)),
        forms: first_of(&Vec::from_iter(forms)),
        ..held
    }
}

/// Why the row's node is not written: the existing node of this name belongs to another hub, form or row.
pub fn taken(
    hub: &Hub,
    foreign: Option<String>,
    form_name: &str,
    row: &Row,
    node: Option<&Arc<NodeDigest>>,
) -> Option<String> {
    let other = node.filter(|node| node.form != form_name || node.row_uid != row.uid);
    Some(match (foreign, other) {
        (Some(other), _) if other.is_empty() => format!(
            "the node of this name belongs to no hub: give it the label {}={}, so that lynqgate takes it over, or delete it",
            names::LABEL_HUB,
            hub.name
        ),
        (Some(other), _) => format!(
            "the node of this name belongs to hub {other:?}, and lynqgate creates it here once it is deleted there: see the condition \
             DeletionsHeld of that hub; or rename the form"
        ),
        (None, Some(other)) => format!(
            "the node of this name is of form {:?} and another row; rename one of the forms",
            other.form
        ),
        (None, None) => return None,
    })
}

/// Keeps the earlier rendering of a node that is not rendered now and stays.
fn keep(seen: &SyncInputs, plan: &mut Plan, node: &NodeDigest) {
    let name = &node.key.name;
    if plan.rendered.contains_key(name) {
        return;
    }
    let Some(form) = seen.source.forms.get(&node.form) else {
        return;
    };
    let known = seen.rendered.get(name);
    // A node that is to be deleted, but may not be or does not go yet, stays behind the form.
    let is_current = match known {
        // Another writer may have changed the node since.
        Some(known) => known.is_of(form) && known.wanted.is_held_by(node),
        None => form.all_written && !is_gone(seen, node),
    };
    if !is_current {
        plan.unwritten.insert((node.form.clone(), name.clone()));
    }
    if let Some(known) = known {
        plan.rendered.insert(name.clone(), known.clone());
    }
}

/// Whether the data gives a reason to delete the node.
fn is_gone(seen: &SyncInputs, node: &NodeDigest) -> bool {
    if node.deleting || seen.broken_forms.contains(&node.form) {
        return false;
    }
    !has_form(seen, node) || seen.source.rows.is_gone(&node.row_uid)
}

fn deletion(seen: &SyncInputs, node: &NodeDigest) -> NodeDeletion {
    let reason = match (has_form(seen, node), (seen.moved)(&node.form)) {
        (true, _) => format!("row {:?} is inactive or gone", node.row_uid),
        (false, Some(hub)) => format!("form {:?} belongs to hub {hub:?}", node.form),
        (false, None) => format!("form {:?} is gone", node.form),
    };
    NodeDeletion {
        name: node.key.name.clone(),
        uid: node.uid.clone(),
        reason,
    }
}

fn has_form(seen: &SyncInputs, node: &NodeDigest) -> bool {
    seen.source.forms.contains_key(&node.form)
}

/// The rendering of one row by one form. It needs no other row, so rows are rendered in parallel.
struct RowRendering {
    errors: Vec<(String, String)>,
    /// The error says why the node cannot be written: its content is too large, or its group is not known.
    node: Result<Arc<CachedRendering>, String>,
    /// None if the node already has it.
    write: Option<NodeWrite>,
}

impl RowRendering {
    /// The hub renders a row once for a node that exists, and keeps the rendering until it has written the node. In a large fleet it
    /// reads all rows several times until then.
    fn of(seen: &SyncInputs, target: &RowNode, deletions_held: bool, now: Timestamp) -> Self {
        let source = RenderedFrom::of(target.form, target.row);
        let first_seen = target.node.and_then(|node| node.first_seen);
        let is_written = |rendering: &CachedRendering| {
            (target.node).is_some_and(|node| rendering.wanted.is_held_by(node))
        };
        // A node that is created again has a `now` of its own.
        let is_same = |known: &&Arc<CachedRendering>| {
            let same_time = first_seen == Some(known.first_seen);
            known.source == source && (same_time || is_written(known))
        };
        let known = seen.rendered.get(&target.key.name).filter(is_same);
        let mut rendering = match known {
            Some(known) => RowRendering {
                errors: known.errors.clone(),
                node: Ok(known.clone()),
                write: None,
            },
            None => {
                // The annotation keeps milliseconds.
                let first_seen = first_seen.unwrap_or_else(|| stamp::millis(now));
                RowRendering::render(seen.source, target, source, first_seen)
            }
        };
        let unwritten = rendering.node.as_ref().ok();
        let unwritten = unwritten.filter(|node| !is_written(node));
        rendering.write =
            unwritten.map(|node| NodeWrite::of(&seen.source.hub, target, node, deletions_held));
        rendering
    }

    fn render(
        source: &RenderSource,
        target: &RowNode,
        from: RenderedFrom,
        first_seen: Timestamp,
    ) -> Self {
        let RowNode {
            form_name,
            form,
            row,
            ..
        } = *target;
        let inputs = source.inputs(form_name, row, first_seen);
        let (content, errors) = form.compiled.render(&inputs);
        let too_large = content::check_size(Some(&content)).map_err(|error| error.to_string());
        // The group must be known before a release: if the condition fails for every row, all would be in the last group.
        let group = form.compiled.group(&inputs);
        let group = group.map_err(|error| format!("rollout.order: {error}"));
        let domains = form.compiled.domains(&inputs);
        let placed = group.and_then(|(group, _)| Ok((group, domains?)));
        let node = too_large.and(placed).map(|(group, domains)| {
            let content = content::hash(Some(&content));
            let place = (group, &domains);
            let hash = rendered_hash(&source.hub, (form_name, row), place, &content);
            Arc::new(CachedRendering {
                source: from,
                first_seen,
                wanted: Wanted {
                    rendered_hash: Some(hash.into()),
                    group,
                },
                errors: errors.clone(),
            })
        });
        RowRendering {
            errors,
            node,
            write: None,
        }
    }
}

#[cfg(test)]
mod tests;
