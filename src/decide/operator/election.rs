//! Leader election, one step at a time: client-go's rules, with the Lease's resourceVersion as the fence.
//!
//! Nothing safe rests on it (the ledger does that); it keeps two operators from doing the same work.

use jiff::{SignedDuration, Timestamp};

use crate::decide::shared::version;

/// How long a lease is good for without being renewed.
pub const LEASE: SignedDuration = SignedDuration::from_secs(15);
/// A leader that cannot renew for this long stops leading; shorter than [`LEASE`], so that it stops first.
pub const RENEW_DEADLINE: SignedDuration = SignedDuration::from_secs(10);
/// Time between two looks.
pub const RETRY: SignedDuration = SignedDuration::from_secs(2);

/// The Lease as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub uid: String,
    pub holder: String,
    pub resource_version: String,
    pub transitions: i32,
    pub duration_seconds: i32,
}

/// A replica that wants to lead, and what it remembers between two steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderCandidate {
    seen: Option<ObservedVersion>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ObservedVersion {
    uid: String,
    /// The newest version.
    version: String,
    /// When that was seen first, by this process's own clock: whether a lease has run out is never told from timestamps
    /// that another machine wrote.
    since: Timestamp,
}

impl LeaderCandidate {
    /// Takes what a write of ours made of the Lease: no sign of life of somebody else. False where it is older than what was
    /// there before.
    pub fn note_written(&mut self, uid: &str, version: &str, now: Timestamp) -> bool {
        let went_back = |seen: &ObservedVersion| version::is_newer(&seen.version, version);
        let good = !self.seen.as_ref().is_some_and(went_back);
        self.seen = Some(ObservedVersion {
            uid: uid.to_owned(),
            version: version.to_owned(),
            since: now,
        });
        good
    }
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
    /// The Lease is an older one than it was: the API server's storage was restored from a backup. Every watch would wait
    /// for versions that are long in coming, and every cache refuse what is there now.
    StartAnew,
}

pub fn step(
    me: &str,
    lease: Option<&Lease>,
    candidate: &mut LeaderCandidate,
    now: Timestamp,
) -> Step {
    let Some(lease) = lease else {
        return Step::Create;
    };
    let since = match &candidate.seen {
        Some(seen) if seen.version == lease.resource_version => seen.since,
        Some(seen)
            if seen.uid == lease.uid
                && version::is_newer(&seen.version, &lease.resource_version) =>
        {
            return Step::StartAnew;
        }
        _ => {
            candidate.seen = Some(ObservedVersion {
                uid: lease.uid.clone(),
                version: lease.resource_version.clone(),
                since: now,
            });
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
            uid: "a".into(),
            holder: holder.into(),
            resource_version: version.into(),
            transitions: 0,
            duration_seconds: 15,
        };
        let mut candidate = LeaderCandidate::default();
        let mut look = |lease: Option<Lease>, second: i64| {
            step("me", lease.as_ref(), &mut candidate, at(second))
        };
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

    #[test]
    fn a_lease_that_went_back_tells_of_a_restored_storage() {
        let now = Timestamp::UNIX_EPOCH;
        let lease = |uid: &str, version: &str| Lease {
            uid: uid.into(),
            holder: "me".into(),
            resource_version: version.into(),
            transitions: 0,
            duration_seconds: 15,
        };
        let mut candidate = LeaderCandidate::default();
        assert!(candidate.note_written("a", "20", now));
        let mut look = |lease: Lease| step("me", Some(&lease), &mut candidate, now);
        assert_eq!(look(lease("a", "20")), Step::Renew);
        assert_eq!(look(lease("a", "19")), Step::StartAnew);
        assert_eq!(look(lease("b", "19")), Step::Renew, "another lease");
        assert!(candidate.note_written("b", "21", now));
        // Restored to a time before it was made.
        assert!(!candidate.note_written("c", "12", now));
    }
}
