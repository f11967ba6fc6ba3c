//! What the operator takes from its process: tasks, the wall clock, random bytes and the exit. The simulation runs several
//! operators on one thread of one process, and gives each its own.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use jiff::Timestamp;
use rustls::crypto::aws_lc_rs;
use tokio::task::{JoinHandle, JoinSet, block_in_place, spawn_blocking};

pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A process of the simulation.
pub trait Simulated: Send + Sync {
    fn wall_clock(&self) -> Timestamp;
    /// Wraps a task so that it pauses while its process is frozen, and stops when the process ends.
    fn run(self: Arc<Self>, task: Task) -> Task;
    fn random(&self, bytes: &mut [u8]);
    /// Stops everything that the process runs.
    fn end(&self);
}

tokio::task_local! {
    static SIMULATED: Arc<dyn Simulated>;
}

/// The simulated process of the current task; None outside the simulation.
pub fn simulated() -> Option<Arc<dyn Simulated>> {
    SIMULATED.try_with(Arc::clone).ok()
}

/// A task of the simulated process.
pub fn within(process: Arc<dyn Simulated>, task: Task) -> Task {
    Box::pin(SIMULATED.scope(process.clone(), process.run(task)))
}

/// Runs a task in the background until it or the process ends.
pub fn spawn(task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    match simulated() {
        None => tokio::spawn(task),
        Some(process) => tokio::spawn(within(process, Box::pin(task))),
    }
}

/// The same; the task ends when the set is dropped.
pub fn spawn_in(set: &mut JoinSet<()>, task: impl Future<Output = ()> + Send + 'static) {
    match simulated() {
        None => set.spawn(task),
        Some(process) => set.spawn(within(process, Box::pin(task))),
    };
}

/// Runs work that takes a while, without delaying other tasks.
pub fn compute<T>(work: impl FnOnce() -> T) -> T {
    match simulated() {
        None => block_in_place(work),
        Some(_) => work(),
    }
}

/// Runs work that takes long on a thread of its own, to its end even when the caller no longer waits. None: it panicked.
pub async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    match simulated() {
        None => spawn_blocking(work).await.ok(),
        Some(_) => Some(work()),
    }
}

/// Fills `bytes` with random ones; returns false where the system gives none.
pub fn random(bytes: &mut [u8]) -> bool {
    match simulated() {
        None => {
            let provider = aws_lc_rs::default_provider();
            provider.secure_random.fill(bytes).is_ok()
        }
        Some(process) => {
            process.random(bytes);
            true
        }
    }
}

pub fn end_with(status: i32, why: &str) -> ! {
    match simulated() {
        None => std::process::exit(status),
        Some(process) => {
            process.end();
            panic!("the simulated process has ended: {why}")
        }
    }
}
