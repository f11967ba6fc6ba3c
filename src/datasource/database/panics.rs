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

/// From now on no panic within a driver is printed. A panic of this program's own code, also of what it does with a row, still is.
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

/// What a driver's work ends with; None where it panics.
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
