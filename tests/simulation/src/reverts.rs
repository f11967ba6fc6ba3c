//! A change that never becomes ready and that nobody corrects, until lynqgate sets the form back. Faults go on meanwhile, and people
//! edit the form while the request that sets it back is on its way. Before that a rollout is complete, to which lynqgate can go back.

use std::ops::Range;

use serde_json::json;
use tokio::time::{Duration, Instant, sleep};

use crate::api::requests::Call;
use crate::api::store::{FORM, HUB, Object};
use crate::planted::is_revert;
use crate::random::Random;
use crate::run::{MOMENT, going, moment};
use crate::settings::Fault;
use crate::users::{self, FORMS};
use crate::witness::{asks_for_reverts, image_of_form, is_in_phase, version};
use crate::world::{Shared, TENANTS, World, lock};

/// The form that is set back.
const WEB: &str = FORMS[0];
/// How long the first rollout may take.
const COMPLETE_MAX: Duration = Duration::from_secs(600);
/// Moments between two edits, of which the second one fails.
const BETWEEN_EDITS: usize = 25;
/// How long it may take until the bad change is taken back: its deadline, clocks that differ, another leader, and a few tries.
const REVERT_MAX: Duration = Duration::from_secs(180);
/// After the bad change: when it fails and is taken back, where the clocks agree.
const BUSY: Range<Duration> = Duration::from_secs(58)..Duration::from_secs(80);
/// Between two moments before and after that: as much goes wrong in each as in one of the others.
const LULL: Duration = Duration::from_millis(200);
/// Moments in which the nodes get what the form was set back to.
const AFTERWARDS: usize = 75;

pub struct Reverts {
    random: Random,
    /// The image of the bad change.
    bad: String,
}

impl Reverts {
    pub fn new(random: Random) -> Self {
        let bad = String::new();
        Reverts { random, bad }
    }
}

/// Plays it; whether people go on with other things after that.
pub async fn play(shared: &Shared) -> Option<bool> {
    begin(&mut lock(shared));
    let began = Instant::now();
    while !is_complete(&lock(shared)) && began.elapsed() < COMPLETE_MAX {
        sleep(LULL).await;
        going(shared)?;
    }
    lock(shared).faults_on = true;
    if !is_complete(&lock(shared)) {
        return Some(true);
    }
    let edits_twice = lock(shared).reverts.random.permille(500);
    if edits_twice {
        users::edit(&mut lock(shared), WEB, "slow");
        moments(shared, BETWEEN_EDITS).await?;
    }
    apply_bad(&mut lock(shared));
    let began = Instant::now();
    while is_open(&lock(shared)) && began.elapsed() < REVERT_MAX {
        let pause = match BUSY.contains(&began.elapsed()) {
            true => MOMENT,
            false => LULL,
        };
        moment(shared, pause, act).await?;
    }
    moments(shared, AFTERWARDS).await?;
    Some(end(&mut lock(shared)))
}

async fn moments(shared: &Shared, count: usize) -> Option<()> {
    for _ in 0..count {
        moment(shared, MOMENT, act).await?;
    }
    Some(())
}

/// Nothing goes wrong until the form is complete. Most forms are to be set back when they fail.
fn begin(world: &mut World) {
    world.count(Fault::Reverts);
    world.faults_on = false;
    let on_failure = match world.reverts.random.permille(800) {
        true => "Revert",
        false => "Halt",
    };
    users::policy(world, WEB, json!({"onFailure": on_failure}));
}

fn is_complete(world: &World) -> bool {
    let form = world.get(FORM, WEB);
    form.is_some_and(|form| is_in_phase(&form.value, "Complete"))
}

fn apply_bad(world: &mut World) {
    let kind = *world.reverts.random.pick(&["never", "never", "half"]);
    users::edit(world, WEB, kind);
    world.reverts.bad = world.users.image(WEB).to_owned();
}

/// The bad change has not failed, or is still to be taken back.
fn is_open(world: &World) -> bool {
    let Some(form) = world.get(FORM, WEB) else {
        return false;
    };
    let is_there = version(image_of_form(&form.value)) == world.reverts.bad;
    is_there && (asks_for_reverts(&form.value) || !is_in_phase(&form.value, "Failed"))
}

/// What people do meanwhile leaves the form alone.
fn act(world: &mut World) {
    users::act_of(world, &[Fault::OtherWriters, Fault::LostLedger]);
}

/// Whether people go on. Some leave the form as it is now, and some apply the bad change again, as a tool does that applies from git.
fn end(world: &mut World) -> bool {
    match world.reverts.random.below(3) {
        0 => false,
        1 => {
            users::put(world, WEB);
            false
        }
        _ => true,
    }
}

/// Somebody edits the form while the request that sets it back is on its way: then that request must fail.
pub fn cross(world: &mut World, call: &Call) {
    if !is_revert(call) || !world.has(Fault::Reverts) || !world.reverts.random.permille(300) {
        return;
    }
    let form = call.key.1.as_str();
    if world.get(FORM, form).is_none() {
        return;
    }
    match world.reverts.random.below(5) {
        0 => users::edit(world, form, "good"),
        1 => users::policy(world, form, json!({"onFailure": "Halt"})),
        2 => users::policy(world, form, json!({"paused": true})),
        3 => users::policy(world, form, json!({"maxSkew": 4})),
        _ => users::annotate(world, FORM, form, "seen", Some("meanwhile")),
    }
}

/// At rest, before people let the fleet complete: how the forms are left.
pub fn at_rest(world: &mut World) {
    for name in world.names(FORM) {
        let form = world.get(FORM, &name).expect("it is there");
        let waits = may_wait(world, &form);
        world.witness.form_rests(&form, waits);
    }
}

/// Whether nodes of the form may wait for something although its content is good: for people, or for another form.
fn may_wait(world: &World, form: &Object) -> bool {
    let policy = &form.value["spec"]["rollout"];
    let order = policy["order"].as_array();
    let is_ordered = order.is_some_and(|order| !order.is_empty());
    let shares_window = world.get(HUB, TENANTS).is_some_and(|hub| {
        let window = &hub.value["spec"]["rollout"]["maxSkew"];
        world.settings.forms > 1 && !window.is_null() && *window != 0
    });
    let is_good = version(image_of_form(&form.value)).ends_with("-good");
    !is_good
        || policy["paused"] == true
        || is_ordered
        || shares_window
        || world.deletions_held.is_some()
}
