//! The shell's rules as a model: what is read when, what a write depends on, what must never be. And ways to get them wrong.

use stateright::{Model, Property};

use super::state::{Change, First, LeaseState, NodeState, Pending, State, ToDo, decide};

/// A maintenance is seen to end.
pub const ENDS: &str = "a maintenance ends";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum World {
    /// Two operators of two names.
    Rivals,
    /// The same name: two replicas that both believe that they lead.
    Replicas,
    /// A person had cordoned it before.
    Cordoned,
}

impl World {
    pub const ALL: [World; 3] = [World::Rivals, World::Replicas, World::Cordoned];

    pub fn name(self) -> &'static str {
        match self {
            World::Rivals => "rivals",
            World::Replicas => "replicas",
            World::Cordoned => "cordoned",
        }
    }

    fn ticks_max(self) -> u8 {
        match self {
            World::Replicas => 1,
            World::Rivals | World::Cordoned => 4,
        }
    }

    fn edits_max(self) -> u8 {
        match self {
            World::Replicas => 3,
            World::Rivals | World::Cordoned => 1,
        }
    }

    fn holder(self, operator: usize) -> u8 {
        match self {
            World::Replicas => 0,
            World::Rivals | World::Cordoned => operator as u8,
        }
    }
}

/// One departure from the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The Kubernetes node is written whatever became of it and of the Lease since.
    WritesBlindly,
    /// The Lease is written over whatever version it has.
    OverwritesTheLease,
    /// A clock that is a tick ahead ends another's Lease too soon.
    StealsEarly,
    /// What was cordoned before is not remembered.
    ForgetsTheCordon,
    /// A stopped process goes on evicting when it wakes.
    EvictsLate,
    /// The Kubernetes node is read before the Lease.
    ReadsTheNodeFirst,
    /// The Lease is reset before the Kubernetes node is uncordoned, and a lost write is not made again.
    ResetsFirst,
}

impl Bug {
    pub const ALL: [Bug; 7] = [
        Bug::WritesBlindly,
        Bug::OverwritesTheLease,
        Bug::StealsEarly,
        Bug::ForgetsTheCordon,
        Bug::EvictsLate,
        Bug::ReadsTheNodeFirst,
        Bug::ResetsFirst,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Bug::WritesBlindly => "writes-blindly",
            Bug::OverwritesTheLease => "overwrites-the-lease",
            Bug::StealsEarly => "steals-early",
            Bug::ForgetsTheCordon => "forgets-the-cordon",
            Bug::EvictsLate => "evicts-late",
            Bug::ReadsTheNodeFirst => "reads-the-node-first",
            Bug::ResetsFirst => "resets-first",
        }
    }

    pub fn world(self) -> World {
        match self {
            Bug::ForgetsTheCordon => World::Cordoned,
            Bug::ReadsTheNodeFirst => World::Replicas,
            _ => World::Rivals,
        }
    }
}

/// Of the Lease; the Kubernetes node has a few more.
const VERSIONS_MAX: u8 = 8;

#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    pub world: World,
    pub bug: Option<Bug>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    Tick,
    Ask,
    Withdraw,
    /// The operator reads the Lease.
    Read(usize),
    /// It reads the Kubernetes node, and decides.
    Decide(usize),
    /// It does the next thing that it decided. A write of the Kubernetes node is only sent.
    Do(usize),
    /// What was sent arrives, however late.
    Arrive(usize),
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let node = NodeState {
            version: 1,
            asks: true,
            status: None,
            told_by: None,
            cordoned: self.world == World::Cordoned,
        };
        vec![State {
            now: 0,
            edits: 0,
            node,
            lease: None,
            read: [None, None],
            pending: [None, None],
            broken: None,
            ended: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < self.world.ticks_max() {
            actions.push(Action::Tick);
        }
        if state.edits < self.world.edits_max() {
            actions.push(match state.node.asks {
                true => Action::Withdraw,
                false => Action::Ask,
            });
        }
        for operator in [0, 1] {
            match &state.pending[operator] {
                Some(pending) if pending.sent => actions.push(Action::Arrive(operator)),
                Some(_) => actions.push(Action::Do(operator)),
                None if state.read[operator].is_some() => actions.push(Action::Decide(operator)),
                None => actions.push(Action::Read(operator)),
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Tick => state.now += 1,
            Action::Ask | Action::Withdraw => {
                state.edits += 1;
                state.node.version += 1;
                state.node.asks = action == Action::Ask;
            }
            Action::Read(operator) => {
                state.pending[operator] = None;
                state.read[operator] = Some(match self.has(Bug::ReadsTheNodeFirst) {
                    true => First::Node(state.node.clone()),
                    false => First::Lease(state.lease.clone()),
                });
            }
            Action::Decide(operator) => self.decide(&mut state, operator),
            Action::Do(operator) => self.go_on(&mut state, operator),
            Action::Arrive(operator) => self.arrive(&mut state, operator),
        }
        (state != *last).then_some(state)
    }

    /// Two replicas may take each other's turns for as long as both believe that they lead.
    fn within_boundary(&self, state: &State) -> bool {
        let versions = state.lease.as_ref().map_or(0, |lease| lease.version);
        versions < VERSIONS_MAX && state.node.version < VERSIONS_MAX + 4
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("nothing forbidden is written", |_, state: &State| {
                state.broken.is_none()
            }),
            Property::always(
                "at rest nothing stays cordoned",
                |model: &Protocol, state| model.is_released(state),
            ),
            Property::sometimes(ENDS, |_, state: &State| state.ended),
        ]
    }
}

impl Protocol {
    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    fn decide(&self, state: &mut State, operator: usize) {
        let (node, lease) = match state.read[operator].take() {
            None => return,
            Some(First::Lease(lease)) => (state.node.clone(), lease),
            Some(First::Node(node)) => (node, state.lease.clone()),
        };
        let early = u8::from(self.has(Bug::StealsEarly));
        let holder = self.world.holder(operator);
        let mut to_do = decide(holder, &node, lease.as_ref(), state.now + early);
        for one in &mut to_do {
            if let ToDo::Lease(lease, _) = one {
                lease.was_schedulable |= self.has(Bug::ForgetsTheCordon);
            }
        }
        if self.has(Bug::ResetsFirst) && matches!(to_do[..], [ToDo::Node(Change::Uncordon, ..)]) {
            let reset = lease.clone().map(|lease| LeaseState {
                seconds: 0,
                ..lease
            });
            to_do.splice(0..0, reset.map(|lease| ToDo::Lease(lease, false)));
        }
        state.pending[operator] = (!to_do.is_empty()).then(|| Pending {
            node,
            lease: lease.as_ref().map_or(0, |lease| lease.version),
            to_do,
            sent: false,
        });
    }

    fn go_on(&self, state: &mut State, operator: usize) {
        let Some(mut pending) = state.pending[operator].take() else {
            return;
        };
        let holds = state.lease.as_ref().map_or(0, |lease| lease.version) == pending.lease;
        match pending.to_do[0].clone() {
            ToDo::Lease(lease, creates) => {
                let written = match creates {
                    true => state.lease.is_none(),
                    false => holds || self.has(Bug::OverwritesTheLease),
                };
                if !written {
                    return;
                }
                let before = state.lease.as_ref();
                let anothers =
                    |old: &LeaseState| old.holder != lease.holder && state.now < old.end();
                if before.is_some_and(anothers) {
                    state.broken = Some("a valid Lease of another was written");
                }
                let version = before.map_or(1, |old| old.version + 1);
                state.ended |= lease.seconds == 0;
                let acted = before.is_some_and(|old| old.acted && old.holder == lease.holder);
                state.lease = Some(LeaseState {
                    version,
                    acted,
                    ..lease
                });
                pending.lease = version;
                pending.to_do.remove(0);
            }
            ToDo::Node(_, _, until) => {
                let good = holds && state.now < until;
                if !good && !self.has(Bug::WritesBlindly) {
                    return;
                }
                pending.sent = true;
            }
            ToDo::Tell(status) => {
                if pending.node.version == state.node.version {
                    let said = (status, None);
                    if (state.node.status, state.node.told_by) != said {
                        state.node.version += 1;
                        (state.node.status, state.node.told_by) = said;
                    }
                }
                pending.to_do.remove(0);
            }
            ToDo::Evict(until) => {
                if state.now < until || self.has(Bug::EvictsLate) {
                    self.evicted(state, operator);
                }
                pending.to_do.remove(0);
            }
        }
        state.pending[operator] = (!pending.to_do.is_empty()).then_some(pending);
    }

    fn arrive(&self, state: &mut State, operator: usize) {
        let Some(mut pending) = state.pending[operator].take() else {
            return;
        };
        let ToDo::Node(change, status, _) = pending.to_do.remove(0) else {
            return;
        };
        if pending.node.version != state.node.version && !self.has(Bug::WritesBlindly) {
            return;
        }
        let me = self.world.holder(operator);
        match change {
            Change::Status => {}
            Change::Cordon => state.node.cordoned = true,
            Change::Uncordon => {
                state.node.cordoned = false;
                // Before its first write the next holder has not looked: that write is then a conflict.
                let anothers = |lease: &LeaseState| {
                    lease.holder != me && state.now < lease.end() && lease.acted
                };
                if state.lease.as_ref().is_some_and(anothers) {
                    state.broken = Some("it was uncordoned under another holder");
                }
                if self.world == World::Cordoned {
                    state.broken = Some("what a person had cordoned was uncordoned");
                }
            }
            Change::TakeRequestOff => state.node.asks = false,
        }
        state.node.version += 1;
        (state.node.status, state.node.told_by) = (Some(status), Some(me));
        if let Some(lease) = state.lease.as_mut().filter(|lease| lease.holder == me) {
            lease.acted = true;
        }
        state.pending[operator] = (!pending.to_do.is_empty()).then_some(pending);
    }

    fn evicted(&self, state: &mut State, operator: usize) {
        let me = self.world.holder(operator);
        let mine = |lease: &LeaseState| lease.holder == me && state.now < lease.end();
        if !state.lease.as_ref().is_some_and(mine)
            && state.lease.as_ref().is_some_and(|lease| lease.holder != me)
        {
            state.broken = Some("pods were evicted under another holder");
        }
    }

    /// Where nobody asks, and a fresh look of either operator finds nothing to do, it takes pods again.
    fn is_released(&self, state: &State) -> bool {
        let idle = |operator: usize| {
            let holder = self.world.holder(operator);
            decide(holder, &state.node, state.lease.as_ref(), state.now).is_empty()
        };
        let at_rest =
            !state.node.asks && state.pending == [None, None] && [0, 1].into_iter().all(idle);
        let was_cordoned = self.world == World::Cordoned;
        !at_rest || state.node.cordoned == was_cordoned
    }
}
