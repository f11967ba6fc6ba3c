//! A queue of keys: each is worked on by one worker at a time, however often it is added, now or later.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant};

use crate::cluster::vital;

/// Cheap to clone; all clones are one queue.
pub struct Queue<K> {
    inner: Arc<Inner<K>>,
}

struct Inner<K> {
    state: Mutex<State<K>>,
    changed: Notify,
}

struct State<K> {
    /// When each waiting key is due.
    due: BTreeMap<K, Instant>,
    /// The same, ordered by time.
    order: BTreeSet<(Instant, K)>,
    /// Keys being worked on; what is added meanwhile waits until that is over.
    running: BTreeSet<K>,
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
            order: BTreeSet::new(),
            running: BTreeSet::new(),
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
        self.add_at(key, Instant::now());
    }

    pub fn add_after(&self, key: K, delay: Duration) {
        self.add_at(key, Instant::now() + delay);
    }

    fn add_at(&self, key: K, at: Instant) {
        let mut state = self.inner.state.lock().expect("the queue's lock");
        match state.due.get(&key) {
            Some(present) if *present <= at => return,
            Some(present) => {
                let present = *present;
                state.order.remove(&(present, key.clone()));
            }
            None => {}
        }
        state.due.insert(key.clone(), at);
        state.order.insert((at, key));
        drop(state);
        self.inner.changed.notify_one();
    }

    /// Works forever, on up to `workers` keys at a time; dropped, it stops what is under way. `work` says when to look at
    /// the key again. A panic in it ends the process: a loop that has failed inside must start anew, not go on half-way.
    pub async fn run<F, Fut>(self, workers: usize, work: F)
    where
        K: Send + Sync + 'static,
        F: Fn(K) -> Fut,
        Fut: Future<Output = Option<Duration>> + Send + 'static,
    {
        let mut under_way = JoinSet::new();
        loop {
            tokio::select! {
                key = self.next(), if under_way.len() < workers => {
                    let (queue, done) = (self.clone(), work(key.clone()));
                    under_way.spawn(async move {
                        let again = done.await;
                        queue.done(&key);
                        if let Some(delay) = again {
                            queue.add_after(key, delay);
                        }
                    });
                }
                Some(ended) = under_way.join_next() => vital::check(ended),
            }
        }
    }

    async fn next(&self) -> K {
        loop {
            let wait = {
                let mut state = self.inner.state.lock().expect("the queue's lock");
                let now = Instant::now();
                let ready = state
                    .order
                    .iter()
                    .take_while(|(at, _)| *at <= now)
                    .find(|(_, key)| !state.running.contains(key))
                    .cloned();
                if let Some((at, key)) = ready {
                    state.order.remove(&(at, key.clone()));
                    state.due.remove(&key);
                    state.running.insert(key.clone());
                    return key;
                }
                state
                    .order
                    .iter()
                    .find(|(_, key)| !state.running.contains(key))
                    .map(|(at, _)| *at)
            };
            match wait {
                Some(at) => {
                    tokio::select! {
                        () = tokio::time::sleep_until(at) => {}
                        () = self.inner.changed.notified() => {}
                    }
                }
                None => self.inner.changed.notified().await,
            }
        }
    }

    fn done(&self, key: &K) {
        self.inner
            .state
            .lock()
            .expect("the queue's lock")
            .running
            .remove(key);
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
        assert_eq!(queue.next().await, "a");
        queue.add("a");
        let start = Instant::now();
        assert_eq!(queue.next().await, "b", "a is being worked on");
        assert_eq!(start.elapsed().as_secs(), 5);
        queue.done(&"a");
        assert_eq!(queue.next().await, "a", "added while it was worked on");
    }

    #[tokio::test(start_paused = true)]
    async fn the_earlier_time_counts() {
        let queue: Queue<&str> = Queue::default();
        queue.add_after("a", Duration::from_secs(60));
        queue.add_after("a", Duration::from_secs(1));
        queue.add_after("a", Duration::from_secs(30));
        let start = Instant::now();
        assert_eq!(queue.next().await, "a");
        assert_eq!(start.elapsed().as_secs(), 1);
    }
}
