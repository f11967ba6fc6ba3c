//! What is answered, and how it reads.

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

use crate::api::conditions::{Condition, ConditionReason};
use crate::api::form::WaitingNodes;
use crate::decide::node::digest::NodeDigest;
use crate::decide::rollout::explain::next;

/// The answer, in the order in which it is read.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// What it is about: `lynqnode tenants/acme-web`.
    pub subject: String,
    /// Of a node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub form: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hub: Option<String>,
    /// Of a node: the group of rollout.order that it is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    pub state: String,
    /// The reason in one word, as in conditions and metrics. Absent where nothing waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The whole reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What must happen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// When that may be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// When the rollout is complete, if it goes on as it went so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimated_completion: Option<Timestamp>,
    /// Of a held node: since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_since: Option<Timestamp>,
    /// Of a form: the nodes in flight.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub in_flight: Vec<String>,
    /// Of a form: what other nodes of it wait for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<WaitingNodes>,
}

impl Explanation {
    /// Of a form, or of one of these nodes.
    pub fn wait(&mut self, nodes: &WaitingNodes) {
        self.reason = Some(nodes.reason.to_string());
        self.why = Some(nodes.message.clone());
        self.next = Some(nodes.next.clone());
    }

    /// `told`: why the form is not valid, if it is not.
    pub fn invalid(mut self, told: Option<&Condition>) -> Self {
        if let Some(told) = told {
            let next = ConditionReason::named(&told.reason).map(next::correction);
            self.reason = Some(told.reason.to_string());
            self.why = Some(told.message.to_string());
            self.next = next.map(str::to_owned);
        }
        self
    }

    pub fn within(mut self, node: &NodeDigest) -> Self {
        self.form = Some(node.form.clone());
        self.hub = Some(node.hub.clone());
        self
    }

    pub fn of(subject: String, state: String) -> Self {
        Explanation {
            subject,
            form: None,
            hub: None,
            group: None,
            state,
            reason: None,
            why: None,
            next: None,
            expected: None,
            estimated_completion: None,
            held_since: None,
            in_flight: vec![],
            waiting: vec![],
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.subject)?;
        let within = self.form.as_ref().zip(self.hub.as_ref());
        let group = (self.group.as_ref()).map_or(String::new(), |group| format!(", group {group}"));
        let within = within.map(|(form, hub)| format!("form {form}, hub {hub}{group}"));
        let why = self.why.as_ref().map(|why| match &self.reason {
            Some(reason) => format!("{reason}: {why}"),
            None => why.clone(),
        });
        let in_flight = (!self.in_flight.is_empty()).then(|| self.in_flight.join(", "));
        for (name, value) in [
            ("of", within),
            ("state", Some(self.state.clone())),
            ("why", why),
            ("in flight", in_flight),
            ("next", self.next.clone()),
            ("expected", self.expected.clone()),
        ] {
            if let Some(value) = value {
                writeln!(f, "  {name:<10} {value}")?;
            }
        }
        for nodes in &self.waiting {
            let others = match usize::try_from(nodes.count) {
                Ok(count) if count > nodes.nodes.len() => ", ...",
                _ => "",
            };
            let WaitingNodes {
                reason,
                count,
                message,
                ..
            } = nodes;
            let names = nodes.nodes.join(", ");
            writeln!(
                f,
                "  {:<10} {reason} ({count}: {names}{others}): {message}",
                "also"
            )?;
        }
        Ok(())
    }
}
