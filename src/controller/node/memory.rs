//! What the node loop remembers.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use crate::controller::node::{left_over, pods, report};
use crate::decide::node::plan::Failure;
use crate::decide::node::plan::applies::Applies;
use crate::decide::node::plan::news::Trouble;
use crate::decide::node::plan::record::Record;

/// What the loop remembers of a node between two reconciliations. Losing it (a restart) costs at most a request for each object.
#[derive(Default)]
pub struct NodeMemory {
    /// Of the node: one made anew under the same name is another.
    pub(super) uid: String,
    /// The objects were looked at since the start.
    pub(super) looked: bool,
    /// What was applied for it, newer than the status says.
    pub(super) record: Option<Record>,
    /// A list, because nodes are many and have few resources.
    pub(super) resources: Vec<ResourceMemory>,
    pub(super) report: report::ReportMemory,
    /// The maintenance that evicted its pods, while that goes on.
    pub(super) maintained: Option<String>,
    /// Objects that could not be taken down.
    pub(super) left_over: left_over::LeftOvers,
    /// Since when it waits for objects to go, or when it told of them last.
    pub(super) waits_since: Option<Timestamp>,
    /// Reconciliations in a row that ended in an error.
    pub(super) failures: u32,
    /// Reconciliations in a row that ended in a conflict.
    pub(super) conflicts: u32,
    /// The desired content of which it is known whether its release would change anything, where it is not known what runs.
    pub(super) taken_over: Option<String>,
    pub(super) gated_again: Option<GateTry>,
    /// What is live was known when it was looked at last.
    pub(super) known: bool,
    /// Ids of the resources applied since the last event about them.
    pub(super) applied: BTreeSet<String>,
}

/// What is rare is behind a pointer: nodes without trouble are many.
#[derive(Default)]
pub(super) struct ResourceMemory {
    /// Of the resource.
    pub(super) id: String,
    /// Hash of the resource that the rest is about.
    pub(super) hash: Arc<str>,
    pub(super) failure: Option<Box<Failure>>,
    pub(super) failures: u32,
    pub(super) trouble: Option<Trouble>,
    /// The fields that we owned after our last write; None while that is not known.
    pub(super) fields_hash: Option<Arc<str>>,
    pub(super) applies: Applies,
    pub(super) waiting_since: Option<Timestamp>,
    pub(super) was_ready: bool,
    pub(super) pods: Option<Box<pods::PodsMemory>>,
}

impl NodeMemory {
    pub(super) fn resource(&self, id: &str) -> Option<&ResourceMemory> {
        self.resources.iter().find(|memory| memory.id == id)
    }

    /// What is remembered of the resource; nothing yet, if it is new.
    pub(super) fn resource_mut(&mut self, id: &str) -> &mut ResourceMemory {
        let known = self.resources.iter().position(|memory| memory.id == id);
        let at = known.unwrap_or_else(|| {
            self.resources.push(ResourceMemory {
                id: id.to_owned(),
                ..ResourceMemory::default()
            });
            self.resources.len() - 1
        });
        &mut self.resources[at]
    }
}

/// That the object was sent through the gate once more.
pub(super) struct GateTry {
    /// What was past the gate then.
    pub(super) generation: i64,
    pub(super) again_at: Timestamp,
}
