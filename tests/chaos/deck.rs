//! The order of the faults: two decks of cards, shuffled by the seed and played side by side, each card once a round.

use std::sync::Arc;
use std::time::Instant;

use crate::dice::Dice;
use crate::faults::{self, Fault};
use crate::stage::Stage;

pub struct Deck {
    /// Seconds between two faults, at least and at most: rollouts go on between them.
    calm: (u64, u64),
    cards: &'static [Fault],
}

/// What strikes processes and the API server's own data.
pub const MACHINES: Deck = Deck {
    calm: (3, 12),
    cards: &[
        Fault::Killed,
        Fault::BothKilled,
        Fault::Frozen,
        Fault::ApiserverKilled,
        Fault::EtcdFrozen,
        Fault::EtcdKilled,
        Fault::Compacted,
        Fault::Full,
        Fault::WebhooksDown,
        Fault::ConfigurationsDeleted,
        Fault::OtherWebhook,
        Fault::SecondWriter,
        Fault::KindGone,
        Fault::RestartStorm,
        Fault::ClockJump,
    ],
};

/// What strikes on the way between an operator and the API server. One at a time: they are the rules of one proxy.
pub const NETWORK: Deck = Deck {
    calm: (0, 4),
    cards: &[
        Fault::Gone,
        Fault::Silent,
        Fault::Lag,
        Fault::TwoLeaders,
        Fault::Lag,
        Fault::Refused,
        Fault::ReplyLost,
        Fault::Cut,
        Fault::Delayed,
        Fault::LedgerLost,
    ],
};

pub async fn play(stage: &Arc<Stage>, deck: &Deck, mut dice: Dice, end: Instant) {
    loop {
        let mut round = deck.cards.to_vec();
        while !round.is_empty() {
            let fault = round.swap_remove(dice.below(round.len()));
            let calm = dice.seconds(deck.calm.0, deck.calm.1);
            tokio::time::sleep(calm).await;
            // A fault that has begun comes to its end, and is undone.
            if Instant::now() >= end {
                return;
            }
            if let Err(error) = faults::strike(stage, fault, &mut dice).await {
                println!("         {}: {error:#}", fault.name());
            }
        }
    }
}
