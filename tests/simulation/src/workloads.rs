//! The controllers of Kubernetes: Deployments become ready as their image promises, and what has no owner any more goes.

use serde_json::{Value, json};
use tokio::time::{Duration, sleep};

use crate::api::requests::dependents;
use crate::api::store::{DEPLOYMENT, Event, NODE};
use crate::world::{Shared, World, lock, more_than};

/// Follows the Deployments.
pub async fn deployments(shared: Shared) {
    let mut next = 0;
    loop {
        let events: Vec<Event> = {
            let world = lock(&shared);
            let events = world.store.log[DEPLOYMENT].from(next);
            events.expect("it is never far behind").cloned().collect()
        };
        next += events.len();
        for event in events {
            let before = event
                .before
                .as_ref()
                .map(|before| generation(&before.value));
            if !event.deleted && before.as_ref() != Some(&generation(&event.object.value)) {
                roll(&shared, event);
            }
        }
        more_than(&shared, DEPLOYMENT, next).await;
    }
}

fn generation(deployment: &Value) -> Value {
    deployment["metadata"]["generation"].clone()
}

/// What the image promises: `v3-good for t7`.
fn roll(shared: &Shared, event: Event) {
    let image = event.object.value["spec"]["image"]
        .as_str()
        .unwrap_or_default();
    let version = image.split(' ').next();
    let kind = version.and_then(|version| version.rsplit('-').next());
    let digits = event.key.1.bytes().filter(u8::is_ascii_digit);
    let number = digits.fold(0, |n, digit| n * 10 + usize::from(digit - b'0'));
    let mut world = lock(shared);
    let soon = 50 + world.random.below(1_500) as u64;
    let mut turns = vec![(world.random.below(40) as u64, false)];
    match kind.unwrap_or_default() {
        "never" => {}
        "half" if number.is_multiple_of(2) => {}
        "slow" => turns.push((soon + world.random.below(20_000) as u64, true)),
        "flap" => turns.extend((0..5).map(|turn| (soon + turn * 700, turn % 2 == 0))),
        _ => turns.push((soon, true)),
    }
    drop(world);
    let shared = shared.clone();
    tokio::spawn(async move {
        let mut waited = 0;
        for (at, ready) in turns {
            sleep(Duration::from_millis(at - waited)).await;
            waited = at;
            let mut world = lock(&shared);
            let object = world.store.get(DEPLOYMENT, &event.key);
            let same = object.is_some_and(|object| {
                object.uid() == event.object.uid()
                    && generation(&object.value) == generation(&event.object.value)
            });
            if !same {
                return;
            }
            let name = event.key.1.clone();
            world.trace(|| format!("the workload of {name}: ready {ready}"));
            set_ready(&mut world, &name, ready);
        }
    });
}

pub fn set_ready(world: &mut World, name: &str, ready: bool) {
    world.put(DEPLOYMENT, name, |deployment| {
        let available = i32::from(ready);
        deployment["status"] = json!({
            "observedGeneration": generation(deployment), "replicas": 1, "updatedReplicas": 1,
            "readyReplicas": available, "availableReplicas": available, "unavailableReplicas": 1 - available,
        });
    });
}

/// The garbage collector: it deletes what belongs to a LynqNode that is gone, also what was made after that.
pub async fn garbage(shared: Shared) {
    tokio::join!(collect(&shared, NODE), collect(&shared, DEPLOYMENT));
}

/// What the events of this kind leave without an owner.
async fn collect(shared: &Shared, kind: usize) {
    let mut next = 0;
    loop {
        let mut owners: Vec<String> = vec![];
        {
            let world = lock(shared);
            let events = world.store.log[kind].from(next);
            for event in events.expect("it is never far behind") {
                next += 1;
                match (kind, event.deleted) {
                    (NODE, true) => owners.push(event.object.uid().to_owned()),
                    (DEPLOYMENT, false) => owners.extend(owner(&event.object.value)),
                    _ => {}
                }
            }
            owners.retain(|uid| is_gone(&world, uid));
        }
        for uid in owners {
            let wait = lock(shared).random.below(500) as u64;
            let shared = shared.clone();
            tokio::spawn(async move {
                sleep(Duration::from_millis(wait)).await;
                let mut world = lock(&shared);
                for (kind, key) in dependents(&world.store, &uid) {
                    world.collect(kind, &key);
                }
            });
        }
        more_than(shared, kind, next).await;
    }
}

fn owner(object: &Value) -> Option<String> {
    let owner = object["metadata"]["ownerReferences"][0]["uid"].as_str();
    owner.map(str::to_owned)
}

fn is_gone(world: &World, uid: &str) -> bool {
    world.store.all(NODE).values().all(|node| node.uid() != uid)
}
