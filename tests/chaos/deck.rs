//! The order of the faults: two decks of cards, shuffled by the seed and played side by side, each card once a round. The
//! first round of each is always played to its end.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
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
    calm: (2, 8),
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

/// How often a fault that could not be played is tried once more: the API server may have been away.
const TRIES_MORE: usize = 2;

/// Plays until the end has come and the first round is over. Returns the cards that were never played, and why.
pub async fn play(stage: &Arc<Stage>, deck: &Deck, mut dice: Dice, end: Instant) -> Vec<String> {
    let (mut played, mut failed) = (BTreeSet::new(), BTreeMap::new());
    let mut is_first = true;
    'rounds: loop {
        let mut round = deck.cards.to_vec();
        let mut again = VecDeque::new();
        while let Some((fault, tries)) = next(&mut round, &mut again, &mut dice) {
            let calm = dice.seconds(deck.calm.0, deck.calm.1);
            tokio::time::sleep(calm).await;
            // A fault that has begun comes to its end, and is undone.
            if Instant::now() >= end && !is_first {
                break 'rounds;
            }
            if !fault.can_be_played() {
                continue;
            }
            match faults::strike(stage, fault, &mut dice).await {
                Ok(()) => drop(played.insert(fault.name())),
                Err(error) => {
                    println!("         {}: {error:#}", fault.name());
                    failed.insert(fault.name(), format!("{error:#}"));
                    if is_first && tries < TRIES_MORE {
                        again.push_back((fault, tries + 1));
                    }
                }
            }
        }
        is_first = false;
    }
    failed.retain(|name, _| !played.contains(name));
    failed
        .iter()
        .map(|(name, why)| format!("{name} ({why})"))
        .collect()
}

/// The next card, and how often it was tried; what failed comes when all others have been played.
fn next(
    round: &mut Vec<Fault>,
    again: &mut VecDeque<(Fault, usize)>,
    dice: &mut Dice,
) -> Option<(Fault, usize)> {
    match round.len() {
        0 => again.pop_front(),
        cards => Some((round.swap_remove(dice.below(cards)), 0)),
    }
}
