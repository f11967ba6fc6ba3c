//! The ways to get the rules wrong. Each is one departure, and the model must find what it breaks.

use crate::bounds::{self, Bounds};
use crate::relabel::Names;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    ReleaseOnRead,
    FreeNotNewer,
    FreeUnheld,
    FreeUnconfirmed,
    FreeGoneByCache,
    GiveUpUnmoved,
    SlotGoesBack,
    ForgetLedger,
    WindowPlusOne,
    CountCurrent,
    RepairUncounted,
    RepairByRewriting,
    LedgerRetried,
    LedgerOverwritten,
    ReleaseRetried,
    ReleaseUnversioned,
    NeverGiveUp,
    BrokenNeedsRoom,
    FreeOnlySettled,
}

pub struct Card {
    pub mutant: Mutant,
    pub name: &'static str,
    pub what: &'static str,
    /// The property that it must be seen to break.
    pub breaks: &'static str,
    /// A small world in which it does.
    pub bounds: Bounds,
}

impl Card {
    /// Those that put a stale view of the ledger to use need the views kept as they are.
    pub fn names(&self) -> Names {
        match self.mutant {
            Mutant::LedgerRetried | Mutant::LedgerOverwritten | Mutant::ReleaseOnRead => {
                Names::Kept
            }
            _ => Names::Renumbered,
        }
    }
}

pub fn find(name: &str) -> Option<Card> {
    all().into_iter().find(|card| card.name == name)
}

pub fn all() -> Vec<Card> {
    use Mutant as M;
    let card = |mutant, name, breaks, bounds, what| Card {
        mutant,
        name,
        what,
        breaks,
        bounds,
    };
    vec![
        card(
            M::ReleaseOnRead,
            "release-on-read",
            "window",
            bounds::STRAYS,
            "a slot that was merely read is released on, with the resourceVersion read now",
        ),
        card(
            M::FreeNotNewer,
            "free-not-newer",
            "window",
            bounds::ONLY_EDITS,
            "a slot is freed by an observation that is not newer than the slot's resourceVersion",
        ),
        card(
            M::FreeUnheld,
            "free-unheld",
            "window",
            bounds::ONLY_EDITS,
            "a slot is freed because its node is no longer held, settled or not",
        ),
        card(
            M::FreeUnconfirmed,
            "free-unconfirmed",
            "window",
            bounds::MISREPORTS,
            "a slot is freed on the status alone, without the live read of the workloads",
        ),
        card(
            M::FreeGoneByCache,
            "free-gone-by-cache",
            "window",
            bounds::REMADE,
            "a slot is freed because a cache does not have its node, without a live read",
        ),
        card(
            M::GiveUpUnmoved,
            "give-up-unmoved",
            "window",
            bounds::Bounds {
                windows: &[2, 1, 2],
                ..bounds::SHRINKING
            },
            "an unused slot is given up while the node's resourceVersion has not moved",
        ),
        card(
            M::SlotGoesBack,
            "slot-goes-back",
            "window",
            bounds::STRAYS,
            "a slot is written again, from a stale view, with an older resourceVersion than it has",
        ),
        card(
            M::ForgetLedger,
            "forget-ledger",
            "window",
            bounds::ONLY_EDITS,
            "only non-ready nodes count, as far as they are seen; slots do not",
        ),
        card(
            M::WindowPlusOne,
            "window-plus-one",
            "window",
            bounds::ONLY_EDITS,
            "the window is one too wide",
        ),
        card(
            M::CountCurrent,
            "count-current",
            "window",
            bounds::ONLY_EDITS,
            "only nodes and slots of the newest content count",
        ),
        card(
            M::RepairUncounted,
            "repair-uncounted",
            "window",
            bounds::UNREADY,
            "a node that is non-ready may go, however many slots are taken",
        ),
        card(
            M::RepairByRewriting,
            "repair-by-rewriting",
            "repairs",
            bounds::ONLY_EDITS,
            "writing a slot again decides anew whether it is a repair",
        ),
        card(
            M::LedgerRetried,
            "ledger-retried",
            "window",
            bounds::ONLY_EDITS,
            "after a conflict the same change is made to the ledger that is there now",
        ),
        card(
            M::LedgerOverwritten,
            "ledger-overwritten",
            "window",
            bounds::ONLY_EDITS,
            "an older view of the ledger is written with the hub's newest resourceVersion",
        ),
        card(
            M::ReleaseRetried,
            "release-retried",
            "window",
            bounds::STRAYS,
            "after a conflict the node is read and released as it is now, the ledger unwritten",
        ),
        card(
            M::ReleaseUnversioned,
            "release-unversioned",
            "window",
            bounds::STRAYS,
            "a release names the hash only",
        ),
        card(
            M::NeverGiveUp,
            "never-give-up",
            "progress",
            bounds::SHRINKING,
            "an unused slot is never given up",
        ),
        card(
            M::BrokenNeedsRoom,
            "broken-needs-room",
            "progress",
            bounds::SHRINKING_WHILE_BROKEN,
            "the repair of a broken node that has a slot needs |S \\ {n}| < W too",
        ),
        card(
            M::FreeOnlySettled,
            "free-only-settled",
            "progress",
            bounds::SHRINKING_AT_CREATION,
            "a slot is freed of a settled node only: one never released has nothing to settle",
        ),
    ]
}
