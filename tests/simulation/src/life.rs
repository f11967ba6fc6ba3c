//! A process of the operator, from its start to its end: its clock, its chance, and whether its tasks run.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use jiff::Timestamp;
use lynqgate::api::hub::Slot;
use lynqgate::cluster::process::{Simulated, Task};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::api::store::KINDS;
use crate::random::Random;
use crate::time::Clock;
use crate::witness::{LifeId, View};

/// More tasks than a process has anything to do for at one moment.
const SPINS: u64 = 100_000;

pub struct Life {
    /// Which of the replicas, and which of its lives.
    pub replica: usize,
    pub boot: u32,
    clock: Clock,
    /// How far its wall clock is ahead of the API server's, in milliseconds.
    pub clock_offset: AtomicI64,
    random: Mutex<Random>,
    dead: AtomicBool,
    frozen_until: Mutex<Instant>,
    /// When a task of it ran last, and how many have run since without a moment passing.
    ran: Mutex<(u64, u64)>,
    /// By kind: up to which revision its watch has told it.
    told: [AtomicU64; KINDS.len()],
    /// The same before the moment of the last change of it, and that moment.
    told_before: Mutex<[(u64, u64); KINDS.len()]>,
    lists: [AtomicU64; KINDS.len()],
    /// What it knew when it decided last: of releases, of a sync, of a node.
    pub views: Mutex<Views>,
}

#[derive(Default)]
pub struct Views {
    pub releases: View,
    /// By node: on which view its last release was planned, and at which revision. Later passes do not wait for the release.
    pub sent: BTreeMap<String, (View, u64)>,
    /// Every node had been looked at when it decided.
    pub surveyed: bool,
    /// The ledger that the releases were decided on.
    pub slots: Vec<Slot>,
    pub sync: View,
    pub nodes: BTreeMap<String, View>,
}

impl Life {
    pub fn new(
        replica: usize,
        boot: u32,
        clock: Clock,
        clock_offset: i64,
        random: Random,
    ) -> Arc<Self> {
        Arc::new(Life {
            replica,
            boot,
            clock,
            clock_offset: AtomicI64::new(clock_offset),
            random: Mutex::new(random),
            dead: AtomicBool::new(false),
            frozen_until: Mutex::new(clock.start),
            ran: Mutex::default(),
            told: Default::default(),
            told_before: Mutex::default(),
            lists: Default::default(),
            views: Mutex::default(),
        })
    }

    pub fn id(&self) -> LifeId {
        LifeId {
            process: self.replica,
            boot: self.boot,
        }
    }

    pub fn told(&self, kind: usize) -> u64 {
        self.told[kind].load(Ordering::Relaxed)
    }

    /// How often it has listed the kind before.
    pub fn lists(&self, kind: usize) -> u64 {
        self.lists[kind].fetch_add(1, Ordering::Relaxed)
    }

    /// The same, without what its watch tells it at this very moment: what it asks itself right before a write may come before
    /// that.
    pub fn told_before_now(&self, kind: usize) -> u64 {
        let (before, at) = self.told_before.lock().expect("no panic under it")[kind];
        match at == self.clock.elapsed() {
            true => before,
            false => self.told(kind),
        }
    }

    pub fn tell(&self, kind: usize, revision: u64) {
        let now = self.clock.elapsed();
        let before = self.told[kind].swap(revision, Ordering::Relaxed);
        let told_before = &mut self.told_before.lock().expect("no panic under it")[kind];
        if told_before.1 != now {
            *told_before = (before, now);
        }
    }

    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    pub fn kill(&self) {
        self.dead.store(true, Ordering::Relaxed);
    }

    pub fn set_clock(&self, offset: i64) {
        self.clock_offset.store(offset, Ordering::Relaxed);
    }

    pub fn freeze(&self, until: Instant) {
        *self.frozen_until.lock().expect("no panic under it") = until;
    }

    /// It has done so much without waiting for anything that it never will.
    pub fn spins(&self) -> bool {
        self.ran.lock().expect("no panic under it").1 > SPINS
    }

    fn note_run(&self) {
        let now = self.clock.elapsed();
        let mut ran = self.ran.lock().expect("no panic under it");
        match ran.0 == now {
            true => ran.1 += 1,
            false => *ran = (now, 0),
        }
        if ran.1 > SPINS {
            self.kill();
        }
    }

    pub fn was_frozen_since(&self, start: Instant) -> bool {
        self.frozen_until() > start
    }

    fn frozen_until(&self) -> Instant {
        *self.frozen_until.lock().expect("no panic under it")
    }
}

impl Simulated for Life {
    fn wall_clock(&self) -> Timestamp {
        self.clock.now(self.clock_offset.load(Ordering::Relaxed))
    }

    fn run(self: Arc<Self>, task: Task) -> Task {
        Box::pin(Running {
            life: self,
            task,
            thaw: None,
        })
    }

    fn random(&self, bytes: &mut [u8]) {
        let mut random = self.random.lock().expect("no panic under it");
        bytes.fill_with(|| random.draw() as u8);
    }

    fn end(&self) {
        self.kill();
    }
}

/// A task that runs while its process does. Of a process that has ended it goes when it would run next.
struct Running {
    life: Arc<Life>,
    task: Task,
    thaw: Option<Pin<Box<Sleep>>>,
}

impl Future for Running {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.life.is_dead() {
            return Poll::Ready(());
        }
        let until = self.life.frozen_until();
        if until > Instant::now() {
            let thaw = self
                .thaw
                .get_or_insert_with(|| Box::pin(sleep_until(until)));
            thaw.as_mut().reset(until);
            if thaw.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
        }
        self.thaw = None;
        self.life.note_run();
        self.task.as_mut().poll(context)
    }
}
