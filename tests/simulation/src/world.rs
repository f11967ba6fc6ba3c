//! All there is outside of the operator's processes: the API server's store, people, time, chance, the witness and the trace.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::Router;
use lynqgate::api::names;
use lynqgate_plants::Plant;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{Duration, Instant};

use crate::admission::Gate;
use crate::api::requests::{self, Call, Page, Refused, Verb};
use crate::api::store::{
    ACCESS_REVIEW, CONFIG_MAP, DEPLOYMENT, EVENT, FORM, HUB, KINDS, Key, LEASE, NODE,
    OWN_ACCESS_REVIEW, Object, STATEFUL_SET, Store,
};
use crate::life::Life;
use crate::machines::{self, Machines};
use crate::network::{Lag, Way};
use crate::random::Random;
use crate::reverts::Reverts;
use crate::reviews::{self, Reviews};
use crate::sets::Sets;
use crate::settings::{Fault, Settings};
use crate::time::Clock;
use crate::users::Users;
use crate::witness::{Author, View, Witness, Workload};

pub const NAMESPACE: &str = "shop";
pub const TENANTS: &str = "hub";
pub const OPERATORS_NAMESPACE: &str = "lynq-system";
pub const OPERATOR: &str = "system:serviceaccount:lynq-system:lynqgate";
const ALICE: &str = "alice";

fn key_of(kind: usize, name: &str) -> Key {
    let namespace = if KINDS[kind].namespaced {
        NAMESPACE
    } else {
        ""
    };
    (namespace.to_owned(), name.to_owned())
}

pub type Shared = Arc<Mutex<World>>;

pub fn lock(shared: &Shared) -> MutexGuard<'_, World> {
    shared.lock().expect("no panic under it")
}

/// What a replica is at the moment.
#[derive(Default)]
pub struct Replica {
    pub boot: u32,
    pub clock_offset: i64,
    pub life: Option<Arc<Life>>,
    /// Of forms and hubs, once they are served.
    pub webhooks: Option<Router>,
    /// By kind: what becomes of its watch.
    pub stalled: BTreeMap<usize, Stall>,
}

/// A watch delivers nothing until then; and breaks then, or goes on.
#[derive(Clone, Copy)]
pub struct Stall {
    pub until: Instant,
    pub breaks: bool,
}

/// The API server refuses some requests of a kind.
pub struct Refusing {
    pub kind: usize,
    pub requests: Requests,
    pub answer: (u16, &'static str),
    pub until: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requests {
    /// Gets, lists, and the starts of watches.
    Reads,
    Writes,
    StatusWrites,
}

impl Requests {
    fn of(call: &Call) -> Self {
        match (call.is_read(), call.of_status) {
            (true, _) => Requests::Reads,
            (false, true) => Requests::StatusWrites,
            (false, false) => Requests::Writes,
        }
    }
}

impl Refusing {
    pub fn refused(&self, call: &Call) -> Option<Refused> {
        let is_it = call.kind == self.kind && Requests::of(call) == self.requests;
        let (code, reason) = self.answer;
        (is_it && self.until > Instant::now())
            .then(|| Refused::new(code, reason, "refused by the simulation"))
    }
}

pub struct World {
    pub settings: Settings,
    pub clock: Clock,
    pub store: Store,
    /// By kind: that there are more events. (tokio's `watch` wakes those who wait in a random order.)
    pub news: Vec<Arc<Notify>>,
    /// Of the order in which things happen.
    pub random: Random,
    /// Of faults, so that one class less shifts the others as little as may be.
    pub chance: Random,
    pub users: Users,
    pub sets: Sets,
    pub machines: Machines,
    pub reviews: Reviews,
    pub reverts: Reverts,
    pub witness: Witness,
    pub replicas: [Replica; 2],
    pub rows: BTreeMap<String, bool>,
    pub faults_on: bool,
    /// How often each class of faults struck.
    pub struck: BTreeMap<Fault, u64>,
    pub tracing: bool,
    pub lines: Vec<String>,
    pub requests: u64,
    /// Writes that processes asked for, events and leases aside.
    pub writes: u64,
    pub last_write: Instant,
    pub webhook_down_until: Instant,
    pub database_down_until: Instant,
    pub refusing: Option<Refusing>,
    /// The metrics of the process that was scraped last.
    pub scraped: String,
    /// How many deletions the last sync held back.
    pub deletions_held: Option<u64>,
}

impl World {
    pub fn new(settings: Settings, tracing: bool) -> Self {
        let (seed, clock) = (settings.seed, Clock::start());
        World {
            settings,
            clock,
            store: Store::default(),
            news: KINDS.iter().map(|_| Arc::default()).collect(),
            random: Random::stream(seed, 1),
            chance: Random::stream(seed, 2),
            users: Users::new(Random::stream(seed, 3)),
            sets: Sets::new(Random::stream(seed, 4)),
            machines: Machines::new(Random::stream(seed, 7)),
            reviews: Reviews::new(Random::stream(seed, 6)),
            reverts: Reverts::new(Random::stream(seed, 8)),
            witness: Witness::default(),
            replicas: [Replica::default(), Replica::default()],
            rows: BTreeMap::new(),
            faults_on: true,
            struck: BTreeMap::new(),
            tracing,
            lines: vec![],
            requests: 0,
            writes: 0,
            last_write: clock.start,
            webhook_down_until: clock.start,
            database_down_until: clock.start,
            refusing: None,
            scraped: String::new(),
            deletions_held: None,
        }
    }

    pub fn trace(&mut self, line: impl FnOnce() -> String) {
        if self.tracing {
            let time = self.clock.elapsed();
            self.lines.push(format!("{time:>8} ms  {}", line()));
        }
    }

    pub fn planted(&self, plant: Plant) -> bool {
        self.settings.mutant == Some(plant)
    }

    pub fn has(&self, fault: Fault) -> bool {
        self.faults_on && self.settings.faults.contains(&fault)
    }

    pub fn strikes(&mut self, fault: Fault, permille: u32) -> bool {
        let strikes = self.has(fault) && self.chance.permille(permille);
        if strikes {
            self.count(fault);
        }
        strikes
    }

    pub fn count(&mut self, fault: Fault) {
        *self.struck.entry(fault).or_default() += 1;
    }

    pub fn draw(&mut self, n: usize) -> usize {
        self.chance.below(n)
    }

    // What processes see

    /// Up to which revision a process has seen all events of these kinds; None if it misses no event.
    fn behind(&self, told: impl Fn(usize) -> u64, kinds: &[usize]) -> Option<u64> {
        let seen_until = |kind: &usize| self.store.log[*kind].seen_until(told(*kind));
        kinds.iter().filter_map(seen_until).min()
    }

    /// Since which revision everything that it knows holds.
    pub fn view(&self, life: &Life) -> View {
        let told = |kind| life.told(kind);
        let behind = self.behind(told, &[NODE, HUB, FORM]);
        View {
            since: behind.unwrap_or(self.store.revision),
            said: 0,
            current: behind.is_none() && self.behind(told, &[DEPLOYMENT]).is_none(),
        }
    }

    /// Since which revision the hub and its forms say what they say as far as it knows.
    pub fn said_since(&self, life: &Life) -> u64 {
        let behind = self.behind(|kind| life.told_before_now(kind), &[HUB, FORM]);
        behind.unwrap_or(self.store.revision)
    }

    /// The workload as the watch of a process has told of it.
    pub fn told(&self, life: &Life, key: &Key) -> Option<Workload> {
        let told = life.told(DEPLOYMENT);
        let last = self.store.log[DEPLOYMENT].last_of(key, told)?;
        (!last.deleted).then(|| Workload::of(&last.object))
    }

    // The way of requests

    pub fn way(&mut self, call: &Call) -> Way {
        self.requests += 1;
        let late = self.strikes(Fault::LateRequest, 8);
        let slow = self.strikes(Fault::SlowReply, 150);
        let is_write = !call.is_read();
        Way {
            there: match late {
                true => self.draw(20_000) as u64,
                false => 1 + self.random.below(6) as u64,
            },
            back: match slow {
                true => self.draw(2_000) as u64,
                false => 1 + self.random.below(6) as u64,
            },
            is_lost: self.strikes(Fault::Unreachable, 15),
            reply_is_lost: is_write && self.strikes(Fault::LostReply, 25),
            is_silent: self.draw(4) == 0,
        }
    }

    pub fn lag(&mut self, life: &Life, kind: usize) -> Lag {
        let now = Instant::now();
        let replica = &mut self.replicas[life.replica];
        if let Some(stall) = replica.stalled.remove(&kind) {
            let wait = stall.until.saturating_duration_since(now).as_millis() as u64;
            return match (stall.breaks, self.draw(2)) {
                (false, _) => Lag::Millis(wait),
                (true, 0) => Lag::Dropped(wait),
                (true, _) => Lag::Gone(wait),
            };
        }
        Lag::Millis(1 + self.random.below(12) as u64)
    }

    /// A page of a list.
    pub fn list(&mut self, life: &Life, call: &Call) -> Result<String, Refused> {
        let at = match call.query.get("continue") {
            None => {
                let events = self.listed(life, call);
                Page::first(&self.store, call, events)
            }
            Some(_) if self.strikes(Fault::Pages, 30) => return Err(requests::expired()),
            Some(token) => Page::named(token).ok_or_else(requests::expired)?,
        };
        let most = match self.strikes(Fault::Pages, 300) {
            true => 1 + self.draw(16),
            false => usize::MAX,
        };
        requests::list(&self.store, call, &at, most)
    }

    /// How many events ago a list is made.
    fn listed(&mut self, life: &Life, call: &Call) -> usize {
        // What the loops list themselves is consistent: of one namespace, or, when they begin to lead, of hubs and forms.
        let is_first = life.lists(call.kind) == 0;
        let is_watchs = match call.kind {
            NODE | DEPLOYMENT | STATEFUL_SET => call.key.0.is_empty(),
            HUB | FORM => is_first,
            _ => false,
        };
        if !is_watchs || !self.strikes(Fault::StaleList, 400) {
            return 0;
        }
        let behind = self.draw(100);
        // Who answers with an old list sends its events late as well.
        let until = Instant::now() + Duration::from_millis(self.draw(4_000) as u64);
        let stalled = &mut self.replicas[life.replica].stalled;
        let breaks = false;
        stalled.insert(call.kind, Stall { until, breaks });
        self.trace(|| {
            format!(
                "a list of {} is {behind} events old",
                KINDS[call.kind].plural
            )
        });
        behind
    }

    /// How the API server refuses this request, if it does.
    pub fn refused(&self, call: &Call) -> Option<Refused> {
        self.refusing.as_ref()?.refused(call)
    }

    /// A request of the operator.
    pub fn execute(&mut self, author: &Author, call: &Call) -> Result<Arc<Object>, Refused> {
        if [ACCESS_REVIEW, OWN_ACCESS_REVIEW].contains(&call.kind) {
            return Ok(reviews::access(self, call));
        }
        if call.kind == LEASE && call.body["metadata"]["annotations"][names::WANTED_BY].is_string()
        {
            self.count(Fault::Shards);
        }
        if !call.is_read() && ![LEASE, EVENT].contains(&call.kind) && !call.is_dry_run() {
            if author.for_review {
                let text = || format!("what is only tried is stored: {}", call.shown());
                self.witness.fail("trial", text);
            }
            self.writes += 1;
            self.last_write = Instant::now();
        }
        if call.kind == CONFIG_MAP && self.database_down_until > Instant::now() {
            return Err(Refused::unavailable());
        }
        if let Some(refused) = self.refused(call) {
            return Err(refused);
        }
        if call.evicts && !machines::may_evict(self, call) {
            return Err(Refused {
                causes: json!([{"reason": "DisruptionBudget", "message": "refused by the simulation"}]),
                ..Refused::new(
                    429,
                    "TooManyRequests",
                    "Cannot evict pod as it would violate the pod's disruption budget.",
                )
            });
        }
        let namespace = call.key.0.as_str();
        let is_new = matches!(call.verb, Verb::Create | Verb::Apply);
        if is_new && !["", NAMESPACE, OPERATORS_NAMESPACE].contains(&namespace) {
            return Err(Refused::not_found(format!(
                "namespaces {namespace:?} not found"
            )));
        }
        let author = Author {
            for_gone: call.kind == DEPLOYMENT && self.witness.is_for_gone(&call.body),
            ..*author
        };
        let answer = self.write(OPERATOR, call, Some(author))?;
        let revision = self.store.revision;
        match (call.kind, call.verb) {
            (DEPLOYMENT, Verb::Get) if !author.for_review => {
                let child = Workload::of(&answer);
                self.witness.child_read(revision, author.life, &child);
            }
            (FORM, _) if call.of_status => {
                let name = answer.text_of("name");
                self.witness
                    .form_said(revision, name, &answer.value["status"], author.view);
            }
            _ => {}
        }
        Ok(answer)
    }

    /// A request by anybody.
    fn write(
        &mut self,
        user: &str,
        call: &Call,
        author: Option<Author>,
    ) -> Result<Arc<Object>, Refused> {
        let gated = [NODE, STATEFUL_SET].contains(&call.kind)
            && !call.of_status
            && !matches!(call.verb, Verb::Get | Verb::Delete);
        if gated && self.webhook_down_until > Instant::now() {
            let why = "failed calling webhook \"gate.lynq.sh\": context deadline exceeded";
            return Err(Refused::new(500, "InternalError", why));
        }
        let replica = self.chance.below(2);
        let mut gate = Gate {
            user,
            now: self.clock.now(self.replicas[replica].clock_offset),
            reinvoked: gated && self.strikes(Fault::Reinvocation, 300),
            mutant: self.settings.mutant,
        };
        let now = self.clock.stamp();
        let written = requests::execute(&mut self.store, call, &now, &mut gate)?;
        let (before, now) = (written.before.as_deref(), written.now.as_deref());
        let is_news = match (before, now) {
            (Some(before), Some(now)) => before.version() != now.version(),
            (None, None) => false,
            _ => true,
        };
        if is_news {
            let revision = self.store.revision;
            self.witness.past_gate = !gated;
            self.witness.saw(revision, call.kind, (before, now), author);
            self.news[call.kind].notify_waiters();
        }
        Ok(written.answer)
    }

    // What people and controllers do

    pub fn get(&self, kind: usize, name: &str) -> Option<Arc<Object>> {
        self.store.get(kind, &key_of(kind, name))
    }

    pub fn names(&self, kind: usize) -> Vec<String> {
        self.store
            .all(kind)
            .keys()
            .map(|(_, name)| name.clone())
            .collect()
    }

    /// Somebody reads an object and writes it back, through every webhook.
    pub fn edit(&mut self, kind: usize, name: &str, change: impl FnOnce(&mut Value)) -> bool {
        let Some(object) = self.get(kind, name) else {
            return false;
        };
        let mut new = object.value.clone();
        change(&mut new);
        self.by_alice(Verb::Replace, kind, name, new).is_ok()
    }

    pub fn create(&mut self, kind: usize, name: &str, object: Value) -> bool {
        self.by_alice(Verb::Create, kind, name, object).is_ok()
    }

    pub fn delete(&mut self, kind: usize, name: &str) {
        // Who deletes what is not there has what she wants.
        let _ = self.by_alice(Verb::Delete, kind, name, json!({}));
    }

    fn by_alice(
        &mut self,
        verb: Verb,
        kind: usize,
        name: &str,
        body: Value,
    ) -> Result<Arc<Object>, Refused> {
        let call = Call {
            verb,
            kind,
            key: key_of(kind, name),
            of_status: false,
            evicts: false,
            query: BTreeMap::from([("fieldManager".to_owned(), "kubectl-edit".to_owned())]),
            metadata_only: false,
            body,
        };
        self.write(ALICE, &call, None)
    }

    /// Stores an object, or changes it, status and all, by somebody whom no webhook sees.
    pub fn put(&mut self, kind: usize, name: &str, change: impl FnOnce(&mut Value)) {
        let key = key_of(kind, name);
        let before = self.store.get(kind, &key);
        let mut value = match &before {
            Some(before) => before.value.clone(),
            None => {
                let mut metadata = json!({"name": name});
                if KINDS[kind].namespaced {
                    metadata["namespace"] = NAMESPACE.into();
                }
                let api_version = KINDS[kind].api_version();
                json!({"apiVersion": api_version, "kind": KINDS[kind].kind, "metadata": metadata})
            }
        };
        change(&mut value);
        let now = self.clock.stamp();
        if before.is_none() {
            self.store.born(&mut value, &now);
        }
        let stored = self.store.put(kind, &key, value);
        if before
            .as_ref()
            .is_none_or(|before| before.version() != stored.version())
        {
            let revision = self.store.revision;
            self.witness.past_gate = true;
            self.witness
                .saw(revision, kind, (before.as_deref(), Some(&stored)), None);
            self.news[kind].notify_waiters();
            reviews::written(self, kind, before.as_deref(), &stored);
        }
    }

    /// The garbage collector.
    pub fn collect(&mut self, kind: usize, key: &(String, String)) {
        let Some(before) = self.store.get(kind, key) else {
            return;
        };
        self.store.remove(kind, key);
        let revision = self.store.revision;
        self.witness
            .saw(revision, kind, (Some(&before), None), None);
        self.news[kind].notify_waiters();
    }

    /// How many deletions people have confirmed.
    pub fn confirmation(&self) -> Option<String> {
        let hub = self.get(HUB, TENANTS)?;
        let value = hub.value["metadata"]["annotations"][names::CONFIRM_DELETIONS].as_str();
        value.map(str::to_owned)
    }

    /// The rows as the operator reads them.
    pub fn put_rows(&mut self) {
        let mut text = "id,active\n".to_owned();
        for (uid, active) in &self.rows {
            text.push_str(&format!("{uid},{active}\n"));
        }
        self.put(CONFIG_MAP, "rows", |rows| {
            rows["data"] = json!({"rows.csv": text})
        });
    }
}

/// Returns once there are more than so many events of the kind.
pub async fn more_than(shared: &Shared, kind: usize, count: usize) {
    let news = lock(shared).news[kind].clone();
    loop {
        let told = news.notified();
        if lock(shared).store.log[kind].len() > count {
            return;
        }
        told.await;
    }
}
