//! Whose turn it is to render and write nodes: so many hubs do that at a time.

use tokio::sync::{Semaphore, SemaphorePermit};

/// Nodes that only wait for their release, and are written in one turn while other hubs wait for theirs.
const NODES_MAX: usize = 32;

pub struct Turn<'a> {
    turns: &'a Semaphore,
    held: Option<SemaphorePermit<'a>>,
    /// How many more of these nodes may be written.
    left: usize,
}

impl<'a> Turn<'a> {
    pub async fn of(turns: &'a Semaphore) -> Self {
        let mut turn = Turn {
            turns,
            held: None,
            left: 0,
        };
        turn.next().await;
        turn
    }

    /// Gives the turn up, and waits for the next one: those who have waited for longer come first.
    pub async fn next(&mut self) {
        self.held = None;
        let held = self.turns.acquire().await;
        self.held = Some(held.expect("it is never closed"));
        self.left = NODES_MAX;
    }

    /// Whether one more node that only waits may be written.
    pub fn allows_waiting(&self) -> bool {
        // Where a turn is free, nobody waits for this one.
        self.left > 0 || self.turns.available_permits() > 0
    }

    pub fn wrote_waiting(&mut self) {
        self.left = self.left.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::join;

    use super::*;

    #[tokio::test]
    async fn hubs_that_write_much_take_turns() {
        let (turns, order) = (Semaphore::new(1), Mutex::new(vec![]));
        let write = async |hub: &'static str, nodes: usize| {
            let mut turn = Turn::of(&turns).await;
            for _ in 0..nodes {
                if !turn.allows_waiting() {
                    turn.next().await;
                }
                turn.wrote_waiting();
                order.lock().expect("no panic").push(hub);
                tokio::task::yield_now().await;
            }
        };
        join!(write("large", 3 * NODES_MAX), write("small", 1));
        let order = order.into_inner().expect("no panic");
        let small = order.iter().position(|hub| *hub == "small");
        assert_eq!(small, Some(NODES_MAX));
        assert_eq!(order.len(), 3 * NODES_MAX + 1);
    }

    #[tokio::test]
    async fn a_turn_goes_on_while_nobody_waits() {
        let turns = Semaphore::new(2);
        let mut turn = Turn::of(&turns).await;
        (0..NODES_MAX).for_each(|_| turn.wrote_waiting());
        assert!(turn.allows_waiting());
        let _other = Turn::of(&turns).await;
        assert!(!turn.allows_waiting());
    }
}
