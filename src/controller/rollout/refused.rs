//! What the API server does not take: for how long it is left alone, and what is said of it.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::api::events::EventReason;
use crate::cluster::clock::{self, Instant};
use crate::cluster::events::About;
use crate::cluster::objects::ApiError;
use crate::controller::rollout::RolloutReconciler;
use crate::decide::rollout::{RefusedRelease, Release, Snapshot};
use crate::decide::shared::backoff::Backoff;

/// After so many tries a release that does not go through gives its slot to others.
pub const LASTING: u32 = 3;
/// So many conflicts in a row are none: something else answers with that code.
pub const CONFLICTS_MAX: u32 = 5;

pub struct Refused {
    hash: String,
    why: String,
    /// How often in a row.
    times: u32,
    /// How many of the last ones were conflicts.
    conflicts: u32,
    retry_at: Option<Instant>,
    /// When it was tried last.
    at: Timestamp,
}

/// The ledger could not be written.
pub struct Interrupted {
    /// How often in a row.
    times: u32,
    /// The last time.
    why: String,
    at: Instant,
}

/// Why a release did not go through.
pub enum NotReleased {
    /// It was not sent: what it was decided on has changed since.
    Outdated,
    /// The node changed meanwhile.
    Conflict(String),
    Refused(String),
}

impl RolloutReconciler<'_> {
    /// Nothing is released while the ledger cannot be written: whoever looks at the hub must see that.
    pub fn interrupted(&mut self, error: &ApiError) -> Duration {
        let before = self.memory.interrupted.take();
        let times = before.map_or(1, |before| before.times.saturating_add(1));
        self.memory.interrupted = Some(Interrupted {
            times,
            why: error.to_string(),
            at: clock::instant(),
        });
        tracing::warn!(hub = ?self.key, %error, "the release loop was interrupted; trying again");
        if times == LASTING
            && let Some(hub) = self.world.hubs.get(&self.key.0, &self.key.1)
        {
            let about = About::new("LynqHub", &hub.namespace, &hub.name, &hub.uid);
            let note = format!(
                "no slot can be taken, so that nothing goes live through the window: {error}; it is tried again, at the latest after 30 s"
            );
            self.world
                .events
                .tell(&about, EventReason::ReleasesInterrupted, note);
        }
        Backoff::RELEASE.after(times)
    }

    /// How long the ledger is left alone yet, after a write that failed: events and replies may ask for a pass at any time.
    pub fn backs_off(&self) -> Option<Duration> {
        let interrupted = self.memory.interrupted.as_ref()?;
        let since = clock::instant() - interrupted.at;
        let wait = Backoff::RELEASE.first.checked_sub(since)?;
        (!wait.is_zero()).then_some(wait)
    }

    /// Why the ledger cannot be written, once that is no accident any more.
    pub fn ledger_refused(&self) -> Option<String> {
        let interrupted = self.memory.interrupted.as_ref()?;
        (interrupted.times >= LASTING).then(|| interrupted.why.clone())
    }

    pub fn remember_refused(&mut self, release: &Release, released: Result<(), NotReleased>) {
        let refused = &mut self.memory.refused;
        let (why, is_conflict) = match released {
            Ok(()) => return drop(refused.remove(&release.node)),
            Err(NotReleased::Outdated) => return,
            // As a rule the node had only changed meanwhile.
            Err(NotReleased::Conflict(why)) => (why, true),
            Err(NotReleased::Refused(why)) => (why, false),
        };
        let before = refused.remove(&release.node);
        let times = before
            .as_ref()
            .map_or(1, |before| before.times.saturating_add(1));
        let mut conflicts = 0;
        let (why, retry_at) = match is_conflict {
            true => {
                conflicts = before.as_ref().map_or(0, |before| before.conflicts) + 1;
                let lasting = conflicts.checked_sub(CONFLICTS_MAX);
                let wait = lasting.map(|more| clock::instant() + Backoff::RELEASE.after(more));
                // It says less than a refusal of the same content before it.
                let refusal = before
                    .filter(|before| before.retry_at.is_some() && before.hash == release.hash);
                (refusal.map_or(why, |before| before.why), wait)
            }
            false => (why, Some(clock::instant() + Backoff::RELEASE.after(times))),
        };
        let refused = Refused {
            hash: release.hash.clone(),
            why,
            times,
            conflicts,
            retry_at,
            at: clock::now(),
        };
        self.memory.refused.insert(release.node.clone(), refused);
    }

    /// What is gone, or not held any more, is not refused again.
    pub fn forget_refused(&mut self, snapshot: &Snapshot) {
        let waits = |name: &String| {
            let node = snapshot.nodes.get(name);
            node.is_some_and(|node| node.held() && !node.deleting)
        };
        self.memory.refused.retain(|name, _| waits(name));
    }

    /// The refusals, and until when they keep their releases back.
    pub fn refused(&self) -> BTreeMap<String, RefusedRelease> {
        let now = (clock::now(), clock::instant());
        let refusal = |refused: &Refused| {
            let wait = refused.retry_at?.checked_duration_since(now.1)?;
            now.0.checked_add(wait).ok()
        };
        let refused = self.memory.refused.iter();
        refused
            .map(|(name, refused)| {
                let refusal = RefusedRelease {
                    hash: refused.hash.clone(),
                    why: refused.why.clone(),
                    until: refusal(refused),
                    lasting: refused.times >= LASTING,
                    at: refused.at,
                };
                (name.clone(), refusal)
            })
            .collect()
    }
}
