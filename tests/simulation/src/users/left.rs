//! What is there that the gate has not let through: nodes and workloads as Lynq leaves them, content that was written past
//! the webhooks, and workloads that somebody else changes meanwhile.

use lynqgate::api::names;
use serde_json::{Value, json};

use crate::cluster::{HUB, NAMESPACE};
use crate::witness;
use crate::world::{Fault, World};

/// Most rows had a node before: with the template as Lynq stores it, and a workload without a label.
pub fn by_lynq(world: &mut World, form: &str) {
    if !world.has(Fault::Takeover) {
        return;
    }
    let version = world.users.image(form).to_owned();
    let uids: Vec<String> = world.rows.keys().cloned().collect();
    for uid in uids {
        let random = &mut world.users.random;
        if random.permille(150) {
            continue;
        }
        let (same, ready) = (random.permille(750), random.permille(800));
        let name = format!("{uid}-{form}");
        let image = if same { &version } else { "v0-never" };
        let content = json!([{
            "id": "app",
            "nameTemplate": "{{ .uid }}-app",
            "spec": {"apiVersion": "apps/v1", "kind": "Deployment", "image": format!("{image} for {{{{ .uid }}}}")},
        }]);
        let node = json!({
            "metadata": {
                "name": name,
                "namespace": NAMESPACE,
                "labels": {names::LABEL_HUB: HUB, names::LABEL_UID: uid},
                "finalizers": [names::NODE_FINALIZER],
            },
            "spec": {"uid": uid, "templateRef": form, "deployments": content},
        });
        world.cluster.write_past_the_gate(&name, |new| *new = node);
        world.witness.forgotten(&world.cluster, &name);
        change_workload(world, &name, &format!("{image} for {uid}"));
        if ready {
            world.cluster.set_ready(&name, true);
        }
    }
}

fn change_workload(world: &mut World, name: &str, image: &str) {
    let Some(node) = world.cluster.nodes.get(name).cloned() else {
        return;
    };
    let uid = &node.digest.uid;
    let child = world.cluster.put_foreign_child(name, uid, image);
    world.start_workload(name, &child.uid, image);
}

pub fn act(world: &mut World) {
    let names: Vec<String> = world.cluster.nodes.keys().cloned().collect();
    if names.is_empty() {
        return;
    }
    let name = world.users.random.pick(&names).clone();
    let node = world.cluster.nodes[&name].clone();
    let what = world.users.random.below(4);
    let number = world.users.random.draw() % 1_000;
    // A workload whose content is known is corrected, which is not mirrored here.
    let is_left = lost(&node.value);
    if what == 0 && is_left && !node.digest.deleting {
        world.trace(|| format!("somebody changes the workload of {name}"));
        return change_workload(world, &name, &format!("other{number}-good by hand"));
    }
    if node.digest.deleting || is_left {
        return;
    }
    let held = witness::held(&node.value);
    let was_live = witness::text(&node.value, "live-hash") != "none";
    let (shown, forgets): (&str, bool) = match what {
        1 => ("edits", !held),
        2 => ("takes `released` off", held && was_live),
        _ => ("takes the hashes off", true),
    };
    world.trace(|| format!("past the gate somebody {shown} {name}"));
    world
        .cluster
        .write_past_the_gate(&name, |new| change(new, what, number));
    if forgets {
        world.witness.forgotten(&world.cluster, &name);
    }
}

/// Nothing says what is live.
fn lost(node: &Value) -> bool {
    let live = witness::text(node, "live-hash");
    live.is_empty() || live == "unknown"
}

fn change(node: &mut Value, what: usize, number: u64) {
    match what {
        1 => {
            node["spec"]["deployments"][0]["spec"]["image"] =
                format!("past{number}-good by hand").into();
        }
        2 => {
            let spec = node["spec"].as_object_mut();
            spec.map(|spec| spec.remove("released"));
        }
        _ => {
            let all = node["metadata"]["annotations"].as_object_mut();
            if let Some(all) = all {
                all.remove(names::DESIRED_HASH);
                all.remove(names::LIVE_HASH);
            }
        }
    }
}
