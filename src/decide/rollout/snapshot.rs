//! What the release planner sees of a hub: its ledger, its forms and nodes, and what came of the last passes.
//!
//! A snapshot is written into documents for support and into cases (`decide::rollout::replay`). It holds names, hashes, times, the
//! policies of forms and hubs, and texts that conditions publish anyway (`why`, `previous`, `ledger_refused`, `formless`). No rendered
//! content, no value of a row but its uid and what `rollout.domains` names, and no data of a Secret may come into it.

mod nodes;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Not;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::api::form::FormRolloutStatus;
use crate::api::hub::Slot;
use crate::api::policy::{Rollout, Skew};
use crate::decide::node::digest::NodeDigest;
use crate::decide::rollout::formless::Formless;
pub use nodes::{NamedNode, Nodes};

/// Everything that one pass looks at.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Snapshot {
    /// The hub's resourceVersion: the ledger below is that version's.
    pub resource_version: String,
    pub slots: Vec<Slot>,
    /// There is no ledger: the hub is new, or its status was lost. The nodes are then as the API server has them now.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub ledger_lost: bool,
    /// The hub's own window over all of its forms.
    pub hub_skew: Skew,
    pub forms: BTreeMap<String, Form>,
    /// What became of forms that nodes name and `forms` does not have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub formless: BTreeMap<String, Formless>,
    pub nodes: Nodes,
    /// What live reads confirmed since the last pass: slots that may be freed.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub confirmed: BTreeSet<Confirmation>,
    /// The hub's deletions are held back, so nothing new is made live either.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub deletions_held: bool,
    /// The hub is forced, and so is every form of it.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub forced: bool,
    /// The versions of the nodes that releases without a reply carry, by the nodes' names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sent: BTreeMap<String, String>,
    /// Nodes whose last release did not go through.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<String, RefusedRelease>,
    /// Why the API server goes on refusing the ledger, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger_refused: Option<String>,
    /// Slots whose nodes are gone, by uid: since when this process has not seen them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub missing: BTreeMap<String, Timestamp>,
    /// Nodes that this process has not looked at yet: their statuses are those of another, and may be old.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub unlooked: BTreeSet<Arc<str>>,
    /// Nodes whose pods were evicted for the maintenance of a Kubernetes node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub maintained: BTreeMap<Arc<str>, Maintained>,
}

/// The maintenance of a Kubernetes node that a LynqNode had pods on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Maintained {
    pub kubernetes_node: String,
    pub began: Timestamp,
    /// None while it goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
}

impl Snapshot {
    /// Whether a release of the node may still go through. It may not if the node has moved on from the version that it carries.
    pub fn is_sent(&self, name: &str, node: &Node) -> bool {
        self.sent.get(name) == Some(&node.resource_version)
    }
}

/// A release that did not go through.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RefusedRelease {
    /// Of the content that was to go live.
    pub hash: String,
    pub why: String,
    /// Not before this is it tried again. None where it is at once: the node had only changed meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// It was tried a few times: no accident any more.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub lasting: bool,
    /// When it was tried last.
    pub at: Timestamp,
}

/// How long a lasting refusal is told of a node that waits for a slot: as far as anybody knows it would be refused once more.
const TOLD_FOR: SignedDuration = SignedDuration::from_secs(60);

impl RefusedRelease {
    pub fn still_tells(&self, now: Timestamp) -> bool {
        self.lasting && now.duration_since(self.at).abs() < TOLD_FOR
    }

    pub fn told_until(&self) -> Option<Timestamp> {
        self.at.checked_add(TOLD_FOR).ok()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Form {
    pub policy: Rollout,
    /// The generation that every row's node has been rendered from.
    pub rendered_generation: i64,
    /// The oldest generation that renders the same, as far as that is known.
    pub same_since: i64,
    /// Nodes that the newest content is not written to: not yet, or it is too large or refused, or their row is skipped.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub unwritten: BTreeSet<Arc<str>>,
    /// How many those are, as the process before this one told: which ones they are the first sync finds out.
    pub unwritten_before: i32,
    /// Nodes that its rows ask for and that are not there, with the numbers of their groups in its order.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub absent: BTreeMap<Arc<str>, usize>,
    /// The form's templates are newer than what its nodes were last written from: what is held is not what is wanted.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub outdated: bool,
    /// Everything of the form goes at once.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub forced: bool,
    /// Groups of its order, from the first on, after which nothing pauses any more.
    #[serde(default, skip_serializing_if = "is_no_group")]
    pub promoted: usize,
    /// What failed before this no longer halts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resumed_at: Option<Timestamp>,
    /// The status as it was last written, for its times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous: Option<FormRolloutStatus>,
}

fn is_no_group(groups: &usize) -> bool {
    *groups == 0
}

/// What is known of a node's live content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Live {
    #[default]
    None,
    Unknown,
    Hash(String),
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Node {
    pub uid: String,
    pub resource_version: String,
    pub form: Arc<str>,
    pub desired: String,
    pub live: Live,
    /// When the live content last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<Timestamp>,
    /// Since when every resource of the live content is ready; None while it is not so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settled_since: Option<Timestamp>,
    /// When its content changed last, by a clock that does not jump, where this process has watched it in a slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub went_at: Option<Timestamp>,
    /// When the partition of one of its StatefulSets last moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stepped_at: Option<Timestamp>,
    /// Since when this process has seen it with that start, where it has a slot: what it was before, nobody here has seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watched_since: Option<Timestamp>,
    /// The same with that start, and settled since then or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub same_since: Option<Timestamp>,
    /// Since when it is not settled, as its status tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unready_since: Option<Timestamp>,
    /// The same, where it was settled since its release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broke_at: Option<Timestamp>,
    /// The status speaks of the live content.
    pub seen: bool,
    /// All of the live content is ready; what did not render is not.
    pub ready: bool,
    /// Why the live content is not settled, or not ready, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Its changes go live whatever the window says.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub forced: bool,
    #[serde(default, skip_serializing_if = "Not::not")]
    pub deleting: bool,
    /// Whether its release would change none of its objects, though nobody knows what let them go. None while that is being
    /// found out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unchanged: Option<bool>,
    /// What is held there are templates, as Lynq left them; or an older form's, and no sync of this process has said yet
    /// whether that is what is wanted.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub unrendered: bool,
    /// No row asks for it: it goes, once its hub may delete it.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub unwanted: bool,
    /// What the node tells of its newest slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flight: Option<Flight>,
    /// The number of its group in the form's order.
    pub group: usize,
    /// Its value of each of the form's domains; empty where it is in none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<String>,
}

/// A slot as its node remembers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Flight {
    /// The content that it let go.
    pub hash: String,
    /// The version that the release carried.
    pub release: String,
    #[serde(default, skip_serializing_if = "Not::not")]
    pub repair: bool,
    /// Its slot is kept for some time after the node is ready.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub watched: bool,
    /// The slot was freed, or the node was seen rolled out and its slot is not watched.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub landed: bool,
    /// It let go what is live now, or what was live when somebody took away what tells it.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub is_live: bool,
}

impl Node {
    /// When its live content last changed, though the wall clock was set ahead since, or went on to the next pod.
    pub fn went(&self) -> Option<Timestamp> {
        let live = self.start.max(self.went_at);
        live.map(|live| live.max(self.stepped_at.unwrap_or(live)))
    }

    pub fn held(&self) -> bool {
        !matches!(&self.live, Live::Hash(hash) if *hash == self.desired)
    }

    /// Has live content that is not settled.
    pub fn non_ready(&self) -> bool {
        self.live != Live::None && self.settled_since.is_none() && !self.deleting
    }

    /// Nothing of it was ever live.
    pub fn is_new(&self) -> bool {
        self.live == Live::None
    }
}

/// A live read that supports freeing a slot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Confirmation {
    /// No node of this uid exists.
    Gone { uid: String },
    /// The workloads of the node were ready with the content that this version of it has live.
    Ready {
        uid: String,
        resource_version: String,
    },
}

impl Confirmation {
    /// The workloads of the node were read as ready.
    pub fn of(node: &NodeDigest) -> Self {
        Confirmation::Ready {
            uid: node.uid.clone(),
            resource_version: node.resource_version.clone(),
        }
    }
}
