//! One run of one seed: chaos in an order that the seed decides, then the faults stop and everything must come to rest,
//! say why it waits, complete once people let it, and be idle.

use std::collections::BTreeSet;

use lynqgate::api::form::Phase;

use crate::cluster::{KINDS, Kind};
use crate::operator::{Process, hub_loop, node_loop, release_loop};
use crate::random::Random;
use crate::users;
use crate::witness::{Figures, Violation};
use crate::world::{Fault, Settings, World};

/// Steps until everything is at rest, faults aside.
const STEPS_MAX: u64 = 40_000;
/// Longer than every interval and deadline of the loops.
const REST: u64 = 65_000;

impl Settings {
    /// What a seed stands for: each class of faults is there or not.
    pub fn of(seed: u64) -> Self {
        let mut random = Random::stream(seed, 0);
        let forms = 1 + usize::from(random.permille(300));
        let rows = (30 + random.below(4)).div_ceil(forms);
        let faults: BTreeSet<Fault> = Fault::ALL
            .iter()
            .copied()
            .filter(|_| random.permille(500))
            .collect();
        let steps = 400 + random.below(900) as u64;
        Settings {
            seed,
            rows,
            forms,
            steps,
            faults,
            mutant: None,
        }
    }
}

pub struct Outcome {
    pub violation: Option<Violation>,
    pub figures: Figures,
    pub lines: Vec<String>,
}

pub fn run(settings: &Settings, tracing: bool) -> Outcome {
    let mut world = World::new(settings.clone(), tracing);
    go(&mut world);
    let World {
        mut witness, lines, ..
    } = world;
    Outcome {
        violation: witness.violation.take(),
        figures: witness.figures,
        lines,
    }
}

fn go(world: &mut World) -> Option<()> {
    users::begin(world);
    start(world, 0);
    for _ in 0..world.settings.steps {
        chaos(world);
        step(world);
        going(world)?;
    }
    calm_down(world);
    rest(world, |_| {})?;
    reasons_are_shown(world);
    world.trace(|| "people let the fleet complete".to_owned());
    users::heal(world);
    rest(world, users::confirm)?;
    completed(world);
    going(world)?;
    idles(world)
}

fn going(world: &World) -> Option<()> {
    world.witness.violation.is_none().then_some(())
}

fn start(world: &mut World, p: usize) {
    let (boot, offset) = (world.processes[p].boot + 1, world.processes[p].clock_offset);
    world.trace(|| format!("operator {p} starts to lead"));
    world.processes[p] = Process::started(p, boot, offset);
}

fn kill(world: &mut World, p: usize) {
    let (boot, offset) = (world.processes[p].boot, world.processes[p].clock_offset);
    world.trace(|| format!("operator {p} dies"));
    world.processes[p] = Process {
        id: p,
        boot,
        clock_offset: offset,
        ..Process::default()
    };
}

/// What can happen next.
#[derive(Clone, Copy, Debug)]
enum Next {
    List(usize, Kind),
    Deliver(usize, Kind),
    Release(usize),
    Hub(usize),
    Node(usize),
    Late,
    Timer,
}

fn step(world: &mut World) {
    world.witness.figures.steps += 1;
    let (mut next, wake) = possible(world);
    if next.is_empty() {
        // Nothing to do before the next timer.
        let Some(wake) = wake else { return };
        world.time = wake.max(world.time);
        next = possible(world).0;
        if next.is_empty() {
            return;
        }
    }
    world.time += world.random.below(12) as u64;
    match *world.random.pick(&next) {
        Next::List(p, kind) => list(world, p, kind),
        Next::Deliver(p, kind) => deliver(world, p, kind),
        Next::Release(p) => release_loop::step(world, p),
        Next::Hub(p) => hub_loop::step(world, p),
        Next::Node(p) => node_loop::step(world, p),
        Next::Late => world.deliver_late(),
        Next::Timer => world.fire_timer(),
    }
}

/// What can happen now, and when something else will.
fn possible(world: &World) -> (Vec<Next>, Option<u64>) {
    let (mut next, mut wake) = (Vec::with_capacity(24), None::<u64>);
    let mut offer = |at: Option<u64>, what: Next, weight: usize| {
        let Some(at) = at else { return };
        if at <= world.time {
            next.extend(std::iter::repeat_n(what, weight));
        } else {
            wake = Some(wake.map_or(at, |wake| wake.min(at)));
        }
    };
    for process in world.processes.iter().filter(|process| process.alive) {
        let p = process.id;
        let from = |at: u64| Some(at.max(process.frozen_until));
        for kind in KINDS {
            let cursor = &process.cursors[kind as usize];
            if !cursor.listed || cursor.lost {
                offer(from(cursor.stalled_until), Next::List(p, kind), 1);
            } else if cursor.next < world.cluster.log[kind as usize].len() {
                offer(from(cursor.stalled_until), Next::Deliver(p, kind), 2);
            }
        }
        if process.leads() {
            offer(process.release.due().and_then(from), Next::Release(p), 3);
            offer(process.hub_loop.due().and_then(from), Next::Hub(p), 2);
            offer(process.node_loop.due().and_then(from), Next::Node(p), 3);
        }
    }
    offer(
        world.timers.keys().next().map(|(at, _)| *at),
        Next::Timer,
        2,
    );
    if world.has_late() {
        offer(Some(0), Next::Late, 1);
    }
    (next, wake)
}

fn list(world: &mut World, p: usize, kind: Kind) {
    let all = world.cluster.log[kind as usize].len();
    let stale = world.strikes(Fault::StaleList, 400);
    let behind = if stale { world.draw(100) } else { 0 };
    let events = all.saturating_sub(behind);
    world.trace(|| {
        format!(
            "operator {p} lists {kind:?}s{}",
            if events < all {
                format!(", {behind} events old")
            } else {
                String::new()
            }
        )
    });
    let time = world.time;
    world.processes[p].list(&world.cluster, kind, events, time);
    if stale {
        // Who answers with an old list sends its events late as well.
        world.processes[p].cursors[kind as usize].stalled_until = time + world.draw(4_000) as u64;
    }
    if world.processes[p].leads() {
        world.processes[p].hub_loop.wake(time);
        world.processes[p].release.wake(time);
    }
}

fn deliver(world: &mut World, p: usize, kind: Kind) {
    let count = if world.faults_on {
        1 + world.random.below(8)
    } else {
        64
    };
    let log = &world.cluster.log[kind as usize];
    let process = &mut world.processes[p];
    let first = process.cursors[kind as usize].next;
    let until = log.len().min(first + count);
    for event in &log[first..until] {
        process.event(event, world.time);
    }
    process.cursors[kind as usize].next = until;
}

/// Faults and people, now and then.
fn chaos(world: &mut World) {
    let time = world.time;
    if world.draw(25) == 0 {
        users::act(world);
    }
    let p = world.draw(2);
    if world.processes[p].alive && world.strikes(Fault::Crash, 4) {
        die(world, p);
    }
    if !world.processes.iter().any(|process| process.alive) && world.draw(20) == 0 {
        start(world, p);
    }
    if world.strikes(Fault::TwoLeaders, 8) && !world.processes[p].alive {
        start(world, p);
    }
    let kind = KINDS[world.draw(4)];
    if world.strikes(Fault::Freeze, 4) {
        let until = time + world.draw(6_000) as u64;
        world.trace(|| format!("operator {p} is frozen until {until}"));
        world.processes[p].frozen_until = until;
    }
    if world.strikes(Fault::Lag, 30) {
        let longest = if world.draw(4) == 0 { 40_000 } else { 8_000 };
        let until = time + world.draw(longest) as u64;
        world.trace(|| format!("operator {p}'s watch of {kind:?}s lags until {until}"));
        world.processes[p].cursors[kind as usize].stalled_until = until;
    }
    if world.strikes(Fault::LostWatch, 6) && world.processes[p].cursors[kind as usize].listed {
        let until = time + world.draw(15_000) as u64;
        world.trace(|| {
            format!("operator {p}'s watch of {kind:?}s is silent until a list at {until}")
        });
        let cursor = &mut world.processes[p].cursors[kind as usize];
        (cursor.lost, cursor.stalled_until) = (true, until);
    }
    if world.strikes(Fault::Clock, 5) {
        let offset = world.draw(60_000) as i64 - 30_000;
        world.trace(|| format!("operator {p}'s clock jumps to {offset} ms"));
        world.processes[p].clock_offset = offset;
    }
    if world.strikes(Fault::WebhookDown, 3) {
        let until = time + world.draw(3_000) as u64;
        world.trace(|| format!("the webhook is down until {until}"));
        world.webhook_down_until = until;
    }
}

fn die(world: &mut World, p: usize) {
    if world.strikes(Fault::LateRequest, 600) {
        let steps: [fn(&mut World, usize); 3] =
            [release_loop::step, hub_loop::step, node_loop::step];
        let which = [0, 0, 1, 2][world.draw(4)];
        world.die_asking(p, steps[which]);
    }
    kill(world, p);
}

/// The faults stop: one leader, watches that deliver, everybody awake.
fn calm_down(world: &mut World) {
    world.trace(|| "the faults stop".to_owned());
    world.faults_on = false;
    (world.webhook_down_until, world.database_down_until) = (0, 0);
    if world.processes[1].alive {
        kill(world, 1);
    }
    if !world.processes[0].alive {
        start(world, 0);
    }
    let process = &mut world.processes[0];
    process.frozen_until = 0;
    for cursor in &mut process.cursors {
        // A watch that is silent ends after some minutes; what is merely late comes.
        (cursor.lost, cursor.stalled_until) = (cursor.lost || cursor.stalled_until > 0, 0);
    }
}

/// Until nobody has written for longer than every interval.
fn rest(world: &mut World, people: fn(&mut World)) -> Option<()> {
    world.last_write = world.time;
    for _ in 0..STEPS_MAX {
        step(world);
        people(world);
        going(world)?;
        if world.time > world.last_write + REST {
            return Some(());
        }
    }
    world.witness.fail("idle", || {
        format!("{STEPS_MAX} steps after the faults stopped the operator still writes")
    });
    None
}

/// At rest: every held node says why, where `kubectl get` shows it.
fn reasons_are_shown(world: &mut World) {
    let silent = world.cluster.nodes.values().find(|node| {
        let conditions = node.value["status"]["conditions"].as_array();
        let shown = conditions
            .into_iter()
            .flatten()
            .any(|c| c["type"] == "Held" && c["status"] == "True" && c["reason"] != "Releasing");
        node.reading.held
            && !node.digest.deleting
            && world.cluster.forms.contains_key(&node.digest.form)
            && !shown
    });
    if let Some(node) = silent.map(|node| node.digest.key.name.clone()) {
        world.witness.fail("reason", || {
            format!("{node} is held, everything is at rest, and its status does not say why")
        });
    }
}

/// Everything that people want is there, ready, and said to be so; and no slot is left.
fn completed(world: &mut World) {
    let mut wanted = BTreeSet::new();
    for form in world.cluster.forms.keys() {
        for (uid, _) in world.rows.iter().filter(|(_, active)| **active) {
            wanted.insert(format!("{uid}-{form}"));
        }
    }
    let there: BTreeSet<String> = world.cluster.nodes.keys().cloned().collect();
    let mut problems: Vec<String> = wanted
        .symmetric_difference(&there)
        .map(|name| format!("{name} is missing or too much"))
        .collect();
    for (name, node) in &world.cluster.nodes {
        let image = world
            .cluster
            .forms
            .get(&node.digest.form)
            .map(|_| world.users.image(&node.digest.form));
        let runs = world
            .cluster
            .children
            .get(name)
            .map(|child| child.image.clone());
        let is_newest = |image: &str| {
            runs.as_deref()
                .is_some_and(|runs| runs.split(' ').next() == Some(image))
        };
        if node.reading.held {
            problems.push(format!("{name} is held still"));
        } else if !node.reading.settled {
            problems.push(format!("{name} is not settled"));
        } else if runs != node.reading.live_image || !image.is_some_and(is_newest) {
            problems.push(format!("{name} runs {runs:?}, not {image:?}"));
        }
    }
    if !world.cluster.hub.slots.is_empty() {
        problems.push(format!(
            "the ledger has {} slots still",
            world.cluster.hub.slots.len()
        ));
    }
    for (name, form) in &world.cluster.forms {
        let over = form
            .status
            .rollout
            .as_ref()
            .is_some_and(|r| matches!(r.phase, Phase::Complete | Phase::Idle));
        if !over || form.status.observed_generation != Some(form.generation) {
            problems.push(format!(
                "form {name} of generation {} says {:?}",
                form.generation, form.status
            ));
        }
    }
    if let Some(first) = problems.first() {
        let text = format!("{first} ({} such)", problems.len());
        world.witness.fail("progress", || text);
    }
}

/// A look at everything, and a restart, write nothing.
fn idles(world: &mut World) -> Option<()> {
    let before = world.writes;
    // One seed in four pays for a restart as well.
    let looks = if world.settings.seed.is_multiple_of(4) {
        2
    } else {
        1
    };
    for again in 0..looks {
        if again == 1 {
            kill(world, 0);
            start(world, 0);
        }
        let time = world.time;
        let process = &mut world.processes[0];
        process.hub_loop.wake(time);
        process.release.wake(time);
        let names: Vec<String> = process.nodes.keys().cloned().collect();
        names
            .iter()
            .for_each(|name| process.node_loop.wake(name, time));
        rest(world, |_| {})?;
        let writes = world.writes - before;
        if writes > 0 {
            let what = if again == 1 {
                "a restart"
            } else {
                "one more look"
            };
            world.witness.fail("idle", || {
                format!("{what} of a complete fleet costs {writes} writes")
            });
            return None;
        }
    }
    Some(())
}
