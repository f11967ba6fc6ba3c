//! Counts the recent applies of an object. If another writer deletes or overwrites it each time, the two fight, and applying
//! faster does not help.

use jiff::{SignedDuration, Timestamp};

use crate::decide::child::Kind;

/// The number of applies in a row that cause no delay.
const FREE: u32 = 3;
/// The longest time between two applies of one fight.
const PAUSE_MAX: SignedDuration = SignedDuration::from_secs(60);

/// The message for an object that does not stay as it was applied.
pub fn fought_over(kind: &Kind) -> &'static str {
    match kind.is_job() {
        true => NEVER_COMPLETED,
        false => FOUGHT_OVER,
    }
}

/// A completed Job is not created again, so only an uncompleted one can be in this state.
const NEVER_COMPLETED: &str = "it is deleted each time before it has completed, by its ttlSecondsAfterFinished after a failure, or by somebody \
                               else; lynqgate runs it again with a backoff of up to 1 minute. Correct what fails, and \
                               raise ttlSecondsAfterFinished to keep the logs";

const FOUGHT_OVER: &str = "somebody else deletes it or overwrites it after each apply; lynqgate applies it again with a backoff of up to 1 \
                           minute. See who: kubectl get with -o yaml --show-managed-fields; \
                               ignoreFields leaves fields to others";

/// Applies of the same content to one object, each not long after the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Applies {
    count: u32,
    last: Option<Timestamp>,
}

impl Applies {
    pub fn note(&mut self, now: Timestamp) {
        let over = |last: Timestamp| now.duration_since(last).abs() > PAUSE_MAX * 2;
        if self.last.is_none_or(over) {
            self.count = 0;
        }
        self.count = self.count.saturating_add(1);
        self.last = Some(now);
    }

    /// When the next apply is allowed; None if it is allowed now.
    pub fn pause(&self, now: Timestamp) -> Option<Timestamp> {
        let more = self.count.checked_sub(FREE)?;
        let pause = PAUSE_MAX.min(SignedDuration::from_secs(1 << more.min(10)));
        let until = self.last?.checked_add(pause).ok()?;
        // Ignore a longer pause: a clock that was ahead caused it.
        (now < until && until.duration_since(now) <= PAUSE_MAX).then_some(until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    #[test]
    fn pauses_grow_with_each_apply_and_end_with_the_fight() {
        let mut applies = Applies::default();
        let mut now = 1_000;
        let mut pauses = vec![];
        for _ in 0..11 {
            applies.note(at(now));
            let until = applies
                .pause(at(now))
                .map_or(now, |until| until.as_second());
            pauses.push(until - now);
            assert_eq!(applies.pause(at(until)), None);
            now = until;
        }
        assert_eq!(pauses, [0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60]);
        applies.note(at(now + 121));
        assert_eq!(applies.pause(at(now + 121)), None, "long ago");
    }

    #[test]
    fn a_clock_that_was_ahead_puts_nothing_off() {
        let mut applies = Applies::default();
        (0..9).for_each(|_| applies.note(at(9_000)));
        assert_eq!(applies.pause(at(1_000)), None);
    }
}
