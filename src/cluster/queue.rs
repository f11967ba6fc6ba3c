//! A queue of keys: each is worked on by one worker at a time, however often it is added, now or later.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
use tokio::time::{Duration, Instant};

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

    /// Works until the process ends, on up to `workers` keys at a time. `work` says when to look at the key again.
    pub async fn run<F, Fut>(self, workers: usize, work: F)
    where
        K: Send + Sync + 'static,
        F: Fn(K) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Option<Duration>> + Send + 'static,
    {
        let permits = Arc::new(tokio::sync::Semaphore::new(workers));
        let work = Arc::new(work);
        loop {
            let permit = permits
                .clone()
                .acquire_owned()
                .await
                .expect("the semaphore is never closed");
            let key = self.next().await;
            let (queue, work) = (self.clone(), work.clone());
            tokio::spawn(async move {
                let again = work(key.clone()).await;
                queue.done(&key);
                if let Some(delay) = again {
                    queue.add_after(key, delay);
                }
                drop(permit);
            });
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
