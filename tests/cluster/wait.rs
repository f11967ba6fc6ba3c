//! Waiting for a state of the world with a deadline, in place of sleeping and hoping.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

/// A call of a probe that takes longer is given up and made again: a server may accept a connection and not answer.
const PROBE: Duration = Duration::from_secs(5);

/// The shortest and the longest pause between two calls of a probe. The pause grows with the time waited, because many tests share
/// the API server and the processors.
const REST: (Duration, Duration) = (Duration::from_millis(25), Duration::from_millis(250));

/// Calls `probe` until it answers `Ok`. Its error says what is still missing; the last one stands in the error after
/// the deadline.
pub async fn until<T>(
    what: &str,
    deadline: Duration,
    mut probe: impl AsyncFnMut() -> Result<T>,
) -> Result<T> {
    let started = Instant::now();
    let mut missing = anyhow!("no answer");
    loop {
        let left = deadline.saturating_sub(started.elapsed());
        if left.is_zero() {
            return Err(missing.context(format!("waited {deadline:?} in vain for: {what}")));
        }
        match tokio::time::timeout(left.min(PROBE), probe()).await {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(error)) => missing = error,
            Err(_) => {}
        }
        let rest = (started.elapsed() / 20).clamp(REST.0, REST.1);
        tokio::time::sleep(rest).await;
    }
}
