//! The order of the faults: two decks of cards, shuffled by the seed and played side by side, each card once a round.

use std::sync::Arc;
use std::time::Instant;

use crate::dice::Dice;
use crate::faults::{self, Fault};
use crate::stage::Stage;

/// What strikes processes and the API server's own data.
pub const MACHINES: [Fault; 6] = [
    Fault::Killed,
    Fault::BothKilled,
    Fault::Frozen,
    Fault::ApiserverKilled,
    Fault::EtcdFrozen,
    Fault::EtcdKilled,
];

/// What strikes on the way between an operator and the API server. One at a time: they are the rules of one proxy.
pub const NETWORK: [Fault; 7] = [
    Fault::Gone,
    Fault::Silent,
    Fault::Lag,
    Fault::Refused,
    Fault::ReplyLost,
    Fault::Cut,
    Fault::Delayed,
];

pub async fn play(stage: &Arc<Stage>, deck: &[Fault], mut dice: Dice, end: Instant) {
    loop {
        let mut round = deck.to_vec();
        while !round.is_empty() {
            let fault = round.swap_remove(dice.below(round.len()));
            let calm = dice.seconds(0, 3);
            let strike = async {
                tokio::time::sleep(calm).await;
                faults::strike(stage, fault, &mut dice).await
            };
            let left = end.saturating_duration_since(Instant::now());
            match tokio::time::timeout(left, strike).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => println!("         {fault:?}: {error:#}"),
                Err(_) => return,
            }
        }
    }
}
