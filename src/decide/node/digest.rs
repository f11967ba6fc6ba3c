//! The digest of a LynqNode that stays in memory, read from the object in its watch event.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::api::conditions::{Condition, ConditionReason};
use crate::api::node::NodeStatus;
use crate::api::policy::{Rollout, delay};
use crate::api::resource::{
    ConflictPolicy, CreationPolicy, DeletionPolicy, Resource, ResourceArrays,
};
use crate::api::texts::Texts;
use crate::api::{conditions, names, stamp};
use crate::decide::child::{Kind, NodeKey, Scope, applied_hash, object_key};
use crate::decide::gate::marker::ReleaseMarker;
use crate::decide::gate::{self, annotation};
use crate::decide::node::takeover::bears_lynqs_row;
use crate::decide::rollout;
use crate::decide::rollout::Live;
use crate::decide::shared::content::{self, Hash};
use crate::decide::shared::fields::text_at;
use crate::decide::shared::version;

/// One resource of the live content, without its manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    pub name: String,
    /// The namespace that the object has if its kind is namespaced.
    pub namespace: Arc<str>,
    pub hash: Arc<str>,
    pub declared: Arc<Declared>,
}

/// The parts of a resource that are the same for other nodes of its form, so that a cache can share them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Declared {
    pub id: String,
    pub kind: Arc<Kind>,
    pub depend_ids: Vec<String>,
    pub namespace_from: String,
    pub skip_on_dependency_failure: bool,
    pub wait_for_ready: bool,
    pub timeout_seconds: i32,
    /// How long after its apply the object counts as ready while its readiness is unknown.
    pub min_delay: Option<SignedDuration>,
    pub once: bool,
    pub retain: bool,
    pub conflict_policy: ConflictPolicy,
    /// Why it did not render.
    pub render_error: Option<String>,
}

impl Deref for Facts {
    type Target = Declared;

    fn deref(&self) -> &Declared {
        &self.declared
    }
}

/// The digest of a LynqNode.
#[derive(Clone, Debug)]
pub struct NodeDigest {
    pub key: NodeKey,
    pub uid: String,
    pub resource_version: String,
    pub generation: i64,
    pub deleting: bool,
    pub has_finalizer: bool,
    pub hub: String,
    pub row_uid: String,
    pub form: String,
    pub desired: String,
    pub live: Live,
    pub start: Option<String>,
    pub held_since: Option<String>,
    pub rendered_hash: Option<String>,
    /// Who last changed the content since the hub rendered it, and when.
    pub edited_by: Option<String>,
    pub edited_at: Option<String>,
    /// The annotation `lynq.sh/discard-edit` is set.
    pub discard_edit: bool,
    pub bears_lynqs_row: bool,
    /// The generation of the form that it was last written from.
    pub written_from: Option<i64>,
    /// When a sync first saw the row, to the millisecond.
    pub first_seen: Option<Timestamp>,
    /// The group of the form's order that the hub found for the row.
    pub group_of_row: Option<usize>,
    /// The row's value of each variable that defines the form's domains.
    pub domains_of_row: Arc<BTreeMap<String, String>>,
    /// Every change of the node goes live at once.
    pub forced: bool,
    pub labels: Arc<Texts>,
    pub status: Arc<NodeStatus>,
    /// The resources of the live content; empty where none is known.
    pub facts: Arc<Vec<Facts>>,
    /// The newest release by a slot.
    pub release: Option<ReleaseMarker>,
    /// The live content went live by that release, and not since by a way that needs no slot.
    pub live_by_slot: bool,
    /// Its annotations claim hashes that its content does not have: it was written past the gate.
    pub past_gate: bool,
    /// The live content as JSON, if it is small, until the status reports it as rolled out.
    pub content: Option<Arc<str>>,
}

/// Larger contents, in bytes, are read when they are applied: of a fleet that is being made most nodes wait for that.
const CONTENT_KEPT_MAX: usize = 8 << 10;

impl NodeDigest {
    /// Reads the object. What the previous digest already has is shared instead of computed again.
    pub fn of(object: &Value, previous: Option<&NodeDigest>) -> Self {
        let text = |place: &str| text_at(object, place).to_owned();
        let (namespace, name) = (
            text_at(object, "/metadata/namespace"),
            text_at(object, "/metadata/name"),
        );
        let label = |name: &str| {
            object["metadata"]["labels"][name]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        let status: NodeStatus =
            serde_json::from_value(object["status"].clone()).unwrap_or_default();
        let known = previous.map(|previous| &previous.key);
        let known = known.filter(|key| (&*key.namespace, &*key.name) == (namespace, name));
        let key = known.map_or_else(|| NodeKey::new(namespace, name), NodeKey::clone);
        let finalizers = object["metadata"]["finalizers"].as_array();
        let rebased = gate::rebased(object);
        let desired = match &rebased {
            Some(rebased) => rebased.desired.as_str(),
            None => annotation(object, names::DESIRED_HASH).unwrap_or_default(),
        };
        let mut digest = NodeDigest {
            uid: text("/metadata/uid"),
            resource_version: text("/metadata/resourceVersion"),
            generation: object["metadata"]["generation"]
                .as_i64()
                .unwrap_or_default(),
            deleting: !text("/metadata/deletionTimestamp").is_empty(),
            has_finalizer: finalizers
                .is_some_and(|all| all.iter().any(|f| f == names::NODE_FINALIZER)),
            hub: match text("/spec/hubId") {
                // Lynq writes only the label.
                hub if hub.is_empty() => label(names::LABEL_HUB),
                hub => hub,
            },
            row_uid: text("/spec/uid"),
            form: text("/spec/templateRef"),
            desired: desired.to_owned(),
            live: Live::Unknown,
            start: annotation(object, names::START_TIME).map(str::to_owned),
            held_since: annotation(object, names::HELD_SINCE).map(str::to_owned),
            rendered_hash: rendered_hash(object),
            edited_by: annotation(object, names::EDITED_BY).map(str::to_owned),
            edited_at: annotation(object, names::EDITED_AT).map(str::to_owned),
            discard_edit: annotation(object, names::DISCARD_EDIT) == Some(names::TRUE),
            bears_lynqs_row: bears_lynqs_row(object),
            written_from: annotation(object, names::TEMPLATE_GENERATION)
                .and_then(|text| text.parse().ok()),
            first_seen: annotation(object, names::FIRST_SEEN)
                .and_then(stamp::parse)
                .map(stamp::millis),
            group_of_row: annotation(object, names::GROUP_OF_ROW)
                .and_then(|text| text.parse().ok()),
            domains_of_row: domains_of_row(object, previous),
            forced: annotation(object, names::FORCE_ROLLOUT) == Some(names::TRUE),
            labels: labels(object, previous),
            status: Arc::new(status),
            facts: Arc::default(),
            release: annotation(object, names::RELEASE).and_then(ReleaseMarker::parse),
            live_by_slot: false,
            past_gate: false,
            content: None,
            key,
        };
        let previous = previous.filter(|p| p.uid == digest.uid);
        digest.read_live(object, rebased, previous);
        digest.past_gate = digest.is_past_gate(object, previous);
        digest.live_by_slot = digest.is_live_by_slot(object);
        digest
    }

    /// The live content, believed only where its own hash is the live hash: what got past the gate is not applied.
    fn read_live(
        &mut self,
        object: &Value,
        rebased: Option<gate::Rebased>,
        previous: Option<&NodeDigest>,
    ) {
        let claimed = match annotation(object, names::LIVE_HASH) {
            Some("none") => {
                self.live = Live::None;
                return;
            }
            Some(text) => text.to_owned(),
            None => return,
        };
        let spec = &object["spec"];
        let (claimed, source) = match rebased {
            Some(rebased) => match rebased.live {
                Some((hash, source)) => (hash.to_string(), source),
                None => return,
            },
            None if claimed == self.desired && !gate::bears_a_hold(object) => (claimed, spec),
            None => (claimed, &spec["released"]),
        };
        let is_hash_of = |source| content::hash(Some(source)).as_str() == claimed;
        let was_hashed = previous.is_some_and(|p| {
            p.has_content_of(self) && matches!(&p.live, Live::Hash(hash) if *hash == claimed)
        });
        if Hash::parse(&claimed).is_none() || !(was_hashed || is_hash_of(source)) {
            return;
        }
        self.live = Live::Hash(claimed);
        let unchanged = previous.filter(|p| p.live == self.live && p.start == self.start);
        let keep_content = !self.status_is_current();
        if let Some(previous) = unchanged {
            self.facts = previous.facts.clone();
            self.content = previous.content.clone().filter(|_| keep_content);
            return;
        }
        let Some(arrays) = arrays(source) else {
            // The schema let through what the type does not take: nothing of it can be applied.
            self.live = Live::Unknown;
            return;
        };
        self.facts = Arc::new(
            arrays
                .iter()
                .map(|resource| facts(resource, &self.key))
                .collect(),
        );
        if keep_content {
            let text = source.to_string();
            self.content =
                Some(text.into()).filter(|text: &Arc<str>| text.len() <= CONTENT_KEPT_MAX);
        }
    }

    /// Hashes of another version cannot be checked. An object without any was left by Lynq, if no hub of ours has written it.
    fn is_past_gate(&self, object: &Value, previous: Option<&NodeDigest>) -> bool {
        let claims = |name| annotation(object, name).and_then(Hash::parse);
        if claims(names::LIVE_HASH).is_some() && self.live == Live::Unknown {
            return true;
        }
        let lost = annotation(object, names::DESIRED_HASH).is_none();
        if lost && self.rendered_hash.is_some() {
            return true;
        }
        match previous.filter(|previous| previous.has_content_of(self)) {
            Some(_) => false,
            None => claims(names::DESIRED_HASH)
                .is_some_and(|claimed| content::hash(Some(&object["spec"])) != claimed),
        }
    }

    /// Whether the contents are unchanged since this digest, by the generation, so that a write of the status does not cause them
    /// to be hashed again.
    fn has_content_of(&self, now: &NodeDigest) -> bool {
        !self.past_gate
            && self.generation != 0
            && (self.generation, &self.desired) == (now.generation, &now.desired)
    }

    /// The live content, if the digest keeps it.
    pub fn kept_content(&self) -> Option<ResourceArrays> {
        let content: Value = serde_json::from_str(self.content.as_ref()?).ok()?;
        arrays(&content)
    }

    /// Whether the status speaks of the content that is live now.
    pub fn status_is_current(&self) -> bool {
        matches!(&self.live, Live::Hash(hash) if self.status.observed_hash.as_ref() == Some(hash))
            && self.status.observed_start_time == self.start
    }

    /// The condition Ready, if it is about what is live now. The status of another release is not, except where Ready says why lynqgate
    /// could not look at the node.
    pub fn ready_told(&self) -> Option<&Condition> {
        let could_not_look = |ready: &Condition| {
            ready.reason == *ConditionReason::LookFailed.as_str()
                && ready.observed_generation == Some(self.generation)
        };
        let ready = conditions::find(&self.status.conditions, "Ready");
        ready.filter(|ready| self.status_is_current() || could_not_look(ready))
    }

    /// Whether the status is about the current state. If the live content is not known, the status must be for the current
    /// generation: before the last write, the node loop may have been rolling out content that is no longer known.
    fn is_seen(&self) -> bool {
        match self.live {
            Live::Unknown => self.status.observed_generation == Some(self.generation),
            _ => self.status_is_current(),
        }
    }

    pub fn held(&self) -> bool {
        !matches!(&self.live, Live::Hash(hash) if *hash == self.desired)
    }

    /// Whether the desired content differs from what the hub last rendered, or bypassed the gate. None if no hub rendered it, or
    /// a hub of another version, which will render it again.
    pub fn is_edited(&self) -> Option<bool> {
        let edited = content::is_edited(self.rendered_hash.as_deref(), &self.desired);
        edited.map(|edited| edited || self.past_gate)
    }

    /// It runs content that was changed since the hub wrote it.
    pub fn runs_edit(&self) -> bool {
        !self.held() && !self.deleting && self.is_edited() == Some(true)
    }

    /// A user wants the hub to render the node again.
    pub fn discards_edit(&self) -> bool {
        self.discard_edit && self.is_edited() == Some(true)
    }

    /// Since when the live content is rolled out; None while it is not.
    pub fn settled_since(&self) -> Option<Timestamp> {
        let since = |type_: &str| {
            let condition = self
                .status
                .conditions
                .iter()
                .find(|c| c.type_ == type_ && c.status == "True");
            condition.map(|c| c.last_transition_time)
        };
        match self.live {
            Live::None => None,
            // The existing objects are ready, but it is unknown whether the content is rolled out.
            Live::Unknown => since("Ready").filter(|_| self.is_seen()),
            Live::Hash(_) => since("Rolled").filter(|_| self.is_seen()),
        }
    }

    /// The live content is not rolled out: it needs a correction, or waits for its pods.
    pub fn is_broken(&self) -> bool {
        self.live != Live::None && !self.deleting && self.settled_since().is_none()
    }

    /// The node for the release planner.
    pub fn for_rollout(&self, policy: Option<&Rollout>) -> rollout::Node {
        let unready_since = self.unsettled().map(|c| c.last_transition_time);
        rollout::Node {
            uid: self.uid.clone(),
            resource_version: self.resource_version.clone(),
            form: self.form.as_str().into(),
            desired: self.desired.clone(),
            live: self.live.clone(),
            start: self.start.as_deref().and_then(stamp::parse),
            settled_since: self.settled_since(),
            went_at: None,
            stepped_at: None,
            watched_since: None,
            same_since: None,
            unready_since,
            broke_at: unready_since.filter(|_| self.has_landed()),
            seen: self.is_seen(),
            ready: self.is_ready() && self.status_is_current(),
            why: self.why_not_ready(),
            forced: self.forced,
            deleting: self.deleting,
            unchanged: Some(false),
            unrendered: self.rendered_hash.is_none()
                && (self.live == Live::Unknown || self.bears_lynqs_row),
            unwanted: false,
            flight: self.flight(),
            group: policy.map_or(0, |policy| policy.group_of(&self.labels, self.group_of_row)),
            domains: policy.map_or(vec![], |policy| {
                policy.domains_of(&self.labels, &self.domains_of_row)
            }),
        }
    }

    /// The same content may have gone live again without a slot: then the annotation for that has the newer version.
    fn is_live_by_slot(&self, object: &Value) -> bool {
        let Some(release) = &self.release else {
            return false;
        };
        let live = match &self.live {
            Live::Hash(live) => live,
            // There is no other information.
            Live::Unknown => &release.hash,
            Live::None => return false,
        };
        let ungated = annotation(object, names::UNGATED).and_then(|text| {
            let mut parts = text.split('/');
            (parts.next()? == live).then_some(parts.next()?)
        });
        let since = ungated.is_some_and(|at| version::is_newer(at, &release.resource_version));
        release.hash == *live && !since
    }

    /// The content that the newest slot released is live, and was seen rolled out.
    fn has_landed(&self) -> bool {
        let release = self
            .release
            .as_ref()
            .map(|release| &release.resource_version);
        let landed = self.status.landed_release.as_ref();
        self.live_by_slot && release.is_some() && landed == release
    }

    /// All of the live content was ready at some time, as far as the status shows.
    pub fn was_rolled_out(&self) -> bool {
        self.settled_since().is_some() || (self.status_is_current() && self.has_landed())
    }

    /// The node's slot as the node itself records it, in case the ledger is lost.
    fn flight(&self) -> Option<rollout::Flight> {
        let ReleaseMarker {
            hash,
            resource_version: release,
            repair,
            watched,
        } = self.release.clone()?;
        let freed = self.status.freed_release.as_ref() == Some(&release);
        let seen = self.has_landed();
        let landed = match (watched, &self.live) {
            (true, _) => freed,
            // It may have landed earlier, which can no longer be seen.
            (false, Live::Unknown) => freed || seen,
            (false, _) => seen,
        };
        Some(rollout::Flight {
            hash,
            is_live: self.live_by_slot,
            release,
            repair,
            watched,
            landed,
        })
    }

    /// Shortened: a window has many nodes, and a form's condition has to be read.
    fn why_not_ready(&self) -> Option<String> {
        const SHOWN_MAX: usize = 300;
        if self.deleting {
            let why = "it is being deleted, and something keeps it: see its finalizers";
            return Some(why.to_owned());
        }
        let why = self.unsettled().or_else(|| self.not_rendered())?;
        let mut shown: String = why.message.chars().take(SHOWN_MAX).collect();
        if shown.len() < why.message.len() {
            shown.push('…');
        }
        Some(shown).filter(|why| !why.is_empty())
    }

    /// The condition that reports the live content as not settled.
    fn unsettled(&self) -> Option<&Condition> {
        let type_ = match self.live {
            Live::Unknown => "Ready",
            _ => "Rolled",
        };
        let condition = self.status.conditions.iter().find(|c| c.type_ == type_);
        condition.filter(|c| c.status == "False" && self.is_seen())
    }

    /// The condition that reports what does not render, where all else of the live content is settled.
    fn not_rendered(&self) -> Option<&Condition> {
        self.settled_since()?;
        conditions::find(&self.status.conditions, "Ready").filter(|c| c.status == "False")
    }

    /// It is not taken over yet: it bears Lynq's row, or has Lynq's record, which has no kinds.
    pub fn is_not_taken_over(&self) -> bool {
        let status = &self.status;
        let has_lynqs_record =
            status.applied_kinds.is_empty() && !status.applied_resources.is_empty();
        self.live == Live::Unknown && (self.bears_lynqs_row || has_lynqs_record)
    }

    /// The content is Lynq's own and contains templates.
    pub fn holds_lynqs_templates(&self) -> bool {
        self.live == Live::Unknown && self.rendered_hash.is_none() && self.bears_lynqs_row
    }

    pub fn is_ready(&self) -> bool {
        conditions::is_true(&self.status.conditions, "Ready")
    }

    /// The status reports a failure. Waiting or progressing is no failure.
    pub fn has_failed(&self) -> bool {
        if self.deleting || self.is_ready() {
            return false;
        }
        let ready = self.status.conditions.iter().find(|c| c.type_ == "Ready");
        let word = ready.and_then(|ready| ConditionReason::named(&ready.reason));
        let is_wrong = matches!(
            word,
            Some(ConditionReason::DependencyError | ConditionReason::LookFailed)
        );
        is_wrong || self.status.failed_resources > 0
    }
}

/// The hash that one of our hubs last wrote; None if Lynq has written since. After that the annotations are still there, but the
/// content is other content: templates, which must not count as a manual edit.
fn rendered_hash(object: &Value) -> Option<String> {
    let rendered = annotation(object, names::RENDERED_HASH)?;
    let content = rendered.split('/').next();
    let is_lynqs =
        bears_lynqs_row(object) && content != Some(content::hash(Some(&object["spec"])).as_str());
    (!is_lynqs).then(|| rendered.to_owned())
}

/// The live content of a LynqNode, if it is the one with this hash.
pub fn live_content(object: &Value, live: &Live) -> Option<ResourceArrays> {
    let Live::Hash(hash) = live else { return None };
    let spec = &object["spec"];
    // The annotations may be of another version; the content's own hash is what counts.
    let mut sources = [&spec["released"], spec];
    if annotation(object, names::DESIRED_HASH) == Some(hash) {
        sources.reverse();
    }
    let of_hash = |source: &&Value| content::hash(Some(*source)).as_str() == hash;
    sources.into_iter().find(of_hash).and_then(arrays)
}

/// Both contents of a LynqNode: the desired one, and the one stored as live.
pub fn contents(object: &Value) -> impl Iterator<Item = ResourceArrays> {
    ["/spec", "/spec/released"]
        .into_iter()
        .filter_map(|at| arrays(object.pointer(at)?))
}

/// Shared with the previous digest if unchanged.
fn domains_of_row(object: &Value, previous: Option<&NodeDigest>) -> Arc<BTreeMap<String, String>> {
    let text = annotation(object, names::DOMAINS_OF_ROW);
    let domains = text.and_then(|text| serde_json::from_str(text).ok());
    let domains: BTreeMap<String, String> = domains.unwrap_or_default();
    match previous {
        Some(previous) if *previous.domains_of_row == domains => previous.domains_of_row.clone(),
        _ => Arc::new(domains),
    }
}

/// Shared with the previous digest if unchanged.
fn labels(object: &Value, previous: Option<&NodeDigest>) -> Arc<Texts> {
    let labels: BTreeMap<String, String> =
        serde_json::from_value(object["metadata"]["labels"].clone()).unwrap_or_default();
    let labels = Texts::from(labels);
    match previous {
        Some(previous) if *previous.labels == labels => previous.labels.clone(),
        _ => Arc::new(labels),
    }
}

/// The desired content of a LynqNode, if it is the one with this hash.
pub fn desired_content(object: &Value, desired: &str) -> Option<ResourceArrays> {
    let spec = &object["spec"];
    let is_it = content::hash(Some(spec)).as_str() == desired;
    arrays(spec).filter(|_| is_it)
}

/// A content as its type has it, with all defaults.
pub fn arrays(source: &Value) -> Option<ResourceArrays> {
    serde_json::from_value(content::of_spec(Some(source))).ok()
}

fn facts(resource: &Resource, node: &NodeKey) -> Facts {
    let key = object_key(resource, node, Scope::Namespaced);
    let declared = Declared {
        id: resource.id.clone(),
        kind: key.kind,
        depend_ids: resource.depend_ids.clone(),
        namespace_from: resource.namespace_from.clone(),
        skip_on_dependency_failure: resource.skip_on_dependency_failure,
        wait_for_ready: resource.wait_for_ready,
        timeout_seconds: resource.timeout_seconds,
        min_delay: resource.min_delay.as_deref().map(delay),
        once: resource.creation_policy == CreationPolicy::Once,
        retain: resource.deletion_policy == DeletionPolicy::Retain,
        conflict_policy: resource.conflict_policy,
        render_error: Some(resource.render_error.clone()).filter(|error| !error.is_empty()),
    };
    Facts {
        name: key.name,
        namespace: key.namespace,
        hash: applied_hash(resource).into(),
        declared: Arc::new(declared),
    }
}

#[cfg(test)]
mod tests;
