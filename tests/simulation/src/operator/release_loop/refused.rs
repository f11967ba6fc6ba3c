//! What the loop remembers of releases that did not go through, as the controller does.

use lynqgate::decide::rollout::Release;

use crate::operator::release_loop::{Loop, UNCONFIRMED_RETRY};

const REFUSED_RETRY_MAX: u64 = 30_000;
pub const LASTING: u32 = 3;
const CONFLICTS_MAX: u32 = 5;
pub const CONFLICT: &str = "conflict";
pub const NOT_SENT: &str = "not sent";

/// The controller's `Refused`.
pub struct Failed {
    pub hash: String,
    pub why: &'static str,
    pub times: u32,
    pub retry_at: Option<u64>,
    pub at: u64,
}

impl Loop {
    /// `remember_refused`, for one release. A conflict is tried again at once.
    pub fn refuse(&mut self, release: &Release, why: &'static str, time: u64) {
        let before = self.refused.get(&release.node);
        let times = before.map_or(1, |before| before.times.saturating_add(1));
        let retry_at = match why {
            CONFLICT => times
                .checked_sub(CONFLICTS_MAX)
                .map(|more| time + refused_retry(more)),
            _ => Some(time + refused_retry(times)),
        };
        let failed = Failed {
            hash: release.hash.clone(),
            why,
            times,
            retry_at,
            at: time,
        };
        self.refused.insert(release.node.clone(), failed);
    }
}

pub fn refused_retry(times: u32) -> u64 {
    REFUSED_RETRY_MAX.min(UNCONFIRMED_RETRY * 2u64.saturating_pow(times.clamp(1, 10) - 1))
}
