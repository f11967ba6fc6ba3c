//! The shell around the protocol: observe, step, act, again and again until its future is dropped.
//! It must not decide: what to do comes from `plan`, how to do it from `cluster` and `authority`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, future};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use crate::authority::{Authority, IssueError, Names};
use crate::cluster::{CallError, Cluster, Configuration};
use crate::lifetimes::Lifetimes;
use crate::plan::{CaSet, Change, ConfigurationView, Effect, Observed, SecretView, State, step};
use crate::resolver::LeafResolver;
use crate::status::{ConfigurationRef, Reason, Status};

/// How often to check the clock. Timers stop while a machine is suspended, but certificates still expire.
const POLL: Duration = Duration::from_secs(1);
/// How often to restart all watches and read everything again, in case a watch has died silently.
const WATCH_RENEWAL: Duration = Duration::from_secs(600);

/// One replica's part in the protocol.
pub(crate) struct Reconciler {
    cluster: Cluster,
    configurations: Vec<ConfigurationRef>,
    names: Names,
    lifetimes: Lifetimes,
    resolver: Arc<LeafResolver>,
    status: watch::Sender<Status>,
    state: State,
    seen: Seen,
    /// The last good content of the Secret, with its keys.
    kept: Option<CaSet<Authority>>,
    problem: Option<String>,
}

/// The last observation of the cluster.
struct Seen {
    secret: Option<Secret>,
    secret_view: SecretView,
    /// `None`: not read yet. `Some(None)`: does not exist.
    configurations: BTreeMap<ConfigurationRef, Option<Option<Configuration>>>,
}

impl Reconciler {
    pub(crate) fn new(
        cluster: Cluster,
        configurations: Vec<ConfigurationRef>,
        names: Names,
        lifetimes: Lifetimes,
        resolver: Arc<LeafResolver>,
        status: watch::Sender<Status>,
    ) -> Self {
        let seen = Seen {
            secret: None,
            secret_view: SecretView::Unread,
            configurations: configurations
                .iter()
                .map(|key| (key.clone(), None))
                .collect(),
        };
        Self {
            cluster,
            configurations,
            names,
            lifetimes,
            resolver,
            status,
            state: State::default(),
            seen,
            kept: None,
            problem: None,
        }
    }

    pub(crate) async fn run(mut self) {
        let mut poll = interval(POLL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut pace = Pace::default();
        loop {
            let mut changes = self.cluster.changes(&self.configurations);
            let renewal = Instant::now() + WATCH_RENEWAL;
            let mut stale = true;
            while Instant::now() < renewal {
                if Instant::now() >= pace.not_before {
                    let outcome = self.round(stale).await;
                    pace.after(outcome, Instant::now());
                    stale = outcome != Outcome::Settled;
                } else {
                    // Keep the served certificate up to date even while the API server is backed off.
                    self.decide();
                }
                tokio::select! {
                    _ = poll.tick() => {}
                    _ = sleep_until(pace.not_before), if stale => {}
                    () = next_change(&mut changes) => stale = true,
                }
            }
        }
    }

    async fn round(&mut self, stale: bool) -> Outcome {
        let mut problem = None;
        if stale {
            problem = self.observe().await.err().map(|error| error.to_string());
        }
        let effects = self.decide();
        let wrote = !effects.is_empty();
        for effect in effects {
            match self.act(effect).await {
                Ok(()) => {}
                Err(ActError::Call(CallError::Conflict(call))) => {
                    tracing::debug!(%call, "changed meanwhile; read again");
                }
                Err(error) => problem = Some(error.to_string()),
            }
        }
        let outcome = match &problem {
            Some(_) => Outcome::Failed,
            None if wrote => Outcome::Wrote,
            None => Outcome::Settled,
        };
        if stale || wrote {
            self.report(problem);
        }
        outcome
    }

    /// Configurations first, then the Secret, and all views only together: see [`Observed`]. A configuration
    /// that cannot be read keeps its old view, and the others go on.
    async fn observe(&mut self) -> Result<(), CallError> {
        let reads = self
            .configurations
            .iter()
            .map(|key| self.cluster.read_configuration(key));
        let answers = future::join_all(reads).await;
        let secret = self.cluster.read_secret().await?;
        let mut outcome = Ok(());
        for (key, answer) in self.configurations.iter().zip(answers) {
            match answer {
                Ok(read) => {
                    self.seen.configurations.insert(key.clone(), Some(read));
                }
                Err(error) => outcome = Err(error),
            }
        }
        self.see_secret(secret);
        outcome
    }

    fn see_secret(&mut self, secret: Option<Secret>) {
        let data = secret.as_ref().and_then(|secret| secret.data.as_ref());
        self.seen.secret_view = match data.map(CaSet::from_secret_data).transpose() {
            Ok(set) => set.flatten().map_or(SecretView::Absent, |set| {
                let facts = set.facts();
                self.kept = Some(set);
                SecretView::Good(facts)
            }),
            Err(problem) => SecretView::Bad(format!(
                "Secret {}/{}: {problem}; restore it, or delete it to have it written anew",
                self.cluster.namespace, self.cluster.secret_name
            )),
        };
        self.seen.secret = secret;
    }

    /// Steps, serves a new certificate if one is due, publishes the status, and returns the remaining effects.
    fn decide(&mut self) -> Vec<Effect> {
        let now = Timestamp::now();
        let mut decided = step(&self.state, &self.observed(), &self.lifetimes, now);
        let mint = decided.effects.iter().find_map(|effect| match effect {
            Effect::MintLeaf(validity) => Some(*validity),
            _ => None,
        });
        if let (Some(validity), Some(kept)) = (mint, &self.kept) {
            match kept.active.mint_leaf(&self.names, validity) {
                Ok(leaf) => {
                    tracing::info!(ca = %leaf.facts.ca, not_after = %leaf.facts.validity.not_after, "serving a new certificate");
                    self.resolver.serve(leaf);
                    decided = step(&decided.state, &self.observed(), &self.lifetimes, now);
                }
                Err(error) => self.report(Some(error.to_string())),
            }
        }
        self.state = decided.state;
        self.publish(&decided.reason);
        decided
            .effects
            .retain(|effect| !matches!(effect, Effect::MintLeaf(_)));
        decided.effects
    }

    async fn act(&self, effect: Effect) -> Result<(), ActError> {
        match effect {
            Effect::MintLeaf(_) => {}
            Effect::WriteBundle(configuration) => {
                let read = self
                    .seen
                    .configurations
                    .get(&configuration)
                    .cloned()
                    .flatten()
                    .flatten();
                let (Some(read), Some(kept)) = (read, &self.kept) else {
                    return Ok(());
                };
                self.cluster
                    .write_bundle(&configuration, &read, &kept.bundle())
                    .await?;
                tracing::info!(%configuration, "wrote the caBundle");
            }
            Effect::WriteSecret(change) => {
                let fresh = || Authority::issue(self.lifetimes.ca_validity(Timestamp::now()));
                let Some(set) = CaSet::changed(self.kept.clone(), change, fresh)? else {
                    return Ok(());
                };
                self.cluster
                    .write_secret(self.seen.secret.clone(), &set)
                    .await?;
                tell(change, &set);
            }
        }
        Ok(())
    }

    fn observed(&self) -> Observed {
        let view = |read: &Option<Option<Configuration>>| match read {
            None => ConfigurationView::Unread,
            Some(None) => ConfigurationView::Absent,
            Some(Some(configuration)) => ConfigurationView::Present(
                configuration
                    .entries
                    .iter()
                    .map(|(_, bundle)| bundle.clone())
                    .collect(),
            ),
        };
        Observed {
            secret: self.seen.secret_view.clone(),
            configurations: self
                .seen
                .configurations
                .iter()
                .map(|(key, read)| (key.clone(), view(read)))
                .collect(),
            leaf: self.resolver.facts(),
        }
    }

    fn report(&mut self, problem: Option<String>) {
        if let Some(problem) = problem.as_ref().filter(|_| problem != self.problem) {
            tracing::warn!(%problem, "webhook certificates cannot be kept up");
        }
        self.problem = problem;
    }

    fn publish(&self, reason: &Reason) {
        let secret_problem = match &self.seen.secret_view {
            SecretView::Bad(problem) => Some(problem.clone()),
            _ => None,
        };
        let status = Status {
            reason: reason.clone(),
            secret_problem,
            api_problem: self.problem.clone(),
            leaf_not_after: self.resolver.facts().map(|leaf| leaf.validity.not_after),
            ca_not_after: self.state.kept.map(|set| set.active.validity.not_after),
        };
        self.status.send_if_modified(|before| {
            let modified = *before != status;
            if before.reason != status.reason {
                let reason = status.reason.label();
                match status.reason.needs_somebody() {
                    true => tracing::error!(reason, "webhook certificates: {}", status.reason),
                    false => tracing::info!(reason, "webhook certificates: {}", status.reason),
                }
            }
            if let Some(problem) = status.secret_problem.as_ref().filter(|_| before.secret_problem != status.secret_problem) {
                tracing::error!(%problem, "the Secret cannot be used; the certificate in use is kept");
            }
            *before = status;
            modified
        });
    }
}

#[derive(Debug, thiserror::Error)]
enum ActError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    Issue(#[from] IssueError),
}

fn tell(change: Change, set: &CaSet<Authority>) {
    let active = set.active.facts.id;
    match (change, &set.next) {
        (Change::Issue, _) => tracing::info!(%active, "issued a new authority"),
        (Change::Restore, _) => tracing::warn!(%active, "the Secret was gone; put it back"),
        (Change::Introduce, Some(next)) => {
            tracing::info!(next = %next.facts.id, "introduced the next authority")
        }
        (Change::Promote, _) => tracing::info!(%active, "promoted the next authority"),
        (Change::Introduce, None) | (Change::DropRetired, _) => {
            tracing::info!("dropped the retired authority")
        }
    }
}

/// Waits for a change, and takes those along that came with it.
async fn next_change(changes: &mut BoxStream<'static, ()>) {
    if changes.next().await.is_none() {
        future::pending::<()>().await;
    }
    while let Some(Some(())) = changes.next().now_or_never() {}
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The observed state is the desired one.
    Settled,
    /// The observation is outdated, by our own writes or by a faster writer.
    Wrote,
    /// Some of it could not be read or written.
    Failed,
}

/// When the API server may be called again, with a backoff after failures. Writes are not delayed, unless there are so many that
/// another writer must be changing the same field again and again.
struct Pace {
    not_before: Instant,
    retry_after: Duration,
    /// Moves on by [`Pace::WRITE_EVERY`] with each write, and is never in the past.
    writes_paid_until: Instant,
}

impl Default for Pace {
    fn default() -> Self {
        let now = Instant::now();
        Self {
            not_before: now,
            retry_after: Self::RETRY_MIN,
            writes_paid_until: now,
        }
    }
}

impl Pace {
    const RETRY_MIN: Duration = Duration::from_millis(100);
    const RETRY_MAX: Duration = Duration::from_secs(30);
    const WRITE_EVERY: Duration = Duration::from_secs(3);
    const WRITES_AHEAD: Duration = Duration::from_secs(60);

    fn after(&mut self, outcome: Outcome, now: Instant) {
        if outcome == Outcome::Failed {
            self.not_before = now + self.retry_after;
            self.retry_after = (self.retry_after * 2).min(Self::RETRY_MAX);
            return;
        }
        self.retry_after = Self::RETRY_MIN;
        if outcome == Outcome::Wrote {
            self.writes_paid_until = self.writes_paid_until.max(now) + Self::WRITE_EVERY;
            self.not_before = now
                + self
                    .writes_paid_until
                    .duration_since(now + Self::WRITES_AHEAD);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The waiting times when each round follows as soon as it may.
    fn waits(pace: &mut Pace, from: Instant, outcome: Outcome, rounds: usize) -> Vec<u128> {
        let mut now = from;
        let mut waits = vec![];
        for _ in 0..rounds {
            pace.after(outcome, now);
            waits.push(pace.not_before.duration_since(now).as_millis());
            now = now.max(pace.not_before);
        }
        waits
    }

    #[test]
    fn retries_slow_down_until_one_succeeds() {
        let mut pace = Pace::default();
        let start = Instant::now();
        let failing = waits(&mut pace, start, Outcome::Failed, 11);
        assert_eq!(
            failing,
            [
                100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000
            ]
        );
        let later = start + Duration::from_secs(200);
        assert_eq!(waits(&mut pace, later, Outcome::Settled, 1), [0]);
        assert_eq!(waits(&mut pace, later, Outcome::Failed, 1), [100]);
    }

    #[test]
    fn twenty_writes_go_at_once_and_a_fight_does_not() {
        let mut pace = Pace::default();
        let start = Instant::now() + Duration::from_secs(1);
        let fight = waits(&mut pace, start, Outcome::Wrote, 23);
        assert_eq!(fight[..20], [0; 20]);
        assert_eq!(fight[20..], [3_000; 3]);
        let later = start + Duration::from_secs(100);
        assert_eq!(
            waits(&mut pace, later, Outcome::Wrote, 2),
            [0, 0],
            "after a calm time"
        );
    }
}
