//! What the newest revision was at a moment in the past: the horizon of a reader that lags.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;

/// The longest lag that is remembered.
const KEPT: Duration = Duration::from_secs(120);
const EVERY: Duration = Duration::from_millis(100);

#[derive(Default)]
pub struct Revisions(Mutex<VecDeque<(Instant, u64)>>);

impl Revisions {
    pub fn note(&self, now: Instant, revision: u64) {
        let mut seen = self.0.lock().expect("the revisions");
        // A database that was restored from a backup goes back; what was seen before says nothing any more.
        if seen.back().is_some_and(|(_, last)| *last > revision) {
            seen.clear();
        }
        seen.push_back((now, revision));
        while seen
            .front()
            .is_some_and(|(at, _)| now.duration_since(*at) > KEPT)
        {
            seen.pop_front();
        }
    }

    /// The newest revision that was there at that moment; None when that is not remembered.
    pub fn at(&self, moment: Instant) -> Option<u64> {
        let seen = self.0.lock().expect("the revisions");
        let old = seen.iter().rev().find(|(at, _)| *at <= moment);
        old.map(|(_, revision)| *revision)
    }

    /// Asks for the revision, over and over. Failures leave a gap.
    pub async fn sample(&self, admin: kube::Client) {
        loop {
            let asked = Instant::now();
            let newest = tokio::time::timeout(Duration::from_secs(2), newest(&admin)).await;
            if let Ok(Ok(revision)) = newest {
                // It was this or more when the answer was made, and at least this from then on.
                self.note(Instant::now(), revision);
            }
            tokio::time::sleep(EVERY.saturating_sub(asked.elapsed())).await;
        }
    }
}

/// A list without a resourceVersion is answered with the database's newest.
async fn newest(admin: &kube::Client) -> Result<u64> {
    let request = http::Request::get("/api/v1/namespaces/default/podtemplates?limit=1");
    let list: Value = admin.request(request.body(Vec::new())?).await?;
    revision_of(&list).context("a list without a resourceVersion")
}

/// Of an object or a list.
pub fn revision_of(object: &Value) -> Option<u64> {
    object["metadata"]["resourceVersion"].as_str()?.parse().ok()
}
