//! What can happen next, and what follows: the world, the two leaders, and the way between them.

use lynqgate_plants::Plant;

use crate::bounds::{Bounds, Disturbance, Start};
use crate::rules::{Looks, Rules};
use crate::state::{Leader, Ledger, NONE, Node, Object, Release, Slot, State};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    // Disturbances, each one of the bounded number of changes, and the window's own list.
    Edit {
        node: usize,
        to: u8,
    },
    Stray {
        node: usize,
    },
    Force {
        node: usize,
    },
    Unready {
        node: usize,
    },
    Misreport {
        node: usize,
    },
    Delete {
        node: usize,
    },
    Create {
        node: usize,
    },
    MoveWindow,
    /// The leader crashes before it sends, or the patch is lost on its way.
    Lose {
        release: usize,
    },
    // The system at work. Each may be late, or never come.
    BecomeReady {
        node: usize,
    },
    Report {
        node: usize,
    },
    SeeLedger {
        leader: usize,
    },
    SeeNode {
        leader: usize,
        node: usize,
    },
    SeeWindow {
        leader: usize,
    },
    Reserve {
        leader: usize,
        node: usize,
    },
    Ungate {
        leader: usize,
        node: usize,
    },
    Confirm {
        leader: usize,
        node: usize,
    },
    Free {
        leader: usize,
        node: usize,
    },
    GiveUp {
        leader: usize,
        node: usize,
    },
    Land {
        release: usize,
    },
    // Of mutants only.
    ReleaseOnRead {
        leader: usize,
        node: usize,
    },
}

impl Step {
    /// Whether the system takes this step by itself, so that progress may count on it.
    pub fn is_work(&self) -> bool {
        use Step as S;
        !matches!(
            self,
            S::Edit { .. }
                | S::Stray { .. }
                | S::Force { .. }
                | S::Unready { .. }
                | S::Misreport { .. }
                | S::Delete { .. }
                | S::Create { .. }
                | S::MoveWindow
                | S::Lose { .. }
        )
    }
}

pub struct World<const N: usize> {
    pub bounds: Bounds,
    pub rules: Rules,
}

impl<const N: usize> World<N> {
    pub fn start(&self) -> State<N> {
        let (desired, live) = match self.bounds.start {
            Start::Settled => (1, 1),
            Start::New => (1, NONE),
            Start::Edited => (self.bounds.contents, 1),
        };
        let object = Object {
            exists: true,
            uid: 1,
            version: 1,
            desired,
            live,
            start: 1,
            settled: live != NONE,
        };
        let leader = Leader {
            ledger: Ledger::EMPTY,
            nodes: [object; N],
            confirmed: [false; N],
            window: self.bounds.windows[0],
        };
        let node = Node {
            object,
            ready: object.settled,
            flight: 0,
        };
        State {
            nodes: [node; N],
            ledger: Ledger::EMPTY,
            leaders: [leader; 2],
            releases: vec![],
            window: 0,
            changes_left: self.bounds.changes,
            inexact: false,
        }
    }

    fn window(&self, state: &State<N>) -> u8 {
        self.bounds.windows[usize::from(state.window)]
    }

    fn is_bad(&self, content: u8) -> bool {
        self.bounds.last_is_bad && content == self.bounds.contents
    }

    /// A healthy fleet: nobody wants what never becomes ready.
    pub fn can_complete(&self, state: &State<N>) -> bool {
        let bad = |node: &Node| node.object.exists && self.is_bad(node.object.desired);
        !state.nodes.iter().any(bad)
    }

    pub fn is_complete(&self, state: &State<N>) -> bool {
        let done = |node: &Node| {
            let object = &node.object;
            !object.exists || (!object.held() && object.settled && node.ready)
        };
        state.nodes.iter().all(done) && state.ledger.slots.iter().all(Option::is_none)
    }

    /// Everything that may be tried; `take` says what comes of it.
    pub fn steps(&self, state: &State<N>, steps: &mut Vec<Step>) {
        for node in 0..N {
            if state.changes_left > 0 {
                steps.extend((1..=self.bounds.contents).map(|to| Step::Edit { node, to }));
                steps.extend(self.bounds.disturbances.iter().map(|kind| match kind {
                    Disturbance::Stray => Step::Stray { node },
                    Disturbance::Force => Step::Force { node },
                    Disturbance::Unready => Step::Unready { node },
                    Disturbance::Misreport => Step::Misreport { node },
                }));
                if self.bounds.lives {
                    steps.extend([Step::Delete { node }, Step::Create { node }]);
                }
            }
            steps.extend([Step::BecomeReady { node }, Step::Report { node }]);
        }
        steps.push(Step::MoveWindow);
        for release in 0..state.releases.len() {
            steps.extend([Step::Land { release }, Step::Lose { release }]);
        }
        for leader in 0..2 {
            steps.extend([Step::SeeLedger { leader }, Step::SeeWindow { leader }]);
            for node in 0..N {
                steps.extend([
                    Step::SeeNode { leader, node },
                    Step::Reserve { leader, node },
                    Step::Ungate { leader, node },
                    Step::Confirm { leader, node },
                    Step::Free { leader, node },
                    Step::GiveUp { leader, node },
                ]);
                if self.rules.is(Plant::ReleaseOnRead) {
                    steps.push(Step::ReleaseOnRead { leader, node });
                }
            }
        }
    }

    /// The state after a step; None where the step cannot be taken or changes nothing.
    pub fn take(&self, before: &State<N>, step: Step) -> Option<State<N>> {
        let mut state = before.clone();
        match step {
            Step::Edit { node, .. }
            | Step::Stray { node }
            | Step::Force { node }
            | Step::Unready { node }
            | Step::Misreport { node }
            | Step::Delete { node }
            | Step::Create { node } => {
                self.disturb(&mut state.nodes[node], step)?;
                state.changes_left -= 1;
            }
            Step::MoveWindow => {
                state.window += 1;
                self.bounds.windows.get(usize::from(state.window))?;
            }
            Step::BecomeReady { node } => {
                let node = &mut state.nodes[node];
                let starts = node.object.exists && node.object.live != NONE && !node.ready;
                (starts && !self.is_bad(node.object.live)).then_some(())?;
                (node.ready, node.flight) = (true, 0);
            }
            Step::Report { node } => {
                let node = &mut state.nodes[node];
                (node.object.exists && node.object.settled != node.ready).then_some(())?;
                node.object.settled = node.ready;
                node.object.version += 1;
            }
            Step::Land { release } => self.land(&mut state, release)?,
            Step::Lose { release } => drop(state.releases.remove(release)),
            Step::SeeLedger { leader } => state.leaders[leader].ledger = state.ledger,
            Step::SeeWindow { leader } => state.leaders[leader].window = self.window(&state),
            Step::SeeNode { leader, node } => {
                let seen = &mut state.leaders[leader];
                (seen.nodes[node] != state.nodes[node].object).then_some(())?;
                let before = std::mem::replace(&mut seen.nodes[node], state.nodes[node].object);
                // The workloads may be read before the status says that they are ready.
                seen.confirmed[node] &=
                    seen.nodes[node].runs_as(&before) || self.rules.is(Plant::FreeOnOldRead);
            }
            Step::Reserve { leader, node } => self.reserve(&mut state, leader, node)?,
            Step::Ungate { leader, node } => {
                let seen = &state.leaders[leader];
                let object = seen.nodes[node];
                (seen.window == 0 && object.held()).then_some(())?;
                send(&mut state, node, &object, 0);
            }
            Step::ReleaseOnRead { leader, node } => {
                let seen = &state.leaders[leader];
                let object = seen.nodes[node];
                let slot = seen.ledger.slots[node]?;
                let same = (slot.uid, slot.hash) == (object.uid, object.desired);
                (same && object.held()).then_some(())?;
                send(&mut state, node, &object, slot.width);
            }
            Step::Confirm { leader, node } => self.confirm(&mut state, leader, node)?,
            Step::Free { leader, node } => self.free(&mut state, leader, node)?,
            Step::GiveUp { leader, node } => {
                let seen = &state.leaders[leader];
                let current = seen.ledger.version == state.ledger.version
                    && seen.nodes[node].version == state.nodes[node].object.version;
                (current && self.rules.gives_up(seen, node)).then_some(())?;
                state.nodes[node].object.version += 1;
            }
        }
        self.drop_refused(&mut state);
        (state != *before).then_some(state)
    }

    fn disturb(&self, node: &mut Node, step: Step) -> Option<()> {
        let object = &mut node.object;
        let can = match step {
            Step::Create { .. } => !object.exists,
            Step::Edit { to, .. } => object.exists && object.desired != to,
            Step::Force { .. } => object.held(),
            Step::Unready { .. } => object.exists && node.ready,
            Step::Misreport { .. } => object.non_ready() && !node.ready,
            _ => object.exists,
        };
        can.then_some(())?;
        match step {
            Step::Unready { .. } => {
                node.ready = false;
                return Some(());
            }
            Step::Edit { to, .. } => object.desired = to,
            Step::Force { .. } => {
                object.live = object.desired;
                object.start = object.version + 1;
                object.settled = false;
                (node.ready, node.flight) = (false, 0);
            }
            Step::Misreport { .. } => object.settled = true,
            Step::Delete { .. } => {
                let (uid, version) = (object.uid, object.version);
                *node = Node {
                    object: Object {
                        exists: false,
                        uid,
                        version,
                        desired: NONE,
                        live: NONE,
                        start: version + 1,
                        settled: false,
                    },
                    ready: false,
                    flight: 0,
                };
            }
            Step::Create { .. } => {
                object.exists = true;
                object.uid += 1;
                object.desired = 1;
            }
            _ => {}
        }
        node.object.version += 1;
        Some(())
    }

    /// The compare-and-swap. None where it loses: the leader must read the ledger and decide anew.
    fn write_ledger(
        &self,
        state: &mut State<N>,
        leader: usize,
        change: impl Fn(&mut Ledger<N>),
    ) -> Option<()> {
        let seen = &state.leaders[leader].ledger;
        let mut written =
            if seen.version == state.ledger.version || self.rules.is(Plant::LeaderWithoutFence) {
                *seen
            } else if self.rules.is(Plant::LedgerRetried) {
                state.ledger
            } else {
                return None;
            };
        change(&mut written);
        let same = |(new, old): (&Option<_>, &Option<_>)| match (new, old) {
            (Some(new), Some(old)) => Slot::same_bytes(new, old),
            (new, old) => new.is_none() && old.is_none(),
        };
        // The API server answers 200 to a write that changes no byte, and the resourceVersion stays.
        if !written.slots.iter().zip(&state.ledger.slots).all(same) {
            state.ledger.slots = written.slots;
            state.ledger.version += 1;
        }
        state.leaders[leader].ledger = state.ledger;
        Some(())
    }

    fn reserve(&self, state: &mut State<N>, leader: usize, node: usize) -> Option<()> {
        let slot = self.rules.slot_to_write(&state.leaders[leader], node)?;
        self.write_ledger(state, leader, |ledger| ledger.slots[node] = Some(slot))?;
        let width = state.ledger.slots[node].map_or(slot.width, |slot| slot.width);
        let object = state.leaders[leader].nodes[node];
        send(state, node, &object, width);
        Some(())
    }

    fn confirm(&self, state: &mut State<N>, leader: usize, node: usize) -> Option<()> {
        let seen = &state.leaders[leader];
        (seen.ledger.version == state.ledger.version).then_some(())?;
        let view = &seen.nodes[node];
        let slot = seen.ledger.slots[node]?;
        (view.exists && view.live != NONE).then_some(())?;
        // Else it frees nothing.
        let newer = view.version > slot.version || self.rules.is(Plant::FreeNotNewer);
        (slot.uid == view.uid && newer).then_some(())?;
        // Where another release is live by now, the workloads may still be as the view has them.
        let truth = &state.nodes[node];
        (truth.ready || !truth.object.runs_as(view)).then_some(())?;
        state.leaders[leader].confirmed[node] = true;
        Some(())
    }

    fn free(&self, state: &mut State<N>, leader: usize, node: usize) -> Option<()> {
        let seen = &state.leaders[leader];
        let truth = &state.nodes[node].object;
        let free = match self.rules.looks_free(seen, node) {
            Looks::Taken => false,
            Looks::Unused => true,
            Looks::Settled => seen.confirmed[node] || self.rules.is(Plant::FreeUnconfirmed),
            Looks::Gone => {
                let slot = seen.ledger.slots[node]?;
                let gone = !truth.exists || truth.uid != slot.uid;
                gone || self.rules.is(Plant::FreeGoneByCache)
            }
        };
        free.then_some(())?;
        self.write_ledger(state, leader, |ledger| ledger.slots[node] = None)
    }

    fn land(&self, state: &mut State<N>, release: usize) -> Option<()> {
        let release = state.releases.remove(release);
        let hash = self.would_make_live(state, &release)?;
        let n = usize::from(release.node);
        let node = &mut state.nodes[n];
        let gated = release.width > 0;
        let named = state.ledger.slots[n].is_some_and(|slot| {
            (slot.uid, slot.hash, slot.version) == (node.object.uid, hash, node.object.version)
        });
        state.inexact |= gated && !named;
        node.object.live = hash;
        node.object.settled = false;
        node.object.version += 1;
        node.object.start = node.object.version;
        node.ready = false;
        node.flight = release.width;
        Some(())
    }

    /// What the gate and the API server let through. It names the hash and the resourceVersion, or it is refused.
    fn would_make_live(&self, state: &State<N>, release: &Release) -> Option<u8> {
        let object = &state.nodes[usize::from(release.node)].object;
        if !object.held() {
            return None;
        }
        if self.rules.is(Plant::BlindRetry) {
            return Some(object.desired);
        }
        let same_version =
            release.version == object.version || self.rules.is(Plant::ReleaseUnversioned);
        (release.hash == object.desired && same_version).then_some(release.hash)
    }

    /// A release that can never land any more might as well be lost.
    fn drop_refused(&self, state: &mut State<N>) {
        if self.rules.is(Plant::BlindRetry) || self.rules.is(Plant::ReleaseUnversioned) {
            return;
        }
        let mut releases = std::mem::take(&mut state.releases);
        releases.retain(|release| self.would_make_live(state, release).is_some());
        state.releases = releases;
    }
}

fn send<const N: usize>(state: &mut State<N>, node: usize, object: &Object, width: u8) {
    let release = Release {
        node: node as u8,
        hash: object.desired,
        version: object.version,
        width,
    };
    if let Err(at) = state.releases.binary_search(&release) {
        state.releases.insert(at, release);
    }
}
