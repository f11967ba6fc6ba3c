//! How long authorities and certificates live, and which combinations let a rotation end in time.
//! It must not read a clock: `now` is an argument.

use std::time::Duration;

use jiff::Timestamp;
use thiserror::Error;

/// How long things live. The defaults suit production; tests may go down to seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// Of an authority. Its successor is introduced when a third of this is left.
    pub ca: Duration,
    /// Of a serving certificate. It is renewed when a third of this is left.
    pub leaf: Duration,
    /// How long every bundle must have carried a new authority before anything is signed by it: the longest
    /// time an API server may lag behind its own storage.
    pub settle: Duration,
    /// How far the clocks of replicas and API servers may be apart. Certificates are valid from this much
    /// before their issue, and a retired authority stays in the bundles this much past its end.
    pub clock_skew: Duration,
}

impl Default for Lifetimes {
    fn default() -> Self {
        const HOUR: Duration = Duration::from_secs(3_600);
        Self {
            ca: HOUR * 24 * 365,
            leaf: HOUR * 24 * 7,
            settle: Duration::from_secs(60),
            clock_skew: HOUR,
        }
    }
}

/// Why lifetimes cannot work together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LifetimesError {
    /// Certificates carry whole seconds, and a third must be long enough to act in.
    #[error("lifetimes: `leaf` is {0:?}; at least 6 s are needed")]
    LeafTooShort(Duration),
    /// A serving certificate never outlives its authority.
    #[error("lifetimes: `leaf` ({leaf:?}) is longer than `ca` ({ca:?})")]
    LeafOutlivesCa {
        /// As configured.
        leaf: Duration,
        /// As configured.
        ca: Duration,
    },
    /// Within the last third, the successor must settle, and the previously retired authority must be dropped.
    #[error(
        "lifetimes: `settle` + `clock_skew` ({needed:?}) must be less than a third of `ca` ({third:?})"
    )]
    RotationTooSlow {
        /// `settle` + `clock_skew`.
        needed: Duration,
        /// A third of `ca`.
        third: Duration,
    },
}

impl Lifetimes {
    /// Refuses combinations with which a rotation could not end before the old authority does.
    pub fn validate(&self) -> Result<(), LifetimesError> {
        if self.leaf < Duration::from_secs(6) {
            return Err(LifetimesError::LeafTooShort(self.leaf));
        }
        if self.leaf > self.ca {
            return Err(LifetimesError::LeafOutlivesCa {
                leaf: self.leaf,
                ca: self.ca,
            });
        }
        let needed = self.settle.saturating_add(self.clock_skew);
        let third = self.ca / 3;
        if needed >= third {
            return Err(LifetimesError::RotationTooSlow { needed, third });
        }
        Ok(())
    }

    pub(crate) fn ca_validity(&self, now: Timestamp) -> Validity {
        Validity {
            not_before: earlier(now, self.clock_skew),
            not_after: later(now, self.ca),
        }
    }

    /// Never outside of the authority's own validity, else the chain would not verify.
    pub(crate) fn leaf_validity(&self, ca: Validity, now: Timestamp) -> Validity {
        Validity {
            not_before: earlier(now, self.clock_skew).max(ca.not_before),
            not_after: later(now, self.leaf).min(ca.not_after),
        }
    }
}

/// As in the certificate: both ends inclusive, whole seconds once issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Validity {
    pub(crate) not_before: Timestamp,
    pub(crate) not_after: Timestamp,
}

pub(crate) fn later(time: Timestamp, by: Duration) -> Timestamp {
    time.checked_add(by).unwrap_or(Timestamp::MAX)
}

pub(crate) fn earlier(time: Timestamp, by: Duration) -> Timestamp {
    time.checked_sub(by).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_that_cannot_work_are_refused() {
        const SHORT: Lifetimes = Lifetimes {
            ca: Duration::from_secs(900),
            leaf: Duration::from_secs(90),
            settle: Duration::from_secs(20),
            clock_skew: Duration::from_secs(10),
        };
        let second = Duration::from_secs;
        let cases = [
            (Lifetimes::default(), Ok(())),
            (SHORT, Ok(())),
            (
                Lifetimes {
                    leaf: second(5),
                    ..SHORT
                },
                Err(LifetimesError::LeafTooShort(second(5))),
            ),
            (
                Lifetimes {
                    leaf: second(901),
                    ..SHORT
                },
                Err(LifetimesError::LeafOutlivesCa {
                    leaf: second(901),
                    ca: second(900),
                }),
            ),
            (
                Lifetimes {
                    settle: second(290),
                    ..SHORT
                },
                Err(LifetimesError::RotationTooSlow {
                    needed: second(300),
                    third: second(300),
                }),
            ),
        ];
        for (lifetimes, expected) in cases {
            assert_eq!(lifetimes.validate(), expected, "{lifetimes:?}");
        }
    }
}
