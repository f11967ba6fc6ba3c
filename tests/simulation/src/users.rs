//! What people do while a rollout runs: edits, reverts, policies, forces, rows and forms. Nobody here is the operator.

mod left;

use std::collections::BTreeMap;

use lynqgate::api::names;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant};

use crate::api::store::{FORM, HUB, NODE};
use crate::random::Random;
use crate::settings::Fault;
use crate::world::{TENANTS, World};

pub struct Users {
    random: Random,
    versions: u64,
    /// By form: its image now, and those before.
    images: BTreeMap<String, Vec<String>>,
    policies: BTreeMap<String, Value>,
}

impl Users {
    pub fn new(random: Random) -> Self {
        Users {
            random,
            versions: 0,
            images: BTreeMap::new(),
            policies: BTreeMap::new(),
        }
    }

    /// The image that the form's nodes should run in the end.
    pub fn image(&self, form: &str) -> &str {
        self.images[form].last().expect("a form has an image")
    }
}

/// Rows, forms and the hub as they are at first.
pub fn begin(world: &mut World) {
    for i in 0..world.settings.rows {
        world.rows.insert(format!("t{i}"), true);
    }
    world.put_rows();
    let skew = random_skew(world);
    let hub_window = world.has(Fault::HubWindow) && world.users.random.permille(500);
    let interval = if world.has(Fault::NoPolling) {
        world.count(Fault::NoPolling);
        "0s"
    } else {
        "5s"
    };
    world.put(HUB, TENANTS, |hub| {
        hub["spec"] = json!({
            "source": {"type": "configMap", "configMap": {"name": "rows", "key": "rows.csv"}, "syncInterval": interval},
            "valueMappings": {"uid": "id", "activate": "active"},
        });
        if hub_window {
            hub["spec"]["rollout"] = json!({"maxSkew": skew});
        }
    });
    for form in FORMS.iter().take(world.settings.forms) {
        edit(world, form, "good");
        let skew = random_skew(world);
        policy(world, form, json!({"maxSkew": skew}));
        left::by_lynq(world, form);
    }
}

pub const FORMS: [&str; 2] = ["web", "job"];

fn random_skew(world: &mut World) -> Value {
    let skews = [
        json!(1),
        json!(2),
        json!(3),
        json!(5),
        json!(10),
        json!("10%"),
        json!("30%"),
        json!(50),
    ];
    world.users.random.pick(&skews).clone()
}

/// A new version of the form's content.
pub fn edit(world: &mut World, form: &str, kind: &str) {
    world.users.versions += 1;
    let image = format!("v{}-{kind}", world.users.versions);
    world
        .users
        .images
        .entry(form.to_owned())
        .or_default()
        .push(image);
    put(world, form);
}

pub fn policy(world: &mut World, form: &str, change: Value) {
    let reverts = world.users.random.permille(500);
    let on_failure = if reverts { "Revert" } else { "Halt" };
    let policy = world
        .users
        .policies
        .entry(form.to_owned())
        .or_insert_with(|| json!({"progressDeadlineSeconds": 60, "onFailure": on_failure}));
    for (field, value) in change.as_object().into_iter().flatten() {
        policy[field] = value.clone();
    }
    put(world, form);
}

/// Applies the form as people have it.
pub fn put(world: &mut World, form: &str) {
    let image = world.users.image(form).to_owned();
    let policy = world
        .users
        .policies
        .get(form)
        .cloned()
        .unwrap_or_else(|| json!({}));
    world.trace(|| format!("alice: form {form}: {image}, rollout {policy}"));
    let spec = json!({
        "hubId": TENANTS,
        "deployments": deployments(form, &image),
        "rollout": policy,
    });
    world.put(FORM, form, |object| object["spec"] = spec);
}

fn deployments(form: &str, image: &str) -> Value {
    let image = format!("{image} for {{{{ .uid }}}}");
    json!([{
        "id": "app", "nameTemplate": format!("{{{{ .uid }}}}-{form}"),
        "spec": {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 1, "image": image}},
    }])
}

/// One thing that somebody does.
pub fn act(world: &mut World) {
    let classes = [
        Fault::Edits,
        Fault::BadEdits,
        Fault::HandEdits,
        Fault::HandEdits,
        Fault::Force,
        Fault::Policy,
        Fault::Policy,
        Fault::ForceAll,
        Fault::Order,
        Fault::HubWindow,
        Fault::LostLedger,
        Fault::Rows,
        Fault::Forms,
        Fault::Database,
        Fault::OtherWriters,
        Fault::OtherWriters,
        Fault::Edits,
        Fault::Takeover,
    ];
    act_of(world, &classes);
}

/// The same, of these classes.
pub fn act_of(world: &mut World, classes: &[Fault]) {
    let class = *world.users.random.pick(classes);
    if !world.has(class) {
        return;
    }
    world.count(class);
    let forms = world.names(FORM);
    let form = (!forms.is_empty()).then(|| world.users.random.pick(&forms).clone());
    match (class, form) {
        (Fault::Edits, Some(form)) => {
            if world.users.random.permille(500) {
                revert(world, &form);
            } else {
                edit(world, &form, "good");
            }
        }
        (Fault::BadEdits, Some(form)) => {
            let kind = *world
                .users
                .random
                .pick(&["never", "half", "slow", "flap", "flap"]);
            edit(world, &form, kind);
        }
        (Fault::Policy, Some(form)) => change_policy(world, &form),
        (Fault::Order, Some(form)) => {
            let canary = format!("{{{{ eq .uid \"t{}\" }}}}", world.users.random.below(5));
            let paused = json!([{"name": "canary", "when": canary, "pause": true}]);
            let orders = [
                json!([]),
                json!([{"name": "canary", "when": canary}]),
                paused,
            ];
            match world.users.random.below(4) {
                3 => promote(world, &form),
                number => policy(world, &form, json!({"order": orders[number]})),
            }
        }
        (Fault::ForceAll, Some(form)) => force_all(world, &form),
        (Fault::HandEdits | Fault::Force | Fault::OtherWriters, _) => touch_node(world, class),
        (Fault::HubWindow, _) => {
            let skew = if world.users.random.permille(300) {
                json!(0)
            } else {
                random_skew(world)
            };
            world.trace(|| format!("alice: hub: maxSkew {skew}"));
            world.put(HUB, TENANTS, |hub| {
                hub["spec"]["rollout"] = json!({"maxSkew": skew})
            });
        }
        (Fault::LostLedger, _) => lose_ledger(world),
        (Fault::Takeover, _) => left::act(world),
        (Fault::Rows, _) => change_rows(world),
        (Fault::Forms, form) => {
            change_forms(world, form);
            if world.users.random.permille(500) {
                confirm(world);
            }
        }
        (Fault::Database, _) => {
            world.trace(|| "the database does not answer".to_owned());
            world.database_down_until = Instant::now() + Duration::from_secs(40);
        }
        _ => {}
    }
}

/// Past the canaries, whether the rollout waits there or not.
fn promote(world: &mut World, form: &str) {
    let Some(generation) = world
        .get(FORM, form)
        .map(|form| form.value["metadata"]["generation"].clone())
    else {
        return;
    };
    world.trace(|| format!("alice: form {form}: generation {generation} promoted"));
    let promotion = format!("{generation}/canary");
    annotate(world, FORM, form, names::PROMOTE, Some(&promotion));
}

fn force_all(world: &mut World, form: &str) {
    let on = world.users.random.permille(300);
    if world.users.random.permille(300) {
        world.trace(|| format!("alice: hub: forced {on}"));
        return annotate(
            world,
            HUB,
            TENANTS,
            names::FORCE_ROLLOUT,
            on.then_some("true"),
        );
    }
    let resumed = world.users.random.permille(500);
    world.trace(|| format!("alice: form {form}: forced {on}, resumed {resumed}"));
    annotate_form(world, form, on, resumed);
}

pub fn annotate(world: &mut World, kind: usize, object: &str, name: &str, value: Option<&str>) {
    world.put(kind, object, |object| {
        let annotations = &mut object["metadata"]["annotations"];
        match value {
            Some(value) => annotations[name] = value.into(),
            None => drop(annotations.as_object_mut().map(|all| all.remove(name))),
        }
    });
}

fn annotate_form(world: &mut World, form: &str, forced: bool, resumed: bool) {
    if world.get(FORM, form).is_none() {
        return;
    }
    let now = world.clock.now(0).to_string();
    annotate(
        world,
        FORM,
        form,
        names::FORCE_ROLLOUT,
        forced.then_some("true"),
    );
    annotate(world, FORM, form, names::RESUME, resumed.then_some(&now));
}

/// Back to what the form was before, as an edit of its own.
fn revert(world: &mut World, form: &str) {
    let images = world.users.images.get(form).cloned().unwrap_or_default();
    if let Some(before) = images.len().checked_sub(2).map(|i| images[i].clone()) {
        world
            .users
            .images
            .entry(form.to_owned())
            .or_default()
            .push(before);
        put(world, form);
    }
}

fn change_policy(world: &mut World, form: &str) {
    let change = match world.users.random.below(10) {
        0 => json!({"maxSkew": 0}),
        1 => json!({"paused": true}),
        2 => json!({"paused": false}),
        3 => json!({"minReadySeconds": *world.users.random.pick(&[0, 1, 3, 8])}),
        4 => {
            let creation = *world.users.random.pick(&["Gated", "Immediate"]);
            json!({"creation": creation})
        }
        5 => json!({"maxFailures": 1 + world.users.random.below(4)}),
        9 => {
            let on_failure = *world.users.random.pick(&["Halt", "Revert", "Revert"]);
            json!({"onFailure": on_failure})
        }
        6 => {
            let counts = *world.users.random.pick(&["All", "Released"]);
            json!({"skewCounts": counts})
        }
        _ => json!({"maxSkew": random_skew(world)}),
    };
    policy(world, form, change);
}

fn change_rows(world: &mut World) {
    let uid = format!("t{}", world.users.random.below(world.settings.rows + 6));
    let active = world.rows.get(&uid).copied();
    match (active, world.users.random.below(10)) {
        (_, 0) => {
            world.trace(|| "the table is emptied".to_owned());
            world.rows.clear();
        }
        (_, 1) => {
            world.trace(|| "the table is restored".to_owned());
            for i in 0..world.settings.rows {
                world.rows.insert(format!("t{i}"), true);
            }
        }
        (None | Some(false), _) => {
            world.trace(|| format!("row {uid} comes"));
            world.rows.insert(uid, true);
        }
        (Some(true), n) if n < 6 => {
            world.trace(|| format!("row {uid} goes"));
            world.rows.remove(&uid);
        }
        (Some(true), _) => {
            world.trace(|| format!("row {uid} is switched off"));
            world.rows.insert(uid, false);
        }
    }
    world.put_rows();
}

fn change_forms(world: &mut World, form: Option<String>) {
    let missing = FORMS
        .iter()
        .take(world.settings.forms)
        .find(|form| world.get(FORM, form).is_none());
    match (missing, form) {
        (Some(missing), _) => put(world, missing),
        (None, Some(form)) if world.users.random.permille(400) => {
            world.trace(|| format!("alice: form {form} is deleted"));
            world.delete(FORM, &form);
        }
        _ => {}
    }
}

/// Somebody writes a LynqNode.
fn touch_node(world: &mut World, class: Fault) {
    if class == Fault::OtherWriters && world.users.random.permille(300) {
        // None of the operator's business, but it moves the version.
        let ready = world.users.random.below(50);
        world.trace(|| "somebody writes the hub's metadata".to_owned());
        return annotate(world, HUB, TENANTS, "seen", Some(&ready.to_string()));
    }
    let names = world.names(NODE);
    if names.is_empty() {
        return;
    }
    let name = world.users.random.pick(&names).clone();
    if class == Fault::HandEdits && world.users.random.permille(150) {
        world.trace(|| format!("alice deletes {name}"));
        return world.delete(NODE, &name);
    }
    let number = world.users.random.draw() % 1_000;
    let what = match class {
        Fault::HandEdits => world.users.random.below(6),
        Fault::Force => 6 + world.users.random.below(2),
        _ => 8,
    };
    let shown = [
        "edits",
        "edits to what cannot run",
        "reverts by hand",
        "writes without `released`",
        "claims to be live",
        "releases by hand",
        "forces",
        "ends the force on",
        "labels",
    ][what];
    let is_ok = world.edit(NODE, &name, |new| change(new, what, number));
    world.trace(|| {
        let said = if is_ok { "ok" } else { "refused" };
        format!("alice {shown} {name}: {said}")
    });
}

fn change(node: &mut Value, what: usize, number: u64) {
    let annotation =
        |node: &mut Value, name: &str, value: Value| node["metadata"]["annotations"][name] = value;
    match what {
        0 => {
            node["spec"]["deployments"][0]["spec"]["spec"]["image"] =
                format!("hand{number}-good by hand").into()
        }
        1 => {
            node["spec"]["deployments"][0]["spec"]["spec"]["image"] =
                format!("hand{number}-never by hand").into()
        }
        2 => {
            if !node["spec"]["released"]["deployments"].is_null() {
                node["spec"]["deployments"] = node["spec"]["released"]["deployments"].clone();
            }
        }
        3 => drop(
            node["spec"]
                .as_object_mut()
                .map(|spec| spec.remove("released")),
        ),
        4 => {
            let desired = node["metadata"]["annotations"][names::DESIRED_HASH].clone();
            annotation(node, names::LIVE_HASH, desired);
        }
        5 => {
            let desired = node["metadata"]["annotations"][names::DESIRED_HASH]
                .as_str()
                .unwrap_or_default();
            let version = node["metadata"]["resourceVersion"]
                .as_str()
                .unwrap_or_default();
            let marker = format!("{desired}/{version}");
            annotation(node, names::RELEASE, marker.into());
        }
        6 => annotation(node, names::FORCE_ROLLOUT, "true".into()),
        7 => drop(
            node["metadata"]["annotations"]
                .as_object_mut()
                .map(|all| all.remove(names::FORCE_ROLLOUT)),
        ),
        _ => node["metadata"]["labels"]["seen"] = number.to_string().into(),
    }
}

/// Everything that people can do to let the fleet complete: a good version, a window, nothing paused, no deletion held.
pub fn heal(world: &mut World) {
    for form in FORMS.iter().take(world.settings.forms) {
        if world.users.images.contains_key(*form) {
            // What is good already may have to go on as it is; what was changed by hand stays so until there is something new.
            let by_hand = [Fault::HandEdits, Fault::Takeover];
            let by_hand = by_hand
                .iter()
                .any(|fault| world.settings.faults.contains(fault));
            let good = world.users.image(form).ends_with("-good");
            if by_hand || !good || world.random.below(2) == 0 {
                world.users.versions += 1;
                let image = format!("v{}-good", world.users.versions);
                let images = world.users.images.entry((*form).to_owned());
                images.or_default().push(image);
            }
            let mut healthy =
                json!({"maxSkew": 10, "paused": false, "minReadySeconds": 0, "creation": "Gated"});
            if world.random.below(2) == 0 {
                healthy["maxSkew"] = json!(1 + world.random.below(3));
                healthy["minReadySeconds"] = json!(world.random.below(3));
            }
            if world.random.below(2) == 0 {
                healthy["order"] = json!([]);
            }
            policy(world, form, healthy);
            promote(world, form);
        }
    }
    annotate(world, HUB, TENANTS, names::FORCE_ROLLOUT, None);
    world.put(HUB, TENANTS, |hub| {
        hub["spec"]["source"]["syncInterval"] = "5s".into()
    });
    for form in FORMS {
        annotate_form(world, form, false, true);
    }
    if world.rows.is_empty() {
        for i in 0..world.settings.rows {
            world.rows.insert(format!("t{i}"), true);
        }
        world.put_rows();
    }
}

/// What is held and shown to people, they agree to.
pub fn confirm(world: &mut World) {
    let held = world.deletions_held.map(|count| count.to_string());
    if let Some(held) = held
        && world.confirmation().as_ref() != Some(&held)
    {
        world.trace(|| format!("alice: hub: {held} deletions are confirmed"));
        annotate(world, HUB, TENANTS, names::CONFIRM_DELETIONS, Some(&held));
    }
}

/// A backup restores the hub without its status. Not while a release is under way: its slot is what makes it good.
fn lose_ledger(world: &mut World) {
    let slots = world.witness.slots.clone();
    let under_way = slots.iter().any(|slot| {
        let node = world.get(NODE, &slot.node);
        node.is_some_and(|node| node.version() == slot.resource_version)
    });
    if under_way {
        return;
    }
    world.trace(|| "the hub's status is lost".to_owned());
    world.witness.ledger_lost(&slots);
    world.put(HUB, TENANTS, |hub| {
        let status = hub["status"].as_object_mut();
        status.map(|status| status.remove("rollout"));
    });
}
