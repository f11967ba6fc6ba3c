//! Progress: from every state in which nobody wants what never becomes ready, the fleet can still complete, by the work of
//! the system alone.
//!
//! Stateright's `eventually` follows paths without cycles, and here nearly every state lies on one. So the whole graph
//! is built, and the complete states are walked back from along steps of work. Whether the work is done is the planner's
//! matter, not the rules': what is shown is that no state is a dead end, whatever happened before.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::collections::hash_map::{DefaultHasher, Entry};
use std::hash::{Hash, Hasher};
use std::time::Instant;

use stateright::Model;

use crate::check::{Rollout, Searched};
use crate::state::State;
use crate::steps::Step;

#[derive(Default)]
struct Graph {
    /// The number of a state, by its fingerprint.
    numbers: HashMap<u64, u32>,
    /// From which state it was first reached.
    parents: Vec<u32>,
    depths: Vec<u16>,
    /// Of each state: where its steps of work lead, as a range of `targets`.
    ends: Vec<usize>,
    targets: Vec<u32>,
    /// By number: the fleet is complete.
    complete: Vec<bool>,
    /// By number: no content that is wanted is bad.
    can_complete: Vec<bool>,
    steps: usize,
}

/// Every state within the bounds, and the nearest from which no work leads to completion.
pub fn search<const N: usize>(model: &Rollout<N>) -> Searched {
    let began = Instant::now();
    let graph = explore(model);
    let completes = walk_back(&graph);
    let stuck = (0..graph.parents.len()).find(|i| graph.can_complete[*i] && !completes[*i]);
    Searched {
        states: graph.steps,
        unique: graph.parents.len(),
        depth: graph
            .depths
            .iter()
            .copied()
            .max()
            .unwrap_or_default()
            .into(),
        took: began.elapsed(),
        broken: stuck.map(|at| ("progress", path(model, &graph, at))),
    }
}

fn explore<const N: usize>(model: &Rollout<N>) -> Graph {
    let mut graph = Graph::default();
    let mut queue = VecDeque::new();
    for state in model.init_states() {
        number(&mut graph, &state, 0, 0);
        queue.push_back(state);
    }
    let (mut steps, mut current) = (vec![], 0);
    while let Some(state) = queue.pop_front() {
        graph.complete.push(model.world.is_complete(&state));
        graph.can_complete.push(model.world.can_complete(&state));
        model.actions(&state, &mut steps);
        let depth = graph.depths[current as usize] + 1;
        for step in steps.drain(..) {
            let Some(next) = model.next_state(&state, step) else {
                continue;
            };
            graph.steps += 1;
            let (to, is_new) = number(&mut graph, &next, current, depth);
            if step.is_work() {
                graph.targets.push(to);
            }
            if is_new {
                queue.push_back(next);
            }
        }
        graph.ends.push(graph.targets.len());
        current += 1;
    }
    graph
}

/// The number of a state, and whether it is new.
fn number<const N: usize>(
    graph: &mut Graph,
    state: &State<N>,
    parent: u32,
    depth: u16,
) -> (u32, bool) {
    let next = u32::try_from(graph.parents.len()).expect("fewer than 4 billion states");
    match graph.numbers.entry(fingerprint(state)) {
        Entry::Occupied(known) => (*known.get(), false),
        Entry::Vacant(place) => {
            place.insert(next);
            graph.parents.push(parent);
            graph.depths.push(depth);
            (next, true)
        }
    }
}

/// Two of a hundred million states share one with a probability of 0.03 %.
fn fingerprint<const N: usize>(state: &State<N>) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

/// By number: whether work leads from it to completion. Late states are looked at first, since work leads forward.
fn walk_back(graph: &Graph) -> Vec<bool> {
    let mut completes = graph.complete.clone();
    let mut grew = true;
    while grew {
        grew = false;
        for i in (0..completes.len()).rev() {
            let begin = if i == 0 { 0 } else { graph.ends[i - 1] };
            let targets = &graph.targets[begin..graph.ends[i]];
            if !completes[i] && targets.iter().any(|to| completes[*to as usize]) {
                completes[i] = true;
                grew = true;
            }
        }
    }
    completes
}

/// The steps to a state, found again from its ancestors.
fn path<const N: usize>(model: &Rollout<N>, graph: &Graph, at: usize) -> Vec<Step> {
    let mut line = vec![at as u32];
    while let Some(at) = line.last().filter(|at| **at != 0) {
        line.push(graph.parents[*at as usize]);
    }
    let mut state = model.init_states().remove(0);
    let mut found = vec![];
    for next in line.iter().rev().skip(1) {
        let mut steps = vec![];
        model.actions(&state, &mut steps);
        let (step, after) = steps
            .into_iter()
            .filter_map(|step| Some((step, model.next_state(&state, step)?)))
            .find(|(_, after)| graph.numbers[&fingerprint(after)] == *next)
            .expect("a child of its parent");
        found.push(step);
        state = after;
    }
    found
}
