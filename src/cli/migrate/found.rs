//! What `lynqgate migrate` has found out of a hub and its nodes, and how it reads.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use crate::api::names;
use crate::api::policy::{Rollout, Skew};
use crate::cluster::catalog::Hub;
use crate::decide::node::digest::NodeDigest;
use crate::decide::node::takeover::Effect;
use crate::decide::rollout::{Live, is_ungated};

/// Nodes of one form that are shown in the text.
const SHOWN_MAX: usize = 10;

/// What would become of a node.
#[derive(Serialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    tag = "outcome"
)]
pub enum NodeOutcome {
    /// Nothing of what runs changes, and it takes no slot.
    TakenOver,
    /// Its objects are made, for there is no node yet.
    New { at_once: bool, when: When },
    Changes {
        at_once: bool,
        when: When,
        changes: Vec<String>,
    },
    /// It is being deleted already; its row wants it again.
    MadeAnew,
    /// lynqgate has looked after it before.
    Known,
    /// The same, and changes of it wait.
    Waits { why: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum When {
    AtOnce,
    ByForce,
    Confirmed,
    Unpaused,
    InTurn,
}

/// When the nodes of a form go.
pub struct Terms {
    pub policy: Rollout,
    /// Of the hub.
    pub skew: Skew,
    /// Whether the form or its hub is forced.
    pub forced: bool,
    /// Whether deletions of the hub wait for a confirmation.
    pub held: bool,
}

impl When {
    pub fn of(terms: &Terms, node: Option<&NodeDigest>) -> Self {
        let new = node.is_none_or(|node| node.live == Live::None);
        match () {
            () if new && terms.held => When::Confirmed,
            () if terms.forced || node.is_some_and(|node| node.forced) => When::ByForce,
            () if is_ungated(&terms.policy, terms.skew, new) => When::AtOnce,
            () if terms.policy.paused => When::Unpaused,
            () => When::InTurn,
        }
    }

    fn at_once(self) -> bool {
        matches!(self, When::AtOnce | When::ByForce)
    }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            When::AtOnce => f.write_str("at once, as no window applies"),
            When::ByForce => write!(
                f,
                "at once, as {}={} is on it, its form or its hub",
                names::FORCE_ROLLOUT,
                names::TRUE
            ),
            When::Confirmed => f.write_str("waits until the deletions are confirmed, see below"),
            When::Unpaused => f.write_str("waits until its form is not paused any more"),
            When::InTurn => f.write_str("waits for its turn"),
        }
    }
}

impl NodeOutcome {
    pub fn new(when: When) -> Self {
        let at_once = when.at_once();
        NodeOutcome::New { at_once, when }
    }

    pub fn changes(when: When, effects: &[Effect]) -> Self {
        NodeOutcome::Changes {
            at_once: when.at_once(),
            when,
            changes: effects.iter().map(ToString::to_string).collect(),
        }
    }

    pub fn waits(node: &NodeDigest) -> Self {
        let mut told = node.status.conditions.iter();
        let told = told.find(|c| c.type_ == "Held" && c.status == "True");
        let why = told.map(|told| format!("{}: {}", told.reason, told.message));
        let why = why.unwrap_or_else(|| "the operator has not said why".to_owned());
        NodeOutcome::Waits { why }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MigrationReport {
    pub namespace: String,
    pub hub: String,
    /// Why nothing can be said of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// It is being deleted, and what becomes of its nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub going: Option<&'static str>,
    /// By form and node.
    pub forms: BTreeMap<String, BTreeMap<String, NodeOutcome>>,
    /// Forms whose rollouts are paused.
    pub paused_forms: BTreeSet<String>,
    /// Forms that cannot be rendered, and why: their nodes stay as they are.
    pub broken_forms: BTreeMap<String, String>,
    /// Nodes that the first sync deletes, and why.
    pub deletions: BTreeMap<String, String>,
    /// Deletions that wait for a confirmation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletions_held: Option<String>,
    /// Creations that wait for a confirmation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creations_held: Option<String>,
    /// Rows that get no node, and nodes that are somebody else's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows_skipped: Option<String>,
    /// What does not render, and stays as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub render_failed: Option<String>,
}

impl MigrationReport {
    pub fn of(hub: &Hub) -> Self {
        MigrationReport {
            namespace: hub.namespace.clone(),
            hub: hub.name.clone(),
            problem: None,
            going: None,
            paused_forms: BTreeSet::new(),
            forms: BTreeMap::new(),
            broken_forms: BTreeMap::new(),
            deletions: BTreeMap::new(),
            deletions_held: None,
            creations_held: None,
            rows_skipped: None,
            render_failed: None,
        }
    }

    pub fn tell(&mut self, form: &str, node: &str, outcome: NodeOutcome) {
        let of_form = self.forms.entry(form.to_owned()).or_default();
        of_form.insert(node.to_owned(), outcome);
    }

    pub fn goes_already(&mut self, node: &str) {
        let why = "it is already being deleted, and no active row requires it";
        self.deletions.insert(node.to_owned(), why.to_owned());
    }

    /// With the hub the garbage collector takes its nodes.
    pub fn goes(&mut self, hub: &Hub, nodes: &[Arc<NodeDigest>]) {
        if hub.finalizers.iter().any(|finalizer| finalizer == "orphan") {
            self.going = Some("its nodes are left behind, and no hub manages them");
            return;
        }
        self.going = Some(
            "all of its nodes are deleted with it, and their objects, except those with deletionPolicy: Retain; to keep a node, remove its owner \
             reference to the hub before the hub is gone",
        );
        for node in nodes {
            let why = "its hub is being deleted";
            self.deletions
                .insert(node.key.name.to_string(), why.to_owned());
        }
    }
}

impl fmt::Display for MigrationReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "lynqhub {}/{}", self.namespace, self.hub)?;
        if let Some(problem) = &self.problem {
            return writeln!(f, "  cannot be checked: {problem}");
        }
        if let Some(what) = self.going {
            writeln!(f, "  is being deleted: {what}")?;
        }
        for (form, nodes) in &self.forms {
            let (mut kept, mut known, mut shown) = (0, 0, vec![]);
            for (node, outcome) in nodes {
                let line = match outcome {
                    NodeOutcome::TakenOver => {
                        kept += 1;
                        continue;
                    }
                    NodeOutcome::Known => {
                        known += 1;
                        continue;
                    }
                    NodeOutcome::New { when, .. } => format!("({when}): the node is created"),
                    NodeOutcome::Changes { when, changes, .. } => {
                        format!("({when}): {}", changes.join("; "))
                    }
                    NodeOutcome::MadeAnew => {
                        "is already being deleted: its objects are deleted, and then lynqgate creates it again"
                            .to_owned()
                    }
                    NodeOutcome::Waits { why } => format!("waits already: {why}"),
                };
                shown.push(format!("{node} {line}"));
            }
            let nodes = nodes.len();
            write!(
                f,
                "  form {form}: {kept} of {nodes} nodes are taken over as they are"
            )?;
            match known {
                0 => writeln!(f)?,
                known => writeln!(
                    f,
                    "; {known} are lynqgate's already, and are written again: their changes wait as usual"
                )?,
            }
            if self.paused_forms.contains(form) {
                writeln!(
                    f,
                    "    it is paused (rollout.paused): until it is resumed, nothing of it goes live except by force, even where nothing changes"
                )?;
            }
            for line in shown.iter().take(SHOWN_MAX) {
                writeln!(f, "    {line}")?;
            }
            if let Some(more @ 1..) = shown.len().checked_sub(SHOWN_MAX) {
                writeln!(f, "    and {more} more: -o json has them all")?;
            }
        }
        for (form, why) in &self.broken_forms {
            writeln!(
                f,
                "  form {form} does not render, and its nodes stay as they are: {why}"
            )?;
        }
        for (node, why) in &self.deletions {
            writeln!(f, "  {node} is deleted: {why}")?;
        }
        for (name, said) in [
            ("deletions", &self.deletions_held),
            ("creations", &self.creations_held),
            ("rows without a node", &self.rows_skipped),
            ("not rendered", &self.render_failed),
        ] {
            if let Some(said) = said {
                writeln!(f, "  {name}: {said}")?;
            }
        }
        let MigrationReport {
            forms,
            broken_forms,
            deletions,
            ..
        } = self;
        let nothing = forms.is_empty() && broken_forms.is_empty() && deletions.is_empty();
        if nothing && self.going.is_none() {
            writeln!(
                f,
                "  nothing is written: all is as it should be, or there is no form or no active row"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn found() -> MigrationReport {
        MigrationReport::of(&hub(json!([])))
    }

    fn hub(finalizers: Value) -> Hub {
        let metadata = json!({
            "name": "tenants", "namespace": "shop", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": finalizers,
        });
        Hub::of(&json!({"metadata": metadata}))
    }

    fn node(metadata: Value, status: Value) -> Arc<NodeDigest> {
        let mut object = json!({"metadata": metadata, "status": status});
        object["metadata"]["name"] = json!("t0-web");
        Arc::new(NodeDigest::of(&object, None))
    }

    #[test]
    fn programs_read_an_outcome() {
        let changes = NodeOutcome::Changes {
            at_once: true,
            when: When::AtOnce,
            changes: vec!["x".to_owned()],
        };
        let read = |outcome| serde_json::to_value(outcome).unwrap();
        assert_eq!(
            read(changes),
            json!({"outcome": "changes", "atOnce": true, "when": "atOnce", "changes": ["x"]})
        );
        assert_eq!(
            read(NodeOutcome::TakenOver),
            json!({"outcome": "takenOver"})
        );
    }

    #[test]
    fn what_a_node_waits_for() {
        let runs = node(json!({"annotations": {names::LIVE_HASH: "x"}}), Value::Null);
        let forced = json!({"annotations": {names::LIVE_HASH: "x", names::FORCE_ROLLOUT: "true"}});
        let forced = node(forced, Value::Null);
        let (runs, forced) = (Some(&*runs), Some(&*forced));
        let narrow = json!({"maxSkew": 1});
        let paused = json!({"paused": true});
        let made_at_once = json!({"maxSkew": 1, "creation": "Immediate"});
        for (policy, of_hub, form_forced, held, node, expected) in [
            (&narrow, 0, false, true, None, When::Confirmed),
            (&narrow, 0, true, true, None, When::Confirmed),
            (&narrow, 0, true, false, None, When::ByForce),
            (&narrow, 0, true, true, runs, When::ByForce),
            (&paused, 0, false, true, forced, When::ByForce),
            (&json!({}), 0, false, true, runs, When::AtOnce),
            (&json!({}), 3, false, true, runs, When::InTurn),
            (&made_at_once, 0, false, false, None, When::AtOnce),
            (&made_at_once, 0, false, false, runs, When::InTurn),
            (&paused, 0, false, false, runs, When::Unpaused),
            (&narrow, 0, false, false, None, When::InTurn),
        ] {
            let terms = Terms {
                policy: serde_json::from_value(policy.clone()).unwrap(),
                skew: Skew::Count(of_hub),
                forced: form_forced,
                held,
            };
            assert_eq!(When::of(&terms, node), expected, "{policy}");
        }
    }

    #[test]
    fn a_hub_that_goes_takes_its_nodes_along() {
        let nodes = [node(json!({}), Value::Null)];
        let mut goes = found();
        goes.goes(&hub(json!(["lynq.sh/hub-finalizer"])), &nodes);
        let text = goes.to_string();
        assert!(
            text.contains("is being deleted: all of its nodes are deleted with it"),
            "{text}"
        );
        assert!(
            text.contains("t0-web is deleted: its hub is being deleted"),
            "{text}"
        );

        let mut leaves = found();
        leaves.goes(&hub(json!(["orphan"])), &nodes);
        let text = leaves.to_string();
        assert!(
            text.contains("left behind") && !text.contains("t0-web"),
            "{text}"
        );
    }

    #[test]
    fn what_is_known_waits_or_is_being_deleted_is_not_taken_over() {
        let mut all = found();
        let held = json!({"conditions": [{
            "type": "Held", "status": "True", "reason": "WindowFull", "message": "waits for a slot", "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]});
        all.tell("web", "t0-web", NodeOutcome::waits(&node(json!({}), held)));
        all.tell("web", "t1-web", NodeOutcome::MadeAnew);
        all.tell("web", "t2-web", NodeOutcome::Known);
        all.tell("web", "t3-web", NodeOutcome::TakenOver);
        all.goes_already("t4-web");
        all.paused_forms.insert("web".to_owned());
        let text = all.to_string();
        for said in [
            "form web: 1 of 4 nodes are taken over as they are; 1 are lynqgate's already",
            "it is paused (rollout.paused)",
            "t0-web waits already: WindowFull: waits for a slot",
            "t1-web is already being deleted: its objects are deleted, and then",
            "t4-web is deleted: it is already being deleted",
        ] {
            assert!(text.contains(said), "{text}");
        }
        assert!(!text.contains("all is as it should be"), "{text}");
    }
}
