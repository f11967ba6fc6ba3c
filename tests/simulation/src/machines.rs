//! Kubernetes nodes, people who take them into maintenance, where pods start, and what refuses an eviction.

use std::collections::BTreeSet;
use std::sync::Arc;

use lynqgate::api::names;
use serde_json::json;

use crate::api::requests::Call;
use crate::api::store::{KUBERNETES_NODE, LEASE, Object, POD};
use crate::random::Random;
use crate::sets::{annotate, is_ready};
use crate::settings::Fault;
use crate::world::{OPERATORS_NAMESPACE, World};

const NAMES: [&str; 3] = ["a", "b", "c"];
/// Somebody cordoned it, for reasons of her own.
const CORDONED: &str = "c";

pub struct Machines {
    random: Random,
    /// Those for which somebody has asked for a maintenance.
    asked: BTreeSet<String>,
}

impl Machines {
    pub fn new(random: Random) -> Self {
        let asked = BTreeSet::new();
        Machines { random, asked }
    }
}

pub fn begin(world: &mut World) {
    for name in NAMES {
        world.put(KUBERNETES_NODE, name, |node| {
            node["status"] = json!({"conditions": [{"type": "Ready", "status": "True"}]});
            if name == CORDONED {
                node["spec"] = json!({"unschedulable": true});
            }
        });
    }
}

/// Somebody asks for a maintenance, for more or less time, or no longer.
pub fn act(world: &mut World) {
    world.count(Fault::Maintenance);
    let name = *world.machines.random.pick(&NAMES);
    let seconds = [None, None, Some("5"), Some("30"), Some("120"), Some("soon")];
    let seconds = *world.machines.random.pick(&seconds);
    world.trace(|| format!("maintenance of Kubernetes node {name}: {seconds:?}"));
    if seconds.is_some() {
        world.machines.asked.insert(name.to_owned());
    }
    annotate(world, KUBERNETES_NODE, name, names::MAINTENANCE, seconds);
}

/// Nobody asks any longer.
pub fn heal(world: &mut World) {
    for name in world.names(KUBERNETES_NODE) {
        annotate(world, KUBERNETES_NODE, &name, names::MAINTENANCE, None);
    }
}

/// Where a new pod starts, if anywhere.
pub fn place(world: &mut World) -> Option<&'static str> {
    let takes_pods = |node: &&str| {
        let node = world.get(KUBERNETES_NODE, node);
        node.is_some_and(|node| node.value["spec"]["unschedulable"] != true)
    };
    let places: Vec<_> = NAMES.into_iter().filter(takes_pods).collect();
    (!places.is_empty()).then(|| *world.machines.random.pick(&places))
}

/// Whether the other pods of the set are ready, as a PodDisruptionBudget of one has it.
pub fn may_evict(world: &mut World, call: &Call) -> bool {
    let name = call.key.1.as_str();
    // A late eviction is of a pod that is another by now: its precondition refuses it.
    let is_meant = |pod: &Arc<Object>| call.body["preconditions"]["uid"] == pod.uid();
    let Some(pod) = world.get(POD, name).filter(is_meant) else {
        return true;
    };
    let machine = pod.value["spec"]["nodeName"].as_str().unwrap_or_default();
    if !world.machines.asked.contains(machine) {
        let text = || format!("{name} is evicted, and nobody asked for a maintenance of {machine}");
        world.witness.fail("maintenance", text);
    }
    let app = &pod.value["metadata"]["labels"]["app"];
    let mut others = world.names(POD).into_iter().filter(|other| other != name);
    others.all(|other| {
        let other = world.get(POD, &other).expect("it is there");
        other.value["metadata"]["labels"]["app"] != *app || is_ready(&other.value)
    })
}

/// What a maintenance has left behind.
pub fn problems(world: &World) -> Vec<String> {
    let mut problems = vec![];
    for name in world.names(KUBERNETES_NODE) {
        let node = world.get(KUBERNETES_NODE, &name).expect("it is there");
        let is_cordoned = node.value["spec"]["unschedulable"] == true;
        if is_cordoned != (name == CORDONED) {
            problems.push(format!("Kubernetes node {name} is cordoned: {is_cordoned}"));
        }
        let lease = world
            .store
            .get(LEASE, &(OPERATORS_NAMESPACE.to_owned(), name.clone()));
        let is_open = |lease: &serde_json::Value| lease["spec"]["leaseDurationSeconds"].is_u64();
        if lease.is_some_and(|lease| is_open(&lease.value)) {
            problems.push(format!("the Lease of Kubernetes node {name} is not reset"));
        }
    }
    problems
}
