//! The ledger's rules: what a leader may do, by what it has seen. It must not look at the world behind that.
//!
//! A mutant is one `if` here or in `steps`, at the very rule it breaks.

use lynqgate_plants::Plant;

use crate::state::{Leader, NONE, Object, Slot};

#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub mutant: Option<Plant>,
}

impl Rules {
    pub fn is(&self, plant: Plant) -> bool {
        self.mutant == Some(plant)
    }

    /// Whether the window has room for this node. With S the nodes that have a slot, R the non-ready ones:
    /// n is in S and in R, or `|S \ {n}| < W` and (n is in R, or `|S ∪ R ∪ {n}| <= W`).
    fn has_room<const N: usize>(&self, leader: &Leader<N>, n: usize) -> bool {
        let has_slot = |m: usize| self.counts(leader, m) && !self.is(Plant::IgnoreSlots);
        let is_broken = |m: usize| {
            let old = self.is(Plant::CountCurrent) && leader.nodes[m].held();
            leader.nodes[m].non_ready() && !old
        };
        let width = usize::from(leader.window) + usize::from(self.is(Plant::WindowPlusOne));
        let others = (0..N).filter(|m| *m != n && has_slot(*m)).count();
        let all = (0..N)
            .filter(|m| *m == n || has_slot(*m) || is_broken(*m))
            .count();
        let repaired_in_place = leader.ledger.slots[n].is_some()
            && leader.nodes[n].non_ready()
            && !self.is(Plant::BrokenNeedsRoom);
        let slot_fits = others < width || (self.is(Plant::RepairUncounted) && is_broken(n));
        repaired_in_place || (slot_fits && (is_broken(n) || all <= width))
    }

    fn counts<const N: usize>(&self, leader: &Leader<N>, m: usize) -> bool {
        leader.ledger.slots[m].is_some_and(|slot| {
            !self.is(Plant::CountCurrent) || slot.hash == leader.nodes[m].desired
        })
    }

    /// The slot to write before node n is released; None if it may not be released.
    pub fn slot_to_write<const N: usize>(&self, leader: &Leader<N>, n: usize) -> Option<Slot> {
        let node = &leader.nodes[n];
        if !node.held() || leader.window == 0 || !self.has_room(leader, n) {
            return None;
        }
        let new = Slot {
            uid: node.uid,
            hash: node.desired,
            version: node.version,
            repair: node.non_ready(),
            width: leader.window,
            taken_for_repair: node.non_ready(),
        };
        let Some(old) = leader.ledger.slots[n] else {
            return Some(new);
        };
        let goes_back = node.version < old.version && !self.is(Plant::SlotGoesBack);
        if old.uid != node.uid || goes_back {
            return None;
        }
        let others = leader.ledger.slots.iter().flatten().count() - 1;
        Some(Slot {
            repair: match self.is(Plant::RepairByRewriting) {
                true => new.repair,
                false => old.repair,
            },
            taken_for_repair: old.taken_for_repair,
            // Repaired in place in a window that has become smaller, it is still one of those that the larger one let go.
            width: match others < usize::from(leader.window) {
                true => leader.window,
                false => old.width,
            },
            ..new
        })
    }

    /// Whether the slot of node n may be freed, all live reads aside.
    pub fn looks_free<const N: usize>(&self, leader: &Leader<N>, n: usize) -> Looks {
        let (Some(slot), node) = (leader.ledger.slots[n], &leader.nodes[n]) else {
            return Looks::Taken;
        };
        if !node.exists || node.uid != slot.uid {
            return Looks::Gone;
        }
        if self.is(Plant::GiveUpUnmoved) && self.is_stuck(leader, n, &slot, node) {
            return Looks::Unused;
        }
        if node.version <= slot.version && !self.is(Plant::FreeNotNewer) {
            return Looks::Taken;
        }
        if node.settled {
            Looks::Settled
        } else if node.live == NONE && !self.is(Plant::FreeOnlySettled)
            || self.is(Plant::FreeUnheld) && !node.held()
        {
            Looks::Unused
        } else {
            Looks::Taken
        }
    }

    /// Whether the node's resourceVersion is to be moved, so that its unused slot can be freed.
    pub fn gives_up<const N: usize>(&self, leader: &Leader<N>, n: usize) -> bool {
        let node = &leader.nodes[n];
        leader.ledger.slots[n].is_some_and(|slot| self.is_stuck(leader, n, &slot, node))
            && !self.is(Plant::NeverGiveUp)
    }

    fn is_stuck<const N: usize>(
        &self,
        leader: &Leader<N>,
        n: usize,
        slot: &Slot,
        node: &Object,
    ) -> bool {
        slot.uid == node.uid
            && slot.version == node.version
            && node.held()
            && leader.window != 0
            && !self.has_room(leader, n)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looks {
    Taken,
    /// Free, once the workloads are confirmed.
    Settled,
    /// Free: no release was made through it, and none can be.
    Unused,
    /// Free, once a live read confirms it.
    Gone,
}
