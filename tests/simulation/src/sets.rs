//! The StatefulSets of other teams with the partition gate's label: their users, Kubernetes' controller of them, and whether
//! lynqgate breaks more than one pod at a time.
//!
//! Where the partition lets several pods be updated, this controller updates them at once (`podManagementPolicy: Parallel`):
//! nothing but the partition keeps a bad revision from all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lynqgate::api::names;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep};

use crate::api::store::{Object, POD, STATEFUL_SET};
use crate::machines;
use crate::random::Random;
use crate::settings::Fault;
use crate::world::{NAMESPACE, Shared, World, lock};

/// How often the controller looks.
const LOOK: Duration = Duration::from_millis(100);
const PARTITION: &str = "/spec/updateStrategy/rollingUpdate/partition";

pub struct Sets {
    random: Random,
    versions: u64,
    /// By name: when a pod becomes ready, if ever.
    ready_at: BTreeMap<String, Option<Instant>>,
    /// By set: its pods that an update replaced and that have not been ready since.
    updating: BTreeMap<String, BTreeSet<String>>,
    /// Sets that were forced since their pods were ready last.
    forced: BTreeSet<String>,
}

impl Sets {
    pub fn new(random: Random) -> Self {
        Sets {
            random,
            versions: 0,
            ready_at: BTreeMap::new(),
            updating: BTreeMap::new(),
            forced: BTreeSet::new(),
        }
    }

    fn image(&mut self, kind: &str) -> String {
        self.versions += 1;
        format!("v{}-{kind}", self.versions)
    }
}

pub fn begin(world: &mut World) {
    for name in ["db", "queue"] {
        let replicas = 1 + world.sets.random.below(4);
        let image = world.sets.image("good");
        world.create(
            STATEFUL_SET,
            name,
            json!({
                "metadata": {"labels": {names::PARTITION_GATE: names::TRUE}},
                "spec": {
                    "replicas": replicas, "podManagementPolicy": "Parallel", "selector": {"matchLabels": {"app": name}},
                    "template": {"metadata": {"labels": {"app": name}}, "image": image},
                    "updateStrategy": {"type": "RollingUpdate"},
                },
            }),
        );
    }
}

/// People, now and then, and the controller.
pub async fn live(shared: Shared) {
    machines::begin(&mut lock(&shared));
    begin(&mut lock(&shared));
    loop {
        sleep(LOOK).await;
        let mut world = lock(&shared);
        if world.has(Fault::StatefulSets) && world.sets.random.below(15) == 0 {
            world.count(Fault::StatefulSets);
            act(&mut world);
        }
        if world.has(Fault::Maintenance) && world.sets.random.below(25) == 0 {
            machines::act(&mut world);
        }
        for name in world.names(STATEFUL_SET) {
            control(&mut world, &name);
        }
    }
}

fn act(world: &mut World) {
    let names = world.names(STATEFUL_SET);
    if names.is_empty() {
        return;
    }
    let name = world.sets.random.pick(&names).clone();
    let what = world.sets.random.below(12);
    world.trace(|| format!("the team of {name}: {what}"));
    match what {
        0..=2 => edit(world, &name, "good"),
        3 => edit(world, &name, "slow"),
        4 | 5 => edit(world, &name, "never"),
        6 => annotate(
            world,
            STATEFUL_SET,
            &name,
            names::PARTITION_PAUSED,
            Some("alice"),
        ),
        7 => annotate(world, STATEFUL_SET, &name, names::PARTITION_PAUSED, None),
        8 => {
            let forced = world.sets.random.below(3) == 0;
            let forced = forced.then_some(names::TRUE);
            annotate(world, STATEFUL_SET, &name, names::FORCE_ROLLOUT, forced);
        }
        9 => {
            let partition = world.sets.random.below(4);
            world.edit(STATEFUL_SET, &name, |set| {
                set["spec"]["updateStrategy"]["rollingUpdate"]["partition"] = partition.into();
            });
        }
        10 => {
            let replicas = world.sets.random.below(5);
            world.put(STATEFUL_SET, &name, |set| {
                set["spec"]["replicas"] = replicas.into()
            });
        }
        _ => {
            let pods = world.names(POD);
            if !pods.is_empty() {
                let pod = world.sets.random.pick(&pods).clone();
                world.delete(POD, &pod);
            }
        }
    }
}

fn edit(world: &mut World, name: &str, kind: &str) {
    let image = world.sets.image(kind);
    world.edit(STATEFUL_SET, name, |set| {
        set["spec"]["template"]["image"] = image.into()
    });
}

pub fn annotate(world: &mut World, kind: usize, name: &str, annotation: &str, value: Option<&str>) {
    world.edit(kind, name, |set| {
        let annotations = &mut set["metadata"]["annotations"];
        if !annotations.is_object() {
            *annotations = json!({});
        }
        match value {
            Some(value) => annotations[annotation] = value.into(),
            None => drop(
                annotations
                    .as_object_mut()
                    .map(|all| all.remove(annotation)),
            ),
        }
    });
}

/// Everybody wants what can be had.
pub fn heal(world: &mut World) {
    for name in world.names(STATEFUL_SET) {
        annotate(world, STATEFUL_SET, &name, names::PARTITION_PAUSED, None);
        annotate(world, STATEFUL_SET, &name, names::FORCE_ROLLOUT, None);
        edit(world, &name, "good");
    }
}

/// Somebody deletes the broken pod of which a StatefulSet says that it waits for that; or forces the update, where the pod comes
/// back with content that is never ready.
pub fn repair(world: &mut World) {
    for name in world.names(STATEFUL_SET) {
        let set = world.get(STATEFUL_SET, &name).expect("it is there");
        let waits = &set.value["metadata"]["annotations"][names::PARTITION_WAITS];
        let waits = waits.as_str().unwrap_or_default();
        let Some((pod, _)) = waits
            .strip_prefix("pod ")
            .and_then(|text| text.split_once(" is not ready, and not the next"))
        else {
            continue;
        };
        // It comes back with what all pods were last, and takes its time.
        let current = set.value["status"]["currentRevision"]
            .as_str()
            .unwrap_or_default();
        let is_back = |object: &Arc<Object>| current == revision(&object.value);
        if !world.get(POD, pod).as_ref().is_some_and(is_back) {
            world.trace(|| format!("the team of {name} deletes {pod}"));
            world.delete(POD, pod);
        } else if current.ends_with("never") {
            world.trace(|| format!("the team of {name} forces it"));
            annotate(
                world,
                STATEFUL_SET,
                &name,
                names::FORCE_ROLLOUT,
                Some(names::TRUE),
            );
        }
    }
}

struct Set {
    name: String,
    uid: String,
    replicas: usize,
    partition: usize,
    update: String,
    current: String,
}

impl Set {
    fn of(object: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let update = text(&object["spec"]["template"]["image"]);
        let partition = object.pointer(PARTITION).and_then(Value::as_u64);
        let current = object["status"]["currentRevision"].as_str();
        Set {
            name: text(&object["metadata"]["name"]),
            uid: text(&object["metadata"]["uid"]),
            replicas: object["spec"]["replicas"].as_u64().unwrap_or(1) as usize,
            partition: partition.unwrap_or(0) as usize,
            current: current.unwrap_or(&update).to_owned(),
            update,
        }
    }

    fn pod(&self, index: usize) -> String {
        format!("{}-{index}", self.name)
    }
}

fn revision(pod: &Value) -> &str {
    let revision = pod["metadata"]["labels"]["controller-revision-hash"].as_str();
    revision.unwrap_or_default()
}

pub fn is_ready(pod: &Value) -> bool {
    pod["status"]["conditions"][0]["status"] == "True"
}

fn control(world: &mut World, name: &str) {
    let Some(object) = world.get(STATEFUL_SET, name) else {
        return;
    };
    let set = Set::of(&object.value);
    if object.value["metadata"]["annotations"][names::FORCE_ROLLOUT] == names::TRUE {
        world.sets.forced.insert(set.name.clone());
    }
    update(world, &set);
    let (mut ready, mut updated, mut current) = (0, 0, 0);
    for index in 0..set.replicas {
        let pod = keep(world, &set, index);
        ready += usize::from(is_ready(&pod));
        updated += usize::from(revision(&pod) == set.update);
        current += usize::from(revision(&pod) == set.current);
    }
    judge(world, &set, ready);
    let is_over = updated == set.replicas && ready == set.replicas;
    let revision = if is_over { &set.update } else { &set.current };
    world.put(STATEFUL_SET, name, |now| {
        now["status"] = json!({
            "observedGeneration": now["metadata"]["generation"], "replicas": set.replicas, "readyReplicas": ready,
            "updatedReplicas": updated, "currentReplicas": current, "currentRevision": revision, "updateRevision": set.update,
        });
    });
}

/// Removes the pods that are scaled away, and those that the partition lets be updated.
fn update(world: &mut World, set: &Set) {
    let pods: Vec<_> = world
        .names(POD)
        .into_iter()
        .filter_map(|name| {
            let index: usize = name
                .strip_prefix(&set.name)?
                .strip_prefix('-')?
                .parse()
                .ok()?;
            Some((index, world.get(POD, &name)?))
        })
        .collect();
    let runs = pods.iter().any(|(_, pod)| is_ready(&pod.value));
    for (index, pod) in &pods {
        let (name, is_new) = (set.pod(*index), revision(&pod.value) == set.update);
        let is_scaled_away = *index >= set.replicas;
        if !is_scaled_away && (is_new || *index < set.partition) {
            continue;
        }
        world.collect(POD, &(NAMESPACE.to_owned(), name.clone()));
        world.sets.ready_at.remove(&name);
        let updating = world.sets.updating.entry(set.name.clone()).or_default();
        match is_scaled_away {
            true => drop(updating.remove(&name)),
            // Where no pod is ready, an update breaks none.
            false if runs => drop(updating.insert(name)),
            false => {}
        }
    }
}

/// The pod as it is now.
fn keep(world: &mut World, set: &Set, index: usize) -> Value {
    let name = set.pod(index);
    if world.get(POD, &name).is_none() {
        let is_new = index >= set.partition;
        let image = if is_new { &set.update } else { &set.current };
        world.put(POD, &name, |pod| {
            pod["metadata"]["labels"] = json!({"app": set.name, "controller-revision-hash": image});
            pod["metadata"]["ownerReferences"] = json!([{
                "apiVersion": "apps/v1", "kind": "StatefulSet", "name": set.name, "uid": set.uid, "controller": true,
            }]);
            pod["status"] = json!({"conditions": [{"type": "Ready", "status": "False"}]});
        });
    }
    schedule(world, &name);
    let pod = world.get(POD, &name).expect("it is there");
    let ready_at = world.sets.ready_at.get(&name).copied().flatten();
    if is_ready(&pod.value) || ready_at.is_none_or(|at| at > Instant::now()) {
        return pod.value.clone();
    }
    let now = world.clock.stamp();
    world.put(POD, &name, |pod| {
        pod["status"]["conditions"][0] =
            json!({"type": "Ready", "status": "True", "lastTransitionTime": now});
    });
    if let Some(updating) = world.sets.updating.get_mut(&set.name) {
        updating.remove(&name);
    }
    world.get(POD, &name).expect("it is there").value.clone()
}

/// A pod that has no place starts where a Kubernetes node takes pods.
fn schedule(world: &mut World, name: &str) {
    let pod = world.get(POD, name).expect("it is there");
    if pod.value["spec"]["nodeName"].is_string() {
        return;
    }
    let Some(place) = machines::place(world) else {
        return;
    };
    let soon = Duration::from_millis(200 + world.sets.random.below(1_500) as u64);
    let ready_at = match revision(&pod.value).rsplit('-').next() {
        Some("never") => None,
        Some("slow") => Some(Instant::now() + soon * 10),
        _ => Some(Instant::now() + soon),
    };
    world.sets.ready_at.insert(name.to_owned(), ready_at);
    world.put(POD, name, |pod| {
        pod["spec"] = json!({"nodeName": place});
    });
}

fn judge(world: &mut World, set: &Set, ready: usize) {
    let updating = world.sets.updating.get(&set.name);
    let broken = updating.map_or(0, BTreeSet::len);
    if broken > 1 && !world.sets.forced.contains(&set.name) {
        let pods = format!("{updating:?}");
        let text = || {
            format!(
                "an update of {} broke several pods at once: {pods}",
                set.name
            )
        };
        world.witness.fail("partition", text);
    }
    if broken == 0 && ready == set.replicas {
        world.sets.forced.remove(&set.name);
    }
}

/// What is not as everybody wants it.
pub fn problems(world: &World) -> Vec<String> {
    let problem = |name: String| {
        let set = Set::of(&world.get(STATEFUL_SET, &name)?.value);
        let is_done = |index| {
            let pod = world.get(POD, &set.pod(index));
            pod.is_some_and(|pod| is_ready(&pod.value) && revision(&pod.value) == set.update)
        };
        let is_complete = set.partition == 0 && (0..set.replicas).all(is_done);
        (!is_complete).then(|| format!("statefulset {name} is not updated"))
    };
    world
        .names(STATEFUL_SET)
        .into_iter()
        .filter_map(problem)
        .collect()
}
