//! The properties, and the search for a state that breaks one of them.

use std::time::{Duration, Instant};

use lynqgate_plants::Plant;
use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::bounds::Bounds;
use crate::relabel::{Names, relabel};
use crate::rules::Rules;
use crate::state::{Slot, State};
use crate::steps::{Step, World};

/// With names kept, versions grow for ever: a mutant that is not found must end.
const STATES_MAX: usize = 200_000_000;

pub struct Rollout<const N: usize> {
    pub world: World<N>,
    pub names: Names,
}

impl<const N: usize> Rollout<N> {
    pub fn new(bounds: Bounds, mutant: Option<Plant>, names: Names) -> Self {
        assert_eq!(bounds.nodes, N, "the bounds' nodes");
        let rules = Rules { mutant };
        Rollout {
            world: World { bounds, rules },
            names,
        }
    }
}

impl<const N: usize> Model for Rollout<N> {
    type State = State<N>;
    type Action = Step;

    fn init_states(&self) -> Vec<State<N>> {
        vec![relabel(self.world.start(), self.names)]
    }

    fn actions(&self, state: &State<N>, steps: &mut Vec<Step>) {
        self.world.steps(state, steps);
    }

    fn next_state(&self, state: &State<N>, step: Step) -> Option<State<N>> {
        let next = relabel(self.world.take(state, step)?, self.names);
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("window", |_, state| window_holds(state)),
            Property::always("exact", |_, state: &State<N>| !state.inexact),
            Property::always("repairs", |_, state| repairs_are_as_taken(state)),
        ]
    }
}

/// No more nodes are in flight than the largest window under which one of them was reserved.
pub fn window_holds<const N: usize>(state: &State<N>) -> bool {
    let flying = state
        .nodes
        .iter()
        .map(|node| node.flight)
        .filter(|w| *w > 0);
    let largest = flying.clone().max().unwrap_or_default();
    flying.count() <= usize::from(largest)
}

/// What a slot was taken for does not change while it is kept.
fn repairs_are_as_taken<const N: usize>(state: &State<N>) -> bool {
    let good = |slot: &Slot| slot.repair == slot.taken_for_repair;
    state.ledger.slots.iter().flatten().all(good)
}

pub struct Searched {
    pub states: usize,
    pub unique: usize,
    pub depth: usize,
    pub took: Duration,
    /// The property that does not hold, and the steps that lead there.
    pub broken: Option<(&'static str, Vec<Step>)>,
}

/// Every state within the bounds; or up to the first that breaks a property, or this one.
pub fn search<const N: usize>(model: Rollout<N>, this: Option<&'static str>) -> Searched {
    let began = Instant::now();
    let until = match this {
        Some(property) => HasDiscoveries::AnyOf([property].into()),
        None => HasDiscoveries::Any,
    };
    let checker = model
        .checker()
        .threads(1)
        .finish_when(until)
        .target_state_count(STATES_MAX)
        .spawn_bfs()
        .join();
    let shortest = checker
        .discoveries()
        .into_iter()
        .filter(|(property, _)| this.is_none_or(|this| this == *property))
        .map(|(property, path)| (property, path.into_actions()))
        .min_by_key(|(property, steps)| (steps.len(), *property));
    Searched {
        states: checker.state_count(),
        unique: checker.unique_state_count(),
        depth: checker.max_depth(),
        took: began.elapsed(),
        broken: shortest,
    }
}
