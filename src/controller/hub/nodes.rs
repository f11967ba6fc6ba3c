//! Carries out what a sync decided: LynqNodes are written and deleted, and every one that did not go through is named.

use std::collections::BTreeSet;

use futures::StreamExt;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use serde_json::{Value, json};

use crate::api::events::EventReason;
use crate::api::names;
use crate::api::stamp;
use crate::cluster::catalog::Hub;
use crate::cluster::clock::{self, Instant};
use crate::cluster::events::About;
use crate::cluster::nodes::HubKey;
use crate::cluster::objects::ApiError;
use crate::controller::hub::LASTING;
use crate::controller::hub::turn::Turn;
use crate::controller::{Said, World};
use crate::decide::child::NodeKey;
use crate::decide::child::ObjectKey;
use crate::decide::hub::sync::{NodeDeletion, NodeWrite, RenderSource};
use crate::decide::node::digest::NodeDigest;
use crate::decide::node::plan::recreate::Dependents;
use crate::decide::node::takeover::left;
use crate::decide::rollout::Way;

/// Node writes that one hub may have under way.
const REQUESTS_MAX: usize = 16;
/// The same where what is broken gets a correction: each of these nodes is released as soon as it is written, and its release must
/// not wait behind many writes.
const CORRECTIONS_MAX: usize = 8;
/// The same where the nodes will only wait: who is released meanwhile needs the API server more. While they wait for nodes that fill
/// a window, they are written one after the other: more at a time would delay those nodes.
const WAITING_MAX: usize = 4;
/// So many of the nodes that wait are always written one after the other: people look at who is released first.
const IN_TURN: usize = 32;

/// A write or deletion of a node that did not go through.
pub struct Failure {
    pub name: String,
    pub message: String,
    /// Form of the node that was to be written.
    pub form: Option<String>,
    /// It may go through when it is tried again soon.
    pub retry: bool,
    /// In how many syncs in a row.
    pub times: u32,
}

impl Failure {
    fn of(write: &NodeWrite, error: &ApiError) -> Self {
        Failure::new(&write.name, Some(write.form.clone()), error)
    }

    fn new(name: &str, form: Option<String>, error: &ApiError) -> Self {
        let retry = error.may_pass();
        Failure {
            name: name.to_owned(),
            message: error.to_string(),
            form,
            retry,
            times: 1,
        }
    }

    /// It is waited for.
    pub fn is_fleeting(&self) -> bool {
        self.retry && self.times < LASTING
    }
}

/// What came of a sync's writes.
pub struct NodesWritten {
    pub failures: Vec<Failure>,
    pub ended: Ended,
}

/// How the writes of a sync ended. What was not sent another sync decides on anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Finished,
    /// The hub or its forms say something else, or another replica leads the hub.
    Outdated,
    /// The rows are to be read again, and the nodes that are left only wait.
    RowsDue,
}

/// `rows_due`: when the rows are to be read again.
pub async fn write_nodes(
    world: &World,
    (hub, said): (&HubKey, &Said),
    source: &RenderSource,
    writes: &[NodeWrite],
    turn: &mut Turn<'_>,
    rows_due: Option<Instant>,
) -> NodesWritten {
    let (mut failures, mut left) = (vec![], writes.iter().peekable());
    let first = writes.iter().filter(|write| write.waits).take(IN_TURN);
    let in_turn: BTreeSet<&str> = first.map(|write| &*write.name).collect();
    let mut running = FuturesUnordered::new();
    let mut has_hurried = false;
    loop {
        let is_due = rows_due.is_some_and(|due| due <= clock::instant());
        while world.still_says(hub, said) {
            let under_way = running.len();
            let may_go = |write: &&NodeWrite| match write.waits {
                true if is_due || !turn.allows_waiting() => false,
                true if in_turn.contains(&*write.name) || world.awaits_room(hub, &write.form) => {
                    under_way == 0
                }
                true => under_way < WAITING_MAX,
                false if write.way.is_none() => under_way < CORRECTIONS_MAX,
                false => under_way < REQUESTS_MAX,
            };
            let Some(write) = left.next_if(may_go) else {
                break;
            };
            if write.waits {
                turn.wrote_waiting();
            }
            running.push(async move {
                let key = ObjectKey::own("LynqNode", &hub.0, &write.name);
                let asked = world.nodes.asked();
                let before = world
                    .nodes
                    .get(&NodeKey::new(hub.0.as_str(), write.name.clone()));
                let mut object = source.object(write);
                let written = match &before {
                    Some(before) if before.holds_lynqs_templates() => {
                        write_over_lynqs(world, &key, &mut object).await
                    }
                    _ => world.objects.apply(&key, &object, true).await,
                };
                (write, asked, before, written)
            });
        }
        let Some((write, asked, before, result)) = running.next().await else {
            let ended = match left.len() {
                0 => Ended::Finished,
                _ if !world.still_says(hub, said) => Ended::Outdated,
                _ if is_due => Ended::RowsDue,
                _ => {
                    turn.next().await;
                    continue;
                }
            };
            return NodesWritten { failures, ended };
        };
        match result {
            Ok(object) => {
                let now = world.nodes.learn_new(&object, asked);
                world.look_at(&now);
                // Whoever applied the change looks for the first node that is released, and for those that are broken.
                if now.held() && !(write.waits && has_hurried) {
                    has_hurried = true;
                    world.hurry(hub);
                }
                // The gate lets a forced node go, whatever the write asks for.
                let way = write.way.or(now.forced.then_some(Way::Forced));
                if let Some(way) = way.filter(|_| !now.held())
                    && before.as_ref().is_none_or(|before| before.live != now.live)
                {
                    let hub = now.hub_key();
                    let since =
                        before.and_then(|before| stamp::parse(before.held_since.as_deref()?));
                    world.metrics.released(&hub, &now.form, way, since);
                }
                if now.rendered_hash.is_none() || now.discards_edit() {
                    let why = "it is stored with another content than the hub writes: an admission webhook or policy changes LynqNodes \
                               (exclude lynqnodes.operator.lynq.sh from it), or their definition is Lynq's or an older one \
                               (install lynqgate's)";
                    let error = ApiError::Refused(why.to_owned());
                    failures.push(Failure::of(write, &error));
                }
            }
            Err(error) => failures.push(Failure::of(write, &error)),
        }
    }
}

/// Lynq's node may change meanwhile, as when the first look at it writes its status; then once more.
async fn write_over_lynqs(
    world: &World,
    key: &ObjectKey,
    object: &mut Value,
) -> Result<Value, ApiError> {
    const TRIES: u32 = 4;
    let mut tries = 0..TRIES;
    loop {
        let written = match complete_record(world, key).await {
            Ok(version) => {
                match version {
                    Some(version) => object["metadata"]["resourceVersion"] = version,
                    None => drop(
                        object["metadata"]
                            .as_object_mut()
                            .map(|all| all.remove("resourceVersion")),
                    ),
                }
                world.objects.apply(key, object, true).await
            }
            Err(error) => Err(error),
        };
        match written {
            Err(ApiError::Conflict(_)) if tries.next().is_some() => {}
            written => return written,
        }
    }
}

/// What Lynq's templates made of the node is known as long as they are there: the hub writes over them. Returns which version it may
/// write over.
async fn complete_record(world: &World, key: &ObjectKey) -> Result<Option<Value>, ApiError> {
    let mut object = match world.objects.get(key).await {
        Ok(object) => object,
        Err(ApiError::NotFound(_)) => return Ok(None),
        Err(error) => return Err(error),
    };
    let node = NodeDigest::of(&object, None);
    if !node.holds_lynqs_templates() {
        return Ok(None);
    }
    let (entries, kinds) = left::record(&object, &node);
    let status = &node.status;
    if (&status.applied_resources, &status.applied_kinds) != (&entries, &kinds) {
        let patch = json!({
            "metadata": {"uid": node.uid, "resourceVersion": node.resource_version},
            "status": {"appliedResources": entries, "appliedKinds": kinds},
        });
        object = world.objects.merge_status(key, &patch).await?;
        let node = world.nodes.learn(&object);
        if node.status.applied_kinds != kinds {
            let why = "lynqgate cannot record what Lynq left of it, because the CustomResourceDefinition has no field status.appliedKinds: \
                       install lynqgate's";
            return Err(ApiError::Refused(why.to_owned()));
        }
    }
    Ok(Some(object["metadata"]["resourceVersion"].take()))
}

pub async fn delete_nodes(world: &World, hub: &Hub, deletes: &[NodeDeletion]) -> Vec<Failure> {
    let about = About::new("LynqHub", &hub.namespace, &hub.name, &hub.uid);
    let delete = async |NodeDeletion { name, uid, reason }: &NodeDeletion| {
        let key = ObjectKey::own("LynqNode", &hub.namespace, name);
        match world.objects.delete(&key, uid, None, Dependents::Go).await {
            Ok(()) => {
                let note = format!("Deleted LynqNode '{name}': {reason}");
                world.events.tell(&about, EventReason::NodeDeleted, note);
                None
            }
            Err(error) => Some(Failure::new(name, None, &error)),
        }
    };
    let mut failures = vec![];
    let key = (hub.namespace.clone(), hub.name.clone());
    for some in deletes.chunks(REQUESTS_MAX) {
        if !world.leads(&key) {
            break;
        }
        let failed = join_all(some.iter().map(&delete)).await;
        failures.extend(failed.into_iter().flatten());
    }
    failures
}

/// Takes a confirmation off the hub, unless what it is to confirm still `waits`. Else it would let as many nodes through at a later
/// sync that nobody has looked at. `used`: this sync does something that it may have confirmed, and must not where this fails.
pub async fn spend(
    world: &World,
    hub: &Hub,
    annotation: &'static str,
    waits: bool,
    used: bool,
) -> Result<(), Failure> {
    if waits || !hub.annotations.contains_key(annotation) {
        return Ok(());
    }
    let patch = json!({"metadata": {"annotations": {annotation: null}}});
    let key = ObjectKey::own("LynqHub", &hub.namespace, &hub.name);
    match world.objects.merge(&key, &patch).await {
        Ok(object) => drop(world.hubs.learn(&object)),
        Err(error) => return Err(Failure::new(&format!("LynqHub {}", hub.name), None, &error)),
    }
    if !used {
        let about = About::new("LynqHub", &hub.namespace, &hub.name, &hub.uid);
        let what = match annotation {
            names::CONFIRM_CREATIONS => "creations",
            _ => "deletions",
        };
        let note = format!("lynqgate removed {annotation}: no {what} are held");
        world
            .events
            .tell(&about, EventReason::ConfirmationNotNeeded, note);
    }
    Ok(())
}
