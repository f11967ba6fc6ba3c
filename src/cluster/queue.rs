//! A queue of keys. At most one worker reconciles a key at a time, however often the key is added. A key whose work panics backs
//! off; the other keys go on.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Duration;

use crate::cluster::clock::{self, Instant};
use crate::cluster::process;
use crate::cluster::vital::{self, Mutex};
use crate::decide::shared::backoff::Backoff;

/// The longest delay: no process lives this long.
const DELAY_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// Clones are cheap and share one queue.
pub struct Queue<K> {
    inner: Arc<Inner<K>>,
}

struct Inner<K> {
    state: Mutex<State<K>>,
    changed: Notify,
}

/// When a key's turn comes, and whether it is of low priority: it then comes after all due keys of normal priority.
type Turn = (bool, Instant);

struct State<K> {
    /// The turn of each waiting key.
    due: BTreeMap<K, Turn>,
    /// The same, in order: normal priority, then low priority.
    order: [BTreeSet<(Instant, K)>; 2],
    /// Keys being reconciled, and whether each has low priority; a key that is added meanwhile waits until its work ends.
    running: BTreeMap<K, bool>,
    /// Keys whose work panicked: how often in a row, and until when each backs off. No event makes one due earlier.
    resting: BTreeMap<K, (u32, Instant)>,
}

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Queue {
            inner: self.inner.clone(),
        }
    }
}

impl<K: Ord + Clone> Default for Queue<K> {
    fn default() -> Self {
        let state = State {
            due: BTreeMap::new(),
            order: [BTreeSet::new(), BTreeSet::new()],
            running: BTreeMap::new(),
            resting: BTreeMap::new(),
        };
        Queue {
            inner: Arc::new(Inner {
                state: Mutex::new(state),
                changed: Notify::new(),
            }),
        }
    }
}

impl<K: Ord + Clone> Queue<K> {
    pub fn add(&self, key: K) {
        self.add_at(key, (false, clock::instant()));
    }

    /// Adds a key with low priority: for work that only updates what users see.
    pub fn add_last(&self, key: K) {
        self.add_last_after(key, Duration::ZERO);
    }

    pub fn add_last_after(&self, key: K, delay: Duration) {
        self.add_at(key, (true, clock::instant() + delay));
    }

    pub fn add_after(&self, key: K, delay: Duration) {
        let now = clock::instant();
        let at = now.checked_add(delay).unwrap_or(now + DELAY_MAX);
        self.add_at(key, (false, at));
    }

    fn add_at(&self, key: K, mut turn: Turn) {
        let mut state = self.inner.state.lock();
        if let Some((_, until)) = state.resting.get(&key) {
            turn.1 = turn.1.max(*until);
        }
        if let Some(present) = state.due.get(&key).copied() {
            // Keep the higher priority and the earlier time: a later addition must not delay a key.
            turn = (turn.0 && present.0, turn.1.min(present.1));
            if turn == present {
                return;
            }
            state.order[usize::from(present.0)].remove(&(present.1, key.clone()));
        }
        state.due.insert(key.clone(), turn);
        state.order[usize::from(turn.0)].insert((turn.1, key));
        drop(state);
        self.inner.changed.notify_one();
    }

    /// Works forever, on up to `workers` keys at a time, of which at most a quarter have low priority. Dropping the future stops
    /// all work. `work` returns when to reconcile the key again. After a panic in it, only its key backs off; `panicked` is
    /// called at once with the key and the delay.
    pub async fn run<Work, Working, Panicked, Telling>(
        self,
        workers: usize,
        work: Work,
        panicked: Panicked,
    ) where
        K: Send + Sync + 'static,
        Work: Fn(K) -> Working,
        Working: Future<Output = Option<Duration>> + Send + 'static,
        Panicked: Fn(K, Duration) -> Telling + Clone + Send + Sync + 'static,
        Telling: Future<Output = ()> + Send,
    {
        let mut under_way = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                Some(ended) = under_way.join_next() => vital::check(ended),
                key = self.next(workers.div_ceil(4)), if under_way.len() < workers => {
                    let (queue, work, panicked) = (self.clone(), work(key.clone()), panicked.clone());
                    process::spawn_in(&mut under_way, async move {
                        let again = match AssertUnwindSafe(work).catch_unwind().await {
                            Ok(again) => {
                                queue.went_well(&key);
                                again
                            }
                            Err(_) => {
                                let rest = queue.rest(&key);
                                let telling = async { panicked(key.clone(), rest).await };
                                // If it panics, the panic hook has already logged it.
                                let _ = AssertUnwindSafe(telling).catch_unwind().await;
                                Some(rest)
                            }
                        };
                        queue.done(&key);
                        if let Some(delay) = again {
                            queue.add_after(key, delay);
                        }
                    });
                }
            }
        }
    }

    /// Keys that are due and wait for a worker.
    pub fn depth(&self) -> usize {
        let state = self.inner.state.lock();
        let now = clock::instant();
        let waits = |(_, key): &&(Instant, K)| !state.running.contains_key(key);
        let due = |order: &BTreeSet<(Instant, K)>| {
            let due = order.iter().take_while(|(at, _)| *at <= now);
            due.filter(waits).count()
        };
        state.order.iter().map(due).sum()
    }

    /// How long the key has been due that waits longest.
    pub fn waited(&self) -> Duration {
        let state = self.inner.state.lock();
        let first = state.order.iter().filter_map(|order| order.first());
        let first = first.map(|(at, _)| *at).min();
        first.map_or(Duration::ZERO, |at| {
            clock::instant().saturating_duration_since(at)
        })
    }

    /// Whether one of these keys is due, or worked on.
    pub fn is_busy_with(&self, of: impl Fn(&K) -> bool) -> bool {
        let state = self.inner.state.lock();
        let now = clock::instant();
        let mut due = state.due.iter().filter(|(_, (_, at))| *at <= now);
        state.running.keys().any(&of) || due.any(|(key, _)| of(key))
    }

    /// `last_max`: how many keys of low priority may be worked on at a time.
    async fn next(&self, last_max: usize) -> K {
        loop {
            let wait = {
                let mut state = self.inner.state.lock();
                let now = clock::instant();
                let idle = |(_, key): &&(Instant, K)| !state.running.contains_key(key);
                let waiting = state.running.values().filter(|last| **last).count();
                let last = (waiting < last_max).then_some(&state.order[1]);
                let lanes = [Some(&state.order[0]), last];
                let firsts = lanes.map(|order| order?.iter().find(idle).cloned());
                let is_due =
                    |first: &Option<(Instant, K)>| first.as_ref().is_some_and(|(at, _)| *at <= now);
                if let Some(last) = firsts.iter().position(is_due)
                    && let Some(first) = firsts[last].clone()
                {
                    state.order[last].remove(&first);
                    state.due.remove(&first.1);
                    state.running.insert(first.1.clone(), last == 1);
                    return first.1;
                }
                firsts.into_iter().flatten().map(|(at, _)| at).min()
            };
            match wait {
                Some(at) => {
                    tokio::select! {
                        biased;
                        () = self.inner.changed.notified() => {}
                        () = tokio::time::sleep_until(at) => {}
                    }
                }
                None => self.inner.changed.notified().await,
            }
        }
    }

    /// Returns the backoff.
    fn rest(&self, key: &K) -> Duration {
        let mut state = self.inner.state.lock();
        let times = state.resting.get(key).map_or(0, |(times, _)| *times) + 1;
        let wait = Backoff::PANIC.after(times);
        let until = clock::instant() + wait;
        state.resting.insert(key.clone(), (times, until));
        if let Some((last, at)) = state.due.remove(key) {
            state.order[usize::from(last)].remove(&(at, key.clone()));
        }
        wait
    }

    fn went_well(&self, key: &K) {
        self.inner.state.lock().resting.remove(key);
    }

    fn done(&self, key: &K) {
        self.inner.state.lock().running.remove(key);
        self.inner.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_key_is_worked_on_once_at_a_time_and_never_forgotten() {
        let queue: Queue<&str> = Queue::default();
        queue.add("a");
        queue.add("a");
        queue.add_after("b", Duration::from_secs(5));
        assert_eq!(queue.next(9).await, "a");
        queue.add("a");
        assert_eq!(queue.depth(), 0, "a is being worked on");
        let start = clock::instant();
        assert_eq!(queue.next(9).await, "b", "a is being worked on");
        assert_eq!(start.elapsed().as_secs(), 5);
        queue.done(&"a");
        assert_eq!(queue.next(9).await, "a", "added while it was worked on");
    }

    #[tokio::test(start_paused = true)]
    async fn what_can_wait_comes_last() {
        let queue: Queue<&str> = Queue::default();
        queue.add_last("shown");
        queue.add_last("shown, and then needed");
        queue.add_after("never", Duration::MAX);
        queue.add("needed");
        queue.add("shown, and then needed");
        assert_eq!(queue.depth(), 3);
        for expected in ["needed", "shown, and then needed", "shown"] {
            assert_eq!(queue.next(9).await, expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_can_wait_leaves_workers_to_the_others() {
        let queue: Queue<&str> = Queue::default();
        queue.add_last("shown");
        queue.add_last("shown too");
        assert_eq!(queue.next(1).await, "shown");
        let start = clock::instant();
        queue.add_after("needed", Duration::from_secs(3));
        assert_eq!(queue.next(1).await, "needed");
        assert_eq!(start.elapsed().as_secs(), 3);
        queue.done(&"shown");
        assert_eq!(queue.next(1).await, "shown too");
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_panics_rests_and_the_others_go_on() {
        let queue: Queue<&str> = Queue::default();
        let start = clock::instant();
        let turns: Arc<Mutex<Vec<(&str, u64)>>> = Arc::default();
        let rests: Arc<Mutex<Vec<u64>>> = Arc::default();
        queue.add("bad");
        queue.add("good");
        let (again, worked, rested) = (queue.clone(), turns.clone(), rests.clone());
        let running = process::spawn(queue.run(
            1,
            move |key| {
                worked.lock().push((key, start.elapsed().as_secs()));
                let (times, queue) = (worked.lock().len(), again.clone());
                async move {
                    // The event is added during the work, and during the backoff.
                    if times < 3 {
                        queue.add("bad");
                    }
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    assert!(key != "bad" || times == 8, "planted");
                    (key == "good").then(|| Duration::from_secs(20))
                }
            },
            move |key, rest| {
                rested.lock().push(rest.as_secs());
                async move { panic!("planted while {key} is told") }
            },
        ));
        tokio::time::sleep(Duration::from_secs(100)).await;
        running.abort();
        assert_eq!(*rests.lock(), [30, 60], "told each time");
        assert_eq!(
            *turns.lock(),
            [
                ("bad", 0),
                ("good", 1),
                ("good", 22),
                ("bad", 31),
                ("good", 43),
                ("good", 64),
                ("good", 85),
                ("bad", 92)
            ]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_earlier_time_counts() {
        let queue: Queue<&str> = Queue::default();
        queue.add_after("a", Duration::from_secs(60));
        queue.add_after("a", Duration::from_secs(1));
        queue.add_after("a", Duration::from_secs(30));
        let start = clock::instant();
        assert_eq!(queue.next(9).await, "a");
        assert_eq!(start.elapsed().as_secs(), 1);
    }
}
