//! The planner's view of a hub, from the objects as they are known: by the loops' caches, or by one reading of `explain`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::api::form::FormSpec;
use crate::api::names;
use crate::api::policy::Rollout;
use crate::api::stamp;
use crate::cluster::catalog::{Form, Hub};
use crate::controller::Rendered;
use crate::decide::hub::desired::{Desired, Lack, Standing};
use crate::decide::hub::rows::names::uid_of;
use crate::decide::hub::sync::{self, rows_hash};
use crate::decide::node::digest::NodeDigest;
use crate::decide::rollout::formless::Formless;
use crate::decide::rollout::index::by_form;
use crate::decide::rollout::order;
use crate::decide::rollout::{self, Live, NamedNode, Node, Nodes, Snapshot};

pub struct SnapshotInputs<'a> {
    pub hub: Option<&'a Hub>,
    /// The hub's.
    pub forms: &'a [Arc<Form>],
    /// The form of a name, whatever hub it is of.
    pub named: &'a dyn Fn(&str) -> Option<Arc<Form>>,
    /// What the hub loop made of each form, by namespace and name; without it the forms' own statuses tell.
    pub rendered: &'a BTreeMap<(String, String), Rendered>,
}

/// The planner's views of a hub's nodes, as the last pass made them: those of nodes that have not changed since are good for the
/// next pass as well.
#[derive(Default)]
pub struct Views {
    /// By form.
    grounds: BTreeMap<Arc<str>, Grounds>,
    /// By name.
    nodes: Vec<View>,
}

/// What a pass asks of a node, so that it need not read the digests of a fleet.
pub struct View {
    pub digest: Arc<NodeDigest>,
    named: Arc<NamedNode>,
    /// None where it is not known what the rows ask for.
    standing: Option<Standing>,
    pub is_ready: bool,
    pub has_failed: bool,
    pub runs_edit: bool,
    /// The hub has rendered it, and nobody knows what is live.
    pub is_unknown: bool,
}

/// What the views of a form's nodes follow from, besides the nodes.
struct Grounds {
    spec: Option<Arc<FormSpec>>,
    desired: Option<Arc<Desired>>,
}

impl Grounds {
    fn are_same(&self, other: &Grounds) -> bool {
        is_same(&self.spec, &other.spec) && is_same(&self.desired, &other.desired)
    }
}

fn is_same<T>(one: &Option<Arc<T>>, other: &Option<Arc<T>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (one, other) => one.is_none() && other.is_none(),
    }
}

/// `nodes`: the hub's, by name. `views`: those of the pass before; this pass's take their place.
pub fn of<'a>(
    seen: &SnapshotInputs,
    nodes: impl Iterator<Item = &'a Arc<NodeDigest>>,
    views: &mut Views,
) -> Snapshot {
    views.renew(seen, nodes);
    let spec = seen.hub.and_then(|hub| hub.spec.as_ref().ok());
    let rows_hash = spec.map(|spec| rows_hash(spec));
    let of_form = by_form(&views.nodes, |view| &view.named.node.form);
    let view = |form: &Arc<Form>| {
        let nodes = of_form.get(form.name.as_str());
        let nodes = nodes.map(Vec::as_slice).unwrap_or_default();
        let view = form_view(form, seen, nodes, &rows_hash)?;
        Some((form.name.clone(), view))
    };
    let forms: BTreeMap<String, rollout::Form> = seen.forms.iter().filter_map(view).collect();
    let lost = of_form
        .iter()
        .filter(|(name, _)| !forms.contains_key(**name));
    let formless = lost.filter_map(|(name, nodes)| {
        let why = formless(seen, name, nodes)?;
        Some(((*name).to_owned(), why))
    });
    Snapshot {
        formless: formless.collect(),
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
        nodes: Nodes::sorted(views.nodes.iter().map(|view| view.named.clone())),
        forced: seen.hub.is_some_and(|hub| is_forced(&hub.annotations)),
        forms,
        ..Snapshot::default()
    }
}

/// What became of a form that these nodes name. None if it is there after all: it came while the others were read.
fn formless(seen: &SnapshotInputs, form: &str, nodes: &[&View]) -> Option<Formless> {
    let hub = &nodes.first()?.digest.hub;
    let was_written = nodes.iter().any(|view| view.digest.written_from.is_some());
    let found = (seen.named)(form);
    Formless::of(found.as_deref().map(Form::found), hub, was_written)
}

impl Views {
    pub fn nodes(&self) -> &[View] {
        &self.nodes
    }

    fn renew<'a>(
        &mut self,
        seen: &SnapshotInputs,
        nodes: impl Iterator<Item = &'a Arc<NodeDigest>>,
    ) {
        let grounds = seen.forms.iter().map(|form| {
            let rendered = seen
                .rendered
                .get(&(form.namespace.clone(), form.name.clone()));
            let grounds = Grounds {
                spec: form.spec.as_ref().ok().cloned(),
                desired: rendered.and_then(|rendered| rendered.desired.clone()),
            };
            (form.name.as_str().into(), grounds)
        });
        let grounds: BTreeMap<Arc<str>, Grounds> = grounds.collect();
        let same = |(name, grounds): &(&Arc<str>, &Grounds)| {
            self.grounds
                .get(*name)
                .is_some_and(|before| before.are_same(grounds))
        };
        let same = grounds.iter().filter(same);
        let same: BTreeSet<Arc<str>> = same.map(|(name, _)| name.clone()).collect();
        let mut before = std::mem::take(&mut self.nodes).into_iter().peekable();
        let view = |digest: &Arc<NodeDigest>| {
            let is_it = |view: &View| Arc::ptr_eq(&view.digest, digest);
            // Without reading either digest, where nothing came or went.
            if !before.peek().is_some_and(is_it) {
                let name = &digest.key.name;
                while before.next_if(|view| view.named.name < *name).is_some() {}
            }
            let known = before.next_if(is_it);
            match known.filter(|view| same.contains(&view.named.node.form)) {
                Some(view) => view,
                None => View::of(digest, grounds.get_key_value(digest.form.as_str())),
            }
        };
        self.nodes = nodes.map(view).collect();
        self.grounds = grounds;
    }
}

impl View {
    /// `of_form`: its form's name, which all of the form's nodes share, and what follows from the form.
    fn of(digest: &Arc<NodeDigest>, of_form: Option<(&Arc<str>, &Grounds)>) -> Self {
        let grounds = of_form.map(|(_, grounds)| grounds);
        // Without a policy there are neither groups nor domains.
        let policy = grounds.and_then(|grounds| grounds.spec.as_ref()?.rollout.as_ref());
        let desired = grounds.and_then(|grounds| grounds.desired.as_deref());
        let mut node = node_view(digest, policy, desired);
        if let Some((form, _)) = of_form {
            node.form = form.clone();
        }
        View {
            named: Arc::new(NamedNode {
                name: digest.key.name.clone(),
                node,
            }),
            standing: desired.map(|desired| desired.standing(digest)),
            is_ready: digest.is_ready(),
            has_failed: digest.has_failed(),
            runs_edit: digest.runs_edit(),
            is_unknown: digest.live == Live::Unknown && digest.rendered_hash.is_some(),
            digest: digest.clone(),
        }
    }
}

fn node_view(node: &NodeDigest, policy: Option<&Rollout>, desired: Option<&Desired>) -> Node {
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
    view
}

/// None for a form whose spec cannot be read: it has no window that is known, and its nodes are not released. `nodes`: those of
/// the form.
fn form_view(
    form: &Form,
    seen: &SnapshotInputs,
    nodes: &[&View],
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
            let waits = || {
                nodes
                    .iter()
                    .any(|view| view.named.node.held() && !view.named.node.deleting)
            };
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
        (Some(known), Some(desired)) => {
            let standings = nodes.iter();
            let standings = standings.filter_map(|view| Some((&view.named.name, view.standing?)));
            desired.lack(standings, &known.unwritten)
        }
        (known, _) => Lack {
            unwritten: known
                .into_iter()
                .flat_map(|known| known.unwritten.iter().cloned())
                .collect(),
            ..Lack::default()
        },
    };
    let policy = spec.rollout.clone().unwrap_or_default();
    let group_of = |(name, of_row): (Arc<str>, Option<usize>)| {
        // In a first sync nearly all nodes are absent, in each pass.
        let group = match policy.order.is_empty() {
            true => 0,
            false => {
                let labels = sync::labels(&form.hub_id, uid_of(&name, &form.name));
                policy.group_of(&labels.into(), of_row)
            }
        };
        (name, group)
    };
    let absent = absent.into_iter().map(group_of).collect();
    let same_since = known.map_or(rendered_generation, |rendered| rendered.same_since);
    let promotion = form.annotations.get(names::PROMOTE);
    Some(rollout::Form {
        promoted: order::promoted(promotion, &policy.order, same_since, rendered_generation),
        policy,
        rendered_generation,
        same_since,
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::decide::hub::desired::Wanted;

    fn form(name: &str, group: &str) -> Arc<Form> {
        let order = json!([{"name": "first", "matchLabels": {"lynq.sh/uid": group}}]);
        let object = json!({
            "metadata": {"namespace": "shop", "name": name, "uid": name, "generation": 1},
            "spec": {"hubId": "tenants", "rollout": {"order": order}},
        });
        let form = Form::of(&object);
        assert!(form.spec.is_ok(), "{:?}", form.spec);
        Arc::new(form)
    }

    fn node(number: usize, form: &str, version: u32) -> Arc<NodeDigest> {
        let uid = format!("t{number}");
        Arc::new(NodeDigest::of(
            &json!({
                "metadata": {
                    "namespace": "shop", "name": format!("{uid}-{form}"), "uid": uid,
                    "resourceVersion": version.to_string(), "labels": {"lynq.sh/uid": uid},
                },
                "spec": {"hubId": "tenants", "templateRef": form, "uid": uid},
            }),
            None,
        ))
    }

    fn rendered(names: &[&str]) -> BTreeMap<(String, String), Rendered> {
        let mut desired = Desired::default();
        for name in names {
            let wanted = Wanted {
                rendered_hash: None,
                group: None,
            };
            desired.insert((*name).into(), wanted);
        }
        desired.note_seen(&node(2, "web", 1));
        let rendered = Rendered {
            desired: Some(Arc::new(desired)),
            ..Rendered::default()
        };
        BTreeMap::from([(("shop".to_owned(), "web".to_owned()), rendered)])
    }

    fn by_name(mut nodes: Vec<Arc<NodeDigest>>) -> Vec<Arc<NodeDigest>> {
        nodes.sort_by(|one, other| one.key.name.cmp(&other.key.name));
        nodes
    }

    /// Each pass sees something else than the one before it: with its views or without, it is the same that it sees.
    #[test]
    fn views_of_the_pass_before_change_nothing() {
        let all = |version| {
            let web = (0..12).map(|number| node(number, "web", version));
            let api = (0..12).map(|number| node(number, "api", 1));
            by_name(web.chain(api).collect())
        };
        let (first, mut changed) = (all(1), all(1));
        let newer = node(3, "web", 2);
        let place = changed.iter().position(|node| node.key == newer.key);
        changed[place.expect("it is there")] = newer;
        changed.remove(9);
        let forms = |group: &str| vec![form("api", "t1"), form("web", group)];
        let (by_t1, by_t2) = (forms("t1"), forms("t2"));
        let (without, with, other) = (
            BTreeMap::new(),
            rendered(&["t1-web"]),
            rendered(&["t1-web", "t2-web"]),
        );
        let mut views = Views::default();
        for (step, (forms, nodes, rendered)) in [
            (&by_t1, &first, &without),
            (&by_t1, &first, &without),
            (&by_t1, &changed, &without),
            (&by_t2, &changed, &without),
            (&by_t2, &changed, &with),
            (&by_t2, &first, &with),
            (&by_t2, &first, &other),
            (&vec![], &first, &other),
            (&by_t1, &vec![], &without),
            (&by_t1, &first, &with),
        ]
        .into_iter()
        .enumerate()
        {
            let seen = SnapshotInputs {
                hub: None,
                forms,
                named: &|_| None,
                rendered,
            };
            let expected = of(&seen, nodes.iter(), &mut Views::default());
            assert_eq!(of(&seen, nodes.iter(), &mut views), expected, "step {step}");
        }
    }

    #[test]
    fn a_node_that_did_not_change_is_seen_once() {
        let forms = [form("web", "t1")];
        let mut nodes = vec![node(1, "web", 1), node(2, "web", 1)];
        let mut views = Views::default();
        let mut pass = |nodes: &[Arc<NodeDigest>]| {
            let seen = SnapshotInputs {
                hub: None,
                forms: &forms,
                named: &|_| None,
                rendered: &BTreeMap::new(),
            };
            of(&seen, nodes.iter(), &mut views)
        };
        let before = pass(&nodes);
        nodes[1] = node(2, "web", 2);
        let now = pass(&nodes);
        let same = |name: &str| std::ptr::eq(&before.nodes[name], &now.nodes[name]);
        assert!(same("t1-web") && !same("t2-web"));
    }
}
