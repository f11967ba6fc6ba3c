//! What is there that the gate has not let through: nodes and workloads as Lynq leaves them, content that was written past
//! the webhooks, and workloads that somebody else changes meanwhile.

use lynqgate::api::names;
use serde_json::{Value, json};

use crate::api::store::{DEPLOYMENT, NODE};
use crate::settings::Fault;
use crate::users::deployments;
use crate::witness;
use crate::workloads::set_ready;
use crate::world::{TENANTS, World};

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
        let spec =
            json!({"uid": uid, "templateRef": form, "deployments": deployments(form, image)});
        world.put(NODE, &name, |node| {
            node["metadata"]["labels"] = json!({names::LABEL_HUB: TENANTS, names::LABEL_UID: uid});
            node["metadata"]["finalizers"] = json!([names::NODE_FINALIZER]);
            node["spec"] = spec;
        });
        world.witness.forgotten(&name);
        change_workload(world, &name, &format!("{image} for {uid}"));
        set_ready(world, &name, ready);
    }
}

/// A workload that somebody else makes or changes.
fn change_workload(world: &mut World, name: &str, image: &str) {
    let Some(node) = world.get(NODE, name) else {
        return;
    };
    let owner = json!({
        "apiVersion": "operator.lynq.sh/v1", "kind": "LynqNode", "name": name, "uid": node.uid(), "controller": true,
        "blockOwnerDeletion": true,
    });
    world.put(DEPLOYMENT, name, |deployment| {
        deployment["metadata"]["ownerReferences"] = json!([owner]);
        deployment["spec"] = json!({"replicas": 1, "image": image});
    });
}

pub fn act(world: &mut World) {
    let names = world.names(NODE);
    if names.is_empty() {
        return;
    }
    let name = world.users.random.pick(&names).clone();
    let Some(node) = world.get(NODE, &name) else {
        return;
    };
    let deleting = node.value["metadata"]["deletionTimestamp"].is_string();
    let what = world.users.random.below(4);
    let number = world.users.random.draw() % 1_000;
    // A workload whose content is known is corrected.
    let is_left = lost(&node.value);
    if what == 0 && is_left && !deleting {
        world.trace(|| format!("somebody changes the workload of {name}"));
        return change_workload(world, &name, &format!("other{number}-good by hand"));
    }
    if deleting || is_left {
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
    world.put(NODE, &name, |new| change(new, what, number));
    if forgets {
        world.witness.forgotten(&name);
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
            node["spec"]["deployments"][0]["spec"]["spec"]["image"] =
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
