//! What the operator cannot go on without: tasks that do not fail inside, and a memory that is true. Else the process ends,
//! so that it starts anew.

use std::future::Future;

use tokio::task::JoinError;

/// The exit status then (EX_SOFTWARE of sysexits.h).
const CANNOT_GO_ON: i32 = 70;

/// Runs the future in the background.
pub fn spawn(future: impl Future<Output = ()> + Send + 'static) {
    let task = tokio::spawn(future);
    tokio::spawn(async move { check(task.await) });
}

/// Ends the process if the task panicked; the panic itself is in the log already.
pub fn check(ended: Result<(), JoinError>) {
    if ended.is_err_and(|error| error.is_panic()) {
        end("a part of lynqgate failed inside");
    }
}

/// Ends the process.
pub fn end(why: &str) -> ! {
    tracing::error!("{why}; the process ends, and its pod starts it anew");
    std::process::exit(CANNOT_GO_ON);
}
