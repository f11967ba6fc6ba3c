//! One run of one seed: chaos in an order that the seed decides, then the faults stop and everything must come to rest,
//! say why it waits, complete once people let it, and be idle.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use lynqgate::cluster::events::Events;
use lynqgate::cluster::lease::{Election, Leader};
use lynqgate::cluster::objects::Objects;
use lynqgate::cluster::process;
use lynqgate::controller::hub::Databases;
use lynqgate::controller::maintenance::{self, Maintenance, lead_with};
use lynqgate::controller::metrics::Metrics;
use lynqgate::controller::metrics::lynq::LynqMetrics;
use lynqgate::controller::{Workers, World as Operator};
use lynqgate::decide::maintenance::Policy;
use lynqgate::decide::maintenance::drain::Allowed;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::time::{Duration, Instant, sleep};

use crate::api::store::{DEPLOYMENT, FORM, HUB, KUBERNETES_NODE, NODE, STATEFUL_SET};
use crate::decisions::Watched;
use crate::life::Life;
use crate::machines;
use crate::network;
use crate::random::Random;
use crate::reverts;
use crate::reviews;
use crate::sets;
use crate::settings::{Fault, Settings};
use crate::users;
use crate::witness::{Figures, Violation, Workload};
use crate::workloads;
use crate::world::{OPERATORS_NAMESPACE, Refusing, Replica, Requests, Shared, Stall, World, lock};

/// Between two moments of chaos.
pub const MOMENT: Duration = Duration::from_millis(40);
/// Longer than every interval and deadline of the loops.
const REST: Duration = Duration::from_secs(65);
/// Until everything is at rest, faults aside.
const REST_MAX: Duration = Duration::from_secs(3_600);
/// Between two scrapes of a process' metrics.
const SCRAPE: Duration = Duration::from_secs(30);
/// How long a process of a pod that was killed is away.
const AWAY: u64 = 4_000;

pub struct Outcome {
    pub violation: Option<Violation>,
    pub figures: Figures,
    pub requests: u64,
    /// How often each class of faults struck.
    pub struck: BTreeMap<Fault, u64>,
    pub lines: Vec<String>,
}

pub fn run(settings: &Settings, tracing: bool) -> Outcome {
    // What retries of the client's own take their jitter from.
    fastrand::seed(settings.seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let shared = runtime.block_on(async {
        let shared: Shared = Arc::new(Mutex::new(World::new(settings.clone(), tracing)));
        go(&shared).await;
        shared
    });
    drop(runtime);
    let mut world = lock(&shared);
    // Their webhooks have clients of this world, which would keep it for ever.
    world.replicas = Default::default();
    Outcome {
        violation: world.witness.violation.take(),
        figures: world.witness.figures,
        requests: world.requests,
        struck: std::mem::take(&mut world.struck),
        lines: std::mem::take(&mut world.lines),
    }
}

async fn go(shared: &Shared) -> Option<()> {
    users::begin(&mut lock(shared));
    tokio::spawn(workloads::deployments(shared.clone()));
    tokio::spawn(workloads::garbage(shared.clone()));
    let has_pods = [Fault::StatefulSets, Fault::Maintenance];
    if has_pods.iter().any(|fault| lock(shared).has(*fault)) {
        tokio::spawn(sets::live(shared.clone()));
    }
    start(shared, 0);
    // One that starts later asks for its share of the shards.
    let [two_leaders, shards] = [Fault::TwoLeaders, Fault::Shards].map(|f| lock(shared).has(f));
    match two_leaders {
        true => lock(shared).count(Fault::TwoLeaders),
        false if shards => {}
        false => start(shared, 1),
    }
    let plays = lock(shared).has(Fault::Reverts);
    let goes_on = match plays {
        true => reverts::play(shared).await?,
        false => true,
    };
    let steps = match goes_on {
        true => lock(shared).settings.steps,
        false => 0,
    };
    for _ in 0..steps {
        moment(shared, MOMENT, users::act).await?;
    }
    calm_down(shared);
    rest(shared, |_| {}).await?;
    reasons_are_shown(&mut lock(shared));
    reverts::at_rest(&mut lock(shared));
    lock(shared).trace(|| "people let the fleet complete".to_owned());
    users::heal(&mut lock(shared));
    sets::heal(&mut lock(shared));
    machines::heal(&mut lock(shared));
    reviews::ask_all(&mut lock(shared));
    reviews::send(shared);
    rest(shared, follow_advice).await?;
    completed(&mut lock(shared));
    going(shared)?;
    // One seed in four pays for a restart as well.
    let restarts = lock(shared).settings.seed.is_multiple_of(4);
    match restarts {
        true => restarts_idle(shared).await,
        false => Some(()),
    }
}

/// What goes wrong at a moment, and what people do, until the next one.
pub async fn moment(shared: &Shared, pause: Duration, people: fn(&mut World)) -> Option<()> {
    lock(shared).witness.figures.steps += 1;
    chaos(shared, pause, people);
    reviews::send(shared);
    sleep(pause).await;
    going(shared)
}

pub fn going(shared: &Shared) -> Option<()> {
    let mut world = lock(shared);
    for replica in 0..2 {
        let life = world.replicas[replica].life.as_ref();
        if life.is_some_and(|life| life.spins()) {
            let text = || format!("operator {replica} goes round and round, and waits for nothing");
            world.witness.fail("spin", text);
        }
    }
    world.witness.violation.is_none().then_some(())
}

/// Starts a replica as `lynqgate run` does, without its servers.
fn start(shared: &Shared, replica: usize) {
    let mut world = lock(shared);
    let (clock, seed) = (world.clock, world.settings.seed);
    let boot = world.replicas[replica].boot + 1;
    let offset = world.replicas[replica].clock_offset;
    let random = Random::stream(seed, 10 + 2 * u64::from(boot) + replica as u64);
    let life = Life::new(replica, boot, clock, offset, random);
    world.trace(|| format!("operator {replica}.{boot} starts"));
    world.replicas[replica] = Replica {
        boot,
        clock_offset: offset,
        life: Some(life.clone()),
        ..Replica::default()
    };
    let elects = !world.settings.faults.contains(&Fault::TwoLeaders);
    drop(world);
    let task = operate(shared.clone(), life.clone(), elects);
    tokio::spawn(process::within(life, Box::pin(task)));
}

async fn operate(shared: Shared, life: Arc<Life>, elects: bool) {
    let client = network::client(&shared, &life);
    let name = format!("operator-{}.{}", life.replica, life.boot);
    let objects = Objects::new(client.clone());
    let events = Events::start(client, Some(name.clone()));
    let (metrics, mut registry) = (Metrics::default(), Registry::default());
    metrics.register(&mut registry);
    events.register(&mut registry);
    let decisions = Watched {
        shared: shared.clone(),
        life: life.clone(),
    };
    let operator = Operator::new(
        Arc::new(decisions),
        OPERATORS_NAMESPACE,
        objects.clone(),
        events,
        metrics,
        Databases::default(),
    );
    registry.register_collector(Box::new(LynqMetrics {
        world: operator.clone(),
        nodes: true,
    }));
    let webhooks = reviews::webhooks(&shared, &operator, &mut registry);
    lock(&shared).replicas[life.replica].webhooks = Some(webhooks);
    let maintains = lock(&shared).settings.faults.contains(&Fault::Maintenance);
    let maintenance = maintains.then(|| maintenance(&operator, &mut registry));
    process::spawn(scraped(shared.clone(), registry));
    operator.follow_definitions();
    let shards = lock(&shared).settings.shards;
    let mut election = Election::new(objects, OPERATORS_NAMESPACE, shards, name);
    operator.divide(shards);
    let workers = Workers { hubs: 3, nodes: 10 };
    let loops = lead_with(operator.clone(), workers, maintenance);
    if !elects {
        (0..shards).for_each(|shard| operator.take(shard));
        return loops.await;
    }
    tokio::select! {
        biased;
        () = election.run(&*operator) => {}
        () = loops => {}
    }
    lock(&shared).trace(|| format!("operator {}.{} leads no more", life.replica, life.boot));
    life.kill();
}

/// As `lynqgate run --node-maintenance` has it.
fn maintenance(operator: &Arc<Operator>, registry: &mut Registry) -> Arc<Maintenance> {
    let metrics = maintenance::metrics::Metrics::default();
    metrics.register(registry);
    let settings = maintenance::Settings {
        policy: Policy {
            holder: "lynqgate".to_owned(),
            nodes_max: 1,
        },
        allowed: Allowed::default(),
    };
    Maintenance::new(operator.clone(), settings, metrics)
}

/// What Prometheus reads of a process.
async fn scraped(shared: Shared, registry: Registry) {
    loop {
        sleep(SCRAPE).await;
        let mut text = String::new();
        let written = encode(&mut text, &registry);
        written.expect("a text takes what is written");
        lock(&shared).scraped = text;
    }
}

fn kill(world: &mut World, replica: usize) {
    if let Some(life) = world.replicas[replica].life.take() {
        world.trace(|| format!("operator {replica}.{} dies", life.boot));
        life.kill();
    }
}

fn is_alive(world: &World, replica: usize) -> bool {
    let life = world.replicas[replica].life.as_ref();
    life.is_some_and(|life| !life.is_dead())
}

/// Faults and people, now and then. `pause`: until the next moment.
fn chaos(shared: &Shared, pause: Duration, people: fn(&mut World)) {
    let mut world = lock(shared);
    let world = &mut *world;
    let now = Instant::now();
    let millis = |n: usize| Duration::from_millis(n as u64);
    if world.draw(25) == 0 {
        people(world);
    }
    reviews::act(world);
    let two_leaders = world.has(Fault::TwoLeaders);
    let p = world.draw(2);
    if is_alive(world, p) && world.strikes(Fault::Crash, 4) {
        kill(world, p);
    }
    // One that does not elect is there alone, but for the fault.
    let all = (0..2).all(|p| is_alive(world, p));
    let any = (0..2).any(|p| is_alive(world, p));
    let starts = match two_leaders {
        true => (!any && world.draw(20) == 0) || world.strikes(Fault::TwoLeaders, 8),
        false => !all && world.draw(AWAY as usize / pause.as_millis() as usize) == 0,
    };
    if starts && !is_alive(world, p) {
        let shared = shared.clone();
        tokio::spawn(async move { start(&shared, p) });
    }
    // Those that the loops of this seed watch.
    let mut kinds = vec![NODE, HUB, FORM, DEPLOYMENT];
    kinds.extend(world.has(Fault::StatefulSets).then_some(STATEFUL_SET));
    kinds.extend(world.has(Fault::Maintenance).then_some(KUBERNETES_NODE));
    let kind = kinds[world.draw(kinds.len())];
    if world.strikes(Fault::Freeze, 4) {
        // Longer than a lease lasts, now and then.
        let longest = if world.draw(4) == 0 { 30_000 } else { 6_000 };
        let wait = world.draw(longest);
        world.trace(|| format!("operator {p} is frozen for {wait} ms"));
        if let Some(life) = &world.replicas[p].life {
            life.freeze(now + millis(wait));
        }
    }
    if world.strikes(Fault::Lag, 30) {
        let longest = if world.draw(4) == 0 { 40_000 } else { 8_000 };
        let wait = world.draw(longest);
        world.trace(|| format!("operator {p}'s watch of kind {kind} lags for {wait} ms"));
        let stalled = &mut world.replicas[p].stalled;
        let until = now + millis(wait);
        let breaks = false;
        stalled.insert(kind, Stall { until, breaks });
    }
    if world.strikes(Fault::LostWatch, 6) {
        let wait = world.draw(15_000);
        world.trace(|| format!("operator {p}'s watch of kind {kind} breaks in {wait} ms"));
        let stalled = &mut world.replicas[p].stalled;
        let until = now + millis(wait);
        let breaks = true;
        stalled.insert(kind, Stall { until, breaks });
    }
    if world.strikes(Fault::Clock, 5) {
        let offset = world.draw(60_000) as i64 - 30_000;
        world.trace(|| format!("operator {p}'s clock jumps to {offset} ms"));
        world.replicas[p].clock_offset = offset;
        if let Some(life) = &world.replicas[p].life {
            life.set_clock(offset);
        }
    }
    if world.strikes(Fault::Refusals, 5) {
        let answers = [
            (403, "Forbidden"),
            (429, "TooManyRequests"),
            (500, "InternalError"),
            (422, "Invalid"),
        ];
        let all = [Requests::Reads, Requests::Writes, Requests::StatusWrites];
        let (kind, requests) = (kinds[world.draw(kinds.len())], all[world.draw(all.len())]);
        // What is read is never invalid.
        let possible = answers.len() - usize::from(requests == Requests::Reads);
        let answer = answers[world.draw(possible)];
        let wait = world.draw(15_000);
        world.trace(|| format!("{requests:?} of kind {kind} are {answer:?} for {wait} ms"));
        let until = now + millis(wait);
        world.refusing = Some(Refusing {
            kind,
            requests,
            answer,
            until,
        });
    }
    if world.strikes(Fault::WebhookDown, 3) {
        let wait = world.draw(3_000);
        world.trace(|| format!("the webhook is down for {wait} ms"));
        world.webhook_down_until = now + millis(wait);
    }
}

/// The faults stop: one process, watches that deliver, everybody awake.
fn calm_down(shared: &Shared) {
    let mut world = lock(shared);
    let now = Instant::now();
    world.trace(|| "the faults stop".to_owned());
    world.faults_on = false;
    (world.webhook_down_until, world.database_down_until) = (now, now);
    world.refusing = None;
    kill(&mut world, 1);
    let is_there = is_alive(&world, 0);
    if let Some(life) = &world.replicas[0].life {
        life.freeze(now);
    }
    drop(world);
    if !is_there {
        start(shared, 0);
    }
}

/// People do what lynqgate asks them to.
fn follow_advice(world: &mut World) {
    users::confirm(world);
    sets::repair(world);
}

/// Until nobody has written for longer than every interval.
async fn rest(shared: &Shared, people: fn(&mut World)) -> Option<()> {
    let began = Instant::now();
    lock(shared).last_write = began;
    while began.elapsed() < REST_MAX {
        sleep(Duration::from_millis(500)).await;
        going(shared)?;
        let mut world = lock(shared);
        // One that lost its lease is started anew.
        if !is_alive(&world, 0) {
            drop(world);
            start(shared, 0);
            continue;
        }
        people(&mut world);
        if world.last_write.elapsed() > REST {
            return Some(());
        }
    }
    lock(shared).witness.fail("rest", || {
        let minutes = REST_MAX.as_secs() / 60;
        format!("{minutes} minutes after the faults stopped the operator still writes")
    });
    None
}

/// At rest: every held node says why, where `kubectl get` shows it.
fn reasons_are_shown(world: &mut World) {
    let is_silent = |name: &String| {
        let node = world.get(NODE, name)?;
        let conditions = node.value["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        let shown = conditions
            .any(|c| c["type"] == "Held" && c["status"] == "True" && c["reason"] != "Releasing");
        let seen = world.witness.nodes.get(name)?;
        let has_form = world.get(FORM, &seen.form).is_some();
        (seen.reading.held && !seen.deleting && has_form && !shown).then(|| name.clone())
    };
    let silent = world.names(NODE).iter().find_map(is_silent);
    if let Some(node) = silent {
        world.witness.fail("reason", || {
            format!("{node} is held, everything is at rest, and its status does not say why")
        });
    }
}

/// Everything that people want is there, ready, and said to be so; and no slot is left.
fn completed(world: &mut World) {
    let forms = world.names(FORM);
    let mut wanted = BTreeSet::new();
    for form in &forms {
        for (uid, _) in world.rows.iter().filter(|(_, active)| **active) {
            wanted.insert(format!("{uid}-{form}"));
        }
    }
    let there: BTreeSet<String> = world.names(NODE).into_iter().collect();
    let mut problems: Vec<String> = wanted
        .symmetric_difference(&there)
        .map(|name| format!("{name} is missing or too much"))
        .collect();
    for (name, node) in &world.witness.nodes {
        let image = forms
            .contains(&node.form)
            .then(|| world.users.image(&node.form));
        let child = world.get(DEPLOYMENT, name);
        let runs = child.map(|child| Workload::of(&child).image);
        let is_newest = |image: &str| {
            let runs = runs.as_deref();
            runs.is_some_and(|runs| runs.split(' ').next() == Some(image))
        };
        if node.reading.held {
            problems.push(format!("{name} is held still"));
        } else if !node.reading.settled {
            problems.push(format!("{name} is not settled"));
        } else if runs != node.reading.live_image || !image.is_some_and(is_newest) {
            problems.push(format!("{name} runs {runs:?}, not {image:?}"));
        }
    }
    problems.extend(sets::problems(world));
    problems.extend(machines::problems(world));
    let counts =
        ["held", "in_flight", "non_ready"].map(|of| format!("lynqgate_rollout_{of}_nodes{{"));
    let counted = world.scraped.lines().find(|line| {
        let counts = counts.iter().any(|count| line.starts_with(count));
        counts && !line.ends_with(" 0")
    });
    problems.extend(counted.map(|line| format!("the metrics say {line}")));
    let slots = world.witness.slots.len();
    if slots > 0 {
        problems.push(format!("the ledger has {slots} slots still"));
    }
    for form in &forms {
        let object = world.get(FORM, form).expect("it is there");
        let status = &object.value["status"];
        let phase = status["rollout"]["phase"].as_str();
        let is_over = phase.is_some_and(|phase| ["Complete", "Idle"].contains(&phase));
        if !is_over || status["observedGeneration"] != object.value["metadata"]["generation"] {
            problems.push(format!("form {form} says {status}"));
        }
    }
    if let Some(first) = problems.first() {
        let text = format!("{first} ({} such)", problems.len());
        world.witness.fail("progress", || text);
    }
}

/// A restart beside a complete fleet writes nothing. (That syncs do not is known by now: nothing was written while it rested.)
async fn restarts_idle(shared: &Shared) -> Option<()> {
    let before = lock(shared).writes;
    kill(&mut lock(shared), 0);
    start(shared, 0);
    rest(shared, |_| {}).await?;
    let writes = lock(shared).writes - before;
    if writes > 0 {
        lock(shared).witness.fail("idle", || {
            format!("a restart beside a complete fleet costs {writes} writes")
        });
    }
    going(shared)
}
