//! How long to wait before the next try, by how many failed in a row. Every retry of the loops takes its waits from here.

use std::time::Duration;

/// Each wait is `FACTOR` times the one before it, up to the longest.
const FACTOR: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    pub first: Duration,
    pub longest: Duration,
}

const fn seconds(first: u64, longest: u64) -> Backoff {
    Backoff {
        first: Duration::from_secs(first),
        longest: Duration::from_secs(longest),
    }
}

impl Backoff {
    /// The reconcile of a key panicked. The same input panics again, so it waits long.
    pub const PANIC: Backoff = seconds(30, 600);
    /// Another writer was faster.
    pub const CONFLICT: Backoff = Backoff {
        first: Duration::from_millis(200),
        longest: Duration::from_millis(200),
    };
    /// A node could not be reconciled.
    pub const NODE: Backoff = seconds(2, 30);
    /// A resource could not be applied. Nothing tells when a webhook, a quota or another owner gives way.
    pub const APPLY: Backoff = seconds(2, 60);
    /// A hub's write failed, and its sync may go through next time. Nobody waits long once the API server is back.
    pub const HUB: Backoff = seconds(2, 15);
    /// The API server refused a hub's write.
    pub const HUB_REFUSED: Backoff = seconds(2, 60);
    /// The API server did not take a release, a ledger or a status.
    pub const RELEASE: Backoff = seconds(1, 30);
    /// The API server did not take a step of a partition, or did not answer what it needs.
    pub const PARTITION: Backoff = seconds(1, 30);
    /// A step of a Kubernetes node's maintenance failed. Its Lease leaves 30 s to end a maintenance.
    pub const MAINTENANCE: Backoff = seconds(1, 15);
    /// No event tells when a right is granted, a kind is installed, an object changes its owner or a finalizer is removed.
    pub const NO_EVENT: Backoff = seconds(30, 30);
    /// Something could not be asked, and the rest went on without it.
    pub const UNASKED: Backoff = seconds(10, 10);

    /// The wait after so many failures in a row; the first one is 1.
    pub fn after(self, failures: u32) -> Duration {
        let factor = FACTOR.saturating_pow(failures.saturating_sub(1));
        self.first.saturating_mul(factor).min(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let waits = |backoff: Backoff, failures: &[u32]| -> Vec<u64> {
            let waits = failures.iter().map(|n| backoff.after(*n).as_secs());
            waits.collect()
        };
        let failures = [0, 1, 2, 3, 5, 6, 7, 1_000, u32::MAX];
        assert_eq!(
            waits(Backoff::PANIC, &failures),
            [30, 30, 60, 120, 480, 600, 600, 600, 600]
        );
        assert_eq!(
            waits(Backoff::RELEASE, &failures),
            [1, 1, 2, 4, 16, 30, 30, 30, 30]
        );
        assert_eq!(waits(Backoff::NO_EVENT, &failures), [30; 9]);
    }
}
