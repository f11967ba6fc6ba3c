//! Bugs round the product's decisions; none changes the product.

use jiff::Timestamp;
use lynqgate::api::form::FormSpec;
use lynqgate::api::hub::Slot;
use lynqgate::api::names;
use lynqgate::api::policy::{OnFailure, Skew};
use lynqgate::decide::gate::marker::ReleaseMarker;
use lynqgate::decide::hub::sync;
use lynqgate::decide::partition::walk::Pod;
use lynqgate::decide::rollout::reason::Reason;
use lynqgate::decide::rollout::{self, Confirmation, Live, Plan, Release, Snapshot, Way};
use lynqgate::decide::shared::version;
use lynqgate_plants::Plant;
use serde_json::{Value, json};

use crate::api::requests::{Call, Refused, Verb};
use crate::api::store::{CONTROLLER_REVISION, DEPLOYMENT, FORM, HUB, Key, NODE, POD};
use crate::life::Life;
use crate::settings::Fault;
use crate::witness::Author;
use crate::world::{Shared, World, lock};

/// The faults without which a bug does no harm; those of most are in every other seed or two.
pub fn needs(mutant: Plant) -> &'static [Fault] {
    match mutant {
        Plant::TakeLostForEmpty => &[Fault::LostLedger, Fault::BadEdits],
        Plant::LeaderWithoutFence | Plant::LedgerRetried => &[Fault::TwoLeaders, Fault::Edits],
        Plant::SlotGoesBack => &[Fault::TwoLeaders, Fault::Lag, Fault::OtherWriters],
        Plant::UngatedAnyway => &[Fault::TwoLeaders, Fault::Policy, Fault::Edits],
        Plant::StepUnready => &[Fault::StatefulSets],
        Plant::DrainEverywhere => &[Fault::Maintenance],
        Plant::TrialStored | Plant::TrialUnasked => &[Fault::Reviews],
        Plant::RevertUnasked
        | Plant::RevertAgain
        | Plant::RevertOverUsers
        | Plant::RevertToUncompleted => &[Fault::Reverts],
        _ => &[],
    }
}

/// It may take hundreds of seeds to find.
pub fn is_rare(mutant: Plant) -> bool {
    matches!(
        mutant,
        Plant::FreeGoneByCache
            | Plant::SlotGoesBack
            | Plant::TakeLostForEmpty
            | Plant::UngatedAnyway
    )
}

/// Pods as the partition loop sees them that takes each for ready.
pub fn all_ready(pods: &[Pod]) -> Vec<Pod> {
    let ready = |pod: &Pod| Pod {
        ready_since: Some(Timestamp::UNIX_EPOCH),
        ..pod.clone()
    };
    pods.iter().map(ready).collect()
}

/// The form as it would be if it asked for reverts.
pub fn asking(spec: &FormSpec) -> FormSpec {
    let mut spec = spec.clone();
    let policy = spec.rollout.get_or_insert_default();
    policy.on_failure = OnFailure::Revert;
    spec
}

/// What a sync makes of the rows, with a bug round it.
pub fn sync(mutant: Plant, seen: &sync::SyncInputs, now: Timestamp) -> sync::Plan {
    let mut source = seen.source.clone();
    if mutant == Plant::DeleteOnEmptyRows {
        source.hub.deletions.max = Some(Skew::Percent(100));
    }
    let seen = sync::SyncInputs {
        source: &source,
        ..*seen
    };
    sync::plan(&seen, now)
}

/// What the planner sees, with a bug in it.
fn mistake(mutant: Plant, shared: &Shared, snapshot: &mut Snapshot) {
    for form in snapshot.forms.values_mut() {
        match mutant {
            Plant::WindowPlusOne => {
                form.policy.max_skew = match form.policy.max_skew {
                    Skew::Count(n) if n > 0 => Skew::Count(n + 1),
                    other => other,
                }
            }
            Plant::IgnorePause => form.policy.paused = false,
            Plant::AbsentUnseen => form.absent.clear(),
            Plant::LateWriteUnseen => form.unwritten.clear(),
            Plant::TakeBackUnseen => form.outdated = false,
            _ => {}
        }
    }
    snapshot.ledger_lost &= mutant != Plant::TakeLostForEmpty;
    let world = lock(shared);
    for (name, node) in snapshot.nodes.iter_mut() {
        match mutant {
            Plant::TakeOverUnseen if node.live == Live::Unknown => node.unchanged = Some(true),
            Plant::OldStatus if node.settled_since.is_none() && node.live != Live::None => {
                let stored = world.get(NODE, name);
                let conditions = stored
                    .as_ref()
                    .map(|node| &node.value["status"]["conditions"]);
                let mut all = conditions
                    .and_then(|all| all.as_array())
                    .into_iter()
                    .flatten();
                let rolled = all.find(|c| c["type"] == "Rolled" && c["status"] == "True");
                let since = rolled.and_then(|c| c["lastTransitionTime"].as_str());
                node.settled_since = since.and_then(|since| since.parse().ok());
            }
            Plant::CountCurrent if node.held() && node.live != Live::None => {
                node.settled_since = node.settled_since.or(node.start);
            }
            _ => {}
        }
    }
}

/// The planner's plan, with a bug round it.
pub fn releases(
    mutant: Plant,
    shared: &Shared,
    life: &Life,
    snapshot: &Snapshot,
    now: Timestamp,
) -> Plan {
    let planted = |plant: Plant| plant == mutant;
    let forget =
        planted(Plant::ForgetLedger) && !life.views.lock().expect("no panic under it").surveyed;
    let mut changed = snapshot.clone();
    mistake(mutant, shared, &mut changed);
    if forget || planted(Plant::IgnoreSlots) {
        changed.slots.clear();
    }
    if planted(Plant::FreeNotNewer) {
        changed
            .slots
            .iter_mut()
            .for_each(|slot| slot.resource_version = "0".to_owned());
    }
    if planted(Plant::FreeUnheld) {
        for slot in &snapshot.slots {
            if let Some(node) = changed
                .nodes
                .get_mut(&slot.node)
                .filter(|node| !node.held())
            {
                node.settled_since = node.settled_since.or(node.start);
            }
        }
    }
    if planted(Plant::SlotGoesBack) {
        for slot in &mut changed.slots {
            if let Some(node) = snapshot.nodes.get(&slot.node)
                && node.uid == slot.uid
                && version::is_newer(&slot.resource_version, &node.resource_version)
            {
                slot.resource_version = node.resource_version.clone();
            }
        }
    }
    confirm(mutant, &mut changed);
    let mut plan = rollout::plan(&changed, now);
    let old = |uid: &str| snapshot.slots.iter().find(|slot| slot.uid == uid);
    if planted(Plant::FreeNotNewer) {
        let untouched = plan
            .ledger
            .iter_mut()
            .flatten()
            .filter(|s| s.resource_version == "0");
        for slot in untouched {
            slot.resource_version = old(&slot.uid)
                .map(|slot| slot.resource_version.clone())
                .unwrap_or_default();
        }
    }
    if planted(Plant::SlotGoesBack) {
        let released = |slot: &&mut Slot| plan.releases.iter().any(|r| r.node == slot.node);
        for slot in plan
            .ledger
            .iter_mut()
            .flatten()
            .filter(|slot| !released(slot))
        {
            if let Some(old) = old(&slot.uid) {
                *slot = old.clone();
            }
        }
    }
    if planted(Plant::IgnoreSlots)
        && let Some(ledger) = &mut plan.ledger
    {
        let more: Vec<Slot> = snapshot
            .slots
            .iter()
            .filter(|slot| !ledger.iter().any(|new| new.uid == slot.uid))
            .cloned()
            .collect();
        ledger.extend(more);
    }
    if planted(Plant::RepairByRewriting) {
        for slot in plan.ledger.iter_mut().flatten() {
            if let Some(node) = snapshot
                .nodes
                .get(&slot.node)
                .filter(|_| old(&slot.uid).is_some_and(|old| old.hash != slot.hash))
            {
                slot.repair = node.non_ready();
            }
        }
    }
    if planted(Plant::ReleaseOnRead) && plan.ledger.as_ref() == Some(&snapshot.slots) {
        plan.ledger = None;
    }
    if planted(Plant::RepairUncounted) {
        repair_uncounted(snapshot, &mut plan);
    }
    if planted(Plant::BrokenNeedsRoom) {
        let is_full = |slot: &Slot| {
            let form = snapshot.forms.get(&slot.form);
            let others = snapshot
                .slots
                .iter()
                .filter(|other| other.form == slot.form);
            let window = form.map(|form| form.policy.max_skew);
            matches!(window, Some(Skew::Count(n)) if n > 0 && others.count() > n as usize)
        };
        let has_slot = |r: &Release| snapshot.slots.iter().find(|slot| slot.node == r.node);
        plan.releases.retain(|r| !has_slot(r).is_some_and(is_full));
    }
    if planted(Plant::GiveUpUnmoved) {
        let unused = std::mem::take(&mut plan.give_up);
        let is_unused = |slot: &Slot| unused.iter().any(|unused| unused.node == slot.node);
        free(snapshot, &mut plan, is_unused);
    }
    if planted(Plant::LostReplyIsFailure) {
        free(snapshot, &mut plan, |slot| {
            let refused = snapshot.refused.get(&slot.node);
            refused.is_some_and(|refused| refused.hash == slot.hash)
        });
    }
    if planted(Plant::TakeOverUnasked) {
        let takes = |release: &&mut Release| release.way == Way::TakenOver;
        for release in plan.releases.iter_mut().filter(takes) {
            release.way = Way::Ungated;
        }
    }
    if planted(Plant::Restless) {
        for form in plan.forms.values_mut() {
            form.rollout.message.push_str(&format!(", at {now}"));
        }
    }
    if planted(Plant::NoReason) {
        plan.waiting
            .retain(|_, reason| reason.code() != "WindowFull");
    }
    plan
}

/// What the live reads are said to have found.
fn confirm(mutant: Plant, snapshot: &mut Snapshot) {
    for slot in &snapshot.slots {
        let node = snapshot.nodes.get(&slot.node);
        let node = node.filter(|node| node.uid == slot.uid);
        match (mutant, node) {
            (Plant::FreeUnconfirmed | Plant::FreeUnheld, Some(node)) => {
                snapshot.confirmed.insert(Confirmation::Ready {
                    uid: slot.uid.clone(),
                    resource_version: node.resource_version.clone(),
                });
            }
            (Plant::FreeGoneByCache, None) => {
                let uid = slot.uid.clone();
                snapshot.confirmed.insert(Confirmation::Gone { uid });
            }
            _ => {}
        }
    }
    if mutant == Plant::NeverFree {
        let is_gone = |one: &Confirmation| matches!(one, Confirmation::Gone { .. });
        snapshot.confirmed.retain(|one| !is_gone(one));
    }
}

/// Takes these slots out of the ledger, unless their nodes are released right now.
fn free(snapshot: &Snapshot, plan: &mut Plan, which: impl Fn(&Slot) -> bool) {
    let slots = plan.ledger.as_ref().unwrap_or(&snapshot.slots);
    let released = |slot: &Slot| plan.releases.iter().any(|r| r.node == slot.node);
    let kept: Vec<Slot> = slots
        .iter()
        .filter(|slot| !which(slot) || released(slot))
        .cloned()
        .collect();
    if kept.len() < slots.len() {
        plan.ledger = Some(kept);
    }
}

/// Lets go whatever is not ready and waits for a full window.
fn repair_uncounted(snapshot: &Snapshot, plan: &mut Plan) {
    for (name, node) in snapshot.nodes.iter().filter(|(_, node)| node.non_ready()) {
        let full = ["WindowFull", "Soaking", "ReadinessUnknown", "BrokenBefore"];
        let waiting = plan.waiting.get(name);
        if !waiting.is_some_and(|reason| full.contains(&reason.code())) {
            continue;
        }
        let ledger = plan.ledger.get_or_insert_with(|| snapshot.slots.clone());
        if ledger.iter().any(|slot| slot.uid == node.uid) {
            continue;
        }
        ledger.push(Slot {
            node: name.to_string(),
            uid: node.uid.clone(),
            form: node.form.to_string(),
            hash: node.desired.clone(),
            resource_version: node.resource_version.clone(),
            repair: true,
            presumed: false,
            min_ready_seconds: 0,
        });
        plan.releases.push(Release {
            node: name.to_string(),
            hash: node.desired.clone(),
            resource_version: node.resource_version.clone(),
            way: Way::Slot,
            repair: true,
            watched: false,
        });
        plan.waiting.insert(name.clone(), Reason::Releasing.into());
    }
}

/// A request as a process with a bug would send it.
pub fn request(world: &World, author: &Author, call: &mut Call) {
    let Some(mutant) = world.settings.mutant else {
        return;
    };
    let is_release = is_release(call);
    match mutant {
        Plant::LeaderWithoutFence if is_ledger(call) => unversioned(call),
        Plant::ReleaseUnversioned if is_release => name_current(world, call),
        Plant::ApplyDesired if call.kind == DEPLOYMENT && call.verb == Verb::Apply => {
            if let Some(node) = world.get(NODE, &call.key.1) {
                let desired = &node.value["spec"]["deployments"][0]["spec"]["spec"];
                call.body["spec"] = desired.clone();
            }
        }
        Plant::DrainEverywhere if call.kind == POD => drop(call.query.remove("fieldSelector")),
        Plant::TrialStored if author.for_review => drop(call.query.remove("dryRun")),
        Plant::RevertOverUsers if is_revert(call) => unversioned(call),
        Plant::RevertToUncompleted
            if call.kind == CONTROLLER_REVISION && call.verb == Verb::Get =>
        {
            if let Some(before) = last_but_one(world, &call.key) {
                call.key.1 = before;
            }
        }
        _ => {}
    }
}

/// What it would make of the answer; None where that is the answer.
pub fn again(
    mutant: Plant,
    world: &World,
    life: &Life,
    call: &Call,
    refused: &Refused,
) -> Option<Call> {
    let mut again = call.clone();
    match mutant {
        Plant::BlindRetry if is_release(call) && refused.code == 409 => {
            name_current(world, &mut again);
        }
        Plant::LedgerRetried if is_ledger(call) && refused.code == 409 => {
            let slots = |value: &Value| -> Vec<Slot> {
                serde_json::from_value(value["status"]["rollout"]["slots"].clone())
                    .unwrap_or_default()
            };
            let from = life.views.lock().expect("no panic under it").slots.clone();
            let third = slots(&world.get(HUB, &call.key.1)?.value);
            let same = same_change(&from, &slots(&call.body), &third);
            again.body["status"]["rollout"]["slots"] = json!(same);
            unversioned(&mut again);
        }
        _ => return None,
    }
    Some(again)
}

pub fn is_ledger(call: &Call) -> bool {
    call.kind == HUB && call.of_status && !call.body["status"]["rollout"]["slots"].is_null()
}

fn is_release(call: &Call) -> bool {
    let annotations = &call.body["metadata"]["annotations"];
    call.kind == NODE && call.verb == Verb::Merge && annotations[names::RELEASE].is_string()
}

/// It sets a form back to a revision.
pub fn is_revert(call: &Call) -> bool {
    let annotations = &call.body["metadata"]["annotations"];
    call.kind == FORM && call.verb == Verb::Merge && annotations[names::REVERTED].is_string()
}

/// The name of the newest revision but one of the form whose revision this is.
fn last_but_one(world: &World, revision: &Key) -> Option<String> {
    let owner = |object: &Value| object["metadata"]["labels"][names::LABEL_FORM_UID].clone();
    let form = owner(&world.store.get(CONTROLLER_REVISION, revision)?.value);
    let all = world.store.all(CONTROLLER_REVISION).iter();
    let mut all: Vec<(Option<i64>, &String)> = all
        .filter(|(_, object)| owner(&object.value) == form)
        .map(|(key, object)| (object.value["revision"].as_i64(), &key.1))
        .collect();
    all.sort();
    all.pop();
    all.pop().map(|(_, name)| name.clone())
}

fn unversioned(call: &mut Call) {
    let metadata = call.body["metadata"].as_object_mut();
    metadata.map(|metadata| metadata.remove("resourceVersion"));
}

/// The release names whatever version is there.
fn name_current(world: &World, call: &mut Call) {
    unversioned(call);
    let marker = &mut call.body["metadata"]["annotations"][names::RELEASE];
    let known = marker.as_str().and_then(ReleaseMarker::parse);
    if let Some(known) = known
        && let Some(node) = world.get(NODE, &call.key.1)
    {
        let resource_version = node.version().to_owned();
        let named = ReleaseMarker {
            resource_version,
            ..known
        };
        *marker = named.to_string().into();
    }
}

/// The change from one ledger to another, made to a third.
fn same_change(from: &[Slot], to: &[Slot], third: &[Slot]) -> Vec<Slot> {
    let has = |slots: &[Slot], slot: &Slot| slots.iter().any(|other| other.uid == slot.uid);
    let new: Vec<Slot> = to
        .iter()
        .filter(|slot| !from.contains(slot))
        .cloned()
        .collect();
    let freed = |slot: &Slot| has(from, slot) && !has(to, slot);
    let left = third.iter().filter(|slot| !freed(slot) && !has(&new, slot));
    left.chain(&new).cloned().collect()
}
