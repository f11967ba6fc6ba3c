//! A driver may panic on packets that no honest server sends. Such a panic is an error like any other: it is caught here, and
//! printed nowhere, since its text may be the server's.

use std::cell::Cell;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, set_hook, take_hook};
use std::pin::pin;

use futures::FutureExt;

thread_local! {
    static IN_DRIVER: Cell<bool> = const { Cell::new(false) };
}

/// Installs a panic hook that prints no panic of a driver. It still prints panics of this program's own code, also while that
/// code handles a row.
pub fn hide() {
    let print = take_hook();
    set_hook(Box::new(move |panic| {
        let ours = |file: &str| file.starts_with("src/");
        let ours = panic.location().is_none_or(|place| ours(place.file()));
        if ours || !IN_DRIVER.get() {
            print(panic);
        }
    }));
}

/// The result of a driver's work; None if it panics.
pub async fn caught<T>(work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(AssertUnwindSafe(work).catch_unwind());
    let outcome = poll_fn(|task| {
        let outer = IN_DRIVER.replace(true);
        let polled = work.as_mut().poll(task);
        IN_DRIVER.set(outer);
        polled
    });
    outcome.await.ok()
}
