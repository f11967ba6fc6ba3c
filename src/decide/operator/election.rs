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
    /// The text of renewTime: a holder that is alive changes it.
    pub renewed: String,
    pub transitions: i32,
    pub duration_seconds: i32,
    /// The replica that asks the holder to hand the lease over; empty if none does.
    pub wanted_by: String,
    /// Into how many shards its holder divides the work.
    pub shards: usize,
}

impl Lease {
    /// When its holder renewed it, by the holder's clock.
    pub fn renewed_at(&self) -> Option<Timestamp> {
        self.renewed.parse().ok()
    }

    /// Whether a replica leads, as far as one read shows it. An election watches a lease instead: two clocks may differ, so the lease
    /// counts for twice as long here.
    pub fn is_held(&self, now: Timestamp) -> bool {
        let seconds_max = 2 * i64::from(self.duration_seconds);
        let is_fresh = |at: Timestamp| now.duration_since(at).as_secs() <= seconds_max;
        !self.holder.is_empty() && self.renewed_at().is_some_and(is_fresh)
    }
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
    holder: String,
    renewed: String,
    /// When that renewal was seen first, by this process's own clock: whether a lease has run out is never told from
    /// timestamps that another machine wrote.
    since: Timestamp,
}

impl LeaderCandidate {
    /// Takes what a write of ours made of the Lease. False where it is older than what was there before.
    pub fn note_written(&mut self, lease: &Lease, now: Timestamp) -> bool {
        let version = &lease.resource_version;
        let went_back = |seen: &ObservedVersion| version::is_newer(&seen.version, version);
        let good = !self.seen.as_ref().is_some_and(went_back);
        self.see(lease, now);
        good
    }

    /// When the lease expires if nobody renews it; None before the first [`step`].
    pub fn runs_out(&self, lease: &Lease) -> Option<Timestamp> {
        let duration = SignedDuration::from_secs(lease.duration_seconds.into());
        self.seen.as_ref()?.since.checked_add(duration).ok()
    }

    /// Remembers since when the holder has shown no sign of life. A write of somebody else to the Lease is none.
    fn see(&mut self, lease: &Lease, now: Timestamp) {
        let is_same = |seen: &&ObservedVersion| {
            seen.uid == lease.uid && seen.holder == lease.holder && seen.renewed == lease.renewed
        };
        let since = self.seen.as_ref().filter(is_same).map(|seen| seen.since);
        let since = since.unwrap_or(now);
        self.seen = Some(ObservedVersion {
            uid: lease.uid.clone(),
            version: lease.resource_version.clone(),
            holder: lease.holder.clone(),
            renewed: lease.renewed.clone(),
            since,
        });
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
    let went_back = |seen: &ObservedVersion| {
        seen.uid == lease.uid && version::is_newer(&seen.version, &lease.resource_version)
    };
    if candidate.seen.as_ref().is_some_and(went_back) {
        return Step::StartAnew;
    }
    candidate.see(lease, now);
    if lease.holder == me {
        return Step::Renew;
    }
    let has_run_out = candidate.runs_out(lease).is_some_and(|end| end <= now);
    if lease.holder.is_empty() || has_run_out {
        Step::TakeOver
    } else {
        Step::Wait
    }
}

/// The time until the leases are read again. `ends`: when the leases of other replicas expire, which may have happened since they
/// were read. Nobody works on a shard whose lease has expired, so the next turn starts then.
pub fn next_turn(ends: impl Iterator<Item = Timestamp>, now: Timestamp) -> SignedDuration {
    let left = ends.map(|end| end.duration_since(now));
    left.min()
        .map_or(RETRY, |left| left.clamp(SignedDuration::ZERO, RETRY))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(uid: &str, holder: &str, (version, renewed): (&str, &str)) -> Lease {
        Lease {
            uid: uid.into(),
            holder: holder.into(),
            resource_version: version.into(),
            renewed: renewed.into(),
            transitions: 0,
            duration_seconds: 15,
            wanted_by: String::new(),
            shards: 1,
        }
    }

    #[test]
    fn a_lease_is_taken_only_after_it_was_seen_unrenewed_for_its_duration() {
        let at = |s: i64| Timestamp::from_second(1_000 + s).unwrap();
        let mut candidate = LeaderCandidate::default();
        let mut look = |lease: Option<Lease>, second: i64| {
            step("me", lease.as_ref(), &mut candidate, at(second))
        };
        let others = |seen| Some(lease("a", "other", seen));
        assert_eq!(look(None, 0), Step::Create);
        assert_eq!(look(others(("1", "8:00")), 0), Step::Wait);
        assert_eq!(look(others(("1", "8:00")), 14), Step::Wait);
        assert_eq!(look(others(("2", "8:15")), 15), Step::Wait, "renewed");
        assert_eq!(
            look(others(("3", "8:15")), 29),
            Step::Wait,
            "others wrote it"
        );
        assert_eq!(look(others(("4", "8:15")), 30), Step::TakeOver);
        assert_eq!(look(Some(lease("a", "me", ("5", "8:30"))), 31), Step::Renew);
        assert_eq!(
            look(Some(lease("a", "", ("6", "8:30"))), 32),
            Step::TakeOver,
            "it was released"
        );
    }

    #[test]
    fn one_read_of_a_lease_shows_whether_a_replica_leads() {
        let at = |s: i64| Timestamp::from_second(s).unwrap();
        let is_held = |holder: &str, renewed: &str, second: i64| {
            lease("a", holder, ("1", renewed)).is_held(at(second))
        };
        let renewed = "1970-01-01T00:01:40.000000Z";
        assert!(is_held("other", renewed, 130));
        assert!(!is_held("other", renewed, 131));
        assert!(is_held("other", renewed, 90), "its clock is ahead");
        assert!(!is_held("", renewed, 100), "it was released");
        assert!(!is_held("other", "", 100));
    }

    #[test]
    fn a_lease_runs_out_after_its_duration_since_it_was_seen_renewed() {
        let at = |s: i64| Timestamp::from_second(1_000 + s).unwrap();
        let mut candidate = LeaderCandidate::default();
        let others = lease("a", "other", ("1", "8:00"));
        assert_eq!(candidate.runs_out(&others), None, "nobody looked yet");
        for second in [1, 7] {
            step("me", Some(&others), &mut candidate, at(second));
            assert_eq!(candidate.runs_out(&others), Some(at(16)));
        }
    }

    #[test]
    fn the_leases_are_read_again_when_one_of_another_replica_expires() {
        let at = |ms: i64| Timestamp::from_millisecond(ms).unwrap();
        for (ends, expected) in [
            (vec![], 2_000),
            (vec![12_500], 2_000),
            (vec![12_500, 11_200], 1_200),
            (vec![12_500, 10_000], 0),
            (vec![9_900, 11_200], 0),
        ] {
            let left = next_turn(ends.iter().map(|end| at(*end)), at(10_000));
            assert_eq!(left.as_millis(), expected, "{ends:?}");
        }
    }

    #[test]
    fn a_lease_that_went_back_tells_of_a_restored_storage() {
        let now = Timestamp::UNIX_EPOCH;
        let mine = |uid: &str, version: &str| lease(uid, "me", (version, "8:00"));
        let mut candidate = LeaderCandidate::default();
        assert!(candidate.note_written(&mine("a", "20"), now));
        let mut look = |lease: Lease| step("me", Some(&lease), &mut candidate, now);
        assert_eq!(look(mine("a", "20")), Step::Renew);
        assert_eq!(look(mine("a", "19")), Step::StartAnew);
        assert_eq!(look(mine("b", "19")), Step::Renew, "another lease");
        assert!(candidate.note_written(&mine("b", "21"), now));
        // Restored to a time before it was made.
        assert!(!candidate.note_written(&mine("c", "12"), now));
    }
}
