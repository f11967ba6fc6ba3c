//! Leader election, one step at a time: client-go's rules, with the Lease's resourceVersion as the fence.
//!
//! Nothing safe rests on it (the ledger does that); it keeps two operators from doing the same work.

use jiff::{SignedDuration, Timestamp};

/// How long a lease is good for without being renewed.
pub const LEASE: SignedDuration = SignedDuration::from_secs(15);
/// A leader that cannot renew for this long stops leading; shorter than [`LEASE`], so that it stops first.
pub const RENEW_DEADLINE: SignedDuration = SignedDuration::from_secs(10);
/// Time between two looks.
pub const RETRY: SignedDuration = SignedDuration::from_secs(2);

/// The Lease as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub holder: String,
    pub resource_version: String,
    pub transitions: i32,
    pub duration_seconds: i32,
}

/// What one candidate remembers between two looks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The version of the Lease that was last seen, and when it was seen first, by this process's own clock: whether a
    /// lease has run out is never told from timestamps that another machine wrote.
    pub seen: Option<(String, Timestamp)>,
}

/// What to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Create,
    /// Write holder and renew time over this version.
    Renew,
    /// The same, and it is a new leader.
    TakeOver,
    Wait,
}

pub fn step(me: &str, lease: Option<&Lease>, memory: &mut Memory, now: Timestamp) -> Step {
    let Some(lease) = lease else {
        return Step::Create;
    };
    let since = match &memory.seen {
        Some((version, since)) if *version == lease.resource_version => *since,
        _ => {
            memory.seen = Some((lease.resource_version.clone(), now));
            now
        }
    };
    if lease.holder == me {
        return Step::Renew;
    }
    let runs_out = since
        .checked_add(SignedDuration::from_secs(lease.duration_seconds.into()))
        .unwrap_or(Timestamp::MAX);
    if lease.holder.is_empty() || runs_out <= now {
        Step::TakeOver
    } else {
        Step::Wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_taken_only_after_it_was_seen_unchanged_for_its_duration() {
        let at = |s: i64| Timestamp::from_second(1_000 + s).unwrap();
        let lease = |holder: &str, version: &str| Lease {
            holder: holder.into(),
            resource_version: version.into(),
            transitions: 0,
            duration_seconds: 15,
        };
        let mut memory = Memory::default();
        let mut look =
            |lease: Option<Lease>, second: i64| step("me", lease.as_ref(), &mut memory, at(second));
        assert_eq!(look(None, 0), Step::Create);
        assert_eq!(look(Some(lease("other", "1")), 0), Step::Wait);
        assert_eq!(look(Some(lease("other", "1")), 14), Step::Wait);
        assert_eq!(
            look(Some(lease("other", "2")), 15),
            Step::Wait,
            "it was renewed"
        );
        assert_eq!(look(Some(lease("other", "2")), 30), Step::TakeOver);
        assert_eq!(look(Some(lease("me", "3")), 31), Step::Renew);
        assert_eq!(
            look(Some(lease("", "4")), 32),
            Step::TakeOver,
            "it was released"
        );
    }
}
