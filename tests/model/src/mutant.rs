//! The planted bugs as mutants of the rules: each is one departure, and the model must find what it breaks.

use lynqgate_plants::{Plant, Proof};

use crate::bounds::{self, Bounds};
use crate::relabel::Names;

pub struct Card {
    pub plant: Plant,
    /// The property that it must be seen to break.
    pub breaks: &'static str,
    /// A small world in which it does.
    pub bounds: Bounds,
}

impl Card {
    pub fn of(plant: Plant) -> Card {
        let Some([breaks]) = plant.breaks_in(Proof::Model) else {
            panic!("{plant} breaks one property of the model");
        };
        Card {
            plant,
            breaks,
            bounds: world_of(plant),
        }
    }

    /// Those that put a stale view of the ledger to use need the views kept as they are.
    pub fn names(&self) -> Names {
        match self.plant {
            Plant::LedgerRetried | Plant::LeaderWithoutFence | Plant::ReleaseOnRead => Names::Kept,
            _ => Names::Renumbered,
        }
    }
}

pub fn all() -> impl Iterator<Item = Card> {
    Proof::Model.plants().map(Card::of)
}

fn world_of(plant: Plant) -> Bounds {
    match plant {
        Plant::FreeNotNewer
        | Plant::FreeUnheld
        | Plant::IgnoreSlots
        | Plant::WindowPlusOne
        | Plant::CountCurrent
        | Plant::RepairByRewriting
        | Plant::LedgerRetried
        | Plant::LeaderWithoutFence => bounds::ONLY_EDITS,
        Plant::ReleaseOnRead
        | Plant::SlotGoesBack
        | Plant::BlindRetry
        | Plant::ReleaseUnversioned => bounds::STRAYS,
        Plant::FreeUnconfirmed => bounds::MISREPORTS,
        Plant::FreeOnOldRead => Bounds {
            changes: 4,
            ..bounds::MISREPORTS
        },
        Plant::FreeGoneByCache => bounds::REMADE,
        Plant::GiveUpUnmoved => Bounds {
            windows: &[2, 1, 2],
            ..bounds::SHRINKING
        },
        Plant::RepairUncounted => bounds::UNREADY,
        Plant::NeverGiveUp => bounds::SHRINKING,
        Plant::BrokenNeedsRoom => bounds::SHRINKING_WHILE_BROKEN,
        Plant::FreeOnlySettled => bounds::SHRINKING_AT_CREATION,
        other => panic!("the model does not have {other}"),
    }
}
