//! Ends the process if it cannot go on: a background task panicked, or its memory may be corrupt. The pod then restarts it.

use std::future::Future;
use std::sync::{LockResult, MutexGuard, RwLockReadGuard, RwLockWriteGuard};

use tokio::task::JoinError;

use crate::cluster::process;

/// The exit status then (EX_SOFTWARE of sysexits.h).
const CANNOT_GO_ON: i32 = 70;

/// Runs the future in the background; if it panics, the process ends.
pub fn spawn(future: impl Future<Output = ()> + Send + 'static) {
    let task = process::spawn(future);
    process::spawn(async move { check(task.await) });
}

/// Ends the process if the task panicked; the panic itself is in the log already. What a queue works on is not among these.
pub fn check(ended: Result<(), JoinError>) {
    if ended.is_err_and(|error| error.is_panic()) {
        end("a part of lynqgate failed inside");
    }
}

pub fn end(why: &str) -> ! {
    tracing::error!("{why}; the process ends, and its pod restarts it");
    process::end_with(CANNOT_GO_ON, why)
}

/// A lock around something that the process remembers. A panic under the lock may leave a change half made, and no decision may
/// use that, so the process ends. Rendering, planning, requests and the digests of LynqNodes run without a lock.
#[derive(Debug, Default)]
pub struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Mutex(std::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        unharmed(self.0.lock())
    }
}

/// As [`Mutex`], with many readers.
#[derive(Debug, Default)]
pub struct RwLock<T>(std::sync::RwLock<T>);

impl<T> RwLock<T> {
    pub fn new(value: T) -> Self {
        RwLock(std::sync::RwLock::new(value))
    }

    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        unharmed(self.0.read())
    }

    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        unharmed(self.0.write())
    }
}

fn unharmed<Guard>(locked: LockResult<Guard>) -> Guard {
    locked.unwrap_or_else(|_| end("a part of lynqgate failed inside while it changed its memory"))
}
