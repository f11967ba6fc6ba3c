//! States that differ in names only are one: versions keep their order, nodes and leaders may change places.
//!
//! The rules only compare versions and uids of one node, so that numbering them anew changes nothing that can happen. A
//! leader with a stale view of the ledger can only lose its compare-and-swap, whatever the view says. Neither holds where
//! a mutant says otherwise; those are explored with `Names::Kept`.

use crate::state::{Ledger, State};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// Every state as it is: traces can be read.
    Kept,
    /// Versions numbered anew; the same steps lead to the same states.
    Renumbered,
    /// Also sorted, nodes and leaders.
    Sorted,
}

pub fn relabel<const N: usize>(state: State<N>, names: Names) -> State<N> {
    match names {
        Names::Kept => state,
        Names::Renumbered => renumbered(state),
        Names::Sorted => smallest(renumbered(state)),
    }
}

fn renumbered<const N: usize>(mut state: State<N>) -> State<N> {
    for leader in &mut state.leaders {
        let current = leader.ledger.version == state.ledger.version;
        leader.ledger = if current { state.ledger } else { Ledger::EMPTY };
        leader.ledger.version = u8::from(current);
    }
    state.ledger.version = 1;
    for n in 0..N {
        // Whether a view has the release that is live is all that the rules compare.
        let start = std::mem::replace(&mut state.nodes[n].object.start, 1);
        for leader in &mut state.leaders {
            let seen = &mut leader.nodes[n];
            seen.start = u8::from(seen.start == start);
        }
        let mut versions = Numbers::default();
        let mut uids = Numbers::default();
        for_each(&mut state, n, |version, uid| {
            versions.see(version);
            uid.into_iter().for_each(|uid| uids.see(uid));
        });
        for_each(&mut state, n, |version, uid| {
            *version = versions.place(*version);
            uid.into_iter().for_each(|uid| *uid = uids.place(*uid));
        });
    }
    state
}

/// Every version of node n, with the uid beside it.
fn for_each<const N: usize>(
    state: &mut State<N>,
    n: usize,
    mut f: impl FnMut(&mut u8, Option<&mut u8>),
) {
    let object = &mut state.nodes[n].object;
    f(&mut object.version, Some(&mut object.uid));
    for leader in &mut state.leaders {
        let object = &mut leader.nodes[n];
        f(&mut object.version, Some(&mut object.uid));
        if let Some(slot) = &mut leader.ledger.slots[n] {
            f(&mut slot.version, Some(&mut slot.uid));
        }
    }
    if let Some(slot) = &mut state.ledger.slots[n] {
        f(&mut slot.version, Some(&mut slot.uid));
    }
    for release in &mut state.releases {
        if usize::from(release.node) == n {
            f(&mut release.version, None);
        }
    }
}

/// A set of small numbers, and each one's place in it.
#[derive(Default)]
struct Numbers(u128);

impl Numbers {
    fn see(&mut self, number: &u8) {
        assert!(*number < 127, "versions are numbered anew after every step");
        self.0 |= 1 << number;
    }

    fn place(&self, number: u8) -> u8 {
        (self.0 & ((1 << number) - 1)).count_ones() as u8 + 1
    }
}

fn smallest<const N: usize>(state: State<N>) -> State<N> {
    let mut order = [0; N];
    (0..N).for_each(|n| order[n] = n);
    let mut best = state.clone();
    loop {
        let moved = placed(&state, &order);
        let mut swapped = moved.clone();
        swapped.leaders.swap(0, 1);
        best = best.min(moved).min(swapped);
        if !next_order(&mut order) {
            return best;
        }
    }
}

fn placed<const N: usize>(state: &State<N>, order: &[usize; N]) -> State<N> {
    let mut moved = state.clone();
    for (to, from) in order.iter().copied().enumerate() {
        moved.nodes[to] = state.nodes[from];
        moved.ledger.slots[to] = state.ledger.slots[from];
        for (leader, old) in moved.leaders.iter_mut().zip(&state.leaders) {
            leader.nodes[to] = old.nodes[from];
            leader.confirmed[to] = old.confirmed[from];
            leader.ledger.slots[to] = old.ledger.slots[from];
        }
        for (release, old) in moved.releases.iter_mut().zip(&state.releases) {
            if usize::from(old.node) == from {
                release.node = to as u8;
            }
        }
    }
    moved.releases.sort_unstable();
    moved
}

/// The next order of all, as in a dictionary; false after the last.
fn next_order(order: &mut [usize]) -> bool {
    let Some(i) = (1..order.len()).rev().find(|i| order[i - 1] < order[*i]) else {
        return false;
    };
    let j = (i..order.len())
        .rev()
        .find(|j| order[*j] > order[i - 1])
        .expect("order[i] is larger");
    order.swap(i - 1, j);
    order[i..].reverse();
    true
}
