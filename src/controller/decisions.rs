//! The decisions of the loops, where they are asked for: the simulation looks on there, and plants its bugs.

use jiff::Timestamp;

use crate::api::form::{FormSpec, FormStatus};
use crate::controller::Said;
use crate::decide::hub::sync;
use crate::decide::node::digest::NodeDigest;
use crate::decide::node::plan::{self, NodePlan, Rest};
use crate::decide::partition::walk::{self, Around, Pod, Set, Step};
use crate::decide::rollout::history;
use crate::decide::rollout::{self, Snapshot};

pub trait Decisions: Send + Sync {
    /// Of the hub loop: what its rows and forms make of its nodes.
    fn sync(&self, seen: &sync::SyncInputs, now: Timestamp) -> sync::Plan {
        sync::plan(seen, now)
    }

    /// Of the release loop: what goes, and why the rest waits.
    fn releases(&self, snapshot: &Snapshot, now: Timestamp) -> rollout::Plan {
        rollout::plan(snapshot, now)
    }

    /// Of the release loop: the revision that a failed form is set back to, if it is ([`history::reverts_to`]).
    fn reverts_to<'a>(
        &self,
        spec: &FormSpec,
        generation: i64,
        status: &'a FormStatus,
        reverted: Option<&str>,
    ) -> Option<&'a str> {
        history::reverts_to(spec, generation, status, reverted)
    }

    /// Of the node loop: what is applied and deleted for a node.
    fn node(
        &self,
        node: &NodeDigest,
        seen: &[plan::ObservedResource],
        rest: &Rest,
        now: Timestamp,
    ) -> NodePlan {
        #[cfg(debug_assertions)]
        planted(node);
        plan::plan(node, seen, rest, now)
    }

    /// Of the partition loop: which pod is updated next, or why none is.
    fn step(&self, set: &Set, pods: &[Pod], around: &Around, now: Timestamp) -> Step {
        walk::step(set, pods, around, now)
    }

    /// Whether the hub and its forms still say what was decided on: right before a release, and before a write that makes content
    /// live by itself.
    fn still_says(&self, decided_on: &Said, now: &Said) -> bool {
        decided_on == now
    }
}

/// As `decide` decides.
pub struct Decide;

impl Decisions for Decide {}

/// For the test of panics: the reconcile of a node with this name panics. A release does not have it.
#[cfg(debug_assertions)]
fn planted(node: &NodeDigest) {
    assert!(!node.key.name.starts_with("planted-panic-"), "planted");
}
